//! The writer that works everywhere: a lock word that is tried, never waited for.
//!
//! ```text
//!   lock 0 → thread ──▶ generation still ours? ──▶ place ──▶ stamp, copy ──▶ head := end ──▶ lock := 0
//!     taken? next ring       no: unlock if ours, closed    none: full
//! ```
//!
//! The lock is taken when its holder was preempted inside, or when we are a signal handler that interrupted it. Nobody waits: the
//! other rings of this kind are tried, and when all are taken the event is counted as lost. The processor written with a record is
//! the ring's, so that a ring feeds exactly one processor's stream.
//!
//! A writer can be stopped between finding the outlet open and trying the lock, for so long that the region has gone from its addresses:
//! then the word is one of zeros that cover them, or the same lock of the next region (`Outlet::prepare` sees to it that it is a lock word).
//! Such a late-comer finds the generation changed, because that came first, and gives the lock back only if it still finds its own number
//! there: what it took may have gone with the zeros, and what is there now may be another writer's.

use core::ptr;

use super::gather::Gather;
use super::outlet::{Outlet, Ticket};
use super::view::View;
use super::{Outcome, points};
use crate::abi;
use crate::clock::Counter;

/// How often a lock is tried in all; machines with many processors need not try every ring.
const TRIES: u32 = 64;

/// Writes a sound record of `length` bytes.
///
/// # Safety
/// The view was read while the outlet was open for this ticket, and the record is sound for `length` (see [`Gather`]).
pub(super) unsafe fn write(
    outlet: &Outlet,
    ticket: Ticket,
    view: &View,
    thread: u32,
    record: &mut Gather<'_>,
    length: usize,
) -> Outcome {
    // Zero would be no lock at all.
    let thread = thread.max(1);
    let here = view.nearest_cpu();
    for attempt in 0..view.cpus.saturating_mul(2).min(TRIES) {
        let cpu = (here + attempt) % view.cpus;
        let ring = (view.cpus + cpu) as usize;
        // SAFETY: the view's range stays mapped for ever.
        let words = unsafe { view.words(ring) };
        if !words.try_lock(thread) {
            continue;
        }
        points::pass("fallback_locked");
        // Inside the lock this is final: `close` takes every lock after it changed the generation (R5).
        if !outlet.gate().is_open_for(ticket.0) {
            words.unlock_if_ours(thread);
            return Outcome::Closed;
        }
        // SAFETY: as promised by the caller; the lock is ours.
        let outcome = unsafe { inside(view, ring, cpu, record, length) };
        words.unlock();
        points::pass("fallback_unlocked");
        return outcome;
    }
    Outcome::Unfit
}

/// Writes into a ring whose lock is held.
///
/// # Safety
/// As for [`write()`]; the lock of `ring` is held.
unsafe fn inside(view: &View, ring: usize, cpu: u32, record: &mut Gather<'_>, length: usize) -> Outcome {
    // SAFETY: the view's range stays mapped for ever.
    let words = unsafe { view.words(ring) };
    let size = abi::size_in_ring(length);
    let Some(place) = words.place(size as u64, u64::from(view.ring_bytes)) else {
        return Outcome::Full { ring };
    };
    let counter = if view.cycles { Counter::Cycles } else { Counter::Monotonic };
    let prefix = record.prefix(length, u16::try_from(cpu).unwrap_or(u16::MAX));
    if let [first, second, ..] = record.staged {
        (*first, *second) = (prefix, counter.now());
    }
    // SAFETY: `place` lies inside the ring's data and outside what the reader may read (R3); nobody else writes while we hold the
    // lock (R2); the record is sound, so its staged part is readable for the bytes copied and all parts together fill `size`.
    unsafe {
        let data = view.data(ring);
        if let Some(marker) = place.marker {
            data.add(marker).cast::<u32>().write(abi::SKIP);
        }
        let to = data.add(place.offset);
        ptr::copy_nonoverlapping(record.staged.as_ptr().cast::<u8>(), to, record.staged_size());
        let mut to = to.add(abi::PREFIX_BYTES + record.staged_bytes);
        for part in record.rest {
            let part = part.bytes();
            ptr::copy_nonoverlapping(part.as_ptr(), to, part.len());
            to = to.add(part.len());
        }
    }
    points::pass("fallback_copied");
    words.publish(place.end);
    points::pass("fallback_published");
    Outcome::Published { ring, end: place.end }
}
