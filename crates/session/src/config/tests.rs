//! Tests of configurations: modes that are rejected, sizes that are adjusted, limits and rings.

use super::*;
use std::path::PathBuf;
use traceweir_format::spec::session::{
    EVENT_TRACE_ADD_HEADER_MODE as ADD_HEADER, EVENT_TRACE_ADDTO_TRIAGE_DUMP as TRIAGE_DUMP,
    EVENT_TRACE_BLOCKING_MODE as BLOCKING, EVENT_TRACE_BUFFER_INTERFACE_MODE as BUFFER_INTERFACE,
    EVENT_TRACE_BUFFERING_MODE as BUFFERING, EVENT_TRACE_COMPRESSED_MODE as COMPRESSED,
    EVENT_TRACE_DELAY_OPEN_FILE_MODE as DELAY_OPEN, EVENT_TRACE_FILE_MODE_APPEND as APPEND,
    EVENT_TRACE_FILE_MODE_CIRCULAR as CIRCULAR, EVENT_TRACE_FILE_MODE_NEWFILE as NEWFILE,
    EVENT_TRACE_FILE_MODE_PREALLOCATE as PREALLOCATE, EVENT_TRACE_FILE_MODE_SEQUENTIAL as SEQUENTIAL,
    EVENT_TRACE_INDEPENDENT_SESSION_MODE as INDEPENDENT, EVENT_TRACE_KD_FILTER_MODE as KD_FILTER,
    EVENT_TRACE_LOST_EVENTS_DEBUG_MODE as LOST_EVENTS_DEBUG, EVENT_TRACE_MODE_RESERVED as RESERVED,
    EVENT_TRACE_NO_PER_PROCESSOR_BUFFERING as ONE_STREAM, EVENT_TRACE_NONSTOPPABLE_MODE as NONSTOPPABLE,
    EVENT_TRACE_PERSIST_ON_HYBRID_SHUTDOWN as PERSIST_ON_SHUTDOWN, EVENT_TRACE_PRIVATE_IN_PROC as IN_PROC,
    EVENT_TRACE_PRIVATE_LOGGER_MODE as PRIVATE, EVENT_TRACE_REAL_TIME_MODE as REAL_TIME,
    EVENT_TRACE_RELOG_MODE as RELOG, EVENT_TRACE_SECURE_MODE as SECURE,
    EVENT_TRACE_STOP_ON_HYBRID_SHUTDOWN as STOP_ON_SHUTDOWN, EVENT_TRACE_SYSTEM_LOGGER_MODE as SYSTEM_LOGGER,
    EVENT_TRACE_USE_GLOBAL_SEQUENCE as GLOBAL_SEQUENCE, EVENT_TRACE_USE_KBYTES_FOR_SIZE as KBYTES,
    EVENT_TRACE_USE_LOCAL_SEQUENCE as LOCAL_SEQUENCE, EVENT_TRACE_USE_MS_FLUSH_TIMER as MS_FLUSH_TIMER,
    EVENT_TRACE_USE_PAGED_MEMORY as PAGED,
};

/// The only bit of LogFileMode without a documented name.
const UNDEFINED_BIT: u32 = 0x4000_0000;
const GIB: u64 = 1 << 30;

fn config(mode: u32) -> SessionConfig {
    let log_file = Some(PathBuf::from("/tmp/a.etl"));
    SessionConfig {
        name: "s".into(),
        log_file_mode: mode,
        maximum_file_size: 100,
        log_file,
        ..Default::default()
    }
}

fn status(config: SessionConfig) -> Option<Status> {
    Config::with_memory(config, 4, 16 * GIB, SessionStarter::Controller).err().map(|e| e.status())
}

const INVALID: Option<Status> = Some(Status::ERROR_INVALID_PARAMETER);
const BAD_PATH: Option<Status> = Some(Status::ERROR_BAD_PATHNAME);
const NOT_SUPPORTED: Option<Status> = Some(Status::ERROR_NOT_SUPPORTED);

#[test]
fn invalid_flags_clocks_and_names_are_rejected() {
    for mode in [
        SEQUENTIAL | CIRCULAR,
        SEQUENTIAL | NEWFILE,
        CIRCULAR | APPEND,
        CIRCULAR | NEWFILE,
        APPEND | NEWFILE,
        APPEND | REAL_TIME,
        APPEND | PRIVATE | IN_PROC,
        SEQUENTIAL | BUFFERING,
        CIRCULAR | BUFFERING,
        APPEND | BUFFERING,
        NEWFILE | BUFFERING,
        REAL_TIME | BUFFERING,
        REAL_TIME | PRIVATE | IN_PROC,
        PRIVATE | IN_PROC | INDEPENDENT,
        PREALLOCATE | PRIVATE | IN_PROC,
        NEWFILE | PRIVATE | IN_PROC,
        SEQUENTIAL | IN_PROC,
        SEQUENTIAL | GLOBAL_SEQUENCE | LOCAL_SEQUENCE,
        SEQUENTIAL | PAGED | SYSTEM_LOGGER,
        SEQUENTIAL | NONSTOPPABLE,
        SEQUENTIAL | STOP_ON_SHUTDOWN | PERSIST_ON_SHUTDOWN,
        CIRCULAR | COMPRESSED,
        APPEND | COMPRESSED,
        SEQUENTIAL | MS_FLUSH_TIMER,
        SEQUENTIAL | RELOG,
        SEQUENTIAL | BUFFER_INTERFACE,
        SEQUENTIAL | KD_FILTER,
        SEQUENTIAL | BLOCKING,
        SEQUENTIAL | UNDEFINED_BIT,
    ] {
        assert_eq!(status(config(mode)), INVALID, "{mode:#x}");
    }
    assert_eq!(
        status(SessionConfig { maximum_file_size: 0, ..config(CIRCULAR) }),
        INVALID,
        "circular without a limit"
    );
    assert_eq!(status(SessionConfig { clock: 4, ..config(SEQUENTIAL) }), INVALID);
    assert_eq!(status(config(APPEND)), INVALID, "append with a counter");
    for name in [String::new(), "x".repeat(1024)] {
        assert_eq!(status(SessionConfig { name, ..config(SEQUENTIAL) }), INVALID);
    }
}

#[test]
fn log_file_is_required_unless_live_or_buffering() {
    for mode in [0, SEQUENTIAL, CIRCULAR, SEQUENTIAL | REAL_TIME, PRIVATE | IN_PROC] {
        assert_eq!(status(SessionConfig { log_file: None, ..config(mode) }), BAD_PATH, "{mode:#x}");
    }
    for mode in [REAL_TIME, BUFFERING] {
        assert_eq!(status(SessionConfig { log_file: None, ..config(mode) }), None, "{mode:#x}");
        assert_eq!(status(config(mode)), None, "{mode:#x} with a log file");
    }
}

#[test]
fn unsupported_modes_are_rejected_and_others_accepted() {
    for mode in [PRIVATE, SEQUENTIAL | PRIVATE | IN_PROC | SYSTEM_LOGGER] {
        assert_eq!(status(config(mode)), NOT_SUPPORTED, "{mode:#x}");
    }
    for mode in [
        SEQUENTIAL | PRIVATE | IN_PROC,
        SEQUENTIAL | DELAY_OPEN | ADD_HEADER | GLOBAL_SEQUENCE | RESERVED | LOST_EVENTS_DEBUG | PAGED,
        SEQUENTIAL | STOP_ON_SHUTDOWN | COMPRESSED | INDEPENDENT,
        CIRCULAR | ONE_STREAM,
        SEQUENTIAL | TRIAGE_DUMP,
        SEQUENTIAL | SECURE,
        SEQUENTIAL | PREALLOCATE,
        CIRCULAR | PREALLOCATE,
        SEQUENTIAL | PERSIST_ON_SHUTDOWN,
    ] {
        assert_eq!(status(config(mode)), None, "{mode:#x}");
    }
    assert_eq!(status(SessionConfig { clock: 2, ..config(APPEND) }), None, "append");
}

#[test]
fn system_loggers_are_recognised_by_mode_guid_or_name() {
    let kernel =
        SessionConfig { name: "nt kernel logger".into(), guid: SYSTEM_TRACE_CONTROL, ..config(SEQUENTIAL) };
    let circular = SessionConfig { name: "circular kernel context logger".into(), ..config(SEQUENTIAL) };
    let global = SessionConfig { guid: GLOBAL_LOGGER, ..config(SEQUENTIAL) };
    for system in [config(SEQUENTIAL | SYSTEM_LOGGER), kernel.clone(), circular, global] {
        assert!(is_system_logger(&system));
        assert_eq!(status(system.clone()), None, "{system:?}");
        // PROCESS, THREAD, CSWITCH and REGISTRY.
        assert_eq!(status(SessionConfig { enable_flags: 0x0002_0013, ..system.clone() }), None, "{system:?}");
        assert_eq!(
            status(SessionConfig { enable_flags: ENABLE_EXTENSION, ..system.clone() }),
            INVALID,
            "internal"
        );
        let paged = SessionConfig { log_file_mode: system.log_file_mode | PAGED, ..system };
        assert_eq!(status(paged), INVALID, "paged memory");
    }
    assert_eq!(status(SessionConfig { clock: 9, ..kernel.clone() }), INVALID);
    assert_eq!(
        status(SessionConfig { guid: SYSTEM_TRACE_CONTROL, ..config(SEQUENTIAL) }),
        INVALID,
        "another name"
    );
    let other_guid = SessionConfig { guid: Guid::from_u128(7), ..kernel };
    assert_eq!(
        Config::new(other_guid, 4).unwrap().properties().guid,
        SYSTEM_TRACE_CONTROL,
        "GUID of the kernel logger"
    );
}

#[test]
fn file_sequence_needs_placeholder_and_two_buffers() {
    let sequence = |path: &str, maximum_file_size| SessionConfig {
        log_file: Some(path.into()),
        maximum_file_size,
        ..config(NEWFILE | KBYTES)
    };
    assert_eq!(status(sequence("/tmp/a%d.etl", 128)), None);
    assert_eq!(status(sequence("/tmp/a%d.etl", 127)), INVALID, "under two buffers");
    assert_eq!(status(sequence("/tmp/a%d.etl", 0)), INVALID, "no limit");
    let plain_status =
        |maximum_file_size| status(SessionConfig { maximum_file_size, ..config(SEQUENTIAL | KBYTES) });
    assert_eq!([128, 127, 0].map(plain_status), [None, INVALID, None], "a plain file");
    for path in ["/tmp/a.etl", "/tmp/%d%d.etl", "/tmp%d/a.etl"] {
        assert_eq!(status(sequence(path, 1000)), INVALID, "{path}");
    }
}

#[test]
fn enable_flags_and_filters_need_the_right_kind_of_session() {
    use traceweir_format::spec::enable::EVENT_FILTER_TYPE_EVENT_ID;
    use traceweir_transport::message::Filter;
    assert_eq!(status(SessionConfig { enable_flags: 1, ..config(SEQUENTIAL) }), INVALID);
    let filters = |kind| vec![Filter { kind, data: vec![0; 4] }];
    assert_eq!(
        status(SessionConfig { filters: filters(EVENT_FILTER_TYPE_PID), ..config(SEQUENTIAL) }),
        INVALID
    );
    assert_eq!(
        status(SessionConfig {
            filters: filters(EVENT_FILTER_TYPE_PID),
            ..config(SEQUENTIAL | PRIVATE | IN_PROC)
        }),
        None
    );
    assert_eq!(
        status(SessionConfig {
            filters: filters(EVENT_FILTER_TYPE_EXECUTABLE_NAME),
            ..config(SEQUENTIAL | PRIVATE | IN_PROC)
        }),
        None
    );
    assert_eq!(
        status(SessionConfig {
            filters: filters(EVENT_FILTER_TYPE_EVENT_ID),
            ..config(SEQUENTIAL | PRIVATE | IN_PROC)
        }),
        INVALID
    );
    let with_options = Config::new(SessionConfig { options: 6, ..config(SEQUENTIAL) }, 4).unwrap();
    assert_eq!(with_options.properties().options, 6);
    assert!(
        Config::for_autologger(config(SEQUENTIAL | NONSTOPPABLE), 4).is_ok(),
        "a non-stoppable autologger is rejected"
    );
    let sequence = SessionConfig { log_file: Some("/tmp/a%d.etl".into()), ..config(NEWFILE) };
    assert!(Config::new(sequence.clone(), 4).is_ok() && Config::for_autologger(sequence, 4).is_err());
}

#[test]
fn flush_threshold_leaves_a_buffer_for_each_stream() {
    let threshold = |requested, maximum_buffers| {
        let config = SessionConfig { flush_threshold: requested, maximum_buffers, ..config(SEQUENTIAL) };
        Config::with_memory(config, 4, 16 * GIB, SessionStarter::Controller)
            .unwrap()
            .properties()
            .flush_threshold
    };
    // Four streams; the default maximum is 28 buffers.
    assert_eq!((threshold(0, 0), threshold(5, 0), threshold(99, 0), threshold(99, 8)), (0, 5, 24, 4));
}

#[test]
fn sizes_and_numbers_of_buffers_are_adjusted() {
    let adjust = |config: SessionConfig, memory| {
        let config = Config::with_memory(config, 4, memory, SessionStarter::Controller).unwrap();
        let p = config.properties();
        (p.buffer_size, p.minimum_buffers, p.maximum_buffers, p.flush_timer, p.clock)
    };
    assert_eq!(adjust(config(SEQUENTIAL), 16 * GIB), (64, 8, 28, 0, 1), "defaults");
    assert_eq!(
        adjust(config(REAL_TIME), 16 * GIB),
        (64, 8, 28, 1, 1),
        "real-time session without a flush timer"
    );
    assert_eq!(adjust(config(SEQUENTIAL | ONE_STREAM), 16 * GIB), (64, 2, 22, 0, 1), "one stream");
    let sized = |buffer_size, minimum_buffers, maximum_buffers| SessionConfig {
        buffer_size,
        minimum_buffers,
        maximum_buffers,
        ..config(SEQUENTIAL)
    };
    assert_eq!(adjust(sized(1, 3, 5), 16 * GIB), (4, 8, 8, 0, 1), "raised");
    assert_eq!(adjust(sized(65, 10, 12), 16 * GIB), (68, 10, 12, 0, 1), "rounded");
    assert_eq!(adjust(sized(99_999, 10, 12), GIB), (16_384, 10, 12, 0, 1), "lowered");
    assert_eq!(adjust(sized(16_384, 100, 200), GIB), (16_384, 16, 16, 0, 1), "a quarter of the memory");
    let long =
        SessionConfig { name: "n".repeat(1023), log_file: Some("f".repeat(1023).into()), ..sized(4, 0, 0) };
    assert_eq!(adjust(long, 16 * GIB).0, 8, "the names do not fit the header buffer");
    let flight = SessionConfig { maximum_buffers: 50, minimum_buffers: 9, ..config(BUFFERING) };
    assert_eq!(adjust(flight, 16 * GIB), (64, 9, 9, 0, 1), "a flight recorder has its minimum");
    assert!(
        !Config::with_memory(config(SEQUENTIAL), 4, GIB, SessionStarter::Controller)
            .unwrap()
            .properties()
            .guid
            .is_null()
    );
}

#[test]
fn flight_recorder_has_no_flush_timer() {
    for (mode, seconds) in [(SEQUENTIAL, 5), (REAL_TIME, 5), (BUFFERING, 0)] {
        assert_eq!(Config::flush_seconds(&SessionConfig { flush_timer: 5, ..config(mode) }), seconds);
    }
}

#[test]
fn file_size_limits_are_in_mib_or_kib() {
    assert_eq!(file_limit(&config(SEQUENTIAL)), FileLimit::Stop(100 << 20));
    assert_eq!(file_limit(&config(CIRCULAR | KBYTES)), FileLimit::Wrap(100 << 10));
    assert_eq!(file_limit(&SessionConfig { maximum_file_size: 0, ..config(0) }), FileLimit::None);
    assert_eq!(
        status(SessionConfig { maximum_file_size: 127, ..config(CIRCULAR | KBYTES) }),
        INVALID,
        "under two buffers"
    );
    assert_eq!(status(SessionConfig { maximum_file_size: 128, ..config(CIRCULAR | KBYTES) }), None);
}

#[test]
fn ring_holds_two_of_the_largest_records() {
    for (buffer_size, ring_bytes, maximum) in
        [(4, 0, 0), (64, 0, 0), (64, 1, 0), (1024, 0, 4000), (16_384, 0, 0)]
    {
        let config =
            SessionConfig { buffer_size, ring_bytes, maximum_buffers: maximum, ..config(SEQUENTIAL) };
        for cpus in [1, 2, 128] {
            let config =
                Config::with_memory(config.clone(), cpus, 64 * GIB, SessionStarter::Controller).unwrap();
            let regions = config.regions(Counter::Cycles).unwrap();
            let params = regions.largest_params();
            let ring = params.layout.ring_bytes();
            assert!(ring >= 2 * (params.max_record + 16), "{ring} for {}", params.max_record);
            assert!(u64::from(ring) <= MAX_DEFAULT_RING_BYTES);
            assert!(params.max_record as usize <= config.buffer_bytes() - HEADER_SIZE);
            assert_eq!(params.wake_at, ring / 4);
        }
    }
}
