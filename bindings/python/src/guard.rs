//! Turns panics into exceptions.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use pyo3::{PyErr, PyResult};

use crate::error::TraceError;

/// Calls a function. A panic in it, which would be a defect of this package, becomes a `TraceError`.
///
/// The state that the function changes must stay usable after a panic: callers pass only functions
/// that build new values, or whose values are dropped after a failure.
pub(crate) fn guard<T>(call: impl FnOnce() -> PyResult<T>) -> PyResult<T> {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| Err(panic_error(&*panic)))
}

/// Returns the exception for a panic.
pub(crate) fn panic_error(panic: &(dyn Any + Send)) -> PyErr {
    TraceError::new_err(format!("internal error: {}", panic_text(panic)))
}

/// Returns the message of a panic.
pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let literal = panic.downcast_ref::<&str>().copied();
    literal.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("unknown")
}
