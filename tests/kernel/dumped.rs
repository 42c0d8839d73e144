//! Parses the output of `weir dump`: events in the order of the file, each with the thread that ran
//! on its processor.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;

use serde_json::Value;

use crate::util::weir;

#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) name: String,
    pub(crate) cpu: u64,
    pub(crate) time_ms: f64,
    pub(crate) provider: String,
    /// Thread id in the header; −1 if the header has none.
    pub(crate) tid: i64,
    pub(crate) fields: Value,
    /// The thread that ran on the event's processor, according to the preceding context switches.
    pub(crate) running_thread: Option<u64>,
    /// Frames of the stack-walk events that follow the event, kernel first.
    pub(crate) stack: Vec<u64>,
}

impl Event {
    /// Returns the value of a field that is printed as a number or as hexadecimal text.
    #[track_caller]
    pub(crate) fn number(&self, name: &str) -> u64 {
        parse_number(&self.fields[name])
            .unwrap_or_else(|| panic!("{} has no number {name}: {}", self.name, self.fields))
    }
}

pub(crate) fn parse_number(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| u64::from_str_radix(value.as_str()?.strip_prefix("0x")?, 16).ok())
}

#[derive(Debug)]
pub(crate) struct Trace {
    pub(crate) events: Vec<Event>,
}

impl Trace {
    /// Reads a file with `weir dump` and joins stack-walk events to the events that they follow.
    #[track_caller]
    pub(crate) fn read(file: &Path, options: &[&str]) -> Self {
        let mut arguments: Vec<&OsStr> = ["dump", "--format", "jsonl", "--numeric"].map(OsStr::new).to_vec();
        arguments.extend(options.iter().map(OsStr::new));
        arguments.push(file.as_os_str());
        let run = weir(arguments);
        // 4: events were lost.
        assert!(matches!(run.code, 0 | 4), "weir dump failed: {}", run.stderr);
        let mut events: Vec<Event> = Vec::new();
        // The running thread and the index of the last event, by processor.
        let mut running_threads: BTreeMap<u64, u64> = BTreeMap::new();
        let mut last_indexes: BTreeMap<u64, usize> = BTreeMap::new();
        for line in run.text().lines() {
            let mut object: Value =
                serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
            let (name, cpu) =
                (object["event"].as_str().unwrap_or("").to_owned(), object["cpu"].as_u64().unwrap_or(0));
            let mut event = Event {
                name,
                cpu,
                time_ms: object["ms"].as_f64().expect("an event has no time"),
                provider: object["provider"].as_str().unwrap_or("").to_owned(),
                tid: object["tid"].as_i64().unwrap_or(-1),
                fields: object["fields"].take(),
                running_thread: running_threads.get(&cpu).copied(),
                stack: Vec::new(),
            };
            if event.name == "StackWalk/Stack" {
                let index = *last_indexes.get(&cpu).expect("a stack has no event before it");
                append_stack(&mut events[index], &event);
                continue;
            }
            if event.name == "Thread/CSwitch" {
                event.running_thread = Some(event.number("OldThreadId"));
                running_threads.insert(cpu, event.number("NewThreadId"));
            }
            last_indexes.insert(cpu, events.len());
            events.push(event);
        }
        Self { events }
    }

    pub(crate) fn events_named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Event> {
        self.events.iter().filter(move |event| event.name == name)
    }
}

/// Adds the frames of a stack-walk event to `event`, the event before it on its processor. Fails if
/// the two have different times.
#[track_caller]
fn append_stack(event: &mut Event, stack: &Event) {
    assert!(
        (event.time_ms - stack.time_ms).abs() < 0.000_01,
        "{} at {} ms is followed by a stack with the time {} ms",
        event.name,
        event.time_ms,
        stack.time_ms
    );
    let frames = stack.fields["Stack"].as_array().expect("a stack-walk event has no frames");
    event.stack.extend(frames.iter().map(|frame| parse_number(frame).expect("a frame is not an address")));
}
