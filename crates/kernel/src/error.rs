//! What can go wrong when the kernel is asked for its events.

use std::io;

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why kernel events cannot be captured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The system refuses: paranoid settings, missing capabilities.
    #[error("{what} is not permitted: `weir doctor` says what to type ({source})")]
    NotPermitted {
        /// What was to be opened.
        what: String,
        /// What the system said.
        source: io::Error,
    },
    /// This kernel does not have it.
    #[error("this kernel has no {what}")]
    NotSupported {
        /// What is missing.
        what: String,
    },
    /// Out of descriptors, memory or places.
    #[error("{what}: {source}")]
    System {
        /// What was being done.
        what: String,
        /// What the system said.
        source: io::Error,
    },
    /// The description of a tracepoint makes no sense.
    #[error("the format of the tracepoint {name} has no usable field {field}")]
    Format {
        /// The tracepoint.
        name: String,
        /// The field.
        field: String,
    },
}

impl Error {
    /// From what the system said.
    pub(crate) fn system(what: impl Into<String>, source: io::Error) -> Self {
        let what = what.into();
        match source.raw_os_error() {
            Some(libc::EACCES | libc::EPERM) => Self::NotPermitted { what, source },
            Some(libc::ENOENT | libc::ENODEV | libc::EOPNOTSUPP) => Self::NotSupported { what },
            _ => Self::System { what, source },
        }
    }
}
