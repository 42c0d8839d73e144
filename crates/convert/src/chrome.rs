//! Chrome's Trace Event JSON, for <https://ui.perfetto.dev>, `chrome://tracing` and speedscope.
//!
//! ```text
//!   {"traceEvents": [
//!      M  names of processes and threads       X  a thread on a processor, a disk operation
//!      B, E  slices of a thread                b, e  slices that overlap others
//!      i  other events                         C  counters           P  CPU samples
//!    ], "stackFrames": {"1": {"name", "category", "parent"}}, "otherData": {…}}
//! ```
//!
//! Documented: "Trace Event Format". Times are microseconds since the first trace began, with three
//! digits after the point.
//!
//! The processors and the disks are threads of two processes of their own, whose ids no process of a
//! trace has. Events are written as they come. Stack frames are written at the end; their number
//! is limited.

mod events;
mod functions;

use std::collections::{BTreeMap, HashSet};
use std::io::Write;

use anyhow::Result;
use traceweir_analysis::text::format_count;
use traceweir_decode::source::kernel::wait_reason;

use self::functions::Functions;
use crate::activity::{
    Activity, ActivityEvent, ActivityTables, EventDetail, FieldValue, FrameTree, Loss, NeededActivity,
    NodeIndex, ProcessIndex, Run, RunEnd, Sample, Slice, SliceTrack, StackFrame, Switch, ThreadIndex,
    ThreadRuns, network_bytes, network_fields, network_name, read_activity,
};
use crate::json::{push_detail, push_double, push_integer, push_members, push_microseconds, push_text};
use crate::{Conversion, ConvertInput};

/// Process ids of the processors and of the disks.
const PROCESSORS_PID: u32 = ActivityTables::FIRST_MADE_UP_ID;
const DISKS_PID: u32 = ActivityTables::FIRST_MADE_UP_ID + 1;
/// The process and thread id of events without a process.
const NO_PROCESS_PID: u32 = ActivityTables::FIRST_MADE_UP_ID + 2;
/// Bytes of the output to collect before they are written.
const OUTPUT_BYTES: usize = 1 << 16;
/// The most nodes of all stacks.
const MAX_STACK_NODES: usize = 1 << 20;
/// The most sums of counters.
const MAX_TOTALS: usize = 1 << 12;

/// Writes traces as Trace Event JSON.
pub fn convert(input: &ConvertInput, out: &mut dyn Write) -> Result<Conversion> {
    let mut writer = ChromeWriter::new(out);
    let needed = NeededActivity { events: true, event_stacks: false };
    let summary = read_activity(input, needed, |tables, event| writer.add(tables, event))?;
    writer.finish(&summary.tables, summary.end_ns)?;
    let mut notes = summary.notes;
    writer.describe_missing(&mut notes);
    let written = writer.written;
    Ok(Conversion {
        events: summary.events,
        written,
        written_noun: "trace event",
        notes,
        reading: summary.reading,
    })
}

/// Process id and thread id of an event.
type Ids = (u32, u32);

struct ChromeWriter<'o> {
    out: &'o mut dyn Write,
    buffer: Vec<u8>,
    written: u64,
    /// Ids of the processes and threads whose names have been written.
    named_processes: HashSet<ProcessIndex>,
    named_threads: HashSet<ThreadIndex>,
    named_ids: HashSet<Ids>,
    runs: ThreadRuns,
    functions: Functions,
    stacks: FrameTree<u32>,
    totals: BTreeMap<String, u64>,
    next_id: u64,
    idle_samples: u64,
}

impl<'o> ChromeWriter<'o> {
    fn new(out: &'o mut dyn Write) -> Self {
        Self {
            out,
            buffer: b"{\"traceEvents\":[".to_vec(),
            written: 0,
            named_processes: HashSet::new(),
            named_threads: HashSet::new(),
            named_ids: HashSet::new(),
            runs: ThreadRuns::default(),
            functions: Functions::default(),
            stacks: FrameTree::with_max_nodes(MAX_STACK_NODES),
            totals: BTreeMap::new(),
            next_id: 1 << 48,
            idle_samples: 0,
        }
    }

    fn describe_missing(&self, notes: &mut Vec<String>) {
        if self.written == 0 {
            notes.push("the traces contain nothing that a Chrome trace shows".to_owned());
        }
        if self.idle_samples > 0 {
            let count = format_count(self.idle_samples, "sample");
            notes.push(format!("samples of idle processors left out: {count}"));
        }
        if self.stacks.truncated > 0 {
            let count = format_count(self.stacks.truncated, "sample");
            notes.push(format!("there are too many stacks; the inner functions are missing in {count}"));
        }
    }

    fn add(&mut self, tables: &ActivityTables, event: &ActivityEvent) -> Result<()> {
        let ActivityEvent { time_ns, machine, cpu, is_selected, stack, activity } = event;
        let at = *time_ns;
        let cpu = tables.output_cpu(*machine, *cpu);
        if let Some(run) = self.runs.add(tables, event) {
            self.add_run(tables, run)?;
        }
        if !is_selected {
            return Ok(());
        }
        match activity {
            Activity::ProcessStart(process) => self.add_life(tables, at, *process, "Process start"),
            Activity::ProcessEnd(process) => self.add_life(tables, at, *process, "Process end"),
            Activity::ThreadStart(thread) | Activity::ThreadEnd(thread) => {
                let is_start = matches!(activity, Activity::ThreadStart(_));
                let ids = self.thread_ids(tables, Some(*thread))?;
                let name = if is_start { "Thread start" } else { "Thread end" };
                self.begin("i", name, "lifetime", ids, at);
                self.buffer.extend_from_slice(b",\"s\":\"t\"");
                self.end()
            }
            Activity::Switch(_) | Activity::Wake { .. } => Ok(()),
            Activity::Sample(sample) => self.add_sample(tables, at, cpu, sample, stack),
            Activity::SliceBegin(slice) => self.add_slice(tables, at, slice, Some(&slice.detail), true),
            Activity::SliceEnd { slice, stop } => self.add_slice(tables, at, slice, stop.as_deref(), false),
            Activity::Instant { thread, detail } => {
                let ids = self.thread_ids(tables, *thread)?;
                self.begin("i", &detail.name, &detail.provider, ids, at);
                self.buffer.extend_from_slice(b",\"s\":\"t\",\"args\":");
                push_detail(detail, &mut self.buffer);
                self.end()
            }
            Activity::Counters { process, values } => {
                let ids = self.process_ids(tables, *process)?;
                for (name, value) in values {
                    self.add_counter(name, ids, at, *value)?;
                }
                Ok(())
            }
            Activity::Disk { thread, transfer } => {
                let begin = at.saturating_sub_unsigned(transfer.duration_ns.unwrap_or(0)).max(0);
                self.name_single(DISKS_PID, transfer.disk, "Disks", &format!("Disk {}", transfer.disk))?;
                let (ids, id) = ((DISKS_PID, transfer.disk), self.next_id);
                self.next_id = id.saturating_add(1);
                let (pid, tid) = tables.output_ids(*thread);
                self.begin("b", transfer.operation, "disk", ids, begin);
                self.push_id(id);
                let values = [
                    ("bytes", Some(transfer.bytes)),
                    ("pid", pid.map(u64::from)),
                    ("tid", tid.map(u64::from)),
                ];
                self.push_numbers(&values);
                self.end()?;
                self.begin("e", transfer.operation, "disk", ids, at);
                self.push_id(id);
                self.end()?;
                self.add_total(
                    format!("Disk {} {} bytes", transfer.disk, transfer.operation),
                    at,
                    transfer.bytes,
                )
            }
            Activity::Network { process, transfer } => {
                let ids = self.process_ids(tables, *process)?;
                let name = network_name(transfer);
                self.begin("i", &name, "network", ids, at);
                self.buffer.extend_from_slice(b",\"s\":\"p\",\"args\":");
                let fields = network_fields(transfer);
                push_members(fields.iter().map(|(name, value)| (&**name, value)), &mut self.buffer);
                self.end()?;
                self.add_total(format!("{name} bytes"), at, network_bytes(transfer))
            }
            Activity::Loss(loss) => self.add_loss(at, loss),
        }
    }

    fn add_life(
        &mut self,
        tables: &ActivityTables,
        at: i64,
        process: ProcessIndex,
        name: &str,
    ) -> Result<()> {
        let ids = self.process_ids(tables, Some(process))?;
        self.begin("i", name, "lifetime", ids, at);
        self.buffer.extend_from_slice(b",\"s\":\"p\"");
        let parent = tables.lives.process(process).and_then(|process| process.parent_pid);
        self.push_numbers(&[("parent pid", parent.map(u64::from))]);
        self.end()
    }

    fn add_run(&mut self, tables: &ActivityTables, run: Run) -> Result<()> {
        let Run { from_ns, to_ns, .. } = run;
        let cpu = tables.output_cpu(run.machine, run.cpu);
        let Some(thread) = tables.lives.thread(run.thread) else { return Ok(()) };
        let reason = match run.end {
            RunEnd::Switch { state: Switch::WAITING, reason } => wait_reason(reason).unwrap_or("wait"),
            RunEnd::Switch { state: Switch::TERMINATED, .. } | RunEnd::ThreadEnd => "end",
            RunEnd::Switch { .. } => "preempted",
            RunEnd::TraceEnd => "end of trace",
        };
        self.name_single(PROCESSORS_PID, cpu, "Processors", &format!("Processor {cpu}"))?;
        let process = thread.process.and_then(|process| tables.lives.process(process));
        let name = thread.name.as_deref().or(process.and_then(|process| process.name.as_deref()));
        let (pid, tid) = tables.output_ids(Some(run.thread));
        let label = match name {
            Some(name) => format!("{name} ({})", tid.unwrap_or(0)),
            None => format!("thread {}", tid.unwrap_or(0)),
        };
        self.begin("X", &label, "scheduling", (PROCESSORS_PID, cpu), from_ns);
        self.buffer.extend_from_slice(b",\"dur\":");
        push_microseconds(to_ns.saturating_sub(from_ns), &mut self.buffer);
        let waker = tables.output_ids(run.wake.and_then(|wake| wake.waker)).1;
        let latency = run.wake.map(|wake| u64::try_from(from_ns.saturating_sub(wake.time_ns)).unwrap_or(0));
        self.push_numbers(&[
            ("pid", pid.map(u64::from)),
            ("tid", tid.map(u64::from)),
            ("woken by tid", waker.map(u64::from)),
            ("wake latency ns", latency),
        ]);
        // The arguments are an object that is not empty, because the thread has an id.
        self.buffer.pop();
        self.buffer.extend_from_slice(b",\"end\":");
        push_text(reason, &mut self.buffer);
        self.buffer.push(b'}');
        self.end()
    }

    fn add_sample(
        &mut self,
        tables: &ActivityTables,
        at: i64,
        cpu: u32,
        sample: &Sample,
        stack: &[StackFrame],
    ) -> Result<()> {
        if sample.is_idle {
            self.idle_samples = self.idle_samples.saturating_add(sample.weight);
            return Ok(());
        }
        let ids = self.thread_ids(tables, sample.thread)?;
        let functions = &mut self.functions;
        let frames = stack.iter().rev().flat_map(|frame| {
            frame
                .functions
                .iter()
                .rev()
                .map(move |function| (frame.function_name(function), function.module.clone()))
        });
        let frames = frames.map(|(name, module)| functions.find_or_add(name, module));
        let node = self.stacks.find_or_add(frames);
        self.begin("P", "sample", "sample", ids, at);
        if node != NodeIndex::ROOT {
            self.buffer.extend_from_slice(format!(",\"sf\":{}", node.0).as_bytes());
        }
        self.push_numbers(&[("cpu", Some(cpu.into())), ("weight", Some(sample.weight))]);
        self.end()
    }

    fn add_slice(
        &mut self,
        tables: &ActivityTables,
        at: i64,
        slice: &Slice,
        detail: Option<&EventDetail>,
        is_begin: bool,
    ) -> Result<()> {
        let ids = self.thread_ids(tables, slice.thread)?;
        let phase = match (slice.track, is_begin) {
            (SliceTrack::Thread, true) => "B",
            (SliceTrack::Thread, false) => "E",
            (SliceTrack::Task { .. }, true) => "b",
            (SliceTrack::Task { .. }, false) => "e",
        };
        self.begin(phase, &slice.name, &slice.detail.provider, ids, at);
        if slice.track != SliceTrack::Thread {
            self.push_id(slice.id.0);
        }
        if let Some(detail) = detail {
            self.buffer.extend_from_slice(b",\"args\":");
            push_detail(detail, &mut self.buffer);
        }
        self.end()
    }

    fn add_counter(&mut self, name: &str, ids: Ids, at: i64, value: f64) -> Result<()> {
        self.begin("C", name, "", ids, at);
        self.buffer.extend_from_slice(b",\"args\":{\"value\":");
        push_double(value, &mut self.buffer);
        self.buffer.push(b'}');
        self.end()
    }

    /// Adds to the sum of a counter, and writes the sum.
    fn add_total(&mut self, name: String, at: i64, bytes: u64) -> Result<()> {
        if bytes == 0 || (self.totals.len() >= MAX_TOTALS && !self.totals.contains_key(&name)) {
            return Ok(());
        }
        let total = self.totals.entry(name.clone()).or_default();
        *total = total.saturating_add(bytes);
        let total = i64::try_from(*total).unwrap_or(i64::MAX);
        self.begin("C", &name, "", (DISKS_PID, 0), at);
        self.buffer.extend_from_slice(b",\"args\":{\"value\":");
        push_integer(total, &mut self.buffer);
        self.buffer.push(b'}');
        self.end()
    }

    fn add_loss(&mut self, at: i64, loss: &Loss) -> Result<()> {
        self.name_single(NO_PROCESS_PID, 0, "(no process)", "events")?;
        self.begin("i", "Lost events", "loss", (NO_PROCESS_PID, 0), at);
        self.buffer.extend_from_slice(b",\"s\":\"g\",\"args\":");
        let number = |value: Option<u64>| value.map(FieldValue::Unsigned);
        let values = [
            ("trace", Some(FieldValue::Text((&*loss.trace).into()))),
            ("cpu", number(loss.cpu.map(u64::from))),
            ("lost events", number(loss.events)),
            ("lost buffers", number(loss.buffers)),
        ];
        let values = values.iter().filter_map(|(name, value)| Some((*name, value.as_ref()?)));
        push_members(values, &mut self.buffer);
        self.end()
    }

    /// Writes the threads that still run, the stack frames and the end of the file.
    fn finish(&mut self, tables: &ActivityTables, end_ns: i64) -> Result<()> {
        for run in self.runs.finish(tables, end_ns) {
            self.add_run(tables, run)?;
        }
        self.buffer.extend_from_slice(b"\n],\"stackFrames\":{");
        let Self { stacks, functions, buffer, out, .. } = self;
        for (index, (node, parent, function)) in stacks.nodes().enumerate() {
            if index > 0 {
                buffer.push(b',');
            }
            let (name, module) = functions
                .list
                .get(function as usize)
                .map_or(("", None), |(name, module)| (name, module.as_deref()));
            buffer.extend_from_slice(format!("\n\"{}\":{{\"name\":", node.0).as_bytes());
            push_text(name, buffer);
            if let Some(module) = module {
                buffer.extend_from_slice(b",\"category\":");
                push_text(module, buffer);
            }
            if parent != NodeIndex::ROOT {
                buffer.extend_from_slice(format!(",\"parent\":{}", parent.0).as_bytes());
            }
            buffer.push(b'}');
            if buffer.len() >= OUTPUT_BYTES {
                out.write_all(buffer)?;
                buffer.clear();
            }
        }
        self.buffer.extend_from_slice(b"},\"displayTimeUnit\":\"ns\",\"otherData\":{\"exporter\":");
        push_text(concat!("weir ", env!("CARGO_PKG_VERSION")), &mut self.buffer);
        self.buffer.extend_from_slice(b",\"start\":");
        push_text(&tables.start.to_string(), &mut self.buffer);
        self.buffer.extend_from_slice(b"}}\n");
        self.out.write_all(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests;
