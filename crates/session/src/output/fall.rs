//! The writer thread has panicked: the session ends (see [`crate::fault`]).

use std::sync::mpsc::Receiver;

use super::{Job, Log, Output};
use crate::fault::{FAULT, contained};

impl Output {
    /// Ends the session, and serves its end.
    pub(crate) fn fall(mut self, jobs: &Receiver<Job>) {
        for buffer in self.held.take() {
            self.give_up(buffer);
        }
        // The file stays as it is.
        contained(|| self.log = Log::None);
        contained(|| self.end_live());
        self.shared.pool.forget_those_under_way();
        contained(|| self.end(FAULT));
        // It may have fallen over the stop itself.
        while self.ending.is_none() {
            let Some(job) = self.next.take().or_else(|| jobs.recv().ok()) else { return };
            match job {
                Job::Buffer(buffer) => self.give_up(buffer),
                Job::Live(piece) => self.shared.piece_arrived(piece.filled),
                Job::Stop { done, .. } => self.ending = Some(done),
                // What is called then is not ours.
                other => {
                    contained(|| other.refuse());
                }
            }
        }
        self.answer_stop();
    }
}
