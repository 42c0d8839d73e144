//! A stand-in for Microsoft's `tracelogging_dynamic` crate: the same names, recorded by [`traceweir`] on Linux.
//!
//! ```
//! use std::pin::pin;
//! use tracelogging_dynamic as tld;
//!
//! let provider = pin!(tld::Provider::new("MyCompany.MyComponent", &tld::Provider::options()));
//! // Safety: it is dropped before its memory goes.
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
//! What types and methods do is told in [`traceweir::tracelogging::dynamic`]; what differs from the original, in `compat/README.md`.

pub mod changelog;

pub use tracelogging::{
    Channel, Guid, InType, Level, NATIVE_IMPLEMENTATION, NativeImplementation, Opcode, OutType,
    ProviderEnableCallback, win_filetime_from_systemtime,
};

/// A provider made at run time.
pub type Provider = traceweir::__tlg::DynamicProviderOf<Guid>;
/// What a provider may have beside its name.
pub type ProviderOptions = traceweir::__tlg::OptionsOf<Guid>;
/// Puts events together.
pub type EventBuilder = traceweir::__tlg::BuilderOf<Guid>;
