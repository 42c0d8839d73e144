//! The collector thread has panicked: the session ends (see [`crate::fault`]).

use traceweir_transport::clock::{Anchor, Counter};

use super::{Command, Keeper};
use crate::fault::contained;
use crate::flush::BEAT;
use crate::output::Job;

impl Keeper {
    /// Ends the session, and serves its end.
    pub(super) fn fall(mut self) {
        contained(|| self.collector.abandon());
        self.send(Job::Fault);
        // It may have fallen over the stop itself.
        while self.ending.is_none() {
            self.shared.wait(BEAT);
            self.refuse_up_to_the_stop();
        }
        contained(|| self.close());
        let at = Anchor::now(Counter::best());
        self.end(Vec::new(), at);
    }

    fn refuse_up_to_the_stop(&mut self) {
        drop(self.shared.take_attached());
        while let Some(command) = self.shared.next_command() {
            if let Command::Stop(done) = command {
                self.ending = Some(done);
                return;
            }
            // What is called then is not ours.
            contained(|| command.refuse());
        }
    }
}
