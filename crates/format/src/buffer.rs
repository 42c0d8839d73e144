//! A buffer: 0x48 bytes of header, then the records of one processor.
//!
//! ```text
//! 00 u32 BufferSize │ 04 u32 SavedOffset │ 08 u32 CurrentOffset │ 0C i32 ReferenceCount
//! 10 i64 TimeStamp │ 18 i64 SequenceNumber │ 20 links, 8 bytes │ 28 u16 ProcessorIndex
//! 2A u16 LoggerId │ 2C u32 State │ 30 u32 Offset │ 34 u16 BufferFlag │ 36 u16 BufferType
//! 38 links, 16 bytes │ 48 records, each at a multiple of eight, up to Offset
//! Offset filler FF, up to BufferSize
//! ```
//!
//! `Offset` is the number of valid bytes of the buffer in memory, header included; a compressed
//! buffer is shorter on disk. Records may lie between `SavedOffset` and `Offset`, so `SavedOffset`
//! is used only if `Offset` is impossible. Source: Documented in part ("ETW_BUFFER_HEADER"),
//! Observed on real traces.

use crate::header::{self, Record};
use crate::spec::session::{BUFFER_FLAG_COMPRESSED, BUFFER_FLAG_PROC_INDEX, BufferType};
use crate::wire::{align8, i64_at, u8_at, u16_at, u32_at};
use crate::{Error, Result};

/// Size of the buffer header in bytes.
pub const HEADER_SIZE: usize = 0x48;

/// The smallest buffer size of a session. Every session's buffer size is a multiple of this size.
pub const MIN_BUFFER: u32 = 1024;

/// The largest buffer size of a session, and the largest size that a compressed buffer unpacks to.
///
/// The reader accepts plain buffers that claim up to four times as much, as far as the file really
/// holds them.
pub const MAX_BUFFER: u32 = 16 << 20;

/// The highest processor index, which has eleven bits.
pub const MAX_PROCESSOR: u16 = 0x7FF;

/// The byte that fills a plain buffer after its last record.
pub const FILLER: u8 = 0xFF;

/// The state of every buffer in a file.
pub const STATE_FLUSH: u32 = 3;

/// Offsets of the fields in the buffer header.
pub(crate) mod at {
    pub(crate) const BUFFER_SIZE: usize = 0x00;
    pub(crate) const SAVED_OFFSET: usize = 0x04;
    pub(crate) const CURRENT_OFFSET: usize = 0x08;
    pub(crate) const TIME_STAMP: usize = 0x10;
    pub(crate) const SEQUENCE_NUMBER: usize = 0x18;
    pub(crate) const PROCESSOR_INDEX: usize = 0x28;
    pub(crate) const LOGGER_ID: usize = 0x2A;
    pub(crate) const STATE: usize = 0x2C;
    pub(crate) const OFFSET: usize = 0x30;
    pub(crate) const FLAGS: usize = 0x34;
    pub(crate) const TYPE: usize = 0x36;
}

/// The header of one buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BufferHeader {
    /// Bytes from this header to the next one.
    pub buffer_size: u32,
    /// Valid bytes, possibly too few: used only if `offset` is impossible.
    pub saved_offset: u32,
    /// Write cursor when the buffer was closed; not a length.
    pub current_offset: u32,
    /// Time of the flush in the session's clock, or a FILETIME in merged files.
    pub time_stamp: i64,
    /// Position of the buffer in the order in which the session acquired its buffers.
    pub sequence_number: i64,
    /// The processor whose events the buffer holds.
    pub processor_index: u16,
    /// The logger id of the session.
    pub logger_id: u16,
    /// [`STATE_FLUSH`] in files; 0 is written as [`STATE_FLUSH`].
    pub state: u32,
    /// Valid bytes of the buffer in memory, header included.
    pub offset: u32,
    /// The flags of the buffer, `BUFFER_FLAG_…` bits.
    pub flags: u16,
    /// The kind of content, a `BufferType` number.
    pub buffer_type: u16,
}

impl BufferHeader {
    /// Parses the bytes of a header.
    #[must_use]
    pub fn parse(bytes: &[u8; HEADER_SIZE]) -> Self {
        let flags = u16_at(bytes, at::FLAGS);
        let processor_index = if flags & BUFFER_FLAG_PROC_INDEX != 0 {
            u16_at(bytes, at::PROCESSOR_INDEX) & MAX_PROCESSOR
        } else {
            u16::from(u8_at(bytes, at::PROCESSOR_INDEX))
        };
        Self {
            buffer_size: u32_at(bytes, at::BUFFER_SIZE),
            saved_offset: u32_at(bytes, at::SAVED_OFFSET),
            current_offset: u32_at(bytes, at::CURRENT_OFFSET),
            time_stamp: i64_at(bytes, at::TIME_STAMP),
            sequence_number: i64_at(bytes, at::SEQUENCE_NUMBER),
            processor_index,
            logger_id: u16_at(bytes, at::LOGGER_ID),
            state: u32_at(bytes, at::STATE),
            offset: u32_at(bytes, at::OFFSET),
            flags,
            buffer_type: u16_at(bytes, at::TYPE),
        }
    }

    /// Encodes the header.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; HEADER_SIZE] {
        let mut bytes = [0; HEADER_SIZE];
        for (at, value) in [
            (at::BUFFER_SIZE, self.buffer_size),
            (at::SAVED_OFFSET, self.saved_offset),
            (at::CURRENT_OFFSET, self.current_offset),
            (at::STATE, if self.state == 0 { STATE_FLUSH } else { self.state }),
            (at::OFFSET, self.offset),
        ] {
            header::patch(&mut bytes, at, &value.to_le_bytes());
        }
        header::patch(&mut bytes, at::TIME_STAMP, &self.time_stamp.to_le_bytes());
        header::patch(&mut bytes, at::SEQUENCE_NUMBER, &self.sequence_number.to_le_bytes());
        for (at, value) in [
            (at::PROCESSOR_INDEX, self.processor_index),
            (at::LOGGER_ID, self.logger_id),
            (at::FLAGS, self.flags),
            (at::TYPE, self.buffer_type),
        ] {
            header::patch(&mut bytes, at, &value.to_le_bytes());
        }
        bytes
    }

    /// Returns whether the bytes after the header are compressed.
    #[must_use]
    pub const fn is_compressed(&self) -> bool {
        self.flags & BUFFER_FLAG_COMPRESSED != 0
    }

    /// Returns the kind of content.
    #[must_use]
    pub const fn kind(&self) -> BufferType {
        BufferType(self.buffer_type)
    }

    /// Returns the header with a buffer size of at least `size`, the bytes of the buffer in the
    /// file. A smaller size in the header is damage.
    #[must_use]
    pub(crate) fn with_minimum_size(mut self, size: u32) -> Self {
        self.buffer_size = self.buffer_size.max(size);
        self
    }

    /// Returns where the records of a plain buffer end, given the number of bytes that are
    /// available.
    ///
    /// An impossible `Offset` is replaced by `SavedOffset`. If both are impossible, the result is
    /// the end of the buffer, and the walk over the records ends at the filler.
    #[must_use]
    pub fn valid_bytes(&self, available: usize) -> usize {
        let is_plausible =
            |end: u32| (HEADER_SIZE as u64..=u64::from(self.buffer_size)).contains(&u64::from(end));
        let valid = if is_plausible(self.offset) {
            self.offset
        } else if is_plausible(self.saved_offset) {
            self.saved_offset
        } else {
            self.buffer_size
        };
        (valid as usize).min(available)
    }
}

/// Iterates over the records of one buffer in memory.
#[derive(Clone, Debug)]
pub struct Records<'b> {
    bytes: &'b [u8],
    at: usize,
    base: u64,
    cpu: u16,
    /// Stamp of the previous record, which a record without a stamp inherits.
    time: i64,
    has_short_instance_headers: bool,
}

impl<'b> Records<'b> {
    /// Starts at offset `at` of a (decompressed) buffer whose valid bytes are `bytes`.
    ///
    /// `base` is added to offsets in errors; `has_short_instance_headers` is explained at
    /// [`header::measure`].
    #[must_use]
    pub const fn new(
        bytes: &'b [u8],
        at: usize,
        base: u64,
        cpu: u16,
        has_short_instance_headers: bool,
    ) -> Self {
        Self { bytes, at, base, cpu, time: 0, has_short_instance_headers }
    }

    /// Returns the offset of the next record.
    #[must_use]
    pub const fn position(&self) -> usize {
        self.at
    }

    /// Returns the next record; `None` at the end, an error where the walk cannot continue.
    #[inline]
    #[allow(clippy::should_implement_trait)] // An error ends the walk, so the caller must handle it.
    pub fn next(&mut self) -> Result<Option<Record<'b>>> {
        let remaining = self.bytes.get(self.at..).unwrap_or_default();
        let offset = self.base.saturating_add(self.at as u64);
        let Some(measure) = header::measure(remaining, offset, self.has_short_instance_headers)? else {
            return Ok(None);
        };
        let record = Record::new(remaining, measure, self.cpu, self.time);
        self.time = record.time();
        self.at = self.at.checked_add(align8(measure.size)).ok_or(Error::Invalid {
            what: "record",
            offset,
            reason: "size overflows the buffer",
        })?;
        Ok(Some(record))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_round_trip() {
        let header = BufferHeader {
            buffer_size: 0x10000,
            saved_offset: 0x1B8,
            current_offset: 0x208,
            time_stamp: 77,
            sequence_number: 908,
            processor_index: 31,
            logger_id: 40,
            state: STATE_FLUSH,
            offset: 0x208,
            flags: 0x61,
            buffer_type: 4,
        };
        assert_eq!(BufferHeader::parse(&header.to_bytes()), header);
    }

    #[test]
    fn impossible_offset_falls_back_to_saved_offset() {
        let header = |offset, saved_offset| BufferHeader {
            buffer_size: 0x400,
            offset,
            saved_offset,
            ..Default::default()
        };
        assert_eq!(header(0x100, 0x80).valid_bytes(0x400), 0x100, "a possible Offset was not used");
        assert_eq!(header(0, 0x80).valid_bytes(0x400), 0x80);
        assert_eq!(header(0x500, 0).valid_bytes(0x400), 0x400);
        assert_eq!(header(0x100, 0).valid_bytes(0x90), 0x90, "the valid bytes exceed a truncated file");
    }

    #[test]
    fn processor_index_has_eight_bits_without_its_flag() {
        let mut bytes = [0; HEADER_SIZE];
        bytes[at::PROCESSOR_INDEX] = 5;
        bytes[at::PROCESSOR_INDEX + 1] = 7;
        assert_eq!(BufferHeader::parse(&bytes).processor_index, 5);
        bytes[at::FLAGS..at::TYPE].copy_from_slice(&BUFFER_FLAG_PROC_INDEX.to_le_bytes());
        assert_eq!(BufferHeader::parse(&bytes).processor_index, 0x705);
    }
}
