//! Kernel events for system loggers: converts the requests of sessions into capture settings, and
//! passes the captured events to the session.
//!
//! ```text
//!   EnableFlags, class 4 ──┐
//!   system providers ──────┴─▶ RequestedGroups ─┐
//!   classes 3, 8, 9 and 28: Settings ───────────┼─▶ CaptureSettings
//!   classes 5 and 6: System ────────────────────┘
//!
//!   CaptureSettings ─┬─▶ Capture::open ─▶ KernelCapture ─▶ Session::capture
//!                    └─▶ CaptureControl::set, while the session runs
//! ```
//!
//! The numbers are those of information classes.
//!
//! - K1 Requests are independent: a group that one request drops stays enabled while another
//!   request wants it.
//! - K2 A change is made in all affected captures, or in none.
//! - K3 Opening and closing kernel events takes long, so it runs on a separate thread.
//! - K4 A daemon without CAP_PERFMON captures only events of its own user's processes.

mod request;
mod selection;
mod shared;
mod source;

pub(crate) use request::RequestedGroups;
pub(crate) use selection::{check_filters, groups_of_enables};
pub(crate) use shared::EventHub;
#[cfg(test)]
pub(crate) use shared::tests::TestSourceState;
pub(crate) use source::{CaptureLosses, KernelCapture};

use std::sync::Arc;

use traceweir_format::info::GroupMask;
use traceweir_format::spec::system::{KERNEL_GROUPS, NO_SYSCONFIG, OWN_GROUPS, has_group};
use traceweir_kernel::{
    Capture, CaptureControl, CaptureScope, CaptureSettings, Counter, Groups, ProcessTree,
};
use traceweir_session::config::stream_count;
use traceweir_session::groups::with_twins;
use traceweir_session::info::{Machine, Settings, System, TIMER};
use traceweir_session::{Error, Result};
use traceweir_transport::cpu;
use traceweir_transport::message::{self, SessionConfig};

use crate::process::may_profile;

/// Minimum and maximum size in bytes of the ring of one processor.
const RING_BYTES: (u64, u64) = (512 << 10, 64 << 20);
/// Minimum and maximum ring size in bytes of an unprivileged daemon. If rings of this size exceed
/// the lockable memory, the capture halves the size until they can be opened.
const OWN_RING_BYTES: (u64, u64) = (64 << 10, 4 << 20);
/// The default of `kernel.perf_event_mlock_kb`.
const DEFAULT_MLOCK_KIB: u64 = 516;

/// Returns what this daemon can capture: events of the whole system, or of its own user's processes
/// only.
pub(crate) fn daemon_scope() -> CaptureScope {
    let user = rustix::process::geteuid().as_raw();
    if may_profile(std::process::id(), user) { CaptureScope::Everything } else { CaptureScope::Own }
}

/// Returns the name of the first group that is not available to a daemon which sees only its own
/// user's processes.
pub(crate) fn first_unavailable_group(mask: &GroupMask) -> Option<String> {
    let own = with_twins([OWN_GROUPS | NO_SYSCONFIG, 0, 0, 0, 0, 0, 0, 0]);
    let mut words = mask.iter().zip(&own).enumerate();
    let (word, bits) = words.find_map(|(word, (requested, own))| {
        let unavailable = requested & !own;
        (unavailable != 0).then_some((word, unavailable))
    })?;
    let mut unavailable = GroupMask::default();
    *unavailable.get_mut(word)? = bits;
    let named = KERNEL_GROUPS.iter().find(|(group, _)| has_group(&unavailable, *group));
    Some(named.map_or_else(|| format!("group {bits:#x} of word {word}"), |(_, name)| (*name).to_owned()))
}

/// Returns whether the mask requests events. `NO_SYSCONFIG` only omits the description of the
/// machine.
pub(crate) fn wants_events(mask: &GroupMask) -> bool {
    let [first, others @ ..] = mask;
    first & !NO_SYSCONFIG != 0 || others.iter().any(|word| *word != 0)
}

pub(crate) fn capture_settings_at_start(
    config: &SessionConfig,
    requested: &RequestedGroups,
    settings: &Settings,
    system: &System,
    machine: &Machine,
    scope: CaptureScope,
) -> CaptureSettings {
    let cpus = cpu::possible();
    let ring_bytes = ring_bytes(config, cpus, scope, LockableMemory::current);
    let relay_queue_bytes = usize::try_from(memory_share(config, cpus)).unwrap_or(usize::MAX).max(ring_bytes);
    let stack_bytes = config.stack_bytes;
    let to_tree = |tree: &message::ProcessTree| {
        let message::ProcessTree { root, includes_root } = *tree;
        ProcessTree { root, includes_root }
    };
    let process_trees = config.process_trees().iter().map(to_tree).collect();
    let base = CaptureSettings {
        scope,
        process_trees,
        ring_bytes,
        relay_queue_bytes,
        stack_bytes,
        ..CaptureSettings::default()
    };
    capture_settings(&base, requested, settings, system, machine)
}

/// Returns the capture settings for the current requests; the rest, such as scope and ring sizes,
/// comes from `base`.
pub(crate) fn capture_settings(
    base: &CaptureSettings,
    requested: &RequestedGroups,
    settings: &Settings,
    system: &System,
    machine: &Machine,
) -> CaptureSettings {
    let to_counter = |id: &u32| {
        let source = machine.find_source(*id)?;
        let (id, name) = (source.source, source.description.clone());
        Some(Counter { id, name, interval: system.interval_of(source) })
    };
    let (counters, counted) = settings.counters_and_hooks();
    CaptureSettings {
        groups: Groups(requested.combined()),
        stacks: settings.stack_hooks(),
        registers: settings.register_hooks(),
        interval: machine.find_source(TIMER).map_or(base.interval, |timer| system.interval_of(timer)),
        profile_sources: system.configured().iter().filter_map(to_counter).collect(),
        counters: counters.iter().filter_map(to_counter).collect(),
        counter_hooks: counted,
        ..base.clone()
    }
}

/// Memory that an unprivileged process may lock for rings.
struct LockableMemory {
    /// Bytes per processor: `kernel.perf_event_mlock_kb`, shared by all processes of a user.
    per_cpu: u64,
    /// Bytes beyond that: RLIMIT_MEMLOCK, for each process.
    process: u64,
}

impl LockableMemory {
    fn current() -> Self {
        let text = std::fs::read_to_string("/proc/sys/kernel/perf_event_mlock_kb").unwrap_or_default();
        let kib = text.trim().parse().unwrap_or(DEFAULT_MLOCK_KIB);
        let process = rustix::process::getrlimit(rustix::process::Resource::Memlock).current;
        Self { per_cpu: kib.saturating_mul(1024), process: process.unwrap_or(u64::MAX) }
    }

    /// Returns the largest ring per processor, without its control page. Half of what the process
    /// may lock stays free for other sessions.
    fn ring_bytes(&self, cpus: u64) -> u64 {
        let process = (self.process / 2).checked_div(cpus).unwrap_or(0);
        self.per_cpu.saturating_add(process).saturating_sub(rustix::param::page_size() as u64)
    }
}

/// Returns a processor's share of the session's own memory in bytes, within bounds. The share is
/// the size of the processor's ring or, if locked memory limits the ring, of the queue into which a
/// relay copies the ring.
fn memory_share(config: &SessionConfig, cpus: u16) -> u64 {
    let memory = (u64::from(config.buffer_size) << 10).saturating_mul(u64::from(config.maximum_buffers));
    let (min, max) = RING_BYTES;
    memory.checked_div(u64::from(cpus)).unwrap_or(0).clamp(min, max)
}

/// Returns the size of a ring in bytes: a share of the session's own memory or, in an unprivileged
/// daemon, of the memory that the daemon may lock.
fn ring_bytes(
    config: &SessionConfig,
    cpus: u16,
    scope: CaptureScope,
    lockable: impl FnOnce() -> LockableMemory,
) -> usize {
    let share = match scope {
        CaptureScope::Everything => memory_share(config, cpus),
        CaptureScope::Own => {
            let (min, max) = OWN_RING_BYTES;
            lockable().ring_bytes(u64::from(cpus)).clamp(min, max)
        }
    };
    // Rounds down to a power of two.
    let power = share.checked_ilog2().and_then(|bits| 1_usize.checked_shl(bits));
    power.unwrap_or(1 << 20)
}

/// An open capture, which begins to capture when its session takes it over.
pub(crate) struct OpenCapture {
    pub(crate) source: Box<KernelCapture>,
    pub(crate) control: CaptureControl,
    pub(crate) losses: Arc<CaptureLosses>,
    /// Bytes of user stack in an event: the requested number, or fewer if the rings are limited.
    pub(crate) stack_bytes: u32,
}

pub(crate) fn open_capture(settings: &CaptureSettings, config: &SessionConfig) -> Result<OpenCapture> {
    let cpus = cpu::possible();
    let (capture, control) =
        Capture::open(settings, cpus, stream_count(config, cpus)).map_err(|e| capture_error(&e))?;
    let losses = Arc::new(CaptureLosses::new(cpus));
    let stack_bytes = capture.stack_limit_bytes().unwrap_or(u32::MAX).min(settings.stack_bytes);
    let source = Box::new(KernelCapture::new(capture, control.clone(), Arc::clone(&losses)));
    Ok(OpenCapture { source, control, losses, stack_bytes })
}

/// A change of one capture, or its opening.
pub(crate) struct CaptureStep {
    pub(crate) session: u64,
    pub(crate) config: SessionConfig,
    /// `None` if the capture is not open yet.
    pub(crate) control: Option<CaptureControl>,
    pub(crate) previous: CaptureSettings,
    pub(crate) wanted: CaptureSettings,
}

impl CaptureStep {
    fn apply(&self) -> Result<Option<OpenCapture>> {
        match &self.control {
            Some(control) => control.set(&self.wanted).map(|()| None).map_err(|e| capture_error(&e)),
            None => open_capture(&self.wanted, &self.config).map(Some),
        }
    }

    /// Restores the previous settings, which the kernel accepted before. A capture that this step
    /// opened is closed when it is dropped.
    fn undo(&self) {
        if let Some(control) = &self.control {
            let _ = control.set(&self.previous);
        }
    }
}

/// Applies all steps, or none.
pub(crate) fn apply_capture_steps(steps: &[CaptureStep]) -> Result<Vec<Option<OpenCapture>>> {
    let mut opened = Vec::new();
    for step in steps {
        match step.apply() {
            Ok(capture) => opened.push(capture),
            Err(e) => {
                steps.iter().take(opened.len()).for_each(CaptureStep::undo);
                return Err(e);
            }
        }
    }
    Ok(opened)
}

/// Returns the error for a failed capture, with its Win32 status.
fn capture_error(error: &traceweir_kernel::Error) -> Error {
    Error::Capture { status: error.status(), reason: format!("kernel events: {error}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_groups_are_available_for_own_processes() {
        let own = with_twins([OWN_GROUPS, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(first_unavailable_group(&own), None);
        assert_eq!(first_unavailable_group(&[NO_SYSCONFIG, 0, 0, 0, 0, 0, 0, 0]), None);
        assert_eq!(first_unavailable_group(&[0x103, 0, 0, 0, 0, 0, 0, 0]).as_deref(), Some("DISK_IO"));
        assert_eq!(first_unavailable_group(&[0, 0x2000, 0, 0, 0, 0, 0, 0]).as_deref(), Some("PRIORITY"));
        assert_eq!(
            first_unavailable_group(&[0, 0, 0, 4, 0, 0, 0, 0]).as_deref(),
            Some("group 0x4 of word 3")
        );
    }

    #[test]
    fn rings_take_a_share_of_the_sessions_memory_within_bounds() {
        let config = |buffer_size, maximum_buffers| SessionConfig {
            buffer_size,
            maximum_buffers,
            ..SessionConfig::default()
        };
        let lockable = |per_cpu, process| move || LockableMemory { per_cpu, process };
        let shared_ring_bytes =
            |config: &SessionConfig, cpus| ring_bytes(config, cpus, CaptureScope::Everything, lockable(0, 0));
        assert_eq!(shared_ring_bytes(&config(64, 24), 2), 512 << 10);
        assert_eq!(shared_ring_bytes(&config(64, 512), 2), 16 << 20);
        assert_eq!(shared_ring_bytes(&config(64, 500), 2), 8 << 20, "the size is a power of two");
        assert_eq!(shared_ring_bytes(&config(16384, 1000), 2), 64 << 20);
        let own_ring_bytes = |cpus, per_cpu, process| {
            ring_bytes(&config(64, 512), cpus, CaptureScope::Own, lockable(per_cpu, process))
        };
        assert_eq!(own_ring_bytes(2, 516 << 10, 64 << 10), 512 << 10);
        assert_eq!(own_ring_bytes(2, 516 << 10, 8 << 20), 2 << 20);
        assert_eq!(own_ring_bytes(64, 516 << 10, 8 << 20), 512 << 10);
        assert_eq!(own_ring_bytes(2, 516 << 10, u64::MAX), 4 << 20);
        assert_eq!(own_ring_bytes(2, 0, 0), 64 << 10);
    }

    #[test]
    fn capture_error_keeps_status_and_reason() {
        let source = std::io::Error::from_raw_os_error(13);
        let denied = traceweir_kernel::Error::NotPermitted { what: "x".into(), source };
        assert_eq!(capture_error(&denied).status(), denied.status());
        assert!(capture_error(&denied).to_string().contains("x is not permitted"));
    }
}
