//! Contains a panic of a session's thread: a bug ends this session and nothing else.
//!
//! ```text
//!   collector panics ──▶ counts its buffers as lost, drops regions and capture
//!            ├─▶ Job::Fault ──▶ the writer calls `on_end`
//!            └─▶ refuses every command except stop, which finishes the file with the
//!                buffers that had reached the writer
//!   writer panics ────▶ calls `on_end`; the file stays unfinalised, as after a kill
//!            └─▶ counts later buffers as lost, until the stop
//! ```
//!
//! - F1 [`on_end`](crate::StartOptions::on_end) gets [`FAULT`]; the session is then stopped as
//!   after any other end.
//! - F2 The operation that panicked is not tried again.
//! - F3 No caller waits for a thread that panicked. Requests that had not begun are refused. The
//!   callback of the current request is dropped without being called; a caller that waits must take
//!   this as the answer. Buffers return to the pool.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use traceweir_format::spec::status::Status;

/// Status of a session that a panic ended. The C library returns the same status after a panic.
pub const FAULT: Status = Status::ERROR_NOACCESS;

thread_local! {
    /// Number of calls of [`contain_panic`] that this thread is in.
    static CONTAIN_DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// Runs `work` and returns whether it completed without a panic.
///
/// After a panic, the data that `work` changed may be inconsistent: count its events and drop it,
/// but do not use it otherwise.
pub(crate) fn contain_panic(work: impl FnOnce()) -> bool {
    CONTAIN_DEPTH.set(CONTAIN_DEPTH.get().saturating_add(1));
    let is_completed = catch_unwind(AssertUnwindSafe(work)).is_ok();
    CONTAIN_DEPTH.set(CONTAIN_DEPTH.get().saturating_sub(1));
    is_completed
}

/// Returns whether a panic of this thread, now, would end only its session.
pub fn is_panic_contained() -> bool {
    CONTAIN_DEPTH.get() > 0
}
