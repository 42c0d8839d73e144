//! Enable callbacks: who calls them, when, and with what.
//!
//! ```text
//!   change of an entry ──▶ version += 1 ──▶ notify: take the turn; while version ≠ notified: notified = version, call
//! ```
//!
//! Invariants
//!
//! 1. Callbacks of one registration never overlap: whoever calls has its turn.
//! 2. Every change is followed by a call that shows the state after it; the state is read after the turn was taken, so calls arrive in order.
//! 3. While a thread registers, it alone calls: before it returns, on its own stack. The control thread looks at `registering` after the change
//!    and the registering thread looks for changes after it has cleared `registering`, both sequentially consistent: one of them calls.
//! 4. A turn held by a thread that a fork left behind in the parent counts as free.
//!
//! The callback gets one filter: the chain of all sessions' schematized filters, each with the bit of its session; where there is none, the filter of the
//! call that made the change whose type the provider defines. All filters of such types come along besides.
//!
//! A callback that panics is contained: the registration goes on.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use traceweir_format::Guid;
use traceweir_format::filter::{append_to_chain, is_of_provider};
use traceweir_format::spec::enable::EVENT_FILTER_TYPE_SCHEMATIZED as SCHEMATIZED;
use traceweir_transport::message::Filter;

use super::EnableNotice;
use super::enable::Combined;
use super::registration::Slot;
use crate::client::fork;

/// The right to call the callback of one registration.
pub(super) struct Turn {
    /// Serial number of the process (upper half) and id of the thread; 0 when nobody has it.
    owner: AtomicU64,
}

/// Gives the turn back.
pub(super) struct Taken<'a>(&'a Turn);

impl Turn {
    pub(super) const fn new() -> Self {
        Self { owner: AtomicU64::new(0) }
    }

    /// Waits for the turn; `None` when this thread has it already, that is inside the callback.
    pub(super) fn take(&self) -> Option<Taken<'_>> {
        let process = u64::from(fork::serial());
        let me = process << 32 | u64::from(fork::thread_id());
        loop {
            let owner = self.owner.load(Ordering::Relaxed);
            if owner == me {
                return None;
            }
            let free = owner == 0 || owner >> 32 != process;
            // Pairs with the release in `drop`: what the last caller did is seen.
            if free && self.owner.compare_exchange(owner, me, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                return Some(Taken(self));
            }
            if !free {
                // Rare (two threads at one registration) and as long as somebody's callback: no reason for a queue.
                std::thread::sleep(Duration::from_micros(200));
            }
        }
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.0.owner.store(0, Ordering::Release);
    }
}

/// The filter of a call whose type the provider defines, if there is one.
pub(crate) fn for_provider(filters: &[Filter]) -> Option<&Filter> {
    filters.iter().find(|f| is_of_provider(f.kind))
}

/// What a callback is told of filters.
#[derive(Debug, Default)]
struct Told {
    /// Schematized filters, one after the other.
    chain: Vec<u8>,
    last: usize,
    /// Filters of the provider's own types.
    own: Vec<(u32, Vec<u8>)>,
}

impl Told {
    /// Those of all sessions.
    fn of_sessions(slot: &Slot) -> Self {
        let mut told = Self::default();
        for (bit, filters) in slot.filters() {
            if let Some(filter) = filters.schematized() {
                told.add(&filter, bit);
            }
            told.own.extend(filters.own());
        }
        told
    }

    /// Those of one call of the session with this bit.
    fn of_call(filters: &[Filter], bit: u64) -> Self {
        let mut told = Self::default();
        for filter in filters {
            match filter.kind {
                SCHEMATIZED => told.add(&filter.data, bit),
                kind if is_of_provider(kind) => told.own.push((kind, filter.data.clone())),
                _ => {}
            }
        }
        told
    }

    fn add(&mut self, filter: &[u8], bit: u64) {
        append_to_chain(&mut self.chain, &mut self.last, filter, bit);
    }
}

impl Slot {
    /// Tells the callback what changed, unless the registering thread will.
    pub(crate) fn notify(&self, source: Guid, filter: Option<&Filter>) {
        if !self.registering.load(Ordering::SeqCst) {
            self.tell_changes(source, filter);
        }
    }

    /// The registering thread tells the callback what it finds, and hands over.
    pub(crate) fn registered(&self, filter: Option<&Filter>) {
        self.registering.store(false, Ordering::SeqCst);
        self.tell_changes(Guid::NULL, filter);
    }

    /// Takes the state as known to the callback: nothing changed for it.
    pub(crate) fn forget_changes(&self) {
        self.notified.store(self.version.load(Ordering::SeqCst), Ordering::Relaxed);
    }

    /// Whether its thread is still waiting for the daemons.
    pub(crate) fn is_registering(&self) -> bool {
        self.registering.load(Ordering::SeqCst)
    }

    /// In a forked child: the thread that was registering is not here, so the control thread calls from now on.
    pub(crate) fn abandon_registering(&self) {
        self.registering.store(false, Ordering::SeqCst);
    }

    fn tell_changes(&self, mut source: Guid, mut filter: Option<&Filter>) {
        let Some(_turn) = self.turn.take() else {
            // Inside the callback: the loop below, further up this stack, finds the change.
            return;
        };
        loop {
            let version = self.version.load(Ordering::SeqCst);
            if self.notified.swap(version, Ordering::Relaxed) == version {
                return;
            }
            let state = self.combined(u64::MAX);
            if state.is_some() || self.told_enabled.load(Ordering::Relaxed) {
                self.told_enabled.store(state.is_some(), Ordering::Relaxed);
                let off = Combined { level: 0, any: 0, all: 0 };
                let told = Told::of_sessions(self);
                self.call(source, u32::from(state.is_some()), state.unwrap_or(off), &told, filter);
            }
            (source, filter) = (Guid::NULL, None);
        }
    }

    /// Asks the callback to write the provider's state to the session with this bit, with the filters of the call that asks.
    pub(crate) fn capture_state(&self, source: Guid, wish: Combined, filters: &[Filter], bit: u64) {
        if let Some(_turn) = self.turn.take() {
            self.call(source, 2, wish, &Told::of_call(filters, bit), None);
        }
    }

    fn call(&self, source: Guid, code: u32, state: Combined, told: &Told, of_call: Option<&Filter>) {
        let own: Vec<(u32, &[u8])> = told.own.iter().map(|(kind, data)| (*kind, data.as_slice())).collect();
        let chain = (!told.chain.is_empty()).then_some((SCHEMATIZED, told.chain.as_slice()));
        let of_call = of_call.map(|filter| (filter.kind, filter.data.as_slice()));
        let notice = EnableNotice {
            source,
            code,
            level: state.level,
            match_any: state.any,
            match_all: state.all,
            filter: chain.or(of_call).or(own.first().copied()),
            own_filters: &own,
        };
        self.with_callback(|callback| {
            // A panic of the application's callback must not end the control thread, on which all providers of the process depend.
            let _ = catch_unwind(AssertUnwindSafe(|| callback(&notice)));
        });
    }
}
