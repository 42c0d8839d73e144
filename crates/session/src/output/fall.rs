//! Ends the session after the writer thread has panicked (see [`crate::fault`]).

use std::sync::mpsc::Receiver;

use super::{Job, Log, Output};
use crate::fault::{FAULT, contained};
use crate::pool::Buffer;

impl Output {
    /// Ends the session and waits for its stop.
    pub(crate) fn end_after_panic(mut self, jobs: &Receiver<Job>) {
        self.give_up_all();
        // The file stays as it is.
        contained(|| self.log = Log::None);
        contained(|| self.end_live());
        contained(|| self.end(FAULT));
        // The stop itself may have caused the panic.
        while self.ending.is_none() {
            let Some(job) = self.next.take().or_else(|| jobs.recv().ok()) else { return };
            match job {
                Job::Buffer(buffer) => self.give_up(buffer),
                Job::Live(piece) => self.shared.piece_arrived(piece.filled),
                Job::Stop { partial, done, .. } => {
                    self.count_partial(&partial);
                    self.ending = Some(done);
                }
                // The callback is the caller's code and may panic.
                other => {
                    contained(|| other.refuse());
                }
            }
        }
        self.answer_stop();
    }

    /// Counts all unwritten buffers as lost and returns them to the pool.
    fn give_up_all(&mut self) {
        self.held.hand_over(&mut self.in_hand, usize::MAX);
        while let Some(buffer) = self.in_hand.pop_front() {
            self.give_up(buffer);
        }
        if let Log::Flight(flight, _) = &mut self.log {
            // These counted as finished when they were kept.
            while let Some(kept) = flight.take_oldest() {
                self.shared.stats.count_unwritten(kept.events);
                self.shared.pool.give(kept);
            }
        }
        let partial = std::mem::take(&mut self.partial);
        // Before the stop, the originals of these copies still come.
        if self.ending.is_some() {
            self.count_partial(&partial);
        }
    }

    fn count_partial(&self, partial: &[Buffer]) {
        partial.iter().for_each(|buffer| self.shared.stats.count_unwritten(buffer.events));
    }
}
