//! Requests under way.
//!
//! ```text
//!   issue (dev, sector 100, 8 KiB)  ──▶ waits at 100
//!   complete (100, 4 KiB)           ──▶ a part: waits at 108 for the rest
//!   complete (108, 4 KiB)           ──▶ whole
//! ```
//!
//! 1. The kernel tells device and sector of a request, no identity: two equal requests at the same place are told apart by their order.
//! 2. The table is bounded: what never completes is forgotten with everything else when it is full.

use std::collections::HashMap;

use super::{Kind, SECTOR_SHIFT};

/// Requests that may be under way; disks have queues of hundreds.
const MAX_REQUESTS: usize = 1 << 16;
/// Splits whose parts have not been issued yet.
const MAX_PROMISED: usize = 1 << 12;
/// Equal requests at the same place that are told apart.
const MAX_EQUAL: u8 = 8;

/// What a request is known by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) dev: u32,
    pub(super) sector: u64,
    pub(super) kind: Kind,
}

/// A request under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request {
    /// The number that ties its events together.
    pub(super) irp: u64,
    /// Its first sector.
    pub(super) first: u64,
    pub(super) flags: u32,
    /// When it was issued, in nanoseconds.
    pub(super) issued: u64,
    /// The thread that issued it.
    pub(super) thread: u32,
    /// Bytes that are done.
    pub(super) done: u32,
    /// Bytes that are to be done still.
    left: u32,
    is_requeued: bool,
}

impl Request {
    pub(super) fn new(key: &Key, bytes: u32, flags: u32, issued: u64, thread: u32) -> Self {
        let first = key.sector;
        Self { irp: 0, first, flags, issued, thread, done: 0, left: bytes, is_requeued: false }
    }
}

/// What a completion means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Completed {
    /// All of it is done, or it failed.
    Whole(Request),
    /// The rest is still to come.
    Part,
    /// It was issued before anybody looked.
    Unknown,
}

/// All that are under way.
#[derive(Debug, Default)]
pub(super) struct Requests {
    under_way: HashMap<(Key, u8), Request>,
    /// Numbers of requests that will be issued at a place.
    promised: HashMap<(u32, u64), u64>,
    last_irp: u64,
}

impl Requests {
    /// A request goes to the driver; its number, or `None` where it has gone there before.
    pub(super) fn issue(&mut self, key: Key, request: Request) -> Option<u64> {
        if let Some(again) = self.find(&key, |it| it.is_requeued) {
            if let Some(known) = self.under_way.get_mut(&again) {
                known.is_requeued = false;
            }
            return None;
        }
        if self.under_way.len() >= MAX_REQUESTS {
            self.under_way.clear();
        }
        let irp = match self.promised.remove(&(key.dev, key.sector)) {
            Some(irp) if key.kind != Kind::Flush => irp,
            _ => self.next_irp(),
        };
        let place = (0..MAX_EQUAL).find(|nth| !self.under_way.contains_key(&(key, *nth))).unwrap_or(0);
        self.under_way.insert((key, place), Request { irp, ..request });
        Some(irp)
    }

    /// The driver gives it back for a while.
    pub(super) fn requeue(&mut self, key: &Key) {
        if let Some(place) = self.find(key, |it| !it.is_requeued)
            && let Some(request) = self.under_way.get_mut(&place)
        {
            request.is_requeued = true;
        }
    }

    /// So many bytes of it are done.
    pub(super) fn complete(&mut self, key: &Key, bytes: u32, is_failed: bool) -> Completed {
        let Some(mut request) =
            self.find(key, |it| !it.is_requeued).and_then(|place| self.under_way.remove(&place))
        else {
            return Completed::Unknown;
        };
        if !is_failed {
            request.done = request.done.saturating_add(bytes);
        }
        request.left = request.left.saturating_sub(bytes);
        // A failure ends it, however much is left; so does a completion that goes nowhere.
        if request.left == 0 || is_failed || bytes == 0 {
            return Completed::Whole(request);
        }
        let sector = key.sector.saturating_add(u64::from(bytes >> SECTOR_SHIFT));
        self.under_way.insert((Key { sector, ..*key }, MAX_EQUAL), request);
        Completed::Part
    }

    /// The number that a request gets which is to be issued at a place.
    pub(super) fn promise(&mut self, dev: u32, sector: u64) -> u64 {
        if let Some(irp) = self.promised.get(&(dev, sector)) {
            return *irp;
        }
        if self.promised.len() >= MAX_PROMISED {
            self.promised.clear();
        }
        let irp = self.next_irp();
        self.promised.insert((dev, sector), irp);
        irp
    }

    /// Forgets what is under way; numbers go on.
    pub(super) fn forget(&mut self) {
        self.under_way.clear();
        self.promised.clear();
    }

    fn next_irp(&mut self) -> u64 {
        self.last_irp = self.last_irp.wrapping_add(1);
        self.last_irp
    }

    /// The oldest of equal requests that is as it should be; a rest is older than any.
    fn find(&self, key: &Key, suits: impl Fn(&Request) -> bool) -> Option<(Key, u8)> {
        let there = |nth: u8| self.under_way.get(&(*key, nth)).filter(|it| suits(it)).map(|it| (it.irp, nth));
        let (_, nth) = (0..=MAX_EQUAL).filter_map(there).min()?;
        Some((*key, nth))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: Key = Key { dev: 1, sector: 100, kind: Kind::Write };

    fn request(bytes: u32, issued: u64) -> Request {
        Request::new(&KEY, bytes, 0, issued, 7)
    }

    fn whole(completed: Completed) -> Request {
        match completed {
            Completed::Whole(request) => request,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn parts_add_up_to_the_request() {
        let mut requests = Requests::default();
        let irp = requests.issue(KEY, request(8192, 5)).unwrap();
        assert_eq!(requests.complete(&KEY, 4096, false), Completed::Part);
        assert_eq!(requests.complete(&KEY, 4096, false), Completed::Unknown, "it waits elsewhere");
        let done = whole(requests.complete(&Key { sector: 108, ..KEY }, 4096, false));
        assert_eq!((done.irp, done.first, done.done, done.issued), (irp, 100, 8192, 5));
        assert!(requests.under_way.is_empty());
    }

    #[test]
    fn equal_requests_are_told_apart_by_their_order() {
        let mut requests = Requests::default();
        let first = requests.issue(KEY, request(512, 1)).unwrap();
        let second = requests.issue(KEY, request(512, 2)).unwrap();
        assert_ne!(first, second);
        assert_eq!(whole(requests.complete(&KEY, 512, false)).irp, first);
        let third = requests.issue(KEY, request(512, 3)).unwrap();
        assert_eq!(whole(requests.complete(&KEY, 512, false)).irp, second);
        assert_eq!(whole(requests.complete(&KEY, 512, false)).irp, third);
        assert_eq!(requests.complete(&KEY, 512, false), Completed::Unknown);
    }

    #[test]
    fn a_request_that_is_queued_again_is_the_same() {
        let mut requests = Requests::default();
        let irp = requests.issue(KEY, request(512, 1)).unwrap();
        requests.requeue(&KEY);
        assert_eq!(requests.issue(KEY, request(512, 9)), None);
        let done = whole(requests.complete(&KEY, 512, false));
        assert_eq!((done.irp, done.issued), (irp, 1));
    }

    #[test]
    fn a_failure_ends_a_request_and_has_moved_nothing() {
        let mut requests = Requests::default();
        requests.issue(KEY, request(8192, 1));
        assert_eq!(whole(requests.complete(&KEY, 4096, true)).done, 0);
        assert!(requests.under_way.is_empty());
    }

    #[test]
    fn parts_of_a_split_get_the_numbers_that_were_promised() {
        let mut requests = Requests::default();
        let (rest, first) = (requests.promise(1, 108), requests.promise(1, 100));
        assert_eq!(requests.issue(KEY, request(4096, 1)), Some(first));
        assert_eq!(requests.issue(Key { sector: 108, ..KEY }, request(4096, 1)), Some(rest));
        assert!(requests.promised.is_empty());
    }

    #[test]
    fn what_never_completes_does_not_pile_up() {
        let mut requests = Requests::default();
        for sector in 0..MAX_REQUESTS as u64 + 10 {
            requests.issue(Key { sector, ..KEY }, request(512, 1));
            requests.promise(1, sector);
        }
        assert!(requests.under_way.len() <= MAX_REQUESTS && requests.promised.len() <= MAX_PROMISED);
    }
}
