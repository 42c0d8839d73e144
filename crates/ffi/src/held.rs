//! Memory that programs hold until they free it. The addresses are recorded, so that a stale,
//! foreign or invented address is detected instead of freed.

use std::collections::BTreeSet;
use std::ffi::c_void;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The memory that one group of functions allocated. The memory of another `HeldMemory` is foreign.
#[derive(Debug)]
pub(crate) struct HeldMemory {
    addresses: Mutex<BTreeSet<usize>>,
}

impl HeldMemory {
    pub(crate) const fn new() -> Self {
        Self { addresses: Mutex::new(BTreeSet::new()) }
    }

    fn lock_addresses(&self) -> MutexGuard<'_, BTreeSet<usize>> {
        self.addresses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Allocates zeroed memory. Returns `None` if the allocation fails.
    pub(crate) fn allocate(&self, bytes: usize) -> Option<*mut c_void> {
        // SAFETY: `calloc` has no requirements on its arguments.
        let memory = unsafe { libc::calloc(bytes.max(1), 1) };
        if memory.is_null() {
            return None;
        }
        self.lock_addresses().insert(memory.addr());
        Some(memory)
    }

    /// Frees the memory at an address. Returns `false` for an address that was not
    /// allocated here or is freed already.
    pub(crate) fn free(&self, memory: *mut c_void) -> bool {
        let is_held = self.lock_addresses().remove(&memory.addr());
        if is_held {
            // SAFETY: the memory came from `calloc`, and only the thread that removed its address
            // frees it.
            unsafe { libc::free(memory) };
        }
        is_held
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_freed_once_and_only_by_its_allocator() {
        let (first, second) = (HeldMemory::new(), HeldMemory::new());
        let memory = first.allocate(10).unwrap();
        assert!(!second.free(memory));
        assert!(!first.free(memory.wrapping_byte_add(1)) && !first.free(std::ptr::null_mut()));
        assert!(first.free(memory));
        assert!(!first.free(memory));
    }
}
