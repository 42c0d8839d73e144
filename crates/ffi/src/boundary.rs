//! The boundary to C: results become status codes, and panics are contained.
//!
//! A panic is a bug in this library, never in its caller. In builds that unwind (`--profile c`,
//! tests), it stops here and the caller gets ERROR_NOACCESS. In builds that abort, there is nothing
//! to contain.

use std::panic::{AssertUnwindSafe, catch_unwind};

use traceweir::classic::TraceError;
use traceweir::{Error, Status, WriteError};

/// The result of a call, convertible to the status that the published function returns.
pub(crate) trait Outcome {
    fn status(self) -> Status;
}

impl Outcome for Status {
    fn status(self) -> Status {
        self
    }
}

macro_rules! outcomes {
    ($($error:ty),*) => {$(
        impl Outcome for Result<(), $error> {
            fn status(self) -> Status {
                self.map_or_else(|error| error.status(), |()| Status::ERROR_SUCCESS)
            }
        }
    )*};
}

outcomes!(Error, WriteError, TraceError);

/// Runs the body of a function that returns a status.
// Always inline, so that the frame of a write is that of the exported function.
#[inline(always)]
pub(crate) fn status<O: Outcome>(body: impl FnOnce() -> O) -> u32 {
    guarded(Status::ERROR_NOACCESS.0, || body().status().0)
}

/// Runs the body of a function that returns something else. Returns `otherwise` after a panic.
#[inline(always)]
pub(crate) fn guarded<T>(otherwise: T, body: impl FnOnce() -> T) -> T {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(value) => value,
        Err(payload) => {
            // The payload of the panic may itself panic when it is dropped.
            std::mem::forget(payload);
            otherwise
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panic_becomes_a_status() {
        assert_eq!(status::<Status>(|| panic!("on purpose")), 998);
        assert_eq!(guarded(7, || panic!("on purpose")), 7);
    }

    #[test]
    fn outcomes_keep_their_published_codes() {
        assert_eq!(status(|| Ok::<(), WriteError>(())), 0);
        assert_eq!(status(|| Err(WriteError::LogFileFull)), 0xC000_0188);
        assert_eq!(status(|| Err(TraceError::InvalidFlagNumber)), 186);
        assert_eq!(status(|| Err(Error::refused(Status::ERROR_ACCESS_DENIED, "no"))), 5);
    }
}
