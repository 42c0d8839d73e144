//! The compressor: finds repetitions with hash tables and writes them as tokens.
//!
//! ```text
//!   long_candidates[hash of 4 bytes]  ──▶ the two newest positions, the newest in the low half
//!   short_candidates[hash of 3 bytes] ──▶ the newest position at which a token started
//! ```
//!
//! Each position is first compared with the bytes at the distance of the last copy: events of the
//! same size repeat at the same distance. Then with the candidates of its hash. Positions are 16 bits
//! wide, eight times the window, so a distance computed from them is right or too large, or leads
//! to other bytes. Each candidate is compared byte by byte, so a wrong entry costs only time. The
//! tables are cleared for each input, so the same input always gives the same stream.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::{BYTE_EXTENDED, CODE_EXTENDED, HALF_EXTENDED, MIN_COPY, WINDOW_BYTES};
use crate::wire::{Put, chunk};

const LONG_HASH_BITS: u32 = 13;
const SHORT_HASH_BITS: u32 = 12;
/// Candidates of one hash of 4 bytes.
const CANDIDATES: usize = 2;
/// A repetition of this length is taken without searching for a longer one at the next byte.
const GOOD_LENGTH: usize = 10;
/// A repetition of this length at the last distance is taken without searching for a longer one.
const GOOD_LENGTH_AT_LAST_DISTANCE: usize = 8;
/// As many literals in a row without a repetition make the search skip one more position each time.
const MISSES_PER_SKIP: usize = 64;
/// The largest number of skipped positions.
const MAX_SKIP: usize = 8;
/// The longest copy that needs no 32-bit length. Longer repetitions become several copies, at
/// negligible cost.
const MAX_COPY: usize = 0xFFFF + MIN_COPY;

/// Compresses buffers one after the other with the same tables.
#[derive(Debug)]
pub struct Compressor {
    long_candidates: Box<[u32; 1 << LONG_HASH_BITS]>,
    short_candidates: Box<[u16; 1 << SHORT_HASH_BITS]>,
    last_distance: usize,
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
    /// Allocates the tables, about 40 KB.
    #[must_use]
    pub fn new() -> Self {
        Self {
            long_candidates: Box::new([0; 1 << LONG_HASH_BITS]),
            short_candidates: Box::new([0; 1 << SHORT_HASH_BITS]),
            last_distance: 1,
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
        out.reserve(src.len() / 2);
        self.clear();
        let mut tokens = TokenWriter::new(out);
        let mut at = 0_usize;
        let mut misses = 0_usize;
        let mut repetition = self.find_repetition(src, at);
        while let Some(&byte) = src.get(at) {
            if repetition.length < MIN_COPY {
                tokens.put_literal(byte);
                at = at.wrapping_add(1);
                misses = misses.wrapping_add(1);
                if misses >= MISSES_PER_SKIP {
                    let skip = misses.wrapping_div(MISSES_PER_SKIP).min(MAX_SKIP);
                    let skipped = src.get(at..).unwrap_or_default();
                    let skipped = skipped.get(..skip).unwrap_or(skipped);
                    skipped.iter().for_each(|&byte| tokens.put_literal(byte));
                    at = at.wrapping_add(skipped.len());
                }
                repetition = self.find_repetition(src, at);
                continue;
            }
            misses = 0;
            let mut first_inside = at.wrapping_add(1);
            if repetition.length < GOOD_LENGTH {
                let next = self.find_repetition(src, first_inside);
                // A literal followed by a longer repetition at the next byte gives a shorter stream.
                if next.length > repetition.length {
                    tokens.put_literal(byte);
                    at = first_inside;
                    repetition = next;
                    continue;
                }
                // The search for `next` has inserted its position already.
                first_inside = first_inside.wrapping_add(1);
            }
            tokens.put_copy(repetition);
            self.last_distance = repetition.distance;
            at = at.wrapping_add(repetition.length);
            self.insert_positions(src, first_inside, at);
            repetition = self.find_repetition(src, at);
        }
        tokens.finish();
    }

    fn clear(&mut self) {
        self.long_candidates.fill(0);
        self.short_candidates.fill(0);
        self.last_distance = 1;
    }

    /// Returns the longest repetition for the bytes at `at` among the candidates, and inserts the
    /// position into the tables. None is found for the last seven bytes.
    #[inline(always)]
    fn find_repetition(&mut self, src: &[u8], at: usize) -> Repetition {
        let mut best = Repetition::default();
        let Some(&bytes) = chunk::<4>(src, at) else { return best };
        let bytes = u32::from_le_bytes(bytes);
        let position = position_of(at);
        let Some(bucket) = self.long_candidates.get_mut(hash(bytes, LONG_HASH_BITS)) else { return best };
        let mut candidates = *bucket;
        *bucket = candidates << 16 | u32::from(position);
        let Some(newest) = self.short_candidates.get_mut(hash(bytes << 8, SHORT_HASH_BITS)) else {
            return best;
        };
        let short = core::mem::replace(newest, position);
        let Some(current) = chunk::<8>(src, at) else { return best };
        let current = u64::from_le_bytes(*current);
        // Compares eight bytes without a branch, and more only if they are equal.
        let measure = |distance: usize| {
            let earlier =
                chunk::<8>(src, at.wrapping_sub(distance)).map_or(!current, |e| u64::from_le_bytes(*e));
            match current ^ earlier {
                0 => common_length(src, at, distance),
                different => different.trailing_zeros() as usize / 8,
            }
        };
        if self.last_distance <= at {
            let length = measure(self.last_distance);
            best = Repetition { length, distance: self.last_distance };
            if length >= GOOD_LENGTH_AT_LAST_DISTANCE {
                return best;
            }
        }
        for _ in 0..CANDIDATES {
            let distance = usize::from(position.wrapping_sub(candidates as u16));
            candidates >>= 16;
            if distance.wrapping_sub(1) >= WINDOW_BYTES {
                continue;
            }
            let length = measure(distance);
            if length > best.length {
                best = Repetition { length, distance };
            }
        }
        if best.length < MIN_COPY {
            let distance = usize::from(position.wrapping_sub(short));
            if distance.wrapping_sub(1) < WINDOW_BYTES {
                best = Repetition { length: measure(distance), distance };
            }
        }
        best
    }

    /// Inserts every second position inside a copy, which costs little of the ratio.
    #[inline(always)]
    fn insert_positions(&mut self, src: &[u8], from: usize, to: usize) {
        let mut at = from;
        while at < to {
            let Some(&bytes) = chunk::<4>(src, at) else { break };
            if let Some(bucket) =
                self.long_candidates.get_mut(hash(u32::from_le_bytes(bytes), LONG_HASH_BITS))
            {
                *bucket = *bucket << 16 | u32::from(position_of(at));
            }
            at = at.wrapping_add(2);
        }
    }
}

#[inline(always)]
fn hash(bytes: u32, bits: u32) -> usize {
    bytes.wrapping_mul(0x9E37_79B1).wrapping_shr(u32::BITS.wrapping_sub(bits)) as usize
}

#[inline(always)]
#[allow(clippy::cast_possible_truncation)] // Only differences within the window matter.
fn position_of(at: usize) -> u16 {
    at as u16
}

/// Returns how many bytes at `at` equal the bytes `distance` before them, at most [`MAX_COPY`].
#[inline(always)]
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
