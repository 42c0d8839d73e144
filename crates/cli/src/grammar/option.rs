//! Parses `@option` and `@option=value`.

use std::ops::Range;

use traceweir_format::filter::encode;
use traceweir_format::spec::enable::{
    EVENT_ENABLE_PROPERTY_ENABLE_KEYWORD_0, EVENT_ENABLE_PROPERTY_ENABLE_SILOS,
    EVENT_ENABLE_PROPERTY_EVENT_KEY, EVENT_ENABLE_PROPERTY_EXCLUDE_INPRIVATE,
    EVENT_ENABLE_PROPERTY_IGNORE_KEYWORD_0, EVENT_ENABLE_PROPERTY_PROCESS_START_KEY,
    EVENT_ENABLE_PROPERTY_PROVIDER_GROUP, EVENT_ENABLE_PROPERTY_PSM_KEY, EVENT_ENABLE_PROPERTY_SID,
    EVENT_ENABLE_PROPERTY_SOURCE_CONTAINER_TRACKING, EVENT_ENABLE_PROPERTY_STACK_TRACE,
    EVENT_ENABLE_PROPERTY_TS_ID, MAX_EVENT_FILTER_EVENT_ID_COUNT, MAX_EVENT_FILTER_PID_COUNT,
};

use super::filters::Choice;
use super::mistake::Mistake;
use super::scan::{Piece, Scanner};
use super::spelling::{Spelled, bits, guid, level};

/// Options without a value, and their property bits.
pub(super) const FLAGS: [(&str, u32); 12] = [
    ("sid", EVENT_ENABLE_PROPERTY_SID),
    ("tsid", EVENT_ENABLE_PROPERTY_TS_ID),
    ("stack", EVENT_ENABLE_PROPERTY_STACK_TRACE),
    ("key", EVENT_ENABLE_PROPERTY_PSM_KEY),
    ("ignore-keyword-0", EVENT_ENABLE_PROPERTY_IGNORE_KEYWORD_0),
    ("group", EVENT_ENABLE_PROPERTY_PROVIDER_GROUP),
    ("enable-keyword-0", EVENT_ENABLE_PROPERTY_ENABLE_KEYWORD_0),
    ("start-key", EVENT_ENABLE_PROPERTY_PROCESS_START_KEY),
    ("event-key", EVENT_ENABLE_PROPERTY_EVENT_KEY),
    ("exclude-inprivate", EVENT_ENABLE_PROPERTY_EXCLUDE_INPRIVATE),
    ("silos", EVENT_ENABLE_PROPERTY_ENABLE_SILOS),
    ("container", EVENT_ENABLE_PROPERTY_SOURCE_CONTAINER_TRACKING),
];

/// Options with a value; `container` exists with and without one.
const VALUED: [&str; 20] = [
    "level",
    "any",
    "all",
    "keywords",
    "source",
    "ids",
    "not-ids",
    "names",
    "not-names",
    "pid",
    "exe",
    "package",
    "app",
    "container",
    "stack-ids",
    "stack-names",
    "stack-level",
    "stack-keywords",
    "payload",
    "schematized",
];

/// Reads one option; `start` is the position of its `@`.
pub(super) fn read(scanner: &mut Scanner<'_>, start: usize, to: &mut Spelled) -> Result<(), Mistake> {
    let name = scanner.run(&['=', '@', '+', ',', ';', ':']);
    let key = name.text.to_ascii_lowercase();
    if !scanner.take_char('=') {
        if let Some((_, bit)) = FLAGS.iter().find(|(flag, _)| *flag == key) {
            to.property |= bit;
            return Ok(());
        }
        let reason = if VALUED.contains(&key.as_str()) {
            format!("@{key} needs a value: @{key}=…")
        } else {
            format!("unknown option {:?}: expected one of {}", name.text, all_names())
        };
        return Err(scanner.wrong(start..name.at.end, reason));
    }
    match key.as_str() {
        "level" => once(scanner, start, &mut to.level, |scanner| {
            let piece = scanner.run(&['@', '+', ',', ';']);
            level(scanner, &piece)
        }),
        "any" | "keywords" => once(scanner, start, &mut to.any, |scanner| bits(scanner, false)),
        "all" => once(scanner, start, &mut to.all, |scanner| bits(scanner, false)),
        "source" => once(scanner, start, &mut to.source, |scanner| {
            let piece = if scanner.peek() == Some('{') {
                scanner.through('}')
            } else {
                scanner.run(&['@', '+', ',', ';'])
            };
            guid(scanner, &piece)
        }),
        "payload" => payload(scanner, start, to),
        "schematized" => schematized(scanner, start, to),
        key if key.starts_with("stack-") => stack_option(scanner, start, key, to),
        key if VALUED.contains(&key) => filter_option(scanner, start, key, to),
        key if FLAGS.iter().any(|(flag, _)| *flag == key) => {
            Err(scanner.wrong(name.at, format!("@{key} has no value")))
        }
        _ => {
            let reason = format!("unknown option {:?}: expected one of {}", name.text, all_names());
            Err(scanner.wrong(name.at, reason))
        }
    }
}

fn all_names() -> String {
    let flags = FLAGS.iter().map(|(name, _)| *name).filter(|name| !VALUED.contains(name));
    let valued = VALUED.iter().map(|name| format!("{name}="));
    let mut names: Vec<String> = flags.map(str::to_owned).chain(valued).collect();
    names.sort_unstable();
    names.join(", ")
}

/// Reads a value that may be given only once.
fn once<'t, T>(
    scanner: &mut Scanner<'t>,
    start: usize,
    slot: &mut Option<T>,
    read: impl FnOnce(&mut Scanner<'t>) -> Result<T, Mistake>,
) -> Result<(), Mistake> {
    let value = read(scanner)?;
    if slot.is_some() {
        return Err(scanner.wrong(since(scanner, start), "this option is given twice"));
    }
    *slot = Some(value);
    Ok(())
}

/// Reads an option that selects events for stacks, which also requests stacks.
fn stack_option(scanner: &mut Scanner<'_>, start: usize, key: &str, to: &mut Spelled) -> Result<(), Mistake> {
    match key {
        "stack-ids" => {
            to.filters.stack_ids.extend(ids(scanner)?);
            sort_and_limit(
                scanner,
                start,
                &mut to.filters.stack_ids,
                MAX_EVENT_FILTER_EVENT_ID_COUNT,
                "event ids",
            )?;
        }
        "stack-names" => extend_names(&mut to.filters.stack_names, strings(scanner)?),
        "stack-level" => once(scanner, start, &mut to.stack_level, |scanner| {
            let piece = scanner.run(&['@', '+', ',', ';']);
            level(scanner, &piece)
        })?,
        "stack-keywords" => {
            once(scanner, start, &mut to.stack_keywords, |scanner| bits(scanner, false))?;
        }
        _ => {
            let reason = format!("unknown option {key:?}: expected one of {}", all_names());
            return Err(scanner.wrong(since(scanner, start), reason));
        }
    }
    to.property |= EVENT_ENABLE_PROPERTY_STACK_TRACE;
    to.filters.check().map_err(|reason| scanner.wrong(since(scanner, start), reason))
}

/// Reads a value with any content in quotes, or without blanks and separators.
fn any_value(scanner: &mut Scanner<'_>) -> Result<Piece, Mistake> {
    if scanner.peek() == Some('"') { scanner.quoted() } else { Ok(scanner.run(&['@', '+', ',', ';'])) }
}

/// Reads a condition on the payload of an event, which needs the manifest; or the bytes of an
/// encoded filter.
fn payload(scanner: &mut Scanner<'_>, start: usize, to: &mut Spelled) -> Result<(), Mistake> {
    let piece = any_value(scanner)?;
    let is_raw = !piece.text.contains(':');
    if !to.filters.payload.is_empty() || (is_raw && !to.payloads.is_empty()) {
        return Err(scanner.wrong(since(scanner, start), "give a filter either as conditions or as bytes"));
    }
    if !is_raw {
        to.payloads.push(piece);
        return Ok(());
    }
    let Some(bytes) = hex(&piece.text).filter(|bytes| !bytes.is_empty()) else {
        let reason =
            "expected EVENT: FIELD OPERATOR VALUE, such as @payload=\"5: Port == 443\", with --manifest FILE";
        return Err(scanner.wrong(piece.at, reason));
    };
    to.filters.payload = bytes;
    to.filters.check().map_err(|reason| scanner.wrong(since(scanner, start), reason))
}

/// Reads a filter that only its provider interprets: its id, version and data, or all of its bytes.
fn schematized(scanner: &mut Scanner<'_>, start: usize, to: &mut Spelled) -> Result<(), Mistake> {
    let piece = any_value(scanner)?;
    let bytes = match piece.text.split_once(':') {
        Some((id, data)) => hex(data)
            .zip(id_and_version(id))
            .map(|(data, (id, version))| encode::schematized(id, version, &data)),
        None => hex(&piece.text),
    };
    let Some(bytes) = bytes.filter(|bytes| !bytes.is_empty()) else {
        let reason = "expected ID:HEX or ID.VERSION:HEX, such as 1:00ff, or the bytes of the filter and its header in hexadecimal";
        return Err(scanner.wrong(piece.at, reason));
    };
    if !to.filters.schematized.is_empty() {
        return Err(scanner.wrong(since(scanner, start), "this option is given twice"));
    }
    to.filters.schematized = bytes;
    to.filters.check().map_err(|reason| scanner.wrong(since(scanner, start), reason))
}

fn id_and_version(text: &str) -> Option<(u16, u8)> {
    match text.split_once('.') {
        Some((id, version)) => id.parse().ok().zip(version.parse().ok()),
        None => text.parse().ok().map(|id| (id, 0)),
    }
}

/// Parses pairs of hexadecimal digits.
fn hex(text: &str) -> Option<Vec<u8>> {
    let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")).unwrap_or(text);
    let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
    let digit = |c: u8| char::from(c).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let byte = |[high, low]: &[u8; 2]| Some(digit(*high)? << 4 | digit(*low)?);
    if rest.is_empty() { pairs.iter().map(byte).collect() } else { None }
}

/// Reads an option that selects processes or events.
fn filter_option(
    scanner: &mut Scanner<'_>,
    start: usize,
    key: &str,
    to: &mut Spelled,
) -> Result<(), Mistake> {
    let filters = &mut to.filters;
    match key {
        "ids" | "not-ids" => {
            let list = ids(scanner)?;
            let chosen = choose(scanner, start, &mut filters.ids, key == "ids")?;
            chosen.extend(list);
            sort_and_limit(scanner, start, chosen, MAX_EVENT_FILTER_EVENT_ID_COUNT, "event ids")?;
        }
        "names" | "not-names" => {
            let list = strings(scanner)?;
            extend_names(choose(scanner, start, &mut filters.names, key == "names")?, list);
        }
        "pid" => {
            let pids = numbers(scanner, "the id of a process, such as 1234")?;
            filters.pids.extend(pids.iter().map(|(first, _)| *first));
            sort_and_limit(scanner, start, &mut filters.pids, MAX_EVENT_FILTER_PID_COUNT, "processes")?;
        }
        "exe" => extend_names(&mut filters.exes, strings(scanner)?),
        "package" => extend_names(&mut filters.packages, strings(scanner)?),
        "app" => extend_names(&mut filters.apps, strings(scanner)?),
        _ => extend_names(&mut filters.containers, strings(scanner)?),
    }
    filters.check().map_err(|reason| scanner.wrong(since(scanner, start), reason))
}

/// Returns the list to extend; a filter either includes or excludes.
fn choose<'f, T>(
    scanner: &Scanner<'_>,
    start: usize,
    slot: &'f mut Option<Choice<T>>,
    includes: bool,
) -> Result<&'f mut Vec<T>, Mistake> {
    let choice = slot.get_or_insert_with(|| Choice { includes, list: Vec::new() });
    if choice.includes != includes {
        let reason = "a list either includes or excludes: there cannot be one of each";
        return Err(scanner.wrong(since(scanner, start), reason));
    }
    Ok(&mut choice.list)
}

/// Sorts a list, removes duplicates, and checks its length.
fn sort_and_limit<T: Ord>(
    scanner: &Scanner<'_>,
    start: usize,
    list: &mut Vec<T>,
    most: usize,
    noun: &str,
) -> Result<(), Mistake> {
    list.sort_unstable();
    list.dedup();
    if list.len() > most {
        let reason = format!("{} {noun} are more than the {most} that one filter can contain", list.len());
        return Err(scanner.wrong(since(scanner, start), reason));
    }
    Ok(())
}

fn extend_names(list: &mut Vec<String>, more: Vec<String>) {
    for name in more {
        if !list.contains(&name) {
            list.push(name);
        }
    }
}

/// Reads a list of texts: one, or several in quotes.
fn strings(scanner: &mut Scanner<'_>) -> Result<Vec<String>, Mistake> {
    let items = if scanner.peek() == Some('"') {
        scanner.quoted_list()?
    } else {
        let item = scanner.run(&['@', '+', ',', ';']);
        if matches!(scanner.peek(), Some(',' | ';')) {
            let reason = "quote a list (names=\"A,B\") or repeat the option; + begins another provider";
            return Err(scanner.wrong_here(reason));
        }
        vec![item]
    };
    let is_wrong = |item: &&Piece| item.text.is_empty() || item.text.contains(['\0', ';']);
    match items.iter().find(is_wrong) {
        Some(item) => Err(scanner.wrong(item.at.clone(), "expected a name without a semicolon")),
        None => Ok(items.into_iter().map(|item| item.text).collect()),
    }
}

/// Reads event ids: `1,2-5`.
fn ids(scanner: &mut Scanner<'_>) -> Result<Vec<u16>, Mistake> {
    let start = scanner.position();
    let mut ids = Vec::new();
    for (first, last) in numbers(scanner, "event ids from 0 to 65535, such as 1,2-5")? {
        let ends = u16::try_from(first).ok().zip(u16::try_from(last).ok()).filter(|(f, l)| f <= l);
        let Some((first, last)) = ends else {
            let reason = "expected event ids from 0 to 65535, such as 1,2-5";
            return Err(scanner.wrong(since(scanner, start), reason));
        };
        // One more than fits is enough for the error.
        ids.extend((first..=last).take(MAX_EVENT_FILTER_EVENT_ID_COUNT.saturating_add(1)));
    }
    Ok(ids)
}

/// Reads a list of numbers and ranges, in quotes or not. After a comma, anything but a number
/// begins another provider.
fn numbers(scanner: &mut Scanner<'_>, expected: &str) -> Result<Vec<(u32, u32)>, Mistake> {
    const ENDS: &[char] = &['@', '+', ',', ';'];
    let items = if scanner.peek() == Some('"') {
        scanner.quoted_list()?
    } else {
        let mut items = vec![scanner.run(ENDS)];
        while is_number_next(scanner) {
            scanner.take_char(',');
            items.push(scanner.run(ENDS));
        }
        items
    };
    let wrong = |item: &Piece| scanner.wrong(item.at.clone(), format!("expected {expected}"));
    items.iter().map(|item| range(&item.text).ok_or_else(|| wrong(item))).collect()
}

fn is_number_next(scanner: &Scanner<'_>) -> bool {
    let Some(rest) = scanner.rest().strip_prefix(',') else { return false };
    let item = rest.split(['@', '+', ',', ';', ' ', '\t']).next().unwrap_or_default();
    range(item).is_some()
}

/// Parses a number, or two with a hyphen between them.
fn range(text: &str) -> Option<(u32, u32)> {
    let number = |text: &str| match text.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    };
    match text.split_once('-') {
        Some((first, last)) => number(first).zip(number(last)),
        None => number(text).map(|one| (one, one)),
    }
}

/// Returns the range from a start to the position of the scanner.
fn since(scanner: &Scanner<'_>, start: usize) -> Range<usize> {
    start..scanner.position()
}
