//! The writer thread has panicked: the session ends (see [`crate::fault`]).

use std::sync::mpsc::Receiver;

use super::{Job, Log, Output};
use crate::fault::{FAULT, contained};
use crate::pool::Buffer;

impl Output {
    /// Ends the session, and serves its end.
    pub(crate) fn fall(mut self, jobs: &Receiver<Job>) {
        self.give_up_all();
        // The file stays as it is.
        contained(|| self.log = Log::None);
        contained(|| self.end_live());
        contained(|| self.end(FAULT));
        // It may have fallen over the stop itself.
        while self.ending.is_none() {
            let Some(job) = self.next.take().or_else(|| jobs.recv().ok()) else { return };
            match job {
                Job::Buffer(buffer) => self.give_up(buffer),
                Job::Live(piece) => self.shared.piece_arrived(piece.filled),
                Job::Stop { partial, done, .. } => {
                    self.count_partial(&partial);
                    self.ending = Some(done);
                }
                // What is called then is not ours.
                other => {
                    contained(|| other.refuse());
                }
            }
        }
        self.answer_stop();
    }

    /// Counts all buffers that are not written any more, and returns them.
    fn give_up_all(&mut self) {
        self.held.hand_over(&mut self.in_hand, usize::MAX);
        while let Some(buffer) = self.in_hand.pop_front() {
            self.give_up(buffer);
        }
        if let Log::Flight(flight, _) = &mut self.log {
            // These were settled when they were kept.
            while let Some(kept) = flight.oldest() {
                self.shared.stats.count_unwritten(kept.events);
                self.shared.pool.give(kept);
            }
        }
        let partial = std::mem::take(&mut self.partial);
        // Before the stop, what they are copies of still comes.
        if self.ending.is_some() {
            self.count_partial(&partial);
        }
    }

    fn count_partial(&self, partial: &[Buffer]) {
        partial.iter().for_each(|buffer| self.shared.stats.count_unwritten(buffer.events));
    }
}
