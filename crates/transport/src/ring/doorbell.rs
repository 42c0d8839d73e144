//! A futex word by which the threads of a process wake a thread of the library.
//!
//! ```text
//!   writer ─ set the bit of the outlet ─ word + 1 ─ futex wake
//!                                                      │
//!                                                      ▼
//!                           thread that has the eventfds ─ write ──▶ owner
//! ```
//!
//! A program may close any descriptor number, and open files under the same numbers. So the threads
//! of the program never use a descriptor of this library: they ring the doorbell, which is memory
//! of the process, and a thread with its own descriptor table writes the eventfd.
//!
//! A bit is set before the word changes, and the waiting thread reads the word before it takes the
//! bits. So the waiting thread either takes a rung line, or its following futex wait returns at
//! once.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use rustix::thread::futex;

/// A doorbell with 64 outlet lines and one line for requests to the library's control thread.
#[derive(Debug, Default)]
pub struct Doorbell {
    outlets: AtomicU64,
    requests: AtomicBool,
    word: AtomicU32,
}

/// The lines that have been rung since the last wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RungLines {
    /// One bit for each outlet.
    pub outlets: u64,
    /// Whether the line for requests to the control thread was rung.
    pub requests: bool,
}

impl Doorbell {
    /// Creates a doorbell that nothing has rung.
    #[must_use]
    pub const fn new() -> Self {
        Self { outlets: AtomicU64::new(0), requests: AtomicBool::new(false), word: AtomicU32::new(0) }
    }

    /// Rings the line of an outlet. Safe in signal handlers.
    pub fn ring_outlet(&self, outlet: u8) {
        // Release pairs with the acquire in `take_rung_lines`: the woken thread sees everything
        // that the caller wrote before.
        self.outlets.fetch_or(1 << (outlet & 63), Ordering::Release);
        self.wake();
    }

    /// Rings the line for requests. Safe in signal handlers.
    pub fn ring_requests(&self) {
        self.requests.store(true, Ordering::Release);
        self.wake();
    }

    fn wake(&self) {
        self.word.fetch_add(1, Ordering::Release);
        // Fails only for an address that is not mapped.
        let _ = futex::wake(&self.word, futex::Flags::PRIVATE, 1);
    }

    /// Waits until a line is rung and returns all rung lines. Only one thread may wait.
    pub fn wait(&self) -> RungLines {
        loop {
            let word = self.word.load(Ordering::Acquire);
            let lines = self.take_rung_lines();
            if lines != RungLines::default() {
                return lines;
            }
            // After an interrupted wait or a changed word, the lines are checked again.
            let _ = futex::wait(&self.word, futex::Flags::PRIVATE, word, None);
        }
    }

    fn take_rung_lines(&self) -> RungLines {
        RungLines {
            outlets: self.outlets.swap(0, Ordering::Acquire),
            requests: self.requests.swap(false, Ordering::Acquire),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_rung_before_and_during_a_wait_are_taken_once() {
        static BELL: Doorbell = Doorbell::new();
        BELL.ring_outlet(3);
        BELL.ring_outlet(63);
        BELL.ring_requests();
        assert_eq!(BELL.wait(), RungLines { outlets: 1 << 3 | 1 << 63, requests: true });
        let waiting = std::thread::spawn(|| BELL.wait());
        BELL.ring_outlet(0);
        assert_eq!(waiting.join().unwrap(), RungLines { outlets: 1, requests: false });
    }
}
