//! `TraceLoggingProvider.h` and `TraceLoggingActivity.h`: what the macros generate, in C and C++,
//! with every installed compiler.
//!
//! ```text
//!   declarations.txt ─▶ table ─┬─▶ generate: C program ─▶ compiler ─▶ what the macros pass ──┐
//!                              ├─▶ generate_rust: Rust program ─▶ cargo ─▶ recorded events ──┤
//!                              └─▶ metadata builder of traceweir-format ─────────────────────┴─▶
//!                                                                        equal, byte for byte
//! ```
//!
//! Most programs here need no library: `hooks.h` replaces the runtime.
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
