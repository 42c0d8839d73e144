//! Before the door opens: sessions that run from the beginning, asked for in the daemon's own name.

use std::time::Instant;

use traceweir_transport::socket::Envelope;

use super::Server;
use super::inbox::Incoming;
use crate::autologger;
use crate::service::OWN;

impl Server {
    /// Asks the service in the daemon's own name.
    pub(super) fn ask(&mut self, requests: Vec<Envelope>) {
        for request in requests {
            self.service.handle(OWN, request);
        }
    }

    /// Starts the sessions that run from the beginning. Clients that come meanwhile wait at the door, but not for ever.
    pub(super) fn start_autologgers(&mut self) {
        let Some(folders) = self.starter.folders().cloned() else { return };
        self.service.admit_own();
        autologger::prepare(folders, self.inbox.sender(Incoming::Prepared));
        let until = Instant::now() + autologger::START_WITHIN;
        while !self.starter.is_done() && Instant::now() < until {
            self.inbox.wait(until.saturating_duration_since(Instant::now()));
            self.take_inbox();
        }
    }
}
