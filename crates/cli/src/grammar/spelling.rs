//! Providers as typed: the grammar itself.

use std::ops::Range;

use traceweir::Guid;

use super::filters::Filters;
use super::mistake::Mistake;
use super::option;
use super::scan::{Piece, SEPARATORS, Scanner};
use crate::filter::{parse_level, parse_mask};

/// One provider as typed; its names have yet to be looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Spelled {
    /// All that was typed, for messages.
    pub(super) text: String,
    pub(super) id: Id,
    /// What it is called, where its id is given.
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

/// A level, by number or by the name that a manifest has for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Level {
    Number(u8),
    Name(Piece),
}

/// Which provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Id {
    /// By name: that of a manifest, else the hash of the name.
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

/// The list of providers that a text spells.
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
                Some(':') => "there is more than NAME:KEYWORDS:LEVEL; more is said with @option=value",
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
    if scanner.take(':') {
        // NAME:KEYWORDS:LEVEL, either of which may be empty.
        if !matches!(scanner.peek(), Some(':' | '@') | None) {
            spelled.any = Some(bits(scanner, true)?);
        }
        if scanner.take(':') {
            spelled.level = optional_level(scanner)?;
        }
    } else if is_column(scanner) {
        // NAME KEYWORDS LEVEL, as logman has it.
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
        let start = scanner.at();
        if !scanner.take('@') {
            return Ok(spelled);
        }
        option::read(scanner, start, &mut spelled)?;
    }
}

/// The name behind id, keywords and level: a fourth column, as files of logman have it. It goes on to the end of the provider.
fn label(scanner: &mut Scanner<'_>) -> Result<String, Mistake> {
    if scanner.peek() == Some('"') {
        return scanner.quoted().map(|piece| piece.text);
    }
    Ok(scanner.words(&['@', '+', ',', ';']).text)
}

/// Whether another column follows behind blanks.
fn is_column(scanner: &mut Scanner<'_>) -> bool {
    let before = scanner.at();
    scanner.skip_blanks();
    let is_end = |c: char| matches!(c, '@' | ':') || SEPARATORS.contains(&c);
    scanner.at() > before && scanner.peek().is_some_and(|c| !is_end(c))
}

fn id(scanner: &mut Scanner<'_>) -> Result<Id, Mistake> {
    const ENDS: &[char] = &[':', '@', '+', ',', ';'];
    let start = scanner.at();
    if scanner.peek() == Some('{') {
        let piece = scanner.through('}');
        return guid(scanner, &piece).map(Id::Guid);
    }
    if scanner.take('#') {
        let piece = if scanner.peek() == Some('{') { scanner.through('}') } else { scanner.run(ENDS) };
        return guid(scanner, &piece).map(Id::Guid);
    }
    let is_hash = scanner.take('*');
    let is_quoted = scanner.peek() == Some('"');
    let name = match is_quoted {
        true => scanner.quoted()?,
        false => scanner.name_before_colon(ENDS).unwrap_or_else(|| scanner.run(ENDS)),
    };
    if name.text.is_empty() {
        return Err(scanner.wrong(start..scanner.at(), "a provider needs a name or a GUID"));
    }
    if !is_hash
        && !is_quoted
        && let Ok(guid) = name.text.parse()
    {
        return Ok(Id::Guid(guid));
    }
    if !is_quoted && name.text.contains(['*', '?']) {
        let why = "a provider is enabled by its whole name: wildcards choose only among recorded events";
        return Err(scanner.wrong(name.at, why));
    }
    if !is_hash && !is_quoted {
        check_name(scanner, &name)?;
    }
    Ok(if is_hash { Id::Hash(name.text) } else { Id::Name(name.text) })
}

/// Refuses what is hardly the name of a provider: in quotes, or behind `*`, it would be one all the same.
fn check_name(scanner: &Scanner<'_>, name: &Piece) -> Result<(), Mistake> {
    if is_number(&name.text) {
        let why = "a number is no name of a provider; keywords and level stand behind the name: NAME:KEYWORDS:LEVEL";
        return Err(scanner.wrong(name.at.clone(), why));
    }
    if name.text.contains('=') {
        let why = "a name with = stands in quotes; options begin with @, and a file of providers is named with -pf FILE";
        return Err(scanner.wrong(name.at.clone(), why));
    }
    Ok(())
}

/// Whether a word is digits, or bits as they are typed.
pub(super) fn is_number(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit()) || (text.starts_with("0x") && parse_mask(text).is_ok())
}

pub(super) fn guid(scanner: &Scanner<'_>, piece: &Piece) -> Result<Guid, Mistake> {
    let why = || format!("{:?} is not a GUID: expected {{xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx}}", piece.text);
    piece.text.parse().map_err(|_| scanner.wrong(piece.at.clone(), why()))
}

/// Keyword bits: `term|term`, or `(term,term)`; colons end a term where `:` goes on to the level.
pub(super) fn bits(scanner: &mut Scanner<'_>, colon_ends: bool) -> Result<Bits, Mistake> {
    const OUTSIDE: &[char] = &['|', '@', '+', ',', ';', '(', ')', ':'];
    const INSIDE: &[char] = &['|', ',', ')', '('];
    let mut bits = Bits::default();
    let is_list = scanner.take('(');
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
        if scanner.take('|') || (is_list && scanner.take(',')) {
            continue;
        }
        if is_list && !scanner.take(')') {
            return Err(scanner.wrong_here("expected another keyword behind a comma, or the closing )"));
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
            scanner.wrong(term.at.clone(), format!("{:?} is no number: {expected}", term.text))
        })?;
        Ok(())
    }
}

fn optional_level(scanner: &mut Scanner<'_>) -> Result<Option<Level>, Mistake> {
    const ENDS: &[char] = &['@', '+', ',', ';', ':'];
    // A predefined name has a colon of its own.
    let is_predefined = scanner.rest().get(..4).is_some_and(|start| start.eq_ignore_ascii_case("win:"));
    let ends = if is_predefined { ENDS.get(..4).unwrap_or(ENDS) } else { ENDS };
    let piece = scanner.run(ends);
    if piece.text.is_empty() { Ok(None) } else { level(scanner, &piece).map(Some) }
}

pub(super) fn level(scanner: &Scanner<'_>, piece: &Piece) -> Result<Level, Mistake> {
    match parse_level(&piece.text) {
        Ok(number) => Ok(Level::Number(number)),
        // What a manifest may know.
        Err(_) if piece.text.starts_with(char::is_alphabetic) => Ok(Level::Name(piece.clone())),
        Err(expected) => {
            let why = format!("{:?} is no level: {expected}", piece.text);
            Err(scanner.wrong(piece.at.clone(), why))
        }
    }
}

/// Keyword bits in a text of their own.
pub(super) fn only_bits(text: &str) -> Result<Bits, Mistake> {
    let mut scanner = Scanner::new(text);
    let bits = bits(&mut scanner, false)?;
    match scanner.peek() {
        Some(_) => Err(scanner.wrong_here("expected another keyword behind |, or the end")),
        None => Ok(bits),
    }
}

/// A level in a text of its own.
pub(super) fn only_level(text: &str) -> Result<Level, Mistake> {
    let scanner = Scanner::new(text);
    level(&scanner, &Piece { text: text.trim().to_owned(), at: 0..text.len() })
}

/// The place from a start to where the scanner stands.
pub(super) fn since(scanner: &Scanner<'_>, start: usize) -> Range<usize> {
    start..scanner.at()
}
