//! Quotes words of a line, and escapes characters that must not reach a terminal.

/// The bytes that need no quotes.
#[allow(clippy::indexing_slicing)] // The index is a byte.
static PLAIN_BYTES: [bool; 256] = {
    let mut plain = [false; 256];
    let mut byte = b'!';
    while byte <= b'~' {
        plain[byte as usize] = is_plain_byte(byte);
        byte = byte.wrapping_add(1);
    }
    plain
};

#[inline]
fn needs_no_quotes(byte: u8) -> bool {
    PLAIN_BYTES.get(usize::from(byte)).copied().unwrap_or(false)
}

/// Returns whether a text is one word that needs no quotes.
#[inline]
#[must_use]
pub fn is_plain_word(text: &[u8]) -> bool {
    let (blocks, rest) = text.as_chunks::<BLOCK_BYTES>();
    match text.last_chunk::<BLOCK_BYTES>() {
        // The last block overlaps the one before, so that no bytes are left.
        Some(last) => blocks.iter().fold(is_plain_block(last), |plain, block| plain & is_plain_block(block)),
        // Without an early exit the loop needs no branch for each byte.
        None => !rest.is_empty() && rest.iter().fold(true, |plain, b| plain & needs_no_quotes(*b)),
    }
}

/// Bytes that are checked together.
const BLOCK_BYTES: usize = 16;

/// Returns whether no byte of a block needs quotes. The compiler checks all bytes at the same time.
#[inline(always)]
fn is_plain_block(block: &[u8; BLOCK_BYTES]) -> bool {
    block.iter().fold(true, |plain, b| plain & is_plain_byte(*b))
}

/// Returns whether a byte needs no quotes.
#[inline(always)]
const fn is_plain_byte(byte: u8) -> bool {
    let is_graphic = byte.wrapping_sub(b'!') <= b'~'.wrapping_sub(b'!');
    // Brackets and braces differ in one bit.
    let folded = byte | 0x20;
    is_graphic & (byte != b'"') & (byte != b'=') & (folded != b'{') & (folded != b'}')
}

/// Appends a plain word unchanged. Appends any other text in quotes, with its quotes escaped and
/// its other characters as [`push_escaped_text`] appends them. A backslash is not escaped.
#[inline]
pub fn push_word(text: &[u8], out: &mut Vec<u8>) {
    if is_plain_word(text) {
        out.extend_from_slice(text);
    } else {
        push_quoted(text, out);
    }
}

fn push_quoted(text: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for (index, piece) in text.split(|b| *b == b'"').enumerate() {
        if index > 0 {
            out.extend_from_slice(b"\\\"");
        }
        push_escaped_text(piece, out);
    }
    out.push(b'"');
}

/// Appends text on one line: escapes characters that could end the line, control the terminal or
/// change the text direction, and replaces invalid UTF-8.
#[inline]
pub fn push_escaped_text(text: &[u8], out: &mut Vec<u8>) {
    if text.iter().fold(true, |printable, b| printable & (b' '..0x7F).contains(b)) {
        out.extend_from_slice(text);
    } else {
        push_escaped_slow(text, out);
    }
}

fn push_escaped_slow(text: &[u8], out: &mut Vec<u8>) {
    for c in String::from_utf8_lossy(text).chars() {
        match c {
            '\n' => out.extend_from_slice(b"\\n"),
            '\r' => out.extend_from_slice(b"\\r"),
            '\t' => out.extend_from_slice(b"\\t"),
            // Marks that change the text direction, and separators that some terminals treat as
            // line ends.
            '\u{061C}' | '\u{200E}' | '\u{200F}' | '\u{2028}'..='\u{202E}' | '\u{2066}'..='\u{2069}' => {
                out.extend_from_slice(b"\\u{");
                super::hex_lower(u64::from(u32::from(c)), out);
                out.push(b'}');
            }
            c if c.is_control() => {
                out.extend_from_slice(b"\\x");
                // All control characters are below U+00A0, so the number fits in a byte.
                super::number::push_bytes_lower(&[u8::try_from(u32::from(c)).unwrap_or(0)], out);
            }
            c => super::text::push_char(c, out),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_need_quotes_are_found_at_every_position() {
        for byte in 0..=u8::MAX {
            let is_plain = (b'!'..=b'~').contains(&byte) && !b"\"={}[]".contains(&byte);
            for length in 1..=40 {
                for at in 0..length {
                    let mut text = vec![b'a'; length];
                    text[at] = byte;
                    assert_eq!(is_plain_word(&text), is_plain, "{byte:#x} at {at} of {length}");
                }
            }
        }
    }

    #[test]
    fn words_are_quoted_only_when_necessary() {
        for (text, expected) in [
            ("espresso", "espresso"),
            (r"C:\Windows\", r"C:\Windows\"),
            ("flat white", "\"flat white\""),
            ("", "\"\""),
            ("a=b", "\"a=b\""),
            ("say \"hi\"\n", "\"say \\\"hi\\\"\\n\""),
            ("é", "\"é\""),
            ("\x1b[2J\u{9b}", "\"\\x1b[2J\\x9b\""),
            ("a\u{202e}b", "\"a\\u{202e}b\""),
            ("a\u{61c}b", "\"a\\u{61c}b\""),
        ] {
            let mut out = Vec::new();
            push_word(text.as_bytes(), &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), expected, "{text:?}");
        }
    }
}
