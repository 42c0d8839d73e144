//! Skeleton.

use std::os::fd::OwnedFd;

use crate::abi::RegionParams;
use crate::error::Result;

/// The region breaks its rules: nothing more is read from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damaged;

/// What stands in front of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Bytes of the record, 1 … 65535 and at most the region's `max_record`.
    pub length: usize,
    /// The processor it was written on, below the region's number of processors.
    pub cpu: u16,
    /// Whether the stamp inside the record is to be kept.
    pub keep_stamp: bool,
    /// Raw counter at which it was written.
    pub stamp: u64,
}

/// The owner's side of a region.
#[derive(Debug)]
pub struct RegionReader {
    _private: (),
}

impl RegionReader {
    /// Creates a region: the reading side, and the sealed memory file for the process.
    pub fn create(params: &RegionParams) -> Result<(Self, OwnedFd)> {
        let _ = params;
        todo!()
    }

    /// What the region was created with.
    #[must_use]
    pub fn params(&self) -> &RegionParams {
        todo!()
    }

    /// The rings: those of restartable sequences by processor, then those of the lock by processor.
    pub fn rings(&mut self) -> &mut [RingReader] {
        todo!()
    }

    /// Events that the process counted as lost so far. Never goes back, and grows no faster than a processor can count.
    pub fn lost(&mut self) -> u64 {
        todo!()
    }

    /// Bytes that are in its rings now, unread.
    pub fn unread(&mut self) -> u64 {
        todo!()
    }

    /// Gives pages behind the tail back to the system where little is written. Called once in a while.
    pub fn give_back(&mut self) {
        todo!()
    }
}

/// The reading side of one ring.
#[derive(Debug)]
pub struct RingReader {
    _private: (),
}

impl RingReader {
    /// Looks where the writer stands; records up to there can then be read. Whether there are any.
    pub fn look(&mut self) -> Result<bool, Damaged> {
        todo!()
    }

    /// The next record seen by [`look`](Self::look).
    pub fn peek(&mut self) -> Result<Option<Head>, Damaged> {
        todo!()
    }

    /// Copies the record that [`peek`](Self::peek) gave to the front of `out`, which is at least as long, and steps behind it.
    pub fn take(&mut self, out: &mut [u8]) {
        let _ = out;
        todo!()
    }

    /// Steps behind the record that [`peek`](Self::peek) gave.
    pub fn skip(&mut self) {
        todo!()
    }

    /// Gives the bytes that were read back to the writer.
    pub fn release(&mut self) {
        todo!()
    }
}
