//! The layout of a region: the memory that a process shares with the region's owner, the process
//! that reads the records for one session.
//!
//! ```text
//!   0          256                                     data_offset (a multiple of 4096)
//!   ┌──────────┬───────────┬─ … ─┬─────────────────────┬───────────┬───────────┬─ … ─┐
//!   │ header   │ control 0 │     │ control 2·cpus − 1  │ data 0    │ data 1    │     │
//!   └──────────┴───────────┴─ … ─┴─────────────────────┴───────────┴───────────┴─ … ─┘
//!                256 bytes each                          ring_bytes each, a power of two
//!
//!   ring c, c < cpus   written by threads on CPU c inside a restartable sequence
//!   ring cpus + c      written under the ring's lock word (compare-exchange), mostly from CPU c
//! ```
//!
//! Header (256 bytes), for debugging. The process and the owner take these numbers, including the
//! version, from the control message and never from the header:
//!
//! ```text
//!   00 u64 MAGIC │ 08 u32 VERSION │ 0C u32 cpus │ 10 u32 ring_bytes │ 14 u32 clock
//!   18 u32 max_record │ 1C u32 wake_at │ 20 zero
//! ```
//!
//! Control block of a ring (256 bytes, four cache lines in two pairs):
//!
//! ```text
//!   00 u64 head       written by the process: position after the last published record
//!   08 u32 lock       written by the process: 0 free, else the id of the thread inside, or
//!                     u32::MAX after the process closed the region; only in rings
//!                     cpus … 2·cpus − 1
//!   40 u64 lost       written by the process: events that did not fit or were too large
//!   48 u64 woken      written by the process: the `read` at which it last woke the owner, plus one
//!   80 u64 tail       written by the owner: position up to which bytes are free again; with the
//!                     bit STORE_FULL, the owner takes no records for now
//!   88 u64 read       written by the owner, before tail: position up to which records were taken;
//!                     tail ≤ read
//! ```
//!
//! A tail with the bit STORE_FULL is more than a ring away from every head, so every write finds
//! the ring full. Writers need not know the bit. A writer that knows it can distinguish a full
//! store from a full ring.
//!
//! Positions only grow; the byte at position p is at `p & (ring_bytes − 1)`. `head − tail` never
//! exceeds `ring_bytes`. Between read and head are records, each at a multiple of eight and never
//! split by the end of the ring:
//!
//! ```text
//!   00 u32 length of the record in bytes, 1 … 65535; SKIP: the rest of the ring is unused
//!   04 u16 CPU │ 06 u16 flags (KEEP_STAMP, WITH_…, BINARY_PATH)
//!   08 u64 raw counter at which the record was written
//!   10 the record, then padding to a multiple of eight (its bytes mean nothing)
//! ```
//!
//! Access: the process writes everything except `tail` and `read`; the owner writes only these two
//! and, when it maps the region, the header.
//! The owner trusts nothing that it reads: it copies each word once, checks the copy and uses only
//! the copy. The memory file is sealed against shrinking and growing. A hole that is punched into
//! it reads as zeros, which are not a valid record.
//!
//! All sizes are the same on every machine; if pages are larger than [`PAGE`], a page holds parts
//! of several rings.

use crate::error::{Error, Result};

/// First word of a region: `TWREGION`.
pub const MAGIC: u64 = u64::from_le_bytes(*b"TWREGION");
/// Version of everything in this file.
pub const VERSION: u32 = 2;

/// Size of the header in bytes.
pub const HEADER_BYTES: usize = 256;
/// Size of a ring's control block in bytes.
pub const CONTROL_BYTES: usize = 256;
/// Offsets in a control block.
pub mod control {
    /// Position after the last published record.
    pub const HEAD: usize = 0x00;
    /// Lock word; unused in the rings of restartable sequences.
    pub const LOCK: usize = 0x08;
    /// Number of lost events.
    pub const LOST: usize = 0x40;
    /// Value of `READ` at the last wake, plus one.
    pub const WOKEN: usize = 0x48;
    /// Position up to which bytes are free.
    pub const TAIL: usize = 0x80;
    /// Position up to which records were taken. Ahead of the tail while the owner gives pages back
    /// to the system.
    pub const READ: usize = 0x88;
}

/// Bit of a published tail: the owner takes no events for now, because its store is full. No
/// position has this bit.
pub const STORE_FULL: u64 = 1 << 63;

/// Size of the prefix of each record in bytes.
pub const PREFIX_BYTES: usize = 16;
/// Length that marks the unused end of a ring.
pub const SKIP: u32 = u32::MAX;
/// Flag: the owner keeps the time stamp in the record's header, instead of the raw counter of the
/// prefix.
pub const KEEP_STAMP: u16 = 1;
/// Flag: the owner adds the user's SID as an extended data item. The owner provides these items, so
/// that a process cannot forge them.
pub const WITH_SID: u16 = 0x02;
/// Flag: the owner adds the terminal session id (on Linux, the audit session).
pub const WITH_TS_ID: u16 = 0x04;
/// Flag: the owner adds the application key.
pub const WITH_PSM_KEY: u16 = 0x08;
/// Flag: the owner adds the process start key.
pub const WITH_START_KEY: u16 = 0x10;
/// Flag: the owner adds the container id.
pub const WITH_CONTAINER: u16 = 0x20;
/// All flags that request extended data items.
pub const WITH_ITEMS: u16 = WITH_SID | WITH_TS_ID | WITH_PSM_KEY | WITH_START_KEY | WITH_CONTAINER;
/// Flag: the record names the module of a provider. The owner writes the record to the front of
/// each log file.
pub const BINARY_PATH: u16 = 0x40;
/// All flags that are defined.
pub const FLAGS: u16 = KEEP_STAMP | WITH_ITEMS | BINARY_PATH;
/// Size of the largest record in bytes.
pub const MAX_RECORD_BYTES: usize = 0xFFFF;
/// Largest number of CPUs that a region has rings for.
pub const MAX_CPUS: u16 = 1024;
/// Size of the largest ring in bytes.
pub const MAX_RING_BYTES: u32 = 1 << 28;
/// Size of the smallest ring in bytes, except 0.
pub const MIN_RING_BYTES: u32 = 1 << 12;

/// Unit of the layout of shared memory. It is not the size of a page, which differs between
/// machines: see [`crate::map::page_size`].
pub const PAGE: usize = 4096;

/// The layout of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    version: u32,
    cpus: u16,
    ring_bytes: u32,
}

impl Layout {
    /// Creates a layout of this [`VERSION`]. `ring_bytes` is a power of two, or 0 for a region that
    /// only counts lost events.
    pub fn new(cpus: u16, ring_bytes: u32) -> Result<Self> {
        if cpus == 0 || cpus > MAX_CPUS {
            return Err(Error::Invalid("a region has rings for 1 to 1024 processors"));
        }
        let is_valid =
            ring_bytes.is_power_of_two() && (MIN_RING_BYTES..=MAX_RING_BYTES).contains(&ring_bytes);
        if ring_bytes != 0 && !is_valid {
            return Err(Error::Invalid("a ring has a power of two of bytes, from 4 KiB to 256 MiB"));
        }
        Ok(Self { version: VERSION, cpus, ring_bytes })
    }

    /// Creates a layout that a message describes. Checks it only for this [`VERSION`]: the rules of
    /// other versions are not known here, and [`RegionParams::check`] rejects them.
    pub fn with_version(version: u32, cpus: u16, ring_bytes: u32) -> Result<Self> {
        if version == VERSION { Self::new(cpus, ring_bytes) } else { Ok(Self { version, cpus, ring_bytes }) }
    }

    /// Returns the version of the layout.
    #[must_use]
    pub const fn version(&self) -> u32 {
        self.version
    }

    /// Returns the number of CPUs that have rings.
    #[must_use]
    pub const fn cpus(&self) -> u16 {
        self.cpus
    }

    /// Returns the size of one ring in bytes.
    #[must_use]
    pub const fn ring_bytes(&self) -> u32 {
        self.ring_bytes
    }

    /// Returns the number of rings: two for each CPU.
    #[must_use]
    pub const fn rings(&self) -> usize {
        self.cpus as usize * 2
    }

    /// Returns the offset of a ring's control block.
    #[must_use]
    pub const fn control_offset(&self, ring: usize) -> usize {
        HEADER_BYTES + ring * CONTROL_BYTES
    }

    /// Returns the offset of a ring's data.
    #[must_use]
    pub const fn data_offset(&self, ring: usize) -> usize {
        self.control_offset(self.rings()).next_multiple_of(PAGE) + ring * self.ring_bytes as usize
    }

    /// Returns the size of the region in bytes, a multiple of [`PAGE`].
    #[must_use]
    pub const fn region_bytes(&self) -> usize {
        self.data_offset(self.rings())
    }
}

/// Parameters that both sides of a region must agree on; sent with its descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionParams {
    /// Layout of the region.
    pub layout: Layout,
    /// Counter that stamps are read from.
    pub clock: crate::clock::Counter,
    /// Fill of a ring, in bytes, at which the owner is woken; with 0 and 1, at the first record.
    pub wake_at: u32,
    /// Size of the largest record that the session can store, in bytes.
    pub max_record: u32,
}

impl RegionParams {
    /// Rejects invalid parameters, and regions of another version.
    pub fn check(&self) -> Result<()> {
        if self.layout.version != VERSION {
            return Err(Error::RegionVersion { theirs: self.layout.version, ours: VERSION });
        }
        if self.max_record == 0 || self.max_record as usize > MAX_RECORD_BYTES {
            return Err(Error::Invalid("the largest record of a region has 1 to 65535 bytes"));
        }
        Ok(())
    }

    /// Returns the header of a region, for debugging.
    #[must_use]
    pub fn header(&self) -> [u8; HEADER_BYTES] {
        let mut header = [0; HEADER_BYTES];
        let words = [
            self.layout.version,
            u32::from(self.layout.cpus),
            self.layout.ring_bytes,
            self.clock as u32,
            self.max_record,
            self.wake_at,
        ];
        let magic = MAGIC.to_le_bytes();
        let bytes = magic.into_iter().chain(words.into_iter().flat_map(u32::to_le_bytes));
        for (to, from) in header.iter_mut().zip(bytes) {
            *to = from;
        }
        header
    }
}

/// Returns the first word of a record's prefix: length, CPU, flags.
#[must_use]
#[inline]
#[cfg(not(loom))]
pub(crate) const fn prefix_word(length: u32, cpu: u16, flags: u16) -> u64 {
    length as u64 | (cpu as u64) << 32 | (flags as u64) << 48
}

/// Returns the bytes that a record takes in a ring: prefix, record, padding to a multiple of eight.
#[must_use]
#[inline]
pub const fn size_in_ring(length: usize) -> usize {
    // Not `next_multiple_of`, which takes more instructions.
    (PREFIX_BYTES + length + 7) & !7
}

const _: () = {
    assert!(
        control::READ + 8 <= CONTROL_BYTES
            && HEADER_BYTES.is_multiple_of(64)
            && CONTROL_BYTES.is_multiple_of(64)
    );
    // `lost` is in another cache line than `head`. `tail` and `read` share one in the other pair.
    assert!(control::LOST / 64 != control::HEAD / 64 && control::TAIL / 128 != control::HEAD / 128);
    assert!(control::TAIL / 64 == control::READ / 64);
    assert!(size_in_ring(1) == 24 && size_in_ring(8) == 24 && size_in_ring(9) == 32);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn region_has_header_controls_and_page_aligned_rings() {
        let layout = Layout::new(2, 8192).unwrap();
        assert_eq!(layout.rings(), 4);
        assert_eq!(layout.control_offset(0), 256);
        assert_eq!(layout.control_offset(3), 1024);
        assert_eq!(layout.data_offset(0), 4096);
        assert_eq!(layout.data_offset(3), 4096 + 3 * 8192);
        assert_eq!(layout.region_bytes(), 4096 + 4 * 8192);
        assert_eq!(Layout::new(1, 0).unwrap().region_bytes(), 4096);
    }

    #[test]
    fn invalid_cpu_counts_and_ring_sizes_are_rejected() {
        for (cpus, ring_bytes) in [(0, 8192), (1025, 8192), (1, 2048), (1, 12288), (1, 1 << 29)] {
            assert!(Layout::new(cpus, ring_bytes).is_err(), "{cpus} processors, {ring_bytes} bytes");
        }
    }

    #[test]
    fn header_describes_the_region_for_a_debugger() {
        let layout = Layout::new(2, 8192).unwrap();
        let clock = crate::clock::Counter::Monotonic;
        let params = RegionParams { layout, clock, wake_at: 4096, max_record: 1000 };
        let header = params.header();
        assert_eq!(&header[..8], b"TWREGION");
        // Version, CPUs, bytes of a ring, clock, largest record, wake_at.
        assert_eq!(header[8..0x20], *[2u32, 2, 8192, 1, 1000, 4096].map(u32::to_le_bytes).as_flattened());
        assert!(header[0x20..].iter().all(|byte| *byte == 0));
    }

    #[test]
    fn largest_record_of_a_region_is_bounded() {
        let layout = Layout::new(1, 8192).unwrap();
        for (max_record, is_valid) in [(0, false), (1, true), (65535, true), (65536, false)] {
            let params =
                RegionParams { layout, clock: crate::clock::Counter::Cycles, wake_at: 1, max_record };
            assert_eq!(params.check().is_ok(), is_valid);
        }
    }
}
