//! Buffers that a program keeps beyond its buffer callback.
//!
//! ```text
//!   callback begins ── current ── increment: count 1 … ── callback ends ─┬─ count 0: the memory is used again
//!                                                                       └─ kept ── decrement … count 0: freed
//! ```
//!
//! ProcessTrace returns when nothing of its traces is kept any more.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, PoisonError};

use traceweir::Status;

use super::aligned::Aligned;
use super::handles::locked;

struct Reference {
    handle: u64,
    count: u32,
    /// Once the callback has returned; nothing while it runs.
    kept: Option<Aligned>,
}

/// By address of the buffer.
static REFERENCES: Mutex<BTreeMap<usize, Reference>> = Mutex::new(BTreeMap::new());
static RELEASED: Condvar = Condvar::new();

/// The buffer of a callback that runs.
pub(super) struct Current(usize);

impl Current {
    pub(super) fn new(handle: u64, at: usize) -> Self {
        locked(&REFERENCES).insert(at, Reference { handle, count: 0, kept: None });
        Self(at)
    }

    /// The callback has returned: keeps the buffer's memory if the program wants it.
    pub(super) fn end(self, bytes: &mut Aligned) {
        let mut references = locked(&REFERENCES);
        match references.get_mut(&self.0) {
            Some(reference) if reference.count > 0 => reference.kept = Some(std::mem::take(bytes)),
            _ => drop(references.remove(&self.0)),
        }
    }
}

/// Keeps the buffer of the callback that runs.
pub(super) fn increment(handle: u64, at: usize) -> Status {
    let mut references = locked(&REFERENCES);
    match references.get_mut(&at) {
        Some(reference) if reference.handle == handle && reference.kept.is_none() => {
            let Some(count) = reference.count.checked_add(1) else { return Status::ERROR_OUTOFMEMORY };
            reference.count = count;
            Status::ERROR_SUCCESS
        }
        _ => Status::ERROR_INVALID_PARAMETER,
    }
}

/// Gives a buffer back.
pub(super) fn decrement(at: usize) -> Status {
    let mut references = locked(&REFERENCES);
    let Some(reference) = references.get_mut(&at).filter(|reference| reference.count > 0) else {
        return Status::ERROR_INVALID_PARAMETER;
    };
    reference.count = reference.count.saturating_sub(1);
    if reference.count == 0 && reference.kept.is_some() {
        references.remove(&at);
        RELEASED.notify_all();
    }
    Status::ERROR_SUCCESS
}

/// Waits until nothing of these traces is kept.
pub(super) fn wait_for_release(handles: &[u64]) {
    let mut references = locked(&REFERENCES);
    while references.values().any(|reference| handles.contains(&reference.handle)) {
        references = RELEASED.wait(references).unwrap_or_else(PoisonError::into_inner);
    }
}
