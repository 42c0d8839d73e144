//! Requests that are issued and not completed.
//!
//! ```text
//!   issue (dev, sector 100, 8 KiB)  ──▶ pending at 100
//!   complete (100, 4 KiB)           ──▶ partial: pending at 108 for the remaining bytes
//!   complete (108, 4 KiB)           ──▶ done
//! ```
//!
//! 1. The kernel reports device and sector of a request, but no identity. Equal requests at the
//!    same sector are assumed to complete in the order of their issue.
//! 2. The table is bounded: when it is full it is emptied, which also removes requests that never
//!    complete.

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
        let (operation, flags) = rwbs.split_first()?;
        // An F before another operation requests a flush before it; a plain flush may be `FF`.
        let (operation, flags) = match flags.split_first() {
            Some((next @ (b'R' | b'W' | b'D' | b'F' | b'N' | b'Z'), flags)) if *operation == b'F' => {
                (next, flags)
            }
            _ => (operation, flags),
        };
        let kind = match (operation, flags.first()) {
            (b'R', _) => Self::Read,
            // Zone append: a write at the end of a zone.
            (b'W', _) | (b'Z', Some(b'A')) => Self::Write,
            (b'F', _) => Self::Flush,
            _ => return None,
        };
        Some((kind, flags.contains(&b'S')))
    }
}

/// The most pending requests; disks have queues of hundreds.
const MAX_REQUESTS: usize = 1 << 16;
/// The most parts of split requests that have not been issued yet.
const MAX_RESERVED_IRPS: usize = 1 << 12;
/// The most equal requests at one sector that are distinguished; another one replaces the first.
const MAX_EQUAL_REQUESTS: u8 = 8;

/// Device, sector and kind, by which issue and completion are matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct RequestKey {
    pub(super) dev: u32,
    pub(super) sector: u64,
    pub(super) kind: RequestKind,
}

/// A request that is issued and not completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DiskRequest {
    /// The number that all events of the request contain.
    pub(super) irp: u64,
    pub(super) first_sector: u64,
    pub(super) flags: u32,
    pub(super) issued_ns: u64,
    /// The thread that issued the request or, for a flush, requested it.
    pub(super) thread: u32,
    pub(super) done_bytes: u32,
    /// Whether the process of the request is in the scope of the capture.
    pub(super) is_in_scope: bool,
    /// Whether the process that caused the request is known.
    pub(super) is_attributed: bool,
    remaining_bytes: u32,
    is_requeued: bool,
}

impl DiskRequest {
    pub(super) fn new(key: &RequestKey, bytes: u32, flags: u32, issued_ns: u64, thread: u32) -> Self {
        Self {
            irp: 0,
            first_sector: key.sector,
            flags,
            issued_ns,
            thread,
            done_bytes: 0,
            is_in_scope: false,
            is_attributed: false,
            remaining_bytes: bytes,
            is_requeued: false,
        }
    }
}

/// The result of a completion record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestCompletion {
    /// The request is completed, or has failed.
    Done(DiskRequest),
    /// A part is completed; the remaining bytes are pending.
    Partial,
    /// The issue of the request was not captured.
    Unknown,
}

/// All pending requests.
#[derive(Debug, Default)]
pub(super) struct PendingRequests {
    /// By key and index among equal requests. A partly completed request, which is at another
    /// sector now, has the index [`MAX_EQUAL_REQUESTS`].
    pending: HashMap<(RequestKey, u8), DiskRequest>,
    /// Numbers for the parts of a split, by device and sector at which they will be issued.
    reserved: HashMap<(u32, u64), u64>,
    last_irp: u64,
}

impl PendingRequests {
    /// Adds a request that is issued to the driver. Returns its number, or `None` if it was issued
    /// before and requeued.
    pub(super) fn issue(&mut self, key: RequestKey, request: DiskRequest) -> Option<u64> {
        if let Some(requeued_slot) = self.find_oldest(&key, |request| request.is_requeued) {
            if let Some(requeued) = self.pending.get_mut(&requeued_slot) {
                requeued.is_requeued = false;
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
        let index = (0..MAX_EQUAL_REQUESTS).find(|nth| !self.pending.contains_key(&(key, *nth))).unwrap_or(0);
        self.pending.insert((key, index), DiskRequest { irp, ..request });
        Some(irp)
    }

    /// Marks a request that the driver returned to the queue.
    pub(super) fn requeue(&mut self, key: &RequestKey) {
        if let Some(slot) = self.find_oldest(key, |request| !request.is_requeued)
            && let Some(request) = self.pending.get_mut(&slot)
        {
            request.is_requeued = true;
        }
    }

    /// Handles the completion of `bytes` bytes of a request.
    pub(super) fn complete(&mut self, key: &RequestKey, bytes: u32, is_failed: bool) -> RequestCompletion {
        let slot = self.find_oldest(key, |request| !request.is_requeued);
        let Some(mut request) = slot.and_then(|slot| self.pending.remove(&slot)) else {
            return RequestCompletion::Unknown;
        };
        if !is_failed {
            request.done_bytes = request.done_bytes.saturating_add(bytes);
        }
        request.remaining_bytes = request.remaining_bytes.saturating_sub(bytes);
        // A failure ends the request, whatever is left; so does a completion of 0 bytes.
        if request.remaining_bytes == 0 || is_failed || bytes == 0 {
            return RequestCompletion::Done(request);
        }
        let sector = key.sector.saturating_add(u64::from(bytes >> SECTOR_SHIFT));
        self.pending.insert((RequestKey { sector, ..*key }, MAX_EQUAL_REQUESTS), request);
        RequestCompletion::Partial
    }

    /// Returns the number that the request issued next at this sector will get.
    pub(super) fn reserve_irp(&mut self, dev: u32, sector: u64) -> u64 {
        if let Some(irp) = self.reserved.get(&(dev, sector)) {
            return *irp;
        }
        if self.reserved.len() >= MAX_RESERVED_IRPS {
            self.reserved.clear();
        }
        let irp = self.next_irp();
        self.reserved.insert((dev, sector), irp);
        irp
    }

    /// Drops all pending requests; numbers are not reused.
    pub(super) fn clear(&mut self) {
        self.pending.clear();
        self.reserved.clear();
    }

    fn next_irp(&mut self) -> u64 {
        self.last_irp = self.last_irp.wrapping_add(1);
        self.last_irp
    }

    /// Finds the oldest of equal requests for which `matches` is true: the one with the lowest
    /// number.
    fn find_oldest(
        &self,
        key: &RequestKey,
        matches: impl Fn(&DiskRequest) -> bool,
    ) -> Option<(RequestKey, u8)> {
        let candidate = |nth: u8| {
            let request = self.pending.get(&(*key, nth)).filter(|request| matches(request))?;
            Some((request.irp, nth))
        };
        let (_, nth) = (0..=MAX_EQUAL_REQUESTS).filter_map(candidate).min()?;
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

    fn build_request(bytes: u32, issued_ns: u64) -> DiskRequest {
        DiskRequest::new(&KEY, bytes, 0, issued_ns, 7)
    }

    fn expect_done(completion: RequestCompletion) -> DiskRequest {
        match completion {
            RequestCompletion::Done(request) => request,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn partial_completions_add_up() {
        let mut requests = PendingRequests::default();
        let irp = requests.issue(KEY, build_request(8192, 5)).unwrap();
        assert_eq!(requests.complete(&KEY, 4096, false), RequestCompletion::Partial);
        assert_eq!(
            requests.complete(&KEY, 4096, false),
            RequestCompletion::Unknown,
            "the remaining bytes are at another sector"
        );
        let done = expect_done(requests.complete(&RequestKey { sector: 108, ..KEY }, 4096, false));
        assert_eq!((done.irp, done.first_sector, done.done_bytes, done.issued_ns), (irp, 100, 8192, 5));
        assert!(requests.pending.is_empty());
    }

    #[test]
    fn equal_requests_complete_in_order() {
        let mut requests = PendingRequests::default();
        let first = requests.issue(KEY, build_request(512, 1)).unwrap();
        let second = requests.issue(KEY, build_request(512, 2)).unwrap();
        assert_ne!(first, second);
        assert_eq!(expect_done(requests.complete(&KEY, 512, false)).irp, first);
        let third = requests.issue(KEY, build_request(512, 3)).unwrap();
        assert_eq!(expect_done(requests.complete(&KEY, 512, false)).irp, second);
        assert_eq!(expect_done(requests.complete(&KEY, 512, false)).irp, third);
        assert_eq!(requests.complete(&KEY, 512, false), RequestCompletion::Unknown);
    }

    #[test]
    fn requeued_request_keeps_its_number() {
        let mut requests = PendingRequests::default();
        let irp = requests.issue(KEY, build_request(512, 1)).unwrap();
        requests.requeue(&KEY);
        assert_eq!(requests.issue(KEY, build_request(512, 9)), None);
        let done = expect_done(requests.complete(&KEY, 512, false));
        assert_eq!((done.irp, done.issued_ns), (irp, 1));
    }

    #[test]
    fn failure_ends_a_request_with_no_bytes_done() {
        let mut requests = PendingRequests::default();
        requests.issue(KEY, build_request(8192, 1));
        assert_eq!(expect_done(requests.complete(&KEY, 4096, true)).done_bytes, 0);
        assert!(requests.pending.is_empty());
    }

    #[test]
    fn parts_of_a_split_get_the_reserved_numbers() {
        let mut requests = PendingRequests::default();
        let (second, first) = (requests.reserve_irp(1, 108), requests.reserve_irp(1, 100));
        assert_eq!(requests.issue(KEY, build_request(4096, 1)), Some(first));
        assert_eq!(requests.issue(RequestKey { sector: 108, ..KEY }, build_request(4096, 1)), Some(second));
        assert!(requests.reserved.is_empty());
    }

    #[test]
    fn requests_that_never_complete_are_bounded() {
        let mut requests = PendingRequests::default();
        for sector in 0..MAX_REQUESTS as u64 + 10 {
            requests.issue(RequestKey { sector, ..KEY }, build_request(512, 1));
            requests.reserve_irp(1, sector);
        }
        assert!(requests.pending.len() <= MAX_REQUESTS && requests.reserved.len() <= MAX_RESERVED_IRPS);
    }
}
