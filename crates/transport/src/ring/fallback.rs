//! The writer that works without restartable sequences: tries lock words and never waits for them.
//!
//! ```text
//!   lock: 0 → thread id ─▶ gate open? ─▶ slot ─▶ stamp, copy ─▶ head := end ─▶ lock := 0
//!     taken: next ring       no: unlock,  none: full
//!                            closed
//! ```
//!
//! A lock is already taken if its holder was preempted while it held the lock, or if the writer is
//! a signal handler that interrupted the holder. No thread waits: the writer tries the rings with
//! locks in turn, each at most twice and at most 64 times in all. If all attempts fail, it counts
//! the event as lost. The CPU in a record is the CPU of the ring, so that a ring feeds exactly one
//! CPU's stream.
//!
//! A writer can be stopped between finding the outlet open and trying the lock, for so long that
//! the outlet closes: its generation changes, then private zero pages replace the region, and later
//! the next region replaces the zero pages. Such a late writer locks a word of a zero page, or the
//! same lock word of the next region (`Outlet::prepare_range` ensures that it is a lock word). The
//! late writer then sees the changed generation. It releases the lock only if the word still holds
//! its thread id: the zero page that it locked may be gone, and another writer may hold the lock of
//! the next region.
//!
//! R2, R3 and R5 are rules of the list in `ring.rs`.

use super::gate::{OutletGate, Ticket};
use super::view::View;
use super::{WriteOutcome, points};
use crate::abi;
use crate::clock::Counter;

/// Largest number of lock attempts of a write; machines with many CPUs need not try every ring.
const MAX_LOCK_ATTEMPTS: u32 = 64;

/// A record that can be copied into a ring whose lock is held.
pub(super) trait CopyRecord {
    /// Returns the first word of the prefix.
    fn prefix(&self, length: usize, cpu: u16) -> u64;

    /// Copies the prefix and the record. Returns `false` if a block has grown meanwhile, so that the
    /// record does not fit.
    ///
    /// # Safety
    /// The record is sound for a length of which [`abi::size_in_ring`] is `size`, and `size` bytes at
    /// `to`, a multiple of eight, can be written.
    unsafe fn copy_to(&mut self, to: *mut u8, size: usize, prefix: [u64; 2]) -> bool;
}

/// Writes a sound record of `length` bytes.
///
/// # Safety
/// The view was read while the gate was open for this ticket, and the record is sound for
/// `length` (see [`Gather`](super::Gather) and [`Straight`](super::Straight)).
#[inline(always)] // Two callers, for the two kinds of records.
pub(super) unsafe fn write(
    gate: OutletGate<'_>,
    ticket: Ticket,
    view: &View,
    thread: u32,
    record: &mut impl CopyRecord,
    length: usize,
) -> WriteOutcome {
    // Zero means that the lock is free.
    let thread = thread.max(1);
    let first_cpu = view.nearest_cpu();
    for attempt in 0..view.cpus.saturating_mul(2).min(MAX_LOCK_ATTEMPTS) {
        let cpu = (first_cpu + attempt) % view.cpus;
        let ring = (view.cpus + cpu) as usize;
        // SAFETY: the view was read from an open outlet, whose range stays mapped forever; `ring`
        // is one of its rings.
        let words = unsafe { view.words(ring) };
        if !words.try_lock(thread) {
            continue;
        }
        points::pass("fallback_locked");
        // While this thread holds the lock, the result stays valid for `close`, which takes every
        // lock after it changed the generation (R5).
        if !gate.is_open_for(ticket) {
            words.unlock_if_held_by(thread);
            return WriteOutcome::Closed;
        }
        // SAFETY: the caller passes a view of this opening and a record that is sound for `length`;
        // this thread holds the lock of `ring`.
        let outcome = unsafe { write_inside_lock(view, ring, cpu, record, length) };
        words.unlock();
        points::pass("fallback_unlocked");
        return outcome;
    }
    WriteOutcome::Unavailable
}

/// Writes into a ring whose lock is held.
///
/// # Safety
/// As for [`write()`]; the lock of `ring` is held.
#[inline(always)]
unsafe fn write_inside_lock(
    view: &View,
    ring: usize,
    cpu: u32,
    record: &mut impl CopyRecord,
    length: usize,
) -> WriteOutcome {
    // SAFETY: the view was read from an open outlet, whose range stays mapped forever; `ring` is
    // one of its rings.
    let words = unsafe { view.words(ring) };
    let size = abi::size_in_ring(length);
    let Some(slot) = words.find_slot(size as u64, u64::from(view.ring_bytes)) else {
        return WriteOutcome::Full { ring };
    };
    let counter = if view.uses_cycles { Counter::Cycles } else { Counter::Monotonic };
    let prefix = record.prefix(length, u16::try_from(cpu).unwrap_or(u16::MAX));
    // SAFETY: `slot` lies inside the ring's data and outside what the reader may read (R3); no
    // other thread writes while this one holds the lock (R2); the caller promises a record that is
    // sound for `length`.
    let is_copied = unsafe {
        let data = view.data(ring);
        if let Some(marker) = slot.marker {
            data.add(marker).cast::<u32>().write(abi::SKIP);
        }
        record.copy_to(data.add(slot.offset), size, [prefix, counter.now()])
    };
    if !is_copied {
        return WriteOutcome::Unavailable;
    }
    points::pass("fallback_copied");
    words.publish(slot.end);
    points::pass("fallback_published");
    WriteOutcome::Published { ring, end: slot.end }
}
