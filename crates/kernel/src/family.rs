//! Families of kernel events: the perf events that each needs, and the handlers that convert them.
//!
//! ```text
//!   Row: perf event ─▶ handler     Context: groups, tasks, processors
//!              │                         ▲                 (shared by all families)
//!   sample ────┴─▶ handler of the row ───┤
//!   side-band record ─▶ on_sideband ─────┼─▶ state of the family ─▶ Out: finished records
//!   start, end ─▶ run_down ──────────────┘
//! ```
//!
//! Each family owns its state. No family uses another one: facts that several of them need are in
//! the [`Context`].
//!
//! | module | kernel events | source |
//! |---|---|---|
//! | [`process`] | processes, threads: start, end, rundown | FORK, EXIT, COMM, `sched:*`, /proc |
//! | [`image`] | images: load, unload, rundown, their ids | mmap records, /proc |
//! | [`schedule`] | context switch, ready thread, priority | `sched:*`, switch records |
//! | [`profile`] | samples and the sampling interval | cpu-clock, counters |
//! | [`interrupt`] | interrupts and deferred calls | `irq:*`, `irq_vectors:*` |
//! | [`syscall`] | system calls | `raw_syscalls:*` |
//! | [`memory`] | page faults, virtual memory | `exceptions:*`, `syscalls:*`, fault counters |
//! | [`disk`] | disk requests | `block:*` |
//! | [`mod@file`] | file names and operations | `syscalls:*`, a kprobe, /proc |
//! | [`network`] | TCP and UDP | `tcp:*`, `sock:*`, `udp:*`, /proc |
//! | [`config`] | description of the machine | /proc, /sys |

pub(crate) mod config;
pub(crate) mod disk;
pub(crate) mod file;
pub(crate) mod image;
pub(crate) mod interrupt;
pub(crate) mod memory;
pub(crate) mod network;
pub(crate) mod process;
pub(crate) mod profile;
pub(crate) mod schedule;
pub(crate) mod syscall;
#[cfg(test)]
pub(crate) mod testing;

use crate::activity::Activity;
use crate::groups::{Group, Groups};
use crate::out::Out;
use crate::record::{SampleParts, SidebandRecord};
use crate::scope::{self, ProcessScope};
use crate::settings::CaptureSettings;
use crate::spec::{PerfEventSpec, PerfSource, SampleEvent};
use crate::tasks::{TaskIds, Tasks};

/// The facts that all families share.
#[derive(Debug, Default)]
pub(crate) struct Context {
    pub(crate) settings: CaptureSettings,
    /// The groups whose events are written: those of `settings`, except while records from before a
    /// change of settings are handled.
    pub(crate) groups: Groups,
    pub(crate) tasks: Tasks,
    pub(crate) activity: Activity,
    /// The processes that the capture is restricted to; `None` for all processes.
    pub(crate) scope: Option<ProcessScope>,
}

impl Context {
    /// Returns whether a task is in the scope of the capture.
    pub(crate) fn is_task_in_scope(&self, ids: TaskIds) -> bool {
        scope::is_task_in_scope(self.scope.as_ref(), ids)
    }

    /// Returns whether a process is in the scope of the capture.
    pub(crate) fn is_process_in_scope(&self, pid: u32) -> bool {
        self.scope.as_ref().is_none_or(|scope| scope.has_process(pid))
    }

    /// Returns whether a thread, by its id alone, is in the scope of the capture.
    pub(crate) fn is_thread_in_scope(&self, tid: u32) -> bool {
        scope::is_thread_in_scope(self.scope.as_ref(), &self.tasks, tid)
    }

    /// Counts an event that is left out because its process is unknown.
    pub(crate) fn count_unattributed(&mut self) {
        if let Some(scope) = &mut self.scope {
            scope.count_unattributed();
        }
    }
}

/// Whether a rundown belongs to the start or to the end of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rundown {
    Start,
    End,
}

/// One family of kernel events, with its state.
pub(crate) trait EventFamily: 'static {
    /// Returns the perf events that the family needs, with their handlers.
    fn rows() -> &'static [Row<Self>]
    where
        Self: Sized,
    {
        &[]
    }

    /// Returns whether the family handles records of processes outside the scope of the capture:
    /// its state depends on them, or some of their events are in scope. In such a record
    /// [`Out::is_in_scope`] is false, and the family sets it before it writes events in scope.
    fn handles_all_processes(&self) -> bool {
        false
    }

    /// Handles a side-band record: a fork, an exit, a name, a mapping or a switch.
    fn on_sideband(&mut self, _: &SidebandRecord<'_>, _: &mut Context, _: &mut Out<'_>) {}

    /// Writes the objects that exist at the start or at the end of a capture.
    fn run_down(&mut self, _: Rundown, _: &mut Context, _: &mut Out<'_>) {}

    /// Begins a poll: renews bounds and drops state that is no longer kept up to date.
    fn begin_poll(&mut self, _: &Context) {}

    /// Handles a change of groups, intervals or sources since the last poll.
    fn on_settings_change(&mut self, _: &mut Context, _: &mut Out<'_>) {}

    /// Drops state that lost records may have made wrong: the end of an operation may be among
    /// them.
    fn forget_after_loss(&mut self) {}
}

pub(crate) type SampleHandler<F> = fn(&mut F, &SampleEvent<'_>, &mut Context, &mut Out<'_>);

/// A perf event of a family, and the handler of its samples.
pub(crate) struct Row<F> {
    pub(crate) spec: PerfEventSpec,
    pub(crate) on_sample: SampleHandler<F>,
}

impl<F> Row<F> {
    pub(crate) const fn tracepoint(
        (system, name): (&'static str, &'static str),
        groups: &'static [Group],
        hooks: &'static [u16],
        fields: &'static [&'static str],
        on_sample: SampleHandler<F>,
    ) -> Self {
        let mut row =
            Self::new(PerfSource::Tracepoint(system, name), groups, hooks, SampleParts(0), on_sample);
        row.spec.fields = fields;
        row
    }

    /// Creates a row for an event without fields, whose samples have these extra parts.
    pub(crate) const fn new(
        source: PerfSource,
        groups: &'static [Group],
        hooks: &'static [u16],
        parts: SampleParts,
        on_sample: SampleHandler<F>,
    ) -> Self {
        let spec = PerfEventSpec {
            source,
            groups,
            hooks,
            fields: &[],
            parts,
            wakes_session: false,
            is_own_scope_only: false,
            filter: None,
        };
        Self { spec, on_sample }
    }

    /// Makes each record wake the session at once.
    pub(crate) const fn with_wakeup(mut self) -> Self {
        self.spec.wakes_session = true;
        self
    }

    /// Lets the kernel filter the events.
    pub(crate) const fn with_filter(mut self, filter: &'static str) -> Self {
        self.spec.filter = Some(filter);
        self
    }

    /// Restricts the row to captures of scope `Own`.
    pub(crate) const fn with_own_scope_only(mut self) -> Self {
        self.spec.is_own_scope_only = true;
        self
    }
}
