//! Keys of events (extended item 10): the same in all sessions that get an event, and another one for every other event of the process.
//!
//! ```text
//!   low half of the process start key (start in ticks │ process id, 16 bits each) │ number of the event in the process
//! ```
//!
//! The process id is the one that the process itself sees. Nothing is allocated, and no lock is taken: a signal handler may be the first who needs a key.
//!
//! 64 bits cannot tell all events of a machine apart: numbers begin anew after 2³² events with keys, and two processes have the same half where their ids
//! (above 65,535, or in containers) and the ticks of their starts agree in the lowest 16 bits. A reader who must not mix them up looks at the
//! process start key (item 13), too.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::fs::{Mode, OFlags};
use traceweir_session::identity::{start_key, ticks_in};

use crate::client::fork;

/// The key of the next event. `text` has room for a file, as far as it is read: 1 KiB is enough for all fields up to the start time, however long they are.
pub(super) fn next(text: &mut [u8]) -> u64 {
    static COUNTER: AtomicU32 = AtomicU32::new(1);
    // Relaxed: only that the numbers differ matters.
    u64::from(process_half(text)) << 32 | u64::from(COUNTER.fetch_add(1, Ordering::Relaxed))
}

/// Remembered with the serial number of the process: a forked child inherits the memory.
fn process_half(text: &mut [u8]) -> u32 {
    static KNOWN: AtomicU64 = AtomicU64::new(0);
    let serial = fork::serial();
    let [known, of] = halves(KNOWN.load(Ordering::Relaxed));
    if of == serial && known != 0 {
        return known;
    }
    let pid = rustix::process::getpid().as_raw_nonzero().get().cast_unsigned();
    let [half, _] = halves(start_key(0, own_ticks(text).unwrap_or(0), pid));
    KNOWN.store(u64::from(serial) << 32 | u64::from(half), Ordering::Relaxed);
    half
}

/// The low and the high half.
fn halves(word: u64) -> [u32; 2] {
    [word as u32, (word >> 32) as u32]
}

fn own_ticks(text: &mut [u8]) -> Option<u64> {
    let file = rustix::fs::open(c"/proc/self/stat", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let count = rustix::io::read(&file, &mut *text).ok()?;
    ticks_in(text.get(..count)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use traceweir_session::Identity;

    #[test]
    fn keys_are_the_process_and_a_number() {
        let threads: Vec<_> = (0..4)
            .map(|_| std::thread::spawn(|| (0..1000).map(|_| next(&mut [0; 1024])).collect::<Vec<_>>()))
            .collect();
        let mut keys: Vec<u64> = threads.into_iter().flat_map(|t| t.join().unwrap()).collect();
        let start_key = Identity::of(std::process::id(), 0).start_key.unwrap();
        assert!(keys.iter().all(|key| key >> 32 == start_key & 0xFFFF_FFFF));
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), 4000);
    }
}
