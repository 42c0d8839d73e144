//! What callsites are told: whether anybody wants what they have to say, now that sessions come and go.
//!
//! ```text
//!   a session enables or disables a provider ──▶ its callback ──▶ rebuild ──▶ each callsite: always or never; all of them: the most frequent level wanted
//!   anybody else asks (a callsite that is new, another subscriber) ──▶ sometimes; every level
//! ```
//!
//! `tracing` keeps what it was told in each callsite, so that one that nobody wants costs a load and a branch. Two threads that ask and store at the same time may
//! leave the older answer behind, and an event that should be written would not be, for as long as the session lasts. Hence
//!
//! 1. Only a rebuild of our own gets answers that may be wrong later. Rebuilds run one at a time, and every change is followed by one.
//! 2. Everybody else gets answers that stay true: the state is looked at again for each event, at the price of a call.
//! 3. A rebuild runs under the subscriber that the layer is part of: `tracing` asks the current one where it knows of one only, and on the thread that runs
//!    callbacks there is none. A layer that does not know its subscriber (it lies in a layer that does not pass that on) always answers as in 2.
//!
//! The first rebuild comes a second after the layer became part of a subscriber (`settle`).

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use tracing_core::dispatcher::{self, Dispatch, WeakDispatch};
use tracing_core::subscriber::Interest;
use tracing_core::{Event, LevelFilter, Metadata, Subscriber};
use tracing_log::NormalizeEvent;
use tracing_subscriber::layer::{Context, Filter};

use super::routes::Routes;
use super::{naming, settle};

/// How long a thread waits for the rebuild of another, which may be waiting for this thread's callback to end.
const PATIENCE: Duration = Duration::from_secs(1);

thread_local! {
    /// This thread is rebuilding.
    static REBUILDING: Cell<bool> = const { Cell::new(false) };
}

/// The subscriber that a layer is part of.
#[derive(Debug, Default)]
pub(super) struct Home(Mutex<Option<WeakDispatch>>);

impl Home {
    /// The layer became part of a subscriber.
    pub(super) fn found(self: &Arc<Self>, dispatch: &Dispatch) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(dispatch.downgrade());
        settle::later(self);
    }

    fn dispatch(&self) -> Option<Dispatch> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).as_ref()?.upgrade()
    }

    fn is_known(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Has all callsites ask again. When it returns, what changed before it was called is known to them.
    pub(super) fn rebuild(&self) {
        static WANTED: AtomicU64 = AtomicU64::new(0);
        static TURN: Mutex<()> = Mutex::new(());
        WANTED.fetch_add(1, Ordering::SeqCst);
        // Inside a rebuild of this thread: the loop below, further up this stack, goes round again.
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
                // Whoever has the turn sees that another one is wanted.
                Err(TryLockError::WouldBlock) if start.elapsed() > PATIENCE => return,
                Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_micros(200)),
            }
        }
    }
}

/// Ends with the rebuild, also where somebody's subscriber panics in it.
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

/// Lets those events and spans pass to an [`EtwLayer`](super::EtwLayer) that a session may want, by target, level and keyword.
///
/// It decides for its layer only: what it keeps back still reaches other layers of the subscriber.
#[derive(Clone, Debug)]
pub struct EtwFilter {
    pub(super) routes: Arc<Routes>,
    pub(super) home: Arc<Home>,
}

impl EtwFilter {
    fn wants(&self, metadata: &Metadata<'_>) -> bool {
        self.routes.find(metadata.target()).is_some_and(|route| route.enabled(*metadata.level()))
    }

    /// Whether an answer may hold until the next rebuild.
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

    /// For records of the `log` crate, whose target is known only now to those who did not ask before.
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
