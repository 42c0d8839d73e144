//! A thread of a session that panics: an error of ours, which ends this session and nothing else.
//!
//! ```text
//!   collector panics ──▶ counts what it was filling, lets regions and capture go ──Job::Fault──▶ writer: owner is told
//!            └─▶ refuses everything but the stop, which finishes the file with what had come to the writer
//!   writer panics ────▶ owner is told; the file stays as it is, like that of a process that was killed
//!            └─▶ counts what still comes as lost, up to the stop
//! ```
//!
//! F1 The owner hears of it as of any end by itself, with [`FAULT`], and stops the session as any other. F2 What stumbled is not tried again. F3 Nobody waits for a
//! thread that fell: requests that had not begun are answered, the one in hand by the drop of its callback; buffers return to the pool.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use traceweir_format::spec::status::Status;

/// The status of a session that ended by an error of ours: the one that the library for C has for it too.
pub const FAULT: Status = Status::ERROR_NOACCESS;

thread_local! {
    /// How many calls of [`contained`] this thread is in.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// Does something that may panic. Whether it came to its end.
///
/// What it leaves behind may be half done: it may be counted and let go, not worked with.
pub(crate) fn contained(work: impl FnOnce()) -> bool {
    DEPTH.set(DEPTH.get().saturating_add(1));
    let is_done = catch_unwind(AssertUnwindSafe(work)).is_ok();
    DEPTH.set(DEPTH.get().saturating_sub(1));
    is_done
}

/// Whether a panic of this thread, where it is now, ends its session and nothing else.
pub fn is_contained() -> bool {
    DEPTH.get() > 0
}
