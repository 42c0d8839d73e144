//! The reading side of a region: what the owner takes out of rings that a process it does not trust writes.
//!
//! ```text
//!   look ── head, copied once, checked ──▶ seen
//!   peek ── prefix, copied once, checked ──▶ Head            position ≤ seen
//!   take ── bytes, copied ──▶ the caller's memory
//!   release ── read := position, tail := position, or what pages were given back up to
//! ```
//!
//! 1. Nothing is read twice: each word is copied, the copy checked, and the copy used. What the process scribbles meanwhile changes
//!    nothing that was decided.
//! 2. The position is the reader's own and never read back from shared memory.
//! 3. Work is bounded: a look allows at most `ring_bytes` of records, each of at least 24 bytes, and positions only grow.
//! 4. Once a rule is broken the whole region is [`Damaged`] for good.
//! 5. Pages are given back only between the published tail and the position, where no writer may be (R3): while little flows
//!    the tail is published page by page, each after its page was given back. Only whole pages of the machine that lie within the ring:
//!    where pages are larger than the unit in which regions are cut, the first and the last of a ring belong to its neighbours too.
//! 6. A shut ring goes on being read: its tail is only published as one that leaves no room. What a writer had found room for before
//!    arrives as ever.
//!
//! What a burst touched stays until the ring comes around again, also when nothing is written any more: bytes behind the tail are the
//! writer's, and nothing takes them away.
#![deny(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::arithmetic_side_effects
)]

use core::sync::atomic::{AtomicBool, Ordering};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::SealFlags;

use super::words::Words;
use crate::abi::{self, RegionParams};
use crate::error::{Error, Result};
use crate::map::{self, Mapping};

/// Rings of fewer pages than this are not given back page by page: a page is too large a part of them.
const THRIFT_FROM: u64 = 8;

/// How long before it is taken over a process may have made its region, for the rate at which losses are believed.
const MADE_BEFORE: Duration = Duration::from_secs(60);

/// The region breaks its rules: nothing more is read from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damaged;

/// What stands in front of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Bytes of the record, 1 … 65535 and at most the region's `max_record`.
    pub length: usize,
    /// The processor it was written on, below the region's number of processors; the same for all records of a ring.
    pub cpu: u16,
    /// [`crate::abi::FLAGS`] of the record.
    pub flags: u16,
    /// Raw counter at which it was written.
    pub stamp: u64,
}

/// What the rings of a region share.
#[derive(Debug)]
struct Shared {
    map: Mapping,
    damaged: AtomicBool,
}

/// The owner's side of a region.
#[derive(Debug)]
pub struct RegionReader {
    shared: Arc<Shared>,
    params: RegionParams,
    rings: Vec<RingReader>,
    lost: u64,
    lost_at: Instant,
}

/// Creates the sealed memory file of a region. The reading side writes the header when it takes the region over.
pub fn create_memory(params: &RegionParams) -> Result<OwnedFd> {
    params.check()?;
    let memory = map::memory_file(c"traceweir-region", params.layout.region_bytes())?;
    map::seal(memory.as_fd(), SealFlags::empty())?;
    Ok(memory)
}

impl RegionReader {
    /// Creates a region: the reading side, and the sealed memory file for the process.
    pub fn create(params: &RegionParams) -> Result<(Self, OwnedFd)> {
        params.check()?;
        let bytes = params.layout.region_bytes();
        map::check_headroom(bytes)?;
        let memory = create_memory(params)?;
        let reader = Self::over(Mapping::of_file(memory.as_fd(), bytes, true)?, params)?;
        Ok((reader, memory))
    }

    /// Takes over a region that a process has made and may have written to: the reading side. The memory is the process's, so it is refused unless nobody
    /// can take its pages away.
    pub fn adopt(memory: BorrowedFd<'_>, params: &RegionParams) -> Result<Self> {
        params.check()?;
        let bytes = params.layout.region_bytes();
        map::check_memory_file(memory, bytes)?;
        map::check_headroom(bytes)?;
        let mut reader = Self::over(Mapping::of_file(memory, bytes, true)?, params)?;
        // What was lost before counts too.
        let since = reader.lost_at.checked_sub(MADE_BEFORE);
        reader.lost_at = since.unwrap_or(reader.lost_at);
        Ok(reader)
    }

    /// The reading side over memory whose header is written now.
    pub(super) fn over(map: Mapping, params: &RegionParams) -> Result<Self> {
        params.check()?;
        if map.bytes() < params.layout.region_bytes() || !map.copy_in(0, &params.header()) {
            return Err(Error::Invalid("the mapping is smaller than the region"));
        }
        let shared = Arc::new(Shared { map, damaged: AtomicBool::new(false) });
        let ring = |ring| RingReader::new(&shared, params, ring);
        let rings = (0..params.layout.rings()).map(ring).collect();
        Ok(Self { shared, params: *params, rings, lost: 0, lost_at: Instant::now() })
    }

    /// What the region was created with.
    #[must_use]
    pub fn params(&self) -> &RegionParams {
        &self.params
    }

    /// The rings: those of restartable sequences by processor, then those of the lock by processor.
    pub fn rings(&mut self) -> &mut [RingReader] {
        &mut self.rings
    }

    /// Whether the region broke a rule; nothing more can be read from it then.
    #[must_use]
    pub fn is_damaged(&self) -> bool {
        self.shared.damaged.load(Ordering::Relaxed)
    }

    /// Events that the process counted as lost so far. Never goes back, and grows no faster than its processors can count: one a
    /// nanosecond each.
    pub fn lost(&mut self) -> u64 {
        let counted = self.rings.iter().fold(0u64, |sum, ring| sum.saturating_add(ring.lost()));
        // The clock is read after the counters: what was counted had the time to be counted.
        let now = Instant::now();
        let ns = u64::try_from(now.duration_since(self.lost_at).as_nanos()).unwrap_or(u64::MAX);
        let most = self.lost.saturating_add(ns.saturating_mul(u64::from(self.params.layout.cpus())));
        self.lost = counted.clamp(self.lost, most);
        self.lost_at = now;
        self.lost
    }

    /// Takes nothing more for now, or takes again: writers find no room while it is shut, and can tell why.
    pub fn set_shut(&mut self, shut: bool) {
        for ring in &mut self.rings {
            ring.shut = shut;
            ring.publish();
        }
    }

    /// Gives pages behind the tail back to the system where little is written. Called once in a while: what flowed through a ring
    /// between two calls decides how it is treated until the next.
    pub fn give_back(&mut self) {
        for ring in &mut self.rings {
            ring.weigh();
        }
    }
}

/// The reading side of one ring.
#[derive(Debug)]
pub struct RingReader {
    shared: Arc<Shared>,
    control: usize,
    data: usize,
    ring_bytes: u64,
    page: u64,
    max_record: usize,
    cpu: u16,
    /// Where the next record begins, or a marker in front of it.
    position: u64,
    /// The head at the last look.
    seen: u64,
    /// What was published as `read` and as `tail`.
    read: u64,
    tail: u64,
    /// Whether the tail is published as one that leaves no room.
    shut: bool,
    /// The record at `position`, and the position behind it.
    peeked: Option<(Head, u64)>,
    /// Whether the ring is large enough to give pages back, and whether it does so as they are read.
    may_be_thrifty: bool,
    thrifty: bool,
    /// Position when the flow was last weighed.
    weighed: u64,
}

impl RingReader {
    fn new(shared: &Arc<Shared>, params: &RegionParams, ring: usize) -> Self {
        let layout = params.layout;
        let cpu = ring.checked_rem(usize::from(layout.cpus())).and_then(|cpu| u16::try_from(cpu).ok());
        let ring_bytes = u64::from(layout.ring_bytes());
        // The largest record finds room in an empty ring wherever that stands, also while a page is held back.
        let page = shared.map.page() as u64;
        let needed = (abi::size_in_ring(params.max_record as usize) as u64).saturating_mul(2);
        let may_be_thrifty = ring_bytes >= page.saturating_mul(THRIFT_FROM).max(needed.saturating_add(page));
        Self {
            shared: Arc::clone(shared),
            control: layout.control_offset(ring),
            data: layout.data_offset(ring),
            ring_bytes,
            page,
            max_record: params.max_record as usize,
            cpu: cpu.unwrap_or(0),
            position: 0,
            seen: 0,
            read: 0,
            tail: 0,
            shut: false,
            peeked: None,
            may_be_thrifty,
            thrifty: may_be_thrifty,
            weighed: 0,
        }
    }

    fn words(&self) -> Option<Words<'_>> {
        Words::within(&self.shared.map, self.control)
    }

    /// Gives the region up.
    #[cold]
    fn damage<T>(&self) -> Result<T, Damaged> {
        self.shared.damaged.store(true, Ordering::Relaxed);
        Err(Damaged)
    }

    /// Looks where the writer stands; records up to there can then be read. Whether there are any.
    pub fn look(&mut self) -> Result<bool, Damaged> {
        if self.shared.damaged.load(Ordering::Relaxed) {
            return Err(Damaged);
        }
        let Some(head) = self.words().map(|words| words.published()) else { return self.damage() };
        // Both differences are checked, so a head that went back or ran too far is found, whatever it is.
        let ahead = head.checked_sub(self.seen).is_some();
        let held = head.checked_sub(self.tail).is_some_and(|held| held <= self.ring_bytes);
        if !(ahead && held && head.is_multiple_of(8)) {
            return self.damage();
        }
        self.seen = head;
        Ok(self.position != head)
    }

    /// The next record seen by [`look`](Self::look).
    #[inline]
    pub fn peek(&mut self) -> Result<Option<Head>, Damaged> {
        if let Some((head, _)) = self.peeked {
            return Ok(Some(head));
        }
        if self.position == self.seen {
            return Ok(None);
        }
        if self.shared.damaged.load(Ordering::Relaxed) {
            return Err(Damaged);
        }
        match self.next() {
            Some(next) => {
                self.peeked = Some(next);
                Ok(Some(next.0))
            }
            None => self.damage(),
        }
    }

    /// The record at the position, behind a marker if there is one; `None` where a rule is broken.
    #[inline]
    fn next(&mut self) -> Option<(Head, u64)> {
        let mut word = self.prefix()?;
        if word as u32 == abi::SKIP {
            let offset = self.offset()?;
            // A marker at the start would skip a whole ring, which no record needs; behind one there is always a record.
            let left = self.ring_bytes.checked_sub(offset).filter(|left| *left < self.ring_bytes)?;
            let start = self.position.checked_add(left).filter(|start| *start < self.seen)?;
            self.position = start;
            word = self.prefix()?;
        }
        let (length, cpu, flags) = ((word as u32) as usize, (word >> 32) as u16, (word >> 48) as u16);
        let sound = length != 0 && length <= self.max_record && cpu == self.cpu && flags & !abi::FLAGS == 0;
        let size = u64::try_from(abi::size_in_ring(length.min(abi::MAX_RECORD))).ok()?;
        let end = self.position.checked_add(size).filter(|end| *end <= self.seen)?;
        let inside = self.offset()?.checked_add(size)? <= self.ring_bytes;
        let stamp = self.word(8)?;
        let head = Head { length, cpu, flags, stamp };
        (sound && inside).then_some((head, end))
    }

    /// The first word at the position.
    #[inline]
    fn prefix(&self) -> Option<u64> {
        self.word(0)
    }

    /// A word behind the position, copied.
    #[inline]
    fn word(&self, behind: u64) -> Option<u64> {
        let at = usize::try_from(self.offset()?.checked_add(behind)?).ok()?;
        let word = self.shared.map.word(self.data.checked_add(at)?)?;
        // Relaxed: the acquire of the head came before, and it is no word that anybody synchronises by.
        Some(word.load(Ordering::Relaxed))
    }

    /// Where the position is in the ring; `None` for a region without rings.
    #[inline]
    fn offset(&self) -> Option<u64> {
        Some(self.position & self.ring_bytes.checked_sub(1)?)
    }

    /// Copies the record that [`peek`](Self::peek) gave to the front of `out`, which is at least as long, and steps behind it.
    #[inline]
    pub fn take(&mut self, out: &mut [u8]) {
        let Some((head, end)) = self.peeked.take() else { return };
        let length = head.length.min(out.len());
        let at = self.offset().and_then(|offset| usize::try_from(offset).ok()).unwrap_or(0);
        let from = self.data.saturating_add(at).saturating_add(abi::PREFIX_BYTES);
        if let Some(out) = out.get_mut(..length) {
            // `peek` found the record inside the ring, so the copy does not fail.
            let copied = self.shared.map.copy_out(from, out);
            debug_assert!(copied);
        }
        self.position = end;
    }

    /// Gives the bytes that were read back to the writer.
    pub fn release(&mut self) {
        if self.position == self.read {
            return;
        }
        let taken = self.position.saturating_sub(self.read);
        // A ring that fills by more than an eighth between two drains, or half flows through since it was weighed, needs its pages
        // again soon.
        let flowed = self.position.saturating_sub(self.weighed);
        if taken > self.ring_bytes >> 3 || flowed > self.ring_bytes >> 1 {
            self.thrifty = false;
        }
        let tail = if self.thrifty { self.give_pages_back() } else { self.position };
        (self.read, self.tail) = (self.position, tail);
        self.publish();
    }

    /// Tells the writer how far it was read, and where there is room.
    fn publish(&self) {
        let shut = if self.shut { abi::SHUT } else { 0 };
        if let Some(words) = self.words() {
            words.taken(self.read, self.tail | shut);
        }
    }

    /// Gives back the whole pages between the published tail and the position; the tail to publish then, which holds the page back that
    /// is not yet read through.
    fn give_pages_back(&self) -> u64 {
        let (mask, data) = (self.page.saturating_sub(1), self.data as u64);
        let in_ring = self.ring_bytes.saturating_sub(1);
        let at = self.position & in_ring;
        let unfinished = (data.saturating_add(at) & mask).min(at);
        let until = self.position.saturating_sub(unfinished);
        let mut from = self.tail;
        while from < until {
            // Up to the ring's end, where another ring begins, then from its start.
            let offset = from & in_ring;
            let bytes = until.saturating_sub(from).min(self.ring_bytes.saturating_sub(offset));
            let start = data.saturating_add(offset);
            let first = start.saturating_add(mask) & !mask;
            let whole = (start.saturating_add(bytes) & !mask).saturating_sub(first);
            if let (Ok(first), Ok(whole)) = (usize::try_from(first), usize::try_from(whole)) {
                self.shared.map.give_back(first, whole);
            }
            from = from.saturating_add(bytes.max(8));
        }
        until.max(self.tail)
    }

    /// Decides by the flow since the last call whether pages are given back.
    fn weigh(&mut self) {
        let flowed = self.position.saturating_sub(self.weighed);
        self.weighed = self.position;
        self.thrifty = self.may_be_thrifty && flowed < self.ring_bytes >> 2;
    }

    fn lost(&self) -> u64 {
        self.words().map_or(0, |words| words.lost())
    }
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::arithmetic_side_effects)]
mod tests;
