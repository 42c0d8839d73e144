//! Atomics of the ring's words: those of the standard library, or loom's where a model runs.
//!
//! Only `ring/words.rs` uses them: it is the code that the models run. All else in this crate is plain `core`.

#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
