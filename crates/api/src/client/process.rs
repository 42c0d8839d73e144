//! What the library asks of the process it lives in: quiet threads, word of forks and of the exit, not to be unloaded.
//!
//! | What | How |
//! |---|---|
//! | a thread that takes no signals | all signals are blocked while it is started, so that it inherits the mask |
//! | fork | `pthread_atfork`: the child closes its copies of the parent's sockets, so that daemons see the parent's end, and registers anew |
//! | exit | `atexit`: private sessions are finalised, the provider sockets removed |
//! | `dlclose` | the module that holds this code is opened once more with `RTLD_NODELETE`: threads and handlers outlive the last close |
//!
//! `dladdr` and `dlopen` are looked up as weak symbols. A statically linked program does not have them, and nothing can unload it either; a plain reference
//! would drag the dynamic loader into it.
#![allow(unsafe_code)]

use std::ffi::{c_char, c_int, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};

/// The calling thread takes no signals while it lives, and the threads it starts never do.
struct Quiet {
    /// The mask before; missing where it could not be changed.
    before: Option<libc::sigset_t>,
}

impl Quiet {
    fn new() -> Self {
        let mut all = MaybeUninit::<libc::sigset_t>::uninit();
        let mut before = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: both sets are writable; `sigfillset` fills the first before it is read.
        let blocked = unsafe {
            libc::sigfillset(all.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) == 0
        };
        // SAFETY: filled by the call, where it succeeded.
        Self { before: blocked.then(|| unsafe { before.assume_init() }) }
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            // SAFETY: a mask that the system gave.
            unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before, ptr::null_mut()) };
        }
    }
}

/// Does something that starts threads, which are to take no signals.
pub(crate) fn quietly<T>(work: impl FnOnce() -> T) -> T {
    let _quiet = Quiet::new();
    work()
}

/// Starts a thread that takes no signals.
pub(crate) fn spawn_quiet(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let thread = std::thread::Builder::new().name(name.to_owned()).stack_size(256 * 1024);
    quietly(|| thread.spawn(body)).map(drop)
}

/// Has the handlers called after a fork, in the child, and at the exit of the process. Once for the life of the program.
pub(crate) fn watch(forked: extern "C" fn(), exiting: extern "C" fn()) {
    static WATCHED: AtomicBool = AtomicBool::new(false);
    if !WATCHED.swap(true, Ordering::Relaxed) {
        // SAFETY: the handlers live as long as this module, which `pin` keeps loaded.
        unsafe {
            libc::pthread_atfork(None, None, Some(forked));
            libc::atexit(exiting);
        }
    }
}

/// The address of a symbol that may be missing.
macro_rules! weak {
    ($name:literal) => {{
        let address: *const c_void;
        // SAFETY: reads the entry of the global offset table that the linker fills with the symbol's address, or with 0.
        #[cfg(target_arch = "x86_64")]
        unsafe {
            std::arch::asm!(
                concat!(".weak ", $name),
                concat!("mov {}, qword ptr [rip + ", $name, "@GOTPCREL]"),
                out(reg) address,
                options(pure, readonly, nostack, preserves_flags)
            );
        }
        // SAFETY: as above.
        #[cfg(target_arch = "aarch64")]
        unsafe {
            std::arch::asm!(
                concat!(".weak ", $name),
                concat!("adrp {0}, :got:", $name),
                concat!("ldr {0}, [{0}, :got_lo12:", $name, "]"),
                out(reg) address,
                options(pure, readonly, nostack, preserves_flags)
            );
        }
        address
    }};
}

pub(crate) use weak;

type Dladdr = unsafe extern "C" fn(*const c_void, *mut libc::Dl_info) -> c_int;
type Dlopen = unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void;

/// Keeps the module that holds this code loaded for the life of the process.
pub(crate) fn pin() {
    static PINNED: AtomicBool = AtomicBool::new(false);
    let (dladdr, dlopen) = (weak!("dladdr"), weak!("dlopen"));
    if PINNED.swap(true, Ordering::Relaxed) || dladdr.is_null() || dlopen.is_null() {
        return;
    }
    // SAFETY: not null, so they are the functions of these names, whose types are published.
    let (dladdr, dlopen) = unsafe {
        (
            std::mem::transmute::<*const c_void, Dladdr>(dladdr),
            std::mem::transmute::<*const c_void, Dlopen>(dlopen),
        )
    };
    let mut info = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: `info` is writable; the address is that of a static of this module.
    let found = unsafe { dladdr((&raw const PINNED).cast(), info.as_mut_ptr()) } != 0;
    // SAFETY: zeroed before, and filled where found; all zeros are a valid `Dl_info`.
    let info = unsafe { info.assume_init() };
    if found && !info.dli_fname.is_null() {
        // SAFETY: a NUL-terminated name owned by the loader. With NOLOAD nothing is loaded or run: for the program itself or an unknown name it
        // returns null, for this module it raises the count, which is never lowered.
        unsafe { dlopen(info.dli_fname, libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_NODELETE) };
    }
}

/// Sockets of this process by descriptor and inode, for its forked children: found without a lock, whatever a thread was doing at the fork.
static SOCKETS: [(AtomicI32, AtomicU64); 32] = [const { (AtomicI32::new(-1), AtomicU64::new(0)) }; 32];

/// Remembers a socket that children must close.
pub(crate) fn remember(socket: BorrowedFd<'_>) {
    let Ok(stat) = rustix::fs::fstat(socket) else { return };
    for (fd, inode) in &SOCKETS {
        if fd.load(Ordering::Relaxed) == -1 {
            inode.store(stat.st_ino, Ordering::Relaxed);
            fd.store(socket.as_raw_fd(), Ordering::Release);
            return;
        }
    }
}

/// Forgets a socket before it is closed.
pub(crate) fn forget(socket: BorrowedFd<'_>) {
    for (fd, _) in &SOCKETS {
        let _ = fd.compare_exchange(socket.as_raw_fd(), -1, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// In a forked child: closes its copies of the parent's sockets. A descriptor that is something else by now (the program closed all and opened others) is
/// left alone, which the inode tells.
pub(crate) fn close_inherited() {
    for (fd, inode) in &SOCKETS {
        let number = fd.swap(-1, Ordering::Acquire);
        if number < 0 {
            continue;
        }
        // SAFETY: borrowed for one call; where nothing is open under this number the call fails.
        let socket = unsafe { BorrowedFd::borrow_raw(number) };
        let same = rustix::fs::fstat(socket.as_fd()).is_ok_and(|s| s.st_ino == inode.load(Ordering::Relaxed));
        if same {
            // SAFETY: the copy that the fork made of a socket of the library; its owner in this memory is never used nor dropped.
            unsafe { libc::close(number) };
        }
    }
}
