//! Errors for malformed input, and the Win32 status that each one maps to.

use alloc::string::String;

use crate::spec::status::Status;

/// The result of every fallible operation of this crate.
pub type Result<T, E = Error> = core::result::Result<T, E>;

/// A defect found while reading, an exceeded limit, or an I/O failure.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The bytes end before the structure does.
    #[error("{what} at offset {offset:#x} needs {needed} bytes, {available} are there")]
    Truncated {
        /// The structure being read.
        what: &'static str,
        /// Offset at which the structure starts.
        offset: u64,
        /// Bytes that the structure needs.
        needed: u64,
        /// Bytes that are available.
        available: u64,
    },
    /// A field holds a value that the layout does not allow.
    #[error("{what} at offset {offset:#x}: {reason}")]
    Invalid {
        /// The structure or field that is invalid.
        what: &'static str,
        /// Offset of the structure or field.
        offset: u64,
        /// The description of the defect.
        reason: &'static str,
    },
    /// Bytes between or after the buffers of a file that hold no buffer.
    #[error("hole at offset {offset:#x}: {size} bytes {}", if *.zeros { "of zeros" } else { "that hold no buffer" })]
    Hole {
        /// Offset at which the hole begins.
        offset: u64,
        /// Bytes up to the next buffer or the end of the file.
        size: u64,
        /// Whether all bytes of the hole are 0.
        zeros: bool,
    },
    /// The file does not begin with an event-trace header buffer.
    #[error("not an event trace log: {reason} at offset {offset:#x}")]
    NotAnEtl {
        /// Offset of the defect.
        offset: u64,
        /// The description of the defect.
        reason: &'static str,
    },
    /// A structure exceeds the size that its format or container allows.
    #[error("{what} of {size} bytes exceeds the limit of {limit}")]
    TooLarge {
        /// The structure that is too large.
        what: &'static str,
        /// The size of the structure in bytes, or the number of elements of a list.
        size: u64,
        /// The largest allowed size or number.
        limit: u64,
    },
    /// A buffer of an information class breaks the documented rules.
    #[error("{reason}")]
    Information {
        /// The Win32 status that the call fails with.
        status: Status,
        /// The description of the violation.
        reason: &'static str,
    },
    /// The source or sink of the bytes failed.
    #[error("reading or writing at offset {offset:#x}: {reason}")]
    Io {
        /// The offset of the failed read or write.
        offset: u64,
        /// The message of the source or sink.
        reason: String,
    },
}

impl Error {
    /// Returns the Win32 status that the documented API returns for this error.
    #[must_use]
    pub fn status(&self) -> Status {
        match self {
            Self::Truncated { .. } | Self::Invalid { .. } | Self::Hole { .. } | Self::NotAnEtl { .. } => {
                Status::ERROR_FILE_CORRUPT
            }
            Self::TooLarge { .. } => Status::ERROR_MORE_DATA,
            Self::Information { status, .. } => *status,
            Self::Io { .. } => Status::ERROR_IO_DEVICE,
        }
    }
}
