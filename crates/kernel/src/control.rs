//! The handle that changes a running capture.
//!
//! ```text
//!   CaptureSettings ──▶ CaptureControl ──▶ OpenEvents: perf events ◀── Capture, at each poll
//! ```
//!
//! 1. The control and the capture share the table of open events under a lock. A poll holds the
//!    lock from beginning to end, including the rundown, which may take seconds. A change waits for
//!    the poll, so only threads that may block should make a change.
//! 2. The queries [`CaptureControl::missing_events`], [`CaptureControl::unwatched_targets`] and
//!    [`CaptureControl::abandoned_reads`] use a separate lock, which is held only to copy values:
//!    no query waits for a poll.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::Result;
use crate::families;
use crate::open_events::OpenEvents;
use crate::perf_ring::PerfEvent;
use crate::settings::CaptureSettings;

/// A handle that changes a running capture from any thread.
#[derive(Clone, Debug)]
pub struct CaptureControl {
    pub(crate) shared: Arc<SharedCapture>,
}

/// The state that a capture and its control share.
#[derive(Debug)]
pub(crate) struct SharedCapture {
    open_events: Mutex<OpenEvents>,
    omissions: Mutex<Omissions>,
    /// The event of each processor's ring.
    pub(crate) ring_events: Vec<Arc<PerfEvent>>,
    /// Whether the next poll writes another start rundown.
    pub(crate) is_rundown_due: AtomicBool,
}

/// The events, threads and reads that a capture leaves out, as the queries of [`CaptureControl`]
/// return them.
#[derive(Debug, Default)]
struct Omissions {
    missing_events: Vec<String>,
    unwatched_targets: u64,
    abandoned_reads: u64,
    unattributed_events: u64,
}

impl CaptureControl {
    pub(crate) fn new(settings: &CaptureSettings, ring_events: Vec<Arc<PerfEvent>>) -> Self {
        let shared = SharedCapture {
            open_events: Mutex::new(OpenEvents::new_empty(settings)),
            omissions: Mutex::default(),
            ring_events,
            is_rundown_due: AtomicBool::new(false),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Replaces the settings. The scope and the process trees must be those
    /// of the start; the ring size stays unchanged.
    pub fn set(&self, settings: &CaptureSettings) -> Result<()> {
        families::read_symbols(settings.groups);
        let mut open_events = self.shared.lock_events();
        let result = open_events.apply_settings(settings, &self.shared.ring_events);
        self.shared.publish(&open_events);
        result
    }

    /// Returns the names of selected events that this kernel does not have.
    #[must_use]
    pub fn missing_events(&self) -> Vec<String> {
        self.shared.lock_omissions().missing_events.clone()
    }

    /// Returns how many threads of this user, or events of such threads, are not watched for lack
    /// of resources, in captures that watch each thread separately.
    #[must_use]
    pub fn unwatched_targets(&self) -> u64 {
        self.shared.lock_omissions().unwatched_targets
    }

    /// Returns how many command lines, mappings, programs and tables were not read because reading
    /// them took too long.
    #[must_use]
    pub fn abandoned_reads(&self) -> u64 {
        self.shared.lock_omissions().abandoned_reads
    }

    /// Returns how many events were left out because their process is unknown, in captures that are
    /// restricted to process trees.
    #[must_use]
    pub fn unattributed_events(&self) -> u64 {
        self.shared.lock_omissions().unattributed_events
    }

    /// Requests another start rundown at the next poll.
    pub fn run_down(&self) {
        self.shared.is_rundown_due.store(true, Relaxed);
    }
}

impl SharedCapture {
    pub(crate) fn lock_events(&self) -> MutexGuard<'_, OpenEvents> {
        self.open_events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_omissions(&self) -> MutexGuard<'_, Omissions> {
        self.omissions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Copies the query results from the table of open events.
    pub(crate) fn publish(&self, open_events: &OpenEvents) {
        let (missing_events, unwatched_targets) =
            (open_events.missing.clone(), open_events.targets.unwatched_targets());
        let mut omissions = self.lock_omissions();
        (omissions.missing_events, omissions.unwatched_targets) = (missing_events, unwatched_targets);
    }

    /// Sets the number of events whose process is unknown.
    pub(crate) fn set_unattributed_events(&self, count: u64) {
        self.lock_omissions().unattributed_events = count;
    }

    /// Adds the number of reads that a poll gave up.
    pub(crate) fn add_abandoned_reads(&self, count: u64) {
        let mut omissions = self.lock_omissions();
        omissions.abandoned_reads = omissions.abandoned_reads.saturating_add(count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    #[test]
    fn queries_do_not_wait_for_a_poll() {
        let control = CaptureControl::new(&CaptureSettings::default(), Vec::new());
        let mut open_events = control.shared.lock_events();
        open_events.missing = vec!["a:b".to_owned()];
        control.shared.publish(&open_events);
        let (sender, receiver) = channel();
        let clone = control.clone();
        std::thread::spawn(move || sender.send((clone.missing_events(), clone.unwatched_targets())));
        let answer = receiver.recv_timeout(Duration::from_secs(60));
        assert_eq!(answer, Ok((vec!["a:b".to_owned()], 0)), "the queries wait for the locked table");
        drop(open_events);
    }
}
