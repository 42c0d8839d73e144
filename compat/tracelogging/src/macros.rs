//! The macros under the name of this crate.

/// Defines a provider as a static. See [`traceweir::define_provider!`].
#[macro_export]
macro_rules! define_provider {
    ($($arguments:tt)*) => { $crate::__tlg::define_provider!{ [$crate] $($arguments)* } };
}

/// Writes an event if a session enables it. See [`traceweir::write_event!`].
#[macro_export]
macro_rules! write_event {
    ($($arguments:tt)*) => { $crate::__tlg::write_event!{ [$crate] $($arguments)* } };
}

/// Returns whether an event of this level and keyword would be written. See
/// [`traceweir::provider_enabled!`].
#[macro_export]
macro_rules! provider_enabled {
    ($($arguments:tt)*) => { $crate::__tlg::provider_enabled!{ $($arguments)* } };
}
