//! The boundary to C: results become status codes, and panics are contained.
//!
//! A panic is a bug in this library, never in its caller. In builds that unwind, as all profiles of
//! this workspace do, it stops here and the caller gets ERROR_NOACCESS. In builds that abort, there
//! is nothing to contain.

use std::panic::{AssertUnwindSafe, catch_unwind};

use traceweir::classic::TraceError;
use traceweir::{Error, Status, WriteError};

/// A result that converts to the status that the published function returns.
pub(crate) trait IntoStatus {
    fn into_status(self) -> Status;
}

impl IntoStatus for Status {
    fn into_status(self) -> Status {
        self
    }
}

macro_rules! into_status {
    ($($error:ty),*) => {$(
        impl IntoStatus for Result<(), $error> {
            fn into_status(self) -> Status {
                self.map_or_else(|error| error.status(), |()| Status::ERROR_SUCCESS)
            }
        }
    )*};
}

into_status!(Error, WriteError, TraceError);

impl IntoStatus for Result<Status, Status> {
    fn into_status(self) -> Status {
        self.unwrap_or_else(|status| status)
    }
}

/// Runs the body of a function that returns a status.
// Always inlined, so that the call stack of a write has no frame of this function.
#[inline(always)]
pub(crate) fn to_status<R: IntoStatus>(body: impl FnOnce() -> R) -> u32 {
    catch_panic(Status::ERROR_NOACCESS.0, || body().into_status().0)
}

/// Runs the body of a function that returns something other than a status. Returns `on_panic` if
/// the body panics.
#[inline(always)]
pub(crate) fn catch_panic<T>(on_panic: T, body: impl FnOnce() -> T) -> T {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(value) => value,
        Err(payload) => {
            // The payload of the panic may itself panic when it is dropped.
            std::mem::forget(payload);
            on_panic
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panic_becomes_a_status() {
        assert_eq!(to_status::<Status>(|| panic!("on purpose")), Status::ERROR_NOACCESS.0);
        assert_eq!(catch_panic(7, || panic!("on purpose")), 7);
    }

    #[test]
    fn errors_return_their_published_codes() {
        assert_eq!(to_status(|| Ok::<(), WriteError>(())), 0);
        assert_eq!(to_status(|| Err(WriteError::LogFileFull)), 0xC000_0188);
        assert_eq!(to_status(|| Err(TraceError::InvalidFlagNumber)), 186);
        assert_eq!(
            to_status(|| Err(Error::refused(Status::ERROR_ACCESS_DENIED, "no"))),
            Status::ERROR_ACCESS_DENIED.0
        );
    }
}
