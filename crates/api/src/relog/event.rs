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

/// What a new event is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// With an EVENT header: provider, descriptor, activity.
    Modern,
    /// With the header of the older interface: class, opcode, level, version.
    Classic,
}

/// When an event happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stamp {
    /// By the clock of its input.
    Raw(i64),
    /// By wall time.
    Wall(FileTime),
}

/// A copy of an event, or a new one, to be [injected](super::Output::inject).
///
/// What a header has no place for is refused with `ERROR_NOT_SUPPORTED`, and nothing changes: kernel events have no provider of their own, only
/// those of the newest kind an activity.
#[derive(Clone, Debug)]
pub struct TraceEvent {
    pub(super) input: usize,
    pub(super) cpu: u16,
    pub(super) stamp: Stamp,
    family: Family,
    /// The record, padded to a multiple of eight.
    bytes: Vec<u8>,
}

impl TraceEvent {
    /// A copy of an event.
    pub fn of(event: &Event<'_>) -> Result<Self> {
        let record = event.record;
        let mut bytes = Vec::new();
        if !edit::modernise(record, &mut bytes)? {
            edit::with_payload(record, record.payload(), &mut bytes)?;
        }
        let (cpu, family) = (record.cpu(), record.family());
        Ok(Self { input: event.trace, cpu, stamp: Stamp::Raw(record.time()), family, bytes })
    }

    /// A new event of an input, without a payload, on processor 0.
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
        Ok(Self { input, cpu: 0, stamp: Stamp::Wall(time), family, bytes })
    }

    /// An event from a record that was made by other means, with the headers of `traceweir_format` for instance; its stamp is one of the input's clock.
    ///
    /// Status: `ERROR_FILE_CORRUPT` where the bytes are no record.
    pub fn from_record(input: usize, cpu: u16, record: &[u8]) -> Result<Self> {
        let record = Record::parse(record, cpu)?;
        let mut bytes = Vec::new();
        edit::with_payload(&record, record.payload(), &mut bytes)?;
        let (stamp, family) = (Stamp::Raw(record.time()), record.family());
        let mut event = Self { input, cpu: 0, stamp, family, bytes };
        event.set_processor(cpu)?;
        Ok(event)
    }

    /// The record as it stands. Its stamp is that of the original until it is written.
    pub fn record(&self) -> Result<Record<'_>> {
        Ok(Record::parse(&self.bytes, self.cpu)?)
    }

    /// The record's bytes, padded.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The family of its header.
    #[must_use]
    pub const fn family(&self) -> Family {
        self.family
    }

    /// The input it belongs to.
    #[must_use]
    pub const fn input(&self) -> usize {
        self.input
    }

    /// Another payload. Status: `ERROR_MORE_DATA` where a record cannot be as long as this one would be.
    pub fn set_payload(&mut self, payload: &[u8]) -> Result<()> {
        let mut bytes = Vec::with_capacity(self.bytes.len());
        edit::with_payload(&self.record()?, payload, &mut bytes)?;
        self.bytes = bytes;
        Ok(())
    }

    /// Another id, version, level and so on, as far as the header has them.
    pub fn set_descriptor(&mut self, descriptor: &EventDescriptor) -> Result<()> {
        let done = edit::set_descriptor(&mut self.bytes, self.family, descriptor);
        self.had(done, "descriptor")
    }

    /// Another process.
    pub fn set_process_id(&mut self, process: u32) -> Result<()> {
        let done = edit::set_process_id(&mut self.bytes, self.family, process);
        self.had(done || process == NO_ID, "process")
    }

    /// Another thread.
    pub fn set_thread_id(&mut self, thread: u32) -> Result<()> {
        let done = edit::set_thread_id(&mut self.bytes, self.family, thread);
        self.had(done || thread == NO_ID, "thread")
    }

    /// Other CPU times of the thread, in ticks of the timer.
    pub fn set_thread_times(&mut self, kernel: u32, user: u32) -> Result<()> {
        let done = edit::set_cpu_times(&mut self.bytes, self.family, (kernel, user));
        self.had(done, "CPU times")
    }

    /// Another processor, 0 to 2047: that of its buffer. Status: `ERROR_INVALID_PARAMETER` beyond.
    pub fn set_processor(&mut self, cpu: u16) -> Result<()> {
        if cpu > MAX_PROCESSOR {
            let why = format!("processor {cpu}: the highest index is {MAX_PROCESSOR}");
            return Err(Error::refused(Status::ERROR_INVALID_PARAMETER, why));
        }
        self.cpu = cpu;
        Ok(())
    }

    /// Another activity.
    pub fn set_activity_id(&mut self, activity: &Guid) -> Result<()> {
        let done = edit::set_activity(&mut self.bytes, self.family, activity);
        self.had(done, "activity")
    }

    /// Another provider, class or message GUID.
    pub fn set_provider_id(&mut self, provider: &Guid) -> Result<()> {
        let done = edit::set_provider(&mut self.bytes, self.family, provider);
        self.had(done, "provider of its own")
    }

    /// Another wall time. The order of what is injected on a processor should be that of time; readers sort what is not.
    pub fn set_time(&mut self, time: FileTime) -> Result<()> {
        let stamped = traceweir_format::header::time_of(&self.bytes, self.family).is_some();
        self.had(stamped, "stamp")?;
        self.stamp = Stamp::Wall(time);
        Ok(())
    }

    fn had(&self, done: bool, what: &str) -> Result<()> {
        if done {
            return Ok(());
        }
        let why = format!("an event with a header of the family {:?} has no {what}", self.family);
        Err(Error::refused(Status::ERROR_NOT_SUPPORTED, why))
    }
}
