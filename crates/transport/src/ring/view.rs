//! Address and layout of a region in this process: what a writer reads of its outlet before it
//! writes.

use super::words::Words;
use crate::{abi, cpu};

/// Address and layout of an outlet's region, as one writer read them.
#[derive(Clone, Copy)]
pub(super) struct View {
    pub(super) base: *mut u8,
    pub(super) data_offset: usize,
    pub(super) rseq_offset: isize,
    pub(super) cpus: u32,
    pub(super) ring_bytes: u32,
    pub(super) cycles: bool,
}

impl View {
    /// Returns the address of a ring's control block.
    #[inline]
    pub(super) fn control(&self, ring: usize) -> *mut u8 {
        self.base.wrapping_add(abi::HEADER_BYTES + ring * abi::CONTROL_BYTES)
    }

    /// Returns the address of a ring's data.
    #[inline]
    pub(super) fn data(&self, ring: usize) -> *mut u8 {
        self.base.wrapping_add(self.data_offset + ring * self.ring_bytes as usize)
    }

    /// Returns the control words of a ring.
    ///
    /// # Safety
    /// The view is one that an outlet had while it was open, and `ring` is one of its rings.
    #[inline]
    pub(super) unsafe fn words<'a>(&self, ring: usize) -> Words<'a> {
        // SAFETY: ranges of outlets stay mapped forever; control blocks are at multiples of 256
        // from their page-aligned base.
        unsafe { Words::from_control(self.control(ring)) }
    }

    /// Returns the CPU that runs this thread, or the last one that has rings.
    pub(super) fn nearest_cpu(&self) -> u32 {
        cpu::current().min(self.cpus.saturating_sub(1))
    }
}
