//! The events that wait for one session.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use traceweir_kernel::now_ns;

use super::facts::StoredFacts;
use super::lock;
use crate::kernel::selection::Selection;

/// Maximum number of bytes that wait for one session.
const MAX_WAITING_BYTES: usize = 64 << 20;

/// A classic event that sessions select.
#[derive(Debug)]
pub(super) struct SharedEvent {
    /// `CLOCK_MONOTONIC` in nanoseconds.
    pub(super) time_ns: u64,
    pub(super) cpu: u16,
    pub(super) hook: u16,
    pub(super) facts: StoredFacts,
    pub(super) payload: Box<[u8]>,
    /// The addresses of the stack, innermost first, eight bytes each.
    pub(super) frames: Vec<u8>,
}

impl SharedEvent {
    fn cost_bytes(&self) -> usize {
        size_of::<Self>().saturating_add(self.payload.len()).saturating_add(self.frames.len())
    }
}

/// An event for a session, and the session's selection when the event was read.
#[derive(Clone, Debug)]
pub(super) struct QueuedEvent {
    pub(super) event: Arc<SharedEvent>,
    pub(super) selection: Arc<Selection>,
    pub(super) time_ns: u64,
}

/// Numbers of events that were lost; `all` includes `in_kernel`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Losses {
    pub(super) in_kernel: u64,
    pub(super) all: u64,
}

/// The events that wait for one session.
#[derive(Debug)]
pub(super) struct EventQueue {
    state: Mutex<QueueState>,
}

#[derive(Debug)]
struct QueueState {
    selection: Arc<Selection>,
    waiting: VecDeque<QueuedEvent>,
    waiting_bytes: usize,
    /// Earlier events are not taken. Events of a rundown may be earlier; they get this time.
    since_ns: u64,
    /// Losses of the capture before the session joined it.
    lost_before: Losses,
    lost: Losses,
    /// Events that did not fit into the queue or into a record.
    dropped: u64,
    takes_rundown: bool,
    has_ended: bool,
}

impl EventQueue {
    pub(super) fn new(selection: Selection) -> Self {
        let state = QueueState {
            selection: Arc::new(selection),
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            since_ns: now_ns(),
            lost_before: Losses::default(),
            lost: Losses::default(),
            dropped: 0,
            takes_rundown: false,
            has_ended: false,
        };
        Self { state: Mutex::new(state) }
    }

    pub(super) fn set_selection(&self, selection: Selection) {
        lock(&self.state).selection = Arc::new(selection);
    }

    /// Makes the session take events from now on.
    pub(super) fn begin(&self) {
        lock(&self.state).since_ns = now_ns();
    }

    /// Ends the queue: it takes no further event.
    pub(super) fn end(&self) {
        lock(&self.state).has_ended = true;
    }

    /// Returns whether the queue has ended and is empty.
    pub(super) fn is_finished(&self) -> bool {
        let state = lock(&self.state);
        state.has_ended && state.waiting.is_empty()
    }

    pub(super) fn request_rundown(&self) {
        lock(&self.state).takes_rundown = true;
    }

    pub(super) fn end_rundown(&self) {
        lock(&self.state).takes_rundown = false;
    }

    /// Returns whether the session may want events with a hook id.
    pub(super) fn selects(&self, hook: u16) -> bool {
        lock(&self.state).selects(hook)
    }

    /// Adds an event, if the session selects it.
    pub(super) fn offer(&self, event: &Arc<SharedEvent>) {
        let mut state = lock(&self.state);
        if !state.selects(event.hook) || event.time_ns < state.since_ns && !state.takes_rundown {
            return;
        }
        let bytes = state.waiting_bytes.saturating_add(event.cost_bytes());
        if bytes > MAX_WAITING_BYTES {
            state.dropped = state.dropped.saturating_add(1);
            return;
        }
        state.waiting_bytes = bytes;
        let (selection, time_ns) = (Arc::clone(&state.selection), event.time_ns.max(state.since_ns));
        state.waiting.push_back(QueuedEvent { event: Arc::clone(event), selection, time_ns });
    }

    /// Removes and returns all waiting events.
    pub(super) fn take_waiting(&self) -> VecDeque<QueuedEvent> {
        let mut state = lock(&self.state);
        state.waiting_bytes = 0;
        std::mem::take(&mut state.waiting)
    }

    pub(super) fn set_lost_before(&self, losses: Losses) {
        let mut state = lock(&self.state);
        state.lost_before = losses;
        state.lost = state.lost_before;
    }

    pub(super) fn set_lost(&self, losses: Losses) {
        lock(&self.state).lost = losses;
    }

    pub(super) fn count_dropped(&self) {
        let mut state = lock(&self.state);
        state.dropped = state.dropped.saturating_add(1);
    }

    /// Returns the losses since the session joined the capture.
    pub(super) fn losses(&self) -> Losses {
        let state = lock(&self.state);
        let in_kernel = state.lost.in_kernel.saturating_sub(state.lost_before.in_kernel);
        let all = state.lost.all.saturating_sub(state.lost_before.all).saturating_add(state.dropped);
        Losses { in_kernel, all }
    }
}

impl QueueState {
    fn selects(&self, hook: u16) -> bool {
        let mut selected = self.selection.events_of_hook(hook).iter();
        !self.has_ended && selected.any(|selected| self.takes_rundown || !selected.event.is_rundown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use traceweir_format::kernel::hook;
    use traceweir_format::kernel::providers::KERNEL_PROCESS;
    use traceweir_transport::message::EnableParams;

    fn process_queue() -> EventQueue {
        EventQueue::new(Selection::new(&BTreeMap::from([(KERNEL_PROCESS, EnableParams::default())])))
    }

    fn event(hook: u16, time_ns: u64, bytes: usize) -> Arc<SharedEvent> {
        let (payload, frames) = (vec![0; bytes].into(), Vec::new());
        Arc::new(SharedEvent { time_ns, cpu: 0, hook, facts: StoredFacts::default(), payload, frames })
    }

    #[test]
    fn only_selected_events_since_the_begin_are_queued() {
        let queue = process_queue();
        queue.begin();
        let later = now_ns() + 1_000_000;
        queue.offer(&event(hook::PROCESS_START, 1, 8));
        queue.offer(&event(hook::FILE_READ, later, 8));
        queue.offer(&event(hook::PROCESS_DC_START, later, 8));
        assert!(queue.take_waiting().is_empty());
        queue.offer(&event(hook::PROCESS_START, later, 8));
        assert_eq!(queue.take_waiting().len(), 1);
        queue.request_rundown();
        queue.offer(&event(hook::PROCESS_DC_START, 1, 8));
        queue.end_rundown();
        queue.offer(&event(hook::PROCESS_DC_START, later, 8));
        let waiting = queue.take_waiting();
        assert_eq!(waiting.len(), 1, "a rundown comes only on request");
        assert!(waiting[0].time_ns > 1, "an event is older than the session's interest");
        queue.offer(&event(hook::PROCESS_END, later, 8));
        queue.end();
        queue.offer(&event(hook::PROCESS_END, later, 8));
        assert!(!queue.is_finished());
        assert_eq!(queue.take_waiting().len(), 1);
        assert!(queue.is_finished());
    }

    #[test]
    fn queue_is_bounded_and_counts_losses_since_it_joined() {
        let queue = process_queue();
        queue.set_lost_before(Losses { in_kernel: 10, all: 12 });
        let large = event(hook::PROCESS_START, u64::MAX, 1 << 20);
        (0..70).for_each(|_| queue.offer(&large));
        queue.set_lost(Losses { in_kernel: 11, all: 15 });
        let waiting = queue.take_waiting().len();
        // Each of these events takes slightly more than 1 MiB, so only 63 fit into 64 MiB.
        assert_eq!(waiting, 63);
        assert_eq!(queue.losses(), Losses { in_kernel: 1, all: 3 + 7 });
        queue.offer(&large);
        assert_eq!(queue.take_waiting().len(), 1, "the taken events count no longer");
    }
}
