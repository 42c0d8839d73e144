//! Memory that an event allocates: none, once its thread has written a similar one.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use traceweir::layer::LayerBuilder;
use tracing::{debug, info};

use crate::{NAME, Recording, install, provider, run_in_own_process};

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

/// The system's allocator, with a count of allocations per thread.
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn count() {
    let _ = ALLOCATIONS.try_with(|allocations| allocations.set(allocations.get() + 1));
}

// SAFETY: all calls go to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract of `realloc`.
        unsafe { System.realloc(memory, layout, size) }
    }
}

/// Returns the number of allocations of this thread while `f` runs.
fn allocations_of(f: impl FnOnce()) -> usize {
    let before = ALLOCATIONS.get();
    f();
    ALLOCATIONS.get() - before
}

fn write_events(n: u32) {
    info!(name: "plain", n, text = "text", flag = true);
    debug!(name: "formatted", list = ?[n, n], display = %n, maybe = n.is_multiple_of(2).then_some(n), "message {n}");
}

#[test]
fn event_allocates_nothing_after_the_first_of_its_kind() {
    run_in_own_process("memory::event_allocates_nothing_after_the_first_of_its_kind", |folder| {
        install(LayerBuilder::new(NAME).with_target_keyword("layer::memory", 2));
        assert!(allocations_of(|| drop(Box::new(1))) > 0, "the allocator counts");
        assert_eq!(allocations_of(|| write_events(0)), 0, "no session is enabled");
        let recording = Recording::start(folder, &[provider()]);
        let span = tracing::info_span!("span");
        let allocations = span.in_scope(|| {
            (0..10).for_each(write_events);
            allocations_of(|| (0..1000).for_each(write_events))
        });
        assert_eq!(allocations, 0);
        drop(span);
        assert_eq!(recording.events().len(), 2 + 2 * 1010);
    });
}
