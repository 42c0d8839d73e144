//! A record on its way into a ring, still in the memory of whoever writes it.
//!
//! ```text
//!   staged  ┌─────────┬──────────────────┬┄┄┄┐      rest  ┌───────┐ ┌─────────────────┐
//!           │ prefix  │ staged_bytes     │   │            │       │ │                 │
//!           └─────────┴──────────────────┴┄┄┄┘            └───────┘ └─────────────────┘
//!             16 bytes                   to a multiple of 8
//! ```
//!
//! A record is *sound* for a length when its staged part is as long as it says and all parts together have that length; then a
//! writer copies the staged words whole and the rest over what that copied too much.

use super::straight::Block;
use crate::abi;

/// A record to be written: bytes staged by the caller, then parts that are copied from where they are.
#[derive(Debug)]
pub struct Gather<'a> {
    /// [`crate::abi::PREFIX_BYTES`] of room for the prefix, then the beginning of the record. Eight-byte aligned; readable up to a multiple of eight.
    pub staged: &'a mut [u64],
    /// Bytes of the record in `staged`, behind the prefix room.
    pub staged_bytes: usize,
    /// What follows it.
    pub rest: &'a [Block<'a>],
    /// [`crate::abi::FLAGS`] of the record.
    pub flags: u16,
}

impl Gather<'_> {
    /// Bytes of the whole record; 0 where the staged part is not as long as it says, which no record is.
    #[inline]
    pub(super) fn length(&self) -> usize {
        let room = self.staged.len().saturating_mul(8);
        if room < abi::PREFIX_BYTES || room - abi::PREFIX_BYTES < self.staged_bytes {
            return 0;
        }
        self.rest.iter().fold(self.staged_bytes, |sum, part| sum.saturating_add(part.len()))
    }

    /// Bytes of `staged` that are copied into the ring: prefix and staged part, to a multiple of eight.
    #[inline]
    pub(super) fn staged_size(&self) -> usize {
        abi::size_in_ring(self.staged_bytes)
    }

    /// The first word of the prefix.
    #[inline]
    pub(super) fn prefix(&self, length: usize, cpu: u16) -> u64 {
        abi::prefix_word(length as u32, cpu, self.flags)
    }
}
