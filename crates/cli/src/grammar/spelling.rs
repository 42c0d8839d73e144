//! A parsed provider argument, and the parsers of its parts.

use traceweir::Guid;

use super::argument_error::ArgumentError;
use super::filters::EnableFilters;
use super::scan::{Scanner, TextSpan};
use crate::text::{parse_level, parse_mask};

/// A parsed provider whose names are not resolved yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ParsedProvider {
    /// The whole argument, for messages.
    pub(super) text: String,
    pub(super) id: ProviderSpelling,
    /// Name of a provider that is given by GUID.
    pub(super) label: Option<String>,
    pub(super) any: Option<KeywordBits>,
    pub(super) all: Option<KeywordBits>,
    pub(super) level: Option<LevelSpelling>,
    pub(super) property: u32,
    pub(super) source: Option<Guid>,
    pub(super) filters: EnableFilters,
    pub(super) stack_keywords: Option<KeywordBits>,
    pub(super) stack_level: Option<LevelSpelling>,
    /// Conditions on payloads.
    pub(super) payloads: Vec<TextSpan>,
}

/// A level, as a number or as a name in a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LevelSpelling {
    Number(u8),
    Name(TextSpan),
}

/// The spelling that identifies a provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ProviderSpelling {
    /// By name, as `ManifestNames` resolves it.
    Name(String),
    /// By the hash of its name.
    Hash(String),
    Guid(Guid),
}

/// Keyword bits, and names of further keywords.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct KeywordBits {
    pub(super) bits: u64,
    pub(super) names: Vec<TextSpan>,
}

/// Returns whether a word consists of digits, or is a hexadecimal mask.
pub(super) fn is_number(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit()) || (text.starts_with("0x") && parse_mask(text).is_ok())
}

pub(super) fn parse_guid(scanner: &Scanner<'_>, span: &TextSpan) -> Result<Guid, ArgumentError> {
    let reason =
        || format!("{:?} is not a GUID: expected {{xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx}}", span.text);
    span.text.parse().map_err(|_| scanner.error_at(span.range.clone(), reason()))
}

/// Parses keyword bits: `term|term`, or `(term,term)`. A colon ends a term if `:LEVEL` may follow.
pub(super) fn parse_keyword_bits(
    scanner: &mut Scanner<'_>,
    ends_at_colon: bool,
) -> Result<KeywordBits, ArgumentError> {
    const ENDS_OUTSIDE_LIST: &[char] = &['|', '@', '+', ',', ';', '(', ')', ':'];
    const ENDS_INSIDE_LIST: &[char] = &['|', ',', ')', '('];
    let mut bits = KeywordBits::default();
    let is_list = scanner.take_char('(');
    let ends = match (is_list, ends_at_colon) {
        (true, _) => ENDS_INSIDE_LIST,
        (false, true) => ENDS_OUTSIDE_LIST,
        (false, false) => {
            ENDS_OUTSIDE_LIST.get(..ENDS_OUTSIDE_LIST.len().saturating_sub(1)).unwrap_or(ENDS_OUTSIDE_LIST)
        }
    };
    loop {
        if is_list {
            scanner.skip_blanks();
        }
        let is_quoted = scanner.peek() == Some('"');
        let term = if is_quoted { scanner.read_quoted()? } else { scanner.read_word(ends) };
        bits.add_term(scanner, term, is_quoted)?;
        if is_list {
            scanner.skip_blanks();
        }
        if scanner.take_char('|') || (is_list && scanner.take_char(',')) {
            continue;
        }
        if is_list && !scanner.take_char(')') {
            return Err(scanner.error_here("expected another keyword after a comma, or the closing )"));
        }
        return Ok(bits);
    }
}

impl KeywordBits {
    fn add_term(
        &mut self,
        scanner: &Scanner<'_>,
        term: TextSpan,
        is_quoted: bool,
    ) -> Result<(), ArgumentError> {
        let expected = "expected keyword bits (0x… or decimal) or the name of a keyword";
        if term.text.is_empty() {
            return Err(scanner.error_here(expected));
        }
        if is_quoted || !term.text.starts_with(|c: char| c.is_ascii_digit()) {
            self.names.push(term);
            return Ok(());
        }
        self.bits |= parse_mask(&term.text).map_err(|_| {
            scanner.error_at(term.range.clone(), format!("{:?} is not a number: {expected}", term.text))
        })?;
        Ok(())
    }
}

pub(super) fn parse_level_span(
    scanner: &Scanner<'_>,
    span: &TextSpan,
) -> Result<LevelSpelling, ArgumentError> {
    match parse_level(&span.text) {
        Ok(number) => Ok(LevelSpelling::Number(number)),
        // A manifest may define this name.
        Err(_) if span.text.starts_with(char::is_alphabetic) => Ok(LevelSpelling::Name(span.clone())),
        Err(expected) => {
            let reason = format!("{:?} is not a level: {expected}", span.text);
            Err(scanner.error_at(span.range.clone(), reason))
        }
    }
}

/// Parses a text that is only keyword bits.
pub(super) fn parse_only_keyword_bits(text: &str) -> Result<KeywordBits, ArgumentError> {
    let mut scanner = Scanner::new(text);
    let bits = parse_keyword_bits(&mut scanner, false)?;
    match scanner.peek() {
        Some(_) => Err(scanner.error_here("expected another keyword after |, or the end")),
        None => Ok(bits),
    }
}

/// Parses a text that is only a level.
pub(super) fn parse_only_level(text: &str) -> Result<LevelSpelling, ArgumentError> {
    let scanner = Scanner::new(text);
    parse_level_span(&scanner, &TextSpan { text: text.trim().to_owned(), range: 0..text.len() })
}
