//! What a panic, which would be an error of ours, ends.
//!
//! ```text
//!   a thread of a session, where that is contained ──▶ its session          (traceweir-session)
//!   a worker that looks at files of others         ──▶ what it looked at    (traceweir-kernel)
//!   any other thread, the main one too             ──▶ the program, at once and visibly
//! ```
//!
//! A thread that died alone would leave others waiting for it, and counts that it keeps wrong.

use traceweir_kernel::is_patient_worker;
use traceweir_session::is_contained;

/// Has panics end the program from now on, unless they are contained.
pub fn end_at_panics() {
    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |what| {
        tell(what);
        if !is_contained() && !is_patient_worker() {
            std::process::abort();
        }
    }));
}
