//! Atomics of the words that several threads or processes share: those of the standard library, or
//! loom's for a model.
//!
//! Only `ring/words.rs` and `ring/gate.rs`, which the models run, and the models use them.
//! Everything else in this crate uses plain `core`.

#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
