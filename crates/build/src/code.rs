//! Generated source text: indented lines, and literals and comments that no name can break out of.

use std::fmt::Write;

/// Source text that grows line by line.
#[derive(Default)]
pub(crate) struct SourceText {
    text: String,
    depth: usize,
}

impl SourceText {
    /// Adds a line; an empty line gets no indentation.
    pub(crate) fn push(&mut self, line: impl AsRef<str>) {
        let line = line.as_ref();
        if !line.is_empty() {
            self.text.extend(std::iter::repeat_n("    ", self.depth));
            self.text.push_str(line);
        }
        self.text.push('\n');
    }

    /// Adds a first line, the indented lines that `inside` adds, and an end line.
    pub(crate) fn push_block(&mut self, head: impl AsRef<str>, end: &str, inside: impl FnOnce(&mut Self)) {
        self.push(head);
        self.depth = self.depth.saturating_add(1);
        inside(self);
        self.depth = self.depth.saturating_sub(1);
        self.push(end);
    }

    pub(crate) fn finish(self) -> String {
        self.text
    }
}

/// Makes a name or message safe for a single-line comment in C and Rust, at any position of the
/// line.
pub(crate) fn sanitize_comment(text: &str) -> String {
    const MAX_CHARS: usize = 160;
    let mut out = String::new();
    for c in text.chars().take(MAX_CHARS) {
        match c {
            '\\' => out.push('/'),
            '*' => out.push('·'),
            // Two question marks could begin a trigraph.
            '?' if out.ends_with('?') => out.push(' '),
            c if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}') => out.push(' '),
            // Characters that change the direction of text could make the code look different from
            // its meaning.
            '\u{061C}' | '\u{200E}' | '\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}' => {
                out.push(' ')
            }
            // rustdoc would read these as links, HTML or code.
            '[' | ']' | '<' | '>' | '`' => out.push('\''),
            c => out.push(c),
        }
    }
    // rustdoc takes doc text that is indented by four spaces for a program, and runs it as a test.
    out.trim().to_owned()
}

/// Returns a string literal for a text; `escape` encodes quotation marks, backslashes, `?`, and
/// all characters that are not printable ASCII.
pub(crate) fn quote_literal(text: &str, escape: impl Fn(u32) -> String) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            ' ' | '!' | '#'..='>' | '@'..='[' | ']'..='~' => out.push(c),
            other => {
                let _ = write!(out, "{}", escape(other.into()));
            }
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comment_stays_on_one_line() {
        for (text, expected) in [
            ("*/ int x; /*", "·/ int x; /·"),
            ("a\\", "a/"),
            ("a\r\n#error\u{2028}b", "a  #error b"),
            ("     panic!()  ", "panic!()"),
            ("??/", "? /"),
            ("\u{202E}x", "x"),
            ("```[`x`](y)", "'''''x''(y)"),
        ] {
            assert_eq!(sanitize_comment(text), expected, "{text:?}");
        }
    }

    #[test]
    fn literal_escapes_special_characters() {
        let escaped = quote_literal("\"\\\n?é~", |c| format!("<{c:x}>"));
        assert_eq!(escaped, "\"<22><5c><a><3f><e9>~\"");
    }
}
