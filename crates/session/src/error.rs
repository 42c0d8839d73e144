//! Errors of the session engine.

use traceweir_format::spec::status::Status;

/// Result with this crate's [`Error`].
pub type Result<T, E = Error> = core::result::Result<T, E>;

/// An error of a session.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A request or its properties violate a rule, or the session cannot carry the request out.
    #[error("{reason}")]
    Properties {
        /// Win32 status of the error.
        status: Status,
        /// The violated rule or the failure, as text for people.
        reason: &'static str,
    },
    /// The rules of ETW or this machine do not allow the query or setting.
    #[error("{reason}")]
    Information {
        /// Win32 status of the error.
        status: Status,
        /// The violated rule or the limit of the machine, as text for people.
        reason: &'static str,
    },
    /// The capture of kernel events cannot start.
    #[error("{reason}")]
    Capture {
        /// Win32 status of the error.
        status: Status,
        /// Says what is missing and how to fix it.
        reason: String,
    },
    /// The log file cannot be written.
    #[error("log file: {0}")]
    File(std::io::Error),
    /// `traceweir_format` rejected a buffer or header.
    #[error(transparent)]
    Format(#[from] traceweir_format::Error),
    /// Memory, descriptors or mappings are not available.
    #[error(transparent)]
    Transport(#[from] traceweir_transport::Error),
    /// The session has ended.
    #[error("the session is not running")]
    Ended,
}

/// Returns an [`Error::Properties`] with this status and reason.
pub(crate) fn refuse<T>(status: Status, reason: &'static str) -> Result<T> {
    Err(Error::Properties { status, reason })
}

impl Error {
    /// Returns the Win32 status that the functions of ETW return for this error.
    #[must_use]
    pub fn status(&self) -> Status {
        match self {
            Self::Properties { status, .. }
            | Self::Information { status, .. }
            | Self::Capture { status, .. } => *status,
            Self::File(e) => traceweir_transport::error::status_of(e),
            Self::Format(e) => e.status(),
            Self::Transport(e) => e.status(),
            Self::Ended => Status::ERROR_WMI_INSTANCE_NOT_FOUND,
        }
    }
}
