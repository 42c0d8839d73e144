//! Errors that keep a daemon from running, and refusals of requests.

use std::path::PathBuf;

use traceweir_format::spec::status::Status;
use traceweir_transport::message::Message;

/// The result of fallible functions of this crate.
pub type Result<T, E = Error> = core::result::Result<T, E>;

/// A failure to run the daemon.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Another daemon serves this folder.
    #[error("a daemon is already running at {}", .0.display())]
    AlreadyRunning(PathBuf),
    /// An error of sockets, memory or folders.
    #[error(transparent)]
    Transport(#[from] traceweir_transport::Error),
    /// Signal handlers could not be installed.
    #[error("cannot install signal handlers: {0}")]
    Signals(std::io::Error),
}

impl Error {
    /// Wraps the error of a system call.
    pub(crate) fn system(operation: &'static str, source: impl Into<std::io::Error>) -> Self {
        Self::Transport(traceweir_transport::Error::system(operation, source))
    }

    /// Returns the Win32 status that the ETW API returns for this error.
    #[must_use]
    pub fn status(&self) -> Status {
        match self {
            Self::AlreadyRunning(_) => Status::ERROR_ALREADY_EXISTS,
            Self::Transport(e) => e.status(),
            Self::Signals(e) => traceweir_transport::error::status_of(e),
        }
    }
}

/// A refusal of a request, as sent to the client.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub(crate) struct Refusal {
    pub(crate) status: Status,
    /// The message for users.
    pub(crate) reason: String,
}

impl Refusal {
    pub(crate) fn new(status: Status, reason: impl Into<String>) -> Self {
        Self { status, reason: reason.into() }
    }

    pub(crate) fn not_running() -> Self {
        Self::new(Status::ERROR_WMI_INSTANCE_NOT_FOUND, "no such session is running")
    }

    /// Returns the refusal for a name that a session already has.
    pub(crate) fn name_taken(name: &str) -> Self {
        Self::new(Status::ERROR_ALREADY_EXISTS, format!("a session {name:?} is running"))
    }

    pub(crate) fn into_message(self) -> Message {
        Message::Refused { status: self.status.0, reason: self.reason }
    }
}

impl From<traceweir_session::Error> for Refusal {
    fn from(e: traceweir_session::Error) -> Self {
        Self::new(e.status(), e.to_string())
    }
}
