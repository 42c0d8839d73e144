//! The index of a file's buffers: where each begins, whose events it holds, when they start.
//!
//! The walk steps from buffer to buffer by the buffer's own size and reads just enough of each to know the stamp of its first
//! record. It never trusts `BuffersWritten`, and goes on after a spoilt header where the session's fixed
//! buffer size shows the next one:
//!
//! ```text
//!   ok ──▶ ok ──▶ spoilt ──(plain file: + session BufferSize, plausible there?)──▶ ok ──▶ cut short: keep what is there
//! ```

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::ReadAt;
use crate::buffer::{BufferHeader, FILLER, HEADER_SIZE, MAX_BUFFER};
use crate::header::{self, Family};
use crate::logfile::LogFileHeader;
use crate::spec::session::{
    BUFFER_FLAGS_OF_LOSS, BufferType, EVENT_TRACE_COMPRESSED_MODE, EVENT_TRACE_FILE_MODE_CIRCULAR,
    KNOWN_BUFFER_FLAGS,
};
use crate::{Error, Result, xpress};

/// The largest buffer size a header may claim; beyond, it is damage.
const MAX_CLAIM: u32 = 4 * MAX_BUFFER;

/// Bytes behind the buffer header that hold the stamp of any first record.
const PEEK: usize = 0x48;

/// One buffer of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferRef {
    /// Offset in the file.
    pub offset: u64,
    /// Stamp of the first record; where it has none, of the processor's buffer before in the file.
    pub first_time: i64,
    /// Bytes in the file, as far as they are there.
    pub size: u32,
    /// The processor.
    pub cpu: u16,
    /// Bytes it takes in memory once loaded.
    pub(super) memory: u32,
    pub(super) sequence: i64,
    pub(super) has_records: bool,
    /// Whether `first_time` is the buffer's own.
    pub(super) stamped: bool,
    pub(super) compressed: bool,
    /// Whether the session said with this buffer that something before it was lost.
    pub(super) after_loss: bool,
}

/// What the walk found.
#[derive(Debug, Default)]
pub(super) struct Index {
    /// Buffers by processor, then time; equal times by sequence number in circular files, in file order in others.
    pub(super) buffers: Vec<BufferRef>,
    /// Where the walk met something wrong, in file order; long lists are cut.
    pub(super) defects: Vec<Error>,
    /// End of the last whole or partial buffer.
    pub(super) end: u64,
    /// The flags of loss that any buffer has.
    pub(super) loss_flags: u16,
    /// Whether a buffer of data starts with a kernel event.
    pub(super) kernel_events: bool,
}

/// How many defects are kept, of the index and of a pass over the events.
pub(super) const MAX_DEFECTS: usize = 1000;

/// What can be told of a buffer from its first bytes.
struct First {
    /// Whether there is something to read.
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
        let mut walk = Walk {
            source,
            length: source.len(),
            session_size: logfile.plausible_buffer_size(),
            compressed_file: logfile.log_file_mode & EVENT_TRACE_COMPRESSED_MODE != 0,
            modern: logfile.has_modern_buffers(),
            circular: logfile.log_file_mode & EVENT_TRACE_FILE_MODE_CIRCULAR != 0,
            anchor,
            last_times: BTreeMap::new(),
            scratch: Vec::new(),
            index: Self::default(),
        };
        walk.run()?;
        Ok(walk.finish())
    }

    fn defect(&mut self, error: Error) {
        if self.defects.len() < MAX_DEFECTS {
            self.defects.push(error);
        }
    }
}

struct Walk<'r, R: ?Sized> {
    source: &'r R,
    length: u64,
    session_size: Option<u32>,
    compressed_file: bool,
    /// Whether size, sequence number, flags and type of buffer headers mean what they say.
    modern: bool,
    circular: bool,
    anchor: i64,
    /// The stamp that a processor's next buffer inherits if it has none.
    last_times: BTreeMap<u16, i64>,
    scratch: Vec<u8>,
    index: Index,
}

impl<R: ReadAt + ?Sized> Walk<'_, R> {
    fn run(&mut self) -> Result<()> {
        let mut at = 0_u64;
        loop {
            self.index.end = at;
            let left = self.length.saturating_sub(at);
            if left < HEADER_SIZE as u64 {
                if left > 0 {
                    let (needed, what) = (HEADER_SIZE as u64, "buffer header");
                    self.index.defect(Error::Truncated { what, offset: at, needed, available: left });
                }
                return Ok(());
            }
            let mut head = [0; HEADER_SIZE + PEEK];
            let got = self.source.read_at(at, &mut head)?;
            let (Some(raw), Some(body)) = (head.first_chunk(), head.get(HEADER_SIZE..got)) else {
                return Ok(());
            };
            let buffer = BufferHeader::parse(raw);
            let Some(size) = self.size_of(at, left, &buffer)? else {
                return Ok(());
            };
            if u64::from(size) > left {
                let (needed, what) = (u64::from(size), "buffer");
                self.index.defect(Error::Truncated { what, offset: at, needed, available: left });
            }
            let here = u32::try_from(left).map_or(size, |left| size.min(left));
            self.add(at, here, &buffer, body)?;
            at = at.saturating_add(u64::from(here));
        }
    }

    /// Bytes to the next buffer, or `None` where the walk ends.
    fn size_of(&mut self, at: u64, left: u64, buffer: &BufferHeader) -> Result<Option<u32>> {
        let claimed = buffer.buffer_size;
        let believable = (HEADER_SIZE as u32..=MAX_CLAIM).contains(&claimed);
        let fits = believable && u64::from(claimed) <= left;
        let fixed = self.session_size.filter(|_| !self.compressed_file && !buffer.is_compressed());
        if let Some(size) = self.session_size.filter(|_| !self.modern) {
            // Old buffers all have the session's size, whatever their first field holds.
            if claimed != 0 || !self.is_zero(at, left.min(u64::from(size)))? {
                return Ok(Some(size));
            }
        } else if fits {
            // A plain buffer is never larger than the session's; a smaller one must lead somewhere.
            let expected = fixed.is_none_or(|size| size == claimed);
            if expected || fixed.is_some_and(|size| claimed < size) && self.leads_on(at, claimed)? {
                return Ok(Some(claimed));
            }
        }
        if let Some(size) = fixed.filter(|&size| u64::from(size) <= left && self.modern) {
            let next = at.saturating_add(u64::from(size));
            // The next header tells whether this one is merely spoilt; zeros that reach the end are no buffer.
            let zero = self.is_zero(at, u64::from(size))?;
            if self.leads_on(at, size)? && !(zero && next == self.length) {
                let why = if zero {
                    "a buffer of zeros between others"
                } else {
                    "size is impossible; the session's size leads to the next one"
                };
                self.index.defect(Error::Invalid { what: "buffer header", offset: at, why });
                return Ok(Some(size));
            }
        }
        if believable {
            return Ok(Some(claimed));
        }
        let zero = self.is_zero(at, left)?;
        let why = if zero { "zeros to the end of the file" } else { "size is impossible" };
        self.index.defect(Error::Invalid { what: "buffer header", offset: at, why });
        Ok(None)
    }

    /// Whether a buffer of `size` bytes at `at` is followed by another or by the end of the file.
    fn leads_on(&self, at: u64, size: u32) -> Result<bool> {
        let next = at.saturating_add(u64::from(size));
        let mut head = [0; HEADER_SIZE];
        if next == self.length {
            return Ok(true);
        }
        let whole = self.source.read_at(next, &mut head)? == HEADER_SIZE;
        Ok(whole && Some(BufferHeader::parse(&head).buffer_size) == self.session_size)
    }

    fn is_zero(&self, mut at: u64, mut left: u64) -> Result<bool> {
        let mut block = [0; 4096];
        while left > 0 {
            let want = usize::try_from(left).unwrap_or(block.len()).min(block.len());
            let Some(part) = block.get_mut(..want) else { break };
            let got = self.source.read_at(at, part)?;
            if got == 0 || part.iter().take(got).any(|&b| b != 0) {
                return Ok(got == 0);
            }
            (at, left) = (at.saturating_add(got as u64), left.saturating_sub(got as u64));
        }
        Ok(true)
    }

    fn add(&mut self, offset: u64, size: u32, buffer: &BufferHeader, body: &[u8]) -> Result<()> {
        // The first buffer has been read already, and was plain.
        let compressed = self.modern && buffer.is_compressed() && offset != 0;
        let First { has_records, family, time } =
            self.first_record(offset, size, compressed, buffer, body)?;
        let is_header = offset == 0 || self.modern && buffer.kind() == BufferType::HEADER;
        self.index.kernel_events |= !is_header && family.is_some_and(Family::has_hook);
        // Unknown flags are damage, in which a flag of loss means nothing.
        let believed = if self.modern && buffer.flags & !KNOWN_BUFFER_FLAGS == 0 { buffer.flags } else { 0 };
        self.index.loss_flags |= believed & BUFFER_FLAGS_OF_LOSS;
        let after_loss = believed & BUFFER_FLAGS_OF_LOSS != 0;
        let cpu = if self.modern { buffer.processor_index } else { buffer.processor_index & 0xFF };
        let inherited = self.last_times.get(&cpu).copied().unwrap_or(self.anchor);
        let first_time = time.unwrap_or(inherited);
        self.last_times.insert(cpu, first_time);
        let sequence = if self.modern { buffer.sequence_number } else { 0 };
        let valid = u32::try_from(buffer.within(size).valid_bytes(size as usize)).unwrap_or(size);
        let memory = if compressed { buffer.offset.min(MAX_BUFFER) } else { valid };
        let stamped = time.is_some();
        let found = BufferRef {
            offset,
            first_time,
            size,
            cpu,
            memory,
            sequence,
            has_records,
            stamped,
            compressed,
            after_loss,
        };
        self.index.buffers.push(found);
        Ok(())
    }

    fn first_record(
        &mut self,
        offset: u64,
        size: u32,
        compressed: bool,
        buffer: &BufferHeader,
        body: &[u8],
    ) -> Result<First> {
        let valid =
            if compressed { buffer.offset as usize } else { buffer.within(size).valid_bytes(size as usize) };
        let valid = valid.saturating_sub(HEADER_SIZE);
        let first = if compressed {
            let mut packed = [0; 4 * PEEK];
            let want = packed.len().min((size as usize).saturating_sub(HEADER_SIZE));
            let packed = packed.get_mut(..want).unwrap_or_default();
            let got = self.source.read_at(offset.saturating_add(HEADER_SIZE as u64), packed)?;
            // Whatever the prefix gives is enough or it is damage, which loading the buffer reports.
            let packed = packed.get(..got).unwrap_or_default();
            let _ = xpress::decompress_prefix(
                packed,
                PEEK.min(valid),
                valid.min(MAX_BUFFER as usize),
                &mut self.scratch,
            );
            &self.scratch[..]
        } else {
            body.get(..valid.min(body.len())).unwrap_or_default()
        };
        let holds_events = !self.modern || buffer.kind().holds_events();
        let Some(marker) = first.first_chunk::<8>() else {
            return Ok(First { has_records: compressed && holds_events, family: None, time: None });
        };
        // The record reaches past the bytes read here: only its header is looked at.
        let mut padded = [0; header::MAX_HEADER];
        header::patch(&mut padded, 0, first.get(..first.len().min(header::MAX_HEADER)).unwrap_or_default());
        let family = header::family_of(marker);
        let time = family.and_then(|family| header::time_of(&padded, family));
        // A buffer of an unknown kind counts as one with events if its first record can be read. An unknown marker is
        // damage, which loading the buffer reports.
        let has_records = family.is_some() || holds_events && !marker.starts_with(&[FILLER; 4]);
        Ok(First { has_records, family, time })
    }

    fn finish(mut self) -> Index {
        // A wrapped file holds newer buffers before older ones: where times are equal, the acquisition number gives the
        // order back.
        let acquired = |b: &BufferRef| if self.circular { b.sequence } else { 0 };
        self.index.buffers.sort_by_key(|b| (b.cpu, b.first_time, acquired(b)));
        self.index
    }
}
