//! The index of a file's buffers: offset, processor and start time of each.
//!
//! The walk steps from buffer to buffer by the size in the buffer header and reads just enough of
//! each to know the stamp of its first record. It never trusts `BuffersWritten`. Bytes that hold no
//! buffer are a hole; the walk continues after the hole:
//!
//! ```text
//!   plain file      ok ──▶ ok ──▶ hole ──(+ session BufferSize)──▶ hole ──(+ BufferSize)──▶ ok
//!                      ──▶ truncated: partly kept
//!   compressed file ok ──▶ ok ──▶ hole ──(search for the next plausible header, by byte)──▶ ok
//! ```
//!
//! If the steps reach the end of a plain file without finding a buffer, the hole is searched like a
//! compressed file. The walk continues where a search ended, so it takes linear time for any input.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::ReadAt;
use crate::buffer::{self, BufferHeader, FILLER, HEADER_SIZE, MAX_BUFFER, STATE_FLUSH};
use crate::header::{self, Family};
use crate::logfile::LogFileHeader;
use crate::spec::session::{
    BUFFER_FLAGS_OF_LOSS, BufferType, EVENT_TRACE_COMPRESSED_MODE, EVENT_TRACE_FILE_MODE_CIRCULAR,
    KNOWN_BUFFER_FLAGS,
};
use crate::{Error, Result, xpress};

/// The largest buffer size that a header may claim; larger values are damage.
const MAX_CLAIMED_BYTES: u32 = 4 * MAX_BUFFER;

/// Bytes after the buffer header that include the stamp of any first record.
const PEEK_BYTES: usize = 0x48;

/// One buffer of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferRef {
    /// Offset in the file.
    pub offset: u64,
    /// Stamp of the first record. If that record has no stamp: the `first_time` of the processor's
    /// previous buffer in the file or, for its first buffer, the stamp of the log-file header
    /// event.
    pub first_time: i64,
    /// Bytes that the file holds of the buffer.
    pub size: u32,
    /// The processor whose events the buffer holds.
    pub cpu: u16,
    /// Bytes that the loaded buffer takes in memory.
    pub(super) memory_bytes: u32,
    pub(super) sequence: i64,
    pub(super) has_records: bool,
    /// Whether `first_time` comes from the buffer itself.
    pub(super) is_stamped: bool,
    pub(super) is_compressed: bool,
    /// Whether the buffer has a loss flag: events or buffers before it were lost.
    pub(super) follows_loss: bool,
}

impl BufferRef {
    /// Returns the bytes of memory that loading the buffer takes.
    #[cfg(any(test, feature = "std"))]
    pub(super) const fn loading_bytes(&self) -> usize {
        let packed_bytes = if self.is_compressed { self.size } else { 0 };
        (self.memory_bytes as usize).saturating_add(packed_bytes as usize)
    }

    /// Returns whether the buffer has a loss flag: events or buffers before it were lost.
    #[must_use]
    pub const fn follows_loss(&self) -> bool {
        self.follows_loss
    }
}

/// The result of the walk.
#[derive(Debug, Default)]
pub(super) struct Index {
    /// Buffers by processor, then time; equal times by sequence number in circular files, in file
    /// order in others.
    pub(super) buffers: Vec<BufferRef>,
    /// Defects in file order, at most [`MAX_INDEX_DEFECTS`].
    pub(super) defects: Vec<Error>,
    /// End of the last whole or partial buffer.
    pub(super) end: u64,
    /// The loss flags of all buffers, combined.
    pub(super) loss_flags: u16,
    /// Whether a data buffer starts with a kernel event.
    pub(super) has_kernel_events: bool,
}

/// The most defects that a pass over the events keeps.
pub(super) const MAX_DEFECTS: usize = 1000;

/// The most defects that the index keeps.
const MAX_INDEX_DEFECTS: usize = 100_000;

/// Bytes that a search reads at a time: few at first, because the next header is often near.
const SEARCH_BLOCK_BYTES: core::ops::RangeInclusive<usize> = 512..=64 << 10;

/// The facts that the first bytes of a buffer show.
struct BufferStart {
    /// Whether the buffer holds records.
    has_records: bool,
    family: Option<Family>,
    time: Option<i64>,
}

impl Index {
    pub(super) fn build<R: ReadAt + ?Sized>(
        source: &R,
        logfile: &LogFileHeader,
        anchor: i64,
    ) -> Result<Self> {
        let mut walk = IndexWalk {
            source,
            length: source.len(),
            session_size: logfile.plausible_buffer_size(),
            is_modern: logfile.has_modern_buffers(),
            is_circular: logfile.log_file_mode & EVENT_TRACE_FILE_MODE_CIRCULAR != 0,
            anchor,
            last_times: BTreeMap::new(),
            scratch: Vec::new(),
            search_block: Vec::new(),
            hole: None,
            has_fixed_size: logfile.plausible_buffer_size().is_some()
                && (logfile.log_file_mode & EVENT_TRACE_COMPRESSED_MODE == 0
                    || !logfile.has_modern_buffers()),
            index: Self::default(),
        };
        walk.index_buffers()?;
        Ok(walk.finish())
    }

    fn add_defect(&mut self, error: Error) {
        if self.defects.len() < MAX_INDEX_DEFECTS {
            self.defects.push(error);
        }
    }
}

struct IndexWalk<'r, R: ?Sized> {
    source: &'r R,
    length: u64,
    session_size: Option<u32>,
    /// Whether size, sequence number, flags and type of buffer headers are valid (Windows Vista and
    /// later).
    is_modern: bool,
    is_circular: bool,
    /// The stamp of the log-file header event.
    anchor: i64,
    /// The stamp that the next buffer of each processor inherits if it has none.
    last_times: BTreeMap<u16, i64>,
    /// Memory for the decompressed start of a buffer.
    scratch: Vec<u8>,
    /// Memory for the bytes that a search reads.
    search_block: Vec<u8>,
    /// Start of the hole that the walk is in.
    hole: Option<u64>,
    /// Whether all buffers have the session's size, so that steps of that size lead from a hole to
    /// the next buffer.
    has_fixed_size: bool,
    index: Index,
}

/// The result of inspecting an offset at which a buffer should begin.
enum BufferCandidate {
    /// A buffer of this size, which may exceed the bytes that are left.
    Buffer(u32),
    /// No buffer; the next offset to inspect.
    Hole(u64),
    /// No buffer; the previous buffer is shorter than its header claims and ends at this offset.
    InsidePrevious(u64),
}

impl<R: ReadAt + ?Sized> IndexWalk<'_, R> {
    fn index_buffers(&mut self) -> Result<()> {
        let mut at = 0_u64;
        loop {
            let left = self.length.saturating_sub(at);
            let mut bytes = [0; HEADER_SIZE + PEEK_BYTES];
            let length = if left < HEADER_SIZE as u64 { 0 } else { self.source.read_at(at, &mut bytes)? };
            let (Some(raw), Some(body)) = (bytes.first_chunk(), bytes.get(HEADER_SIZE..length)) else {
                match self.handle_end(at, left)? {
                    Some(next) => at = next,
                    None => return Ok(()),
                }
                continue;
            };
            let buffer = BufferHeader::parse(raw);
            match self.inspect_candidate(at, left, &buffer, body)? {
                BufferCandidate::Buffer(size) => {
                    self.close_hole(at)?;
                    if u64::from(size) > left {
                        let (needed, what) = (u64::from(size), "buffer");
                        self.index.add_defect(Error::Truncated { what, offset: at, needed, available: left });
                    }
                    let size_in_file = u32::try_from(left).map_or(size, |left| size.min(left));
                    self.add_buffer(at, size_in_file, &buffer, body)?;
                    at = at.saturating_add(u64::from(size_in_file));
                    self.index.end = at;
                }
                BufferCandidate::Hole(next) => {
                    self.hole.get_or_insert(at);
                    at = next;
                }
                BufferCandidate::InsidePrevious(end) => {
                    self.cut_previous(end)?;
                    at = end;
                }
            }
        }
    }

    /// Handles the end of the file, `left` bytes after `at`. Returns the offset where the walk
    /// continues if the last hole or buffer contains another buffer.
    fn handle_end(&mut self, at: u64, left: u64) -> Result<Option<u64>> {
        let Some(start) = self.hole else {
            if left > 0
                && let Some(next) = self.search_within_previous(at)?
            {
                self.cut_previous(next)?;
                return Ok(Some(next));
            }
            if left > 0 {
                let (needed, what) = (HEADER_SIZE as u64, "buffer header");
                self.index.add_defect(Error::Truncated { what, offset: at, needed, available: left });
            }
            return Ok(None);
        };
        if self.is_all_zero(start, self.length.saturating_sub(start))? {
            let reason = "zeros to the end of the file";
            self.index.add_defect(Error::Invalid { what: "buffer header", offset: start, reason });
            return Ok(None);
        }
        // From here on, the file is searched like one whose buffers differ in size.
        if core::mem::take(&mut self.has_fixed_size)
            && self.is_modern
            && let Some(next) = self.search_header(start.saturating_add(1))?
        {
            return Ok(Some(next));
        }
        self.close_hole(self.length)?;
        Ok(None)
    }

    /// Reports the hole that ends at `end`, if the walk is in one.
    fn close_hole(&mut self, end: u64) -> Result<()> {
        if let Some(offset) = self.hole.take() {
            let size = end.saturating_sub(offset);
            let zeros = self.is_all_zero(offset, size)?;
            self.index.add_defect(Error::Hole { offset, size, zeros });
        }
        Ok(())
    }

    /// Decides whether a buffer begins at `at`, with `left` bytes of the file left.
    fn inspect_candidate(
        &mut self,
        at: u64,
        left: u64,
        buffer: &BufferHeader,
        body: &[u8],
    ) -> Result<BufferCandidate> {
        let claimed = buffer.buffer_size;
        let is_possible = (HEADER_SIZE as u32..=MAX_CLAIMED_BYTES).contains(&claimed);
        if !self.is_modern {
            return self.inspect_old_candidate(at, left, claimed, is_possible);
        }
        let fits = is_possible && u64::from(claimed) <= left;
        let session = self.session_size.filter(|_| self.has_fixed_size);
        // `Trace::open` has read the first buffer as a plain buffer.
        if let Some(size) = session.filter(|_| at == 0 || !buffer.is_compressed()) {
            // A buffer of the session's size need not fit: the last one may be truncated. A buffer
            // of another size must lead to a buffer or the end of the file, and a larger one must
            // not skip a buffer.
            let may_be_followed = fits && (claimed < size || !self.is_followed_by_buffer(at, size)?);
            if claimed == size || may_be_followed && self.is_followed_by_buffer(at, claimed)? {
                return Ok(BufferCandidate::Buffer(claimed));
            }
        } else if fits && is_plausible_header(buffer) {
            return Ok(BufferCandidate::Buffer(claimed));
        }
        if let Some(size) = session {
            let size_in_file = u32::try_from(left).map_or(size, |left| size.min(left));
            if at == 0 || self.has_records_at(at, size_in_file, buffer, body)? {
                self.report_bad_size(at);
                return Ok(BufferCandidate::Buffer(size_in_file));
            }
            return Ok(BufferCandidate::Hole(self.next_step(at, size)));
        }
        self.search_candidate(at, left, buffer, body)
    }

    /// Like `inspect_candidate` for files whose buffers differ in size: searches for the next
    /// header.
    fn search_candidate(
        &mut self,
        at: u64,
        left: u64,
        buffer: &BufferHeader,
        body: &[u8],
    ) -> Result<BufferCandidate> {
        let is_header = is_plausible_header(buffer);
        let previous = self.index.buffers.last().filter(|_| self.hole.is_none() && !is_header);
        // The previous buffer ends at `at` if its size is right. Otherwise the next header may lie
        // within that buffer.
        let from = previous.map_or(at, |last| last.offset);
        let next_header = self.search_header(from.saturating_add(HEADER_SIZE as u64))?;
        if let Some(next) = next_header.filter(|&next| next < at) {
            return Ok(BufferCandidate::InsidePrevious(next));
        }
        if next_header.is_none() && is_header && u64::from(buffer.buffer_size) > left {
            return Ok(BufferCandidate::Buffer(buffer.buffer_size));
        }
        let end = next_header.unwrap_or(self.length);
        if at.saturating_add(u64::from(buffer.buffer_size)) == end {
            return Ok(BufferCandidate::Buffer(buffer.buffer_size));
        }
        let limit = self.session_size.unwrap_or(MAX_BUFFER);
        let size_in_file = u32::try_from(end.saturating_sub(at)).unwrap_or(u32::MAX);
        // No buffer of the session is larger than the limit, so larger ranges are not inspected.
        let has_records = size_in_file <= limit && self.has_records_at(at, size_in_file, buffer, body)?;
        if at == 0 || self.hole.is_none() && has_records {
            self.report_bad_size(at);
            return Ok(BufferCandidate::Buffer(size_in_file.min(limit)));
        }
        Ok(BufferCandidate::Hole(end))
    }

    /// Finds a header within the last buffer, which ends at `at`, in a file whose buffers differ in
    /// size.
    fn search_within_previous(&mut self, at: u64) -> Result<Option<u64>> {
        let Some(last) = self.index.buffers.last().filter(|_| !self.has_fixed_size && self.is_modern) else {
            return Ok(None);
        };
        let from = last.offset.saturating_add(HEADER_SIZE as u64);
        Ok(self.search_header(from)?.filter(|&next| next < at))
    }

    /// Like `inspect_candidate` for buffers from before Windows Vista: all have the session's size,
    /// if it is known, whatever their first field holds.
    fn inspect_old_candidate(
        &self,
        at: u64,
        left: u64,
        claimed: u32,
        is_possible: bool,
    ) -> Result<BufferCandidate> {
        let Some(size) = self.session_size else {
            if is_possible && u64::from(claimed) <= left {
                return Ok(BufferCandidate::Buffer(claimed));
            }
            // The first buffer is kept in any case: its first event has been read already.
            let size_in_file = u32::try_from(left).unwrap_or(u32::MAX).min(MAX_BUFFER);
            return Ok(if at == 0 {
                BufferCandidate::Buffer(size_in_file)
            } else {
                BufferCandidate::Hole(self.length)
            });
        };
        if claimed == 0 && self.is_all_zero(at, left.min(u64::from(size)))? {
            return Ok(BufferCandidate::Hole(self.next_step(at, size)));
        }
        Ok(BufferCandidate::Buffer(size))
    }

    fn report_bad_size(&mut self, offset: u64) {
        let reason = "size is impossible; the session's size or the next header shows where the buffer ends";
        self.index.add_defect(Error::Invalid { what: "buffer header", offset, reason });
    }

    /// Returns the next offset to inspect after a hole at `at`, in steps of `size`. Steps within an
    /// unallocated range of the file are skipped.
    fn next_step(&self, at: u64, size: u32) -> u64 {
        let size = u64::from(size).max(1);
        let data = self.source.next_data(at).min(self.length).saturating_sub(at);
        let steps = data.checked_div(size).unwrap_or(0).max(1);
        at.saturating_add(steps.saturating_mul(size)).min(self.length)
    }

    /// Shortens the last buffer, so that it ends at `end`.
    fn cut_previous(&mut self, end: u64) -> Result<()> {
        let Some(last) = self.index.buffers.pop() else { return Ok(()) };
        let size = u32::try_from(end.saturating_sub(last.offset)).unwrap_or(last.size);
        let mut bytes = [0; HEADER_SIZE + PEEK_BYTES];
        let length = self.source.read_at(last.offset, &mut bytes)?;
        if let (Some(raw), Some(body)) = (bytes.first_chunk(), bytes.get(HEADER_SIZE..length)) {
            self.add_buffer(last.offset, size, &BufferHeader::parse(raw), body)?;
        }
        self.report_bad_size(last.offset);
        self.index.end = end;
        Ok(())
    }

    /// Returns whether another buffer or the end of the file follows a buffer of `size` bytes at
    /// `at`.
    fn is_followed_by_buffer(&self, at: u64, size: u32) -> Result<bool> {
        let next = at.saturating_add(u64::from(size));
        if next == self.length {
            return Ok(true);
        }
        let mut raw = [0; HEADER_SIZE];
        let is_complete = self.source.read_at(next, &mut raw)? == HEADER_SIZE;
        let header = BufferHeader::parse(&raw);
        Ok(is_complete && (is_plausible_header(&header) || Some(header.buffer_size) == self.session_size))
    }

    /// Returns whether records follow a header that has a wrong size.
    fn has_records_at(&mut self, at: u64, size: u32, buffer: &BufferHeader, body: &[u8]) -> Result<bool> {
        let first = self.inspect_first_record(at, size, buffer.is_compressed(), buffer, body)?;
        Ok(match first.family {
            None => false,
            // Random bytes too often look like a record of these families.
            Some(Family::Message | Family::Other(_)) => has_plausible_fields(buffer),
            Some(_) => true,
        })
    }

    /// Finds the first offset from `at` on that has the plausible header of an empty buffer, or a
    /// plausible header and the start of a record.
    fn search_header(&mut self, mut at: u64) -> Result<Option<u64>> {
        const STATE: [u8; 4] = STATE_FLUSH.to_le_bytes();
        const AFTER_STATE: usize = HEADER_SIZE - buffer::at::STATE - STATE.len();
        let mut block = core::mem::take(&mut self.search_block);
        let mut size = *SEARCH_BLOCK_BYTES.start();
        let mut header_offset = None;
        while header_offset.is_none() && self.length.saturating_sub(at) >= HEADER_SIZE as u64 {
            // A header may begin with the zeros before the first nonzero byte.
            at = at.max(self.source.next_data(at).saturating_sub(HEADER_SIZE as u64));
            block.resize(size, 0);
            size = size.saturating_mul(2).min(*SEARCH_BLOCK_BYTES.end());
            let length = self.source.read_at(at, &mut block)?;
            if length < HEADER_SIZE {
                break;
            }
            // `states` begins with the state of a header at the start of the block, so the offset
            // of a hit is the offset of its header in the block.
            let states = block.get(buffer::at::STATE..length.saturating_sub(AFTER_STATE)).unwrap_or_default();
            for hit in memchr::memmem::find_iter(states, &STATE) {
                let Some(raw) = block.get(hit..).and_then(|bytes| bytes.first_chunk()) else { break };
                let offset = at.saturating_add(hit as u64);
                if self.is_plausible_buffer(offset, &BufferHeader::parse(raw))? {
                    header_offset = Some(offset);
                    break;
                }
            }
            // The next block includes the end of this one, where a header may begin.
            at = at.saturating_add(length.saturating_sub(HEADER_SIZE.saturating_sub(1)) as u64);
        }
        self.search_block = block;
        Ok(header_offset)
    }

    /// Returns whether a header that a search found belongs to a buffer, judged by the header
    /// fields and the first record.
    fn is_plausible_buffer(&mut self, at: u64, buffer: &BufferHeader) -> Result<bool> {
        let limit = self.session_size.unwrap_or(MAX_BUFFER);
        if !is_plausible_header(buffer) || buffer.buffer_size > limit {
            return Ok(false);
        }
        let mut body = [0; PEEK_BYTES];
        let length = self.source.read_at(at.saturating_add(HEADER_SIZE as u64), &mut body)?;
        let body = body.get(..length).unwrap_or_default();
        let first =
            self.inspect_first_record(at, buffer.buffer_size, buffer.is_compressed(), buffer, body)?;
        let is_empty = buffer.offset as usize == HEADER_SIZE;
        Ok(first.family.is_some() || is_empty)
    }

    fn is_all_zero(&self, mut at: u64, mut left: u64) -> Result<bool> {
        let mut block = [0; 4096];
        let end = at.saturating_add(left);
        while left > 0 {
            let data = self.source.next_data(at).clamp(at, end);
            (at, left) = (data, end.saturating_sub(data));
            if left == 0 {
                break;
            }
            let read_size = usize::try_from(left).unwrap_or(block.len()).min(block.len());
            let Some(part) = block.get_mut(..read_size) else { break };
            let length = self.source.read_at(at, part)?;
            // Without bytes to read, the file has become shorter; missing bytes count as zeros.
            if length == 0 || part.iter().take(length).any(|&byte| byte != 0) {
                return Ok(length == 0);
            }
            (at, left) = (at.saturating_add(length as u64), left.saturating_sub(length as u64));
        }
        Ok(true)
    }

    fn add_buffer(&mut self, offset: u64, size: u32, buffer: &BufferHeader, body: &[u8]) -> Result<()> {
        // `Trace::open` has read the first buffer as a plain buffer.
        let is_compressed = self.is_modern && buffer.is_compressed() && offset != 0;
        let BufferStart { has_records, family, time } =
            self.inspect_first_record(offset, size, is_compressed, buffer, body)?;
        let is_header = offset == 0 || self.is_modern && buffer.kind() == BufferType::HEADER;
        self.index.has_kernel_events |= !is_header && family.is_some_and(Family::has_hook);
        // Unknown flags are damage, which makes the loss flags meaningless.
        let trusted_flags =
            if self.is_modern && buffer.flags & !KNOWN_BUFFER_FLAGS == 0 { buffer.flags } else { 0 };
        self.index.loss_flags |= trusted_flags & BUFFER_FLAGS_OF_LOSS;
        let follows_loss = trusted_flags & BUFFER_FLAGS_OF_LOSS != 0;
        let cpu = if self.is_modern { buffer.processor_index } else { buffer.processor_index & 0xFF };
        let inherited = self.last_times.get(&cpu).copied().unwrap_or(self.anchor);
        let first_time = time.unwrap_or(inherited);
        self.last_times.insert(cpu, first_time);
        let sequence = if self.is_modern { buffer.sequence_number } else { 0 };
        let valid = u32::try_from(buffer.with_minimum_size(size).valid_bytes(size as usize)).unwrap_or(size);
        let memory_bytes = if is_compressed { buffer.offset.min(MAX_BUFFER) } else { valid };
        let is_stamped = time.is_some();
        let buffer_ref = BufferRef {
            offset,
            first_time,
            size,
            cpu,
            memory_bytes,
            sequence,
            has_records,
            is_stamped,
            is_compressed,
            follows_loss,
        };
        self.index.buffers.push(buffer_ref);
        Ok(())
    }

    /// Inspects the first record in `body` or, for a compressed buffer, in its decompressed start.
    fn inspect_first_record(
        &mut self,
        offset: u64,
        size: u32,
        is_compressed: bool,
        buffer: &BufferHeader,
        body: &[u8],
    ) -> Result<BufferStart> {
        let valid = if is_compressed {
            buffer.offset as usize
        } else {
            buffer.with_minimum_size(size).valid_bytes(size as usize)
        };
        let valid = valid.saturating_sub(HEADER_SIZE);
        let record_start = if is_compressed {
            let mut packed = [0; 4 * PEEK_BYTES];
            let packed_size = packed.len().min((size as usize).saturating_sub(HEADER_SIZE));
            let packed = packed.get_mut(..packed_size).unwrap_or_default();
            let length = self.source.read_at(offset.saturating_add(HEADER_SIZE as u64), packed)?;
            // A prefix is enough. Loading the buffer reports damage.
            let packed = packed.get(..length).unwrap_or_default();
            let _ = xpress::decompress_prefix(
                packed,
                PEEK_BYTES.min(valid),
                valid.min(MAX_BUFFER as usize),
                &mut self.scratch,
            );
            &self.scratch[..]
        } else {
            body.get(..valid.min(body.len())).unwrap_or_default()
        };
        let holds_events = !self.is_modern || buffer.kind().holds_events();
        // A compressed buffer whose start cannot be unpacked counts as one with records, so that
        // loading it reports the damage.
        let Some(head) = record_start.first_chunk::<8>() else {
            return Ok(BufferStart { has_records: is_compressed && holds_events, family: None, time: None });
        };
        // The record may extend past the bytes read here: only its header is inspected.
        let mut padded = [0; header::MAX_STAMP_END];
        header::patch(
            &mut padded,
            0,
            record_start.get(..record_start.len().min(header::MAX_STAMP_END)).unwrap_or_default(),
        );
        let family = header::family_of(head);
        let time = family.and_then(|family| header::time_of(&padded, family));
        // A buffer of an unknown kind counts as one with events if its first record is readable. An
        // unknown marker is damage, which loading the buffer reports.
        let has_records = family.is_some() || holds_events && !head.starts_with(&[FILLER; 4]);
        Ok(BufferStart { has_records, family, time })
    }

    fn finish(mut self) -> Index {
        // A wrapped file holds newer buffers before older ones. Sequence numbers order buffers with
        // equal times.
        let sequence = |buffer: &BufferRef| if self.is_circular { buffer.sequence } else { 0 };
        self.index.buffers.sort_by_key(|buffer| (buffer.cpu, buffer.first_time, sequence(buffer)));
        self.index
    }
}

/// Returns whether all fields are plausible for a buffer in a file.
fn is_plausible_header(buffer: &BufferHeader) -> bool {
    let (size, valid) = (buffer.buffer_size, buffer.offset);
    let fits = if buffer.is_compressed() { size <= valid } else { valid <= size };
    (HEADER_SIZE as u32..=MAX_CLAIMED_BYTES).contains(&size) && fits && has_plausible_fields(buffer)
}

/// Returns whether the fields other than the size are plausible for a buffer in a file.
fn has_plausible_fields(buffer: &BufferHeader) -> bool {
    buffer.state == STATE_FLUSH
        && (HEADER_SIZE as u32..=MAX_CLAIMED_BYTES).contains(&buffer.offset)
        && buffer.offset.is_multiple_of(8)
        && buffer.flags & !KNOWN_BUFFER_FLAGS == 0
        && buffer.buffer_type <= BufferType::DBG_INFO.0
}
