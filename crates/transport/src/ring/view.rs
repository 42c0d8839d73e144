//! The words of an outlet that a writer reads before it writes: generation, address and layout of
//! the region.

use core::ptr;
use core::sync::atomic::{AtomicIsize, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use super::words::ControlWords;
use crate::abi::{self, RegionParams};
use crate::clock::Counter;
use crate::cpu;

/// The words of an outlet that every write reads, in one cache line that changes only when the
/// outlet is opened or closed. The sequence reads them in assembly.
#[repr(C, align(64))]
pub(super) struct HotWords {
    /// Word of the gate (gate.rs).
    pub(super) generation: AtomicU64,
    /// Address of the region.
    pub(super) base: AtomicPtr<u8>,
    /// Offset of the first ring's data in the region.
    pub(super) data_offset: AtomicUsize,
    /// Offset of a thread's `struct rseq` from its thread pointer; 0 if writers take locks instead
    /// of using sequences.
    pub(super) rseq_offset: AtomicIsize,
    pub(super) cpus: AtomicU32,
    pub(super) ring_bytes: AtomicU32,
    pub(super) wake_at: AtomicU32,
    pub(super) max_record: AtomicU32,
    clock: AtomicU32,
}

impl HotWords {
    /// Creates the words of a closed outlet without a region.
    pub(super) const fn new() -> Self {
        Self {
            generation: AtomicU64::new(0),
            base: AtomicPtr::new(ptr::null_mut()),
            data_offset: AtomicUsize::new(0),
            rseq_offset: AtomicIsize::new(0),
            cpus: AtomicU32::new(0),
            ring_bytes: AtomicU32::new(0),
            wake_at: AtomicU32::new(0),
            max_record: AtomicU32::new(0),
            clock: AtomicU32::new(0),
        }
    }

    /// Stores the layout of a region, while the gate is closed.
    pub(super) fn set_layout(&self, params: &RegionParams, rseq_offset: isize) {
        let layout = params.layout;
        self.rseq_offset.store(rseq_offset, Ordering::Relaxed);
        self.data_offset.store(layout.data_offset(0), Ordering::Relaxed);
        self.cpus.store(u32::from(layout.cpus()), Ordering::Relaxed);
        self.ring_bytes.store(layout.ring_bytes(), Ordering::Relaxed);
        self.wake_at.store(params.wake_at.max(1), Ordering::Relaxed);
        self.max_record.store(params.max_record, Ordering::Relaxed);
        self.clock.store(params.clock as u32, Ordering::Relaxed);
    }

    /// Reads the view. It is valid if the gate is found open afterwards.
    #[inline]
    pub(super) fn view(&self) -> View {
        View {
            base: self.base.load(Ordering::Relaxed),
            data_offset: self.data_offset.load(Ordering::Relaxed),
            rseq_offset: self.rseq_offset.load(Ordering::Relaxed),
            cpus: self.cpus.load(Ordering::Relaxed),
            ring_bytes: self.ring_bytes.load(Ordering::Relaxed),
            uses_cycles: self.clock.load(Ordering::Relaxed) == Counter::Cycles as u32,
        }
    }
}

/// Address and layout of an outlet's region, as one writer read them.
#[derive(Clone, Copy)]
pub(super) struct View {
    pub(super) base: *mut u8,
    pub(super) data_offset: usize,
    pub(super) rseq_offset: isize,
    pub(super) cpus: u32,
    pub(super) ring_bytes: u32,
    pub(super) uses_cycles: bool,
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
    /// The view was read from an outlet while the outlet was open, and `ring` is one of its rings.
    #[inline]
    pub(super) unsafe fn words<'a>(&self, ring: usize) -> ControlWords<'a> {
        // SAFETY: ranges of outlets stay mapped forever, and `ring` has its control block in the
        // range; control blocks are at multiples of 256 from their page-aligned base.
        unsafe { ControlWords::from_control(self.control(ring)) }
    }

    /// Returns the CPU that runs this thread or, if that CPU has no rings, the last CPU with rings.
    pub(super) fn nearest_cpu(&self) -> u32 {
        cpu::current().min(self.cpus.saturating_sub(1))
    }
}
