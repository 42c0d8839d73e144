//! The writing side of a region: an outlet of this process into one session.
//!
//! ```text
//!   open    map the region ─ store the view ─ open the gate (gate.rs)
//!   write   gate open for the ticket? ─ view ─ rseq, or lock ─┬─ published ─ enough unread? wake          (outlet/write.rs)
//!                                                             └─ no room ─ count
//!   close   shut the gate ─ barrier ─ all locks ─ no visitors ─ cover the range
//!   forget  shut the gate ─ no visitors ─ cover the range                                                   (a forked child)
//! ```
//!
//! 1. An outlet lives in a static and is never freed; its addresses are never unmapped. A writer that was stopped for an hour
//!    in the middle of a write finds memory to look at and a generation that is not its own.
//! 2. The view (where the region is, how it is cut) changes only while the gate is shut. Whoever reads it, then finds the gate open for
//!    its ticket, has read the view of that opening.
//! 3. Counting a loss and waking the owner happen outside of the rings' rules; whoever does it is a visitor, and `close` waits for
//!    visitors to leave. So a late count never reaches the next session, nor a late wake somebody else's descriptor.
//! 4. Where `close` gave up waiting, the range and the descriptor are given up too: nothing else will ever be where somebody may still be.
//! 5. `write`, `count_lost` are safe in signal handlers. `open`, `close`, `forget` are called by one thread at a time.
//!
//! A forked child shares its parent's region. It may count losses there, and then [forgets](Outlet::forget) it. It must know by itself
//! that it is one: process ids do not tell, as a child in a new namespace can have its parent's.

use core::fmt;
use core::sync::atomic::{AtomicI32, AtomicIsize, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use rustix::thread::{MembarrierCommand, membarrier};

use super::doorbell::Doorbell;
use super::drain::RegionReader;
use super::gate::Gate;
use super::rseq;
use super::view::View;
use crate::abi::RegionParams;
use crate::clock::{Counter, switched_on};
use crate::error::{Error, Result};
use crate::map::Range;

mod write;

/// How long `close` waits for writers inside.
const PATIENCE: Duration = Duration::from_millis(100);
/// How long `forget` waits for those who count a loss in the parent's region. There may be none who could ever leave.
const CHILDS_PATIENCE: Duration = Duration::from_millis(10);

/// The next generation: one counter for all outlets, so that the ticket of one never fits another.
static GENERATIONS: AtomicU64 = AtomicU64::new(1);

/// Where a region's memory comes from. Memory of the process itself needs no descriptor ([`Outlet::open_private`]); whoever comes with
/// one says what it is, and other kinds may follow.
#[derive(Debug)]
#[non_exhaustive]
pub enum RegionSource {
    /// A memory file from the owner, and the eventfd that wakes it.
    File {
        /// The sealed memory file.
        memory: OwnedFd,
        /// Written to wake the owner.
        wake: OwnedFd,
    },
    /// A memory file from the owner, which is woken by a doorbell of this process.
    Doorbell {
        /// The sealed memory file.
        memory: OwnedFd,
        /// Rung to wake the owner.
        doorbell: &'static Doorbell,
        /// Its line.
        line: u8,
    },
}

/// How the owner of a region is woken.
#[derive(Clone, Copy)]
enum Wake {
    /// Not at all.
    None,
    /// By this eventfd.
    Descriptor(i32),
    /// By a line of a doorbell.
    Doorbell(&'static Doorbell, u8),
}

/// Proof that an outlet was open at a certain time; a stale one is refused by [`Outlet::write`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket(pub u64);

/// Why a record was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// No room, or every lock taken: counted in the region.
    Full,
    /// The owner takes nothing for now, because what it keeps events in is full: counted in the region.
    Shut,
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
    pub(super) base: AtomicPtr<u8>,
    pub(super) data_offset: AtomicUsize,
    rseq_offset: AtomicIsize,
    pub(super) cpus: AtomicU32,
    pub(super) ring_bytes: AtomicU32,
    wake_at: AtomicU32,
    max_record: AtomicU32,
    clock: AtomicU32,
    aside: Aside,
}

/// What the fast path does not read.
#[repr(C, align(64))]
struct Aside {
    /// See `gate.rs`.
    visitors: AtomicU64,
    /// Descriptor of the eventfd, or −1.
    wake: AtomicI32,
    /// The doorbell, or null.
    doorbell: AtomicPtr<Doorbell>,
    /// The line of the doorbell.
    line: AtomicU32,
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
                visitors: AtomicU64::new(0),
                wake: AtomicI32::new(-1),
                doorbell: AtomicPtr::new(core::ptr::null_mut()),
                line: AtomicU32::new(0),
                range_bytes: AtomicUsize::new(0),
            },
        }
    }

    #[inline]
    pub(super) const fn gate(&self) -> Gate<'_> {
        Gate::of(&self.generation, &self.aside.visitors)
    }

    /// Maps a region and lets writers in. Refuses a region of another version. One caller at a time opens and closes an outlet.
    pub fn open(&self, source: RegionSource, params: &RegionParams) -> Result<Ticket> {
        let (memory, wake) = match source {
            RegionSource::File { memory, wake } => {
                prepare_wake(wake.as_fd())?;
                (memory, Ok(wake))
            }
            RegionSource::Doorbell { memory, doorbell, line } => (memory, Err((doorbell, line))),
        };
        let range = self.prepare(params)?;
        range.map_file(memory.as_fd(), params.layout.region_bytes())?;
        Ok(match wake {
            Ok(wake) => self.admit(params, Wake::Descriptor(wake.into_raw_fd())),
            Err((doorbell, line)) => self.admit(params, Wake::Doorbell(doorbell, line)),
        })
    }

    /// Opens it over memory of this process and gives the reading side: a private session.
    pub fn open_private(&self, params: &RegionParams, wake: OwnedFd) -> Result<(Ticket, RegionReader)> {
        let range = self.prepare(params)?;
        let reader = RegionReader::over(range.map_shared(params.layout.region_bytes())?, params)?;
        Ok((self.admit(params, Wake::Descriptor(wake.into_raw_fd())), reader))
    }

    /// As [`open_private`](Self::open_private), where the owner is woken by a doorbell.
    pub fn open_private_with_doorbell(
        &self,
        params: &RegionParams,
        doorbell: &'static Doorbell,
        line: u8,
    ) -> Result<(Ticket, RegionReader)> {
        let range = self.prepare(params)?;
        let reader = RegionReader::over(range.map_shared(params.layout.region_bytes())?, params)?;
        Ok((self.admit(params, Wake::Doorbell(doorbell, line)), reader))
    }

    /// The range for a region, where it may be opened: the one in use before, if it is large enough and the region is cut alike.
    fn prepare(&self, params: &RegionParams) -> Result<Range> {
        params.check()?;
        if self.gate().is_open() {
            return Err(Error::Invalid("the outlet is open already"));
        }
        let needed = params.layout.region_bytes();
        // A late-comer to the last region may still try a lock word before it looks at the generation. With as many processors as before
        // that word is a lock word of the next region too, and trying it does no harm (fallback.rs).
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
    fn admit(&self, params: &RegionParams, wake: Wake) -> Ticket {
        let layout = params.layout;
        let offset = if params.clock == Counter::Cycles && layout.ring_bytes() > 0 { sequences() } else { 0 };
        self.rseq_offset.store(offset, Ordering::Relaxed);
        self.data_offset.store(layout.data_offset(0), Ordering::Relaxed);
        self.cpus.store(u32::from(layout.cpus()), Ordering::Relaxed);
        self.ring_bytes.store(layout.ring_bytes(), Ordering::Relaxed);
        self.wake_at.store(params.wake_at.max(1), Ordering::Relaxed);
        self.max_record.store(params.max_record, Ordering::Relaxed);
        self.clock.store(params.clock as u32, Ordering::Relaxed);
        self.set_wake(wake);
        // Two at a time: odd numbers are openings, the even ones between them closings. Relaxed: only their being different matters.
        let generation = GENERATIONS.fetch_add(2, Ordering::Relaxed);
        self.gate().open(generation);
        Ticket(generation)
    }

    /// Shuts writers out. After the return no writer publishes any more, unless one was stopped inside the lock of a ring for longer
    /// than a tenth of a second (then `false`).
    ///
    /// Only in the process that opened it: a forked child would shut its parent's writers out. It calls [`forget`](Self::forget).
    pub fn close(&self) -> bool {
        let (range, view) = (self.range(), self.view());
        if !self.gate().shut() {
            return true;
        }
        let quiet = self.still(&view);
        if let Some(range) = range {
            range.cover();
        }
        if let (Wake::Descriptor(wake), true) = (self.vacate(quiet), quiet) {
            // SAFETY: the descriptor was given to this outlet by `open`, and no visitor is left to use its number.
            drop(unsafe { OwnedFd::from_raw_fd(wake) });
        }
        quiet
    }

    fn set_wake(&self, wake: Wake) {
        let (descriptor, doorbell, line) = match wake {
            Wake::None => (-1, core::ptr::null(), 0),
            Wake::Descriptor(descriptor) => (descriptor, core::ptr::null(), 0),
            Wake::Doorbell(doorbell, line) => (-1, core::ptr::from_ref(doorbell), line),
        };
        self.aside.wake.store(descriptor, Ordering::Relaxed);
        self.aside.doorbell.store(doorbell.cast_mut(), Ordering::Relaxed);
        self.aside.line.store(u32::from(line), Ordering::Relaxed);
    }

    /// How the owner of the present opening is woken; of use once the gate was found open for its ticket.
    fn wake_of_owner(&self) -> Wake {
        let descriptor = self.aside.wake.load(Ordering::Relaxed);
        // SAFETY: null, or stored by `set_wake` from a reference that lives for ever.
        match unsafe { self.aside.doorbell.load(Ordering::Relaxed).as_ref() } {
            Some(doorbell) => Wake::Doorbell(doorbell, self.aside.line.load(Ordering::Relaxed) as u8),
            None if descriptor >= 0 => Wake::Descriptor(descriptor),
            None => Wake::None,
        }
    }

    /// In a forked child, for an outlet that its parent opened: forgets the parent's region and disturbs nothing there. No thread of the
    /// child is in [`write`](Self::write) with the parent's ticket; counting losses is allowed, and every loss for which
    /// [`count_lost`](Self::count_lost) finds the outlet open is counted in the parent's region.
    pub fn forget(&self) {
        let range = self.range();
        if !self.gate().shut() {
            return;
        }
        // Visitors that the parent had at the fork are counted here and never leave. Then the region stays where it is, in case it
        // is one of the child's own who counts.
        let quiet = wait_until(Instant::now() + CHILDS_PATIENCE, || self.gate().is_empty());
        if let Some(range) = range.filter(|_| quiet) {
            range.cover();
        }
        // The child's copy of a descriptor stays open: the child may have closed it and opened something of its own under that number.
        self.vacate(quiet);
    }

    /// Makes the range ready for the next region; where a writer may still be inside, gives it up. Returns how the owner was woken.
    fn vacate(&self, quiet: bool) -> Wake {
        let wake = self.wake_of_owner();
        self.set_wake(Wake::None);
        if !quiet {
            self.aside.range_bytes.store(0, Ordering::Relaxed);
        }
        wake
    }

    /// Waits until nobody is inside (R5). The locks are kept.
    fn still(&self, view: &View) -> bool {
        // Every thread of this process that is in a sequence begins again, and then sees the generation.
        let stopped = view.rseq_offset == 0 || membarrier(MembarrierCommand::PrivateExpeditedRseq).is_ok();
        let end = Instant::now() + PATIENCE;
        let mut locked = true;
        for ring in view.cpus..view.cpus * 2 {
            // SAFETY: the view was read while the outlet was open.
            let words = unsafe { view.words(ring as usize) };
            if !wait_until(end, || words.try_lock(u32::MAX)) {
                // Somebody was stopped inside, and what he publishes later goes nowhere. Should he have published already, it is counted in
                // vain: better once too often than never.
                words.count_lost();
                locked = false;
            }
        }
        stopped && locked && wait_until(end, || self.gate().is_empty())
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

/// Refuses a descriptor on which waking could hang or kill the writer, and keeps it from blocking: only an eventfd will do.
pub fn prepare_wake(wake: BorrowedFd<'_>) -> Result<()> {
    // Of this thread: it may have a descriptor table of its own.
    let link = format!("/proc/thread-self/fd/{}", wake.as_raw_fd());
    // Where a sandbox hides /proc nothing can be told; the owner is then believed.
    if let Ok(target) = std::fs::read_link(link)
        && target.as_os_str() != "anon_inode:[eventfd]"
    {
        return Err(Error::Invalid("the descriptor that wakes the owner is no eventfd"));
    }
    let flags = rustix::fs::fcntl_getfl(wake).map_err(|e| Error::system("look at the wake descriptor", e))?;
    rustix::fs::fcntl_setfl(wake, flags | rustix::fs::OFlags::NONBLOCK)
        .map_err(|e| Error::system("unblock the wake descriptor", e))
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

/// Whether threads of this process write in restartable sequences, and not under locks.
#[must_use]
pub fn is_restartable() -> bool {
    sequences() != 0
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

#[cfg(test)]
mod tests;
