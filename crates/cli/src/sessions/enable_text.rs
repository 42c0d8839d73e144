//! Formats the properties and filters of an enable.

use std::fmt::{self, Write};

use traceweir::session::{Filter, ProviderEnable};
use traceweir_decode::format::push_json_string;
use traceweir_format::filter::{self, EventIds, EventNames, Gate, Header, LevelKeyword, payload};
use traceweir_format::spec::enable as spec;

use crate::grammar::property_names;
use crate::text::{JsonObject, escape, format_count, json_array};

/// Filter types, each with its command-line option or, if it has none, with a name in the same
/// style.
const FILTER_OPTIONS: [(u32, &str); 14] = [
    (spec::EVENT_FILTER_TYPE_SCHEMATIZED, "schematized"),
    (spec::EVENT_FILTER_TYPE_SYSTEM_FLAGS, "system-flags"),
    (spec::EVENT_FILTER_TYPE_PID, "pid"),
    (spec::EVENT_FILTER_TYPE_PROCESS_TREE, "tree"),
    (spec::EVENT_FILTER_TYPE_EXECUTABLE_NAME, "exe"),
    (spec::EVENT_FILTER_TYPE_PACKAGE_ID, "package"),
    (spec::EVENT_FILTER_TYPE_PACKAGE_APP_ID, "app"),
    (spec::EVENT_FILTER_TYPE_PAYLOAD, "payload"),
    (spec::EVENT_FILTER_TYPE_EVENT_ID, "ids"),
    (spec::EVENT_FILTER_TYPE_EVENT_NAME, "names"),
    (spec::EVENT_FILTER_TYPE_STACKWALK, "stack-ids"),
    (spec::EVENT_FILTER_TYPE_STACKWALK_NAME, "stack-names"),
    (spec::EVENT_FILTER_TYPE_STACKWALK_LEVEL_KW, "stack-level"),
    (spec::EVENT_FILTER_TYPE_CONTAINER, "container"),
];

/// Formats the properties as a number with the names of the command line.
pub(super) fn format_properties(enable: &ProviderEnable) -> String {
    let bits = enable.properties.bits();
    match property_names(bits) {
        names if names.is_empty() => format!("{bits:#x}"),
        names => format!("{bits:#x} ({})", names.join(" ")),
    }
}

/// Formats the filters with the numbers of their types, in the style of the command line. The text
/// is not always accepted as input.
pub(super) fn format_filters(enable: &ProviderEnable) -> String {
    let mut text = String::new();
    for filter in &enable.filters {
        let filter_text = match decode_filter(filter) {
            Some(decoded) => decoded.to_string(),
            None => option_name(filter.kind()).to_owned(),
        };
        let _ =
            write!(text, "{}{:#x} ({filter_text})", if text.is_empty() { "" } else { ", " }, filter.kind());
    }
    if text.is_empty() { "none".to_owned() } else { text }
}

/// Formats a filter in the style of the command line; `None` if its content is unknown. The text is
/// not always accepted as input.
pub(crate) fn format_filter(filter: &Filter) -> Option<String> {
    decode_filter(filter).map(|decoded| decoded.to_string())
}

/// Formats a filter as a JSON object: type, command-line option and values.
pub(super) fn format_filter_json(filter: &Filter) -> Option<String> {
    let decoded = decode_filter(filter)?;
    let mut object = JsonObject::new();
    object.mask("type", filter.kind()).text("option", decoded.option);
    object.raw("values", &json_array(decoded.values.iter().map(FilterValue::to_json)));
    Some(object.finish())
}

fn option_name(kind: u32) -> &'static str {
    FILTER_OPTIONS.iter().find(|(known, _)| *known == kind).map_or("provider's own", |(_, name)| name)
}

/// The decoded content of a filter.
struct DecodedFilter {
    option: &'static str,
    values: Vec<FilterValue>,
}

enum FilterValue {
    Number(u64),
    Text(String),
}

impl FilterValue {
    fn to_json(&self) -> String {
        match self {
            Self::Number(number) => number.to_string(),
            Self::Text(text) => {
                let mut out = Vec::new();
                push_json_string(text, &mut out);
                String::from_utf8_lossy(&out).into_owned()
            }
        }
    }
}

impl fmt::Display for DecodedFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_plain = |text: &str| text.chars().all(|c| c.is_alphanumeric() || "._-:/".contains(c));
        let has_special_text =
            self.values.iter().any(|value| matches!(value, FilterValue::Text(text) if !is_plain(text)));
        let values = self.values.iter().map(|value| match value {
            FilterValue::Number(number) => number.to_string(),
            FilterValue::Text(text) => escape(text),
        });
        let values = values.collect::<Vec<_>>().join(",");
        // Outside quotes, blanks and separators end a value, and a list may contain only numbers.
        let is_list_with_names = self.values.len() > 1 && values.contains(char::is_alphabetic);
        let needs_quotes = has_special_text || is_list_with_names;
        let quote = if needs_quotes { "\"" } else { "" };
        write!(f, "{}={quote}{values}{quote}", self.option)
    }
}

fn decode_filter(filter: &Filter) -> Option<DecodedFilter> {
    let (data, option) = (filter.data(), option_name(filter.kind()));
    let to_texts = |names: Vec<String>| names.into_iter().map(FilterValue::Text).collect::<Vec<_>>();
    let build = |option, values| Some(DecodedFilter { option, values });
    match filter.kind() {
        spec::EVENT_FILTER_TYPE_PID | spec::EVENT_FILTER_TYPE_PROCESS_TREE => build(
            option,
            filter::parse_pids(data).ok()?.into_iter().map(|pid| FilterValue::Number(pid.into())).collect(),
        ),
        spec::EVENT_FILTER_TYPE_EXECUTABLE_NAME
        | spec::EVENT_FILTER_TYPE_PACKAGE_ID
        | spec::EVENT_FILTER_TYPE_PACKAGE_APP_ID
        | spec::EVENT_FILTER_TYPE_CONTAINER => {
            build(option, to_texts(filter::parse_names_as_given(data).ok()?))
        }
        spec::EVENT_FILTER_TYPE_EVENT_ID | spec::EVENT_FILTER_TYPE_STACKWALK => {
            let ids = EventIds::parse(data).ok()?;
            let values = ids.ids().map(|id| FilterValue::Number(id.into())).collect();
            build(list_option(filter.kind(), ids.filter_in), values)
        }
        spec::EVENT_FILTER_TYPE_EVENT_NAME | spec::EVENT_FILTER_TYPE_STACKWALK_NAME => {
            let names = EventNames::parse(data).ok()?;
            let values = names.names().map(|name| String::from_utf8_lossy(name).into_owned()).collect();
            build(list_option(filter.kind(), names.filter_in), to_texts(values))
        }
        spec::EVENT_FILTER_TYPE_STACKWALK_LEVEL_KW => {
            let LevelKeyword { gate: Gate { any, all, level }, filter_in } =
                LevelKeyword::parse(data).ok()?;
            let masks = [format!("any={any:#x}"), format!("all={all:#x}")];
            let values = std::iter::once(FilterValue::Number(level.into()))
                .chain(masks.map(FilterValue::Text))
                .collect();
            build(list_option(filter.kind(), filter_in), values)
        }
        spec::EVENT_FILTER_TYPE_PAYLOAD => {
            let filters = payload::Filters::parse(data).ok()?;
            build(
                option,
                filters.iter().map(|filter| FilterValue::Text(describe_payload_filter(&filter))).collect(),
            )
        }
        spec::EVENT_FILTER_TYPE_SCHEMATIZED => {
            let header = Header::parse(data).ok()?;
            let hex: String = header.data.iter().map(|byte| format!("{byte:02x}")).collect();
            build(option, vec![FilterValue::Text(format!("{}:{hex}", header.id))])
        }
        _ => None,
    }
}

/// Returns the option for a list of included or excluded events.
fn list_option(kind: u32, filter_in: bool) -> &'static str {
    match (kind, filter_in) {
        (spec::EVENT_FILTER_TYPE_EVENT_ID, false) => "not-ids",
        (spec::EVENT_FILTER_TYPE_EVENT_NAME, false) => "not-names",
        (spec::EVENT_FILTER_TYPE_STACKWALK, false) => "not-stack-ids",
        (spec::EVENT_FILTER_TYPE_STACKWALK_NAME, false) => "not-stack-names",
        (spec::EVENT_FILTER_TYPE_STACKWALK_LEVEL_KW, false) => "not-stack-level",
        _ => option_name(kind),
    }
}

/// Describes a payload filter: its event, and how many comparisons it has. Names of fields are in
/// the manifest, not in the filter.
fn describe_payload_filter(filter: &payload::Filter<'_>) -> String {
    let operator = if filter.any { "or" } else { "and" };
    format!(
        "{}: {} joined by {operator}",
        filter.event_id,
        format_count(filter.predicates().count() as u64, "comparison")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use traceweir_format::filter::encode;

    const UNKNOWN_TYPE: u32 = 7;

    fn format_parts(kind: u32, data: Vec<u8>) -> Option<String> {
        format_filter(&Filter::from_parts(kind, data))
    }

    #[test]
    fn filters_print_in_the_style_of_options() {
        let gate = Gate { any: 1, all: 0, level: 4 };
        for (kind, data, text) in [
            (spec::EVENT_FILTER_TYPE_PID, encode::pids(&[12, 7]), "pid=12,7"),
            (spec::EVENT_FILTER_TYPE_EXECUTABLE_NAME, encode::name_list(&["Shop"]), "exe=Shop"),
            (spec::EVENT_FILTER_TYPE_EXECUTABLE_NAME, encode::name_list(&["a", "b c"]), "exe=\"a,b c\""),
            (spec::EVENT_FILTER_TYPE_EVENT_ID, encode::event_ids(true, &[1, 5]), "ids=1,5"),
            (spec::EVENT_FILTER_TYPE_EVENT_ID, encode::event_ids(false, &[1]), "not-ids=1"),
            (
                spec::EVENT_FILTER_TYPE_EVENT_NAME,
                encode::event_names(gate, true, &["Start", "Stop"]),
                "names=\"Start,Stop\"",
            ),
            (
                spec::EVENT_FILTER_TYPE_STACKWALK_LEVEL_KW,
                encode::level_keyword(gate, true),
                "stack-level=\"4,any=0x1,all=0x0\"",
            ),
            (spec::EVENT_FILTER_TYPE_SCHEMATIZED, encode::schematized(9, 0, &[0xAB]), "schematized=9:ab"),
        ] {
            let filter_text = format_parts(kind, data);
            assert_eq!(filter_text.as_deref(), Some(text), "{kind:#x}");
        }
    }

    #[test]
    fn undecodable_filters_print_their_type() {
        assert_eq!(format_parts(spec::EVENT_FILTER_TYPE_EVENT_ID, Vec::new()), None);
        assert_eq!(format_parts(UNKNOWN_TYPE, vec![1, 2, 3]), None);
        let mut enable = ProviderEnable::default();
        enable.filters = vec![
            Filter::from_parts(spec::EVENT_FILTER_TYPE_EVENT_ID, vec![1]),
            Filter::from_parts(UNKNOWN_TYPE, vec![]),
        ];
        assert_eq!(format_filters(&enable), "0x80000200 (ids), 0x7 (provider's own)");
    }
}
