//! The calling thread: its identity as the owner of mutexes, its object, and its end.
//!
//! A thread is registered when it first waits, or when it needs an object. When it ends, a
//! destructor of thread-local data abandons its mutexes and signals its object, whichever function
//! created the thread.

use std::cell::Cell;
use std::ffi::c_void;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use super::super::{CURRENT_PROCESS, CURRENT_THREAD};
use super::registry::{self, ObjectId, ObjectState, Target, ThreadState, ThreadToken};

thread_local! {
    // These have no destructor, so that destructors of other data can still use them.
    static TOKEN: Cell<u64> = const { Cell::new(0) };
    static OBJECT: Cell<Option<ObjectId>> = const { Cell::new(None) };
    static EXIT_CODE: Cell<u32> = const { Cell::new(0) };
    static EXIT_GUARD: ExitGuard = const { ExitGuard };
}

/// Reports the end of the thread when it is dropped.
struct ExitGuard;

impl Drop for ExitGuard {
    fn drop(&mut self) {
        registry::end_thread(ThreadToken(TOKEN.get()), OBJECT.take(), EXIT_CODE.get());
    }
}

/// Returns the identity of the calling thread, and makes sure that its end is noticed.
pub(crate) fn register_thread() -> ThreadToken {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    if TOKEN.get() == 0 {
        TOKEN.set(NEXT.fetch_add(1, Ordering::Relaxed));
    }
    // Fails in a thread that is ending already.
    let _ = EXIT_GUARD.try_with(|_| ());
    ThreadToken(TOKEN.get())
}

/// Sets the object of a new thread. The thread's end ends a reference to the object.
pub(crate) fn set_object(object: ObjectId) {
    OBJECT.set(Some(object));
    register_thread();
}

/// Sets the exit code with which the calling thread will end.
pub(crate) fn set_exit_code(code: u32) {
    EXIT_CODE.set(code);
}

pub(crate) fn thread_id() -> u32 {
    // SAFETY: the function has no requirements.
    unsafe { libc::gettid() }.cast_unsigned()
}

fn find_object() -> ObjectId {
    if let Some(object) = OBJECT.get() {
        return object;
    }
    let state = ThreadState { id: thread_id(), ..ThreadState::default() };
    let object = registry::add_unnamed(ObjectState::Thread(state));
    set_object(object);
    object
}

/// Returns what a handle names, which for two constants is the calling thread or the process.
pub(crate) fn find_target(handle: *mut c_void) -> Target {
    static PROCESS: OnceLock<ObjectId> = OnceLock::new();
    match handle.addr() {
        CURRENT_THREAD => Target::Object(find_object()),
        CURRENT_PROCESS => {
            Target::Object(*PROCESS.get_or_init(|| registry::add_unnamed(ObjectState::Process)))
        }
        handle => Target::Handle(handle),
    }
}
