//! The atomic types of the standard library or, in loom models, those of loom.
//!
//! `ring/words.rs`, `ring/gate.rs` and the models that run their code use these types. All other
//! code in this crate uses the atomics of `core`.

#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
