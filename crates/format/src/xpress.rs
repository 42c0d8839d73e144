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
//!  277 ..        code 7, half byte 15, u8 255, u16 length - 3; if this u16 is 0, u32 length - 3
//! ```
//!
//! Half bytes come in pairs: the first copy that needs a half byte adds a byte and uses its low
//! half; the next copy that needs one, maybe many tokens later, uses the high half of this byte. A
//! copy may overlap its output, which repeats the bytes.
//!
//! Unused flags of the last word are 1, and a flag word is written even if no token follows it. A
//! reader that does not know the length stops at a flag 1 with nothing after it. The header of a
//! trace buffer states the length, so [`decompress`] stops at this length and ignores the remaining
//! bytes.
//!
//! All input is hostile. Output never exceeds the stated length, and memory grows with the bytes
//! really produced; a defect is an error at an offset of the stream, and the bytes decoded before
//! it stay in the output.
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
const WINDOW_BYTES: usize = 8192;
/// The length code that announces further bytes; smaller codes are `length - 3`.
const CODE_EXTENDED: usize = 7;
/// The half byte that announces a further byte.
const HALF_EXTENDED: usize = 15;
/// The smallest `length - 3` that does not fit a half byte.
const MIN_LONG_LENGTH: usize = CODE_EXTENDED + HALF_EXTENDED;
/// The byte that announces a further word.
const BYTE_EXTENDED: usize = 255;

/// The size of the output after it first grows, unless the stated length is smaller. It doubles
/// later.
const MIN_GROWTH_BYTES: usize = 64 << 10;
/// Literals copied at once, as many as one flag word can hold.
const STRIDE_BYTES: usize = 32;
/// Bytes of a copy moved at once.
const HALF_STRIDE_BYTES: usize = STRIDE_BYTES / 2;
/// Bytes after the output that the fast path needs. It writes surplus bytes there, which the next
/// token overwrites: those of literals, and those of a copy.
const SLACK_BYTES: usize = 2 * STRIDE_BYTES;
/// Bytes of the stream that the fast path needs: as many literals as the compiler takes for possible
/// (the zeros of 64 bits), and the longest form of a copy except for the one with a 32-bit length.
/// So no literal needs a check.
const INPUT_BYTES: usize = u64::BITS as usize + 8;

/// Decodes `src` into `out`, which is cleared first, until exactly `length` bytes are decoded.
///
/// Fewer bytes are an error, and so is a copy that reaches before the first byte or past `length`.
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
pub fn decompress(src: &[u8], length: usize, out: &mut Vec<u8>) -> Result<()> {
    decompress_prefix(src, length, length, out)
}

/// Like [`decompress`], but stops once `wanted_bytes` bytes are decoded: enough to inspect the
/// start of a buffer at little cost.
///
/// `out` may hold some bytes more than `wanted_bytes`, because the last token is decoded
/// completely, but never more than `length`.
pub fn decompress_prefix(src: &[u8], wanted_bytes: usize, length: usize, out: &mut Vec<u8>) -> Result<()> {
    // Old bytes are overwritten, not cleared: this saves filling the output with zeros.
    out.truncate(length);
    let mut decoder = XpressDecoder {
        src,
        at: 0,
        flags: END_OF_FLAGS,
        high_half: None,
        out,
        written: 0,
        output_length: length,
    };
    let result = decoder.decode_until(wanted_bytes.min(length));
    let written = decoder.written;
    out.truncate(written);
    result
}

const WHAT: &str = "compressed buffer";

/// Marks the end of a flag word: when it reaches the top bit, the word is used up.
const END_OF_FLAGS: u64 = 1 << 63;

/// Returns the flags of a flag word, highest first, then [`END_OF_FLAGS`].
fn load_flags(bytes: [u8; 4]) -> u64 {
    u64::from(u32::from_le_bytes(bytes)) << 32 | END_OF_FLAGS >> 32
}

/// The state of decoding. [`decode_token`](Self::decode_token) decodes one token with all checks.
/// [`decode_fast`](Self::decode_fast) decodes many tokens while input and output have spare bytes,
/// and leaves every special case to `decode_token`.
///
/// `out` has at least the `written` bytes and at most `output_length` bytes.
struct XpressDecoder<'a> {
    src: &'a [u8],
    /// Offset of the next byte of `src`.
    at: usize,
    /// The remaining flags, highest first, then [`END_OF_FLAGS`].
    flags: u64,
    /// The high half of the last byte of half bytes, until it is used.
    high_half: Option<u8>,
    out: &'a mut Vec<u8>,
    written: usize,
    /// The length that the caller states for the complete output.
    output_length: usize,
}

impl XpressDecoder<'_> {
    fn decode_until(&mut self, stop: usize) -> Result<()> {
        while self.written < stop {
            self.decode_fast(stop);
            if self.written < stop {
                self.decode_token()?;
            }
        }
        Ok(())
    }

    /// Decodes one token, and the flag word before it if there is one.
    fn decode_token(&mut self) -> Result<()> {
        if self.flags == END_OF_FLAGS {
            self.flags = load_flags(self.read_array()?);
        }
        if self.flags & END_OF_FLAGS != 0 {
            self.decode_copy()?;
        } else {
            let [byte] = self.read_array()?;
            self.grow_output(1);
            if let Some(to) = self.out.get_mut(self.written) {
                *to = byte;
            }
            self.written = self.written.saturating_add(1);
        }
        self.flags <<= 1;
        Ok(())
    }

    fn decode_copy(&mut self) -> Result<()> {
        let start = self.at;
        let token = usize::from(u16::from_le_bytes(self.read_array()?));
        let length = match token & CODE_EXTENDED {
            CODE_EXTENDED => self.read_long_length()?,
            short => short,
        };
        let length = length.saturating_add(MIN_COPY);
        let Some(from) = self.written.checked_sub((token >> 3).saturating_add(1)) else {
            return Err(Error::Invalid {
                what: WHAT,
                offset: start as u64,
                reason: "copy from before the first byte",
            });
        };
        if length > self.output_length.saturating_sub(self.written) {
            return Err(Error::Invalid {
                what: WHAT,
                offset: start as u64,
                reason: "copy past the stated length",
            });
        }
        self.grow_output(length);
        copy_overlapping(self.out, from, self.written, length);
        self.written = self.written.saturating_add(length);
        Ok(())
    }

    /// Returns the `length - 3` of a copy whose code announces further bytes.
    fn read_long_length(&mut self) -> Result<usize> {
        let half = match self.high_half.take() {
            Some(high) => high,
            None => {
                let [byte] = self.read_array()?;
                self.high_half = Some(byte >> 4);
                byte & 15
            }
        };
        if usize::from(half) != HALF_EXTENDED {
            return Ok(usize::from(half).saturating_add(CODE_EXTENDED));
        }
        let [byte] = self.read_array()?;
        if usize::from(byte) != BYTE_EXTENDED {
            return Ok(usize::from(byte).saturating_add(MIN_LONG_LENGTH));
        }
        let offset = self.at as u64;
        let length = match u16::from_le_bytes(self.read_array()?) {
            0 => u32::from_le_bytes(self.read_array()?) as usize,
            short => usize::from(short),
        };
        if length < MIN_LONG_LENGTH {
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

    /// Grows the output so that `n` more bytes fit. The caller has checked that they stay within
    /// `output_length`.
    fn grow_output(&mut self, n: usize) {
        let needed = self.written.saturating_add(n);
        if self.out.len() < needed.saturating_add(SLACK_BYTES) {
            let doubled = self.out.len().saturating_mul(2).max(MIN_GROWTH_BYTES);
            self.out.resize(doubled.max(needed).min(self.output_length), 0);
        }
    }

    /// Decodes many tokens, up to a token that needs a special case or to the last bytes before
    /// `stop`.
    fn decode_fast(&mut self, stop: usize) {
        let Some(src) = self.src.get(self.at..) else { return };
        let usable = self.out.len().min(stop);
        let Some(out) = self.out.get_mut(..usable) else { return };
        let pending_half = self.high_half.map_or(0, |high| usize::from(high) | PENDING);
        let state = FastState { src, written: self.written, flags: self.flags, pending_half };
        let state = decode_loop(out, state);
        self.at = self.src.len().wrapping_sub(state.src.len());
        (self.written, self.flags) = (state.written, state.flags);
        self.high_half = (state.pending_half != 0).then_some(state.pending_half as u8 & 15);
    }
}

/// The state of [`decode_loop`], which keeps it in registers.
struct FastState<'a> {
    /// The stream from the next byte.
    src: &'a [u8],
    written: usize,
    flags: u64,
    /// A half byte and [`PENDING`], or 0.
    pending_half: usize,
}

/// Decodes tokens while stream and output have spare bytes.
///
/// A round decodes the literals before a copy and this copy, and changes the state only if both are
/// complete. Sums cannot overflow, because each is bounded by the length of a slice and a small
/// number.
///
/// A round of 4 ns lets every instruction count. Short copies move 16 bytes and have an end of
/// their own, others move 32. [`copy_any`] makes the rare ones: a loop in here would take registers
/// from the usual rounds.
#[inline(never)]
fn decode_loop<'a>(out: &mut [u8], state: FastState<'a>) -> FastState<'a> {
    let FastState { mut src, mut written, mut flags, mut pending_half } = state;
    while let Some(input) = src.first_chunk::<INPUT_BYTES>() {
        let to = out.get_mut(written..).and_then(|o| o.first_chunk_mut::<SLACK_BYTES>());
        let Some(to) = to else { break };
        // The number of literals may be 0: copying anyway is cheaper than a branch.
        let literals = flags.leading_zeros() as usize;
        copy_half(input, to, 0);
        if literals > HALF_STRIDE_BYTES {
            copy_half(input, to, HALF_STRIDE_BYTES);
        }
        let Some(bytes) = chunk(input, literals) else { break };
        let bytes = u64::from_le_bytes(*bytes);
        let copy_flags = flags.wrapping_shl(literals as u32);
        let at = written.wrapping_add(literals);
        if copy_flags == END_OF_FLAGS {
            let Some(rest) = src.get(literals.wrapping_add(4)..) else { break };
            (src, written) = (rest, at);
            flags = bytes << 32 | END_OF_FLAGS >> 32;
            continue;
        }
        let distance = (bytes as usize >> 3 & 0x1FFF).wrapping_add(1);
        let code = bytes as usize & CODE_EXTENDED;
        let mut length = code.wrapping_add(MIN_COPY);
        if code != CODE_EXTENDED {
            if length > distance {
                if !copy_any(out, at, distance, length) {
                    break;
                }
            } else if !move_half(out, at, distance) {
                break;
            }
            let Some(rest) = src.get(literals.wrapping_add(2)..) else { break };
            (src, written) = (rest, at.wrapping_add(length));
            flags = copy_flags << 1;
            continue;
        }
        let byte = (bytes >> 16) as usize & 0xFF;
        let is_pending = pending_half != 0;
        let half = if is_pending { pending_half } else { byte } & 15;
        let mut size = if is_pending { 2 } else { 3 };
        length = length.wrapping_add(half);
        if half == HALF_EXTENDED {
            let Some(long) = read_length(bytes, &mut size) else { break };
            length = long;
        }
        if length > STRIDE_BYTES || length.min(HALF_STRIDE_BYTES) > distance {
            if !copy_any(out, at, distance, length) {
                break;
            }
        } else if !move_stride(out, at, distance) {
            break;
        }
        let Some(rest) = src.get(literals.wrapping_add(size)..) else { break };
        (src, written) = (rest, at.wrapping_add(length));
        pending_half = if is_pending { 0 } else { byte >> 4 | PENDING };
        flags = copy_flags << 1;
    }
    FastState { src, written, flags, pending_half }
}

/// Makes a copy of any length and distance. Returns false, and may have written beyond `at`, if the
/// copy and the slack after it are not within the output.
#[inline(never)]
fn copy_any(out: &mut [u8], at: usize, distance: usize, length: usize) -> bool {
    let end = at.wrapping_add(length);
    if distance > at || end.wrapping_add(STRIDE_BYTES) > out.len() {
        return false;
    }
    if distance < HALF_STRIDE_BYTES {
        repeat_pattern(out, at.wrapping_sub(distance), at, length);
        return true;
    }
    let mut to = at;
    while to < end && move_stride(out, to, distance) {
        to = to.wrapping_add(STRIDE_BYTES);
    }
    to >= end
}

/// Marks a half byte that no copy has used yet.
const PENDING: usize = 16;

/// Returns the length of a copy whose half byte announces a further byte, which is the byte `size`
/// of `bytes`; `size` moves past it. Returns `None` for a 32-bit length and for a defect.
#[inline(always)]
fn read_length(bytes: u64, size: &mut usize) -> Option<usize> {
    let rest = bytes.wrapping_shr((*size as u32).wrapping_mul(8)) as usize;
    let byte = rest & 0xFF;
    *size = size.wrapping_add(1);
    if byte != BYTE_EXTENDED {
        return Some(byte.wrapping_add(MIN_LONG_LENGTH + MIN_COPY));
    }
    *size = size.wrapping_add(2);
    let length = rest >> 8 & 0xFFFF;
    (length >= MIN_LONG_LENGTH).then_some(length.wrapping_add(MIN_COPY))
}

/// Copies 16 bytes at the same offset.
#[inline(always)]
fn copy_half(from: &[u8; INPUT_BYTES], to: &mut [u8; SLACK_BYTES], offset: usize) {
    let to = to.get_mut(offset..).and_then(|t| t.first_chunk_mut::<HALF_STRIDE_BYTES>());
    if let (Some(from), Some(to)) = (chunk(from, offset), to) {
        *to = *from;
    }
}

/// Moves 32 bytes from `distance` bytes before `to`, one half after the other: the second half may
/// be a copy of the first. Returns false if they are not within the output.
#[inline(always)]
fn move_stride(out: &mut [u8], to: usize, distance: usize) -> bool {
    let from = to.wrapping_sub(distance);
    let window = out.get_mut(from..).and_then(|o| o.get_mut(..distance.wrapping_add(STRIDE_BYTES)));
    window.is_some_and(|window| {
        move_half(window, distance, distance)
            && move_half(window, distance.wrapping_add(HALF_STRIDE_BYTES), distance)
    })
}

/// Moves 16 bytes from `distance` bytes before `to`. Returns false if they are not within the output.
#[inline(always)]
fn move_half(out: &mut [u8], to: usize, distance: usize) -> bool {
    let from = to.wrapping_sub(distance);
    let window = out.get_mut(from..).and_then(|o| o.get_mut(..distance.wrapping_add(HALF_STRIDE_BYTES)));
    let Some(window) = window else { return false };
    let Some(&half) = window.first_chunk::<HALF_STRIDE_BYTES>() else { return false };
    let Some(to) = window.get_mut(distance..).and_then(|w| w.first_chunk_mut()) else { return false };
    *to = half;
    true
}

/// Repeats the bytes from `from` to `to`, fewer than 16, for at least `length` bytes.
#[inline(never)]
fn repeat_pattern(out: &mut [u8], from: usize, to: usize, length: usize) {
    let distance = to.wrapping_sub(from);
    let window = out.get_mut(from..).unwrap_or_default();
    let bits = distance.wrapping_mul(8) as u32;
    let first = chunk::<HALF_STRIDE_BYTES>(window, 0).map_or(0, |h| u128::from_le_bytes(*h));
    let mut pattern = first & u128::MAX.wrapping_shr(u128::BITS.wrapping_sub(bits));
    let mut filled = bits;
    while filled < u128::BITS {
        pattern |= pattern.wrapping_shl(filled);
        filled = filled.wrapping_mul(2);
    }
    // A step is a multiple of `distance`, so that the pattern starts anew at each step.
    let step = HALF_STRIDE_BYTES.wrapping_sub(HALF_STRIDE_BYTES.checked_rem(distance).unwrap_or(0));
    let mut at = 0_usize;
    while at < length {
        if let Some(to) = window.get_mut(distance.wrapping_add(at)..).and_then(|w| w.first_chunk_mut()) {
            *to = pattern.to_le_bytes();
        }
        at = at.wrapping_add(step);
    }
}

/// Copies any length with any overlap; `out` is long enough. Copied bytes serve as source again,
/// so the steps double.
fn copy_overlapping(out: &mut [u8], from: usize, to: usize, length: usize) {
    let end = to.saturating_add(length);
    let mut written = to;
    while written < end {
        let step = written.saturating_sub(from).min(end.saturating_sub(written));
        out.copy_within(from..from.saturating_add(step), written);
        written = written.saturating_add(step);
    }
}
