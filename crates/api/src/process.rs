//! State and hooks of the process, which the other modules of the crate build on.
//!
//! | File | Contents |
//! |---|---|
//! | `fork` | detection of forked children |
//! | `load` | programs that replace `malloc`, and the stage of loading |
//! | `thread` | id and activity of the calling thread |
//! | `activity` | creation of activity ids |
//! | `outlets` | the outlets of this process, and which session uses which |
//! | `promise` | a value that another thread provides |
//! | this file | threads, descriptor tables, fork and exit handlers, protection against unloading |
//!
//! | Purpose | Means |
//! |---|---|
//! | a thread that takes no signals | all signals are blocked while it starts (inherited mask) |
//! | descriptors that the program cannot close | a separate table of the control thread |
//! | fork | `pthread_atfork`: the child registers again |
//! | exit | `atexit`: finalises private sessions and removes the provider sockets |
//! | `dlclose` | this module is opened once more with `RTLD_NODELETE` |
//!
//! If a sandbox refuses a separate descriptor table, the library uses high numbers that it checks
//! before each use (`client`), and a forked child first closes its copies of the parent's
//! sockets, so that daemons notice the end of the parent. Threads and handlers outlive the last
//! `dlclose`.
//!
//! `dladdr` and `dlopen` are resolved as weak symbols. A statically linked program does not have
//! them, and cannot be unloaded either; a plain reference would link the dynamic loader into it.
#![allow(unsafe_code)]

pub(crate) mod activity;
pub(crate) mod fork;
pub(crate) mod load;
#[deny(unsafe_code)]
pub(crate) mod outlets;
#[deny(unsafe_code)]
pub(crate) mod promise;
#[cfg(test)]
pub(crate) mod test_region;
pub(crate) mod thread;

use std::cell::Cell;
use std::ffi::{c_char, c_int, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};

use rustix::event::EventfdFlags;

/// Blocks all signals of the calling thread until this value is dropped; threads that are started
/// meanwhile inherit the mask.
struct BlockedSignals {
    /// The former mask; missing if it could not be changed.
    before: Option<libc::sigset_t>,
}

impl BlockedSignals {
    fn new() -> Self {
        let mut every_signal = MaybeUninit::<libc::sigset_t>::uninit();
        let mut before = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: both sets are writable; `sigfillset` fills the first before it is read.
        let is_blocked = unsafe {
            libc::sigfillset(every_signal.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_SETMASK, every_signal.as_ptr(), before.as_mut_ptr()) == 0
        };
        // SAFETY: filled by the call if it succeeded.
        Self { before: is_blocked.then(|| unsafe { before.assume_init() }) }
    }
}

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            // SAFETY: the mask was filled by `pthread_sigmask`, and a null pointer for the old mask
            // is allowed.
            unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before, ptr::null_mut()) };
        }
    }
}

/// Runs `work` with signals blocked, so that threads it starts take none.
pub(crate) fn run_with_signals_blocked<T>(work: impl FnOnce() -> T) -> T {
    let _blocked = BlockedSignals::new();
    work()
}

/// Starts a thread that takes no signals.
pub(crate) fn spawn_without_signals(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let thread = std::thread::Builder::new().name(name.to_owned()).stack_size(256 * 1024);
    let (is_library_thread, has_own_table) = (is_library_thread(), HAS_OWN_TABLE.get());
    let body = move || {
        IS_LIBRARY_THREAD.set(is_library_thread);
        HAS_OWN_TABLE.set(has_own_table);
        body();
    };
    run_with_signals_blocked(|| thread.spawn(body)).map(drop)
}

thread_local! {
    /// This thread has a descriptor table separate from the program's.
    static HAS_OWN_TABLE: Cell<bool> = const { Cell::new(false) };
    /// This thread shares the descriptors of the control thread, which may also be the program's.
    static IS_LIBRARY_THREAD: Cell<bool> = const { Cell::new(false) };
}

pub(crate) fn is_library_thread() -> bool {
    IS_LIBRARY_THREAD.get()
}

/// Returns whether this thread opens library descriptors in the program's table, where the program
/// may close them.
pub(crate) fn shares_descriptors() -> bool {
    IS_LIBRARY_THREAD.get() && !HAS_OWN_TABLE.get()
}

/// Makes this thread act like a library thread in a sandbox.
#[cfg(test)]
pub(crate) fn simulate_shared_descriptors() {
    IS_LIBRARY_THREAD.set(true);
}

/// The limit of the library's descriptor numbers: the kernel's table grows with the highest number
/// in use.
const MAX_LIBRARY_FD: u64 = 4096;
/// How many descriptor numbers below the limit the library can use.
const LIBRARY_FD_COUNT: u64 = 256;

/// Returns the lowest number for library descriptors in a table that the program shares: the
/// program opens low numbers first.
pub(crate) fn lowest_library_fd() -> RawFd {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let limit = limit.unwrap_or(MAX_LIBRARY_FD).min(MAX_LIBRARY_FD);
    RawFd::try_from(limit - LIBRARY_FD_COUNT.min(limit / 2)).unwrap_or(0)
}

/// Gives this thread its own descriptor table, which the threads that it starts share. If the
/// system refuses, its descriptors stay in the program's table ([`shares_descriptors`]).
///
/// A program may close every descriptor and open its own files under the same numbers, as
/// `closefrom` and classic daemons do; no check before a use is reliable. The new table holds no
/// descriptor of the program, so a pipe is closed as soon as the program closes its end. The numbers
/// of the standard streams are occupied, so that no message of the Rust runtime goes into a socket.
pub(crate) fn separate_descriptors() {
    IS_LIBRARY_THREAD.set(true);
    // SAFETY: `CLOSE_RANGE_UNSHARE` gives this thread a copy of the table first, so the program's
    // descriptors stay open. Nothing uses the closed copies: this thread has only just started.
    let close_result =
        unsafe { libc::syscall(libc::SYS_close_range, 0_u32, u32::MAX, libc::CLOSE_RANGE_UNSHARE) };
    // Linux before 5.9, and some sandboxes, refuse `close_range`.
    if close_result != 0 {
        // SAFETY: gives this thread a copy of the table; no memory is involved.
        if unsafe { libc::unshare(libc::CLONE_FILES) } != 0 {
            return;
        }
        close_copied_descriptors();
    }
    HAS_OWN_TABLE.set(true);
    for _ in 0..3 {
        // Each placeholder gets the lowest free number and stays open. A read finds nothing; a
        // write of text fails or only changes the counter.
        let placeholder = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let _ = placeholder.map(IntoRawFd::into_raw_fd);
    }
}

/// Closes the copies of the program's descriptors in a copied table.
fn close_copied_descriptors() {
    let listed = std::fs::read_dir("/proc/thread-self/fd").map(|entries| {
        let names = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        names.collect::<Vec<c_int>>()
    });
    let limit = || rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(65_536);
    let numbers = listed.unwrap_or_else(|_| (0..c_int::try_from(limit().min(65_536)).unwrap_or(0)).collect());
    for number in numbers {
        // SAFETY: a copy in this thread's own table, which nothing on this thread uses.
        unsafe { libc::close(number) };
    }
}

/// The nice value of a thread that other threads wait for, equal to that of a session's threads.
const RAISED_NICE_VALUE: i32 = -10;
/// The scheduler slice of a thread that other threads wait for: it runs for moments, and the
/// scheduler prefers threads with short slices (Linux 6.12).
const SLICE_NS: u64 = 100_000;

/// `struct sched_attr` in its first version (sched_setattr(2)).
#[repr(C)]
struct SchedAttr {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// Raises the priority of this thread as far as the system allows: a lower nice value if permitted,
/// and a short slice if the kernel supports it. Threads with another scheduling policy stay
/// unchanged.
pub(crate) fn raise_priority() {
    // SAFETY: queries the policy of the calling thread; no memory is involved.
    if unsafe { libc::sched_getscheduler(0) } != libc::SCHED_OTHER {
        return;
    }
    let thread = Some(rustix::thread::gettid());
    let _ = rustix::process::setpriority_process(thread, RAISED_NICE_VALUE);
    let Ok(nice) = rustix::process::getpriority_process(thread) else { return };
    let attr = SchedAttr {
        size: size_of::<SchedAttr>() as u32,
        policy: libc::SCHED_OTHER.cast_unsigned(),
        flags: 0,
        nice,
        priority: 0,
        runtime: SLICE_NS,
        deadline: 0,
        period: 0,
    };
    // SAFETY: reads the structure, whose size it contains, for the calling thread; an older kernel
    // refuses the call.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attr, 0) };
}

/// Registers the handlers that run in a forked child and at the exit of the process. Only the first
/// call has an effect.
pub(crate) fn install_fork_and_exit_handlers(on_fork: extern "C" fn(), on_exit: extern "C" fn()) {
    static INSTALLED: AtomicBool = AtomicBool::new(false);
    if !INSTALLED.swap(true, Ordering::Relaxed) {
        // SAFETY: the handlers live as long as this module, which `keep_module_loaded` keeps
        // loaded.
        unsafe {
            libc::pthread_atfork(None, None, Some(on_fork));
            libc::atexit(on_exit);
        }
    }
}

/// Returns the address of a symbol that may be missing.
macro_rules! weak {
    ($name:literal) => {{
        let address: *const c_void;
        // SAFETY: reads the entry of the global offset table that the linker fills with the
        // symbol's address, or with 0.
        #[cfg(target_arch = "x86_64")]
        unsafe {
            std::arch::asm!(
                concat!(".weak ", $name),
                concat!("mov {}, qword ptr [rip + ", $name, "@GOTPCREL]"),
                out(reg) address,
                options(pure, readonly, nostack, preserves_flags)
            );
        }
        // SAFETY: reads the entry of the global offset table that the linker fills with the
        // symbol's address, or with 0.
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
pub(crate) fn keep_module_loaded() {
    static PINNED: AtomicBool = AtomicBool::new(false);
    let (dladdr, dlopen) = (weak!("dladdr"), weak!("dlopen"));
    if PINNED.swap(true, Ordering::Relaxed) || dladdr.is_null() || dlopen.is_null() {
        return;
    }
    // SAFETY: not null, so they are the functions of these names, whose types are documented.
    let (dladdr, dlopen) = unsafe {
        (
            std::mem::transmute::<*const c_void, Dladdr>(dladdr),
            std::mem::transmute::<*const c_void, Dlopen>(dlopen),
        )
    };
    let mut info = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: `info` is writable; the address is that of a static of this module.
    let is_found = unsafe { dladdr((&raw const PINNED).cast(), info.as_mut_ptr()) } != 0;
    // SAFETY: zeroed, and then filled if found; all zeros are a valid `Dl_info`.
    let info = unsafe { info.assume_init() };
    if is_found && !info.dli_fname.is_null() {
        // SAFETY: a NUL-terminated name owned by the loader. With NOLOAD nothing is loaded or run:
        // for the program itself or an unknown name the call returns null; for this module it
        // raises the reference count, which is never lowered.
        unsafe { dlopen(info.dli_fname, libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_NODELETE) };
    }
}

/// Sockets of this process by descriptor and inode, for its forked children. A child reads them
/// without a lock, because a thread may have held any lock at the fork.
static INHERITABLE_SOCKETS: [(AtomicI32, AtomicU64); 32] =
    [const { (AtomicI32::new(-1), AtomicU64::new(0)) }; 32];

/// Remembers a socket that children must close: one in the program's descriptor table, which a fork
/// copies. Without a free entry, the socket is not remembered and stays open in children.
pub(crate) fn remember_socket(socket: BorrowedFd<'_>) {
    if HAS_OWN_TABLE.get() {
        return;
    }
    let Ok(stat) = rustix::fs::fstat(socket) else { return };
    for (fd, inode) in &INHERITABLE_SOCKETS {
        if fd.load(Ordering::Relaxed) == -1 {
            inode.store(stat.st_ino, Ordering::Relaxed);
            fd.store(socket.as_raw_fd(), Ordering::Release);
            return;
        }
    }
}

/// Forgets a socket before it is closed.
pub(crate) fn forget_socket(socket: BorrowedFd<'_>) {
    if HAS_OWN_TABLE.get() {
        return;
    }
    for (fd, _) in &INHERITABLE_SOCKETS {
        let _ = fd.compare_exchange(socket.as_raw_fd(), -1, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// Closes the copies of the parent's sockets in a forked child. The inode shows whether a
/// descriptor is something else by now (the program closed all and opened others); such a
/// descriptor is left alone.
pub(crate) fn close_inherited_sockets() {
    for (fd, inode) in &INHERITABLE_SOCKETS {
        let number = fd.swap(-1, Ordering::Acquire);
        if number < 0 {
            continue;
        }
        // SAFETY: borrowed for one call, which fails if the number is not open.
        let socket = unsafe { BorrowedFd::borrow_raw(number) };
        let is_same_socket =
            rustix::fs::fstat(socket.as_fd()).is_ok_and(|s| s.st_ino == inode.load(Ordering::Relaxed));
        if is_same_socket {
            // SAFETY: the fork's copy of a socket of the library. The child never uses or drops the
            // `OwnedFd` that it inherited with it.
            unsafe { libc::close(number) };
        }
    }
}
