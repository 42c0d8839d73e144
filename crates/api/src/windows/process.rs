//! Activity ids of threads, and new GUIDs.
#![allow(unsafe_code)]

use traceweir_format::Guid;

use super::functions::CoCreateGuid;

/// Returns a new random GUID; `None` if the system cannot create one.
#[must_use]
pub fn new_guid() -> Option<Guid> {
    let mut guid = Guid::NULL;
    // SAFETY: the pointer is valid for one GUID, which the function writes.
    let result = unsafe { CoCreateGuid(&raw mut guid) };
    (result >= 0).then_some(guid)
}

/// The activity ids of threads.
pub(crate) mod activity {
    use traceweir_format::Guid;
    use traceweir_format::spec::event::{
        EVENT_ACTIVITY_CTRL_CREATE_ID, EVENT_ACTIVITY_CTRL_GET_ID, EVENT_ACTIVITY_CTRL_GET_SET_ID,
    };

    use super::super::functions::EventActivityIdControl;

    /// Returns the thread's activity id.
    pub(crate) fn current() -> Guid {
        control(EVENT_ACTIVITY_CTRL_GET_ID, Guid::NULL)
    }

    /// Sets the thread's activity id and returns the former one.
    pub(crate) fn set(id: Guid) -> Guid {
        control(EVENT_ACTIVITY_CTRL_GET_SET_ID, id)
    }

    /// Returns a new activity id.
    pub(crate) fn create() -> Guid {
        control(EVENT_ACTIVITY_CTRL_CREATE_ID, Guid::NULL)
    }

    fn control(code: u32, mut id: Guid) -> Guid {
        // SAFETY: the pointer is valid for one GUID. The call fails for unknown codes only.
        unsafe { EventActivityIdControl(code, &raw mut id) };
        id
    }
}
