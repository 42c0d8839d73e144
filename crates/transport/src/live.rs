//! Skeleton: live consumers' queues.

use std::os::fd::{BorrowedFd, OwnedFd};

use crate::error::Result;

/// The descriptors a consumer is given.
#[derive(Debug)]
pub struct ConsumerEnds {
    /// Finished buffers; can only be mapped for reading.
    pub queue: OwnedFd,
    /// One page that the consumer writes: how far it has read.
    pub cursor: OwnedFd,
    /// Signalled when a buffer was added or the session ended.
    pub signal: OwnedFd,
}

/// The session's side: writes finished buffers and never waits.
#[derive(Debug)]
pub struct QueueWriter {
    _private: (),
}

impl QueueWriter {
    /// A queue of `slots` buffers of `buffer_bytes` at most.
    pub fn create(slots: u32, buffer_bytes: u32) -> Result<(Self, ConsumerEnds)> {
        let _ = (slots, buffer_bytes);
        todo!()
    }

    /// Adds a buffer; `false` when the consumer is too far behind. Signals it.
    pub fn push(&mut self, buffer: &[u8]) -> bool {
        let _ = buffer;
        todo!()
    }

    /// Tells the consumer what it has lost so far: buffers, events.
    pub fn set_lost(&mut self, buffers: u64, events: u64) {
        let _ = (buffers, events);
        todo!()
    }

    /// Tells the consumer that nothing more comes.
    pub fn end(&mut self) {
        todo!()
    }
}

/// The consumer's side.
#[derive(Debug)]
pub struct QueueReader {
    _private: (),
}

/// What a consumer finds in its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// A buffer was copied; so many bytes.
    Buffer(usize),
    /// Nothing now.
    Empty,
    /// Nothing any more.
    Ended,
}

impl QueueReader {
    /// Maps the descriptors; sizes come from the control message.
    pub fn open(ends: ConsumerEnds, slots: u32, buffer_bytes: u32) -> Result<Self> {
        let _ = (ends, slots, buffer_bytes);
        todo!()
    }

    /// Copies the next buffer into `out` (cleared first) and frees its slot.
    pub fn pop(&mut self, out: &mut Vec<u8>) -> Result<Next> {
        let _ = out;
        todo!()
    }

    /// Buffers and events lost to this consumer so far.
    #[must_use]
    pub fn lost(&self) -> (u64, u64) {
        todo!()
    }

    /// Readable when there may be something new.
    #[must_use]
    pub fn signal(&self) -> BorrowedFd<'_> {
        todo!()
    }
}
