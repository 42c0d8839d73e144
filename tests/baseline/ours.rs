//! Reads the events that `weir dump` prints for the same trace.

use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{ChildStdout, Stdio};

use serde_json::Value;

use super::lines::EventLine;
use super::names::{RUNDOWN, RUNTIME, trace_event_name};
use super::values::number;
use crate::util::weir_command;

/// Largest difference between two equal times: TraceEvent rounds to a thousandth of a millisecond.
const TOLERANCE_MS: f64 = 0.000_51;

/// One of our events that may match an EVENT line.
pub(super) struct DecodedEvent {
    /// Index in the output.
    pub(super) index: usize,
    /// `provider/event` as TraceEvent names them.
    pub(super) name: String,
    /// The complete object, with names for enumerations.
    pub(super) event: Value,
    /// The fields, with numbers for enumerations.
    pub(super) numbers: Value,
}

impl DecodedEvent {
    /// Returns a field by its name, ignoring case.
    pub(super) fn field<'a>(fields: &'a Value, name: &str) -> Option<&'a Value> {
        fields.as_object()?.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// Returns a field as a number. Panics if the event lacks the field: then the table that names
    /// the field is wrong.
    pub(super) fn number(&self, name: &str) -> i128 {
        let value =
            Self::field(&self.numbers, name).unwrap_or_else(|| panic!("{} has no field {name}", self.name));
        number(value.to_string().trim_matches('"'))
            .unwrap_or_else(|| panic!("{name} of {} is not a number", self.name))
    }

    /// Returns a field as text.
    pub(super) fn text(&self, name: &str) -> &str {
        let value = Self::field(&self.event["fields"], name).and_then(Value::as_str);
        value.unwrap_or_else(|| panic!("{} has no text {name}", self.name))
    }

    /// Returns the bytes that no field of the schema covers, or all bytes if there is no schema.
    pub(super) fn undecoded_bytes(&self) -> Vec<u8> {
        let hex = self.event["extra"].as_str().or(self.event["raw"].as_str()).unwrap_or_default();
        let byte = |i| u8::from_str_radix(&hex[i..i + 2], 16).expect("the text is not hexadecimal");
        (0..hex.len()).step_by(2).map(byte).collect()
    }

    pub(super) fn matches_line(&self, line: &EventLine) -> bool {
        let ms = self.event["ms"].as_f64().expect("the event has no time").max(0.0);
        self.name == line.name
            && (ms - line.ms).abs() <= TOLERANCE_MS
            && self.event["cpu"] == line.cpu
            && self.event["len"] == line.len
    }
}

/// Our view of a trace: the events that EVENT lines may match, and the counts.
#[derive(Default)]
pub(super) struct DecodedTrace {
    pub(super) events: usize,
    /// Counts of events that TraceEvent prints, by its names.
    pub(super) counts: BTreeMap<String, u64>,
    /// Counts of events that TraceEvent does not print, by the reason.
    pub(super) hidden: BTreeMap<&'static str, u64>,
    pub(super) candidates: Vec<DecodedEvent>,
    /// NT paths and their replacements.
    pub(super) volumes: Vec<(String, String)>,
    /// Names of files by key.
    pub(super) files: HashMap<i128, String>,
    /// Names of types by process and type id.
    pub(super) types: HashMap<(i64, i128), String>,
    /// Raw clock at the start.
    pub(super) start_ticks: i64,
}

impl DecodedTrace {
    /// Reads a trace and keeps the events at the times of EVENT lines.
    pub(super) fn read(path: &Path, lines: &[EventLine]) -> Self {
        let mut times: Vec<f64> = lines.iter().map(|line| line.ms).collect();
        times.sort_by(f64::total_cmp);
        let mut trace = Self { start_ticks: start_ticks(path), ..Self::default() };
        for_each_line(path, false, |index, line| trace.add_event(index, line, &times));
        let mut next = 0;
        for_each_line(path, true, |index, line| {
            if let Some(ours) = trace.candidates.get_mut(next).filter(|event| event.index == index) {
                ours.numbers = parse_line(line)["fields"].take();
                next += 1;
            }
        });
        assert_eq!(next, trace.candidates.len(), "with --numeric, `weir dump` prints other events");
        trace
    }

    fn add_event(&mut self, index: usize, line: &str, times: &[f64]) {
        let event = parse_line(line);
        self.events = index + 1;
        self.record_facts(&event);
        let name = trace_event_name(event["provider"].as_str().unwrap_or_default(), event["event"].as_str());
        if let Some(reason) = hidden_reason(&event) {
            *self.hidden.entry(reason).or_default() += 1;
            return;
        }
        let ms = event["ms"].as_f64().expect("the event has no time").max(0.0);
        let nearest = times.partition_point(|time| *time < ms - TOLERANCE_MS);
        if times.get(nearest).is_some_and(|time| *time <= ms + TOLERANCE_MS) {
            self.candidates.push(DecodedEvent { index, name: name.clone(), event, numbers: Value::Null });
        }
        *self.counts.entry(name).or_default() += 1;
    }

    /// Stores facts that TraceEvent takes from other events.
    fn record_facts(&mut self, event: &Value) {
        let fields = &event["fields"];
        let text = |name: &str| fields[name].as_str().unwrap_or_default().to_owned();
        match event["event"].as_str().unwrap_or_default() {
            "SysConfigEx/VolumeMapping" => self.volumes.push((text("NtPath"), text("DosPath"))),
            name if name.starts_with("FileIo/") => {
                if let Some(key) = number(&text("FileObject")) {
                    self.files.insert(key, text("FileName"));
                }
            }
            "Type/BulkType" => {
                let pid = event["pid"].as_i64().expect("the event has no process id");
                for value in fields["Values"].as_array().expect("the field is not an array") {
                    let id = number(value["TypeID"].as_str().expect("the value has no id"))
                        .expect("the text is not a number");
                    self.types
                        .insert((pid, id), value["Name"].as_str().expect("the type has no name").to_owned());
                }
            }
            _ => {}
        }
    }
}

/// Returns why TraceEvent does not print an event, or `None` if it does.
fn hidden_reason(event: &Value) -> Option<&'static str> {
    /// Class, opcodes, reason. The classes are Thread, FileIo, SystemConfig, Image and EventTrace.
    const KERNEL: &[(&str, &[u64], &str)] = &[
        ("3d6fa8d1-fe05-11d0-9dda-00c04fd7ba7c", &[3, 4], "thread rundown"),
        ("90cbdc39-4a3e-11d1-84f4-0000f80464e3", &[0, 0x20, 0x23, 0x24], "file names"),
        ("01853a65-418f-4f36-aefc-dc0f1d2fd235", &[0x12, 0x1C], "left to Windows' own decoder"),
        ("2cb15d1d-5fc1-11d2-abe1-00a0c911f518", &[0x22], "left to Windows' own decoder"),
        ("68fdd900-4a3e-11d1-84f4-0000f80464e3", &[0x50], "left to Windows' own decoder"),
    ];
    let (guid, id) = (event["guid"].as_str()?, event["id"].as_u64()?);
    let (opcode, fields) = (event["opcode"].as_u64()?, &event["fields"]);
    if let Some(row) = KERNEL.iter().find(|row| row.0 == guid && row.1.contains(&opcode)) {
        return Some(row.2);
    }
    // The two GUIDs are the classes StackWalk and PerfInfo. Opcode 0x2E of PerfInfo is a sample,
    // whose flags 1 and 2 mean that a DPC or an interrupt handler was executing.
    match event["provider"].as_str() {
        _ if guid == "def2fe46-7bd6-4b80-bd94-f57fe20d0ce3" => Some("kernel stacks"),
        _ if guid == "ce1dbfb4-137e-4da6-87b0-3f59aa102cbc" && opcode == 0x2E => {
            let is_busy = fields["Flags"].as_u64().is_some_and(|flags| flags & 3 != 0);
            (fields["ThreadId"] == 0 && !is_busy).then_some("samples of the idle thread")
        }
        Some(RUNTIME) => match id {
            82 => Some("CLR stacks"),
            190 => Some("CLR maps of IL to native code"),
            143 | 144 => {
                let flags = fields["MethodFlags"].as_str().unwrap_or_default();
                let is_shown = flags.contains("Jitted") || (id == 143 && flags.contains("Dynamic"));
                (!is_shown).then_some("CLR methods that are not jitted")
            }
            _ => None,
        },
        Some(RUNDOWN) if id == 144 => Some("CLR method rundown"),
        Some(RUNDOWN) if id == 150 => Some("CLR maps of IL to native code"),
        Some("DotNet") => Some("the provider named DotNet"),
        _ => None,
    }
}

fn parse_line(line: &str) -> Value {
    serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"))
}

/// Calls `each` with the index and the text of every line that `weir dump` prints.
fn for_each_line(path: &Path, is_numeric: bool, mut each: impl FnMut(usize, &str)) {
    let mut command = weir_command(["dump", "--format", "jsonl"]);
    command.arg(path).args(is_numeric.then_some("--numeric"));
    let mut weir = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("cannot run weir");
    let stdout: ChildStdout = weir.stdout.take().expect("standard output is not a pipe");
    for (index, line) in BufReader::new(stdout).lines().enumerate() {
        each(index, &line.expect("the output is not UTF-8"));
    }
    let status = weir.wait().expect("weir cannot be waited for");
    assert_eq!(status.code(), Some(0), "weir dump {} failed", path.display());
}

/// Returns the raw time of the first event, from which the trace counts its times.
fn start_ticks(path: &Path) -> i64 {
    // The buffer header has 0x48 bytes, and a system header has its stamp at 0x10.
    const FIRST_STAMP_OFFSET: usize = 0x58;
    let mut bytes = [0; FIRST_STAMP_OFFSET + 8];
    let mut file = std::fs::File::open(path).expect("the sample cannot be opened");
    if path.extension().is_some_and(|e| e == "zip") {
        let mut archive = zip::ZipArchive::new(file).expect("the sample is not a ZIP archive");
        archive
            .by_index(0)
            .expect("the archive has no trace")
            .read_exact(&mut bytes)
            .expect("the file has no header");
    } else {
        file.read_exact(&mut bytes).expect("the file has no header");
    }
    i64::from_le_bytes(bytes[FIRST_STAMP_OFFSET..].try_into().expect("the slice does not have eight bytes"))
}
