//! The compressor: finds repetitions with hash chains and writes them as tokens.
//!
//! ```text
//!   newest_positions[hash of 3 bytes] ──▶ position ──previous_positions──▶ older position ──▶ …
//!   at most `MAX_CANDIDATES` steps, at most 8192 bytes back
//! ```
//!
//! Positions continue from one call to the next, so table entries of earlier calls lie before the
//! input and are ignored. Therefore the tables need not be cleared between calls, only before
//! positions would overflow. The same input always gives the same stream. Each candidate of the
//! tables is compared byte by byte, so a wrong entry costs only time.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::{BYTE_EXTENDED, CODE_EXTENDED, HALF_EXTENDED, MIN_COPY, WINDOW_BYTES};
use crate::wire::{Put, chunk};

const HASH_BITS: u32 = 14;
/// Candidates compared for one position.
const MAX_CANDIDATES: usize = 8;
/// A repetition of this length is taken without searching for a longer one.
const GOOD_LENGTH: usize = 32;
/// The longest copy that needs no 32-bit length. Longer repetitions become several copies, at
/// negligible cost.
const MAX_COPY: usize = 0xFFFF + MIN_COPY;

/// The first position. An empty table entry is 0 and therefore farther back than the input.
const FIRST_BASE: u32 = 1;

/// Compresses buffers one after the other with the same tables.
#[derive(Debug)]
pub struct Compressor {
    /// The newest position of each hash.
    newest_positions: Box<[u32; 1 << HASH_BITS]>,
    /// For each position of the window, the previous position with the same hash.
    previous_positions: Box<[u32; WINDOW_BYTES]>,
    /// The position of the first byte of the current input.
    pub(super) base: u32,
}

impl Default for Compressor {
    fn default() -> Self {
        Self::new()
    }
}

#[derive(Clone, Copy, Default)]
struct Repetition {
    length: usize,
    distance: usize,
}

impl Compressor {
    /// Allocates the tables, about 100 KB.
    #[must_use]
    pub fn new() -> Self {
        Self {
            newest_positions: Box::new([0; 1 << HASH_BITS]),
            previous_positions: Box::new([0; WINDOW_BYTES]),
            base: FIRST_BASE,
        }
    }

    /// Compresses `src` into `out`, which is cleared first.
    ///
    /// The stream does not contain its length: the decoder must know `src.len()`. Data without
    /// repetitions grows by an eighth, so the caller should compare the sizes.
    ///
    /// ```
    /// # use traceweir_format::xpress::{Compressor, decompress};
    /// let (mut stream, mut back) = (Vec::new(), Vec::new());
    /// Compressor::new().compress(b"to be or not to be", &mut stream);
    /// decompress(&stream, 18, &mut back)?;
    /// assert_eq!(back, b"to be or not to be");
    /// # Ok::<(), traceweir_format::Error>(())
    /// ```
    pub fn compress(&mut self, src: &[u8], out: &mut Vec<u8>) {
        out.clear();
        let len = u32::try_from(src.len()).unwrap_or(u32::MAX);
        self.ensure_positions(len);
        let mut tokens = TokenWriter::new(out);
        let mut at = 0_usize;
        let mut repetition = self.find_repetition(src, at);
        while let Some(&byte) = src.get(at) {
            at = at.wrapping_add(1);
            let next = if repetition.length < GOOD_LENGTH {
                self.find_repetition(src, at)
            } else {
                Repetition::default()
            };
            // A literal followed by a longer repetition at the next byte gives a shorter stream.
            if repetition.length < MIN_COPY || next.length > repetition.length {
                tokens.put_literal(byte);
                repetition = next;
                continue;
            }
            tokens.put_copy(repetition);
            let end = at.wrapping_add(repetition.length).wrapping_sub(1);
            // The search for `next`, if there was one, has inserted `at` already.
            let first_inside = if repetition.length < GOOD_LENGTH { at.wrapping_add(1) } else { at };
            for inside in first_inside..end {
                self.insert_position(src, inside);
            }
            at = end;
            repetition = self.find_repetition(src, at);
        }
        tokens.finish();
        self.base = self.base.saturating_add(len);
    }

    /// Clears the tables when positions would overflow.
    fn ensure_positions(&mut self, len: u32) {
        if self.base.checked_add(len).is_none() {
            self.newest_positions.fill(0);
            self.previous_positions.fill(0);
            self.base = FIRST_BASE;
        }
    }

    /// Returns the longest repetition for the bytes at `at` among the first few candidates, and
    /// inserts the position into the tables.
    fn find_repetition(&mut self, src: &[u8], at: usize) -> Repetition {
        let mut best = Repetition::default();
        let Some(mut candidate) = self.insert_position(src, at) else {
            return best;
        };
        let position = self.position(at);
        let mut nearest = 0;
        for _ in 0..MAX_CANDIDATES {
            let distance = position.wrapping_sub(candidate) as usize;
            // Each candidate must be farther back than the one before. An entry of
            // `previous_positions` that a later position has overwritten may lead nearer again.
            if distance <= nearest || distance > WINDOW_BYTES || distance > at {
                break;
            }
            nearest = distance;
            // A longer repetition must at least agree in the next byte.
            let after = at.wrapping_add(best.length);
            if src.get(after) == src.get(after.wrapping_sub(distance)) {
                let length = common_length(src, at, distance);
                if length > best.length {
                    best = Repetition { length, distance };
                }
                if length >= GOOD_LENGTH {
                    break;
                }
            }
            candidate = self.previous_positions.get(candidate as usize % WINDOW_BYTES).copied().unwrap_or(0);
        }
        best
    }

    /// Makes `at` the newest position of its hash and returns the previous one; `None` for the last
    /// two bytes.
    #[inline]
    fn insert_position(&mut self, src: &[u8], at: usize) -> Option<u32> {
        let &[a, b, c] = chunk(src, at)?;
        let hash = u32::from_le_bytes([a, b, c, 0]).wrapping_mul(0x9E37_79B1) >> (32 - HASH_BITS);
        let position = self.position(at);
        let newest = self.newest_positions.get_mut(hash as usize)?;
        let previous = core::mem::replace(newest, position);
        *self.previous_positions.get_mut(position as usize % WINDOW_BYTES)? = previous;
        Some(previous)
    }

    #[allow(clippy::cast_possible_truncation)] // Only differences within the window matter.
    fn position(&self, at: usize) -> u32 {
        self.base.wrapping_add(at as u32)
    }
}

/// Returns how many bytes at `at` equal the bytes `distance` before them, at most [`MAX_COPY`].
fn common_length(src: &[u8], at: usize, distance: usize) -> usize {
    let current = src.get(at..).unwrap_or_default();
    let current = current.get(..MAX_COPY).unwrap_or(current);
    let earlier = src.get(at.wrapping_sub(distance)..).unwrap_or_default();
    let mut length = 0_usize;
    while let (Some(a), Some(b)) = (chunk::<8>(current, length), chunk::<8>(earlier, length)) {
        let different = u64::from_le_bytes(*a) ^ u64::from_le_bytes(*b);
        if different != 0 {
            return length.wrapping_add(different.trailing_zeros() as usize / 8);
        }
        length = length.wrapping_add(8);
    }
    let tails = current.iter().zip(earlier).skip(length);
    length.wrapping_add(tails.take_while(|(a, b)| a == b).count())
}

/// A stream under construction, and the positions in it that are filled later.
struct TokenWriter<'a> {
    out: &'a mut Vec<u8>,
    /// The flags so far, the first one highest.
    flags: u32,
    /// The number of flags so far: 0 to 31.
    count: u32,
    /// Offset of the current flag word.
    word_offset: usize,
    /// Offset of a byte whose high half is free.
    free_half: Option<usize>,
}

impl<'a> TokenWriter<'a> {
    fn new(out: &'a mut Vec<u8>) -> Self {
        let mut tokens = Self { out, flags: 0, count: 0, word_offset: 0, free_half: None };
        tokens.open_word();
        tokens
    }

    fn put_literal(&mut self, byte: u8) {
        self.out.put_u8(byte);
        self.put_flag(0);
    }

    #[allow(clippy::cast_possible_truncation)] // Each value is below the bound of its form.
    fn put_copy(&mut self, repetition: Repetition) {
        let stored = repetition.length.wrapping_sub(MIN_COPY);
        let distance = repetition.distance.wrapping_sub(1) << 3;
        self.out.put_u16((distance | stored.min(CODE_EXTENDED)) as u16);
        if let Some(more) = stored.checked_sub(CODE_EXTENDED) {
            self.put_half_byte(more.min(HALF_EXTENDED) as u8);
            if let Some(more) = more.checked_sub(HALF_EXTENDED) {
                self.out.put_u8(more.min(BYTE_EXTENDED) as u8);
                if more >= BYTE_EXTENDED {
                    self.out.put_u16(stored as u16);
                }
            }
        }
        self.put_flag(1);
    }

    fn put_half_byte(&mut self, value: u8) {
        match self.free_half.take().and_then(|at| self.out.get_mut(at)) {
            Some(byte) => *byte |= value << 4,
            None => {
                self.free_half = Some(self.out.len());
                self.out.put_u8(value);
            }
        }
    }

    fn put_flag(&mut self, flag: u32) {
        self.flags = self.flags << 1 | flag;
        self.count = self.count.wrapping_add(1);
        if self.count == u32::BITS {
            self.close_word();
            self.open_word();
        }
    }

    fn open_word(&mut self) {
        self.word_offset = self.out.len();
        self.out.put_u32(0);
        (self.flags, self.count) = (0, 0);
    }

    fn close_word(&mut self) {
        if let Some(word) = self.out.get_mut(self.word_offset..).and_then(|o| o.first_chunk_mut()) {
            *word = self.flags.to_le_bytes();
        }
    }

    fn finish(mut self) {
        let unused = u32::BITS.wrapping_sub(self.count);
        self.flags =
            (u64::from(self.flags).wrapping_shl(unused) | 1_u64.wrapping_shl(unused).wrapping_sub(1)) as u32;
        self.close_word();
    }
}
