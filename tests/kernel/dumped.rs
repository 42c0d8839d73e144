//! Parses the output of `weir dump`: events in the order of the file, each with the thread that ran
//! on its processor.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;

use serde_json::Value;

use crate::util::weir;

/// An event of a dump.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) name: String,
    pub(crate) cpu: u64,
    pub(crate) ms: f64,
    pub(crate) provider: String,
    /// Thread id in the header; −1 if it has none.
    pub(crate) tid: i64,
    pub(crate) fields: Value,
    /// The thread that ran on its processor, by the context switches before it.
    pub(crate) running: Option<u64>,
    /// Frames of the stack-walk events that follow it, kernel first.
    pub(crate) stack: Vec<u64>,
}

impl Event {
    /// Returns a numeric field, printed as a number or as hexadecimal text.
    #[track_caller]
    pub(crate) fn number(&self, name: &str) -> u64 {
        number(&self.fields[name])
            .unwrap_or_else(|| panic!("{} has no number {name}: {}", self.name, self.fields))
    }
}

pub(crate) fn number(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| u64::from_str_radix(value.as_str()?.strip_prefix("0x")?, 16).ok())
}

/// The events of a file.
#[derive(Debug)]
pub(crate) struct Trace(pub(crate) Vec<Event>);

impl Trace {
    /// Reads a file with `weir dump` and joins stack-walk events to the events that they follow.
    #[track_caller]
    pub(crate) fn read(file: &Path, options: &[&str]) -> Self {
        let mut all: Vec<&OsStr> = ["dump", "--format", "jsonl", "--numeric"].map(OsStr::new).to_vec();
        all.extend(options.iter().map(OsStr::new));
        all.push(file.as_os_str());
        let run = weir(all);
        assert!(matches!(run.code, 0 | 4), "weir dump: {}", run.stderr);
        let mut events: Vec<Event> = Vec::new();
        // The running thread and the index of the last event, by processor.
        let mut running: BTreeMap<u64, u64> = BTreeMap::new();
        let mut last: BTreeMap<u64, usize> = BTreeMap::new();
        for line in run.text().lines() {
            let mut object: Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
            let (name, cpu) =
                (object["event"].as_str().unwrap_or("").to_owned(), object["cpu"].as_u64().unwrap_or(0));
            let mut event = Event {
                name,
                cpu,
                ms: object["ms"].as_f64().expect("a time"),
                provider: object["provider"].as_str().unwrap_or("").to_owned(),
                tid: object["tid"].as_i64().unwrap_or(-1),
                fields: object["fields"].take(),
                running: running.get(&cpu).copied(),
                stack: Vec::new(),
            };
            if event.name == "StackWalk/Stack" {
                let index = *last.get(&cpu).expect("a stack follows its event");
                join(&mut events[index], &event);
                continue;
            }
            if event.name == "Thread/CSwitch" {
                event.running = Some(event.number("OldThreadId"));
                running.insert(cpu, event.number("NewThreadId"));
            }
            last.insert(cpu, events.len());
            events.push(event);
        }
        Self(events)
    }

    pub(crate) fn named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Event> {
        self.0.iter().filter(move |event| event.name == name)
    }
}

/// Adds the frames of a stack-walk event to the event before it on its processor, which has the
/// same time.
#[track_caller]
fn join(event: &mut Event, stack: &Event) {
    assert!(
        (event.ms - stack.ms).abs() < 0.000_01,
        "{} at {} has the stack of {}",
        event.name,
        event.ms,
        stack.ms
    );
    let frames = stack.fields["Stack"].as_array().expect("frames");
    event.stack.extend(frames.iter().map(|frame| number(frame).expect("an address")));
}
