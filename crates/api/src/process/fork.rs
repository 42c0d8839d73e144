//! Detection of forked children, which must not use the state of their parent.
//!
//! ```text
//!   one page, zeroed by the kernel in a forked child (MADV_WIPEONFORK)
//!
//!   ready        serial number of the process once writers may write; 0 in a child until it has
//!                registered again
//!   serial       1 in the first process that uses the library, 2 in its forked child, …; 0 until
//!                the process has a client (`client.rs`)
//!   is_making    a thread is making the client right now
//!   own_outlets  outlets that this process opened itself; all others are its parent's
//! ```
//!
//! After a fork the regions of the parent stay mapped, and the enable states of the registrations
//! still refer to them. A writer compares `ready` with the number that its thread remembers.
//! Usually both are equal: one load and one compare. The thread remembers its thread id together
//! with this number, so the compare validates both. In a child they differ; then the event is
//! counted as lost in the sessions of the parent, through the shared memory, until the child's own
//! sessions replace them.
//!
//! Invariants
//!
//! 1. `ready` is 0 or the serial number of this very process.
//! 2. Only the process that made a client uses it: `serial` is set after the client was made, and
//!    while it is 0 no client is found. A child makes its own client and does not touch that of its
//!    parent, whose locks may be held by threads that do not exist in the child.
//!
//! If the kernel has no MADV_WIPEONFORK (before 4.14), the page is plain memory and the fork
//! handler zeroes it; a raw `clone` is not noticed there.
#![allow(unsafe_code)]

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

struct ForkPage {
    ready: AtomicU64,
    serial: AtomicU32,
    is_making: AtomicU32,
    own_outlets: AtomicU64,
}

/// Used until the page that a fork wipes is mapped, or always if the system cannot wipe one.
static STATIC_PAGE: ForkPage = ForkPage {
    ready: AtomicU64::new(0),
    serial: AtomicU32::new(0),
    is_making: AtomicU32::new(0),
    own_outlets: AtomicU64::new(0),
};

static PAGE: AtomicPtr<ForkPage> = AtomicPtr::new((&raw const STATIC_PAGE).cast_mut());

/// Serial numbers assigned so far; a child continues from its parent's.
static SERIALS: AtomicU32 = AtomicU32::new(0);

#[inline(always)]
fn page() -> &'static ForkPage {
    // SAFETY: `STATIC_PAGE`, or a page mapped by `map_wiped_page` and never unmapped; all zero
    // bytes are a valid `ForkPage`, and so is the page after a fork.
    unsafe { &*PAGE.load(Ordering::Acquire) }
}

/// Maps the page that a fork wipes; `None` if the system cannot.
fn map_wiped_page() -> Option<*mut ForkPage> {
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
    // SAFETY: the whole mapping made above.
    if unsafe { libc::madvise(at, size, libc::MADV_WIPEONFORK) } == 0 {
        return Some(at.cast());
    }
    // SAFETY: the mapping made above, which no other code knows.
    unsafe { libc::munmap(at, size) };
    None
}

/// Returns the serial number of the process if writers may write, or else 0.
#[inline(always)]
pub(super) fn ready_serial() -> u64 {
    page().ready.load(Ordering::Relaxed)
}

/// Returns the serial number of this process; 0 before it has a client.
pub(crate) fn serial() -> u32 {
    page().serial.load(Ordering::Acquire)
}

/// Returns whether this process was forked from one that used the library, and has not used it
/// itself.
pub(crate) fn is_forked() -> bool {
    serial() == 0 && SERIALS.load(Ordering::Relaxed) != 0
}

/// Returns the bits of the outlets that this process has not opened, among them those of its
/// parent's sessions.
pub(crate) fn inherited_outlets() -> u64 {
    !page().own_outlets.load(Ordering::Relaxed)
}

/// Records that this process opened an outlet.
pub(crate) fn add_own_outlet(outlet: u8) {
    page().own_outlets.fetch_or(1 << outlet, Ordering::Relaxed);
}

/// Returns whether writers may write: not before `set_ready`, and not in a forked child until it
/// has registered again.
pub(crate) fn may_write() -> bool {
    page().ready.load(Ordering::Relaxed) != 0
}

/// Lets writers write.
pub(crate) fn set_ready() {
    page().ready.store(u64::from(serial()), Ordering::Relaxed);
}

/// Zeroes the page in the fork handler of a child if the kernel did not.
pub(crate) fn wipe_page() {
    let page = page();
    if ptr::eq(page, &STATIC_PAGE) {
        page.ready.store(0, Ordering::Relaxed);
        page.own_outlets.store(0, Ordering::Relaxed);
        page.is_making.store(0, Ordering::Relaxed);
        page.serial.store(0, Ordering::Relaxed);
    }
}

/// A value that every process makes for itself.
pub(crate) struct PerProcess<T> {
    value: AtomicPtr<T>,
}

impl<T: Sync> PerProcess<T> {
    pub(crate) const fn new() -> Self {
        Self { value: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Returns the value of this process, if it was made.
    pub(crate) fn get(&'static self) -> Option<&'static T> {
        // SAFETY: `serial` is set (release) after the value was stored, and is 0 again in a child;
        // values are leaked, never freed.
        if serial() == 0 { None } else { unsafe { self.value.load(Ordering::Acquire).as_ref() } }
    }

    /// Returns the value of this process, and makes it if there is none. `make` gets `false` in a
    /// forked child of a process that used the library, and `true` in other processes.
    pub(crate) fn get_or_make(&'static self, make: impl FnOnce(bool) -> T) -> &'static T {
        let mut make = Some(make);
        loop {
            if let Some(value) = self.get() {
                return value;
            }
            let page = page();
            if page.is_making.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
                std::thread::sleep(Duration::from_micros(50));
                continue;
            }
            if serial() == 0
                && let Some(make) = make.take()
            {
                self.make_and_publish(make);
            }
            page.is_making.store(0, Ordering::Release);
        }
    }

    fn make_and_publish(&self, make: impl FnOnce(bool) -> T) {
        let is_first = SERIALS.load(Ordering::Relaxed) == 0;
        self.value.store(Box::into_raw(Box::new(make(is_first))), Ordering::Release);
        let serial = SERIALS.fetch_add(1, Ordering::Relaxed).wrapping_add(1).max(1);
        let wiped = if is_first { map_wiped_page() } else { None };
        // SAFETY: mapped just now and never unmapped; all zero bytes are a valid `ForkPage`.
        let target = wiped.map_or_else(page, |wiped| unsafe { &*wiped });
        // Before the new page is published: a thread that sees a page without a serial number would
        // make a second client.
        target.serial.store(serial, Ordering::Release);
        PAGE.store(ptr::from_ref(target).cast_mut(), Ordering::Release);
    }
}
