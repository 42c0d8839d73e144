//! Dispatch of controller requests.
//!
//! ```text
//!   Start, Control ─▶ control, or private where processes run it   Query… ─▶ a page, at once
//!   EnableProvider, CheckEnables ─▶ enable, or private             …Access… ─▶ access
//!   …Information, QueryRegistrations ─▶ info                       QueryKernelLosses ─▶ kernel
//! ```

use traceweir_transport::message::{Message, SessionRef};

use super::enable::EnableCall;
use super::private::is_private;
use super::{ReplyTo, Service};
use crate::error::Refusal;
use crate::logfile::PassedDescriptors;

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
            Err(refusal) => return self.refuse(reply_to, refusal),
        };
        let outcome = match message {
            Message::Start(config) if is_private(&config) => self.start_private(reply_to, *config, &passed),
            Message::Start(config) => self.start(reply_to, *config, passed),
            Message::Control { session, control } => match self.find_private(&session) {
                Some(private) => self.control_private(reply_to, private, control),
                None => self.control(reply_to, &session, control, passed),
            },
            Message::EnableProvider { session, provider, code, params, name, timeout_ms } => {
                let call = EnableCall { provider, code, params: *params, name, timeout_ms };
                match self.find_private(&session) {
                    Some(private) => self.enable_private(reply_to, private, call),
                    None => self.enable_provider(reply_to, &session, call),
                }
            }
            Message::CheckEnables { providers } => self.check_enables(reply_to, &providers),
            message @ (Message::QueryAll { .. }
            | Message::QueryEnded { .. }
            | Message::QueryProviders { .. }) => self.reply_with_page(reply_to, message),
            Message::SetInformation { session, class, data } => {
                self.set_information(reply_to, &session, class, &data)
            }
            Message::ConfigureBranches { session, configuration, events } => {
                self.configure_branches(reply_to, &session, configuration, &events)
            }
            Message::QueryInformation { session, class, input } => {
                self.query_information(reply_to, &session, class, input)
            }
            Message::QueryKernelLosses { session } => self.query_kernel_losses(reply_to, &session),
            Message::QueryRegistrations { provider, from } => {
                self.query_registrations(reply_to, provider, from)
            }
            message @ (Message::SetAccess { .. }
            | Message::RemoveAccess { .. }
            | Message::QueryAccess { .. }
            | Message::QueryAccessLists { .. }) => self.handle_access(reply_to, message),
            _ => {
                self.reject_out_of_role(reply_to);
                Ok(())
            }
        };
        if let Err(refusal) = outcome {
            self.refuse(reply_to, refusal);
        }
    }

    /// Replies with a page of the sessions or providers that the controller may see.
    fn reply_with_page(&mut self, reply_to: ReplyTo, question: Message) -> Result<(), Refusal> {
        let page = match question {
            Message::QueryAll { from } => {
                Message::sessions_page(&self.sessions_shown_to(reply_to.link), from)
            }
            Message::QueryEnded { from } => Message::sessions_page(&self.ended_shown_to(reply_to.link), from),
            Message::QueryProviders { after } => {
                let mut page = self.providers_page(reply_to, after);
                if let Message::Providers { providers, .. } = &mut page {
                    self.hide_sessions(reply_to.link, providers);
                }
                page
            }
            _ => {
                self.reject_out_of_role(reply_to);
                return Ok(());
            }
        };
        self.reply(reply_to, page);
        Ok(())
    }

    /// Finds a private session by id or name, or by the GUID of its provider if no other session
    /// has that.
    pub(super) fn find_private(&self, session: &SessionRef) -> Option<u64> {
        self.privates.find(session).or_else(|| match session {
            SessionRef::Name(name) if self.sessions.find_any(session).is_none() => {
                self.privates.only_with_guid(name)
            }
            _ => None,
        })
    }
}
