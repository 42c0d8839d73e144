//! `TraceLoggingProvider.h` and `TraceLoggingActivity.h`: what the macros make, in C and C++, with every compiler that is here.
//!
//! ```text
//!   declarations.txt ─▶ table ─┬─▶ generate: a C program ─▶ compiler ─▶ what the macros hand over ─┐
//!                              ├─▶ generate_rust: a Rust program ─▶ cargo ─▶ what a session records ┤
//!                              └─▶ the metadata builder of traceweir-format ──────────────────────┴─▶ equal, byte for byte
//! ```
//!
//! Most programs here need no library: `hooks.h` stands where the runtime would.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects
)]

mod activity;
mod checked;
mod compiler;
mod forms;
mod generate;
mod generate_rust;
mod kinds;
mod metadata;
mod numbers;
mod recorded;
mod rules;
mod rust;
#[path = "../support/mod.rs"]
mod support;
mod table;
