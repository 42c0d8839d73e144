//! The settings of a capture, and the handle that changes them.
//!
//! ```text
//!   Wanted ──▶ Control ──▶ Opened: the open perf events ◀── Capture, at each poll
//! ```
//!
//! 1. The control and the capture share the table of open events under a lock. A poll holds the
//!    lock from beginning to end, including the rundown, which may take seconds. A change waits for
//!    that, so it is made by a thread that may block.
//! 2. The queries [`Control::missing`], [`Control::left_out`] and [`Control::unread`] use a lock of
//!    their own, which is held only to copy values: no query waits for a poll.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::counter::Counter;
use crate::error::Result;
use crate::family;
use crate::groups::Groups;
use crate::opened::Opened;
use crate::perf_ring::Event;

/// Default sampling interval of the timer, in 100 ns.
const USUAL_INTERVAL: u32 = 10_000;

/// The processes whose events are captured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    /// All processes. Needs `CAP_PERFMON` or a permissive `perf_event_paranoid`.
    #[default]
    Everything,
    /// This user's own processes, as far as the kernel allows.
    Own,
}

/// The settings of a capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
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
    /// Counters that are read with the events in `counted`; only the first seven are used.
    pub counters: Vec<Counter>,
    /// Hook ids of events whose headers carry `counters`.
    pub counted: Vec<u16>,
    /// Bytes of user stack copied with each stack, for unwinding with DWARF tables; 0 uses frame
    /// pointers only.
    pub stack_bytes: u32,
    /// The processes whose events are captured.
    pub scope: Scope,
    /// Ring size of each processor in bytes.
    pub ring_bytes: usize,
    /// Bytes of ordinary memory per ring into which a ring is emptied, if locked memory limits the
    /// rings.
    pub backlog_bytes: usize,
}

impl Default for Wanted {
    fn default() -> Self {
        Self {
            groups: Groups::default(),
            stacks: Vec::new(),
            registers: Vec::new(),
            interval: USUAL_INTERVAL,
            profile_sources: Vec::new(),
            counters: Vec::new(),
            counted: Vec::new(),
            stack_bytes: 0,
            scope: Scope::Everything,
            ring_bytes: 2 << 20,
            backlog_bytes: 16 << 20,
        }
    }
}

/// A handle that changes a running capture from any thread.
#[derive(Clone, Debug)]
pub struct Control {
    pub(crate) shared: Arc<Shared>,
}

/// The state that a capture and its control share.
#[derive(Debug)]
pub(crate) struct Shared {
    opened: Mutex<Opened>,
    omissions: Mutex<Omissions>,
    /// The event of each processor's ring.
    pub(crate) rings: Vec<Arc<Event>>,
    /// Whether the next poll writes another start rundown.
    pub(crate) is_rundown_due: AtomicBool,
}

/// What a capture leaves out, as the queries of [`Control`] return it.
#[derive(Debug, Default)]
struct Omissions {
    missing: Vec<String>,
    left_out: u64,
    unread: u64,
}

impl Control {
    pub(crate) fn new(wanted: &Wanted, rings: Vec<Arc<Event>>) -> Self {
        let opened = Opened::empty(wanted);
        let (opened, omissions, is_rundown_due) =
            (Mutex::new(opened), Mutex::default(), AtomicBool::new(false));
        Self { shared: Arc::new(Shared { opened, omissions, rings, is_rundown_due }) }
    }

    /// Replaces the settings. Scope and ring sizes stay as they were at the start.
    pub fn set(&self, wanted: &Wanted) -> Result<()> {
        family::prepare(wanted.groups);
        let mut opened = self.shared.opened();
        let changed = opened.change(wanted, &self.shared.rings);
        self.shared.publish(&opened);
        changed
    }

    /// Returns the names of selected events that this kernel does not have.
    #[must_use]
    pub fn missing(&self) -> Vec<String> {
        self.shared.omissions().missing.clone()
    }

    /// Returns how many threads of this user lack a file descriptor, in captures that watch each
    /// thread separately.
    #[must_use]
    pub fn left_out(&self) -> u64 {
        self.shared.omissions().left_out
    }

    /// Returns how many command lines, mappings, programs and tables were not read because reading
    /// them took too long.
    #[must_use]
    pub fn unread(&self) -> u64 {
        self.shared.omissions().unread
    }

    /// Requests another start rundown at the next poll.
    pub fn run_down(&self) {
        self.shared.is_rundown_due.store(true, Relaxed);
    }
}

impl Shared {
    /// Locks the table of open events.
    pub(crate) fn opened(&self) -> MutexGuard<'_, Opened> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn omissions(&self) -> MutexGuard<'_, Omissions> {
        self.omissions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Copies the query results from the table of open events.
    pub(crate) fn publish(&self, opened: &Opened) {
        let (missing, left_out) = (opened.missing.clone(), opened.targets.left_out());
        let mut omissions = self.omissions();
        (omissions.missing, omissions.left_out) = (missing, left_out);
    }

    /// Adds the number of reads that a poll gave up.
    pub(crate) fn add_unread(&self, count: u64) {
        let mut omissions = self.omissions();
        omissions.unread = omissions.unread.saturating_add(count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    #[test]
    fn queries_do_not_wait_for_a_poll() {
        let control = Control::new(&Wanted::default(), Vec::new());
        let mut held = control.shared.opened();
        held.missing = vec!["a:b".to_owned()];
        control.shared.publish(&held);
        let (sender, receiver) = channel();
        let clone = control.clone();
        std::thread::spawn(move || sender.send((clone.missing(), clone.left_out())));
        let answer = receiver.recv_timeout(Duration::from_secs(60));
        assert_eq!(answer, Ok((vec!["a:b".to_owned()], 0)), "while the table is locked");
        drop(held);
    }
}
