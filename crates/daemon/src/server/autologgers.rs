//! Autologgers: sessions that the daemon starts in its own name before it accepts connections.

use std::time::Instant;

use traceweir_transport::socket::Envelope;

use super::Server;
use super::inbox::Incoming;
use crate::autologger;
use crate::service::OWN;

impl Server {
    /// Sends requests to the service in the daemon's own name.
    pub(super) fn request_as_daemon(&mut self, requests: Vec<Envelope>) {
        for request in requests {
            self.service.handle(OWN, request, Instant::now());
        }
    }

    /// Starts the autologgers. Clients that connect meanwhile wait, up to a limit.
    pub(super) fn start_autologgers(&mut self) {
        let Some(folders) = self.starter.folders().cloned() else { return };
        self.service.admit_own(Instant::now());
        autologger::prepare(folders, self.inbox.sender(Incoming::Prepared));
        let until = Instant::now() + autologger::START_WITHIN;
        while !self.starter.is_done() && Instant::now() < until {
            self.inbox.wait(until.saturating_duration_since(Instant::now()));
            self.handle_inbox();
        }
    }
}
