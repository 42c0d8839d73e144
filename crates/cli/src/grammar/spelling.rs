//! A provider as it was typed, and the parsers of its parts.

use traceweir::Guid;

use super::filters::Filters;
use super::mistake::Mistake;
use super::scan::{Piece, Scanner};
use crate::text::{parse_level, parse_mask};

/// A parsed provider whose names are not resolved yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Spelled {
    /// The whole argument, for messages.
    pub(super) text: String,
    pub(super) id: Id,
    /// Its name, if it is given by GUID.
    pub(super) label: Option<String>,
    pub(super) any: Option<Bits>,
    pub(super) all: Option<Bits>,
    pub(super) level: Option<Level>,
    pub(super) property: u32,
    pub(super) source: Option<Guid>,
    pub(super) filters: Filters,
    pub(super) stack_keywords: Option<Bits>,
    pub(super) stack_level: Option<Level>,
    /// Conditions on payloads.
    pub(super) payloads: Vec<Piece>,
}

/// A level, by number or by its name in a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Level {
    Number(u8),
    Name(Piece),
}

/// How a provider is identified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Id {
    /// By name: from a manifest, else the hash of the name.
    Name(String),
    /// By the hash of its name.
    Hash(String),
    Guid(Guid),
}

/// Keyword bits, some of them by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Bits {
    pub(super) bits: u64,
    pub(super) names: Vec<Piece>,
}

/// Returns whether a word consists of digits, or is a hexadecimal mask.
pub(super) fn is_number(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit()) || (text.starts_with("0x") && parse_mask(text).is_ok())
}

pub(super) fn guid(scanner: &Scanner<'_>, piece: &Piece) -> Result<Guid, Mistake> {
    let reason =
        || format!("{:?} is not a GUID: expected {{xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx}}", piece.text);
    piece.text.parse().map_err(|_| scanner.wrong(piece.at.clone(), reason()))
}

/// Parses keyword bits: `term|term`, or `(term,term)`. A colon ends a term if `:LEVEL` may follow.
pub(super) fn bits(scanner: &mut Scanner<'_>, colon_ends: bool) -> Result<Bits, Mistake> {
    const OUTSIDE: &[char] = &['|', '@', '+', ',', ';', '(', ')', ':'];
    const INSIDE: &[char] = &['|', ',', ')', '('];
    let mut bits = Bits::default();
    let is_list = scanner.take_char('(');
    let ends = match (is_list, colon_ends) {
        (true, _) => INSIDE,
        (false, true) => OUTSIDE,
        (false, false) => OUTSIDE.get(..OUTSIDE.len().saturating_sub(1)).unwrap_or(OUTSIDE),
    };
    loop {
        if is_list {
            scanner.skip_blanks();
        }
        let is_quoted = scanner.peek() == Some('"');
        let term = if is_quoted { scanner.quoted()? } else { scanner.run(ends) };
        bits.add(scanner, term, is_quoted)?;
        if is_list {
            scanner.skip_blanks();
        }
        if scanner.take_char('|') || (is_list && scanner.take_char(',')) {
            continue;
        }
        if is_list && !scanner.take_char(')') {
            return Err(scanner.wrong_here("expected another keyword after a comma, or the closing )"));
        }
        return Ok(bits);
    }
}

impl Bits {
    fn add(&mut self, scanner: &Scanner<'_>, term: Piece, is_quoted: bool) -> Result<(), Mistake> {
        let expected = "expected keyword bits (0x… or decimal) or the name of a keyword";
        if term.text.is_empty() {
            return Err(scanner.wrong_here(expected));
        }
        if is_quoted || !term.text.starts_with(|c: char| c.is_ascii_digit()) {
            self.names.push(term);
            return Ok(());
        }
        self.bits |= parse_mask(&term.text).map_err(|_| {
            scanner.wrong(term.at.clone(), format!("{:?} is not a number: {expected}", term.text))
        })?;
        Ok(())
    }
}

pub(super) fn level(scanner: &Scanner<'_>, piece: &Piece) -> Result<Level, Mistake> {
    match parse_level(&piece.text) {
        Ok(number) => Ok(Level::Number(number)),
        // A manifest may define it.
        Err(_) if piece.text.starts_with(char::is_alphabetic) => Ok(Level::Name(piece.clone())),
        Err(expected) => {
            let reason = format!("{:?} is not a level: {expected}", piece.text);
            Err(scanner.wrong(piece.at.clone(), reason))
        }
    }
}

/// Parses a text that is only keyword bits.
pub(super) fn only_bits(text: &str) -> Result<Bits, Mistake> {
    let mut scanner = Scanner::new(text);
    let bits = bits(&mut scanner, false)?;
    match scanner.peek() {
        Some(_) => Err(scanner.wrong_here("expected another keyword after |, or the end")),
        None => Ok(bits),
    }
}

/// Parses a text that is only a level.
pub(super) fn only_level(text: &str) -> Result<Level, Mistake> {
    let scanner = Scanner::new(text);
    level(&scanner, &Piece { text: text.trim().to_owned(), at: 0..text.len() })
}
