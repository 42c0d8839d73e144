//! Autologgers: sessions that the daemon starts in its own name before it accepts connections.

use std::time::Instant;

use traceweir_transport::socket::Envelope;

use super::Server;
use super::inbox::InboxMessage;
use crate::autologger;
use crate::service::OWN_LINK;

impl Server {
    /// Sends requests to the service in the daemon's own name.
    pub(super) fn request_as_daemon(&mut self, requests: Vec<Envelope>) {
        for request in requests {
            self.service.handle(OWN_LINK, request, Instant::now());
        }
    }

    /// Starts the autologgers. Clients that connect meanwhile wait, up to
    /// [`autologger::START_TIMEOUT`].
    pub(super) fn start_autologgers(&mut self) {
        let Some(folders) = self.starter.folders().cloned() else { return };
        self.service.add_own_link(Instant::now());
        autologger::prepare_autologgers(folders, self.inbox.sender(InboxMessage::Prepared));
        let until = Instant::now() + autologger::START_TIMEOUT;
        while !self.starter.is_done() && Instant::now() < until {
            self.inbox.wait(until.saturating_duration_since(Instant::now()));
            self.handle_inbox();
        }
    }
}
