//! Perfetto traces: a stream of `TracePacket` messages, for <https://ui.perfetto.dev> and
//! `trace_processor`.
//!
//! ```text
//!   clock snapshot, process tree      names, parents, real time
//!   track descriptors                 processes, threads, tasks, disks, counters
//!   ftrace bundle of a processor      sched_switch, sched_waking, sched_process_free
//!   track events                      slices, instants, counters; fields are debug annotations
//!   perf samples                      CPU samples with their stacks
//! ```
//!
//! Documented: the messages of `protos/perfetto/trace` in the repository of Perfetto.
//!
//! P1  All packets are of one sequence. Names, frames and stacks are interned in it. When they reach a
//!     limit, or after a loss, the sequence begins again with the flag
//!     `SEQ_INCREMENTAL_STATE_CLEARED`.
//! P2  Times are nanoseconds since the machine started, if the trace contains that time, else since
//!     1970. A clock snapshot relates them to real time.
//! P3  Slices of a track nest. Slices that overlap are on tracks of the same name, which the page shows
//!     as one.

mod fields;
mod interning;
mod tracks;

use std::collections::{BTreeMap, HashMap};
use std::io::Write;
use std::sync::Arc;

use anyhow::Result;
use traceweir_analysis::report::NetworkTransfer;

use self::fields::{
    annotation, clock, defaults, descriptor, event, ftrace, packet, perf_sample, process_tree, sched,
};
use self::interning::Interning;
use self::tracks::{TrackKey, TrackUuid, Tracks};
use crate::activity::{
    Activity, ActivityEvent, ActivityTables, EventDetail, FieldValue, Loss, NeededActivity, ProcessIndex,
    Sample, Slice, SliceId, SliceTrack, StackFrame, Switch, ThreadIndex, network_bytes, network_fields,
    network_name, read_activity,
};
use crate::protobuf::Message;
use crate::{Conversion, ConvertInput};

/// The sequence of all packets.
const SEQUENCE: u64 = 1;
/// Bytes of the output to collect before they are written.
const OUTPUT_BYTES: usize = 1 << 16;
/// Bytes of scheduling events of one processor, and of all, to collect before they become packets.
const MAX_BUNDLE_BYTES: usize = 1 << 15;
const MAX_BUNDLES_BYTES: usize = 4 << 20;
/// The most entries of one packet with the process tree.
const MAX_TREE_ENTRIES: usize = 1 << 12;
/// The priority of threads whose priority the trace does not contain: the default of Linux.
const DEFAULT_PRIORITY: i64 = 120;
/// The thread id that stands for threads that a trace does not name.
const UNKNOWN_TID: u32 = i32::MAX.cast_unsigned();

/// Writes traces as a Perfetto trace.
pub fn convert(input: &ConvertInput, out: &mut dyn Write) -> Result<Conversion> {
    let mut writer = PerfettoWriter::new(out);
    let needed = NeededActivity { events: true, event_stacks: true };
    let summary = read_activity(input, needed, |tables, activity| writer.add(tables, activity))?;
    writer.finish()?;
    let mut notes = summary.notes;
    writer.describe_missing(&mut notes);
    Ok(Conversion {
        events: summary.events,
        written: writer.packets,
        written_noun: "packet",
        notes,
        reading: summary.reading,
    })
}

/// Writes packets.
struct PerfettoWriter<'o> {
    out: &'o mut dyn Write,
    output: Message,
    packet: Message,
    packets: u64,
    /// The time of the first trace's start in the trace, in nanoseconds.
    start_ns: Option<u64>,
    interning: Interning,
    /// Interned data that the next packet must contain.
    new_interned: Message,
    is_cleared: bool,
    /// The sampling interval that the defaults of the sequence contain.
    interval_ns: Option<u64>,
    tracks: Tracks,
    /// The tracks of open slices.
    open: HashMap<SliceId, TrackUuid>,
    /// Scheduling events of each processor.
    bundles: BTreeMap<u32, Message>,
    bundle_bytes: usize,
    /// Sums of the counters of transfers.
    totals: BTreeMap<String, u64>,
    idle_samples: u64,
}

impl<'o> PerfettoWriter<'o> {
    fn new(out: &'o mut dyn Write) -> Self {
        Self {
            out,
            output: Message::default(),
            packet: Message::default(),
            packets: 0,
            start_ns: None,
            interning: Interning::default(),
            new_interned: Message::default(),
            is_cleared: true,
            interval_ns: None,
            tracks: Tracks::default(),
            open: HashMap::new(),
            bundles: BTreeMap::new(),
            bundle_bytes: 0,
            totals: BTreeMap::new(),
            idle_samples: 0,
        }
    }

    fn describe_missing(&self, notes: &mut Vec<String>) {
        use traceweir_analysis::text::format_count;
        if self.packets == 0 {
            notes.push("the traces contain nothing that a Perfetto trace shows".to_owned());
        }
        if self.idle_samples > 0 {
            notes.push(format!(
                "samples of idle processors left out: {}",
                format_count(self.idle_samples, "sample")
            ));
        }
        if self.tracks.is_full() {
            notes.push(
                "there are too many tracks; some slices and counters are on tracks of others".to_owned(),
            );
        }
    }

    /// Writes an activity.
    fn add(&mut self, tables: &ActivityTables, activity_event: &ActivityEvent) -> Result<()> {
        let start_ns = match self.start_ns {
            Some(start_ns) => start_ns,
            None => self.write_start(tables)?,
        };
        let ActivityEvent { time_ns, machine, cpu, stack, activity } = activity_event;
        let at = start_ns.saturating_add(u64::try_from(*time_ns).unwrap_or(0));
        let cpu = tables.output_cpu(*machine, *cpu);
        match activity {
            Activity::ProcessStart(process) => self.write_tree(tables, &[*process], &[]),
            Activity::ThreadStart(thread) => self.write_tree(tables, &[], &[*thread]),
            Activity::ProcessEnd(_) => Ok(()),
            Activity::ThreadEnd(thread) => self.add_thread_end(tables, at, cpu, *thread),
            Activity::Switch(switch) => self.add_switch(tables, at, cpu, switch),
            Activity::Wake { thread, waker } => self.add_wake(tables, at, cpu, (*thread, *waker)),
            Activity::Sample(sample) => self.add_sample(tables, at, cpu, sample, stack),
            Activity::SliceBegin(slice) => self.begin_slice(tables, at, slice, stack),
            Activity::SliceEnd { slice, stop } => self.end_slice(tables, at, slice, stop.as_deref()),
            Activity::Instant { thread, detail } => {
                let track = self.thread_track(tables, *thread)?;
                let stack = self.intern_stack(tables, stack);
                self.write_event(at, event::INSTANT, track, Some(detail), stack)
            }
            Activity::Counters { process, values } => {
                for (name, value) in values {
                    self.add_counter(tables, at, *process, name, *value)?;
                }
                Ok(())
            }
            Activity::Disk { thread, transfer } => {
                let begin = at.saturating_sub(transfer.duration_ns.unwrap_or(0));
                let name = format!("Disk {}", transfer.disk);
                let (begin, lane) = self.tracks.take_disk_lane(*machine, transfer.disk, begin, at);
                let track = self.find_track(tables, &TrackKey::disk(*machine, transfer.disk, lane), &name)?;
                let (pid, tid) = tables.output_ids(*thread);
                let number =
                    |name: &str, value: Option<u64>| Some((Arc::from(name), FieldValue::Unsigned(value?)));
                let values = [
                    number("bytes", Some(transfer.bytes)),
                    number("pid", pid.map(u64::from)),
                    number("tid", tid.map(u64::from)),
                ];
                let values: Vec<(Arc<str>, FieldValue)> = values.into_iter().flatten().collect();
                self.write_named(begin, event::SLICE_BEGIN, track, ("disk", transfer.operation), &values)?;
                self.write_event(at, event::SLICE_END, track, None, None)?;
                let counter = format!("Disk {} {} bytes", transfer.disk, transfer.operation);
                self.add_total(tables, at, counter, transfer.bytes)
            }
            Activity::Network { process, transfer } => self.add_network(tables, at, *process, transfer),
            Activity::Loss(loss) => self.add_loss(tables, at, loss),
        }
    }

    /// Writes the clock snapshot, and the processes and threads that the traces name.
    fn write_start(&mut self, tables: &ActivityTables) -> Result<u64> {
        let unix_ns = u64::try_from(tables.start_unix_ns()).unwrap_or(0);
        let boot_ns = tables.boot_to_start_ns.and_then(|ns| u64::try_from(ns).ok());
        let start_ns = boot_ns.unwrap_or(unix_ns);
        self.start_ns = Some(start_ns);
        self.packet.put_u64(packet::TIMESTAMP, start_ns);
        self.packet.put_message(packet::CLOCK_SNAPSHOT, |snapshot| {
            for (id, time) in
                [(clock::BOOTTIME, start_ns), (clock::MONOTONIC, start_ns), (clock::REALTIME, unix_ns)]
            {
                snapshot.put_message(clock::CLOCKS, |message| {
                    message.put_u64(clock::CLOCK_ID, id).put_u64(clock::CLOCK_TIMESTAMP, time);
                });
            }
            snapshot.put_u64(clock::PRIMARY_TRACE_CLOCK, clock::BOOTTIME);
        });
        self.end_packet()?;
        let lives = &tables.lives;
        let exists = |start_ns: Option<i64>| start_ns.is_none();
        let processes: Vec<ProcessIndex> = (0..)
            .zip(lives.processes())
            .filter(|(_, process)| exists(process.life.start_ns))
            .map(|(index, _)| ProcessIndex(index))
            .collect();
        let threads: Vec<ThreadIndex> = (0..)
            .zip(lives.threads())
            .filter(|(_, thread)| exists(thread.life.start_ns))
            .map(|(index, _)| ThreadIndex(index))
            .collect();
        for part in processes.chunks(MAX_TREE_ENTRIES) {
            self.write_tree(tables, part, &[])?;
        }
        for part in threads.chunks(MAX_TREE_ENTRIES) {
            self.write_tree(tables, &[], part)?;
        }
        Ok(start_ns)
    }

    fn write_tree(
        &mut self,
        tables: &ActivityTables,
        processes: &[ProcessIndex],
        threads: &[ThreadIndex],
    ) -> Result<()> {
        let lives = &tables.lives;
        let start_ns = self.start_ns.unwrap_or(0);
        self.packet.put_u64(packet::TIMESTAMP, start_ns);
        self.packet.put_message(packet::PROCESS_TREE, |tree| {
            for process in processes.iter().filter_map(|index| lives.process(*index)) {
                tree.put_message(process_tree::PROCESSES, |message| {
                    let output_id = |pid| u64::from(ActivityTables::output_id(process.machine, pid));
                    message.put_u64(process_tree::PID, output_id(process.pid));
                    if let Some(parent) = process.parent_pid {
                        message.put_u64(process_tree::PPID, output_id(parent));
                    }
                    for text in [&process.name, &process.command_line].into_iter().flatten() {
                        message.put_text(process_tree::CMDLINE, text);
                    }
                });
            }
            for (index, thread) in threads.iter().filter_map(|index| Some((*index, lives.thread(*index)?))) {
                let (Some(pid), Some(tid)) = tables.output_ids(Some(index)) else { continue };
                tree.put_message(process_tree::THREADS, |message| {
                    message.put_u64(process_tree::TID, tid.into()).put_u64(process_tree::TGID, pid.into());
                    if let Some(name) = &thread.name {
                        message.put_text(process_tree::THREAD_NAME, name);
                    }
                });
            }
        });
        self.end_packet()
    }

    /// Adds a scheduling event to the bundle of a processor.
    fn add_to_bundle(&mut self, cpu: u32, write: impl FnOnce(&mut Message)) -> Result<()> {
        let bundle = self.bundles.entry(cpu).or_default();
        let before = bundle.bytes().len();
        bundle.put_message(ftrace::EVENT, write);
        let length = bundle.bytes().len();
        self.bundle_bytes = self.bundle_bytes.saturating_add(length.saturating_sub(before));
        if length > MAX_BUNDLE_BYTES {
            self.write_bundle(cpu, false)?;
        }
        if self.bundle_bytes > MAX_BUNDLES_BYTES {
            self.write_bundles()?;
        }
        Ok(())
    }

    fn write_bundle(&mut self, cpu: u32, has_lost_events: bool) -> Result<()> {
        let events = self.bundles.remove(&cpu).unwrap_or_default();
        self.bundle_bytes = self.bundle_bytes.saturating_sub(events.bytes().len());
        self.packet.put_message(packet::FTRACE_EVENTS, |bundle| {
            bundle.put_u64(ftrace::CPU, cpu.into());
            bundle.append(&events);
            if has_lost_events {
                bundle.put_u64(ftrace::LOST_EVENTS, 1);
            }
        });
        self.end_packet()
    }

    fn write_bundles(&mut self) -> Result<()> {
        while let Some(cpu) = self.bundles.keys().next().copied() {
            self.write_bundle(cpu, false)?;
        }
        Ok(())
    }

    fn add_switch(&mut self, tables: &ActivityTables, at: u64, cpu: u32, switch: &Switch) -> Result<()> {
        let (old, new) = (Task::find(tables, switch.old), Task::find(tables, switch.new));
        self.add_to_bundle(cpu, |message| {
            message.put_u64(ftrace::TIMESTAMP, at).put_u64(ftrace::PID, old.tid.into());
            message.put_message(ftrace::SCHED_SWITCH, |message| {
                message.put_text(sched::PREV_COMM, old.name).put_u64(sched::PREV_PID, old.tid.into());
                message.put_i64(sched::PREV_PRIO, switch.old_priority.into());
                message.put_u64(sched::PREV_STATE, task_state(switch.state, switch.reason));
                message.put_text(sched::NEXT_COMM, new.name).put_u64(sched::NEXT_PID, new.tid.into());
                message.put_i64(sched::NEXT_PRIO, switch.new_priority.into());
            });
        })
    }

    fn add_wake(
        &mut self,
        tables: &ActivityTables,
        at: u64,
        cpu: u32,
        (thread, waker): (Option<ThreadIndex>, Option<ThreadIndex>),
    ) -> Result<()> {
        let (task, waker) = (Task::find(tables, thread), tables.output_ids(waker).1);
        self.add_to_bundle(cpu, |message| {
            message.put_u64(ftrace::TIMESTAMP, at).put_u64(ftrace::PID, waker.unwrap_or(0).into());
            message.put_message(ftrace::SCHED_WAKING, |message| {
                message.put_text(sched::WAKING_COMM, task.name).put_u64(sched::WAKING_PID, task.tid.into());
                message.put_i64(sched::WAKING_PRIO, DEFAULT_PRIORITY).put_u64(sched::WAKING_SUCCESS, 1);
                message.put_u64(sched::WAKING_TARGET_CPU, cpu.into());
            });
        })
    }

    fn add_thread_end(
        &mut self,
        tables: &ActivityTables,
        at: u64,
        cpu: u32,
        thread: ThreadIndex,
    ) -> Result<()> {
        let task = Task::find(tables, Some(thread));
        self.add_to_bundle(cpu, |message| {
            message.put_u64(ftrace::TIMESTAMP, at).put_u64(ftrace::PID, task.tid.into());
            message.put_message(ftrace::SCHED_PROCESS_FREE, |message| {
                message.put_text(sched::FREE_COMM, task.name).put_u64(sched::FREE_PID, task.tid.into());
                message.put_i64(sched::FREE_PRIO, DEFAULT_PRIORITY);
            });
        })
    }

    fn add_sample(
        &mut self,
        tables: &ActivityTables,
        at: u64,
        cpu: u32,
        sample: &Sample,
        stack: &[StackFrame],
    ) -> Result<()> {
        if sample.is_idle {
            self.idle_samples = self.idle_samples.saturating_add(sample.weight);
            return Ok(());
        }
        if sample.interval_ns != self.interval_ns {
            self.interval_ns = sample.interval_ns;
            self.clear_interned();
        }
        let callstack = self.intern_stack(tables, stack);
        let (pid, tid) = tables.output_ids(sample.thread);
        self.begin_interned_packet(at);
        self.packet.put_message(packet::PERF_SAMPLE, |message| {
            message.put_u64(perf_sample::CPU, cpu.into());
            message.put_u64(perf_sample::PID, pid.unwrap_or(UNKNOWN_TID).into());
            message.put_u64(perf_sample::TID, tid.unwrap_or(UNKNOWN_TID).into());
            let mode = if sample.is_kernel { perf_sample::MODE_KERNEL } else { perf_sample::MODE_USER };
            message.put_u64(perf_sample::CPU_MODE, mode);
            message.put_u64(perf_sample::TIMEBASE_COUNT, sample.weight);
            if let Some(iid) = callstack {
                message.put_u64(perf_sample::CALLSTACK_IID, iid);
            }
        });
        self.end_packet()
    }

    fn begin_slice(
        &mut self,
        tables: &ActivityTables,
        at: u64,
        slice: &Slice,
        stack: &[StackFrame],
    ) -> Result<()> {
        let track = match slice.track {
            SliceTrack::Thread => self.thread_track(tables, slice.thread)?,
            SliceTrack::Task { lane } => {
                let owner = slice.thread.and_then(|thread| tables.lives.process_of(thread));
                // The lanes of system calls are those of a thread.
                let thread = slice.thread.filter(|_| &*slice.detail.provider == SYSTEM_CALLS);
                let key = TrackKey::Task {
                    process: owner,
                    thread,
                    provider: Arc::clone(&slice.detail.provider),
                    name: if thread.is_some() { "".into() } else { Arc::clone(&slice.detail.name) },
                    lane,
                };
                let name = match thread.and_then(|thread| tables.output_ids(Some(thread)).1) {
                    Some(tid) => format!("{SYSTEM_CALLS} of thread {tid}"),
                    None => slice.detail.name.to_string(),
                };
                self.find_track(tables, &key, &name)?
            }
        };
        self.open.insert(slice.id, track);
        let stack = self.intern_stack(tables, stack);
        self.write_event(at, event::SLICE_BEGIN, track, Some(&slice.detail), stack)
    }

    fn end_slice(
        &mut self,
        tables: &ActivityTables,
        at: u64,
        slice: &Slice,
        stop: Option<&EventDetail>,
    ) -> Result<()> {
        let track = match self.open.remove(&slice.id) {
            Some(track) => track,
            None => self.thread_track(tables, slice.thread)?,
        };
        self.write_event(at, event::SLICE_END, track, stop, None)
    }

    fn add_counter(
        &mut self,
        tables: &ActivityTables,
        at: u64,
        process: Option<ProcessIndex>,
        name: &Arc<str>,
        value: f64,
    ) -> Result<()> {
        let track = self.find_track(tables, &TrackKey::Counter { process, name: Arc::clone(name) }, name)?;
        self.packet.put_u64(packet::TIMESTAMP, at);
        self.packet.put_message(packet::TRACK_EVENT, |message| {
            message.put_u64(event::TYPE, event::COUNTER).put_u64(event::TRACK_UUID, track.0);
            message.put_f64(event::DOUBLE_COUNTER_VALUE, value);
        });
        self.end_packet()
    }

    /// Adds to the sum of a counter, and writes the sum.
    #[allow(clippy::cast_precision_loss)] // Sums are shown, not compared.
    fn add_total(&mut self, tables: &ActivityTables, at: u64, name: String, bytes: u64) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        let counter: Arc<str> = name.as_str().into();
        if self.totals.len() >= Tracks::MAX_TRACKS && !self.totals.contains_key(&name) {
            return Ok(());
        }
        let total = self.totals.entry(name).or_default();
        *total = total.saturating_add(bytes);
        let value = *total as f64;
        self.add_counter(tables, at, None, &counter, value)
    }

    fn add_network(
        &mut self,
        tables: &ActivityTables,
        at: u64,
        process: Option<ProcessIndex>,
        transfer: &NetworkTransfer,
    ) -> Result<()> {
        let track = match process {
            Some(process) => self.process_track(tables, process)?,
            None => self.find_track(tables, &TrackKey::Named("Network"), "Network")?,
        };
        let (name, values) = (network_name(transfer), network_fields(transfer));
        self.write_named(at, event::INSTANT, track, ("network", &name), &values)?;
        self.add_total(tables, at, format!("{name} bytes"), network_bytes(transfer))
    }

    /// Writes a loss: an instant in a packet that says that packets before it are missing.
    fn add_loss(&mut self, tables: &ActivityTables, at: u64, loss: &Loss) -> Result<()> {
        if let Some(cpu) = loss.cpu {
            let machine = tables.traces.iter().find(|trace| trace.name == loss.trace);
            let cpu = tables.output_cpu(machine.map_or(0, |trace| trace.machine), cpu);
            self.write_bundle(cpu, true)?;
        }
        let track = self.find_track(tables, &TrackKey::Named("Losses"), "Losses")?;
        let number = |name: &str, value: Option<u64>| Some((Arc::from(name), FieldValue::Unsigned(value?)));
        let trace = FieldValue::Text((&*loss.trace).into());
        let values = [
            Some((Arc::from("trace"), trace)),
            number("cpu", loss.cpu.map(u64::from)),
            number("lost events", loss.events),
            number("lost buffers", loss.buffers),
        ];
        let values: Vec<(Arc<str>, FieldValue)> = values.into_iter().flatten().collect();
        self.clear_interned();
        self.packet.put_u64(packet::PREVIOUS_PACKET_DROPPED, 1);
        self.write_named(at, event::INSTANT, track, ("loss", "Lost events"), &values)
    }

    /// Writes the begin or end of a slice, or an instant.
    fn write_event(
        &mut self,
        at: u64,
        kind: u64,
        track: TrackUuid,
        detail: Option<&EventDetail>,
        callstack: Option<u64>,
    ) -> Result<()> {
        let names =
            detail.filter(|_| kind != event::SLICE_END).map(|detail| (&*detail.provider, &*detail.name));
        let values = detail.map(|detail| detail.fields.values.as_slice()).unwrap_or_default();
        let ids = detail.map(|detail| {
            [("activity id", detail.activity), ("related activity id", detail.related_activity)]
        });
        let ids: Vec<(Arc<str>, FieldValue)> = ids
            .into_iter()
            .flatten()
            .filter_map(|(name, id)| Some((name.into(), FieldValue::Text(id?.to_string().into()))))
            .collect();
        self.write_track_event(at, kind, track, names, &[values, &ids], callstack)
    }

    /// Writes an event that has no [`EventDetail`]: category, name and fields.
    fn write_named(
        &mut self,
        at: u64,
        kind: u64,
        track: TrackUuid,
        names: (&str, &str),
        values: &[(Arc<str>, FieldValue)],
    ) -> Result<()> {
        self.write_track_event(at, kind, track, Some(names), &[values], None)
    }

    fn write_track_event(
        &mut self,
        at: u64,
        kind: u64,
        track: TrackUuid,
        names: Option<(&str, &str)>,
        values: &[&[(Arc<str>, FieldValue)]],
        callstack: Option<u64>,
    ) -> Result<()> {
        let Self { interning, new_interned, .. } = self;
        let mut message = Message::default();
        message.put_u64(event::TYPE, kind).put_u64(event::TRACK_UUID, track.0);
        if let Some((category, name)) = names {
            message.put_u64(event::CATEGORY_IIDS, interning.intern_category(category, new_interned));
            message.put_u64(event::NAME_IID, interning.intern_event_name(name, new_interned));
        }
        for (name, value) in values.iter().copied().flatten() {
            message.put_message(event::DEBUG_ANNOTATIONS, |message| {
                message.put_u64(annotation::NAME_IID, interning.intern_field_name(name, new_interned));
                put_value(value, message);
            });
        }
        if let Some(iid) = callstack {
            message.put_u64(event::CALLSTACK_IID, iid);
        }
        self.begin_interned_packet(at);
        self.packet.put_bytes(packet::TRACK_EVENT, message.bytes());
        self.end_packet()
    }

    fn intern_stack(&mut self, tables: &ActivityTables, stack: &[StackFrame]) -> Option<u64> {
        if stack.is_empty() {
            return None;
        }
        // New entries must not be cleared before the packet that refers to them.
        if self.interning.is_full() {
            self.clear_interned();
        }
        Some(self.interning.intern_stack(&tables.stacks, stack, &mut self.new_interned))
    }

    /// Forgets all interned data: the next packet clears the state of the sequence.
    fn clear_interned(&mut self) {
        self.interning = Interning::default();
        self.new_interned.clear();
        self.is_cleared = true;
    }

    /// Begins a packet that refers to interned data, with the data that earlier packets lack.
    fn begin_interned_packet(&mut self, at: u64) {
        self.packet.put_u64(packet::TIMESTAMP, at);
        let cleared = if self.is_cleared { packet::INCREMENTAL_STATE_CLEARED } else { 0 };
        self.packet.put_u64(packet::SEQUENCE_FLAGS, packet::NEEDS_INCREMENTAL_STATE | cleared);
        if self.is_cleared {
            let interval_ns = self.interval_ns;
            self.packet.put_message(packet::TRACE_PACKET_DEFAULTS, |message| {
                message.put_message(defaults::PERF_SAMPLE_DEFAULTS, |message| {
                    message.put_message(defaults::TIMEBASE, |timebase| {
                        if let Some(interval_ns) = interval_ns {
                            timebase.put_u64(defaults::PERIOD, interval_ns);
                        }
                        timebase.put_u64(defaults::COUNTER, defaults::CPU_CLOCK);
                        timebase.put_text(defaults::NAME, "cpu-clock");
                    });
                });
            });
        }
        self.is_cleared = false;
        if !self.new_interned.is_empty() {
            self.packet.put_bytes(packet::INTERNED_DATA, self.new_interned.bytes());
            self.new_interned.clear();
        }
    }

    /// Adds the packet to the output.
    fn end_packet(&mut self) -> Result<()> {
        self.packet.put_u64(packet::SEQUENCE_ID, SEQUENCE);
        self.output.put_bytes(packet::PACKET, self.packet.bytes());
        self.packet.clear();
        self.packets = self.packets.saturating_add(1);
        if self.output.bytes().len() >= OUTPUT_BYTES {
            self.out.write_all(self.output.bytes())?;
            self.output.clear();
        }
        if self.interning.is_full() {
            self.clear_interned();
        }
        Ok(())
    }

    /// Writes what has been collected.
    fn finish(&mut self) -> Result<()> {
        self.write_bundles()?;
        self.out.write_all(self.output.bytes())?;
        self.output.clear();
        Ok(())
    }

    fn process_track(&mut self, tables: &ActivityTables, index: ProcessIndex) -> Result<TrackUuid> {
        let uuid = TrackUuid::of_process(index);
        let Some(process) = tables.lives.process(index).filter(|_| self.tracks.add_process(index)) else {
            return Ok(uuid);
        };
        let pid = ActivityTables::output_id(process.machine, process.pid);
        self.packet.put_message(packet::TRACK_DESCRIPTOR, |message| {
            message.put_u64(descriptor::UUID, uuid.0);
            message.put_message(descriptor::PROCESS, |message| {
                message.put_u64(descriptor::PROCESS_PID, pid.into());
                if let Some(command_line) = &process.command_line {
                    message.put_text(descriptor::PROCESS_CMDLINE, command_line);
                }
                if let Some(name) = &process.name {
                    message.put_text(descriptor::PROCESS_NAME, name);
                }
            });
        });
        self.end_packet()?;
        Ok(uuid)
    }

    fn thread_track(&mut self, tables: &ActivityTables, thread: Option<ThreadIndex>) -> Result<TrackUuid> {
        let known = thread.and_then(|index| Some((index, tables.lives.thread(index)?)));
        let Some((index, thread)) = known else {
            return self.find_track(tables, &TrackKey::Named("No thread"), "No thread");
        };
        let uuid = TrackUuid::of_thread(index);
        if !self.tracks.add_thread(index) {
            return Ok(uuid);
        }
        let tid = ActivityTables::output_id(thread.machine, thread.tid);
        let parent = match thread.process {
            Some(process) => Some((self.process_track(tables, process)?, tables.output_ids(Some(index)).0)),
            None => None,
        };
        self.packet.put_message(packet::TRACK_DESCRIPTOR, |message| {
            message.put_u64(descriptor::UUID, uuid.0);
            match parent {
                Some((parent, pid)) => {
                    message.put_u64(descriptor::PARENT_UUID, parent.0);
                    message.put_message(descriptor::THREAD, |message| {
                        message.put_u64(descriptor::THREAD_PID, pid.unwrap_or(0).into());
                        message.put_u64(descriptor::THREAD_TID, tid.into());
                        if let Some(name) = &thread.name {
                            message.put_text(descriptor::THREAD_NAME, name);
                        }
                    });
                }
                // A thread descriptor needs a process.
                None => {
                    message.put_text(descriptor::NAME, &format!("Thread {tid}"));
                }
            }
        });
        self.end_packet()?;
        Ok(uuid)
    }

    /// Returns the track of a key, and describes it if it is new.
    fn find_track(&mut self, tables: &ActivityTables, key: &TrackKey, name: &str) -> Result<TrackUuid> {
        let (uuid, is_new) = self.tracks.find_or_add(key);
        if !is_new {
            return Ok(uuid);
        }
        let parent = match key.process() {
            Some(process) => Some(self.process_track(tables, process)?),
            None => None,
        };
        self.packet.put_message(packet::TRACK_DESCRIPTOR, |message| {
            message.put_u64(descriptor::UUID, uuid.0).put_text(descriptor::NAME, name);
            if let Some(parent) = parent {
                message.put_u64(descriptor::PARENT_UUID, parent.0);
            }
            if matches!(key, TrackKey::Counter { .. }) {
                message.put_message(descriptor::COUNTER, |message| {
                    if name.ends_with(" bytes") {
                        message.put_u64(descriptor::COUNTER_UNIT, descriptor::UNIT_BYTES);
                    }
                });
            }
        });
        self.end_packet()?;
        Ok(uuid)
    }
}

/// The provider of system calls in the activity.
const SYSTEM_CALLS: &str = "System calls";

/// A thread as scheduling events name it.
struct Task<'t> {
    tid: u32,
    name: &'t str,
}

impl<'t> Task<'t> {
    fn find(tables: &'t ActivityTables, thread: Option<ThreadIndex>) -> Self {
        let Some((index, thread)) = thread.and_then(|index| Some((index, tables.lives.thread(index)?)))
        else {
            return Self { tid: UNKNOWN_TID, name: "(unknown)" };
        };
        let tid = ActivityTables::output_id(thread.machine, thread.tid);
        let process = tables.lives.process_of(index).and_then(|process| tables.lives.process(process));
        let name = match (&thread.name, process.and_then(|process| process.name.as_deref())) {
            _ if thread.tid == 0 => "swapper",
            (Some(name), _) => name,
            (None, Some(name)) => name,
            (None, None) => "",
        };
        Self { tid, name }
    }
}

/// Returns the Linux state of a thread that stops running.
const fn task_state(state: u8, reason: u8) -> u64 {
    /// Wait reasons of waits in the kernel that signals cannot end, and of suspended threads.
    const EXECUTIVE: u8 = 0;
    const SUSPENDED: u8 = 5;
    match (state, reason) {
        (Switch::TERMINATED, _) => sched::STATE_DEAD,
        (Switch::WAITING, EXECUTIVE) => sched::STATE_UNINTERRUPTIBLE,
        (Switch::WAITING, SUSPENDED) => sched::STATE_STOPPED,
        (Switch::WAITING, _) => sched::STATE_INTERRUPTIBLE,
        _ => sched::STATE_RUNNABLE,
    }
}

/// Adds the value of a debug annotation.
fn put_value(value: &FieldValue, message: &mut Message) {
    match value {
        FieldValue::Null => message.put_text(annotation::STRING_VALUE, ""),
        FieldValue::Bool(value) => message.put_u64(annotation::BOOL_VALUE, (*value).into()),
        FieldValue::Unsigned(value) => message.put_u64(annotation::UINT_VALUE, *value),
        FieldValue::Signed(value) => message.put_i64(annotation::INT_VALUE, *value),
        FieldValue::Double(value) => message.put_f64(annotation::DOUBLE_VALUE, *value),
        FieldValue::Text(text) => message.put_text(annotation::STRING_VALUE, text),
        FieldValue::Array(elements) => {
            for element in elements {
                message.put_message(annotation::ARRAY_VALUES, |message| put_value(element, message));
            }
            message
        }
        FieldValue::Struct(members) => {
            for (name, value) in members {
                message.put_message(annotation::DICT_ENTRIES, |message| {
                    message.put_text(annotation::NAME, name);
                    put_value(value, message);
                });
            }
            message
        }
    };
}

#[cfg(test)]
mod tests;
