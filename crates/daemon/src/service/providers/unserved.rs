//! Processes that a session wants but for which no region could be created.
//!
//! ```text
//!   attach fails, or takes one of the last descriptors
//!        ├─▶ unserved ──tick, a second later──▶ attach … ─▶ Region, Enable
//!        └─ process counted in the session's uncounted_processes, since nothing counts its events
//! ```
//!
//! A controller that waits for its enable gets an error when the other processes have answered. The
//! enable stays in effect and is carried out when a region can be created.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::ProviderControl;
use crate::error::Refusal;
use crate::ids::LinkId;
use crate::log::log_client;
use crate::service::core::Core;

/// Delay before the next attempt to create regions.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// Maximum number of processes tried in one tick.
const MAX_PER_TICK: usize = 64;

/// Processes that wait for a region, with the session that the region is for.
#[derive(Debug, Default)]
pub(super) struct UnservedProcesses {
    waiting: BTreeSet<(LinkId, u64)>,
    next_attempt: Option<Instant>,
}

impl UnservedProcesses {
    /// Returns when the next attempt is due.
    pub(in crate::service) fn deadline(&self) -> Option<Instant> {
        self.next_attempt
    }
}

impl ProviderControl {
    /// Records that a process gets no region for a session.
    pub(in crate::service) fn add_unserved(
        &mut self,
        core: &mut Core,
        link: LinkId,
        session: u64,
        pid: u32,
        reason: &Refusal,
    ) {
        if !self.unserved.waiting.insert((link, session)) {
            return;
        }
        log_client!("process {pid} gets no region for session {session:#x}: {reason}");
        core.sessions.count_uncounted(session, link);
        self.unserved.next_attempt.get_or_insert(core.turn.now + RETRY_DELAY);
    }

    /// Retries up to [`MAX_PER_TICK`] processes, and stops at the first that gets no region.
    pub(in crate::service) fn retry_unserved(&mut self, core: &mut Core) {
        let now = core.turn.now;
        if self.unserved.next_attempt.is_none_or(|at| now < at) {
            return;
        }
        let batch: Vec<(LinkId, u64)> = self.unserved.waiting.iter().copied().take(MAX_PER_TICK).collect();
        for (link, session) in batch {
            if !self.enable_missing(core, link, session) {
                break;
            }
            self.unserved.waiting.remove(&(link, session));
        }
        self.unserved.next_attempt = (!self.unserved.waiting.is_empty()).then(|| now + RETRY_DELAY);
    }

    /// Enables the registrations that a session wants in a process, if any are left; returns
    /// `false` if there is still no region.
    fn enable_missing(&mut self, core: &mut Core, link: LinkId, session: u64) -> bool {
        let missing = self.registry.missing_registrations(link, session);
        let batches = self.registry.batch_by_params(link, &missing, session).into_iter();
        let mut batches = batches.filter_map(|(params, numbers)| Some((params?, numbers)));
        batches.all(|(params, numbers)| {
            self.enable_registrations(core, link, &numbers, session, params, 0).is_ok()
        })
    }
}
