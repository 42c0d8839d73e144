//! The table of `fixtures/information`: its lines, how a line becomes a call, and the check that no
//! case is missing.
//!
//! - `set 3 min-1 system e*1 23 24 - any` (a byte too short) is a [`TableRow`]: call, class, case,
//!   session, buffer, length, status, ReturnLength and caller. `make_call` makes the call, and
//!   `check` compares status and ReturnLength with the line.
//! - `none set 18 uneven bytes` is a [`TableGap`]: call, class and case of a combination that
//!   cannot occur, and the reason in one word.
//!
//! A comment in the table describes the values of the fields; a C program runs the same lines.

use std::collections::BTreeMap;

use traceweir::Guid;
use traceweir::controller::Controller;
use traceweir::controller::info::{InfoClass, Query};
use traceweir::controller::{InformationAnswer, OutputBuffer, enumerate_bytes, query_bytes, set_bytes};
use traceweir_format::spec::event::class;

use crate::machine::Machine;

/// An output without a buffer.
pub(crate) const NO_OUTPUT: OutputBuffer = OutputBuffer { length: 0, is_null: true };

const TABLE: &str = include_str!("../../../../../fixtures/information/classes.txt");

/// The cases that the table must have for every class with every call, or name as a gap.
const CASES: [&str; 11] =
    ["null", "zero", "min-1", "min", "uneven", "many", "kind", "no-id", "stale", "bare", "ok"];
/// The case of all further lines.
const FURTHER_CASE: &str = "more";
/// All classes, and two unknown numbers.
const CLASSES: std::ops::RangeInclusive<u32> = 0..=30;
const CALLS: [&str; 3] = ["set", "query", "enum"];

/// Returns the GUID that the table calls by this number.
pub(crate) const fn guid(number: u32) -> Guid {
    Guid::from_u128((number as u128) << 96)
}

/// One call of the table.
pub(crate) struct TableRow<'a> {
    line: usize,
    call: &'a str,
    class: u32,
    case: &'a str,
    session: &'a str,
    buffer: Option<Vec<u8>>,
    length: &'a str,
    status: &'a str,
    returned: &'a str,
    caller: &'a str,
}

/// The result of a call: its status, and ReturnLength if it was written.
type CallResult = (u32, Option<u32>);

fn lines() -> impl Iterator<Item = (usize, Vec<&'static str>)> {
    let numbered = (1..).zip(TABLE.lines()).filter(|(_, line)| !line.starts_with('#'));
    numbered.map(|(line, text)| (line, text.split_ascii_whitespace().collect()))
}

impl TableRow<'static> {
    /// Returns all calls in the order of the table.
    fn read_all() -> impl Iterator<Item = Self> {
        lines().filter(|(_, fields)| fields[0] != "none").map(|(line, fields)| {
            let [call, class, case, session, buffer, length, status, returned, caller, ..] = fields[..]
            else {
                panic!("line {line}: too few fields");
            };
            let class = class.parse().unwrap();
            let buffer = (!buffer.starts_with("null")).then(|| parse_buffer(buffer));
            TableRow { line, call, class, case, session, buffer, length, status, returned, caller }
        })
    }

    /// Returns the calls that `any`, `plain` or `guest` makes.
    pub(crate) fn for_caller(caller: &str) -> Vec<Self> {
        let rows: Vec<Self> = Self::read_all().filter(|row| row.caller == caller).collect();
        assert!(!rows.is_empty(), "no line for {caller}");
        rows
    }
}

impl TableRow<'_> {
    /// Returns the buffer length to pass.
    fn parse_length(&self, controller: &mut Controller, session: u64) -> usize {
        match self.length {
            "need" => self.query_needed_length(controller, session),
            "need-1" => self.query_needed_length(controller, session).saturating_sub(1),
            number => number.parse().unwrap(),
        }
    }

    /// Returns the length that the same call reports for length 0.
    fn query_needed_length(&self, controller: &mut Controller, session: u64) -> usize {
        let outcome = match self.call {
            "query" => query_bytes(Some(controller), session, self.class, None, 0),
            _ => enumerate_bytes(Some(controller), self.class, self.buffer.as_deref(), NO_OUTPUT),
        };
        outcome.return_length.unwrap_or_else(|| panic!("line {}: {:?}", self.line, outcome.result)) as usize
    }

    /// Makes the call, and returns its result.
    fn make_call(&self, controller: &mut Controller, session: u64) -> CallResult {
        let status =
            |result: &traceweir::Result<()>| result.as_ref().err().map_or(0, |error| error.status().0);
        let length = self.parse_length(controller, session);
        let padded = self.buffer.clone().map(|mut bytes| {
            bytes.resize(bytes.len().max(length), 0);
            bytes
        });
        let controller = Some(controller);
        match self.call {
            "set" => {
                let outcome = set_bytes(controller, session, self.class, padded.as_deref(), length);
                (status(&outcome), None)
            }
            "query" => {
                let read = Query::input_size(self.class);
                let input = padded.as_deref().map(|bytes| bytes.get(..read).unwrap_or(bytes));
                let outcome = query_bytes(controller, session, self.class, input, length);
                self.check_answer(length, &outcome);
                (status(&outcome.result), outcome.return_length)
            }
            "enum" => {
                // The call has no session. `no-out` in its place means that the output is null.
                let output = OutputBuffer { length, is_null: self.session == "no-out" };
                let outcome = enumerate_bytes(controller, self.class, self.buffer.as_deref(), output);
                self.check_answer(length, &outcome);
                (status(&outcome.result), outcome.return_length)
            }
            other => panic!("line {}: {other}", self.line),
        }
    }

    /// Asserts that a failed call has no answer, and that the answer of a successful call is as
    /// long as ReturnLength says and fits the buffer.
    fn check_answer(&self, length: usize, outcome: &InformationAnswer) {
        let reported = outcome.result.as_ref().ok().and(outcome.return_length).unwrap_or(0) as usize;
        assert_eq!(outcome.answer.len(), reported, "line {}", self.line);
        assert!(reported <= length, "line {}: the answer does not fit", self.line);
    }

    /// Makes the call, and asserts that the result is that of the line.
    pub(crate) fn check(
        &self,
        controller: &mut Controller,
        sessions: &BTreeMap<String, u64>,
        machine: Machine,
    ) {
        let session = sessions.get(self.session).copied().unwrap_or(0);
        let (status, returned) = self.make_call(controller, session);
        let line = TABLE.lines().nth(self.line - 1).unwrap();
        assert_eq!(
            status.to_string(),
            choose_for_machine(machine, self.status),
            "status of line {}: {line}",
            self.line
        );
        let return_length = returned.map_or("-".to_owned(), |length| length.to_string());
        let is_expected = match choose_for_machine(machine, self.returned) {
            "any" => returned.is_some_and(|length| length > 0),
            "need" => returned == u32::try_from(self.query_needed_length(controller, session)).ok(),
            expected => expected == return_length,
        };
        assert!(is_expected, "ReturnLength of line {}: {return_length}: {line}", self.line);
    }
}

/// Returns the bytes that a buffer of the table describes: parts that are joined by `+`. `z*N` is N
/// zeros; `b:N`, `h:N` and `w:N` are a number of 8, 16 and 32 bits; `g*N` are the GUIDs 1 to N;
/// `e*N` are N CLASSIC_EVENT_IDs.
fn parse_buffer(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    for part in text.split('+') {
        let (kind, number) = part.split_once(['*', ':']).unwrap();
        let number: u32 = number.parse().unwrap();
        match kind {
            "z" => out.resize(out.len() + number as usize, 0),
            "b" => out.push(number as u8),
            "h" => out.extend((number as u16).to_le_bytes()),
            "w" => out.extend(number.to_le_bytes()),
            "g" => (1..=number).for_each(|n| out.extend(guid(n).to_bytes())),
            "e" => (0..number).for_each(|n| {
                out.extend(class::THREAD.to_bytes());
                out.extend([n as u8, 0, 0, 0, 0, 0, 0, 0]);
            }),
            other => panic!("{other}"),
        }
    }
    out
}

/// Returns the alternative that applies to this machine.
fn choose_for_machine(machine: Machine, text: &str) -> &str {
    let Some((condition, cases)) = text.split_once('?') else { return text };
    let (yes, no) = cases.split_once(':').unwrap();
    let holds = match condition {
        "pmu" => machine.has_counters,
        "lbr" => machine.has_branches,
        other => panic!("{other}"),
    };
    if holds { yes } else { no }
}

/// A combination that cannot occur.
struct TableGap {
    call: &'static str,
    /// `None` means all classes.
    class: Option<u32>,
    case: &'static str,
}

impl TableGap {
    fn read_all() -> Vec<Self> {
        let gaps = lines().filter(|(_, fields)| fields[0] == "none").map(|(line, fields)| {
            let [_, call, class, case, _reason] = fields[..] else {
                panic!("line {line}: the reason in one word is missing")
            };
            Self { call, class: class.parse().ok(), case }
        });
        gaps.collect()
    }

    fn matches(&self, call: &str, class: u32, case: &str) -> bool {
        self.call == call && self.class.is_none_or(|gap_class| gap_class == class) && self.case == case
    }
}

/// The class of each setting, the session that it applies to, and its documented minimum length.
const MINIMUM_LENGTHS: [(u32, &str, usize); 14] = [
    (3, "system", 24),
    (4, "system", 4),
    (5, "0", 8),
    (6, "0", 4),
    (8, "system", 24),
    (9, "system", 4),
    (10, "live", 16),
    (16, "live", 8),
    (18, "live", 1),
    (20, "system", 4),
    (21, "system", 4),
    (24, "system", 12),
    (26, "live", 12),
    (28, "system", 8),
];

/// Returns whether a call supports a class.
fn supports(call: &str, class: u32) -> bool {
    InfoClass::from_number(class).map(InfoClass::rules).is_some_and(|rules| match call {
        "set" => rules.can_set,
        "query" => rules.can_query,
        _ => rules.can_enumerate,
    })
}

/// Returns whether a line fits the case that it names. The statuses are 24 (ERROR_BAD_LENGTH), 87
/// (ERROR_INVALID_PARAMETER) and 122 (ERROR_INSUFFICIENT_BUFFER).
fn fits_its_case(row: &TableRow<'_>) -> bool {
    let (is_enum, supports) = (row.call == "enum", supports(row.call, row.class));
    let setting = MINIMUM_LENGTHS.iter().find(|(class, ..)| row.call == "set" && *class == row.class);
    let has_length = |length: usize| row.length == length.to_string();
    match (row.case, setting) {
        ("null", _) => (row.buffer.is_none() || row.session == "no-out") && row.length != "0",
        ("zero", _) => row.length == "0",
        ("min-1", Some((.., least))) => has_length(least - 1) && row.status == "24",
        ("min-1", None) => !supports || row.status != "0",
        ("min", Some((.., least))) => has_length(*least),
        ("min", None) => !supports || row.status == "0",
        ("kind", _) => {
            let setting_session = setting.map_or("0", |(_, session, _)| *session);
            !is_enum && !["0", "stale", setting_session].contains(&row.session)
        }
        ("no-id", _) => !is_enum && row.session == "0",
        ("stale", _) => !is_enum && row.session == "stale",
        ("bare", _) => row.caller != "any",
        ("ok", _) => !supports || !["24", "87", "122"].contains(&row.status),
        _ => true,
    }
}

/// Returns whether these lines, all of one case, cover its callers and sessions.
fn cover_case(rows: &[&TableRow<'_>], call: &str, class: u32, case: &str) -> bool {
    let has_caller = |caller: &str| rows.iter().any(|row| row.caller == caller);
    let has_session = |session: &str| rows.iter().any(|row| row.session == session);
    let rules = InfoClass::from_number(class).map(InfoClass::rules);
    let needs_system_logger = supports(call, class) && rules.is_some_and(|rules| rules.needs_system_logger);
    match case {
        "bare" => has_caller("plain") && has_caller("guest"),
        "kind" if needs_system_logger => has_session("private") && has_session("live"),
        "kind" => has_session("private"),
        _ => has_caller("any"),
    }
}

#[test]
fn table_has_every_case_of_every_class_and_call() {
    let (rows, gaps): (Vec<TableRow<'_>>, _) = (TableRow::read_all().collect(), TableGap::read_all());
    for row in &rows {
        let is_known = CASES.contains(&row.case) || row.case == FURTHER_CASE;
        assert!(is_known && CALLS.contains(&row.call) && CLASSES.contains(&row.class), "line {}", row.line);
        assert!(fits_its_case(row), "line {} does not fit the case {}", row.line, row.case);
        // The class is checked before all other arguments; 50 is ERROR_NOT_SUPPORTED.
        let refused = if row.call == "enum" { "87" } else { "50" };
        assert!(supports(row.call, row.class) || row.status == refused, "line {}", row.line);
    }
    for class in CLASSES {
        for (call, case) in CALLS.iter().flat_map(|call| CASES.map(|case| (*call, case))) {
            let case_rows: Vec<&TableRow<'_>> =
                rows.iter().filter(|row| (row.call, row.class, row.case) == (call, class, case)).collect();
            let is_gap = gaps.iter().any(|gap| gap.matches(call, class, case));
            assert_ne!(is_gap, cover_case(&case_rows, call, class, case), "{call} {class} {case}");
            assert!(
                !is_gap || case_rows.is_empty(),
                "{call} {class} {case} is in the table as a gap and as a call"
            );
        }
    }
}
