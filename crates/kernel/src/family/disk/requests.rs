//! Requests that are issued and not completed.
//!
//! ```text
//!   issue (dev, sector 100, 8 KiB)  ──▶ pending at 100
//!   complete (100, 4 KiB)           ──▶ partial: pending at 108 for the rest
//!   complete (108, 4 KiB)           ──▶ done
//! ```
//!
//! 1. The kernel reports device and sector of a request, but no identity. Equal requests at the
//!    same sector complete in the order of their issue.
//! 2. The table is bounded: when it is full it is emptied, and requests that never complete go with
//!    the others.

use std::collections::HashMap;

/// The block layer counts in sectors of 512 bytes, whatever the sector size of the disk.
pub(super) const SECTOR_SHIFT: u32 = 9;

/// The kinds of requests that have events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum RequestKind {
    Read,
    Write,
    Flush,
}

impl RequestKind {
    /// Parses `rwbs`. Returns the kind, and whether the request is synchronous.
    pub(super) fn parse(rwbs: &[u8]) -> Option<(Self, bool)> {
        let (first, rest) = rwbs.split_first()?;
        // The first F is a flush before another operation; a plain flush may have the letter twice.
        let (first, rest) = match rest.split_first() {
            Some((next @ (b'R' | b'W' | b'D' | b'F' | b'N' | b'Z'), rest)) if *first == b'F' => (next, rest),
            _ => (first, rest),
        };
        let kind = match (first, rest.first()) {
            (b'R', _) => Self::Read,
            // Zone append: a write at the end of a zone.
            (b'W', _) | (b'Z', Some(b'A')) => Self::Write,
            (b'F', _) => Self::Flush,
            _ => return None,
        };
        Some((kind, rest.contains(&b'S')))
    }
}

/// The most pending requests; disks have queues of hundreds.
const MAX_REQUESTS: usize = 1 << 16;
/// The most splits whose parts have not been issued yet.
const MAX_RESERVED: usize = 1 << 12;
/// The most equal requests at one sector that are kept apart.
const MAX_EQUAL: u8 = 8;

/// Device, sector and kind, by which issue and completion are matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct RequestKey {
    pub(super) dev: u32,
    pub(super) sector: u64,
    pub(super) kind: RequestKind,
}

/// A request that is issued and not completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request {
    /// The number that its events have in common.
    pub(super) irp: u64,
    pub(super) first: u64,
    pub(super) flags: u32,
    /// When it was issued, in nanoseconds.
    pub(super) issued: u64,
    /// The thread that issued it.
    pub(super) thread: u32,
    /// Bytes that are completed.
    pub(super) done: u32,
    /// Bytes that are not completed yet.
    left: u32,
    is_requeued: bool,
}

impl Request {
    pub(super) fn new(key: &RequestKey, bytes: u32, flags: u32, issued: u64, thread: u32) -> Self {
        let first = key.sector;
        Self { irp: 0, first, flags, issued, thread, done: 0, left: bytes, is_requeued: false }
    }
}

/// The result of a completion record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Completion {
    /// The whole request is completed, or has failed.
    Done(Request),
    /// A part is completed; the rest is pending.
    Partial,
    /// The request was issued before the capture.
    Unknown,
}

/// All pending requests.
#[derive(Debug, Default)]
pub(super) struct Requests {
    pending: HashMap<(RequestKey, u8), Request>,
    /// Numbers for the parts of a split, by device and sector at which they will be issued.
    reserved: HashMap<(u32, u64), u64>,
    last_irp: u64,
}

impl Requests {
    /// Adds a request that is issued to the driver. Returns its number, or `None` if it was issued
    /// before and requeued.
    pub(super) fn issue(&mut self, key: RequestKey, request: Request) -> Option<u64> {
        if let Some(again) = self.find(&key, |request| request.is_requeued) {
            if let Some(known) = self.pending.get_mut(&again) {
                known.is_requeued = false;
            }
            return None;
        }
        if self.pending.len() >= MAX_REQUESTS {
            self.pending.clear();
        }
        let irp = match self.reserved.remove(&(key.dev, key.sector)) {
            Some(irp) if key.kind != RequestKind::Flush => irp,
            _ => self.next_irp(),
        };
        let index = (0..MAX_EQUAL).find(|nth| !self.pending.contains_key(&(key, *nth))).unwrap_or(0);
        self.pending.insert((key, index), Request { irp, ..request });
        Some(irp)
    }

    /// Marks a request that the driver returned to the queue.
    pub(super) fn requeue(&mut self, key: &RequestKey) {
        if let Some(slot) = self.find(key, |request| !request.is_requeued)
            && let Some(request) = self.pending.get_mut(&slot)
        {
            request.is_requeued = true;
        }
    }

    /// Handles the completion of `bytes` bytes of a request.
    pub(super) fn complete(&mut self, key: &RequestKey, bytes: u32, is_failed: bool) -> Completion {
        let slot = self.find(key, |request| !request.is_requeued);
        let Some(mut request) = slot.and_then(|slot| self.pending.remove(&slot)) else {
            return Completion::Unknown;
        };
        if !is_failed {
            request.done = request.done.saturating_add(bytes);
        }
        request.left = request.left.saturating_sub(bytes);
        // A failure ends the request, whatever is left; so does a completion of 0 bytes.
        if request.left == 0 || is_failed || bytes == 0 {
            return Completion::Done(request);
        }
        let sector = key.sector.saturating_add(u64::from(bytes >> SECTOR_SHIFT));
        self.pending.insert((RequestKey { sector, ..*key }, MAX_EQUAL), request);
        Completion::Partial
    }

    /// Returns the number that the request issued next at this sector will get.
    pub(super) fn reserve_irp(&mut self, dev: u32, sector: u64) -> u64 {
        if let Some(irp) = self.reserved.get(&(dev, sector)) {
            return *irp;
        }
        if self.reserved.len() >= MAX_RESERVED {
            self.reserved.clear();
        }
        let irp = self.next_irp();
        self.reserved.insert((dev, sector), irp);
        irp
    }

    /// Drops all pending requests; numbers go on.
    pub(super) fn clear(&mut self) {
        self.pending.clear();
        self.reserved.clear();
    }

    fn next_irp(&mut self) -> u64 {
        self.last_irp = self.last_irp.wrapping_add(1);
        self.last_irp
    }

    /// Finds the oldest of equal requests for which `matches` is true; the rest of a partly
    /// completed one is older than any.
    fn find(&self, key: &RequestKey, matches: impl Fn(&Request) -> bool) -> Option<(RequestKey, u8)> {
        let candidate = |nth: u8| {
            let request = self.pending.get(&(*key, nth)).filter(|request| matches(request))?;
            Some((request.irp, nth))
        };
        let (_, nth) = (0..=MAX_EQUAL).filter_map(candidate).min()?;
        Some((*key, nth))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rwbs_gives_kind_and_synchrony() {
        let kind = |text: &str| RequestKind::parse(text.as_bytes());
        assert_eq!(kind("R"), Some((RequestKind::Read, false)));
        assert_eq!(kind("RA"), Some((RequestKind::Read, false)));
        assert_eq!(kind("RSM"), Some((RequestKind::Read, true)));
        assert_eq!(kind("WS"), Some((RequestKind::Write, true)));
        assert_eq!(kind("FWFSM"), Some((RequestKind::Write, true)));
        assert_eq!(kind("F"), Some((RequestKind::Flush, false)));
        assert_eq!(kind("FF"), Some((RequestKind::Flush, false)));
        assert_eq!(kind("FS"), Some((RequestKind::Flush, true)));
        assert_eq!(kind("ZA"), Some((RequestKind::Write, false)));
        for other in ["", "D", "DE", "DS", "FD", "N", "NS", "ZR", "?"] {
            assert_eq!(kind(other), None, "{other}");
        }
    }

    const KEY: RequestKey = RequestKey { dev: 1, sector: 100, kind: RequestKind::Write };

    fn request(bytes: u32, issued: u64) -> Request {
        Request::new(&KEY, bytes, 0, issued, 7)
    }

    fn expect_done(completion: Completion) -> Request {
        match completion {
            Completion::Done(request) => request,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn partial_completions_add_up() {
        let mut requests = Requests::default();
        let irp = requests.issue(KEY, request(8192, 5)).unwrap();
        assert_eq!(requests.complete(&KEY, 4096, false), Completion::Partial);
        assert_eq!(
            requests.complete(&KEY, 4096, false),
            Completion::Unknown,
            "the rest is at another sector"
        );
        let done = expect_done(requests.complete(&RequestKey { sector: 108, ..KEY }, 4096, false));
        assert_eq!((done.irp, done.first, done.done, done.issued), (irp, 100, 8192, 5));
        assert!(requests.pending.is_empty());
    }

    #[test]
    fn equal_requests_complete_in_order() {
        let mut requests = Requests::default();
        let first = requests.issue(KEY, request(512, 1)).unwrap();
        let second = requests.issue(KEY, request(512, 2)).unwrap();
        assert_ne!(first, second);
        assert_eq!(expect_done(requests.complete(&KEY, 512, false)).irp, first);
        let third = requests.issue(KEY, request(512, 3)).unwrap();
        assert_eq!(expect_done(requests.complete(&KEY, 512, false)).irp, second);
        assert_eq!(expect_done(requests.complete(&KEY, 512, false)).irp, third);
        assert_eq!(requests.complete(&KEY, 512, false), Completion::Unknown);
    }

    #[test]
    fn requeued_request_keeps_its_number() {
        let mut requests = Requests::default();
        let irp = requests.issue(KEY, request(512, 1)).unwrap();
        requests.requeue(&KEY);
        assert_eq!(requests.issue(KEY, request(512, 9)), None);
        let done = expect_done(requests.complete(&KEY, 512, false));
        assert_eq!((done.irp, done.issued), (irp, 1));
    }

    #[test]
    fn failure_ends_a_request_with_no_bytes_done() {
        let mut requests = Requests::default();
        requests.issue(KEY, request(8192, 1));
        assert_eq!(expect_done(requests.complete(&KEY, 4096, true)).done, 0);
        assert!(requests.pending.is_empty());
    }

    #[test]
    fn parts_of_a_split_get_the_reserved_numbers() {
        let mut requests = Requests::default();
        let (rest, first) = (requests.reserve_irp(1, 108), requests.reserve_irp(1, 100));
        assert_eq!(requests.issue(KEY, request(4096, 1)), Some(first));
        assert_eq!(requests.issue(RequestKey { sector: 108, ..KEY }, request(4096, 1)), Some(rest));
        assert!(requests.reserved.is_empty());
    }

    #[test]
    fn requests_that_never_complete_are_bounded() {
        let mut requests = Requests::default();
        for sector in 0..MAX_REQUESTS as u64 + 10 {
            requests.issue(RequestKey { sector, ..KEY }, request(512, 1));
            requests.reserve_irp(1, sector);
        }
        assert!(requests.pending.len() <= MAX_REQUESTS && requests.reserved.len() <= MAX_RESERVED);
    }
}
