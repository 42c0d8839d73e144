//! Buffers that a program keeps after its buffer callback.
//!
//! ```text
//!   callback begins ── current ── increment: count 1 … ── callback ends ─┬─ count 0: memory reused
//!                                                                       └─ kept ── decrement …
//!                                                                          count 0: memory freed
//! ```
//!
//! ProcessTrace returns only after the program has released all buffers of its traces.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, PoisonError};

use traceweir::Status;

use super::aligned::AlignedBytes;
use super::lock;

/// The buffer of a running callback, or one that the program keeps.
struct ReferencedBuffer {
    handle: u64,
    count: u32,
    /// The bytes after the callback has returned; `None` while the callback runs.
    kept_bytes: Option<AlignedBytes>,
}

/// Buffers by their address.
static REFERENCES: Mutex<BTreeMap<usize, ReferencedBuffer>> = Mutex::new(BTreeMap::new());
static RELEASED: Condvar = Condvar::new();

/// The buffer of a running callback.
pub(super) struct CurrentBuffer(usize);

impl CurrentBuffer {
    pub(super) fn new(handle: u64, at: usize) -> Self {
        lock(&REFERENCES).insert(at, ReferencedBuffer { handle, count: 0, kept_bytes: None });
        Self(at)
    }

    /// Ends the callback: keeps the buffer's memory if the program holds a reference.
    pub(super) fn end_callback(self, bytes: &mut AlignedBytes) {
        let mut references = lock(&REFERENCES);
        match references.get_mut(&self.0) {
            Some(buffer) if buffer.count > 0 => buffer.kept_bytes = Some(std::mem::take(bytes)),
            _ => drop(references.remove(&self.0)),
        }
    }
}

/// Adds a reference to the buffer of the running callback.
pub(super) fn increment(handle: u64, at: usize) -> Status {
    let mut references = lock(&REFERENCES);
    match references.get_mut(&at) {
        Some(buffer) if buffer.handle == handle && buffer.kept_bytes.is_none() => {
            let Some(count) = buffer.count.checked_add(1) else { return Status::ERROR_OUTOFMEMORY };
            buffer.count = count;
            Status::ERROR_SUCCESS
        }
        _ => Status::ERROR_INVALID_PARAMETER,
    }
}

/// Removes a reference to a buffer.
pub(super) fn decrement(at: usize) -> Status {
    let mut references = lock(&REFERENCES);
    let Some(buffer) = references.get_mut(&at).filter(|buffer| buffer.count > 0) else {
        return Status::ERROR_INVALID_PARAMETER;
    };
    buffer.count = buffer.count.saturating_sub(1);
    if buffer.count == 0 && buffer.kept_bytes.is_some() {
        references.remove(&at);
        RELEASED.notify_all();
    }
    Status::ERROR_SUCCESS
}

/// Waits until the program keeps no buffer of these traces.
pub(super) fn wait_for_release(handles: &[u64]) {
    let mut references = lock(&REFERENCES);
    while references.values().any(|buffer| handles.contains(&buffer.handle)) {
        references = RELEASED.wait(references).unwrap_or_else(PoisonError::into_inner);
    }
}
