//! Private sessions: every event is recorded or counted as lost, however the session ends.

use std::collections::HashSet;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use traceweir::controller::{EnableParams, SessionConfig, Update};
use traceweir::{Guid, PrivateSession, Provider, Status};
use traceweir_format::etl;
use traceweir_format::spec::enable::{EVENT_ENABLE_PROPERTY_EVENT_KEY, EVENT_ENABLE_PROPERTY_STACK_TRACE};
use traceweir_format::spec::event::{EVENT_HEADER_FLAG_STRING_ONLY, ExtType};
use traceweir_format::spec::session::{
    EVENT_TRACE_BUFFERING_MODE, EVENT_TRACE_PRIVATE_IN_PROC, EVENT_TRACE_PRIVATE_LOGGER_MODE,
    EVENT_TRACE_REAL_TIME_MODE,
};

use crate::{
    INFORMATION, PROVIDER, Scenario, ScenarioRunner, alarm, all_events, event, file_config, read_events,
    set_mark,
};

pub(crate) const SCENARIOS: &[Scenario] = &[
    ("many threads", write_on_many_threads),
    ("exit without stop", exit_without_stop),
    ("write until killed", write_until_killed),
    ("signal handler", |folder| write_in_signal_handler(folder, 0)),
    // The library also creates stacks and event keys in a signal handler that interrupts a write.
    ("signal handler with stacks", |folder| {
        write_in_signal_handler(folder, EVENT_ENABLE_PROPERTY_STACK_TRACE | EVENT_ENABLE_PROPERTY_EVENT_KEY)
    }),
    ("refused sessions", start_refused_sessions),
    ("another file", switch_files),
    ("kinds of events", write_each_kind_of_event),
    ("quiet threads", check_signal_masks),
];

/// The mode of a private session in this process.
const IN_PROCESS_MODE: u32 = EVENT_TRACE_PRIVATE_LOGGER_MODE | EVENT_TRACE_PRIVATE_IN_PROC;
const THREADS: u64 = 4;
const EVENTS_PER_THREAD: u64 = 20_000;

#[test]
fn every_event_of_many_threads_is_recorded_or_counted_as_lost() {
    let runner = ScenarioRunner::new();
    runner.run("many threads");
    check_many_threads_file(&runner.path("many.etl"));
}

#[test]
fn every_event_of_many_threads_is_recorded_or_counted_as_lost_without_rseq() {
    let runner = ScenarioRunner::new();
    runner.run_with("many threads", |command| {
        command.env("TRACEWEIR_NO_RSEQ", "1");
    });
    check_many_threads_file(&runner.path("many.etl"));
}

fn write_on_many_threads(folder: &Path) {
    let session = PrivateSession::start(&file_config("many", folder.join("many.etl"))).unwrap();
    session.enable(PROVIDER, &all_events()).unwrap();
    let provider = Provider::register(PROVIDER, None).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let provider = &provider;
            scope.spawn(move || {
                let padding = [thread as u8; 300];
                for n in 0..EVENTS_PER_THREAD {
                    let number = thread * EVENTS_PER_THREAD + n;
                    let data: [&[u8]; 2] = [&number.to_le_bytes(), &padding[..(n % 300) as usize]];
                    // If the ring is full, the event is counted as lost; the count is checked
                    // below.
                    if provider.write(&event(1), &data).is_err() {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                }
            });
        }
    });
    let end = session.stop().unwrap();
    assert_eq!(end.events + end.events_lost, THREADS * EVENTS_PER_THREAD);
}

fn check_many_threads_file(file: &Path) {
    let (seen, lost) = read_events(file);
    assert_eq!(seen.len() as u64 + lost, THREADS * EVENTS_PER_THREAD);
    let numbers: HashSet<u64> = seen.iter().map(|event| event.payload_number()).collect();
    assert_eq!(numbers.len(), seen.len(), "an event is recorded twice");
    let mut threads = HashSet::new();
    for event in &seen {
        let (thread, n) =
            (event.payload_number() / EVENTS_PER_THREAD, event.payload_number() % EVENTS_PER_THREAD);
        assert!(
            event.payload[8..].len() as u64 == n % 300
                && event.payload[8..].iter().all(|b| *b == thread as u8)
        );
        threads.insert((thread, event.thread, event.process));
    }
    let ids: HashSet<u64> = threads.iter().map(|(thread, ..)| *thread).collect();
    assert_eq!(threads.len(), ids.len(), "a thread is recorded under several ids");
    assert!(seen.len() as u64 > THREADS * EVENTS_PER_THREAD / 2, "{lost} lost");
}

#[test]
fn session_that_is_not_stopped_is_finalised_at_exit() {
    let runner = ScenarioRunner::new();
    runner.run("exit without stop");
    let (seen, lost) = read_events(&runner.path("exit.etl"));
    assert_eq!((seen.len(), lost), (1000, 0));
}

fn exit_without_stop(folder: &Path) {
    let session = PrivateSession::start(&file_config("exit", folder.join("exit.etl"))).unwrap();
    session.enable(PROVIDER, &all_events()).unwrap();
    let provider = Provider::register(PROVIDER, None).unwrap();
    for n in 0..1000u64 {
        provider.write(&event(1), &[&n.to_le_bytes()]).unwrap();
    }
    // `exit` drops neither the session nor the provider.
    std::process::exit(0);
}

#[test]
fn file_of_killed_process_is_valid_to_last_flush_and_can_be_repaired() {
    let runner = ScenarioRunner::new();
    let scenario = runner.spawn("write until killed");
    runner.wait_for_mark("flushed");
    scenario.kill();
    let (killed_path, repaired_path) = (runner.path("killed.etl"), runner.path("repaired.etl"));
    let trace = etl::Trace::open(std::fs::File::open(&killed_path).unwrap()).unwrap();
    assert!(!trace.is_finalised());
    let repaired = etl::repair(&trace, std::fs::File::create(&repaired_path).unwrap()).unwrap();
    assert_eq!(repaired.dropped, 0);
    let (seen, _) = read_events(&repaired_path);
    let numbers: Vec<u64> = seen.iter().map(|event| event.payload_number()).collect();
    assert!(numbers.len() >= 500, "the file has only {} of the flushed events", numbers.len());
    assert_eq!(numbers, (0..numbers.len() as u64).collect::<Vec<_>>());
}

fn write_until_killed(folder: &Path) {
    let session = PrivateSession::start(&file_config("killed", folder.join("killed.etl"))).unwrap();
    session.enable(PROVIDER, &all_events()).unwrap();
    let provider = Provider::register(PROVIDER, None).unwrap();
    for n in 0.. {
        provider.write(&event(1), &[&u64::to_le_bytes(n)]).unwrap();
        if n == 500 {
            session.flush(None).unwrap();
            set_mark(folder, "flushed");
        }
        std::thread::sleep(Duration::from_micros(if n > 500 { 500 } else { 0 }));
    }
}

#[test]
fn signal_handler_can_write_during_a_write() {
    for (without_rseq, scenario) in [
        (false, "signal handler"),
        (true, "signal handler"),
        (false, "signal handler with stacks"),
        (true, "signal handler with stacks"),
    ] {
        let runner = ScenarioRunner::new();
        runner.run_with(scenario, |command| {
            if without_rseq {
                command.env("TRACEWEIR_NO_RSEQ", "1");
            }
        });
        let (seen, lost) = read_events(&runner.path("signals.etl"));
        let offered: u64 = std::fs::read_to_string(runner.path("offered")).unwrap().parse().unwrap();
        assert_eq!(seen.len() as u64 + lost, offered);
        assert!(
            seen.iter().filter(|event| event.id == 2).count() > 0,
            "no event of the signal handler is recorded"
        );
        let numbers: HashSet<(u16, u64)> =
            seen.iter().map(|event| (event.id, event.payload_number())).collect();
        assert_eq!(numbers.len(), seen.len());
    }
}

static HANDLER_PROVIDER: std::sync::OnceLock<Provider> = std::sync::OnceLock::new();
static HANDLER_CALLS: AtomicU64 = AtomicU64::new(0);

fn write_in_handler() {
    if let Some(provider) = HANDLER_PROVIDER.get() {
        let n = HANDLER_CALLS.fetch_add(1, Ordering::Relaxed);
        let _ = provider.write(&event(2), &[&n.to_le_bytes(), &[7; 40]]);
    }
}

fn write_in_signal_handler(folder: &Path, property: u32) {
    let session = PrivateSession::start(&file_config("signals", folder.join("signals.etl"))).unwrap();
    session.enable(PROVIDER, &EnableParams { property, ..all_events() }).unwrap();
    let provider = Provider::register(PROVIDER, None).unwrap();
    HANDLER_PROVIDER.set(Provider::register(PROVIDER, None).unwrap()).unwrap();
    alarm::start(200, write_in_handler);
    let (mut n, deadline) = (0u64, Instant::now() + crate::TEST_TIMEOUT);
    while HANDLER_CALLS.load(Ordering::Relaxed) < 500 && Instant::now() < deadline {
        let _ = provider.write(&event(1), &[&n.to_le_bytes(), &[1; 50]]);
        n += 1;
        if n.is_multiple_of(64) {
            std::thread::sleep(Duration::from_micros(50));
        }
    }
    alarm::stop();
    session.stop().unwrap();
    std::fs::write(folder.join("offered"), (n + HANDLER_CALLS.load(Ordering::Relaxed)).to_string()).unwrap();
}

#[test]
fn process_has_at_most_three_private_sessions_and_one_per_file() {
    ScenarioRunner::new().run("refused sessions");
}

fn start_refused_sessions(folder: &Path) {
    let start = |name: &str, file: &str| PrivateSession::start(&file_config(name, folder.join(file)));
    let mut sessions: Vec<_> = ["a", "b", "c"].map(|n| start(n, &format!("{n}.etl")).unwrap()).into();
    assert_eq!(start("d", "d.etl").unwrap_err().status(), Status::ERROR_NO_SYSTEM_RESOURCES);
    assert!(!folder.join("d.etl").exists(), "a refused session left a file");
    sessions.pop();
    assert_eq!(start("d", "a.etl").unwrap_err().status(), Status::ERROR_BAD_PATHNAME);
    let session = start("d", "d.etl").unwrap();
    assert_eq!(
        session.enable(Guid::NULL, &all_events()).unwrap_err().status(),
        Status::ERROR_INVALID_PARAMETER
    );
    let mode = session.query().config.log_file_mode;
    assert_eq!(mode & IN_PROCESS_MODE, IN_PROCESS_MODE);
    drop((session, sessions));
    let live = SessionConfig {
        log_file_mode: EVENT_TRACE_REAL_TIME_MODE,
        ..file_config("live", folder.join("live.etl"))
    };
    assert!(PrivateSession::start(&live).is_err());
    assert!(!folder.join("live.etl").exists());
}

#[test]
fn private_session_can_switch_to_another_file() {
    let runner = ScenarioRunner::new();
    runner.run("another file");
    let read_payloads = |file: &str| {
        read_events(&runner.path(file)).0.into_iter().map(|event| event.payload).collect::<Vec<_>>()
    };
    assert_eq!(
        (read_payloads("a.etl"), read_payloads("b.etl")),
        (vec![b"before".to_vec()], vec![b"after".to_vec()])
    );
    assert_eq!(read_payloads("snapshot.etl"), [b"after".to_vec()]);
}

fn switch_files(folder: &Path) {
    let session = PrivateSession::start(&file_config("s", folder.join("a.etl"))).unwrap();
    session.enable(PROVIDER, &all_events()).unwrap();
    let provider = Provider::register(PROVIDER, None).unwrap();
    provider.write(&event(1), &[b"before"]).unwrap();
    let update_to = |name: &str| Update { log_file: Some(folder.join(name)), ..Update::default() };
    assert_eq!(session.update(&update_to("a.etl")).unwrap_err().status(), Status::ERROR_BAD_PATHNAME);
    let with_buffers = Update { maximum_buffers: Some(9), ..update_to("c.etl") };
    assert_eq!(session.update(&with_buffers).unwrap_err().status(), Status::ERROR_INVALID_PARAMETER);
    assert!(!folder.join("c.etl").exists(), "a refused update left a file");
    let updated = session.update(&Update { flush_timer: Some(3), ..update_to("b.etl") }).unwrap();
    assert_eq!((updated.config.flush_timer, updated.config.log_file), (3, Some(folder.join("b.etl"))));
    let recorder = SessionConfig {
        log_file_mode: EVENT_TRACE_BUFFERING_MODE,
        log_file: None,
        ..file_config("r", "unused".into())
    };
    let recorder = PrivateSession::start(&recorder).unwrap();
    recorder.enable(PROVIDER, &all_events()).unwrap();
    provider.write(&event(1), &[b"after"]).unwrap();
    let refused = recorder.flush(Some(&folder.join("b.etl"))).unwrap_err();
    assert_eq!(
        refused.status(),
        Status::ERROR_BAD_PATHNAME,
        "a file that another session writes was accepted"
    );
    for _ in 0..2 {
        recorder.flush(Some(&folder.join("snapshot.etl"))).unwrap();
    }
    session.stop().unwrap();
}

#[test]
fn strings_activities_and_metadata_are_recorded_unchanged() {
    let runner = ScenarioRunner::new();
    runner.run("kinds of events");
    let (seen, lost) = read_events(&runner.path("kinds.etl"));
    assert_eq!((seen.len(), lost), (4, 0));
    let encode_text = |s: &str| s.encode_utf16().chain([0]).flat_map(u16::to_le_bytes).collect::<Vec<u8>>();
    let short = seen.iter().find(|event| event.payload == encode_text("grüß dich")).unwrap();
    assert_eq!((short.id, short.flags & EVENT_HEADER_FLAG_STRING_ONLY), (0, EVENT_HEADER_FLAG_STRING_ONLY));
    assert!(seen.iter().any(|event| event.payload == encode_text(&"x".repeat(2000))));
}

fn write_each_kind_of_event(folder: &Path) {
    let session = PrivateSession::start(&file_config("kinds", folder.join("kinds.etl"))).unwrap();
    session.enable(PROVIDER, &all_events()).unwrap();
    let traits = b"\x0c\x00Provider\0\0";
    assert!(Provider::register_with_traits(PROVIDER, traits, None).is_err(), "a truncated trait is accepted");
    let provider = Provider::register_with_traits(PROVIDER, b"\x0b\x00Provider\0", None).unwrap();
    provider.write_string(INFORMATION, 0, "grüß dich").unwrap();
    provider.write_string(INFORMATION, 0, &"x".repeat(2000)).unwrap();
    let (activity, related) = (traceweir::provider::activity::create(), Guid::from_u128(9));
    provider.write_transfer(&event(3), Some(&activity), Some(&related), &[b"transfer"]).unwrap();
    let metadata = b"\x08\x00\x00name\0";
    provider.event(&event(4)).metadata(metadata).write(&[b"described"]).unwrap();
    assert_eq!(
        provider.write_string(INFORMATION, 0, &"x".repeat(40_000)),
        Err(traceweir::WriteError::TooLarge)
    );
    assert_eq!(session.stop().unwrap().events_lost, 0);
    let trace = etl::Trace::open(std::fs::File::open(folder.join("kinds.etl")).unwrap()).unwrap();
    let mut events = trace.events();
    let mut checked = 0;
    while let Some(record) = events.next().unwrap() {
        let items: Vec<_> = record.items().map(|item| (item.kind, item.data.to_vec())).collect();
        let mut expected = vec![(ExtType::PROV_TRAITS, b"\x0b\x00Provider\0".to_vec())];
        match record.descriptor().id {
            3 => {
                expected.push((ExtType::RELATED_ACTIVITYID, related.to_bytes().to_vec()));
                assert_eq!(record.activity(), Some(activity));
            }
            4 => expected.push((ExtType::EVENT_SCHEMA_TL, metadata.to_vec())),
            _ => continue,
        }
        assert_eq!(items, expected);
        checked += 1;
    }
    assert_eq!(checked, 2);
}

#[test]
fn library_threads_block_signals() {
    ScenarioRunner::new().run("quiet threads");
}

fn check_signal_masks(folder: &Path) {
    let before = task_folders();
    let session = PrivateSession::start(&file_config("quiet", folder.join("quiet.etl"))).unwrap();
    let _provider = Provider::register(PROVIDER, None).unwrap();
    let library_tasks: Vec<_> = task_folders().into_iter().filter(|task| !before.contains(task)).collect();
    // There may be a sixth: the thread that started the session, if it has not ended yet.
    assert!(
        library_tasks.len() >= 5,
        "a thread is missing: collector, writer, control, callback or waking thread"
    );
    for task in library_tasks {
        let Ok(status) = std::fs::read_to_string(task.join("status")) else { continue };
        let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap().trim();
        let blocked = u64::from_str_radix(blocked, 16).unwrap();
        for signal in [libc::SIGUSR1, libc::SIGTERM, libc::SIGALRM, libc::SIGCHLD] {
            assert_ne!(blocked & 1 << (signal - 1), 0, "{signal} in {status}");
        }
    }
    // The signal mask of the caller is unchanged.
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    assert!(status.contains("SigBlk:\t0000000000000000"), "{status}");
    session.stop().unwrap();
}

fn task_folders() -> Vec<std::path::PathBuf> {
    std::fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path()).collect()
}
