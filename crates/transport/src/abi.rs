//! A region: the memory that one process and the owner of one session share. Everything that lives in it is written down here.
//!
//! ```text
//!   0                     256                                      data_offset (a multiple of 4096)
//!   ┌──────────┬───────────┬───────────┬─ … ─┬─────────────────────┬───────────┬───────────┬─ … ─┐
//!   │ header   │ control 0 │ control 1 │     │ control 2·cpus − 1  │ data 0    │ data 1    │     │
//!   └──────────┴───────────┴───────────┴─ … ─┴─────────────────────┴───────────┴───────────┴─ … ─┘
//!                256 bytes each                                      ring_bytes each, a power of two
//!
//!   ring c, c < cpus             written by threads on processor c inside a restartable sequence
//!   ring cpus + c                written under the ring's lock word (compare-exchange), mostly from processor c
//! ```
//!
//! Header (256 bytes), for people with a debugger; both sides take the numbers from the control message, never from here:
//!
//! ```text
//!   00 u64 MAGIC │ 08 u32 VERSION │ 0C u32 cpus │ 10 u32 ring_bytes │ 14 u32 clock │ 18 u32 max_record │ 1C u32 wake_at │ 20 zero
//! ```
//!
//! Control block of a ring (256 bytes, four cache lines in two pairs):
//!
//! ```text
//!   00 u64 head       written by the process: position behind the last published record
//!   08 u32 lock       written by the process: 0 free, else the id of the thread inside; rings of the second kind only
//!   40 u64 lost       written by the process: events that found no room or did not fit
//!   48 u64 woken      written by the process: the tail at which it last woke the owner, plus one
//!   80 u64 tail       written by the owner: position up to which bytes are free again
//! ```
//!
//! Positions only grow; the byte at position p is at `p & (ring_bytes − 1)`. `head − tail` never exceeds `ring_bytes`.
//! Between tail and head stand records, each at a multiple of eight and never split by the end of the ring:
//!
//! ```text
//!   00 u32 length of the record in bytes, 1 … 65535; SKIP: the rest of the ring up to its end is unused
//!   04 u16 processor │ 06 u16 flags (KEEP_STAMP)
//!   08 u64 raw counter at which the record was written
//!   10 the record, then padding to a multiple of eight (its bytes mean nothing)
//! ```
//!
//! Who may touch what: the process writes all but `tail`; the owner writes `tail` and nothing else. The owner believes nothing it
//! reads: each word is copied once, checked, and the copy used. The memory file is sealed against shrinking and growing; holes punched into
//! it read as zeros, which are no record.

use crate::error::{Error, Result};

/// First word of a region: `TWREGION`.
pub const MAGIC: u64 = u64::from_le_bytes(*b"TWREGION");
/// Version of everything in this file.
pub const VERSION: u32 = 1;

/// Bytes of the header.
pub const HEADER_BYTES: usize = 256;
/// Bytes of one ring's control block.
pub const CONTROL_BYTES: usize = 256;
/// Offsets in a control block.
pub mod control {
    /// Position behind the last published record.
    pub const HEAD: usize = 0x00;
    /// Lock word of rings of the second kind.
    pub const LOCK: usize = 0x08;
    /// Events lost.
    pub const LOST: usize = 0x40;
    /// Tail at the last wake, plus one.
    pub const WOKEN: usize = 0x48;
    /// Position up to which bytes are free.
    pub const TAIL: usize = 0x80;
}

/// Bytes in front of each record.
pub const PREFIX_BYTES: usize = 16;
/// The length that marks the unused end of a ring.
pub const SKIP: u32 = u32::MAX;
/// Flag of a record whose own time stamp is to be kept.
pub const KEEP_STAMP: u16 = 1;
/// The largest record.
pub const MAX_RECORD: usize = 0xFFFF;
/// The most processors a region has rings for.
pub const MAX_CPUS: u16 = 1024;
/// The largest ring.
pub const MAX_RING: u32 = 1 << 28;
/// The smallest ring that is not empty.
pub const MIN_RING: u32 = 1 << 12;

const PAGE: usize = 4096;

/// How a region is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    cpus: u16,
    ring_bytes: u32,
}

impl Layout {
    /// `ring_bytes` is a power of two, or 0 for a region that only counts what is lost.
    pub fn new(cpus: u16, ring_bytes: u32) -> Result<Self> {
        if cpus == 0 || cpus > MAX_CPUS {
            return Err(Error::Invalid("a region has rings for 1 to 1024 processors"));
        }
        let sound = ring_bytes.is_power_of_two() && (MIN_RING..=MAX_RING).contains(&ring_bytes);
        if ring_bytes != 0 && !sound {
            return Err(Error::Invalid("a ring has a power of two of bytes, from 4 KiB to 256 MiB"));
        }
        Ok(Self { cpus, ring_bytes })
    }

    /// Processors that have rings of their own.
    #[must_use]
    pub const fn cpus(&self) -> u16 {
        self.cpus
    }

    /// Bytes of one ring.
    #[must_use]
    pub const fn ring_bytes(&self) -> u32 {
        self.ring_bytes
    }

    /// Number of rings: two for each processor.
    #[must_use]
    pub const fn rings(&self) -> usize {
        self.cpus as usize * 2
    }

    /// Where the control block of a ring begins.
    #[must_use]
    pub const fn control_offset(&self, ring: usize) -> usize {
        HEADER_BYTES + ring * CONTROL_BYTES
    }

    /// Where the bytes of a ring begin.
    #[must_use]
    pub const fn data_offset(&self, ring: usize) -> usize {
        self.control_offset(self.rings()).next_multiple_of(PAGE) + ring * self.ring_bytes as usize
    }

    /// Bytes of the whole region, a multiple of the page size.
    #[must_use]
    pub const fn region_bytes(&self) -> usize {
        self.data_offset(self.rings())
    }
}

/// What both sides of a region must agree on; sent with its descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionParams {
    /// How it is cut.
    pub layout: Layout,
    /// Which counter stamps are taken from.
    pub clock: crate::clock::Counter,
    /// The owner is woken when a ring holds this many bytes; 1 wakes it at the first record.
    pub wake_at: u32,
    /// The largest record the session can store.
    pub max_record: u32,
}
