//! An event that the caller may change before it is written.

use traceweir_format::buffer::MAX_PROCESSOR;
use traceweir_format::guid::Guid;
use traceweir_format::header::classic::ClassicHeader;
use traceweir_format::header::event::EventHeader;
use traceweir_format::header::{Family, NO_ID, Record, edit};
use traceweir_format::spec::event::EventDescriptor;
use traceweir_format::spec::status::Status;
use traceweir_format::time::FileTime;

use crate::consumer::Event;
use crate::error::{Error, Result};

/// The kind of a new event.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// An event with EVENT_HEADER: provider, descriptor, activity.
    Modern,
    /// An event with the header of the older interface: class, opcode, level, version.
    Classic,
}

/// The time of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EventStamp {
    /// A stamp in ticks of the input's clock.
    Raw(i64),
    /// A wall time.
    Wall(FileTime),
}

/// A copy of an event, or a new one, to be [injected](super::Output::inject).
///
/// A property that the header cannot hold is refused with `ERROR_NOT_SUPPORTED`, without a change:
/// kernel events have no provider that could be set, and only events with EVENT_HEADER have an
/// activity.
#[derive(Clone, Debug)]
pub struct TraceEvent {
    pub(super) input: usize,
    pub(super) cpu: u16,
    pub(super) stamp: EventStamp,
    family: Family,
    /// The record, padded to a multiple of eight.
    bytes: Vec<u8>,
}

impl TraceEvent {
    /// Copies an event; a header of an old layout is converted to the current one.
    pub fn from_event(event: &Event<'_>) -> Result<Self> {
        let record = event.record;
        let mut bytes = Vec::new();
        if !edit::modernise(record, &mut bytes)? {
            edit::append_with_payload(record, record.payload(), &mut bytes)?;
        }
        let (cpu, family) = (record.cpu(), record.family());
        Ok(Self { input: event.trace, cpu, stamp: EventStamp::Raw(record.time()), family, bytes })
    }

    /// Creates an event of an input, without a payload, on processor 0.
    pub(super) fn new(input: usize, kind: EventKind, time: FileTime) -> Result<Self> {
        let mut bytes = Vec::new();
        let family = match kind {
            EventKind::Modern => {
                EventHeader::default().encode(&[], &mut bytes)?;
                Family::Event
            }
            EventKind::Classic => {
                ClassicHeader::default().encode(&[], &mut bytes)?;
                Family::Full
            }
        };
        Ok(Self { input, cpu: 0, stamp: EventStamp::Wall(time), family, bytes })
    }

    /// Creates an event from a record that the caller composed, for instance with the headers of
    /// `traceweir_format`.
    ///
    /// Its stamp is in ticks of the input's clock. Fails with `ERROR_FILE_CORRUPT` if the bytes are
    /// not a record.
    pub fn from_record(input: usize, cpu: u16, record: &[u8]) -> Result<Self> {
        let record = Record::parse(record, cpu)?;
        let mut bytes = Vec::new();
        edit::append_with_payload(&record, record.payload(), &mut bytes)?;
        let (stamp, family) = (EventStamp::Raw(record.time()), record.family());
        let mut event = Self { input, cpu: 0, stamp, family, bytes };
        event.set_processor(cpu)?;
        Ok(event)
    }

    /// Returns the record. It has the stamp of the original until the event is written.
    pub fn record(&self) -> Result<Record<'_>> {
        Ok(Record::parse(&self.bytes, self.cpu)?)
    }

    /// Returns the record's bytes with padding.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the family of the header.
    #[must_use]
    pub const fn family(&self) -> Family {
        self.family
    }

    /// Returns the index of the input.
    #[must_use]
    pub const fn input(&self) -> usize {
        self.input
    }

    /// Replaces the payload.
    ///
    /// Fails with `ERROR_MORE_DATA` if the record would be too large.
    pub fn set_payload(&mut self, payload: &[u8]) -> Result<()> {
        let mut bytes = Vec::with_capacity(self.bytes.len());
        edit::append_with_payload(&self.record()?, payload, &mut bytes)?;
        self.bytes = bytes;
        Ok(())
    }

    /// Sets id, version, level and so on, as far as the header has them.
    pub fn set_descriptor(&mut self, descriptor: &EventDescriptor) -> Result<()> {
        let is_set = edit::set_descriptor(&mut self.bytes, self.family, descriptor);
        self.check_supported(is_set, "descriptor")
    }

    /// Sets the process id. A header without one accepts only `u32::MAX`, which means none.
    pub fn set_process_id(&mut self, process: u32) -> Result<()> {
        let is_set = edit::set_process_id(&mut self.bytes, self.family, process);
        self.check_supported(is_set || process == NO_ID, "process")
    }

    /// Sets the thread id. A header without one accepts only `u32::MAX`, which means none.
    pub fn set_thread_id(&mut self, thread: u32) -> Result<()> {
        let is_set = edit::set_thread_id(&mut self.bytes, self.family, thread);
        self.check_supported(is_set || thread == NO_ID, "thread")
    }

    /// Sets the CPU times of the thread, in ticks of the timer.
    pub fn set_thread_times(&mut self, kernel: u32, user: u32) -> Result<()> {
        let is_set = edit::set_cpu_times(&mut self.bytes, self.family, (kernel, user));
        self.check_supported(is_set, "CPU times")
    }

    /// Sets the processor, 0 to 2047, whose buffer the event is written to.
    ///
    /// Fails with `ERROR_INVALID_PARAMETER` for a higher number.
    pub fn set_processor(&mut self, cpu: u16) -> Result<()> {
        if cpu > MAX_PROCESSOR {
            let reason = format!("processor {cpu}: the highest index is {MAX_PROCESSOR}");
            return Err(Error::refused(Status::ERROR_INVALID_PARAMETER, reason));
        }
        self.cpu = cpu;
        Ok(())
    }

    /// Sets the activity id.
    pub fn set_activity_id(&mut self, activity: &Guid) -> Result<()> {
        let is_set = edit::set_activity(&mut self.bytes, self.family, activity);
        self.check_supported(is_set, "activity")
    }

    /// Sets the provider, class or message GUID.
    pub fn set_provider_id(&mut self, provider: &Guid) -> Result<()> {
        let is_set = edit::set_provider(&mut self.bytes, self.family, provider);
        self.check_supported(is_set, "provider of its own")
    }

    /// Sets the wall time.
    ///
    /// The events of one processor should be injected in time order; otherwise readers have to sort
    /// them.
    pub fn set_time(&mut self, time: FileTime) -> Result<()> {
        let has_stamp = traceweir_format::header::time_of(&self.bytes, self.family).is_some();
        self.check_supported(has_stamp, "stamp")?;
        self.stamp = EventStamp::Wall(time);
        Ok(())
    }

    fn check_supported(&self, is_supported: bool, property: &str) -> Result<()> {
        if is_supported {
            return Ok(());
        }
        let reason = format!("an event with a header of the family {:?} has no {property}", self.family);
        Err(Error::refused(Status::ERROR_NOT_SUPPORTED, reason))
    }
}
