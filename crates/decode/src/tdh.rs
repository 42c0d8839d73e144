//! The queries of tdh.h: schemas, maps, properties and lists of providers, in the documented
//! structures.
//!
//! ```text
//!   LookupEvent ─▶ Library ─▶ QueryDecoder ─▶ EventInfo  TRACE_EVENT_INFO, once for each schema
//!                    │          ├────▶ property   the bytes of one field in a payload
//!                    │          └────▶ map        EVENT_MAP_INFO
//!                    ├─ lists                     providers, keywords, levels, events …
//!                    └─ filter                    payload filters on fields of manifests
//!   value                                         one value as text, without any schema
//! ```
//!
//! This module handles bytes and numbers only. The C library handles pointers, buffers that are too
//! small, and object handles. An offset in a structure counts from the start of the structure; 0
//! means "none". Texts are NUL-terminated UTF-16.
//!
//! Invariants: [`MAX_ANSWER_BYTES`] bounds each structure that is built from a schema; a text that
//! a schema repeats is stored once, except in keyword lists and maps. Payloads are walked within
//! the bounds of [`walk`](crate::walk).
//!
//! Source: Documented ("TRACE_EVENT_INFO", "EVENT_PROPERTY_INFO", "EVENT_MAP_INFO",
//! "PROVIDER_ENUMERATION_INFO", "PROVIDER_FIELD_INFOARRAY", "PROVIDER_EVENT_INFO",
//! "PROVIDER_FILTER_INFO").

mod event_info;
pub mod filter;
mod library;
mod listed;
mod lists;
mod property;
mod query;
#[cfg(test)]
mod tests;
mod texts;
mod value;
mod wpp;

pub use event_info::{EventInfo, OpenProperty};
pub use library::{FOLDERS_VARIABLE, INSTALL_FOLDERS, Library, ManifestOrigin, read_installed_manifests};
pub use lists::EventFieldType;
pub use property::PropertyStep;
pub use query::QueryDecoder;
pub use value::{DecodedValue, decode_value, map_names};
pub use wpp::{MessageFacts, WppMessages};

use traceweir_format::spec::status::Status;

use crate::error::{Error, Undecoded};

/// The size limit of an encoded structure, in bytes.
pub const MAX_ANSWER_BYTES: usize = 4 << 20;

/// The reason why a query has no answer.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The event or its payload cannot be decoded.
    #[error(transparent)]
    Undecoded(#[from] Undecoded),
    /// A manifest, program or message file is not usable.
    #[error(transparent)]
    Unusable(#[from] Error),
    /// The named property, map, format or element does not exist.
    #[error("{0}")]
    NotFound(&'static str),
    /// No loaded or installed file describes the provider.
    #[error("nothing describes this provider: load its manifest")]
    NoMetadata,
    /// The provider's manifest describes no events.
    #[error("the manifest describes no events")]
    Empty,
    /// The arguments of the query are not valid.
    #[error("{0}")]
    Invalid(&'static str),
    /// The number is not an EVENT_FIELD_TYPE.
    #[error("there is no such kind of field")]
    NoSuchKind,
    /// The payload does not fit its schema, or a map has no name for the value.
    #[error("{0}")]
    Data(&'static str),
    /// The file is not a program with a compiled manifest.
    #[error("the file is not a program with event metadata")]
    NoResource,
    /// The file does not exist.
    #[error("there is no such file")]
    NoFile,
    /// The process has no permission to read the file.
    #[error("no permission to read the file")]
    NotPermitted,
    /// The filter is larger than an enable request accepts.
    #[error("the filter is larger than an enable accepts")]
    FilterTooLarge,
    /// The answer would be larger than [`MAX_ANSWER_BYTES`].
    #[error("the answer is too large")]
    AnswerTooLarge,
}

impl Refusal {
    /// Returns whether the event has no schema at all, so that the caller may try another source.
    #[must_use]
    pub fn is_missing_schema(&self) -> bool {
        matches!(self, Self::Undecoded(Undecoded::NoSchema))
    }

    /// Returns the Win32 status that the documented functions return in this case.
    #[must_use]
    pub fn status(&self) -> Status {
        match self {
            Self::Undecoded(reason) => reason.status(),
            Self::Unusable(reason) => reason.status(),
            Self::NotFound(_) => Status::ERROR_NOT_FOUND,
            Self::NoResource => Status::ERROR_RESOURCE_NOT_FOUND,
            Self::NotPermitted => Status::ERROR_ACCESS_DENIED,
            Self::NoMetadata | Self::NoFile => Status::ERROR_FILE_NOT_FOUND,
            Self::Empty => Status::ERROR_EMPTY,
            Self::Invalid(_) => Status::ERROR_INVALID_PARAMETER,
            Self::NoSuchKind => Status::ERROR_NOT_SUPPORTED,
            Self::Data(_) => Status::ERROR_EVT_INVALID_EVENT_DATA,
            Self::FilterTooLarge => Status::ERROR_INSUFFICIENT_BUFFER,
            Self::AnswerTooLarge => Status::ERROR_NOT_ENOUGH_MEMORY,
        }
    }
}

/// The result of a query.
pub type Answer<T> = Result<T, Refusal>;
