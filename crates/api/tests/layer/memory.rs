//! What an event costs in memory: nothing, once its thread has written one like it.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use traceweir::layer::LayerBuilder;
use tracing::{debug, info};

use crate::{NAME, Recording, alone, install, provider};

thread_local! {
    static TAKEN: Cell<usize> = const { Cell::new(0) };
}

/// The system's, counting how often each thread asks.
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn count() {
    let _ = TAKEN.try_with(|taken| taken.set(taken.get() + 1));
}

// SAFETY: everything is left to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: as the caller promised.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as the caller promised.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: as the caller promised.
        unsafe { System.realloc(memory, layout, size) }
    }
}

/// Allocations of this thread while `f` runs.
fn taken_by(f: impl FnOnce()) -> usize {
    let before = TAKEN.get();
    f();
    TAKEN.get() - before
}

fn say(n: u32) {
    info!(name: "plain", n, text = "text", flag = true);
    debug!(name: "formatted", list = ?[n, n], display = %n, maybe = n.is_multiple_of(2).then_some(n), "message {n}");
}

#[test]
fn an_event_takes_no_memory_after_the_first_of_its_kind() {
    alone("memory::an_event_takes_no_memory_after_the_first_of_its_kind", |folder| {
        install(LayerBuilder::new(NAME).with_target_keyword("layer::memory", 2));
        assert!(taken_by(|| drop(Box::new(1))) > 0, "the count counts");
        assert_eq!(taken_by(|| say(0)), 0, "nobody listens");
        let recording = Recording::of(folder, &[provider()]);
        let span = tracing::info_span!("span");
        let taken = span.in_scope(|| {
            (0..10).for_each(say);
            taken_by(|| (0..1000).for_each(say))
        });
        assert_eq!(taken, 0);
        drop(span);
        assert_eq!(recording.events().len(), 2 + 2 * 1010);
    });
}
