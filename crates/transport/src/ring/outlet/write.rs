//! Writes records into an outlet, counts losses and wakes the owner.
//!
//! ```text
//!   write_straight ── rseq ──┬─ published ── enough unread? ── wake ──┐
//!                            └─ `false`: the caller repeats           │
//!                               the event with `write`                │ visits: `close`
//!   write ── gate open? ── rseq ──┬─ published ── enough unread? wake ┤ waits for them
//!                                 └─ full ───────────────────── count ┘
//!
//!   lock, if no sequence can write: as for rseq
//! ```
//!
//! The usual event goes through [`Outlet::write_straight`], which is inline and short: two words of
//! the layout, the sequence, two loads to see whether the owner needs a wake. It does not check the
//! gate: the sequence compares the generation with the ticket. If the record cannot be written, it
//! counts nothing. [`Outlet::write`] writes all other records, reports each failure, and counts it
//! unless the gate is closed.

use core::sync::atomic::{Ordering, fence};
use std::os::fd::BorrowedFd;

use super::{Outlet, Wake, WriteFailure};
use crate::ring::gate::Ticket;
use crate::ring::gather::Gather;
use crate::ring::rseq::{self, Attempt};
use crate::ring::straight::{Straight, WriteFrame};
use crate::ring::view::View;
use crate::ring::words::ControlWords;
use crate::ring::{WriteOutcome, fallback, points};
use crate::{abi, cpu};

impl Outlet {
    /// Writes one record. Never blocks, allocates nothing, and makes a system call only to wake the
    /// owner; safe in signal handlers. `thread` is the caller's thread id, not 0.
    #[inline]
    pub fn write(&self, ticket: Ticket, thread: u32, record: &mut Gather<'_>) -> Result<(), WriteFailure> {
        points::pass("before_write");
        if !self.gate().is_open_for(ticket) {
            return Err(WriteFailure::Closed);
        }
        let length = record.length();
        // A length of 0, which means an unsound record, wraps around and is refused as well.
        if length.wrapping_sub(1) >= self.hot.max_record.load(Ordering::Relaxed) as usize {
            return self.count_too_large(ticket);
        }
        let offset = self.hot.rseq_offset.load(Ordering::Relaxed);
        if offset != 0 {
            let mut frame = WriteFrame::from_gather(record, length);
            // SAFETY: an opening stored this offset, which it got from `area_offset`;
            // `Gather::length` found the record sound; the ticket is odd, as the gate was open for
            // it.
            match unsafe { rseq::write(&self.hot, ticket, offset, &mut frame) } {
                Attempt::Published(control, end) => {
                    self.wake_after_sequence(ticket, control, end);
                    return Ok(());
                }
                Attempt::Full(control) => return self.count_full(ticket, self.find_ring(control)),
                Attempt::Closed => return Err(WriteFailure::Closed),
                Attempt::Unavailable => {}
            }
        }
        self.write_locked(ticket, thread, record, length)
    }

    /// Writes a record directly from the memory of its pieces, and returns whether that was
    /// possible. Counts nothing: after `false`, the caller uses [`write`](Self::write), which
    /// reports the reason.
    #[inline(always)]
    pub fn write_straight(&self, ticket: Ticket, record: &mut Straight<'_>) -> bool {
        points::pass("before_write");
        let offset = self.hot.rseq_offset.load(Ordering::Relaxed);
        let max_record_bytes = self.hot.max_record.load(Ordering::Relaxed) as usize;
        // The words may belong to another opening. Then the sequence finds a generation that
        // differs from the ticket, and writes nothing.
        if ticket.0 & 1 == 0 || record.length > max_record_bytes {
            return false;
        }
        if offset == 0 {
            return self.write_straight_locked(ticket, record);
        }
        // SAFETY: an opening stored this offset, which it got from `area_offset`; `Straight::new`
        // ensured the invariant of the frame; the ticket was found odd above.
        match unsafe { rseq::write(&self.hot, ticket, offset, &mut record.frame) } {
            Attempt::Published(control, end) => {
                self.wake_after_sequence(ticket, control, end);
                true
            }
            Attempt::Full(_) | Attempt::Closed | Attempt::Unavailable => false,
        }
    }

    /// Like [`write_straight`](Self::write_straight), under the lock of a ring.
    #[cold] // Most machines have restartable sequences.
    #[inline(never)]
    fn write_straight_locked(&self, ticket: Ticket, record: &mut Straight<'_>) -> bool {
        let view = self.hot.view();
        // As in `write_locked`: the loads above come before the load of the generation.
        fence(Ordering::Acquire);
        if !self.gate().is_open_for(ticket) {
            return false;
        }
        let (thread, length) = (record.frame.thread as u32, record.length);
        // SAFETY: `Straight::new` made the record sound for its length; the gate was open for the
        // ticket after the view was read.
        match unsafe { fallback::write(self.gate(), ticket, &view, thread, record, length) } {
            WriteOutcome::Published { ring, end } => {
                self.wake_after_publish(ticket, &view, ring, end);
                true
            }
            WriteOutcome::Full { .. } | WriteOutcome::Closed | WriteOutcome::Unavailable => false,
        }
    }

    /// Checks whether a record of `length` bytes would be taken now. Reserves, writes and counts
    /// nothing.
    pub fn check_room(&self, ticket: Ticket, length: usize) -> Result<(), WriteFailure> {
        let view = self.hot.view();
        let max_record_bytes = self.hot.max_record.load(Ordering::Relaxed) as usize;
        // As in `write_locked`: the loads above come before the load of the generation.
        fence(Ordering::Acquire);
        if !self.gate().is_open_for(ticket) {
            return Err(WriteFailure::Closed);
        }
        if length.wrapping_sub(1) >= max_record_bytes {
            return Err(WriteFailure::TooLarge);
        }
        let this_cpu = cpu::current();
        let ring = if view.rseq_offset != 0 && this_cpu < view.cpus {
            this_cpu
        } else {
            view.cpus + view.nearest_cpu()
        };
        // SAFETY: the outlet was open with this view, and `ring` is below twice its CPUs.
        let words = unsafe { view.words(ring as usize) };
        let slot = words.find_slot(abi::size_in_ring(length) as u64, u64::from(view.ring_bytes));
        slot.map(|_| ())
            .ok_or_else(|| if words.is_closed() { WriteFailure::OwnerFull } else { WriteFailure::Full })
    }

    /// Writes under the lock of a ring.
    #[cold]
    #[inline(never)]
    fn write_locked(
        &self,
        ticket: Ticket,
        thread: u32,
        record: &mut Gather<'_>,
        length: usize,
    ) -> Result<(), WriteFailure> {
        let view = self.hot.view();
        // The loads of the view come before the load of the generation: a view of another opening,
        // or a mixture of two, is not used. Pairs with the fence in `OutletGate::close`, after
        // which views change.
        fence(Ordering::Acquire);
        if !self.gate().is_open_for(ticket) {
            return Err(WriteFailure::Closed);
        }
        // SAFETY: `write` found the record sound for `length`; the gate was open for the ticket
        // after the view was read.
        match unsafe { fallback::write(self.gate(), ticket, &view, thread, record, length) } {
            WriteOutcome::Published { ring, end } => {
                self.wake_after_publish(ticket, &view, ring, end);
                Ok(())
            }
            WriteOutcome::Full { ring } => self.count_full(ticket, ring),
            WriteOutcome::Closed => Err(WriteFailure::Closed),
            WriteOutcome::Unavailable => self.count_full(ticket, (view.cpus + view.nearest_cpu()) as usize),
        }
    }

    /// Counts an event that was offered but cannot be written (a forked child without its own
    /// region, a record that is too large).
    pub fn count_lost(&self, ticket: Ticket) {
        self.count_loss(ticket, None);
    }

    /// Counts a loss in `ring`, or without it in this CPU's ring. Returns whether the owner has
    /// closed the ring; `None` if the outlet is closed by now.
    fn count_loss(&self, ticket: Ticket, ring: Option<usize>) -> Option<bool> {
        points::pass("before_lost");
        let mut is_closed = false;
        let is_counted = self.visit(ticket, |view, _| {
            let ring = ring.unwrap_or_else(|| view.nearest_cpu() as usize);
            // SAFETY: the visit found the outlet open for the ticket. The write with this ticket
            // tried `ring`, or `ring` was chosen from this view; so it is a ring of this view.
            let words = unsafe { view.words(ring) };
            words.count_lost();
            is_closed = words.is_closed();
        });
        points::pass("after_lost");
        is_counted.then_some(is_closed)
    }

    #[cold]
    #[inline(never)]
    fn count_too_large(&self, ticket: Ticket) -> Result<(), WriteFailure> {
        Err(if self.count_loss(ticket, None).is_some() {
            WriteFailure::TooLarge
        } else {
            WriteFailure::Closed
        })
    }

    #[cold]
    #[inline(never)]
    fn count_full(&self, ticket: Ticket, ring: usize) -> Result<(), WriteFailure> {
        Err(match self.count_loss(ticket, Some(ring)) {
            Some(false) => WriteFailure::Full,
            Some(true) => WriteFailure::OwnerFull,
            None => WriteFailure::Closed,
        })
    }

    /// Wakes the owner if enough bytes are unread.
    #[inline]
    fn wake_after_publish(&self, ticket: Ticket, view: &View, ring: usize, end: u64) {
        // SAFETY: a record was just published to this ring of the view, so the outlet was open with
        // it.
        let words = unsafe { view.words(ring) };
        if words.may_need_wake(end, self.hot.wake_at.load(Ordering::Relaxed)) {
            self.wake(ticket, ring, end);
        }
    }

    /// Like [`wake_after_publish`](Self::wake_after_publish), for a sequence, which knows the
    /// control block of its ring.
    #[inline(always)]
    fn wake_after_sequence(&self, ticket: Ticket, control: *mut u8, end: u64) {
        // SAFETY: the sequence has just published to the ring of this control block, and ranges of
        // outlets stay mapped forever.
        let words = unsafe { ControlWords::from_control(control) };
        if words.may_need_wake(end, self.hot.wake_at.load(Ordering::Relaxed)) {
            self.wake(ticket, self.find_ring(control), end);
        }
    }

    /// Returns the index of the ring with this control block. The index may be wrong if the outlet
    /// was opened again meanwhile; a visit with the old ticket then does nothing.
    #[cold]
    fn find_ring(&self, control: *mut u8) -> usize {
        let first = self.hot.view().control(0).addr();
        control.addr().wrapping_sub(first) / abi::CONTROL_BYTES
    }

    #[cold]
    #[inline(never)]
    fn wake(&self, ticket: Ticket, ring: usize, end: u64) {
        let _ = self.visit(ticket, |view, wake| {
            // SAFETY: the visit found the outlet open for the ticket, under which a record was
            // published to `ring`; so it is a ring of this view.
            let is_due = unsafe { view.words(ring) }.claim_wake(end);
            if is_due {
                points::pass("before_wake");
                match wake {
                    Wake::None => {}
                    Wake::Doorbell(doorbell, line) => doorbell.ring_outlet(line),
                    Wake::Descriptor(wake) => {
                        // SAFETY: the descriptor belongs to this opening, and is closed only when
                        // no visitor of it is left, or never.
                        let wake = unsafe { BorrowedFd::borrow_raw(wake) };
                        // A full counter means that a wake is already pending. Nothing can be done
                        // about other failures here.
                        let _ = rustix::io::write(wake, &1u64.to_ne_bytes());
                    }
                }
                points::pass("after_wake");
            }
        });
    }

    /// Runs `work`, for which `close` waits, if the outlet is open for this ticket. Returns whether
    /// the outlet was open. `work` must use only the view and the wake that it is given: if `work`
    /// takes longer than `close` waits, those in the outlet may belong to the next opening.
    fn visit(&self, ticket: Ticket, work: impl FnOnce(&View, Wake)) -> bool {
        let (view, wake) = (self.hot.view(), self.load_wake());
        // As in `write_locked`: the loads above come before the loads of the gate's words.
        fence(Ordering::Acquire);
        self.gate().visit(ticket, || work(&view, wake))
    }
}
