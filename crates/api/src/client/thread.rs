//! What a thread remembers: one block of thread-local memory, so that an event looks it up once. In a shared library that is a call.
//!
//! ```text
//!   ready      serial number of the process when the id was taken (see `fork`)
//!   id         of the thread
//!   activity   its current activity (EventActivityIdControl)
//! ```
#![allow(unsafe_code)]

use std::cell::Cell;
use std::sync::atomic::{Ordering, compiler_fence};

use traceweir_format::Guid;

use super::fork;

/// See the head of this file.
pub(crate) struct ThisThread {
    ready: Cell<u64>,
    id: Cell<u32>,
    activity: Cell<Guid>,
}

thread_local! {
    // No destructor and no lazy start: a signal handler may look at it.
    static THIS: ThisThread = const {
        ThisThread { ready: Cell::new(u64::MAX), id: Cell::new(0), activity: Cell::new(Guid::NULL) }
    };
}

impl ThisThread {
    /// Its id.
    #[inline(always)]
    pub(crate) fn id(&self) -> u32 {
        self.id.get()
    }

    /// Its activity, where it lies. Only for reading while nobody sets it: until the write is over.
    #[inline(always)]
    pub(crate) fn activity_in_memory(&self) -> &Guid {
        // SAFETY: the cell is this thread's. A signal handler that sets the activity puts back what was there, or the event gets the new one or parts of both: bytes in any case,
        // which are copied by one move.
        unsafe { &*self.activity.as_ptr() }
    }
}

/// What the thread remembers, where its id belongs to this process. Lives as long as the thread: whoever asks does not keep it.
#[inline(always)]
pub(crate) fn ready<'a>() -> Option<&'a ThisThread> {
    let ready = fork::ready();
    // As an address, so that what is done with it does not become a closure's.
    let this = THIS.with(std::ptr::from_ref);
    // SAFETY: memory of this thread without a destructor; only this thread has it, and a reference does not go to another one.
    let this = unsafe { &*this };
    (this.ready.get() == ready).then_some(this)
}

/// The id that was remembered under this serial number.
#[inline(always)]
pub(super) fn id_of(ready: u64) -> Option<u32> {
    THIS.with(|this| (this.ready.get() == ready).then(|| this.id.get()))
}

/// Remembers the id under this serial number.
pub(super) fn remember(ready: u64, id: u32) {
    THIS.with(|this| {
        this.id.set(id);
        // A signal handler on this thread sees the number only with the id that belongs to it.
        compiler_fence(Ordering::Release);
        this.ready.set(ready);
    });
}

/// The thread's activity.
#[inline]
pub(crate) fn activity() -> Guid {
    THIS.with(|this| this.activity.get())
}

/// Sets it and returns the one before.
pub(crate) fn set_activity(id: Guid) -> Guid {
    THIS.with(|this| this.activity.replace(id))
}
