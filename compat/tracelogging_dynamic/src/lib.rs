//! A drop-in replacement for Microsoft's `tracelogging_dynamic` crate: the same names, recorded by
//! [`traceweir`] on Linux.
//!
//! ```
//! use std::pin::pin;
//! use tracelogging_dynamic as tld;
//!
//! let provider = pin!(tld::Provider::new("MyCompany.MyComponent", &tld::Provider::options()));
//! // Safety: the provider is dropped before its memory is freed.
//! unsafe { provider.as_ref().register() };
//! let mut builder = tld::EventBuilder::new();
//! if provider.enabled(tld::Level::Warning, 0x123) {
//!     builder
//!         .reset("Started", tld::Level::Warning, 0x123, 0)
//!         .add_str8("by", "hand", tld::OutType::Utf8, 0)
//!         .write(&provider, None, None);
//! }
//! ```
//!
//! [`traceweir::tracelogging::dynamic`] documents the types and methods; `compat/README.md` lists
//! the differences from Microsoft's crate.

pub mod changelog;

pub use tracelogging::{
    Channel, Guid, InType, Level, NATIVE_IMPLEMENTATION, NativeImplementation, Opcode, OutType,
    ProviderEnableCallback, win_filetime_from_systemtime,
};

/// A provider whose name is chosen at run time.
pub type Provider = traceweir::__tlg::DynamicProviderWithId<Guid>;
/// Options of a provider other than its name.
pub type ProviderOptions = traceweir::__tlg::ProviderOptionsWithId<Guid>;
/// Builds and writes events with fields chosen at run time.
pub type EventBuilder = traceweir::__tlg::EventBuilderWithId<Guid>;
