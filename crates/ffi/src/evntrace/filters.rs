//! EVENT_FILTER_DESCRIPTORs of a caller, copied; what is in them is judged by the core.

use traceweir::Status;
use traceweir::controller::Filter;
use traceweir_format::spec::enable::{
    EVENT_FILTER_TYPE_NONE, MAX_EVENT_FILTER_PAYLOAD_SIZE, MAX_EVENT_FILTERS_COUNT,
};

use crate::ptr;
use crate::types::FilterDescriptor;

/// Copies an array of filters: those of type EVENT_FILTER_TYPE_NONE are none. ERROR_INVALID_PARAMETER for more than there can be, for NULL, and for one that is larger than any.
///
/// # Safety
///
/// `at` is NULL, or has `count` elements, whose addresses are NULL or have as many bytes as they say.
pub(super) unsafe fn read(at: *const FilterDescriptor, count: u32) -> Result<Vec<Filter>, Status> {
    let count = count as usize;
    if count > MAX_EVENT_FILTERS_COUNT {
        return Err(Status::ERROR_INVALID_PARAMETER);
    }
    let mut filters = Vec::new();
    for index in 0..count {
        let each = (!at.is_null()).then(|| at.wrapping_add(index));
        // SAFETY: by the contract.
        let each =
            each.and_then(|each| unsafe { ptr::copied(each) }).ok_or(Status::ERROR_INVALID_PARAMETER)?;
        if each.kind == EVENT_FILTER_TYPE_NONE {
            continue;
        }
        if each.size as usize > MAX_EVENT_FILTER_PAYLOAD_SIZE {
            return Err(Status::ERROR_INVALID_PARAMETER);
        }
        // SAFETY: by the contract.
        let data = unsafe { ptr::bytes_at(each.ptr, each.size) }.ok_or(Status::ERROR_INVALID_PARAMETER)?;
        filters.push(Filter { kind: each.kind, data: data.to_vec() });
    }
    Ok(filters)
}
