//! Parses providers: the grammar itself.

use super::filters::Filters;
use super::mistake::Mistake;
use super::option;
use super::scan::{Piece, SEPARATORS, Scanner};
use super::spelling::{Id, Level, Spelled, bits, guid, is_number, level};

/// Parses a list of providers.
pub(super) fn parse_providers(text: &str) -> Result<Vec<Spelled>, Mistake> {
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

fn optional_level(scanner: &mut Scanner<'_>) -> Result<Option<Level>, Mistake> {
    const ENDS: &[char] = &['@', '+', ',', ';', ':'];
    // A predefined name contains a colon.
    let is_predefined = scanner.rest().get(..4).is_some_and(|start| start.eq_ignore_ascii_case("win:"));
    let ends = if is_predefined { ENDS.get(..4).unwrap_or(ENDS) } else { ENDS };
    let piece = scanner.run(ends);
    if piece.text.is_empty() { Ok(None) } else { level(scanner, &piece).map(Some) }
}
