//! Rules for EVENT_TRACE_PROPERTIES: clocks, buffers, paths, returned values. `rule.rs` explains
//! the rows.

use std::path::{Path, PathBuf};

use traceweir::Provider;
use traceweir::controller::{EnableParams, SessionConfig};
use traceweir_format::spec::session::{
    EVENT_TRACE_BUFFERING_MODE, EVENT_TRACE_FILE_MODE_SEQUENTIAL, EVENT_TRACE_NO_PER_PROCESSOR_BUFFERING,
    EVENT_TRACE_REAL_TIME_MODE,
};
use traceweir_format::time::FileTime;

use crate::helpers::{Fixture, INVALID_PARAMETER, event, events_of, header_of, new_guid, until};
use crate::rule::{Rule, rule};

#[rustfmt::skip]
pub(crate) const RULES: &[Rule] = &[
    rule!("controller 1.1", P, "properties and file show clock 0 as 1, and other clocks unchanged",
        properties_and_file_show_the_clock),
    rule!("controller 1.1", P, "a clock other than 0 to 3 → 87", unknown_clocks_are_refused),
    rule!("controller 1.1", P, "every clock gives the same wall time", clocks_agree),
    rule!("project", P, "PerfFreq is 10⁹ with clocks 1 and 2, and with clock 3 the rate of the cycle counter, like CpuSpeedInMHz",
        rates_are_in_the_header),
    rule!("controller 1.2", P, "a buffer size of 0 is 64 KiB", default_buffer_size_is_64_kib),
    rule!("controller 1.2", D, "buffer sizes are rounded up to 4 KiB and clamped to 4…16384 KiB, never refused",
        buffers_are_rounded_and_clamped),
    rule!("controller 1.2", D, "the minimum is at least two buffers per processor, or two without per-processor buffering",
        minimum_buffers_depend_on_processors),
    rule!("controller 1.2", D, "the maximum is at least the minimum", the_maximum_is_raised),
    rule!("controller 1.2", P, "the default maximum is the minimum plus 20",
        default_maximum_is_20_above_the_minimum),
    rule!("controller 1.2", D, "the maximum is ignored in buffering mode", buffering_has_no_maximum),
    rule!("controller 1.2", D, "a file session keeps a flush timer of 0, a real-time session gets 1 second",
        real_time_sessions_get_a_flush_timer),
    rule!("controller 1.2", D, "a query returns the buffers allocated, free and written, and the flusher's thread",
        query_returns_statistics),
    rule!("controller 1.2", P, "a relative path starts at the controller's working directory",
        relative_paths_start_at_the_working_directory),
    rule!("controller 1.2", D, "nothing in a path is expanded", nothing_in_a_path_is_expanded),
    rule!("controller 1.2", D, "events for which no space is free are dropped and counted", losses_are_counted),
    rule!("controller 1.2", D, "if events fill buffers faster than they are written, buffers are added up to the maximum, and never released",
        buffers_are_added),
    rule!("controller 1.2", D, "the flush timer writes partly filled buffers to the file",
        flush_timer_writes_partly_filled_buffers),
    rule!("controller 1.2", D, "the flush timer is unused in buffering mode",
        flight_recorder_has_no_flush_timer),
    rule!("controller 1.2 #FlushThreshold", H, "this many filled buffers accumulate before they are written",
        flush_threshold_delays_writing),
    rule!("controller 1.2 #V2Options", H, "options are kept and shown", options_are_kept),
    rule!("controller 9.1", P, "EnableFlags of a session that receives no kernel events → 87, also with EXTENSION",
        enable_flags_need_a_system_logger),
    rule!("controller 1.2 #MaximumFileSize", D, "0 means no limit", file_size_0_means_no_limit),
];

fn properties_and_file_show_the_clock(fixture: &Fixture) {
    for (requested, expected) in [(0, 1), (1, 1), (2, 2), (3, 3)] {
        let config = SessionConfig { clock: requested, ..fixture.config() };
        let session = fixture.start(&config);
        assert_eq!(session.properties.config.clock, expected);
        fixture.stop(session);
        assert_eq!(header_of(&config.log_file.unwrap()).clock_type, expected);
    }
}

fn unknown_clocks_are_refused(fixture: &Fixture) {
    for clock in [4, 5, 0x8000_0001, u32::MAX] {
        assert_eq!(
            fixture.start_status(&SessionConfig { clock, ..fixture.config() }),
            INVALID_PARAMETER,
            "clock {clock}"
        );
    }
}

fn clocks_agree(fixture: &Fixture) {
    for clock in 1..=3 {
        let config = SessionConfig { clock, ..fixture.config() };
        let (guid, session) = (new_guid(), fixture.start(&config));
        let provider = Provider::register(guid, None).unwrap();
        fixture.enable(&session, guid, &EnableParams::default());
        let before = current_time();
        provider.write(&event(1), &[]).unwrap();
        let after = current_time();
        fixture.stop_and_read(session);
        let path = config.log_file.unwrap();
        let trace = traceweir_format::etl::Trace::open(std::fs::File::open(&path).unwrap()).unwrap();
        let seen = events_of(&path);
        let time = trace.clock().file_time(seen[0].time);
        // The clocks are not identical: a difference of 10 ms, in units of 100 ns, is allowed.
        let tolerance = 100_000;
        assert!(
            time.0 + tolerance >= before.0 && time.0 <= after.0 + tolerance,
            "clock {clock}: {time:?} is not between {before:?} and {after:?}"
        );
    }
}

fn current_time() -> FileTime {
    let since_epoch = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    FileTime::from_unix(i64::try_from(since_epoch.as_secs()).unwrap(), since_epoch.subsec_nanos())
}

fn rates_are_in_the_header(fixture: &Fixture) {
    for clock in 1..=3 {
        let config = SessionConfig { clock, ..fixture.config() };
        fixture.stop(fixture.start(&config));
        let header = header_of(&config.log_file.unwrap());
        let mhz = i64::from(header.cpu_speed_mhz);
        assert!(mhz > 0);
        if clock == 3 {
            assert!(
                (header.perf_freq / 1_000_000 - mhz).abs() <= 1,
                "CpuSpeedInMHz is {mhz}, PerfFreq is {}",
                header.perf_freq
            );
        } else {
            assert_eq!(header.perf_freq, 1_000_000_000, "PerfFreq with clock {clock}");
        }
    }
}

fn default_buffer_size_is_64_kib(fixture: &Fixture) {
    assert_eq!(fixture.start(&fixture.config()).properties.config.buffer_size, 64);
}

fn buffers_are_rounded_and_clamped(fixture: &Fixture) {
    for (requested, expected) in [(1, 4), (4, 4), (5, 8), (64, 64), (65, 68), (1023, 1024)] {
        let session = fixture.start(&SessionConfig { buffer_size: requested, ..fixture.config() });
        assert_eq!(session.properties.config.buffer_size, expected, "{requested} KiB");
    }
}

fn processor_count() -> u32 {
    u32::from(traceweir_transport::cpu::possible())
}

fn minimum_buffers_depend_on_processors(fixture: &Fixture) {
    let session = fixture.start(&SessionConfig { minimum_buffers: 1, ..fixture.config() });
    assert_eq!(session.properties.config.minimum_buffers, 2 * processor_count());
    let mode = EVENT_TRACE_NO_PER_PROCESSOR_BUFFERING | EVENT_TRACE_FILE_MODE_SEQUENTIAL;
    let session =
        fixture.start(&SessionConfig { log_file_mode: mode, minimum_buffers: 1, ..fixture.config() });
    assert_eq!(session.properties.config.minimum_buffers, 2);
    let larger_minimum = 2 * processor_count() + 7;
    let session = fixture.start(&SessionConfig { minimum_buffers: larger_minimum, ..fixture.config() });
    assert_eq!(session.properties.config.minimum_buffers, larger_minimum);
}

fn the_maximum_is_raised(fixture: &Fixture) {
    let config =
        SessionConfig { minimum_buffers: 40 + 2 * processor_count(), maximum_buffers: 5, ..fixture.config() };
    let config = fixture.start(&config).properties.config.clone();
    assert_eq!(config.maximum_buffers, config.minimum_buffers);
}

fn default_maximum_is_20_above_the_minimum(fixture: &Fixture) {
    let config = fixture.start(&fixture.config()).properties.config.clone();
    assert_eq!(config.maximum_buffers, config.minimum_buffers + 20);
}

fn buffering_has_no_maximum(fixture: &Fixture) {
    let config =
        SessionConfig { log_file_mode: EVENT_TRACE_BUFFERING_MODE, maximum_buffers: 500, ..fixture.config() };
    let config = fixture.start(&config).properties.config.clone();
    assert_eq!(config.maximum_buffers, config.minimum_buffers);
}

fn real_time_sessions_get_a_flush_timer(fixture: &Fixture) {
    assert_eq!(fixture.start(&fixture.config()).properties.config.flush_timer, 0);
    let live =
        SessionConfig { log_file_mode: EVENT_TRACE_REAL_TIME_MODE, log_file: None, ..fixture.config() };
    assert_eq!(fixture.start(&live).properties.config.flush_timer, 1);
    let slow =
        SessionConfig { flush_timer: 7, log_file_mode: EVENT_TRACE_REAL_TIME_MODE, ..fixture.config() };
    assert_eq!(fixture.start(&slow).properties.config.flush_timer, 7);
}

fn query_returns_statistics(fixture: &Fixture) {
    let (session, provider, _guid) = fixture.start_with_provider(&EnableParams::default());
    let initial = fixture.query(&session);
    assert!(initial.number_of_buffers >= initial.config.minimum_buffers);
    assert!(initial.free_buffers <= initial.number_of_buffers);
    assert!(
        Path::new(&format!("/proc/{}", initial.logger_thread_id)).exists(),
        "the logger thread does not exist"
    );
    for _ in 0..10 {
        provider.write(&event(1), &[&[7; 100]]).unwrap();
    }
    let end = fixture.stop(session);
    assert_eq!(
        (end.events, end.events_lost, end.log_buffers_lost, end.real_time_buffers_lost),
        (10, 0, 0, 0)
    );
    let header = header_of(&end.config.log_file.unwrap());
    assert_eq!(end.buffers_written, header.buffers_written);
    assert!(end.buffers_written >= 2, "fewer than a header buffer and an event buffer were written");
}

fn relative_paths_start_at_the_working_directory(fixture: &Fixture) {
    let (path, working_directory) = (fixture.unique_path(), std::env::current_dir().unwrap());
    let path_to_root: PathBuf = working_directory.components().skip(1).map(|_| "..").collect();
    let relative = path_to_root.join(path.strip_prefix("/").unwrap());
    assert!(relative.is_relative());
    fixture.stop(fixture.start(&SessionConfig { log_file: Some(relative), ..fixture.config() }));
    assert_eq!(events_of(&path), []);
}

fn nothing_in_a_path_is_expanded(fixture: &Fixture) {
    let path = fixture.folder().join("$HOME ~ %TEMP% ${PATH}.etl");
    fixture.stop(fixture.start(&SessionConfig { log_file: Some(path.clone()), ..fixture.config() }));
    assert_eq!(events_of(&path), []);
}

fn losses_are_counted(fixture: &Fixture) {
    let (session, provider, _guid) = fixture.start_with_provider(&EnableParams::default());
    let data = vec![1; 60_000];
    let mut refused = 0;
    for _ in 0..2_000 {
        refused += u64::from(provider.write(&event(1), &[&data]).is_err());
    }
    let end = fixture.stop(session);
    let recorded = events_of(end.config.log_file.as_deref().unwrap()).len() as u64;
    assert_eq!((end.events, end.events + end.events_lost), (recorded, 2_000));
    assert!(end.events_lost >= refused, "{} lost, {refused} refused", end.events_lost);
    assert_eq!(u64::from(header_of(&end.config.log_file.unwrap()).events_lost), end.events_lost);
}

fn buffers_are_added(fixture: &Fixture) {
    let config =
        SessionConfig { buffer_size: 4, maximum_buffers: 200, ring_bytes: 4 << 20, ..fixture.config() };
    let (session, provider, _guid) = fixture.start_config_with_provider(&config, &EnableParams::default());
    let buffer_count = || fixture.query(&session).number_of_buffers;
    let initial = buffer_count();
    let mut max_buffers = initial;
    until("buffers are added", || {
        for _ in 0..10_000 {
            let _ = provider.write(&event(1), &[&[0; 1_000]]);
        }
        let count = buffer_count();
        assert!(count >= max_buffers && count <= 200, "{max_buffers} buffers, then {count}");
        max_buffers = count;
        max_buffers > initial
    });
    fixture.connect().flush(&session.id, None).unwrap();
    assert!(buffer_count() >= max_buffers, "buffers were released");
}

fn flush_timer_writes_partly_filled_buffers(fixture: &Fixture) {
    let config = SessionConfig { flush_timer: 1, ..fixture.config() };
    let (session, provider, _guid) = fixture.start_config_with_provider(&config, &EnableParams::default());
    let before = fixture.query(&session).buffers_written;
    provider.write(&event(1), &[b"one small event"]).unwrap();
    until("a partly filled buffer is in the file", || fixture.query(&session).buffers_written > before);
}

fn flight_recorder_has_no_flush_timer(fixture: &Fixture) {
    let config =
        SessionConfig { log_file_mode: EVENT_TRACE_BUFFERING_MODE, flush_timer: 1, ..fixture.config() };
    let (session, provider, _guid) = fixture.start_config_with_provider(&config, &EnableParams::default());
    provider.write(&event(1), &[]).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(1_500));
    assert_eq!(fixture.query(&session).buffers_written, 0);
}

fn flush_threshold_delays_writing(fixture: &Fixture) {
    let config = |flush_threshold| SessionConfig {
        flush_threshold,
        log_file_mode: EVENT_TRACE_NO_PER_PROCESSOR_BUFFERING | EVENT_TRACE_FILE_MODE_SEQUENTIAL,
        buffer_size: 4,
        minimum_buffers: 40,
        ..fixture.config()
    };
    let (guid, undelayed, delayed) = (new_guid(), fixture.start(&config(0)), fixture.start(&config(20)));
    let provider = Provider::register(guid, None).unwrap();
    for session in [&undelayed, &delayed] {
        fixture.enable(session, guid, &EnableParams::default());
    }
    // These events fill five buffers and a part of the sixth.
    for _ in 0..22 {
        provider.write(&event(1), &[&[0; 900]]).unwrap();
    }
    until("the full buffers are in the file", || fixture.query(&undelayed).buffers_written >= 5);
    until("all events are in buffers", || fixture.query(&delayed).events == 22);
    assert_eq!(fixture.query(&delayed).buffers_written, 1, "more than the header buffer was written");
    fixture.connect().flush(&delayed.id, None).unwrap();
    assert!(fixture.query(&delayed).buffers_written >= 6);
    assert_eq!((fixture.stop_and_read(undelayed).len(), fixture.stop_and_read(delayed).len()), (22, 22));
}

fn options_are_kept(fixture: &Fixture) {
    let session = fixture.start(&SessionConfig { options: 0xE, ..fixture.config() });
    assert_eq!(fixture.query(&session).config.options, 0xE);
}

fn enable_flags_need_a_system_logger(fixture: &Fixture) {
    // The last value is EXTENSION.
    for enable_flags in [1, 0x0300_0000, 0x8000_0000] {
        assert_eq!(
            fixture.start_status(&SessionConfig { enable_flags, ..fixture.config() }),
            INVALID_PARAMETER,
            "EnableFlags {enable_flags:#x}"
        );
    }
}

fn file_size_0_means_no_limit(fixture: &Fixture) {
    let (session, provider, _guid) = fixture.start_with_provider(&EnableParams::default());
    for _ in 0..300 {
        while provider.write(&event(1), &[&[0; 60_000]]).is_err() {
            std::thread::yield_now();
        }
    }
    let end = fixture.stop(session);
    assert_eq!((end.events, end.end_status), (300, 0));
    assert!(std::fs::metadata(end.config.log_file.unwrap()).unwrap().len() > 300 * 60_000);
}
