//! The load handler: what this library does when it is loaded.
//!
//! It does nothing, unless the program replaces `malloc`. Then it starts the library's threads: the
//! program's allocator may later register a provider while it holds its own lock, and no thread can
//! be started then (`traceweir::load`).

use std::hint::black_box;

use crate::boundary;

/// Called by the loader.
#[used]
#[unsafe(link_section = ".init_array")]
static LOAD_HANDLER: extern "C" fn() = handle_load;

extern "C" fn handle_load() {
    boundary::catch_panic((), traceweir::load::start_at_load);
}

/// Announces that the load handler will run, if it has not run yet. Called before each
/// registration: the program's allocator may register a provider before the handler has run. The
/// reference to `LOAD_HANDLER` makes the linker keep the handler in programs that link the library
/// statically.
pub(crate) fn expect_handler() {
    black_box(&LOAD_HANDLER);
    traceweir::load::expect_load_handler();
}
