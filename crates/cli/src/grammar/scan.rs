//! Splits text into spans, each with its position.

use std::ops::Range;

use traceweir::Guid;

use super::argument_error::ArgumentError;

/// Separators between providers.
pub(super) const SEPARATORS: &[char] = &['+', ',', ';'];

/// A part of the scanned text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TextSpan {
    /// The content, without quotes and escapes.
    pub(super) text: String,
    /// Byte range in the scanned text.
    pub(super) range: Range<usize>,
}

/// A character between quotes.
#[derive(Clone, Copy)]
struct QuotedChar {
    c: char,
    position: usize,
    /// Whether a backslash precedes the character. Such a character is neither a separator nor
    /// trimmed.
    is_literal: bool,
}

/// Reads a text from left to right.
pub(super) struct Scanner<'t> {
    text: &'t str,
    position: usize,
}

impl<'t> Scanner<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Self { text, position: 0 }
    }

    pub(super) fn text(&self) -> &'t str {
        self.text
    }

    pub(super) fn position(&self) -> usize {
        self.position
    }

    pub(super) fn remaining_text(&self) -> &'t str {
        self.text.get(self.position..).unwrap_or_default()
    }

    pub(super) fn peek(&self) -> Option<char> {
        self.remaining_text().chars().next()
    }

    fn next_char(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.position = self.position.saturating_add(c.len_utf8());
        Some(c)
    }

    /// Skips a character if it is next; returns whether it was skipped.
    pub(super) fn take_char(&mut self, expected: char) -> bool {
        let is_next = self.peek() == Some(expected);
        if is_next {
            self.next_char();
        }
        is_next
    }

    /// Skips a separator if it is next; returns whether one was skipped.
    pub(super) fn take_separator(&mut self) -> bool {
        SEPARATORS.iter().any(|c| self.take_char(*c))
    }

    pub(super) fn skip_blanks(&mut self) {
        while self.peek().is_some_and(char::is_whitespace) {
            self.next_char();
        }
    }

    /// Reads up to a blank, a quote or one of these characters.
    pub(super) fn read_word(&mut self, ends: &[char]) -> TextSpan {
        let start = self.position;
        while self.peek().is_some_and(|c| !c.is_whitespace() && c != '"' && !ends.contains(&c)) {
            self.next_char();
        }
        let text = self.text.get(start..self.position).unwrap_or_default().to_owned();
        TextSpan { text, range: start..self.position }
    }

    /// Reads up to a quote or one of these characters, including blanks except those at the end.
    pub(super) fn read_words(&mut self, ends: &[char]) -> TextSpan {
        let start = self.position;
        let text = self.remaining_text();
        let end = text.find(|c: char| c == '"' || ends.contains(&c)).unwrap_or(text.len());
        let text = text.get(..end).unwrap_or_default().trim_end().to_owned();
        self.position = start.saturating_add(text.len());
        TextSpan { text, range: start..self.position }
    }

    /// Reads a name of several words that is followed by a colon; otherwise reads nothing and
    /// returns `None`. The columns of logman have no colons, except for levels such as win:Error.
    pub(super) fn read_name_before_colon(&mut self, ends: &[char]) -> Option<TextSpan> {
        let start = self.position;
        let name = self.read_words(ends);
        let mut words = name.text.split_whitespace();
        let first = words.next().unwrap_or_default();
        let last = words.next_back().unwrap_or(first);
        let is_column =
            |word: &str| word.eq_ignore_ascii_case("win") || word.starts_with(|c: char| c.is_ascii_digit());
        let is_name = first.len() < name.text.len()
            && self.peek() == Some(':')
            && first.parse::<Guid>().is_err()
            && !is_column(last)
            && !name.text.contains(['|', '(', ')', '=']);
        if !is_name {
            self.position = start;
        }
        is_name.then_some(name)
    }

    /// Reads up to and including this character.
    pub(super) fn read_through(&mut self, last: char) -> TextSpan {
        let start = self.position;
        while self.next_char().is_some_and(|c| c != last) {}
        let text = self.text.get(start..self.position).unwrap_or_default().to_owned();
        TextSpan { text, range: start..self.position }
    }

    pub(super) fn error_at(&self, range: Range<usize>, reason: impl Into<String>) -> ArgumentError {
        ArgumentError::new(self.text, range, reason)
    }

    /// Returns an error at the next character.
    pub(super) fn error_here(&self, reason: impl Into<String>) -> ArgumentError {
        let end = self.position.saturating_add(self.peek().map_or(0, char::len_utf8));
        self.error_at(self.position..end, reason)
    }

    /// Reads a quoted text. A backslash removes the special meaning of the next character.
    pub(super) fn read_quoted(&mut self) -> Result<TextSpan, ArgumentError> {
        let start = self.position;
        let text = self.read_quoted_chars()?.iter().map(|q| q.c).collect();
        Ok(TextSpan { text, range: start..self.position })
    }

    pub(super) fn read_quoted_list(&mut self) -> Result<Vec<TextSpan>, ArgumentError> {
        let (start, characters) = (self.position, self.read_quoted_chars()?);
        let items = characters.split(|q| !q.is_literal && matches!(q.c, ',' | ';'));
        Ok(items.map(|item| trim_item(item, start..self.position)).collect())
    }

    fn read_quoted_chars(&mut self) -> Result<Vec<QuotedChar>, ArgumentError> {
        let start = self.position;
        self.take_char('"');
        let mut characters = Vec::new();
        loop {
            let position = self.position;
            match self.next_char() {
                Some('"') => return Ok(characters),
                Some('\\') => {
                    let Some(c) = self.next_char() else { break };
                    characters.push(QuotedChar { c, position, is_literal: true });
                }
                Some(c) => characters.push(QuotedChar { c, position, is_literal: false }),
                None => break,
            }
        }
        Err(self.error_at(start..self.position, "the quote is not closed"))
    }
}

/// Returns an item of a list without the blanks around it.
fn trim_item(item: &[QuotedChar], list_range: Range<usize>) -> TextSpan {
    let is_blank = |q: &QuotedChar| !q.is_literal && q.c.is_whitespace();
    let start = item.iter().position(|q| !is_blank(q)).unwrap_or(item.len());
    let end = item.iter().rposition(|q| !is_blank(q)).map_or(start, |last| last.saturating_add(1));
    let item = item.get(start..end).unwrap_or_default();
    let range = match (item.first(), item.last()) {
        (Some(first), Some(last)) => first.position..last.position.saturating_add(last.c.len_utf8()),
        _ => list_range,
    };
    TextSpan { text: item.iter().map(|q| q.c).collect(), range }
}
