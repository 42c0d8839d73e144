//! Atomics of the words that several threads or processes meet at: those of the standard library, or loom's where a model runs.
//!
//! Only `ring/words.rs` and `ring/gate.rs` use them: it is the code that the models run. All else in this crate is plain `core`.

#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
