//! Parses providers with the grammar of the parent module.

use super::argument_error::ArgumentError;
use super::filters::EnableFilters;
use super::option;
use super::scan::{SEPARATORS, Scanner, TextSpan};
use super::spelling::{
    LevelSpelling, ParsedProvider, ProviderSpelling, is_number, parse_guid, parse_keyword_bits,
    parse_level_span,
};

pub(super) fn parse_providers(text: &str) -> Result<Vec<ParsedProvider>, ArgumentError> {
    let mut scanner = Scanner::new(text);
    let mut providers = Vec::new();
    loop {
        scanner.skip_blanks();
        providers.push(parse_provider(&mut scanner)?);
        scanner.skip_blanks();
        if scanner.peek().is_none() {
            return Ok(providers);
        }
        if !scanner.take_separator() {
            return Err(scanner.error_here(match scanner.peek() {
                Some(':') => "too many colons: expected NAME:KEYWORDS:LEVEL; use @option=value for more",
                _ => "expected @option, a separator (+ , ;) with another provider, or the end",
            }));
        }
    }
}

fn parse_provider(scanner: &mut Scanner<'_>) -> Result<ParsedProvider, ArgumentError> {
    let id = parse_id(scanner)?;
    let mut provider = ParsedProvider {
        text: scanner.text().to_owned(),
        id,
        label: None,
        any: None,
        all: None,
        level: None,
        property: 0,
        source: None,
        filters: EnableFilters::default(),
        stack_keywords: None,
        stack_level: None,
        payloads: Vec::new(),
    };
    if scanner.take_char(':') {
        // NAME:KEYWORDS:LEVEL, where KEYWORDS and LEVEL may be empty.
        if !matches!(scanner.peek(), Some(':' | '@') | None) {
            provider.any = Some(parse_keyword_bits(scanner, true)?);
        }
        if scanner.take_char(':') {
            provider.level = parse_optional_level(scanner)?;
        }
    } else if has_column(scanner) {
        // NAME KEYWORDS LEVEL, as in logman.
        provider.any = Some(parse_keyword_bits(scanner, true)?);
        if has_column(scanner) {
            provider.level = parse_optional_level(scanner)?;
        }
        if matches!(provider.id, ProviderSpelling::Guid(_)) && has_column(scanner) {
            provider.label = Some(parse_label(scanner)?);
        }
    }
    loop {
        scanner.skip_blanks();
        let start = scanner.position();
        if !scanner.take_char('@') {
            return Ok(provider);
        }
        option::read_option(scanner, start, &mut provider)?;
    }
}

/// Parses the name after GUID, keywords and level: the fourth column of logman. A name without
/// quotes extends to the next option or provider.
fn parse_label(scanner: &mut Scanner<'_>) -> Result<String, ArgumentError> {
    if scanner.peek() == Some('"') {
        return scanner.read_quoted().map(|span| span.text);
    }
    Ok(scanner.read_words(&['@', '+', ',', ';']).text)
}

/// Skips blanks and returns whether another column follows them.
fn has_column(scanner: &mut Scanner<'_>) -> bool {
    let before = scanner.position();
    scanner.skip_blanks();
    let is_end = |c: char| matches!(c, '@' | ':') || SEPARATORS.contains(&c);
    scanner.position() > before && scanner.peek().is_some_and(|c| !is_end(c))
}

fn parse_id(scanner: &mut Scanner<'_>) -> Result<ProviderSpelling, ArgumentError> {
    const ENDS: &[char] = &[':', '@', '+', ',', ';'];
    let start = scanner.position();
    if scanner.peek() == Some('{') {
        let span = scanner.read_through('}');
        return parse_guid(scanner, &span).map(ProviderSpelling::Guid);
    }
    if scanner.take_char('#') {
        let span =
            if scanner.peek() == Some('{') { scanner.read_through('}') } else { scanner.read_word(ENDS) };
        return parse_guid(scanner, &span).map(ProviderSpelling::Guid);
    }
    let is_hash = scanner.take_char('*');
    let is_quoted = scanner.peek() == Some('"');
    let name = match is_quoted {
        true => scanner.read_quoted()?,
        false => scanner.read_name_before_colon(ENDS).unwrap_or_else(|| scanner.read_word(ENDS)),
    };
    if !is_quoted && is_pattern(is_hash, &name.text) {
        return parse_pattern(scanner, start, is_hash, &name);
    }
    if name.text.is_empty() {
        return Err(scanner.error_at(start..scanner.position(), "a provider needs a name or a GUID"));
    }
    if !is_hash
        && !is_quoted
        && let Ok(guid) = name.text.parse()
    {
        return Ok(ProviderSpelling::Guid(guid));
    }
    if !is_quoted && name.text.contains('?') {
        let reason = "in the name of a provider, the only wildcard is *";
        return Err(scanner.error_at(name.range, reason));
    }
    if !is_hash && !is_quoted {
        check_name(scanner, &name)?;
    }
    Ok(if is_hash { ProviderSpelling::Hash(name.text) } else { ProviderSpelling::Name(name.text) })
}

/// Returns whether a name is a pattern. A first `*` before a letter or digit (`*NAME`) is a pattern
/// only if another `*` follows.
fn is_pattern(has_leading_star: bool, name: &str) -> bool {
    name.contains('*') || (has_leading_star && !name.starts_with(char::is_alphanumeric))
}

/// Returns the pattern of a name, whose leading `*` the scanner has taken.
fn parse_pattern(
    scanner: &Scanner<'_>,
    start: usize,
    has_leading_star: bool,
    name: &TextSpan,
) -> Result<ProviderSpelling, ArgumentError> {
    if name.text.contains('?') {
        let reason = "in the name of a provider, the only wildcard is *";
        return Err(scanner.error_at(start..name.range.end, reason));
    }
    let star = if has_leading_star { "*" } else { "" };
    Ok(ProviderSpelling::Hash(format!("{star}{}", name.text)))
}

/// Rejects text that is unlikely to be the name of a provider. Names in quotes and after `*` are
/// not checked.
fn check_name(scanner: &Scanner<'_>, name: &TextSpan) -> Result<(), ArgumentError> {
    if is_number(&name.text) {
        let reason =
            "a number is not the name of a provider; keywords and level follow the name: NAME:KEYWORDS:LEVEL";
        return Err(scanner.error_at(name.range.clone(), reason));
    }
    if name.text.contains('=') {
        let reason = "a name with = must be quoted; options begin with @, and a file of providers is given with -pf FILE";
        return Err(scanner.error_at(name.range.clone(), reason));
    }
    Ok(())
}

fn parse_optional_level(scanner: &mut Scanner<'_>) -> Result<Option<LevelSpelling>, ArgumentError> {
    const ENDS: &[char] = &['@', '+', ',', ';', ':'];
    // A predefined name, such as win:Error, contains a colon, which is the last of `ENDS`.
    let is_predefined =
        scanner.remaining_text().get(..4).is_some_and(|start| start.eq_ignore_ascii_case("win:"));
    let ends = if is_predefined { ENDS.get(..4).unwrap_or(ENDS) } else { ENDS };
    let span = scanner.read_word(ends);
    if span.text.is_empty() { Ok(None) } else { parse_level_span(scanner, &span).map(Some) }
}
