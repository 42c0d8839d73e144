//! Errors of the transport between processes.

use traceweir_format::spec::status::Status;

/// Result with this crate's [`Error`].
pub type Result<T, E = Error> = core::result::Result<T, E>;

/// An error of the transport between processes.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A system call failed.
    #[error("{operation}: {source}")]
    System {
        /// The failed operation.
        operation: &'static str,
        /// The error of the system.
        source: std::io::Error,
    },
    /// A message cannot be decoded.
    #[error("message is not valid: {0}")]
    Message(#[from] traceweir_format::Error),
    /// A message has an unknown kind, or the receiver does not expect this kind now.
    #[error("message of kind {0} is not expected here")]
    Unexpected(u16),
    /// The two sides have no common protocol version.
    #[error("the other side speaks versions {theirs:?} of the control protocol, this one speaks {ours:?}")]
    Version {
        /// Lowest and highest version of the other side.
        theirs: (u16, u16),
        /// Lowest and highest version of this side.
        ours: (u16, u16),
    },
    /// A region has another version of the shared memory layout.
    #[error(
        "the region follows version {theirs} of the rules of shared memory, this side knows version {ours}"
    )]
    RegionVersion {
        /// Version of the region.
        theirs: u32,
        /// Version of this side.
        ours: u32,
    },
    /// A region, queue or size is inconsistent.
    #[error("{0}")]
    Invalid(&'static str),
    /// The other side has closed the connection.
    #[error("the connection was closed")]
    Closed,
    /// No answer came in time, or a connection or message was not accepted in time.
    #[error("no answer in time")]
    TimedOut,
}

impl Error {
    /// Wraps the error of a system call.
    pub fn system(operation: &'static str, source: impl Into<std::io::Error>) -> Self {
        Self::System { operation, source: source.into() }
    }

    /// Returns the Win32 status that the functions of ETW return for this error.
    #[must_use]
    pub fn status(&self) -> Status {
        match self {
            Self::System { source, .. } => status_of(source),
            Self::Message(_) | Self::Unexpected(_) | Self::Invalid(_) => Status::ERROR_INVALID_PARAMETER,
            Self::Version { .. } | Self::RegionVersion { .. } => Status::ERROR_NOT_SUPPORTED,
            Self::Closed => Status::ERROR_IO_DEVICE,
            Self::TimedOut => Status::ERROR_TIMEOUT,
        }
    }
}

/// Returns the Win32 status for an error of the system.
#[must_use]
pub fn status_of(error: &std::io::Error) -> Status {
    match error.raw_os_error().unwrap_or(0) {
        libc::EPERM | libc::EACCES => Status::ERROR_ACCESS_DENIED,
        libc::ENOENT => Status::ERROR_FILE_NOT_FOUND,
        libc::ENOMEM => Status::ERROR_NOT_ENOUGH_MEMORY,
        libc::ENOSPC | libc::EDQUOT | libc::EFBIG => Status::ERROR_DISK_FULL,
        libc::EEXIST => Status::ERROR_ALREADY_EXISTS,
        libc::EBUSY | libc::ETXTBSY => Status::ERROR_SHARING_VIOLATION,
        libc::EINVAL => Status::ERROR_INVALID_PARAMETER,
        libc::ENOSYS | libc::EOPNOTSUPP | libc::ENODEV | libc::ENXIO => Status::ERROR_NOT_SUPPORTED,
        libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::EAGAIN => Status::ERROR_NO_SYSTEM_RESOURCES,
        libc::ETIMEDOUT => Status::ERROR_TIMEOUT,
        libc::ENAMETOOLONG | libc::ENOTDIR | libc::EISDIR => Status::ERROR_BAD_PATHNAME,
        _ => Status::ERROR_IO_DEVICE,
    }
}
