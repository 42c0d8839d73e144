//! The raw counter that stamps records, and its conversion to wall time.
//!
//! ```text
//!   record ──stamp──▶ counter ──rate──▶ nanoseconds ──anchor──▶ wall time
//!                     (TSC, CNTVCT)     (CLOCK_MONOTONIC)       (CLOCK_REALTIME)
//! ```
//!
//! 1. A stamp is the raw counter, because only the counter can be read inside a restartable
//!    sequence: reading a clock of the C library is a call, and a call leaves the sequence.
//! 2. The counter is used only if it is invariant: it runs at one rate on every CPU, in every power
//!    state.
//! 3. Reading the counter has no memory order: a CPU may read it before earlier loads and stores
//!    have finished, or start later loads and stores before the read. A fence would cost time, and
//!    nothing relies on the exact tick. A stamp may be older than the lock under which it was
//!    taken. A poll of the heads that follows a read of the counter may miss a record that was
//!    published just before that read. The reader raises an out-of-order stamp to the preceding
//!    stamp, so stamps never decrease in the file.
//! 4. An anchor is a reading of all clocks at one moment. Two anchors far apart give the rate more
//!    exactly than the first measurement.
//!
//! An anchor becomes invalid if the wall clock is set or the machine is suspended: the session then
//! takes a new anchor.

use std::sync::OnceLock;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use traceweir_format::time::FileTime;

use crate::error::{Error, Result};

const NANOS_PER_SECOND: u64 = 1_000_000_000;
/// Duration of the measurement on first use.
const MEASURE_DURATION: Duration = Duration::from_millis(60);
/// Anchors closer than this give no better rate than the measurement.
const MIN_REFINE_NS: u64 = NANOS_PER_SECOND;

/// The counter that stamps come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Counter {
    /// The invariant cycle counter of the processor (TSC, CNTVCT).
    Cycles = 0,
    /// `CLOCK_MONOTONIC` in nanoseconds, where no invariant counter exists.
    Monotonic = 1,
}

impl Counter {
    /// Returns the best counter of this machine; `TRACEWEIR_NO_TSC=1` chooses the monotonic clock.
    #[must_use]
    pub fn best() -> Self {
        static BEST: OnceLock<Counter> = OnceLock::new();
        *BEST.get_or_init(|| {
            if cycles::is_invariant() && !is_switched_on("TRACEWEIR_NO_TSC") {
                Self::Cycles
            } else {
                Self::Monotonic
            }
        })
    }

    /// Returns the counter that a message names by this number.
    pub fn from_number(number: u32) -> Result<Self> {
        match number {
            0 => Ok(Self::Cycles),
            1 => Ok(Self::Monotonic),
            _ => Err(Error::Invalid("unknown counter number")),
        }
    }

    /// Reads the counter, without any memory order.
    #[must_use]
    #[inline]
    pub fn now(self) -> u64 {
        match self {
            Self::Cycles => cycles::now(),
            Self::Monotonic => monotonic_ns(),
        }
    }
}

/// Returns whether an environment variable is set to anything except an empty string or `0`.
pub(crate) fn is_switched_on(variable: &str) -> bool {
    std::env::var_os(variable).is_some_and(|value| !value.is_empty() && value != "0")
}

/// One moment on all clocks.
#[derive(Clone, Copy, Debug)]
pub struct Anchor {
    /// Value of the raw counter.
    pub counter: u64,
    /// `CLOCK_MONOTONIC` in nanoseconds.
    pub monotonic_ns: u64,
    /// Wall time (CLOCK_REALTIME).
    pub wall: FileTime,
}

impl Anchor {
    /// Reads all clocks now. Reads them several times and keeps the reading that took the fewest
    /// ticks, because it was interrupted least.
    #[must_use]
    pub fn now(counter: Counter) -> Self {
        let (mut best, mut width) = Self::read_once(counter);
        for _ in 0..7 {
            let (anchor, ticks) = Self::read_once(counter);
            if ticks < width {
                (best, width) = (anchor, ticks);
            }
        }
        best
    }

    /// Reads all clocks once. Returns the anchor and how many ticks it took.
    fn read_once(counter: Counter) -> (Self, u64) {
        let before = counter.now();
        let monotonic_ns = monotonic_ns();
        let wall = clock_gettime(ClockId::Realtime);
        let width = counter.now().saturating_sub(before);
        let wall = FileTime::from_unix(wall.tv_sec, u32::try_from(wall.tv_nsec).unwrap_or(0));
        let counter = match counter {
            Counter::Cycles => before.saturating_add(width / 2),
            Counter::Monotonic => monotonic_ns,
        };
        (Self { counter, monotonic_ns, wall }, width)
    }
}

/// Returns the ticks per second of the counter: measured over at least 60 ms on first use, then
/// cached for the process.
#[must_use]
pub fn frequency(counter: Counter) -> u64 {
    static CYCLES: OnceLock<u64> = OnceLock::new();
    match counter {
        Counter::Monotonic => NANOS_PER_SECOND,
        Counter::Cycles => *CYCLES.get_or_init(|| {
            let from = Anchor::now(counter);
            std::thread::sleep(MEASURE_DURATION);
            ticks_per_second(&from, &Anchor::now(counter)).unwrap_or(NANOS_PER_SECOND)
        }),
    }
}

/// Returns the ticks per second between two anchors if they are at least a second apart, otherwise
/// [`frequency`].
#[must_use]
pub fn refined_frequency(counter: Counter, from: &Anchor, to: &Anchor) -> u64 {
    let is_far_apart = to.monotonic_ns.saturating_sub(from.monotonic_ns) >= MIN_REFINE_NS;
    match counter {
        Counter::Cycles if is_far_apart => ticks_per_second(from, to).unwrap_or_else(|| frequency(counter)),
        _ => frequency(counter),
    }
}

/// Returns the ticks per second between two anchors; `None` if either clock stood still.
fn ticks_per_second(from: &Anchor, to: &Anchor) -> Option<u64> {
    let ticks = to.counter.checked_sub(from.counter).filter(|ticks| *ticks > 0)?;
    let ns = to.monotonic_ns.checked_sub(from.monotonic_ns).filter(|ns| *ns > 0)?;
    u64::try_from(u128::from(ticks) * u128::from(NANOS_PER_SECOND) / u128::from(ns)).ok()
}

/// Returns the time at which the machine started.
#[must_use]
pub fn boot_time() -> FileTime {
    let wall = clock_gettime(ClockId::Realtime);
    let up = clock_gettime(ClockId::Boottime);
    let ns = wall.tv_nsec - up.tv_nsec;
    let seconds = wall.tv_sec - up.tv_sec + ns.div_euclid(NANOS_PER_SECOND.cast_signed());
    FileTime::from_unix(seconds, u32::try_from(ns.rem_euclid(NANOS_PER_SECOND.cast_signed())).unwrap_or(0))
}

fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap_or(0) * NANOS_PER_SECOND + u64::try_from(now.tv_nsec).unwrap_or(0)
}

/// The time-stamp counter.
#[cfg(target_arch = "x86_64")]
mod cycles {
    use core::arch::x86_64::{__cpuid, _rdtsc};

    /// CPUID 8000_0007h EDX bit 8 (Intel SDM, "Invariant TSC").
    pub(super) fn is_invariant() -> bool {
        __cpuid(0x8000_0000).eax >= 0x8000_0007 && __cpuid(0x8000_0007).edx & 1 << 8 != 0
    }

    #[inline]
    pub(super) fn now() -> u64 {
        // SAFETY: every x86-64 processor has the instruction. In a process that forbade it to
        // itself (PR_SET_TSC), the instruction only raises SIGSEGV.
        unsafe { _rdtsc() }
    }
}

/// The virtual count of the generic timer.
#[cfg(target_arch = "aarch64")]
mod cycles {
    /// The architecture guarantees one constant rate.
    pub(super) fn is_invariant() -> bool {
        true
    }

    #[inline]
    pub(super) fn now() -> u64 {
        let count: u64;
        // SAFETY: Linux lets programs read this register, and reading it changes nothing. `nomem`
        // is correct, because the read needs no memory order (point 3 above).
        unsafe {
            core::arch::asm!("mrs {}, cntvct_el0", out(reg) count, options(nomem, nostack, preserves_flags))
        };
        count
    }
}

/// Fallback for processors whose counter cannot be read without a call.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod cycles {
    pub(super) fn is_invariant() -> bool {
        false
    }

    pub(super) fn now() -> u64 {
        super::monotonic_ns()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_advance_and_keep_their_numbers() {
        for counter in [Counter::Cycles, Counter::Monotonic] {
            assert_eq!(Counter::from_number(counter as u32).unwrap(), counter);
            let before = counter.now();
            std::thread::sleep(Duration::from_millis(2));
            assert!(counter.now() > before);
        }
        assert!(Counter::from_number(2).is_err());
    }

    #[test]
    fn measured_rate_agrees_with_longer_measurement() {
        let counter = Counter::best();
        let from = Anchor::now(counter);
        let measured = frequency(counter);
        std::thread::sleep(Duration::from_millis(1100));
        let refined = refined_frequency(counter, &from, &Anchor::now(counter));
        let deviation = measured.abs_diff(refined) as f64 / refined as f64;
        assert!(deviation < 0.01, "{measured} and {refined} ticks a second");
    }

    #[test]
    fn anchors_too_close_use_the_measured_rate() {
        let anchor = Anchor::now(Counter::Cycles);
        assert_eq!(refined_frequency(Counter::Cycles, &anchor, &anchor), frequency(Counter::Cycles));
        assert_eq!(refined_frequency(Counter::Monotonic, &anchor, &anchor), 1_000_000_000);
    }

    #[test]
    fn boot_time_is_in_the_past() {
        let anchor = Anchor::now(Counter::Monotonic);
        assert!(boot_time().0 < anchor.wall.0);
    }
}
