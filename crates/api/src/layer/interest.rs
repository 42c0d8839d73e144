//! The answers that callsites get: whether any session wants their events, while sessions come and
//! go.
//!
//! ```text
//!   a session enables or disables a provider ──▶ its callback ──▶ rebuild
//!     ──▶ each callsite: always or never; all callsites: the most verbose level wanted
//!   any other question (a new callsite, another subscriber) ──▶ sometimes; every level
//! ```
//!
//! `tracing` stores the answer in each callsite: an unwanted callsite costs a load and a branch.
//! If two threads ask and store at the same time, the older answer may stay stored, and a wanted
//! event would not be written for as long as the session lasts. Hence:
//!
//! 1. Only rebuilds of this module get the answers always and never, which hold until the next
//!    rebuild. Rebuilds run one at a time, and a rebuild follows every change.
//! 2. All other requests get answers that stay true (sometimes, every level): the state is checked
//!    again for each event, at the price of a call.
//! 3. A rebuild runs under the subscriber that the layer is part of: `tracing` asks the current
//!    subscriber if it knows only one, and the callback thread has no current subscriber. If an
//!    enclosing layer does not forward `on_register_dispatch`, the layer does not know its
//!    subscriber and always answers as in 2.
//!
//! The first rebuild comes a second after the layer became part of a subscriber.
//!
//! ```text
//!   a layer becomes part of a subscriber ──▶ waits in the list     first in it: the thread starts
//!     ──▶ its time comes: rebuild, if it still exists              none left: the thread ends
//! ```
//!
//! 1. Until the first rebuild the level hint is TRACE, because `tracing-subscriber` takes the hint
//!    at the start as the permanent level of the `log` crate.
//! 2. One thread serves all layers of the process, however many subscribers a program makes and
//!    drops; the list contains the layers that still exist.
//! 3. If the thread cannot be started, callsites stay correct and are a little slower.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::time::{Duration, Instant};

use tracing_core::dispatcher::{self, Dispatch, WeakDispatch};
use tracing_core::subscriber::Interest;
use tracing_core::{Event, LevelFilter, Metadata, Subscriber};
use tracing_log::NormalizeEvent;
use tracing_subscriber::layer::{Context, Filter};

use super::naming;
use super::routes::LayerRoutes;

/// How long a thread waits for the rebuild of another, which may be waiting for this thread's
/// callback to end.
const REBUILD_TIMEOUT: Duration = Duration::from_secs(1);

thread_local! {
    /// This thread is rebuilding.
    static IS_REBUILDING: Cell<bool> = const { Cell::new(false) };
}

/// The dispatch of the subscriber that a layer is part of, once the layer knows it.
#[derive(Debug, Default)]
pub(super) struct LayerDispatch(Mutex<Option<WeakDispatch>>);

impl LayerDispatch {
    /// Stores the subscriber that the layer became part of.
    pub(super) fn set_dispatch(self: &Arc<Self>, dispatch: &Dispatch) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(dispatch.downgrade());
        schedule_first_rebuild(self);
    }

    fn dispatch(&self) -> Option<Dispatch> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).as_ref()?.upgrade()
    }

    fn is_known(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Makes all callsites ask again, so that their answers include all changes made before this
    /// call. If this thread is already rebuilding, that rebuild runs again instead. If another
    /// thread is, this call waits for at most [`REBUILD_TIMEOUT`], then leaves the rebuild to it.
    pub(super) fn rebuild(&self) {
        static REQUESTS: AtomicU64 = AtomicU64::new(0);
        static REBUILD_LOCK: Mutex<()> = Mutex::new(());
        REQUESTS.fetch_add(1, Ordering::SeqCst);
        // Inside a rebuild of this thread: the loop below, further up this stack, runs again. While
        // this thread names a provider, nothing needs a rebuild (`naming`, invariant 4).
        if IS_REBUILDING.try_with(Cell::get).unwrap_or(true) || naming::is_naming() {
            return;
        }
        let Some(dispatch) = self.dispatch() else { return };
        let start = Instant::now();
        loop {
            match REBUILD_LOCK.try_lock() {
                Ok(_lock) => {
                    let requests = REQUESTS.load(Ordering::SeqCst);
                    let _rebuilding = RebuildGuard::begin();
                    dispatcher::with_default(&dispatch, tracing_core::callsite::rebuild_interest_cache);
                    if REQUESTS.load(Ordering::SeqCst) == requests {
                        return;
                    }
                }
                Err(TryLockError::Poisoned(_)) => REBUILD_LOCK.clear_poison(),
                // The thread that holds the lock sees the request and rebuilds once more.
                Err(TryLockError::WouldBlock) if start.elapsed() > REBUILD_TIMEOUT => return,
                Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_micros(200)),
            }
        }
    }
}

/// The time from a layer becoming part of a subscriber to the first rebuild.
const FIRST_REBUILD_DELAY: Duration = Duration::from_secs(1);

/// The layers that wait for their first rebuild.
struct PendingFirstRebuilds {
    /// In the order of the times at which they are due.
    layers: VecDeque<(Instant, Weak<LayerDispatch>)>,
    /// The process whose thread serves them: a forked child has the list and not the thread.
    serving_process: Option<u32>,
}

fn lock_first_rebuilds() -> MutexGuard<'static, PendingFirstRebuilds> {
    static PENDING: Mutex<PendingFirstRebuilds> =
        Mutex::new(PendingFirstRebuilds { layers: VecDeque::new(), serving_process: None });
    PENDING.lock().unwrap_or_else(PoisonError::into_inner)
}

fn schedule_first_rebuild(layer: &Arc<LayerDispatch>) {
    let mut pending = lock_first_rebuilds();
    pending.layers.retain(|(_, layer)| layer.strong_count() != 0);
    let now = Instant::now();
    pending.layers.push_back((now.checked_add(FIRST_REBUILD_DELAY).unwrap_or(now), Arc::downgrade(layer)));
    let this_process = Some(std::process::id());
    if pending.serving_process != this_process {
        let started =
            std::thread::Builder::new().name("traceweir-layer".to_owned()).spawn(run_first_rebuilds);
        pending.serving_process = started.ok().and(this_process);
    }
}

/// Runs the first rebuilds as they become due, until no layer waits.
fn run_first_rebuilds() {
    while let Some((due, layer)) = next_pending() {
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        if let Some(layer) = layer.upgrade() {
            layer.rebuild();
        }
    }
}

/// Removes and returns the layer whose time comes first; with `None`, the thread ends.
fn next_pending() -> Option<(Instant, Weak<LayerDispatch>)> {
    let mut pending = lock_first_rebuilds();
    let next = pending.layers.pop_front();
    if next.is_none() {
        pending.serving_process = None;
    }
    next
}

/// Marks a rebuild until drop, even if a subscriber panics in it.
struct RebuildGuard;

impl RebuildGuard {
    fn begin() -> Self {
        let _ = IS_REBUILDING.try_with(|rebuilding| rebuilding.set(true));
        Self
    }
}

impl Drop for RebuildGuard {
    fn drop(&mut self) {
        let _ = IS_REBUILDING.try_with(|rebuilding| rebuilding.set(false));
    }
}

/// A filter that passes events and spans to an [`EtwLayer`](super::EtwLayer) if a session may want
/// them, by target, level and keyword.
///
/// It applies to its layer only: rejected events still reach other layers of the subscriber.
#[derive(Clone, Debug)]
pub struct EtwFilter {
    pub(super) routes: Arc<LayerRoutes>,
    pub(super) dispatch: Arc<LayerDispatch>,
}

impl EtwFilter {
    fn is_wanted(&self, metadata: &Metadata<'_>) -> bool {
        self.routes.find(metadata.target()).is_some_and(|route| route.is_enabled(*metadata.level()))
    }

    /// Returns whether an answer holds until the next rebuild.
    fn is_answer_final(&self) -> bool {
        IS_REBUILDING.try_with(Cell::get).unwrap_or(false) && self.dispatch.is_known()
    }
}

impl<S: Subscriber> Filter<S> for EtwFilter {
    fn callsite_enabled(&self, metadata: &'static Metadata<'static>) -> Interest {
        if !self.is_answer_final() || !self.routes.is_final(metadata.target()) {
            return Interest::sometimes();
        }
        if self.is_wanted(metadata) { Interest::always() } else { Interest::never() }
    }

    fn enabled(&self, metadata: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        self.is_wanted(metadata)
    }

    /// Checks records of the `log` crate. Their callsites have no target of their own; the target
    /// is a field of the event, and a bridge may not have called `enabled` with it.
    fn event_enabled(&self, event: &Event<'_>, _: &Context<'_, S>) -> bool {
        event.normalized_metadata().is_none_or(|metadata| self.is_wanted(&metadata))
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        if !self.is_answer_final() {
            return Some(LevelFilter::TRACE);
        }
        Some(self.routes.most_verbose_level().map_or(LevelFilter::OFF, LevelFilter::from_level))
    }
}
