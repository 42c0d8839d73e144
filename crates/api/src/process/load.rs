//! Programs that replace `malloc`, and the stages of loading in which a registration must not start
//! threads.
//!
//! ```text
//!   before    the allocator may run, and register, before this library is initialised
//!   during    the load handler runs: it starts the threads of the library
//!   done      registrations wait for those threads, which never call the program's `malloc`
//! ```
//!
//! An allocator may register a provider while it holds its lock. Starting a thread calls `malloc`
//! for the thread's memory, so the registering thread cannot do that. `libtraceweir` has a load
//! handler for this (`crates/ffi/src/load.rs`). Rust programs have none: the threads of the library
//! start with their first registration.
#![allow(unsafe_code)]

#[cfg(target_env = "gnu")]
mod definition;

use std::ffi::c_void;
use std::sync::atomic::{AtomicU8, Ordering};

use super::weak;

const NOT_EXPECTED: u8 = 0;
const BEFORE: u8 = 1;
const DURING: u8 = 2;
const DONE: u8 = 3;

static STAGE: AtomicU8 = AtomicU8::new(NOT_EXPECTED);

/// Returns whether the program has a `malloc` of its own instead of the C library's. The answer
/// never changes in a process. Sanitizers, whose `malloc` calls no code of the program, do not
/// count.
#[must_use]
pub fn is_malloc_replaced() -> bool {
    if !cfg!(target_env = "gnu") {
        return false;
    }
    let used = libc::malloc as unsafe extern "C" fn(usize) -> *mut c_void as usize;
    used != weak!("__libc_malloc").addr() && is_defined_by_program()
}

/// Returns whether a `malloc` whose address is not that of the C library's is another function.
/// Searches once, because the arena calls this for each allocation.
fn is_defined_by_program() -> bool {
    const UNKNOWN: u8 = 0;
    const NO: u8 = 1;
    const YES: u8 = 2;
    static ANSWER: AtomicU8 = AtomicU8::new(UNKNOWN);
    match ANSWER.load(Ordering::Relaxed) {
        UNKNOWN => {
            let is_sanitizer = !weak!("__sanitizer_print_stack_trace").is_null();
            let answer = !is_sanitizer && !is_malloc_of_c_library();
            ANSWER.store(if answer { YES } else { NO }, Ordering::Relaxed);
            answer
        }
        answer => answer == YES,
    }
}

/// Returns whether the C library defines the `malloc` that is called. A statically linked program
/// has no tables for the search.
fn is_malloc_of_c_library() -> bool {
    #[cfg(target_env = "gnu")]
    return definition::find_definition(c"malloc") == Some(weak!("__libc_malloc").addr());
    #[cfg(not(target_env = "gnu"))]
    true
}

/// Announces that the load handler will run. Called before each registration of a program that has
/// the handler.
pub fn expect_load_handler() {
    if is_malloc_replaced() {
        let _ = STAGE.compare_exchange(NOT_EXPECTED, BEFORE, Ordering::AcqRel, Ordering::Relaxed);
    }
}

/// The stage during the load handler. It ends when the value is dropped, also by a panic.
#[must_use]
pub(crate) struct LoadStage(());

/// Marks the beginning of the load handler.
pub(crate) fn begin_loading() -> LoadStage {
    STAGE.store(DURING, Ordering::Release);
    // Let the allocator initialise itself, and register, before the library holds any lock.
    // SAFETY: frees what it allocates. The compiler must not remove the pair.
    unsafe { libc::free(std::hint::black_box(libc::malloc(1))) };
    LoadStage(())
}

impl Drop for LoadStage {
    fn drop(&mut self) {
        STAGE.store(DONE, Ordering::Release);
    }
}

/// Returns whether a registration must not start threads or wait for them: in the stages before and
/// during the load handler, only the handler does so.
pub(crate) fn is_loading() -> bool {
    matches!(STAGE.load(Ordering::Acquire), BEFORE | DURING)
}

/// Returns whether the load handler is expected and has not begun.
pub(crate) fn is_before_loading() -> bool {
    STAGE.load(Ordering::Acquire) == BEFORE
}
