//! What an application is told when something fails.

use std::path::PathBuf;

use traceweir_format::spec::status::Status;

/// The result of anything here that can fail.
pub type Result<T, E = Error> = core::result::Result<T, E>;

/// A failure of a controller or consumer call, or of a registration.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The daemon, or a rule of the API, refused.
    #[error("{reason}")]
    Refused {
        /// Win32 status.
        status: Status,
        /// For people.
        reason: String,
    },
    /// No daemon answers and none could be started.
    #[error("no tracing daemon: {reason}")]
    NoDaemon {
        /// What was tried and what to do.
        reason: String,
    },
    /// A daemon is there but does not answer, or speaks another version.
    #[error("the tracing daemon at {} does not answer: {reason}", socket.display())]
    Unreachable {
        /// Its socket.
        socket: PathBuf,
        /// Why.
        reason: String,
    },
    /// A log file cannot be opened.
    #[error("{}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Sockets, memory, messages.
    #[error(transparent)]
    Transport(#[from] traceweir_transport::Error),
    /// A private session failed.
    #[error(transparent)]
    Session(#[from] traceweir_session::Error),
    /// A file or buffer that cannot be read.
    #[error(transparent)]
    Format(#[from] traceweir_format::Error),
}

impl Error {
    /// The Win32 status that the published API returns for this error.
    #[must_use]
    pub fn status(&self) -> Status {
        match self {
            Self::Refused { status, .. } => *status,
            Self::NoDaemon { .. } | Self::Unreachable { .. } => Status::ERROR_NO_SYSTEM_RESOURCES,
            Self::File { source, .. } => traceweir_transport::error::status_of(source),
            Self::Transport(e) => e.status(),
            Self::Session(e) => e.status(),
            Self::Format(e) => e.status(),
        }
    }

    /// Whether the daemon closed the connection in the middle of things.
    #[must_use]
    pub fn is_disconnect(&self) -> bool {
        matches!(self, Self::Transport(traceweir_transport::Error::Closed))
    }

    /// Whether a system call failed, as opposed to a rule or another program saying no.
    #[must_use]
    pub fn is_system(&self) -> bool {
        matches!(self, Self::Transport(traceweir_transport::Error::System { .. }))
    }

    /// A refusal by a rule of the API.
    pub fn refused(status: Status, reason: impl Into<String>) -> Self {
        Self::Refused { status, reason: reason.into() }
    }
}
