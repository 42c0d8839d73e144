//! Escapes characters of JSON that a terminal or an editor would obey.

use std::io::{Result, Write};

/// Passes JSON on, with escapes for control characters beyond ASCII and for characters that change the
/// direction of text. Valid JSON has such characters only in strings, where the escapes mean the same.
pub(super) struct EscapingWriter<W>(pub(super) W);

const fn needs_escape(character: char) -> bool {
    matches!(
        character,
        '\u{7F}'..='\u{9F}'
            | '\u{61C}'
            | '\u{200E}'
            | '\u{200F}'
            | '\u{2028}'..='\u{202E}'
            | '\u{2066}'..='\u{2069}'
    )
}

impl<W: Write> Write for EscapingWriter<W> {
    /// Writes a part of JSON that begins and ends between two characters.
    fn write(&mut self, part: &[u8]) -> Result<usize> {
        if part.iter().all(|byte| *byte < 0x7F) {
            self.0.write_all(part)?;
            return Ok(part.len());
        }
        let text = std::str::from_utf8(part).map_err(std::io::Error::other)?;
        let mut written = 0;
        for (at, character) in text.char_indices().filter(|(_, character)| needs_escape(*character)) {
            self.0.write_all(text.get(written..at).unwrap_or_default().as_bytes())?;
            write!(self.0, "\\u{:04x}", u32::from(character))?;
            written = at + character.len_utf8();
        }
        self.0.write_all(text.get(written..).unwrap_or_default().as_bytes())?;
        Ok(part.len())
    }

    fn flush(&mut self) -> Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_keep_their_meaning_without_characters_that_terminals_obey() {
        let text = "a\u{7F}\u{85}\u{9B}31m \u{202E}b\u{2066}\u{200F}\u{2028} é日\u{1b}\"\\";
        let mut json = Vec::new();
        serde_json::to_writer(EscapingWriter(&mut json), &[text]).unwrap();
        let json = String::from_utf8(json).unwrap();
        assert!(!json.chars().any(|c| c.is_control() || needs_escape(c)), "{json:?}");
        assert!(json.contains("é日"));
        assert_eq!(serde_json::from_str::<[String; 1]>(&json).unwrap(), [text]);
    }
}
