//! Reads the strings that the JSON formatter writes.

use std::borrow::Cow;

/// Returns the text of a JSON string that `push_json` or `push_json_string` wrote.
pub(crate) fn parse_json_string(json: &str) -> Cow<'_, str> {
    let quoted = json.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(json);
    if !quoted.contains('\\') {
        return quoted.into();
    }
    let mut text = String::with_capacity(quoted.len());
    let mut chars = quoted.chars();
    while let Some(character) = chars.next() {
        if character != '\\' {
            text.push(character);
            continue;
        }
        match chars.next() {
            Some('n') => text.push('\n'),
            Some('r') => text.push('\r'),
            Some('t') => text.push('\t'),
            Some('u') => {
                let digits = chars.as_str().get(..4).unwrap_or_default();
                let code = u32::from_str_radix(digits, 16).ok().and_then(char::from_u32);
                text.push(code.unwrap_or(char::REPLACEMENT_CHARACTER));
                chars = chars.as_str().get(digits.len()..).unwrap_or_default().chars();
            }
            Some(other) => text.push(other),
            None => {}
        }
    }
    text.into()
}
