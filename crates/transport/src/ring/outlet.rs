//! The writing side of a region: an outlet of this process into one session.
//!
//! ```text
//!   generation   even: closed      odd: open; the number is the ticket
//!
//!   open    map the region ─ store the view ─ generation + 1
//!   write   generation = ticket? ─ view ─ rseq, or lock ─┬─ published ─ enough unread? wake
//!                                                        └─ no room ─ count
//!   close   generation + 1 ─ barrier ─ all locks ─ no visitors ─ cover the range
//! ```
//!
//! 1. An outlet lives in a static and is never freed; its addresses are never unmapped. A writer that was stopped for an hour
//!    in the middle of a write finds memory to look at and a generation that is not its own.
//! 2. The view (where the region is, how it is cut) changes only while the outlet is closed. Whoever finds the same odd generation
//!    before and after reading it has read one view.
//! 3. Counting a loss and waking the owner happen outside of the rings' rules; whoever does it is a *visitor*, and `close` waits for
//!    visitors to leave. So a late count never reaches the next session, nor a late wake somebody else's descriptor.
//! 4. `write`, `count_lost` are safe in signal handlers. `open`, `close` are called by one thread at a time.
//!
//! A forked child shares its parent's region. It may count losses there; `close` in the child forgets the region and does not
//! touch the parent's locks.

use core::fmt;
use core::sync::atomic::{
    AtomicI32, AtomicIsize, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use rustix::thread::{MembarrierCommand, membarrier};

use super::drain::RegionReader;
use super::gather::Gather;
use super::view::View;
use super::{Outcome, fallback, points, rseq};
use crate::abi::RegionParams;
use crate::clock::{Counter, switched_on};
use crate::error::{Error, Result};
use crate::map::Range;

/// How long `close` waits for writers inside.
const PATIENCE: Duration = Duration::from_millis(100);

/// Where a region's memory comes from.
#[derive(Debug)]
pub enum RegionSource {
    /// A memory file from the owner, and the eventfd that wakes it.
    File {
        /// The sealed memory file.
        memory: OwnedFd,
        /// Written to wake the owner.
        wake: OwnedFd,
    },
}

/// Proof that an outlet was open at a certain time; a stale one is refused by [`Outlet::write`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket(pub u64);

/// Why a record was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// No room: counted in the region.
    Full,
    /// Larger than the session can store, or empty: counted in the region.
    TooLarge,
    /// The outlet was closed or serves another session by now. Not counted.
    Closed,
}

/// One way out of this process into one session. Lives in a static and is never freed, so a writer that was interrupted for
/// any length of time finds memory to look at.
#[repr(C, align(128))]
pub struct Outlet {
    // What every write reads, in one cache line that is written only by `open` and `close`.
    pub(super) generation: AtomicU64,
    base: AtomicPtr<u8>,
    data_offset: AtomicUsize,
    rseq_offset: AtomicIsize,
    cpus: AtomicU32,
    ring_bytes: AtomicU32,
    wake_at: AtomicU32,
    max_record: AtomicU32,
    clock: AtomicU32,
    aside: Aside,
}

/// What the fast path does not read.
#[repr(C, align(64))]
struct Aside {
    visitors: AtomicU32,
    /// Descriptor of the eventfd; −1: none.
    wake: AtomicI32,
    /// The process that opened the outlet.
    process: AtomicU32,
    /// Bytes of the range at `base`.
    range_bytes: AtomicUsize,
}

impl fmt::Debug for Outlet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outlet").field("generation", &self.generation).finish_non_exhaustive()
    }
}

impl Outlet {
    /// A closed outlet.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            generation: AtomicU64::new(0),
            base: AtomicPtr::new(core::ptr::null_mut()),
            data_offset: AtomicUsize::new(0),
            rseq_offset: AtomicIsize::new(0),
            cpus: AtomicU32::new(0),
            ring_bytes: AtomicU32::new(0),
            wake_at: AtomicU32::new(0),
            max_record: AtomicU32::new(0),
            clock: AtomicU32::new(0),
            aside: Aside {
                visitors: AtomicU32::new(0),
                wake: AtomicI32::new(-1),
                process: AtomicU32::new(0),
                range_bytes: AtomicUsize::new(0),
            },
        }
    }

    /// Maps a region and lets writers in. One caller at a time opens and closes an outlet.
    pub fn open(&self, source: RegionSource, params: &RegionParams) -> Result<Ticket> {
        let RegionSource::File { memory, wake } = source;
        let range = self.prepare(params)?;
        range.map_file(memory.as_fd(), params.layout.region_bytes())?;
        Ok(self.admit(params, wake))
    }

    /// Opens it over memory of this process and gives the reading side: a private session.
    pub fn open_private(&self, params: &RegionParams, wake: OwnedFd) -> Result<(Ticket, RegionReader)> {
        let range = self.prepare(params)?;
        let reader = RegionReader::over(range.map_shared(params.layout.region_bytes())?, params)?;
        Ok((self.admit(params, wake), reader))
    }

    /// The range for a region, where it may be opened: the one in use before, if it is large enough and the region is cut alike.
    fn prepare(&self, params: &RegionParams) -> Result<Range> {
        params.check()?;
        if self.generation.load(Ordering::Relaxed) % 2 == 1 {
            return Err(Error::Invalid("the outlet is open already"));
        }
        let needed = params.layout.region_bytes();
        // A straggler of the last region may still try a lock word before it looks at the generation. With as many processors as before
        // that word is a lock word of the next region too, and trying it does no harm.
        let alike = self.cpus.load(Ordering::Relaxed) == u32::from(params.layout.cpus());
        if let Some(range) = self.range().filter(|range| alike && range.bytes() >= needed) {
            return Ok(range);
        }
        let range = Range::reserve(needed)?;
        self.base.store(range.base(), Ordering::Relaxed);
        self.aside.range_bytes.store(range.bytes(), Ordering::Relaxed);
        Ok(range)
    }

    fn range(&self) -> Option<Range> {
        let bytes = self.aside.range_bytes.load(Ordering::Relaxed);
        // SAFETY: both were stored together from a range that `prepare` reserved; opening and closing is one caller at a time.
        unsafe { Range::from_parts(self.base.load(Ordering::Relaxed), bytes) }.filter(|_| bytes > 0)
    }

    /// Stores the view and lets writers in.
    fn admit(&self, params: &RegionParams, wake: OwnedFd) -> Ticket {
        let layout = params.layout;
        let offset = if params.clock == Counter::Cycles && layout.ring_bytes() > 0 { sequences() } else { 0 };
        self.rseq_offset.store(offset, Ordering::Relaxed);
        self.data_offset.store(layout.data_offset(0), Ordering::Relaxed);
        self.cpus.store(u32::from(layout.cpus()), Ordering::Relaxed);
        self.ring_bytes.store(layout.ring_bytes(), Ordering::Relaxed);
        self.wake_at.store(params.wake_at.max(1), Ordering::Relaxed);
        self.max_record.store(params.max_record, Ordering::Relaxed);
        self.clock.store(params.clock as u32, Ordering::Relaxed);
        self.aside.wake.store(wake.into_raw_fd(), Ordering::Relaxed);
        self.aside.process.store(std::process::id(), Ordering::Relaxed);
        let generation = self.generation.load(Ordering::Relaxed).wrapping_add(1);
        // Pairs with the acquire in `write`: whoever sees the generation sees the view.
        self.generation.store(generation, Ordering::Release);
        Ticket(generation)
    }

    /// Shuts writers out. After the return no writer publishes any more, unless one was stopped inside the lock of a ring for longer
    /// than a tenth of a second (then `false`).
    ///
    /// In a forked child it forgets the parent's region and disturbs nothing there.
    pub fn close(&self) -> bool {
        let generation = self.generation.load(Ordering::Relaxed);
        if generation.is_multiple_of(2) {
            return true;
        }
        let (range, view) = (self.range(), self.view());
        // Sequentially consistent, as are the visitor's accesses: either we see the visitor, or it sees the outlet closed.
        self.generation.store(generation.wrapping_add(1), Ordering::SeqCst);
        let quiet = if self.aside.process.load(Ordering::Relaxed) == std::process::id() {
            self.still(&view)
        } else {
            // The child has one thread, and it is here: visitors that the parent had at the fork never leave.
            self.aside.visitors.store(0, Ordering::Relaxed);
            true
        };
        if let Some(range) = range {
            range.cover();
        }
        let wake = self.aside.wake.swap(-1, Ordering::Relaxed);
        if quiet && wake >= 0 {
            // SAFETY: the descriptor was given to this outlet by `open`, and no visitor is left to use its number.
            drop(unsafe { OwnedFd::from_raw_fd(wake) });
        }
        if !quiet {
            // Somebody may still write there, so no other region comes to these addresses, and the descriptor stays open.
            self.aside.range_bytes.store(0, Ordering::Relaxed);
        }
        quiet
    }

    /// Waits until nobody is inside (R5). The locks are kept.
    fn still(&self, view: &View) -> bool {
        // Every thread of this process that is in a sequence begins again, and then sees the generation.
        let stopped = view.rseq_offset == 0 || membarrier(MembarrierCommand::PrivateExpeditedRseq).is_ok();
        let end = Instant::now() + PATIENCE;
        let locked = (view.cpus..view.cpus * 2).all(|ring| {
            // SAFETY: the view was read while the outlet was open.
            let words = unsafe { view.words(ring as usize) };
            wait_until(end, || words.try_lock(u32::MAX))
        });
        stopped && locked && wait_until(end, || self.aside.visitors.load(Ordering::SeqCst) == 0)
    }

    /// Writes one record. Takes no lock that can block, allocates nothing, calls the system only to wake the owner; safe in signal
    /// handlers. `thread` is the caller's thread id, not 0.
    #[inline]
    pub fn write(&self, ticket: Ticket, thread: u32, record: &mut Gather<'_>) -> Result<(), Failure> {
        points::pass("before_write");
        // Pairs with the release in `admit`.
        if !self.is_open_for(ticket, Ordering::Acquire) {
            return Err(Failure::Closed);
        }
        let length = record.length();
        let view = self.view();
        if length.wrapping_sub(1) >= self.max_record.load(Ordering::Relaxed) as usize {
            return self.too_large(ticket);
        }
        if view.rseq_offset != 0 {
            // SAFETY: `length` found the record sound; the sequence looks at the generation before it uses the view.
            match unsafe { rseq::write(self, ticket, &view, record, length) } {
                Outcome::Published { ring, end } => {
                    self.after_publish(ticket, &view, ring, end);
                    return Ok(());
                }
                Outcome::Full { ring } => return self.full(ticket, ring),
                Outcome::Closed => return Err(Failure::Closed),
                Outcome::Unfit => {}
            }
        }
        self.write_locked(ticket, thread, record, length)
    }

    /// Writes by the lock.
    #[cold]
    #[inline(never)]
    fn write_locked(
        &self,
        ticket: Ticket,
        thread: u32,
        record: &mut Gather<'_>,
        length: usize,
    ) -> Result<(), Failure> {
        let view = self.view();
        // The view's loads come before this one: a view of two regions would not be used.
        fence(Ordering::Acquire);
        if !self.is_open_for(ticket, Ordering::Relaxed) {
            return Err(Failure::Closed);
        }
        // SAFETY: `write` found the record sound for `length`; the view is one.
        match unsafe { fallback::write(self, ticket, &view, thread, record, length) } {
            Outcome::Published { ring, end } => {
                self.after_publish(ticket, &view, ring, end);
                Ok(())
            }
            Outcome::Full { ring } => self.full(ticket, ring),
            Outcome::Closed => Err(Failure::Closed),
            Outcome::Unfit => self.full(ticket, (view.cpus + view.nearest_cpu()) as usize),
        }
    }

    /// Counts an event that was offered but cannot be written (a forked child without a region of its own, a record that is too large).
    pub fn count_lost(&self, ticket: Ticket) {
        self.counted(ticket, None);
    }

    /// Counts a loss in a ring, or in this processor's; `false` where the outlet is closed by now.
    fn counted(&self, ticket: Ticket, ring: Option<usize>) -> bool {
        points::pass("before_lost");
        let counted = self.visit(ticket, |view| {
            let ring = ring.unwrap_or_else(|| view.nearest_cpu() as usize);
            // SAFETY: the visit found the outlet open, and the rings of one generation do not change.
            unsafe { view.words(ring) }.lost.fetch_add(1, Ordering::Relaxed);
        });
        points::pass("after_lost");
        counted
    }

    #[cold]
    #[inline(never)]
    fn too_large(&self, ticket: Ticket) -> Result<(), Failure> {
        Err(if self.counted(ticket, None) { Failure::TooLarge } else { Failure::Closed })
    }

    #[cold]
    #[inline(never)]
    fn full(&self, ticket: Ticket, ring: usize) -> Result<(), Failure> {
        Err(if self.counted(ticket, Some(ring)) { Failure::Full } else { Failure::Closed })
    }

    /// Wakes the owner if enough is unread.
    #[inline]
    fn after_publish(&self, ticket: Ticket, view: &View, ring: usize, end: u64) {
        // SAFETY: the view is one of an open outlet: a record was just published by it.
        let words = unsafe { view.words(ring) };
        let read = words.read.load(Ordering::Relaxed);
        // Once woken for this position, a plain load is all that the records up to the next drain pay.
        if end.wrapping_sub(read) >= u64::from(self.wake_at.load(Ordering::Relaxed))
            && words.woken.load(Ordering::Relaxed) != read.wrapping_add(1)
        {
            self.wake(ticket, ring, end);
        }
    }

    #[cold]
    #[inline(never)]
    fn wake(&self, ticket: Ticket, ring: usize, end: u64) {
        let _ = self.visit(ticket, |view| {
            // SAFETY: the visit found the outlet open.
            let due = unsafe { view.words(ring) }.wake_is_due(end);
            let wake = self.aside.wake.load(Ordering::Relaxed);
            if due && wake >= 0 {
                points::pass("before_wake");
                // SAFETY: the descriptor stays open until no visitor is left.
                let wake = unsafe { BorrowedFd::borrow_raw(wake) };
                // A full counter means that the owner was woken; nothing else can be done about a failure here.
                let _ = rustix::io::write(wake, &1u64.to_ne_bytes());
                points::pass("after_wake");
            }
        });
    }

    /// Does something that `close` must wait for, if the outlet is open for this ticket; whether it was.
    fn visit(&self, ticket: Ticket, work: impl FnOnce(&View)) -> bool {
        // Sequentially consistent, with the accesses in `close`.
        self.aside.visitors.fetch_add(1, Ordering::SeqCst);
        let open = self.is_open_for(ticket, Ordering::SeqCst);
        if open {
            work(&self.view());
        }
        // Pairs with the load in `still`: our work is done when we are seen to be gone.
        self.aside.visitors.fetch_sub(1, Ordering::SeqCst);
        open
    }

    /// Whether this ticket's generation is the present one; an even number is no ticket.
    #[inline]
    pub(super) fn is_open_for(&self, ticket: Ticket, order: Ordering) -> bool {
        ticket.0 & 1 == 1 && self.generation.load(order) == ticket.0
    }

    #[inline]
    fn view(&self) -> View {
        View {
            base: self.base.load(Ordering::Relaxed),
            data_offset: self.data_offset.load(Ordering::Relaxed),
            rseq_offset: self.rseq_offset.load(Ordering::Relaxed),
            cpus: self.cpus.load(Ordering::Relaxed),
            ring_bytes: self.ring_bytes.load(Ordering::Relaxed),
            cycles: self.clock.load(Ordering::Relaxed) == Counter::Cycles as u32,
        }
    }
}

impl Default for Outlet {
    fn default() -> Self {
        Self::new()
    }
}

/// The offset of the area for restartable sequences, where they may be used: the C library registered one, the environment does not
/// forbid it, and the kernel can abort them from outside, without which an outlet could not be closed.
///
/// Found out once: a forked child must not look at the environment, whose lock another thread of its parent may have held.
fn sequences() -> isize {
    static OFFSET: OnceLock<isize> = OnceLock::new();
    let offset =
        *OFFSET.get_or_init(|| if switched_on("TRACEWEIR_NO_RSEQ") { 0 } else { rseq::area_offset() });
    let stoppable = offset != 0 && membarrier(MembarrierCommand::RegisterPrivateExpeditedRseq).is_ok();
    if stoppable { offset } else { 0 }
}

/// Tries until it succeeds or the time is over.
fn wait_until(end: Instant, mut done: impl FnMut() -> bool) -> bool {
    loop {
        if done() {
            return true;
        }
        if Instant::now() >= end {
            return false;
        }
        std::thread::sleep(Duration::from_micros(50));
    }
}
