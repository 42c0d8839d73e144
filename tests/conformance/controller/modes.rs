//! Rules for LogFileMode: its flags, their combinations, and their effects. `rule.rs` explains the
//! rows.

use std::ops::ControlFlow;
use std::sync::mpsc;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use traceweir::Status;
use traceweir::consumer::{self, Item, Trace};
use traceweir::controller::{EnableParams, SessionConfig};
use traceweir_format::spec::session::*;

use crate::helpers::{
    BAD_PATHNAME, Fixture, INSTANCE_NOT_FOUND, INVALID_PARAMETER, LOG_FILE_FULL, SUCCESS, TEST_TIMEOUT,
    event, events_of, header_of, status, until,
};
use crate::rule::{Rule, rule};

#[rustfmt::skip]
pub(crate) const RULES: &[Rule] = &[
    rule!("controller 2 #0x0", D, "mode 0 with a file name: sequential, without a size limit", no_mode_is_sequential),
    rule!("controller 2 #0x100", D, "events are delivered to consumers at a flush", real_time_events_are_delivered),
    rule!("controller 2 #0x200, #0x1000", P, "obsolete flags are accepted and ignored",
        obsolete_flags_are_ignored),
    rule!("controller 2 #0x400", D, "the newest events stay in memory until a flush writes them",
        buffering_mode_writes_nothing_before_a_flush),
    rule!("controller 2 #0x2000", D, "the file size is counted in KiB", file_size_can_be_in_kib),
    rule!("controller 2 #0x100000, #0x200000", P, "MODE_RESERVED and LOST_EVENTS_DEBUG_MODE are ignored",
        reserved_flags_are_ignored),
    rule!("controller 2 #0x400000, #0x800000", D, "either hybrid-shutdown flag is accepted",
        shutdown_flags_are_accepted),
    rule!("controller 2 #0x1000000", D, "pageable memory is accepted", paged_memory_is_accepted),
    rule!("controller 2 #0x4000000", D, "the log file is compressed", logs_are_compressed),
    rule!("controller 2 #0x10000000", D, "all processors share one stream, and events have processor number 0",
        one_stream_serves_all_processors),
    rule!("controller 2 #0x80000000", D, "ADDTO_TRIAGE_DUMP is accepted", triage_dump_flag_is_accepted),
    rule!("controller 2", P, "internal flags → 87", internal_flags_are_refused),
    rule!("controller 2.1 #1", O, "sequential and circular → 87", sequential_excludes_circular),
    rule!("controller 2.1 #1", D, "two file modes → 87", file_modes_exclude_each_other),
    rule!("controller 2.1 #2", D, "append with real-time or private → 87",
        append_excludes_real_time_and_private),
    rule!("controller 2.1 #3", P, "append with a clock other than system time → 87",
        append_needs_system_time),
    rule!("controller 2.1 #4", D, "buffering with any file mode or real-time → 87",
        buffering_excludes_file_modes_and_real_time),
    rule!("controller 2.1 #5", D, "private and real-time → 87", private_excludes_real_time),
    rule!("controller 2.1 #6", D, "private and independent → 87", private_excludes_independent),
    rule!("controller 2.1 #7", D, "private and preallocate → 87", private_excludes_preallocate),
    rule!("controller 2.1 #8", D, "private and new-file → 87", private_excludes_new_file),
    rule!("controller 2.1 #10", P, "in-process without private → 87", in_process_needs_private),
    rule!("controller 2.1 #11", D, "new-file with no or more than one %d → 87", new_file_name_needs_one_number),
    rule!("controller 2.1 #11", D, "circular, new-file or preallocate without a size → 87",
        size_limit_is_required),
    rule!("controller 2.1 #12", D, "global and local sequence → 87", global_and_local_sequence_are_refused),
    rule!("controller 2.1 #13", D, "system logger and paged memory → 87", system_logger_refuses_paged_memory),
    rule!("controller 2.1 #15", P, "non-stoppable from StartTrace → 87", only_autologgers_are_non_stoppable),
    rule!("controller 2.1 #16", P, "both hybrid-shutdown flags → 87", both_shutdown_flags_are_refused),
    rule!("controller 2.1 #17", O, "no mode and no file name → 161",
        session_without_file_and_mode_is_refused),
    rule!("controller 2.1 #18", D, "real-time with a file name also writes a sequential file",
        real_time_session_also_writes_a_file),
    rule!("controller 2.1 #19", D, "a file mode without a file name → 161", file_modes_need_a_file),
    rule!("controller 2.1 #20", P, "compressed and circular, compressed and append → 87",
        compressed_excludes_circular_and_append),
    rule!("controller 2.2", D, "sequential at its limit: the session stops by itself; later calls → 4201",
        a_full_log_ends_the_session),
    rule!("controller 2.2", D, "circular: the file never exceeds the limit and holds the newest events in time order",
        a_circular_log_keeps_the_newest),
    rule!("controller 2.2", D, "real-time without consumers: a bounded store keeps events for the first consumer",
        first_consumer_gets_stored_events),
    rule!("controller 2.2", D, "real-time without consumers: when the store is full, lost events are counted", a_full_store_loses_events),
    rule!("controller 2.2", D, "real-time without consumers: when the store is full, writers get 0xC0000188",
        full_store_is_reported_to_writers),
    rule!("controller 2.2", D, "real-time and file: each tick of the flush timer writes partly filled buffers",
        flush_timer_writes_the_file),
];

const SEQUENTIAL: u32 = EVENT_TRACE_FILE_MODE_SEQUENTIAL;
const CIRCULAR: u32 = EVENT_TRACE_FILE_MODE_CIRCULAR;
const APPEND: u32 = EVENT_TRACE_FILE_MODE_APPEND;
const NEWFILE: u32 = EVENT_TRACE_FILE_MODE_NEWFILE;
const PREALLOCATE: u32 = EVENT_TRACE_FILE_MODE_PREALLOCATE;
const REAL_TIME: u32 = EVENT_TRACE_REAL_TIME_MODE;
const BUFFERING: u32 = EVENT_TRACE_BUFFERING_MODE;
const PRIVATE: u32 = EVENT_TRACE_PRIVATE_LOGGER_MODE;
const IN_PROC: u32 = EVENT_TRACE_PRIVATE_IN_PROC;
const PAGED: u32 = EVENT_TRACE_USE_PAGED_MEMORY;
const COMPRESSED: u32 = EVENT_TRACE_COMPRESSED_MODE;
const INDEPENDENT: u32 = EVENT_TRACE_INDEPENDENT_SESSION_MODE;
const ONE_STREAM: u32 = EVENT_TRACE_NO_PER_PROCESSOR_BUFFERING;

/// Returns a configuration in which only the flags can be invalid.
fn config_with(fixture: &Fixture, mode: u32) -> SessionConfig {
    let name = if mode & NEWFILE != 0 { "sequence %d.etl" } else { "single.etl" };
    let log_file = Some(fixture.folder().join(format!("{} {name}", crate::helpers::unique_number())));
    // Append requires the system time (2).
    let clock = if mode & APPEND != 0 { 2 } else { 1 };
    SessionConfig { log_file_mode: mode, maximum_file_size: 16, clock, log_file, ..fixture.config() }
}

#[track_caller]
fn assert_all_refused(fixture: &Fixture, modes: &[u32]) {
    for mode in modes {
        assert_eq!(fixture.start_status(&config_with(fixture, *mode)), INVALID_PARAMETER, "mode {mode:#x}");
    }
}

#[track_caller]
fn assert_all_accepted(fixture: &Fixture, modes: &[u32]) {
    for mode in modes {
        let session = fixture.start(&config_with(fixture, *mode));
        assert_eq!(session.properties.config.log_file_mode & mode, *mode, "mode {mode:#x} is not reported");
        assert_eq!(fixture.stop_and_read(session), [], "mode {mode:#x} recorded events");
    }
}

fn no_mode_is_sequential(fixture: &Fixture) {
    let config = SessionConfig { log_file_mode: 0, ..fixture.config() };
    let (session, provider, _guid) = fixture.start_config_with_provider(&config, &EnableParams::default());
    provider.write(&event(3), &[b"x"]).unwrap();
    assert_eq!(fixture.stop_and_read(session).len(), 1);
    assert_eq!(header_of(&config.log_file.unwrap()).maximum_file_size, 0);
}

fn real_time_events_are_delivered(fixture: &Fixture) {
    let config =
        SessionConfig { log_file_mode: REAL_TIME, log_file: None, flush_timer: 60, ..fixture.config() };
    let (session, provider, _guid) = fixture.start_config_with_provider(&config, &EnableParams::default());
    let trace = Trace::live(&session.properties.config.name).unwrap();
    let (sender, received) = mpsc::channel();
    let reader = std::thread::spawn(move || {
        consumer::process(vec![trace], |item| {
            if let Item::Event(event) = item {
                let _ = sender.send(event.record.descriptor().id);
            }
            ControlFlow::Continue(())
        })
    });
    provider.write(&event(77), &[b"live"]).unwrap();
    fixture.connect().flush(&session.id, None).unwrap();
    let ids = std::iter::from_fn(|| received.recv_timeout(TEST_TIMEOUT).ok());
    assert!(ids.into_iter().any(|id| id == 77), "the event was not delivered");
    fixture.stop(session);
    reader.join().unwrap().unwrap();
}

fn obsolete_flags_are_ignored(fixture: &Fixture) {
    let flags = [EVENT_TRACE_DELAY_OPEN_FILE_MODE, EVENT_TRACE_ADD_HEADER_MODE];
    assert_all_accepted(fixture, &flags.map(|flag| flag | SEQUENTIAL));
}

fn buffering_mode_writes_nothing_before_a_flush(fixture: &Fixture) {
    let config =
        SessionConfig { log_file_mode: BUFFERING, buffer_size: 4, minimum_buffers: 4, ..fixture.config() };
    let (session, provider, _guid) = fixture.start_config_with_provider(&config, &EnableParams::default());
    for number in 0..2_000u16 {
        until("the write succeeds", || provider.write(&event(number), &[&[0; 64]]).is_ok());
    }
    let log_file = config.log_file.unwrap();
    assert_eq!(fixture.query(&session).buffers_written, 0, "buffers were written without a flush");
    fixture.connect().flush(&session.id, None).unwrap();
    let seen = events_of(&log_file);
    assert_eq!(seen.last().unwrap().descriptor.id, 1_999, "the newest event is missing");
    assert!(seen.len() < 2_000, "the oldest events were kept: {} events", seen.len());
    fixture.stop(session);
}

fn file_size_can_be_in_kib(fixture: &Fixture) {
    let mode = CIRCULAR | EVENT_TRACE_USE_KBYTES_FOR_SIZE;
    let config =
        SessionConfig { log_file_mode: mode, maximum_file_size: 256, buffer_size: 16, ..fixture.config() };
    let (session, provider, _guid) = fixture.start_config_with_provider(&config, &EnableParams::default());
    for _ in 0..1_000 {
        let _ = provider.write(&event(1), &[&[0; 1_000]]);
    }
    fixture.stop(session);
    assert!(std::fs::metadata(config.log_file.unwrap()).unwrap().len() <= 256 << 10);
}

fn reserved_flags_are_ignored(fixture: &Fixture) {
    let flags = [EVENT_TRACE_MODE_RESERVED, EVENT_TRACE_LOST_EVENTS_DEBUG_MODE];
    assert_all_accepted(fixture, &flags.map(|flag| flag | SEQUENTIAL));
}

fn shutdown_flags_are_accepted(fixture: &Fixture) {
    let flags = [EVENT_TRACE_STOP_ON_HYBRID_SHUTDOWN, EVENT_TRACE_PERSIST_ON_HYBRID_SHUTDOWN];
    assert_all_accepted(fixture, &flags.map(|flag| flag | SEQUENTIAL));
}

fn paged_memory_is_accepted(fixture: &Fixture) {
    assert_all_accepted(fixture, &[PAGED | SEQUENTIAL]);
}

fn logs_are_compressed(fixture: &Fixture) {
    let config = SessionConfig { log_file_mode: COMPRESSED | SEQUENTIAL, ..fixture.config() };
    let (session, provider, _guid) = fixture.start_config_with_provider(&config, &EnableParams::default());
    for _ in 0..100 {
        provider.write(&event(9), &[&[b'a'; 1_000]]).unwrap();
    }
    assert_eq!(fixture.stop_and_read(session).len(), 100);
    let path = config.log_file.unwrap();
    assert!(std::fs::metadata(&path).unwrap().len() < 100_000, "100,000 equal bytes were not compressed");
    let trace = traceweir_format::etl::Trace::open(std::fs::File::open(path).unwrap()).unwrap();
    assert!(trace.is_compressed());
}

fn one_stream_serves_all_processors(fixture: &Fixture) {
    let config = SessionConfig { log_file_mode: ONE_STREAM | SEQUENTIAL, ..fixture.config() };
    let (session, provider, _guid) = fixture.start_config_with_provider(&config, &EnableParams::default());
    let allowed = sched_getaffinity(None).unwrap();
    let cpus: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).collect();
    // Successive events are written on different processors: separate streams would not keep them
    // in order.
    for (number, cpu) in (0..200).zip(cpus.iter().cycle()) {
        let mut one_cpu = CpuSet::new();
        one_cpu.set(*cpu);
        sched_setaffinity(None, &one_cpu).unwrap();
        provider.write(&event(number), &[]).unwrap();
    }
    sched_setaffinity(None, &allowed).unwrap();
    fixture.stop(session);
    let path = config.log_file.unwrap();
    assert_eq!(header_of(&path).processors, 1);
    let ids: Vec<u16> = events_of(&path).iter().map(|seen| seen.descriptor.id).collect();
    assert_eq!(
        ids,
        (0..200).collect::<Vec<_>>(),
        "the order of events from {} processors changed",
        cpus.len()
    );
    let trace = traceweir_format::etl::Trace::open(std::fs::File::open(&path).unwrap()).unwrap();
    let mut records = trace.events();
    while let Some(record) = records.next().unwrap() {
        assert_eq!(record.cpu(), 0, "the event's processor number is not 0");
    }
}

fn triage_dump_flag_is_accepted(fixture: &Fixture) {
    assert_all_accepted(fixture, &[EVENT_TRACE_ADDTO_TRIAGE_DUMP | SEQUENTIAL]);
}

fn internal_flags_are_refused(fixture: &Fixture) {
    for flag in [0x10, 0x1_0000, 0x4_0000, 0x8_0000, 0x2000_0000, 0x4000_0000] {
        assert_all_refused(fixture, &[SEQUENTIAL | flag, flag]);
    }
}

fn sequential_excludes_circular(fixture: &Fixture) {
    assert_all_refused(fixture, &[SEQUENTIAL | CIRCULAR]);
}

fn file_modes_exclude_each_other(fixture: &Fixture) {
    assert_all_refused(
        fixture,
        &[SEQUENTIAL | NEWFILE, CIRCULAR | APPEND, CIRCULAR | NEWFILE, APPEND | NEWFILE],
    );
}

fn append_excludes_real_time_and_private(fixture: &Fixture) {
    assert_all_refused(fixture, &[APPEND | REAL_TIME, APPEND | PRIVATE, APPEND | PRIVATE | IN_PROC]);
}

fn append_needs_system_time(fixture: &Fixture) {
    for clock in [0, 1, 3] {
        let config = SessionConfig { log_file_mode: APPEND, clock, ..fixture.config() };
        assert_eq!(fixture.start_status(&config), INVALID_PARAMETER, "clock {clock}");
    }
}

fn buffering_excludes_file_modes_and_real_time(fixture: &Fixture) {
    assert_all_refused(
        fixture,
        &[SEQUENTIAL, CIRCULAR, APPEND, NEWFILE, REAL_TIME].map(|mode| BUFFERING | mode),
    );
}

fn private_excludes_real_time(fixture: &Fixture) {
    assert_all_refused(fixture, &[PRIVATE | REAL_TIME, PRIVATE | IN_PROC | REAL_TIME]);
}

fn private_excludes_independent(fixture: &Fixture) {
    assert_all_refused(fixture, &[PRIVATE | INDEPENDENT, PRIVATE | IN_PROC | INDEPENDENT]);
}

fn private_excludes_preallocate(fixture: &Fixture) {
    assert_all_refused(fixture, &[PRIVATE | PREALLOCATE, PRIVATE | IN_PROC | PREALLOCATE]);
}

fn private_excludes_new_file(fixture: &Fixture) {
    assert_all_refused(fixture, &[PRIVATE | NEWFILE, PRIVATE | IN_PROC | NEWFILE]);
}

fn in_process_needs_private(fixture: &Fixture) {
    assert_all_refused(fixture, &[IN_PROC | SEQUENTIAL, IN_PROC]);
}

fn new_file_name_needs_one_number(fixture: &Fixture) {
    for name in ["none.etl", "%d and %d.etl", "%u.etl"] {
        let log_file = Some(fixture.folder().join(name));
        assert_eq!(
            fixture.start_status(&SessionConfig { log_file, ..config_with(fixture, NEWFILE) }),
            INVALID_PARAMETER,
            "file name {name}"
        );
    }
}

fn size_limit_is_required(fixture: &Fixture) {
    for mode in [CIRCULAR, NEWFILE, PREALLOCATE, PREALLOCATE | SEQUENTIAL] {
        let config = SessionConfig { maximum_file_size: 0, ..config_with(fixture, mode) };
        assert_eq!(fixture.start_status(&config), INVALID_PARAMETER, "mode {mode:#x}");
    }
}

fn global_and_local_sequence_are_refused(fixture: &Fixture) {
    let sequence_flags = EVENT_TRACE_USE_GLOBAL_SEQUENCE | EVENT_TRACE_USE_LOCAL_SEQUENCE;
    assert_all_refused(fixture, &[sequence_flags | SEQUENTIAL]);
}

fn system_logger_refuses_paged_memory(fixture: &Fixture) {
    assert_all_refused(fixture, &[EVENT_TRACE_SYSTEM_LOGGER_MODE | PAGED | SEQUENTIAL]);
}

fn only_autologgers_are_non_stoppable(fixture: &Fixture) {
    assert_all_refused(fixture, &[EVENT_TRACE_NONSTOPPABLE_MODE | SEQUENTIAL]);
}

fn both_shutdown_flags_are_refused(fixture: &Fixture) {
    let shutdown_flags = EVENT_TRACE_STOP_ON_HYBRID_SHUTDOWN | EVENT_TRACE_PERSIST_ON_HYBRID_SHUTDOWN;
    assert_all_refused(fixture, &[shutdown_flags | SEQUENTIAL]);
}

fn session_without_file_and_mode_is_refused(fixture: &Fixture) {
    assert_eq!(
        fixture.start_status(&SessionConfig { log_file: None, ..config_with(fixture, 0) }),
        BAD_PATHNAME
    );
}

fn real_time_session_also_writes_a_file(fixture: &Fixture) {
    let config = SessionConfig { log_file_mode: REAL_TIME, ..fixture.config() };
    let (session, provider, _guid) = fixture.start_config_with_provider(&config, &EnableParams::default());
    provider.write(&event(5), &[b"both"]).unwrap();
    assert_eq!(fixture.stop_and_read(session).len(), 1);
}

fn file_modes_need_a_file(fixture: &Fixture) {
    for mode in [SEQUENTIAL, CIRCULAR, NEWFILE, APPEND, REAL_TIME | SEQUENTIAL, REAL_TIME | CIRCULAR] {
        let config = SessionConfig { log_file: None, ..config_with(fixture, mode) };
        assert_eq!(fixture.start_status(&config), BAD_PATHNAME, "mode {mode:#x}");
    }
}

fn compressed_excludes_circular_and_append(fixture: &Fixture) {
    assert_all_refused(fixture, &[COMPRESSED | CIRCULAR, COMPRESSED | APPEND]);
}

fn a_full_log_ends_the_session(fixture: &Fixture) {
    let config = SessionConfig {
        log_file_mode: SEQUENTIAL | EVENT_TRACE_USE_KBYTES_FOR_SIZE,
        maximum_file_size: 128,
        buffer_size: 16,
        ..fixture.config()
    };
    let (session, provider, _guid) = fixture.start_config_with_provider(&config, &EnableParams::default());
    until("the session has ended", || {
        let _ = provider.write(&event(1), &[&[0; 1_000]]);
        fixture.connect().query(&session.id).is_err()
    });
    let mut controller = fixture.connect();
    assert_eq!(status(controller.query(&session.id)), INSTANCE_NOT_FOUND);
    assert_eq!(status(controller.flush(&session.id, None)), INSTANCE_NOT_FOUND);
    assert_eq!(status(controller.stop(&session.id)), INSTANCE_NOT_FOUND);
    let path = config.log_file.unwrap();
    assert!(std::fs::metadata(&path).unwrap().len() <= 128 << 10);
    assert!(!events_of(&path).is_empty());
}

fn a_circular_log_keeps_the_newest(fixture: &Fixture) {
    let config = SessionConfig {
        log_file_mode: CIRCULAR | EVENT_TRACE_USE_KBYTES_FOR_SIZE,
        maximum_file_size: 128,
        buffer_size: 8,
        ..fixture.config()
    };
    let (session, provider, _guid) = fixture.start_config_with_provider(&config, &EnableParams::default());
    let path = config.log_file.unwrap();
    for number in 0..4_000u16 {
        until("the write succeeds", || provider.write(&event(number), &[&[0; 200]]).is_ok());
        if number % 500 == 0 {
            assert!(std::fs::metadata(&path).unwrap().len() <= 128 << 10);
        }
    }
    let seen = fixture.stop_and_read(session);
    assert!(std::fs::metadata(&path).unwrap().len() <= 128 << 10);
    assert_eq!(seen.last().unwrap().descriptor.id, 3_999);
    assert!(seen.len() < 1_000, "old events were kept: {} events", seen.len());
    assert!(seen.is_sorted_by_key(|event| event.time), "the events are not in time order");
}

/// Starts a real-time session with a small store and no consumer, and fills the store. Returns the
/// session and the statuses of all writes.
fn fill_store(fixture: &Fixture) -> (crate::helpers::Session, Vec<Status>) {
    let mode = REAL_TIME | ONE_STREAM;
    let config = SessionConfig {
        log_file_mode: mode,
        log_file: None,
        buffer_size: 4,
        minimum_buffers: 2,
        maximum_buffers: 4,
        ..fixture.config()
    };
    let (session, provider, _guid) = fixture.start_config_with_provider(&config, &EnableParams::default());
    let mut results = Vec::new();
    until("the store is full", || {
        for _ in 0..10 {
            let written = provider.write(&event(1), &[&[0; 1_000]]);
            results.push(written.map_or_else(|error| error.status(), |()| SUCCESS));
        }
        fixture.connect().flush(&session.id, None).unwrap();
        results.last() == Some(&LOG_FILE_FULL)
    });
    (session, results)
}

fn first_consumer_gets_stored_events(fixture: &Fixture) {
    let config = SessionConfig { log_file_mode: REAL_TIME, log_file: None, ..fixture.config() };
    let (session, provider, _guid) = fixture.start_config_with_provider(&config, &EnableParams::default());
    provider.write(&event(41), &[b"early"]).unwrap();
    fixture.connect().flush(&session.id, None).unwrap();
    let trace = Trace::live(&session.properties.config.name).unwrap();
    provider.write(&event(42), &[b"late"]).unwrap();
    fixture.stop(session);
    let mut ids = Vec::new();
    consumer::process(vec![trace], |item| {
        // Events with a hook id are those of the session itself, such as the header.
        if let Item::Event(event) = item
            && event.record.hook().is_none()
        {
            ids.push(event.record.descriptor().id);
        }
        ControlFlow::Continue(())
    })
    .unwrap();
    assert_eq!(ids, [41, 42]);
}

fn a_full_store_loses_events(fixture: &Fixture) {
    let (session, _) = fill_store(fixture);
    let end = fixture.stop(session);
    assert!(end.real_time_buffers_lost > 0 && end.real_time_events_lost > 0);
    assert!(end.events_lost > 0, "refused events are not counted as lost");
}

fn flush_timer_writes_the_file(fixture: &Fixture) {
    let (session, provider, _guid) = fixture.start_config_with_provider(
        &SessionConfig { log_file_mode: REAL_TIME, ..fixture.config() },
        &EnableParams::default(),
    );
    let before = fixture.query(&session).buffers_written;
    provider.write(&event(1), &[b"one small event"]).unwrap();
    until("a partly filled buffer is in the file", || fixture.query(&session).buffers_written > before);
    assert_eq!(fixture.stop_and_read(session).len(), 1);
}

fn full_store_is_reported_to_writers(fixture: &Fixture) {
    let (_session, results) = fill_store(fixture);
    assert_eq!(results.last(), Some(&LOG_FILE_FULL));
}
