//! The state of a thread in one block of thread-local memory, so that an event finds it with one
//! access.
//!
//! ```text
//!   ready      serial number of the process when the id was taken (see `fork`); all ones: never
//!   id         of the thread
//!   activity   its current activity (EventActivityIdControl)
//! ```
//!
//! In a shared library, compiled code finds such memory by a function of the loader, which may
//! change most registers and costs each event 3 ns. A TLS descriptor (TLSDESC) gives the same
//! address by a call that changes one register, also in a library that is loaded later; in a
//! program the linker turns the call into one addition. Stable Rust cannot request TLS descriptors,
//! so the block is declared in assembly where that is known to work.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::sync::atomic::{Ordering, compiler_fence};

use traceweir_format::Guid;

use super::fork;

/// The thread-local block; see the module documentation.
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
        // No destructor and no lazy initialization: a signal handler may read it.
        static THIS: ThisThread = const {
            ThisThread { ready: Cell::new(u64::MAX), id: Cell::new(0), activity: Cell::new(Guid::NULL) }
        };
    }

    /// Returns the address of the block.
    #[inline(always)]
    pub(super) fn address() -> *const ThisThread {
        THIS.with(std::ptr::from_ref)
    }
}

#[cfg(all(target_arch = "x86_64", target_env = "gnu", not(miri)))]
mod block {
    use std::arch::{asm, global_asm};
    use std::mem::offset_of;

    use super::ThisThread;

    // Named after the version: a program may contain several versions of this library.
    macro_rules! symbol_name {
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
        concat!(".globl ", symbol_name!()),
        concat!(".hidden ", symbol_name!()),
        concat!(".type ", symbol_name!(), ", @object"),
        concat!(".size ", symbol_name!(), ", {size}"),
        concat!(symbol_name!(), ":"),
        ".quad -1",
        ".zero {size} - 8",
        ".popsection",
        size = const size_of::<ThisThread>(),
    );

    const _: () = assert!(align_of::<ThisThread>() <= 16 && offset_of!(ThisThread, ready) == 0);

    /// Returns the address of the block.
    #[inline(always)]
    pub(super) fn address() -> *const ThisThread {
        let address: *const ThisThread;
        // SAFETY: the sequence of the ABI's thread-local storage descriptors for x86-64, which the
        // linker knows and may replace: it changes `rax` and the flags. Not `nostack`, since it is
        // a call. Up to glibc 2.39 the first access of a thread to a library that was loaded late
        // may change vector registers as well.
        unsafe {
            asm!(
                concat!("lea rax, [rip + ", symbol_name!(), "@TLSDESC]"),
                concat!("call qword ptr [rax + ", symbol_name!(), "@TLSCALL]"),
                "add rax, qword ptr fs:[0]",
                out("rax") address,
                out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _, out("xmm4") _, out("xmm5") _, out("xmm6") _, out("xmm7") _,
                out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _, out("xmm12") _, out("xmm13") _, out("xmm14") _, out("xmm15") _,
                options(nomem),
            );
        }
        address
    }
}

/// Returns the block of this thread. It lives as long as the thread; callers must not keep it.
#[inline(always)]
fn this_thread<'a>() -> &'a ThisThread {
    // SAFETY: memory of this thread without a destructor, initialised from the start; only this
    // thread has it, and a reference does not go to another one (it is not `Sync`).
    unsafe { &*block::address() }
}

impl ThisThread {
    #[inline(always)]
    pub(crate) fn id(&self) -> u32 {
        self.id.get()
    }

    /// Borrows the activity id in memory. The caller reads it only until its write is over, and
    /// does not set the activity id meanwhile.
    #[inline(always)]
    pub(crate) fn activity_in_memory(&self) -> &Guid {
        // SAFETY: the cell is this thread's. A signal handler that sets the activity restores the
        // former one, or the event gets the new one or parts of both: initialised bytes in any
        // case.
        unsafe { &*self.activity.as_ptr() }
    }
}

/// Returns the block of this thread if its id belongs to this process. It lives as long as the
/// thread; callers must not keep it.
#[inline(always)]
pub(crate) fn known_thread<'a>() -> Option<&'a ThisThread> {
    let current = this_thread();
    let ready = fork::ready_serial();
    (current.ready.get() == ready).then_some(current)
}

/// The thread or process that writes an event.
pub(crate) enum EventWriter {
    /// A thread of this process, by its id.
    Thread(u32),
    /// A forked child that has not registered again, with the outlets of its parent.
    Forked(u64),
}

/// Identifies the writer, on the path of every event.
#[inline(always)]
pub(crate) fn identify_writer() -> EventWriter {
    known_thread().map_or_else(identify_new_thread, |current| EventWriter::Thread(current.id()))
}

/// Identifies a writer whose thread has no id of this process yet, and stores the id.
#[cold]
fn identify_new_thread() -> EventWriter {
    let ready = fork::ready_serial();
    if ready == 0 {
        return EventWriter::Forked(fork::inherited_outlets());
    }
    let current = this_thread();
    let id = thread_id();
    current.id.set(id);
    // A signal handler on this thread sees the number only together with its id.
    compiler_fence(Ordering::Release);
    current.ready.set(ready);
    EventWriter::Thread(id)
}

pub(crate) fn thread_id() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs()
}

#[inline]
pub(crate) fn activity() -> Guid {
    this_thread().activity.get()
}

/// Sets the activity id of the thread and returns the former one.
pub(crate) fn set_activity(id: Guid) -> Guid {
    this_thread().activity.replace(id)
}
