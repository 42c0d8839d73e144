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
    ProviderEnableCallback,
};

/// A provider made at run time.
pub type Provider = traceweir::__tlg::DynamicProviderOf<Guid>;
/// What a provider may have beside its name.
pub type ProviderOptions = traceweir::__tlg::OptionsOf<Guid>;
/// Puts events together.
pub type EventBuilder = traceweir::__tlg::BuilderOf<Guid>;

#[doc(hidden)]
pub use tracelogging::_internal;

/// A `std::time::SystemTime` as FILETIME (`i64`), the first or last there is where it is out of range.
#[macro_export]
macro_rules! win_filetime_from_systemtime {
    ($time:expr) => {
        match $time.duration_since(::std::time::SystemTime::UNIX_EPOCH) {
            ::core::result::Result::Ok(after) => $crate::_internal::filetime_from_duration_after_1970(after),
            ::core::result::Result::Err(before) => {
                $crate::_internal::filetime_from_duration_before_1970(before.duration())
            }
        }
    };
}
