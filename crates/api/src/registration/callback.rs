//! Enable callbacks: which thread calls them, when, and with which arguments.
//!
//! ```text
//!   change of an entry ──▶ version += 1 ──▶ notify: acquire the turn;
//!                                           while version ≠ notified: notified = version, call
//! ```
//!
//! Invariants
//!
//! 1. Callbacks of one registration never overlap: the calling thread holds the turn.
//! 2. Every change is followed by a call that reports the state after the change. The calling
//!    thread acquires the turn before it reads the state, so the reports are in order.
//! 3. While a thread registers, only that thread calls the callback, before the registration
//!    returns. The control thread reads `is_registering` after a change, and the registering thread
//!    checks for changes after it cleared `is_registering`, both sequentially consistent: at least
//!    one of them calls.
//! 4. A turn held by a thread that a fork left behind in the parent counts as free.
//!
//! The callback gets one filter, the first of these that exists:
//!
//! * the chain of all sessions' schematized filters, each with the bit of its session
//! * the filter of a provider-defined type in the request that made the change
//! * the first filter of a provider-defined type of any session
//!
//! It also gets all filters of provider-defined types.
//!
//! A panic in a callback is contained, and the registration continues.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use traceweir_format::Guid;
use traceweir_format::filter::{append_to_chain, is_of_provider};
use traceweir_format::spec::enable::{ControlCode, EVENT_FILTER_TYPE_SCHEMATIZED as SCHEMATIZED};
use traceweir_transport::message::{EnableParams, Filter};

use super::RegistrationSlot;
use super::enable::CombinedEnable;
use crate::enable_notice::EnableNotice;
use crate::process::{fork, thread};

/// The exclusive right to call the callback of one registration.
pub(crate) struct CallbackTurn {
    /// Serial number of the process (upper half) and id of the thread; 0 when the turn is free.
    owner: AtomicU64,
}

/// Releases the turn on drop.
pub(crate) struct TurnGuard<'a>(&'a CallbackTurn);

impl CallbackTurn {
    pub(crate) const fn new() -> Self {
        Self { owner: AtomicU64::new(0) }
    }

    /// Waits for the turn; `None` if this thread holds it already, which means inside the callback.
    pub(crate) fn acquire(&self) -> Option<TurnGuard<'_>> {
        let process = u64::from(fork::serial());
        let this_thread = process << 32 | u64::from(thread::thread_id());
        loop {
            let owner = self.owner.load(Ordering::Relaxed);
            if owner == this_thread {
                return None;
            }
            let is_free = owner == 0 || owner >> 32 != process;
            // Pairs with the release in `drop`: the effects of the last caller are visible.
            if is_free
                && self
                    .owner
                    .compare_exchange(owner, this_thread, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
            {
                return Some(TurnGuard(self));
            }
            if !is_free {
                // Two threads rarely compete for a turn, and each holds it for one callback: a queue
                // is not worth its cost.
                std::thread::sleep(Duration::from_micros(200));
            }
        }
    }
}

impl Drop for TurnGuard<'_> {
    fn drop(&mut self) {
        self.0.owner.store(0, Ordering::Release);
    }
}

/// Returns the first filter whose type the provider defines, if there is one.
pub(crate) fn provider_filter(filters: &[Filter]) -> Option<&Filter> {
    filters.iter().find(|f| is_of_provider(f.kind))
}

/// The filters that a callback gets.
#[derive(Debug, Default)]
struct CallbackFilters {
    /// Schematized filters, concatenated.
    chain: Vec<u8>,
    /// Offset of the last filter in `chain`.
    last_offset: usize,
    /// Filters whose types the provider defines.
    provider_defined: Vec<(u32, Vec<u8>)>,
}

impl CallbackFilters {
    fn collect_from_sessions(slot: &RegistrationSlot) -> Self {
        let mut collected = Self::default();
        for (bit, filters) in slot.session_filters() {
            if let Some(filter) = filters.schematized() {
                collected.append_schematized(&filter, bit);
            }
            collected.provider_defined.extend(filters.provider_defined());
        }
        collected
    }

    /// Collects the filters of one request of the session with this bit.
    fn collect_from_request(filters: &[Filter], bit: u64) -> Self {
        let mut collected = Self::default();
        for filter in filters {
            match filter.kind {
                SCHEMATIZED => collected.append_schematized(&filter.data, bit),
                kind if is_of_provider(kind) => collected.provider_defined.push((kind, filter.data.clone())),
                _ => {}
            }
        }
        collected
    }

    fn append_schematized(&mut self, filter: &[u8], bit: u64) {
        append_to_chain(&mut self.chain, &mut self.last_offset, filter, bit);
    }
}

impl RegistrationSlot {
    /// Reports a change to the callback, unless the registering thread is going to.
    pub(crate) fn notify(&self, source: Guid, filter: Option<&Filter>) {
        if !self.is_registering.load(Ordering::SeqCst) {
            self.report_changes(source, filter);
        }
    }

    /// Calls the callback on the registering thread and lets other threads call it from now on.
    pub(crate) fn finish_registering(&self, filter: Option<&Filter>) {
        self.is_registering.store(false, Ordering::SeqCst);
        self.report_changes(Guid::NULL, filter);
    }

    /// Marks the current state as reported to the callback.
    pub(crate) fn mark_changes_reported(&self) {
        self.notified.store(self.version.load(Ordering::SeqCst), Ordering::Relaxed);
    }

    /// Returns whether the registering thread is still in the registration call.
    pub(crate) fn is_registering(&self) -> bool {
        self.is_registering.load(Ordering::SeqCst)
    }

    /// Lets other threads call the callback in a forked child, where the registering thread does
    /// not exist.
    pub(crate) fn abandon_registering(&self) {
        self.is_registering.store(false, Ordering::SeqCst);
    }

    fn report_changes(&self, mut source: Guid, mut filter: Option<&Filter>) {
        let Some(_turn) = self.turn.acquire() else {
            // Inside the callback: the loop below, further up this stack, finds the change.
            return;
        };
        loop {
            let version = self.version.load(Ordering::SeqCst);
            if self.notified.swap(version, Ordering::Relaxed) == version {
                return;
            }
            let state = self.combine_enables(u64::MAX);
            if state.is_some() || self.has_reported_enabled.load(Ordering::Relaxed) {
                self.has_reported_enabled.store(state.is_some(), Ordering::Relaxed);
                let code = if state.is_some() { ControlCode::Enable } else { ControlCode::Disable };
                let disabled = CombinedEnable { level: 0, any: 0, all: 0 };
                let filters = CallbackFilters::collect_from_sessions(self);
                self.call_callback(source, code, state.unwrap_or(disabled), &filters, filter);
            }
            // Any further change comes from another request.
            (source, filter) = (Guid::NULL, None);
        }
    }

    /// Calls the callback to write the provider's state to the session of an outlet, with the level
    /// and masks of that session's enable (without one, those of the request) and the filters of
    /// the request.
    pub(crate) fn capture_state(&self, outlet: u8, params: &EnableParams) {
        let requested = CombinedEnable { level: params.level, any: params.match_any, all: params.match_all };
        let enable = self.find_enable(outlet);
        let state = enable.map_or(requested, |enable| CombinedEnable {
            level: enable.level,
            any: enable.any,
            all: enable.all,
        });
        self.send_tracked_module(outlet);
        if let Some(_turn) = self.turn.acquire() {
            let filters = CallbackFilters::collect_from_request(&params.filters, 1 << (outlet & 63));
            self.call_callback(params.source, ControlCode::CaptureState, state, &filters, None);
        }
    }

    fn call_callback(
        &self,
        source: Guid,
        code: ControlCode,
        state: CombinedEnable,
        filters: &CallbackFilters,
        request_filter: Option<&Filter>,
    ) {
        let provider_defined: Vec<(u32, &[u8])> =
            filters.provider_defined.iter().map(|(kind, data)| (*kind, data.as_slice())).collect();
        let chain = (!filters.chain.is_empty()).then_some((SCHEMATIZED, filters.chain.as_slice()));
        let request_filter = request_filter.map(|filter| (filter.kind, filter.data.as_slice()));
        let notice = EnableNotice {
            source,
            code: code.number(),
            level: state.level,
            match_any: state.any,
            match_all: state.all,
            filter: chain.or(request_filter).or(provider_defined.first().copied()),
            own_filters: &provider_defined,
        };
        self.call_callback_with(|callback| {
            // A panic of the application's callback must not end the calling thread: if it is one
            // of the library, all providers of the process depend on it.
            let _ = catch_unwind(AssertUnwindSafe(|| callback(&notice)));
        });
    }
}
