//! The procedural macros of `traceweir::define_provider!` and `traceweir::write_event!`. Not to
//! be used directly: the macros of `traceweir` pass on the path of their crate.
//!
//! ```text
//!   write_event!(P, "E", …)
//!       macro_rules of `traceweir` ──▶ write_event!([$crate] P, "E", …)
//!       arguments ──parse──▶ event, fields
//!       ──emit──▶ if P.enabled(…) { static metadata; pieces of data; write } else { 0 }
//! ```
//!
//! A crate that offers the macros has a module `__tlg` with the items that the emitted code names
//! as `$crate::__tlg::…`. So the macros work under every name of the dependency, and for crates
//! that re-export them.
//!
//! The macros check names and counts. Values of options are constant expressions, which only the
//! compiler can evaluate, so `const fn`s of `traceweir_format::tracelogging` build the metadata in
//! the emitted code. The emitted code has no `unsafe`.
//!
//! `syn` is not needed: all arguments are literals, `name(…)` groups, and expressions that are
//! passed on unparsed.
#![forbid(unsafe_code)]

mod arguments;
mod constants;
mod emit;
mod event;
mod fields;
mod provider;

use proc_macro::TokenStream;

/// Defines a provider as a static.
#[proc_macro]
pub fn define_provider(input: TokenStream) -> TokenStream {
    provider::expand_define_provider(input.into()).into()
}

/// Writes an event if the provider is enabled for its level and keyword.
#[proc_macro]
pub fn write_event(input: TokenStream) -> TokenStream {
    event::expand_write_event(input.into()).into()
}
