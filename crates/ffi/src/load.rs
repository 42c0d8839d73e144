//! The load handler: what this library does when it is loaded.
//!
//! Nothing, unless the program replaces `malloc`: then the threads of the library start now, because
//! the program's allocator may register a provider while it holds its lock, and then no thread can
//! be started (`traceweir::load`).

use std::hint::black_box;

use crate::boundary;

/// Called by the loader.
#[used]
#[unsafe(link_section = ".init_array")]
static LOAD_HANDLER: extern "C" fn() = handle_load;

extern "C" fn handle_load() {
    boundary::catch_panic((), traceweir::load::start_at_load);
}

/// Announces the load handler. Called before each registration, which the program's allocator may
/// make before the handler has run. The reference makes the linker keep the handler in programs
/// that link the library statically.
pub(crate) fn expect_handler() {
    black_box(&LOAD_HANDLER);
    traceweir::load::expect_load_handler();
}
