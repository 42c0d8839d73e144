//! Memory for records that are more than the usual event: a stack, a key, large metadata.
//!
//! ```text
//!   POOL   [ free │ claimed │ free │ … ]        claim: compare-exchange from the processor's own place on; release: one store
//! ```
//!
//! A write may run on the stack of a signal handler, which can be small, and what a session asks for must not decide whether that is large enough. So what such a
//! record needs lies here, and a write needs 2 KiB of stack whatever is asked for. Memory of the thread will not do: a signal handler interrupts a write of its own thread.
//!
//! Nobody waits: where all places are claimed the record is lost, and counted. A place that is claimed by a thread that never returns (a handler that leaves a write by
//! `longjmp`, a thread of the parent in a forked child) stays claimed.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};

use traceweir_transport::cpu;

use super::stack::{Frames, Unwinding};
use super::stage::{PARTS, Parts, Stage, WORDS, Words};

/// Records of this kind that a process can write at a time. Memory that was never used takes no room.
const PLACES: usize = 256;

/// What one record needs.
pub(super) struct Scratch {
    pub(super) composer: Composer,
    pub(super) frames: Frames,
    pub(super) unwinding: Unwinding,
}

/// Where the record is put together.
pub(super) struct Composer {
    words: Words,
    parts: Parts<'static>,
}

impl Scratch {
    /// Zeros, so that the pool is no part of the program's file.
    const fn new() -> Self {
        let composer = Composer {
            words: [const { MaybeUninit::zeroed() }; WORDS],
            parts: [const { MaybeUninit::zeroed() }; PARTS],
        };
        Self { composer, frames: Frames::new(), unwinding: Unwinding::new() }
    }
}

impl Composer {
    /// A new record.
    pub(super) fn stage<'a>(&'a mut self) -> Stage<'a> {
        // SAFETY: a block is the same in memory whatever it borrows, and no block of an earlier record is read: a stage reads those that it has written.
        let parts = unsafe { &mut *std::ptr::from_mut(&mut self.parts).cast::<Parts<'a>>() };
        Stage::with_parts(&mut self.words, parts)
    }
}

#[repr(align(128))]
struct Place {
    is_claimed: AtomicBool,
    memory: UnsafeCell<Scratch>,
}

// SAFETY: the memory is used by whoever set `is_claimed`, until it is cleared.
unsafe impl Sync for Place {}

static POOL: [Place; PLACES] =
    [const { Place { is_claimed: AtomicBool::new(false), memory: UnsafeCell::new(Scratch::new()) } }; PLACES];

/// A place of the pool that belongs to the caller until this is dropped.
pub(super) struct Claim {
    place: &'static Place,
}

impl Claim {
    /// `None` where all are claimed.
    #[inline(never)]
    pub(super) fn new() -> Option<Self> {
        let first = cpu::current() as usize % PLACES;
        let (behind, before) = (POOL.iter().skip(first), POOL.iter().take(first));
        behind.chain(before).find(|place| place.claim()).map(|place| Self { place })
    }
}

impl Place {
    fn claim(&self) -> bool {
        // Acquire: what the last one wrote there comes before what is written now.
        self.is_claimed.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }
}

impl Deref for Claim {
    type Target = Scratch;

    fn deref(&self) -> &Scratch {
        // SAFETY: claimed by `new`, and no other claim of it is there before this is dropped.
        unsafe { &*self.place.memory.get() }
    }
}

impl DerefMut for Claim {
    fn deref_mut(&mut self) -> &mut Scratch {
        // SAFETY: as above.
        unsafe { &mut *self.place.memory.get() }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // Release: pairs with the acquire of the next claim.
        self.place.is_claimed.store(false, Ordering::Release);
    }
}

/// For tests: claims all that are free.
#[cfg(test)]
pub(super) fn claim_all() -> Vec<Claim> {
    std::iter::from_fn(Claim::new).collect()
}
