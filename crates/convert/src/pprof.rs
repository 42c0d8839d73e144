//! Profiles for pprof: gzip-compressed `profile.proto`.
//!
//! ```text
//!   samples ──▶ samples/count, cpu/nanoseconds          switches ──▶ off-cpu/nanoseconds
//!   stack ──▶ locations ──▶ functions and lines, mappings with build ids
//!   labels: process, pid, thread, tid
//! ```
//!
//! Documented: `proto/profile.proto` in the repository of pprof.
//!
//! A wait belongs to the stack where its thread was switched out or, if that stack is unknown, to the
//! stack where it runs again. Preemptions are not waits. Stacks with equal labels are added up; the
//! number of stacks, locations and functions is limited. What is beyond a limit is named `(other)`.
//! Texts of this module, and the location and the function that stand for others, have numbers before
//! those of the trace, so no trace can displace or imitate them.

use std::collections::HashMap;
use std::hash::Hash;
use std::io::Write;
use std::sync::Arc;

use anyhow::Result;
use flate2::Compression;
use flate2::write::GzEncoder;
use traceweir_analysis::report::{ContextSwitch, Scheduler, ThreadReturn};
use traceweir_analysis::text::format_count;

use crate::activity::{
    Activity, ActivityEvent, ActivityTables, FrameTree, MappingIndex, NeededActivity, NodeIndex, Sample,
    StackFrame, Switch, ThreadIndex, read_activity, scheduler_id,
};
use crate::protobuf::Message;
use crate::{Conversion, ConvertInput};

/// The most nodes of all stacks, and the most rows of stack and thread.
const MAX_STACK_NODES: usize = 1 << 20;
const MAX_ROWS: usize = 1 << 18;
/// The most locations and functions, and the most functions of all locations.
const MAX_LOCATIONS: usize = 1 << 19;
const MAX_LINES: usize = 1 << 20;
/// The most texts, and their most bytes.
const MAX_TEXTS: usize = 1 << 18;
const MAX_TEXT_BYTES: usize = 48 << 20;
/// The number of the empty text, and the ids of the location and the function that stand for others.
/// Those of a trace follow.
const EMPTY: u32 = 0;
const OTHER_ID: u32 = 1;
/// Bytes of the output to collect before they are compressed.
const OUTPUT_BYTES: usize = 1 << 16;
/// The interval of samples whose trace does not contain one: 1 ms is the default of Windows.
const DEFAULT_INTERVAL_NS: u64 = 1_000_000;

/// Numbers of the fields of `Profile` and its messages.
mod field {
    pub(super) const SAMPLE_TYPE: u32 = 1;
    pub(super) const SAMPLE: u32 = 2;
    pub(super) const MAPPING: u32 = 3;
    pub(super) const LOCATION: u32 = 4;
    pub(super) const FUNCTION: u32 = 5;
    pub(super) const STRING_TABLE: u32 = 6;
    pub(super) const TIME_NANOS: u32 = 9;
    pub(super) const DURATION_NANOS: u32 = 10;
    pub(super) const PERIOD_TYPE: u32 = 11;
    pub(super) const PERIOD: u32 = 12;
    pub(super) const COMMENT: u32 = 13;
    pub(super) const VALUE_TYPE: u32 = 1;
    pub(super) const VALUE_UNIT: u32 = 2;
    pub(super) const SAMPLE_LOCATION_ID: u32 = 1;
    pub(super) const SAMPLE_VALUE: u32 = 2;
    pub(super) const SAMPLE_LABEL: u32 = 3;
    pub(super) const LABEL_KEY: u32 = 1;
    pub(super) const LABEL_TEXT: u32 = 2;
    pub(super) const LABEL_NUMBER: u32 = 3;
    pub(super) const ID: u32 = 1;
    pub(super) const MAPPING_START: u32 = 2;
    pub(super) const MAPPING_LIMIT: u32 = 3;
    pub(super) const MAPPING_FILE: u32 = 5;
    pub(super) const MAPPING_BUILD_ID: u32 = 6;
    pub(super) const MAPPING_HAS_FUNCTIONS: u32 = 7;
    pub(super) const MAPPING_HAS_FILE_NAMES: u32 = 8;
    pub(super) const MAPPING_HAS_LINES: u32 = 9;
    pub(super) const MAPPING_HAS_INLINED: u32 = 10;
    pub(super) const LOCATION_MAPPING: u32 = 2;
    pub(super) const LOCATION_ADDRESS: u32 = 3;
    pub(super) const LOCATION_LINE: u32 = 4;
    pub(super) const LINE_FUNCTION: u32 = 1;
    pub(super) const LINE_NUMBER: u32 = 2;
    pub(super) const FUNCTION_NAME: u32 = 2;
    pub(super) const FUNCTION_SYSTEM_NAME: u32 = 3;
    pub(super) const FUNCTION_FILE: u32 = 4;
}

/// Writes the CPU samples and the waits of traces as a profile.
pub fn convert(input: &ConvertInput, out: &mut dyn Write) -> Result<Conversion> {
    let mut profile = Profile::new();
    let needed = NeededActivity { events: false, event_stacks: false };
    let summary = read_activity(input, needed, |tables, event| {
        profile.add(tables, event);
        Ok(())
    })?;
    let mut notes = summary.notes;
    profile.describe_missing(&mut notes);
    let written = profile.rows.len() as u64;
    profile.write(&summary.tables, summary.end_ns, out)?;
    Ok(Conversion { events: summary.events, written, written_noun: "stack", notes, reading: summary.reading })
}

/// Number of samples, time on a processor, time of waits.
#[derive(Clone, Copy, Debug, Default)]
struct Values {
    samples: u64,
    cpu_ns: u64,
    off_cpu_ns: u64,
}

/// A function of a location with its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct LineKey {
    name: u32,
    file: u32,
    line: u32,
}

/// A location: address, file and functions, the innermost first.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct LocationKey {
    address: u64,
    mapping: Option<MappingIndex>,
    lines: Vec<LineKey>,
}

/// Values of a limited table, each with a number.
#[derive(Debug)]
struct Numbered<K> {
    numbers: HashMap<K, u32>,
    first: u32,
    max: usize,
}

impl<K: Eq + Hash> Numbered<K> {
    /// Creates an empty table. `first` is the number of the first value.
    fn new(first: u32, max: usize) -> Self {
        Self { numbers: HashMap::new(), first, max }
    }

    /// Returns the number of a value; `None` beyond the limit.
    fn find_or_add(&mut self, key: K) -> Option<u32> {
        let next = self.first.checked_add(u32::try_from(self.numbers.len()).ok()?)?;
        match self.numbers.get(&key) {
            Some(number) => Some(*number),
            None if self.numbers.len() >= self.max => None,
            None => Some(*self.numbers.entry(key).or_insert(next)),
        }
    }

    /// Returns the values with their numbers, in the order of numbers.
    fn take(&mut self) -> Vec<(K, u32)> {
        let mut list: Vec<(K, u32)> = self.numbers.drain().collect();
        list.sort_unstable_by_key(|(_, number)| *number);
        list
    }
}

/// The texts of a profile. Number 0 is the empty text.
#[derive(Debug)]
struct TextTable {
    numbered: Numbered<Arc<str>>,
    bytes: usize,
}

impl TextTable {
    fn new() -> Self {
        let mut table = Self { numbered: Numbered::new(EMPTY, MAX_TEXTS), bytes: 0 };
        table.find_or_add(&Arc::from(""));
        table
    }

    /// Returns the number of a text; `None` beyond the limits.
    fn find_or_add(&mut self, text: &Arc<str>) -> Option<u32> {
        if let Some(number) = self.numbered.numbers.get(text) {
            return Some(*number);
        }
        let bytes = self.bytes.saturating_add(text.len());
        if bytes > MAX_TEXT_BYTES {
            return None;
        }
        let number = self.numbered.find_or_add(Arc::clone(text))?;
        self.bytes = bytes;
        Some(number)
    }
}

/// Numbers of the texts that do not come from a trace.
#[derive(Debug)]
struct OwnTexts {
    samples: u32,
    count: u32,
    cpu: u32,
    off_cpu: u32,
    nanoseconds: u32,
    process: u32,
    pid: u32,
    thread: u32,
    tid: u32,
    comment: u32,
    /// The name of a function beyond a limit.
    other: u32,
}

impl OwnTexts {
    fn new(texts: &mut TextTable) -> Self {
        // The table is empty, so each text has a number.
        let mut add = |text: &str| texts.find_or_add(&Arc::from(text)).unwrap_or(EMPTY);
        Self {
            samples: add("samples"),
            count: add("count"),
            cpu: add("cpu"),
            off_cpu: add("off-cpu"),
            nanoseconds: add("nanoseconds"),
            process: add("process"),
            pid: add("pid"),
            thread: add("thread"),
            tid: add("tid"),
            comment: add(concat!("weir ", env!("CARGO_PKG_VERSION"))),
            other: add("(other)"),
        }
    }
}

/// What a profile contains.
struct Profile {
    texts: TextTable,
    own: OwnTexts,
    locations: Numbered<LocationKey>,
    /// Number of functions of all locations.
    lines: usize,
    /// The frames are ids of locations.
    stacks: FrameTree<u32>,
    rows: HashMap<(NodeIndex, Option<ThreadIndex>), Values>,
    /// One for each machine.
    schedulers: HashMap<u16, Scheduler<Option<NodeIndex>>>,
    /// The first known sampling interval.
    interval_ns: Option<u64>,
    has_samples: bool,
    has_waits: bool,
    lacks_interval: bool,
    idle_samples: u64,
    /// Number of samples and waits without a row of their own.
    over_limit: u64,
}

impl Profile {
    fn new() -> Self {
        let mut texts = TextTable::new();
        Self {
            own: OwnTexts::new(&mut texts),
            texts,
            locations: Numbered::new(OTHER_ID.saturating_add(1), MAX_LOCATIONS),
            lines: 0,
            stacks: FrameTree::with_max_nodes(MAX_STACK_NODES),
            rows: HashMap::new(),
            schedulers: HashMap::new(),
            interval_ns: None,
            has_samples: false,
            has_waits: false,
            lacks_interval: false,
            idle_samples: 0,
            over_limit: 0,
        }
    }

    fn describe_missing(&self, notes: &mut Vec<String>) {
        if self.rows.is_empty() {
            notes.push("the traces contain neither CPU samples nor waits".to_owned());
        }
        if self.lacks_interval {
            notes.push("the traces do not contain the sampling interval; a sample counts as 1 ms".to_owned());
        }
        if self.idle_samples > 0 {
            let count = format_count(self.idle_samples, "sample");
            notes.push(format!("samples of idle processors left out: {count}"));
        }
        let gaps: u64 = self.schedulers.values().map(|scheduler| scheduler.gaps).sum();
        if gaps > 0 && self.has_waits {
            let count = format_count(gaps, "switch");
            notes.push(format!("context switches are missing in the traces, so waits may be too: {count}"));
        }
        if self.stacks.truncated > 0 || self.over_limit > 0 {
            let count = format_count(self.stacks.truncated.saturating_add(self.over_limit), "sample");
            notes.push(format!(
                "there are too many stacks; merged into others or without inner functions: {count}"
            ));
        }
    }

    fn add(&mut self, tables: &ActivityTables, event: &ActivityEvent) {
        match &event.activity {
            Activity::Sample(sample) => self.add_sample(tables, sample, &event.stack),
            Activity::Switch(switch) => self.add_switch(tables, event, switch),
            Activity::ThreadEnd(thread) => {
                let scheduler = self.schedulers.entry(event.machine).or_default();
                scheduler.record_end(event.time_ns, scheduler_id(tables, Some(*thread)));
            }
            _ => {}
        }
    }

    fn add_sample(&mut self, tables: &ActivityTables, sample: &Sample, stack: &[StackFrame]) {
        if sample.is_idle {
            self.idle_samples = self.idle_samples.saturating_add(sample.weight);
            return;
        }
        self.has_samples = true;
        self.lacks_interval |= sample.interval_ns.is_none();
        self.interval_ns = self.interval_ns.or(sample.interval_ns);
        let interval_ns = sample.interval_ns.unwrap_or(DEFAULT_INTERVAL_NS);
        let (samples, cpu_ns) = (sample.weight, sample.weight.saturating_mul(interval_ns));
        let node = self.find_stack(tables, stack);
        self.add_values(node, sample.thread, Values { samples, cpu_ns, off_cpu_ns: 0 });
    }

    fn add_switch(&mut self, tables: &ActivityTables, event: &ActivityEvent, switch: &Switch) {
        let (new, old) = (scheduler_id(tables, switch.new), scheduler_id(tables, switch.old));
        self.has_waits |= event.is_selected;
        let owner = switch.stack_thread;
        let node = owner.map(|_| self.find_stack(tables, &event.stack));
        let old_node = node.filter(|_| owner == switch.old);
        let new_node = node.filter(|_| owner == switch.new);
        let (state, reason) = (switch.state, switch.reason);
        let context_switch = ContextSwitch { cpu: event.cpu, new, old, state, reason };
        let scheduler = self.schedulers.entry(event.machine).or_default();
        let (_, thread_return) = scheduler.record_switch(event.time_ns, context_switch, old_node);
        let Some(ThreadReturn { to, absence: Some(absence), .. }) = thread_return else { return };
        let off_cpu_ns = u64::try_from(to.saturating_sub(absence.from)).unwrap_or(0);
        if absence.reason.is_none() || off_cpu_ns == 0 || !switch.selects_new {
            return;
        }
        let node = absence.stack.or(new_node).unwrap_or(NodeIndex::ROOT);
        self.add_values(node, switch.new, Values { samples: 0, cpu_ns: 0, off_cpu_ns });
    }

    fn add_values(&mut self, node: NodeIndex, thread: Option<ThreadIndex>, added: Values) {
        let mut key = (node, thread);
        if self.rows.len() >= MAX_ROWS && !self.rows.contains_key(&key) {
            // Rows of no thread and no stack are always found.
            self.over_limit = self.over_limit.saturating_add(1);
            key = (NodeIndex::ROOT, None);
        }
        let values = self.rows.entry(key).or_default();
        values.samples = values.samples.saturating_add(added.samples);
        values.cpu_ns = values.cpu_ns.saturating_add(added.cpu_ns);
        values.off_cpu_ns = values.off_cpu_ns.saturating_add(added.off_cpu_ns);
    }

    /// Returns the node of a stack, which is innermost frame first.
    fn find_stack(&mut self, tables: &ActivityTables, stack: &[StackFrame]) -> NodeIndex {
        let mut locations = Vec::with_capacity(stack.len());
        for frame in stack.iter().rev() {
            let mut lines = Vec::with_capacity(frame.functions.len());
            for function in frame.functions.iter() {
                let name = self.texts.find_or_add(&frame.function_name(function)).unwrap_or(self.own.other);
                let file = function.file.as_ref().and_then(|file| self.texts.find_or_add(file));
                let file = file.unwrap_or(EMPTY);
                lines.push(LineKey { name, file, line: function.line.unwrap_or(0) });
            }
            if let Some(mapping) = frame.mapping.and_then(|index| tables.stacks.mapping(index)) {
                self.texts.find_or_add(&mapping.path);
                self.texts.find_or_add(&Arc::from(mapping.build_id.as_str()));
            }
            let key = LocationKey { address: frame.address, mapping: frame.mapping, lines };
            locations.push(self.find_location(key));
        }
        self.stacks.find_or_add(locations.into_iter())
    }

    /// Returns the id of a location.
    fn find_location(&mut self, key: LocationKey) -> u32 {
        let (known, lines) = (self.locations.numbers.len(), self.lines.saturating_add(key.lines.len()));
        if lines > MAX_LINES && !self.locations.numbers.contains_key(&key) {
            return OTHER_ID;
        }
        let id = self.locations.find_or_add(key);
        if self.locations.numbers.len() > known {
            self.lines = lines;
        }
        id.unwrap_or(OTHER_ID)
    }

    /// Writes the profile.
    fn write(mut self, tables: &ActivityTables, end_ns: i64, out: &mut dyn Write) -> Result<()> {
        let mut writer =
            ProfileWriter { out: GzEncoder::new(out, Compression::default()), message: Message::default() };
        let OwnTexts { samples, count, cpu, off_cpu, nanoseconds, comment, .. } = self.own;
        let mut types = Vec::new();
        let has_waits = self.has_waits;
        if self.has_samples || !has_waits {
            types.extend([(samples, count), (cpu, nanoseconds)]);
        }
        if has_waits {
            types.push((off_cpu, nanoseconds));
        }
        for (kind, unit) in &types {
            writer.message.put_message(field::SAMPLE_TYPE, |message| put_value_type(message, *kind, *unit));
        }
        let mut rows: Vec<((NodeIndex, Option<ThreadIndex>), Values)> = self.rows.drain().collect();
        rows.sort_unstable_by_key(|(key, _)| *key);
        for ((node, thread), values) in rows {
            let labels = self.labels(tables, thread);
            let Self { stacks, has_samples, .. } = &self;
            writer.message.put_message(field::SAMPLE, |message| {
                message.put_packed(field::SAMPLE_LOCATION_ID, stacks.frames(node).map(u64::from));
                let cpu_values = [values.samples, values.cpu_ns];
                let cpu_values = cpu_values.into_iter().filter(|_| *has_samples || !has_waits);
                let values = cpu_values.chain(has_waits.then_some(values.off_cpu_ns));
                message.put_packed(field::SAMPLE_VALUE, values);
                for (key, value) in &labels {
                    message.put_message(field::SAMPLE_LABEL, |message| {
                        message.put_u64(field::LABEL_KEY, (*key).into());
                        match value {
                            LabelValue::Text(text) => message.put_u64(field::LABEL_TEXT, (*text).into()),
                            LabelValue::Number(number) => message.put_u64(field::LABEL_NUMBER, *number),
                        };
                    });
                }
            });
            writer.write_if_full()?;
        }
        self.write_mappings(tables, &mut writer)?;
        self.write_locations(&mut writer)?;
        for (text, _) in self.texts.numbered.take() {
            writer.message.put_text(field::STRING_TABLE, &text);
            writer.write_if_full()?;
        }
        writer.message.put_i64(field::TIME_NANOS, tables.start_unix_ns());
        writer.message.put_i64(field::DURATION_NANOS, end_ns);
        writer.message.put_message(field::PERIOD_TYPE, |message| put_value_type(message, cpu, nanoseconds));
        writer.message.put_u64(field::PERIOD, self.interval_ns.unwrap_or(DEFAULT_INTERVAL_NS));
        writer.message.put_u64(field::COMMENT, comment.into());
        writer.write()?;
        writer.out.finish()?;
        Ok(())
    }

    /// Returns the labels of a thread and its process, with the numbers of their keys.
    fn labels(&mut self, tables: &ActivityTables, thread: Option<ThreadIndex>) -> Vec<(u32, LabelValue)> {
        let mut labels = Vec::new();
        let Some((index, thread)) = thread.and_then(|index| Some((index, tables.lives.thread(index)?)))
        else {
            return labels;
        };
        let (pid, tid) = tables.output_ids(Some(index));
        let process = thread.process.and_then(|process| tables.lives.process(process));
        let names = [
            (self.own.process, process.and_then(|process| process.name.as_ref())),
            (self.own.thread, thread.name.as_ref()),
        ];
        for (key, name) in names {
            // Readers take a label with an empty text for the number 0.
            let text = name.and_then(|name| self.texts.find_or_add(name)).filter(|text| *text != EMPTY);
            labels.extend(text.map(|text| (key, LabelValue::Text(text))));
        }
        for (key, id) in [(self.own.pid, pid), (self.own.tid, tid)] {
            labels.extend(id.map(|id| (key, LabelValue::Number(id.into()))));
        }
        labels
    }

    fn write_mappings(&mut self, tables: &ActivityTables, writer: &mut ProfileWriter<'_>) -> Result<()> {
        for (id, mapping) in (1_u64..).zip(tables.stacks.mappings()) {
            let file = self.texts.find_or_add(&mapping.path).unwrap_or(EMPTY);
            let build_id = self.texts.find_or_add(&Arc::from(mapping.build_id.as_str())).unwrap_or(EMPTY);
            writer.message.put_message(field::MAPPING, |message| {
                message.put_u64(field::ID, id).put_u64(field::MAPPING_START, mapping.base);
                message.put_u64(field::MAPPING_LIMIT, mapping.base.saturating_add(mapping.size));
                message
                    .put_u64(field::MAPPING_FILE, file.into())
                    .put_u64(field::MAPPING_BUILD_ID, build_id.into());
                // Names are final: a reader does not search for symbols.
                for has in [
                    field::MAPPING_HAS_FUNCTIONS,
                    field::MAPPING_HAS_FILE_NAMES,
                    field::MAPPING_HAS_LINES,
                    field::MAPPING_HAS_INLINED,
                ] {
                    message.put_u64(has, 1);
                }
            });
            writer.write_if_full()?;
        }
        Ok(())
    }

    fn write_locations(&mut self, writer: &mut ProfileWriter<'_>) -> Result<()> {
        let other = LineKey { name: self.own.other, file: EMPTY, line: 0 };
        let mut functions: Numbered<(u32, u32)> = Numbered::new(OTHER_ID.saturating_add(1), MAX_LOCATIONS);
        let other_location = LocationKey { address: 0, mapping: None, lines: vec![other] };
        for (location, id) in std::iter::once((other_location, OTHER_ID)).chain(self.locations.take()) {
            writer.message.put_message(field::LOCATION, |message| {
                message.put_u64(field::ID, id.into());
                if let Some(mapping) = location.mapping {
                    message.put_u64(field::LOCATION_MAPPING, u64::from(mapping.0).saturating_add(1));
                }
                message.put_u64(field::LOCATION_ADDRESS, location.address);
                for line in &location.lines {
                    let function =
                        if id == OTHER_ID { None } else { functions.find_or_add((line.name, line.file)) };
                    message.put_message(field::LOCATION_LINE, |message| {
                        message.put_u64(field::LINE_FUNCTION, function.unwrap_or(OTHER_ID).into());
                        if line.line > 0 {
                            message.put_u64(field::LINE_NUMBER, line.line.into());
                        }
                    });
                }
            });
            writer.write_if_full()?;
        }
        let other_function = ((other.name, other.file), OTHER_ID);
        for ((name, file), id) in std::iter::once(other_function).chain(functions.take()) {
            writer.message.put_message(field::FUNCTION, |message| {
                message.put_u64(field::ID, id.into()).put_u64(field::FUNCTION_NAME, name.into());
                message.put_u64(field::FUNCTION_SYSTEM_NAME, name.into());
                message.put_u64(field::FUNCTION_FILE, file.into());
            });
            writer.write_if_full()?;
        }
        Ok(())
    }
}

/// The value of a label.
enum LabelValue {
    /// Number of the text.
    Text(u32),
    Number(u64),
}

fn put_value_type(message: &mut Message, kind: u32, unit: u32) {
    message.put_u64(field::VALUE_TYPE, kind.into()).put_u64(field::VALUE_UNIT, unit.into());
}

/// Writes and compresses the fields of a profile.
struct ProfileWriter<'o> {
    out: GzEncoder<&'o mut dyn Write>,
    message: Message,
}

impl ProfileWriter<'_> {
    fn write_if_full(&mut self) -> Result<()> {
        if self.message.bytes().len() >= OUTPUT_BYTES { self.write() } else { Ok(()) }
    }

    fn write(&mut self) -> Result<()> {
        self.out.write_all(self.message.bytes())?;
        self.message.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests;
