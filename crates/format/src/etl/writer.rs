//! Writes files that every reader of the format takes.
//!
//! ```text
//!   create   header buffer with EndTime 0
//!   append   whole buffers only, each one processor's records            ◀── killed here: valid to the last buffer
//!   finish   flush marker on the last buffer, then the header: EndTime, BuffersWritten, lost counts
//! ```
//!
//! Plain buffers have the session's size and 0xFF behind their records. Compressed ones end with their stream; a buffer
//! that does not shrink is stored plain but cut at its last record, so that `BufferSize` never exceeds
//! `Offset`. Records of one processor must come in time order. Source: Observed, shaped like files of current Windows.

use alloc::string::String;
use alloc::vec::Vec;

use super::WriteAt;
use crate::buffer::{
    self, BufferHeader, FILLER, HEADER_SIZE, MAX_BUFFER, MAX_PROCESSOR, MIN_BUFFER, STATE_FLUSH,
};
use crate::header::system::SystemHeader;
use crate::logfile::{self, LogFileHeader, TimeZone};
use crate::spec::session::{
    BUFFER_FLAG_COMPRESSED, BUFFER_FLAG_FLUSH_MARKER, BUFFER_FLAG_PROC_INDEX, BufferType,
    EVENT_TRACE_COMPRESSED_MODE, EVENT_TRACE_FILE_MODE_SEQUENTIAL,
};
use crate::time::FileTime;
use crate::wire::align8;
use crate::{Error, Result, header, xpress};

/// The header buffer of a compressed file grows in steps of this.
const COMPRESSED_HEADER_STEP: usize = 0x200;

/// What a file says about its session.
#[derive(Clone, Debug)]
pub struct Options {
    /// Session buffer size in bytes: a multiple of 1,024 up to 16 MiB.
    pub buffer_size: u32,
    /// Whether buffers are compressed.
    pub compressed: bool,
    /// Log-file mode besides "compressed".
    pub log_file_mode: u32,
    /// Session number in buffer headers; must not be 0.
    pub logger_id: u16,
    /// Session name.
    pub session_name: String,
    /// Log-file name.
    pub file_name: String,
    /// OS build.
    pub build: u32,
    /// Processors of the machine; raised when a higher index is written.
    pub processors: u32,
    /// Processor speed; must not be 0.
    pub cpu_speed_mhz: u32,
    /// 1 counter, 2 system time, 3 cycles.
    pub clock_type: u32,
    /// Ticks a second of the counter.
    pub perf_freq: i64,
    /// Raw stamp of the session's start.
    pub anchor: i64,
    /// Wall time of the anchor.
    pub start_time: FileTime,
    /// When the machine started.
    pub boot_time: FileTime,
    /// Thread and process that start the session.
    pub starter: (u32, u32),
    /// Limit recorded in the header, MB; 0 = none.
    pub maximum_file_size: u32,
    /// Records besides the log-file header for the header buffer, encoded and padded to eight bytes.
    pub header_records: Vec<u8>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            buffer_size: 0x10000,
            compressed: false,
            log_file_mode: EVENT_TRACE_FILE_MODE_SEQUENTIAL,
            logger_id: 1,
            session_name: String::new(),
            file_name: String::new(),
            build: 19045,
            processors: 1,
            cpu_speed_mhz: 1000,
            clock_type: 1,
            perf_freq: 10_000_000,
            anchor: 0,
            start_time: FileTime(0),
            boot_time: FileTime(0),
            starter: (0, 0),
            maximum_file_size: 0,
            header_records: Vec::new(),
        }
    }
}

impl Options {
    /// Whether the file has what readers of layout 1.5 do not expect.
    const fn needs_layout_2(&self) -> bool {
        self.compressed || self.buffer_size > 1 << 20 || self.processors > 256
    }

    /// Refuses what no session has and readers stumble over.
    fn check(&self) -> Result<()> {
        let invalid = |why| Err(Error::Invalid { what: "options", offset: 0, why });
        let size = self.buffer_size;
        if !size.is_multiple_of(MIN_BUFFER) || !(MIN_BUFFER..=MAX_BUFFER).contains(&size) {
            return invalid("buffer size is not a multiple of 1,024 from 1 KiB to 16 MiB");
        }
        if self.logger_id == 0 {
            return invalid("the session number is 0");
        }
        if self.cpu_speed_mhz == 0 {
            return invalid("the processor speed is 0");
        }
        if self.header_records.len() != align8(self.header_records.len()) {
            return invalid("records for the header buffer are not padded to a multiple of eight");
        }
        Ok(())
    }
}

/// What the session counted, written when the file is finalised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// When the session ended; must not be 0 for a finalised file.
    pub end_time: FileTime,
    /// Events lost.
    pub events_lost: u32,
    /// Buffers lost.
    pub buffers_lost: u32,
}

/// Refuses what would read back as something else.
fn check_buffer(cpu: u16, records: &[u8]) -> Result<()> {
    let invalid = |why| Err(Error::Invalid { what: "records to be written", offset: 0, why });
    if cpu > MAX_PROCESSOR {
        return invalid("the processor index has eleven bits");
    }
    if records.len() != align8(records.len()) {
        return invalid("not padded to a multiple of eight");
    }
    Ok(())
}

/// Marks a written buffer, whose flags so far are given, as the end of a flush batch.
pub(super) fn set_flush_marker<W: WriteAt>(sink: &mut W, buffer: u64, flags: u16) -> Result<()> {
    let at = buffer.saturating_add(buffer::at::FLAGS as u64);
    sink.write_at(at, &(flags | BUFFER_FLAG_FLUSH_MARKER).to_le_bytes())
}

/// Records of one processor that wait for their buffer to fill.
#[derive(Debug, Default)]
struct Pending {
    records: Vec<u8>,
    last_time: i64,
}

/// Writes one file.
#[derive(Debug)]
pub struct Writer<W> {
    sink: W,
    options: Options,
    pending: Vec<Pending>,
    position: u64,
    sequence: i64,
    last_buffer: Option<(u64, u16)>,
    header_size: u32,
    compressor: xpress::Compressor,
    packed: Vec<u8>,
    image: Vec<u8>,
}

impl<W: WriteAt> Writer<W> {
    /// Writes the header buffer of a file that is not finalised yet.
    pub fn create(sink: W, options: Options) -> Result<Self> {
        options.check()?;
        let mut writer = Self {
            sink,
            options,
            pending: Vec::new(),
            position: 0,
            sequence: 1,
            last_buffer: None,
            header_size: 0,
            compressor: xpress::Compressor::default(),
            packed: Vec::new(),
            image: Vec::new(),
        };
        let image = writer.header_image(&Summary::default())?;
        writer.header_size = u32::try_from(image.len()).unwrap_or(u32::MAX);
        writer.sink.write_at(0, &image)?;
        writer.position = image.len() as u64;
        Ok(writer)
    }

    /// Adds one encoded record (padded to eight bytes) to the buffer of its processor.
    pub fn write(&mut self, cpu: u16, time: i64, record: &[u8]) -> Result<()> {
        let limit = (self.options.buffer_size as usize).saturating_sub(HEADER_SIZE);
        check_buffer(cpu, record)?;
        if record.len() > limit {
            return Err(Error::TooLarge { what: "record", size: record.len() as u64, limit: limit as u64 });
        }
        let index = usize::from(cpu);
        if self.pending.len() <= index {
            self.pending.resize_with(index.saturating_add(1), Pending::default);
        }
        let full =
            self.pending.get(index).is_some_and(|p| p.records.len().saturating_add(record.len()) > limit);
        if full {
            self.flush_cpu(cpu)?;
        }
        if let Some(pending) = self.pending.get_mut(index) {
            pending.records.extend_from_slice(record);
            pending.last_time = time;
        }
        Ok(())
    }

    /// Adds a record whose stamp is read from its own header.
    pub fn write_record(&mut self, cpu: u16, record: &[u8]) -> Result<()> {
        let time = header::Record::parse(record, cpu)?.time();
        self.write(cpu, time, record)
    }

    /// Writes out what waits for any processor.
    pub fn flush(&mut self) -> Result<()> {
        for index in 0..self.pending.len() {
            self.flush_cpu(u16::try_from(index).unwrap_or(u16::MAX))?;
        }
        Ok(())
    }

    fn flush_cpu(&mut self, cpu: u16) -> Result<()> {
        let Some(pending) = self.pending.get_mut(usize::from(cpu)).filter(|p| !p.records.is_empty()) else {
            return Ok(());
        };
        let mut records = core::mem::take(&mut pending.records);
        let time = pending.last_time;
        let done = self.append(cpu, time, &records);
        records.clear();
        if let Some(pending) = self.pending.get_mut(usize::from(cpu)) {
            pending.records = records;
        }
        done
    }

    /// Appends one whole buffer: the records of a processor, flushed at `time`.
    pub fn append(&mut self, cpu: u16, time: i64, records: &[u8]) -> Result<()> {
        check_buffer(cpu, records)?;
        let session = self.options.buffer_size;
        let valid = HEADER_SIZE.saturating_add(records.len());
        let Some(offset) = u32::try_from(valid).ok().filter(|&v| v <= session) else {
            return Err(Error::TooLarge { what: "buffer", size: valid as u64, limit: u64::from(session) });
        };
        let mut head = BufferHeader {
            buffer_size: session,
            saved_offset: offset,
            current_offset: offset,
            time_stamp: time,
            sequence_number: self.sequence,
            processor_index: cpu,
            logger_id: self.options.logger_id,
            state: STATE_FLUSH,
            offset,
            flags: BUFFER_FLAG_PROC_INDEX,
            buffer_type: BufferType::GENERIC.0,
        };
        self.image.clear();
        self.image.resize(HEADER_SIZE, 0);
        if self.options.compressed {
            self.packed.clear();
            self.compressor.compress(records, &mut self.packed);
            let smaller = self.packed.len() < records.len();
            self.image.extend_from_slice(if smaller { &self.packed } else { records });
            head.flags |= if smaller { BUFFER_FLAG_COMPRESSED } else { 0 };
            head.buffer_size = u32::try_from(self.image.len()).unwrap_or(session);
        } else {
            self.image.extend_from_slice(records);
            self.image.resize(session as usize, FILLER);
        }
        header::patch(&mut self.image, 0, &head.to_bytes());
        self.sink.write_at(self.position, &self.image)?;
        self.last_buffer = Some((self.position, head.flags));
        self.position = self.position.saturating_add(self.image.len() as u64);
        self.sequence = self.sequence.saturating_add(1);
        self.options.processors = self.options.processors.max(u32::from(cpu).saturating_add(1));
        Ok(())
    }

    /// Bytes written so far.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Buffers written so far, the header buffer included.
    #[must_use]
    pub fn buffers_written(&self) -> u32 {
        u32::try_from(self.sequence).unwrap_or(u32::MAX)
    }

    /// Writes out what waits and finalises the file. Gives the sink back.
    pub fn finish(mut self, summary: Summary) -> Result<W> {
        self.flush()?;
        if let Some((at, flags)) = self.last_buffer {
            set_flush_marker(&mut self.sink, at, flags)?;
        }
        let summary = Summary {
            // An end before the start would be no end at all.
            end_time: summary.end_time.max(FileTime(self.options.start_time.0.max(1))),
            ..summary
        };
        let image = self.header_image(&summary)?;
        self.sink.write_at(0, &image)?;
        Ok(self.sink)
    }

    fn header_image(&self, summary: &Summary) -> Result<Vec<u8>> {
        let o = &self.options;
        let compressed = if o.compressed { EVENT_TRACE_COMPRESSED_MODE } else { 0 };
        let finished = summary.end_time.0 != 0;
        let logfile = LogFileHeader {
            buffer_size: o.buffer_size,
            versions: if o.needs_layout_2() { [10, 0, 2, 0] } else { [10, 0, 1, 5] },
            provider_version: o.build,
            processors: o.processors,
            end_time: summary.end_time,
            timer_resolution: 156_250,
            maximum_file_size: o.maximum_file_size,
            log_file_mode: o.log_file_mode | compressed,
            buffers_written: if finished { self.buffers_written() } else { 0 },
            start_buffers: 1,
            pointer_size: 8,
            events_lost: summary.events_lost,
            cpu_speed_mhz: o.cpu_speed_mhz,
            time_zone: TimeZone::default(),
            boot_time: o.boot_time,
            perf_freq: o.perf_freq,
            start_time: o.start_time,
            clock_type: o.clock_type,
            buffers_lost: summary.buffers_lost,
            session_name: o.session_name.clone(),
            file_name: o.file_name.clone(),
        };
        let mut image = alloc::vec![0; HEADER_SIZE];
        let (thread_id, process_id) = o.starter;
        let (hook, time) = (logfile::HOOK, o.anchor);
        let first = SystemHeader {
            pointer_size: 8,
            version: 2,
            hook,
            thread_id,
            process_id,
            time,
            cpu_times: Some((0, 0)),
        };
        first.encode(&logfile.to_payload(), &mut image)?;
        image.extend_from_slice(&o.header_records);
        let offset = image.len();
        let size = self.header_buffer_size(offset)?;
        let (offset, buffer_size) = (u32::try_from(offset).unwrap_or(0), u32::try_from(size).unwrap_or(0));
        let wide = if o.compressed { 0 } else { BUFFER_FLAG_PROC_INDEX };
        let head = BufferHeader {
            buffer_size,
            saved_offset: offset,
            current_offset: offset,
            logger_id: o.logger_id,
            state: STATE_FLUSH,
            offset,
            flags: BUFFER_FLAG_FLUSH_MARKER | wide,
            buffer_type: BufferType::HEADER.0,
            ..BufferHeader::default()
        };
        header::patch(&mut image, 0, &head.to_bytes());
        image.resize(size, FILLER);
        Ok(image)
    }

    fn header_buffer_size(&self, needed: usize) -> Result<usize> {
        let session = self.options.buffer_size as usize;
        if self.header_size != 0 {
            return Ok(self.header_size as usize);
        }
        if self.options.compressed {
            return Ok(needed.next_multiple_of(COMPRESSED_HEADER_STEP));
        }
        if needed > session {
            return Err(Error::TooLarge {
                what: "header buffer",
                size: needed as u64,
                limit: session as u64,
            });
        }
        Ok(session)
    }
}
