//! The raw counter that stamps records, and its way to wall time.
//!
//! See the owner of this file for the rest.

use crate::error::Result;
use traceweir_format::time::FileTime;

/// Where stamps come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Counter {
    /// The invariant cycle counter of the processor (TSC, CNTVCT).
    Cycles = 0,
    /// `CLOCK_MONOTONIC_RAW` in nanoseconds, where no invariant counter exists.
    Monotonic = 1,
}

impl Counter {
    /// The best counter of this machine; `TRACEWEIR_NO_TSC=1` chooses the monotonic clock.
    #[must_use]
    pub fn best() -> Self {
        todo!()
    }

    /// From its number in a message.
    pub fn from_number(number: u32) -> Result<Self> {
        let _ = number;
        todo!()
    }

    /// Reads it.
    #[must_use]
    pub fn now(self) -> u64 {
        todo!()
    }
}

/// One moment on all clocks.
#[derive(Clone, Copy, Debug)]
pub struct Anchor {
    /// The raw counter.
    pub counter: u64,
    /// `CLOCK_MONOTONIC_RAW`, nanoseconds.
    pub monotonic_ns: u64,
    /// Wall time.
    pub wall: FileTime,
}

impl Anchor {
    /// Now, as exact as a few tries allow.
    #[must_use]
    pub fn now(counter: Counter) -> Self {
        let _ = counter;
        todo!()
    }
}

/// Ticks a second of the counter: measured over at least 50 ms on first use, then remembered for the process.
#[must_use]
pub fn frequency(counter: Counter) -> u64 {
    let _ = counter;
    todo!()
}

/// The rate between two anchors, where they are at least a second apart; else [`frequency`].
#[must_use]
pub fn refined_frequency(counter: Counter, from: &Anchor, to: &Anchor) -> u64 {
    let _ = (counter, from, to);
    todo!()
}

/// When the machine started.
#[must_use]
pub fn boot_time() -> FileTime {
    todo!()
}
