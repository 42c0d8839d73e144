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

use core::ptr;

use super::block::Block;
use super::fallback::CopyRecord;
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
}

impl CopyRecord for Gather<'_> {
    #[inline]
    fn prefix(&self, length: usize, cpu: u16) -> u64 {
        abi::prefix_word(length as u32, cpu, self.flags)
    }

    #[inline]
    unsafe fn copy_to(&mut self, to: *mut u8, _: usize, prefix: [u64; 2]) -> bool {
        if let [first, second, ..] = self.staged {
            [*first, *second] = prefix;
        }
        // SAFETY: the record is sound, so its staged part can be read for the bytes copied, and all
        // parts together fill the bytes that can be written.
        unsafe {
            ptr::copy_nonoverlapping(self.staged.as_ptr().cast::<u8>(), to, self.staged_copy_bytes());
            let mut to = to.add(abi::PREFIX_BYTES + self.staged_bytes);
            for part in self.further_parts {
                let part = part.bytes();
                ptr::copy_nonoverlapping(part.as_ptr(), to, part.len());
                to = to.add(part.len());
            }
        }
        true
    }
}
