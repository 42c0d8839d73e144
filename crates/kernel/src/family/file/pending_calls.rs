//! System calls in progress: those that a thread has entered and not left.
//!
//! A thread is in one call at a time. An entry whose exit was lost is replaced by the next. The
//! table is bounded: a full one is emptied.

use std::collections::HashMap;

/// The most calls in progress.
const MAX_CALLS: usize = 1 << 16;

/// The change that a successful call makes.
#[derive(Debug)]
pub(super) enum CallEffect {
    Nothing,
    Open {
        key: u64,
        flags: Option<u32>,
        /// Whether the start event has been written.
        is_written: bool,
        path: Option<Box<str>>,
    },
    /// A transfer that advances the positions of up to two open files.
    Transfer([Option<Advance>; 2]),
    Seek {
        key: u64,
    },
    Dup {
        from: u32,
        closes_on_exec: bool,
    },
}

/// An open file whose position a transfer advances.
#[derive(Clone, Copy, Debug)]
pub(super) struct Advance {
    pub(super) key: u64,
    pub(super) is_write: bool,
}

#[derive(Debug)]
pub(super) struct PendingCall {
    pub(super) effect: CallEffect,
    /// Numbers of the operations that it started; 0 for none.
    pub(super) irps: [u64; 2],
}

/// The calls in progress of all threads.
#[derive(Debug, Default)]
pub(super) struct PendingCalls {
    pub(super) by_thread: HashMap<u32, PendingCall>,
    last_irp: u64,
    /// Whether a probe reports paths: the start events of open calls wait for it.
    pub(super) has_probe: bool,
}

impl PendingCalls {
    /// Returns a new number for an operation.
    pub(super) fn next_irp(&mut self) -> u64 {
        self.last_irp = self.last_irp.wrapping_add(1);
        self.last_irp
    }

    pub(super) fn remove(&mut self, thread: u32) {
        self.by_thread.remove(&thread);
    }

    pub(super) fn clear(&mut self) {
        self.by_thread.clear();
    }

    pub(super) fn insert(&mut self, thread: u32, effect: CallEffect, irps: [u64; 2]) {
        if self.by_thread.len() >= MAX_CALLS {
            self.by_thread.clear();
        }
        self.by_thread.insert(thread, PendingCall { effect, irps });
    }
}
