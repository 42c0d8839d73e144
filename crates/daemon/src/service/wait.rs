//! Operations that wait for processes to acknowledge orders.
//!
//! ```text
//!   Process.awaited: order ─▶ wait        Waits: wait ─▶ { missing processes, deadline, purpose }, the processes, by deadline
//!
//!   Failed { order } ─▶ the wait that it counts for ─▶ failed(wait): what the asker is told in the end
//!   Ack { order } ─▶ all awaited up to it ─▶ arrived(wait) ─▶ the last one ─▶ purpose is carried out
//!   process gone  ─▶ all it is awaited for ─▶ arrived(wait)
//!   deadline      ─▶ expired(now) ─▶ purpose is carried out without the rest
//!   asker gone    ─▶ of(link) ─▶ given up
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use traceweir_session::SourceId;

use super::{Asker, LinkId};
use crate::error::Refusal;

/// What follows when a wait ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Tell the controller: done, or late.
    Answer(Asker),
    /// The session's processes write no more: stop it.
    Stop(u64),
    /// The process writes no more to this region: give it up.
    Detach(u64, SourceId),
}

#[derive(Debug)]
struct Wait {
    missing: usize,
    deadline: Option<Instant>,
    purpose: Purpose,
    failure: Option<Refusal>,
}

/// All waits.
#[derive(Debug, Default)]
pub(super) struct Waits {
    last: u64,
    all: BTreeMap<u64, Wait>,
    deadlines: BTreeSet<(Instant, u64)>,
    /// Waits for regions to be closed.
    closing: usize,
    /// By wait, those who are awaited, so that giving up looks at nobody else.
    links: BTreeMap<u64, Vec<LinkId>>,
}

impl Waits {
    /// A number for a wait to come.
    pub(super) fn next_id(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Begins a wait for so many processes (not zero); others have failed already where there is a failure.
    pub(super) fn begin(
        &mut self,
        id: u64,
        missing: usize,
        deadline: Option<Instant>,
        purpose: Purpose,
        failure: Option<Refusal>,
    ) {
        self.deadlines.extend(deadline.map(|at| (at, id)));
        self.closing += usize::from(matches!(purpose, Purpose::Detach(..)));
        self.all.insert(id, Wait { missing, deadline, purpose, failure });
    }

    /// Regions that are waiting to be closed.
    pub(super) fn closing(&self) -> usize {
        self.closing
    }

    /// A wait that has begun, or is about to, is for this process among others.
    pub(super) fn is_for(&mut self, id: u64, link: LinkId) {
        self.links.entry(id).or_default().push(link);
    }

    /// The processes that a wait is, or was, for.
    pub(super) fn links(&self, id: u64) -> &[LinkId] {
        self.links.get(&id).map_or(&[], Vec::as_slice)
    }

    /// A process could not do what the wait is for; the first one is told of.
    pub(super) fn failed(&mut self, id: u64, failure: Refusal) {
        if let Some(wait) = self.all.get_mut(&id) {
            wait.failure.get_or_insert(failure);
        }
    }

    /// Why a wait ends badly, if it does.
    pub(super) fn failure(&self, id: u64) -> Option<Refusal> {
        self.all.get(&id)?.failure.clone()
    }

    /// One process less is missing; what to do when it was the last.
    pub(super) fn arrived(&mut self, id: u64) -> Option<Purpose> {
        let wait = self.all.get_mut(&id)?;
        wait.missing = wait.missing.saturating_sub(1);
        if wait.missing > 0 {
            return None;
        }
        self.remove(id)
    }

    /// What a wait is for.
    pub(super) fn purpose(&self, id: u64) -> Option<Purpose> {
        self.all.get(&id).map(|wait| wait.purpose)
    }

    /// The waits whose time is up.
    pub(super) fn expired(&self, now: Instant) -> Vec<u64> {
        self.deadlines.range(..=(now, u64::MAX)).map(|(_, id)| *id).collect()
    }

    /// The waits that a connection wants an answer from.
    pub(super) fn of(&self, link: LinkId) -> Vec<u64> {
        self.matching(|wait| matches!(wait.purpose, Purpose::Answer(asker) if asker.link == link))
    }

    fn matching(&self, test: impl Fn(&Wait) -> bool) -> Vec<u64> {
        self.all.iter().filter(|(_, wait)| test(wait)).map(|(id, _)| *id).collect()
    }

    /// Takes a wait out; what it was for.
    pub(super) fn remove(&mut self, id: u64) -> Option<Purpose> {
        self.links.remove(&id);
        let wait = self.all.remove(&id)?;
        self.closing -= usize::from(matches!(wait.purpose, Purpose::Detach(..)));
        if let Some(at) = wait.deadline {
            self.deadlines.remove(&(at, id));
        }
        Some(wait.purpose)
    }

    /// The earliest deadline.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.deadlines.first().map(|(at, _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_wait_ends_with_the_last_process_or_its_deadline() {
        let mut waits = Waits::default();
        let now = Instant::now();
        let (a, b) = (waits.next_id(), waits.next_id());
        waits.begin(a, 2, None, Purpose::Stop(1), None);
        waits.begin(b, 1, Some(now + Duration::from_secs(5)), Purpose::Stop(2), None);
        assert_eq!(waits.arrived(a), None);
        assert_eq!(waits.arrived(a), Some(Purpose::Stop(1)));
        assert_eq!(waits.arrived(a), None, "over");
        assert_eq!(waits.expired(now), []);
        assert_eq!(waits.deadline(), Some(now + Duration::from_secs(5)));
        assert_eq!(waits.expired(now + Duration::from_secs(5)), [b]);
        assert_eq!(waits.remove(b), Some(Purpose::Stop(2)));
        assert_eq!(waits.deadline(), None);
        assert_eq!(waits.arrived(b), None, "too late");
        waits.begin(7, 2, None, Purpose::Detach(1, SourceId(1)), None);
        waits.is_for(7, 30);
        waits.is_for(7, 31);
        assert_eq!((waits.closing(), waits.links(7)), (1, &[30, 31][..]));
        assert_eq!(waits.remove(7), Some(Purpose::Detach(1, SourceId(1))));
        assert_eq!((waits.closing(), waits.links(7), waits.links(8)), (0, &[][..], &[][..]));
    }
}
