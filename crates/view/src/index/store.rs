//! The file that holds an index, and the encoding of its parts.
//!
//! ```text
//!   file       data blocks, in the order in which they are written │ directory │ footer
//!   footer     offset u64 │ length u64 │ checksum u64 │ MAGIC
//! ```
//!
//! Nothing read from the file is trusted: offsets and lengths are checked against the file, values
//! against the tables that they refer to. Damage makes a block shorter or empty.

use std::fs::File;
use std::os::unix::fs::FileExt;

use anyhow::{Context, Result};

/// The end of an index file; the last bytes are its version.
pub(super) const MAGIC: [u8; 8] = *b"TWVIEW09";
pub(super) const FOOTER_BYTES: u64 = 32;
/// Blocks are collected up to this size before they are written.
const WRITE_BYTES: usize = 1 << 20;
/// The largest block. Larger lengths in a file are damage.
const MAX_BLOCK_BYTES: u32 = 16 << 20;
/// The largest directory. It is read as a whole, so this bounds what a crafted file allocates. Only
/// tables full of long names take more.
const MAX_DIRECTORY_BYTES: u64 = 128 << 20;

/// A data block in the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BlockRef {
    pub(crate) offset: u64,
    pub(crate) bytes: u32,
}

/// An index file that grows while it is read.
#[derive(Debug)]
pub(crate) struct Store {
    file: File,
    /// Offset of `pending` in the file.
    written: u64,
    /// Blocks that are not written yet.
    pending: Vec<u8>,
    /// The first error of a write; later blocks are lost.
    failure: Option<String>,
}

impl Store {
    pub(crate) fn new(file: File) -> Self {
        Self { file, written: 0, pending: Vec::new(), failure: None }
    }

    /// Opens a finished file of `length` bytes for reading.
    pub(crate) fn open_finished(file: File, length: u64) -> Self {
        Self { file, written: length, pending: Vec::new(), failure: None }
    }

    pub(crate) fn len(&self) -> u64 {
        self.written.saturating_add(self.pending.len() as u64)
    }

    /// Returns the first error of a write, such as a full disk.
    pub(crate) fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// Appends a block.
    pub(crate) fn append(&mut self, bytes: &[u8]) -> BlockRef {
        let block = BlockRef { offset: self.len(), bytes: u32::try_from(bytes.len()).unwrap_or(0) };
        self.pending.extend_from_slice(bytes);
        if self.pending.len() >= WRITE_BYTES {
            self.write_pending();
        }
        block
    }

    fn write_pending(&mut self) {
        if self.failure.is_none()
            && let Err(error) = self.file.write_all_at(&self.pending, self.written)
        {
            self.failure = Some(error.to_string());
        }
        self.written = self.written.saturating_add(self.pending.len() as u64);
        self.pending.clear();
    }

    /// Reads a part of a block. The result is shorter if the file ends early.
    pub(crate) fn read_part(&self, block: BlockRef, from: u32, bytes: u32, into: &mut Vec<u8>) {
        into.clear();
        let bytes = bytes.min(block.bytes.saturating_sub(from)).min(MAX_BLOCK_BYTES);
        let offset = block.offset.saturating_add(from.into());
        if offset >= self.written {
            let start = usize::try_from(offset - self.written).unwrap_or(usize::MAX);
            let end = start.saturating_add(bytes as usize).min(self.pending.len());
            into.extend_from_slice(self.pending.get(start..end).unwrap_or_default());
            return;
        }
        let bytes = u64::from(bytes).min(self.written - offset);
        into.resize(usize::try_from(bytes).unwrap_or(0), 0);
        if self.file.read_exact_at(into, offset).is_err() {
            into.clear();
        }
    }

    /// Reads a whole block.
    pub(crate) fn read(&self, block: BlockRef, into: &mut Vec<u8>) {
        self.read_part(block, 0, block.bytes, into);
    }

    /// Writes the blocks that are collected. Blocks must not be added to a finished file.
    pub(crate) fn flush(&mut self) {
        if !self.pending.is_empty() {
            self.write_pending();
        }
        self.pending = Vec::new();
    }

    /// Begins the directory of a file whose blocks are all written.
    pub(crate) fn begin_directory(&self) -> DirectoryWriter<'_> {
        DirectoryWriter {
            file: &self.file,
            begin: self.len(),
            bytes: 0,
            sum: Checksum::default(),
            buffer: Vec::new(),
            failure: self.failure.clone(),
        }
    }

    /// Reads the directory of a finished file; `None` if the file is damaged or of another version.
    pub(crate) fn read_directory(file: &File, length: u64) -> Option<Vec<u8>> {
        let mut footer = [0; FOOTER_BYTES as usize];
        let end = length.checked_sub(FOOTER_BYTES)?;
        file.read_exact_at(&mut footer, end).ok()?;
        let mut reader = Reader::new(&footer);
        let (offset, bytes, sum) = (reader.u64()?, reader.u64()?, reader.u64()?);
        if reader.rest() != MAGIC || offset.checked_add(bytes)? != end || bytes > MAX_DIRECTORY_BYTES {
            return None;
        }
        let mut directory = vec![0; usize::try_from(bytes).ok()?];
        file.read_exact_at(&mut directory, offset).ok()?;
        (checksum(&directory) == sum).then_some(directory)
    }

    /// Returns a handle of the file, to write it to the disk without a lock on the index.
    pub(crate) fn file(&self) -> Result<File> {
        self.file.try_clone().context("cannot write the index")
    }
}

/// Writes the checksum of a changed directory, so that tests reach what reads it.
#[cfg(any(test, feature = "test-points"))]
pub(crate) fn seal_again(file: &mut [u8]) {
    let Some(footer) = file.len().checked_sub(FOOTER_BYTES as usize) else { return };
    let (content, footer) = file.split_at_mut(footer);
    let mut reader = Reader::new(footer);
    let (Some(offset), Some(bytes)) = (reader.u64(), reader.u64()) else { return };
    let range = usize::try_from(offset).ok().zip(usize::try_from(offset.wrapping_add(bytes)).ok());
    let Some(directory) = range.and_then(|(from, to)| content.get(from..to)) else { return };
    let sum = checksum(directory).to_le_bytes();
    if let Some(slot) = footer.get_mut(16..24) {
        slot.copy_from_slice(&sum);
    }
}

/// Writes the directory of an index in pieces, so that it is never in memory as a whole.
#[derive(Debug)]
pub(crate) struct DirectoryWriter<'s> {
    file: &'s File,
    /// Offset of the directory in the file.
    begin: u64,
    /// Bytes of the directory that are in the file.
    bytes: u64,
    sum: Checksum,
    buffer: Vec<u8>,
    failure: Option<String>,
}

impl DirectoryWriter<'_> {
    fn write_buffer(&mut self, is_last: bool) {
        let rest = if is_last { 0 } else { self.buffer.len() % 8 };
        let (whole, _) = self.buffer.split_at(self.buffer.len() - rest);
        let bytes = self.bytes.saturating_add(whole.len() as u64);
        if bytes > MAX_DIRECTORY_BYTES {
            self.failure.get_or_insert_with(|| "the tables of the index are too large".to_owned());
        }
        self.sum.add(whole);
        if self.failure.is_none()
            && let Err(error) = self.file.write_all_at(whole, self.begin.saturating_add(self.bytes))
        {
            self.failure = Some(error.to_string());
        }
        self.bytes = bytes;
        self.buffer.drain(..whole.len());
    }

    /// Writes the rest and the footer: the file is complete then. Fails without a footer if a block
    /// or a part of the directory was not written, or if [`Store::read_directory`] would refuse it.
    pub(crate) fn finish(mut self) -> Result<()> {
        self.write_buffer(true);
        let mut footer = Vec::with_capacity(FOOTER_BYTES as usize);
        for word in [self.begin, self.bytes, self.sum.finish(self.bytes)] {
            footer.put_u64(word);
        }
        footer.put_bytes(&MAGIC);
        if let Some(reason) = self.failure {
            anyhow::bail!("{reason}");
        }
        Ok(self.file.write_all_at(&footer, self.begin.saturating_add(self.bytes))?)
    }
}

/// A checksum that finds torn and damaged directories.
#[derive(Clone, Copy, Debug)]
struct Checksum(u64);

impl Default for Checksum {
    fn default() -> Self {
        Self(0xCBF2_9CE4_8422_2325)
    }
}

impl Checksum {
    /// Adds bytes. Their number is a multiple of 8, except at the end.
    fn add(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            if let Some(start) = word.get_mut(..chunk.len()) {
                start.copy_from_slice(chunk);
            }
            self.add_word(u64::from_le_bytes(word));
        }
    }

    const fn add_word(&mut self, word: u64) {
        self.0 = (self.0 ^ word).wrapping_mul(0x0000_0100_0000_01B3).rotate_left(23);
    }

    /// Returns the sum of as many bytes.
    const fn finish(mut self, bytes: u64) -> u64 {
        self.add_word(bytes);
        self.0
    }
}

fn checksum(bytes: &[u8]) -> u64 {
    let mut sum = Checksum::default();
    sum.add(bytes);
    sum.finish(bytes.len() as u64)
}

/// Appends numbers and texts to a directory or a block.
pub(crate) trait Put {
    fn put_bytes(&mut self, bytes: &[u8]);

    fn put_u64(&mut self, value: u64) {
        self.put_bytes(&value.to_le_bytes());
    }

    fn put_i64(&mut self, value: i64) {
        self.put_bytes(&value.to_le_bytes());
    }

    #[inline]
    fn put_varint(&mut self, mut value: u64) {
        let mut bytes = [0_u8; 10];
        let mut length = 0_usize;
        for byte in &mut bytes {
            length += 1;
            if value < 0x80 {
                *byte = value as u8;
                break;
            }
            *byte = (value as u8) | 0x80;
            value >>= 7;
        }
        self.put_bytes(bytes.get(..length).unwrap_or_default());
    }

    /// Appends a number of small magnitude.
    #[inline]
    fn put_signed(&mut self, value: i64) {
        self.put_varint(((value << 1) ^ (value >> 63)).cast_unsigned());
    }

    fn put_text(&mut self, text: &str) {
        self.put_varint(text.len() as u64);
        self.put_bytes(text.as_bytes());
    }
}

impl Put for Vec<u8> {
    fn put_bytes(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }

    #[inline]
    fn put_varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.push((value as u8) | 0x80);
            value >>= 7;
        }
        self.push(value as u8);
    }
}

impl Put for DirectoryWriter<'_> {
    fn put_bytes(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= WRITE_BYTES {
            self.write_buffer(false);
        }
    }
}

/// Reads what [`Put`] has written; `None` at the end of the bytes and for damage.
#[derive(Clone, Debug)]
pub(crate) struct Reader<'b> {
    bytes: &'b [u8],
}

impl<'b> Reader<'b> {
    pub(crate) const fn new(bytes: &'b [u8]) -> Self {
        Self { bytes }
    }

    pub(crate) const fn rest(&self) -> &'b [u8] {
        self.bytes
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        let (word, rest) = self.bytes.split_first_chunk::<8>()?;
        self.bytes = rest;
        Some(u64::from_le_bytes(*word))
    }

    pub(crate) fn i64(&mut self) -> Option<i64> {
        self.u64().map(u64::cast_signed)
    }

    #[inline]
    pub(crate) fn varint(&mut self) -> Option<u64> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.bytes.split_first()?;
            self.bytes = rest;
            value |= u64::from(byte & 0x7F) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    #[inline]
    pub(crate) fn signed(&mut self) -> Option<i64> {
        let value = self.varint()?;
        Some((value >> 1).cast_signed() ^ -((value & 1).cast_signed()))
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.varint().and_then(|value| u32::try_from(value).ok())
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.varint().and_then(|value| u16::try_from(value).ok())
    }

    /// Reads a number of entries that follow; each takes at least a byte.
    pub(crate) fn count(&mut self) -> Option<usize> {
        let count = usize::try_from(self.varint()?).ok()?;
        (count <= self.bytes.len()).then_some(count)
    }

    /// Reads a number of entries that has a limit.
    pub(crate) fn count_up_to(&mut self, limit: usize) -> Option<usize> {
        self.count().filter(|count| *count <= limit)
    }

    /// Reads where a block lies in a file of some bytes. Blocks of one list follow each other, so
    /// that a small file cannot describe much data. `end` is the end of the block before.
    pub(super) fn block(&mut self, end: &mut u64, file_bytes: u64) -> Option<BlockRef> {
        let block = BlockRef { offset: self.varint()?, bytes: self.u32()? };
        if block.offset < *end || block.bytes > MAX_BLOCK_BYTES {
            return None;
        }
        *end = block.offset.checked_add(block.bytes.into()).filter(|end| *end <= file_bytes)?;
        Some(block)
    }

    pub(crate) fn text(&mut self) -> Option<&'b str> {
        let length = self.count()?;
        let (text, rest) = self.bytes.split_at_checked(length)?;
        self.bytes = rest;
        std::str::from_utf8(text).ok()
    }
}
