//! The consequences of a panic, which is always a bug of this program.
//!
//! ```text
//!   a contained thread of a session        ──▶ ends its session               (traceweir-session)
//!   a worker that reads files of others    ──▶ ends the work on that file     (traceweir-kernel)
//!   any other thread, also the main one    ──▶ aborts the program at once
//! ```
//!
//! If only the thread ended, other threads would wait for it, and its counters would be wrong.

use traceweir_kernel::is_blocking_worker;
use traceweir_session::is_panic_contained;

/// Makes panics abort the program from now on, unless they are contained.
pub fn end_at_panics() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        report(info);
        if !is_panic_contained() && !is_blocking_worker() {
            std::process::abort();
        }
    }));
}
