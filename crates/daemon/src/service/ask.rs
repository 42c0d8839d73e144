//! What controllers ask for, and who answers it.
//!
//! ```text
//!   Start, Control ─▶ control, or private where processes run the session      Query… ─▶ a page, at once
//!   EnableProvider, CheckEnables ─▶ enable, or private                         …Access… ─▶ access
//!   …Information, QueryRegistrations ─▶ info                                   QueryKernelLosses ─▶ kernel
//! ```

use traceweir_transport::message::{Message, SessionRef};

use super::enable::EnableCall;
use super::private::is_private;
use super::{Asker, Service};
use crate::error::Refusal;
use crate::logfile::Passed;

impl Service {
    pub(super) fn controller_says(&mut self, asker: Asker, message: Message, passed: Passed) {
        let (message, passed) = match self.or_later(asker, message, passed) {
            Ok(Some(now)) => now,
            Ok(None) => return,
            Err(refusal) => return self.refuse(asker, refusal),
        };
        let outcome = match message {
            Message::Start(config) if is_private(&config) => self.start_private(asker, *config, &passed),
            Message::Start(config) => self.start(asker, *config, passed),
            Message::Control { session, control } => match self.private_meant(&session) {
                Some(private) => self.control_private(asker, private, control),
                None => self.control(asker, &session, control, passed),
            },
            Message::EnableProvider { session, provider, code, params, name, timeout_ms } => {
                let call = EnableCall { provider, code, params: *params, name, timeout_ms };
                match self.private_meant(&session) {
                    Some(private) => self.enable_private(asker, private, call),
                    None => self.enable_provider(asker, &session, call),
                }
            }
            Message::CheckEnables { providers } => self.check_enables(asker, &providers),
            message @ (Message::QueryAll { .. }
            | Message::QueryEnded { .. }
            | Message::QueryProviders { .. }) => self.tell_page(asker, message),
            Message::SetInformation { session, class, data } => {
                self.set_information(asker, &session, class, &data)
            }
            Message::ConfigureBranches { session, configuration, events } => {
                self.configure_branches(asker, &session, configuration, &events)
            }
            Message::QueryInformation { session, class, input } => {
                self.query_information(asker, &session, class, input)
            }
            Message::QueryKernelLosses { session } => self.query_kernel_losses(asker, &session),
            Message::QueryRegistrations { provider, from } => self.query_registrations(asker, provider, from),
            message @ (Message::SetAccess { .. }
            | Message::RemoveAccess { .. }
            | Message::QueryAccess { .. }
            | Message::QueryAccessLists { .. }) => self.access_asked(asker, message),
            _ => {
                self.out_of_role(asker);
                Ok(())
            }
        };
        if let Err(refusal) = outcome {
            self.refuse(asker, refusal);
        }
    }

    /// Tells a page of sessions or providers, of those that the asker may know of.
    fn tell_page(&mut self, asker: Asker, question: Message) -> Result<(), Refusal> {
        let page = match question {
            Message::QueryAll { from } => Message::sessions_page(&self.sessions_shown_to(asker.link), from),
            Message::QueryEnded { from } => Message::sessions_page(&self.ended_shown_to(asker.link), from),
            Message::QueryProviders { after } => {
                let mut page = self.providers_page(asker, after);
                if let Message::Providers { providers, .. } = &mut page {
                    self.hide_sessions(asker.link, providers);
                }
                page
            }
            _ => {
                self.out_of_role(asker);
                return Ok(());
            }
        };
        self.reply(asker, page);
        Ok(())
    }

    /// The private session that is meant, by id or name; or by the GUID of its provider, where no other session has that.
    pub(super) fn private_meant(&self, session: &SessionRef) -> Option<u64> {
        self.privates.find(session).or_else(|| match session {
            SessionRef::Name(name) if self.sessions.known(session).is_none() => self.privates.only_of(name),
            _ => None,
        })
    }
}
