//! The answers that callsites get: whether any session wants their events, while sessions come and
//! go.
//!
//! ```text
//!   a session enables or disables a provider ──▶ its callback ──▶ rebuild
//!     ──▶ each callsite: always or never; all callsites: the most verbose level wanted
//!   any other question (a new callsite, another subscriber) ──▶ sometimes; every level
//! ```
//!
//! `tracing` stores the answer in each callsite, so that an unwanted one costs a load and a branch.
//! If two threads ask and store at the same time, the older answer may stay stored, and a wanted
//! event would not be written for as long as the session lasts. Hence:
//!
//! 1. Only rebuilds of this module get final answers, which may become wrong. Rebuilds run one at a
//!    time, and a rebuild follows every change.
//! 2. All other requests get answers that stay true: the state is checked again for each event, at
//!    the price of a call.
//! 3. A rebuild runs under the subscriber that the layer is part of: `tracing` asks the current
//!    subscriber if it knows only one, and the callback thread has no current subscriber. A layer
//!    whose enclosing layer does not pass the subscriber on always answers as in 2.
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

/// The subscriber that a layer is part of.
#[derive(Debug, Default)]
pub(super) struct LayerSubscriber(Mutex<Option<WeakDispatch>>);

impl LayerSubscriber {
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

    /// Makes all callsites ask again, so that they learn of all changes before the call. If another
    /// thread, or this one further up its stack, is rebuilding, that rebuild runs again instead.
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

/// The time from the start of a subscriber to the first rebuild.
const FIRST_REBUILD_DELAY: Duration = Duration::from_secs(1);

/// The layers that wait for their first rebuild.
struct PendingFirstRebuilds {
    /// In the order of the times at which they are due.
    subscribers: VecDeque<(Instant, Weak<LayerSubscriber>)>,
    /// The process whose thread serves them: a forked child has the list and not the thread.
    serving_process: Option<u32>,
}

fn lock_first_rebuilds() -> MutexGuard<'static, PendingFirstRebuilds> {
    static PENDING: Mutex<PendingFirstRebuilds> =
        Mutex::new(PendingFirstRebuilds { subscribers: VecDeque::new(), serving_process: None });
    PENDING.lock().unwrap_or_else(PoisonError::into_inner)
}

fn schedule_first_rebuild(subscriber: &Arc<LayerSubscriber>) {
    let mut pending = lock_first_rebuilds();
    pending.subscribers.retain(|(_, subscriber)| subscriber.strong_count() != 0);
    let now = Instant::now();
    pending
        .subscribers
        .push_back((now.checked_add(FIRST_REBUILD_DELAY).unwrap_or(now), Arc::downgrade(subscriber)));
    let this_process = Some(std::process::id());
    if pending.serving_process != this_process {
        let started =
            std::thread::Builder::new().name("traceweir-layer".to_owned()).spawn(run_first_rebuilds);
        pending.serving_process = started.ok().and(this_process);
    }
}

/// Runs the first rebuilds as they become due, until no layer waits.
fn run_first_rebuilds() {
    while let Some((due, subscriber)) = next_pending() {
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        if let Some(subscriber) = subscriber.upgrade() {
            subscriber.rebuild();
        }
    }
}

/// Removes and returns the layer whose time comes first; with `None`, the thread ends.
fn next_pending() -> Option<(Instant, Weak<LayerSubscriber>)> {
    let mut pending = lock_first_rebuilds();
    let next = pending.subscribers.pop_front();
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
    pub(super) subscriber: Arc<LayerSubscriber>,
}

impl EtwFilter {
    fn is_wanted(&self, metadata: &Metadata<'_>) -> bool {
        self.routes.find(metadata.target()).is_some_and(|route| route.is_enabled(*metadata.level()))
    }

    /// Returns whether an answer may hold until the next rebuild.
    fn is_answer_final(&self) -> bool {
        IS_REBUILDING.try_with(Cell::get).unwrap_or(false) && self.subscriber.is_known()
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

    /// Checks records of the `log` crate, whose target is known only now unless `enabled` was
    /// called before.
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
