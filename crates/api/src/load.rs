//! The load handler of `libtraceweir`, the library for C programs; see `process::load`.

pub use crate::process::load::{expect_load_handler, is_malloc_replaced};

/// Starts the threads of the library, if the program replaces `malloc`.
pub fn start_at_load() {
    crate::client::start_at_load();
}
