//! Pool memory for records larger than the usual event: with a stack, a key or large metadata.
//!
//! ```text
//!   POOL   [ free │ claimed │ free │ … ]
//!            claim: compare-exchange, starting at the slot of the processor; release: one store
//! ```
//!
//! A write may run on the stack of a signal handler, which can be small, and the requests of a
//! session must not decide whether that stack is large enough. So the memory for such records is
//! here, and a write never needs more than 2 KiB of stack. Thread-local memory would not do: a
//! signal handler can interrupt a write of its own thread.
//!
//! No writer waits: if all slots are claimed, the record is counted as lost. A slot whose thread
//! never returns (a handler that leaves a write by `longjmp`, a thread of the parent in a forked
//! child) stays claimed.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};

use traceweir_transport::cpu;

use super::stack::{Frames, Unwinding};
use super::stage::{MAX_PARTS, STAGE_WORDS, Stage, StageParts, StageWords};

/// Number of records with pool memory that a process can write at a time. Slots that were never
/// used take no memory.
const POOL_SLOTS: usize = 256;

/// The memory for one record.
pub(super) struct RecordScratch {
    pub(super) composer: Composer,
    pub(super) frames: Frames,
    pub(super) unwinding: Unwinding,
}

/// Memory in which a record is composed.
pub(super) struct Composer {
    words: StageWords,
    parts: StageParts<'static>,
}

impl RecordScratch {
    /// Returns zeros, so that the pool takes no space in the program's file.
    const fn new() -> Self {
        let composer = Composer {
            words: [const { MaybeUninit::zeroed() }; STAGE_WORDS],
            parts: [const { MaybeUninit::zeroed() }; MAX_PARTS],
        };
        Self { composer, frames: Frames::new(), unwinding: Unwinding::new() }
    }
}

impl Composer {
    /// Starts a new record.
    pub(super) fn stage<'a>(&'a mut self) -> Stage<'a> {
        // SAFETY: a block has the same layout whatever it borrows, and no block of an earlier
        // record is read: a stage reads only those that it has written.
        let parts = unsafe { &mut *std::ptr::from_mut(&mut self.parts).cast::<StageParts<'a>>() };
        Stage::with_parts(&mut self.words, parts)
    }
}

#[repr(align(128))]
struct PoolSlot {
    is_claimed: AtomicBool,
    memory: UnsafeCell<RecordScratch>,
}

// SAFETY: only the thread that set `is_claimed` uses the memory, until it clears the flag.
unsafe impl Sync for PoolSlot {}

static POOL: [PoolSlot; POOL_SLOTS] = [const {
    PoolSlot { is_claimed: AtomicBool::new(false), memory: UnsafeCell::new(RecordScratch::new()) }
}; POOL_SLOTS];

/// A pool slot that belongs to the caller until drop.
pub(super) struct ScratchClaim {
    slot: &'static PoolSlot,
}

impl ScratchClaim {
    /// Claims a free slot; `None` if all are claimed.
    #[inline(never)]
    pub(super) fn new() -> Option<Self> {
        let first = cpu::current() as usize % POOL_SLOTS;
        let (after, before) = (POOL.iter().skip(first), POOL.iter().take(first));
        after.chain(before).find(|slot| slot.claim()).map(|slot| Self { slot })
    }
}

impl PoolSlot {
    fn claim(&self) -> bool {
        // Acquire: the writes of the previous claim precede those of this one.
        self.is_claimed.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }
}

impl Deref for ScratchClaim {
    type Target = RecordScratch;

    fn deref(&self) -> &RecordScratch {
        // SAFETY: claimed by `new`, and no other claim of this slot exists before this one is
        // dropped.
        unsafe { &*self.slot.memory.get() }
    }
}

impl DerefMut for ScratchClaim {
    fn deref_mut(&mut self) -> &mut RecordScratch {
        // SAFETY: claimed by `new`, and no other claim of this slot exists before this one is
        // dropped; `self` is borrowed mutably.
        unsafe { &mut *self.slot.memory.get() }
    }
}

impl Drop for ScratchClaim {
    fn drop(&mut self) {
        // Release: pairs with the acquire of the next claim.
        self.slot.is_claimed.store(false, Ordering::Release);
    }
}

/// For tests: claims all free slots.
#[cfg(test)]
pub(super) fn claim_all() -> Vec<ScratchClaim> {
    std::iter::from_fn(ScratchClaim::new).collect()
}
