//! A trace whose buffers the program adds, for instance from another machine.
//!
//! ```text
//!   any thread                                    processing thread
//!   Feeder::add(buffer) ──▶ queue ──▶ a batch: copied, unpacked, merged by time
//!                                       ──▶ handler ──▶ buffers returned (dropped)
//! ```
//!
//! 1. The first buffer has the log-file header, which all stamps depend on.
//! 2. Buffers of a processor come in the order in which the session filled them.
//! 3. Nothing is held back for later buffers: the feeding program may wait for its buffers before
//!    it adds the next ones. So events are in time order among the buffers that are present
//!    together, and within each processor.
//! 4. Each accepted buffer is returned, whatever happens to it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::ops::ControlFlow;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use rustix::event::{EventfdFlags, PollFd, PollFlags};
use traceweir_format::buffer::{BufferHeader, HEADER_SIZE, MAX_BUFFER, Records};
use traceweir_format::etl::unpack;
use traceweir_format::kernel::hook;
use traceweir_format::logfile::LogFileHeader;
use traceweir_format::spec::status::Status;
use traceweir_format::time::Clock;

use super::close::Gate;
use super::stream::{Front, Held, Stream};
use super::{Buffer, Event, Handler, Loss, Lost};
use crate::error::{Error, Result};

/// Buffers that are merged together: so many are in memory a second time, unpacked, with at most
/// this many bytes unless it is a single buffer.
const BATCH: usize = 64;
const BATCH_BYTES: usize = 64 << 20;

/// A buffer that a program lends to a trace.
pub trait Lent: Send {
    /// Returns all bytes of the buffer, from its header on.
    fn bytes(&self) -> &[u8];

    /// Returns the buffer when it is not needed any more.
    fn give_back(self: Box<Self>) {}
}

impl Lent for Vec<u8> {
    fn bytes(&self) -> &[u8] {
        self
    }
}

/// Buffers that are returned on drop.
#[derive(Default)]
struct Batch(VecDeque<Box<dyn Lent>>);

impl Drop for Batch {
    fn drop(&mut self) {
        self.0.drain(..).for_each(|lent| lent.give_back());
    }
}

/// The contents of the first buffer.
#[derive(Debug)]
struct Head {
    header: LogFileHeader,
    clock: Clock,
    logger: u16,
}

/// Buffers on their way from a feeder to the processing thread.
pub(super) struct Feed {
    state: Mutex<State>,
    head: OnceLock<Head>,
    /// Header and clock until the first buffer arrives.
    nothing: (LogFileHeader, Clock),
    /// Readable while buffers may be waiting.
    signal: OwnedFd,
}

#[derive(Default)]
struct State {
    waiting: Batch,
    /// The sequence number of each processor's last buffer.
    sequence: BTreeMap<u16, i64>,
    /// No more buffers are accepted.
    is_over: bool,
}

impl std::fmt::Debug for Feed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Feed").field("head", &self.head).finish_non_exhaustive()
    }
}

impl Feed {
    pub(super) fn new() -> Result<Arc<Self>> {
        let signal = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|e| traceweir_transport::Error::system("eventfd", e))?;
        Ok(Arc::new(Self {
            state: Mutex::default(),
            head: OnceLock::new(),
            nothing: (LogFileHeader::default(), LogFileHeader::default().clock(0)),
            signal,
        }))
    }

    pub(super) fn header(&self) -> &LogFileHeader {
        self.head.get().map_or(&self.nothing.0, |head| &head.header)
    }

    pub(super) fn clock(&self) -> &Clock {
        self.head.get().map_or(&self.nothing.1, |head| &head.clock)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes and returns the next buffers, the first one alone.
    fn take_batch(&self, most: usize) -> Batch {
        // Before the queue is read: later buffers ring again.
        let _ = rustix::io::read(&self.signal, &mut [0; 8]);
        let mut state = self.state();
        let count = fitting(&state.waiting, most);
        let batch = state.waiting.0.drain(..count).collect();
        if !state.waiting.0.is_empty() {
            self.ring();
        }
        Batch(batch)
    }

    fn ring(&self) {
        // A full counter is readable too.
        let _ = rustix::io::write(&self.signal, &1_u64.to_ne_bytes());
    }
}

/// Returns how many of the buffers are unpacked together: a few packed bytes may stand for a buffer
/// of the largest size.
fn fitting(waiting: &Batch, most: usize) -> usize {
    let mut bytes = 0_usize;
    let sizes = waiting.0.iter().take(most).map(|lent| unpacked_size(lent.bytes()));
    let fitting = sizes.take_while(|size| {
        bytes = bytes.saturating_add(*size);
        bytes <= BATCH_BYTES
    });
    let fitting = fitting.count();
    fitting.max(1).min(waiting.0.len())
}

/// Returns the bytes that a buffer takes when it is unpacked.
fn unpacked_size(buffer: &[u8]) -> usize {
    let header = buffer.first_chunk().map(BufferHeader::parse);
    header.map_or(0, |header| header.offset.min(MAX_BUFFER) as usize)
}

/// Adds buffers to a trace.
#[derive(Clone, Debug)]
pub struct Feeder {
    feed: Arc<Feed>,
}

impl Feeder {
    pub(super) fn new(feed: Arc<Feed>) -> Self {
        Self { feed }
    }

    /// Lends a buffer for processing. A refused buffer is dropped instead of returned.
    ///
    /// Fails with `ERROR_INVALID_PARAMETER` for bytes that are not a buffer, a first one without
    /// the log-file header, or one that is older than its predecessor; with `ERROR_INVALID_HANDLE`
    /// once processing has ended.
    pub fn add(&self, buffer: Box<dyn Lent>) -> Result<()> {
        let header = buffer.bytes().first_chunk().map(BufferHeader::parse);
        let header = header.ok_or_else(|| wrong("the buffer is shorter than a buffer header"))?;
        let mut state = self.feed.state();
        if state.is_over {
            return Err(Error::refused(
                Status::ERROR_INVALID_HANDLE,
                "the processing of this stream has ended",
            ));
        }
        if self.feed.head.get().is_none() {
            let head = parse_head(buffer.bytes())?;
            let _ = self.feed.head.set(head);
        } else {
            check(&header, buffer.bytes().len(), &state)?;
        }
        state.sequence.insert(header.processor_index, header.sequence_number);
        state.waiting.0.push_back(buffer);
        self.feed.ring();
        Ok(())
    }

    /// Returns the log-file header, once the first buffer arrived.
    #[must_use]
    pub fn header(&self) -> Option<&LogFileHeader> {
        self.feed.head.get().map(|head| &head.header)
    }
}

fn wrong(reason: &str) -> Error {
    Error::refused(Status::ERROR_INVALID_PARAMETER, reason)
}

fn check(header: &BufferHeader, size: usize, state: &State) -> Result<()> {
    let valid = header.offset as usize;
    if valid < HEADER_SIZE || !header.is_compressed() && valid > size {
        return Err(wrong("the buffer header has an invalid count of valid bytes"));
    }
    let before = state.sequence.get(&header.processor_index).copied().unwrap_or(i64::MIN);
    // Sessions without sequence numbers leave 0.
    if header.sequence_number != 0 && header.sequence_number < before {
        return Err(wrong("the buffer is older than the last one of its processor"));
    }
    Ok(())
}

/// Reads the buffer with the log-file header.
fn parse_head(buffer: &[u8]) -> Result<Head> {
    let no_header = |_| wrong("the first buffer must contain the log-file header");
    let mut bytes = Vec::new();
    let header = unpack(buffer, &mut bytes).map_err(no_header)?;
    let mut records = Records::new(&bytes, HEADER_SIZE, 0, header.processor_index, false);
    let first = records.next().map_err(no_header)?;
    let first = first.filter(|r| r.hook() == Some(hook::LOG_FILE_HEADER));
    let first = first.ok_or_else(|| wrong("the first buffer does not begin with the log-file header"))?;
    let log = LogFileHeader::parse(&first).map_err(no_header)?;
    let clock = log.clock(first.time());
    Ok(Head { header: log, clock, logger: header.logger_id })
}

/// Delivers added buffers until the trace ends.
pub(super) fn process<H: Handler>(feed: &Feed, gate: &Gate, handler: &mut H) -> Result<()> {
    /// Refuses buffers after processing, whichever way it ends.
    struct Over<'f>(&'f Feed);
    impl Drop for Over<'_> {
        fn drop(&mut self) {
            let mut state = self.0.state();
            state.is_over = true;
            let left = std::mem::take(&mut state.waiting);
            drop(state);
            // Outside the lock: returning a buffer may call the program.
            drop(left);
        }
    }
    let _over = Over(feed);
    let mut turns = Turns::default();
    loop {
        let is_ending = gate.is_ending();
        let batch = feed.take_batch(if turns.begun { BATCH } else { 1 });
        if gate.is_closed() || batch.0.is_empty() && is_ending {
            return Ok(());
        }
        if batch.0.is_empty() {
            wait(feed, gate)?;
            continue;
        }
        let _entered = gate.enter();
        let Some(head) = feed.head.get() else { continue };
        if !std::mem::replace(&mut turns.begun, true) {
            handler.begins(0, &head.header, head.logger);
        }
        if turns.deliver(batch, head, gate, handler).is_break() {
            return Ok(());
        }
    }
}

fn wait(feed: &Feed, gate: &Gate) -> Result<()> {
    let mut both = [gate.signal(), feed.signal.as_fd()].map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
    match rustix::event::poll(&mut both, None) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(e) => Err(traceweir_transport::Error::system("poll", e).into()),
    }
}

/// The streams of a trace's processors, from batch to batch.
#[derive(Default)]
struct Turns {
    begun: bool,
    streams: Vec<Stream>,
    by_cpu: BTreeMap<u16, usize>,
    heap: BinaryHeap<Reverse<(i64, usize)>>,
    /// Buffers that ended and were not reported yet.
    ended: Vec<Vec<u8>>,
}

impl Turns {
    fn deliver<H: Handler>(
        &mut self,
        batch: Batch,
        head: &Head,
        gate: &Gate,
        handler: &mut H,
    ) -> ControlFlow<()> {
        let interest = handler.interest(0);
        for lent in &batch.0 {
            let mut bytes = Vec::new();
            let unpacked = unpack(lent.bytes(), &mut bytes).ok();
            if !interest.has_events() {
                self.ended.push(bytes);
                self.report_ends(true, gate, handler)?;
                continue;
            }
            let (cpu, held) = match unpacked {
                Some(header) => (header.processor_index, Held::new(bytes, &header, None)),
                // Its header is valid, but its packed contents are not.
                None => (u16::MAX, Held::notice(Lost { buffers: 1, events: 0 }, head.clock.anchor)),
            };
            self.hold(cpu, held, head);
        }
        while let Some(Reverse((raw, index))) = self.heap.pop() {
            if gate.is_closed() {
                return ControlFlow::Break(());
            }
            let Some(stream) = self.streams.get_mut(index) else { continue };
            deliver_front(stream, head, raw, handler)?;
            if stream.step(&mut self.ended) {
                self.heap.push(Reverse((stream.time, index)));
            }
            self.report_ends(interest.has_buffers(), gate, handler)?;
        }
        ControlFlow::Continue(())
    }

    fn hold(&mut self, cpu: u16, held: Held, head: &Head) {
        let index = *self.by_cpu.entry(cpu).or_insert_with(|| {
            self.streams.push(Stream::new(cpu, head.header.has_old_instances()));
            self.streams.len() - 1
        });
        if let Some(stream) = self.streams.get_mut(index)
            && stream.add(held, &mut self.ended)
        {
            self.heap.push(Reverse((stream.time, index)));
        }
    }

    /// Reports buffers that ended, and frees their memory.
    #[inline]
    fn report_ends<H: Handler>(&mut self, wanted: bool, gate: &Gate, handler: &mut H) -> ControlFlow<()> {
        while let Some(bytes) = self.ended.pop() {
            if wanted
                && !gate.is_closed()
                && let Some(buffer) = Buffer::here(0, &bytes)
            {
                handler.buffer(buffer)?;
            }
        }
        ControlFlow::Continue(())
    }
}

fn deliver_front<H: Handler>(stream: &Stream, head: &Head, raw: i64, handler: &mut H) -> ControlFlow<()> {
    let clock = &head.clock;
    match stream.front() {
        Some(Front::Record(record)) => {
            let time = clock.file_time(record.time());
            handler.event(Event { record: &record, time, trace: 0, clock })
        }
        Some(Front::Lost(lost)) => handler.lost(Loss { lost, trace: 0, raw, time: clock.file_time(raw) }),
        None => ControlFlow::Continue(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(sizes: &[u32]) -> Batch {
        let lent = sizes.iter().map(|offset| {
            let header = BufferHeader { offset: *offset, ..BufferHeader::parse(&[0; HEADER_SIZE]) };
            Box::new(header.to_bytes().to_vec()) as Box<dyn Lent>
        });
        Batch(lent.collect())
    }

    #[test]
    fn batches_respect_the_memory_limit() {
        let count = |sizes: &[u32], most| fitting(&waiting(sizes), most);
        assert_eq!((count(&[], BATCH), count(&[65536; 100], BATCH)), (0, BATCH));
        assert_eq!((count(&[65536; 3], BATCH), count(&[65536; 3], 1)), (3, 1));
        assert_eq!(count(&[MAX_BUFFER; 100], BATCH), BATCH_BYTES / MAX_BUFFER as usize);
        assert_eq!(count(&[u32::MAX; 100], BATCH), BATCH_BYTES / MAX_BUFFER as usize, "what none can have");
        assert_eq!(count(&[1024, MAX_BUFFER, MAX_BUFFER, MAX_BUFFER, MAX_BUFFER], BATCH), 4);
    }
}
