//! Records that do not come from regions of processes: kernel events.
//!
//! ```text
//!   Capture::poll ──▶ one queue per stream ──peek, take──▶ merged with the rings of the same CPU
//!        ▲ CaptureClock: nanoseconds of CLOCK_MONOTONIC_RAW ─▶ raw counter ─▶ session's clock
//! ```
//!
//! - P1 The session trusts captured records as its own: it sets only their time.
//! - P2 A stack repeats the time of the event before it, as written.
//! - P3 The capture counts what it lost; the session adds it once.
//! - P4 The two clocks are paired again each second, so that an inexact rate does not make them
//!   drift apart.
//! - P5 A capture starts with [`begin`](Capture::begin), which is called when the session runs, so
//!   that each record keeps its time; no record is older than the session.

use std::os::fd::BorrowedFd;

use traceweir_format::header::{classic, perfinfo, system};
use traceweir_format::spec::event::HeaderType;
use traceweir_transport::clock::{Anchor, Counter, refined_frequency};
use traceweir_transport::ring::{Damaged, Head, RingReader};

use crate::clock::SessionClock;
use crate::merge::Ring;

/// Fractional bits of the rate.
const FRACTION: u32 = 32;
const NANOS: u64 = 1_000_000_000;
/// Flag in the head of a captured record: it is the stack of the record before it.
const IS_STACK: u16 = 1;

/// A source of records other than the processes of the session.
pub trait Capture: Send {
    /// Returns a descriptor that is readable when there is something to collect that should not
    /// wait.
    fn wake(&self) -> BorrowedFd<'_>;

    /// Starts the capture. Called once, when the session already runs; a capture that runs from its
    /// creation need not implement it.
    fn begin(&mut self) {}

    /// Takes in what has happened up to now; with `all`, however recent it is.
    fn poll(&mut self, clock: &dyn CaptureClock, all: bool);

    /// Returns the next record of a stream.
    fn peek(&self, stream: u16) -> Option<Captured>;

    /// Removes the next record and copies as much of it as `out` has room for.
    fn take(&mut self, stream: u16, out: &mut [u8]);

    /// Returns the number of records that were lost so far.
    fn lost(&self) -> u64;

    /// Returns how many of the lost records found no room in the kernel's buffers.
    fn lost_in_kernel(&self) -> u64 {
        0
    }

    /// Ends the capture: takes in the rest and the final rundown.
    fn end(&mut self, clock: &dyn CaptureClock);
}

/// Converts `CLOCK_MONOTONIC_RAW` in nanoseconds to the clocks of the session.
pub trait CaptureClock {
    /// Returns the raw counter, by which records are ordered.
    fn raw(&self, ns: u64) -> u64;
    /// Returns the stamp on the session's clock.
    fn stamp(&self, ns: u64) -> i64;
    /// Converts a duration to ticks of the counter.
    fn ticks(&self, ns: u64) -> u64;
}

/// A record that waits to be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Captured {
    /// Length in bytes, without padding.
    pub length: usize,
    /// Time of the event on the raw counter.
    pub raw: u64,
    /// Whether it is the stack of the record before it, whose time it repeats in the first eight
    /// bytes of its payload.
    pub is_stack: bool,
}

/// Numbers of captured records that were lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CaptureLoss {
    /// Lost in the kernel, before they reached the capture.
    pub(crate) in_kernel: u64,
    /// Lost later: too large, or too many for the queues.
    pub(crate) later: u64,
}

/// The capture of a session, with the pair of clocks for it.
pub(crate) struct Capturing {
    source: Box<dyn Capture>,
    /// Lost records that are already counted.
    lost: CaptureLoss,
    start: Anchor,
    base: Anchor,
    /// Ticks per nanosecond, in fixed point.
    rate: u128,
    has_ended: bool,
}

/// The pair of clocks during one poll.
struct Paired<'a> {
    session: &'a SessionClock,
    base: Anchor,
    rate: u128,
    /// Counter value at the start of the session.
    from: u64,
}

impl Capturing {
    pub(crate) fn new(source: Box<dyn Capture>, clock: &SessionClock) -> Self {
        let base = Anchor::now(clock.counter());
        Self {
            source,
            lost: CaptureLoss::default(),
            start: base,
            base,
            rate: fixed_point_rate(clock.frequency()),
            has_ended: false,
        }
    }

    fn paired<'a>(&self, session: &'a SessionClock) -> Paired<'a> {
        Paired { session, base: self.base, rate: self.rate, from: session.anchor().counter }
    }

    /// Pairs the clocks again.
    pub(crate) fn follow(&mut self, clock: &SessionClock) {
        self.base = Anchor::now(clock.counter());
        self.rate = fixed_point_rate(refined_frequency(clock.counter(), &self.start, &self.base));
    }

    pub(crate) fn poll(&mut self, clock: &SessionClock, all: bool) {
        if !self.has_ended {
            let paired = self.paired(clock);
            self.source.poll(&paired, all);
        }
    }

    pub(crate) fn end(&mut self, clock: &SessionClock) {
        if !std::mem::replace(&mut self.has_ended, true) {
            let paired = self.paired(clock);
            self.source.end(&paired);
        }
    }

    /// Returns the records lost since the last call.
    pub(crate) fn newly_lost(&mut self) -> CaptureLoss {
        let in_kernel = self.source.lost_in_kernel();
        let later = self.source.lost().saturating_sub(in_kernel);
        let new = CaptureLoss {
            in_kernel: in_kernel.saturating_sub(self.lost.in_kernel),
            later: later.saturating_sub(self.lost.later),
        };
        let before = self.lost;
        self.lost =
            CaptureLoss { in_kernel: before.in_kernel.max(in_kernel), later: before.later.max(later) };
        new
    }

    /// Returns the waiting records of a stream as a ring.
    pub(crate) fn ring(&mut self, stream: u16) -> Mixed<'_> {
        Mixed::Captured { source: self.source.as_mut(), stream }
    }
}

impl CaptureClock for Paired<'_> {
    fn raw(&self, ns: u64) -> u64 {
        if self.session.counter() == Counter::Monotonic {
            return ns.max(self.from);
        }
        let ticks = |span: u64| u64::try_from((u128::from(span) * self.rate) >> FRACTION).unwrap_or(u64::MAX);
        let raw = match ns.checked_sub(self.base.monotonic_ns) {
            Some(later) => self.base.counter.saturating_add(ticks(later)),
            None => self.base.counter.saturating_sub(ticks(self.base.monotonic_ns.saturating_sub(ns))),
        };
        raw.max(self.from)
    }

    fn stamp(&self, ns: u64) -> i64 {
        self.session.stamp(self.raw(ns))
    }

    fn ticks(&self, ns: u64) -> u64 {
        if self.session.counter() == Counter::Monotonic {
            return ns;
        }
        u64::try_from((u128::from(ns) * self.rate) >> FRACTION).unwrap_or(u64::MAX)
    }
}

fn fixed_point_rate(ticks_a_second: u64) -> u128 {
    (u128::from(ticks_a_second) << FRACTION) / u128::from(NANOS)
}

/// A ring of a process, or the captured records of a stream.
pub(crate) enum Mixed<'r> {
    Region(&'r mut RingReader),
    Captured { source: &'r mut dyn Capture, stream: u16 },
}

impl Ring for Mixed<'_> {
    fn poll(&mut self) -> Result<bool, Damaged> {
        match self {
            Self::Region(ring) => ring.poll(),
            Self::Captured { source, stream } => Ok(source.peek(*stream).is_some()),
        }
    }

    fn peek(&mut self) -> Result<Option<Head>, Damaged> {
        match self {
            Self::Region(ring) => ring.peek(),
            Self::Captured { source, stream } => Ok(source.peek(*stream).map(|next| Head {
                length: next.length,
                cpu: *stream,
                flags: if next.is_stack { IS_STACK } else { 0 },
                stamp: next.raw,
            })),
        }
    }

    fn take(&mut self, out: &mut [u8]) {
        match self {
            Self::Region(ring) => ring.take(out),
            Self::Captured { source, stream } => source.take(*stream, out),
        }
    }

    fn release(&mut self) {
        if let Self::Region(ring) = self {
            ring.release();
        }
    }

    fn is_captured(&self) -> bool {
        matches!(self, Self::Captured { .. })
    }
}

/// Returns whether a captured record is the stack of the record before it.
pub(crate) const fn is_stack(head: &Head) -> bool {
    head.flags & IS_STACK != 0
}

/// Writes the time into a captured record, and the time of its event into a stack. Returns whether
/// the record is of a type that can be captured.
pub(crate) fn sign(record: &mut [u8], time: i64, event_time: Option<i64>) -> bool {
    let (at, payload) = match record.get(2).map(|kind| HeaderType(*kind)) {
        Some(HeaderType::SYSTEM64) => (0x10, system::SIZE),
        Some(HeaderType::PERFINFO64) => (0x08, perfinfo::SIZE),
        Some(HeaderType::FULL_HEADER64) => (0x10, classic::SIZE),
        _ => return false,
    };
    let mut put = |at: usize, time: i64| -> bool {
        let field = record.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<8>());
        field.map(|field| *field = time.to_le_bytes()).is_some()
    };
    put(at, time) && event_time.is_none_or(|event| put(payload, event))
}
