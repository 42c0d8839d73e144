//! Copies EVENT_FILTER_DESCRIPTORs of a caller; the crate `traceweir` checks their contents.

use traceweir::Status;
use traceweir::controller::Filter;
use traceweir_format::spec::enable::{
    EVENT_FILTER_TYPE_NONE, MAX_EVENT_FILTER_PAYLOAD_SIZE, MAX_EVENT_FILTERS_COUNT, is_added_filter_type,
};

use crate::ptr;
use crate::types::FilterDescriptor;

/// Copies an array of filters, without those of type EVENT_FILTER_TYPE_NONE. Returns
/// ERROR_INVALID_PARAMETER for too many filters, for a NULL array with a count, for a NULL `ptr`
/// with a size, for a filter that is too large, and for a type that ETW does not define.
///
/// # Safety
///
/// `descriptors` is NULL or points to `count` readable descriptors; the `ptr` of each is NULL or
/// points to `size` readable bytes.
pub(super) unsafe fn read(descriptors: *const FilterDescriptor, count: u32) -> Result<Vec<Filter>, Status> {
    let count = count as usize;
    if count > MAX_EVENT_FILTERS_COUNT {
        return Err(Status::ERROR_INVALID_PARAMETER);
    }
    let mut filters = Vec::new();
    for index in 0..count {
        let descriptor = (!descriptors.is_null()).then(|| descriptors.wrapping_add(index));
        // SAFETY: `descriptors` is not NULL, so the caller guarantees `count` readable descriptors.
        let descriptor = descriptor
            .and_then(|descriptor| unsafe { ptr::read_value(descriptor) })
            .ok_or(Status::ERROR_INVALID_PARAMETER)?;
        if descriptor.kind == EVENT_FILTER_TYPE_NONE {
            continue;
        }
        if descriptor.size as usize > MAX_EVENT_FILTER_PAYLOAD_SIZE || is_added_filter_type(descriptor.kind) {
            return Err(Status::ERROR_INVALID_PARAMETER);
        }
        // SAFETY: `descriptor.ptr` is NULL, or the caller guarantees `descriptor.size` readable
        // bytes there.
        let data = unsafe { ptr::read_bytes_at(descriptor.ptr, descriptor.size) };
        let data = data.ok_or(Status::ERROR_INVALID_PARAMETER)?.to_vec();
        filters.push(Filter { kind: descriptor.kind, data });
    }
    Ok(filters)
}
