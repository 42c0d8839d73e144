//! Compression and decompression of trace buffers: plain LZ77 of the Xpress family.
//!
//! A stream is a sequence of groups. Each group is a flag word and up to 32 tokens, one for each
//! flag from the most significant bit down:
//!
//! ```text
//! ┌─ u32 flags ─┬─ token ─┬─ token ─┬ … 32 ┬─ u32 flags ─┬ …
//!
//! flag 0   literal   u8   the byte itself
//! flag 1   copy      u16  bits 0-2 length code, bits 3-15 distance - 1    (1 to 8192 bytes back)
//!
//! length - 3     stored as                            (longer forms follow the u16 in this order)
//!   0 ..   6     code
//!   7 ..  21     code 7, half byte  0-14
//!  22 .. 276     code 7, half byte 15, u8 0-254 = (length - 3) - 22
//!  277 ..        code 7, half byte 15, u8 255, u16 length - 3; if that u16 is 0, u32 length - 3
//! ```
//!
//! Half bytes come in pairs: the first copy that needs one adds a byte and uses its low half; the
//! next such copy, maybe many tokens later, uses the high half of that same byte. A copy may reach
//! into its own output, which repeats it.
//!
//! Unused flags of the last word are 1, and a flag word is written even if no token follows it. A
//! reader that does not know the length stops at a flag 1 with nothing after it. A trace buffer
//! states its length elsewhere, so [`decompress`] stops there and ignores the remaining bytes.
//!
//! All input is hostile. Output never exceeds the limit, and memory grows with the bytes really
//! produced; a defect is an error at an offset of the stream, and the bytes decoded before it stay
//! in the output.
//!
//! Source: Documented ("\[MS-XCA\]: Xpress Compression Algorithm", plain LZ77). Observed: every
//! compressed buffer of merged traces decodes to its stated length and uses its stream to the last
//! byte.

mod compress;
#[cfg(test)]
mod tests;

use alloc::vec::Vec;

pub use compress::Compressor;

use crate::wire::chunk;
use crate::{Error, Result};

/// The length of the shortest copy.
const MIN_COPY: usize = 3;
/// The largest distance of a copy.
const WINDOW: usize = 8192;
/// The first length code that announces further bytes; smaller codes are `length - 3` itself.
const CODE_MORE: usize = 7;
/// The half byte that announces a further byte.
const HALF_MORE: usize = 15;
/// The smallest `length - 3` that does not fit a half byte.
const LONG_MIN: usize = CODE_MORE + HALF_MORE;
/// The byte that announces a further word.
const BYTE_MORE: usize = 255;

/// Output grows by at least this many bytes, and by no more before there is something to write.
const GROWTH: usize = 64 << 10;
/// Literals copied at once, as many as one flag word can hold.
const STRIDE: usize = 32;
/// Bytes of a copy moved at once.
const HALF_STRIDE: usize = STRIDE / 2;
/// Room after the output that the fast path needs. It writes surplus bytes there, which the next
/// token overwrites.
const ROOM: usize = STRIDE + HALF_STRIDE;

/// Decodes `src` into `out`, which is cleared first, until `limit` bytes are decoded.
///
/// Fewer bytes are an error, and so is a copy that reaches before the first byte or past `limit`.
/// After an error, `out` holds the bytes decoded up to the defect.
///
/// ```
/// # use traceweir_format::xpress;
/// let stream = [0xff, 0xff, 0xff, 0x1f, 0x61, 0x62, 0x63, 0x17, 0x00, 0x0f, 0xff, 0x26, 0x01];
/// let mut out = Vec::new();
/// xpress::decompress(&stream, 300, &mut out)?;
/// assert_eq!(out, b"abc".repeat(100));
/// # Ok::<(), traceweir_format::Error>(())
/// ```
pub fn decompress(src: &[u8], limit: usize, out: &mut Vec<u8>) -> Result<()> {
    decompress_prefix(src, limit, limit, out)
}

/// Like [`decompress`], but stops once `want` bytes are decoded: enough to inspect the start of a
/// buffer at little cost.
///
/// `out` may hold some bytes more than `want`, because the last token is decoded whole, but never
/// more than `limit`.
pub fn decompress_prefix(src: &[u8], want: usize, limit: usize, out: &mut Vec<u8>) -> Result<()> {
    out.clear();
    let mut decoder = Decoder { src, at: 0, flags: END, half: None, out, done: 0, limit };
    let result = decoder.run(want.min(limit));
    let done = decoder.done;
    out.truncate(done);
    result
}

const WHAT: &str = "compressed buffer";

/// Marks the end of a flag word: when it reaches the top bit, the word is used up.
const END: u64 = 1 << 63;

fn flag_word(bytes: [u8; 4]) -> u64 {
    u64::from(u32::from_le_bytes(bytes)) << 32 | END >> 32
}

/// The state of decoding: [`token`](Self::token) decodes one token with all checks,
/// [`sprint`](Self::sprint) decodes many while there is room to spare on all sides, and leaves
/// every special case to the former.
///
/// `out` is longer than what is `done`, but never longer than `limit`.
struct Decoder<'a> {
    src: &'a [u8],
    /// Offset of the next byte of `src`.
    at: usize,
    /// The remaining flags, highest first, then [`END`].
    flags: u64,
    /// The high half of the last byte of half bytes, until it is used.
    half: Option<u8>,
    out: &'a mut Vec<u8>,
    done: usize,
    limit: usize,
}

impl Decoder<'_> {
    fn run(&mut self, stop: usize) -> Result<()> {
        while self.done < stop {
            self.sprint(stop);
            if self.done < stop {
                self.token()?;
            }
        }
        Ok(())
    }

    /// Decodes one token, and the flag word before it if there is one.
    fn token(&mut self) -> Result<()> {
        if self.flags == END {
            self.flags = flag_word(self.read_array()?);
        }
        if self.flags & END != 0 {
            self.copy()?;
        } else {
            let [byte] = self.read_array()?;
            self.make_room(1);
            if let Some(to) = self.out.get_mut(self.done) {
                *to = byte;
            }
            self.done = self.done.saturating_add(1);
        }
        self.flags <<= 1;
        Ok(())
    }

    fn copy(&mut self) -> Result<()> {
        let start = self.at;
        let token = usize::from(u16::from_le_bytes(self.read_array()?));
        let length = match token & CODE_MORE {
            CODE_MORE => self.long_length()?,
            short => short,
        };
        let length = length.saturating_add(MIN_COPY);
        let Some(from) = self.done.checked_sub((token >> 3).saturating_add(1)) else {
            return Err(Error::Invalid {
                what: WHAT,
                offset: start as u64,
                reason: "copy from before the first byte",
            });
        };
        if length > self.limit.saturating_sub(self.done) {
            return Err(Error::Invalid {
                what: WHAT,
                offset: start as u64,
                reason: "copy past the stated length",
            });
        }
        self.make_room(length);
        repeat(self.out, from, self.done, length);
        self.done = self.done.saturating_add(length);
        Ok(())
    }

    /// Returns the `length - 3` of a copy whose code announces further bytes.
    fn long_length(&mut self) -> Result<usize> {
        let half = match self.half.take() {
            Some(high) => high,
            None => {
                let [byte] = self.read_array()?;
                self.half = Some(byte >> 4);
                byte & 15
            }
        };
        if usize::from(half) != HALF_MORE {
            return Ok(usize::from(half).saturating_add(CODE_MORE));
        }
        let [byte] = self.read_array()?;
        if usize::from(byte) != BYTE_MORE {
            return Ok(usize::from(byte).saturating_add(LONG_MIN));
        }
        let offset = self.at as u64;
        let length = match u16::from_le_bytes(self.read_array()?) {
            0 => u32::from_le_bytes(self.read_array()?) as usize,
            short => usize::from(short),
        };
        if length < LONG_MIN {
            return Err(Error::Invalid { what: WHAT, offset, reason: "long form of a short length" });
        }
        Ok(length)
    }

    fn read_array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let available = self.src.len().saturating_sub(self.at) as u64;
        let bytes = chunk(self.src, self.at);
        let &bytes = bytes.ok_or(Error::Truncated {
            what: WHAT,
            offset: self.at as u64,
            needed: N as u64,
            available,
        })?;
        self.at = self.at.saturating_add(N);
        Ok(bytes)
    }

    /// Grows the output so that `n` more bytes fit, which the limit allows.
    fn make_room(&mut self, n: usize) {
        let needed = self.done.saturating_add(n);
        if self.out.len() < needed.saturating_add(ROOM) {
            let ample = self.out.len().saturating_mul(2).max(GROWTH);
            self.out.resize(ample.max(needed).min(self.limit), 0);
        }
    }

    /// Decodes until `stop`, or up to a token that needs a special case.
    ///
    /// The state is kept in locals, because the compiler cannot know that the output does not
    /// overlap `self`; a position moves only after its token is complete. Sums cannot overflow,
    /// because each is bounded by the length of a slice and a small number.
    fn sprint(&mut self, stop: usize) {
        let (src, out) = (self.src, self.out.as_mut_slice());
        let (mut at, mut done, mut flags) = (self.at, self.done, self.flags);
        while done < stop {
            if flags == END {
                let Some(word) = chunk(src, at) else { break };
                flags = flag_word(*word);
                at = at.wrapping_add(4);
            }
            // The run may be empty: copying nothing is cheaper than branching on it.
            let literals = flags.leading_zeros();
            let to = out.get_mut(done..).and_then(|o| o.first_chunk_mut::<STRIDE>());
            let (Some(from), Some(to)) = (chunk::<STRIDE>(src, at), to) else { break };
            *to = *from;
            at = at.wrapping_add(literals as usize);
            done = done.wrapping_add(literals as usize);
            flags = flags.wrapping_shl(literals);
            if flags == END || done >= stop {
                continue;
            }
            let Some(token) = chunk(src, at) else { break };
            let token = usize::from(u16::from_le_bytes(*token));
            let mut next = at.wrapping_add(2);
            let mut half = self.half;
            let mut length = (token & CODE_MORE).wrapping_add(MIN_COPY);
            if token & CODE_MORE == CODE_MORE {
                let Some(more) = short_half(src, &mut next, &mut half) else { break };
                length = length.wrapping_add(more);
            }
            if !short_copy(out, done, (token >> 3).wrapping_add(1), length) {
                break;
            }
            (at, self.half) = (next, half);
            done = done.wrapping_add(length);
            flags <<= 1;
        }
        (self.at, self.done, self.flags) = (at, done, flags);
    }
}

/// Returns the half byte of a copy, unless it announces a further byte.
#[inline(always)]
fn short_half(src: &[u8], at: &mut usize, half: &mut Option<u8>) -> Option<usize> {
    let value = match half.take() {
        Some(high) => high,
        None => {
            let byte = *src.get(*at)?;
            *at = at.wrapping_add(1);
            *half = Some(byte >> 4);
            byte & 15
        }
    };
    Some(usize::from(value)).filter(|&v| v != HALF_MORE)
}

/// Copies at most 32 bytes and may write more; false if there is no room or the distance is too
/// large.
#[inline(always)]
fn short_copy(out: &mut [u8], done: usize, distance: usize, length: usize) -> bool {
    let from = done.wrapping_sub(distance);
    let Some(window) = out.get_mut(from..done.wrapping_add(ROOM)) else {
        return false;
    };
    if distance >= HALF_STRIDE {
        // One half after the other: the second may read bytes that the first wrote.
        move_half(window, 0, distance);
        move_half(window, HALF_STRIDE, distance.wrapping_add(HALF_STRIDE));
    } else {
        repeat_pattern(window, distance, length);
    }
    true
}

#[inline(always)]
fn move_half(window: &mut [u8], from: usize, to: usize) {
    let half = chunk::<HALF_STRIDE>(window, from).copied();
    let to = window.get_mut(to..).and_then(|w| w.first_chunk_mut());
    if let (Some(half), Some(to)) = (half, to) {
        *to = half;
    }
}

/// Repeats the first `distance` bytes of the window, fewer than 16, for at least `length` bytes.
#[inline(always)]
fn repeat_pattern(window: &mut [u8], distance: usize, length: usize) {
    let bits = distance.wrapping_mul(8) as u32;
    let first = chunk::<HALF_STRIDE>(window, 0).map_or(0, |h| u128::from_le_bytes(*h));
    let mut pattern = first & u128::MAX.wrapping_shr(u128::BITS.wrapping_sub(bits));
    let mut filled = bits;
    while filled < u128::BITS {
        pattern |= pattern.wrapping_shl(filled);
        filled = filled.wrapping_mul(2);
    }
    // The next half must begin where the pattern begins.
    let step = HALF_STRIDE.wrapping_sub(HALF_STRIDE.checked_rem(distance).unwrap_or(0));
    let mut at = 0_usize;
    while at < length {
        if let Some(to) = window.get_mut(distance.wrapping_add(at)..).and_then(|w| w.first_chunk_mut()) {
            *to = pattern.to_le_bytes();
        }
        at = at.wrapping_add(step);
    }
}

/// Copies any length with any overlap; `out` has room for it. Copied bytes serve as source again,
/// so the steps double.
fn repeat(out: &mut [u8], from: usize, to: usize, length: usize) {
    let end = to.saturating_add(length);
    let mut done = to;
    while done < end {
        let step = done.saturating_sub(from).min(end.saturating_sub(done));
        out.copy_within(from..from.saturating_add(step), done);
        done = done.saturating_add(step);
    }
}
