//! The performance counter of a session is the monotonic clock that programs read themselves.

use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

use traceweir::consumer::{Item, Trace, process};
use traceweir::controller::{Controller, EnableCode, EnableParams, SessionConfig, SessionRef};
use traceweir::{EventDescriptor, Guid, Provider};
use traceweir_format::spec::session::{EVENT_TRACE_FILE_MODE_SEQUENTIAL, EVENT_TRACE_REAL_TIME_MODE};
use traceweir_transport::clock::Counter;

use crate::support_daemon::{DaemonInThread, run_in_own_process};

const EVENTS: u64 = 15;
/// Difference that the conversion of the processor's counter may cause.
const TOLERANCE_NS: i64 = 1_000_000;

fn provider_guid() -> Guid {
    Guid::from_provider_name("Traceweir.Test.Clock")
}

/// Reads `CLOCK_MONOTONIC` in nanoseconds.
fn monotonic_ns() -> i64 {
    Counter::Monotonic.now().cast_signed()
}

/// Returns the stamps of the provider's events.
fn read_stamps(trace: Trace) -> Vec<i64> {
    let mut stamps = Vec::new();
    process(vec![trace], |item| {
        if let Item::Event(event) = item
            && event.record.provider() == provider_guid()
        {
            stamps.push(event.record.time());
        }
        ControlFlow::Continue(())
    })
    .unwrap();
    stamps
}

/// Writes events for longer than a second, so that the session renews the conversion of the
/// processor's counter meanwhile. Returns the readings of the clock before and after each write.
fn write_events(provider: &Provider) -> Vec<[i64; 2]> {
    let event = EventDescriptor { id: 1, level: 4, ..EventDescriptor::default() };
    let write = |_| {
        std::thread::sleep(Duration::from_millis(100));
        let before = monotonic_ns();
        provider.write(&event, &[]).unwrap();
        [before, monotonic_ns()]
    };
    (0..EVENTS).map(write).collect()
}

fn check_stamps(folder: &Path) {
    let _daemon = DaemonInThread::new(folder);
    let mut controller = Controller::find(None).unwrap().unwrap();
    let provider = Provider::register(provider_guid(), None).unwrap();
    let log = folder.join("clock.etl");
    let config = SessionConfig {
        name: "clock".into(),
        log_file_mode: EVENT_TRACE_REAL_TIME_MODE | EVENT_TRACE_FILE_MODE_SEQUENTIAL,
        log_file: Some(log.clone()),
        // The performance counter.
        clock: 1,
        ..SessionConfig::default()
    };
    let session = SessionRef::Id(controller.start(&config).unwrap().id);
    let params = EnableParams::default();
    controller.enable(&session, provider_guid(), EnableCode::Enable, &params, 10_000).unwrap();
    let live = Trace::live("clock").unwrap();
    assert_eq!(live.header().perf_freq, 1_000_000_000);
    let consumer = std::thread::spawn(move || read_stamps(live));
    let readings = write_events(&provider);
    controller.stop(&session).unwrap();
    let live_stamps = consumer.join().unwrap();
    let file = Trace::open(&log).unwrap();
    assert_eq!((file.header().perf_freq, file.header().clock_type), (1_000_000_000, 1));
    assert_eq!(read_stamps(file), live_stamps);
    assert_eq!(live_stamps.len(), readings.len());
    for (stamp, [before, after]) in live_stamps.iter().zip(readings) {
        let possible = before - TOLERANCE_NS..=after + TOLERANCE_NS;
        assert!(possible.contains(stamp), "{before} ≤ {stamp} ≤ {after}");
    }
}

#[test]
fn stamps_are_readings_of_the_monotonic_clock() {
    run_in_own_process("consumer_clock::stamps_are_readings_of_the_monotonic_clock", check_stamps);
}
