//! Compares our decoding with the text that Microsoft's TraceEvent printed for four of the samples.
//!
//! ```text
//!   sample.etl ──weir dump──▶ events ──names, hiding──▶ counts  ═══ COUNT lines: exactly
//!                                │
//!                                └──time, CPU, length──▶ event ══ EVENT lines, with fields
//! ```
//!
//! No manifest is given: the .NET events decode with the schemas in the trace or with the built-in
//! ones. The process and thread of each line, and the name of the process, must match too.
//!
//! TraceEvent has faults of its own, so a difference is not always a fault of ours. Events that it
//! renames are in [`names`]. Fields that it renames or computes are in [`fields`]: each value is
//! computed from ours and must be equal. [`values`] normalises spelling. Every other difference
//! needs one of the reasons in [`rules`], and the rules may cover at most 3 % of the fields.

mod fields;
mod lines;
mod names;
mod ours;
mod rules;
mod values;

use std::collections::BTreeMap;

use serde_json::Value;

use self::fields::{OurValues, find_our_values, is_default};
use self::lines::{Baseline, EventLine};
use self::ours::{DecodedEvent, DecodedTrace};
use self::rules::RULES;
use self::values::values_agree;
use crate::util::sample;

/// A trace and the text that TraceEvent printed for it.
struct SamplePair {
    trace: &'static str,
    text: &'static str,
    events: usize,
    /// Number of events that TraceEvent does not print, by reason.
    hidden: &'static [(&'static str, u64)],
}

/// Hidden events of a sample in which only `EventTrace/PartitionInfoExtension` is hidden, once.
const PARTITION_INFO_EVENT: &[(&str, u64)] = &[("left to Windows' own decoder", 1)];

const SAMPLE_PAIRS: [SamplePair; 4] = [
    SamplePair {
        trace: "net.4.5.2.x64.etl.zip",
        text: "net.4.5.2.x64.traceevent.txt",
        events: 179_474,
        hidden: &[
            // 273 events of the runtime, and 16,221 of its rundown.
            ("CLR maps of IL to native code", 273 + 16_221),
            ("CLR method rundown", 16_702),
            ("CLR stacks", 14_983),
            ("file names", 3084),
            ("kernel stacks", 12_280),
            ("left to Windows' own decoder", 3),
            ("samples of the idle thread", 73_208),
            ("thread rundown", 1334),
        ],
    },
    SamplePair {
        trace: "gcevents.etl",
        text: "gcevents.traceevent.txt",
        events: 71,
        hidden: PARTITION_INFO_EVENT,
    },
    SamplePair {
        trace: "gcrundownevents.etl",
        text: "gcrundownevents.traceevent.txt",
        events: 112,
        hidden: &[("CLR method rundown", 80), ("left to Windows' own decoder", 1)],
    },
    SamplePair {
        trace: "primitive-types.etl",
        text: "primitive-types.traceevent.txt",
        events: 7,
        hidden: PARTITION_INFO_EVENT,
    },
];

/// Comparison of the fields of all EVENT lines.
#[derive(Default)]
struct FieldComparison {
    lines: usize,
    fields: usize,
    agreeing_fields: usize,
    /// Fields among `agreeing_fields` that neither side has: TraceEvent prints a default for fields
    /// that the version of the event lacks.
    absent: usize,
    /// Number of differing fields by the name of the rule that explains them.
    explained: BTreeMap<&'static str, usize>,
    /// Differences that no rule covers.
    unexplained: Vec<String>,
}

impl FieldComparison {
    fn compare(&mut self, line: &EventLine, ours: &DecodedEvent, trace: &DecodedTrace) {
        self.lines += 1;
        self.check_process_and_thread(line, ours);
        for (field, value) in &line.fields {
            self.fields += 1;
            let our_values = find_our_values(&line.name, field, ours, trace);
            if values_match(value, &our_values, ours) {
                self.agreeing_fields += 1;
                self.absent += usize::from(matches!(our_values, OurValues::Default));
            } else if let Some(rule) = RULES.iter().find(|r| r.covers(&line.name, field, value, ours)) {
                *self.explained.entry(rule.name).or_default() += 1;
            } else {
                let fields = &ours.event["fields"];
                self.record_difference(line, &format!("{field} is {value}; ours: {fields}"));
            }
        }
    }

    /// Checks that process and thread are those of the header or those that the event is attributed
    /// to.
    fn check_process_and_thread(&mut self, line: &EventLine, ours: &DecodedEvent) {
        let event = &ours.event;
        let attributed = &event["attributed"];
        let has_id = |key: &str, id: i64| event[key] == id || attributed[key] == id;
        // For flushes, TraceEvent prints the response time as the thread.
        let is_misread = line.name.ends_with("/DiskIO/FlushBuffers")
            && i128::from(line.tid) == ours.number("HighResResponseTime");
        if !has_id("pid", line.pid) || !(has_id("tid", line.tid) || is_misread) {
            self.record_difference(line, &format!("process {} thread {}; ours: {event}", line.pid, line.tid));
        }
        // TraceEvent does not attribute the start of a request; it prints the ids of the header.
        let is_unattributed = line.name.ends_with("Init") || is_misread;
        let is_exact =
            attributed.is_null() || (attributed["pid"] == line.pid && attributed["tid"] == line.tid);
        if !is_exact && !is_unattributed {
            self.record_difference(
                line,
                &format!("process {} thread {}; ours is about {attributed}", line.pid, line.tid),
            );
        }
        if !is_same_process(line, event) {
            self.record_difference(line, &format!("process {}; ours: {event}", line.process));
        }
    }

    fn record_difference(&mut self, line: &EventLine, difference: &str) {
        let shortened: String = difference.chars().take(600).collect();
        self.unexplained.push(format!("{:.3} {}: {shortened}", line.ms, line.name));
    }

    fn print(&self) {
        let percent = |count: usize| count as f64 * 100.0 / self.fields as f64;
        let Self { lines, fields, agreeing_fields, absent, .. } = self;
        println!(
            "{lines} lines, {fields} fields, {agreeing_fields} agree ({:.2} %)",
            percent(*agreeing_fields)
        );
        println!(
            "{absent} of these neither has: the event's version lacks them, and TraceEvent prints a default"
        );
        for rule in RULES {
            let count = self.explained.get(rule.name).copied().unwrap_or(0);
            println!("{count:>5} ({:.2} %) {}: {}", percent(count), rule.name, rule.reason);
        }
        for difference in &self.unexplained {
            println!("FAULT {difference}");
        }
    }
}

/// Returns whether the process has the same name, without its extension. Names are not compared if
/// TraceEvent knows no name, or if the line and our event are about different processes, which
/// [`FieldComparison::check_process_and_thread`] checks.
fn is_same_process(line: &EventLine, event: &Value) -> bool {
    let ours = event["process"].as_str();
    let pid = event["attributed"].get("pid").unwrap_or(&event["pid"]);
    let is_unknown =
        line.process.is_empty() || line.process == format!("Process({})", line.pid) || *pid != line.pid;
    // TraceEvent prints the header of a file before it knows the processes.
    let is_header = line.name.starts_with("Windows Kernel/EventTrace") && ours.is_none();
    is_unknown
        || is_header
        || ours.is_some_and(|name| name.strip_suffix(".exe").unwrap_or(name) == line.process)
}

fn values_match(value: &str, our_values: &OurValues, ours: &DecodedEvent) -> bool {
    match our_values {
        OurValues::Values(values) => values.iter().any(|our_value| values_agree(value, our_value)),
        OurValues::Default => is_default(value, ours),
    }
}

/// Finds the event of a line by time, CPU, length and name. If there are several, chooses the one
/// with the most equal fields. An event that matched an earlier line is not chosen again.
fn find_event<'t>(
    line: &EventLine,
    trace: &'t DecodedTrace,
    matched_indexes: &mut Vec<usize>,
) -> &'t DecodedEvent {
    let field_matches = |event: &DecodedEvent, field: &str, value: &str| {
        values_match(value, &find_our_values(&line.name, field, event, trace), event)
    };
    let score = |event: &&DecodedEvent| {
        line.fields.iter().filter(|(field, value)| field_matches(event, field, value)).count()
    };
    let is_candidate =
        |event: &&DecodedEvent| event.matches_line(line) && !matched_indexes.contains(&event.index);
    let candidates = trace.candidates.iter().filter(is_candidate);
    // Of several equal events, the first is chosen, because TraceEvent and `weir` print events in
    // the order of the file.
    let best = candidates.rev().max_by_key(score);
    let best =
        best.unwrap_or_else(|| panic!("no event matches {:.3} {} of {} bytes", line.ms, line.name, line.len));
    matched_indexes.push(best.index);
    best
}

/// Loads a sample with its text. Returns `None` where the samples are absent.
fn load_pair(pair: &SamplePair) -> Option<(Baseline, DecodedTrace)> {
    let (trace, text) = (sample(pair.trace)?, sample(pair.text)?);
    let baseline = Baseline::parse(&std::fs::read_to_string(text).expect("the text cannot be read"));
    let trace = DecodedTrace::read(&trace, &baseline.events);
    Some((baseline, trace))
}

#[test]
fn events_and_fields_match_traceevent() {
    let mut comparison = FieldComparison::default();
    for pair in &SAMPLE_PAIRS {
        let Some((baseline, trace)) = load_pair(pair) else { return };
        check_counts(pair, &baseline, &trace);
        let mut matched_indexes = Vec::new();
        for line in &baseline.events {
            let ours = find_event(line, &trace, &mut matched_indexes);
            comparison.compare(line, ours, &trace);
        }
    }
    comparison.print();
    let explained: usize = comparison.explained.values().sum();
    assert_eq!(
        comparison.unexplained.len(),
        0,
        "differences that no rule explains; the first: {}",
        comparison.unexplained[0]
    );
    assert_eq!(comparison.lines, 563);
    assert_eq!(comparison.agreeing_fields + explained, comparison.fields);
    // Fields that neither side has prove little, so they are not counted.
    let (compared, agreeing_fields) =
        (comparison.fields - comparison.absent, comparison.agreeing_fields - comparison.absent);
    assert!(agreeing_fields * 100 >= compared * 97, "{agreeing_fields} of {compared} fields agree");
    assert!(explained * 100 <= compared * 3, "rules cover {explained} of {compared} fields");
    assert!(RULES.len() <= 25);
    for rule in RULES {
        assert!(
            comparison.explained.contains_key(rule.name),
            "the rule {:?} explains no difference",
            rule.name
        );
    }
}

/// Compares every COUNT line by name, and fails on events without a COUNT line.
fn check_counts(pair: &SamplePair, baseline: &Baseline, trace: &DecodedTrace) {
    let name = pair.trace;
    println!("{name}: {} events; not printed: {:?}", trace.events, trace.hidden);
    assert_eq!(trace.events, pair.events, "{name}");
    let hidden: Vec<_> = trace.hidden.iter().map(|(reason, count)| (*reason, *count)).collect();
    assert_eq!(hidden, pair.hidden, "{name}");
    let differs = |(event, count): &(&String, &u64)| baseline.counts.get(*event) != Some(count);
    let ours: Vec<_> = trace.counts.iter().filter(differs).collect();
    let missing: Vec<_> = baseline.counts.keys().filter(|event| !trace.counts.contains_key(*event)).collect();
    assert!(
        ours.is_empty() && missing.is_empty(),
        "{name}: counts differ: ours {ours:?}, missing {missing:?}"
    );
    let (printed, hidden): (u64, u64) = (baseline.counts.values().sum(), trace.hidden.values().sum());
    assert_eq!(printed + hidden, pair.events as u64, "{name}");
}
