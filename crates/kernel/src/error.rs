//! What can go wrong when the kernel is asked for its events.

use std::io;

use traceweir_format::spec::status::Status;

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The command that mounts tracefs for all processes.
pub const MOUNT_TRACEFS: &str = "mount -t tracefs tracefs /sys/kernel/tracing";

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
    /// tracefs is not mounted, and this process may not mount it.
    #[error(
        "tracefs is not mounted, and this process may not mount it ({source}): as root, run `{MOUNT_TRACEFS}`"
    )]
    NotMounted {
        /// Why it cannot be mounted.
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
    /// The Win32 status that the published API returns for this error.
    #[must_use]
    pub fn status(&self) -> Status {
        match self {
            Self::NotPermitted { .. } | Self::NotMounted { .. } => Status::ERROR_PRIVILEGE_NOT_HELD,
            // A tracepoint with other fields is one that this kernel does not have.
            Self::NotSupported { .. } | Self::Format { .. } => Status::ERROR_NOT_SUPPORTED,
            Self::System { .. } => Status::ERROR_NO_SYSTEM_RESOURCES,
        }
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_system_said_has_its_published_status() {
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
