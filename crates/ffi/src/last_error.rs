//! The last error of a thread: the status of functions that return something else.

use std::cell::Cell;

use traceweir::Status;

thread_local! {
    static LAST: Cell<u32> = const { Cell::new(0) };
}

pub(crate) fn set(status: Status) {
    LAST.set(status.0);
}

/// Returns the calling thread's last error; 0 in a new thread.
#[unsafe(no_mangle)]
pub extern "C" fn GetLastError() -> u32 {
    LAST.get()
}

/// Sets the calling thread's last error.
#[unsafe(no_mangle)]
pub extern "C" fn SetLastError(code: u32) {
    LAST.set(code);
}
