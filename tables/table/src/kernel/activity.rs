//! Context switches, CPU samples, disk operations and network transfers, with their stacks.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Result;
use traceweir_analysis::report::{
    Analysis, AnalysisOptions, ContextSwitch, FunctionId, FunctionTable, NeededEvents, NetworkKind,
    NetworkProtocol, NetworkTransfer, Occurrence, ReportEvent, Scheduler, TraceFacts, Transfer,
};
use traceweir_analysis::traces::ReadSummary;
use traceweir_convert::ConvertInput;
use traceweir_decode::stack::Joined;
use traceweir_format::header::NO_ID;
use traceweir_format::time::FileTime;

use super::columns::KernelColumn as C;
use super::{KernelOptions, KernelRow, KernelTable, RowSink};
use crate::rows::{Cell, number, text};

/// The sampling interval of traces that do not contain it, in units of 100 ns: one millisecond.
const DEFAULT_INTERVAL_100NS: u64 = 10_000;

/// The most names of functions that are remembered.
const MAX_LABELS: usize = 1 << 16;

/// Converts report events to rows.
struct Activity<'o> {
    options: KernelOptions<'o>,
    start: FileTime,
    schedulers: HashMap<usize, Scheduler<()>>,
    /// The sampling interval of each trace.
    intervals: HashMap<usize, u64>,
    functions: FunctionTable,
    /// Memory for the stack of an event.
    addresses: Vec<u64>,
    names: Vec<Arc<str>>,
    ids: Vec<FunctionId>,
    labels: HashMap<FunctionId, Arc<str>>,
}

fn known(id: u32) -> Option<u32> {
    (id != NO_ID).then_some(id)
}

pub(super) fn read(
    start: FileTime,
    input: &ConvertInput,
    options: KernelOptions<'_>,
    sink: &mut RowSink<'_>,
) -> Result<ReadSummary> {
    let needs = |table| options.tables.contains(&table);
    let needed = NeededEvents {
        samples: needs(KernelTable::Samples),
        switches: needs(KernelTable::Switches),
        transfers: needs(KernelTable::DiskIo),
        network: needs(KernelTable::Network),
        ..NeededEvents::default()
    };
    let analysis_options = AnalysisOptions {
        files: input.files.clone(),
        symbols: input.symbols.clone(),
        schemas: input.schemas.clone(),
        ..AnalysisOptions::default()
    };
    let mut analysis = Analysis::open(&analysis_options, needed, Arc::clone(&input.observer))?;
    let mut activity = Activity {
        options,
        start,
        schedulers: HashMap::new(),
        intervals: HashMap::new(),
        functions: FunctionTable::default(),
        addresses: Vec::new(),
        names: Vec::new(),
        ids: Vec::new(),
        labels: HashMap::new(),
    };
    let mut failure = None;
    let reading = analysis.read(|facts, joined| {
        if failure.is_none() {
            failure = activity.add_event(facts, joined, sink).err();
        }
    })?;
    failure.map_or(Ok(reading), Err)
}

impl Activity<'_> {
    fn add_event(
        &mut self,
        facts: &mut TraceFacts,
        joined: &Joined<ReportEvent>,
        sink: &mut RowSink<'_>,
    ) -> Result<()> {
        let event = &joined.event;
        match &event.occurrence {
            Occurrence::Interval(units) => {
                self.intervals.insert(event.file, *units);
                Ok(())
            }
            Occurrence::Sample { thread, address, weight, is_idle } => {
                let sample = (*thread, *address, *weight, *is_idle);
                self.add_sample(facts, joined, sample, sink)
            }
            Occurrence::Switch(switch) => self.add_switch(facts, joined, *switch, sink),
            Occurrence::Ready { thread } => {
                let scheduler = self.schedulers.entry(event.file).or_default();
                scheduler.record_wake(event.time_ns, *thread);
                Ok(())
            }
            Occurrence::ThreadEnd { thread } => {
                self.schedulers.entry(event.file).or_default().record_end(event.time_ns, *thread);
                Ok(())
            }
            Occurrence::Transfer(transfer) => self.add_transfer(facts, joined, transfer, sink),
            Occurrence::Network(transfer) => self.add_network(facts, joined, transfer, sink),
            _ => Ok(()),
        }
    }

    fn time(&self, event: &ReportEvent) -> FileTime {
        FileTime(self.start.0.saturating_add(event.time_ns.div_euclid(100)))
    }

    /// Reads the stack of an event into `addresses` and, if wanted, `names`, innermost first.
    fn read_stack(&mut self, facts: &mut TraceFacts, joined: &Joined<ReportEvent>, pid: u32) {
        self.addresses.clear();
        self.addresses.extend(joined.stack.frames());
        self.names.clear();
        if !self.options.columns.contains(C::Functions) || joined.stack.is_empty() {
            return;
        }
        self.ids.clear();
        facts.resolve_stack(&joined.event, &joined.stack, pid, &mut self.functions, &mut self.ids);
        if self.labels.len() > MAX_LABELS {
            self.labels.clear();
        }
        for id in self.ids.iter().rev() {
            let functions = &self.functions;
            let label = self.labels.entry(*id).or_insert_with(|| functions.get(*id).label().into());
            self.names.push(Arc::clone(label));
        }
    }

    fn stack_cells(&self) -> [Cell<'_>; 2] {
        let has_stack = !self.addresses.is_empty();
        let has_names = has_stack && self.options.columns.contains(C::Functions);
        let addresses = if has_stack { Cell::Numbers(&self.addresses) } else { Cell::Null };
        let names = if has_names { Cell::Texts(&self.names) } else { Cell::Null };
        [addresses, names]
    }

    fn add_sample(
        &mut self,
        facts: &mut TraceFacts,
        joined: &Joined<ReportEvent>,
        (thread, address, weight, is_idle): (u32, u64, u64, bool),
        sink: &mut RowSink<'_>,
    ) -> Result<()> {
        let event = &joined.event;
        let pid = facts.process_of(thread, event.stamp);
        self.read_stack(facts, joined, pid);
        let interval = self.intervals.get(&event.file).copied().unwrap_or(DEFAULT_INTERVAL_100NS);
        let interval = interval.saturating_mul(100).saturating_mul(weight);
        let thread_name = facts.thread_name(thread, event.stamp);
        let [stack, functions] = self.stack_cells();
        let cells = [
            (C::Time, Cell::Time(self.time(event))),
            (C::Cpu, Cell::Unsigned(event.cpu.into())),
            (C::ProcessId, number(known(pid))),
            (C::Process, text(facts.program_of(pid, event.stamp))),
            (C::ThreadId, number(known(thread))),
            (C::ThreadName, text(thread_name.as_deref())),
            (C::Address, Cell::Unsigned(address)),
            (C::Weight, Cell::Unsigned(weight)),
            (C::IsIdle, Cell::Bool(is_idle)),
            (C::IntervalNs, Cell::Unsigned(interval)),
            (C::Stack, stack),
            (C::Functions, functions),
        ];
        let time = self.time(event);
        sink(&KernelRow { table: KernelTable::Samples, file: event.file, time, cells: &cells })
    }

    fn add_switch(
        &mut self,
        facts: &mut TraceFacts,
        joined: &Joined<ReportEvent>,
        switch: ContextSwitch,
        sink: &mut RowSink<'_>,
    ) -> Result<()> {
        let event = &joined.event;
        let (run, thread_return) =
            self.schedulers.entry(event.file).or_default().record_switch(event.time_ns, switch, ());
        let span = |from: i64, to: i64| u64::try_from(to.saturating_sub(from)).ok();
        // If the switch away from a thread that ended is missing, the span is that of this thread.
        let ran = run.filter(|run| run.thread == switch.old).and_then(|run| span(run.from, run.to));
        let absent = thread_return
            .and_then(|thread_return| Some((thread_return.absence?.from, thread_return.to)))
            .and_then(|(from, to)| span(from, to));
        let ready = thread_return
            .and_then(|thread_return| Some((thread_return.woken_at?, thread_return.to)))
            .and_then(|(from, to)| span(from, to));
        let process_of = |thread: u32| facts.process_of(thread, event.stamp);
        let (old_pid, new_pid) = (process_of(switch.old), process_of(switch.new));
        let owner = joined.stack.owner.map(|(_, thread)| thread);
        let stack_pid = if owner == Some(switch.old) { old_pid } else { new_pid };
        self.read_stack(facts, joined, stack_pid);
        let [stack, functions] = self.stack_cells();
        let time = self.time(event);
        let cells = [
            (C::Time, Cell::Time(time)),
            (C::Cpu, Cell::Unsigned(switch.cpu.into())),
            (C::OldProcessId, number(known(old_pid))),
            (C::OldProcess, text(facts.program_of(old_pid, event.stamp))),
            (C::OldThreadId, number(known(switch.old))),
            (C::OldState, Cell::Unsigned(switch.state.into())),
            (C::OldWaitReason, Cell::Unsigned(switch.reason.into())),
            (C::RanNs, number(ran)),
            (C::NewProcessId, number(known(new_pid))),
            (C::NewProcess, text(facts.program_of(new_pid, event.stamp))),
            (C::NewThreadId, number(known(switch.new))),
            (C::AbsentNs, number(absent)),
            (C::ReadyNs, number(ready)),
            (C::StackThreadId, number(owner.filter(|_| !self.addresses.is_empty()))),
            (C::Stack, stack),
            (C::Functions, functions),
        ];
        sink(&KernelRow { table: KernelTable::Switches, file: event.file, time, cells: &cells })
    }

    fn add_transfer(
        &mut self,
        facts: &mut TraceFacts,
        joined: &Joined<ReportEvent>,
        transfer: &Transfer,
        sink: &mut RowSink<'_>,
    ) -> Result<()> {
        let event = &joined.event;
        let owner = transfer.thread.map(|thread| facts.process_of(thread, event.stamp));
        let pid = owner.and_then(known).unwrap_or(transfer.pid);
        self.read_stack(facts, joined, pid);
        let [stack, functions] = self.stack_cells();
        let time = self.time(event);
        let before = |duration: u64| {
            let units = i64::try_from(duration / 100).ok()?;
            Some(FileTime(time.0.checked_sub(units)?))
        };
        let cells = [
            (C::Time, Cell::Time(time)),
            (C::Disk, Cell::Unsigned(transfer.disk.into())),
            (C::Operation, Cell::Text(transfer.operation)),
            (C::Bytes, Cell::Unsigned(transfer.bytes)),
            (C::Start, transfer.duration_ns.and_then(before).map_or(Cell::Null, Cell::Time)),
            (C::DurationNs, number(transfer.duration_ns)),
            (C::ProcessId, number(known(pid))),
            (C::Process, text(facts.program_of(pid, event.stamp))),
            (C::ThreadId, number(transfer.thread.and_then(known))),
            (C::File, text(transfer.file_name.as_deref())),
            (C::Stack, stack),
            (C::Functions, functions),
        ];
        sink(&KernelRow { table: KernelTable::DiskIo, file: event.file, time, cells: &cells })
    }

    fn add_network(
        &mut self,
        facts: &mut TraceFacts,
        joined: &Joined<ReportEvent>,
        transfer: &NetworkTransfer,
        sink: &mut RowSink<'_>,
    ) -> Result<()> {
        let event = &joined.event;
        let pid = transfer.pid.unwrap_or(NO_ID);
        self.read_stack(facts, joined, pid);
        let [stack, functions] = self.stack_cells();
        let time = self.time(event);
        let address = |end: Option<SocketAddr>| end.map(|end| end.ip().to_string());
        let (local, remote) = transfer.ends.unzip();
        let (local_address, remote_address) = (address(local), address(remote));
        let cells = [
            (C::Time, Cell::Time(time)),
            (C::Cpu, Cell::Unsigned(event.cpu.into())),
            (
                C::Protocol,
                Cell::Text(match transfer.protocol {
                    NetworkProtocol::Tcp => "tcp",
                    NetworkProtocol::Udp => "udp",
                }),
            ),
            (C::Kind, Cell::Text(kind_name(transfer.kind))),
            (C::Bytes, Cell::Unsigned(transfer.bytes)),
            (C::ProcessId, number(known(pid))),
            (C::Process, text(facts.program_of(pid, event.stamp))),
            (C::LocalAddress, text(local_address.as_deref())),
            (C::LocalPort, number(local.map(|end| end.port()))),
            (C::RemoteAddress, text(remote_address.as_deref())),
            (C::RemotePort, number(remote.map(|end| end.port()))),
            (C::Stack, stack),
            (C::Functions, functions),
        ];
        sink(&KernelRow { table: KernelTable::Network, file: event.file, time, cells: &cells })
    }
}

const fn kind_name(kind: NetworkKind) -> &'static str {
    match kind {
        NetworkKind::Send => "send",
        NetworkKind::Receive => "receive",
        NetworkKind::Connect => "connect",
        NetworkKind::Accept => "accept",
        NetworkKind::Disconnect => "disconnect",
        NetworkKind::Retransmit => "retransmit",
        NetworkKind::Fail => "fail",
    }
}
