//! Dispatch of the messages of controllers and providers to the parts of the service.
//!
//! ```text
//!   Start, Control ─▶ sessions, or private if processes run the session
//!   EnableProvider ─▶ providers, kernel or private   QueryAll, QueryEnded ─▶ sessions
//!   QueryProviders ─▶ private (lists all providers)  CheckEnables, …Access… ─▶ access
//!   QueryRegistrations ─▶ providers                  QueryKernelLosses ─▶ kernel
//!   …Information, ConfigureBranches ─▶ information
//!
//!   of providers:  Unregister, Ack, Failed ─▶ providers   PrivateState ─▶ private
//!                  Register, SetTraits ─▶ providers, then private
//! ```

mod information;

use traceweir_format::Guid;
use traceweir_format::spec::enable::EVENT_ENABLE_PROPERTY_PROVIDER_GROUP;
use traceweir_format::spec::status::Status;
use traceweir_session::Session;
use traceweir_session::config::is_system_logger;
use traceweir_transport::message::{Control, Message, SessionRef};

use super::access::rights_to_run;
use super::core::Core;
use super::kernel::{DeferredWork, KernelTarget, kernel_target};
use super::private::is_private;
use super::providers::EnableCall;
use super::sessions::UpdateRequest;
use super::{Service, refuse_if_shutting_down};
use crate::access::AccessChange;
use crate::error::Refusal;
use crate::ids::ReplyTo;
use crate::logfile::{NamedFiles, PassedDescriptors};

impl Service {
    pub(super) fn handle_controller(
        &mut self,
        reply_to: ReplyTo,
        message: Message,
        passed: PassedDescriptors,
    ) {
        let (message, passed) = match self.system_loggers.defer(&self.core, reply_to, message, passed) {
            Ok(Some(request)) => request,
            Ok(None) => return,
            Err(refusal) => return self.core.turn.refuse(reply_to, refusal),
        };
        if let Err(refusal) = self.route(reply_to, message, passed) {
            self.core.turn.refuse(reply_to, refusal);
        }
    }

    /// Carries out the work that waited for a kernel change, until the next change begins.
    pub(super) fn resume_all_deferred(&mut self) {
        while let Some(work) = self.system_loggers.take_next_deferred() {
            self.resume_deferred(work);
        }
    }

    fn resume_deferred(&mut self, work: DeferredWork) {
        match work {
            DeferredWork::Request { reply_to, message, passed, .. } => {
                self.handle_controller(reply_to, *message, passed);
            }
            DeferredWork::Adjust(id) => {
                self.system_loggers.adjust_capture(&mut self.core, &mut self.providers.registry, id);
            }
        }
    }

    fn route(
        &mut self,
        reply_to: ReplyTo,
        message: Message,
        passed: PassedDescriptors,
    ) -> Result<(), Refusal> {
        let Core { turn, access, sessions, .. } = &mut self.core;
        match message {
            Message::Start(config) if is_private(&config) => {
                self.refuse_when_shutting_down()?;
                let registry = &self.providers.registry;
                self.private_sessions.start(&mut self.core, registry, reply_to, *config, &passed)
            }
            Message::Start(config) => {
                self.refuse_when_shutting_down()?;
                self.start(reply_to, *config, passed)
            }
            Message::Control { session, control } => match self.find_private(&session) {
                Some(private) => {
                    // Processes answer this request, and a daemon that is shutting down does not
                    // wait for them.
                    self.refuse_when_shutting_down()?;
                    let registry = &self.providers.registry;
                    self.private_sessions.control(&mut self.core, registry, reply_to, private, control)
                }
                None => self.control(reply_to, &session, control, passed),
            },
            Message::EnableProvider { session, provider, code, params, name, timeout_ms } => {
                self.refuse_when_shutting_down()?;
                let call = EnableCall { provider, code, params: *params, name, timeout_ms };
                match self.find_private(&session) {
                    Some(private) => {
                        let registry = &self.providers.registry;
                        self.private_sessions.enable(&mut self.core, registry, reply_to, private, call)
                    }
                    None => self.enable_provider(reply_to, &session, call),
                }
            }
            Message::CheckEnables { providers } => {
                for provider in &providers {
                    check_provider(*provider)?;
                    access.check_enable(reply_to.link, *provider)?;
                }
                turn.reply(reply_to, Message::Done);
                Ok(())
            }
            Message::QueryAll { from } => {
                let shown = sessions.sessions_shown_to(access, reply_to.link);
                turn.reply(reply_to, Message::sessions_page(&shown, from));
                Ok(())
            }
            Message::QueryEnded { from } => {
                let shown = sessions.outcomes_shown_to(access, reply_to.link);
                turn.reply(reply_to, Message::sessions_page(&shown, from));
                Ok(())
            }
            Message::QueryProviders { after } => {
                let registry = &self.providers.registry;
                let mut page = self.private_sessions.providers_page(&self.core, registry, reply_to, after);
                let Core { turn, access, sessions, .. } = &mut self.core;
                if let Message::Providers { providers, .. } = &mut page {
                    sessions.hide_sessions(access, reply_to.link, providers);
                }
                turn.reply(reply_to, page);
                Ok(())
            }
            Message::SetInformation { session, class, data } => {
                self.refuse_when_shutting_down()?;
                self.set_information(reply_to, &session, class, &data)
            }
            Message::ConfigureBranches { session, configuration, events } => {
                self.refuse_when_shutting_down()?;
                self.configure_branches(reply_to, &session, configuration, &events)
            }
            Message::QueryInformation { session, class, input } => {
                self.query_information(reply_to, &session, class, input)
            }
            Message::QueryKernelLosses { session } => {
                self.system_loggers.query_losses(&mut self.core, reply_to, &session)
            }
            Message::QueryRegistrations { provider, from } => {
                self.providers.query_registrations(&mut self.core, reply_to, provider, from)
            }
            Message::SetAccess { object, operation, sid, rights, allow } => {
                let change = AccessChange::new(operation, &sid, rights, allow)?;
                refuse_if_shutting_down(self.is_shutting_down)?;
                access.change_list(turn, reply_to, object, change)
            }
            Message::RemoveAccess { object } => {
                refuse_if_shutting_down(self.is_shutting_down)?;
                access.change_list(turn, reply_to, object, AccessChange::Remove)
            }
            Message::QueryAccess { object } => access.reply_with_list(turn, reply_to, object),
            Message::QueryAccessLists { from } => {
                access.reply_with_objects(turn, reply_to, from);
                Ok(())
            }
            _ => {
                self.core.turn.reject_out_of_role(reply_to);
                Ok(())
            }
        }
    }

    /// Controls a session that is not private.
    fn control(
        &mut self,
        reply_to: ReplyTo,
        session: &SessionRef,
        control: Control,
        passed: PassedDescriptors,
    ) -> Result<(), Refusal> {
        let Core { turn, access, sessions, .. } = &mut self.core;
        if matches!(control, Control::Stop) {
            sessions.dismiss_stopped(access, reply_to.link, session);
        }
        sessions.check_control(access, reply_to.link, session, &control)?;
        match control {
            Control::Query => sessions.query(turn, reply_to, session),
            Control::Outcome => sessions.query_outcome(turn, reply_to, session),
            Control::Flush { log_file } => sessions.flush(turn, access, reply_to, session, log_file, passed),
            Control::Increment => sessions.change(turn, reply_to, session, Session::increment),
            Control::ConvertToRealTime => {
                sessions.change(turn, reply_to, session, Session::convert_to_real_time)
            }
            Control::Stop => {
                let id = sessions.find(session)?;
                self.stop(reply_to, id)
            }
            Control::Update(mut update) => {
                let (id, running) = sessions.find_running(session)?;
                let config = running.properties().config;
                passed.check(NamedFiles::from_mode(config.log_file_mode, update.log_file.is_some()))?;
                let flags = update.enable_flags.take_if(|_| is_system_logger(&config));
                let request = UpdateRequest { reply_to, id, update, passed, before: None };
                match flags {
                    Some(flags) => {
                        let registry = &mut self.providers.registry;
                        self.system_loggers.update_groups(&mut self.core, registry, &config, flags, request)
                    }
                    None => sessions.update(turn, access, request),
                }
            }
        }
    }

    /// Enables or disables a provider for a session that is not private, or requests its state.
    fn enable_provider(
        &mut self,
        reply_to: ReplyTo,
        session: &SessionRef,
        call: EnableCall,
    ) -> Result<(), Refusal> {
        call.check_name()?;
        let (id, running) = self.core.sessions.find_running(session)?;
        let config = running.properties().config;
        check_provider(call.provider)?;
        // Only a user who may run the session may change what it records.
        self.core.access.check_right(reply_to.link, config.guid, rights_to_run(&config))?;
        let is_group = call.params.property & EVENT_ENABLE_PROPERTY_PROVIDER_GROUP != 0;
        match kernel_target(&call.provider) {
            Some(KernelTarget::Manifest(provider)) if !is_group => {
                let call = EnableCall { provider, ..call };
                let (registry, loggers) = (&mut self.providers.registry, &mut self.system_loggers);
                let session = (id, &config);
                self.kernel_providers.enable(&mut self.core, registry, loggers, reply_to, session, call)
            }
            Some(KernelTarget::SystemLogger) => {
                let registry = &mut self.providers.registry;
                self.system_loggers.enable(&mut self.core, registry, reply_to, id, &config, call)
            }
            _ => self.providers.enable(&mut self.core, reply_to, id, &config.name, call),
        }
    }

    pub(super) fn handle_provider(&mut self, reply_to: ReplyTo, message: Message) {
        let (core, link) = (&mut self.core, reply_to.link);
        match message {
            Message::Register { registration, provider, traits, classic } => {
                let registered =
                    self.providers.register(core, link, registration, provider, &traits, classic);
                if registered.is_ok() {
                    let registry = &self.providers.registry;
                    self.private_sessions.handle_registration(core, registry, link, registration, provider);
                }
                self.providers.drop_offers(link);
                match registered {
                    Ok(()) => self.core.turn.reply(reply_to, Message::Registered { registration }),
                    Err(refusal) => self.core.turn.refuse(reply_to, refusal),
                }
            }
            Message::SetTraits { registration, traits } => {
                let outcome = self.providers.set_traits(core, link, registration, &traits);
                if outcome.is_ok() {
                    self.private_sessions.handle_new_name(core, &self.providers.registry, link, registration);
                }
                self.providers.drop_offers(link);
                self.core.turn.reply_done(reply_to, outcome);
            }
            Message::Unregister { registration } => {
                self.providers.unregister(core, link, registration);
                if reply_to.request != 0 {
                    core.turn.reply(reply_to, Message::Done);
                }
            }
            Message::Ack { order } => self.providers.acknowledge(core, link, order),
            Message::Failed { order, registration, session, status, reason } => {
                let refusal = Refusal::new(Status(status), reason);
                self.providers.handle_failed_order(core, link, order, registration, session, refusal);
            }
            Message::PrivateState { order, session, status, reason, properties } => {
                let refusal = Refusal::new(Status(status), reason);
                let outcome = if status == 0 { Ok(*properties) } else { Err(refusal) };
                let registry = &self.providers.registry;
                self.private_sessions.handle_state_report(core, registry, link, order, session, outcome);
            }
            _ => core.turn.reject_out_of_role(reply_to),
        }
    }

    /// Finds a private session by id or name, or by the GUID of its provider if no other session
    /// has that GUID.
    pub(super) fn find_private(&self, session: &SessionRef) -> Option<u64> {
        self.private_sessions.find(session).or_else(|| match session {
            SessionRef::Name(name) if self.core.sessions.find_any(session).is_none() => {
                self.private_sessions.find_only_session_of_provider(name)
            }
            _ => None,
        })
    }
}

fn check_provider(provider: Guid) -> Result<(), Refusal> {
    if provider.is_null() {
        return Err(Refusal::new(Status::ERROR_INVALID_PARAMETER, "the null GUID is not a provider"));
    }
    Ok(())
}
