//! Dispatch of controller requests to the parts of the service.
//!
//! ```text
//!   Start, Control ─▶ sessions, or privates where processes run it   Query… ─▶ a page, at once
//!   EnableProvider, CheckEnables ─▶ providers, or privates           …Access… ─▶ access
//!   …Information, QueryRegistrations ─▶ information                  QueryKernelLosses ─▶ kernels
//! ```

use traceweir_session::Session;
use traceweir_session::config::is_system_logger;
use traceweir_transport::message::{Control, Message, SessionRef};

use super::enable::EnableCall;
use super::private::is_private;
use super::sessions::UpdateRequest;
use super::{Core, Service, refuse_when};
use crate::access::Change;
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
        let (message, passed) = match self.defer_during_change(reply_to, message, passed) {
            Ok(Some(now)) => now,
            Ok(None) => return,
            Err(refusal) => return self.core.turn.refuse(reply_to, refusal),
        };
        if let Err(refusal) = self.route(reply_to, message, passed) {
            self.core.turn.refuse(reply_to, refusal);
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
                self.refuse_when_leaving()?;
                self.start_private(reply_to, *config, &passed)
            }
            Message::Start(config) => {
                self.refuse_when_leaving()?;
                self.start(reply_to, *config, passed)
            }
            Message::Control { session, control } => match self.find_private(&session) {
                Some(private) => {
                    // Processes answer this request, and a daemon that is shutting down does not
                    // wait for them.
                    self.refuse_when_leaving()?;
                    self.control_private(reply_to, private, control)
                }
                None => self.control(reply_to, &session, control, passed),
            },
            Message::EnableProvider { session, provider, code, params, name, timeout_ms } => {
                self.refuse_when_leaving()?;
                let call = EnableCall { provider, code, params: *params, name, timeout_ms };
                match self.find_private(&session) {
                    Some(private) => self.enable_private(reply_to, private, call),
                    None => self.enable_provider(reply_to, &session, call),
                }
            }
            Message::CheckEnables { providers } => self.check_enables(reply_to, &providers),
            Message::QueryAll { from } => {
                let shown = sessions.shown_to(access, reply_to.link);
                turn.reply(reply_to, Message::sessions_page(&shown, from));
                Ok(())
            }
            Message::QueryEnded { from } => {
                let shown = sessions.ended_shown_to(access, reply_to.link);
                turn.reply(reply_to, Message::sessions_page(&shown, from));
                Ok(())
            }
            Message::QueryProviders { after } => {
                let mut page = self.providers_page(reply_to, after);
                let Core { turn, access, sessions, .. } = &mut self.core;
                if let Message::Providers { providers, .. } = &mut page {
                    sessions.hide(access, reply_to.link, providers);
                }
                turn.reply(reply_to, page);
                Ok(())
            }
            Message::SetInformation { session, class, data } => {
                self.refuse_when_leaving()?;
                self.set_information(reply_to, &session, class, &data)
            }
            Message::ConfigureBranches { session, configuration, events } => {
                self.refuse_when_leaving()?;
                self.configure_branches(reply_to, &session, configuration, &events)
            }
            Message::QueryInformation { session, class, input } => {
                self.query_information(reply_to, &session, class, input)
            }
            Message::QueryKernelLosses { session } => self.query_kernel_losses(reply_to, &session),
            Message::QueryRegistrations { provider, from } => {
                self.query_registrations(reply_to, provider, from)
            }
            Message::SetAccess { object, operation, sid, rights, allow } => {
                let change = Change::new(operation, &sid, rights, allow)?;
                refuse_when(self.is_leaving)?;
                access.change_list(turn, reply_to, object, change)
            }
            Message::RemoveAccess { object } => {
                refuse_when(self.is_leaving)?;
                access.change_list(turn, reply_to, object, Change::Remove)
            }
            Message::QueryAccess { object } => access.reply_with_list(turn, reply_to, object),
            Message::QueryAccessLists { from } => {
                access.reply_with_objects(turn, reply_to, from);
                Ok(())
            }
            _ => {
                self.reject_out_of_role(reply_to);
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
                    Some(flags) => self.update_groups(&config, flags, request),
                    None => sessions.update(turn, access, request),
                }
            }
        }
    }

    /// Finds a private session by id or name, or by the GUID of its provider if no other session
    /// has that.
    pub(super) fn find_private(&self, session: &SessionRef) -> Option<u64> {
        self.privates.find(session).or_else(|| match session {
            SessionRef::Name(name) if self.core.sessions.find_any(session).is_none() => {
                self.privates.only_with_guid(name)
            }
            _ => None,
        })
    }
}
