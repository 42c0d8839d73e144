//! Profiles for the Firefox Profiler (<https://profiler.firefox.com>): the processed profile format.
//!
//! ```text
//!   processes, threads ──▶ threads with names, starts and ends
//!   samples ──▶ samples with stacks of functions, `module!function`; time on a processor
//!   slices, other events ──▶ markers, with a schema for each kind of event
//!   transfers, counters ──▶ counters of a process
//! ```
//!
//! Documented: "Processed profile format" in the repository of the Firefox Profiler.
//!
//! The profile is built in memory, so the numbers of samples, stacks, markers and counter values are
//! limited, and so is the estimated memory of all of them. What comes after a limit is left out, and a
//! note says how much.

mod escape;
mod markers;
mod memory;

use std::collections::HashMap;
use std::io::{BufWriter, Write};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use fxprof_processed_profile::{
    CategoryColor, CategoryPairHandle, CounterHandle, CpuDelta, Frame, FrameFlags, FrameInfo, MarkerTiming,
    ProcessHandle, Profile, ReferenceTimestamp, SamplingInterval, StackHandle, ThreadHandle, Timestamp,
};
use traceweir_analysis::text::format_count;

use self::escape::EscapingWriter;
use self::markers::{EventMarker, MarkerKinds, MarkerTexts};
use self::memory::ProfileMemory;
use crate::activity::{
    Activity, ActivityEvent, ActivityTables, EventDetail, FieldValue, Fields, Life, Loss, NeededActivity,
    ProcessIndex, Run, Sample, StackFrame, ThreadIndex, ThreadRuns, network_bytes, network_fields,
    network_name, read_activity,
};
use crate::{Conversion, ConvertInput};

/// The most samples, stacks, markers and counter values.
const MAX_SAMPLES: usize = 1 << 20;
const MAX_STACKS: usize = 1 << 19;
const MAX_MARKERS: usize = 1 << 19;
const MAX_COUNTER_VALUES: usize = 1 << 19;
/// The most processes and threads; what belongs to others has no thread.
const MAX_PROCESSES: usize = 1 << 12;
const MAX_THREADS: usize = 1 << 13;
/// The most counters.
const MAX_COUNTERS: usize = 1 << 12;
/// The interval of samples whose trace does not contain one: 1 ms is the default of Windows.
const DEFAULT_INTERVAL_NS: u64 = 1_000_000;
/// The process id of events without a process.
const NO_PROCESS_PID: u32 = ActivityTables::FIRST_MADE_UP_ID;

/// Writes traces as a profile of the Firefox Profiler.
pub fn convert(input: &ConvertInput, out: &mut dyn Write) -> Result<Conversion> {
    let mut builder = ProfileBuilder::new();
    let needed = NeededActivity { events: true, event_stacks: false };
    let summary = read_activity(input, needed, |tables, event| {
        builder.add(tables, event);
        Ok(())
    })?;
    let mut notes = summary.notes;
    builder.describe_missing(&mut notes);
    let written = (builder.samples as u64).saturating_add(builder.markers as u64);
    let unix_ns = u64::try_from(summary.tables.start_unix_ns()).unwrap_or(0);
    let start = ReferenceTimestamp::from_duration_since_unix_epoch(Duration::from_nanos(unix_ns));
    builder.profile.set_reference_timestamp(start);
    let is_linux = summary.tables.traces.iter().any(|trace| trace.is_linux);
    builder.profile.set_os_name(if is_linux { "Linux" } else { "Windows" });
    let mut out = BufWriter::new(out);
    serde_json::to_writer(EscapingWriter(&mut out), &builder.profile)?;
    out.write_all(b"\n")?;
    out.flush()?;
    let written_noun = "entry";
    Ok(Conversion { events: summary.events, written, written_noun, notes, reading: summary.reading })
}

/// Numbers of what was left out at a limit.
#[derive(Debug, Default)]
struct LeftOut {
    samples: u64,
    markers: u64,
    counter_values: u64,
    idle_samples: u64,
}

/// A sum that a counter shows.
struct CounterState {
    handle: CounterHandle,
    last: f64,
}

/// The processor time of a thread.
#[derive(Clone, Copy, Debug, Default)]
struct CpuTime {
    /// Time that the thread ran since its last sample.
    since_sample_ns: u64,
    /// The end of the time that has been counted.
    counted_until_ns: i64,
}

impl CpuTime {
    fn add_span(&mut self, from_ns: i64, to_ns: i64) {
        let from_ns = from_ns.max(self.counted_until_ns);
        let ran_ns = u64::try_from(to_ns.saturating_sub(from_ns)).unwrap_or(0);
        self.since_sample_ns = self.since_sample_ns.saturating_add(ran_ns);
        self.counted_until_ns = self.counted_until_ns.max(to_ns);
    }
}

/// Builds a profile.
struct ProfileBuilder {
    profile: Profile,
    kernel_category: CategoryPairHandle,
    user_category: CategoryPairHandle,
    processes: HashMap<Option<ProcessIndex>, ProcessHandle>,
    threads: HashMap<Option<ThreadIndex>, ThreadHandle>,
    /// Threads that carry the markers of processes without a known main thread.
    process_threads: HashMap<Option<ProcessIndex>, ThreadHandle>,
    memory: ProfileMemory,
    marker_kinds: MarkerKinds,
    counters: HashMap<(Option<ProcessIndex>, Arc<str>), CounterState>,
    runs: ThreadRuns,
    cpu_times: HashMap<ThreadIndex, CpuTime>,
    has_selected_runs: bool,
    interval_ns: Option<u64>,
    samples: usize,
    markers: usize,
    counter_values: usize,
    left_out: LeftOut,
}

impl ProfileBuilder {
    fn new() -> Self {
        let start = ReferenceTimestamp::from_millis_since_unix_epoch(0.0);
        let interval = SamplingInterval::from_nanos(DEFAULT_INTERVAL_NS);
        let mut profile = Profile::new("weir", start, interval);
        profile.set_symbolicated(true);
        let kernel_category = profile.add_category("Kernel", CategoryColor::Orange);
        let user_category = profile.add_category("User", CategoryColor::Yellow);
        let marker_category = profile.add_category("Events", CategoryColor::Blue);
        Self {
            profile,
            kernel_category: kernel_category.into(),
            user_category: user_category.into(),
            processes: HashMap::new(),
            threads: HashMap::new(),
            process_threads: HashMap::new(),
            memory: ProfileMemory::default(),
            marker_kinds: MarkerKinds::new(marker_category),
            counters: HashMap::new(),
            runs: ThreadRuns::default(),
            cpu_times: HashMap::new(),
            has_selected_runs: false,
            interval_ns: None,
            samples: 0,
            markers: 0,
            counter_values: 0,
            left_out: LeftOut::default(),
        }
    }

    fn describe_missing(&self, notes: &mut Vec<String>) {
        let LeftOut { samples, markers, counter_values, idle_samples } = self.left_out;
        if idle_samples > 0 {
            let count = format_count(idle_samples, "sample");
            notes.push(format!("samples of idle processors left out: {count}"));
        }
        let counts = [(samples, "sample"), (markers, "marker"), (counter_values, "counter value")];
        for (count, noun) in counts.into_iter().filter(|(count, _)| *count > 0) {
            let count = format_count(count, noun);
            notes.push(format!(
                "a profile of this format is built in memory and has a limit; left out: {count}; select a part of the traces, such as a time span"
            ));
        }
    }

    fn add(&mut self, tables: &ActivityTables, event: &ActivityEvent) {
        let at = event.time_ns;
        if let Some(Run { thread, from_ns, to_ns, .. }) = self.runs.add(tables, event) {
            self.cpu_times.entry(thread).or_default().add_span(from_ns, to_ns);
        }
        if let Activity::Switch(switch) = &event.activity {
            self.has_selected_runs |= switch.selects_new;
        }
        if !event.is_selected {
            return;
        }
        match &event.activity {
            Activity::ProcessStart(_)
            | Activity::ProcessEnd(_)
            | Activity::ThreadStart(_)
            | Activity::ThreadEnd(_)
            | Activity::Switch(_)
            | Activity::Wake { .. }
            | Activity::SliceBegin(_) => {}
            Activity::Sample(sample) => self.add_sample(tables, event, sample),
            Activity::SliceEnd { slice, stop } => {
                let timing = MarkerTiming::Interval(timestamp(slice.begin_ns), timestamp(at));
                let thread = self.find_thread(tables, slice.thread);
                let mut detail = EventDetail { name: Arc::clone(&slice.name), ..(*slice.detail).clone() };
                if let Some(stop) = stop {
                    detail.fields.values.extend_from_slice(&stop.fields.values);
                }
                self.add_marker(thread, timing, &detail);
            }
            Activity::Instant { thread, detail } => {
                let thread = self.find_thread(tables, *thread);
                self.add_marker(thread, MarkerTiming::Instant(timestamp(at)), detail);
            }
            Activity::Counters { process, values } => {
                for (name, value) in values {
                    self.set_counter(tables, at, *process, name, *value);
                }
            }
            Activity::Disk { thread, transfer } => {
                let begin = at.saturating_sub_unsigned(transfer.duration_ns.unwrap_or(0)).max(0);
                let fields = [
                    ("disk", FieldValue::Unsigned(transfer.disk.into())),
                    ("bytes", FieldValue::Unsigned(transfer.bytes)),
                ];
                let detail = named_detail("disk", &format!("Disk {}", transfer.operation), fields);
                let timing = MarkerTiming::Interval(timestamp(begin), timestamp(at));
                let handle = self.find_thread(tables, *thread);
                self.add_marker(handle, timing, &detail);
                let process = thread.and_then(|thread| tables.lives.process_of(thread));
                let counter = format!("Disk {} bytes", transfer.operation);
                self.add_to_counter(tables, at, process, &counter, transfer.bytes);
            }
            Activity::Network { process, transfer } => {
                let name = network_name(transfer);
                let mut detail = named_detail("network", &name, []);
                detail.fields.values = network_fields(transfer);
                let thread = self.process_thread(tables, *process);
                self.add_marker(thread, MarkerTiming::Instant(timestamp(at)), &detail);
                self.add_to_counter(tables, at, *process, &format!("{name} bytes"), network_bytes(transfer));
            }
            Activity::Loss(loss) => self.add_loss(tables, at, loss),
        }
    }

    fn add_sample(&mut self, tables: &ActivityTables, event: &ActivityEvent, sample: &Sample) {
        let at = event.time_ns;
        if sample.is_idle {
            self.left_out.idle_samples = self.left_out.idle_samples.saturating_add(sample.weight);
            return;
        }
        if let Some(interval_ns) = sample.interval_ns.filter(|_| self.interval_ns.is_none()) {
            self.interval_ns = Some(interval_ns);
            self.profile.set_interval(SamplingInterval::from_nanos(interval_ns));
        }
        let is_full = self.samples >= MAX_SAMPLES || self.memory.stacks() >= MAX_STACKS;
        if is_full || self.memory.is_full() {
            self.left_out.samples = self.left_out.samples.saturating_add(sample.weight);
            return;
        }
        self.samples += 1;
        self.memory.add_sample();
        let thread = self.find_thread(tables, sample.thread);
        let stack = self.find_stack(thread, &event.stack);
        let interval_ns = sample.interval_ns.unwrap_or(DEFAULT_INTERVAL_NS);
        let ran_ns = match sample.thread.filter(|_| self.has_selected_runs) {
            Some(index) => {
                let cpu_time = self.cpu_times.entry(index).or_default();
                // The thread runs now: its run so far counts too.
                if let Some(since_ns) = self.runs.running_since(tables, event, index) {
                    cpu_time.add_span(since_ns, at);
                }
                std::mem::take(&mut cpu_time.since_sample_ns)
            }
            None => interval_ns.saturating_mul(sample.weight),
        };
        let weight = i32::try_from(sample.weight).unwrap_or(i32::MAX);
        self.profile.add_sample(thread, timestamp(at), stack, CpuDelta::from_nanos(ran_ns), weight);
    }

    /// Returns the stack of a thread, which is innermost frame first.
    fn find_stack(&mut self, thread: ThreadHandle, stack: &[StackFrame]) -> Option<StackHandle> {
        let mut parent = None;
        for frame in stack.iter().rev() {
            let category_pair = if frame.is_kernel { self.kernel_category } else { self.user_category };
            for function in frame.functions.iter().rev() {
                let label = frame.label(function);
                let name = self.profile.intern_string(&label);
                self.memory.add_text(thread, name, &label);
                let info = FrameInfo { frame: Frame::Label(name), category_pair, flags: FrameFlags::empty() };
                let handle = self.profile.intern_frame(thread, info);
                let node = self.profile.intern_stack(thread, parent, handle);
                self.memory.add_stack(node);
                parent = Some(node);
            }
        }
        parent
    }

    fn add_marker(&mut self, thread: ThreadHandle, timing: MarkerTiming, detail: &EventDetail) {
        if self.markers >= MAX_MARKERS || self.memory.is_full() {
            self.left_out.markers = self.left_out.markers.saturating_add(1);
            return;
        }
        let Self { profile, marker_kinds, memory, .. } = self;
        let mut texts = MarkerTexts { thread, profile, memory };
        let marker = EventMarker::new(detail, marker_kinds, &mut texts);
        self.markers += 1;
        self.profile.add_marker(thread, timing, marker);
    }

    fn add_loss(&mut self, tables: &ActivityTables, at: i64, loss: &Loss) {
        let text = FieldValue::Text((&*loss.trace).into());
        let mut detail = named_detail("loss", "Lost events", [("trace", text)]);
        let numbers = [("lost events", loss.events), ("lost buffers", loss.buffers)];
        for (name, number) in numbers {
            if let Some(number) = number {
                detail.fields.values.push((name.into(), FieldValue::Unsigned(number)));
            }
        }
        let thread = self.process_thread(tables, None);
        self.add_marker(thread, MarkerTiming::Instant(timestamp(at)), &detail);
    }

    /// Returns the counter of a process; `None` if there are too many.
    fn find_counter(
        &mut self,
        tables: &ActivityTables,
        process: Option<ProcessIndex>,
        name: &str,
    ) -> Option<&mut CounterState> {
        let key = (process, Arc::from(name));
        if !self.counters.contains_key(&key) {
            if self.counters.len() >= MAX_COUNTERS || self.memory.is_full() {
                return None;
            }
            self.memory.add_counter(name);
            // A counter belongs to the first thread of its process, so there must be one.
            self.process_thread(tables, process);
            let owner = self.find_process(tables, process);
            let handle = self.profile.add_counter(owner, name, "Other", name);
            self.counters.insert(key.clone(), CounterState { handle, last: 0.0 });
        }
        self.counters.get_mut(&key)
    }

    fn set_counter(
        &mut self,
        tables: &ActivityTables,
        at: i64,
        process: Option<ProcessIndex>,
        name: &str,
        value: f64,
    ) {
        if self.counter_values >= MAX_COUNTER_VALUES || self.memory.is_full() {
            self.left_out.counter_values = self.left_out.counter_values.saturating_add(1);
            return;
        }
        let Some(counter) = self.find_counter(tables, process, name) else {
            self.left_out.counter_values = self.left_out.counter_values.saturating_add(1);
            return;
        };
        // A finite value can be infinitely far from the last one, which JSON has no number for.
        let delta = value - counter.last;
        if !delta.is_finite() {
            self.left_out.counter_values = self.left_out.counter_values.saturating_add(1);
            return;
        }
        counter.last = value;
        let handle = counter.handle;
        self.counter_values += 1;
        self.memory.add_counter_value();
        self.profile.add_counter_sample(handle, timestamp(at), delta, 1);
    }

    #[allow(clippy::cast_precision_loss)] // Sums are shown, not compared.
    fn add_to_counter(
        &mut self,
        tables: &ActivityTables,
        at: i64,
        process: Option<ProcessIndex>,
        name: &str,
        bytes: u64,
    ) {
        if bytes > 0 {
            let last = self.find_counter(tables, process, name).map_or(0.0, |counter| counter.last);
            self.set_counter(tables, at, process, name, last + bytes as f64);
        }
    }

    fn find_process(&mut self, tables: &ActivityTables, index: Option<ProcessIndex>) -> ProcessHandle {
        let index = index.filter(|index| {
            self.processes.len() < MAX_PROCESSES || self.processes.contains_key(&Some(*index))
        });
        if let Some(handle) = self.processes.get(&index) {
            return *handle;
        }
        let process = index.and_then(|index| tables.lives.process(index));
        let handle = match process {
            Some(process) => {
                let pid = ActivityTables::output_id(process.machine, process.pid);
                let name = match &process.name {
                    Some(name) => name.to_string(),
                    None => format!("process {pid}"),
                };
                let (start, end) = life_timestamps(process.life);
                let handle = self.profile.add_process(&name, pid, start);
                if let Some(end) = end {
                    self.profile.set_process_end_time(handle, end);
                }
                handle
            }
            None => self.profile.add_process("(no process)", NO_PROCESS_PID, timestamp(0)),
        };
        self.processes.insert(index, handle);
        handle
    }

    fn find_thread(&mut self, tables: &ActivityTables, index: Option<ThreadIndex>) -> ThreadHandle {
        let index = index
            .filter(|index| self.threads.len() < MAX_THREADS || self.threads.contains_key(&Some(*index)));
        if let Some(handle) = self.threads.get(&index) {
            return *handle;
        }
        let thread = index.and_then(|index| tables.lives.thread(index));
        let handle = match thread {
            Some(thread) => {
                let owner = self.find_process(tables, thread.process);
                let process = thread.process.and_then(|process| tables.lives.process(process));
                let tid = ActivityTables::output_id(thread.machine, thread.tid);
                // The main thread of a Linux process has the id of the process.
                let is_main = process.is_some_and(|process| process.pid == thread.tid);
                let (start, end) = life_timestamps(thread.life);
                let handle = self.profile.add_thread(owner, tid, start, is_main);
                self.memory.add_thread();
                if let Some(end) = end {
                    self.profile.set_thread_end_time(handle, end);
                }
                if let Some(name) = &thread.name {
                    self.profile.set_thread_name(handle, name);
                }
                handle
            }
            None => self.process_thread(tables, None),
        };
        self.threads.insert(index, handle);
        handle
    }

    /// Returns the thread that carries what belongs to a process as a whole.
    fn process_thread(&mut self, tables: &ActivityTables, index: Option<ProcessIndex>) -> ThreadHandle {
        let index = index.filter(|index| {
            self.process_threads.len() < MAX_PROCESSES || self.process_threads.contains_key(&Some(*index))
        });
        if let Some(handle) = self.process_threads.get(&index) {
            return *handle;
        }
        let owner = self.find_process(tables, index);
        let process = index.and_then(|index| tables.lives.process(index));
        let pid = process.map(|process| ActivityTables::output_id(process.machine, process.pid));
        let handle = self.profile.add_thread(owner, pid.unwrap_or(NO_PROCESS_PID), timestamp(0), false);
        self.profile.set_thread_name(handle, "(process)");
        self.memory.add_thread();
        self.process_threads.insert(index, handle);
        handle
    }
}

fn timestamp(time_ns: i64) -> Timestamp {
    Timestamp::from_nanos_since_reference(u64::try_from(time_ns).unwrap_or(0))
}

fn life_timestamps(life: Life) -> (Timestamp, Option<Timestamp>) {
    (timestamp(life.start_ns.unwrap_or(0)), life.end_ns.map(timestamp))
}

/// Returns the detail of something that is not an event of its own.
fn named_detail<const N: usize>(provider: &str, name: &str, values: [(&str, FieldValue); N]) -> EventDetail {
    let values = values.into_iter().map(|(name, value)| (Arc::from(name), value)).collect();
    let fields = Fields::from_values(values);
    EventDetail { provider: provider.into(), name: name.into(), fields, ..EventDetail::default() }
}

#[cfg(test)]
mod tests;
