//! What is wanted of the kernel, and the handle by which that changes.
//!
//! ```text
//!   Wanted ──▶ Control ──▶ Opened: the perf events that give it ◀── Capture, at each look
//! ```
//!
//! 1. Whoever changes and whoever reads share the table under a lock. A look holds it from beginning to end, with the rundown in it, which may take seconds: a change
//!    waits for that, so it is made by a thread that may wait.
//! 2. What can be asked ([`Control::missing`], [`Control::left_out`], [`Control::unread`]) lies under a lock of its own, which is never held across anything: nobody waits for a look.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::counter::Counter;
use crate::error::Result;
use crate::family;
use crate::groups::Groups;
use crate::opened::Opened;
use crate::perf_ring::Event;

/// How often the timer samples from the start, in 100 ns.
const USUAL_INTERVAL: u32 = 10_000;

/// Whose events are captured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    /// Those of the whole machine; needs `CAP_PERFMON`, or a kernel that is not paranoid.
    #[default]
    Everything,
    /// Those of this user's own processes, as far as the kernel allows.
    Own,
}

/// What is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Groups of events.
    pub groups: Groups,
    /// Events whose stacks are wanted, by their hooks.
    pub stacks: Vec<u16>,
    /// Events whose registers are wanted, by their hooks.
    pub registers: Vec<u16>,
    /// How often the timer samples, in 100 ns.
    pub interval: u32,
    /// Sources that sample beside the timer, while `Group::PMC_PROFILE` is wanted: the first seven.
    pub profile_sources: Vec<Counter>,
    /// Counters that are read with the events in `counted`: the first seven.
    pub counters: Vec<Counter>,
    /// Events whose headers carry `counters`, by their hooks.
    pub counted: Vec<u16>,
    /// Bytes of the program's stack that come with each stack, to be unwound by its tables; 0: frame pointers alone.
    pub stack_bytes: u32,
    /// Whose events.
    pub scope: Scope,
    /// Bytes of each processor's ring.
    pub ring_bytes: usize,
    /// Bytes of ordinary memory that each ring is emptied into where the memory that may be locked limits rings.
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

/// Changes a capture from outside; any thread may.
#[derive(Clone, Debug)]
pub struct Control {
    pub(crate) shared: Arc<Shared>,
}

/// What a capture and its control have in common.
#[derive(Debug)]
pub(crate) struct Shared {
    opened: Mutex<Opened>,
    found: Mutex<Found>,
    /// The event of each processor's ring.
    pub(crate) rings: Vec<Arc<Event>>,
    /// Whether everything that is there is to be told again.
    pub(crate) is_rundown_due: AtomicBool,
}

/// What was found when events were opened last.
#[derive(Debug, Default)]
struct Found {
    missing: Vec<String>,
    left_out: u64,
    unread: u64,
}

impl Control {
    pub(crate) fn new(wanted: &Wanted, rings: Vec<Arc<Event>>) -> Self {
        let opened = Opened::nothing(wanted);
        let (opened, found, is_rundown_due) = (Mutex::new(opened), Mutex::default(), AtomicBool::new(false));
        Self { shared: Arc::new(Shared { opened, found, rings, is_rundown_due }) }
    }

    /// Wants something else from now on. Scope and rings stay as they were at the start.
    pub fn set(&self, wanted: &Wanted) -> Result<()> {
        family::prepare(wanted.groups);
        let mut opened = self.shared.opened();
        let changed = opened.change(wanted, &self.shared.rings);
        self.shared.tell(&opened);
        changed
    }

    /// Tracepoints that are wanted and that this kernel does not have.
    #[must_use]
    pub fn missing(&self) -> Vec<String> {
        self.shared.found().missing.clone()
    }

    /// Threads of this user that there were no descriptors for, where each is watched for itself.
    #[must_use]
    pub fn left_out(&self) -> u64 {
        self.shared.found().left_out
    }

    /// Arguments, mappings, programs and tables that were not read, because whoever keeps them took too long.
    #[must_use]
    pub fn unread(&self) -> u64 {
        self.shared.found().unread
    }

    /// Tells of everything that is there, at the next look.
    pub fn run_down(&self) {
        self.shared.is_rundown_due.store(true, Relaxed);
    }
}

impl Shared {
    pub(crate) fn opened(&self) -> MutexGuard<'_, Opened> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn found(&self) -> MutexGuard<'_, Found> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whoever asks is told this from now on.
    pub(crate) fn tell(&self, opened: &Opened) {
        let (missing, left_out) = (opened.missing.clone(), opened.targets.left_out());
        let mut found = self.found();
        (found.missing, found.left_out) = (missing, left_out);
    }

    /// So much was not read in a look.
    pub(crate) fn not_read(&self, more: u64) {
        let mut found = self.found();
        found.unread = found.unread.saturating_add(more);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    #[test]
    fn who_asks_does_not_wait_for_a_look() {
        let control = Control::new(&Wanted::default(), Vec::new());
        let mut looking = control.shared.opened();
        looking.missing = vec!["a:b".to_owned()];
        control.shared.tell(&looking);
        let (tell, told) = channel();
        let asking = control.clone();
        std::thread::spawn(move || tell.send((asking.missing(), asking.left_out())));
        let answer = told.recv_timeout(Duration::from_secs(60));
        assert_eq!(answer, Ok((vec!["a:b".to_owned()], 0)), "while the table is held");
        drop(looking);
    }
}
