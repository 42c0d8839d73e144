//! Records that do not come from regions of processes: kernel events.
//!
//! ```text
//!   Capture::poll ──▶ one queue per stream ──peek, take──▶ merged with the rings of the same CPU
//!        ▲ CaptureClock: nanoseconds of CLOCK_MONOTONIC ─▶ raw counter ─▶ session's clock
//! ```
//!
//! - P1 The session trusts the contents of captured records and sets only their times.
//! - P2 The record of a stack repeats the stamp that was written into its event.
//! - P3 The capture counts lost records; the session adds each loss once.
//! - P4 Times become raw counter values with the same mapping that converts the stamps of
//!   processes, so that both have one order. In a session with clock 1, captured events keep their
//!   times exactly if the counter has at least one tick per nanosecond.
//! - P5 A capture starts with [`begin`](Capture::begin), which is called when the session runs, so
//!   that each record keeps its time; no record is older than the session.

use std::os::fd::BorrowedFd;

use traceweir_format::header::{classic, event, perfinfo, system};
use traceweir_format::spec::event::HeaderType;
use traceweir_transport::ring::{Damaged, RecordPrefix, RingReader};

use crate::clock::SessionClock;
use crate::merge::MergeRing;

/// Flag in the prefix of a captured record: the record is a stack of the last event before it.
const IS_STACK: u16 = 1;
/// Flag in the prefix of a captured record: the record comes from a capture of complete events.
const IS_COMPLETE: u16 = 2;

/// A source of records other than the processes of the session.
pub trait Capture: Send {
    /// Returns a descriptor that is readable when records should be collected soon.
    fn wake_fd(&self) -> BorrowedFd<'_>;

    /// Starts the capture. Called once, when the session already runs; a capture that runs from its
    /// creation need not implement it.
    fn begin(&mut self) {}

    /// Returns whether each record is a complete event with an EVENT header, whose stack is one of
    /// its extended data items. Such a capture may run beside other captures.
    fn has_complete_events(&self) -> bool {
        false
    }

    /// Returns whether the capture has ended by itself and all its records were taken, so that the
    /// session can drop it.
    fn is_finished(&self) -> bool {
        false
    }

    /// Takes in the events from before the call; with `includes_newer`, also newer ones.
    fn poll(&mut self, clock: &dyn CaptureClock, includes_newer: bool);

    /// Returns the next record of a stream.
    fn peek(&self, stream: u16) -> Option<CapturedRecord>;

    /// Removes the next record and copies as much of it as fits `out`.
    fn take(&mut self, stream: u16, out: &mut [u8]);

    /// Returns the number of records that were lost so far.
    fn lost(&self) -> u64;

    /// Returns how many of the lost records did not fit the kernel's buffers.
    fn lost_in_kernel(&self) -> u64 {
        0
    }

    /// Ends the capture: takes in the remaining events and the final rundown.
    fn end(&mut self, clock: &dyn CaptureClock);
}

/// Converts `CLOCK_MONOTONIC` in nanoseconds to the clocks of the session.
pub trait CaptureClock {
    /// Returns the value of the raw counter, by which records are ordered.
    fn raw(&self, ns: u64) -> u64;
    /// Returns the stamp on the session's clock.
    fn stamp(&self, ns: u64) -> i64;
    /// Converts a duration to ticks of the performance counter (PerfFreq).
    fn ticks(&self, ns: u64) -> u64;
}

/// The next record of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CapturedRecord {
    /// Length in bytes, without padding.
    pub length: usize,
    /// Time of the event on the raw counter.
    pub raw: u64,
    /// Whether the record contains a stack, or the registers, of the last event before it. The
    /// first eight bytes of its payload are then the time of that event.
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

/// The running capture of a session.
pub(crate) struct ActiveCapture {
    source: Box<dyn Capture>,
    /// Lost records that are already counted.
    counted_loss: CaptureLoss,
    has_ended: bool,
}

impl ActiveCapture {
    pub(crate) fn new(source: Box<dyn Capture>) -> Self {
        Self { source, counted_loss: CaptureLoss::default(), has_ended: false }
    }

    pub(crate) fn poll(&mut self, clock: &SessionClock, includes_newer: bool) {
        if !self.has_ended {
            self.source.poll(clock, includes_newer);
        }
    }

    pub(crate) fn end(&mut self, clock: &SessionClock) {
        if !std::mem::replace(&mut self.has_ended, true) {
            self.source.end(clock);
        }
    }

    /// Returns the records lost since the last call.
    pub(crate) fn take_new_losses(&mut self) -> CaptureLoss {
        let in_kernel = self.source.lost_in_kernel();
        let later = self.source.lost().saturating_sub(in_kernel);
        let new = CaptureLoss {
            in_kernel: in_kernel.saturating_sub(self.counted_loss.in_kernel),
            later: later.saturating_sub(self.counted_loss.later),
        };
        let counted = self.counted_loss;
        self.counted_loss =
            CaptureLoss { in_kernel: counted.in_kernel.max(in_kernel), later: counted.later.max(later) };
        new
    }

    pub(crate) fn has_complete_events(&self) -> bool {
        self.source.has_complete_events()
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.source.is_finished()
    }

    /// Returns the waiting records of a stream as a ring.
    pub(crate) fn ring(&mut self, stream: u16) -> StreamRing<'_> {
        StreamRing::Captured { source: self.source.as_mut(), stream }
    }
}

impl CaptureClock for SessionClock {
    fn raw(&self, ns: u64) -> u64 {
        self.raw_at(ns)
    }

    fn stamp(&self, ns: u64) -> i64 {
        self.stamp(self.raw_at(ns))
    }

    fn ticks(&self, ns: u64) -> u64 {
        self.performance_ticks(ns)
    }
}

/// A ring of a process, or the captured records of a stream.
pub(crate) enum StreamRing<'r> {
    Region(&'r mut RingReader),
    Captured { source: &'r mut dyn Capture, stream: u16 },
}

impl MergeRing for StreamRing<'_> {
    fn poll(&mut self) -> Result<bool, Damaged> {
        match self {
            Self::Region(ring) => ring.poll(),
            Self::Captured { source, stream } => Ok(source.peek(*stream).is_some()),
        }
    }

    fn peek(&mut self) -> Result<Option<RecordPrefix>, Damaged> {
        match self {
            Self::Region(ring) => ring.peek(),
            Self::Captured { source, stream } => Ok(source.peek(*stream).map(|next| {
                let flags = match (next.is_stack, source.has_complete_events()) {
                    (true, _) => IS_STACK,
                    (false, true) => IS_COMPLETE,
                    (false, false) => 0,
                };
                RecordPrefix { length: next.length, cpu: *stream, flags, stamp: next.raw }
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

/// Returns whether a captured record is a stack.
pub(crate) const fn is_stack(prefix: &RecordPrefix) -> bool {
    prefix.flags & IS_STACK != 0
}

/// Returns whether a captured record is a complete event, which no stack record follows.
pub(crate) const fn is_complete(prefix: &RecordPrefix) -> bool {
    prefix.flags & IS_COMPLETE != 0
}

/// Writes the time into a captured record, and the time of its event into a stack. Returns `false`
/// if the record is of a type that is not captured, or too short.
pub(crate) fn set_times(record: &mut [u8], time: i64, event_time: Option<i64>) -> bool {
    let (time_offset, payload_offset) = match record.get(2).map(|kind| HeaderType(*kind)) {
        Some(HeaderType::SYSTEM64) => (0x10, system::SIZE),
        Some(HeaderType::PERFINFO64) => (0x08, perfinfo::SIZE),
        Some(HeaderType::FULL_HEADER64) => (0x10, classic::SIZE),
        Some(HeaderType::EVENT_HEADER64) => (0x10, event::SIZE),
        _ => return false,
    };
    let mut write_time = |offset: usize, time: i64| -> bool {
        let field = record.get_mut(offset..).and_then(|field_bytes| field_bytes.first_chunk_mut::<8>());
        field.map(|field| *field = time.to_le_bytes()).is_some()
    };
    write_time(time_offset, time) && event_time.is_none_or(|event| write_time(payload_offset, event))
}
