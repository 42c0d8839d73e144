//! What tdh.h asks: schemas, maps, properties and lists of providers, in the structures that it publishes.
//!
//! ```text
//!   Event ──▶ Library ──▶ Known ──▶ Image       TRACE_EVENT_INFO, made once for each schema (questions)
//!               │           └─────▶ property    the bytes of one field in a payload
//!               │           └─────▶ map         EVENT_MAP_INFO
//!               ├─ lists                        providers, keywords, levels, events …
//!               └─ filter                       payload filters, by the fields that a manifest describes
//!   value                                       one value as text, without any schema
//! ```
//!
//! Everything here is bytes and numbers: pointers, buffers that are too small and handles are the C library's business. Offsets in the structures count from
//! their start, 0 is "none", texts are terminated UTF-16.
//!
//! Invariants: what is made of a schema is bounded by [`MAX_ANSWER`]; texts that a schema repeats stand once. Payloads are walked with the bounds of
//! [`walk`](crate::walk).
//!
//! Source: Documented ("TRACE_EVENT_INFO", "EVENT_PROPERTY_INFO", "EVENT_MAP_INFO", "PROVIDER_ENUMERATION_INFO", "PROVIDER_FIELD_INFOARRAY",
//! "PROVIDER_EVENT_INFO", "PROVIDER_FILTER_INFO").

mod expand;
pub mod filter;
mod image;
mod library;
mod lists;
mod property;
mod questions;
#[cfg(test)]
mod tests;
mod texts;
mod value;
mod wpp;

pub use image::{Image, Open};
pub use library::{Library, Origin};
pub use lists::FieldKind;
pub use property::Wanted;
pub use value::{One, decode_one, names_of};
pub use wpp::{Messages, Said};

use traceweir_format::spec::status::Status;

use crate::error::{Error, Undecoded};

/// The largest structure that is handed out.
pub const MAX_ANSWER: usize = 4 << 20;

/// Why something is not answered.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The event, or its payload, cannot be decoded.
    #[error(transparent)]
    Undecoded(#[from] Undecoded),
    /// A manifest, program or message file that cannot be used.
    #[error(transparent)]
    Unusable(#[from] Error),
    /// There is no such thing.
    #[error("there is no {0}")]
    NotFound(&'static str),
    /// There is no file that would describe the provider.
    #[error("nothing describes this provider: load its manifest")]
    NoMetadata,
    /// The provider's manifest describes no events.
    #[error("the manifest describes no events")]
    Empty,
    /// The question makes no sense.
    #[error("{0}")]
    Invalid(&'static str),
    /// There are no fields of this kind.
    #[error("there is no such kind of field")]
    NoSuchKind,
    /// The payload does not fit, or a map has no name for the value.
    #[error("{0}")]
    Data(&'static str),
    /// A program without a compiled manifest.
    #[error("the file is no program with event metadata")]
    NoResource,
    /// There is no such file.
    #[error("there is no such file")]
    NoFile,
    /// The file may not be read.
    #[error("the file may not be read")]
    NotPermitted,
    /// A filter that no enable takes.
    #[error("the filter is larger than an enable takes")]
    TooLong,
    /// The answer would be larger than anybody can use.
    #[error("the answer is too large")]
    TooLarge,
}

impl Refusal {
    /// Whether nothing is known of the event at all, so that somebody else may be asked.
    #[must_use]
    pub fn is_ignorance(&self) -> bool {
        matches!(self, Self::Undecoded(Undecoded::NoSchema))
    }

    /// The Win32 status that the published functions return in this case.
    #[must_use]
    pub fn status(&self) -> Status {
        match self {
            Self::Undecoded(why) => why.status(),
            Self::Unusable(why) => why.status(),
            Self::NotFound(_) => Status::ERROR_NOT_FOUND,
            Self::NoResource => Status::ERROR_RESOURCE_NOT_FOUND,
            Self::NotPermitted => Status::ERROR_ACCESS_DENIED,
            Self::NoMetadata | Self::NoFile => Status::ERROR_FILE_NOT_FOUND,
            Self::Empty => Status::ERROR_EMPTY,
            Self::Invalid(_) => Status::ERROR_INVALID_PARAMETER,
            Self::NoSuchKind => Status::ERROR_NOT_SUPPORTED,
            Self::Data(_) => Status::ERROR_EVT_INVALID_EVENT_DATA,
            Self::TooLong => Status::ERROR_INSUFFICIENT_BUFFER,
            Self::TooLarge => Status::ERROR_NOT_ENOUGH_MEMORY,
        }
    }
}

/// What a question is answered with.
pub type Answer<T> = Result<T, Refusal>;
