//! The macros under this crate's name.

/// Makes a static provider. See [`traceweir::define_provider!`].
#[macro_export]
macro_rules! define_provider {
    ($($arguments:tt)*) => { $crate::__tlg::define_provider!{ [$crate] $($arguments)* } };
}

/// Writes an event if any session wants it. See [`traceweir::write_event!`].
#[macro_export]
macro_rules! write_event {
    ($($arguments:tt)*) => { $crate::__tlg::write_event!{ [$crate] $($arguments)* } };
}

/// Whether an event of this level and keyword would be written. See [`traceweir::provider_enabled!`].
#[macro_export]
macro_rules! provider_enabled {
    ($($arguments:tt)*) => { $crate::__tlg::provider_enabled!{ $($arguments)* } };
}
