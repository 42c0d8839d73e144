//! Records in the order of their arrival, in an unlinked file that grows.
//!
//! ```text
//!   block   [ stamp i64, processor u16, 6 bytes │ record, padded to 8 bytes ] …    about 64 KiB
//!   the last block is in memory until it is full
//! ```

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use traceweir_format::header::{Record, measure};

use crate::index::{RowPosition, cache};

/// A block that has this size is written to the file.
const BLOCK_BYTES: usize = 64 << 10;
/// Bytes before each record.
const PREFIX_BYTES: usize = 16;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Spool {
    file: Arc<File>,
    /// Begin of each block in the file, and the end of the last.
    ends: Vec<u64>,
    open: Vec<u8>,
    max_bytes: u64,
}

/// Where a record was appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Appended {
    ToBlock,
    /// The block before is complete.
    ToNewBlock,
}

/// A position between two records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cursor {
    pub(crate) block: u32,
    pub(crate) offset: u32,
}

/// A part of a block, which is read without a lock on the spool.
pub(super) struct Part {
    begin: Cursor,
    /// The next block, if this one is complete.
    next_block: Option<u32>,
    source: PartSource,
}

enum PartSource {
    File(Arc<File>, u64, usize),
    Memory(Vec<u8>),
}

/// Some records.
#[derive(Debug)]
pub(crate) struct Chunk {
    begin: Cursor,
    /// The position after these records.
    pub(crate) end: Cursor,
    bytes: Vec<u8>,
}

impl Spool {
    /// Creates an empty spool that keeps at most `max_bytes` of records.
    pub(super) fn create(max_bytes: u64) -> Result<Self> {
        let file = cache::create_unlinked().context("cannot create a temporary file for the events")?;
        Ok(Self { file: Arc::new(file), ends: vec![0], open: Vec::new(), max_bytes })
    }

    fn file_bytes(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }

    fn open_block(&self) -> u32 {
        u32::try_from(self.ends.len().saturating_sub(1)).unwrap_or(u32::MAX)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.file_bytes().saturating_add(self.open.len() as u64)
    }

    /// Appends a record. After an error, the spool has all records before.
    pub(super) fn append(&mut self, record: &Record<'_>) -> Result<Appended> {
        let bytes = record.bytes();
        let padded = PREFIX_BYTES + bytes.len().next_multiple_of(8);
        let is_full = self.bytes().saturating_add(padded as u64) > self.max_bytes;
        ensure!(!is_full, "the temporary file has reached its limit of {} MiB", self.max_bytes >> 20);
        let mut appended = Appended::ToBlock;
        if self.open.len() >= BLOCK_BYTES {
            self.write_block()?;
            appended = Appended::ToNewBlock;
        }
        let end = self.open.len().saturating_add(padded);
        self.open.extend_from_slice(&record.time().to_le_bytes());
        self.open.extend_from_slice(&u64::from(record.cpu()).to_le_bytes());
        self.open.extend_from_slice(bytes);
        self.open.resize(end, 0);
        Ok(appended)
    }

    fn write_block(&mut self) -> Result<()> {
        let begin = self.file_bytes();
        self.file.write_all_at(&self.open, begin).context("cannot write the temporary file")?;
        self.ends.push(begin.saturating_add(self.open.len() as u64));
        self.open.clear();
        Ok(())
    }

    pub(super) fn has_block_after(&self, cursor: Cursor) -> bool {
        cursor.block < self.open_block()
    }

    pub(super) fn has_records_after(&self, cursor: Cursor) -> bool {
        self.has_block_after(cursor) || (cursor.offset as usize) < self.open.len()
    }

    /// Returns the rest of a block from a cursor on.
    pub(super) fn find(&self, begin: Cursor) -> Part {
        let block = begin.block as usize;
        let bounds = self.ends.get(block).zip(self.ends.get(block.saturating_add(1)));
        let source = match bounds {
            Some((block_begin, block_end)) => {
                let from = block_begin.saturating_add(begin.offset.into()).min(*block_end);
                let bytes = usize::try_from(block_end.saturating_sub(from)).unwrap_or(0);
                PartSource::File(Arc::clone(&self.file), from, bytes)
            }
            None if begin.block == self.open_block() => {
                PartSource::Memory(self.open.get(begin.offset as usize..).unwrap_or_default().to_vec())
            }
            None => PartSource::Memory(Vec::new()),
        };
        Part { begin, next_block: bounds.is_some().then(|| begin.block.saturating_add(1)), source }
    }
}

impl Part {
    pub(super) fn read(self) -> Result<Chunk> {
        let Self { begin, next_block, source } = self;
        let bytes = match source {
            PartSource::Memory(bytes) => bytes,
            PartSource::File(file, at, length) => {
                let mut bytes = vec![0; length];
                file.read_exact_at(&mut bytes, at).context("cannot read the temporary file")?;
                bytes
            }
        };
        let end = match next_block {
            Some(block) => Cursor { block, offset: 0 },
            None => {
                let offset = begin.offset.saturating_add(u32::try_from(bytes.len()).unwrap_or(0));
                Cursor { offset, ..begin }
            }
        };
        Ok(Chunk { begin, end, bytes })
    }
}

impl Chunk {
    /// Returns the records with their positions.
    pub(crate) fn records(&self) -> impl Iterator<Item = (RowPosition, Record<'_>)> {
        let mut at = 0_u32;
        std::iter::from_fn(move || {
            let record = record_at(&self.bytes, at)?;
            let position = RowPosition::new(0, self.begin.block, self.begin.offset.saturating_add(at));
            let bytes = PREFIX_BYTES.saturating_add(record.bytes().len().next_multiple_of(8));
            at = at.saturating_add(u32::try_from(bytes).ok()?);
            Some((position, record))
        })
    }

    /// Returns whether the chunk extends to the end of a complete block.
    pub(crate) const fn ends_block(&self) -> bool {
        self.end.block != self.begin.block
    }

    pub(crate) fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

/// Returns the record at an offset of a block; `None` if there is none.
pub(crate) fn record_at(block: &[u8], offset: u32) -> Option<Record<'_>> {
    let (prefix, bytes) = block.get(usize::try_from(offset).ok()?..)?.split_first_chunk::<PREFIX_BYTES>()?;
    let (stamp, cpu) = prefix.split_first_chunk::<8>()?;
    let cpu = cpu.first_chunk::<2>().map_or(0, |cpu| u16::from_le_bytes(*cpu));
    let measured = measure(bytes, offset.into(), false).ok()??;
    Some(Record::new(bytes, measured, cpu, i64::from_le_bytes(*stamp)))
}

#[cfg(test)]
mod tests;
