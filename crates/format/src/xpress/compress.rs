//! The compressor: finds repetitions with hash tables and writes them as tokens.
//!
//! ```text
//!   long_candidates[hash of 4 bytes]  ──▶ the two newest positions, the newest in the low half
//!   short_candidates[hash of 3 bytes] ──▶ the newest position at which a token started
//! ```
//!
//! Each position is first compared with the bytes at the distance of the last copy: events of the
//! same size repeat at the same distance. Then with the candidates of its hashes. Positions are 16
//! bits wide, eight times the window, so a distance computed from them is right or too large, or
//! leads to other bytes. Each candidate is compared by its bytes, so a wrong entry costs only time. The
//! tables are cleared for each input, so the same input always gives the same stream.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::{BYTE_EXTENDED, CODE_EXTENDED, HALF_EXTENDED, MIN_COPY, WINDOW_BYTES};
use crate::wire::chunk;

const LONG_HASH_BITS: u32 = 12;
const SHORT_HASH_BITS: u32 = 12;
/// Prefers the last distance to others of the same length.
const IS_LAST_DISTANCE: u64 = 1 << 31;
/// A repetition of this length is taken without searching for a longer one at the next byte.
const GOOD_LENGTH: usize = 9;
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
    /// Allocates the tables, 24 KB.
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
        // No stream is longer: a flag word for each 32 literals, the last one, and slack.
        out.resize(src.len().saturating_add(src.len() / 8).saturating_add(SLACK_BYTES), 0);
        self.clear();
        let mut tokens = TokenWriter::new(out.as_mut_slice());
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
        let length = tokens.finish();
        out.truncate(length);
    }

    fn clear(&mut self) {
        self.long_candidates.fill(0);
        self.short_candidates.fill(0);
        self.last_distance = 1;
    }

    /// Returns the longest repetition for the bytes at `at` among the candidates, and inserts the
    /// position into the tables. None is found for the last seven bytes.
    ///
    /// All candidates are compared by eight bytes, and the best is chosen without a branch: data
    /// decides about these branches, so the processor could not predict them. Of several equal
    /// ones the last distance is the best, then the nearest.
    #[inline(always)]
    fn find_repetition(&mut self, src: &[u8], at: usize) -> Repetition {
        let Some(current) = chunk::<8>(src, at) else { return Repetition::default() };
        let current = u64::from_le_bytes(*current);
        let position = position_of(at);
        let bytes = current as u32;
        let Some(bucket) = self.long_candidates.get_mut(hash(bytes, LONG_HASH_BITS)) else {
            return Repetition::default();
        };
        let candidates = *bucket;
        *bucket = candidates << 16 | u32::from(position);
        let Some(newest) = self.short_candidates.get_mut(hash(bytes << 8, SHORT_HASH_BITS)) else {
            return Repetition::default();
        };
        let short = core::mem::replace(newest, position);
        // The bytes that are equal, at most 8; after them, nearer distances are larger numbers.
        let rate = |distance: usize| {
            let is_near = u64::from(distance.wrapping_sub(1) < WINDOW_BYTES);
            let earlier = chunk::<8>(src, at.wrapping_sub(distance));
            let earlier = earlier.map_or(!current, |e| u64::from_le_bytes(*e));
            let length = u64::from((current ^ earlier).trailing_zeros() / 8);
            (length & 0_u64.wrapping_sub(is_near)) << 32 | 0xFFFF_u64.wrapping_sub(distance as u64)
        };
        let mut best = rate(self.last_distance) | IS_LAST_DISTANCE;
        if best >> 32 < 8 {
            for earlier in [candidates as u16, (candidates >> 16) as u16, short] {
                best = best.max(rate(usize::from(position.wrapping_sub(earlier))));
            }
        }
        let distance = 0xFFFF_usize.wrapping_sub(best as usize & 0xFFFF);
        let mut length = (best >> 32) as usize;
        if length == 8 {
            length = length.wrapping_add(common_length(src, at.wrapping_add(8), distance));
        }
        Repetition { length, distance }
    }

    /// Inserts every second position inside a copy, and at most 9 positions of a long one, which costs
    /// little of the ratio.
    #[inline(always)]
    fn insert_positions(&mut self, src: &[u8], from: usize, to: usize) {
        let mut at = from;
        let step = to.wrapping_sub(from).wrapping_div(8).max(2);
        while at < to {
            let Some(&bytes) = chunk::<4>(src, at) else { break };
            if let Some(bucket) =
                self.long_candidates.get_mut(hash(u32::from_le_bytes(bytes), LONG_HASH_BITS))
            {
                *bucket = *bucket << 16 | u32::from(position_of(at));
            }
            at = at.wrapping_add(step);
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

/// Returns how many bytes at `at`, after eight equal ones, equal the bytes `distance` before them.
/// Returns at most [`MAX_COPY`] - 8.
#[inline(always)]
fn common_length(src: &[u8], at: usize, distance: usize) -> usize {
    let current = src.get(at..).unwrap_or_default();
    let current = current.get(..MAX_COPY - 8).unwrap_or(current);
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

/// Bytes after the longest stream, so that writes of fixed sizes fit.
const SLACK_BYTES: usize = 16;

/// A stream under construction, and the positions in it that are filled later.
///
/// `out` is long enough for every stream.
struct TokenWriter<'a> {
    out: &'a mut [u8],
    /// Offset of the next byte.
    at: usize,
    /// A bit 1, then the flags so far. The bit is shifted out when the word is full.
    flags: u32,
    /// Offset of the current flag word.
    word_offset: usize,
    /// Offset of a byte whose high half is free.
    free_half: Option<usize>,
}

impl<'a> TokenWriter<'a> {
    fn new(out: &'a mut [u8]) -> Self {
        let mut tokens = Self { out, at: 0, flags: 1, word_offset: 0, free_half: None };
        tokens.put([0; 4]);
        tokens
    }

    #[inline(always)]
    fn put_literal(&mut self, byte: u8) {
        self.put([byte]);
        self.put_flag(0);
    }

    #[inline(always)]
    #[allow(clippy::cast_possible_truncation)] // Each value is below the bound of its form.
    fn put_copy(&mut self, repetition: Repetition) {
        let stored = repetition.length.wrapping_sub(MIN_COPY);
        let distance = repetition.distance.wrapping_sub(1) << 3;
        self.put(((distance | stored.min(CODE_EXTENDED)) as u16).to_le_bytes());
        if let Some(more) = stored.checked_sub(CODE_EXTENDED) {
            self.put_half_byte(more.min(HALF_EXTENDED) as u8);
            if let Some(more) = more.checked_sub(HALF_EXTENDED) {
                self.put([more.min(BYTE_EXTENDED) as u8]);
                if more >= BYTE_EXTENDED {
                    self.put((stored as u16).to_le_bytes());
                }
            }
        }
        self.put_flag(1);
    }

    #[inline(always)]
    fn put_half_byte(&mut self, value: u8) {
        match self.free_half.take().and_then(|at| self.out.get_mut(at)) {
            Some(byte) => *byte |= value << 4,
            None => {
                self.free_half = Some(self.at);
                self.put([value]);
            }
        }
    }

    #[inline(always)]
    fn put_flag(&mut self, flag: u32) {
        let is_full = self.flags >> 31 != 0;
        self.flags = self.flags << 1 | flag;
        if is_full {
            self.fill_word();
            self.word_offset = self.at;
            self.put([0; 4]);
            self.flags = 1;
        }
    }

    #[inline(always)]
    fn put<const N: usize>(&mut self, bytes: [u8; N]) {
        if let Some(to) = self.out.get_mut(self.at..).and_then(|o| o.first_chunk_mut()) {
            *to = bytes;
        }
        self.at = self.at.wrapping_add(N);
    }

    fn fill_word(&mut self) {
        if let Some(word) = self.out.get_mut(self.word_offset..).and_then(|o| o.first_chunk_mut()) {
            *word = self.flags.to_le_bytes();
        }
    }

    /// Returns the length of the stream.
    fn finish(mut self) -> usize {
        // The bit 1 and the unused bits after it become ones after the flags.
        let unused = self.flags.leading_zeros();
        let ones = 1_u64.wrapping_shl(unused.wrapping_add(1)).wrapping_sub(1);
        self.flags = (u64::from(self.flags).wrapping_shl(unused.wrapping_add(1)) | ones) as u32;
        self.fill_word();
        self.at
    }
}
