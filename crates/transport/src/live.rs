//! Queues of live consumers: finished buffers of a session, in memory that the session writes and
//! the consumer can only read.
//!
//! ```text
//!   the session: QueueWriter                                   the consumer: QueueReader
//!        │                                                          │
//!        ├──▶ queue (memory file, sealed against other writers) ───▶┤   buffers, head, ended, lost
//!        ├◀── cursor (memory file of one page) ◀────────────────────┤   tail
//!        └──▶ signal (socket pair) ────────────────────────────────▶┘   readable: poll again;
//!                                                                       closed: the session ended
//!
//!   queue    0            100                   data (a multiple of 1000)
//!            ┌────────────┬─────────────────────┬──────────┬──────────┬─ … ─┐
//!            │ header     │ one entry per slot  │ buffer 0 │ buffer 1 │     │
//!            └────────────┴─────────────────────┴──────────┴──────────┴─ … ─┘
//!                                                 buffer_bytes, rounded up to 1000 each
//!
//!   header   00 u64 MAGIC │ 08 u32 VERSION │ 0C u32 slots │ 10 u32 buffer_bytes
//!            40 u64 head: buffers added so far │ 48 u64 ended: 1 when no more buffers will come
//!            80 u64 buffers lost to this consumer │ 88 u64 events in the lost buffers
//!            90 i64 complete: every event up to this stamp was added or lost
//!   entry    00 i64 complete as it was when the buffer was added
//!            08 u32 length of the buffer │ 0C u32 0
//!   cursor   00 u64 tail: buffers taken so far
//! ```
//!
//! Buffer n stands in slot n mod `slots`. The numbers in the picture are hexadecimal.
//!
//! 1. The writer never waits: without a free slot it refuses a buffer, and the caller counts the
//!    loss. Signals are sent and received with MSG_DONTWAIT, because another process may share the
//!    descriptor and clear O_NONBLOCK.
//! 2. The writer trusts the cursor only between the last value it saw and `head`. A consumer that
//!    writes wrong values loses or repeats buffers of its own queue.
//! 3. The reader trusts nothing either: both files must be sealed against shrinking, each word is
//!    checked, and a buffer is copied before its slot is freed.
//! 4. The writer stores `head` after a buffer (release), and the reader loads `head` before the
//!    buffer (acquire). The reader stores `tail` in the same way after it has copied a buffer. The
//!    writer stores `ended` after the last buffer: a reader that sees `ended` sees every buffer.
//!
//! This module does not know what is in a buffer. The daemon decides which consumer gets a queue.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::SealFlags;
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

use crate::abi::PAGE;
use crate::error::{Error, Result};
use crate::map::{self, Mapping, memory_file, seal};

/// First word of a queue: `TWQUEUE1`.
pub const MAGIC: u64 = u64::from_le_bytes(*b"TWQUEUE1");
/// Version of the queue's layout.
pub const VERSION: u32 = 2;
/// Largest number of slots of a queue.
pub const MAX_SLOTS: u32 = 1 << 16;
/// Largest size of a buffer in bytes.
pub const MAX_BUFFER_BYTES: u32 = 1 << 24;
/// Largest size of a queue in bytes.
const MAX_QUEUE_BYTES: usize = 1 << 32;

/// Offsets in the queue.
mod offset {
    pub(super) const MAGIC: usize = 0x00;
    pub(super) const VERSION: usize = 0x08;
    pub(super) const SLOTS: usize = 0x0C;
    pub(super) const BUFFER_BYTES: usize = 0x10;
    pub(super) const HEAD: usize = 0x40;
    pub(super) const ENDED: usize = 0x48;
    pub(super) const LOST_BUFFERS: usize = 0x80;
    pub(super) const LOST_EVENTS: usize = 0x88;
    pub(super) const COMPLETE: usize = 0x90;
    pub(super) const ENTRIES: usize = 0x100;
    /// Offset in an entry.
    pub(super) const LENGTH: usize = 0x08;
    pub(super) const ENTRY_BYTES: usize = 0x10;
    /// Offset in the cursor.
    pub(super) const TAIL: usize = 0x00;
}

/// The layout of a queue.
#[derive(Clone, Copy, Debug)]
struct QueueLayout {
    slots: u32,
    buffer_bytes: u32,
}

impl QueueLayout {
    fn new(slots: u32, buffer_bytes: u32) -> Result<Self> {
        let layout = Self { slots, buffer_bytes };
        let is_valid = (1..=MAX_SLOTS).contains(&slots) && (1..=MAX_BUFFER_BYTES).contains(&buffer_bytes);
        if !is_valid || layout.bytes() > MAX_QUEUE_BYTES {
            return Err(Error::Invalid(
                "a queue has 1 to 65536 slots of 1 byte to 16 MiB, and 4 GiB at most",
            ));
        }
        Ok(layout)
    }

    fn slot(self, position: u64) -> usize {
        (position % u64::from(self.slots)) as usize
    }

    fn entry_offset(self, position: u64) -> usize {
        offset::ENTRIES + offset::ENTRY_BYTES * self.slot(position)
    }

    fn length_offset(self, position: u64) -> usize {
        self.entry_offset(position) + offset::LENGTH
    }

    fn slot_offset(self, slot: usize) -> usize {
        let entries = offset::ENTRY_BYTES * self.slots as usize;
        (offset::ENTRIES + entries).next_multiple_of(PAGE)
            + slot * (self.buffer_bytes as usize).next_multiple_of(PAGE)
    }

    fn data_offset(self, position: u64) -> usize {
        self.slot_offset(self.slot(position))
    }

    fn bytes(self) -> usize {
        self.slot_offset(self.slots as usize)
    }
}

/// Returns a word that every queue and cursor has.
fn required_word(memory: &Mapping, offset: usize) -> Result<&AtomicU64> {
    memory.word(offset).ok_or(Error::Invalid("a queue is smaller than its own header"))
}

fn required_half_word(memory: &Mapping, offset: usize) -> Result<&AtomicU32> {
    memory.half(offset).ok_or(Error::Invalid("a queue is smaller than its own header"))
}

/// The descriptors that a consumer gets.
#[derive(Debug)]
pub struct ConsumerEnds {
    /// Finished buffers; can only be mapped for reading.
    pub queue: OwnedFd,
    /// One page that the consumer writes: the number of buffers it has taken.
    pub cursor: OwnedFd,
    /// Readable when there may be something new, or the session has ended.
    pub signal: OwnedFd,
}

/// The session's end of a queue: writes finished buffers and never waits.
#[derive(Debug)]
pub struct QueueWriter {
    layout: QueueLayout,
    queue: Mapping,
    cursor: Mapping,
    signal: OwnedFd,
    head: u64,
    /// Last tail that was accepted.
    tail: u64,
    /// Completeness stamp that the consumer has; 0 means none yet.
    complete: i64,
}

impl QueueWriter {
    /// Creates a queue of `slots` buffers of at most `buffer_bytes`.
    pub fn create(slots: u32, buffer_bytes: u32) -> Result<(Self, ConsumerEnds)> {
        let layout = QueueLayout::new(slots, buffer_bytes)?;
        map::check_headroom(layout.bytes())?;
        let file = memory_file(c"traceweir-queue", layout.bytes())?;
        let queue = Mapping::from_file(file.as_fd(), layout.bytes(), true)?;
        // The seal comes after the mapping: this mapping stays writable, and no later mapping can
        // be writable.
        seal(file.as_fd(), SealFlags::FUTURE_WRITE)?;
        let cursor_file = memory_file(c"traceweir-cursor", PAGE)?;
        seal(cursor_file.as_fd(), SealFlags::empty())?;
        let cursor = Mapping::from_file(cursor_file.as_fd(), PAGE, false)?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (signal, consumer_signal) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)
                .map_err(|e| Error::system("socketpair", e))?;

        required_word(&queue, offset::MAGIC)?.store(MAGIC, Ordering::Relaxed);
        required_half_word(&queue, offset::VERSION)?.store(VERSION, Ordering::Relaxed);
        required_half_word(&queue, offset::SLOTS)?.store(slots, Ordering::Relaxed);
        required_half_word(&queue, offset::BUFFER_BYTES)?.store(buffer_bytes, Ordering::Relaxed);
        let writer = Self { layout, queue, cursor, signal, head: 0, tail: 0, complete: 0 };
        Ok((writer, ConsumerEnds { queue: file, cursor: cursor_file, signal: consumer_signal }))
    }

    /// Adds a buffer and signals the consumer. Returns `false` if the queue is full, or the buffer
    /// does not fit into a slot.
    pub fn push(&mut self, buffer: &[u8]) -> bool {
        let is_added = self.has_free_slot() && self.write_buffer(buffer).is_some();
        if is_added {
            self.signal_consumer();
        }
        is_added
    }

    /// Returns whether a slot is free. The acquire pairs with the release in
    /// [`QueueReader::copy_buffer`]: the consumer has finished copying from the freed slots.
    fn has_free_slot(&mut self) -> bool {
        let Ok(tail) = required_word(&self.cursor, offset::TAIL) else { return false };
        self.tail = tail.load(Ordering::Acquire).clamp(self.tail, self.head);
        self.head - self.tail < u64::from(self.layout.slots)
    }

    fn write_buffer(&mut self, buffer: &[u8]) -> Option<()> {
        let length =
            u32::try_from(buffer.len()).ok().filter(|n| (1..=self.layout.buffer_bytes).contains(n))?;
        self.queue.copy_in(self.layout.data_offset(self.head), buffer).then_some(())?;
        let complete = self.complete.cast_unsigned();
        self.queue.word(self.layout.entry_offset(self.head))?.store(complete, Ordering::Relaxed);
        self.queue.half(self.layout.length_offset(self.head))?.store(length, Ordering::Relaxed);
        self.head += 1;
        // Pairs with the acquire in `QueueReader::waiting_buffers`: buffer and entry come first.
        self.queue.word(offset::HEAD)?.store(self.head, Ordering::Release);
        Some(())
    }

    /// Publishes the buffers and events that the consumer has lost so far.
    pub fn set_lost(&mut self, buffers: u64, events: u64) {
        for (offset, value) in [(offset::LOST_BUFFERS, buffers), (offset::LOST_EVENTS, events)] {
            if let Some(word) = self.queue.word(offset) {
                word.store(value, Ordering::Relaxed);
            }
        }
    }

    /// Publishes the completeness stamp: no event up to this stamp will be added any more, except
    /// events whose provider chose their time (`KEEP_STAMP`). `stamp` must never decrease.
    /// Publishing takes no slot; buffers that are added later carry the stamp in their entries.
    pub fn set_complete(&mut self, stamp: i64) {
        self.complete = stamp;
        if let Some(word) = self.queue.word(offset::COMPLETE) {
            // Pairs with the acquire in `QueueReader::complete`: a reader that sees the stamp also
            // sees every buffer that was added before.
            word.store(stamp.cast_unsigned(), Ordering::Release);
        }
        self.signal_consumer();
    }

    /// Publishes the end of the session.
    pub fn end(&mut self) {
        if let Some(ended) = self.queue.word(offset::ENDED) {
            // Pairs with the acquire in `QueueReader::poll`: a reader that sees the end also sees
            // every buffer and the final loss counts.
            ended.store(1, Ordering::Release);
        }
        self.signal_consumer();
    }

    /// Signals the consumer. Errors do not matter: if the socket is full, it holds unread signals;
    /// without a reader, no signal is needed.
    fn signal_consumer(&self) {
        let _ = rustix::net::send(&self.signal, &[1], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    }
}

/// The consumer's end of a queue.
#[derive(Debug)]
pub struct QueueReader {
    layout: QueueLayout,
    queue: Mapping,
    cursor: Mapping,
    signal: OwnedFd,
    tail: u64,
    /// Completeness stamp in the entry of the last buffer taken.
    last_complete: i64,
}

/// Result of reading a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// A buffer of this many bytes was copied.
    Buffer(usize),
    /// The queue is empty now.
    Empty,
    /// The session has ended.
    Ended,
}

impl QueueReader {
    /// Maps the descriptors; sizes come from the control message.
    pub fn open(ends: ConsumerEnds, slots: u32, buffer_bytes: u32) -> Result<Self> {
        let layout = QueueLayout::new(slots, buffer_bytes)?;
        map::check_seals(ends.queue.as_fd())?;
        map::check_seals(ends.cursor.as_fd())?;
        let queue = Mapping::from_file(ends.queue.as_fd(), layout.bytes(), false)?;
        let cursor = Mapping::from_file(ends.cursor.as_fd(), PAGE, true)?;
        let is_supported = required_word(&queue, offset::MAGIC)?.load(Ordering::Relaxed) == MAGIC
            && required_half_word(&queue, offset::VERSION)?.load(Ordering::Relaxed) == VERSION;
        if !is_supported {
            return Err(Error::Invalid("the memory is not a queue of a known version"));
        }
        Ok(Self { layout, queue, cursor, signal: ends.signal, tail: 0, last_complete: 0 })
    }

    /// Copies the next buffer into `out`, which then holds that buffer alone, and frees its slot.
    /// Returns [`Next::Ended`] also if the session's process has ended.
    pub fn pop(&mut self, out: &mut Vec<u8>) -> Result<Next> {
        let mut next = self.poll()?;
        if next == Next::Empty {
            // Signals are read before the second poll: a signal that comes later leaves the
            // descriptor readable.
            let is_closed = self.take_signals()?;
            next = self.poll()?;
            if next == Next::Empty && is_closed {
                next = Next::Ended;
            }
        }
        if let Next::Buffer(length) = next {
            self.copy_buffer(length, out)?;
        } else {
            out.clear();
        }
        Ok(next)
    }

    /// Returns the state of the queue without taking a buffer.
    fn poll(&self) -> Result<Next> {
        // `ended` is loaded before `head`: if it is set, `head` counts every buffer.
        let ended = required_word(&self.queue, offset::ENDED)?.load(Ordering::Acquire) != 0;
        if self.waiting_buffers()? == 0 {
            return Ok(if ended { Next::Ended } else { Next::Empty });
        }
        let length =
            required_half_word(&self.queue, self.layout.length_offset(self.tail))?.load(Ordering::Relaxed);
        if !(1..=self.layout.buffer_bytes).contains(&length) {
            return Err(Error::Invalid("a queue holds a buffer of an impossible length"));
        }
        Ok(Next::Buffer(length as usize))
    }

    /// Returns the number of waiting buffers. The acquire pairs with the release in
    /// [`QueueWriter::write_buffer`].
    fn waiting_buffers(&self) -> Result<u64> {
        let head = required_word(&self.queue, offset::HEAD)?.load(Ordering::Acquire);
        let waiting = head.checked_sub(self.tail).filter(|n| *n <= u64::from(self.layout.slots));
        waiting.ok_or(Error::Invalid("a queue holds more buffers than it has slots"))
    }

    fn copy_buffer(&mut self, length: usize, out: &mut Vec<u8>) -> Result<()> {
        out.resize(length, 0);
        if !self.queue.copy_out(self.layout.data_offset(self.tail), out) {
            return Err(Error::Invalid("a queue is smaller than its slots"));
        }
        let complete =
            required_word(&self.queue, self.layout.entry_offset(self.tail))?.load(Ordering::Relaxed);
        // A correct writer cannot have wrapped around; an incorrect one is detected here.
        self.waiting_buffers()?;
        self.last_complete = complete.cast_signed();
        self.tail += 1;
        // Pairs with the acquire in `QueueWriter::has_free_slot`: the copy is finished.
        required_word(&self.cursor, offset::TAIL)?.store(self.tail, Ordering::Release);
        Ok(())
    }

    /// Reads the waiting signals. Returns `true` if the writer's end is closed.
    fn take_signals(&self) -> Result<bool> {
        let mut bytes = [0_u8; 512];
        // The number of reads is bounded, because the writer may send signals all the time.
        // Remaining signals leave the descriptor readable, which costs one more poll.
        for _ in 0..8 {
            match rustix::net::recv(&self.signal, &mut bytes, RecvFlags::DONTWAIT) {
                Ok((0, _)) | Err(Errno::CONNRESET) => return Ok(true),
                Err(Errno::AGAIN) => return Ok(false),
                Ok(_) | Err(Errno::INTR) => {}
                Err(e) => return Err(Error::system("reading the signal of a queue", e)),
            }
        }
        Ok(false)
    }

    /// Returns whether the session itself announced its end: [`Next::Ended`] without it means that
    /// the session's process has ended.
    #[must_use]
    pub fn has_announced_end(&self) -> bool {
        self.queue.word(offset::ENDED).is_some_and(|ended| ended.load(Ordering::Acquire) != 0)
    }

    /// Returns the completeness stamp; 0 means unknown. Once the consumer has taken every buffer
    /// that is in the queue now, no event up to this stamp will come any more, except events whose
    /// provider chose their time (`KEEP_STAMP`).
    #[must_use]
    pub fn complete(&self) -> i64 {
        self.queue.word(offset::COMPLETE).map_or(0, |word| word.load(Ordering::Acquire)).cast_signed()
    }

    /// Returns the completeness stamp that was current when the last taken buffer was added. No
    /// event up to this stamp will come any more, however many buffers wait in the queue, with the
    /// same exception as in [`complete`](Self::complete).
    #[must_use]
    pub fn complete_before_last(&self) -> i64 {
        self.last_complete
    }

    /// Returns the buffers and events that this consumer has lost so far.
    #[must_use]
    pub fn lost(&self) -> (u64, u64) {
        let read = |offset| self.queue.word(offset).map_or(0, |word| word.load(Ordering::Relaxed));
        (read(offset::LOST_BUFFERS), read(offset::LOST_EVENTS))
    }

    /// Returns the descriptor that is readable when there may be something new; [`pop`](Self::pop)
    /// takes the signals.
    #[must_use]
    pub fn signal(&self) -> BorrowedFd<'_> {
        self.signal.as_fd()
    }
}

#[cfg(test)]
mod tests;
