//! Storage of threads: `TlsAlloc` and its companions.
//!
//! Each index has a generation, which is odd while the index is allocated. A value counts only while
//! its generation is that of its index. So a program that frees an index and gets it again finds
//! NULL in every thread.

use std::cell::RefCell;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering};

use traceweir::Status;

use super::super::to_bool;
use crate::{boundary, last_error};

/// The number of indexes, as on Windows.
const INDEX_COUNT: usize = 1088;

/// TLS_OUT_OF_INDEXES.
const OUT_OF_INDEXES: u32 = u32::MAX;

static GENERATIONS: [AtomicU32; INDEX_COUNT] = [const { AtomicU32::new(0) }; INDEX_COUNT];

#[derive(Clone, Copy)]
struct Slot {
    generation: u32,
    value: *mut c_void,
}

const EMPTY_SLOT: Slot = Slot { generation: 0, value: std::ptr::null_mut() };

thread_local! {
    static SLOTS: RefCell<Vec<Slot>> = const { RefCell::new(Vec::new()) };
}

/// Returns the generation of an allocated index.
fn find_generation(index: u32) -> Result<u32, Status> {
    let generation = GENERATIONS.get(index as usize).map(|generation| generation.load(Ordering::Acquire));
    generation.filter(|generation| generation % 2 == 1).ok_or(Status::ERROR_INVALID_PARAMETER)
}

/// Changes the generation of an index if it is free or allocated, as `is_allocated` says. Returns
/// whether it was.
fn advance(generation: &AtomicU32, is_allocated: bool) -> bool {
    let next =
        |generation: u32| ((generation % 2 == 1) == is_allocated).then_some(generation.wrapping_add(1));
    generation.fetch_update(Ordering::AcqRel, Ordering::Acquire, next).is_ok()
}

/// Allocates an index. Its value is NULL in every thread.
#[unsafe(no_mangle)]
pub extern "C" fn TlsAlloc() -> u32 {
    let index = GENERATIONS.iter().position(|generation| advance(generation, false));
    index.and_then(|index| u32::try_from(index).ok()).unwrap_or_else(|| {
        last_error::set(Status::ERROR_NO_SYSTEM_RESOURCES);
        OUT_OF_INDEXES
    })
}

/// Frees an index.
#[unsafe(no_mangle)]
pub extern "C" fn TlsFree(index: u32) -> i32 {
    to_bool(|| match GENERATIONS.get(index as usize) {
        Some(generation) if advance(generation, true) => Ok(()),
        _ => Err(Status::ERROR_INVALID_PARAMETER),
    })
}

/// Returns the calling thread's value of an index, and sets the last error to 0. Returns NULL on
/// failure, with the reason in the last error.
#[unsafe(no_mangle)]
pub extern "C" fn TlsGetValue(index: u32) -> *mut c_void {
    let read = || {
        let generation = find_generation(index)?;
        let slot = SLOTS.try_with(|slots| slots.borrow().get(index as usize).copied());
        // A thread that is ending has no values any more.
        let slot = slot.ok().flatten().filter(|slot| slot.generation == generation);
        Ok(slot.unwrap_or(EMPTY_SLOT).value)
    };
    let (value, status) = match boundary::catch_panic(Err(Status::ERROR_NOACCESS), read) {
        Ok(value) => (value, Status::ERROR_SUCCESS),
        Err(status) => (EMPTY_SLOT.value, status),
    };
    last_error::set_without_errno(status);
    value
}

/// Sets the calling thread's value of an index.
#[unsafe(no_mangle)]
pub extern "C" fn TlsSetValue(index: u32, value: *mut c_void) -> i32 {
    to_bool(|| {
        let generation = find_generation(index)?;
        let stored = SLOTS.try_with(|slots| {
            let mut slots = slots.borrow_mut();
            let length = slots.len().max((index as usize).saturating_add(1));
            slots.resize(length, EMPTY_SLOT);
            if let Some(slot) = slots.get_mut(index as usize) {
                *slot = Slot { generation, value };
            }
        });
        stored.map_err(|_| Status::ERROR_INVALID_PARAMETER)
    })
}
