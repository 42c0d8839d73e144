//! An opened file: its log-file header, its clock and the index of its buffers.

use alloc::vec::Vec;

use super::ReadAt;
use super::index::{BufferRef, Index};
use super::load::Loader;
use crate::buffer::{BufferHeader, HEADER_SIZE, MAX_BUFFER};
use crate::header::{self, Family, MAX_RECORD_BYTES, Record, measure};
use crate::kernel::hook;
use crate::logfile::{self, LogFileHeader};
use crate::spec::session::{
    BUFFER_FLAG_COMPRESSED, EVENT_TRACE_COMPRESSED_MODE, EVENT_TRACE_FILE_MODE_CIRCULAR,
};
use crate::time::Clock;
use crate::wire::align8;
use crate::{Error, Result};

/// Bytes to read for the first event: a buffer header and the largest record.
const FIRST_EVENT_BYTES: usize = HEADER_SIZE + MAX_RECORD_BYTES;

/// An opened trace.
///
/// ```
/// use traceweir_format::etl::{Options, Trace, Writer};
/// # fn main() -> Result<(), traceweir_format::Error> {
/// let mut file = Vec::new();
/// Writer::create(&mut file, Options::default())?.finish(Default::default())?;
/// let trace = Trace::open(file)?;
/// let mut events = trace.events();
/// while let Some(event) = events.next()? {
///     println!("{} on CPU {}", trace.clock().file_time(event.time()), event.cpu());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Trace<R> {
    source: R,
    length: u64,
    header: LogFileHeader,
    /// Whether the header has the 64-bit layout.
    is_64_bit: bool,
    starter: (u32, u32),
    clock: Clock,
    index: Index,
}

impl<R: ReadAt> Trace<R> {
    /// Reads the header and indexes the buffers. Damage after the header is not an error: see
    /// [`Trace::defects`].
    pub fn open(source: R) -> Result<Self> {
        let length = source.len();
        let first_bytes = read_first_bytes(&source)?;
        let first_event = parse_first_event(&first_bytes)?;
        let header = LogFileHeader::parse(&first_event)?;
        let clock = header.clock(first_event.time());
        let index = Index::build(&source, &header, first_event.time())?;
        let (is_64_bit, starter) =
            (first_event.pointer_size() == 8, (first_event.thread_id(), first_event.process_id()));
        Ok(Self { source, length, header, is_64_bit, starter, clock, index })
    }

    /// Returns the log-file header.
    #[must_use]
    pub fn header(&self) -> &LogFileHeader {
        &self.header
    }

    /// Returns thread id and process id of the session's starter.
    #[must_use]
    pub fn starter(&self) -> (u32, u32) {
        self.starter
    }

    /// Returns the clock that converts raw stamps to wall time.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Returns the buffers, by processor and time.
    #[must_use]
    pub fn buffers(&self) -> &[BufferRef] {
        &self.index.buffers
    }

    /// Returns the buffers in the order in which the session wrote them.
    #[must_use]
    pub fn buffers_as_written(&self) -> Vec<BufferRef> {
        let mut buffers = self.index.buffers.clone();
        let is_circular = self.header.log_file_mode & EVENT_TRACE_FILE_MODE_CIRCULAR != 0;
        // The header buffer is first in every file; after it, a circular file may hold newer
        // buffers before older ones.
        buffers.sort_unstable_by_key(|b| (b.offset != 0, if is_circular { b.sequence } else { 0 }, b.offset));
        buffers
    }

    /// Loads a buffer into `into` in its form in memory (header first, then the records,
    /// decompressed) and returns its header. Of a damaged compressed buffer, the records before the
    /// damage are loaded.
    pub fn load(&self, buffer: &BufferRef, into: &mut Vec<u8>) -> Result<BufferHeader> {
        let (loaded, _) = Loader::default().load(&self.source, buffer, self.session_buffer_size())?;
        let mut header = self.buffer_header(buffer)?;
        let records = loaded.bytes.get(loaded.start..).unwrap_or_default();
        let valid = HEADER_SIZE.saturating_add(records.len());
        header.offset = u32::try_from(valid).unwrap_or(u32::MAX);
        header.buffer_size = header.buffer_size.max(header.offset);
        header.flags &= !BUFFER_FLAG_COMPRESSED;
        into.clear();
        into.extend_from_slice(&header.to_bytes());
        into.extend_from_slice(records);
        Ok(header)
    }

    /// Returns the record at an offset of a buffer that [`load`](Self::load) has loaded; `None` if no
    /// record begins there. `time` is the stamp of a record whose header has none.
    #[must_use]
    pub fn record_at<'b>(&self, loaded: &'b [u8], offset: u32, cpu: u16, time: i64) -> Option<Record<'b>> {
        let bytes = loaded.get(usize::try_from(offset).ok()?..)?;
        let measured = measure(bytes, u64::from(offset), self.has_short_instance_headers()).ok()??;
        Some(Record::new(bytes, measured, cpu, time))
    }

    /// Returns the header of a buffer, with a size of at least the buffer's bytes in the file.
    pub fn buffer_header(&self, buffer: &BufferRef) -> Result<BufferHeader> {
        let mut raw = [0; HEADER_SIZE];
        self.source.read_at(buffer.offset, &mut raw)?;
        Ok(BufferHeader::parse(&raw).with_minimum_size(buffer.size))
    }

    /// Returns each processor with a loss, and the first stamp of its last buffer with a loss flag.
    #[must_use]
    pub fn last_losses(&self) -> Vec<(u16, i64)> {
        let mut losses: Vec<(u16, i64)> = Vec::new();
        // Buffers are sorted by processor and time, so the last one of a processor remains.
        for buffer in self.index.buffers.iter().filter(|buffer| buffer.follows_loss) {
            match losses.last_mut().filter(|(cpu, _)| *cpu == buffer.cpu) {
                Some((_, time)) => *time = buffer.first_time,
                None => losses.push((buffer.cpu, buffer.first_time)),
            }
        }
        losses
    }

    /// Returns the number of compressed buffers.
    #[must_use]
    pub fn compressed_buffers(&self) -> usize {
        self.index.buffers.iter().filter(|b| b.is_compressed).count()
    }

    /// Returns the defects in the sequence of buffers.
    #[must_use]
    pub fn defects(&self) -> &[Error] {
        &self.index.defects
    }

    /// Returns the holes, bytes between or after the buffers that hold no buffer: offset and size
    /// of each, in file order. Zeros up to the end of the file are not a hole.
    pub fn holes(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.index.defects.iter().filter_map(|defect| match defect {
            Error::Hole { offset, size, .. } => Some((*offset, *size)),
            _ => None,
        })
    }

    /// Returns the loss flags (`BUFFER_FLAG_EVENTS_LOST`, `BUFFER_FLAG_BUFFER_LOST`,
    /// `BUFFER_FLAG_RTBACKUP_CORRUPT`) of all buffers, combined.
    ///
    /// The flags show loss even if the counts of the log-file header were never written. Files from
    /// before Windows Vista have no loss flags.
    #[must_use]
    pub fn loss_flags(&self) -> u16 {
        self.index.loss_flags
    }

    /// Returns whether any buffer other than a header buffer starts with a kernel event (SYSTEM,
    /// COMPACT or PERFINFO).
    ///
    /// This is an estimate that reads no buffer: kernel events later in a buffer are not seen.
    #[must_use]
    pub fn seems_to_hold_kernel_events(&self) -> bool {
        self.index.has_kernel_events
    }

    /// Returns whether the session finalised the file.
    #[must_use]
    pub fn is_finalised(&self) -> bool {
        self.header.end_time.0 != 0
    }

    /// Returns the number of buffers that a finalised file claims and the number that it has, if
    /// some are missing.
    ///
    /// A circular log counts all buffers ever written and keeps the newest. Its buffers are missing
    /// only if the file lacks the newest one.
    #[must_use]
    pub fn missing_buffers(&self) -> Option<(u64, u64)> {
        let header = &self.header;
        let (claimed, actual) = (u64::from(header.buffers_written), self.index.buffers.len() as u64);
        let newest = self.index.buffers.iter().map(|b| b.sequence).max().unwrap_or(0);
        let has_newest = u64::try_from(newest).is_ok_and(|n| n.saturating_add(1) >= claimed);
        let has_wrapped = header.log_file_mode & EVENT_TRACE_FILE_MODE_CIRCULAR != 0 && has_newest;
        (self.is_finalised() && claimed > actual && !has_wrapped).then_some((claimed, actual))
    }

    /// Returns the size of the file in bytes.
    #[must_use]
    pub fn file_size(&self) -> u64 {
        self.length
    }

    /// Returns the source of the bytes.
    #[must_use]
    pub fn source(&self) -> &R {
        &self.source
    }

    /// Returns whether the log-file mode includes compression or any buffer is compressed.
    #[must_use]
    pub fn is_compressed(&self) -> bool {
        self.header.log_file_mode & EVENT_TRACE_COMPRESSED_MODE != 0 || self.compressed_buffers() > 0
    }

    /// Reads the log-file header event without regard to the end of its buffer.
    pub(super) fn read_first_record(&self) -> Result<Vec<u8>> {
        let mut bytes = alloc::vec![0; FIRST_EVENT_BYTES];
        let length = self.source.read_at(HEADER_SIZE as u64, &mut bytes)?;
        bytes.truncate(length);
        let size = measure(&bytes, HEADER_SIZE as u64, false)?.map_or(0, |m| m.size);
        bytes.truncate(size);
        bytes.resize(align8(size), 0);
        Ok(bytes)
    }

    /// Returns the size of the log-file header event up to its names, in bytes.
    pub(super) fn first_record_min_bytes(&self) -> usize {
        header::system::SIZE.saturating_add(logfile::at::in_payload(logfile::at::NAMES, self.is_64_bit))
    }

    pub(super) fn session_buffer_size(&self) -> u32 {
        self.header.plausible_buffer_size().unwrap_or(MAX_BUFFER)
    }

    pub(super) fn has_short_instance_headers(&self) -> bool {
        self.header.has_short_instance_headers()
    }

    /// Returns the end of the last whole or partial buffer.
    pub(super) fn end_of_buffers(&self) -> u64 {
        self.index.end
    }

    /// Returns the offset in the file of a field of the log-file header, given its offset in
    /// [`logfile::at`].
    pub(super) fn header_offset(&self, field: usize) -> u64 {
        logfile::at::in_file(field, self.is_64_bit)
    }

    /// Returns the payload of the first event and the offset of the names in it.
    pub(super) fn read_header_payload(&self) -> Result<(Vec<u8>, usize)> {
        let first_bytes = read_first_bytes(&self.source)?;
        let payload = parse_first_event(&first_bytes)?.payload().to_vec();
        Ok((payload, logfile::at::in_payload(logfile::at::NAMES, self.is_64_bit)))
    }
}

/// Reads the bytes that hold the first event.
pub(super) fn read_first_bytes<R: ReadAt>(source: &R) -> Result<Vec<u8>> {
    let mut bytes = alloc::vec![0; FIRST_EVENT_BYTES];
    let length = source.read_at(0, &mut bytes)?;
    bytes.truncate(length);
    Ok(bytes)
}

/// Returns the record that holds the log-file header, given the first bytes of the file.
pub(super) fn parse_first_event(bytes: &[u8]) -> Result<Record<'_>> {
    let not_etl = |offset, reason| Error::NotAnEtl { offset, reason };
    let Some(raw) = bytes.first_chunk::<HEADER_SIZE>() else {
        return Err(not_etl(0, "the file is shorter than a buffer header"));
    };
    let buffer = BufferHeader::parse(raw);
    let body = bytes.get(HEADER_SIZE..).unwrap_or_default();
    let at = HEADER_SIZE as u64;
    let measured = measure(body, at, false)
        .map_err(|_| not_etl(at, "the first buffer does not begin with a log-file header event"))?
        .filter(|m| m.family == Family::System)
        .ok_or(not_etl(at, "the first event is not a system event"))?;
    let record = Record::new(body, measured, buffer.processor_index, 0);
    if record.hook() != Some(hook::LOG_FILE_HEADER) {
        // The hook id is at offset 6 of a SYSTEM header.
        return Err(not_etl(at.saturating_add(6), "the first event is not the log-file header"));
    }
    Ok(record)
}
