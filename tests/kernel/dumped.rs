//! A dump as a test reads it: events in the file's order, and who ran where.

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
    /// As the header says; −1 where it says nothing.
    pub(crate) tid: i64,
    pub(crate) fields: Value,
    /// Who ran on its processor, by the context switches before it.
    pub(crate) running: Option<u64>,
    /// Frames of the stack-walk events that follow it, kernel first.
    pub(crate) stack: Vec<u64>,
}

impl Event {
    /// A number among the fields, told as one or as hexadecimal text.
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
    /// Reads a file by `weir dump`; stack-walk events are joined to the events that they follow.
    #[track_caller]
    pub(crate) fn read(file: &Path, options: &[&str]) -> Self {
        let mut all: Vec<&OsStr> = ["dump", "--format", "jsonl", "--numeric"].map(OsStr::new).to_vec();
        all.extend(options.iter().map(OsStr::new));
        all.push(file.as_os_str());
        let run = weir(all);
        assert!(matches!(run.code, 0 | 4), "weir dump: {}", run.stderr);
        let mut events: Vec<Event> = Vec::new();
        // By processor: who runs, and which event was the last.
        let mut running: BTreeMap<u64, u64> = BTreeMap::new();
        let mut last: BTreeMap<u64, usize> = BTreeMap::new();
        for line in run.text().lines() {
            let mut told: Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
            let (name, cpu) =
                (told["event"].as_str().unwrap_or("").to_owned(), told["cpu"].as_u64().unwrap_or(0));
            let mut event = Event {
                name,
                cpu,
                ms: told["ms"].as_f64().expect("a time"),
                provider: told["provider"].as_str().unwrap_or("").to_owned(),
                tid: told["tid"].as_i64().unwrap_or(-1),
                fields: told["fields"].take(),
                running: running.get(&cpu).copied(),
                stack: Vec::new(),
            };
            if event.name == "StackWalk/Stack" {
                let at = *last.get(&cpu).expect("a stack follows its event");
                join(&mut events[at], &event);
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

/// The frames of a stack-walk event belong to the event before it on its processor, whose time it has.
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
