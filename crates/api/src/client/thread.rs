//! What a thread remembers: one block of thread-local memory, so that an event looks it up once.
//!
//! ```text
//!   ready      serial number of the process when the id was taken (see `fork`); all ones: never
//!   id         of the thread
//!   activity   its current activity (EventActivityIdControl)
//! ```
//!
//! In a shared library the compiler finds such memory by a function of the loader, which may change most registers: 3 ns of an event. A descriptor
//! (TLSDESC) is the same promise by a call that changes one register, in a library that is loaded later too; in a program the linker makes one addition of it.
//! No stable Rust asks for it, so the block is declared in assembly where that is known to work.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::sync::atomic::{Ordering, compiler_fence};

use traceweir_format::Guid;

use super::fork;

/// See the head of this file.
#[repr(C)]
pub(crate) struct ThisThread {
    ready: Cell<u64>,
    id: Cell<u32>,
    activity: Cell<Guid>,
}

#[cfg(not(all(target_arch = "x86_64", target_env = "gnu", not(miri))))]
mod block {
    use super::{Cell, Guid, ThisThread};

    thread_local! {
        // No destructor and no lazy start: a signal handler may look at it.
        static THIS: ThisThread = const {
            ThisThread { ready: Cell::new(u64::MAX), id: Cell::new(0), activity: Cell::new(Guid::NULL) }
        };
    }

    /// Where it lies.
    #[inline(always)]
    pub(super) fn this() -> *const ThisThread {
        THIS.with(std::ptr::from_ref)
    }
}

#[cfg(all(target_arch = "x86_64", target_env = "gnu", not(miri)))]
mod block {
    use std::arch::{asm, global_asm};
    use std::mem::offset_of;

    use super::ThisThread;

    // Named after the version: programs may have several of this library.
    macro_rules! name {
        () => {
            concat!(
                "traceweir_this_thread_",
                env!("CARGO_PKG_VERSION_MAJOR"),
                "_",
                env!("CARGO_PKG_VERSION_MINOR"),
                "_",
                env!("CARGO_PKG_VERSION_PATCH")
            )
        };
    }

    global_asm!(
        ".pushsection .tdata.traceweir, \"awT\", @progbits",
        ".balign 16",
        concat!(".globl ", name!()),
        concat!(".hidden ", name!()),
        concat!(".type ", name!(), ", @object"),
        concat!(".size ", name!(), ", {size}"),
        concat!(name!(), ":"),
        ".quad -1",
        ".zero {size} - 8",
        ".popsection",
        size = const size_of::<ThisThread>(),
    );

    const _: () = assert!(align_of::<ThisThread>() <= 16 && offset_of!(ThisThread, ready) == 0);

    /// Where it lies.
    #[inline(always)]
    pub(super) fn this() -> *const ThisThread {
        let this: *const ThisThread;
        // SAFETY: the sequence of the ABI's thread-local storage descriptors for x86-64, which the linker knows and may replace: it changes `rax` and the flags. Not `nostack`,
        // since it is a call. Up to glibc 2.39 the first look of a thread into a library that was loaded late may change vector registers as well.
        unsafe {
            asm!(
                concat!("lea rax, [rip + ", name!(), "@TLSDESC]"),
                concat!("call qword ptr [rax + ", name!(), "@TLSCALL]"),
                "add rax, qword ptr fs:[0]",
                out("rax") this,
                out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _, out("xmm4") _, out("xmm5") _, out("xmm6") _, out("xmm7") _,
                out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _, out("xmm12") _, out("xmm13") _, out("xmm14") _, out("xmm15") _,
                options(nomem),
            );
        }
        this
    }
}

/// The block of this thread. Lives as long as the thread: whoever asks does not keep it.
#[inline(always)]
fn this<'a>() -> &'a ThisThread {
    // SAFETY: memory of this thread without a destructor, filled from the start; only this thread has it, and a reference does not go to another one (it is not `Sync`).
    unsafe { &*block::this() }
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
    let this = this();
    let ready = fork::ready();
    (this.ready.get() == ready).then_some(this)
}

/// The id that was remembered under this serial number.
#[inline(always)]
pub(super) fn id_of(ready: u64) -> Option<u32> {
    let this = this();
    (this.ready.get() == ready).then(|| this.id.get())
}

/// Remembers the id under this serial number.
pub(super) fn remember(ready: u64, id: u32) {
    let this = this();
    this.id.set(id);
    // A signal handler on this thread sees the number only with the id that belongs to it.
    compiler_fence(Ordering::Release);
    this.ready.set(ready);
}

/// The thread's activity.
#[inline]
pub(crate) fn activity() -> Guid {
    this().activity.get()
}

/// Sets it and returns the one before.
pub(crate) fn set_activity(id: Guid) -> Guid {
    this().activity.replace(id)
}
