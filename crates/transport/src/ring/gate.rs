//! The gate of an outlet: the two words that open and close it and count its visitors. Only this
//! file accesses them in Rust; the loom models run this code.
//!
//! ```text
//!   generation   even: closed    odd: open; the number is the ticket
//!   visitors     generation of the opening (32 bits) │ number of its visitors now (32 bits)
//!
//!   open    visitors := generation, 0 ─ generation := a new one
//!   visit   generation = ticket? ─ visitors + 1 ─ fence ─ generation = ticket? ─ work
//!           ─ visitors − 1, if still of that generation
//!   close   generation + 1 ─ fence ─ (later) visitors = 0?
//! ```
//!
//! 1. Each generation is used once in a process. So a ticket fits one opening of one outlet.
//! 2. A thread whose work must end before the region is removed is a *visitor*. Either it sees the
//!    gate closed, or the thread that closes the gate sees the visitor.
//! 3. Visitors are counted per opening. A visitor that leaves after the outlet was opened again
//!    does not change the new count. In a forked child, a visitor whose thread exists only in the
//!    parent never leaves; it does not block the next opening.
//!
//! Writers are not visitors: a memory barrier ends a restartable sequence, and `close` waits for a
//! lock holder by its lock. Writers only check the generation; the sequence checks it in assembly.

use crate::sync::{AtomicU64, Ordering, fence};

/// Proof that an outlet was open at a certain time; a write with a stale ticket is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket(pub u64);

/// The gate words of an outlet.
#[derive(Clone, Copy)]
pub(crate) struct OutletGate<'a> {
    generation: &'a AtomicU64,
    visitors: &'a AtomicU64,
}

/// The low half of `visitors`: the number of visitors.
const VISITOR_COUNT_MASK: u64 = 0xFFFF_FFFF;

impl<'a> OutletGate<'a> {
    #[inline]
    pub(crate) const fn new(generation: &'a AtomicU64, visitors: &'a AtomicU64) -> Self {
        Self { generation, visitors }
    }

    /// Returns whether the gate is open. For the thread that opens and closes it.
    pub(crate) fn is_open(&self) -> bool {
        // Only the calling thread stores it.
        self.generation.load(Ordering::Relaxed) % 2 == 1
    }

    /// Returns whether the gate is open for this ticket; an even number is not a ticket.
    #[inline]
    pub(crate) fn is_open_for(&self, ticket: Ticket) -> bool {
        // Acquire pairs with the release in `open`: a thread that sees the generation sees the view
        // and the visitors that belong to it.
        ticket.0 & 1 == 1 && self.generation.load(Ordering::Acquire) == ticket.0
    }

    /// Opens the gate for this ticket: an odd number that was never used before.
    pub(crate) fn open(&self, ticket: Ticket) {
        // All changes of this word are read-modify-write operations, so that loom sees one order of
        // them.
        let _ = self.visitors.swap(ticket.0 << 32, Ordering::Relaxed);
        // Pairs with the acquire in `is_open_for`.
        self.generation.store(ticket.0, Ordering::Release);
    }

    /// Closes the gate. Returns whether it was open.
    pub(crate) fn close(&self) -> bool {
        let was_open = self.is_open();
        if was_open {
            // Only the calling thread stores it.
            let generation = self.generation.load(Ordering::Relaxed);
            self.generation.store(generation.wrapping_add(1), Ordering::Relaxed);
            // Pairs with the fence in `visit`: the thread whose fence comes later sees what the
            // other thread stored before its fence.
            fence(Ordering::SeqCst);
        }
        was_open
    }

    /// Returns whether all visitors have left. If so after [`close`](Self::close), no visitor will
    /// work in this opening any more: a thread that enters later finds the gate closed.
    pub(crate) fn is_empty(&self) -> bool {
        // Acquire pairs with the release in `leave`: the work of visitors that left is done.
        self.visitors.load(Ordering::Acquire) & VISITOR_COUNT_MASK == 0
    }

    /// Runs `work`, which must end before the region is removed, if the gate is open for this
    /// ticket. Returns whether it was. Safe in signal handlers.
    pub(crate) fn visit(&self, ticket: Ticket, work: impl FnOnce()) -> bool {
        if !self.is_open_for(ticket) {
            return false;
        }
        // Relaxed: the fence orders it.
        let before = self.visitors.fetch_add(1, Ordering::Relaxed);
        // Pairs with the fence in `close`: either the load below sees the gate closed, or
        // `is_empty` sees this visitor.
        fence(Ordering::SeqCst);
        let is_open = self.is_open_for(ticket);
        if is_open {
            work();
        }
        self.leave(before & !VISITOR_COUNT_MASK);
        is_open
    }

    /// Leaves an opening, which may have ended by now.
    fn leave(&self, opening: u64) {
        let mut old = self.visitors.load(Ordering::Relaxed);
        while old & !VISITOR_COUNT_MASK == opening {
            // Release pairs with the acquire in `is_empty`.
            match self.visitors.compare_exchange_weak(old, old - 1, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(current) => old = current,
            }
        }
    }
}
