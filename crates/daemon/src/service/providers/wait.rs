//! Operations that wait for processes to acknowledge orders.
//!
//! ```text
//!   ProviderProcess.awaited: order ─▶ wait
//!   Waits: wait ─▶ { number of missing processes, deadline, purpose }
//!
//!   Failed { order }     ─▶ the wait of that order ─▶ set_failure(wait): the reply reports it
//!   Ack { order }        ─▶ the waits of all orders up to it ─▶ acknowledge(wait)
//!                           ─▶ no process missing: the purpose is carried out
//!   process disconnected ─▶ all waits for it ─▶ acknowledge(wait)
//!   deadline             ─▶ expired_waits(now) ─▶ the purpose is carried out anyway
//!   controller gone      ─▶ waits_replying_to(link) ─▶ removed
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use traceweir_session::RegionId;

use crate::error::Refusal;
use crate::ids::{LinkId, ReplyTo};

/// The action that follows when a wait ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaitPurpose {
    /// Reply to the controller: done, failed, or timed out.
    Answer(ReplyTo),
    /// Reply to the controller: done, even after a failure or a timeout.
    Confirm(ReplyTo),
    /// Stop the session, since its processes no longer write.
    Stop(u64),
    /// Detach the region, since the process no longer writes to it.
    Detach(u64, RegionId),
}

#[derive(Debug)]
struct AcknowledgementWait {
    missing: usize,
    deadline: Option<Instant>,
    purpose: WaitPurpose,
    failure: Option<Refusal>,
}

/// All waits, by id and by deadline.
#[derive(Debug, Default)]
pub(super) struct Waits {
    last_id: u64,
    by_id: BTreeMap<u64, AcknowledgementWait>,
    deadlines: BTreeSet<(Instant, u64)>,
    /// Number of waits for regions to be closed.
    closing: usize,
    /// The awaited processes by wait, so that removing a wait touches no other process.
    links: BTreeMap<u64, Vec<LinkId>>,
}

impl Waits {
    pub(super) fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    /// Begins a wait for `missing` processes (not zero). `failure` is set if other processes have
    /// already failed.
    pub(super) fn begin(
        &mut self,
        id: u64,
        missing: usize,
        deadline: Option<Instant>,
        purpose: WaitPurpose,
        failure: Option<Refusal>,
    ) {
        self.deadlines.extend(deadline.map(|at| (at, id)));
        self.closing += usize::from(matches!(purpose, WaitPurpose::Detach(..)));
        self.by_id.insert(id, AcknowledgementWait { missing, deadline, purpose, failure });
    }

    /// Returns the number of regions that are waiting to be closed.
    pub(super) fn closing_count(&self) -> usize {
        self.closing
    }

    /// Adds a process to a wait that has begun or is about to.
    pub(super) fn add_link(&mut self, id: u64, link: LinkId) {
        self.links.entry(id).or_default().push(link);
    }

    /// Returns the processes that were added to a wait.
    pub(super) fn links(&self, id: u64) -> &[LinkId] {
        self.links.get(&id).map_or(&[], Vec::as_slice)
    }

    /// Records that a process could not carry out an order of the wait; the first failure is
    /// reported.
    pub(super) fn set_failure(&mut self, id: u64, failure: Refusal) {
        if let Some(wait) = self.by_id.get_mut(&id) {
            wait.failure.get_or_insert(failure);
        }
    }

    /// Returns the failure that the wait will end with, if any.
    pub(super) fn failure(&self, id: u64) -> Option<Refusal> {
        self.by_id.get(&id)?.failure.clone()
    }

    /// Counts one acknowledgement; returns the purpose if no acknowledgement is missing any more.
    pub(super) fn acknowledge(&mut self, id: u64) -> Option<WaitPurpose> {
        let wait = self.by_id.get_mut(&id)?;
        wait.missing = wait.missing.saturating_sub(1);
        if wait.missing > 0 {
            return None;
        }
        self.remove(id)
    }

    pub(super) fn purpose(&self, id: u64) -> Option<WaitPurpose> {
        self.by_id.get(&id).map(|wait| wait.purpose)
    }

    /// Returns the waits whose deadline has passed.
    pub(super) fn expired_waits(&self, now: Instant) -> Vec<u64> {
        self.deadlines.range(..=(now, u64::MAX)).map(|(_, id)| *id).collect()
    }

    /// Returns the waits whose reply goes to a connection.
    pub(super) fn waits_replying_to(&self, link: LinkId) -> Vec<u64> {
        let replies_to_link = |wait: &AcknowledgementWait| match wait.purpose {
            WaitPurpose::Answer(reply_to) | WaitPurpose::Confirm(reply_to) => reply_to.link == link,
            WaitPurpose::Stop(_) | WaitPurpose::Detach(..) => false,
        };
        self.by_id.iter().filter(|(_, wait)| replies_to_link(wait)).map(|(id, _)| *id).collect()
    }

    pub(super) fn remove(&mut self, id: u64) -> Option<WaitPurpose> {
        self.links.remove(&id);
        let wait = self.by_id.remove(&id)?;
        self.closing -= usize::from(matches!(wait.purpose, WaitPurpose::Detach(..)));
        if let Some(at) = wait.deadline {
            self.deadlines.remove(&(at, id));
        }
        Some(wait.purpose)
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.deadlines.first().map(|(at, _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn wait_ends_with_the_last_process_or_its_deadline() {
        let mut waits = Waits::default();
        let now = Instant::now();
        let (a, b) = (waits.next_id(), waits.next_id());
        waits.begin(a, 2, None, WaitPurpose::Stop(1), None);
        waits.begin(b, 1, Some(now + Duration::from_secs(5)), WaitPurpose::Stop(2), None);
        assert_eq!(waits.acknowledge(a), None);
        assert_eq!(waits.acknowledge(a), Some(WaitPurpose::Stop(1)));
        assert_eq!(waits.acknowledge(a), None, "the wait has ended");
        assert_eq!(waits.expired_waits(now), []);
        assert_eq!(waits.deadline(), Some(now + Duration::from_secs(5)));
        assert_eq!(waits.expired_waits(now + Duration::from_secs(5)), [b]);
        assert_eq!(waits.remove(b), Some(WaitPurpose::Stop(2)));
        assert_eq!(waits.deadline(), None);
        assert_eq!(waits.acknowledge(b), None, "the wait has expired");
        waits.begin(7, 2, None, WaitPurpose::Detach(1, RegionId(1)), None);
        waits.add_link(7, 30);
        waits.add_link(7, 31);
        assert_eq!((waits.closing_count(), waits.links(7)), (1, &[30, 31][..]));
        assert_eq!(waits.remove(7), Some(WaitPurpose::Detach(1, RegionId(1))));
        assert_eq!((waits.closing_count(), waits.links(7), waits.links(8)), (0, &[][..], &[][..]));
    }
}
