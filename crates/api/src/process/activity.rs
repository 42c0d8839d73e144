//! Activity ids on Linux.
//!
//! ```text
//!   data1, data2   48 bits: 26 bits of the PID namespace's inode, 22 bits of the process id
//!   data3          0xE000: a version that no random or time-based UUID has
//!   data4          64 bits: a counter that starts at the nanoseconds since boot
//! ```
//!
//! Two processes of one namespace differ in the process id or, if the id is reused, in the counter:
//! a process creates less than one id a nanosecond, so the counter of a later process starts above
//! all numbers of an earlier one.

use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::time::{ClockId, clock_gettime};
use traceweir_format::Guid;

use super::thread;

/// `data3` of created ids.
const ID_VERSION: u16 = 0xE000;
/// Process ids have at most 22 bits (PID_MAX_LIMIT).
const PID_BITS: u32 = 22;
const PID_MASK: u64 = (1 << PID_BITS) - 1;
/// The low 26 bits of a namespace's inode.
const NAMESPACE_MASK: u64 = (1 << 26) - 1;

/// Returns the thread's activity id.
#[inline]
pub(crate) fn current() -> Guid {
    thread::activity()
}

/// Sets the thread's activity id and returns the former one.
pub(crate) fn set(id: Guid) -> Guid {
    thread::set_activity(id)
}

/// Returns a new activity id.
pub(crate) fn create() -> Guid {
    let counter = next_count();
    let key = u128::from(process_key());
    Guid::from_u128(key << 80 | u128::from(ID_VERSION) << 64 | u128::from(counter))
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
    fn ids_of_many_threads_are_unique_and_not_random_uuids() {
        let threads: Vec<_> =
            (0..4).map(|_| std::thread::spawn(|| (0..1000).map(|_| create()).collect::<Vec<_>>())).collect();
        let ids: Vec<Guid> = threads.into_iter().flat_map(|t| t.join().unwrap()).collect();
        assert_eq!(ids.iter().collect::<HashSet<_>>().len(), 4000);
        assert!(ids.iter().all(|id| id.data3 == ID_VERSION));
    }
}
