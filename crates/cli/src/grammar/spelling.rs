//! Parses providers: the grammar itself.

use std::ops::Range;

use traceweir::Guid;

use super::filters::Filters;
use super::mistake::Mistake;
use super::option;
use super::scan::{Piece, SEPARATORS, Scanner};
use crate::filter::{parse_level, parse_mask};

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

/// Parses a list of providers.
pub(super) fn providers(text: &str) -> Result<Vec<Spelled>, Mistake> {
    let mut scanner = Scanner::new(text);
    let mut all = Vec::new();
    loop {
        scanner.skip_blanks();
        all.push(provider(&mut scanner)?);
        scanner.skip_blanks();
        if scanner.peek().is_none() {
            return Ok(all);
        }
        if !scanner.take_separator() {
            return Err(scanner.wrong_here(match scanner.peek() {
                Some(':') => "too many colons: expected NAME:KEYWORDS:LEVEL; use @option=value for more",
                _ => "expected @option, a separator (+ , ;) with another provider, or the end",
            }));
        }
    }
}

fn provider(scanner: &mut Scanner<'_>) -> Result<Spelled, Mistake> {
    let id = id(scanner)?;
    let mut spelled = Spelled {
        text: scanner.text().to_owned(),
        id,
        label: None,
        any: None,
        all: None,
        level: None,
        property: 0,
        source: None,
        filters: Filters::default(),
        stack_keywords: None,
        stack_level: None,
        payloads: Vec::new(),
    };
    if scanner.take_char(':') {
        // NAME:KEYWORDS:LEVEL, both of which may be empty.
        if !matches!(scanner.peek(), Some(':' | '@') | None) {
            spelled.any = Some(bits(scanner, true)?);
        }
        if scanner.take_char(':') {
            spelled.level = optional_level(scanner)?;
        }
    } else if is_column(scanner) {
        // NAME KEYWORDS LEVEL, as in logman.
        spelled.any = Some(bits(scanner, true)?);
        if is_column(scanner) {
            spelled.level = optional_level(scanner)?;
        }
        if matches!(spelled.id, Id::Guid(_)) && is_column(scanner) {
            spelled.label = Some(label(scanner)?);
        }
    }
    loop {
        scanner.skip_blanks();
        let start = scanner.position();
        if !scanner.take_char('@') {
            return Ok(spelled);
        }
        option::read(scanner, start, &mut spelled)?;
    }
}

/// Parses the name after GUID, keywords and level: a fourth column, as in files of logman. It
/// extends to the end of the provider.
fn label(scanner: &mut Scanner<'_>) -> Result<String, Mistake> {
    if scanner.peek() == Some('"') {
        return scanner.quoted().map(|piece| piece.text);
    }
    Ok(scanner.words(&['@', '+', ',', ';']).text)
}

/// Returns whether another column follows after blanks.
fn is_column(scanner: &mut Scanner<'_>) -> bool {
    let before = scanner.position();
    scanner.skip_blanks();
    let is_end = |c: char| matches!(c, '@' | ':') || SEPARATORS.contains(&c);
    scanner.position() > before && scanner.peek().is_some_and(|c| !is_end(c))
}

fn id(scanner: &mut Scanner<'_>) -> Result<Id, Mistake> {
    const ENDS: &[char] = &[':', '@', '+', ',', ';'];
    let start = scanner.position();
    if scanner.peek() == Some('{') {
        let piece = scanner.through('}');
        return guid(scanner, &piece).map(Id::Guid);
    }
    if scanner.take_char('#') {
        let piece = if scanner.peek() == Some('{') { scanner.through('}') } else { scanner.run(ENDS) };
        return guid(scanner, &piece).map(Id::Guid);
    }
    let is_hash = scanner.take_char('*');
    let is_quoted = scanner.peek() == Some('"');
    let name = match is_quoted {
        true => scanner.quoted()?,
        false => scanner.name_before_colon(ENDS).unwrap_or_else(|| scanner.run(ENDS)),
    };
    if name.text.is_empty() {
        return Err(scanner.wrong(start..scanner.position(), "a provider needs a name or a GUID"));
    }
    if !is_hash
        && !is_quoted
        && let Ok(guid) = name.text.parse()
    {
        return Ok(Id::Guid(guid));
    }
    if !is_quoted && name.text.contains(['*', '?']) {
        let reason = "a provider is enabled by its whole name: wildcards choose only among recorded events";
        return Err(scanner.wrong(name.at, reason));
    }
    if !is_hash && !is_quoted {
        check_name(scanner, &name)?;
    }
    Ok(if is_hash { Id::Hash(name.text) } else { Id::Name(name.text) })
}

/// Rejects text that is hardly the name of a provider; in quotes, or after `*`, it is accepted.
fn check_name(scanner: &Scanner<'_>, name: &Piece) -> Result<(), Mistake> {
    if is_number(&name.text) {
        let reason =
            "a number is not the name of a provider; keywords and level follow the name: NAME:KEYWORDS:LEVEL";
        return Err(scanner.wrong(name.at.clone(), reason));
    }
    if name.text.contains('=') {
        let reason = "a name with = must be quoted; options begin with @, and a file of providers is given with -pf FILE";
        return Err(scanner.wrong(name.at.clone(), reason));
    }
    Ok(())
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

fn optional_level(scanner: &mut Scanner<'_>) -> Result<Option<Level>, Mistake> {
    const ENDS: &[char] = &['@', '+', ',', ';', ':'];
    // A predefined name contains a colon.
    let is_predefined = scanner.rest().get(..4).is_some_and(|start| start.eq_ignore_ascii_case("win:"));
    let ends = if is_predefined { ENDS.get(..4).unwrap_or(ENDS) } else { ENDS };
    let piece = scanner.run(ends);
    if piece.text.is_empty() { Ok(None) } else { level(scanner, &piece).map(Some) }
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

/// Returns the range from a start to the position of the scanner.
pub(super) fn since(scanner: &Scanner<'_>, start: usize) -> Range<usize> {
    start..scanner.position()
}
