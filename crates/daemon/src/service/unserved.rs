//! Processes that a session wants, and for which there was no region to be had.
//!
//! ```text
//!   attach fails, or takes one of the last descriptors ─▶ unserved ──tick, a second later──▶ attach … ─▶ Region, Enable
//!        └─ counted as a process in the session's properties: what it writes is neither kept nor counted
//! ```
//!
//! A controller that waits for its enable is told at once; it stands, and is carried out when there is room.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::{LinkId, Service, told};
use crate::error::Refusal;

/// How long until it is tried again.
const AGAIN: Duration = Duration::from_secs(1);
/// Processes that are tried in one go.
const IN_ONE_GO: usize = 64;

/// Who waits for a region of which session.
#[derive(Debug, Default)]
pub(super) struct Unserved {
    all: BTreeSet<(LinkId, u64)>,
    again: Option<Instant>,
}

impl Unserved {
    /// When it is tried again.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.again
    }
}

impl Service {
    /// A process gets no region for a session.
    pub(super) fn turn_away(&mut self, link: LinkId, session: u64, pid: u32, why: &Refusal) {
        if !self.unserved.all.insert((link, session)) {
            return;
        }
        told!("process {pid} gets no region for session {session:#x}: {why}");
        self.sessions.count_uncounted(session, link);
        self.unserved.again.get_or_insert(Instant::now() + AGAIN);
    }

    /// Tries again, as far as there is room now.
    pub(super) fn serve_unserved(&mut self, now: Instant) {
        if self.unserved.again.is_none_or(|at| now < at) {
            return;
        }
        let some: Vec<(LinkId, u64)> = self.unserved.all.iter().copied().take(IN_ONE_GO).collect();
        for (link, session) in some {
            if !self.serve(link, session) {
                break;
            }
            self.unserved.all.remove(&(link, session));
        }
        self.unserved.again = (!self.unserved.all.is_empty()).then(|| now + AGAIN);
    }

    /// Enables what a session wants of a process; `false` when there is still no region. Nothing may be wanted any more.
    fn serve(&mut self, link: LinkId, session: u64) -> bool {
        let wanting = self.registry.wanting(link, session);
        let wishes = self.registry.wishes(link, &wanting, session).into_iter();
        let mut wishes = wishes.filter_map(|(wish, numbers)| Some((wish?, numbers)));
        wishes.all(|(wish, numbers)| self.switch_on(link, &numbers, session, wish, 0).is_ok())
    }
}
