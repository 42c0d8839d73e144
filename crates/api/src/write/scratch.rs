//! Pool memory for records larger than the usual event: with a stack, a key or large metadata.
//!
//! ```text
//!   POOL   [ free │ claimed │ free │ … ]
//!            claim: compare-exchange, starting at the slot of the processor; release: one store
//! ```
//!
//! A write may run on the stack of a signal handler, which can be small, and the requests of a
//! session must not decide whether that stack is large enough. So the memory for such records is
//! here, and a write needs 2 KiB of stack in any case. Thread-local memory would not do: a signal
//! handler can interrupt a write of its own thread.
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
use super::stage::{PARTS, Parts, Stage, WORDS, Words};

/// Records of this kind that a process can write at a time. Slots that were never used take no
/// memory.
const POOL_SLOTS: usize = 256;

/// The memory for one record.
pub(super) struct Scratch {
    pub(super) composer: Composer,
    pub(super) frames: Frames,
    pub(super) unwinding: Unwinding,
}

/// Memory in which a record is composed.
pub(super) struct Composer {
    words: Words,
    parts: Parts<'static>,
}

impl Scratch {
    /// Returns zeros, so that the pool takes no room in the program's file.
    const fn new() -> Self {
        let composer = Composer {
            words: [const { MaybeUninit::zeroed() }; WORDS],
            parts: [const { MaybeUninit::zeroed() }; PARTS],
        };
        Self { composer, frames: Frames::new(), unwinding: Unwinding::new() }
    }
}

impl Composer {
    /// Starts a new record.
    pub(super) fn stage<'a>(&'a mut self) -> Stage<'a> {
        // SAFETY: a block has the same layout whatever it borrows, and no block of an earlier
        // record is read: a stage reads only those that it has written.
        let parts = unsafe { &mut *std::ptr::from_mut(&mut self.parts).cast::<Parts<'a>>() };
        Stage::with_parts(&mut self.words, parts)
    }
}

#[repr(align(128))]
struct PoolSlot {
    is_claimed: AtomicBool,
    memory: UnsafeCell<Scratch>,
}

// SAFETY: only the thread that set `is_claimed` uses the memory, until it clears it.
unsafe impl Sync for PoolSlot {}

static POOL: [PoolSlot; POOL_SLOTS] =
    [const { PoolSlot { is_claimed: AtomicBool::new(false), memory: UnsafeCell::new(Scratch::new()) } };
        POOL_SLOTS];

/// A pool slot that belongs to the caller until drop.
pub(super) struct Claim {
    slot: &'static PoolSlot,
}

impl Claim {
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
        // Acquire: the writes of the former owner precede those of this one.
        self.is_claimed.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }
}

impl Deref for Claim {
    type Target = Scratch;

    fn deref(&self) -> &Scratch {
        // SAFETY: claimed by `new`, and no other claim of this slot exists before this one is
        // dropped.
        unsafe { &*self.slot.memory.get() }
    }
}

impl DerefMut for Claim {
    fn deref_mut(&mut self) -> &mut Scratch {
        // SAFETY: as above.
        unsafe { &mut *self.slot.memory.get() }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // Release: pairs with the acquire of the next claim.
        self.slot.is_claimed.store(false, Ordering::Release);
    }
}

/// For tests: claims all that are free.
#[cfg(test)]
pub(super) fn claim_all() -> Vec<Claim> {
    std::iter::from_fn(Claim::new).collect()
}
