//! Finalises a file left by a crash.
//!
//! ```text
//!   header buffer │ buffer │ buffer │ half a buffer │ zeros        EndTime 0, BuffersWritten 0
//!        ▼             ▼        ▼          ▼            ▼
//!   header buffer │ buffer │ buffer │ its whole records            EndTime, BuffersWritten exact
//! ```
//!
//! Whole buffers are copied. A truncated or damaged buffer keeps its whole records, in a plain
//! buffer of the session's size (in compressed files, of the records' size). Fields with impossible
//! values get the value that readers assume or that the rest of the file shows:
//!
//! | Field | Becomes |
//! |---|---|
//! | `BuffersWritten` | the number of buffers in the new file |
//! | `EndTime` 0 or before the start | the time of the last event |
//! | `NumberOfProcessors` | raised if a buffer has a higher index; writers may learn of it late |
//! | clock without a rate, pointer size | the value that readers assume |
//! | boot time after the start | the start time |
//! | session buffer size | a size that fits all buffers |
//! | unterminated session and file name | terminated where the event ends |
//! | state, flags, type, flush marker and filler of buffers | the values that a session writes |
//! | logger id of a buffer | the id that most buffers of its session have |
//! | repeated sequence number | a new number |
//!
//! No record except the log-file header event is changed. If that event is too large for its
//! buffer, it is shortened. Counts of lost events are not changed.
//!
//! The new file has at most [`MAX_GROWTH`] times the bytes of the input's buffers, plus
//! [`MAX_BUFFER`], because a few bytes can claim a large buffer or unpack to one. Where padding
//! would use more than about half of this limit, damaged buffers keep the size of their records;
//! readers use the size in a buffer's header. If the records exceed the limit, the repair fails.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use super::load::{LoadedBuffer, Loader};
use super::reader::Trace;
use super::writer::set_flush_marker;
use super::{BufferRef, ReadAt, WriteAt};
use crate::buffer::{self, BufferHeader, FILLER, HEADER_SIZE, MAX_BUFFER, MIN_BUFFER, STATE_FLUSH};
use crate::header::{self, patch};
use crate::logfile::at;
use crate::spec::session::{
    BUFFER_FLAG_COMPRESSED, BUFFER_FLAG_FLUSH_MARKER, BufferType, EVENT_TRACE_FILE_MODE_CIRCULAR,
    KNOWN_BUFFER_FLAGS,
};
use crate::text::until_nul16;
use crate::time::FileTime;
use crate::wire::align8;
use crate::{Error, Result};

/// Offset of the size field in the first event, which has a SYSTEM header.
const FIRST_SIZE_OFFSET: usize = 4;

/// The limit of the new file's size, as a multiple of the bytes of the input's buffers.
const MAX_GROWTH: u64 = 16;

/// The result of a repair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Repair {
    /// Buffers in the new file, the header buffer included.
    pub buffers: u32,
    /// Damaged buffers that were rebuilt from their whole records.
    pub salvaged: u32,
    /// Buffers left out because nothing in them was readable.
    pub dropped: u32,
    /// Damaged buffers that stay smaller than the session's buffer size, because padding that many
    /// would make the file far larger than the input.
    pub unpadded: u32,
    /// Events in the new file.
    pub events: u64,
    /// End of the session in the new file: the time that the input states, or that of its last
    /// event.
    pub end_time: FileTime,
    /// Size of the new file in bytes.
    pub bytes: u64,
}

/// Writes a finalised copy of `trace` to `sink`.
pub fn repair<R: ReadAt, W: WriteAt>(trace: &Trace<R>, sink: W) -> Result<Repair> {
    let mut in_file_order: Vec<BufferRef> = trace.buffers().to_vec();
    in_file_order.sort_by_key(|b| b.offset);
    let mut repaired = RepairedFile {
        trace,
        sink,
        session_size: choose_session_size(trace, &in_file_order),
        max_bytes: max_file_bytes(trace, &in_file_order),
        sessions: SessionNumbers::read_from(trace, &in_file_order)?,
        report: Repair::default(),
        previous: None,
        first_size: None,
        latest_stamp: trace.clock().anchor,
        highest_cpu: 0,
    };
    let mut loader = Loader::default();
    let mut image = Vec::new();
    for buffer in &in_file_order {
        let (loaded, damage) = loader.load(trace.source(), buffer, trace.session_buffer_size())?;
        let mut whole_records = WholeRecords::empty(loaded.start);
        if buffer.has_records {
            whole_records =
                find_whole_records(&loaded.bytes, loaded.start, trace.has_short_instance_headers());
        }
        image.resize(buffer.size as usize, 0);
        let length = trace.source().read_at(buffer.offset, &mut image)?;
        image.truncate(length);
        if let Some(mut header) = image.first_chunk().map(BufferHeader::parse) {
            let is_known_type =
                header.buffer_type <= BufferType::DBG_INFO.0 || !trace.header().has_modern_buffers();
            // The header buffer must contain the log-file header event.
            let has_first = buffer.offset != 0 || whole_records.count > 0;
            let is_intact = has_first
                && damage.is_none()
                && whole_records.is_undamaged
                && repaired.is_sound(&header, buffer, length);
            // Of the buffers without records, intact ones of a known type are kept.
            if buffer.offset != 0 && whole_records.count == 0 && (!is_intact || !is_known_type) {
                repaired.report.dropped = repaired.report.dropped.saturating_add(1);
            } else {
                if !is_intact {
                    repaired.rebuild(buffer, &loaded, &mut whole_records, &mut header, &mut image)?;
                }
                repaired.write_buffer(buffer, &whole_records, header, &mut image)?;
            }
        }
        loader.recycle(loaded);
    }
    repaired.finish()
}

/// Returns the session's buffer size, or a size that fits all buffers if the size in the header is
/// impossible.
fn choose_session_size<R: ReadAt>(trace: &Trace<R>, buffers: &[BufferRef]) -> u32 {
    let largest = buffers.iter().map(|b| b.size).max().unwrap_or(MIN_BUFFER);
    let fallback = largest.min(MAX_BUFFER).next_multiple_of(MIN_BUFFER);
    trace.header().plausible_buffer_size().unwrap_or(fallback)
}

/// Returns the largest allowed size of the new file in bytes.
fn max_file_bytes<R: ReadAt>(trace: &Trace<R>, buffers: &[BufferRef]) -> u64 {
    let length = trace.source().len();
    let bytes_in_file = |buffer: &BufferRef| u64::from(buffer.size).min(length.saturating_sub(buffer.offset));
    let bytes = buffers.iter().map(bytes_in_file).fold(0, u64::saturating_add);
    bytes.saturating_mul(MAX_GROWTH).saturating_add(u64::from(MAX_BUFFER))
}

/// Logger ids and sequence numbers of the sessions in a file. Each appended session begins with a
/// header buffer.
#[derive(Default)]
struct SessionNumbers {
    /// The logger id that most data buffers of each session have.
    logger_ids: Vec<u16>,
    /// The session of the buffer renumbered last, counted from 1.
    current: usize,
    /// Sequence numbers of the current session in the new file.
    used: BTreeSet<i64>,
    /// The highest sequence number of all sessions.
    highest: i64,
}

impl SessionNumbers {
    fn read_from<R: ReadAt>(trace: &Trace<R>, buffers: &[BufferRef]) -> Result<Self> {
        let mut sessions = Self::default();
        let mut votes: BTreeMap<u16, u32> = BTreeMap::new();
        if !trace.header().has_modern_buffers() {
            return Ok(sessions);
        }
        for buffer in buffers {
            let header = trace.buffer_header(buffer)?;
            sessions.highest = sessions.highest.max(header.sequence_number);
            if begins_session(buffer, &header) {
                sessions.end_session(&mut votes);
            } else {
                let count = votes.entry(header.logger_id).or_default();
                *count = count.saturating_add(1);
            }
        }
        sessions.end_session(&mut votes);
        Ok(sessions)
    }

    /// Ends a session: the logger id of most of its buffers becomes the session's id. The first
    /// call ends an empty session before the first header buffer.
    fn end_session(&mut self, votes: &mut BTreeMap<u16, u32>) {
        let winner = core::mem::take(votes).into_iter().max_by_key(|(_, count)| *count);
        self.logger_ids.push(winner.map_or(0, |(id, _)| id));
    }

    /// Sets the logger id of the buffer's session and makes its sequence number unique.
    fn renumber(&mut self, buffer: &BufferRef, header: &mut BufferHeader) {
        if begins_session(buffer, header) {
            self.current = self.current.saturating_add(1);
            self.used.clear();
        } else if let Some(id) = self.logger_ids.get(self.current) {
            header.logger_id = *id;
        }
        if !self.used.insert(header.sequence_number) {
            self.highest = self.highest.saturating_add(1);
            header.sequence_number = self.highest;
            self.used.insert(header.sequence_number);
        }
    }
}

fn begins_session(buffer: &BufferRef, header: &BufferHeader) -> bool {
    buffer.offset == 0 || header.kind() == BufferType::HEADER
}

/// The last buffer that was written to the new file.
#[derive(Clone, Copy)]
struct WrittenBuffer {
    offset: u64,
    header: BufferHeader,
    is_header: bool,
}

/// A new file under construction.
struct RepairedFile<'t, R, W> {
    trace: &'t Trace<R>,
    sink: W,
    session_size: u32,
    /// The largest allowed size of the new file in bytes.
    max_bytes: u64,
    sessions: SessionNumbers,
    report: Repair,
    previous: Option<WrittenBuffer>,
    /// Size of the first event, if it was shortened.
    first_size: Option<usize>,
    /// The latest stamp in the new file.
    latest_stamp: i64,
    highest_cpu: u16,
}

impl<R: ReadAt, W: WriteAt> RepairedFile<'_, R, W> {
    fn is_modern(&self) -> bool {
        self.trace.header().has_modern_buffers()
    }

    /// Returns whether buffers differ in size, as compressed ones do.
    fn is_compressed(&self) -> bool {
        self.is_modern() && self.trace.is_compressed()
    }

    /// Returns whether size, offset and compression of a buffer can stay unchanged.
    fn is_sound(&self, header: &BufferHeader, buffer: &BufferRef, size: usize) -> bool {
        let offset = header.offset as usize;
        let fits = if buffer.is_compressed {
            size <= offset
        } else {
            offset <= size && !(self.is_modern() && header.is_compressed())
        };
        // Buffers from before Windows Vista all have the session's size.
        let has_valid_size = self.is_modern() || size == self.session_size as usize;
        header.buffer_size as usize == size
            && fits
            && has_valid_size
            && offset >= HEADER_SIZE
            && offset == align8(offset)
    }

    /// Copies the whole records of a damaged buffer into a plain one.
    fn rebuild(
        &mut self,
        buffer: &BufferRef,
        loaded: &LoadedBuffer,
        whole_records: &mut WholeRecords,
        header: &mut BufferHeader,
        image: &mut Vec<u8>,
    ) -> Result<()> {
        // The padding of the last record may be missing.
        let end = whole_records.end.min(loaded.bytes.len());
        let mut records = loaded.bytes.get(loaded.start..end).unwrap_or_default();
        // Every trace needs the log-file header event, even if it exceeds the header buffer.
        let first_record;
        if buffer.offset == 0 && whole_records.count == 0 {
            first_record = self.shorten_first_record(buffer)?;
            whole_records.count = u64::from(!first_record.is_empty());
            records = &first_record;
        }
        let valid = HEADER_SIZE.saturating_add(align8(records.len()));
        let size = self.choose_rebuilt_size(valid);
        if self.is_modern() {
            header.flags &= !BUFFER_FLAG_COMPRESSED;
        }
        header.offset = u32::try_from(valid).unwrap_or(u32::MAX);
        header.saved_offset = header.offset;
        header.current_offset = header.offset;
        header.buffer_size = u32::try_from(size).unwrap_or(u32::MAX);
        image.clear();
        image.resize(HEADER_SIZE, 0);
        image.extend_from_slice(records);
        image.resize(valid, 0);
        image.resize(size, FILLER);
        self.report.salvaged = self.report.salvaged.saturating_add(1);
        patch(image, 0, &header.to_bytes());
        Ok(())
    }

    /// Chooses the size of a rebuilt buffer with `valid` valid bytes. Counts buffers that stay
    /// unpadded.
    fn choose_rebuilt_size(&mut self, valid: usize) -> usize {
        let padded = valid.max(self.session_size as usize);
        if self.is_compressed() {
            return valid;
        }
        // Buffers from before Windows Vista all have the session's size, in the input as well.
        let end = self.report.bytes.saturating_add(padded as u64);
        let padding_limit = (self.max_bytes / 2).saturating_add(u64::from(MAX_BUFFER / 2));
        if !self.is_modern() || padded == valid || end <= padding_limit {
            return padded;
        }
        self.report.unpadded = self.report.unpadded.saturating_add(1);
        valid
    }

    /// Returns the log-file header event. If it exceeds its buffer but its fields before the names
    /// do not, it is shortened: the bytes after the buffer belong to the next buffer.
    fn shorten_first_record(&mut self, buffer: &BufferRef) -> Result<Vec<u8>> {
        let mut record = self.trace.read_first_record()?;
        let max_bytes = (buffer.size as usize).saturating_sub(HEADER_SIZE) & !7;
        let min_bytes = self.trace.first_record_min_bytes();
        if record.len() > max_bytes && max_bytes >= min_bytes {
            record.truncate(max_bytes);
            self.first_size = Some(max_bytes);
            let size = u16::try_from(max_bytes).unwrap_or(u16::MAX);
            patch(&mut record, FIRST_SIZE_OFFSET, &size.to_le_bytes());
        }
        Ok(record)
    }

    /// Writes a buffer with a header that a session could have written.
    fn write_buffer(
        &mut self,
        buffer: &BufferRef,
        whole_records: &WholeRecords,
        mut header: BufferHeader,
        image: &mut [u8],
    ) -> Result<()> {
        let at = self.report.bytes;
        let end = at.saturating_add(image.len() as u64);
        if end > self.max_bytes {
            return Err(Error::TooLarge { what: "repaired file", size: end, limit: self.max_bytes });
        }
        if self.is_modern() {
            self.fix_header(buffer, &mut header, image);
            self.fix_flush_marker(&header)?;
        }
        self.sink.write_at(at, image)?;
        self.previous =
            Some(WrittenBuffer { offset: at, header, is_header: begins_session(buffer, &header) });
        self.latest_stamp = self.latest_stamp.max(whole_records.latest_time.unwrap_or(self.latest_stamp));
        self.highest_cpu = self.highest_cpu.max(buffer.cpu);
        self.report.bytes = end;
        self.report.buffers = self.report.buffers.saturating_add(1);
        self.report.events = self.report.events.saturating_add(whole_records.count);
        Ok(())
    }

    /// Replaces impossible values of header fields, and wrong filler.
    fn fix_header(&mut self, buffer: &BufferRef, header: &mut BufferHeader, image: &mut [u8]) {
        header.state = STATE_FLUSH;
        header.flags &= KNOWN_BUFFER_FLAGS;
        if buffer.offset == 0 {
            header.buffer_type = BufferType::HEADER.0;
        } else if header.buffer_type > BufferType::DBG_INFO.0 {
            header.buffer_type = BufferType::GENERIC.0;
        }
        self.sessions.renumber(buffer, header);
        for (field, value) in
            [(buffer::at::STATE, STATE_FLUSH), (buffer::at::BUFFER_SIZE, header.buffer_size)]
        {
            patch(image, field, &value.to_le_bytes());
        }
        for (field, value) in [
            (buffer::at::FLAGS, header.flags),
            (buffer::at::TYPE, header.buffer_type),
            (buffer::at::LOGGER_ID, header.logger_id),
        ] {
            patch(image, field, &value.to_le_bytes());
        }
        patch(image, buffer::at::SEQUENCE_NUMBER, &header.sequence_number.to_le_bytes());
        if !header.is_compressed() {
            image.get_mut(header.offset as usize..).unwrap_or_default().fill(FILLER);
        }
    }

    /// Clears the flush marker of the buffer written before `next`, unless that is a header buffer
    /// or the last buffer of its session. Circular files keep their markers, because the buffer
    /// written last may be anywhere.
    fn fix_flush_marker(&mut self, next: &BufferHeader) -> Result<()> {
        let is_circular = self.trace.header().log_file_mode & EVENT_TRACE_FILE_MODE_CIRCULAR != 0;
        let Some(WrittenBuffer { offset, header, is_header }) = self.previous.filter(|_| !is_circular) else {
            return Ok(());
        };
        if !is_header && next.kind() != BufferType::HEADER && header.flags & BUFFER_FLAG_FLUSH_MARKER != 0 {
            let flags = header.flags & !BUFFER_FLAG_FLUSH_MARKER;
            self.sink.write_at(offset.saturating_add(buffer::at::FLAGS as u64), &flags.to_le_bytes())?;
        }
        Ok(())
    }

    /// Sets the last buffer's flush marker and the fields of the log-file header.
    fn finish(mut self) -> Result<Repair> {
        let Some(WrittenBuffer { offset, header: last_header, .. }) = self.previous else {
            return Err(Error::NotAnEtl { offset: 0, reason: "the header buffer is incomplete" });
        };
        if self.is_modern() {
            set_flush_marker(&mut self.sink, offset, last_header.flags)?;
        }
        let header = self.trace.header();
        // An end time of 0 would mark the file as not finalised.
        let last_time =
            self.trace.clock().file_time(self.latest_stamp).max(header.start_time).max(FileTime(1));
        let has_end = self.trace.is_finalised() && header.end_time >= header.start_time;
        self.report.end_time = if has_end { header.end_time } else { last_time };
        self.patch_header(at::END_TIME, &self.report.end_time.0.to_le_bytes())?;
        self.patch_header(at::BUFFERS_WRITTEN, &self.report.buffers.to_le_bytes())?;
        let min_processors = u32::from(self.highest_cpu).saturating_add(1);
        if header.processors != 0 && header.processors < min_processors {
            self.patch_header(at::PROCESSORS, &min_processors.to_le_bytes())?;
        }
        self.patch_header(at::POINTER_SIZE, &header.pointer_size.to_le_bytes())?;
        self.patch_header(at::BUFFER_SIZE, &self.session_size.to_le_bytes())?;
        if header.boot_time > header.start_time {
            self.patch_header(at::BOOT_TIME, &header.start_time.0.to_le_bytes())?;
        }
        if !header.has_rated_clock() {
            let clock = self.trace.clock();
            self.patch_header(at::CLOCK_TYPE, &clock.kind.number().to_le_bytes())?;
            self.patch_header(at::PERF_FREQ, &i64::try_from(clock.rate).unwrap_or(i64::MAX).to_le_bytes())?;
        }
        self.terminate_names()?;
        Ok(self.report)
    }

    fn patch_header(&mut self, field: usize, bytes: &[u8]) -> Result<()> {
        self.sink.write_at(self.trace.header_offset(field), bytes)
    }

    /// Terminates the names of session and file within the first event.
    fn terminate_names(&mut self) -> Result<()> {
        let (payload, start) = self.trace.read_header_payload()?;
        let end = self.first_size.map_or(payload.len(), |size| size.saturating_sub(header::system::SIZE));
        let names = payload.get(start..end.min(payload.len())).unwrap_or_default();
        // An odd last byte belongs to no character.
        let length = names.len() & !1;
        let session_bytes = until_nul16(names).len().saturating_add(2);
        let file_bytes =
            names.get(session_bytes..).map(|remaining| until_nul16(remaining).len().saturating_add(2));
        // Two bytes terminate the file name. If the session name leaves no room for them, four
        // bytes terminate both names.
        let nul_bytes = match file_bytes {
            Some(file_bytes) if session_bytes.saturating_add(file_bytes) <= length => return Ok(()),
            Some(_) if session_bytes.saturating_add(2) <= length => 2,
            _ => 4,
        };
        if let Some(end) = length.checked_sub(nul_bytes) {
            let offset = at::PAYLOAD_IN_FILE.saturating_add(start as u64).saturating_add(end as u64);
            self.sink.write_at(offset, [0; 4].get(..nul_bytes).unwrap_or_default())?;
        }
        Ok(())
    }
}

/// The readable records at the start of a buffer.
struct WholeRecords {
    count: u64,
    end: usize,
    latest_time: Option<i64>,
    is_undamaged: bool,
}

impl WholeRecords {
    /// Returns a result without records for a buffer whose records start at `start`.
    const fn empty(start: usize) -> Self {
        Self { count: 0, end: start, latest_time: None, is_undamaged: true }
    }
}

fn find_whole_records(bytes: &[u8], start: usize, has_short_instance_headers: bool) -> WholeRecords {
    let mut whole_records = WholeRecords::empty(start);
    loop {
        let remaining = bytes.get(whole_records.end..).unwrap_or_default();
        match header::measure(remaining, 0, has_short_instance_headers) {
            Ok(Some(m)) => {
                whole_records.latest_time =
                    header::time_of(remaining, m.family).max(whole_records.latest_time);
                whole_records.count = whole_records.count.saturating_add(1);
                whole_records.end = whole_records.end.saturating_add(align8(m.size));
            }
            Ok(None) => return whole_records,
            Err(_) => {
                whole_records.is_undamaged = false;
                return whole_records;
            }
        }
    }
}
