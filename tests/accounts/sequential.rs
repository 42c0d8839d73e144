//! Sequential files: the events in the file and those counted as lost add up to those offered.

use crate::fixture::{Daemon, WritePath, reports, to_file, until};
use crate::ledger::{Ledger, assert_sound};
use crate::roles::{Placement, Writer};

/// Runs writers against one session and compares the accounts.
fn balance(
    writers: u32,
    threads: u32,
    events: u64,
    path: WritePath,
    shape: impl Fn(&mut Writer),
) -> (u64, u64) {
    let daemon = Daemon::start();
    let file = daemon.path("trace.etl");
    let mut control = daemon.control();
    let session = control.start(to_file("balance", &file));
    let children = (0..writers).map(|number| {
        let mut writer = Writer::new(number, threads, events);
        shape(&mut writer);
        daemon.writer(&writer, path)
    });
    let report = reports(children.collect());
    let last = control.stop(session);
    let ledger = Ledger::read(&file);
    assert_sound(&file);
    let missing: u64 = (0..writers).map(|w| ledger.missing(w, threads, events)).sum();
    assert_eq!(report.offered, u64::from(writers) * u64::from(threads) * events);
    assert_eq!(missing, last.events_lost, "what misses is counted: {last:?}");
    assert_eq!(report.refused, last.events_lost, "each writer got the error");
    assert_eq!(u64::from(ledger.lost.0), last.events_lost, "and the file says so");
    assert_eq!(last.events, ledger.len());
    assert_eq!(ledger.writers().len(), writers as usize);
    (ledger.len(), missing)
}

#[test]
fn one_process_is_recorded_exactly_once() {
    for path in WritePath::BOTH {
        balance(1, 1, 50_000, path, |_| {});
    }
}

#[test]
fn two_processes_with_migrating_threads_are_recorded_exactly_once() {
    for path in WritePath::BOTH {
        balance(2, 4, 20_000, path, |w| w.placement = Placement::Hopping);
    }
}

#[test]
fn sixteen_processes_are_recorded_exactly_once() {
    for path in WritePath::BOTH {
        balance(16, 2, 4_000, path, |w| w.placement = Placement::Hopping);
    }
}

#[test]
fn two_hundred_processes_are_recorded_exactly_once() {
    for path in WritePath::BOTH {
        balance(200, 1, 300, path, |_| {});
    }
}

#[test]
fn flood_faster_than_the_disk_is_recorded_or_counted() {
    for path in WritePath::BOTH {
        balance(2, 3, 30_000, path, |w| w.filler = 2_000);
    }
}

#[test]
fn slow_writers_lose_nothing() {
    for path in WritePath::BOTH {
        let (kept, lost) = balance(3, 2, 2_000, path, |w| (w.burst, w.pause_ms) = (200, 5));
        assert_eq!((kept, lost), (12_000, 0));
    }
}

#[test]
fn events_of_every_size_up_to_the_largest_are_recorded() {
    let largest = 65_535 - 80 - 16;
    for path in WritePath::BOTH {
        // The default buffers of 64 KiB cannot hold an event of 64 KiB: buffers of a megabyte can.
        let daemon = Daemon::start();
        let file = daemon.path("sizes.etl");
        let mut control = daemon.control();
        let mut config = to_file("sizes", &file);
        config.buffer_size = 1024;
        let session = control.start(config);
        let sizes = [0, 1, 7, 8, 100, 1_000, 4_096, 32_768, 60_000, largest];
        for (number, &filler) in sizes.iter().enumerate() {
            let mut writer = Writer::new(number as u32, 1, 8);
            (writer.filler, writer.burst, writer.pause_ms) = (filler, 1, 3);
            reports(vec![daemon.writer(&writer, path)]);
        }
        let last = control.stop(session);
        let ledger = Ledger::read(&file);
        assert_eq!((ledger.len(), last.events_lost), (sizes.len() as u64 * 8, 0));
    }
}

#[test]
fn two_hundred_simultaneous_processes_lose_none_of_their_few_events() {
    const WRITERS: u32 = 200;
    for path in WritePath::BOTH {
        let daemon = Daemon::start();
        let file = daemon.path("many.etl");
        let mut control = daemon.control();
        let mut config = to_file("many", &file);
        // The buffer sizes of `weir record`, with which the first processes get rings of megabytes.
        (config.buffer_size, config.minimum_buffers, config.maximum_buffers) = (256, 16, 128);
        let session = control.start(config);
        let mut children = Vec::new();
        for number in 0..WRITERS {
            let mut writer = Writer::new(number, 1, u64::MAX);
            (writer.burst, writer.pause_ms) = (1, 100);
            children.push(Killed(daemon.writer(&writer, path)));
        }
        until("all of them write at once", || control.query(session).processes == WRITERS);
        let before = control.flush(session).events;
        until("all of them go on", || {
            control.flush(session).events > before + u64::from(2 * WRITERS)
                && Ledger::read_running(&file).writers().len() == WRITERS as usize
        });
        let last = control.stop(session);
        drop(children);
        assert_eq!(last.events_lost, 0, "{last:?}");
        let ledger = Ledger::read(&file);
        assert_sound(&file);
        assert_eq!((ledger.writers().len(), ledger.len()), (WRITERS as usize, last.events));
    }
}

/// A child process that drop kills.
struct Killed(std::process::Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
