//! The exceptions of the package, and the conversion of errors to them.

use std::io;
use std::path::Path;

use pyo3::PyErr;
use pyo3::exceptions::{PyException, PyOSError, PyUserWarning};
use traceweir::Status;
use traceweir_analysis::input::OpenError;

pyo3::create_exception!(
    traceweir,
    TraceError,
    PyException,
    "A trace, manifest or session that cannot be used. The text says why.\n\n\
     Problems of the operating system, such as a missing file, are subclasses of OSError instead."
);

pyo3::create_exception!(
    traceweir,
    TraceWarning,
    PyUserWarning,
    "Damage or losses of a trace, or a missing source of schemas or symbols."
);

/// Error numbers of Linux.
const ENOENT: i32 = 2;
const EACCES: i32 = 13;
const EISDIR: i32 = 21;

/// Converts an error to the exception that Python programs expect: a subclass of `OSError` if the
/// operating system refused a file, and `TraceError` otherwise.
pub(crate) fn to_exception(error: &anyhow::Error) -> PyErr {
    if let Some(open_error) = error.chain().find_map(|cause| cause.downcast_ref::<OpenError>())
        && let Some(number) = error_number(open_error.status())
    {
        return os_error(number, &open_error.to_string(), &open_error.path);
    }
    if let Some(cause) = error.chain().find_map(|cause| cause.downcast_ref::<io::Error>())
        && let Some(number) = cause.raw_os_error()
    {
        return PyOSError::new_err((number, format!("{error:#}")));
    }
    TraceError::new_err(format!("{error:#}"))
}

/// Returns the exception for a path that names a folder.
pub(crate) fn folder_error(path: &Path) -> PyErr {
    os_error(EISDIR, "this is a folder; name the traces in it", path)
}

fn os_error(number: i32, reason: &str, path: &Path) -> PyErr {
    // The system's text contains the number, which Python shows in front of the reason.
    let reason = reason.split_once(" (os error").map_or(reason, |(text, _)| text).to_owned();
    PyOSError::new_err((number, reason, path.as_os_str().to_owned()))
}

fn error_number(status: Status) -> Option<i32> {
    match status {
        Status::ERROR_FILE_NOT_FOUND | Status::ERROR_PATH_NOT_FOUND => Some(ENOENT),
        Status::ERROR_ACCESS_DENIED => Some(EACCES),
        _ => None,
    }
}
