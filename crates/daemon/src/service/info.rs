//! Information classes: what TraceSetInformation sets, what TraceQueryInformation and EnumerateTraceGuidsEx ask of the daemon.
//!
//! ```text
//!   class, length, elements ─▶ session ─▶ right, privilege ─▶ kind of session ─▶ machine ─▶ content ─▶ kept, and carried out
//!   50     24      24, 87      87, 4201   5      1314          87, 50             50         87
//!
//!   10 disallow list   ─▶ registry; registrations whose group is enabled are told what is wanted of them now
//!   16 periodic state  ─▶ tick, every so many seconds ─▶ Enable (capture state), to registrations that the session has enabled
//!   18 binary tracking ─▶ TellModules, to those that are enabled and after each enable from now on
//!   24, 26 cache       ─▶ the session
//!   3 to 6, 8, 9, 28   ─▶ kernel: what is captured changes, or nothing is kept; answered then
//!   others             ─▶ kept
//! ```
//!
//! The published order of checks holds: each is made when all before it have passed. What fails changes nothing. Settings of a session are forgotten when it
//! begins to stop; those of the system are the daemon's, for as long as it runs: it does not leave with them.

mod kept;

pub(super) use kept::Information;

use std::time::Instant;

use traceweir_format::Guid;
use traceweir_format::info::{Answer, Branches, Query, Set, StackCaching};
use traceweir_format::spec::access::Rights;
use traceweir_format::spec::info::{About, InfoClass, Rules};
use traceweir_format::spec::status::Status;
use traceweir_session::Session;
use traceweir_session::config::{is_system_logger, stream_count};
use traceweir_session::info::{Settings, local_answer, read_set};
use traceweir_transport::cpu;
use traceweir_transport::message::{EnableCode, EnableParams, Message, SessionConfig, SessionRef};

use super::access::rights_to_run;
use super::kernel::{Kept, Then, is_kernels, of_system_loggers};
use super::{Asker, LinkId, Service, told};
use crate::error::Refusal;
use crate::process::{self, ProcessKey};
use crate::registry::Target;

/// Bytes of the cache of stacks of a session that a guest has started.
const MAX_CACHE_OF_GUEST: u32 = 1 << 20;

impl Service {
    /// Sets something of a session, or of the system.
    pub(super) fn set_information(
        &mut self,
        asker: Asker,
        session: &SessionRef,
        class: u32,
        data: &[u8],
    ) -> Result<(), Refusal> {
        self.refuse_when_leaving()?;
        let set = read_set(class, Some(data), data.len(), || self.information.machine())?;
        match set.class().rules().about {
            About::Session => self.set_of_session(asker, session, &set),
            About::System | About::Anything => self.set_of_system(asker, session, &set),
        }
    }

    fn set_of_system(&mut self, asker: Asker, session: &SessionRef, set: &Set) -> Result<(), Refusal> {
        check_nothing(session)?;
        let (current, machine) = self.information.of_system();
        let mut system = current.clone();
        let done = system.set(set, machine);
        if matches!(set, Set::SampledProfileInterval(_)) && done.is_ok() && system == *current {
            // Every user may set the interval in force: it changes nothing.
            self.reply(asker, Message::Done);
            return Ok(());
        }
        self.check_profiling(asker.link)?;
        done.map_err(|e| not_done(set.class(), e.into()))?;
        told!("{} is set by {}", set.class().name(), self.who(asker.link));
        self.change_kernel(Kept::System(system), Then::Done(asker));
        Ok(())
    }

    /// What is set of a session from its start: stacks of kernel events, where some are asked for.
    pub(super) fn settings_at_start(
        &self,
        config: &SessionConfig,
        stacks: &[u8],
    ) -> Result<Option<Settings>, Refusal> {
        if stacks.is_empty() {
            return Ok(None);
        }
        let class = InfoClass::TraceStackTracingInfo;
        check_kind(class.rules(), config)?;
        let set = Set::from_bytes(class.number(), Some(stacks), stacks.len()).map_err(refusal)?;
        let mut settings = Settings::default();
        settings.set(&set, self.information.machine()).map_err(|e| not_done(class, e.into()))?;
        Ok(Some(settings))
    }

    fn set_of_session(&mut self, asker: Asker, session: &SessionRef, set: &Set) -> Result<(), Refusal> {
        if let (Set::ProviderBinaryTracking(on), Some(private)) = (set, self.private_meant(session)) {
            self.track_private(asker, private, *on)?;
            self.reply(asker, Message::Done);
            return Ok(());
        }
        let class = set.class();
        let (id, config) = self.session_to_set(asker, session, class)?;
        let mut settings = self.information.settings(id);
        settings.set(set, self.information.machine()).map_err(|e| not_done(class, e.into()))?;
        if let Set::PeriodicCaptureState(Some(it)) = set {
            if it.providers.iter().any(is_kernels) {
                if !is_system_logger(&config) {
                    return Err(of_system_loggers());
                }
                self.check_sight(asker.link, &config)?;
            }
            it.providers.iter().try_for_each(|provider| self.check_enable(asker.link, *provider))?;
        }
        match set {
            Set::SystemTraceEnableFlags(mask) => self.set_of_kernel(asker, id, Some(*mask), settings),
            Set::StackTracing(_)
            | Set::ContextRegister { .. }
            | Set::PmcEventList(_)
            | Set::PmcCounterList(_) => self.set_of_kernel(asker, id, None, settings),
            set => {
                self.information.keep(id, settings);
                self.carry_out(id, set, &config);
                self.reply(asker, Message::Done);
                Ok(())
            }
        }
    }

    /// Records the last branches of a session at kernel events: both classes that it takes are set, or none.
    pub(super) fn configure_branches(
        &mut self,
        asker: Asker,
        session: &SessionRef,
        configuration: u32,
        events: &[u8],
    ) -> Result<(), Refusal> {
        self.refuse_when_leaving()?;
        let class = InfoClass::TraceLbrEventListInfo;
        let branches = Branches::from_bytes(configuration, events).map_err(refusal)?;
        let (id, config) = self.session_to_set(asker, session, class)?;
        let mut settings = self.information.settings(id);
        let done = settings.set_branches(&branches, self.information.machine());
        done.map_err(|e| not_done(class, e.into()))?;
        self.information.keep(id, settings);
        say_that_it_is_kept(&config, class);
        self.reply(asker, Message::Done);
        Ok(())
    }

    /// The session that is meant, where whoever asks may set this of it, and it is of the kind that has it.
    fn session_to_set(
        &self,
        asker: Asker,
        session: &SessionRef,
        class: InfoClass,
    ) -> Result<(u64, SessionConfig), Refusal> {
        let rules = class.rules();
        let (id, config) = self.session_of(asker, session, class, rules.is_privileged)?;
        self.check_right(asker.link, config.guid, rights_to_run(&config))?;
        if rules.is_privileged {
            self.check_profiling(asker.link)?;
        }
        check_kind(rules, &config)?;
        Ok((id, config))
    }

    fn carry_out(&mut self, session: u64, set: &Set, config: &SessionConfig) {
        match set {
            Set::DisallowList(providers) => {
                for (link, numbers) in self.registry.disallow(session, providers) {
                    // Where there is no region it is logged, and tried again.
                    let params = EnableParams::default();
                    let _ = self.instruct(link, &numbers, session, EnableCode::Enable, &params, None);
                }
            }
            Set::PeriodicCaptureState(wish) => self.information.repeat(session, wish.as_ref()),
            Set::ProviderBinaryTracking(true) => {
                for (link, numbers) in self.registry.enabled_for(session) {
                    self.tell_modules(link, numbers, session);
                }
            }
            Set::StackCaching(_) | Set::UnifiedStackCaching(_) => self.cache_stacks(session),
            // Whoever is enabled from now on is not asked to tell, and nobody has to take anything back.
            Set::ProviderBinaryTracking(false) => {}
            Set::LbrConfiguration(_) | Set::LbrEventList(_) => say_that_it_is_kept(config, set.class()),
            // Carried out by the kernel, refused, or of the system: they do not come here.
            Set::SystemTraceEnableFlags(_) | Set::StackTracing(_) | Set::ContextRegister { .. } => {}
            Set::PmcEventList(_) | Set::PmcCounterList(_) => {}
            Set::CutPeriodicCaptureState | Set::SampledProfileInterval(_) | Set::ProfileSourceConfig(_) => {}
        }
    }

    /// Has a session store equal stacks once, or no longer. A guest's sessions may be many: their caches are small.
    fn cache_stacks(&mut self, id: u64) {
        let is_guests = self.sessions.get_mut(id).is_some_and(|entry| entry.owner.is_guest);
        let (cache, of) = self.information.settings(id).stack_cache();
        let most = if is_guests { MAX_CACHE_OF_GUEST } else { u32::MAX };
        if let Some(session) = self.sessions.running_session(id) {
            let cache = cache.map(|it| StackCaching { bytes: it.bytes.min(most), ..it });
            session.cache_stacks(cache, of);
        }
    }

    /// Has some registrations tell a session where they live.
    pub(super) fn tell_modules(&mut self, link: LinkId, registrations: Vec<u32>, session: u64) {
        if !registrations.is_empty() {
            self.send(link, 0, Message::TellModules { registrations, session });
        }
    }

    /// Asks providers for their state whose time has come.
    pub(super) fn capture_due_states(&mut self, now: Instant) {
        let mut due = Vec::new();
        for (session, periodic) in self.information.periodic.iter_mut().filter(|(_, it)| it.next <= now) {
            // A daemon that could not run in time asks once, not for each time that it missed.
            let in_step = periodic.next + periodic.every;
            periodic.next = if in_step > now { in_step } else { now + periodic.every };
            due.push((*session, periodic.providers.clone()));
        }
        for (session, providers) in due {
            for provider in providers {
                if is_kernels(&provider) {
                    self.kernels.run_down(session);
                    continue;
                }
                let targets = self
                    .targets(Target::Provider(provider), session, |_, enabled| enabled.contains(&session));
                for (link, numbers) in targets {
                    let (code, params) = (EnableCode::CaptureState, EnableParams::default());
                    // Registrations that are enabled have a region.
                    let _ = self.instruct(link, &numbers, session, code, &params, None);
                }
            }
        }
    }

    /// Answers a question about a session, or the system.
    pub(super) fn query_information(
        &mut self,
        asker: Asker,
        session: &SessionRef,
        class: u32,
        input: u32,
    ) -> Result<(), Refusal> {
        let query = Query::new(class, input).map_err(refusal)?;
        let answer = match query.class().rules().about {
            About::Session => self.answer_of_session(asker, session, query)?,
            About::System => {
                check_nothing(session)?;
                self.answer_of_system(asker, query)?
            }
            About::Anything => self.answer_of_system(asker, query)?,
        };
        self.reply(asker, Message::Information { data: answer.to_bytes() });
        Ok(())
    }

    fn answer_of_session(&self, asker: Asker, session: &SessionRef, query: Query) -> Result<Answer, Refusal> {
        let (id, config) = self.session_of(asker, session, query.class(), false)?;
        self.check_right(asker.link, config.guid, Rights::WMIGUID_QUERY)?;
        check_kind(query.class().rules(), &config)?;
        let groups = || self.sessions.running_session(id).map(Session::groups).unwrap_or_default();
        match query {
            Query::SystemTraceEnableFlags => Ok(Answer::SystemTraceEnableFlags(groups())),
            Query::StreamCount => Ok(Answer::StreamCount(stream_count(&config, cpu::possible()).into())),
            query => self.information.settings(id).answer(query).ok_or_else(not_queried),
        }
    }

    fn answer_of_system(&self, asker: Asker, query: Query) -> Result<Answer, Refusal> {
        let machine = self.information.machine();
        Ok(match query {
            Query::SampledProfileInterval(source) => self.information.system.interval(source, machine)?,
            Query::MaxLoggers => Answer::MaxLoggers(u32::try_from(self.sessions.most()).unwrap_or(u32::MAX)),
            Query::PmcSessions => {
                let shown = self.sessions_shown_to(asker.link).into_iter();
                let all = shown.filter_map(|it| {
                    self.information.sessions.get(&it.id)?.pmc_session((it.id & 0xFFFF) as u16)
                });
                Answer::PmcSessions(all.collect())
            }
            query => local_answer(query, || machine)?.ok_or_else(not_queried)?,
        })
    }

    /// Tells the registrations of a provider.
    pub(super) fn query_registrations(
        &mut self,
        asker: Asker,
        provider: Guid,
        from: u32,
    ) -> Result<(), Refusal> {
        let shown: Option<Vec<u64>> = self
            .is_guest(asker.link)
            .then(|| self.sessions_shown_to(asker.link).iter().map(|it| it.id).collect());
        let is_shown = |id: u64| shown.as_ref().is_none_or(|shown| shown.contains(&id));
        let Some(page) = self.registry.registrations_page(provider, from, &is_shown) else {
            let why = "nobody has registered or enabled this provider";
            return Err(Refusal::new(Status::ERROR_WMI_GUID_NOT_FOUND, why));
        };
        self.reply(asker, page);
        Ok(())
    }

    /// The session that is meant: one that runs, and is not run by processes of their own, which whoever has no right or privilege is not told.
    fn session_of(
        &self,
        asker: Asker,
        session: &SessionRef,
        class: InfoClass,
        is_privileged: bool,
    ) -> Result<(u64, SessionConfig), Refusal> {
        if let Some(private) = self.private_meant(session).filter(|_| !session.is_nothing()) {
            self.check_owner(asker, private, false)?;
            if is_privileged {
                self.check_profiling(asker.link)?;
            }
            let why = format!("{} is not for private sessions", class.name());
            return Err(Refusal::new(Status::ERROR_NOT_SUPPORTED, why));
        }
        let (id, running) = self.sessions.find_running(session)?;
        Ok((id, running.properties().config))
    }

    /// Whether the peer of a connection may profile the system: by its process, which must be the one that connected, and by the right it had then and has now. A
    /// process may run another program meanwhile, whose right is not that of whoever it left the connection to.
    pub(super) fn check_profiling(&self, link: LinkId) -> Result<(), Refusal> {
        let may = self.clients.get(&link).is_some_and(|client| {
            let may = client.could_profile && process::may_profile(client.peer.pid, client.peer.uid);
            may && client.process.is_some() && ProcessKey::of(client.peer.pid) == client.process
        });
        if may {
            return Ok(());
        }
        let why = "profiling the system takes CAP_PERFMON or CAP_SYS_ADMIN: run as root, or grant it with setcap cap_perfmon+ep PROGRAM";
        Err(Refusal::new(Status::ERROR_PRIVILEGE_NOT_HELD, why))
    }
}

fn say_that_it_is_kept(config: &SessionConfig, class: InfoClass) {
    told!(
        "session {:?}: {} is kept, and has no effect: branches are not recorded by this version",
        config.name,
        class.name()
    );
}

fn check_nothing(session: &SessionRef) -> Result<(), Refusal> {
    if session.is_nothing() {
        return Ok(());
    }
    let why = "this information is about the system: the session id must be 0";
    Err(Refusal::new(Status::ERROR_INVALID_PARAMETER, why))
}

fn check_kind(rules: Rules, config: &SessionConfig) -> Result<(), Refusal> {
    if rules.is_of_system_loggers && !is_system_logger(config) {
        let why = "this is about kernel events, which only a SYSTEM_LOGGER_MODE session receives";
        return Err(Refusal::new(Status::ERROR_INVALID_PARAMETER, why));
    }
    Ok(())
}

fn not_queried() -> Refusal {
    Refusal::new(Status::ERROR_NOT_SUPPORTED, "this information class cannot be queried")
}

fn refusal(e: traceweir_format::Error) -> Refusal {
    Refusal::new(e.status(), e.to_string())
}

/// What the machine cannot do is a matter for the log too.
fn not_done(class: InfoClass, refusal: Refusal) -> Refusal {
    if refusal.status == Status::ERROR_NOT_SUPPORTED {
        told!("{} is not set: {refusal}", class.name());
    }
    refusal
}
