//! The container: header, sections, and records one after the other.
//!
//! ```text
//!   file   "PERFILE2" │ size 104 │ attr size │ attrs │ data │ types │ 256 feature bits
//!          … attrs, records … │ one section (offset, size) for each feature bit, in order of bits
//!   pipe   "PERFILE2" │ size 16 │ records, which also hold attributes and features
//!
//!   record 00 u32 type │ 04 u16 misc │ 06 u16 size, with these eight bytes │ body
//!          HEADER_TRACING_DATA and AUXTRACE are followed by as many bytes as their body says
//! ```
//!
//! Numbers have the byte order of the machine that recorded. Only little-endian recordings are
//! read.
//!
//! Source: the page "perf.data-file-format" of the Linux sources.

use std::ops::Range;

use anyhow::{Result, bail};
use traceweir_format::etl::ReadAt;
use traceweir_format::wire::{u16_at, u32_at, u64_at};

/// Number of the bytes with which every recording begins.
pub(super) const MAGIC_BYTES: usize = 8;
const MAGIC: [u8; MAGIC_BYTES] = *b"PERFILE2";
const BIG_ENDIAN_MAGIC: [u8; 8] = *b"2ELIFREP";
const OLD_MAGIC: [u8; 8] = *b"PERFFILE";
/// Size of the header in a pipe.
const PIPE_HEADER_BYTES: u64 = 16;
/// Size of the header of a file.
const FILE_HEADER_BYTES: usize = 104;
/// Number of feature bits.
const FEATURE_BITS: u32 = 256;
/// Bytes that are read at a time: many times the largest record.
const READ_BYTES: usize = 1 << 20;
/// Size of the part of a record that all records have.
pub(super) const RECORD_HEADER_BYTES: usize = 8;

/// Types of records that this module knows.
pub(super) mod kind {
    pub(in super::super) const MMAP: u32 = 1;
    pub(in super::super) const LOST: u32 = 2;
    pub(in super::super) const COMM: u32 = 3;
    pub(in super::super) const EXIT: u32 = 4;
    pub(in super::super) const THROTTLE: u32 = 5;
    pub(in super::super) const FORK: u32 = 7;
    pub(in super::super) const SAMPLE: u32 = 9;
    pub(in super::super) const MMAP2: u32 = 10;
    pub(in super::super) const LOST_SAMPLES: u32 = 13;
    pub(in super::super) const SWITCH: u32 = 14;
    pub(in super::super) const SWITCH_CPU_WIDE: u32 = 15;
    pub(in super::super) const KSYMBOL: u32 = 17;
    /// The first type that perf itself writes; the kernel writes the types below it.
    pub(in super::super) const FIRST_OF_PERF: u32 = 64;
    pub(in super::super) const HEADER_ATTR: u32 = 64;
    pub(in super::super) const HEADER_TRACING_DATA: u32 = 66;
    pub(in super::super) const HEADER_BUILD_ID: u32 = 67;
    pub(in super::super) const FINISHED_ROUND: u32 = 68;
    pub(in super::super) const AUXTRACE: u32 = 71;
    pub(in super::super) const EVENT_UPDATE: u32 = 78;
    pub(in super::super) const HEADER_FEATURE: u32 = 80;
    pub(in super::super) const COMPRESSED: u32 = 81;
    pub(in super::super) const COMPRESSED2: u32 = 83;
}

/// A part of the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Section {
    pub(super) offset: u64,
    pub(super) size: u64,
}

impl Section {
    /// Reads offset and size at a position.
    pub(super) fn parse(bytes: &[u8], at: usize) -> Self {
        Self { offset: u64_at(bytes, at), size: u64_at(bytes, at.saturating_add(8)) }
    }

    /// Reads the bytes of the section, if it lies in the file and has at most `limit` bytes.
    pub(super) fn read<R: ReadAt + ?Sized>(self, source: &R, limit: u64) -> Option<Vec<u8>> {
        let end = self.offset.checked_add(self.size)?;
        if end > source.len() || self.size > limit {
            return None;
        }
        let mut bytes = vec![0; usize::try_from(self.size).ok()?];
        let count = source.read_at(self.offset, &mut bytes).ok()?;
        (count == bytes.len()).then_some(bytes)
    }
}

/// The header of a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FileHeader {
    /// Whether attributes and features are records.
    pub(super) is_pipe: bool,
    /// Size of an entry in `attrs`: an attribute and the section of its ids.
    pub(super) attr_size: u64,
    pub(super) attrs: Section,
    /// Where the records are.
    pub(super) records: Range<u64>,
    /// Whether the header says where the records end. It does not if perf was killed.
    pub(super) is_finished: bool,
    /// The sections of features, with their bits.
    pub(super) features: Vec<(u32, Section)>,
}

/// Checks that a file begins as a recording of perf.
pub(super) fn check_magic(bytes: &[u8]) -> Result<()> {
    match bytes.first_chunk::<MAGIC_BYTES>() {
        Some(&MAGIC) => Ok(()),
        Some(&BIG_ENDIAN_MAGIC) => {
            bail!("recorded on a big-endian machine; only little-endian recordings can be read")
        }
        Some(&OLD_MAGIC) => bail!("has the format of perf before Linux 3.0, which cannot be read"),
        _ => bail!("not a recording of perf: it does not begin with PERFILE2"),
    }
}

impl FileHeader {
    /// Reads the header of a recording.
    pub(super) fn read<R: ReadAt + ?Sized>(source: &R) -> Result<Self> {
        let mut bytes = [0; FILE_HEADER_BYTES];
        let count = source.read_at(0, &mut bytes)?;
        let bytes = bytes.get(..count).unwrap_or_default();
        check_magic(bytes)?;
        let length = source.len();
        if u64_at(bytes, 8) == PIPE_HEADER_BYTES {
            let records = PIPE_HEADER_BYTES..length;
            return Ok(Self { is_pipe: true, records, is_finished: true, ..Self::default() });
        }
        if bytes.len() < FILE_HEADER_BYTES {
            bail!("ends within its header");
        }
        let data = Section::parse(bytes, 40);
        let is_finished = data.size != 0;
        let end = if is_finished { data.offset.saturating_add(data.size).min(length) } else { length };
        let header = Self {
            is_pipe: false,
            attr_size: u64_at(bytes, 16),
            attrs: Section::parse(bytes, 24),
            records: data.offset.min(end)..end,
            is_finished,
            features: Vec::new(),
        };
        let features = if is_finished { read_features(source, bytes, end) } else { Vec::new() };
        Ok(Self { features, ..header })
    }
}

/// Reads the list of feature sections, which begins where the records end.
fn read_features<R: ReadAt + ?Sized>(source: &R, header: &[u8], at: u64) -> Vec<(u32, Section)> {
    let has_bit = |bit: &u32| {
        let byte = usize::try_from(*bit / 8).ok().and_then(|index| header.get(index.saturating_add(72)));
        byte.is_some_and(|byte| byte >> (bit % 8) & 1 != 0)
    };
    let bits: Vec<u32> = (0..FEATURE_BITS).filter(has_bit).collect();
    let mut list = vec![0; bits.len().saturating_mul(16)];
    let count = source.read_at(at, &mut list).unwrap_or(0);
    let entries = list.get(..count).unwrap_or_default().chunks_exact(16);
    bits.into_iter().zip(entries.map(|entry| Section::parse(entry, 0))).collect()
}

/// One record.
#[derive(Clone, Copy, Debug)]
pub(super) struct RawRecord<'b> {
    pub(super) kind: u32,
    pub(super) misc: u16,
    /// All bytes of the record.
    pub(super) bytes: &'b [u8],
    /// The data after the record that its size does not include.
    pub(super) trailing: Section,
}

impl<'b> RawRecord<'b> {
    /// Parses a record from its bytes.
    pub(super) fn parse(bytes: &'b [u8]) -> Self {
        Self { kind: u32_at(bytes, 0), misc: u16_at(bytes, 4), bytes, trailing: Section::default() }
    }

    /// Returns the bytes after the header.
    pub(super) fn body(&self) -> &'b [u8] {
        self.bytes.get(RECORD_HEADER_BYTES..).unwrap_or_default()
    }
}

/// Reads records one after the other.
pub(super) struct RecordReader<'r, R: ?Sized> {
    source: &'r R,
    /// Offset of the next record.
    position: u64,
    end: u64,
    buffer: Vec<u8>,
    /// Where the next record begins in the buffer.
    cursor: usize,
    /// Whether the records end within a record, or with bytes that are none.
    pub(super) is_damaged: bool,
}

impl<'r, R: ReadAt + ?Sized> RecordReader<'r, R> {
    pub(super) fn new(source: &'r R, records: &Range<u64>) -> Self {
        let Range { start, end } = records.clone();
        Self { source, position: start, end, buffer: Vec::new(), cursor: 0, is_damaged: false }
    }

    /// Returns the offset of the next record.
    pub(super) fn position(&self) -> u64 {
        self.position
    }

    /// Returns the next record; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<RawRecord<'_>>> {
        if self.position >= self.end {
            return Ok(None);
        }
        let mut size = 0;
        if self.load(RECORD_HEADER_BYTES)? {
            size = usize::from(u16_at(&self.buffer, self.cursor.saturating_add(6)));
        }
        if size < RECORD_HEADER_BYTES || !self.load(size)? {
            self.is_damaged = true;
            self.position = self.end;
            return Ok(None);
        }
        let start = self.cursor;
        let bytes = self.buffer.get(start..start.saturating_add(size)).unwrap_or_default();
        let record = RawRecord::parse(bytes);
        let trailing_bytes = match record.kind {
            kind::HEADER_TRACING_DATA => u64::from(u32_at(bytes, 8)),
            kind::AUXTRACE => u64_at(bytes, 8),
            _ => 0,
        };
        let after = self.position.saturating_add(size as u64);
        let trailing = Section { offset: after, size: trailing_bytes };
        self.position = after.saturating_add(trailing_bytes);
        // Data that is in the buffer already is skipped there, so no byte is read many times.
        let trailing_in_buffer = usize::try_from(trailing_bytes).unwrap_or(usize::MAX);
        self.cursor = start.saturating_add(size).saturating_add(trailing_in_buffer);
        Ok(Some(RawRecord { trailing, ..record }))
    }

    /// Reads on until the buffer holds `count` bytes of the next record. Returns false if the
    /// records end before.
    fn load(&mut self, count: usize) -> Result<bool> {
        if self.cursor.saturating_add(count) <= self.buffer.len() {
            return Ok(true);
        }
        let remaining = usize::try_from(self.end.saturating_sub(self.position)).unwrap_or(usize::MAX);
        self.buffer.resize(remaining.min(READ_BYTES), 0);
        let read = self.source.read_at(self.position, &mut self.buffer)?;
        self.buffer.truncate(read);
        self.cursor = 0;
        Ok(count <= self.buffer.len())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Counts the bytes that are read.
    struct CountingSource {
        bytes: Vec<u8>,
        read: Cell<u64>,
    }

    impl ReadAt for CountingSource {
        fn len(&self) -> u64 {
            self.bytes.len() as u64
        }

        fn read_at(&self, offset: u64, out: &mut [u8]) -> traceweir_format::Result<usize> {
            let count = self.bytes.as_slice().read_at(offset, out)?;
            self.read.set(self.read.get() + count as u64);
            Ok(count)
        }
    }

    #[test]
    fn data_after_records_is_skipped_without_reading_the_file_many_times() {
        let mut bytes = Vec::new();
        let trailing_sizes: Vec<u64> =
            (0..20_000).map(|number| if number % 5000 == 0 { 2 << 20 } else { number % 100 }).collect();
        for size in &trailing_sizes {
            bytes.extend(kind::AUXTRACE.to_le_bytes());
            bytes.extend([0, 0, 48, 0]);
            bytes.extend(size.to_le_bytes());
            bytes.resize(bytes.len() + 32 + usize::try_from(*size).unwrap(), 0xFF);
        }
        let source = CountingSource { bytes, read: Cell::new(0) };
        let mut reader = RecordReader::new(&source, &(0..source.len()));
        let mut sizes = Vec::new();
        while let Some(record) = reader.next().unwrap() {
            sizes.push(record.trailing.size);
        }
        assert!(sizes == trailing_sizes && !reader.is_damaged);
        assert!(source.read.get() <= source.len() * 2, "{} of {}", source.read.get(), source.len());
    }
}
