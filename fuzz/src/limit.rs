//! An allocator that aborts on requests of more than 128 MiB.
//!
//! libFuzzer's own `-malloc_limit_mb` needs a sanitizer runtime; this allocator works without one.
//! No valid input needs so much: the largest valid buffer has 16 MiB, and a growing vector at most
//! doubles its size.

use std::alloc::{GlobalAlloc, Layout, System};
use std::process::abort;

const MAX_ALLOCATION_BYTES: usize = 128 << 20;

struct LimitedAllocator;

#[global_allocator]
static ALLOCATOR: LimitedAllocator = LimitedAllocator;

fn abort_if_too_large(size: usize) {
    if size > MAX_ALLOCATION_BYTES {
        // A panic would allocate. The stack trace in the report shows the caller.
        abort();
    }
}

// SAFETY: every call is passed on to the system allocator with unchanged arguments, so its
// guarantees hold.
unsafe impl GlobalAlloc for LimitedAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        abort_if_too_large(layout.size());
        // SAFETY: the caller passes a layout of non-zero size, which `System` gets unchanged.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        abort_if_too_large(layout.size());
        // SAFETY: the caller passes a layout of non-zero size, which `System` gets unchanged.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        abort_if_too_large(new_size);
        // SAFETY: `ptr` came from `System` with `layout`, as every pointer of this allocator does,
        // and the caller passes a new size that is not zero and does not overflow.
        unsafe { System.realloc(ptr, layout, new_size) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: `ptr` came from `System` with `layout`, as every pointer of this allocator does.
        unsafe { System.dealloc(ptr, layout) }
    }
}
