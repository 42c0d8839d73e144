//! The errors of this crate.

#[cfg(not(any(windows, traceweir_win32)))]
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
    #[cfg(not(any(windows, traceweir_win32)))]
    #[error("no tracing daemon: {reason}")]
    NoDaemon {
        /// The reason as readable text.
        reason: String,
    },
    /// A daemon runs but does not answer, or speaks another version of the protocol.
    #[cfg(not(any(windows, traceweir_win32)))]
    #[error("the tracing daemon at {} does not answer: {reason}", socket.display())]
    Unreachable {
        /// Path of the daemon's socket.
        socket: PathBuf,
        /// The reason as readable text.
        reason: String,
    },
    /// A file cannot be opened, read or written.
    #[cfg(not(any(windows, traceweir_win32)))]
    #[error("{}: {source}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// A failure of sockets, shared memory or messages.
    #[cfg(not(any(windows, traceweir_win32)))]
    #[error(transparent)]
    Transport(#[from] traceweir_transport::Error),
    /// A private session failed.
    #[cfg(not(any(windows, traceweir_win32)))]
    #[error(transparent)]
    Session(#[from] traceweir_session::Error),
    /// A file or buffer that cannot be read.
    #[error(transparent)]
    Format(#[from] traceweir_format::Error),
    /// A manifest or file of message formats that cannot be used.
    #[cfg(all(feature = "decode", not(any(windows, traceweir_win32))))]
    #[error(transparent)]
    Schema(#[from] traceweir_decode::Error),
    /// An event could not be decoded, so that a requested field is unknown.
    #[cfg(all(feature = "decode", not(any(windows, traceweir_win32))))]
    #[error(transparent)]
    Undecoded(#[from] traceweir_decode::Undecoded),
    /// A decoded event has no such field.
    #[cfg(all(feature = "decode", not(any(windows, traceweir_win32))))]
    #[error("event {event} has no field {field}")]
    NoField {
        /// Name of the event.
        event: String,
        /// Name of the field.
        field: String,
    },
    /// A value of a decoded event is not of the requested type.
    #[cfg(all(feature = "decode", not(any(windows, traceweir_win32))))]
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
            #[cfg(not(any(windows, traceweir_win32)))]
            Self::NoDaemon { .. } | Self::Unreachable { .. } => Status::ERROR_NO_SYSTEM_RESOURCES,
            #[cfg(not(any(windows, traceweir_win32)))]
            Self::File { source, .. } => traceweir_transport::error::status_of(source),
            #[cfg(not(any(windows, traceweir_win32)))]
            Self::Transport(e) => e.status(),
            #[cfg(not(any(windows, traceweir_win32)))]
            Self::Session(e) => e.status(),
            Self::Format(e) => e.status(),
            #[cfg(all(feature = "decode", not(any(windows, traceweir_win32))))]
            Self::Schema(e) => e.status(),
            #[cfg(all(feature = "decode", not(any(windows, traceweir_win32))))]
            Self::Undecoded(e) => e.status(),
            #[cfg(all(feature = "decode", not(any(windows, traceweir_win32))))]
            Self::NoField { .. } => Status::ERROR_NOT_FOUND,
            #[cfg(all(feature = "decode", not(any(windows, traceweir_win32))))]
            Self::ValueType { .. } => Status::ERROR_INVALID_PARAMETER,
        }
    }

    /// Returns whether the daemon closed the connection during a call.
    #[cfg(not(any(windows, traceweir_win32)))]
    #[must_use]
    pub fn is_disconnect(&self) -> bool {
        matches!(self, Self::Transport(traceweir_transport::Error::Closed))
    }

    /// Returns whether a system call on a socket or shared memory failed, as opposed to a refusal
    /// by a rule or another program.
    #[cfg(not(any(windows, traceweir_win32)))]
    #[must_use]
    pub fn is_system(&self) -> bool {
        matches!(self, Self::Transport(traceweir_transport::Error::System { .. }))
    }

    /// Creates a refusal by a rule of the API.
    pub fn refused(status: Status, reason: impl Into<String>) -> Self {
        Self::Refused { status, reason: reason.into() }
    }
}

/// The reason why a write did not reach every session that wants the event.
///
/// Sessions count the events of the last three as lost.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// The provider is no longer registered.
    #[error("the provider is not registered any more")]
    InvalidHandle,
    /// More than 128 blocks, or another invalid parameter.
    #[error("a parameter is invalid")]
    InvalidParameter,
    /// The event is larger than 64 KiB.
    #[error("the event is larger than 64 KiB")]
    TooLarge,
    /// The event is lost because it does not fit into a session's buffer, or because it is larger
    /// than 64 KiB together with the stack and key that the session requests.
    #[error("the event does not fit into a session's buffer")]
    MoreData,
    /// The event is lost because a session has no free buffer space.
    #[error("a session has no free buffer space")]
    NoRoom,
    /// The event is lost because the backlog of a live session without a consumer is full.
    #[error("the backlog of a live session without a consumer is full: consume or stop it")]
    LogFileFull,
}

impl WriteError {
    /// Returns the Win32 status that the documented functions return for this error.
    #[must_use]
    pub const fn status(self) -> Status {
        match self {
            Self::InvalidHandle => Status::ERROR_INVALID_HANDLE,
            Self::InvalidParameter => Status::ERROR_INVALID_PARAMETER,
            Self::TooLarge => Status::ERROR_ARITHMETIC_OVERFLOW,
            Self::MoreData => Status::ERROR_MORE_DATA,
            Self::NoRoom => Status::ERROR_NOT_ENOUGH_MEMORY,
            Self::LogFileFull => Status::STATUS_LOG_FILE_FULL,
        }
    }
}
