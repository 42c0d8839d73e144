//! Ends the session after the collector thread has panicked (see [`crate::fault`]).

use traceweir_transport::clock::{Anchor, Counter};

use super::{CollectorThread, Command};
use crate::fault::contained;
use crate::flush::BEAT;
use crate::output::Job;

impl CollectorThread {
    /// Ends the session and waits for its stop.
    pub(super) fn end_after_panic(mut self) {
        contained(|| self.collector.abandon());
        self.send(Job::Fault);
        // The stop itself may have caused the panic.
        while self.ending.is_none() {
            self.shared.wait(BEAT);
            self.refuse_until_stop();
        }
        contained(|| self.close());
        let at = Anchor::now(Counter::best());
        self.end(Vec::new(), at);
    }

    fn refuse_until_stop(&mut self) {
        drop(self.shared.take_attached());
        while let Some(command) = self.shared.next_command() {
            if let Command::Stop(done) = command {
                self.ending = Some(done);
                return;
            }
            // The callback is the caller's code and may panic.
            contained(|| command.refuse());
        }
    }
}
