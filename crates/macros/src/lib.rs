//! The procedures behind `traceweir::define_provider!` and `traceweir::write_event!`. Not to be used directly: `traceweir` passes its own name along.
//!
//! ```text
//!   write_event!(P, "E", …)  ──macro_rules of `traceweir`──▶  write_event!([$crate] P, "E", …)
//!        arguments ──parse──▶ event, fields ──emit──▶  if P.enabled(…) { static metadata; pieces of data; write } else { 0 }
//! ```
//!
//! Whoever offers the macros has a module `__tlg` with what the emitted code names: `$crate::__tlg::…`. So they work under every name that a dependency may have, and
//! for crates that offer them as their own.
//!
//! Names and counts are checked here; values of options are constant expressions, which only the compiler can evaluate, so the metadata are put together by
//! `const fn`s of `traceweir_format::tracelogging` in the emitted code. The emitted code has no `unsafe`.
//!
//! `syn` is not needed: all arguments are literals, `name(…)` groups, and expressions that are passed on unread.
#![forbid(unsafe_code)]

mod arguments;
mod constants;
mod emit;
mod event;
mod fields;
mod provider;

use proc_macro::TokenStream;

/// A provider as a static.
#[proc_macro]
pub fn define_provider(input: TokenStream) -> TokenStream {
    provider::define(input.into()).into()
}

/// An event, written if anybody listens.
#[proc_macro]
pub fn write_event(input: TokenStream) -> TokenStream {
    event::write(input.into()).into()
}
