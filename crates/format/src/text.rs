//! Text in traces: UTF-16LE and 8-bit, terminated or counted, never trusted to be valid.

use alloc::string::String;

/// Returns the bytes before the first NUL, or all bytes.
#[inline]
#[must_use]
pub fn until_nul8(bytes: &[u8]) -> &[u8] {
    find_nul(bytes).and_then(|n| bytes.get(..n)).unwrap_or(bytes)
}

/// Returns the position of the first NUL. Most texts are short, so the first words of eight bytes
/// are checked here, without a call of `memchr`.
#[inline]
fn find_nul(bytes: &[u8]) -> Option<usize> {
    const CHECKED_WORDS: usize = 6;
    for (index, word) in bytes.as_chunks::<8>().0.iter().take(CHECKED_WORDS).enumerate() {
        let word = u64::from_le_bytes(*word);
        // The lowest set high bit in `zeros` marks the lowest zero byte of `word`.
        let zeros = word.wrapping_sub(0x0101_0101_0101_0101) & !word & 0x8080_8080_8080_8080;
        if zeros != 0 {
            return Some(index.wrapping_mul(8).wrapping_add((zeros.trailing_zeros() / 8) as usize));
        }
    }
    let checked = (bytes.len() & !7).min(8 * CHECKED_WORDS);
    let remaining = bytes.get(checked..)?;
    let nul = if remaining.len() < 8 {
        remaining.iter().position(|b| *b == 0)
    } else {
        memchr::memchr(0, remaining)
    };
    nul.map(|n| n.wrapping_add(checked))
}

/// Returns the bytes before the first 16-bit NUL unit, or all whole units.
#[inline]
#[must_use]
pub fn until_nul16(bytes: &[u8]) -> &[u8] {
    let end = bytes.chunks_exact(2).position(|u| matches!(u, [0, 0]));
    let end = end.map_or(bytes.len() & !1, |units| units.saturating_mul(2));
    bytes.get(..end).unwrap_or_default()
}

/// Decodes UTF-16LE; lone surrogates become U+FFFD and an odd last byte is ignored.
pub fn chars16(bytes: &[u8]) -> impl Iterator<Item = char> + '_ {
    let units = bytes.chunks_exact(2).map(|u| match u {
        [lo, hi] => u16::from_le_bytes([*lo, *hi]),
        _ => 0,
    });
    char::decode_utf16(units).map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER))
}

/// Decodes UTF-16LE bytes to a string.
#[must_use]
pub fn decode_utf16(bytes: &[u8]) -> String {
    chars16(bytes).collect()
}

/// Returns the character of a byte in Windows code page 1252; the five unassigned bytes map to
/// themselves.
#[must_use]
pub fn decode_cp1252(byte: u8) -> char {
    const CHARS_80_TO_9F: [u16; 32] = [
        0x20AC, 0x81, 0x201A, 0x0192, 0x201E, 0x2026, 0x2020, 0x2021, 0x02C6, 0x2030, 0x0160, 0x2039, 0x0152,
        0x8D, 0x017D, 0x8F, 0x90, 0x2018, 0x2019, 0x201C, 0x201D, 0x2022, 0x2013, 0x2014, 0x02DC, 0x2122,
        0x0161, 0x203A, 0x0153, 0x9D, 0x017E, 0x0178,
    ];
    match byte {
        0x80..=0x9F => CHARS_80_TO_9F
            .get(usize::from(byte & 0x1F))
            .and_then(|&u| char::from_u32(u32::from(u)))
            .unwrap_or(char::from(byte)),
        _ => char::from(byte),
    }
}

/// Decodes 8-bit text: as UTF-8 if all of it is valid UTF-8, otherwise as code page 1252.
#[must_use]
pub fn decode_ansi(bytes: &[u8]) -> String {
    core::str::from_utf8(bytes)
        .map_or_else(|_| bytes.iter().map(|&b| decode_cp1252(b)).collect(), String::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_nul_is_found_at_every_position() {
        for length in 0..80 {
            for nul in 0..=length {
                let mut bytes = std::vec![0x80_u8 | 1; length];
                bytes[nul.min(length)..].fill(0);
                assert_eq!(until_nul8(&bytes).len(), nul, "NUL at {nul} of {length}");
            }
        }
    }

    #[test]
    fn broken_utf16_is_replaced_not_rejected() {
        assert_eq!(decode_utf16(&[0x41, 0, 0x00, 0xD8, 0x42, 0, 0x43]), "A\u{FFFD}B");
    }

    #[test]
    fn ansi_falls_back_to_the_windows_code_page() {
        assert_eq!(decode_ansi(b"caf\xc3\xa9"), "café");
        assert_eq!(decode_ansi(b"caf\xe9 \x80"), "café €");
    }

    #[test]
    fn utf16_nul_counts_only_on_a_unit_boundary() {
        assert_eq!(until_nul16(&[1, 0, 0, 1, 0, 0, 9]), &[1, 0, 0, 1]);
        assert_eq!(until_nul16(&[1, 0, 2]), &[1, 0]);
    }
}
