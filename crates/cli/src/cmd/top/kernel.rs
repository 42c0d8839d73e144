//! Counts kernel events by process: processor time, context switches, wake-up latency, disk and
//! network.
//!
//! ```text
//!   CSwitch, ReadyThread ──▶ Scheduler ──▶ RunSpan: processor time of a process, by second
//!                                      └─▶ ThreadReturn after a wake: wake-up latency
//!   DiskIo, TcpIp, UdpIp ──▶ bytes of a process
//! ```
//!
//! A thread that runs on without a switch is accounted for at each new second.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use traceweir_analysis::live::LiveContext;
use traceweir_analysis::report::{
    KernelEvent, LifeChange, NetworkKind, RunSpan, Scheduler, is_disk_event, is_network_event,
    read_kernel_event,
};
use traceweir_decode::walk::Walker;
use traceweir_format::header::{NO_ID, Record};
use traceweir_format::kernel::hook;
use traceweir_format::time::{Clock, FileTime};

use super::events::lock;
use super::history::{HISTORY_SECONDS, History, RecentLatencies, Second};
use super::names::{ProcessName, find_program_name};
use super::table::{Table, TableRow};

const MAX_PROCESSES: usize = 1024;
/// The most threads whose switches are followed.
const MAX_THREADS: usize = 1 << 16;
const NS_PER_SECOND: i64 = 1_000_000_000;

/// The kernel events of one process.
#[derive(Clone, Debug, Default)]
pub(super) struct KernelRow {
    pub(super) name: ProcessName,
    /// Nanoseconds of processor time.
    pub(super) cpu_ns: History,
    /// Switches to threads of the process.
    pub(super) switches: History,
    /// Times from the wake of a thread until it runs.
    pub(super) wakes: RecentLatencies,
    /// Bytes read from and written to disks.
    pub(super) disk_bytes: History,
    /// Bytes received from and sent to the network.
    pub(super) network_bytes: History,
}

impl TableRow for KernelRow {
    fn is_idle(&self, now: Second) -> bool {
        [&self.cpu_ns, &self.switches, &self.disk_bytes, &self.network_bytes]
            .iter()
            .all(|history| history.is_idle(now))
    }

    fn absorb(&mut self, other: &Self) {
        self.cpu_ns.absorb(&other.cpu_ns);
        self.switches.absorb(&other.switches);
        self.wakes.absorb(&other.wakes);
        self.disk_bytes.absorb(&other.disk_bytes);
        self.network_bytes.absorb(&other.network_bytes);
    }
}

/// All counts. A clone is a snapshot, which a paused screen shows.
#[derive(Clone, Debug)]
pub(super) struct KernelTables {
    now: Second,
    /// Kernel events of all kinds.
    pub(super) total: History,
    pub(super) processes: Table<u32, KernelRow>,
    processors: u32,
}

impl KernelTables {
    pub(super) fn new(now: FileTime, processors: u32) -> Self {
        let processes = Table::with_max_rows(MAX_PROCESSES);
        let now = Second::of_time(now);
        Self { now, total: History::default(), processes, processors: processors.max(1) }
    }

    /// Sets the current time.
    pub(super) fn set_now(&mut self, now: FileTime) {
        self.now = Second::of_time(now);
    }

    /// Returns how much of the time of all processors threads used in a second, in percent.
    pub(super) fn cpu_percent(&self, second: Second) -> f64 {
        let rows = self.processes.rows().map(|(_, row)| row).chain([self.processes.rest()]);
        let used_ns: u64 = rows.map(|row| row.cpu_ns.amount_in(second)).fold(0, u64::saturating_add);
        used_ns as f64 / 1e7 / f64::from(self.processors)
    }

    fn row_mut(&mut self, pid: u32, second: Second, names: &LiveContext, time: i64) -> &mut KernelRow {
        let position = self.processes.find_or_add(&pid, second, KernelRow::default);
        let row = self.processes.row_mut(position);
        if !position.is_rest() {
            row.name.refresh(second, || find_name(pid, names, time));
        }
        row
    }
}

/// Returns the name of a process: that of its events, or else of the running program.
fn find_name(pid: u32, names: &LiveContext, time: i64) -> Option<String> {
    let image = names.actors.image_of(pid, time).filter(|name| !name.is_empty());
    image.map(str::to_owned).or_else(|| find_program_name(pid))
}

/// The thread that runs on a processor.
#[derive(Clone, Copy, Debug)]
struct RunningThread {
    thread: u32,
    /// The end of the time that is accounted for, in nanoseconds since the start of the session.
    accounted_to: i64,
}

/// The time of an event.
#[derive(Clone, Copy, Debug)]
struct EventTime {
    /// The time stamp.
    stamp: i64,
    /// Nanoseconds since the start of the session.
    ns: i64,
    second: Second,
    /// The start of the second, in the unit of `ns`.
    second_starts_ns: i64,
}

impl EventTime {
    /// Returns the second of an earlier time, and when it starts.
    fn second_at(self, ns: i64) -> (Second, i64) {
        let behind = ns.saturating_sub(self.second_starts_ns).div_euclid(NS_PER_SECOND).saturating_neg();
        let starts_ns = self.second_starts_ns.saturating_sub(behind.saturating_mul(NS_PER_SECOND));
        (self.second.minus(behind), starts_ns)
    }
}

/// Counts records in shared tables.
pub(super) struct KernelCounter {
    tables: Arc<Mutex<KernelTables>>,
    scheduler: Scheduler<()>,
    running: HashMap<u16, RunningThread>,
    /// The second of the last event.
    second: Second,
    walker: Walker,
}

impl KernelCounter {
    pub(super) fn new(tables: Arc<Mutex<KernelTables>>) -> Self {
        Self {
            tables,
            scheduler: Scheduler::with_max_threads(MAX_THREADS),
            running: HashMap::new(),
            second: Second(i64::MIN),
            walker: Walker::default(),
        }
    }

    /// Counts a record. The context has learned from it already.
    pub(super) fn count(
        &mut self,
        record: &Record<'_>,
        time: FileTime,
        clock: &Clock,
        context: &mut LiveContext,
    ) {
        let Some(hook) = record.hook() else { return };
        let shared = Arc::clone(&self.tables);
        let mut tables = lock(&shared);
        // The screen sets the time once a second, and events can be newer.
        let second = Second::of_time(time).min(Second(tables.now.0.saturating_add(1)));
        let (stamp, ns) = (record.time(), clock.nanos_since_start(record.time()));
        let into_second_ns = time.0.rem_euclid(10_000_000).saturating_mul(100);
        let at = EventTime { stamp, ns, second, second_starts_ns: ns.saturating_sub(into_second_ns) };
        tables.total.add(second, 1);
        if second > self.second {
            self.second = second;
            self.account_running(at, context, &mut tables);
        }
        let is_needed = matches!(hook, hook::CONTEXT_SWITCH | hook::READY_THREAD | hook::THREAD_END)
            || is_disk_event(hook)
            || is_network_event(hook);
        if !is_needed {
            return;
        }
        let Ok(schema) = context.decoder.find(record) else { return };
        let event = read_kernel_event(&mut self.walker, record, &schema);
        match event {
            Some(KernelEvent::Switch { switch, .. }) => {
                let (run, returned) = self.scheduler.record_switch(at.ns, switch, ());
                if let Some(run) = run {
                    self.account_run(switch.cpu, run, at, context, &mut tables);
                }
                self.running.insert(switch.cpu, RunningThread { thread: switch.new, accounted_to: at.ns });
                if let Some(returned) = returned {
                    let pid = context.actors.process_of(switch.new, at.stamp).unwrap_or(NO_ID);
                    let row = tables.row_mut(pid, second, context, at.stamp);
                    row.switches.add(second, 1);
                    if let Some(woken_at) = returned.woken_at {
                        let waited_ns = at.ns.saturating_sub(woken_at);
                        row.wakes.add(second, u64::try_from(waited_ns).unwrap_or(0));
                    }
                }
            }
            Some(KernelEvent::Ready { thread }) => self.scheduler.record_wake(at.ns, thread),
            Some(KernelEvent::Thread(thread)) if thread.change == LifeChange::End => {
                self.scheduler.record_end(at.ns, thread.tid);
            }
            Some(KernelEvent::Disk(operation)) => {
                let of_thread = |tid| context.actors.process_of(tid, at.stamp);
                let pid = operation.thread.and_then(of_thread).unwrap_or_else(|| record.process_id());
                tables.row_mut(pid, second, context, at.stamp).disk_bytes.add(second, operation.bytes);
            }
            Some(KernelEvent::Network(transfer))
                if matches!(transfer.kind, NetworkKind::Send | NetworkKind::Receive) =>
            {
                let pid = transfer.pid.unwrap_or_else(|| record.process_id());
                tables.row_mut(pid, second, context, at.stamp).network_bytes.add(second, transfer.bytes);
            }
            _ => {}
        }
    }

    /// Accounts for the time that a thread ran until a switch.
    fn account_run(
        &self,
        cpu: u16,
        run: RunSpan,
        at: EventTime,
        context: &LiveContext,
        tables: &mut KernelTables,
    ) {
        let running = self.running.get(&cpu).filter(|running| running.thread == run.thread);
        let from = running.map_or(run.from, |running| running.accounted_to.max(run.from));
        add_cpu_time(RunSpan { from, ..run }, at, context, tables);
    }

    /// Accounts for the time of all running threads until now.
    fn account_running(&mut self, at: EventTime, context: &LiveContext, tables: &mut KernelTables) {
        for (cpu, running) in &mut self.running {
            if self.scheduler.running_since(*cpu, running.thread).is_none() {
                continue;
            }
            let span = RunSpan { thread: running.thread, from: running.accounted_to, to: at.ns };
            running.accounted_to = at.ns;
            add_cpu_time(span, at, context, tables);
        }
    }
}

/// Adds a time span to the processor time of the process of a thread, divided by second.
fn add_cpu_time(span: RunSpan, at: EventTime, context: &LiveContext, tables: &mut KernelTables) {
    // Threads with the id 0 are idle, and NO_ID stands for threads of other users.
    if matches!(span.thread, 0 | NO_ID) || span.to <= span.from {
        return;
    }
    let pid = context.actors.process_of(span.thread, at.stamp).unwrap_or(NO_ID);
    let row = tables.row_mut(pid, at.second, context, at.stamp);
    let mut end = span.to;
    for _ in 0..HISTORY_SECONDS {
        // The last part of the span, within one second.
        let (second, second_starts_ns) = at.second_at(end.saturating_sub(1));
        let start = second_starts_ns.max(span.from);
        row.cpu_ns.add(second, u64::try_from(end.saturating_sub(start)).unwrap_or(0));
        if start <= span.from {
            return;
        }
        end = start;
    }
}

#[cfg(test)]
mod tests;
