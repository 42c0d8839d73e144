//! Formats the properties and filters of an enable.

use std::fmt::{self, Write};

use traceweir::session::{Filter, ProviderEnable};
use traceweir_decode::format::json_string;
use traceweir_format::filter::{self, EventIds, EventNames, Gate, Header, LevelKeyword, payload};
use traceweir_format::spec::enable as spec;

use crate::grammar::property_names;
use crate::text::{Object, array, counted, plain};

/// Filter types, and the command-line option for each.
const FILTERS: [(u32, &str); 13] = [
    (spec::EVENT_FILTER_TYPE_SCHEMATIZED, "schematized"),
    (spec::EVENT_FILTER_TYPE_SYSTEM_FLAGS, "system-flags"),
    (spec::EVENT_FILTER_TYPE_PID, "pid"),
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
pub(super) fn properties(enable: &ProviderEnable) -> String {
    let bits = enable.properties.bits();
    match property_names(bits) {
        names if names.is_empty() => format!("{bits:#x}"),
        names => format!("{bits:#x} ({})", names.join(" ")),
    }
}

/// Formats the filters with the numbers of their types and in command-line syntax.
pub(super) fn filters(enable: &ProviderEnable) -> String {
    let mut text = String::new();
    for filter in &enable.filters {
        let text_of_filter = match detail(filter) {
            Some(detail) => detail.to_string(),
            None => option_name(filter.kind()).to_owned(),
        };
        let _ = write!(
            text,
            "{}{:#x} ({text_of_filter})",
            if text.is_empty() { "" } else { ", " },
            filter.kind()
        );
    }
    if text.is_empty() { "none".to_owned() } else { text }
}

/// Formats a filter in command-line syntax; `None` if its content is unknown.
pub(crate) fn format_filter(filter: &Filter) -> Option<String> {
    detail(filter).map(|detail| detail.to_string())
}

/// Formats a filter as a JSON object: type, command-line option and values.
pub(super) fn object(filter: &Filter) -> Option<String> {
    let detail = detail(filter)?;
    let mut object = Object::new();
    object.mask("type", filter.kind()).text("option", detail.option);
    object.raw("values", &array(detail.values.iter().map(Value::json)));
    Some(object.finish())
}

fn option_name(kind: u32) -> &'static str {
    FILTERS.iter().find(|(known, _)| *known == kind).map_or("provider's own", |(_, name)| name)
}

/// The decoded content of a filter.
struct Detail {
    option: &'static str,
    values: Vec<Value>,
}

enum Value {
    Number(u64),
    Text(String),
}

impl Value {
    fn json(&self) -> String {
        match self {
            Self::Number(number) => number.to_string(),
            Self::Text(text) => {
                let mut out = Vec::new();
                json_string(text, &mut out);
                String::from_utf8_lossy(&out).into_owned()
            }
        }
    }
}

impl fmt::Display for Detail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_plain = |text: &str| text.chars().all(|c| c.is_alphanumeric() || "._-:/".contains(c));
        let are_plain =
            self.values.iter().all(|value| !matches!(value, Value::Text(text) if !is_plain(text)));
        let values = self.values.iter().map(|value| match value {
            Value::Number(number) => number.to_string(),
            Value::Text(text) => plain(text),
        });
        let values = values.collect::<Vec<_>>().join(",");
        let quote = if are_plain && (self.values.len() == 1 || !values.contains(char::is_alphabetic)) {
            ""
        } else {
            "\""
        };
        write!(f, "{}={quote}{values}{quote}", self.option)
    }
}

/// Decodes the bytes of a filter.
fn detail(filter: &Filter) -> Option<Detail> {
    let (data, option) = (filter.data(), option_name(filter.kind()));
    let texts = |names: Vec<String>| names.into_iter().map(Value::Text).collect::<Vec<_>>();
    let detail = |option, values| Some(Detail { option, values });
    match filter.kind() {
        spec::EVENT_FILTER_TYPE_PID => detail(
            option,
            filter::pids(data).ok()?.into_iter().map(|pid| Value::Number(pid.into())).collect(),
        ),
        spec::EVENT_FILTER_TYPE_EXECUTABLE_NAME
        | spec::EVENT_FILTER_TYPE_PACKAGE_ID
        | spec::EVENT_FILTER_TYPE_PACKAGE_APP_ID
        | spec::EVENT_FILTER_TYPE_CONTAINER => detail(option, texts(filter::names_as_given(data).ok()?)),
        spec::EVENT_FILTER_TYPE_EVENT_ID | spec::EVENT_FILTER_TYPE_STACKWALK => {
            let ids = EventIds::parse(data).ok()?;
            let values = ids.ids().map(|id| Value::Number(id.into())).collect();
            detail(list_option(filter.kind(), ids.filter_in), values)
        }
        spec::EVENT_FILTER_TYPE_EVENT_NAME | spec::EVENT_FILTER_TYPE_STACKWALK_NAME => {
            let names = EventNames::parse(data).ok()?;
            let values = names.names().map(|name| String::from_utf8_lossy(name).into_owned()).collect();
            detail(list_option(filter.kind(), names.filter_in), texts(values))
        }
        spec::EVENT_FILTER_TYPE_STACKWALK_LEVEL_KW => {
            let LevelKeyword { gate: Gate { any, all, level }, filter_in } =
                LevelKeyword::parse(data).ok()?;
            let masks = [format!("any={any:#x}"), format!("all={all:#x}")];
            let values = std::iter::once(Value::Number(level.into())).chain(masks.map(Value::Text)).collect();
            detail(list_option(filter.kind(), filter_in), values)
        }
        spec::EVENT_FILTER_TYPE_PAYLOAD => {
            let filters = payload::Filters::parse(data).ok()?;
            detail(option, filters.iter().map(|filter| Value::Text(condition(&filter))).collect())
        }
        spec::EVENT_FILTER_TYPE_SCHEMATIZED => {
            let header = Header::parse(data).ok()?;
            let hex: String = header.data.iter().map(|byte| format!("{byte:02x}")).collect();
            detail(option, vec![Value::Text(format!("{}:{hex}", header.id))])
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

/// Describes a payload filter: its event, and how many conditions it has. Names of fields are in
/// the manifest, not in the filter.
fn condition(filter: &payload::Filter<'_>) -> String {
    let joined = if filter.any { "or" } else { "and" };
    format!(
        "{}: {} joined by {joined}",
        filter.event_id,
        counted(filter.predicates().count() as u64, "condition")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use traceweir_format::filter::encode;

    fn format(kind: u32, data: Vec<u8>) -> Option<String> {
        format_filter(&Filter::from_parts(kind, data))
    }

    #[test]
    fn filters_print_in_command_line_syntax() {
        let gate = Gate { any: 1, all: 0, level: 4 };
        for (kind, data, text) in [
            (0x8000_0004, encode::pids(&[12, 7]), "pid=12,7"),
            (0x8000_0008, encode::name_list(&["Shop"]), "exe=Shop"),
            (0x8000_0008, encode::name_list(&["a", "b c"]), "exe=\"a,b c\""),
            (0x8000_0200, encode::event_ids(true, &[1, 5]), "ids=1,5"),
            (0x8000_0200, encode::event_ids(false, &[1]), "not-ids=1"),
            (0x8000_0400, encode::event_names(gate, true, &["Start", "Stop"]), "names=\"Start,Stop\""),
            (0x8000_4000, encode::level_keyword(gate, true), "stack-level=\"4,any=0x1,all=0x0\""),
            (0x8000_0000, encode::schematized(9, 0, &[0xAB]), "schematized=9:ab"),
        ] {
            let text_of_filter = format(kind, data);
            assert_eq!(text_of_filter.as_deref(), Some(text), "{kind:#x}");
        }
    }

    #[test]
    fn unknown_filters_print_their_type() {
        assert_eq!(format(0x8000_0200, Vec::new()), None);
        assert_eq!(format(7, vec![1, 2, 3]), None);
        let mut enable = ProviderEnable::default();
        enable.filters = vec![Filter::from_parts(0x8000_0200, vec![1]), Filter::from_parts(7, vec![])];
        assert_eq!(filters(&enable), "0x80000200 (ids), 0x7 (provider's own)");
    }
}
