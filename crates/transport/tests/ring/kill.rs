//! Tests of writers that are killed at any instant. The record of every write that returned is in
//! the ring or counted as lost. The record of the interrupted write is in the ring, counted as
//! lost, or neither. No record is torn.

use std::collections::HashSet;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use traceweir_transport::abi::{PAGE, RegionParams};
use traceweir_transport::clock::Counter;
use traceweir_transport::map::{self, Mapping};
use traceweir_transport::ring::{Outlet, RegionReader, Ticket};

use crate::support::{self, Random, RecordMark};

const WRITERS: usize = 3;

/// Creates a page in which writers store how many of their writes have returned.
pub(crate) fn create_progress_page() -> (Mapping, OwnedFd) {
    let file = map::memory_file(c"traceweir-progress", PAGE).unwrap();
    (Mapping::from_file(file.as_fd(), PAGE, true).unwrap(), file)
}

pub(crate) fn returned_writes(progress: &Mapping, writer: usize) -> u64 {
    progress.word(writer * 8).unwrap().load(Ordering::Acquire)
}

/// Writes up to `max_records` records, and counts each write that returned in `progress`. Does only
/// what a signal handler may.
pub(crate) fn write_many(outlet: &Outlet, ticket: Ticket, writer: u32, progress: &Mapping, max_records: u64) {
    let Some(word) = progress.word(writer as usize * 8) else { return };
    for number in 0..max_records {
        let _ = RecordMark::new(writer, number, 250).write(outlet, ticket);
        word.store(number + 1, Ordering::Release);
    }
}

fn fork_writer(outlet: &Outlet, ticket: Ticket, writer: u32, progress: &Mapping) -> libc::pid_t {
    // SAFETY: the child of this multi-threaded process does only what a signal handler may, until
    // it is killed.
    let child = unsafe { libc::fork() };
    if child == 0 {
        write_many(outlet, ticket, writer, progress, u64::MAX);
        // SAFETY: ends the child without running exit handlers of its parent.
        unsafe { libc::_exit(1) }
    }
    assert!(child > 0, "fork failed");
    child
}

fn kill_child(child: libc::pid_t) {
    let mut status = 0;
    // SAFETY: the process is a child of this process that was not waited for yet; `status` outlives
    // the call.
    unsafe {
        libc::kill(child, libc::SIGKILL);
        assert_eq!(libc::waitpid(child, &mut status, 0), child);
    }
    assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGKILL, "{status:#x}");
}

/// The numbers of the records that were read from each writer, and the highest stamp of each ring.
#[derive(Default)]
pub(crate) struct ReceivedRecords {
    seen: [HashSet<u64>; WRITERS],
    stamps: Vec<u64>,
}

impl ReceivedRecords {
    pub(crate) fn take_records(&mut self, reader: &mut RegionReader) {
        let Self { seen, stamps } = self;
        support::drain_region(reader, stamps, |mark| {
            assert!(seen[mark.writer as usize].insert(mark.number), "{mark:?} came twice");
        });
    }

    /// Checks that every write that returned was read or counted as lost, and that each writer has
    /// at most one more record that was read or counted.
    pub(crate) fn assert_complete(&self, reader: &mut RegionReader, returned: &[u64]) {
        let lost = reader.lost();
        let (mut missing, mut extra) = (0, 0);
        for (seen, returned) in self.seen.iter().zip(returned) {
            let found_count = seen.iter().filter(|number| *number < returned).count() as u64;
            missing += returned - found_count;
            // The record of the write that had not returned was read, counted as lost, or neither.
            // If it was not read, `lost` may be higher by one.
            extra += 1 - u64::from(seen.contains(returned));
            assert!(seen.iter().all(|number| number <= returned), "a record of a write that has not begun");
        }
        assert!((missing..=missing + extra).contains(&lost), "{missing} are missing, {lost} are counted");
    }
}

fn run_round(params: &RegionParams, random: &mut Random) {
    let outlet = support::leak_outlet();
    let (mut reader, ticket) = support::open_region(outlet, params);
    let (progress, _file) = create_progress_page();
    let children: Vec<_> =
        (0..WRITERS).map(|writer| fork_writer(outlet, ticket, writer as u32, &progress)).collect();
    let mut received = ReceivedRecords::default();
    for _ in 0..random.below(3) {
        thread::sleep(Duration::from_micros(random.below(300)));
        received.take_records(&mut reader);
    }
    // All writers are killed. A writer that is killed while it holds a lock leaves the lock taken,
    // so each round has a new region.
    children.into_iter().for_each(kill_child);
    received.take_records(&mut reader);
    let returned: Vec<u64> = (0..WRITERS).map(|writer| returned_writes(&progress, writer)).collect();
    received.assert_complete(&mut reader, &returned);
    outlet.close();
}

#[test]
fn killed_writers_leave_no_torn_or_uncounted_record() {
    let mut random = Random(3);
    // The first write initialises static data, which a forked child must not initialise.
    for clock in support::WRITER_CLOCKS {
        let outlet = support::leak_outlet();
        let (_reader, ticket) = support::open_region(outlet, &support::region_params(clock, 4096));
        RecordMark::new(0, 0, 100).write(outlet, ticket).unwrap();
        outlet.close();
    }
    for number in 0..200 {
        let clock = [Counter::Cycles, Counter::Monotonic][number % 2];
        let ring_bytes = if number % 4 < 2 { 1 << 17 } else { 1 << 14 };
        run_round(&support::region_params(clock, ring_bytes), &mut random);
    }
}

#[cfg(feature = "test-points")]
mod points {
    use std::os::fd::{AsRawFd, FromRawFd};
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    use rustix::io::{FdFlags, fcntl_setfd};
    use traceweir_transport::ring::RegionSource;

    use super::*;

    const VARIABLE: &str = "TRACEWEIR_TEST_WRITER";

    fn params(clock: Counter) -> RegionParams {
        let mut params = support::region_params(clock, 8192);
        params.wake_at = 1;
        params
    }

    /// Runs this program again as a writer that is killed when it passes a test point for the
    /// `pass`th time, and checks the records that it left.
    fn kill_at(point: &str, pass: u64, clock: Counter) {
        let (mut reader, memory) = RegionReader::create(&params(clock)).unwrap();
        let (progress, file) = create_progress_page();
        let wake = support::create_eventfd();
        for descriptor in [&memory, &wake, &file] {
            fcntl_setfd(descriptor, FdFlags::empty()).unwrap();
        }
        let numbers = [memory.as_raw_fd(), wake.as_raw_fd(), file.as_raw_fd(), clock as i32];
        let status = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "kill::points::the_writer_that_is_killed", "--ignored", "--test-threads=1"])
            .env("TRACEWEIR_TEST_POINT", format!("{point}:{pass}"))
            .env(VARIABLE, numbers.map(|number| number.to_string()).join(" "))
            .stdout(std::process::Stdio::null())
            .status()
            .unwrap();
        assert_eq!(status.signal(), Some(libc::SIGKILL), "{point}:{pass} with {clock:?}: {status:?}");
        let mut received = ReceivedRecords::default();
        received.take_records(&mut reader);
        received.assert_complete(&mut reader, &[returned_writes(&progress, 0)]);
    }

    #[test]
    #[ignore = "the other half of the tests below, which run it in a process of its own"]
    fn the_writer_that_is_killed() {
        let Ok(numbers) = std::env::var(VARIABLE) else { return };
        let numbers: Vec<i32> = numbers.split(' ').map(|number| number.parse().unwrap()).collect();
        // SAFETY: the descriptors were left open for this process, and nothing else here owns them.
        let [memory, wake, file] = [0, 1, 2].map(|at| unsafe { OwnedFd::from_raw_fd(numbers[at]) });
        let progress = Mapping::from_file(file.as_fd(), PAGE, true).unwrap();
        let params = params(Counter::from_number(numbers[3] as u32).unwrap());
        let outlet = support::leak_outlet();
        let ticket = outlet.open(RegionSource::File { memory, wake }, &params).unwrap();
        support::pin_to_cpu(0);
        write_many(outlet, ticket, 0, &progress, 500);
    }

    #[test]
    fn writer_killed_on_either_path_leaves_exact_counts() {
        for clock in support::WRITER_CLOCKS {
            for point in ["before_write", "before_lost", "after_lost"] {
                [1, 2, 40].into_iter().for_each(|pass| kill_at(point, pass, clock));
            }
            for point in ["before_wake", "after_wake"] {
                kill_at(point, 1, clock);
            }
        }
    }

    #[test]
    fn writer_killed_in_the_lock_leaves_exact_counts() {
        for point in ["fallback_locked", "fallback_copied", "fallback_published", "fallback_unlocked"] {
            [1, 2, 20].into_iter().for_each(|pass| kill_at(point, pass, Counter::Monotonic));
        }
    }

    #[test]
    fn writer_killed_after_its_sequence_leaves_exact_counts() {
        // Without sequences (another architecture, no registration) every write takes the lock, and
        // the point is never passed.
        let outlet = support::leak_outlet();
        let (mut reader, ticket) =
            support::open_region(outlet, &support::region_params(Counter::Cycles, 4096));
        RecordMark::new(0, 0, 100).write(outlet, ticket).unwrap();
        let rings = reader.rings();
        let (sequences, _) = rings.split_at_mut(rings.len() / 2);
        if sequences.iter_mut().any(|ring| ring.poll().unwrap()) {
            [1, 2, 20].into_iter().for_each(|pass| kill_at("published", pass, Counter::Cycles));
        }
        outlet.close();
    }
}
