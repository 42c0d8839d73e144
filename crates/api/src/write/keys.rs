//! Event keys (extended data item 10): equal in all sessions that get an event, and different for
//! every other event of the process.
//!
//! ```text
//!   low half of the process start key (start in ticks │ process id, 16 bits each) │
//!   number of the event in the process
//! ```
//!
//! The process id is the one that the process itself sees. Making a key allocates nothing and takes
//! no lock: a signal handler may make the first one.
//!
//! 64 bits cannot distinguish all events of a machine: numbers repeat after 2³² events with keys,
//! and two processes share the upper half if their ids (above 65,535, or in containers) and start
//! ticks agree in the lowest 16 bits. A reader that must distinguish them also compares the process
//! start key (item 13).

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::fs::{Mode, OFlags};
use traceweir_session::identity::{start_key, start_ticks_in};

use crate::process::fork;

/// Returns the key of the next event. `text` is a buffer for `/proc/self/stat`: 1 KiB is enough for
/// all fields up to the start time.
pub(super) fn next_key(text: &mut [u8]) -> u64 {
    static COUNTER: AtomicU32 = AtomicU32::new(1);
    // Relaxed: the numbers must differ, in any order.
    u64::from(process_key_half(text)) << 32 | u64::from(COUNTER.fetch_add(1, Ordering::Relaxed))
}

/// Returns the upper half of keys. Cached with the serial number of the process, because a forked
/// child inherits the memory.
fn process_key_half(text: &mut [u8]) -> u32 {
    static CACHED: AtomicU64 = AtomicU64::new(0);
    let serial = fork::serial();
    let [half, cached_serial] = split_halves(CACHED.load(Ordering::Relaxed));
    if cached_serial == serial && half != 0 {
        return half;
    }
    // The boot number, here 0, is in the upper half of the start key, which is not used.
    let pid = rustix::process::getpid().as_raw_nonzero().get().cast_unsigned();
    let [half, _] = split_halves(start_key(0, read_own_start_ticks(text).unwrap_or(0), pid));
    CACHED.store(u64::from(serial) << 32 | u64::from(half), Ordering::Relaxed);
    half
}

/// Splits a word into its low and high half.
fn split_halves(word: u64) -> [u32; 2] {
    [word as u32, (word >> 32) as u32]
}

fn read_own_start_ticks(text: &mut [u8]) -> Option<u64> {
    let file = rustix::fs::open(c"/proc/self/stat", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let count = rustix::io::read(&file, &mut *text).ok()?;
    start_ticks_in(text.get(..count)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use traceweir_session::Identity;

    #[test]
    fn key_consists_of_process_and_counter() {
        let threads: Vec<_> = (0..4)
            .map(|_| std::thread::spawn(|| (0..1000).map(|_| next_key(&mut [0; 1024])).collect::<Vec<_>>()))
            .collect();
        let mut keys: Vec<u64> = threads.into_iter().flat_map(|t| t.join().unwrap()).collect();
        let start_key = Identity::read(std::process::id(), 0).start_key.unwrap();
        assert!(keys.iter().all(|key| key >> 32 == start_key & 0xFFFF_FFFF));
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), 4000);
    }
}
