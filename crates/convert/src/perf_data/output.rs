//! Writes the events of the trace.
//!
//! 1. Times are nanoseconds of the recording's clock.
//! 2. Records of one processor must come in time order. A record that is older than the last one
//!    of its processor gets the time of that one, and is counted.
//! 3. A record that is too large is left out and counted as lost, with its stack.
//! 4. Records that wait for their buffer to fill have a limit for all processors together. Beyond it,
//!    the fullest buffer is written as it is.

use traceweir_format::Guid;
use traceweir_format::buffer::HEADER_SIZE;
use traceweir_format::etl::{WriteAt, Writer};
use traceweir_format::header::classic::ClassicHeader;
use traceweir_format::header::event::EventHeader;
use traceweir_format::header::perfinfo::PerfInfoHeader;
use traceweir_format::header::system::SystemHeader;
use traceweir_format::spec::session::BUFFER_FLAG_EVENTS_LOST;

use super::target::BUFFER_BYTES;

/// The largest index of a processor in a trace.
const MAX_CPU: u32 = 2047;
/// The most bytes of records in one buffer.
const MAX_BUFFERED_BYTES: usize = BUFFER_BYTES as usize - HEADER_SIZE;
/// The most bytes of records that wait, of all processors.
const MAX_ALL_BUFFERED_BYTES: usize = 48 << 20;

/// Process and thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TaskIds {
    pub(super) pid: u32,
    pub(super) tid: u32,
}

/// Where and when an event happened.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Moment {
    pub(super) cpu: u16,
    pub(super) time: i64,
}

/// The records of a processor.
#[derive(Clone, Copy, Debug)]
struct Lane {
    /// The time of the last record.
    last_time: i64,
    /// Bytes of the records that wait for their buffer to fill.
    buffered_bytes: usize,
}

/// Writes the events of the trace.
pub(super) struct TraceOutput<W> {
    writer: Writer<W>,
    record: Vec<u8>,
    /// By processor.
    lanes: Vec<Lane>,
    /// The sum of the lanes.
    buffered_bytes: usize,
    /// The time before which no event is written.
    first_time: i64,
    /// Number of events written.
    pub(super) events: u64,
    /// Number of events that are too large.
    pub(super) oversized: u64,
    /// Number of events whose time was raised.
    pub(super) late: u64,
    pub(super) last_time: i64,
}

impl<W: WriteAt> TraceOutput<W> {
    pub(super) fn new(writer: Writer<W>, first_time: i64) -> Self {
        Self {
            writer,
            record: Vec::new(),
            lanes: Vec::new(),
            buffered_bytes: 0,
            first_time,
            events: 0,
            oversized: 0,
            late: 0,
            last_time: first_time,
        }
    }

    /// Returns the writer.
    pub(super) fn into_writer(self) -> Writer<W> {
        self.writer
    }

    /// Returns processor and time of the next event of a record. Events of the state before the
    /// recording have time 0 and get the time of the first event.
    pub(super) fn moment(&mut self, cpu: u32, time: u64) -> Moment {
        let cpu = u16::try_from(cpu.min(MAX_CPU)).unwrap_or(0);
        let index = usize::from(cpu);
        if self.lanes.len() <= index {
            let lane = Lane { last_time: self.first_time, buffered_bytes: 0 };
            self.lanes.resize(index.saturating_add(1), lane);
        }
        let mut time = i64::try_from(time).unwrap_or(i64::MAX);
        if let Some(lane) = self.lanes.get_mut(index) {
            if time < lane.last_time && time != 0 {
                self.late = self.late.saturating_add(1);
            }
            time = time.max(lane.last_time);
            lane.last_time = time;
        }
        self.last_time = self.last_time.max(time);
        Moment { cpu, time }
    }

    /// Marks that events of a processor were lost.
    pub(super) fn flag_loss(&mut self, cpu: u16) -> traceweir_format::Result<()> {
        self.writer.flag_loss(cpu, BUFFER_FLAG_EVENTS_LOST)
    }

    /// Writes an event with process and thread in its header.
    pub(super) fn write_system(
        &mut self,
        at: Moment,
        (hook, version): (u16, u8),
        ids: TaskIds,
        payload: &[u8],
    ) -> traceweir_format::Result<bool> {
        let TaskIds { pid: process_id, tid: thread_id } = ids;
        let (time, cpu_times) = (at.time, Some((0, 0)));
        let header = SystemHeader { pointer_size: 8, version, hook, thread_id, process_id, time, cpu_times };
        self.write(at, |out| header.encode(payload, out))
    }

    /// Writes an event with only a time in its header. Returns whether it was written.
    pub(super) fn write_perfinfo(
        &mut self,
        at: Moment,
        (hook, version): (u16, u8),
        payload: &[u8],
    ) -> traceweir_format::Result<bool> {
        let header = PerfInfoHeader { pointer_size: 8, version, hook, time: at.time, counters: &[] };
        self.write(at, |out| header.encode(payload, out))
    }

    /// Writes an event of a class without hook ids.
    pub(super) fn write_classic(
        &mut self,
        at: Moment,
        class: Guid,
        (opcode, version): (u8, u8),
        ids: TaskIds,
        payload: &[u8],
    ) -> traceweir_format::Result<bool> {
        let header = ClassicHeader {
            class,
            opcode,
            version: version.into(),
            process_id: ids.pid,
            thread_id: ids.tid,
            time: at.time,
            ..ClassicHeader::default()
        };
        self.write(at, |out| header.encode(payload, out))
    }

    /// Writes an event that describes itself.
    pub(super) fn write_event(
        &mut self,
        at: Moment,
        header: &EventHeader<'_>,
        payload: &[u8],
    ) -> traceweir_format::Result<bool> {
        self.write(at, |out| header.encode(payload, out))
    }

    /// Writes a record. Returns false if it is too large.
    fn write(
        &mut self,
        at: Moment,
        encode: impl FnOnce(&mut Vec<u8>) -> traceweir_format::Result<()>,
    ) -> traceweir_format::Result<bool> {
        self.record.clear();
        if encode(&mut self.record).is_err() {
            self.oversized = self.oversized.saturating_add(1);
            return Ok(false);
        }
        let size = self.record.len();
        if self.buffered_of(at.cpu).saturating_add(size) > MAX_BUFFERED_BYTES {
            self.flush(at.cpu)?;
        }
        self.writer.write(at.cpu, at.time, &self.record)?;
        if let Some(lane) = self.lanes.get_mut(usize::from(at.cpu)) {
            lane.buffered_bytes = lane.buffered_bytes.saturating_add(size);
            self.buffered_bytes = self.buffered_bytes.saturating_add(size);
        }
        if self.buffered_bytes > MAX_ALL_BUFFERED_BYTES {
            let fullest = (0..).zip(&self.lanes).max_by_key(|(_, lane)| lane.buffered_bytes);
            self.flush(fullest.map_or(at.cpu, |(cpu, _)| cpu))?;
        }
        self.events = self.events.saturating_add(1);
        Ok(true)
    }

    fn buffered_of(&self, cpu: u16) -> usize {
        self.lanes.get(usize::from(cpu)).map_or(0, |lane| lane.buffered_bytes)
    }

    /// Writes the buffer of a processor and frees its memory.
    fn flush(&mut self, cpu: u16) -> traceweir_format::Result<()> {
        self.buffered_bytes = self.buffered_bytes.saturating_sub(self.buffered_of(cpu));
        if let Some(lane) = self.lanes.get_mut(usize::from(cpu)) {
            lane.buffered_bytes = 0;
        }
        self.writer.flush_processor(cpu)
    }
}

#[cfg(test)]
mod tests {
    use traceweir_format::etl::{Options, Trace};
    use traceweir_format::kernel::hook;

    use super::*;

    #[test]
    fn memory_of_all_buffers_is_bounded_and_no_event_is_lost() {
        let options = Options { buffer_size: BUFFER_BYTES, processors: 2048, ..Options::default() };
        let mut file = Vec::new();
        let mut out = TraceOutput::new(Writer::create(&mut file, options).unwrap(), 0);
        // Full buffers of all processors would take 256 MiB.
        let payload = vec![0; 60_000];
        for cpu in 0..=MAX_CPU {
            let at = out.moment(cpu, 5);
            out.write_perfinfo(at, (hook::STACK_WALK, 2), &payload).unwrap();
            assert!(out.buffered_bytes <= MAX_ALL_BUFFERED_BYTES);
        }
        assert_eq!(out.lanes.iter().map(|lane| lane.buffered_bytes).sum::<usize>(), out.buffered_bytes);
        assert!(out.buffered_bytes > MAX_ALL_BUFFERED_BYTES / 2);
        out.into_writer().flush().unwrap();
        let trace = Trace::open(&*file).unwrap();
        let mut events = trace.events();
        let mut count = 0;
        while events.next().unwrap().is_some() {
            count += 1;
        }
        // The header of the log is an event too.
        assert_eq!((count, events.damage().count), (1 + MAX_CPU + 1, 0));
    }
}
