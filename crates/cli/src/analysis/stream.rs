//! Reads the events of a report, each with its whole stack.

use std::path::PathBuf;

use anyhow::Result;
use traceweir_decode::Decoder;
use traceweir_decode::stack::{Claim, Joined, Joiner};
use traceweir_decode::walk::Walker;
use traceweir_format::header::Record;
use traceweir_format::kernel::hook;
use traceweir_format::stack_key::Definitions;
use traceweir_format::stack_walk::StackWalk;
use traceweir_format::time::{Clock, FileTime};

use super::event::{Occurrence, ReportEvent, Transfer};
use super::fields::numbers;
use super::scheduler::Switch;
use super::stack_owners::StackOwners;
use super::trace_facts::TraceFacts;
use crate::cli::Schemas;
use crate::event::{EventContext, Flow, describe};
use crate::filter::Filter;
use crate::schema_files::load_traced_programs;
use crate::symbols::{Options, SymbolArgs};
use crate::text::Moment;
use crate::traces::{Reading, Traces, walk};

/// Flags of a sample that was taken in a DPC or an ISR.
const IN_INTERRUPT: u64 = 3;

/// The events that a report needs.
#[derive(Debug, Default)]
pub(crate) struct Wants {
    pub(crate) samples: bool,
    pub(crate) switches: bool,
    pub(crate) transfers: bool,
    /// Events by name or id.
    pub(crate) events: Vec<String>,
}

/// A span of time, in nanoseconds since the first trace began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    pub(crate) from: i64,
    pub(crate) to: i64,
}

impl Default for Window {
    /// Returns the span that contains all times.
    fn default() -> Self {
        Self { from: i64::MIN, to: i64::MAX }
    }
}

impl Window {
    /// Returns whether it contains a time; its last unit of 100 ns belongs to it.
    pub(crate) const fn contains(self, time: i64) -> bool {
        self.from <= time && time <= self.to.saturating_add(99)
    }

    /// Returns the length of the part of a span that lies in it.
    pub(crate) fn part(self, from: i64, to: i64) -> u64 {
        let (from, to) = (from.max(self.from), to.min(self.to));
        u64::try_from(to.saturating_sub(from)).unwrap_or(0)
    }
}

/// Opened traces, ready for a report.
pub(crate) struct Analysis {
    traces: Traces,
    known: Vec<TraceFacts>,
    start: FileTime,
    /// Time of the latest event, or when the sessions ended.
    end: FileTime,
    wants: Wants,
    filter: Filter,
    /// The events that have stacks, if events are selected by name.
    stack_owners: StackOwners,
    pub(crate) window: Window,
}

impl Analysis {
    /// Opens traces and reads them once for their facts.
    pub(crate) fn open(
        files: &[PathBuf],
        (from, to): (Option<Moment>, Option<Moment>),
        symbols: &SymbolArgs,
        schemas: &Schemas,
        wants: Wants,
    ) -> Result<Self> {
        let mut traces = Traces::open(files, schemas, false)?;
        let start = traces.start();
        let first = Definitions::default();
        let mut known: Vec<TraceFacts> = Vec::new();
        for input in &traces.inputs {
            let rate = u64::try_from(input.trace.header().perf_freq).unwrap_or(0);
            known.push(TraceFacts::new(first.with_shared_limit(), Options::from(symbols), rate));
        }
        let by_name = !wants.events.is_empty();
        // The header of a session that did not end contains no end time.
        let mut end =
            traces.inputs.iter().map(|input| input.trace.header().end_time).fold(start, FileTime::max);
        walk(&traces.inputs, false, |file, clock, record| {
            end = end.max(clock.file_time(record.time()));
            if let Some(known) = known.get_mut(file) {
                known.observe(record, &mut traces.decoder);
            }
            if by_name {
                traces.decoder.observe(record);
            }
            Ok(Flow::Continue)
        })?;
        if by_name && !schemas.no_binaries {
            load_traced_programs(&mut traces.decoder);
        }
        let filter = Filter::by_event(&wants.events);
        let nanos = |moment: Moment| moment.after(start).0.saturating_sub(start.0).saturating_mul(100);
        let window = Window { from: from.map_or(i64::MIN, nanos), to: to.map_or(i64::MAX, nanos) };
        Ok(Self { traces, known, start, end, wants, filter, stack_owners: StackOwners::default(), window })
    }

    /// Returns the events and buffers that the sessions report as lost.
    pub(crate) fn lost(&self) -> (u64, u64) {
        let headers = self.traces.inputs.iter().map(|input| input.trace.header());
        headers.fold((0, 0), |(events, buffers), header| {
            (events + u64::from(header.events_lost), buffers + u64::from(header.buffers_lost))
        })
    }

    /// Returns the names of the kernel events with stacks, found while events by name were read.
    pub(crate) fn events_with_stacks(&self) -> Vec<&str> {
        self.stack_owners.names()
    }

    /// Returns the recorded time in the window, in nanoseconds.
    pub(crate) fn recorded(&self) -> u64 {
        let whole = self.end.0.saturating_sub(self.start.0).saturating_mul(100);
        self.window.part(0, whole)
    }

    /// Returns the buffers in the files and those that the headers count, if a file is truncated.
    pub(crate) fn missing_buffers(&self) -> Option<(u64, u64)> {
        let all = self.traces.inputs.iter().filter_map(|input| input.trace.missing_buffers());
        all.map(|(written, present)| (present, written))
            .reduce(|a, b| (a.0.saturating_add(b.0), a.1.saturating_add(b.1)))
    }

    /// Returns whether all sessions ended and recorded their losses.
    pub(crate) fn is_finalised(&self) -> bool {
        self.traces.inputs.iter().all(|input| input.trace.is_finalised())
    }

    /// Calls `each` for every event of the report, in time order, with its stack and the facts of
    /// its trace.
    ///
    /// Events outside the window are passed too, because what began before it may reach into it.
    pub(crate) fn read(
        &mut self,
        mut each: impl FnMut(&mut TraceFacts, &Joined<ReportEvent>),
    ) -> Result<Reading> {
        let Self { traces, known, start, wants, filter, stack_owners, .. } = self;
        let by_name = !wants.events.is_empty();
        let Traces { inputs, decoder, .. } = traces;
        let mut reader = Reader { walker: Walker::default(), wants, filter, start: *start };
        let mut joiner: Joiner<ReportEvent> = Joiner::default();
        let mut pass_on = |known: &mut [TraceFacts], joined: Joined<ReportEvent>| {
            if let Some(known) = known.get_mut(joined.what.file) {
                each(known, &joined);
            }
        };
        let reading = walk(inputs, false, |file, clock, record| {
            let wall = clock.file_time(record.time());
            if let Some(own) = known.get_mut(file) {
                if let Some(stack) = StackWalk::parse(record) {
                    if by_name {
                        stack_owners.stack(file, &stack);
                    }
                    joiner.attach(&stack, (file, record.cpu(), wall.0), &own.stacks, |_| 0);
                } else if let Some(seen) = reader.read_event(file, clock, record, own, decoder) {
                    if by_name {
                        stack_owners.event(file, record, decoder);
                    }
                    let claim = Claim::from_record(record, file, wall.0);
                    let frames = own.stacks.frames(record);
                    joiner.expect(claim, seen, 0, frames.into_iter().flatten());
                } else if by_name {
                    stack_owners.event(file, record, decoder);
                }
            }
            while let Some(joined) = joiner.next_ready() {
                pass_on(known, joined);
            }
            Ok(Flow::Continue)
        })?;
        joiner.end();
        while let Some(joined) = joiner.next_ready() {
            pass_on(known, joined);
        }
        Ok(reading)
    }
}

/// Converts records to events of a report.
struct Reader<'a> {
    walker: Walker,
    wants: &'a Wants,
    filter: &'a Filter,
    start: FileTime,
}

impl Reader<'_> {
    /// Returns the event of a record, if the report needs it.
    fn read_event(
        &mut self,
        file: usize,
        clock: &Clock,
        record: &Record<'_>,
        known: &mut TraceFacts,
        decoder: &mut Decoder,
    ) -> Option<ReportEvent> {
        let what = if self.wants.events.is_empty() {
            self.kernel_event(record, known, decoder)?
        } else {
            self.chosen(file, clock, record, known, decoder)?
        };
        let offset = clock.start.0.saturating_sub(self.start.0).saturating_mul(100);
        let time = offset.saturating_add(clock.nanos_since_start(record.time()));
        let (cpu, pointer_size) = (record.cpu(), record.pointer_size());
        Some(ReportEvent { file, cpu, pointer_size, stamp: record.time(), time, what })
    }

    fn kernel_event(
        &mut self,
        record: &Record<'_>,
        known: &TraceFacts,
        decoder: &mut Decoder,
    ) -> Option<Occurrence> {
        let hook = record.hook()?;
        let wants = self.wants;
        match hook {
            hook::SAMPLED_PROFILE | hook::PROFILE_START | hook::PROFILE_SET_INTERVAL | hook::PROFILE_END
                if wants.samples =>
            {
                self.sample(hook, record, decoder)
            }
            hook::COMPACT_SWITCHES if wants.switches => Some(Occurrence::Switches),
            hook::CONTEXT_SWITCH | hook::READY_THREAD if wants.switches => self.switch(hook, record, decoder),
            hook::DISK_READ
            | hook::DISK_WRITE
            | hook::DISK_FLUSH
            | hook::OPTICAL_READ
            | hook::OPTICAL_WRITE
            | hook::OPTICAL_FLUSH
                if wants.transfers =>
            {
                self.transfer(hook, record, known, decoder)
            }
            _ => None,
        }
    }

    fn sample(&mut self, hook: u16, record: &Record<'_>, decoder: &mut Decoder) -> Option<Occurrence> {
        let found = decoder.find(record).ok()?;
        if hook != hook::SAMPLED_PROFILE {
            let [source, interval] = numbers(&mut self.walker, record, &found, ["Source", "NewInterval"]);
            // Source 0 is the timer, the source of samples.
            return interval.filter(|interval| source == Some(0) && *interval > 0).map(Occurrence::Interval);
        }
        let names = ["InstructionPointer", "ThreadId", "Count", "Flags"];
        let [address, thread, count, flags] = numbers(&mut self.walker, record, &found, names);
        let thread = u32::try_from(thread?).ok()?;
        let is_idle = thread == 0 && flags.unwrap_or(0) & IN_INTERRUPT == 0;
        Some(Occurrence::Sample { thread, address: address?, weight: count.unwrap_or(1).max(1), is_idle })
    }

    fn switch(&mut self, hook: u16, record: &Record<'_>, decoder: &mut Decoder) -> Option<Occurrence> {
        let found = decoder.find(record).ok()?;
        if hook == hook::READY_THREAD {
            let [thread] = numbers(&mut self.walker, record, &found, ["ThreadId"]);
            return Some(Occurrence::Ready { thread: u32::try_from(thread?).ok()? });
        }
        let names = ["NewThreadId", "OldThreadId", "OldThreadState", "OldThreadWaitReason"];
        let [new, old, state, reason] = numbers(&mut self.walker, record, &found, names);
        let small = |number: Option<u64>| u8::try_from(number?).ok();
        Some(Occurrence::Switch(Switch {
            cpu: record.cpu(),
            new: u32::try_from(new?).ok()?,
            old: u32::try_from(old?).ok()?,
            state: small(state)?,
            reason: small(reason)?,
        }))
    }

    fn transfer(
        &mut self,
        hook: u16,
        record: &Record<'_>,
        known: &TraceFacts,
        decoder: &mut Decoder,
    ) -> Option<Occurrence> {
        let found = decoder.find(record).ok()?;
        let names = ["DiskNumber", "TransferSize", "HighResResponseTime", "IssuingThreadId", "FileObject"];
        let [disk, bytes, took, thread, key] = numbers(&mut self.walker, record, &found, names);
        let operation = match hook {
            hook::DISK_READ | hook::OPTICAL_READ => "read",
            hook::DISK_WRITE | hook::OPTICAL_WRITE => "write",
            _ => "flush",
        };
        let nanoseconds = |ticks: u64| {
            let rate = u128::from(known.counter_rate);
            let product = u128::from(ticks) * 1_000_000_000;
            product.checked_div(rate).map(|nanoseconds| u64::try_from(nanoseconds).unwrap_or(u64::MAX))
        };
        Some(Occurrence::Transfer(Transfer {
            disk: u32::try_from(disk?).ok()?,
            operation,
            bytes: bytes.unwrap_or(0),
            took: took.and_then(nanoseconds),
            thread: thread.and_then(|thread| u32::try_from(thread).ok()),
            pid: record.process_id(),
            file: key.and_then(|key| known.file(key, record.time())),
        }))
    }

    /// Returns an event that was selected by name, with the thread it is about.
    fn chosen(
        &mut self,
        file: usize,
        clock: &Clock,
        record: &Record<'_>,
        known: &mut TraceFacts,
        decoder: &mut Decoder,
    ) -> Option<Occurrence> {
        let TraceFacts { actors, stacks, .. } = known;
        let time = clock.file_time(record.time());
        let context =
            EventContext { file, clock, time, start: self.start, images: None, stacks, symbols: None };
        let event = describe(record, context, decoder, actors);
        if !self.filter.accepts(&event) {
            return None;
        }
        let header = (record.process_id(), record.thread_id());
        let (pid, thread) = event.attributed.map_or(header, |about| (about.pid, about.tid));
        Some(Occurrence::Chosen { pid, thread })
    }
}
