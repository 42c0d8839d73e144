//! Splits text into pieces, each with its position.

use std::ops::Range;

use traceweir::Guid;

use super::mistake::Mistake;

/// Separators between providers.
pub(super) const SEPARATORS: &[char] = &['+', ',', ';'];

/// A part of the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    /// Its content, without quotes and escapes.
    pub(super) text: String,
    /// Its position, in bytes.
    pub(super) at: Range<usize>,
}

/// A character of a quoted part.
#[derive(Clone, Copy)]
struct Quoted {
    c: char,
    at: usize,
    /// Whether it follows a backslash, so that it neither separates nor is trimmed.
    is_literal: bool,
}

/// Reads the text from the left.
pub(super) struct Scanner<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Scanner<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Self { text, at: 0 }
    }

    pub(super) fn text(&self) -> &'t str {
        self.text
    }

    pub(super) fn position(&self) -> usize {
        self.at
    }

    pub(super) fn rest(&self) -> &'t str {
        self.text.get(self.at..).unwrap_or_default()
    }

    pub(super) fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn bump(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at = self.at.saturating_add(c.len_utf8());
        Some(c)
    }

    /// Skips a character, if it is next; returns whether it was.
    pub(super) fn take_char(&mut self, wanted: char) -> bool {
        let is_next = self.peek() == Some(wanted);
        if is_next {
            self.bump();
        }
        is_next
    }

    /// Skips a separator, if one is next; returns whether one was.
    pub(super) fn take_separator(&mut self) -> bool {
        SEPARATORS.iter().any(|c| self.take_char(*c))
    }

    pub(super) fn skip_blanks(&mut self) {
        while self.peek().is_some_and(char::is_whitespace) {
            self.bump();
        }
    }

    /// Reads up to a blank, a quote or one of these characters.
    pub(super) fn run(&mut self, ends: &[char]) -> Piece {
        let start = self.at;
        while self.peek().is_some_and(|c| !c.is_whitespace() && c != '"' && !ends.contains(&c)) {
            self.bump();
        }
        let text = self.text.get(start..self.at).unwrap_or_default().to_owned();
        Piece { text, at: start..self.at }
    }

    /// Reads up to a quote or one of these characters, including blanks except those at the end.
    pub(super) fn words(&mut self, ends: &[char]) -> Piece {
        let start = self.at;
        let rest = self.rest();
        let end = rest.find(|c: char| c == '"' || ends.contains(&c)).unwrap_or(rest.len());
        let text = rest.get(..end).unwrap_or_default().trim_end().to_owned();
        self.at = start.saturating_add(text.len());
        Piece { text, at: start..self.at }
    }

    /// Reads a name of several words that is followed by a colon; the columns of logman have no
    /// colons, except for levels such as win:Error.
    pub(super) fn name_before_colon(&mut self, ends: &[char]) -> Option<Piece> {
        let start = self.at;
        let name = self.words(ends);
        let mut words = name.text.split_whitespace();
        let first = words.next().unwrap_or_default();
        let last = words.next_back().unwrap_or(first);
        let is_column =
            |word: &str| word.eq_ignore_ascii_case("win") || word.starts_with(|c: char| c.is_ascii_digit());
        let is_one = first.len() < name.text.len()
            && self.peek() == Some(':')
            && first.parse::<Guid>().is_err()
            && !is_column(last)
            && !name.text.contains(['|', '(', ')', '=']);
        if !is_one {
            self.at = start;
        }
        is_one.then_some(name)
    }

    /// Reads up to and including this character.
    pub(super) fn through(&mut self, last: char) -> Piece {
        let start = self.at;
        while self.bump().is_some_and(|c| c != last) {}
        let text = self.text.get(start..self.at).unwrap_or_default().to_owned();
        Piece { text, at: start..self.at }
    }

    /// Returns an error at a position.
    pub(super) fn wrong(&self, at: Range<usize>, reason: impl Into<String>) -> Mistake {
        Mistake::new(self.text, at, reason)
    }

    /// Returns an error at the next character.
    pub(super) fn wrong_here(&self, reason: impl Into<String>) -> Mistake {
        let end = self.at.saturating_add(self.peek().map_or(0, char::len_utf8));
        self.wrong(self.at..end, reason)
    }

    /// Reads a quoted part as one piece; a backslash makes the next character plain.
    pub(super) fn quoted(&mut self) -> Result<Piece, Mistake> {
        let start = self.at;
        let text = self.quoted_characters()?.iter().map(|q| q.c).collect();
        Ok(Piece { text, at: start..self.at })
    }

    /// Reads a quoted part as a list.
    pub(super) fn quoted_list(&mut self) -> Result<Vec<Piece>, Mistake> {
        let (start, characters) = (self.at, self.quoted_characters()?);
        let items = characters.split(|q| !q.is_literal && matches!(q.c, ',' | ';'));
        Ok(items.map(|item| trimmed(item, start..self.at)).collect())
    }

    fn quoted_characters(&mut self) -> Result<Vec<Quoted>, Mistake> {
        let start = self.at;
        self.take_char('"');
        let mut characters = Vec::new();
        loop {
            let at = self.at;
            match self.bump() {
                Some('"') => return Ok(characters),
                Some('\\') => {
                    let Some(c) = self.bump() else { break };
                    characters.push(Quoted { c, at, is_literal: true });
                }
                Some(c) => characters.push(Quoted { c, at, is_literal: false }),
                None => break,
            }
        }
        Err(self.wrong(start..self.at, "the quote is not closed"))
    }
}

/// Returns an item of a list without the blanks around it.
fn trimmed(item: &[Quoted], whole: Range<usize>) -> Piece {
    let is_blank = |q: &Quoted| !q.is_literal && q.c.is_whitespace();
    let start = item.iter().position(|q| !is_blank(q)).unwrap_or(item.len());
    let end = item.iter().rposition(|q| !is_blank(q)).map_or(start, |last| last.saturating_add(1));
    let item = item.get(start..end).unwrap_or_default();
    let at = match (item.first(), item.last()) {
        (Some(first), Some(last)) => first.at..last.at.saturating_add(last.c.len_utf8()),
        _ => whole,
    };
    Piece { text: item.iter().map(|q| q.c).collect(), at }
}
