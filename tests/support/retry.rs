//! Repeats measurements that other processes or the kernel may disturb.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

/// Runs `check` until it passes, at most `times` times. The panic of the last attempt fails the
/// test.
#[allow(dead_code)] // Each test program uses only some of these functions.
pub(crate) fn retry(times: u32, check: impl Fn()) {
    for _ in 1..times {
        if std::panic::catch_unwind(std::panic::AssertUnwindSafe(&check)).is_ok() {
            return;
        }
    }
    check();
}

/// Like [`retry`], for checks that fail if the kernel skips perf events of idle processors.
///
/// Some kernels (seen with Linux 6.18) report no perf events from the idle task of a processor:
/// then switches from the idle task to a thread are missing, also in `perf record`. So every second
/// attempt except the last keeps all processors busy.
#[allow(dead_code)] // Each test program uses only some of these functions.
pub(crate) fn retry_alternately_with_busy_processors(times: u32, check: impl Fn()) {
    for attempt in 1..times {
        let run_attempt = std::panic::AssertUnwindSafe(|| match attempt % 2 {
            0 => run_with_busy_processors(&check),
            _ => check(),
        });
        if std::panic::catch_unwind(run_attempt).is_ok() {
            return;
        }
    }
    check();
}

/// Runs `check` while a thread of the lowest priority spins on every processor.
fn run_with_busy_processors(check: impl Fn()) {
    struct StopOnDrop<'a>(&'a AtomicBool);
    impl Drop for StopOnDrop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Relaxed);
        }
    }
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for processor in allowed_processors() {
            let stop = &stop;
            scope.spawn(move || {
                spin_at_lowest_priority(processor, stop);
            });
        }
        let _stop = StopOnDrop(&stop);
        check();
    });
}

fn allowed_processors() -> Vec<usize> {
    // SAFETY: all zero bytes are a valid `cpu_set_t`. The call writes at most the size of `set`,
    // and each index is below CPU_SETSIZE, the number of processors in `set`.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::sched_getaffinity(0, size_of_val(&set), &raw mut set);
        (0..libc::CPU_SETSIZE as usize).filter(|processor| libc::CPU_ISSET(*processor, &set)).collect()
    }
}

fn spin_at_lowest_priority(processor: usize, stop: &AtomicBool) {
    // SAFETY: all zero bytes are valid values of `set` and `parameter`. The calls only read these
    // values, which outlive them, and `processor` is below CPU_SETSIZE.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(processor, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &raw const set);
        let parameter: libc::sched_param = std::mem::zeroed();
        if libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const parameter) != 0 {
            return;
        }
    }
    while !stop.load(Relaxed) {
        std::hint::spin_loop();
    }
}
