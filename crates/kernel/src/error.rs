//! Errors of capturing kernel events.

use std::io;

use traceweir_format::spec::status::Status;

/// The result type of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The command that mounts tracefs for all processes.
pub const MOUNT_TRACEFS: &str = "mount -t tracefs tracefs /sys/kernel/tracing";

/// The reason why kernel events cannot be captured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The system denies access: paranoid settings or missing capabilities.
    #[error("{what} is not permitted ({source})")]
    NotPermitted {
        /// The operation or object to which access is denied.
        what: String,
        /// The error of the system.
        source: io::Error,
    },
    /// tracefs is not mounted, and this process may not mount it.
    #[error(
        "tracefs is not mounted, and this process may not mount it ({source}): as root, run `{MOUNT_TRACEFS}`"
    )]
    NotMounted {
        /// The error of the mount attempt.
        source: io::Error,
    },
    /// This kernel lacks a feature.
    #[error("this kernel has no {what}")]
    NotSupported {
        /// The missing feature.
        what: String,
    },
    /// Any other error of the system, such as a lack of file descriptors or memory.
    #[error("{what}: {source}")]
    System {
        /// The operation that failed.
        what: String,
        /// The error of the system.
        source: io::Error,
    },
    /// The format description of a tracepoint is unusable.
    #[error("the format of the tracepoint {name} has no usable field {field}")]
    Format {
        /// The name of the tracepoint.
        name: String,
        /// The field that is missing or unusable.
        field: String,
    },
}

impl Error {
    /// Returns the Win32 status that the published API returns for this error.
    #[must_use]
    pub fn status(&self) -> Status {
        match self {
            Self::NotPermitted { .. } | Self::NotMounted { .. } => Status::ERROR_PRIVILEGE_NOT_HELD,
            // A tracepoint with other fields counts as one that this kernel does not have.
            Self::NotSupported { .. } | Self::Format { .. } => Status::ERROR_NOT_SUPPORTED,
            Self::System { .. } => Status::ERROR_NO_SYSTEM_RESOURCES,
        }
    }

    /// Creates the variant that matches an operating system error.
    pub(crate) fn system(what: impl Into<String>, source: io::Error) -> Self {
        let what = what.into();
        match source.raw_os_error() {
            Some(libc::EACCES | libc::EPERM) => Self::NotPermitted { what, source },
            Some(libc::ENOENT | libc::ENODEV | libc::EOPNOTSUPP) => Self::NotSupported { what },
            _ => Self::System { what, source },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_errors_have_their_published_status() {
        let status = |code| Error::system("x", io::Error::from_raw_os_error(code)).status();
        for code in [libc::EACCES, libc::EPERM] {
            assert_eq!(status(code), Status::ERROR_PRIVILEGE_NOT_HELD);
        }
        for code in [libc::ENOENT, libc::ENODEV, libc::EOPNOTSUPP] {
            assert_eq!(status(code), Status::ERROR_NOT_SUPPORTED);
        }
        for code in [libc::EMFILE, libc::ENOMEM, libc::ENOSPC] {
            assert_eq!(status(code), Status::ERROR_NO_SYSTEM_RESOURCES);
        }
        let unusable = Error::Format { name: "x".into(), field: "y".into() };
        assert_eq!(unusable.status(), Status::ERROR_NOT_SUPPORTED);
    }
}
