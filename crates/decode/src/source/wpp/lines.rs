//! Splits the lines of a TMF file into their parts.
//!
//! ```text
//!   expression, ItemType(names) -- number          parse_argument
//!   type name number "text" // LEVEL=… FUNC=…      split_quoted, find_keyed_values
//! ```
//!
//! Expressions, texts and names are program text: they may contain the commas, parentheses, quotes
//! and slashes that the format itself uses. Lines are therefore read from the end that has no
//! program text. Every function reads each byte a fixed number of times.

use std::sync::Arc;

/// The longest name of a component, function, level and the like, in bytes; longer ones are cut.
pub(super) const MAX_NAME_BYTES: usize = 512;

/// One line of an argument block.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ArgumentLine<'a> {
    pub(super) expression: &'a str,
    pub(super) item: &'a str,
    /// The text in parentheses after the item type.
    pub(super) names: &'a str,
    pub(super) number: Option<u16>,
}

/// Splits `expression, ItemType(names) -- number`. The number may follow `//` instead, or be
/// absent. The expression may contain commas and parentheses, so the line is read from its end.
pub(super) fn parse_argument(line: &str) -> Option<ArgumentLine<'_>> {
    let (head, number) = match line.rsplit_once("--").or_else(|| line.rsplit_once("//")) {
        Some((head, number)) => (head.trim_end(), Some(number.trim().parse().ok()?)),
        None => (line, None),
    };
    let (head, names) = match head.strip_suffix(')') {
        Some(inner) => {
            let open = find_opening_parenthesis(inner)?;
            (inner.get(..open)?.trim_end(), inner.get(open.saturating_add(1)..)?)
        }
        None => (head, ""),
    };
    let (expression, item) = head.rsplit_once(',')?;
    let (expression, item) = (expression.trim(), item.trim());
    let is_item = item.len() > 4 && item.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    let expression = cut_name(if expression.is_empty() { "Arg" } else { expression });
    is_item.then_some(ArgumentLine { expression, item, names, number })
}

/// Returns the position of the parenthesis whose closing one comes directly after `inner`.
fn find_opening_parenthesis(inner: &str) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, byte) in inner.bytes().enumerate().rev() {
        match byte {
            b')' => depth = depth.saturating_add(1),
            b'(' if depth == 0 => return Some(at),
            b'(' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    None
}

/// Splits `head "text" // comment` into the parts before, in and after the quotes.
pub(super) fn split_quoted(line: &str) -> Option<(&str, &str, &str)> {
    let (head, remaining) = line.split_once('"')?;
    remaining.rmatch_indices('"').find_map(|(at, _)| {
        let (text, after) = remaining.split_at_checked(at)?;
        let after = after.strip_prefix('"')?.trim_start();
        let comment = if after.is_empty() { Some("") } else { after.strip_prefix("//") };
        comment.map(|comment| (head, text, comment))
    })
}

/// Returns the value after each key; a value extends to the next key in the text.
pub(super) fn find_keyed_values<const N: usize>(comment: &str, keys: [&str; N]) -> [Option<Arc<str>>; N] {
    let find_key = |key: &str| {
        let mut positions = comment.match_indices(key).map(|(at, _)| at);
        // A key is a complete word: SRC= may not be the end of another key.
        positions.find(|&at| {
            comment
                .get(..at)
                .is_some_and(|before| !before.ends_with(|c: char| c.is_alphanumeric() || c == '_'))
        })
    };
    let starts = keys.map(find_key);
    let mut values = [const { None }; N];
    for ((value, key), at) in values.iter_mut().zip(keys).zip(starts) {
        let Some(at) = at else { continue };
        let end = starts.iter().flatten().copied().filter(|&start| start > at).min().unwrap_or(comment.len());
        *value = comment.get(at.saturating_add(key.len())..end).and_then(parse_name);
    }
    values
}

/// Returns a name; `None` if the text is empty.
pub(super) fn parse_name(text: &str) -> Option<Arc<str>> {
    let text = cut_name(text.trim());
    (!text.is_empty()).then(|| text.into())
}

fn cut_name(text: &str) -> &str {
    let ends = text.char_indices().map(|(at, _)| at).chain([text.len()]);
    text.get(..ends.take_while(|&end| end <= MAX_NAME_BYTES).last().unwrap_or(0)).unwrap_or(text)
}
