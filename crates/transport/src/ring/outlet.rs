//! The writing side of a region: an outlet of this process into one session.
//!
//! ```text
//!   open    map the region ─ store the view ─ open the gate (gate.rs)
//!   write   rseq, or lock: open for the ticket? ─┬─ published ─ enough unread? wake
//!           (outlet/write.rs)                    └─ full ─ count
//!   close   close the gate ─ barrier ─ all locks ─ no visitors ─ cover the range
//!   forget  close the gate ─ no visitors ─ cover the range         (a forked child)
//! ```
//!
//! 1. An outlet lives in a static and is never freed; its addresses are never unmapped, only
//!    covered with private zeros. A writer that was stopped in the middle of a write, for however
//!    long, finds mapped memory and a generation that differs from its ticket.
//! 2. The view (address and layout of the region) changes only while the gate is closed. A writer
//!    that reads it, and then finds the gate open for its ticket, has read the view of that
//!    opening.
//! 3. A thread that counts a loss or wakes the owner is in no sequence and holds no lock. It is a
//!    visitor, and `close` waits for visitors to leave. So a late count never reaches the next
//!    session, and a late wake never writes to another descriptor with the same number.
//! 4. If `close` stops waiting, it abandons the range and the descriptor: their addresses and
//!    number are never reused, because a thread may still use them.
//! 5. `write` and `count_lost` are safe in signal handlers. One thread at a time calls `open`,
//!    `close` and `forget`.
//!
//! A forked child shares its parent's region. The child may count losses there, and then
//! [forgets](Outlet::forget) the region. It must know by itself that it is a child: process ids do
//! not show this, as a child in a new namespace can have its parent's id.

use core::fmt;
use core::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use rustix::thread::{MembarrierCommand, membarrier};

use super::doorbell::Doorbell;
use super::drain::RegionReader;
use super::gate::{OutletGate, Ticket};
use super::rseq;
use super::view::{HotWords, View};
use crate::abi::RegionParams;
use crate::clock::{Counter, is_switched_on};
use crate::error::{Error, Result};
use crate::map::AddressRange;

mod write;

/// Time that `close` waits for writers and visitors to leave.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(100);
/// Time that `forget` waits for threads that count a loss in the parent's region. Threads that
/// exist only in the parent never leave.
const FORGET_TIMEOUT: Duration = Duration::from_millis(10);

/// The next generation. One counter serves all outlets, so that a ticket of one outlet is never
/// valid for another.
static NEXT_GENERATION: AtomicU64 = AtomicU64::new(1);

/// The memory of a region in a file, and the means to wake the owner. A region in memory of the
/// process itself needs no source ([`Outlet::open_private`]).
#[derive(Debug)]
#[non_exhaustive]
pub enum RegionSource {
    /// A memory file, and the eventfd that wakes the owner.
    File {
        /// The sealed memory file.
        memory: OwnedFd,
        /// The eventfd that wakes the owner.
        wake: OwnedFd,
    },
    /// A memory file, and a doorbell of this process that wakes the owner.
    Doorbell {
        /// The sealed memory file.
        memory: OwnedFd,
        /// The doorbell that wakes the owner.
        doorbell: &'static Doorbell,
        /// Line of the doorbell, which identifies the outlet to the woken thread.
        line: u8,
    },
}

/// The means to wake the owner of a region.
#[derive(Clone, Copy)]
enum Wake {
    /// The owner is not woken.
    None,
    /// An eventfd, by its number.
    Descriptor(i32),
    /// A line of a doorbell.
    Doorbell(&'static Doorbell, u8),
}

/// The reason why a record was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteFailure {
    /// The ring is full, or every lock is taken: counted in the region.
    Full,
    /// The owner takes no events for now, because its store is full: counted in the region.
    OwnerFull,
    /// The record is empty, or larger than the session can store: counted in the region.
    TooLarge,
    /// The outlet was closed or serves another session by now. Not counted.
    Closed,
}

/// An outlet of this process into one session. Lives in a static and is never freed, so a writer
/// that was interrupted for any length of time finds readable memory.
#[repr(C, align(128))]
pub struct Outlet {
    hot: HotWords,
    cold: ColdFields,
}

/// Fields that the fast path does not read.
#[repr(C, align(64))]
struct ColdFields {
    /// Opening and number of visitors (gate.rs).
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
        f.debug_struct("Outlet").field("generation", &self.hot.generation).finish_non_exhaustive()
    }
}

impl Outlet {
    /// Creates a closed outlet.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            hot: HotWords::new(),
            cold: ColdFields {
                visitors: AtomicU64::new(0),
                wake: AtomicI32::new(-1),
                doorbell: AtomicPtr::new(core::ptr::null_mut()),
                line: AtomicU32::new(0),
                range_bytes: AtomicUsize::new(0),
            },
        }
    }

    #[inline]
    const fn gate(&self) -> OutletGate<'_> {
        OutletGate::new(&self.hot.generation, &self.cold.visitors)
    }

    /// Maps a region and lets writers in. Rejects a region of another version. One caller at a time
    /// opens and closes an outlet.
    pub fn open(&self, source: RegionSource, params: &RegionParams) -> Result<Ticket> {
        let (memory, wake) = match source {
            RegionSource::File { memory, wake } => {
                prepare_wake(wake.as_fd())?;
                (memory, Ok(wake))
            }
            RegionSource::Doorbell { memory, doorbell, line } => (memory, Err((doorbell, line))),
        };
        let range = self.prepare_range(params)?;
        range.map_file(memory.as_fd(), params.layout.region_bytes())?;
        Ok(match wake {
            Ok(wake) => self.admit_writers(params, Wake::Descriptor(wake.into_raw_fd())),
            Err((doorbell, line)) => self.admit_writers(params, Wake::Doorbell(doorbell, line)),
        })
    }

    /// Opens the outlet over memory of this process and returns the reading side, for a private
    /// session.
    pub fn open_private(&self, params: &RegionParams, wake: OwnedFd) -> Result<(Ticket, RegionReader)> {
        let range = self.prepare_range(params)?;
        let reader = RegionReader::from_mapping(range.map_shared(params.layout.region_bytes())?, params)?;
        Ok((self.admit_writers(params, Wake::Descriptor(wake.into_raw_fd())), reader))
    }

    /// Like [`open_private`](Self::open_private), with a doorbell to wake the owner.
    pub fn open_private_with_doorbell(
        &self,
        params: &RegionParams,
        doorbell: &'static Doorbell,
        line: u8,
    ) -> Result<(Ticket, RegionReader)> {
        let range = self.prepare_range(params)?;
        let reader = RegionReader::from_mapping(range.map_shared(params.layout.region_bytes())?, params)?;
        Ok((self.admit_writers(params, Wake::Doorbell(doorbell, line)), reader))
    }

    /// Returns the range of addresses for a region: the previous range, if it is large enough and
    /// the previous region had as many CPUs, or else a new one. Fails if the outlet is open.
    fn prepare_range(&self, params: &RegionParams) -> Result<AddressRange> {
        params.check()?;
        if self.gate().is_open() {
            return Err(Error::Invalid("the outlet is already open"));
        }
        let needed = params.layout.region_bytes();
        // A late writer to the previous region may still try a lock word before it checks the
        // generation. With as many CPUs as before, that word is a lock word of the next region too,
        // and trying it does no harm (fallback.rs).
        let has_same_cpus = self.hot.cpus.load(Ordering::Relaxed) == u32::from(params.layout.cpus());
        if let Some(range) = self.range().filter(|range| has_same_cpus && range.bytes() >= needed) {
            return Ok(range);
        }
        let range = AddressRange::reserve(needed)?;
        self.hot.base.store(range.base(), Ordering::Relaxed);
        self.cold.range_bytes.store(range.bytes(), Ordering::Relaxed);
        Ok(range)
    }

    fn range(&self) -> Option<AddressRange> {
        let bytes = self.cold.range_bytes.load(Ordering::Relaxed);
        // SAFETY: both were stored together from a range that `prepare_range` reserved, and one
        // caller at a time opens and closes the outlet.
        unsafe { AddressRange::from_parts(self.hot.base.load(Ordering::Relaxed), bytes) }
            .filter(|_| bytes > 0)
    }

    /// Stores the view and lets writers in.
    fn admit_writers(&self, params: &RegionParams, wake: Wake) -> Ticket {
        // A sequence always stamps its record with the cycle counter.
        let uses_sequences = params.clock == Counter::Cycles && params.layout.ring_bytes() > 0;
        let offset = if uses_sequences { rseq_area_offset() } else { 0 };
        self.hot.set_layout(params, offset);
        self.set_wake(wake);
        // Steps of two: an odd number is an opening, the even number after it the closing. Relaxed:
        // the numbers only need to differ.
        let ticket = Ticket(NEXT_GENERATION.fetch_add(2, Ordering::Relaxed));
        self.gate().open(ticket);
        ticket
    }

    /// Closes the outlet. Returns `true` if no writer publishes any more. Returns `false` if a
    /// writer may still publish, because sequences could not be aborted or a thread did not leave
    /// in time.
    ///
    /// Call it only in the process that opened the outlet: a forked child would stop its parent's
    /// writers. The child calls [`forget`](Self::forget).
    pub fn close(&self) -> bool {
        let (range, view) = (self.range(), self.hot.view());
        if !self.gate().close() {
            return true;
        }
        let is_quiet = self.wait_for_writers(&view);
        if let Some(range) = range {
            range.cover();
        }
        if let (Wake::Descriptor(wake), true) = (self.release_range(is_quiet), is_quiet) {
            // SAFETY: the descriptor was given to this outlet by `open`, and no visitor is left to
            // use its number.
            drop(unsafe { OwnedFd::from_raw_fd(wake) });
        }
        is_quiet
    }

    fn set_wake(&self, wake: Wake) {
        let (descriptor, doorbell, line) = match wake {
            Wake::None => (-1, core::ptr::null(), 0),
            Wake::Descriptor(descriptor) => (descriptor, core::ptr::null(), 0),
            Wake::Doorbell(doorbell, line) => (-1, core::ptr::from_ref(doorbell), line),
        };
        self.cold.wake.store(descriptor, Ordering::Relaxed);
        self.cold.doorbell.store(doorbell.cast_mut(), Ordering::Relaxed);
        self.cold.line.store(u32::from(line), Ordering::Relaxed);
    }

    /// Returns the means to wake the owner of the current opening; valid if the gate is found open
    /// for its ticket afterwards.
    fn load_wake(&self) -> Wake {
        let descriptor = self.cold.wake.load(Ordering::Relaxed);
        // SAFETY: null, or stored by `set_wake` from a reference that lives forever.
        match unsafe { self.cold.doorbell.load(Ordering::Relaxed).as_ref() } {
            Some(doorbell) => Wake::Doorbell(doorbell, self.cold.line.load(Ordering::Relaxed) as u8),
            None if descriptor >= 0 => Wake::Descriptor(descriptor),
            None => Wake::None,
        }
    }

    /// Forgets the parent's region, in a forked child, without changing the region. The caller
    /// ensures that no thread of the child is in [`write`](Self::write) with the parent's ticket.
    /// Threads of the child may count losses: every loss for which
    /// [`count_lost`](Self::count_lost) finds the outlet open is counted in the parent's region.
    pub fn forget(&self) {
        let range = self.range();
        if !self.gate().close() {
            return;
        }
        // The count includes visitors that the parent had at the fork, which never leave here. In
        // this case the region stays mapped, because a thread of the child may be counting a loss.
        let is_quiet = wait_until(Instant::now() + FORGET_TIMEOUT, || self.gate().is_empty());
        if let Some(range) = range.filter(|_| is_quiet) {
            range.cover();
        }
        // The child's copy of a descriptor stays open: the child may have closed it and opened
        // another file under that number.
        self.release_range(is_quiet);
    }

    /// Prepares the range for the next region, or abandons it if a writer may still be inside.
    /// Returns the means to wake the owner.
    fn release_range(&self, is_quiet: bool) -> Wake {
        let wake = self.load_wake();
        self.set_wake(Wake::None);
        if !is_quiet {
            self.cold.range_bytes.store(0, Ordering::Relaxed);
        }
        wake
    }

    /// Waits until no writer or visitor is inside (R5 in ring.rs). The locks are kept. Returns
    /// `false` if that takes too long or sequences cannot be aborted.
    fn wait_for_writers(&self, view: &View) -> bool {
        // Every thread of this process that is in a sequence starts it again, and then sees the
        // generation.
        let is_aborted = view.rseq_offset == 0 || membarrier(MembarrierCommand::PrivateExpeditedRseq).is_ok();
        let deadline = Instant::now() + CLOSE_TIMEOUT;
        let mut is_locked = true;
        for ring in view.cpus..view.cpus * 2 {
            // SAFETY: the caller read the view while the outlet was open, and the loop goes over
            // its rings.
            let words = unsafe { view.words(ring as usize) };
            if !wait_until(deadline, || words.try_lock(u32::MAX)) {
                // A writer was stopped while it held the lock, and a record that it publishes later
                // is lost. If it had already published, this counts one event too many, which is
                // better than a loss that is not counted.
                words.count_lost();
                is_locked = false;
            }
        }
        is_aborted && is_locked && wait_until(deadline, || self.gate().is_empty())
    }
}

/// Makes an eventfd non-blocking. Rejects every other descriptor, because a write to it could block
/// or kill the writer.
pub fn prepare_wake(wake: BorrowedFd<'_>) -> Result<()> {
    // The link of this thread, which may have a separate descriptor table.
    let link = format!("/proc/thread-self/fd/{}", wake.as_raw_fd());
    // If a sandbox hides /proc, the type is unknown; the owner is then trusted.
    if let Ok(target) = std::fs::read_link(link)
        && target.as_os_str() != "anon_inode:[eventfd]"
    {
        return Err(Error::Invalid("the descriptor that wakes the owner is not an eventfd"));
    }
    let flags =
        rustix::fs::fcntl_getfl(wake).map_err(|e| Error::system("read flags of the wake descriptor", e))?;
    rustix::fs::fcntl_setfl(wake, flags | rustix::fs::OFlags::NONBLOCK)
        .map_err(|e| Error::system("unblock the wake descriptor", e))
}

impl Default for Outlet {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns the offset of the area for restartable sequences from the thread pointer, or 0 if
/// sequences cannot be used. The C library must have registered an area, `TRACEWEIR_NO_RSEQ` must
/// not forbid sequences, and the kernel must be able to abort the sequences of other threads,
/// because an outlet could not be closed otherwise.
///
/// The environment is read once: a forked child must not read it, because another thread of its
/// parent may have held the lock of the environment.
fn rseq_area_offset() -> isize {
    static OFFSET: OnceLock<isize> = OnceLock::new();
    let offset =
        *OFFSET.get_or_init(|| if is_switched_on("TRACEWEIR_NO_RSEQ") { 0 } else { rseq::area_offset() });
    let can_abort = offset != 0 && membarrier(MembarrierCommand::RegisterPrivateExpeditedRseq).is_ok();
    if can_abort { offset } else { 0 }
}

/// Returns whether threads of this process write in restartable sequences instead of under locks.
#[must_use]
pub fn supports_rseq() -> bool {
    rseq_area_offset() != 0
}

/// Calls `is_done` until it returns `true` or the deadline has passed. Returns whether it is done.
fn wait_until(deadline: Instant, mut is_done: impl FnMut() -> bool) -> bool {
    loop {
        if is_done() {
            return true;
        }
        if Instant::now() >= deadline {
            return false;
        }
        std::thread::sleep(Duration::from_micros(50));
    }
}

#[cfg(test)]
mod tests;
