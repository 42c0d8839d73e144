//! Decodes the bytes of a manifest to text, and converts offsets in the text back to offsets in the
//! bytes.
//!
//! ```text
//!   EF BB BF       UTF-8           FF FE / FE FF    UTF-16, little-endian / big-endian
//!   3C 00 / 00 3C  UTF-16 without  otherwise        as declared: UTF-8 unless the declaration says
//!                  its mark                         iso-8859-1 or windows-1252
//! ```
//!
//! The bytes take precedence over the declaration, because a manifest that was converted to UTF-8
//! often keeps its old `encoding="utf-16"`. Both single-byte encodings are read as windows-1252.
//! Text that is invalid in its encoding is refused with the offset.
//!
//! Source: Documented (XML 1.0, appendix F, "Autodetection of Character Encodings").

use std::borrow::Cow;

use traceweir_format::text::decode_cp1252;

use super::manifest_error;
use crate::Result;

/// The decoded text of a manifest.
pub(super) struct Document<'a> {
    pub(super) text: Cow<'a, str>,
    encoding: Encoding,
}

/// The encoding of the text; `mark_bytes` is the size of the byte order mark before the text.
#[derive(Clone, Copy)]
enum Encoding {
    Utf8 { mark_bytes: u64 },
    Utf16 { mark_bytes: u64 },
    SingleByte,
}

impl<'a> Document<'a> {
    /// Detects the encoding and decodes the bytes.
    pub(super) fn decode(bytes: &'a [u8]) -> Result<Self> {
        match bytes {
            [0xEF, 0xBB, 0xBF, remaining @ ..] => Self::decode_utf8(remaining, 3),
            [0xFF, 0xFE, remaining @ ..] => Self::decode_utf16(remaining, 2, u16::from_le_bytes),
            [0xFE, 0xFF, remaining @ ..] => Self::decode_utf16(remaining, 2, u16::from_be_bytes),
            [b'<', 0, ..] => Self::decode_utf16(bytes, 0, u16::from_le_bytes),
            [0, b'<', ..] => Self::decode_utf16(bytes, 0, u16::from_be_bytes),
            _ if declares_single_byte(bytes) => {
                let text = bytes.iter().map(|&b| decode_cp1252(b)).collect();
                Ok(Self { text: Cow::Owned(text), encoding: Encoding::SingleByte })
            }
            _ => Self::decode_utf8(bytes, 0),
        }
    }

    fn decode_utf8(bytes: &'a [u8], mark_bytes: u64) -> Result<Self> {
        let text = std::str::from_utf8(bytes).map_err(|e| {
            manifest_error(mark_bytes.saturating_add(as_offset(e.valid_up_to())), "text is not UTF-8")
        })?;
        Ok(Self { text: Cow::Borrowed(text), encoding: Encoding::Utf8 { mark_bytes } })
    }

    fn decode_utf16(bytes: &[u8], mark_bytes: u64, to_unit: fn([u8; 2]) -> u16) -> Result<Self> {
        let (pairs, odd) = bytes.as_chunks::<2>();
        let mut text = String::with_capacity(pairs.len());
        for decoded in char::decode_utf16(pairs.iter().map(|&pair| to_unit(pair))) {
            match decoded {
                Ok(c) => text.push(c),
                Err(_) => return Err(manifest_error(utf16_offset(&text, mark_bytes), "text is not UTF-16")),
            }
        }
        if !odd.is_empty() {
            return Err(manifest_error(utf16_offset(&text, mark_bytes), "text ends inside a UTF-16 unit"));
        }
        Ok(Self { text: Cow::Owned(text), encoding: Encoding::Utf16 { mark_bytes } })
    }

    /// Converts an offset in the text to an offset in the bytes.
    pub(super) fn source_offset(&self, offset: u64) -> u64 {
        let before = usize::try_from(offset).ok().and_then(|end| self.text.get(..end)).unwrap_or(&self.text);
        match self.encoding {
            Encoding::Utf8 { mark_bytes } => mark_bytes.saturating_add(offset),
            Encoding::Utf16 { mark_bytes } => utf16_offset(before, mark_bytes),
            Encoding::SingleByte => as_offset(before.chars().count()),
        }
    }
}

/// Returns the byte offset of the text after `before`.
fn utf16_offset(before: &str, mark_bytes: u64) -> u64 {
    as_offset(before.encode_utf16().count()).saturating_mul(2).saturating_add(mark_bytes)
}

/// Converts a length to an offset; a `usize` has at most 64 bits.
pub(super) fn as_offset(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

/// Returns whether the XML declaration names a single-byte encoding that is not a subset of UTF-8.
fn declares_single_byte(bytes: &[u8]) -> bool {
    let Some(declaration) = bytes.strip_prefix(b"<?xml") else { return false };
    let length = declaration.iter().take(256).position(|&b| b == b'>').unwrap_or(0);
    let declaration = declaration.get(..length).unwrap_or_default().to_ascii_lowercase();
    [&b"iso-8859-1"[..], b"windows-1252"]
        .iter()
        .any(|name| declaration.windows(name.len()).any(|window| window == *name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encode_utf16(text: &str, unit: fn(u16) -> [u8; 2]) -> Vec<u8> {
        text.encode_utf16().flat_map(unit).collect()
    }

    #[test]
    fn every_encoding_gives_the_same_text() {
        let text = "<?xml version='1.0' encoding='utf-16'?><é𝄞/>";
        let little = encode_utf16(text, u16::to_le_bytes);
        let big = encode_utf16(text, u16::to_be_bytes);
        for bytes in [
            text.as_bytes().to_vec(),
            [b"\xEF\xBB\xBF", text.as_bytes()].concat(),
            [b"\xFF\xFE", &little[..]].concat(),
            [b"\xFE\xFF", &big[..]].concat(),
            little,
            big,
        ] {
            let document = Document::decode(&bytes).unwrap();
            assert_eq!(document.text, text, "{:x?}", &bytes[..4]);
            assert_eq!(document.source_offset(text.len() as u64), bytes.len() as u64, "{:x?}", &bytes[..4]);
        }
    }

    #[test]
    fn a_declared_code_page_is_used() {
        let bytes = b"<?xml version=\"1.0\" encoding=\"Windows-1252\"?><a b=\"caf\xe9 \x80\"/>";
        let document = Document::decode(bytes).unwrap();
        assert!(document.text.ends_with("café €\"/>"));
        assert_eq!(document.source_offset(document.text.len() as u64), bytes.len() as u64);
        assert!(Document::decode(b"<a b=\"caf\xe9\"/>").is_err(), "the code page must be declared");
    }

    #[test]
    fn invalid_text_is_refused_with_its_offset() {
        for (bytes, at) in [
            (&b"<a>\xff</a>"[..], 3),
            (b"\xEF\xBB\xBF<\xff", 4),
            (b"\xFF\xFE<\0\x00\xD8<\0", 4),
            (b"\xFE\xFF\0<\xDC\x00", 4),
            (b"<\0a\0b", 4),
        ] {
            match Document::decode(bytes) {
                Err(crate::Error::Xml { offset, .. }) => assert_eq!(offset, at, "{bytes:x?}"),
                _ => panic!("{bytes:x?} was accepted"),
            }
        }
    }
}
