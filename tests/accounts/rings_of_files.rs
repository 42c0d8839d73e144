//! Circular files and flight recorders: on each processor the newest events survive, without gaps.

use traceweir_transport::message::{Control, SessionConfig};

use crate::fixture::{Daemon, WritePath, reports, to_file};
use crate::ledger::{Ledger, assert_sound};
use crate::roles::{Placement, Writer};

const CIRCULAR: u32 = 0x2;
const BUFFERING: u32 = 0x400;
const KBYTES: u32 = 0x2000;

/// Fails unless each thread's events are its newest ones, back to some number, without gaps that
/// are not counted. Pinned threads write on one processor each, so a suffix per processor is a
/// suffix per thread.
fn assert_suffixes(ledger: &Ledger, threads: u32, events: u64, lost: u64) {
    let mut missing = 0;
    for thread in 0..threads {
        let numbers = ledger.thread_numbers(0, thread);
        let first = *numbers.first().unwrap_or_else(|| panic!("nothing of thread {thread} survived"));
        assert!(numbers.last().is_some_and(|&last| last < events));
        missing += events - first - numbers.len() as u64;
    }
    assert!(missing <= lost, "{missing} events miss behind the first survivors, {lost} are counted");
}

#[test]
fn circular_file_keeps_the_newest_events_within_its_limit() {
    for path in WritePath::BOTH {
        let daemon = Daemon::start();
        let file = daemon.path("circular.etl");
        let mut control = daemon.control();
        let mut config = to_file("circular", &file);
        (config.log_file_mode, config.maximum_file_size) = (CIRCULAR, 2);
        let session = control.start(config);
        let mut writer = Writer::new(0, 2, 40_000);
        (writer.filler, writer.burst, writer.pause_ms, writer.placement) = (100, 500, 2, Placement::Pinned);
        reports(vec![daemon.writer(&writer, path)]);
        let last = control.stop(session);
        let size = file.metadata().expect("the file is there").len();
        assert!(size <= 2 << 20, "{size} bytes");
        assert_sound(&file);
        let ledger = Ledger::read(&file);
        assert!(ledger.len() > 1_000 && ledger.len() < 80_000, "{} events", ledger.len());
        assert_suffixes(&ledger, 2, 40_000, last.events_lost);
    }
}

#[test]
fn flight_recorder_writes_its_newest_events_on_flush_and_on_stop() {
    for path in WritePath::BOTH {
        let daemon = Daemon::start();
        let file = daemon.path("recorder.etl");
        let mut control = daemon.control();
        let mut config = to_file("recorder", &file);
        (config.log_file_mode, config.minimum_buffers, config.buffer_size) = (BUFFERING, 16, 64);
        let session = control.start(config);
        let mut writer = Writer::new(0, 2, 40_000);
        (writer.filler, writer.burst, writer.pause_ms, writer.placement) = (100, 500, 2, Placement::Pinned);
        reports(vec![daemon.writer(&writer, path)]);
        let flushed = control.control(session, Control::Flush { log_file: None });
        let snapshot = Ledger::read(&file);
        assert_suffixes(&snapshot, 2, 40_000, flushed.events_lost);
        let mut more = Writer::new(1, 1, 10);
        more.filler = 100;
        reports(vec![daemon.writer(&more, path)]);
        let last = control.stop(session);
        assert_sound(&file);
        let ledger = Ledger::read(&file);
        assert!(ledger.len() > 1_000 && ledger.len() < 80_000, "{} events", ledger.len());
        assert_eq!(ledger.thread_numbers(1, 0), (0..10).collect::<Vec<_>>(), "the last events are there");
        assert_suffixes(&ledger, 2, 40_000, last.events_lost);
    }
}

#[test]
fn sequential_file_stops_at_its_limit_and_counts_later_events() {
    let daemon = Daemon::start();
    let file = daemon.path("limited.etl");
    let mut control = daemon.control();
    let config =
        SessionConfig { log_file_mode: 1 | KBYTES, maximum_file_size: 512, ..to_file("limited", &file) };
    let session = control.start(config);
    let mut writer = Writer::new(0, 1, 20_000);
    (writer.burst, writer.pause_ms) = (500, 5);
    let report = reports(vec![daemon.writer(&writer, WritePath::Sequence)]);
    assert_eq!(report.offered, 20_000);
    crate::fixture::until("the session ends by itself", || {
        use traceweir_transport::message::{Message, SessionRef};
        let query = Message::Control { session: SessionRef::Id(session), control: Control::Query };
        matches!(control.ask(&query, &[]).message, Message::Refused { status: 4201, .. })
    });
    assert!(file.metadata().expect("the file is there").len() <= 512 << 10);
    assert_sound(&file);
    let ledger = Ledger::read(&file);
    let numbers = ledger.thread_numbers(0, 0);
    let total = numbers.len() as u64 + u64::from(ledger.lost.0);
    assert!(numbers.len() > 1_000 && total <= 20_000, "{} kept, {} lost", numbers.len(), ledger.lost.0);
    // The events before the end are consecutive, except those that the file counts as lost.
    let last = *numbers.last().expect("events");
    assert!(last + 1 - numbers.len() as u64 <= u64::from(ledger.lost.0));
}
