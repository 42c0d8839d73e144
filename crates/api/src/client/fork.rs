//! Which process this is: what a forked child must not take for its own.
//!
//! ```text
//!   one page, zeroed by the kernel in a forked child (MADV_WIPEONFORK)
//!
//!   ready    serial number of the process once writers may write; 0 in a child until it has registered anew
//!   serial   number of the process since the library's first use, 1, 2, …; 0 in a child that has no client yet
//!   making   somebody makes the client right now
//!   fresh    outlets that this process opened itself; all others are its parent's
//! ```
//!
//! After a fork the regions of the parent stay mapped, and the entries of the registrations still name them. A writer compares `ready` with the number
//! that its thread has remembered: equal on the usual path, one load and one compare, which validates the remembered thread id as well. In a child they
//! differ; then the event is counted as lost in the sessions of the parent, for which memory is shared, until the child's own sessions replace them.
//!
//! Invariants
//!
//! 1. `ready` is 0 or the serial number of this very process.
//! 2. The client of a process is used by that process only: it is found while `serial` is not 0, which is set after it was made. A child makes its own and leaves
//!    the memory of the other alone; locks in there may be held by threads that do not exist in the child.
//!
//! Where the kernel has no MADV_WIPEONFORK (before 4.14) the page is plain memory and the fork handler zeroes it; a raw `clone` is not noticed there.
#![allow(unsafe_code)]

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use super::thread;

struct Page {
    ready: AtomicU64,
    serial: AtomicU32,
    making: AtomicU32,
    fresh: AtomicU64,
}

/// Serves until the wiped page is there.
static PLAIN: Page = Page {
    ready: AtomicU64::new(0),
    serial: AtomicU32::new(0),
    making: AtomicU32::new(0),
    fresh: AtomicU64::new(0),
};

static PAGE: AtomicPtr<Page> = AtomicPtr::new((&raw const PLAIN).cast_mut());

/// Serial numbers given so far; a child goes on from its parent's.
static SERIALS: AtomicU32 = AtomicU32::new(0);

#[inline(always)]
fn page() -> &'static Page {
    // SAFETY: `PLAIN`, or a page mapped by `wiped_page` and never unmapped; all zero bytes are a valid `Page`, and so is the page after a fork.
    unsafe { &*PAGE.load(Ordering::Acquire) }
}

/// Maps the page that a fork wipes; `None` where the system cannot.
fn wiped_page() -> Option<*mut Page> {
    let size = rustix::param::page_size();
    // SAFETY: a new private anonymous mapping; nothing else is touched.
    let at = unsafe {
        libc::mmap(
            ptr::null_mut(),
            size,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if at == libc::MAP_FAILED {
        return None;
    }
    // SAFETY: the mapping made above, whole.
    if unsafe { libc::madvise(at, size, libc::MADV_WIPEONFORK) } == 0 {
        return Some(at.cast());
    }
    // SAFETY: the mapping made above; nobody knows it.
    unsafe { libc::munmap(at, size) };
    None
}

/// Who writes an event.
pub(crate) enum Writer {
    /// A thread of this process, by its id.
    Thread(u32),
    /// A forked child that has not registered anew; the outlets that are its parent's.
    Forked(u64),
}

/// Who this is, on the way of every event that is written.
#[inline(always)]
pub(crate) fn writer() -> Writer {
    let ready = ready();
    thread::id_of(ready).map_or_else(|| recognise(ready), Writer::Thread)
}

/// The serial number of the process once writers may write.
#[inline(always)]
pub(super) fn ready() -> u64 {
    page().ready.load(Ordering::Relaxed)
}

#[cold]
fn recognise(ready: u64) -> Writer {
    if ready == 0 {
        return Writer::Forked(inherited());
    }
    let id = thread_id();
    thread::remember(ready, id);
    Writer::Thread(id)
}

/// Id of the calling thread.
pub(crate) fn thread_id() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs()
}

/// The number of this process among those that used the library; 0 in a forked child before it has a client.
pub(crate) fn serial() -> u32 {
    page().serial.load(Ordering::Acquire)
}

/// Whether this process was forked off one that used the library, and has not used it itself.
pub(crate) fn is_forked() -> bool {
    serial() == 0 && SERIALS.load(Ordering::Relaxed) != 0
}

/// Outlets that belong to the parent's sessions.
pub(crate) fn inherited() -> u64 {
    !page().fresh.load(Ordering::Relaxed)
}

/// Remembers that this process opened an outlet.
pub(crate) fn set_fresh(outlet: u8) {
    page().fresh.fetch_or(1 << outlet, Ordering::Relaxed);
}

/// Whether writers may write: true but in a forked child that has not registered anew.
pub(crate) fn is_ready() -> bool {
    page().ready.load(Ordering::Relaxed) != 0
}

/// Lets writers write.
pub(crate) fn set_ready() {
    page().ready.store(u64::from(serial()), Ordering::Relaxed);
}

/// In the fork handler of a child: zeroes the page where the kernel did not.
pub(crate) fn wipe() {
    let page = page();
    if ptr::eq(page, &PLAIN) {
        page.ready.store(0, Ordering::Relaxed);
        page.fresh.store(0, Ordering::Relaxed);
        page.making.store(0, Ordering::Relaxed);
        page.serial.store(0, Ordering::Relaxed);
    }
}

/// A value of which every process has its own.
pub(crate) struct PerProcess<T> {
    value: AtomicPtr<T>,
}

impl<T: Sync> PerProcess<T> {
    pub(crate) const fn new() -> Self {
        Self { value: AtomicPtr::new(ptr::null_mut()) }
    }

    /// The value of this process, if it was made.
    pub(crate) fn get(&'static self) -> Option<&'static T> {
        // SAFETY: `serial` is set (release) after the value was stored, and is 0 again in a child; values are leaked, never freed.
        if serial() == 0 { None } else { unsafe { self.value.load(Ordering::Acquire).as_ref() } }
    }

    /// The value of this process; made where there is none. `first` tells whether no process before used the library: a forked child gets `false`.
    pub(crate) fn get_or_make(&'static self, make: impl FnOnce(bool) -> T) -> &'static T {
        let mut make = Some(make);
        loop {
            if let Some(value) = self.get() {
                return value;
            }
            let page = page();
            if page.making.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
                std::thread::sleep(Duration::from_micros(50));
                continue;
            }
            if serial() == 0
                && let Some(make) = make.take()
            {
                self.make_now(make);
            }
            page.making.store(0, Ordering::Release);
        }
    }

    fn make_now(&self, make: impl FnOnce(bool) -> T) {
        let first = SERIALS.load(Ordering::Relaxed) == 0;
        self.value.store(Box::into_raw(Box::new(make(first))), Ordering::Release);
        let serial = SERIALS.fetch_add(1, Ordering::Relaxed).wrapping_add(1).max(1);
        let wiped = if first { wiped_page() } else { None };
        // SAFETY: mapped just now and never unmapped; all zero bytes are a valid `Page`.
        let target = wiped.map_or_else(page, |wiped| unsafe { &*wiped });
        // Before anybody can look at the new page: one without a serial number asks whoever sees it to make a second client.
        target.serial.store(serial, Ordering::Release);
        PAGE.store(ptr::from_ref(target).cast_mut(), Ordering::Release);
    }
}
