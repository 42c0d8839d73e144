//! Memory that programs hold until they give it back. Which addresses those are is known, so that a stale, foreign or invented one is found out instead of freed.

use std::collections::BTreeSet;
use std::ffi::c_void;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Memory of one kind: what another kind made is foreign to it.
#[derive(Debug)]
pub(crate) struct Held {
    addresses: Mutex<BTreeSet<usize>>,
}

impl Held {
    pub(crate) const fn new() -> Self {
        Self { addresses: Mutex::new(BTreeSet::new()) }
    }

    fn locked(&self) -> MutexGuard<'_, BTreeSet<usize>> {
        self.addresses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// So many bytes, all of them 0; `None` where there is no memory.
    pub(crate) fn make(&self, bytes: usize) -> Option<*mut c_void> {
        // SAFETY: no more than a number of bytes is asked for.
        let made = unsafe { libc::calloc(bytes.max(1), 1) };
        if made.is_null() {
            return None;
        }
        self.locked().insert(made.addr());
        Some(made)
    }

    /// Frees what is held; `false` where nothing is held at this address.
    pub(crate) fn give_back(&self, memory: *mut c_void) -> bool {
        let is_held = self.locked().remove(&memory.addr());
        if is_held {
            // SAFETY: it came from `calloc`, and whoever took its address out of the list is the only one to free it.
            unsafe { libc::free(memory) };
        }
        is_held
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_given_back_once_and_to_where_it_came_from() {
        let (one, other) = (Held::new(), Held::new());
        let made = one.make(10).unwrap();
        assert!(!other.give_back(made));
        assert!(!one.give_back(made.wrapping_byte_add(1)) && !one.give_back(std::ptr::null_mut()));
        assert!(one.give_back(made));
        assert!(!one.give_back(made));
    }
}
