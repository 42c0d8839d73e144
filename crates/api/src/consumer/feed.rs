//! A trace whose buffers the program adds, for instance from another machine.
//!
//! ```text
//!   any thread                                    processing thread
//!   Feeder::add(buffer) ──▶ queue ──▶ a batch: copied, unpacked, merged by time
//!                                       ──▶ handler ──▶ `Lent::give_back`
//! ```
//!
//! 1. The first buffer has the log-file header, which all stamps depend on.
//! 2. Buffers of a processor must be added in the order in which the session filled them.
//! 3. No event is held back until later buffers arrive: the feeding program may wait until its
//!    buffers are returned before it adds the next ones. So events are in time order within each
//!    batch, and within each processor.
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

use super::close::CloseGate;
use super::stream::{HeldBuffer, NextItem, ProcessorStream};
use super::{Buffer, Event, Handler, Loss, Lost};
use crate::error::{Error, Result};

/// Maximum number of buffers that are unpacked and merged together as one batch.
const MAX_BATCH_BUFFERS: usize = 64;
/// Maximum number of unpacked bytes of a batch of several buffers.
const MAX_BATCH_BYTES: usize = 64 << 20;

/// A buffer that a program lends to a trace.
pub trait Lent: Send {
    /// Returns all bytes of the buffer, from its header on.
    fn bytes(&self) -> &[u8];

    /// Gives the buffer back to the program that lent it. The trace calls this when it no longer
    /// needs the buffer.
    fn give_back(self: Box<Self>) {}
}

impl Lent for Vec<u8> {
    fn bytes(&self) -> &[u8] {
        self
    }
}

/// Lent buffers that are given back on drop.
#[derive(Default)]
struct LentBuffers(VecDeque<Box<dyn Lent>>);

impl Drop for LentBuffers {
    fn drop(&mut self) {
        self.0.drain(..).for_each(|lent| lent.give_back());
    }
}

/// The log-file header, clock and logger id in the first buffer.
#[derive(Debug)]
struct FirstBuffer {
    header: LogFileHeader,
    clock: Clock,
    logger: u16,
}

/// Buffers on their way from a feeder to the processing thread.
pub(super) struct Feed {
    state: Mutex<FeedState>,
    first_buffer: OnceLock<FirstBuffer>,
    /// Header and clock until the first buffer arrives.
    empty: (LogFileHeader, Clock),
    /// Readable while buffers may be waiting.
    signal: OwnedFd,
}

#[derive(Default)]
struct FeedState {
    waiting: LentBuffers,
    /// The sequence number of each processor's last buffer.
    last_sequence_numbers: BTreeMap<u16, i64>,
    /// No more buffers are accepted.
    is_over: bool,
}

impl std::fmt::Debug for Feed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Feed").field("first_buffer", &self.first_buffer).finish_non_exhaustive()
    }
}

impl Feed {
    pub(super) fn new() -> Result<Arc<Self>> {
        let signal = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|e| traceweir_transport::Error::system("eventfd", e))?;
        Ok(Arc::new(Self {
            state: Mutex::default(),
            first_buffer: OnceLock::new(),
            empty: (LogFileHeader::default(), LogFileHeader::default().clock(0)),
            signal,
        }))
    }

    pub(super) fn header(&self) -> &LogFileHeader {
        self.first_buffer.get().map_or(&self.empty.0, |first| &first.header)
    }

    pub(super) fn clock(&self) -> &Clock {
        self.first_buffer.get().map_or(&self.empty.1, |first| &first.clock)
    }

    fn lock_state(&self) -> MutexGuard<'_, FeedState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes and returns the buffers of the next batch, at most `max_buffers`.
    fn take_batch(&self, max_buffers: usize) -> LentBuffers {
        // The signal is reset before the queue is read: later buffers make it readable again.
        let _ = rustix::io::read(&self.signal, &mut [0; 8]);
        let mut state = self.lock_state();
        let count = count_fitting(&state.waiting, max_buffers);
        let batch = state.waiting.0.drain(..count).collect();
        if !state.waiting.0.is_empty() {
            self.signal_buffers();
        }
        LentBuffers(batch)
    }

    fn signal_buffers(&self) {
        // If the counter is full, the write fails, but the counter is readable.
        let _ = rustix::io::write(&self.signal, &1_u64.to_ne_bytes());
    }
}

/// Returns how many of the buffers form the next batch. Their unpacked sizes count, because a few
/// packed bytes may expand to a buffer of the largest size.
fn count_fitting(waiting: &LentBuffers, max_buffers: usize) -> usize {
    let mut bytes = 0_usize;
    let sizes = waiting.0.iter().take(max_buffers).map(|lent| unpacked_size(lent.bytes()));
    let fitting_sizes = sizes.take_while(|size| {
        bytes = bytes.saturating_add(*size);
        bytes <= MAX_BATCH_BYTES
    });
    fitting_sizes.count().max(1).min(waiting.0.len())
}

/// Returns the unpacked size of a buffer as its header claims it, at most `MAX_BUFFER`.
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

    /// Lends a buffer for processing. A refused buffer is dropped without [`Lent::give_back`].
    ///
    /// Fails with `ERROR_INVALID_PARAMETER` for bytes that are not a buffer, a first buffer without
    /// the log-file header, or a buffer that is older than the last one of its processor; with
    /// `ERROR_INVALID_HANDLE` once processing has ended.
    pub fn add(&self, buffer: Box<dyn Lent>) -> Result<()> {
        let header = buffer.bytes().first_chunk().map(BufferHeader::parse);
        let header = header.ok_or_else(|| invalid_buffer("the buffer is shorter than a buffer header"))?;
        let mut state = self.feed.lock_state();
        if state.is_over {
            return Err(Error::refused(
                Status::ERROR_INVALID_HANDLE,
                "the processing of the added buffers has ended",
            ));
        }
        if self.feed.first_buffer.get().is_none() {
            let first_buffer = parse_first_buffer(buffer.bytes())?;
            let _ = self.feed.first_buffer.set(first_buffer);
        } else {
            check_buffer(&header, buffer.bytes().len(), &state)?;
        }
        state.last_sequence_numbers.insert(header.processor_index, header.sequence_number);
        state.waiting.0.push_back(buffer);
        self.feed.signal_buffers();
        Ok(())
    }

    /// Returns the log-file header, once the first buffer arrived.
    #[must_use]
    pub fn header(&self) -> Option<&LogFileHeader> {
        self.feed.first_buffer.get().map(|first| &first.header)
    }
}

fn invalid_buffer(reason: &str) -> Error {
    Error::refused(Status::ERROR_INVALID_PARAMETER, reason)
}

fn check_buffer(header: &BufferHeader, size: usize, state: &FeedState) -> Result<()> {
    let valid_bytes = header.offset as usize;
    if valid_bytes < HEADER_SIZE || !header.is_compressed() && valid_bytes > size {
        return Err(invalid_buffer("the buffer header has an invalid count of valid bytes"));
    }
    let last_number = state.last_sequence_numbers.get(&header.processor_index).copied().unwrap_or(i64::MIN);
    // Sessions without sequence numbers leave 0.
    if header.sequence_number != 0 && header.sequence_number < last_number {
        return Err(invalid_buffer("the buffer is older than the last one of its processor"));
    }
    Ok(())
}

/// Reads the first buffer, which contains the log-file header.
fn parse_first_buffer(buffer: &[u8]) -> Result<FirstBuffer> {
    let no_header_error = |_| invalid_buffer("the first buffer must contain the log-file header");
    let mut bytes = Vec::new();
    let header = unpack(buffer, &mut bytes).map_err(no_header_error)?;
    let mut records = Records::new(&bytes, HEADER_SIZE, 0, header.processor_index, false);
    let first = records.next().map_err(no_header_error)?;
    let first = first.filter(|r| r.hook() == Some(hook::LOG_FILE_HEADER));
    let first =
        first.ok_or_else(|| invalid_buffer("the first buffer does not begin with the log-file header"))?;
    let log = LogFileHeader::parse(&first).map_err(no_header_error)?;
    let clock = log.clock(first.time());
    Ok(FirstBuffer { header: log, clock, logger: header.logger_id })
}

/// Delivers added buffers until the trace ends.
pub(super) fn process<H: Handler>(feed: &Feed, gate: &CloseGate, handler: &mut H) -> Result<()> {
    /// Refuses buffers after the end of processing, even after a panic.
    struct RefuseOnDrop<'f>(&'f Feed);
    impl Drop for RefuseOnDrop<'_> {
        fn drop(&mut self) {
            let mut state = self.0.lock_state();
            state.is_over = true;
            let unprocessed = std::mem::take(&mut state.waiting);
            drop(state);
            // Outside the lock: `give_back` is code of the program.
            drop(unprocessed);
        }
    }
    let _refuse = RefuseOnDrop(feed);
    let mut merge = BatchMerge::default();
    loop {
        let is_ending = gate.is_ending();
        // The first buffer is a batch of its own, so that the log-file header event comes first.
        let batch = feed.take_batch(if merge.has_begun { MAX_BATCH_BUFFERS } else { 1 });
        if gate.is_closed() || batch.0.is_empty() && is_ending {
            return Ok(());
        }
        if batch.0.is_empty() {
            wait(feed, gate)?;
            continue;
        }
        let _entered = gate.lock();
        let Some(first) = feed.first_buffer.get() else { continue };
        if !std::mem::replace(&mut merge.has_begun, true) {
            handler.begins(0, &first.header, first.logger);
        }
        if merge.deliver(batch, first, gate, handler).is_break() {
            return Ok(());
        }
    }
}

fn wait(feed: &Feed, gate: &CloseGate) -> Result<()> {
    let signals = [gate.signal(), feed.signal.as_fd()];
    match rustix::event::poll(&mut signals.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)), None) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(e) => Err(traceweir_transport::Error::system("poll", e).into()),
    }
}

/// The streams of a trace's processors, from batch to batch.
#[derive(Default)]
struct BatchMerge {
    has_begun: bool,
    streams: Vec<ProcessorStream>,
    by_cpu: BTreeMap<u16, usize>,
    heap: BinaryHeap<Reverse<(i64, usize)>>,
    /// Buffers whose events have been delivered and that were not reported yet.
    ended_buffers: Vec<Vec<u8>>,
}

impl BatchMerge {
    fn deliver<H: Handler>(
        &mut self,
        batch: LentBuffers,
        first: &FirstBuffer,
        gate: &CloseGate,
        handler: &mut H,
    ) -> ControlFlow<()> {
        let interest = handler.interest(0);
        for lent in &batch.0 {
            let mut bytes = Vec::new();
            let unpacked = unpack(lent.bytes(), &mut bytes).ok();
            if !interest.has_events() {
                self.ended_buffers.push(bytes);
                self.report_ends(true, gate, handler)?;
                continue;
            }
            let (cpu, held) = match unpacked {
                Some(header) => (header.processor_index, HeldBuffer::new(bytes, &header, None)),
                // The header of the buffer is valid, but its packed contents are not: a loss that
                // belongs to no processor and has no stamp. It is placed at the trace's start.
                None => (u16::MAX, HeldBuffer::from_loss(Lost { buffers: 1, events: 0 }, first.clock.anchor)),
            };
            self.hold_buffer(cpu, held, first);
        }
        while let Some(Reverse((raw, index))) = self.heap.pop() {
            if gate.is_closed() {
                return ControlFlow::Break(());
            }
            let Some(stream) = self.streams.get_mut(index) else { continue };
            deliver_front(stream, first, raw, handler)?;
            if stream.step(&mut self.ended_buffers) {
                self.heap.push(Reverse((stream.key, index)));
            }
            self.report_ends(interest.has_buffers(), gate, handler)?;
        }
        ControlFlow::Continue(())
    }

    fn hold_buffer(&mut self, cpu: u16, held: HeldBuffer, first: &FirstBuffer) {
        let index = *self.by_cpu.entry(cpu).or_insert_with(|| {
            self.streams.push(ProcessorStream::new(cpu, first.header.has_short_instance_headers()));
            self.streams.len() - 1
        });
        if let Some(stream) = self.streams.get_mut(index)
            && stream.add(held, &mut self.ended_buffers)
        {
            self.heap.push(Reverse((stream.key, index)));
        }
    }

    /// Reports the ended buffers if `is_wanted`, and frees their memory.
    #[inline]
    fn report_ends<H: Handler>(
        &mut self,
        is_wanted: bool,
        gate: &CloseGate,
        handler: &mut H,
    ) -> ControlFlow<()> {
        while let Some(bytes) = self.ended_buffers.pop() {
            if is_wanted
                && !gate.is_closed()
                && let Some(buffer) = Buffer::in_memory(0, &bytes)
            {
                handler.buffer(buffer)?;
            }
        }
        ControlFlow::Continue(())
    }
}

fn deliver_front<H: Handler>(
    stream: &ProcessorStream,
    first: &FirstBuffer,
    raw: i64,
    handler: &mut H,
) -> ControlFlow<()> {
    let clock = &first.clock;
    match stream.front() {
        Some(NextItem::Record(record)) => {
            let time = clock.file_time(record.time());
            handler.event(Event { record: &record, time, trace: 0, clock })
        }
        Some(NextItem::Lost(lost)) => handler.lost(Loss { lost, trace: 0, raw, time: clock.file_time(raw) }),
        None => ControlFlow::Continue(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn make_batch(sizes: &[u32]) -> LentBuffers {
        let lent = sizes.iter().map(|offset| {
            let header = BufferHeader { offset: *offset, ..BufferHeader::parse(&[0; HEADER_SIZE]) };
            Box::new(header.to_bytes().to_vec()) as Box<dyn Lent>
        });
        LentBuffers(lent.collect())
    }

    #[test]
    fn batches_respect_the_memory_limit() {
        let count = |sizes: &[u32], max_buffers| count_fitting(&make_batch(sizes), max_buffers);
        assert_eq!(
            (count(&[], MAX_BATCH_BUFFERS), count(&[65536; 100], MAX_BATCH_BUFFERS)),
            (0, MAX_BATCH_BUFFERS)
        );
        assert_eq!((count(&[65536; 3], MAX_BATCH_BUFFERS), count(&[65536; 3], 1)), (3, 1));
        assert_eq!(count(&[MAX_BUFFER; 100], MAX_BATCH_BUFFERS), MAX_BATCH_BYTES / MAX_BUFFER as usize);
        assert_eq!(
            count(&[u32::MAX; 100], MAX_BATCH_BUFFERS),
            MAX_BATCH_BYTES / MAX_BUFFER as usize,
            "sizes above the maximum count as the maximum"
        );
        assert_eq!(count(&[1024, MAX_BUFFER, MAX_BUFFER, MAX_BUFFER, MAX_BUFFER], MAX_BATCH_BUFFERS), 4);
    }
}
