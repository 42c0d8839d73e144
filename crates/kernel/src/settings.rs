//! The settings of a capture, as plain data.

use crate::counter::Counter;
use crate::groups::Groups;

/// Default sampling interval of the timer, in 100 ns.
const DEFAULT_INTERVAL_100_NS: u32 = 10_000;

/// The processes whose events are captured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CaptureScope {
    /// All processes. Needs `CAP_PERFMON` or a permissive `perf_event_paranoid`.
    #[default]
    Everything,
    /// This user's own processes, as far as the kernel allows. Tracepoints, which need privileges,
    /// are not used.
    Own,
}

/// A process and its descendants, existing and future.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessTree {
    /// The process id of the root.
    pub root: u32,
    /// Whether the root itself belongs to the tree, not only its descendants.
    pub includes_root: bool,
}

/// The settings of a capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaptureSettings {
    /// Groups of events to capture.
    pub groups: Groups,
    /// Hook ids of events that are followed by their stacks.
    pub stacks: Vec<u16>,
    /// Hook ids of events that are followed by their registers.
    pub registers: Vec<u16>,
    /// Sampling interval of the timer, in 100 ns.
    pub interval: u32,
    /// Profile sources that sample in addition to the timer while `Group::PMC_PROFILE` is enabled;
    /// only the first seven are used.
    pub profile_sources: Vec<Counter>,
    /// Counters that are read with the events in `counter_hooks`; only the first seven are used.
    pub counters: Vec<Counter>,
    /// Hook ids of events whose headers carry `counters`.
    pub counter_hooks: Vec<u16>,
    /// Bytes of user stack copied with each stack, for unwinding with DWARF tables; 0 uses frame
    /// pointers only.
    pub stack_bytes: u32,
    /// Whether the payloads of process events end with details that their layouts lack: the start
    /// time of the process in clock ticks since the boot (8 bytes), and the path of its program
    /// (UTF-16, NUL-terminated).
    pub has_program_details: bool,
    /// The processes whose events are captured.
    pub scope: CaptureScope,
    /// Process trees that the events are restricted to; empty for all processes of `scope`. Cannot
    /// be changed while the capture runs.
    pub process_trees: Vec<ProcessTree>,
    /// Ring size of each processor in bytes.
    pub ring_bytes: usize,
    /// Bytes of ordinary memory into which the relay empties each ring, if locked memory limits the
    /// rings; at least `ring_bytes`.
    pub relay_queue_bytes: usize,
}

impl Default for CaptureSettings {
    fn default() -> Self {
        Self {
            groups: Groups::default(),
            stacks: Vec::new(),
            registers: Vec::new(),
            interval: DEFAULT_INTERVAL_100_NS,
            profile_sources: Vec::new(),
            counters: Vec::new(),
            counter_hooks: Vec::new(),
            stack_bytes: 0,
            has_program_details: false,
            scope: CaptureScope::Everything,
            process_trees: Vec::new(),
            ring_bytes: 2 << 20,
            relay_queue_bytes: 16 << 20,
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct HookSet(Vec<u16>);

impl HookSet {
    pub(crate) fn new(hooks: &[u16]) -> Self {
        let mut hooks = hooks.to_vec();
        hooks.sort_unstable();
        hooks.dedup();
        Self(hooks)
    }

    pub(crate) fn has(&self, hook: u16) -> bool {
        self.0.binary_search(&hook).is_ok()
    }

    pub(crate) fn has_any(&self, hooks: &[u16]) -> bool {
        hooks.iter().any(|hook| self.has(*hook))
    }
}

/// The events that are recorded with additional data, by hook id.
#[derive(Clone, Debug, Default)]
pub(crate) struct EventExtras {
    /// Events that are followed by their stacks.
    pub(crate) stacks: HookSet,
    /// Events that are followed by their registers.
    pub(crate) registers: HookSet,
    /// Events whose headers carry counters.
    pub(crate) counters: HookSet,
    /// Whether process events have program details.
    pub(crate) has_program_details: bool,
}

impl EventExtras {
    pub(crate) fn new(settings: &CaptureSettings) -> Self {
        Self {
            stacks: HookSet::new(&settings.stacks),
            registers: HookSet::new(&settings.registers),
            counters: HookSet::new(&settings.counter_hooks),
            has_program_details: settings.has_program_details,
        }
    }
}
