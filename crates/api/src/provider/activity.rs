//! Activity ids of threads (EventActivityIdControl).
//!
//! New threads start with the null id.

use traceweir_format::Guid;
use traceweir_format::spec::event::{
    EVENT_ACTIVITY_CTRL_CREATE_ID, EVENT_ACTIVITY_CTRL_CREATE_SET_ID, EVENT_ACTIVITY_CTRL_GET_ID,
    EVENT_ACTIVITY_CTRL_GET_SET_ID, EVENT_ACTIVITY_CTRL_SET_ID,
};
use traceweir_format::spec::status::Status;

use crate::process::activity as thread_activity;

/// Returns the thread's activity id.
#[inline]
#[must_use]
pub fn current() -> Guid {
    thread_activity::current()
}

/// Sets the thread's activity id and returns the previous one.
pub fn set(id: Guid) -> Guid {
    thread_activity::set(id)
}

/// Returns a new id, unique on the machine until it restarts.
#[must_use]
pub fn create() -> Guid {
    thread_activity::create()
}

/// Performs EventActivityIdControl with this code. The code determines whether `id` is read,
/// written or both.
///
/// An unknown code returns ERROR_INVALID_PARAMETER and changes nothing.
pub fn control(code: u32, id: &mut Guid) -> Status {
    match code {
        EVENT_ACTIVITY_CTRL_GET_ID => *id = current(),
        EVENT_ACTIVITY_CTRL_SET_ID => {
            set(*id);
        }
        EVENT_ACTIVITY_CTRL_CREATE_ID => *id = create(),
        EVENT_ACTIVITY_CTRL_GET_SET_ID => *id = set(*id),
        EVENT_ACTIVITY_CTRL_CREATE_SET_ID => *id = set(create()),
        _ => return Status::ERROR_INVALID_PARAMETER,
    }
    Status::ERROR_SUCCESS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thread_has_its_own_activity_id() {
        let id = create();
        assert_eq!(set(id), Guid::NULL);
        assert_eq!(current(), id);
        std::thread::spawn(|| assert_eq!(current(), Guid::NULL)).join().unwrap();
        assert_eq!(set(Guid::NULL), id);
    }

    #[test]
    fn control_codes_get_set_and_create_ids() {
        let (first, second) = (create(), create());
        set(first);
        let mut id = Guid::NULL;
        assert_eq!((control(EVENT_ACTIVITY_CTRL_GET_ID, &mut id), id), (Status::ERROR_SUCCESS, first));
        id = second;
        assert_eq!(
            (control(EVENT_ACTIVITY_CTRL_SET_ID, &mut id), id, current()),
            (Status::ERROR_SUCCESS, second, second)
        );
        assert_eq!(
            (control(EVENT_ACTIVITY_CTRL_CREATE_ID, &mut id), current()),
            (Status::ERROR_SUCCESS, second)
        );
        assert!(id != first && id != second && !id.is_null());
        id = first;
        assert_eq!(
            (control(EVENT_ACTIVITY_CTRL_GET_SET_ID, &mut id), id, current()),
            (Status::ERROR_SUCCESS, second, first)
        );
        assert_eq!((control(EVENT_ACTIVITY_CTRL_CREATE_SET_ID, &mut id), id), (Status::ERROR_SUCCESS, first));
        assert!(current() != first && current() != second && !current().is_null());
        let before = (id, current());
        for unknown_code in [0, 6, u32::MAX] {
            assert_eq!(control(unknown_code, &mut id), Status::ERROR_INVALID_PARAMETER);
            assert_eq!((id, current()), before);
        }
        set(Guid::NULL);
    }
}
