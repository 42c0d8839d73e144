//! Random numbers for names and ids.

use std::hash::{BuildHasher, RandomState};

/// Returns a random number by which processes, daemons and libraries can be distinguished.
#[must_use]
pub fn random() -> u64 {
    // The hasher's keys are random for each thread. A forked child has the keys of its parent, but
    // another thread id.
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let thread = rustix::thread::gettid().as_raw_nonzero().get();
    RandomState::new().hash_one((now.tv_sec, now.tv_nsec, thread))
}
