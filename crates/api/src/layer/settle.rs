//! The first rebuild of a layer: a second after it became part of a subscriber.
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

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use super::interest::Home;

/// The time from the start of a subscriber to the first rebuild.
const SETTLED: Duration = Duration::from_secs(1);

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
pub(super) fn later(home: &Arc<Home>) {
    let mut waiting = waiting();
    waiting.homes.retain(|(_, home)| home.strong_count() != 0);
    let now = Instant::now();
    waiting.homes.push_back((now.checked_add(SETTLED).unwrap_or(now), Arc::downgrade(home)));
    let here = Some(std::process::id());
    if waiting.served_in != here {
        let started = std::thread::Builder::new().name("traceweir-layer".to_owned()).spawn(serve);
        waiting.served_in = started.ok().and(here);
    }
}

/// Runs the thread until no layer waits.
fn serve() {
    while let Some((due, home)) = next() {
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        if let Some(home) = home.upgrade() {
            home.rebuild();
        }
    }
}

/// Returns the layer whose time comes first; with `None`, the thread ends.
fn next() -> Option<(Instant, Weak<Home>)> {
    let mut waiting = waiting();
    let next = waiting.homes.pop_front();
    if next.is_none() {
        waiting.served_in = None;
    }
    next
}
