//! Why a session cannot be had.

use traceweir_format::spec::status::Status;

/// The result of anything here that can fail.
pub type Result<T, E = Error> = core::result::Result<T, E>;

/// A failure of a session.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The properties contradict each other or the published rules.
    #[error("{why}")]
    Properties {
        /// Win32 status.
        status: Status,
        /// Which rule.
        why: &'static str,
    },
    /// Something cannot be set, or asked, by the published rules or on this machine.
    #[error("{why}")]
    Information {
        /// Win32 status.
        status: Status,
        /// Which rule.
        why: &'static str,
    },
    /// What is to be captured beside the events of processes cannot be.
    #[error("{why}")]
    Capture {
        /// Win32 status.
        status: Status,
        /// What is missing, and what to do.
        why: String,
    },
    /// The log file cannot be written.
    #[error("log file: {0}")]
    File(std::io::Error),
    /// A buffer or header that the format refuses.
    #[error(transparent)]
    Format(#[from] traceweir_format::Error),
    /// Memory, descriptors or mappings could not be had.
    #[error(transparent)]
    Transport(#[from] traceweir_transport::Error),
    /// The session has ended.
    #[error("the session is not running")]
    Ended,
}

impl Error {
    /// The Win32 status that the published API returns for this error.
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
