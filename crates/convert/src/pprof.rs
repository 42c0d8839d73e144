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

mod field;
mod tables;
mod writer;

use std::collections::HashMap;
use std::io::Write;
use std::sync::Arc;

use anyhow::{Result, bail};
use traceweir_analysis::filter::FilterCriteria;
use traceweir_analysis::report::{ContextSwitch, Scheduler, ThreadReturn};
use traceweir_analysis::text::{format_count, format_number};

use self::tables::{
    EMPTY, LineKey, LocationKey, MAX_LINES, MAX_LOCATIONS, Numbered, OTHER_ID, OwnTexts, TextTable,
};
use crate::activity::{
    Activity, ActivityEvent, ActivityTables, FrameTree, NeededActivity, NodeIndex, Sample, StackFrame,
    Switch, ThreadIndex, read_activity, scheduler_id,
};
use crate::{Conversion, ConvertInput};

/// The most nodes of all stacks, and the most rows of stack and thread.
const MAX_STACK_NODES: usize = 1 << 20;
const MAX_ROWS: usize = 1 << 18;
/// The interval of samples whose trace does not contain one: 1 ms is the default of Windows.
const DEFAULT_INTERVAL_NS: u64 = 1_000_000;

/// Writes the CPU samples and the waits of traces as a profile.
pub fn convert(input: &ConvertInput, out: &mut dyn Write) -> Result<Conversion> {
    let mut profile = Profile::new();
    let needed = NeededActivity { events: false, event_stacks: false };
    let summary = read_activity(input, needed, |tables, event| {
        profile.add(tables, event);
        Ok(())
    })?;
    if profile.rows.is_empty() {
        bail!("{}", profile.describe_emptiness(&input.criteria));
    }
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

    /// Explains why the profile has no stacks.
    fn describe_emptiness(&self, criteria: &FilterCriteria) -> String {
        if self.idle_samples > 0 {
            let idle = format_number(self.idle_samples);
            return format!("no waits, and no samples except {idle} of idle processors");
        }
        if !criteria.events.is_empty() {
            return "no samples and no waits are among the selected events; --to collapsed writes the stacks of other events"
                .to_owned();
        }
        "no samples and no waits: the trace has none, or the filters select none; weir record --kernel cpu -- CMD records samples"
            .to_owned()
    }

    fn describe_missing(&self, notes: &mut Vec<String>) {
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
        let off_cpu_ns = u64::try_from(to.saturating_sub(absence.from.max(tables.from_ns))).unwrap_or(0);
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
}

#[cfg(test)]
mod tests;
