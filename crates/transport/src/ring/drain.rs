//! The reading side of a region: the owner reads rings that an untrusted process writes.
//!
//! ```text
//!   poll ── head, copied once, checked ──▶ polled_head
//!   peek ── prefix, copied once, checked ──▶ RecordPrefix          position ≤ polled_head
//!   take ── bytes, copied ──▶ the caller's memory
//!   release ── read := position, tail := position, or up to where pages were given back
//! ```
//!
//! 1. No word is read twice: the reader copies it, checks the copy and uses the copy. Words that
//!    the process writes meanwhile change no decision.
//! 2. The reader keeps its position itself and never reads it back from shared memory.
//! 3. Work is bounded: a poll allows at most `ring_bytes` of records, each of at least 24 bytes,
//!    and positions only grow.
//! 4. Once a rule is broken, the region is [`Damaged`] for good.
//! 5. Pages are given back only between the published tail and the position, where no writer may be
//!    (R3 in ring.rs). While few records come, the reader publishes the tail page by page, each
//!    time after it has given the page back. Only whole pages of the machine that lie within the
//!    ring are given back: if pages are larger than the unit of the layout, the first and the last
//!    page of a ring belong to its neighbours too.
//! 6. A closed ring is still read; only its tail is published as that of a full ring. A record for
//!    which a writer found room before the ring was closed still arrives.
//!
//! Pages that a burst touched stay until the writer comes around again, even if nothing is written
//! any more: bytes before the tail are free for the writer (positions up to `tail + ring_bytes`),
//! so the owner cannot return their pages.
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

use super::words::ControlWords;
use crate::abi::{self, RegionParams};
use crate::error::{Error, Result};
use crate::map::{self, Mapping};

/// Rings of fewer pages give none back: the page that is held back would be too large a part of
/// such a ring.
const MIN_RING_PAGES: u64 = 8;

/// The longest time between the creation of a region by a process and its adoption. It bounds the
/// plausible number of losses.
const MAX_AGE_AT_ADOPTION: Duration = Duration::from_secs(60);

/// Error of a region that broke the protocol: nothing more is read from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damaged;

/// The prefix of a record in a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordPrefix {
    /// Bytes of the record, 1 … 65535 and at most the region's `max_record`.
    pub length: usize,
    /// The CPU of the ring, below the region's number of CPUs.
    pub cpu: u16,
    /// [`crate::abi::FLAGS`] of the record.
    pub flags: u16,
    /// Raw counter at the time of writing.
    pub stamp: u64,
}

/// State shared by the rings of a region.
#[derive(Debug)]
struct SharedRegion {
    map: Mapping,
    is_damaged: AtomicBool,
}

/// The owner's side of a region.
#[derive(Debug)]
pub struct RegionReader {
    shared: Arc<SharedRegion>,
    params: RegionParams,
    rings: Vec<RingReader>,
    lost: u64,
    lost_at: Instant,
}

/// Creates the sealed memory file of a region. The reading side writes the header when it maps the
/// region.
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
        let reader = Self::from_mapping(Mapping::from_file(memory.as_fd(), bytes, true)?, params)?;
        Ok((reader, memory))
    }

    /// Adopts a region that a process has created and may have written to. Rejects memory that is
    /// not a memory file of the right size, sealed against shrinking.
    pub fn adopt(memory: BorrowedFd<'_>, params: &RegionParams) -> Result<Self> {
        params.check()?;
        let bytes = params.layout.region_bytes();
        map::check_memory_file(memory, bytes)?;
        map::check_headroom(bytes)?;
        let mut reader = Self::from_mapping(Mapping::from_file(memory, bytes, true)?, params)?;
        // Losses before the adoption count too.
        let since = reader.lost_at.checked_sub(MAX_AGE_AT_ADOPTION);
        reader.lost_at = since.unwrap_or(reader.lost_at);
        Ok(reader)
    }

    /// Creates the reading side over a mapping and writes the header.
    pub(super) fn from_mapping(map: Mapping, params: &RegionParams) -> Result<Self> {
        params.check()?;
        if map.bytes() < params.layout.region_bytes() || !map.copy_in(0, &params.header()) {
            return Err(Error::Invalid("the mapping is smaller than the region"));
        }
        let shared = Arc::new(SharedRegion { map, is_damaged: AtomicBool::new(false) });
        let ring = |ring| RingReader::new(&shared, params, ring);
        let rings = (0..params.layout.rings()).map(ring).collect();
        Ok(Self { shared, params: *params, rings, lost: 0, lost_at: Instant::now() })
    }

    /// Returns the parameters of the region.
    #[must_use]
    pub fn params(&self) -> &RegionParams {
        &self.params
    }

    /// Returns the rings: the rings of restartable sequences by CPU, then the rings with locks by
    /// CPU.
    pub fn rings(&mut self) -> &mut [RingReader] {
        &mut self.rings
    }

    /// Returns whether the region broke a rule; nothing more can be read from it then.
    #[must_use]
    pub fn is_damaged(&self) -> bool {
        self.shared.is_damaged.load(Ordering::Relaxed)
    }

    /// Returns the number of events that the process counted as lost so far. The number never
    /// decreases, and it grows no faster than the CPUs can count: by one per nanosecond and CPU.
    pub fn lost(&mut self) -> u64 {
        let lost = self.rings.iter().fold(0u64, |sum, ring| sum.saturating_add(ring.lost()));
        // The clock is read after the counters, so the elapsed time covers every counted loss.
        let now = Instant::now();
        let ns = u64::try_from(now.duration_since(self.lost_at).as_nanos()).unwrap_or(u64::MAX);
        let max_lost = self.lost.saturating_add(ns.saturating_mul(u64::from(self.params.layout.cpus())));
        self.lost = lost.clamp(self.lost, max_lost);
        self.lost_at = now;
        self.lost
    }

    /// Closes or opens the rings. While they are closed, writers find them full, and the tail tells
    /// writers that the store is full (`STORE_FULL`).
    pub fn set_closed(&mut self, is_closed: bool) {
        for ring in &mut self.rings {
            ring.is_closed = is_closed;
            ring.publish();
        }
    }

    /// Decides for each ring whether its pages are returned to the system after they were read:
    /// only if few bytes went through the ring since the last call. Call it periodically.
    pub fn measure_rates(&mut self) {
        for ring in &mut self.rings {
            ring.measure_rate();
        }
    }
}

/// The reading side of one ring.
#[derive(Debug)]
pub struct RingReader {
    shared: Arc<SharedRegion>,
    control: usize,
    data: usize,
    ring_bytes: u64,
    page: u64,
    max_record: usize,
    cpu: u16,
    /// Position of the next record, or of a marker before it.
    position: u64,
    /// The head that the last poll read.
    polled_head: u64,
    /// Published value of `read`.
    read: u64,
    /// Published value of `tail`.
    tail: u64,
    /// Whether the tail is published as that of a full ring.
    is_closed: bool,
    /// The record at `position`, and the position after it.
    peeked: Option<(RecordPrefix, u64)>,
    /// Whether the ring is large enough to give pages back.
    can_return_pages: bool,
    /// Whether pages are given back as they are read.
    returns_pages: bool,
    /// Position when the data rate was last measured.
    measured_position: u64,
}

impl RingReader {
    fn new(shared: &Arc<SharedRegion>, params: &RegionParams, ring: usize) -> Self {
        let layout = params.layout;
        let cpu = ring.checked_rem(usize::from(layout.cpus())).and_then(|cpu| u16::try_from(cpu).ok());
        let ring_bytes = u64::from(layout.ring_bytes());
        // The largest record must fit into an empty ring at any position, even while the reader
        // holds a page back.
        let page = shared.map.page_bytes() as u64;
        let needed = (abi::size_in_ring(params.max_record as usize) as u64).saturating_mul(2);
        let can_return_pages =
            ring_bytes >= page.saturating_mul(MIN_RING_PAGES).max(needed.saturating_add(page));
        Self {
            shared: Arc::clone(shared),
            control: layout.control_offset(ring),
            data: layout.data_offset(ring),
            ring_bytes,
            page,
            max_record: params.max_record as usize,
            cpu: cpu.unwrap_or(0),
            position: 0,
            polled_head: 0,
            read: 0,
            tail: 0,
            is_closed: false,
            peeked: None,
            can_return_pages,
            returns_pages: can_return_pages,
            measured_position: 0,
        }
    }

    fn words(&self) -> Option<ControlWords<'_>> {
        ControlWords::from_mapping(&self.shared.map, self.control)
    }

    #[cold]
    fn mark_damaged<T>(&self) -> Result<T, Damaged> {
        self.shared.is_damaged.store(true, Ordering::Relaxed);
        Err(Damaged)
    }

    /// Reads the writer's head, up to which records can then be read. Returns whether there are
    /// records.
    pub fn poll(&mut self) -> Result<bool, Damaged> {
        if self.shared.is_damaged.load(Ordering::Relaxed) {
            return Err(Damaged);
        }
        let Some(head) = self.words().map(|words| words.load_head()) else { return self.mark_damaged() };
        // Together, the two differences reveal every head that went back or too far.
        let is_forward = head.checked_sub(self.polled_head).is_some();
        let fits_ring = head.checked_sub(self.tail).is_some_and(|unread| unread <= self.ring_bytes);
        if !(is_forward && fits_ring && head.is_multiple_of(8)) {
            return self.mark_damaged();
        }
        self.polled_head = head;
        Ok(self.position != head)
    }

    /// Returns the next record that [`poll`](Self::poll) has seen.
    #[inline]
    pub fn peek(&mut self) -> Result<Option<RecordPrefix>, Damaged> {
        if let Some((prefix, _)) = self.peeked {
            return Ok(Some(prefix));
        }
        if self.position == self.polled_head {
            return Ok(None);
        }
        if self.shared.is_damaged.load(Ordering::Relaxed) {
            return Err(Damaged);
        }
        match self.read_next_record() {
            Some(next) => {
                self.peeked = Some(next);
                Ok(Some(next.0))
            }
            None => self.mark_damaged(),
        }
    }

    /// Reads the record at the position, after a marker if there is one; `None` if a rule is
    /// broken.
    #[inline]
    fn read_next_record(&mut self) -> Option<(RecordPrefix, u64)> {
        let mut word = self.read_prefix()?;
        if word as u32 == abi::SKIP {
            let offset = self.ring_offset()?;
            // A marker at the start would skip the entire ring, which no record needs; a record
            // always follows a marker.
            let skipped = self.ring_bytes.checked_sub(offset).filter(|skipped| *skipped < self.ring_bytes)?;
            let start = self.position.checked_add(skipped).filter(|start| *start < self.polled_head)?;
            self.position = start;
            word = self.read_prefix()?;
        }
        let (length, cpu, flags) = ((word as u32) as usize, (word >> 32) as u16, (word >> 48) as u16);
        let is_valid =
            length != 0 && length <= self.max_record && cpu == self.cpu && flags & !abi::FLAGS == 0;
        let size = u64::try_from(abi::size_in_ring(length.min(abi::MAX_RECORD_BYTES))).ok()?;
        let end = self.position.checked_add(size).filter(|end| *end <= self.polled_head)?;
        let is_inside = self.ring_offset()?.checked_add(size)? <= self.ring_bytes;
        let stamp = self.read_word(8)?;
        let prefix = RecordPrefix { length, cpu, flags, stamp };
        (is_valid && is_inside).then_some((prefix, end))
    }

    /// Reads the first word at the position.
    #[inline]
    fn read_prefix(&self) -> Option<u64> {
        self.read_word(0)
    }

    /// Reads a word `after` bytes from the position.
    #[inline]
    fn read_word(&self, after: u64) -> Option<u64> {
        let at = usize::try_from(self.ring_offset()?.checked_add(after)?).ok()?;
        let word = self.shared.map.word(self.data.checked_add(at)?)?;
        // Relaxed: the acquire of the head came before, and no thread synchronises by this word.
        Some(word.load(Ordering::Relaxed))
    }

    /// Returns the offset of the position in the ring; `None` for a region without rings.
    #[inline]
    fn ring_offset(&self) -> Option<u64> {
        Some(self.position & self.ring_bytes.checked_sub(1)?)
    }

    /// Copies as much of the record that [`peek`](Self::peek) returned as fits `out`, and advances
    /// past the record.
    #[inline]
    pub fn take(&mut self, out: &mut [u8]) {
        let Some((prefix, end)) = self.peeked.take() else { return };
        let length = prefix.length.min(out.len());
        let at = self.ring_offset().and_then(|offset| usize::try_from(offset).ok()).unwrap_or(0);
        let from = self.data.saturating_add(at).saturating_add(abi::PREFIX_BYTES);
        if let Some(out) = out.get_mut(..length) {
            // `peek` found the record inside the ring, so the copy does not fail.
            let is_copied = self.shared.map.copy_out(from, out);
            debug_assert!(is_copied);
        }
        self.position = end;
    }

    /// Frees the bytes that were read, for the writer.
    pub fn release(&mut self) {
        if self.position == self.read {
            return;
        }
        let taken_bytes = self.position.saturating_sub(self.read);
        // A ring that fills by more than an eighth between two drains, or by half since the last
        // measurement, needs its pages again soon.
        let bytes_since = self.position.saturating_sub(self.measured_position);
        if taken_bytes > self.ring_bytes >> 3 || bytes_since > self.ring_bytes >> 1 {
            self.returns_pages = false;
        }
        let tail = if self.returns_pages { self.give_pages_back() } else { self.position };
        (self.read, self.tail) = (self.position, tail);
        self.publish();
    }

    /// Publishes `read` and `tail`, with the bit `STORE_FULL` if the ring is closed.
    fn publish(&self) {
        let full_bit = if self.is_closed { abi::STORE_FULL } else { 0 };
        if let Some(words) = self.words() {
            words.publish_taken(self.read, self.tail | full_bit);
        }
    }

    /// Gives back the whole pages between the published tail and the position. Returns the tail to
    /// publish, which holds back the page that is not completely read.
    fn give_pages_back(&self) -> u64 {
        let (mask, data) = (self.page.saturating_sub(1), self.data as u64);
        let in_ring = self.ring_bytes.saturating_sub(1);
        let at = self.position & in_ring;
        // Bytes before the position in its page, without those of a neighbouring ring.
        let unfinished = (data.saturating_add(at) & mask).min(at);
        let until = self.position.saturating_sub(unfinished);
        let mut from = self.tail;
        while from < until {
            // The first round goes up to the ring's end, the next one continues at its start.
            let offset = from & in_ring;
            let bytes = until.saturating_sub(from).min(self.ring_bytes.saturating_sub(offset));
            let start = data.saturating_add(offset);
            let first = start.saturating_add(mask) & !mask;
            let page_bytes = (start.saturating_add(bytes) & !mask).saturating_sub(first);
            if let (Ok(first), Ok(page_bytes)) = (usize::try_from(first), usize::try_from(page_bytes)) {
                self.shared.map.give_back(first, page_bytes);
            }
            // At least 8, so that the loop ends in any case.
            from = from.saturating_add(bytes.max(8));
        }
        until.max(self.tail)
    }

    /// Decides whether pages are given back: if less than a quarter of the ring was read since the
    /// last call.
    fn measure_rate(&mut self) {
        let bytes_since = self.position.saturating_sub(self.measured_position);
        self.measured_position = self.position;
        self.returns_pages = self.can_return_pages && bytes_since < self.ring_bytes >> 2;
    }

    fn lost(&self) -> u64 {
        self.words().map_or(0, |words| words.lost())
    }
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects)]
mod tests;
