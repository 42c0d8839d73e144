//! The last error of a thread: the status of a failed function that does not return a status.

use std::cell::Cell;

use traceweir::Status;

thread_local! {
    static LAST: Cell<u32> = const { Cell::new(0) };
}

/// Sets the last error of this thread after a failure. .NET takes `errno` for the last error, so
/// `errno` gets the same number.
pub(crate) fn set(status: Status) {
    LAST.set(status.0);
    // SAFETY: the function returns the address of this thread's `errno`.
    unsafe { *libc::__errno_location() = status.0.cast_signed() };
}

/// Sets the last error of this thread, and leaves `errno` as it is: for functions that also set it
/// on success.
pub(crate) fn set_without_errno(status: Status) {
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
