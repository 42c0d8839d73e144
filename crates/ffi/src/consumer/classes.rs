//! Functions for the classic events of a class, whichever trace they are in: one for each class, the last that was set.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{PoisonError, RwLock};

use traceweir::{Guid, Status};

use super::layout::EventCallback;
use crate::{boundary, ptr};

static CLASSES: RwLock<BTreeMap<Guid, EventCallback>> = RwLock::new(BTreeMap::new());
/// How many there are, so that events need not look while there are none.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Whether any class has a function.
#[inline]
pub(super) fn are_any() -> bool {
    // Relaxed: an event that is delivered while a function is set may or may not meet it.
    COUNT.load(Ordering::Relaxed) != 0
}

/// The function of a class.
pub(super) fn of(class: &Guid) -> Option<EventCallback> {
    CLASSES.read().unwrap_or_else(PoisonError::into_inner).get(class).copied()
}

fn change(change: impl FnOnce(&mut BTreeMap<Guid, EventCallback>) -> Status) -> Status {
    let mut classes = CLASSES.write().unwrap_or_else(PoisonError::into_inner);
    let status = change(&mut classes);
    COUNT.store(classes.len(), Ordering::Relaxed);
    status
}

/// Sets the function for the classic events of a class.
///
/// # Safety
///
/// `class` is NULL or a GUID. The function may be called by any thread that processes traces until it is removed and they have returned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn SetTraceCallback(class: *const Guid, callback: Option<EventCallback>) -> u32 {
    boundary::status(|| {
        // SAFETY: by the contract.
        let (Some(class), Some(callback)) = (unsafe { ptr::copied(class) }, callback) else {
            return Status::ERROR_INVALID_PARAMETER;
        };
        change(|classes| {
            classes.insert(class, callback);
            Status::ERROR_SUCCESS
        })
    })
}

/// Removes the function of a class.
///
/// # Safety
///
/// `class` is NULL or a GUID.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn RemoveTraceCallback(class: *const Guid) -> u32 {
    boundary::status(|| {
        // SAFETY: by the contract.
        let Some(class) = (unsafe { ptr::copied(class) }) else { return Status::ERROR_INVALID_PARAMETER };
        change(|classes| {
            if classes.remove(&class).is_some() {
                Status::ERROR_SUCCESS
            } else {
                Status::ERROR_WMI_GUID_NOT_FOUND
            }
        })
    })
}
