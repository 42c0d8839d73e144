//! Payload filters: made from predicates, and combined into the filter descriptor of an enable.

use std::ffi::c_void;

use traceweir::{EventDescriptor, Guid, Status};
use traceweir_decode::tdh::filter::{FieldPredicate, PayloadFilter, aggregate_filters};
use traceweir_format::spec::enable::{EVENT_FILTER_TYPE_PAYLOAD, MAX_PAYLOAD_PREDICATES, PayloadOperator};

use super::answer::read_utf16;
use super::table::HandleTable;
use super::{MAX_NAME_CHARS, lock_library};
use crate::held::HeldMemory;
use crate::types::FilterDescriptor;
use crate::types::tdh::PayloadFilterPredicate;
use crate::{boundary, ptr};

static FILTERS: HandleTable<PayloadFilter> = HandleTable::new();

/// Combined filters that programs hold.
static COMBINED_FILTERS: HeldMemory = HeldMemory::new();

/// The most filters that fit into one filter descriptor.
const MAX_COMBINED_FILTERS: usize = 1024;

/// Creates a filter on the fields of an event;
/// [`Library::payload_filter`](traceweir_decode::tdh::Library::payload_filter).
///
/// # Safety
///
/// Pointers are NULL or valid: `predicates` has `count` elements, whose texts end with a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TdhCreatePayloadFilter(
    provider: *const Guid,
    descriptor: *const EventDescriptor,
    match_any: u8,
    count: u32,
    predicates: *const PayloadFilterPredicate,
    filter: *mut *mut c_void,
) -> u32 {
    boundary::to_status(|| {
        // SAFETY: the caller passes NULL or readable values as `provider` and `descriptor`.
        let (provider, descriptor) = unsafe { (ptr::read_value(provider), ptr::read_value(descriptor)) };
        // SAFETY: the caller fulfils the `# Safety` section; `read_predicates` requires no more.
        let predicates = unsafe { read_predicates(count, predicates) };
        let (Some(provider), Some(descriptor), Some(predicates), false) =
            (provider, descriptor, predicates, filter.is_null())
        else {
            return Status::ERROR_INVALID_PARAMETER;
        };
        let created = lock_library().payload_filter(provider, &descriptor, match_any != 0, &predicates);
        match created.map_err(|refusal| refusal.status()).and_then(|created| FILTERS.add(created)) {
            Ok(handle) => {
                // SAFETY: the caller passes NULL or a writable `filter`.
                unsafe { ptr::store(filter, std::ptr::without_provenance_mut(handle)) };
                Status::ERROR_SUCCESS
            }
            Err(status) => status,
        }
    })
}

/// Copies predicates. Returns `None` for an invalid text or number of predicates.
///
/// # Safety
///
/// As [`TdhCreatePayloadFilter`].
unsafe fn read_predicates(count: u32, at: *const PayloadFilterPredicate) -> Option<Vec<FieldPredicate>> {
    let count = usize::try_from(count).ok().filter(|count| (1..=MAX_PAYLOAD_PREDICATES).contains(count))?;
    // SAFETY: the caller guarantees that `at` is NULL or valid.
    let predicates = unsafe { ptr::read_array(at, count) }?;
    let read = |predicate: &PayloadFilterPredicate| {
        // SAFETY: the caller passes NULL or readable memory as `predicate.field_name` and
        // `predicate.value`.
        let (field, value) = unsafe {
            (read_utf16(predicate.field_name, MAX_NAME_CHARS)?, read_utf16(predicate.value, MAX_NAME_CHARS)?)
        };
        Some(FieldPredicate { field, operator: PayloadOperator(predicate.compare_op), value })
    };
    predicates.iter().map(read).collect()
}

/// Deletes a filter and sets its handle to NULL.
///
/// # Safety
///
/// `filter` is NULL, or the handle of a filter can be read and written there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TdhDeletePayloadFilter(filter: *mut *mut c_void) -> u32 {
    boundary::to_status(|| {
        // SAFETY: the caller passes NULL or a readable `filter`.
        let handle = unsafe { ptr::read_value(filter.cast_const()) };
        if handle.and_then(|handle| FILTERS.remove(handle.addr())).is_none() {
            return Status::ERROR_INVALID_PARAMETER;
        }
        // SAFETY: the caller passes NULL or a writable `filter`.
        unsafe { ptr::store(filter, std::ptr::null_mut()) };
        Status::ERROR_SUCCESS
    })
}

/// Combines filters of one provider into the filter descriptor of an enable; [`aggregate_filters`].
/// A filter whose element in `required` is not 0 must match; of the others, if there are any, at
/// least one must match.
///
/// # Safety
///
/// Pointers are NULL or valid: `filters` and, unless it is NULL, `required` have `count` elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TdhAggregatePayloadFilters(
    count: u32,
    filters: *const *mut c_void,
    required: *const u8,
    descriptor: *mut FilterDescriptor,
) -> u32 {
    boundary::to_status(|| {
        let Some(count) =
            usize::try_from(count).ok().filter(|count| (1..=MAX_COMBINED_FILTERS).contains(count))
        else {
            return Status::ERROR_INVALID_PARAMETER;
        };
        // SAFETY: the caller guarantees that `filters` and `required` are NULL or valid.
        let (handles, flags) = unsafe { (ptr::read_array(filters, count), ptr::read_array(required, count)) };
        let (Some(handles), false) = (handles, descriptor.is_null()) else {
            return Status::ERROR_INVALID_PARAMETER;
        };
        let selected: Option<Vec<_>> =
            handles.iter().map(|handle| FILTERS.with_entry(handle.addr(), |filter| filter.clone())).collect();
        let Some(selected) = selected else { return Status::ERROR_INVALID_PARAMETER };
        let is_required = |at: usize| flags.and_then(|flags| flags.get(at)).is_some_and(|flag| *flag != 0);
        let blob =
            aggregate_filters(selected.iter().enumerate().map(|(at, filter)| (filter, is_required(at))));
        match blob.map_err(|refusal| refusal.status()).and_then(|blob| allocate_descriptor(&blob)) {
            Ok(created) => {
                // SAFETY: the caller passes NULL or a writable `descriptor`.
                unsafe { ptr::store(descriptor, created) };
                Status::ERROR_SUCCESS
            }
            Err(status) => status,
        }
    })
}

/// Copies bytes to memory that the program must free, and returns their descriptor.
fn allocate_descriptor(blob: &[u8]) -> Result<FilterDescriptor, Status> {
    let memory = COMBINED_FILTERS.allocate(blob.len()).ok_or(Status::ERROR_NOT_ENOUGH_MEMORY)?;
    // SAFETY: `blob.len()` bytes were just allocated.
    unsafe { std::ptr::copy_nonoverlapping(blob.as_ptr(), memory.cast(), blob.len()) };
    let address = memory.expose_provenance() as u64;
    Ok(FilterDescriptor {
        ptr: address,
        size: u32::try_from(blob.len()).unwrap_or(0),
        kind: EVENT_FILTER_TYPE_PAYLOAD,
    })
}

/// Frees the memory of a descriptor that [`TdhAggregatePayloadFilters`] filled in, and clears the
/// descriptor.
///
/// # Safety
///
/// `descriptor` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TdhCleanupPayloadEventFilterDescriptor(descriptor: *mut FilterDescriptor) -> u32 {
    boundary::to_status(|| {
        // SAFETY: the caller passes NULL or a readable `descriptor`.
        let freed_descriptor = unsafe { ptr::read_value(descriptor.cast_const()) };
        let free_memory = |freed_descriptor: FilterDescriptor| {
            let address = usize::try_from(freed_descriptor.ptr).ok()?;
            COMBINED_FILTERS.free(std::ptr::with_exposed_provenance_mut(address)).then_some(())
        };
        if freed_descriptor.and_then(free_memory).is_none() {
            return Status::ERROR_INVALID_PARAMETER;
        }
        // SAFETY: the caller passes NULL or a writable `descriptor`.
        unsafe { ptr::store(descriptor, FilterDescriptor { ptr: 0, size: 0, kind: 0 }) };
        Status::ERROR_SUCCESS
    })
}
