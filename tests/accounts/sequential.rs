//! Tests of sequential files: the events in the file and the events counted as lost add up to the
//! offered events.

use crate::fixture::{Daemon, KillOnDrop, WritePath, collect_reports, file_session_config, until};
use crate::roles::{Placement, Writer};
use crate::tally::{EventTally, assert_sound};

/// The events of a session: those in its file, and those lost.
#[derive(Debug, PartialEq, Eq)]
struct EventCounts {
    in_file: u64,
    lost: u64,
}

/// Runs writers against one session. Fails unless the events in the file and the lost events add up
/// to the offered events.
fn check_event_counts(
    writers: u32,
    threads: u32,
    events: u64,
    path: WritePath,
    configure: impl Fn(&mut Writer),
) -> EventCounts {
    let daemon = Daemon::start();
    let file = daemon.path("trace.etl");
    let mut control = daemon.connect();
    let session = control.start(file_session_config("counts", &file));
    let children = (0..writers).map(|number| {
        let mut writer = Writer::new(number, threads, events);
        configure(&mut writer);
        daemon.spawn_writer(&writer, path)
    });
    let report = collect_reports(children.collect());
    let last = control.stop(session);
    let tally = EventTally::read(&file);
    assert_sound(&file);
    let missing: u64 = (0..writers).map(|writer| tally.count_missing(writer, threads, events)).sum();
    assert_eq!(report.offered, u64::from(writers) * u64::from(threads) * events);
    assert_eq!(missing, last.events_lost, "missing events are not counted as lost: {last:?}");
    assert_eq!(report.refused, last.events_lost, "writers got a different number of errors");
    assert_eq!(tally.events_lost, last.events_lost, "the file header counts different losses");
    assert_eq!(last.events, tally.len());
    assert_eq!(tally.writers().len(), writers as usize);
    EventCounts { in_file: tally.len(), lost: missing }
}

#[test]
fn one_process_is_recorded_exactly_once() {
    for path in WritePath::BOTH {
        check_event_counts(1, 1, 50_000, path, |_| {});
    }
}

#[test]
fn two_processes_with_migrating_threads_are_recorded_exactly_once() {
    for path in WritePath::BOTH {
        check_event_counts(2, 4, 20_000, path, |writer| writer.placement = Placement::Migrating);
    }
}

#[test]
fn sixteen_processes_are_recorded_exactly_once() {
    for path in WritePath::BOTH {
        check_event_counts(16, 2, 4_000, path, |writer| writer.placement = Placement::Migrating);
    }
}

#[test]
fn two_hundred_processes_are_recorded_exactly_once() {
    for path in WritePath::BOTH {
        check_event_counts(200, 1, 300, path, |_| {});
    }
}

#[test]
fn flood_faster_than_the_disk_is_recorded_or_counted() {
    for path in WritePath::BOTH {
        check_event_counts(2, 3, 30_000, path, |writer| writer.filler_bytes = 2_000);
    }
}

#[test]
fn slow_writers_lose_nothing() {
    for path in WritePath::BOTH {
        let slow_down = |writer: &mut Writer| (writer.burst_events, writer.pause_ms) = (200, 5);
        let counts = check_event_counts(3, 2, 2_000, path, slow_down);
        assert_eq!(counts, EventCounts { in_file: 12_000, lost: 0 });
    }
}

#[test]
fn events_of_every_size_up_to_the_largest_are_recorded() {
    const MAX_EVENT_BYTES: usize = 65_535;
    const EVENT_HEADER_BYTES: usize = 80;
    const NUMBER_BYTES: usize = 16;
    let largest_filler = MAX_EVENT_BYTES - EVENT_HEADER_BYTES - NUMBER_BYTES;
    for path in WritePath::BOTH {
        // The default buffers of 64 KiB cannot hold an event of 64 KiB, so the buffers have 1 MiB.
        let daemon = Daemon::start();
        let file = daemon.path("sizes.etl");
        let mut control = daemon.connect();
        let mut config = file_session_config("sizes", &file);
        config.buffer_size = 1024;
        let session = control.start(config);
        let filler_sizes = [0, 1, 7, 8, 100, 1_000, 4_096, 32_768, 60_000, largest_filler];
        for (number, &filler) in filler_sizes.iter().enumerate() {
            let mut writer = Writer::new(number as u32, 1, 8);
            (writer.filler_bytes, writer.burst_events, writer.pause_ms) = (filler, 1, 3);
            collect_reports(vec![daemon.spawn_writer(&writer, path)]);
        }
        let last = control.stop(session);
        let tally = EventTally::read(&file);
        assert_eq!((tally.len(), last.events_lost), (filler_sizes.len() as u64 * 8, 0));
    }
}

#[test]
fn two_hundred_simultaneous_processes_lose_none_of_their_few_events() {
    const WRITERS: u32 = 200;
    for path in WritePath::BOTH {
        let daemon = Daemon::start();
        let file = daemon.path("many.etl");
        let mut control = daemon.connect();
        let mut config = file_session_config("many", &file);
        // The buffer sizes of `weir record`, with which the first processes get rings of megabytes.
        (config.buffer_size, config.minimum_buffers, config.maximum_buffers) = (256, 16, 128);
        let session = control.start(config);
        let mut children = Vec::new();
        for number in 0..WRITERS {
            let mut writer = Writer::new(number, 1, u64::MAX);
            (writer.burst_events, writer.pause_ms) = (1, 100);
            children.push(KillOnDrop(daemon.spawn_writer(&writer, path)));
        }
        until("all writers take part", || control.query(session).processes == WRITERS);
        let before = control.flush(session).events;
        until("all writers continue", || {
            control.flush(session).events > before + u64::from(2 * WRITERS)
                && EventTally::read_running(&file).writers().len() == WRITERS as usize
        });
        let last = control.stop(session);
        drop(children);
        assert_eq!(last.events_lost, 0, "events were lost: {last:?}");
        let tally = EventTally::read(&file);
        assert_sound(&file);
        assert_eq!((tally.writers().len(), tally.len()), (WRITERS as usize, last.events));
    }
}
