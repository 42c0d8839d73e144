//! Errors of loading a schema, and reasons why an event could not be decoded.

use traceweir_format::spec::status::Status;

/// The result of loading a schema.
pub type Result<T, E = Error> = core::result::Result<T, E>;

/// A manifest, binary, TMF or metadata blob that cannot be used.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Bytes end early or hold impossible values.
    #[error(transparent)]
    Format(#[from] traceweir_format::Error),
    /// The text is not well-formed XML, or not a manifest.
    #[error("manifest is not valid at byte {offset}: {reason}")]
    Xml {
        /// Byte offset in the XML.
        offset: u64,
        /// Describes the mistake.
        reason: String,
    },
    /// A PE, ELF or PDB file without event metadata.
    #[error("no event metadata: {0}")]
    NoMetadata(String),
    /// A PE, ELF or PDB file that cannot be read.
    #[error("unreadable binary: {0}")]
    Binary(String),
    /// A TMF file with a line that cannot be understood.
    #[error("TMF line {line}: {reason}")]
    Tmf {
        /// 1-based line number; 0 means the complete file.
        line: usize,
        /// Describes the mistake.
        reason: &'static str,
    },
    /// A line of a file with short schemas that cannot be understood.
    #[error("short schema, line {line}: {reason}")]
    ShortSchema {
        /// 1-based line number; 0 means the complete file.
        line: u64,
        /// Describes the mistake.
        reason: String,
    },
    /// A schema that contradicts itself or exceeds a bound.
    #[error("schema is not usable: {0}")]
    Schema(&'static str),
}

impl Error {
    /// Returns the Win32 status that the documented functions return for this error.
    #[must_use]
    pub fn status(&self) -> Status {
        match self {
            Self::Format(e) => e.status(),
            Self::Xml { .. } => Status::ERROR_XML_PARSE_ERROR,
            Self::NoMetadata(_) => Status::ERROR_RESOURCE_NOT_FOUND,
            Self::Binary(_) | Self::Tmf { .. } | Self::ShortSchema { .. } | Self::Schema(_) => {
                Status::ERROR_INVALID_PARAMETER
            }
        }
    }
}

/// The reason why an event has no decoded fields, or not all of them.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Undecoded {
    /// No schema source describes the event.
    #[error("no schema for this event")]
    NoSchema,
    /// A kernel event of a group or type without a published layout.
    #[error("no published layout for kernel event {hook:#06x} version {version}")]
    NoKernelLayout {
        /// Group in the high byte and type in the low byte.
        hook: u16,
        /// Version of the layout.
        version: u8,
    },
    /// No TMF file or PDB describes this WPP message.
    #[error("no message format for this WPP event")]
    NoMessageFormat,
    /// The schema that comes with the event is not usable.
    #[error("metadata of the event is not usable: {0}")]
    BadMetadata(#[from] Error),
    /// The payload ends inside a field.
    #[error("payload ends inside field {field} at byte {offset}")]
    PayloadTooShort {
        /// Name of the field.
        field: String,
        /// Byte offset of the field in the payload.
        offset: usize,
    },
    /// A field has an impossible count or length, or an unknown type.
    #[error("field {field} at byte {offset}: {reason}")]
    BadField {
        /// Name of the field.
        field: String,
        /// Byte offset of the field in the payload.
        offset: usize,
        /// Describes the mistake.
        reason: &'static str,
    },
    /// The decoded payload is larger than the visitor accepts.
    #[error("too large to show")]
    TooLarge,
    /// The record type has no published layout.
    #[error("record type {0} has no published layout")]
    UnknownRecord(u8),
}

impl Undecoded {
    /// Returns the Win32 status that the documented functions return in this case.
    #[must_use]
    pub fn status(&self) -> Status {
        match self {
            Self::NoSchema | Self::NoKernelLayout { .. } | Self::NoMessageFormat | Self::UnknownRecord(_) => {
                Status::ERROR_NOT_FOUND
            }
            Self::BadMetadata(e) => e.status(),
            Self::TooLarge => Status::ERROR_MORE_DATA,
            Self::PayloadTooShort { .. } | Self::BadField { .. } => Status::ERROR_EVT_INVALID_EVENT_DATA,
        }
    }
}
