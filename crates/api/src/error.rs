//! The errors of this crate.

use std::path::PathBuf;

use traceweir_format::spec::status::Status;

/// The result of fallible functions of this crate.
pub type Result<T, E = Error> = core::result::Result<T, E>;

/// A failure of a controller or consumer call, or of a registration.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The daemon, or a rule of the API, refused the call.
    #[error("{reason}")]
    Refused {
        /// The Win32 status of the refusal.
        status: Status,
        /// The reason as readable text.
        reason: String,
    },
    /// No daemon answers and none could be started.
    #[error("no tracing daemon: {reason}")]
    NoDaemon {
        /// The reason as readable text.
        reason: String,
    },
    /// A daemon runs but does not answer, or speaks another version of the protocol.
    #[error("the tracing daemon at {} does not answer: {reason}", socket.display())]
    Unreachable {
        /// Path of the daemon's socket.
        socket: PathBuf,
        /// The reason as readable text.
        reason: String,
    },
    /// A file cannot be opened, read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// A failure of sockets, shared memory or messages.
    #[error(transparent)]
    Transport(#[from] traceweir_transport::Error),
    /// A private session failed.
    #[error(transparent)]
    Session(#[from] traceweir_session::Error),
    /// A file or buffer that cannot be read.
    #[error(transparent)]
    Format(#[from] traceweir_format::Error),
    /// A manifest or file of message formats that cannot be used.
    #[cfg(feature = "decode")]
    #[error(transparent)]
    Schema(#[from] traceweir_decode::Error),
    /// An event could not be decoded, so that a requested field is unknown.
    #[cfg(feature = "decode")]
    #[error(transparent)]
    Undecoded(#[from] traceweir_decode::Undecoded),
    /// A decoded event has no such field.
    #[cfg(feature = "decode")]
    #[error("event {event} has no field {field}")]
    NoField {
        /// Name of the event.
        event: String,
        /// Name of the field.
        field: String,
    },
    /// A value of a decoded event is not of the requested type.
    #[cfg(feature = "decode")]
    #[error("{value} is not a value of type {type_name}")]
    ValueType {
        /// The value as text.
        value: String,
        /// Name of the requested type.
        type_name: String,
    },
}

impl Error {
    /// Returns the Win32 status that the documented functions return for this error.
    #[must_use]
    pub fn status(&self) -> Status {
        match self {
            Self::Refused { status, .. } => *status,
            Self::NoDaemon { .. } | Self::Unreachable { .. } => Status::ERROR_NO_SYSTEM_RESOURCES,
            Self::File { source, .. } => traceweir_transport::error::status_of(source),
            Self::Transport(e) => e.status(),
            Self::Session(e) => e.status(),
            Self::Format(e) => e.status(),
            #[cfg(feature = "decode")]
            Self::Schema(e) => e.status(),
            #[cfg(feature = "decode")]
            Self::Undecoded(e) => e.status(),
            #[cfg(feature = "decode")]
            Self::NoField { .. } => Status::ERROR_NOT_FOUND,
            #[cfg(feature = "decode")]
            Self::ValueType { .. } => Status::ERROR_INVALID_PARAMETER,
        }
    }

    /// Returns whether the daemon closed the connection during a call.
    #[must_use]
    pub fn is_disconnect(&self) -> bool {
        matches!(self, Self::Transport(traceweir_transport::Error::Closed))
    }

    /// Returns whether a system call on a socket or shared memory failed, as opposed to a refusal
    /// by a rule or another program.
    #[must_use]
    pub fn is_system(&self) -> bool {
        matches!(self, Self::Transport(traceweir_transport::Error::System { .. }))
    }

    /// Creates a refusal by a rule of the API.
    pub fn refused(status: Status, reason: impl Into<String>) -> Self {
        Self::Refused { status, reason: reason.into() }
    }
}
