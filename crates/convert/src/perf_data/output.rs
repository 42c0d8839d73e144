//! Writes the events of the trace.
//!
//! 1. Times are nanoseconds of the recording's clock.
//! 2. Records of one processor must come in time order. A record that is older than the last one
//!    of its processor gets the time of that one, and is counted.
//! 3. A record that is too large is left out and counted as lost, with its stack.

use traceweir_format::Guid;
use traceweir_format::etl::{WriteAt, Writer};
use traceweir_format::header::classic::ClassicHeader;
use traceweir_format::header::event::EventHeader;
use traceweir_format::header::perfinfo::PerfInfoHeader;
use traceweir_format::header::system::SystemHeader;
use traceweir_format::spec::session::BUFFER_FLAG_EVENTS_LOST;

/// The largest index of a processor in a trace.
const MAX_CPU: u32 = 2047;

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

/// Writes the events of the trace.
pub(super) struct TraceOutput<W> {
    writer: Writer<W>,
    record: Vec<u8>,
    /// The time of the last record, by processor.
    last_times: Vec<i64>,
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
            last_times: Vec::new(),
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
        if self.last_times.len() <= index {
            self.last_times.resize(index.saturating_add(1), self.first_time);
        }
        let mut time = i64::try_from(time).unwrap_or(i64::MAX);
        if let Some(last) = self.last_times.get_mut(index) {
            if time < *last && time != 0 {
                self.late = self.late.saturating_add(1);
            }
            time = time.max(*last);
            *last = time;
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
        self.writer.write(at.cpu, at.time, &self.record)?;
        self.events = self.events.saturating_add(1);
        Ok(true)
    }
}
