//! Callbacks for the classic events of a class, in all traces. A class has one callback, the last
//! that was set.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{PoisonError, RwLock};

use traceweir::{Guid, Status};

use super::layout::EventCallback;
use crate::{boundary, ptr};

static CALLBACKS_BY_CLASS: RwLock<BTreeMap<Guid, EventCallback>> = RwLock::new(BTreeMap::new());
/// The number of callbacks, so that events cost no lookup while there are none.
static CALLBACK_COUNT: AtomicUsize = AtomicUsize::new(0);

/// Returns whether any class has a callback.
#[inline]
pub(super) fn has_any() -> bool {
    // Relaxed: an event that is delivered while a callback is set may or may not reach the callback.
    CALLBACK_COUNT.load(Ordering::Relaxed) != 0
}

/// Returns the callback of a class.
pub(super) fn find_callback(class: &Guid) -> Option<EventCallback> {
    CALLBACKS_BY_CLASS.read().unwrap_or_else(PoisonError::into_inner).get(class).copied()
}

fn change_callbacks(change: impl FnOnce(&mut BTreeMap<Guid, EventCallback>) -> Status) -> Status {
    let mut classes = CALLBACKS_BY_CLASS.write().unwrap_or_else(PoisonError::into_inner);
    let status = change(&mut classes);
    CALLBACK_COUNT.store(classes.len(), Ordering::Relaxed);
    status
}

/// Sets the callback for the classic events of a class.
///
/// # Safety
///
/// `class` is NULL or a GUID. Any thread that processes traces may call the callback until it is
/// removed and these threads have returned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn SetTraceCallback(class: *const Guid, callback: Option<EventCallback>) -> u32 {
    boundary::to_status(|| {
        // SAFETY: the caller passes NULL or a readable `class`.
        let (Some(class), Some(callback)) = (unsafe { ptr::read_value(class) }, callback) else {
            return Status::ERROR_INVALID_PARAMETER;
        };
        change_callbacks(|classes| {
            classes.insert(class, callback);
            Status::ERROR_SUCCESS
        })
    })
}

/// Removes the callback of a class.
///
/// # Safety
///
/// `class` is NULL or a GUID.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn RemoveTraceCallback(class: *const Guid) -> u32 {
    boundary::to_status(|| {
        // SAFETY: the caller passes NULL or a readable `class`.
        let Some(class) = (unsafe { ptr::read_value(class) }) else { return Status::ERROR_INVALID_PARAMETER };
        change_callbacks(|classes| {
            if classes.remove(&class).is_some() {
                Status::ERROR_SUCCESS
            } else {
                Status::ERROR_WMI_GUID_NOT_FOUND
            }
        })
    })
}
