//! The calls that threads are in, between entry and exit.
//!
//! A thread is in one call at a time. An entry whose exit was lost is written over by the next. What is remembered is bounded: a full table is emptied.

use std::collections::HashMap;

/// Threads that may be in a call.
const MAX_CALLS: usize = 1 << 16;

/// What its end means.
#[derive(Debug)]
pub(super) enum What {
    /// Nothing more.
    Nothing,
    Open {
        key: u64,
        flags: Option<u32>,
        is_told: bool,
        path: Option<Box<str>>,
    },
    /// Up to two openings, with whether each is written to and moves.
    Transfer([Option<Moving>; 2]),
    Seek {
        key: u64,
    },
    Share {
        from: u32,
        closes_on_exec: bool,
    },
}

/// An opening whose position moves by a transfer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moving {
    pub(super) key: u64,
    pub(super) is_write: bool,
}

/// A call that a thread is in.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) what: What,
    /// Operations that it makes; 0: none.
    pub(super) irps: [u64; 2],
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Calls {
    pub(super) by_thread: HashMap<u32, Call>,
    last_irp: u64,
    /// A probe tells paths: starts of open calls wait for it.
    pub(super) has_probe: bool,
}

impl Calls {
    /// The number of an operation.
    pub(super) fn next_irp(&mut self) -> u64 {
        self.last_irp = self.last_irp.wrapping_add(1);
        self.last_irp
    }

    /// A thread has ended.
    pub(super) fn forget(&mut self, thread: u32) {
        self.by_thread.remove(&thread);
    }

    /// Nothing is known of any thread.
    pub(super) fn forget_all(&mut self) {
        self.by_thread.clear();
    }

    pub(super) fn begin(&mut self, thread: u32, what: What, irps: [u64; 2]) {
        if self.by_thread.len() >= MAX_CALLS {
            self.by_thread.clear();
        }
        self.by_thread.insert(thread, Call { what, irps });
    }
}
