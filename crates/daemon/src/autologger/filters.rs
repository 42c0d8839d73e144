//! Filters of a provider in text form, and as an enable call carries them.
//!
//! ```text
//!   EventIds = [1, 2]              only these        EVENT_FILTER_EVENT_ID
//!   NotEventIds = [3]              all except these
//!   EventNames = ["A", "B"]        likewise          EVENT_FILTER_EVENT_NAME
//!   StackIds, StackNames           the same for stacks, with Not… too
//!   StackLevel = 3                 stacks of events up to this level    EVENT_FILTER_LEVEL_KW
//!   ExecutableNames = ["app"]      only processes of these programs
//!   PackageIds, AppIds, Containers likewise
//! ```
//!
//! [`traceweir_format::filter`] defines the bytes of filters. A definition cannot name process ids,
//! because it is meant for processes that do not run yet.

use traceweir_format::filter::{self, EventIds, EventNames, Gate, LevelKeyword, encode};
use traceweir_format::spec::enable::{
    EVENT_FILTER_TYPE_CONTAINER as CONTAINER, EVENT_FILTER_TYPE_EVENT_ID as EVENT_ID,
    EVENT_FILTER_TYPE_EVENT_NAME as EVENT_NAME, EVENT_FILTER_TYPE_EXECUTABLE_NAME as EXECUTABLE,
    EVENT_FILTER_TYPE_PACKAGE_APP_ID as APP, EVENT_FILTER_TYPE_PACKAGE_ID as PACKAGE,
    EVENT_FILTER_TYPE_STACKWALK as STACK_ID, EVENT_FILTER_TYPE_STACKWALK_LEVEL_KW as STACK_LEVEL,
    EVENT_FILTER_TYPE_STACKWALK_NAME as STACK_NAME,
};
use traceweir_transport::message::Filter;

use crate::conf::{ConfEntry, ConfigError, quote};

/// How the bytes of a filter are encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FilterEncoding {
    /// Event ids to include (true) or exclude.
    Ids(bool),
    /// Event names to include (true) or exclude.
    Names(bool),
    /// A maximum level.
    Level,
    /// Names joined to one text.
    Joined,
}

/// The names of filters in a definition file, with the type and encoding of each filter.
const KINDS: [(&str, u32, FilterEncoding); 13] = [
    ("EventIds", EVENT_ID, FilterEncoding::Ids(true)),
    ("NotEventIds", EVENT_ID, FilterEncoding::Ids(false)),
    ("EventNames", EVENT_NAME, FilterEncoding::Names(true)),
    ("NotEventNames", EVENT_NAME, FilterEncoding::Names(false)),
    ("StackIds", STACK_ID, FilterEncoding::Ids(true)),
    ("NotStackIds", STACK_ID, FilterEncoding::Ids(false)),
    ("StackNames", STACK_NAME, FilterEncoding::Names(true)),
    ("NotStackNames", STACK_NAME, FilterEncoding::Names(false)),
    ("StackLevel", STACK_LEVEL, FilterEncoding::Level),
    ("ExecutableNames", EXECUTABLE, FilterEncoding::Joined),
    ("PackageIds", PACKAGE, FilterEncoding::Joined),
    ("AppIds", APP, FilterEncoding::Joined),
    ("Containers", CONTAINER, FilterEncoding::Joined),
];

/// Parses the filter that a line sets; `None` if its name is not that of a filter.
pub(super) fn parse_filter(entry: &ConfEntry) -> Result<Option<Filter>, ConfigError> {
    let Some((name, kind, encoding)) = KINDS.iter().find(|(name, ..)| *name == entry.name) else {
        return Ok(None);
    };
    let data = match encoding {
        FilterEncoding::Ids(includes) => Some(encode::event_ids(*includes, &entry.as_u16s()?)),
        FilterEncoding::Names(includes) => {
            Some(encode::event_names(Gate::default(), *includes, &entry.as_texts()?))
        }
        FilterEncoding::Level => u8::try_from(entry.as_number(255)?)
            .ok()
            .map(|level| encode::level_keyword(level_gate(level), true)),
        FilterEncoding::Joined => join_names(&entry.as_texts()?),
    };
    match data.filter(|data| filter::check(*kind, data).is_ok()) {
        Some(data) => Ok(Some(Filter { kind: *kind, data })),
        None => Err(entry.error(format!("{name} has too few, too many or invalid values"))),
    }
}

/// Returns the line that sets a filter; `None` if no line can.
pub(super) fn format_filter(filter: &Filter) -> Option<String> {
    KINDS.iter().filter(|(_, kind, _)| *kind == filter.kind).find_map(|(name, _, encoding)| {
        let values = match encoding {
            FilterEncoding::Ids(includes) => format!("[{}]", decode_ids(*includes, &filter.data)?.join(", ")),
            FilterEncoding::Names(includes) => {
                format!("[{}]", decode_names(*includes, &filter.data)?.join(", "))
            }
            FilterEncoding::Level => decode_level(&filter.data)?.to_string(),
            FilterEncoding::Joined => format!("[{}]", decode_joined_names(&filter.data)?.join(", ")),
        };
        Some(format!("{name} = {values}"))
    })
}

/// Joins names to one text; `None` if a name contains a separator.
fn join_names(names: &[String]) -> Option<Vec<u8>> {
    let is_valid = |name: &String| !name.contains([';', '\0']);
    names.iter().all(is_valid).then(|| encode::name_list(names))
}

fn decode_ids(includes: bool, data: &[u8]) -> Option<Vec<String>> {
    let filter = EventIds::parse(data).ok().filter(|filter| filter.filter_in == includes)?;
    Some(filter.ids().map(|id| id.to_string()).collect())
}

/// Returns the names of a filter. A filter that is limited to a level or keywords has no text form.
fn decode_names(includes: bool, data: &[u8]) -> Option<Vec<String>> {
    let filter = EventNames::parse(data).ok()?;
    if filter.gate != Gate::default() || filter.filter_in != includes {
        return None;
    }
    filter.names().map(|name| std::str::from_utf8(name).ok().map(quote)).collect()
}

fn decode_level(data: &[u8]) -> Option<u8> {
    let filter = LevelKeyword::parse(data).ok().filter(|filter| filter.filter_in)?;
    let level = filter.gate.level;
    (filter.gate == level_gate(level)).then_some(level)
}

fn decode_joined_names(data: &[u8]) -> Option<Vec<String>> {
    Some(filter::parse_names_as_given(data).ok()?.iter().map(|name| quote(name)).collect())
}

const fn level_gate(level: u8) -> Gate {
    Gate { any: 0, all: 0, level }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conf::parse;

    fn parse_line(text: &str) -> Result<Option<Filter>, ConfigError> {
        parse_filter(&parse(text).unwrap()[0].entries[0])
    }

    #[test]
    fn filters_have_the_documented_bytes_and_round_trip() {
        let ids = parse_line("NotEventIds = [1, 258]").unwrap().unwrap();
        // 0 (exclude), 0 (reserved), then as 16-bit numbers the count 2 and the ids 1 and 258.
        assert_eq!(ids, Filter { kind: EVENT_ID, data: vec![0, 0, 2, 0, 1, 0, 2, 1] });
        let names = parse_line("EventNames = [\"A\", \"Bc\"]").unwrap().unwrap();
        // After two keyword masks: level 0, 1 (include), the 16-bit count 2, and the names.
        assert_eq!(names.data[16..], [0, 1, 2, 0, b'A', 0, b'B', b'c', 0]);
        let level = parse_line("StackLevel = 3").unwrap().unwrap();
        // After two keyword masks: level 3, 1 (include), padding.
        assert_eq!((level.kind, level.data.len(), level.data[16], level.data[17]), (STACK_LEVEL, 24, 3, 1));
        let programs = parse_line("ExecutableNames = [\"a\", \"é\"]").unwrap().unwrap();
        assert_eq!(programs.data, [b'a', 0, b';', 0, 0xE9, 0]);
        for text in [
            "EventIds = [1]",
            "NotEventIds = [7, 65535]",
            "EventNames = [\"A\"]",
            "NotEventNames = [\"A\", \"B \\\"q\\\"\"]",
            "StackIds = [2]",
            "NotStackIds = [2]",
            "StackNames = [\"S\"]",
            "NotStackNames = [\"S\"]",
            "StackLevel = 0",
            "ExecutableNames = [\"a\", \"b\"]",
            "PackageIds = [\"x.service\"]",
            "AppIds = [\"x\"]",
            "Containers = [\"0123\"]",
        ] {
            assert_eq!(format_filter(&parse_line(text).unwrap().unwrap()).as_deref(), Some(text));
        }
    }

    #[test]
    fn invalid_filters_are_refused_with_their_line() {
        let many = (0..65).map(|n| n.to_string()).collect::<Vec<_>>().join(",");
        for text in [
            "EventIds = []".to_owned(),
            format!("EventIds = [{many}]"),
            "EventNames = []".to_owned(),
            format!("EventNames = [\"{}\"]", "n".repeat(4096)),
            "StackLevel = 256".to_owned(),
            "ExecutableNames = [\"a;b\"]".to_owned(),
            format!("ExecutableNames = [\"{}\"]", "n".repeat(600)),
        ] {
            assert_eq!(parse_line(&text).expect_err(&text).line, 1);
        }
        assert_eq!(parse_line("EnableLevel = 1"), Ok(None));
    }

    #[test]
    fn filter_bytes_without_text_form_have_no_line() {
        for (kind, data) in [
            (EVENT_ID, vec![]),
            (EVENT_ID, vec![1, 0, 2, 0, 1, 0]),
            (EVENT_NAME, vec![0; 19]),
            (EVENT_NAME, vec![1; 24]),
            (STACK_LEVEL, vec![1; 24]),
            (EXECUTABLE, vec![1]),
            (7, vec![]),
        ] {
            assert_eq!(format_filter(&Filter { kind, data: data.clone() }), None, "{kind:#x} {data:?}");
        }
    }
}
