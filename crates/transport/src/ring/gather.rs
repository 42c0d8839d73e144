//! A record that is still in the memory of its writer, before it is copied into a ring.
//!
//! ```text
//!   staged  ┌─────────┬──────────────────┬┄┄┄┐  further_parts  ┌───────┐ ┌─────────────────┐
//!           │ prefix  │ staged_bytes     │   │                 │       │ │                 │
//!           └─────────┴──────────────────┴┄┄┄┘                 └───────┘ └─────────────────┘
//!             16 bytes                   surplus, up to a multiple of 8
//! ```
//!
//! A record is *sound* for a length if `staged` has room for `staged_bytes` and all parts together
//! have that length. A writer copies complete words of `staged`, then copies the other parts
//! directly after the staged bytes, over the surplus bytes of the last word.

use super::block::Block;
use crate::abi;

/// A record to be written: bytes staged by the caller, then parts that are copied from their place.
#[derive(Debug)]
pub struct Gather<'a> {
    /// [`crate::abi::PREFIX_BYTES`] reserved for the prefix, then the beginning of the record.
    /// Eight-byte aligned; readable up to a multiple of eight.
    pub staged: &'a mut [u64],
    /// Bytes of the record in `staged`, after the bytes reserved for the prefix.
    pub staged_bytes: usize,
    /// The parts after the staged bytes.
    pub further_parts: &'a [Block<'a>],
    /// [`crate::abi::FLAGS`] of the record.
    pub flags: u16,
}

impl Gather<'_> {
    /// Returns the length of the record; 0, which no record has, if `staged` is too short for
    /// `staged_bytes`.
    #[inline]
    pub(super) fn length(&self) -> usize {
        let capacity = self.staged.len().saturating_mul(8);
        if capacity < abi::PREFIX_BYTES || capacity - abi::PREFIX_BYTES < self.staged_bytes {
            return 0;
        }
        self.further_parts.iter().fold(self.staged_bytes, |sum, part| sum.saturating_add(part.len()))
    }

    /// Returns the bytes of `staged` that are copied into the ring: prefix and staged part, to a
    /// multiple of eight.
    #[inline]
    pub(super) fn staged_copy_bytes(&self) -> usize {
        abi::size_in_ring(self.staged_bytes)
    }

    /// Returns the first word of the prefix.
    #[inline]
    pub(super) fn prefix(&self, length: usize, cpu: u16) -> u64 {
        abi::prefix_word(length as u32, cpu, self.flags)
    }
}
