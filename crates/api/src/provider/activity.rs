//! Activity ids of threads (EventActivityIdControl).
//!
//! ```text
//!   data1, data2   48 bits: 26 bits of the PID namespace's inode, 22 bits of the process id
//!   data3          0xE000: a version that no random or time-based UUID has
//!   data4          64 bits: a counter that starts at the nanoseconds since boot
//! ```
//!
//! Two processes of one namespace differ in the process id or, if the id is reused, in the counter:
//! a process creates less than one id a nanosecond, so the counter of a later process starts above
//! all numbers of an earlier one. New threads start with the null id.

use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::time::{ClockId, clock_gettime};
use traceweir_format::Guid;
use traceweir_format::spec::event::{
    EVENT_ACTIVITY_CTRL_CREATE_ID, EVENT_ACTIVITY_CTRL_CREATE_SET_ID, EVENT_ACTIVITY_CTRL_GET_ID,
    EVENT_ACTIVITY_CTRL_GET_SET_ID, EVENT_ACTIVITY_CTRL_SET_ID,
};
use traceweir_format::spec::status::Status;

use crate::process::thread;

/// `data3` of created ids.
const ID_VERSION: u16 = 0xE000;
/// Process ids have at most 22 bits (PID_MAX_LIMIT).
const PID_BITS: u32 = 22;
const PID_MASK: u64 = (1 << PID_BITS) - 1;
/// The low 26 bits of a namespace's inode.
const NAMESPACE_MASK: u64 = (1 << 26) - 1;

/// Returns the thread's activity id.
#[inline]
#[must_use]
pub fn current() -> Guid {
    thread::activity()
}

/// Sets the thread's activity id and returns the previous one.
pub fn set(id: Guid) -> Guid {
    thread::set_activity(id)
}

/// Returns a new id, unique on the machine until it restarts.
#[must_use]
pub fn create() -> Guid {
    let counter = next_count();
    let key = u128::from(process_key());
    Guid::from_u128(key << 80 | u128::from(ID_VERSION) << 64 | u128::from(counter))
}

/// Performs EventActivityIdControl with this code.
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

fn next_count() -> u64 {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    if COUNTER.load(Ordering::Relaxed) == 0 {
        let now = clock_gettime(ClockId::Boottime);
        let start = now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64;
        // The first thread sets the start; the others continue from it.
        let _ = COUNTER.compare_exchange(0, start.max(1), Ordering::Relaxed, Ordering::Relaxed);
    }
    COUNTER.fetch_add(1, Ordering::Relaxed)
}

/// Returns 48 bits that distinguish this process from all others of its namespace that run. Cached
/// by process id, because a forked child inherits the memory.
fn process_key() -> u64 {
    static KEY: AtomicU64 = AtomicU64::new(0);
    let pid = rustix::process::getpid().as_raw_nonzero().get() as u64;
    let cached = KEY.load(Ordering::Relaxed);
    if cached & PID_MASK == pid & PID_MASK {
        return cached;
    }
    let namespace = std::fs::metadata("/proc/self/ns/pid").map_or(0, |m| m.ino());
    let key = (namespace & NAMESPACE_MASK) << PID_BITS | (pid & PID_MASK);
    KEY.store(key, Ordering::Relaxed);
    key
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

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

    #[test]
    fn ids_of_many_threads_are_unique_and_not_random_uuids() {
        let threads: Vec<_> =
            (0..4).map(|_| std::thread::spawn(|| (0..1000).map(|_| create()).collect::<Vec<_>>())).collect();
        let ids: Vec<Guid> = threads.into_iter().flat_map(|t| t.join().unwrap()).collect();
        assert_eq!(ids.iter().collect::<HashSet<_>>().len(), 4000);
        assert!(ids.iter().all(|id| id.data3 == ID_VERSION));
    }
}
