//! Records that come from elsewhere than the regions of processes: those that are made of what the kernel tells.
//!
//! ```text
//!   Capture::look ──▶ queues, one a stream ──peek, take──▶ merged with the rings of the same processor ──▶ its buffer
//!        ▲ CaptureClock: nanoseconds of CLOCK_MONOTONIC_RAW ─▶ raw counter ─▶ session's clock
//! ```
//!
//! P1 The session trusts what it captures as it trusts itself: nothing is signed but the time. P2 A stack repeats the time of the event in front of it, as it was
//! written. P3 Whoever captures counts what it lost; the session adds it once. P4 Both clocks are paired anew each second, so that a rate that is not exact does not
//! carry them apart. P5 It captures from [`begin`](Capture::begin) on, which is called when the session runs, so that each
//! record keeps its time; nothing is older than the session.

use std::os::fd::BorrowedFd;

use traceweir_format::header::{classic, perfinfo, system};
use traceweir_format::spec::event::HeaderType;
use traceweir_transport::clock::{Anchor, Counter, refined_frequency};
use traceweir_transport::ring::{Damaged, Head, RingReader};

use crate::clock::SessionClock;
use crate::merge::Ring;

/// Bits behind the point of the rate.
const FRACTION: u32 = 32;
const NANOS: u64 = 1_000_000_000;
/// In the head of a captured record: it is the stack of the one before.
const IS_STACK: u16 = 1;

/// Somebody who captures records beside the processes that write them.
pub trait Capture: Send {
    /// Readable when there is something to look at that should not wait.
    fn wake(&self) -> BorrowedFd<'_>;

    /// What happens from now on is captured. Called once, while the session runs already; who captures from the start has nothing to do.
    fn begin(&mut self) {}

    /// Takes in what has happened up to now; `all`: however young it is.
    fn look(&mut self, clock: &dyn CaptureClock, all: bool);

    /// The next record of a stream.
    fn peek(&self, stream: u16) -> Option<Captured>;

    /// Takes it: as much as `out` has room for.
    fn take(&mut self, stream: u16, out: &mut [u8]);

    /// Records that were lost so far.
    fn lost(&self) -> u64;

    /// Those of them that found no room in the kernel.
    fn lost_in_kernel(&self) -> u64 {
        0
    }

    /// The session stops: takes in the rest, and tells what is told at the end.
    fn end(&mut self, clock: &dyn CaptureClock);
}

/// From `CLOCK_MONOTONIC_RAW` in nanoseconds to the clocks of the session.
pub trait CaptureClock {
    /// The raw counter that puts records in order.
    fn raw(&self, ns: u64) -> u64;
    /// The session's clock.
    fn stamp(&self, ns: u64) -> i64;
    /// A span in ticks of the counter.
    fn ticks(&self, ns: u64) -> u64;
}

/// A record that waits to be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Captured {
    /// Its bytes, without padding.
    pub length: usize,
    /// When it happened, by the raw counter.
    pub raw: u64,
    /// It is the stack of the record before it, whose time it repeats in the first eight bytes of its payload.
    pub is_stack: bool,
}

/// Captured records that were lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CaptureLoss {
    /// Before they reached the capture.
    pub(crate) in_kernel: u64,
    /// After that: too large, or too many for what waits.
    pub(crate) later: u64,
}

/// What a session captures, and the pair of clocks for it.
pub(crate) struct Capturing {
    source: Box<dyn Capture>,
    /// What is counted already.
    lost: CaptureLoss,
    start: Anchor,
    base: Anchor,
    /// Ticks a nanosecond.
    rate: u128,
    has_ended: bool,
}

/// One pair of clocks, for as long as a look takes.
struct Paired<'a> {
    session: &'a SessionClock,
    base: Anchor,
    rate: u128,
    /// The counter when the session started.
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
            rate: rate_of(clock.frequency()),
            has_ended: false,
        }
    }

    fn paired<'a>(&self, session: &'a SessionClock) -> Paired<'a> {
        Paired { session, base: self.base, rate: self.rate, from: session.anchor().counter }
    }

    /// Pairs the clocks anew.
    pub(crate) fn follow(&mut self, clock: &SessionClock) {
        self.base = Anchor::now(clock.counter());
        self.rate = rate_of(refined_frequency(clock.counter(), &self.start, &self.base));
    }

    pub(crate) fn look(&mut self, clock: &SessionClock, all: bool) {
        if !self.has_ended {
            let paired = self.paired(clock);
            self.source.look(&paired, all);
        }
    }

    pub(crate) fn end(&mut self, clock: &SessionClock) {
        if !std::mem::replace(&mut self.has_ended, true) {
            let paired = self.paired(clock);
            self.source.end(&paired);
        }
    }

    /// What was lost since the last time.
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

    /// What waits for a stream, as a ring.
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

fn rate_of(ticks_a_second: u64) -> u128 {
    (u128::from(ticks_a_second) << FRACTION) / u128::from(NANOS)
}

/// A ring of a process, or what was captured for a stream.
pub(crate) enum Mixed<'r> {
    Region(&'r mut RingReader),
    Captured { source: &'r mut dyn Capture, stream: u16 },
}

impl Ring for Mixed<'_> {
    fn look(&mut self) -> Result<bool, Damaged> {
        match self {
            Self::Region(ring) => ring.look(),
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

/// Whether a captured record is the stack of the one before.
pub(crate) const fn is_stack(head: &Head) -> bool {
    head.flags & IS_STACK != 0
}

/// Writes the time into a captured record, and into a stack that of its event. Whether it is a record that can be captured.
pub(crate) fn sign(record: &mut [u8], time: i64, of_event: Option<i64>) -> bool {
    let (at, payload) = match record.get(2).map(|kind| HeaderType(*kind)) {
        Some(HeaderType::SYSTEM64) => (0x10, system::SIZE),
        Some(HeaderType::PERFINFO64) => (0x08, perfinfo::SIZE),
        Some(HeaderType::FULL_HEADER64) => (0x10, classic::SIZE),
        _ => return false,
    };
    let mut put = |at: usize, time: i64| -> bool {
        let place = record.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<8>());
        place.map(|place| *place = time.to_le_bytes()).is_some()
    };
    put(at, time) && of_event.is_none_or(|event| put(payload, event))
}
