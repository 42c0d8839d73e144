//! Information classes: requests of TraceSetInformation, TraceQueryInformation and
//! EnumerateTraceGuidsEx to the daemon.
//!
//! ```text
//!   class, length, elements ─▶ session ─▶ right, privilege ─▶ kind ─▶ machine ─▶ content
//!   50     24      24, 87      87, 4201   5      1314         87, 50  50         87
//!       ─▶ stored, and carried out
//!
//!   10 disallow list   ─▶ registry; registrations of enabled groups receive their new parameters
//!   16 periodic state  ─▶ tick, once per period ─▶ Enable (capture state), to registrations
//!                         that the session has enabled; kernel providers: a rundown
//!   18 binary tracking ─▶ ReportModules, to enabled registrations and after each later enable
//!   24, 26 cache       ─▶ the session
//!   3 to 6, 8, 9, 28   ─▶ kernel: the capture changes, or nothing is stored; then the reply
//!   others             ─▶ stored only
//! ```
//!
//! The checks run in the documented order; below each are the Win32 errors that it returns. The
//! first failing check decides. A request that fails changes nothing. The numbers in the list below
//! the checks are information classes.

use traceweir_format::Guid;
use traceweir_format::info::{Branches, Query, Set, StackCaching};
use traceweir_format::spec::access::Rights;
use traceweir_format::spec::info::{InfoClass, RequiredSession};
use traceweir_format::spec::status::Status;
use traceweir_session::config::is_system_logger;
use traceweir_session::info::read_set;
use traceweir_transport::message::{EnableCode, EnableParams, Message, SessionConfig, SessionRef};

use crate::error::Refusal;
use crate::ids::ReplyTo;
use crate::log::log_client;
use crate::registry::EnableTarget;
use crate::service::Service;
use crate::service::access::rights_to_run;
use crate::service::core::Core;
use crate::service::info::{check_kind, log_if_unsupported, refuse_malformed};
use crate::service::kernel::{FollowUp, KernelTarget, NewSettings, kernel_target, only_for_system_loggers};
use crate::service::providers::SessionEnable;

/// Maximum size in bytes of the stack cache of a session that a guest has started.
const MAX_GUEST_CACHE_BYTES: u32 = 1 << 20;

impl Service {
    /// Sets information of a session, or of the system.
    pub(in crate::service) fn set_information(
        &mut self,
        reply_to: ReplyTo,
        session: &SessionRef,
        class: u32,
        data: &[u8],
    ) -> Result<(), Refusal> {
        let set = read_set(class, Some(data), data.len(), || self.core.information.machine())?;
        match set.class().rules().required_session {
            RequiredSession::Session => self.set_session_information(reply_to, session, &set),
            RequiredSession::System | RequiredSession::Anything => {
                self.set_system_information(reply_to, session, &set)
            }
        }
    }

    fn set_system_information(
        &mut self,
        reply_to: ReplyTo,
        session: &SessionRef,
        set: &Set,
    ) -> Result<(), Refusal> {
        check_no_session(session)?;
        let (current, machine) = self.core.information.system_and_machine();
        let mut system = current.clone();
        let outcome = system.set(set, machine);
        if matches!(set, Set::SampledProfileInterval(_)) && outcome.is_ok() && system == *current {
            // Every user may set the interval that is already in force: it changes nothing.
            self.core.turn.reply(reply_to, Message::Done);
            return Ok(());
        }
        if matches!(set, Set::SampledProfileInterval(_)) {
            self.system_loggers.check_interval_change(&self.core.access, reply_to.link)?;
        } else {
            self.core.access.check_profiling(reply_to.link)?;
        }
        outcome.map_err(|e| log_if_unsupported(set.class(), e.into()))?;
        log_client!("{} is set by {}", set.class().name(), self.core.access.peer_name(reply_to.link));
        self.system_loggers.begin_change(
            &mut self.core,
            &mut self.providers.registry,
            NewSettings::System(system),
            FollowUp::Done(reply_to),
        );
        Ok(())
    }

    fn set_session_information(
        &mut self,
        reply_to: ReplyTo,
        session: &SessionRef,
        set: &Set,
    ) -> Result<(), Refusal> {
        if let (Set::ProviderBinaryTracking(is_on), Some(private)) = (set, self.find_private(session)) {
            self.private_sessions.set_module_tracking(
                &mut self.core,
                &self.providers.registry,
                reply_to,
                private,
                *is_on,
            )?;
            self.core.turn.reply(reply_to, Message::Done);
            return Ok(());
        }
        let class = set.class();
        let (id, config) = self.find_session_to_set(reply_to, session, class)?;
        let mut settings = self.core.information.settings(id);
        settings
            .set(set, self.core.information.machine())
            .map_err(|e| log_if_unsupported(class, e.into()))?;
        if let Set::PeriodicCaptureState(Some(periodic)) = set {
            self.check_periodic_capture(reply_to, &periodic.providers, &config)?;
        }
        let mask = if let Set::SystemTraceEnableFlags(mask) = set { Some(*mask) } else { None };
        match set {
            Set::SystemTraceEnableFlags(_)
            | Set::StackTracing(_)
            | Set::ContextRegister { .. }
            | Set::PmcEventList(_)
            | Set::PmcCounterList(_) => {
                let registry = &mut self.providers.registry;
                self.system_loggers.change_settings(&mut self.core, registry, reply_to, id, mask, settings)
            }
            set => {
                self.core.information.store_settings(id, settings);
                self.apply_setting(id, set, &config);
                self.core.turn.reply(reply_to, Message::Done);
                Ok(())
            }
        }
    }

    /// Checks that the peer may request the state of these providers for a session.
    fn check_periodic_capture(
        &self,
        reply_to: ReplyTo,
        providers: &[Guid],
        config: &SessionConfig,
    ) -> Result<(), Refusal> {
        let access = &self.core.access;
        let targets = || providers.iter().map(|provider| (*provider, kernel_target(provider)));
        for target in targets().filter_map(|(_, target)| target) {
            if target == KernelTarget::SystemLogger && !is_system_logger(config) {
                return Err(only_for_system_loggers());
            }
            access.check_kernel_right(reply_to.link)?;
        }
        for (provider, target) in targets() {
            let provider = if let Some(KernelTarget::Manifest(guid)) = target { guid } else { provider };
            access.check_enable(reply_to.link, provider)?;
        }
        Ok(())
    }

    /// Configures the recording of last branches at kernel events: sets both of its classes, or
    /// none.
    pub(in crate::service) fn configure_branches(
        &mut self,
        reply_to: ReplyTo,
        session: &SessionRef,
        configuration: u32,
        events: &[u8],
    ) -> Result<(), Refusal> {
        let class = InfoClass::TraceLbrEventListInfo;
        let branches = Branches::from_bytes(configuration, events).map_err(refuse_malformed)?;
        let (id, config) = self.find_session_to_set(reply_to, session, class)?;
        let mut settings = self.core.information.settings(id);
        let outcome = settings.set_branches(&branches, self.core.information.machine());
        outcome.map_err(|e| log_if_unsupported(class, e.into()))?;
        self.core.information.store_settings(id, settings);
        log_no_effect(&config, class);
        self.core.turn.reply(reply_to, Message::Done);
        Ok(())
    }

    /// Finds a session that supports this class, and checks that the peer may set the class there.
    fn find_session_to_set(
        &self,
        reply_to: ReplyTo,
        session: &SessionRef,
        class: InfoClass,
    ) -> Result<(u64, SessionConfig), Refusal> {
        let rules = class.rules();
        let (id, config) = self.find_session(reply_to, session, class, rules.is_privileged)?;
        self.core.access.check_right(reply_to.link, config.guid, rights_to_run(&config))?;
        if rules.is_privileged {
            self.core.access.check_profiling(reply_to.link)?;
        }
        check_kind(rules, &config)?;
        Ok((id, config))
    }

    fn apply_setting(&mut self, session: u64, set: &Set, config: &SessionConfig) {
        match set {
            Set::DisallowList(providers) => {
                let (code, params) = (EnableCode::Enable, EnableParams::default());
                let enable = SessionEnable { session, code, params };
                for (link, numbers) in self.providers.registry.set_disallowed(session, providers) {
                    // If there is no region, that is logged and retried.
                    let _ = self.providers.send_to_process(&mut self.core, link, &numbers, &enable, None);
                }
            }
            Set::PeriodicCaptureState(periodic) => {
                self.core.information.set_periodic_capture(session, periodic.as_ref(), self.core.turn.now);
            }
            Set::ProviderBinaryTracking(true) => {
                for (link, numbers) in self.providers.registry.enabled_registrations_of_session(session) {
                    self.core.turn.request_modules(link, numbers, session);
                }
            }
            Set::StackCaching(_) | Set::UnifiedStackCaching(_) => self.cache_stacks(session),
            // Later enables no longer ask for modules; there is nothing to undo.
            Set::ProviderBinaryTracking(false) => {}
            Set::LbrConfiguration(_) | Set::LbrEventList(_) => log_no_effect(config, set.class()),
            // Handled elsewhere: by the kernel capture, as settings of the system, or refused.
            Set::SystemTraceEnableFlags(_) | Set::StackTracing(_) | Set::ContextRegister { .. } => {}
            Set::PmcEventList(_) | Set::PmcCounterList(_) => {}
            Set::TruncatedPeriodicCaptureState
            | Set::SampledProfileInterval(_)
            | Set::ProfileSourceConfig(_) => {}
        }
    }

    /// Turns the cache of equal stacks of a session on or off. Guests may have many sessions, so
    /// their caches are small.
    fn cache_stacks(&mut self, id: u64) {
        let is_started_by_guest = self.core.sessions.get_mut(id).is_some_and(|entry| entry.claimant.is_guest);
        let (cache, scope) = self.core.information.settings(id).stack_cache();
        let max_bytes = if is_started_by_guest { MAX_GUEST_CACHE_BYTES } else { u32::MAX };
        if let Some(session) = self.core.sessions.running_session(id) {
            let cache = cache.map(|caching| StackCaching { bytes: caching.bytes.min(max_bytes), ..caching });
            session.cache_stacks(cache, scope);
        }
    }

    /// Requests the state of providers whose period has elapsed.
    pub(in crate::service) fn capture_due_states(&mut self) {
        for (session, providers) in self.core.information.take_due(self.core.turn.now) {
            let mut manifest_providers = Vec::new();
            for provider in providers {
                match kernel_target(&provider) {
                    Some(KernelTarget::SystemLogger) => {
                        self.system_loggers.run_down(session);
                        continue;
                    }
                    Some(KernelTarget::Manifest(guid)) => {
                        manifest_providers.push(guid);
                        continue;
                    }
                    None => {}
                }
                let reached =
                    self.providers.select_reached(EnableTarget::Provider(provider), session, |_, enabled| {
                        enabled.contains(&session)
                    });
                let (code, params) = (EnableCode::CaptureState, EnableParams::default());
                let enable = SessionEnable { session, code, params };
                for (link, numbers) in reached {
                    // Enabled registrations already have a region.
                    let _ = self.providers.send_to_process(&mut self.core, link, &numbers, &enable, None);
                }
            }
            self.kernel_providers.run_down(session, &manifest_providers);
        }
    }

    /// Answers a query about a session, or the system.
    pub(in crate::service) fn query_information(
        &mut self,
        reply_to: ReplyTo,
        session: &SessionRef,
        class: u32,
        input: u32,
    ) -> Result<(), Refusal> {
        let query = Query::new(class, input).map_err(refuse_malformed)?;
        let answer = match query.class().rules().required_session {
            RequiredSession::Session => {
                let (id, config) = self.find_session(reply_to, session, query.class(), false)?;
                self.core.access.check_right(reply_to.link, config.guid, Rights::WMIGUID_QUERY)?;
                self.core.information.answer_about_session(&self.core.sessions, id, &config, query)?
            }
            about => {
                if about == RequiredSession::System {
                    check_no_session(session)?;
                }
                let Core { access, sessions, information, .. } = &self.core;
                let shown_sessions = || sessions.sessions_shown_to(access, reply_to.link);
                information.answer_about_system(sessions, shown_sessions, query)?
            }
        };
        self.core.turn.reply(reply_to, Message::Information { data: answer.to_bytes() });
        Ok(())
    }

    /// Finds a running session that is not private. For a private session the error is a missing
    /// right or privilege, or else that the class is not supported there.
    fn find_session(
        &self,
        reply_to: ReplyTo,
        session: &SessionRef,
        class: InfoClass,
        is_privileged: bool,
    ) -> Result<(u64, SessionConfig), Refusal> {
        if let Some(private) = self.find_private(session).filter(|_| !session.names_no_session()) {
            self.private_sessions.check_controller(&self.core, reply_to, private, false)?;
            if is_privileged {
                self.core.access.check_profiling(reply_to.link)?;
            }
            let reason = format!("{} is not for private sessions", class.name());
            return Err(Refusal::new(Status::ERROR_NOT_SUPPORTED, reason));
        }
        let (id, running) = self.core.sessions.find_running(session)?;
        Ok((id, running.properties().config))
    }
}

fn log_no_effect(config: &SessionConfig, class: InfoClass) {
    log_client!(
        "session {:?}: {} is stored but has no effect: this version does not record branches",
        config.name,
        class.name()
    );
}

fn check_no_session(session: &SessionRef) -> Result<(), Refusal> {
    if session.names_no_session() {
        return Ok(());
    }
    let reason = "this information is about the system: the session id must be 0";
    Err(Refusal::new(Status::ERROR_INVALID_PARAMETER, reason))
}
