//! An allocator that aborts on absurd requests.
//!
//! libFuzzer's own `-malloc_limit_mb` needs a sanitizer runtime; this works without one. The
//! reader's largest valid buffer has 16 MiB, and growing one doubles it.

use std::alloc::{GlobalAlloc, Layout, System};
use std::process::abort;

const LARGEST: usize = 128 << 20;

struct Limited;

#[global_allocator]
static ALLOCATOR: Limited = Limited;

fn check(size: usize) {
    if size > LARGEST {
        // Nothing here may allocate; the stack trace in the report shows the caller.
        abort();
    }
}

// SAFETY: every call is passed on to the system allocator with unchanged arguments, so its
// guarantees hold.
unsafe impl GlobalAlloc for Limited {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        check(layout.size());
        // SAFETY: the caller's promises about `layout` are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        check(layout.size());
        // SAFETY: the caller's promises about `layout` are passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        check(new_size);
        // SAFETY: `ptr` came from `System`, as every pointer of this allocator does; the caller
        // guarantees the rest.
        unsafe { System.realloc(ptr, layout, new_size) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: `ptr` came from `System`, as every pointer of this allocator does.
        unsafe { System.dealloc(ptr, layout) }
    }
}
