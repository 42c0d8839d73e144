//! Reads message tables: the texts that compiled manifests refer to by number.
//!
//! ```text
//!   u32 blocks │ blocks × { u32 low │ u32 high │ u32 offset }   offsets from the table's start
//!                                                 │
//!                ┌────────────────────────────────┘
//!                ▼ one entry for each id from low to high, in sequence
//!              u16 length │ u16 flags (1 = UTF-16LE, 0 = 8-bit) │ text … CR LF NUL padding
//! ```
//!
//! Each text is decoded once and shared by all users of the message. Line breaks, padding and the
//! blank that map texts carry are cut from its end.
//!
//! Entries of a sound table do not overlap, so their total size is at most that of the table. The
//! parser enforces the same limit on hostile tables, which bounds its time and memory. The
//! formatter resolves inserts such as `%1`.
//!
//! Source: Documented ("MESSAGE_RESOURCE_DATA", "MESSAGE_RESOURCE_ENTRY"), Observed in the CLR's
//! event resources.

use std::collections::HashMap;
use std::sync::Arc;

use traceweir_format::text;
use traceweir_format::wire::Cursor;

use crate::Result;

/// The id that means "no message".
pub const NO_MESSAGE: u32 = u32::MAX;

/// Flag of an entry that holds UTF-16 text.
pub(super) const MESSAGE_RESOURCE_UNICODE: u16 = 1;

/// The size of an entry before its text, in bytes.
const ENTRY_HEADER_BYTES: usize = 4;

/// The texts of one message table.
#[derive(Clone, Debug, Default)]
pub struct MessageTable {
    texts: HashMap<u32, Arc<str>>,
    /// The offset at which the last entry ends; without entries, the end of the list of blocks.
    end: usize,
}

impl MessageTable {
    /// Reads a table from the bytes of its resource.
    pub fn parse(resource: &[u8]) -> Result<Self> {
        let mut blocks = Cursor::new("message table", resource);
        let mut table = Self::default();
        let mut bytes_left = resource.len();
        let count = blocks.u32()?;
        for _ in 0..count {
            let (low, high, offset) = (blocks.u32()?, blocks.u32()?, blocks.u32()?);
            let mut entries = Cursor::new("message table entry", resource);
            entries.seek(usize::try_from(offset).unwrap_or(usize::MAX))?;
            for id in low..=high {
                let length = table.read_entry(id, &mut entries)?;
                bytes_left =
                    bytes_left.checked_sub(length).ok_or_else(|| blocks.invalid("blocks overlap"))?;
            }
            table.end = table.end.max(entries.position());
        }
        table.end = table.end.max(blocks.position());
        Ok(table)
    }

    /// Reads the entry of `id` and returns its length.
    fn read_entry(&mut self, id: u32, entries: &mut Cursor<'_>) -> Result<usize> {
        let length = usize::from(entries.u16()?);
        let flags = entries.u16()?;
        // Entries without bytes would let one block claim four billion ids.
        let text_bytes = length
            .checked_sub(ENTRY_HEADER_BYTES)
            .ok_or_else(|| entries.invalid("entry shorter than its header"))?;
        let bytes = entries.bytes(text_bytes)?;
        let text = match flags {
            MESSAGE_RESOURCE_UNICODE => text::decode_utf16(text::until_nul16(bytes)),
            _ => text::decode_ansi(text::until_nul8(bytes)),
        };
        self.texts.entry(id).or_insert_with(|| text.trim_end().into());
        Ok(length)
    }

    /// Returns the text of a message.
    #[must_use]
    pub fn get(&self, id: u32) -> Option<&Arc<str>> {
        self.texts.get(&id).filter(|_| id != NO_MESSAGE)
    }

    /// Returns the number of bytes that the table takes in its resource.
    #[must_use]
    pub const fn resource_bytes(&self) -> usize {
        self.end
    }

    /// Returns the number of messages.
    #[must_use]
    pub fn len(&self) -> usize {
        self.texts.len()
    }

    /// Returns whether the table has no messages.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.texts.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::wevt::build::{encode_message_table, for_each_damaged_copy};
    use traceweir_format::wire::Put;

    #[test]
    fn utf16_and_8_bit_texts_are_found_by_id() {
        let mut bytes =
            encode_message_table(&[(5, "five %1 %2\r\n"), (6, "six "), (0xB000_0001, "é\u{1F600}")]);
        let table = MessageTable::parse(&bytes).unwrap();
        assert_eq!(table.len(), 3);
        assert_eq!(table.get(5).map(|t| &**t), Some("five %1 %2"));
        assert_eq!(table.get(6).map(|t| &**t), Some("six"), "the blank at the end must be cut");
        assert_eq!(table.get(0xB000_0001).map(|t| &**t), Some("é\u{1F600}"));
        assert_eq!((table.get(7), table.get(NO_MESSAGE)), (None, None));

        bytes.clear();
        bytes.put_u32(1).put_u32(1).put_u32(1).put_u32(16).put_u16(12).put_u16(0).put(b"caf\xe9\r\n\0\0");
        assert_eq!(MessageTable::parse(&bytes).unwrap().get(1).map(|t| &**t), Some("café"));
    }

    #[test]
    fn tables_that_claim_more_than_their_bytes_are_refused() {
        let mut bytes = Vec::new();
        bytes.put_u32(1).put_u32(0).put_u32(u32::MAX).put_u32(16).put(&[0; 64]);
        assert!(MessageTable::parse(&bytes).is_err(), "entries of length 0 must be refused");
        let mut bytes = Vec::new();
        bytes.put_u32(u32::MAX).put(&[0; 64]);
        assert!(MessageTable::parse(&bytes).is_err(), "more blocks than bytes must be refused");
    }

    #[test]
    fn blocks_that_share_entries_are_refused() {
        let (blocks, entries) = (2000_u32, 2000_u32);
        let mut bytes = Vec::new();
        bytes.put_u32(blocks);
        for i in 0..blocks {
            bytes.put_u32(i * entries).put_u32(i * entries + entries - 1).put_u32(4 + blocks * 12);
        }
        for _ in 0..entries {
            bytes.put_u16(4).put_u16(1);
        }
        assert!(MessageTable::parse(&bytes).is_err());
    }

    #[test]
    fn damaged_input_never_panics() {
        for_each_damaged_copy(
            &encode_message_table(&[(5, "five\r\n"), (6, "six"), (90, "ninety")]),
            |bytes| {
                let _ = MessageTable::parse(bytes);
            },
        );
    }
}
