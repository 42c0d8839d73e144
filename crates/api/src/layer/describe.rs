//! The memory in which a thread composes events: values, and a cache of TraceLogging metadata.
//!
//! ```text
//!   callsite + shape ──hash──▶ one of 64 entries of this thread
//!                                ├─ of the same callsite and shape ──▶ its metadata
//!                                └─ of another ──▶ metadata is built in this entry
//! ```
//!
//! TraceLogging metadata is the name of the callsite and the names and types of the fields that
//! have a value. The shape lists these fields (module `values`). The type [`Metadata`] of `tracing`
//! is something else: it describes a callsite, and is always called `callsite` here.
//!
//! Most callsites always have the same shape. Each thread has its own entries, without a lock or a
//! shared word. Their memory is bounded: a callsite that hashes to a used entry replaces it.
//!
//! If a `Debug` implementation writes an event, the thread's memory is already in use. That event
//! gets separate memory.

use std::cell::Cell;

use traceweir_format::tracelogging::MetadataBuilder;
use tracing_core::Metadata;

use super::values::{EventValues, RecordedField};

/// Number of cache entries; a power of two.
const CACHE_ENTRIES: usize = 64;
const ENTRY_BITS: u32 = CACHE_ENTRIES.trailing_zeros();

/// The memory of one thread.
#[derive(Default)]
pub(super) struct EventScratch {
    pub(super) values: EventValues,
    pub(super) metadata_cache: MetadataCache,
}

impl EventScratch {
    /// Calls `f` with the thread's memory, without values in it.
    pub(super) fn with<R>(f: impl FnOnce(&mut Self) -> R) -> R {
        thread_local! {
            static SPARE: Cell<Option<Box<EventScratch>>> = const { Cell::new(None) };
        }
        // The memory is gone at the end of a thread, when destructors may still write events.
        let mut scratch = SPARE.try_with(Cell::take).ok().flatten().unwrap_or_default();
        scratch.values.clear();
        let result = f(&mut scratch);
        let _ = SPARE.try_with(|spare| spare.set(Some(scratch)));
        result
    }
}

/// A cache of TraceLogging metadata.
#[derive(Default)]
pub(super) struct MetadataCache {
    /// Empty until the first event.
    entries: Vec<CacheEntry>,
}

/// The TraceLogging metadata of one callsite with one shape.
struct CacheEntry {
    /// Address of the callsite's [`Metadata`], which is never freed; 0 for none.
    callsite: usize,
    shape: Vec<RecordedField>,
    builder: MetadataBuilder,
}

impl MetadataCache {
    /// Returns the TraceLogging metadata of an event or span with values of this shape; `None` if
    /// names are too long for it.
    pub(super) fn metadata(
        &mut self,
        callsite: &'static Metadata<'static>,
        shape: &[RecordedField],
    ) -> Option<&[u8]> {
        let address = std::ptr::from_ref(callsite).addr();
        if self.entries.is_empty() {
            self.entries.resize_with(CACHE_ENTRIES, || CacheEntry {
                callsite: 0,
                shape: Vec::new(),
                builder: MetadataBuilder::new("", 0),
            });
        }
        let entry = self.entries.get_mut(entry_index(address, shape))?;
        if entry.callsite != address || entry.shape != shape {
            entry.rebuild(callsite, shape);
            entry.callsite = address;
        }
        entry.builder.finish().ok()
    }
}

impl CacheEntry {
    fn rebuild(&mut self, callsite: &Metadata<'_>, shape: &[RecordedField]) {
        self.shape.clear();
        self.shape.extend_from_slice(shape);
        self.builder.reset(callsite.name(), 0);
        for recorded_field in shape {
            let (input, out) = recorded_field.types();
            let field = callsite.fields().iter().nth(recorded_field.index());
            self.builder.add_field(field.as_ref().map_or("", |f| f.name()), input, out, 0);
        }
    }
}

fn entry_index(address: usize, shape: &[RecordedField]) -> usize {
    // The multiplier of Fibonacci hashing: 2⁶⁴ divided by the golden ratio.
    const FACTOR: usize = 0x9E37_79B9_7F4A_7C15_u64 as usize;
    let mixed = shape.iter().fold(address.wrapping_mul(FACTOR), |hash, recorded_field| {
        (hash.rotate_left(5) ^ usize::from(recorded_field.word())).wrapping_mul(FACTOR)
    });
    mixed >> (usize::BITS.saturating_sub(ENTRY_BITS))
}
