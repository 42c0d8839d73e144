//! The answers that callsites get: whether any session wants their events, while sessions come and
//! go.
//!
//! ```text
//!   a session enables or disables a provider ──▶ its callback ──▶ rebuild
//!     ──▶ each callsite: always or never; all of them: the most frequent level wanted
//!   any other question (a new callsite, another subscriber) ──▶ sometimes; every level
//! ```
//!
//! `tracing` stores the answer in each callsite, so that an unwanted one costs a load and a branch.
//! Two threads that ask and store at the same time may leave the older answer behind, and a wanted
//! event would not be written for as long as the session lasts. Hence
//!
//! 1. Only our own rebuilds get answers that may become wrong. Rebuilds run one at a time, and
//!    every change is followed by one.
//! 2. All others get answers that stay true: the state is checked again for each event, at the
//!    price of a call.
//! 3. A rebuild runs under the subscriber that the layer is part of: `tracing` asks the current one
//!    if it knows only one, and the callback thread has none. A layer that does not know its
//!    subscriber (it is inside a layer that does not pass that on) always answers as in 2.
//!
//! The first rebuild comes a second after the layer became part of a subscriber.
//!
//! ```text
//!   a layer becomes part of a subscriber ──▶ waits in the list     first in it: the thread starts
//!     ──▶ its time comes: rebuild, if it still exists              none left: the thread ends
//! ```
//!
//! 1. Until then the layer gives no level hint, because `tracing-subscriber` takes the one at the
//!    start as the permanent level of the `log` crate.
//! 2. One thread serves all layers of the process, however many subscribers a program makes and
//!    drops; the list has those that still exist.
//! 3. Without the thread, callsites stay correct and are a little slower.

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
use super::routes::Routes;

/// How long a thread waits for the rebuild of another, which may be waiting for this thread's
/// callback to end.
const REBUILD_TIMEOUT: Duration = Duration::from_secs(1);

thread_local! {
    /// This thread is rebuilding.
    static REBUILDING: Cell<bool> = const { Cell::new(false) };
}

/// The subscriber that a layer is part of.
#[derive(Debug, Default)]
pub(super) struct Home(Mutex<Option<WeakDispatch>>);

impl Home {
    /// Stores the subscriber that the layer became part of.
    pub(super) fn found(self: &Arc<Self>, dispatch: &Dispatch) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(dispatch.downgrade());
        schedule_first_rebuild(self);
    }

    fn dispatch(&self) -> Option<Dispatch> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).as_ref()?.upgrade()
    }

    fn is_known(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Makes all callsites ask again. On return they know of all changes before the call.
    pub(super) fn rebuild(&self) {
        static WANTED: AtomicU64 = AtomicU64::new(0);
        static TURN: Mutex<()> = Mutex::new(());
        WANTED.fetch_add(1, Ordering::SeqCst);
        // Inside a rebuild of this thread: the loop below, further up this stack, runs again.
        if REBUILDING.try_with(Cell::get).unwrap_or(true) || naming::is_naming() {
            return;
        }
        let Some(dispatch) = self.dispatch() else { return };
        let start = Instant::now();
        loop {
            match TURN.try_lock() {
                Ok(_turn) => {
                    let wanted = WANTED.load(Ordering::SeqCst);
                    let _rebuilding = Rebuilding::begin();
                    dispatcher::with_default(&dispatch, tracing_core::callsite::rebuild_interest_cache);
                    if WANTED.load(Ordering::SeqCst) == wanted {
                        return;
                    }
                }
                Err(TryLockError::Poisoned(_)) => TURN.clear_poison(),
                // The thread that holds the turn sees that another rebuild is wanted.
                Err(TryLockError::WouldBlock) if start.elapsed() > REBUILD_TIMEOUT => return,
                Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_micros(200)),
            }
        }
    }
}

/// The time from the start of a subscriber to the first rebuild.
const FIRST_REBUILD_DELAY: Duration = Duration::from_secs(1);

/// The layers that wait for their first rebuild.
struct Waiting {
    /// In the order of their times.
    homes: VecDeque<(Instant, Weak<Home>)>,
    /// The process whose thread serves them: a forked child has the list and not the thread.
    served_in: Option<u32>,
}

fn waiting() -> MutexGuard<'static, Waiting> {
    static WAITING: Mutex<Waiting> = Mutex::new(Waiting { homes: VecDeque::new(), served_in: None });
    WAITING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Schedules the first rebuild of a layer.
fn schedule_first_rebuild(home: &Arc<Home>) {
    let mut waiting = waiting();
    waiting.homes.retain(|(_, home)| home.strong_count() != 0);
    let now = Instant::now();
    waiting.homes.push_back((now.checked_add(FIRST_REBUILD_DELAY).unwrap_or(now), Arc::downgrade(home)));
    let here = Some(std::process::id());
    if waiting.served_in != here {
        let started =
            std::thread::Builder::new().name("traceweir-layer".to_owned()).spawn(run_first_rebuilds);
        waiting.served_in = started.ok().and(here);
    }
}

/// Runs the thread until no layer waits.
fn run_first_rebuilds() {
    while let Some((due, home)) = next_waiting() {
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        if let Some(home) = home.upgrade() {
            home.rebuild();
        }
    }
}

/// Returns the layer whose time comes first; with `None`, the thread ends.
fn next_waiting() -> Option<(Instant, Weak<Home>)> {
    let mut waiting = waiting();
    let next = waiting.homes.pop_front();
    if next.is_none() {
        waiting.served_in = None;
    }
    next
}

/// Marks a rebuild until drop, also if a subscriber panics in it.
struct Rebuilding;

impl Rebuilding {
    fn begin() -> Self {
        let _ = REBUILDING.try_with(|rebuilding| rebuilding.set(true));
        Self
    }
}

impl Drop for Rebuilding {
    fn drop(&mut self) {
        let _ = REBUILDING.try_with(|rebuilding| rebuilding.set(false));
    }
}

/// A filter that passes events and spans to an [`EtwLayer`](super::EtwLayer) if a session may want
/// them, by target, level and keyword.
///
/// It applies to its layer only: rejected events still reach other layers of the subscriber.
#[derive(Clone, Debug)]
pub struct EtwFilter {
    pub(super) routes: Arc<Routes>,
    pub(super) home: Arc<Home>,
}

impl EtwFilter {
    fn wants(&self, metadata: &Metadata<'_>) -> bool {
        self.routes.find(metadata.target()).is_some_and(|route| route.enabled(*metadata.level()))
    }

    /// Returns whether an answer may hold until the next rebuild.
    fn may_be_kept(&self) -> bool {
        REBUILDING.try_with(Cell::get).unwrap_or(false) && self.home.is_known()
    }
}

impl<S: Subscriber> Filter<S> for EtwFilter {
    fn callsite_enabled(&self, metadata: &'static Metadata<'static>) -> Interest {
        if !self.may_be_kept() || !self.routes.knows(metadata.target()) {
            return Interest::sometimes();
        }
        if self.wants(metadata) { Interest::always() } else { Interest::never() }
    }

    fn enabled(&self, metadata: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        self.wants(metadata)
    }

    /// Checks records of the `log` crate, whose target is known only now unless `enabled` was
    /// called before.
    fn event_enabled(&self, event: &Event<'_>, _: &Context<'_, S>) -> bool {
        event.normalized_metadata().is_none_or(|metadata| self.wants(&metadata))
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        if !self.may_be_kept() {
            return Some(LevelFilter::TRACE);
        }
        Some(self.routes.most_frequent().map_or(LevelFilter::OFF, LevelFilter::from_level))
    }
}
