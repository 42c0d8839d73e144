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

use super::argument_error::ArgumentError;
use super::filters::InclusionList;
use super::scan::{Scanner, TextSpan};
use super::spelling::{ParsedProvider, parse_guid, parse_keyword_bits, parse_level_span};

/// Options without a value, and their property bits.
pub(super) const PROPERTY_OPTIONS: [(&str, u32); 12] = [
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

/// Options with a value; `container` exists with and without a value.
const OPTIONS_WITH_VALUE: [&str; 20] = [
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
pub(super) fn read_option(
    scanner: &mut Scanner<'_>,
    start: usize,
    provider: &mut ParsedProvider,
) -> Result<(), ArgumentError> {
    let name = scanner.read_word(&['=', '@', '+', ',', ';', ':']);
    let key = name.text.to_ascii_lowercase();
    if !scanner.take_char('=') {
        if let Some((_, bit)) = PROPERTY_OPTIONS.iter().find(|(flag, _)| *flag == key) {
            provider.property |= bit;
            return Ok(());
        }
        let reason = if OPTIONS_WITH_VALUE.contains(&key.as_str()) {
            format!("@{key} needs a value: @{key}=…")
        } else {
            format!("unknown option {:?}: expected one of {}", name.text, list_option_names())
        };
        return Err(scanner.error_at(start..name.range.end, reason));
    }
    match key.as_str() {
        "level" => read_once(scanner, start, &mut provider.level, |scanner| {
            let span = scanner.read_word(&['@', '+', ',', ';']);
            parse_level_span(scanner, &span)
        }),
        "any" | "keywords" => {
            read_once(scanner, start, &mut provider.any, |scanner| parse_keyword_bits(scanner, false))
        }
        "all" => read_once(scanner, start, &mut provider.all, |scanner| parse_keyword_bits(scanner, false)),
        "source" => read_once(scanner, start, &mut provider.source, |scanner| {
            let span = if scanner.peek() == Some('{') {
                scanner.read_through('}')
            } else {
                scanner.read_word(&['@', '+', ',', ';'])
            };
            parse_guid(scanner, &span)
        }),
        "payload" => read_payload_option(scanner, start, provider),
        "schematized" => read_schematized_option(scanner, start, provider),
        key if key.starts_with("stack-") => read_stack_option(scanner, start, key, provider),
        key if OPTIONS_WITH_VALUE.contains(&key) => read_filter_option(scanner, start, key, provider),
        key if PROPERTY_OPTIONS.iter().any(|(flag, _)| *flag == key) => {
            Err(scanner.error_at(name.range, format!("@{key} has no value")))
        }
        _ => {
            let reason = format!("unknown option {:?}: expected one of {}", name.text, list_option_names());
            Err(scanner.error_at(name.range, reason))
        }
    }
}

fn list_option_names() -> String {
    let flags =
        PROPERTY_OPTIONS.iter().map(|(name, _)| *name).filter(|name| !OPTIONS_WITH_VALUE.contains(name));
    let with_values = OPTIONS_WITH_VALUE.iter().map(|name| format!("{name}="));
    let mut names: Vec<String> = flags.map(str::to_owned).chain(with_values).collect();
    names.sort_unstable();
    names.join(", ")
}

/// Reads a value that may be given only once.
fn read_once<'t, T>(
    scanner: &mut Scanner<'t>,
    start: usize,
    slot: &mut Option<T>,
    read: impl FnOnce(&mut Scanner<'t>) -> Result<T, ArgumentError>,
) -> Result<(), ArgumentError> {
    let value = read(scanner)?;
    if slot.is_some() {
        return Err(scanner.error_at(range_from(scanner, start), "this option is given twice"));
    }
    *slot = Some(value);
    Ok(())
}

/// Reads an option that selects events for stacks. The option also turns stacks on.
fn read_stack_option(
    scanner: &mut Scanner<'_>,
    start: usize,
    key: &str,
    provider: &mut ParsedProvider,
) -> Result<(), ArgumentError> {
    match key {
        "stack-ids" => {
            provider.filters.stack_ids.extend(read_event_ids(scanner)?);
            sort_and_limit(
                scanner,
                start,
                &mut provider.filters.stack_ids,
                MAX_EVENT_FILTER_EVENT_ID_COUNT,
                "event ids",
            )?;
        }
        "stack-names" => extend_names(&mut provider.filters.stack_names, read_names(scanner)?),
        "stack-level" => read_once(scanner, start, &mut provider.stack_level, |scanner| {
            let span = scanner.read_word(&['@', '+', ',', ';']);
            parse_level_span(scanner, &span)
        })?,
        "stack-keywords" => {
            read_once(scanner, start, &mut provider.stack_keywords, |scanner| {
                parse_keyword_bits(scanner, false)
            })?;
        }
        _ => {
            let reason = format!("unknown option {key:?}: expected one of {}", list_option_names());
            return Err(scanner.error_at(range_from(scanner, start), reason));
        }
    }
    provider.property |= EVENT_ENABLE_PROPERTY_STACK_TRACE;
    provider.filters.check().map_err(|reason| scanner.error_at(range_from(scanner, start), reason))
}

/// Reads a value: any content in quotes, or else a word without blanks and separators.
fn read_value(scanner: &mut Scanner<'_>) -> Result<TextSpan, ArgumentError> {
    if scanner.peek() == Some('"') {
        scanner.read_quoted()
    } else {
        Ok(scanner.read_word(&['@', '+', ',', ';']))
    }
}

/// Reads a condition on the payload of an event, which needs the manifest, or the bytes of an
/// encoded filter. A text without a colon is bytes in hexadecimal.
fn read_payload_option(
    scanner: &mut Scanner<'_>,
    start: usize,
    provider: &mut ParsedProvider,
) -> Result<(), ArgumentError> {
    let span = read_value(scanner)?;
    let is_raw = !span.text.contains(':');
    if !provider.filters.payload.is_empty() || (is_raw && !provider.payloads.is_empty()) {
        return Err(
            scanner.error_at(range_from(scanner, start), "give a filter either as conditions or as bytes")
        );
    }
    if !is_raw {
        provider.payloads.push(span);
        return Ok(());
    }
    let Some(bytes) = parse_hex(&span.text).filter(|bytes| !bytes.is_empty()) else {
        let reason =
            "expected EVENT: FIELD OPERATOR VALUE, such as @payload=\"5: Port == 443\", with --manifest FILE";
        return Err(scanner.error_at(span.range, reason));
    };
    provider.filters.payload = bytes;
    provider.filters.check().map_err(|reason| scanner.error_at(range_from(scanner, start), reason))
}

/// Reads a filter that only its provider interprets: its id, version and data, or all of its bytes.
fn read_schematized_option(
    scanner: &mut Scanner<'_>,
    start: usize,
    provider: &mut ParsedProvider,
) -> Result<(), ArgumentError> {
    let span = read_value(scanner)?;
    let bytes = match span.text.split_once(':') {
        Some((id, data)) => parse_hex(data)
            .zip(parse_id_and_version(id))
            .map(|(data, (id, version))| encode::schematized(id, version, &data)),
        None => parse_hex(&span.text),
    };
    let Some(bytes) = bytes.filter(|bytes| !bytes.is_empty()) else {
        let reason = "expected ID:HEX or ID.VERSION:HEX, such as 1:00ff, or the bytes of the filter and its header in hexadecimal";
        return Err(scanner.error_at(span.range, reason));
    };
    if !provider.filters.schematized.is_empty() {
        return Err(scanner.error_at(range_from(scanner, start), "this option is given twice"));
    }
    provider.filters.schematized = bytes;
    provider.filters.check().map_err(|reason| scanner.error_at(range_from(scanner, start), reason))
}

fn parse_id_and_version(text: &str) -> Option<(u16, u8)> {
    match text.split_once('.') {
        Some((id, version)) => id.parse().ok().zip(version.parse().ok()),
        None => text.parse().ok().map(|id| (id, 0)),
    }
}

/// Parses pairs of hexadecimal digits.
fn parse_hex(text: &str) -> Option<Vec<u8>> {
    let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")).unwrap_or(text);
    let (pairs, odd_digit) = digits.as_bytes().as_chunks::<2>();
    let to_digit = |c: u8| char::from(c).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let to_byte = |[high, low]: &[u8; 2]| Some(to_digit(*high)? << 4 | to_digit(*low)?);
    if odd_digit.is_empty() { pairs.iter().map(to_byte).collect() } else { None }
}

/// Reads an option that selects processes or events.
fn read_filter_option(
    scanner: &mut Scanner<'_>,
    start: usize,
    key: &str,
    provider: &mut ParsedProvider,
) -> Result<(), ArgumentError> {
    let filters = &mut provider.filters;
    match key {
        "ids" | "not-ids" => {
            let list = read_event_ids(scanner)?;
            let list_to_extend = get_inclusion_list(scanner, start, &mut filters.ids, key == "ids")?;
            list_to_extend.extend(list);
            sort_and_limit(scanner, start, list_to_extend, MAX_EVENT_FILTER_EVENT_ID_COUNT, "event ids")?;
        }
        "names" | "not-names" => {
            let list = read_names(scanner)?;
            extend_names(get_inclusion_list(scanner, start, &mut filters.names, key == "names")?, list);
        }
        "pid" => {
            let pids = read_number_ranges(scanner, "the id of a process, such as 1234")?;
            // One pid more than the limit is enough to cause the error.
            let in_range = |&(first, last): &(u32, u32)| (first..=last).take(MAX_EVENT_FILTER_PID_COUNT + 1);
            filters.pids.extend(pids.iter().flat_map(in_range));
            sort_and_limit(scanner, start, &mut filters.pids, MAX_EVENT_FILTER_PID_COUNT, "processes")?;
        }
        "exe" => extend_names(&mut filters.exes, read_names(scanner)?),
        "package" => extend_names(&mut filters.packages, read_names(scanner)?),
        "app" => extend_names(&mut filters.apps, read_names(scanner)?),
        _ => extend_names(&mut filters.containers, read_names(scanner)?),
    }
    filters.check().map_err(|reason| scanner.error_at(range_from(scanner, start), reason))
}

/// Returns the list to extend. Including and excluding in one filter is an error.
fn get_inclusion_list<'f, T>(
    scanner: &Scanner<'_>,
    start: usize,
    slot: &'f mut Option<InclusionList<T>>,
    includes: bool,
) -> Result<&'f mut Vec<T>, ArgumentError> {
    let choice = slot.get_or_insert_with(|| InclusionList { includes, list: Vec::new() });
    if choice.includes != includes {
        let reason = "a list either includes or excludes: there cannot be one of each";
        return Err(scanner.error_at(range_from(scanner, start), reason));
    }
    Ok(&mut choice.list)
}

/// Sorts a list, removes duplicates, and checks its length.
fn sort_and_limit<T: Ord>(
    scanner: &Scanner<'_>,
    start: usize,
    list: &mut Vec<T>,
    max_count: usize,
    noun: &str,
) -> Result<(), ArgumentError> {
    list.sort_unstable();
    list.dedup();
    if list.len() > max_count {
        let reason =
            format!("{} {noun} are more than the {max_count} that one filter can contain", list.len());
        return Err(scanner.error_at(range_from(scanner, start), reason));
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

/// Reads one name, or several names in quotes.
fn read_names(scanner: &mut Scanner<'_>) -> Result<Vec<String>, ArgumentError> {
    let items = if scanner.peek() == Some('"') {
        scanner.read_quoted_list()?
    } else {
        let item = scanner.read_word(&['@', '+', ',', ';']);
        if matches!(scanner.peek(), Some(',' | ';')) {
            let reason = "quote a list (names=\"A,B\") or repeat the option; + begins another provider";
            return Err(scanner.error_here(reason));
        }
        vec![item]
    };
    let is_invalid = |item: &&TextSpan| item.text.is_empty() || item.text.contains(['\0', ';']);
    match items.iter().find(is_invalid) {
        Some(item) => Err(scanner.error_at(item.range.clone(), "expected a name without a semicolon")),
        None => Ok(items.into_iter().map(|item| item.text).collect()),
    }
}

/// Reads event ids: `1,2-5`.
fn read_event_ids(scanner: &mut Scanner<'_>) -> Result<Vec<u16>, ArgumentError> {
    let start = scanner.position();
    let mut ids = Vec::new();
    for (first, last) in read_number_ranges(scanner, "event ids from 0 to 65535, such as 1,2-5")? {
        let Some((first, last)) = u16::try_from(first).ok().zip(u16::try_from(last).ok()) else {
            let reason = "expected event ids from 0 to 65535, such as 1,2-5";
            return Err(scanner.error_at(range_from(scanner, start), reason));
        };
        // One id more than the limit is enough to cause the error.
        ids.extend((first..=last).take(MAX_EVENT_FILTER_EVENT_ID_COUNT.saturating_add(1)));
    }
    Ok(ids)
}

/// Reads a list of numbers and ranges, in quotes or not. After a comma, anything except a number
/// begins another provider.
fn read_number_ranges(scanner: &mut Scanner<'_>, expected: &str) -> Result<Vec<(u32, u32)>, ArgumentError> {
    const ENDS: &[char] = &['@', '+', ',', ';'];
    let items = if scanner.peek() == Some('"') {
        scanner.read_quoted_list()?
    } else {
        let mut items = vec![scanner.read_word(ENDS)];
        while is_number_next(scanner) {
            scanner.take_char(',');
            items.push(scanner.read_word(ENDS));
        }
        items
    };
    let to_error = |item: &TextSpan| scanner.error_at(item.range.clone(), format!("expected {expected}"));
    let parse_item = |item: &TextSpan| {
        let range = parse_range(&item.text).filter(|(first, last)| first <= last);
        range.ok_or_else(|| to_error(item))
    };
    items.iter().map(parse_item).collect()
}

fn is_number_next(scanner: &Scanner<'_>) -> bool {
    let Some(after_comma) = scanner.remaining_text().strip_prefix(',') else { return false };
    let item = after_comma.split(['@', '+', ',', ';', ' ', '\t']).next().unwrap_or_default();
    parse_range(item).is_some()
}

/// Parses a number, or two with a hyphen between them.
fn parse_range(text: &str) -> Option<(u32, u32)> {
    let parse_number = |text: &str| match text.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    };
    match text.split_once('-') {
        Some((first, last)) => parse_number(first).zip(parse_number(last)),
        None => parse_number(text).map(|number| (number, number)),
    }
}

/// Returns the range from a start to the position of the scanner.
fn range_from(scanner: &Scanner<'_>, start: usize) -> Range<usize> {
    start..scanner.position()
}
