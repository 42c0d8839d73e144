//! Memory that programs hold until they free it. The addresses are recorded, so that a stale,
//! foreign or invented address is detected instead of freed.

use std::collections::BTreeSet;
use std::ffi::c_void;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Memory of one kind. Addresses that another kind allocated are foreign to it.
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

    /// Allocates zeroed memory. Returns `None` if there is not enough.
    pub(crate) fn allocate(&self, bytes: usize) -> Option<*mut c_void> {
        // SAFETY: `calloc` has no requirements on its arguments.
        let made = unsafe { libc::calloc(bytes.max(1), 1) };
        if made.is_null() {
            return None;
        }
        self.locked().insert(made.addr());
        Some(made)
    }

    /// Frees the memory at an address. Returns `false` if none is held there.
    pub(crate) fn give_back(&self, memory: *mut c_void) -> bool {
        let is_held = self.locked().remove(&memory.addr());
        if is_held {
            // SAFETY: it came from `calloc`, and only the thread that removed its address frees it.
            unsafe { libc::free(memory) };
        }
        is_held
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_freed_once_and_only_by_its_own_kind() {
        let (one, other) = (Held::new(), Held::new());
        let made = one.allocate(10).unwrap();
        assert!(!other.give_back(made));
        assert!(!one.give_back(made.wrapping_byte_add(1)) && !one.give_back(std::ptr::null_mut()));
        assert!(one.give_back(made));
        assert!(!one.give_back(made));
    }
}
