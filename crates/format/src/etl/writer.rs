//! Writes files that every reader of the format accepts.
//!
//! ```text
//!   create   header buffer with EndTime 0
//!   append   whole buffers only, each with the records of one processor
//!            killed here: the file is valid up to its last buffer
//!   finish   flush marker on the last buffer, then BuffersWritten, lost counts, EndTime
//!   reopen   the same header again with EndTime 0, the marker cleared; then append and finish
//! ```
//!
//! Plain buffers have the session's size and 0xFF after their records. Compressed buffers end with
//! the compressed data. A buffer that does not shrink is stored plain but truncated after its last
//! record, because some readers of compressed files read only as many bytes as the smaller of
//! `BufferSize` and `Offset` says. When the next buffer would exceed the size
//! limit of a circular log, the log wraps: it continues directly after the header buffer. Records
//! of one processor must come in time order. Source: Observed in files of current Windows.

mod options;
mod packing;
mod tail;

pub use options::{Options, Summary};
pub use tail::Tail;

use alloc::vec::Vec;

#[cfg(any(test, feature = "std"))]
pub use self::packing::RunWork;
use self::packing::{PackedBuffer, Packer};
use super::WriteAt;
use crate::buffer::{self, BufferHeader, FILLER, HEADER_SIZE, MAX_PROCESSOR, STATE_FLUSH};
use crate::logfile;
use crate::spec::session::{
    BUFFER_FLAG_FLUSH_MARKER, BUFFER_FLAG_PROC_INDEX, BUFFER_FLAGS_OF_LOSS, BufferType,
};
use crate::time::FileTime;
use crate::wire::align8;
use crate::{Error, Result, header};

/// Full buffers that each thread compresses at a time.
const BUFFERS_PER_THREAD: usize = 4;
/// The most bytes of buffers that are compressed together.
const MAX_BATCH_BYTES: usize = 16 << 20;

/// Rejects a processor index or records that readers would misread.
fn check_buffer(cpu: u16, records: &[u8]) -> Result<()> {
    let invalid = |reason| Err(Error::Invalid { what: "records to be written", offset: 0, reason });
    if cpu > MAX_PROCESSOR {
        return invalid("the processor index exceeds eleven bits");
    }
    if records.len() != align8(records.len()) {
        return invalid("not padded to a multiple of eight");
    }
    Ok(())
}

/// Sets the flush marker of a written buffer that has the given flags.
pub(super) fn set_flush_marker<W: WriteAt>(sink: &mut W, buffer_offset: u64, flags: u16) -> Result<()> {
    let at = buffer_offset.saturating_add(buffer::at::FLAGS as u64);
    sink.write_at(at, &(flags | BUFFER_FLAG_FLUSH_MARKER).to_le_bytes())
}

/// Records of one processor that wait for their buffer to fill.
#[derive(Debug, Default)]
struct PendingRecords {
    records: Vec<u8>,
    last_time: i64,
    /// Loss flags for the buffer.
    loss_flags: u16,
}

/// Records of a full buffer that wait for others, to be compressed together.
#[derive(Debug)]
struct FullBuffer {
    cpu: u16,
    pending: PendingRecords,
}

/// A buffer laid out in memory as in the file: space for the header, then records. The
/// writer fills in header and filler.
#[derive(Debug)]
pub struct BufferInPlace<'a> {
    /// The processor whose records the buffer holds.
    pub cpu: u16,
    /// Time of the flush in the session's clock.
    pub time: i64,
    /// Loss flags of the buffer, or 0.
    pub loss_flags: u16,
    /// The whole buffer, of the session's size.
    pub bytes: &'a mut [u8],
    /// Bytes in use, including the space for the header.
    pub filled: usize,
}

impl BufferInPlace<'_> {
    fn reject<T>(reason: &'static str) -> Result<T> {
        Err(Error::Invalid { what: "buffer to be written", offset: 0, reason })
    }

    fn records(&self) -> Result<&[u8]> {
        let Some(valid) = self.bytes.get(..self.filled) else {
            return Self::reject("filled beyond the end");
        };
        valid.get(HEADER_SIZE..).map_or_else(|| Self::reject("no space for the header"), Ok)
    }

    /// Writes header and filler into the buffer.
    fn write_header(&mut self, header: &BufferHeader) -> Result<()> {
        if self.bytes.len() != header.buffer_size as usize {
            return Self::reject("not of the session's size");
        }
        if let Some(filler) = self.bytes.get_mut(self.filled..) {
            filler.fill(FILLER);
        }
        header::patch(self.bytes, 0, &header.to_bytes());
        Ok(())
    }
}

/// Writes one file.
#[derive(Debug)]
pub struct Writer<W> {
    sink: W,
    options: Options,
    pending: Vec<PendingRecords>,
    /// Offset of the next buffer, unless the log wraps.
    position: u64,
    length: u64,
    /// The size limit of a circular log.
    max_bytes: Option<u64>,
    /// Sequence number of the next buffer; the header buffer has number 0.
    next_sequence: i64,
    /// Offset and flags of the last buffer.
    last_buffer: Option<(u64, u16)>,
    header_size: u32,
    packer: Packer,
    /// Full buffers, if several threads compress.
    full: Vec<FullBuffer>,
    /// A complete plain buffer; reused for each buffer.
    image: Vec<u8>,
    /// `None` for a new file. For a reopened file: whether its header has the 64-bit layout;
    /// finalising changes only some fields of this header.
    reopened_header_is_64_bit: Option<bool>,
}

impl<W: WriteAt> Writer<W> {
    fn new(sink: W, options: Options) -> Self {
        Self {
            sink,
            options,
            pending: Vec::new(),
            position: 0,
            length: 0,
            max_bytes: None,
            next_sequence: 1,
            last_buffer: None,
            header_size: 0,
            packer: Packer::default(),
            full: Vec::new(),
            image: Vec::new(),
            reopened_header_is_64_bit: None,
        }
    }

    /// Continues a file after its last whole buffer, where the caller must have truncated the file.
    ///
    /// Names, clock and logger id stay those of the file; the counts of the final [`Summary`] must
    /// include the counts in the file's header.
    pub fn reopen(sink: W, tail: &Tail) -> Result<Self> {
        let (size, header) = (tail.header.buffer_size, &tail.header);
        let options = Options {
            buffer_size: size,
            logger_id: tail.logger_id,
            processors: header.processors,
            start_time: header.start_time,
            ..Options::default()
        };
        options.check()?;
        let mut writer = Self::new(sink, options);
        writer.reopened_header_is_64_bit = Some(tail.is_64_bit);
        (writer.position, writer.length) = (tail.length(), tail.length());
        (writer.next_sequence, writer.header_size) = (i64::from(tail.buffers), size);
        writer.patch_header(logfile::at::END_TIME, &0_i64.to_le_bytes())?;
        writer.patch_header(logfile::at::BUFFERS_WRITTEN, &0_u32.to_le_bytes())?;
        if let Some(at) = tail.last_buffer() {
            let flags = tail.last_flags & !BUFFER_FLAG_FLUSH_MARKER;
            writer.sink.write_at(at.saturating_add(buffer::at::FLAGS as u64), &flags.to_le_bytes())?;
            writer.last_buffer = Some((at, flags));
        }
        Ok(writer)
    }

    /// Writes the header buffer of a file that is not finalised yet.
    pub fn create(sink: W, options: Options) -> Result<Self> {
        options.check()?;
        let mut writer = Self::new(sink, options);
        let image = writer.options.header_image(&Summary::default(), 0, 0)?;
        writer.header_size = u32::try_from(image.len()).unwrap_or(u32::MAX);
        writer.sink.write_at(0, &image)?;
        writer.position = image.len() as u64;
        writer.length = writer.position;
        Ok(writer)
    }

    /// Adds one encoded record (padded to eight bytes) to the buffer of its processor.
    pub fn write(&mut self, cpu: u16, time: i64, record: &[u8]) -> Result<()> {
        let limit = (self.options.buffer_size as usize).saturating_sub(HEADER_SIZE);
        check_buffer(cpu, record)?;
        if record.len() > limit {
            return Err(Error::TooLarge { what: "record", size: record.len() as u64, limit: limit as u64 });
        }
        self.ensure_pending(cpu);
        let index = usize::from(cpu);
        let is_full =
            self.pending.get(index).is_some_and(|p| p.records.len().saturating_add(record.len()) > limit);
        if is_full {
            self.flush_cpu(cpu)?;
        }
        if let Some(pending) = self.pending.get_mut(index) {
            pending.records.extend_from_slice(record);
            pending.last_time = time;
        }
        Ok(())
    }

    fn ensure_pending(&mut self, cpu: u16) {
        let index = usize::from(cpu);
        if self.pending.len() <= index {
            self.pending.resize_with(index.saturating_add(1), PendingRecords::default);
        }
    }

    /// Sets loss flags (`BUFFER_FLAG_…`) on the processor's pending or next buffer: events or
    /// buffers were lost before its records.
    pub fn flag_loss(&mut self, cpu: u16, flags: u16) -> Result<()> {
        check_buffer(cpu, &[])?;
        self.ensure_pending(cpu);
        if let Some(pending) = self.pending.get_mut(usize::from(cpu)) {
            pending.loss_flags |= flags & BUFFER_FLAGS_OF_LOSS;
        }
        Ok(())
    }

    /// Adds a record; reads its stamp from its header.
    pub fn write_record(&mut self, cpu: u16, record: &[u8]) -> Result<()> {
        let time = header::Record::parse(record, cpu)?.time();
        self.write(cpu, time, record)
    }

    /// Compresses with this many threads, at most 64, if the file is compressed. The file does not
    /// depend on their number. Each thread passes its work to `run_work`, which runs it; if it catches
    /// a panic, this thread repeats the work.
    #[cfg(any(test, feature = "std"))]
    pub fn compress_with_threads(&mut self, threads: usize, run_work: RunWork) {
        if self.options.compressed {
            self.packer.set_threads(threads, run_work);
        }
    }

    /// Writes the pending records of all processors.
    pub fn flush(&mut self) -> Result<()> {
        for index in 0..self.pending.len() {
            self.flush_cpu(u16::try_from(index).unwrap_or(u16::MAX))?;
        }
        self.write_full()
    }

    /// Writes the pending records of a processor and frees their memory.
    pub fn flush_processor(&mut self, cpu: u16) -> Result<()> {
        self.flush_cpu(cpu)?;
        if let Some(pending) = self.pending.get_mut(usize::from(cpu)) {
            pending.records = Vec::new();
        }
        Ok(())
    }

    fn flush_cpu(&mut self, cpu: u16) -> Result<()> {
        let Some(pending) = self.pending.get_mut(usize::from(cpu)).filter(|p| !p.records.is_empty()) else {
            return Ok(());
        };
        if self.options.compressed && self.packer.threads() > 1 {
            self.full.push(FullBuffer { cpu, pending: core::mem::take(pending) });
            let max_buffers = MAX_BATCH_BYTES.checked_div(self.options.buffer_size as usize).unwrap_or(1);
            let buffers = self.packer.threads().saturating_mul(BUFFERS_PER_THREAD);
            let is_batch = self.full.len() >= buffers.min(max_buffers);
            return if is_batch { self.write_full() } else { Ok(()) };
        }
        let mut records = core::mem::take(&mut pending.records);
        let (time, loss_flags) = (pending.last_time, core::mem::take(&mut pending.loss_flags));
        let result = self.append_flagged(cpu, time, loss_flags, &records);
        records.clear();
        if let Some(pending) = self.pending.get_mut(usize::from(cpu)) {
            pending.records = records;
        }
        result
    }

    /// Compresses and writes the full buffers.
    fn write_full(&mut self) -> Result<()> {
        if self.full.is_empty() {
            return Ok(());
        }
        let full = core::mem::take(&mut self.full);
        let mut buffers = Vec::with_capacity(full.len());
        for (sequence, FullBuffer { cpu, pending }) in (self.next_sequence..).zip(&full) {
            let PendingRecords { records, last_time, loss_flags } = pending;
            check_buffer(*cpu, records)?;
            let header = self.buffer_header(*cpu, *last_time, *loss_flags, records.len())?;
            let header = BufferHeader { sequence_number: sequence, ..header };
            buffers.push(self.packer.new_buffer(header, records));
        }
        self.write_packed(buffers).map(drop)
    }

    /// Compresses buffers and writes them together. Returns their sizes in the file.
    fn write_packed(&mut self, mut buffers: Vec<PackedBuffer<'_>>) -> Result<Vec<u32>> {
        self.packer.pack(&mut buffers);
        let pieces: Vec<&[u8]> = buffers.iter().map(|buffer| buffer.image.as_slice()).collect();
        self.sink.write_pieces_at(self.position, &pieces)?;
        let mut sizes = Vec::with_capacity(buffers.len());
        for buffer in buffers {
            self.record_buffer(&buffer.header, self.position);
            sizes.push(buffer.header.buffer_size);
            self.packer.recycle(buffer.image);
        }
        Ok(sizes)
    }

    /// Makes the log circular: it never exceeds `limit` bytes, or the header buffer and one more
    /// buffer if these are larger. Not for compressed files, whose buffers differ in size.
    pub fn wrap_at(&mut self, limit: u64) {
        self.max_bytes = Some(limit);
    }

    /// Appends one whole buffer: the records of a processor, flushed at `time`.
    pub fn append(&mut self, cpu: u16, time: i64, records: &[u8]) -> Result<()> {
        self.append_flagged(cpu, time, 0, records)
    }

    fn append_flagged(&mut self, cpu: u16, time: i64, loss_flags: u16, records: &[u8]) -> Result<()> {
        check_buffer(cpu, records)?;
        self.write_full()?;
        let header = self.buffer_header(cpu, time, loss_flags, records.len())?;
        if self.options.compressed {
            let buffer = self.packer.new_buffer(header, records);
            return self.write_packed(Vec::from([buffer])).map(drop);
        }
        let mut image = core::mem::take(&mut self.image);
        image.clear();
        image.resize(HEADER_SIZE, 0);
        image.extend_from_slice(records);
        image.resize(header.buffer_size as usize, FILLER);
        header::patch(&mut image, 0, &header.to_bytes());
        let result = self.write_buffer(&header, &image);
        self.image = image;
        result
    }

    /// Appends a buffer of the session's size that is laid out in memory as in the file.
    pub fn append_in_place(&mut self, mut buffer: BufferInPlace<'_>) -> Result<()> {
        if self.options.compressed {
            return self.append_flagged(buffer.cpu, buffer.time, buffer.loss_flags, buffer.records()?);
        }
        let header = self.make_checked_header(&buffer, self.next_sequence)?;
        buffer.write_header(&header)?;
        self.write_buffer(&header, buffer.bytes)
    }

    /// Returns whether the next `buffers` buffers of the session's size are contiguous in the file.
    /// They are not where the log wraps.
    #[must_use]
    pub fn can_append_contiguously(&self, buffers: usize) -> bool {
        let size = u64::from(self.options.buffer_size).saturating_mul(buffers as u64);
        self.max_bytes.is_none_or(|limit| self.position.saturating_add(size) <= limit)
    }

    /// Appends several buffers with one write, and returns their sizes in the file. They must [be
    /// contiguous](Self::can_append_contiguously) in the file. On failure nothing changes, except
    /// for bytes after the last buffer.
    pub fn append_all_in_place(&mut self, buffers: &mut [BufferInPlace<'_>]) -> Result<Vec<u32>> {
        if self.options.compressed {
            let mut packed = Vec::with_capacity(buffers.len());
            for (sequence, buffer) in (self.next_sequence..).zip(&*buffers) {
                let header = self.make_checked_header(buffer, sequence)?;
                packed.push(self.packer.new_buffer(header, buffer.records()?));
            }
            return self.write_packed(packed);
        }
        let mut headers = Vec::with_capacity(buffers.len());
        for (sequence, buffer) in (self.next_sequence..).zip(&mut *buffers) {
            let header = self.make_checked_header(buffer, sequence)?;
            buffer.write_header(&header)?;
            headers.push(header);
        }
        let pieces: Vec<&[u8]> = buffers.iter().map(|buffer| &*buffer.bytes).collect();
        self.sink.write_pieces_at(self.position, &pieces)?;
        for header in &headers {
            self.record_buffer(header, self.position);
        }
        Ok(headers.iter().map(|header| header.buffer_size).collect())
    }

    fn make_checked_header(&self, buffer: &BufferInPlace<'_>, sequence: i64) -> Result<BufferHeader> {
        let records = buffer.records()?;
        check_buffer(buffer.cpu, records)?;
        let header = self.buffer_header(buffer.cpu, buffer.time, buffer.loss_flags, records.len())?;
        Ok(BufferHeader { sequence_number: sequence, ..header })
    }

    /// Returns the header of the next buffer, which has `record_bytes` bytes of records.
    fn buffer_header(
        &self,
        cpu: u16,
        time: i64,
        loss_flags: u16,
        record_bytes: usize,
    ) -> Result<BufferHeader> {
        let session_size = self.options.buffer_size;
        let valid = HEADER_SIZE.saturating_add(record_bytes);
        let Some(offset) = u32::try_from(valid).ok().filter(|&size| size <= session_size) else {
            let (size, limit) = (valid as u64, u64::from(session_size));
            return Err(Error::TooLarge { what: "buffer", size, limit });
        };
        Ok(BufferHeader {
            buffer_size: session_size,
            saved_offset: offset,
            current_offset: offset,
            time_stamp: time,
            sequence_number: self.next_sequence,
            processor_index: cpu,
            logger_id: self.options.logger_id,
            state: STATE_FLUSH,
            offset,
            flags: BUFFER_FLAG_PROC_INDEX | loss_flags & BUFFER_FLAGS_OF_LOSS,
            buffer_type: BufferType::GENERIC.0,
        })
    }

    /// Writes a complete buffer at its offset. On failure nothing changes, except for bytes after
    /// the last buffer, which in a circular log may belong to the oldest buffers.
    fn write_buffer(&mut self, header: &BufferHeader, image: &[u8]) -> Result<()> {
        let size = image.len() as u64;
        let wraps = self.max_bytes.is_some_and(|limit| self.position.saturating_add(size) > limit);
        let at = if wraps { u64::from(self.header_size) } else { self.position };
        self.sink.write_at(at, image)?;
        self.record_buffer(header, at);
        Ok(())
    }

    /// Records that a buffer with this header is in the file.
    fn record_buffer(&mut self, header: &BufferHeader, at: u64) {
        self.last_buffer = Some((at, header.flags));
        self.position = at.saturating_add(u64::from(header.buffer_size));
        self.length = self.length.max(self.position);
        self.next_sequence = self.next_sequence.saturating_add(1);
        let processors = u32::from(header.processor_index).saturating_add(1);
        self.options.processors = self.options.processors.max(processors);
    }

    /// Returns the size of the file in bytes: whole buffers.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Returns the offset after the last buffer. Until a circular log wraps, this is the number of
    /// bytes written.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Returns the sink that receives the bytes.
    pub fn sink_mut(&mut self) -> &mut W {
        &mut self.sink
    }

    /// Adds a record, padded to eight bytes, after the log-file header and writes the header buffer
    /// again. The record must have the stamp of the header. Fails without a change if the record
    /// does not fit the buffer or is not padded, or if the file was reopened.
    pub fn add_header_record(&mut self, record: &[u8]) -> Result<()> {
        let previous_length = self.options.header_records.len();
        self.options.header_records.extend_from_slice(record);
        let image = self.options.header_image(&Summary::default(), 0, 0);
        let image = image.ok().filter(|image| image.len() == self.header_size as usize);
        let is_allowed = self.reopened_header_is_64_bit.is_none() && record.len() == align8(record.len());
        let Some(image) = image.filter(|_| is_allowed) else {
            self.options.header_records.truncate(previous_length);
            let (size, limit) = (record.len() as u64, u64::from(self.header_size));
            return Err(Error::TooLarge { what: "record for the header buffer", size, limit });
        };
        self.sink.write_at(0, &image)
    }

    /// Sets the raw stamp and the wall time of the session's start in the final header. A boot time
    /// after the start is set to the start.
    pub fn set_start(&mut self, anchor: i64, start: FileTime) {
        (self.options.anchor, self.options.start_time) = (anchor, start);
        self.options.boot_time = self.options.boot_time.min(start);
    }

    /// Returns the number of buffers written so far, including the header buffer.
    #[must_use]
    pub fn buffers_written(&self) -> u32 {
        u32::try_from(self.next_sequence).unwrap_or(u32::MAX)
    }

    /// Writes pending records, finalises the file and returns the sink.
    pub fn finish(mut self, summary: Summary) -> Result<W> {
        self.finalise(&summary)?;
        Ok(self.sink)
    }

    /// Writes pending records and finalises the file. May be repeated with later counts, as long as
    /// no buffer is added.
    pub fn finalise(&mut self, summary: &Summary) -> Result<()> {
        self.flush()?;
        if let Some((at, flags)) = self.last_buffer {
            set_flush_marker(&mut self.sink, at, flags)?;
        }
        let summary = Summary {
            // Readers ignore an end time before the start time.
            end_time: summary.end_time.max(FileTime(self.options.start_time.0.max(1))),
            ..*summary
        };
        let (written, size) = (self.buffers_written(), self.header_size as usize);
        if self.reopened_header_is_64_bit.is_some() {
            return self.finalise_reopened(&summary, written);
        }
        let image = self.options.header_image(&summary, written, size)?;
        self.sink.write_at(0, &image)
    }

    fn finalise_reopened(&mut self, summary: &Summary, written: u32) -> Result<()> {
        self.patch_header(logfile::at::PROCESSORS, &self.options.processors.to_le_bytes())?;
        self.patch_header(logfile::at::EVENTS_LOST, &summary.events_lost.to_le_bytes())?;
        self.patch_header(logfile::at::BUFFERS_LOST, &summary.buffers_lost.to_le_bytes())?;
        self.patch_header(logfile::at::BUFFERS_WRITTEN, &written.to_le_bytes())?;
        // The end time is written last: a file with an end time is complete.
        self.patch_header(logfile::at::END_TIME, &summary.end_time.0.to_le_bytes())
    }

    fn patch_header(&mut self, field: usize, bytes: &[u8]) -> Result<()> {
        let is_64_bit = self.reopened_header_is_64_bit.unwrap_or(true);
        self.sink.write_at(logfile::at::in_file(field, is_64_bit), bytes)
    }
}

#[cfg(test)]
mod tests;
