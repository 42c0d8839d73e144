//! A thread that empties size-limited rings into ordinary memory.
//!
//! ```text
//!   Mapped    perf ring ────────────────────────────────────────▶ RingMerger
//!   Relayed   perf ring ──weir-rings, at a watermark──▶ RelayQueue ─▶ RingMerger, at each poll
//! ```
//!
//! 1. A poll reads `/proc`, loads unwind tables and opens events. This takes up to half a second.
//!    A ring of 512 KiB holds 32 stack copies of 16 KiB, so it is full after 32 ms at one sample
//!    per millisecond. Therefore a separate thread empties the rings between polls. It does nothing
//!    but copy records.
//! 2. A poll takes the queue and then empties the ring, so it sees all earlier records.
//! 3. The queue of a ring is bounded. Its bound (`CaptureSettings::relay_queue_bytes`) must not be
//!    smaller than the ring, because a poll moves the whole ring into the empty queue. Records
//!    that do not fit into the queue stay in the ring until the next poll. The kernel counts
//!    records that do not fit into the ring as lost.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::io::Errno;

use crate::error::{Error, Result};
use crate::perf_ring::{PerfEvent, PerfRing, RECORD_HEADER_BYTES, record_length, request_short_time_slices};

/// Stack size of the thread that empties rings.
const THREAD_STACK_BYTES: usize = 128 << 10;

/// Bytes of record memory kept between polls; a larger allocation shrinks to this.
const KEPT_BYTES: usize = 1 << 20;

/// After this many consecutive wakes without records, the thread pauses for `IDLE_PAUSE` per wake.
const IDLE_WAKES: u32 = 100;
const IDLE_PAUSE: Duration = Duration::from_millis(1);

/// The epoll data of the eventfd that requests the end of the thread.
const END_REQUEST: u64 = u64::MAX;

/// The source from which the reader gets the records of a processor.
#[derive(Debug)]
pub(crate) enum RingSource {
    /// Records come directly from the ring.
    Mapped(PerfRing),
    /// Records come from the queue of the ring.
    Relayed(RelayedRing),
}

impl RingSource {
    /// Returns the processor that the ring belongs to.
    pub(crate) fn cpu(&self) -> u16 {
        match self {
            Self::Mapped(ring) => ring.cpu(),
            Self::Relayed(ring) => u16::try_from(ring.event.cpu()).unwrap_or(u16::MAX),
        }
    }

    /// Returns the event that the ring belongs to.
    pub(crate) fn event(&self) -> &Arc<PerfEvent> {
        match self {
            Self::Mapped(ring) => ring.event(),
            Self::Relayed(ring) => &ring.event,
        }
    }

    /// Makes the records that the kernel has written so far available to [`peek`](Self::peek).
    pub(crate) fn poll(&mut self) {
        match self {
            Self::Mapped(ring) => drop(ring.poll()),
            Self::Relayed(ring) => ring.poll(),
        }
    }

    /// Returns the next record; see [`PerfRing::peek`].
    pub(crate) fn peek(&mut self) -> Option<&[u8]> {
        match self {
            Self::Mapped(ring) => ring.peek(),
            Self::Relayed(ring) => ring.peek(),
        }
    }

    /// Advances past a record of this length.
    pub(crate) fn skip(&mut self, length: usize) {
        match self {
            Self::Mapped(ring) => ring.skip(length),
            Self::Relayed(ring) => ring.read_position = ring.read_position.saturating_add(length),
        }
    }

    /// Returns the number of bytes that were read and that the kernel cannot overwrite yet.
    pub(crate) fn unreleased_bytes(&self) -> u64 {
        match self {
            Self::Mapped(ring) => ring.unreleased_bytes(),
            Self::Relayed(_) => 0,
        }
    }

    /// Releases the bytes that were read, so that the kernel can overwrite them.
    pub(crate) fn release(&mut self) {
        match self {
            Self::Mapped(ring) => ring.release(),
            Self::Relayed(_) => {}
        }
    }

    /// Returns whether records may have been lost before the last poll because the ring was full.
    pub(crate) fn was_full(&self) -> bool {
        match self {
            Self::Mapped(ring) => ring.was_full(),
            Self::Relayed(ring) => ring.was_ring_full,
        }
    }

    /// Returns whether the kernel may have losses to report, which it does only before its next
    /// record.
    pub(crate) fn has_unreported_losses(&self) -> bool {
        match self {
            Self::Mapped(ring) => ring.has_unreported_losses(),
            Self::Relayed(ring) => ring.queue().ring.has_unreported_losses(),
        }
    }

    /// Returns whether an unknown number of records has been skipped since the last call.
    pub(crate) fn take_damage(&mut self) -> bool {
        match self {
            Self::Mapped(ring) => ring.take_damage(),
            Self::Relayed(ring) => std::mem::take(&mut ring.is_damaged),
        }
    }
}

/// A ring and the records that were moved out of it.
#[derive(Debug)]
struct RelayQueue {
    ring: PerfRing,
    /// Complete records only.
    records: Vec<u8>,
    max_bytes: usize,
    /// Whether the ring was nearly full since the last poll of the reader.
    was_ring_full: bool,
    is_damaged: bool,
}

impl RelayQueue {
    /// Moves records out of the ring until the queue is full. Returns whether it moved any.
    fn fill_from_ring(&mut self) -> bool {
        let before = self.records.len();
        self.ring.poll();
        self.was_ring_full |= self.ring.was_full();
        while self.records.len() < self.max_bytes
            && let Some(record) = self.ring.peek()
        {
            self.records.extend_from_slice(record);
            let length = record.len();
            self.ring.skip(length);
            // The kernel may need these bytes for its next record.
            self.ring.release();
        }
        self.is_damaged |= self.ring.take_damage();
        self.ring.release();
        self.records.len() > before
    }
}

/// The reader's side of a [`RelayQueue`].
#[derive(Debug)]
pub(crate) struct RelayedRing {
    event: Arc<PerfEvent>,
    shared: Arc<Mutex<RelayQueue>>,
    /// Records of the last poll.
    records: Vec<u8>,
    /// How far `records` has been read.
    read_position: usize,
    /// Whether the ring was nearly full before the last poll.
    was_ring_full: bool,
    is_damaged: bool,
}

impl RelayedRing {
    fn new(ring: PerfRing, max_bytes: usize) -> Self {
        let event = Arc::clone(ring.event());
        let (was_ring_full, is_damaged) = (false, false);
        let queue = RelayQueue { ring, records: Vec::new(), max_bytes, was_ring_full, is_damaged };
        let shared = Arc::new(Mutex::new(queue));
        Self { event, shared, records: Vec::new(), read_position: 0, was_ring_full, is_damaged }
    }

    fn queue(&self) -> MutexGuard<'_, RelayQueue> {
        lock_queue(&self.shared)
    }

    fn poll(&mut self) {
        let mut queue = lock_queue(&self.shared);
        self.records.drain(..self.read_position.min(self.records.len()));
        self.read_position = 0;
        if self.records.is_empty() {
            self.records.shrink_to(KEPT_BYTES);
            std::mem::swap(&mut self.records, &mut queue.records);
        } else {
            self.records.append(&mut queue.records);
        }
        // The queue is empty now, so all records of the ring fit into it.
        queue.fill_from_ring();
        self.records.append(&mut queue.records);
        self.was_ring_full = std::mem::take(&mut queue.was_ring_full);
        self.is_damaged |= std::mem::take(&mut queue.is_damaged);
    }

    fn peek(&self) -> Option<&[u8]> {
        let unread = self.records.get(self.read_position..)?;
        let length = record_length(unread.first_chunk::<RECORD_HEADER_BYTES>()?);
        unread.get(..length)
    }
}

fn lock_queue(shared: &Mutex<RelayQueue>) -> MutexGuard<'_, RelayQueue> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The thread that empties rings. Dropping this value ends the thread.
#[derive(Debug)]
pub(crate) struct Relay {
    /// Readable when records were moved out of a ring since the last poll.
    wake: Arc<OwnedFd>,
    end_request: OwnedFd,
    thread: Option<JoinHandle<()>>,
}

impl Relay {
    /// Starts a thread that empties these rings. Each ring has a queue, which takes no further
    /// record once it holds `max_bytes` or more.
    pub(crate) fn start(rings: Vec<PerfRing>, max_bytes: usize) -> Result<(Self, Vec<RingSource>)> {
        let to_error = |e: Errno| Error::system("emptying rings", e.into());
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let (wake, end_request) =
            (eventfd(0, flags).map_err(to_error)?, eventfd(0, flags).map_err(to_error)?);
        let epoll_fd = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(to_error)?;
        epoll::add(&epoll_fd, &end_request, epoll::EventData::new_u64(END_REQUEST), epoll::EventFlags::IN)
            .map_err(to_error)?;
        for ring in &rings {
            let data = epoll::EventData::new_u64(u64::from(ring.cpu()));
            epoll::add(&epoll_fd, ring.event().as_ref(), data, epoll::EventFlags::IN).map_err(to_error)?;
        }
        let rings: Vec<_> = rings.into_iter().map(|ring| RelayedRing::new(ring, max_bytes)).collect();
        let queues: Vec<_> = rings.iter().map(|ring| Arc::clone(&ring.shared)).collect();
        let wake = Arc::new(wake);
        let reader_wake = Arc::clone(&wake);
        let thread = std::thread::Builder::new()
            .name("weir-rings".to_owned())
            .stack_size(THREAD_STACK_BYTES)
            .spawn(move || run_relay(&epoll_fd, &queues, &reader_wake))
            .map_err(|e| Error::system("emptying rings", e))?;
        let relay = Self { wake, end_request, thread: Some(thread) };
        Ok((relay, rings.into_iter().map(RingSource::Relayed).collect()))
    }

    /// Returns a descriptor that is readable when records were moved out of a ring.
    pub(crate) fn wake_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// Clears earlier wakes. Call this before a poll.
    pub(crate) fn clear_wakes(&self) {
        // An error means that there was no wake.
        let _ = rustix::io::read(&*self.wake, &mut [0; 8]);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        signal_eventfd(&self.end_request);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Makes an eventfd readable.
fn signal_eventfd(fd: &OwnedFd) {
    // An eventfd whose counter is full is readable already.
    let _ = rustix::io::write(fd, &1_u64.to_ne_bytes());
}

/// Empties all rings whenever one of them has reached its watermark.
fn run_relay(epoll_fd: &OwnedFd, queues: &[Arc<Mutex<RelayQueue>>], reader_wake: &OwnedFd) {
    request_short_time_slices();
    let mut events = Vec::with_capacity(queues.len().saturating_add(1));
    let mut idle_wakes = 0_u32;
    loop {
        events.clear();
        match epoll::wait(epoll_fd, rustix::buffer::spare_capacity(&mut events), None) {
            Ok(_) | Err(Errno::INTR) => {}
            // From now on only polls empty the rings.
            Err(_) => return,
        }
        if events.iter().any(|event| event.data.u64() == END_REQUEST) {
            return;
        }
        let filled = queues.iter().filter(|queue| lock_queue(queue).fill_from_ring()).count();
        if filled > 0 {
            idle_wakes = 0;
            signal_eventfd(reader_wake);
        } else {
            idle_wakes = idle_wakes.saturating_add(1);
        }
        if idle_wakes > IDLE_WAKES {
            // An event whose target has ended is always readable: without a pause, this loop would
            // use a whole processor.
            std::thread::sleep(IDLE_PAUSE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Builds records of these sizes, each with its index as its type.
    fn build_records<const N: usize>(sizes: [u16; N]) -> Vec<u8> {
        let record = |(number, size): (usize, u16)| {
            let mut record = vec![0; usize::from(size)];
            record[0] = u8::try_from(number).unwrap();
            record[6..8].copy_from_slice(&size.to_le_bytes());
            record
        };
        sizes.into_iter().enumerate().flat_map(record).collect()
    }

    /// Returns the type and size of all records that one poll sees.
    fn read_all_records(source: &mut RingSource) -> Vec<(u8, usize)> {
        source.poll();
        let mut seen = Vec::new();
        while let Some((kind, length)) = source.peek().map(|record| (record[0], record.len())) {
            source.skip(length);
            seen.push((kind, length));
        }
        seen
    }

    #[test]
    fn poll_returns_records_that_a_full_queue_left_in_the_ring() {
        let ring = PerfRing::from_bytes(&build_records([64, 80, 48, 40]), 3);
        let mut source = RingSource::Relayed(RelayedRing::new(ring, 100));
        assert_eq!(source.cpu(), 3);
        let RingSource::Relayed(ring) = &source else { panic!("the source is not a relayed ring") };
        // Fills the queue twice, as the thread does: the second time it is full.
        let mut queue = ring.queue();
        assert!(queue.fill_from_ring());
        assert!(!queue.fill_from_ring());
        assert_eq!((queue.records.len(), queue.ring.read_tail()), (144, 144));
        drop(queue);
        assert_eq!(read_all_records(&mut source), [(0, 64), (1, 80), (2, 48), (3, 40)]);
        assert_eq!(read_all_records(&mut source), []);
        assert!(!source.take_damage());
    }

    #[test]
    fn records_that_one_poll_leaves_come_first_in_the_next() {
        let mut source =
            RingSource::Relayed(RelayedRing::new(PerfRing::from_bytes(&build_records([64, 80, 48]), 0), 100));
        source.poll();
        source.skip(64);
        assert_eq!(read_all_records(&mut source), [(1, 80), (2, 48)]);
    }

    #[test]
    fn unparsable_ring_is_reported_once() {
        let mut bytes = build_records([64, 80]);
        // The size of the second record is smaller than a record header.
        bytes[64 + 6] = 7;
        let mut source = RingSource::Relayed(RelayedRing::new(PerfRing::from_bytes(&bytes, 0), 1000));
        assert_eq!(read_all_records(&mut source), [(0, 64)]);
        assert_eq!((source.take_damage(), source.take_damage()), (true, false));
    }

    #[test]
    fn relay_ends_and_clears_wakes() {
        let (relay, sources) = Relay::start(Vec::new(), 100).expect("the relay thread does not start");
        assert!(sources.is_empty());
        signal_eventfd(&relay.wake);
        relay.clear_wakes();
        assert_eq!(rustix::io::read(&*relay.wake, &mut [0; 8]), Err(Errno::AGAIN));
        drop(relay);
    }
}
