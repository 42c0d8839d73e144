//! Tests that circular files and flight recorders keep the newest events of each processor, without
//! gaps except for lost events. Also tests that a sequential file with a size limit keeps the
//! oldest events.

use traceweir_format::spec::session::{
    EVENT_TRACE_BUFFERING_MODE, EVENT_TRACE_FILE_MODE_CIRCULAR, EVENT_TRACE_FILE_MODE_SEQUENTIAL,
    EVENT_TRACE_USE_KBYTES_FOR_SIZE,
};
use traceweir_format::spec::status::Status;
use traceweir_transport::message::{Control, Message, SessionConfig, SessionRef};

use crate::fixture::{Daemon, WritePath, collect_reports, file_session_config};
use crate::roles::{Placement, Writer};
use crate::tally::{EventTally, assert_sound};

/// Fails unless the file has the newest events of each thread, and gaps are counted as lost. Pinned
/// threads write on one processor each, so the newest events of a processor are the newest events
/// of a thread.
fn assert_newest_events(tally: &EventTally, threads: u32, events: u64, lost: u64) {
    let mut missing = 0;
    for thread in 0..threads {
        let numbers = tally.event_numbers_of_thread(0, thread);
        let first = *numbers.first().unwrap_or_else(|| panic!("no event of thread {thread} is in the file"));
        assert!(numbers.last().is_some_and(|&last| last < events));
        missing += events - first - numbers.len() as u64;
    }
    assert!(
        missing <= lost,
        "{missing} events are missing after the first ones in the file, {lost} are counted as lost"
    );
}

#[test]
fn circular_file_keeps_the_newest_events_within_its_limit() {
    for path in WritePath::BOTH {
        let daemon = Daemon::start();
        let file = daemon.path("circular.etl");
        let mut control = daemon.connect();
        let mut config = file_session_config("circular", &file);
        (config.log_file_mode, config.maximum_file_size) = (EVENT_TRACE_FILE_MODE_CIRCULAR, 2);
        let session = control.start(config);
        let mut writer = Writer::new(0, 2, 40_000);
        (writer.filler_bytes, writer.burst_events, writer.pause_ms, writer.placement) =
            (100, 500, 2, Placement::Pinned);
        collect_reports(vec![daemon.spawn_writer(&writer, path)]);
        let last = control.stop(session);
        let size = file.metadata().expect("cannot open").len();
        assert!(size <= 2 << 20, "the file exceeds its limit: {size} bytes");
        assert_sound(&file);
        let tally = EventTally::read(&file);
        assert!(tally.len() > 1_000 && tally.len() < 80_000, "{} events", tally.len());
        assert_newest_events(&tally, 2, 40_000, last.events_lost);
    }
}

#[test]
fn flight_recorder_writes_its_newest_events_on_flush_and_on_stop() {
    for path in WritePath::BOTH {
        let daemon = Daemon::start();
        let file = daemon.path("recorder.etl");
        let mut control = daemon.connect();
        let mut config = file_session_config("recorder", &file);
        // 16 buffers of 64 KiB hold only a part of the 80,000 events.
        (config.log_file_mode, config.minimum_buffers, config.buffer_size) =
            (EVENT_TRACE_BUFFERING_MODE, 16, 64);
        let session = control.start(config);
        let mut writer = Writer::new(0, 2, 40_000);
        (writer.filler_bytes, writer.burst_events, writer.pause_ms, writer.placement) =
            (100, 500, 2, Placement::Pinned);
        collect_reports(vec![daemon.spawn_writer(&writer, path)]);
        let flushed = control.control(session, Control::Flush { log_file: None });
        let snapshot = EventTally::read(&file);
        assert_newest_events(&snapshot, 2, 40_000, flushed.events_lost);
        let mut second_writer = Writer::new(1, 1, 10);
        second_writer.filler_bytes = 100;
        collect_reports(vec![daemon.spawn_writer(&second_writer, path)]);
        let last = control.stop(session);
        assert_sound(&file);
        let tally = EventTally::read(&file);
        assert!(tally.len() > 1_000 && tally.len() < 80_000, "{} events", tally.len());
        assert_eq!(
            tally.event_numbers_of_thread(1, 0),
            (0..10).collect::<Vec<_>>(),
            "the newest events are missing"
        );
        assert_newest_events(&tally, 2, 40_000, last.events_lost);
    }
}

#[test]
fn sequential_file_stops_at_its_limit_and_counts_missing_events() {
    let daemon = Daemon::start();
    let file = daemon.path("limited.etl");
    let mut control = daemon.connect();
    let config = SessionConfig {
        log_file_mode: EVENT_TRACE_FILE_MODE_SEQUENTIAL | EVENT_TRACE_USE_KBYTES_FOR_SIZE,
        maximum_file_size: 512,
        ..file_session_config("limited", &file)
    };
    let session = control.start(config);
    let mut writer = Writer::new(0, 1, 20_000);
    (writer.burst_events, writer.pause_ms) = (500, 5);
    let report = collect_reports(vec![daemon.spawn_writer(&writer, WritePath::Sequence)]);
    assert_eq!(report.offered, 20_000);
    crate::fixture::until("the session ends by itself", || {
        let query = Message::Control { session: SessionRef::Id(session), control: Control::Query };
        matches!(control.ask(&query, &[]).message, Message::Refused { status, .. } if status == Status::ERROR_WMI_INSTANCE_NOT_FOUND.0)
    });
    assert!(file.metadata().expect("cannot open").len() <= 512 << 10);
    assert_sound(&file);
    let tally = EventTally::read(&file);
    let numbers = tally.event_numbers_of_thread(0, 0);
    let total = numbers.len() as u64 + tally.events_lost;
    assert!(
        numbers.len() > 1_000 && total <= 20_000,
        "{} events in the file, {} lost",
        numbers.len(),
        tally.events_lost
    );
    // The events before the end are consecutive, except those that the file counts as lost.
    let last = *numbers.last().expect("the file has no events");
    assert!(last + 1 - numbers.len() as u64 <= tally.events_lost);
}
