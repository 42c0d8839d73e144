//! Who may come into an outlet, and who is inside: the two words by which an outlet is opened and shut, and the only places where they are
//! read and written in Rust. The models run this code.
//!
//! ```text
//!   generation   even: shut      odd: open; the number is the ticket
//!   visitors     generation that it was opened with (32 bits) │ number of visitors since (32 bits)
//!
//!   open    visitors := generation, 0 ─ generation := a new one
//!   visit   generation = ticket? ─ visitors + 1 ─ fence ─ generation = ticket? ─ work ─ visitors − 1, if still of that generation
//!   shut    generation + 1 ─ fence ─ (later) visitors = 0?
//! ```
//!
//! 1. Each generation is drawn once in a process. So a ticket fits one opening of one outlet, and no other outlet either.
//! 2. Whoever does something that must be over before the region goes is a *visitor*. Either it sees the gate shut, or whoever shuts it
//!    sees the visitor.
//! 3. Visitors are counted by opening. One that comes out after the outlet was opened again changes nothing; one that never comes out,
//!    because its thread was left behind in the parent of a forked child, is in nobody's way.
//!
//! Writers are no visitors: a restartable sequence is ended by a memory barrier, and whoever holds a lock is waited for by its lock. They only
//! look at the generation. The sequence looks at it in assembly.

use crate::sync::{AtomicU64, Ordering, fence};

/// An outlet's words.
#[derive(Clone, Copy)]
pub(crate) struct Gate<'a> {
    generation: &'a AtomicU64,
    visitors: &'a AtomicU64,
}

/// The half of `visitors` that is the number.
const NUMBER: u64 = 0xFFFF_FFFF;

impl<'a> Gate<'a> {
    #[inline]
    pub(crate) const fn of(generation: &'a AtomicU64, visitors: &'a AtomicU64) -> Self {
        Self { generation, visitors }
    }

    /// Whether it is open. For whoever opens and shuts it, one at a time.
    pub(crate) fn is_open(&self) -> bool {
        // Only the caller stores it.
        self.generation.load(Ordering::Relaxed) % 2 == 1
    }

    /// Whether this ticket's generation is the present one; an even number is no ticket.
    #[inline]
    pub(crate) fn is_open_for(&self, ticket: u64) -> bool {
        // Acquire pairs with the release in `open`: whoever sees the generation sees the view and the visitors that belong to it.
        ticket & 1 == 1 && self.generation.load(Ordering::Acquire) == ticket
    }

    /// Lets everybody in who has this ticket: an odd number that was never used before.
    pub(crate) fn open(&self, generation: u64) {
        // An exchange as everywhere, so that all changes of the word are in one row, which a plain store would let loom doubt.
        let _ = self.visitors.swap(generation << 32, Ordering::Relaxed);
        // Pairs with the acquire in `is_open_for`.
        self.generation.store(generation, Ordering::Release);
    }

    /// Lets nobody in any more; whether it was open.
    pub(crate) fn shut(&self) -> bool {
        let was_open = self.is_open();
        if was_open {
            // Only the caller stores it.
            let generation = self.generation.load(Ordering::Relaxed);
            self.generation.store(generation.wrapping_add(1), Ordering::Relaxed);
            // Pairs with the fence in `visit`: the later of the two sees what was stored before the earlier.
            fence(Ordering::SeqCst);
        }
        was_open
    }

    /// Whether all visitors have left. After [`shut`](Self::shut), that stays so.
    pub(crate) fn is_empty(&self) -> bool {
        // Acquire pairs with the release in `leave`: the work of whoever left is done.
        self.visitors.load(Ordering::Acquire) & NUMBER == 0
    }

    /// Does something that must be over before the region goes, if the gate is open for this ticket; whether it was. Safe in signal handlers.
    pub(crate) fn visit(&self, ticket: u64, work: impl FnOnce()) -> bool {
        if !self.is_open_for(ticket) {
            return false;
        }
        // Relaxed: the fence orders it.
        let before = self.visitors.fetch_add(1, Ordering::Relaxed);
        // Pairs with the fence in `shut`: either the load below sees the gate shut, or `is_empty` sees this visitor.
        fence(Ordering::SeqCst);
        let open = self.is_open_for(ticket);
        if open {
            work();
        }
        self.leave(before & !NUMBER);
        open
    }

    /// Leaves an opening, which may be over by now.
    fn leave(&self, opening: u64) {
        let mut now = self.visitors.load(Ordering::Relaxed);
        while now & !NUMBER == opening {
            // Release pairs with the acquire in `is_empty`.
            match self.visitors.compare_exchange_weak(now, now - 1, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(other) => now = other,
            }
        }
    }
}
