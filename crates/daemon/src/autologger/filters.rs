//! Filters of a provider as people write them, and as an enable call carries them.
//!
//! ```text
//!   EventIds = [1, 2]              only these        EVENT_FILTER_EVENT_ID    in u8 │ 0 │ count u16 │ ids u16…
//!   NotEventIds = [3]              all but these
//!   EventNames = ["A", "B"]        likewise          EVENT_FILTER_EVENT_NAME  any u64 │ all u64 │ level u8 │ in u8 │ count u16 │ UTF-8, NUL…
//!   StackIds, StackNames           the same for stacks, with Not… too
//!   StackLevel = 3                 stacks of events of this level or more severe    EVENT_FILTER_LEVEL_KW  any │ all │ level │ in │ 0…
//!   ExecutableNames = ["app"]      only in these processes                          UTF-16, names separated by ;
//!   PackageIds, AppIds, Containers likewise
//! ```
//!
//! Source: Documented ("EVENT_FILTER_DESCRIPTOR structure" and its kinds). Process ids have no place here: no process is there yet.

use traceweir_format::spec::enable::{
    EVENT_FILTER_TYPE_CONTAINER as CONTAINER, EVENT_FILTER_TYPE_EVENT_ID as EVENT_ID,
    EVENT_FILTER_TYPE_EVENT_NAME as EVENT_NAME, EVENT_FILTER_TYPE_EXECUTABLE_NAME as EXECUTABLE,
    EVENT_FILTER_TYPE_PACKAGE_APP_ID as APP, EVENT_FILTER_TYPE_PACKAGE_ID as PACKAGE,
    EVENT_FILTER_TYPE_STACKWALK as STACK_ID, EVENT_FILTER_TYPE_STACKWALK_LEVEL_KW as STACK_LEVEL,
    EVENT_FILTER_TYPE_STACKWALK_NAME as STACK_NAME, MAX_EVENT_FILTER_DATA_SIZE,
    MAX_EVENT_FILTER_EVENT_ID_COUNT, MAX_EVENT_FILTER_EVENT_NAME_SIZE,
};
use traceweir_transport::message::Filter;

use crate::conf::{Entry, Wrong, quote};

/// How the bytes of a filter are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    /// Ids that are wanted, or not wanted.
    Ids(bool),
    /// Names likewise.
    Names(bool),
    /// A level.
    Level,
    /// Names joined to one text.
    Joined,
}

const KINDS: [(&str, u32, Shape); 13] = [
    ("EventIds", EVENT_ID, Shape::Ids(true)),
    ("NotEventIds", EVENT_ID, Shape::Ids(false)),
    ("EventNames", EVENT_NAME, Shape::Names(true)),
    ("NotEventNames", EVENT_NAME, Shape::Names(false)),
    ("StackIds", STACK_ID, Shape::Ids(true)),
    ("NotStackIds", STACK_ID, Shape::Ids(false)),
    ("StackNames", STACK_NAME, Shape::Names(true)),
    ("NotStackNames", STACK_NAME, Shape::Names(false)),
    ("StackLevel", STACK_LEVEL, Shape::Level),
    ("ExecutableNames", EXECUTABLE, Shape::Joined),
    ("PackageIds", PACKAGE, Shape::Joined),
    ("AppIds", APP, Shape::Joined),
    ("Containers", CONTAINER, Shape::Joined),
];

/// The filter that a line sets; `None` where its name is that of no filter.
pub(super) fn read(entry: &Entry) -> Result<Option<Filter>, Wrong> {
    let Some((name, kind, shape)) = KINDS.iter().find(|(name, ..)| *name == entry.name) else {
        return Ok(None);
    };
    let data = match shape {
        Shape::Ids(wanted) => ids(*wanted, &entry.numbers()?),
        Shape::Names(wanted) => names(*wanted, &entry.texts()?),
        Shape::Level => u8::try_from(entry.number(255)?).ok().map(level),
        Shape::Joined => joined(&entry.texts()?),
    };
    match data {
        Some(data) => Ok(Some(Filter { kind: *kind, data })),
        None => Err(entry.wrong(format!("{name} has too few or too many values"))),
    }
}

/// The line that sets a filter; `None` where there is none for it.
pub(super) fn line(filter: &Filter) -> Option<String> {
    KINDS.iter().filter(|(_, kind, _)| *kind == filter.kind).find_map(|(name, _, shape)| {
        let values = match shape {
            Shape::Ids(wanted) => format!("[{}]", ids_in(*wanted, &filter.data)?.join(", ")),
            Shape::Names(wanted) => format!("[{}]", names_in(*wanted, &filter.data)?.join(", ")),
            Shape::Level => level_in(&filter.data)?.to_string(),
            Shape::Joined => format!("[{}]", joined_in(&filter.data)?.join(", ")),
        };
        Some(format!("{name} = {values}"))
    })
}

fn ids(wanted: bool, ids: &[u16]) -> Option<Vec<u8>> {
    let count = u16::try_from(ids.len()).ok().filter(|_| ids.len() <= MAX_EVENT_FILTER_EVENT_ID_COUNT)?;
    let mut data = vec![u8::from(wanted), 0];
    data.extend(count.to_le_bytes());
    data.extend(ids.iter().flat_map(|id| id.to_le_bytes()));
    (count > 0).then_some(data)
}

fn ids_in(wanted: bool, data: &[u8]) -> Option<Vec<String>> {
    let ([first, _, count @ ..], rest) = data.split_first_chunk::<4>()?;
    let (words, odd) = rest.as_chunks::<2>();
    let fits = odd.is_empty() && words.len() == usize::from(u16::from_le_bytes(*count));
    let ids = words.iter().map(|word| u16::from_le_bytes(*word).to_string());
    (fits && (*first != 0) == wanted).then(|| ids.collect())
}

/// Any keyword, all keywords, level, whether what is listed is wanted, and a count: the same front for names and levels.
fn front(level: u8, wanted: bool) -> Vec<u8> {
    let mut data = vec![0; 16];
    data.extend([level, u8::from(wanted)]);
    data
}

fn names(wanted: bool, names: &[String]) -> Option<Vec<u8>> {
    let count = u16::try_from(names.len()).ok().filter(|count| *count > 0)?;
    let mut data = front(0, wanted);
    data.extend(count.to_le_bytes());
    for name in names {
        data.extend(name.as_bytes());
        data.push(0);
    }
    (data.len() <= MAX_EVENT_FILTER_EVENT_NAME_SIZE).then_some(data)
}

fn names_in(wanted: bool, data: &[u8]) -> Option<Vec<String>> {
    let (front, names) = data.split_first_chunk::<20>()?;
    // Names that are asked for within some level and keywords only cannot be written here.
    let [gates @ .., is_wanted, low, high] = front;
    if gates.iter().any(|byte| *byte != 0) || (*is_wanted != 0) != wanted {
        return None;
    }
    let text = std::str::from_utf8(names).ok()?.strip_suffix('\0')?;
    let names: Vec<_> = text.split('\0').map(quote).collect();
    (names.len() == usize::from(u16::from_le_bytes([*low, *high]))).then_some(names)
}

fn level(level: u8) -> Vec<u8> {
    let mut data = front(level, true);
    data.extend([0; 6]);
    data
}

fn level_in(data: &[u8]) -> Option<u8> {
    let found = *data.get(16)?;
    (data == level(found)).then_some(found)
}

fn joined(names: &[String]) -> Option<Vec<u8>> {
    if names.is_empty() || names.iter().any(|name| name.contains([';', '\0'])) {
        return None;
    }
    let data: Vec<u8> = names.join(";").encode_utf16().flat_map(u16::to_le_bytes).collect();
    (data.len() <= MAX_EVENT_FILTER_DATA_SIZE).then_some(data)
}

fn joined_in(data: &[u8]) -> Option<Vec<String>> {
    let (words, odd) = data.as_chunks::<2>();
    let units: Vec<u16> = words.iter().map(|word| u16::from_le_bytes(*word)).collect();
    let text = String::from_utf16(&units).ok().filter(|_| odd.is_empty())?;
    let names = text.trim_end_matches('\0').split(';').filter(|name| !name.is_empty());
    Some(names.map(quote).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conf::parse;

    fn filter(text: &str) -> Result<Option<Filter>, Wrong> {
        read(&parse(text).unwrap()[0].entries[0])
    }

    #[test]
    fn filters_have_the_published_bytes_and_come_back_as_written() {
        let ids = filter("NotEventIds = [1, 258]").unwrap().unwrap();
        assert_eq!(ids, Filter { kind: EVENT_ID, data: vec![0, 0, 2, 0, 1, 0, 2, 1] });
        let names = filter("EventNames = [\"A\", \"Bc\"]").unwrap().unwrap();
        assert_eq!(names.data[16..], [0, 1, 2, 0, b'A', 0, b'B', b'c', 0]);
        let level = filter("StackLevel = 3").unwrap().unwrap();
        assert_eq!((level.kind, level.data.len(), level.data[16], level.data[17]), (STACK_LEVEL, 24, 3, 1));
        let programs = filter("ExecutableNames = [\"a\", \"é\"]").unwrap().unwrap();
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
            assert_eq!(line(&filter(text).unwrap().unwrap()).as_deref(), Some(text));
        }
    }

    #[test]
    fn filters_that_cannot_be_are_refused_with_their_line() {
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
            assert_eq!(filter(&text).expect_err(&text).line, 1);
        }
        assert_eq!(filter("EnableLevel = 1"), Ok(None));
    }

    #[test]
    fn bytes_that_no_line_makes_have_no_line() {
        for (kind, data) in [
            (EVENT_ID, vec![]),
            (EVENT_ID, vec![1, 0, 2, 0, 1, 0]),
            (EVENT_NAME, vec![0; 19]),
            (EVENT_NAME, vec![1; 24]),
            (STACK_LEVEL, vec![1; 24]),
            (EXECUTABLE, vec![1]),
            (7, vec![]),
        ] {
            assert_eq!(line(&Filter { kind, data: data.clone() }), None, "{kind:#x} {data:?}");
        }
    }
}
