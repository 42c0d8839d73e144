//! Compares our decoding with the text that Microsoft's TraceEvent printed for four of the samples.
//!
//! ```text
//!   sample.etl ──weir dump──▶ events ──names, hiding──▶ counts  ═══ COUNT lines: exactly
//!                                │
//!                                └──time, CPU, length──▶ event ══ EVENT lines, with fields
//! ```
//!
//! The process and thread of each line, and the name of the process, must match too.
//!
//! TraceEvent is a second opinion, not the truth. Events that it renames are in [`names`]. Fields
//! that it renames or computes are in [`fields`]: each value is computed from ours and must be
//! equal. [`values`] normalises spelling. Every other difference needs one of the reasons in
//! [`rules`], and those may cover at most 3 % of the fields.

mod fields;
mod lines;
mod names;
mod ours;
mod rules;
mod values;

use std::collections::BTreeMap;

use serde_json::Value;

use self::fields::{Have, have, is_default};
use self::lines::{Baseline, Line};
use self::ours::{Ours, Trace};
use self::rules::RULES;
use self::values::agree;
use crate::util::sample;

/// A trace and the text that TraceEvent printed for it.
struct Pair {
    trace: &'static str,
    text: &'static str,
    events: usize,
    /// The events that TraceEvent does not print, and why.
    hidden: &'static [(&'static str, u64)],
}

const PARTITION: &[(&str, u64)] = &[("left to Windows' own decoder", 1)];

const PAIRS: [Pair; 4] = [
    Pair {
        trace: "net.4.5.2.x64.etl.zip",
        text: "net.4.5.2.x64.traceevent.txt",
        events: 179_474,
        hidden: &[
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
    Pair { trace: "gcevents.etl", text: "gcevents.traceevent.txt", events: 71, hidden: PARTITION },
    Pair {
        trace: "gcrundownevents.etl",
        text: "gcrundownevents.traceevent.txt",
        events: 112,
        hidden: &[("CLR method rundown", 80), ("left to Windows' own decoder", 1)],
    },
    Pair {
        trace: "primitive-types.etl",
        text: "primitive-types.traceevent.txt",
        events: 7,
        hidden: PARTITION,
    },
];

/// Comparison of the fields of all EVENT lines.
#[derive(Default)]
struct Tally {
    lines: usize,
    fields: usize,
    agree: usize,
    /// Fields among `agree` that neither side has: TraceEvent prints a default for fields that the
    /// version of the event lacks.
    absent: usize,
    /// Number of differing fields by the name of the rule that explains them.
    ruled: BTreeMap<&'static str, usize>,
    /// Differences that no rule covers.
    faults: Vec<String>,
}

impl Tally {
    fn compare(&mut self, line: &Line, ours: &Ours, trace: &Trace) {
        self.lines += 1;
        self.check_actor(line, ours);
        for (field, value) in &line.fields {
            self.fields += 1;
            let have = have(&line.name, field, ours, trace);
            if same(value, &have, ours) {
                self.agree += 1;
                self.absent += usize::from(matches!(have, Have::Default));
            } else if let Some(rule) = RULES.iter().find(|r| r.covers(&line.name, field, value, ours)) {
                *self.ruled.entry(rule.name).or_default() += 1;
            } else {
                let fields = &ours.event["fields"];
                self.fault(line, &format!("{field} is {value}; ours: {fields}"));
            }
        }
    }

    /// Checks that process and thread are those of the header or those that the event is attributed
    /// to.
    fn check_actor(&mut self, line: &Line, ours: &Ours) {
        let event = &ours.event;
        let about = &event["attributed"];
        let is = |key: &str, id: i64| event[key] == id || about[key] == id;
        // Here TraceEvent prints the response time as the thread.
        let misread = line.name.ends_with("/DiskIO/FlushBuffers")
            && i128::from(line.tid) == ours.number("HighResResponseTime");
        if !is("pid", line.pid) || !(is("tid", line.tid) || misread) {
            self.fault(line, &format!("process {} thread {}; ours: {event}", line.pid, line.tid));
        }
        // For the start of a request TraceEvent does not attribute the event; it prints the header.
        let apart = line.name.ends_with("Init") || misread;
        let exact = about.is_null() || (about["pid"] == line.pid && about["tid"] == line.tid);
        if !exact && !apart {
            self.fault(line, &format!("process {} thread {}; ours is about {about}", line.pid, line.tid));
        }
        if !is_process(line, event) {
            self.fault(line, &format!("process {}; ours: {event}", line.process));
        }
    }

    fn fault(&mut self, line: &Line, what: &str) {
        let what: String = what.chars().take(600).collect();
        self.faults.push(format!("{:.3} {}: {what}", line.ms, line.name));
    }

    fn print(&self) {
        let percent = |n: usize| n as f64 * 100.0 / self.fields as f64;
        let Self { lines, fields, agree, absent, .. } = self;
        println!("{lines} lines, {fields} fields, {agree} agree ({:.2} %)", percent(*agree));
        println!(
            "{absent} of these neither has: the event's version lacks them, and TraceEvent prints a default"
        );
        for rule in RULES {
            let count = self.ruled.get(rule.name).copied().unwrap_or(0);
            println!("{count:>5} ({:.2} %) {}: {}", percent(count), rule.name, rule.reason);
        }
        for fault in &self.faults {
            println!("FAULT {fault}");
        }
    }
}

/// Returns whether the process has the same name, without its extension, where TraceEvent knows a
/// name for the same process.
fn is_process(line: &Line, event: &Value) -> bool {
    let ours = event["process"].as_str();
    let pid = event["attributed"].get("pid").unwrap_or(&event["pid"]);
    let unknown =
        line.process.is_empty() || line.process == format!("Process({})", line.pid) || *pid != line.pid;
    // TraceEvent prints the head of a file before it knows the processes.
    let is_head = line.name.starts_with("Windows Kernel/EventTrace") && ours.is_none();
    unknown || is_head || ours.is_some_and(|name| name.strip_suffix(".exe").unwrap_or(name) == line.process)
}

fn same(value: &str, have: &Have, ours: &Ours) -> bool {
    match have {
        Have::Values(values) => values.iter().any(|v| agree(value, v)),
        Have::Default => is_default(value, ours),
    }
}

/// Finds the event of a line by time, CPU, length and name, then by the fields. No event matches
/// two lines.
fn find<'t>(line: &Line, trace: &'t Trace, taken: &mut Vec<usize>) -> &'t Ours {
    let fits = |o: &Ours, field: &str, value: &str| same(value, &have(&line.name, field, o, trace), o);
    let score = |o: &&Ours| line.fields.iter().filter(|(field, value)| fits(o, field, value)).count();
    let free = trace.candidates.iter().filter(|o| o.is(line) && !taken.contains(&o.index));
    // The first of several equal events, because both print in the order of the file.
    let best = free.rev().max_by_key(score);
    let best =
        best.unwrap_or_else(|| panic!("no event is {:.3} {} of {} bytes", line.ms, line.name, line.len));
    taken.push(best.index);
    best
}

/// Loads a sample with its text. Returns `None` where the samples are absent.
fn load(pair: &Pair) -> Option<(Baseline, Trace)> {
    let (trace, text, schemas) = (sample(pair.trace)?, sample(pair.text)?, sample("clretwrc.dll")?);
    let baseline = Baseline::parse(&std::fs::read_to_string(text).expect("the text reads"));
    let trace = Trace::read(&trace, &schemas, &baseline.events);
    Some((baseline, trace))
}

#[test]
fn events_and_fields_match_traceevent() {
    let mut tally = Tally::default();
    for pair in &PAIRS {
        let Some((baseline, trace)) = load(pair) else { return };
        check_counts(pair, &baseline, &trace);
        let mut taken = Vec::new();
        for line in &baseline.events {
            let ours = find(line, &trace, &mut taken);
            tally.compare(line, ours, &trace);
        }
    }
    tally.print();
    let ruled: usize = tally.ruled.values().sum();
    assert_eq!(tally.faults.len(), 0, "differences that no rule explains; the first: {}", tally.faults[0]);
    assert_eq!(tally.lines, 563);
    assert_eq!(tally.agree + ruled, tally.fields);
    // Fields that neither side has prove little, so they count on neither side.
    let (compared, agree) = (tally.fields - tally.absent, tally.agree - tally.absent);
    assert!(agree * 100 >= compared * 97, "{agree} of {compared} fields agree");
    assert!(ruled * 100 <= compared * 3, "rules cover {ruled} of {compared} fields");
    assert!(RULES.len() <= 25);
    for rule in RULES {
        assert!(tally.ruled.contains_key(rule.name), "the rule {:?} covers nothing", rule.name);
    }
}

/// Compares every COUNT line by name, and fails on events without one.
fn check_counts(pair: &Pair, baseline: &Baseline, trace: &Trace) {
    let name = pair.trace;
    println!("{name}: {} events; not printed: {:?}", trace.events, trace.hidden);
    assert_eq!(trace.events, pair.events, "{name}");
    let hidden: Vec<_> = trace.hidden.iter().map(|(reason, count)| (*reason, *count)).collect();
    assert_eq!(hidden, pair.hidden, "{name}");
    let differ = |(event, count): &(&String, &u64)| baseline.counts.get(*event) != Some(count);
    let ours: Vec<_> = trace.counts.iter().filter(differ).collect();
    let missing: Vec<_> = baseline.counts.keys().filter(|k| !trace.counts.contains_key(*k)).collect();
    assert!(
        ours.is_empty() && missing.is_empty(),
        "{name}: counts differ: ours {ours:?}, missing {missing:?}"
    );
    let (printed, not): (u64, u64) = (baseline.counts.values().sum(), trace.hidden.values().sum());
    assert_eq!(printed + not, pair.events as u64, "{name}");
}
