//! The payload of an event as one run of bytes over its blocks: positions, numbers, texts. Only
//! numbers are copied.

use traceweir_format::filter::payload::fold_case;
use traceweir_format::header::MAX_RECORD_BYTES;

use crate::event::{CallerEvent, PayloadBlocks};

/// The payload blocks of an event.
#[derive(Clone, Copy)]
pub(super) struct PayloadReader<'e, 'a> {
    event: &'e CallerEvent<'a>,
    length: u32,
}

impl<'e, 'a> PayloadReader<'e, 'a> {
    pub(super) fn new(event: &'e CallerEvent<'a>) -> Self {
        // An event with more bytes than a record is refused later; here it is read up to that
        // limit.
        let length =
            event.payload().fold(0, |sum, block| block.len().saturating_add(sum).min(MAX_RECORD_BYTES));
        Self { event, length: length as u32 }
    }

    pub(super) fn length(self) -> u32 {
        self.length
    }

    /// Iterates over at most `count` bytes from a position on.
    fn bytes(self, start: u32, count: u32) -> ByteIter<'a> {
        let mut skip = start as usize;
        let mut blocks = self.event.payload();
        let mut block: &[u8] = &[];
        for first in blocks.by_ref() {
            if let Some(tail) = first.get(skip..).filter(|tail| !tail.is_empty()) {
                block = tail;
                break;
            }
            skip -= first.len();
        }
        ByteIter { block, blocks, left: count }
    }

    /// Reads a little-endian number of at most eight bytes at a position.
    pub(super) fn read_number(self, start: u32, bytes: u32) -> Option<u64> {
        let mut word = [0; 8];
        let mut source = self.bytes(start, bytes);
        for to in word.iter_mut().take(bytes as usize) {
            *to = source.next()?;
        }
        (bytes <= 8).then_some(u64::from_le_bytes(word))
    }

    /// Returns the number of bytes up to and including the next NUL of `width` bytes; a text
    /// without one ends with the payload. `None` if no byte is left.
    pub(super) fn bytes_until_nul(self, start: u32, width: u32) -> Option<u32> {
        let (mut seen, mut zeros) = (0_u32, 0);
        for byte in self.bytes(start, u32::MAX) {
            seen += 1;
            zeros = if byte == 0 { zeros + 1 } else { 0 };
            if seen.is_multiple_of(width) {
                if zeros >= width {
                    return Some(seen);
                }
                zeros = 0;
            }
        }
        (seen > 0).then_some(seen)
    }

    /// Iterates over the characters of a text up to its NUL.
    pub(super) fn read_text(self, start: u32, bytes: u32, is_utf16: bool) -> FoldedText<'a> {
        FoldedText { source: self.bytes(start, bytes), is_utf16, has_ended: false }
    }
}

#[derive(Clone)]
struct ByteIter<'a> {
    block: &'a [u8],
    blocks: PayloadBlocks<'a>,
    left: u32,
}

impl Iterator for ByteIter<'_> {
    type Item = u8;

    #[inline]
    fn next(&mut self) -> Option<u8> {
        self.left = self.left.checked_sub(1)?;
        loop {
            if let [first, remaining @ ..] = self.block {
                self.block = remaining;
                return Some(*first);
            }
            self.block = self.blocks.next()?;
        }
    }
}

/// The case-folded characters of a text. Invalid bytes get numbers that no character has.
pub(super) struct FoldedText<'a> {
    source: ByteIter<'a>,
    is_utf16: bool,
    has_ended: bool,
}

/// Added to bytes that are not UTF-8, to distinguish them from all characters.
const NO_CHARACTER: u32 = 0x11_0000;

impl Iterator for FoldedText<'_> {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        if self.has_ended {
            return None;
        }
        let character = if self.is_utf16 { self.next_utf16() } else { self.next_utf8() };
        self.has_ended = matches!(character, None | Some(0));
        character.filter(|c| *c != 0).map(fold_case)
    }
}

impl FoldedText<'_> {
    fn next_utf16(&mut self) -> Option<u32> {
        let first = next_utf16_unit(&mut self.source)?;
        if !(0xD800..0xDC00).contains(&first) {
            return Some(first);
        }
        let mut ahead = self.source.clone();
        match next_utf16_unit(&mut ahead) {
            Some(second @ 0xDC00..0xE000) => {
                self.source = ahead;
                Some(0x1_0000 + ((first - 0xD800) << 10) + (second - 0xDC00))
            }
            _ => Some(first),
        }
    }

    fn next_utf8(&mut self) -> Option<u32> {
        let first = self.source.next()?;
        let (more, start) = match first {
            0..0x80 => return Some(first.into()),
            0xC2..0xE0 => (1, first & 0x1F),
            0xE0..0xF0 => (2, first & 0x0F),
            0xF0..0xF5 => (3, first & 0x07),
            _ => return Some(NO_CHARACTER + u32::from(first)),
        };
        let mut ahead = self.source.clone();
        let mut character = u32::from(start);
        for _ in 0..more {
            match ahead.next() {
                Some(byte @ 0x80..0xC0) => character = character << 6 | u32::from(byte & 0x3F),
                _ => return Some(NO_CHARACTER + u32::from(first)),
            }
        }
        // An overlong encoding is not a character.
        let least = [0, 0x80, 0x800, 0x1_0000][more];
        match char::from_u32(character).filter(|_| character >= least) {
            Some(_) => {
                self.source = ahead;
                Some(character)
            }
            None => Some(NO_CHARACTER + u32::from(first)),
        }
    }
}

fn next_utf16_unit(source: &mut ByteIter<'_>) -> Option<u32> {
    Some(u32::from(u16::from_le_bytes([source.next()?, source.next()?])))
}
