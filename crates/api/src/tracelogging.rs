//! TraceLogging: self-describing events, through macros with the syntax of Microsoft's
//! `tracelogging` crate.
//!
//! ```text
//!   define_provider!(SYMBOL, "Name", options…)          a static Provider, not registered yet
//!   write_event!(SYMBOL, "Event", options, fields…)     u32: a Win32 status, 0 also while no
//!                                                       session wants the event
//!   provider_enabled!(SYMBOL, level, keyword)           bool: whether a session may want such an
//!                                                       event
//! ```
//!
//! | File | Contents |
//! |---|---|
//! | `context` | the enable state, which every event checks; registration |
//! | `provider` | the provider of `define_provider!` |
//! | [`dynamic`] | providers and events that are built at run time |
//! | `ids` | functions for activity ids and provider ids, which both kinds of providers offer |
//! | `types` | levels, opcodes, channels, in and out types |
//! | `values` | values as bytes |
//! | `macros` | the macros, which call the crate `traceweir-macros` |
//!
//! ```
//! use traceweir::{define_provider, write_event};
//!
//! define_provider!(LUNCH, "Example.Lunch");
//!
//! // SAFETY: the provider is a static of the program, which is never unloaded.
//! unsafe { LUNCH.register() };
//! let (dish, guests) = ("soup", 2_u32);
//! write_event!(
//!     LUNCH,
//!     "Served",
//!     level(Informational),
//!     keyword(0x10),
//!     str8("dish", dish),
//!     u32("guests", &guests),
//! );
//! LUNCH.unregister();
//! ```
//!
//! Values are evaluated once, and only if a session may want the event. An event without a keyword
//! has keyword 1.

pub mod dynamic;

mod context;
mod ids;
mod macros;
mod provider;
mod types;
mod values;

pub use context::{FilterDescriptor, ProviderEnableCallback};
pub use provider::Provider;
pub use types::{Channel, InType, Level, Opcode, OutType};
pub use values::filetime_from_systemtime;

pub use crate::{define_provider, provider_enabled, write_event};

/// Items for the macros and for crates that re-export the macros. Not for direct use: they change
/// without notice.
#[doc(hidden)]
pub mod __tlg {
    pub use crate::provider_enabled;
    pub use traceweir_format::Guid;
    pub use traceweir_format::spec::event::EventDescriptor;
    pub use traceweir_format::tracelogging::{FieldMetadata, encode_metadata, metadata_size};
    pub use traceweir_macros::{define_provider, write_event};
    #[cfg(not(any(windows, traceweir_win32)))]
    pub use traceweir_session::config::new_guid;

    pub use crate::event::Block;
    #[cfg(any(windows, traceweir_win32))]
    pub use crate::windows::new_guid;

    pub use super::context::{Context, EnableFunction};
    pub use super::dynamic::{
        EventBuilderWithId, ProviderOptionsWithId, ProviderWithId as DynamicProviderWithId,
    };
    pub use super::macros::{checked_size, descriptor, tag};
    pub use super::provider::{Provider, ProviderWithId, provider, write};
    pub use super::types::{Channel, InType, Level, Opcode, OutType};
    pub use super::values::{
        ActivityId, Id, Packed, Plain, activity, bytes, counted, counted_size, elements,
        filetime_from_duration_after_1970, filetime_from_duration_before_1970, filetime_from_systemtime,
        filetime_from_time32, filetime_from_time64, sid, slice_count, until_zero,
    };
}
