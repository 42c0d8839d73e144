//! A stand-in for Microsoft's `tracelogging` crate: the same names, recorded by [`traceweir`] on Linux.
//!
//! ```
//! use tracelogging as tlg;
//!
//! tlg::define_provider!(PROVIDER, "MyCompany.MyComponent");
//!
//! // Safety: the program ends before the memory of its statics does.
//! unsafe { PROVIDER.register() };
//! tlg::write_event!(PROVIDER, "Started", level(Informational), str8("by", "hand"));
//! PROVIDER.unregister();
//! ```
//!
//! What macros, types and methods do is told in [`traceweir::tracelogging`]; what differs from the original, in `compat/README.md`.

pub mod _internal;
pub mod changelog;

mod guid;
#[cfg(feature = "macros")]
mod macros;

pub use guid::Guid;
pub use traceweir::tracelogging::{Channel, InType, Level, Opcode, OutType};

/// A provider made by `define_provider!`.
pub type Provider = traceweir::__tlg::ProviderOf<Guid>;

/// Told when sessions enable or disable a provider, or ask for its state. See [`traceweir::tracelogging::ProviderEnableCallback`].
pub type ProviderEnableCallback = traceweir::__tlg::EnableFunction<Guid>;

/// Where events go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NativeImplementation {
    /// Nowhere.
    Other,
    /// To sessions, by the interface of user programs.
    Windows,
    /// To sessions, by the interface of the kernel.
    WindowsKernelMode,
}

/// Where events go here: to sessions. Named after the system whose interface it is.
pub const NATIVE_IMPLEMENTATION: NativeImplementation = NativeImplementation::Windows;

/// A `std::time::SystemTime` as FILETIME (`i64`), the first or last there is where it is out of range.
///
/// ```
/// assert_eq!(tracelogging::win_filetime_from_systemtime!(std::time::SystemTime::UNIX_EPOCH), 0x19DB1DED53E8000);
/// ```
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

/// What the macros name.
#[doc(hidden)]
pub mod __tlg {
    pub use crate::{Guid, Provider};
    pub use traceweir::__tlg::*;

    /// For `define_provider!`.
    #[must_use]
    pub const fn provider(traits: &'static [u8], id: &[u8; 16]) -> Provider {
        Provider::new(traits, Guid::from_bytes_le(id))
    }
}
