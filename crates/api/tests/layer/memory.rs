//! Memory that an event allocates: none after the thread has written a similar event.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use traceweir::layer::LayerBuilder;
use tracing::{debug, info};

use crate::{LayerRecording, PROVIDER, install_layer, provider_guid, run_in_own_process};

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

/// The system's allocator, with a count of allocations per thread.
struct CountingAllocator;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

fn count_allocation() {
    let _ = ALLOCATIONS.try_with(|allocations| allocations.set(allocations.get() + 1));
}

// SAFETY: all calls go to the system's allocator unchanged.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count_allocation();
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count_allocation();
        // SAFETY: the caller keeps the contract of `realloc`.
        unsafe { System.realloc(memory, layout, size) }
    }
}

/// Returns the number of allocations of this thread while `work` runs.
fn count_allocations(work: impl FnOnce()) -> usize {
    let before = ALLOCATIONS.get();
    work();
    ALLOCATIONS.get() - before
}

fn write_events(n: u32) {
    info!(name: "plain", n, text = "text", flag = true);
    debug!(name: "formatted", list = ?[n, n], display = %n, maybe = n.is_multiple_of(2).then_some(n), "message {n}");
}

#[test]
fn event_allocates_nothing_after_the_first_of_its_kind() {
    run_in_own_process("memory::event_allocates_nothing_after_the_first_of_its_kind", |folder| {
        install_layer(LayerBuilder::new(PROVIDER).with_target_keyword("layer::memory", 2));
        assert!(count_allocations(|| drop(Box::new(1))) > 0, "an allocation was not counted");
        assert_eq!(count_allocations(|| write_events(0)), 0, "a disabled event allocated memory");
        let recording = LayerRecording::start(folder, &[provider_guid()]);
        let span = tracing::info_span!("span");
        let allocations = span.in_scope(|| {
            (0..10).for_each(write_events);
            count_allocations(|| (0..1000).for_each(write_events))
        });
        assert_eq!(allocations, 0);
        drop(span);
        // Start and stop of the span, and two events for each of 1,010 calls.
        assert_eq!(recording.stop_and_read().len(), 2 + 2 * 1010);
    });
}
