//! A first picture of traces, before they are indexed: some buffers of each processor stand for
//! those between them.
//!
//! ```text
//!   buffers of a processor   ▓░░░▓░░░▓░░░▓░░▓      ▓ read: events, time that threads ran
//!                            └──┘└──┘              a part: as busy and as dense as its first buffer
//! ```
//!
//! Of traces with more processors than [`MAX_BUFFERS`], only the first processors are read.

use std::sync::atomic::{AtomicBool, Ordering};

use traceweir::consumer::TraceFile;
use traceweir_format::buffer::{HEADER_SIZE, Records};
use traceweir_format::etl::{BufferRef, Trace};
use traceweir_format::kernel::hook;
use traceweir_format::time::FileTime;

use super::NamedTrace;

/// The most bytes of buffers to read, of all traces.
const MAX_BYTES: u64 = 64 << 20;
/// The most buffers to read, of all traces.
const MAX_BUFFERS: usize = 512;

/// A part of a trace.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PreviewPart {
    /// Nanoseconds since the first trace began.
    pub(crate) start: i64,
    pub(crate) end: i64,
    /// About the number of events.
    pub(crate) events: f64,
    /// The share of the time in which a thread ran; `None` without context switches.
    pub(crate) busy: Option<f64>,
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct Preview {
    pub(crate) parts: Vec<PreviewPart>,
    /// About the time of the last event.
    pub(crate) end: i64,
    /// Processors with context switches.
    pub(crate) cpus: u32,
}

/// The content of a buffer.
#[derive(Clone, Copy, Debug, Default)]
struct BufferFacts {
    events: u64,
    /// Stamps of the first and the last context switch.
    switches: Option<(i64, i64)>,
    /// Ticks between context switches in which a thread ran.
    busy_ticks: i64,
    last_stamp: i64,
}

impl Preview {
    /// Reads some buffers of traces, until `must_stop`; `start` is the wall time at which the first
    /// one starts.
    pub(super) fn read(traces: &[NamedTrace], start: FileTime, must_stop: &AtomicBool) -> Self {
        Self::read_within(traces, start, ReadLimits { bytes: MAX_BYTES, buffers: MAX_BUFFERS, must_stop })
    }

    fn read_within(traces: &[NamedTrace], start: FileTime, mut limits: ReadLimits<'_>) -> Self {
        let mut preview = Self::default();
        let total_buffers = traces.iter().map(|named| named.trace.buffers().len()).sum::<usize>();
        let total_bytes = traces.iter().map(|named| named.trace.file_size()).fold(0, u64::saturating_add);
        // Each processor of each trace has a part that may be shorter.
        let groups: usize = traces.iter().map(|named| groups_of(&named.trace).count()).sum();
        let step = total_buffers.div_ceil(limits.buffers.saturating_sub(groups).max(1));
        // Half of the bytes, as the buffers that are read may be larger than the others.
        let by_bytes = usize::try_from(total_bytes.div_ceil((limits.bytes / 2).max(1))).unwrap_or(usize::MAX);
        let step = step.max(by_bytes).max(1);
        for named in traces {
            preview.add_trace(&named.trace, start, step, &mut limits);
        }
        preview
    }

    fn add_trace(
        &mut self,
        trace: &Trace<TraceFile>,
        start: FileTime,
        step: usize,
        limits: &mut ReadLimits<'_>,
    ) {
        let clock = trace.clock();
        let offset = clock.start.0.saturating_sub(start.0).saturating_mul(100);
        let to_ns = |stamp: i64| offset.saturating_add(clock.nanos_since_start(stamp)).max(0);
        let mut bytes = Vec::new();
        for buffers in groups_of(trace) {
            let mut has_switches = false;
            for (number, group) in buffers.chunks(step).enumerate() {
                let Some(buffer) = group.first() else { continue };
                if limits.are_reached() {
                    break;
                }
                let result = trace.load(buffer, &mut bytes);
                limits.charge(bytes.len().max(buffer.size as usize));
                if result.is_err() {
                    continue;
                }
                let facts = read_buffer(&bytes, buffer.cpu);
                let next = buffers.get(number.saturating_add(1).saturating_mul(step));
                let begin = to_ns(buffer.first_time);
                let end = to_ns(next.map_or(facts.last_stamp, |next| next.first_time)).max(begin);
                let busy = facts.switches.map(|(first, last)| {
                    (facts.busy_ticks as f64 / last.saturating_sub(first).max(1) as f64).clamp(0.0, 1.0)
                });
                has_switches |= busy.is_some();
                let events = facts.events as f64 * group.len() as f64;
                self.parts.push(PreviewPart { start: begin, end, events, busy });
                self.end = self.end.max(end);
            }
            self.cpus = self.cpus.saturating_add(u32::from(has_switches));
        }
    }
}

/// What may still be read.
struct ReadLimits<'s> {
    bytes: u64,
    buffers: usize,
    must_stop: &'s AtomicBool,
}

impl ReadLimits<'_> {
    fn are_reached(&self) -> bool {
        self.bytes == 0 || self.buffers == 0 || self.must_stop.load(Ordering::Acquire)
    }

    fn charge(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_sub(bytes as u64);
        self.buffers = self.buffers.saturating_sub(1);
    }
}

/// Returns the buffers of each processor.
fn groups_of(trace: &Trace<TraceFile>) -> impl Iterator<Item = &[BufferRef]> {
    trace.buffers().chunk_by(|a, b| a.cpu == b.cpu)
}

fn read_buffer(bytes: &[u8], cpu: u16) -> BufferFacts {
    let mut facts = BufferFacts::default();
    let mut is_busy = false;
    let mut records = Records::new(bytes, HEADER_SIZE, 0, cpu, false);
    // The rest of a damaged buffer is left out.
    while let Ok(Some(record)) = records.next() {
        facts.events = facts.events.saturating_add(1);
        let time = record.time();
        facts.last_stamp = facts.last_stamp.max(time);
        let switched_to =
            (record.hook() == Some(hook::CONTEXT_SWITCH)).then(|| record.payload().first_chunk::<4>());
        if let Some(Some(thread)) = switched_to {
            let (first, last) = facts.switches.unwrap_or((time, time));
            if is_busy {
                facts.busy_ticks = facts.busy_ticks.saturating_add(time.saturating_sub(last).max(0));
            }
            facts.switches = Some((first, time.max(last)));
            is_busy = u32::from_le_bytes(*thread) != 0;
        }
    }
    facts
}

#[cfg(test)]
mod tests;
