//! Tests that live consumers get each event or count it as lost, and that no writer waits for a
//! slow consumer.

use std::time::Duration;

use traceweir_format::buffer::{BufferHeader, HEADER_SIZE, Records};
use traceweir_format::spec::session::{EVENT_TRACE_FILE_MODE_SEQUENTIAL, EVENT_TRACE_REAL_TIME_MODE};
use traceweir_transport::live::{Next, QueueReader};
use traceweir_transport::message::SessionConfig;

use crate::fixture::{Daemon, WritePath, collect_reports, file_session_config, open_consumer};
use crate::roles::Writer;
use crate::tally::EventTally;

fn real_time_config(name: &str) -> SessionConfig {
    SessionConfig {
        name: name.to_owned(),
        log_file_mode: EVENT_TRACE_REAL_TIME_MODE,
        maximum_buffers: 64,
        ..SessionConfig::default()
    }
}

/// Adds all available events to the tally. Returns whether the session has ended.
fn read_available(queue: &mut QueueReader, tally: &mut EventTally) -> bool {
    let mut buffer = Vec::new();
    loop {
        match queue.pop(&mut buffer).expect("the queue is damaged") {
            Next::Ended => return true,
            Next::Empty => return false,
            Next::Buffer(bytes) => {
                let header = buffer[..HEADER_SIZE].try_into().expect("the buffer has no header");
                let header = BufferHeader::parse(header);
                let valid = header.valid_bytes(bytes);
                let mut records =
                    Records::new(&buffer[..valid], HEADER_SIZE, 0, header.processor_index, false);
                while let Some(record) = records.next().expect("a record cannot be read") {
                    tally.add_event(&record);
                }
            }
        }
    }
}

/// Reads until the session ends.
fn read_until_end(queue: &mut QueueReader, tally: &mut EventTally) {
    crate::fixture::until("the session ends", || {
        let has_ended = read_available(queue, tally);
        if !has_ended {
            std::thread::sleep(Duration::from_millis(1));
        }
        has_ended
    });
}

#[test]
fn live_consumer_gets_every_event_once_or_counts_it_as_lost() {
    for (path, low_latency) in [(WritePath::Sequence, true), (WritePath::Lock, false)] {
        let daemon = Daemon::start();
        let mut control = daemon.connect();
        let session = control.start(SessionConfig { low_latency, ..real_time_config("live") });
        let (_connection, mut queue) = open_consumer(&daemon, session);
        let reading = std::thread::spawn(move || {
            let mut tally = EventTally::default();
            read_until_end(&mut queue, &mut tally);
            (tally, queue.lost())
        });
        let children = (0..4).map(|n| daemon.spawn_writer(&Writer::new(n, 2, 10_000), path)).collect();
        let report = collect_reports(children);
        let last = control.stop(session);
        let (tally, (_, events_lost)) = reading.join().expect("the consumer panicked");
        let missing: u64 = (0..4).map(|writer| tally.count_missing(writer, 2, 10_000)).sum();
        // Four writers with two threads, each with 10,000 events.
        assert_eq!(report.offered, 80_000);
        assert_eq!(
            missing,
            last.events_lost + last.real_time_events_lost,
            "missing events are not counted as lost: {last:?}"
        );
        assert_eq!(events_lost, last.real_time_events_lost, "the consumer counts different losses");
        assert_eq!(report.refused, last.events_lost);
    }
}

#[test]
fn consumer_that_never_reads_delays_no_writer_and_has_its_own_loss_count() {
    let daemon = Daemon::start();
    let mut control = daemon.connect();
    let file = daemon.path("both.etl");
    let config = SessionConfig {
        log_file_mode: EVENT_TRACE_REAL_TIME_MODE | EVENT_TRACE_FILE_MODE_SEQUENTIAL,
        ..file_session_config("both", &file)
    };
    let session = control.start(config);
    let (_idle_connection, mut idle) = open_consumer(&daemon, session);
    let (_busy_connection, mut busy) = open_consumer(&daemon, session);
    let reading = std::thread::spawn(move || {
        let mut tally = EventTally::default();
        read_until_end(&mut busy, &mut tally);
        (tally, busy.lost())
    });
    let mut writer = Writer::new(0, 2, 60_000);
    (writer.filler_bytes, writer.burst_events, writer.pause_ms) = (200, 500, 4);
    collect_reports(vec![daemon.spawn_writer(&writer, WritePath::Sequence)]);
    let last = control.stop(session);
    let (tally, (_, busy_events_lost)) = reading.join().expect("the consumer panicked");
    let in_file = EventTally::read(&file);
    assert_eq!(
        in_file.count_missing(0, 2, 60_000),
        last.events_lost,
        "the idle consumer caused losses in the file"
    );
    assert_eq!(tally.count_missing(0, 2, 60_000), last.events_lost + busy_events_lost);
    let mut idle_tally = EventTally::default();
    assert!(read_available(&mut idle, &mut idle_tally), "the queue does not end after the queued buffers");
    let (idle_buffers_lost, idle_events_lost) = idle.lost();
    assert!(
        idle_buffers_lost > 0 && idle_events_lost > 0,
        "the idle consumer counts {idle_buffers_lost} lost buffers and {idle_events_lost} lost events"
    );
    assert_eq!(idle_tally.count_missing(0, 2, 60_000), last.events_lost + idle_events_lost);
    assert_eq!(last.real_time_events_lost, idle_events_lost + busy_events_lost);
}

#[test]
fn events_before_the_first_consumer_are_kept_for_it() {
    let daemon = Daemon::start();
    let mut control = daemon.connect();
    let session = control.start(real_time_config("backlog"));
    let mut writer = Writer::new(0, 1, 1_000);
    (writer.burst_events, writer.pause_ms) = (200, 2);
    collect_reports(vec![daemon.spawn_writer(&writer, WritePath::Sequence)]);
    control.flush(session);
    let (_connection, mut queue) = open_consumer(&daemon, session);
    let last = control.stop(session);
    let mut tally = EventTally::default();
    read_until_end(&mut queue, &mut tally);
    assert_eq!(tally.count_missing(0, 1, 1_000), last.events_lost + last.real_time_events_lost);
    assert_eq!(last.real_time_events_lost, 0);
}
