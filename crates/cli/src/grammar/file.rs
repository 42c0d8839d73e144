//! Reads provider files: one provider per line, in any form of the grammar; `#` begins a comment.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result, bail};
use traceweir::Guid;

const MAX_FILE_BYTES: u64 = 1 << 20;

/// Returns the non-empty lines of a file without comments, with their numbers.
pub(super) fn read_lines(path: &Path) -> Result<Vec<(usize, String)>> {
    let context = || format!("cannot read {}", path.display());
    let mut bytes = Vec::new();
    let file = File::open(path).with_context(context)?;
    file.take(MAX_FILE_BYTES.saturating_add(1)).read_to_end(&mut bytes).with_context(context)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        bail!("{} is too large for a list of providers", path.display());
    }
    let text =
        decode_text(&bytes).with_context(|| format!("{} is neither UTF-8 nor UTF-16", path.display()))?;
    let lines = text.lines().map(strip_comment).map(str::trim).enumerate();
    Ok(lines
        .filter(|(_, line)| !line.is_empty())
        .map(|(i, line)| (i.saturating_add(1), line.to_owned()))
        .collect())
}

/// Decodes text as editors on Linux and Windows write it.
fn decode_text(bytes: &[u8]) -> Option<String> {
    if let Some(utf16) = bytes.strip_prefix(&[0xFF, 0xFE]) {
        let units: Vec<u16> = utf16.as_chunks::<2>().0.iter().map(|unit| u16::from_le_bytes(*unit)).collect();
        return String::from_utf16(&units).ok();
    }
    let bytes = bytes.strip_prefix(&[0xEF, 0xBB, 0xBF]).unwrap_or(bytes);
    std::str::from_utf8(bytes).ok().map(str::to_owned)
}

/// Returns a line up to its comment. A `#` begins a comment at the start of a line or after a
/// blank, unless it is quoted or a GUID follows directly.
fn strip_comment(line: &str) -> &str {
    let mut is_quoted = false;
    let mut previous = ' ';
    for (index, c) in line.char_indices() {
        let is_comment = c == '#' && !is_quoted && previous.is_whitespace();
        if is_comment && !starts_with_guid(line.get(index..).unwrap_or_default()) {
            return line.get(..index).unwrap_or_default();
        }
        is_quoted ^= c == '"' && previous != '\\';
        previous = c;
    }
    line
}

fn starts_with_guid(text: &str) -> bool {
    let text = text.trim_start_matches('#');
    let end =
        text.find(|c: char| !c.is_ascii_hexdigit() && !matches!(c, '-' | '{' | '}')).unwrap_or(text.len());
    text.get(..end).is_some_and(|id| id.parse::<Guid>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_are_removed_and_guids_are_kept() {
        for (line, expected) in [
            ("# all of it", ""),
            ("#", ""),
            ("A:1 # some", "A:1 "),
            ("A#B", "A#B"),
            ("\"a # b\" # c", "\"a # b\" "),
            ("#b3864c38-4273-58c5-545b-8b3608343471:1", "#b3864c38-4273-58c5-545b-8b3608343471:1"),
            ("#{b3864c38-4273-58c5-545b-8b3608343471} # x", "#{b3864c38-4273-58c5-545b-8b3608343471} "),
            ("#b3864c38", ""),
        ] {
            assert_eq!(strip_comment(line), expected, "{line}");
        }
    }

    #[test]
    fn utf8_and_utf16_are_decoded() {
        assert_eq!(decode_text(b"\xEF\xBB\xBFA").as_deref(), Some("A"));
        assert_eq!(decode_text(b"\xFF\xFEA\0\n\0").as_deref(), Some("A\n"));
        assert_eq!(decode_text(&[0x41, 0xFF]), None);
    }
}
