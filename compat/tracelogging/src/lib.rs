//! A drop-in replacement for Microsoft's `tracelogging` crate: the same names, recorded by
//! [`traceweir`] on Linux.
//!
//! ```
//! use tracelogging as tlg;
//!
//! tlg::define_provider!(PROVIDER, "MyCompany.MyComponent");
//!
//! // Safety: the provider is a static, which lives until the program ends.
//! unsafe { PROVIDER.register() };
//! tlg::write_event!(PROVIDER, "Started", level(Informational), str8("by", "hand"));
//! PROVIDER.unregister();
//! ```
//!
//! [`traceweir::tracelogging`] documents the macros, types and methods; `compat/README.md` lists
//! the differences from Microsoft's crate.

pub mod _internal;
pub mod changelog;

mod guid;
#[cfg(feature = "macros")]
mod macros;

pub use guid::Guid;
pub use traceweir::tracelogging::{Channel, InType, Level, Opcode, OutType};

/// A provider made by `define_provider!`.
pub type Provider = traceweir::__tlg::ProviderWithId<Guid>;

/// Callback that runs when sessions enable or disable a provider, or request its state. See
/// [`traceweir::tracelogging::ProviderEnableCallback`].
pub type ProviderEnableCallback = traceweir::__tlg::EnableFunction<Guid>;

/// The interface through which events are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NativeImplementation {
    /// None: events are not written.
    Other,
    /// The ETW interface of user programs.
    Windows,
    /// The ETW interface of the kernel.
    WindowsKernelMode,
}

/// The interface of this crate: events go to ETW sessions. Named after the system that defines it.
pub const NATIVE_IMPLEMENTATION: NativeImplementation = NativeImplementation::Windows;

/// Converts a `std::time::SystemTime` to FILETIME (`i64`), clamped to its range.
///
/// ```
/// let start_of_1970 = std::time::SystemTime::UNIX_EPOCH;
/// assert_eq!(tracelogging::win_filetime_from_systemtime!(start_of_1970), 0x19DB1DED53E8000);
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

/// The items that the emitted code of the macros names.
#[doc(hidden)]
pub mod __tlg {
    pub use crate::{Guid, Provider};
    pub use traceweir::__tlg::*;

    /// Creates the static of `define_provider!`.
    #[must_use]
    pub const fn provider(traits: &'static [u8], id: &[u8; 16]) -> Provider {
        Provider::new(traits, Guid::from_bytes_le(id))
    }
}

#[cfg(all(test, feature = "macros"))]
mod tests {
    crate::define_provider!(INFORMED, "Traceweir.Test.Compat.Informed");

    #[test]
    fn information_is_set_unless_the_feature_set_info_off_is_on() {
        const USE_DESCRIPTOR_TYPE: u32 = 3;
        const E_NOT_SUPPORTED: u32 = 0x8007_0032;
        // SAFETY: the provider is a static, which is never dropped.
        assert_eq!(unsafe { INFORMED.register() }, 0);
        let result = INFORMED.set_information(USE_DESCRIPTOR_TYPE, &[1]).cast_unsigned();
        assert_eq!(result, if cfg!(feature = "set-info-off") { E_NOT_SUPPORTED } else { 0 });
        assert_eq!(INFORMED.unregister(), 0);
    }
}
