//! Tests of a daemon that is terminated or killed, and of the reaction of its providers.

use rustix::process::Signal;
use traceweir_format::etl::{Trace, repair};
use traceweir_transport::message::{Control, Message, SessionConfig, SessionRef};

use crate::fixture::{Daemon, WritePath, collect_reports, file_session_config, until};
use crate::roles::Writer;
use crate::tally::{EventTally, assert_sound};

#[test]
fn terminated_daemon_finalises_every_file_without_loss() {
    for path in WritePath::BOTH {
        let mut daemon = Daemon::start();
        let files: Vec<_> = (0..3).map(|n| daemon.path(&format!("{n}.etl"))).collect();
        let mut control = daemon.connect();
        for (n, file) in files.iter().enumerate() {
            control.start(file_session_config(&format!("leaving {n}"), file));
        }
        let mut writer = Writer::new(0, 2, 5_000);
        (writer.burst_events, writer.pause_ms) = (250, 1);
        let report = collect_reports(vec![daemon.spawn_writer(&writer, path)]);
        daemon.signal(Signal::TERM);
        assert!(daemon.wait().success());
        let mut lost = 0;
        for file in &files {
            assert_sound(file);
            let tally = EventTally::read(file);
            assert_eq!(tally.count_missing(0, 2, 5_000), tally.events_lost);
            lost += tally.events_lost;
        }
        assert!(lost >= report.refused, "more calls were refused than events lost");
        assert!(!daemon.runtime().join("control.sock").exists(), "the socket still exists");
    }
}

#[test]
fn killed_daemon_leaves_valid_files_and_providers_reconnect() {
    let mut daemon = Daemon::start();
    let file = daemon.path("first.etl");
    let mut control = daemon.connect();
    let mut config = file_session_config("first", &file);
    config.flush_timer = 1;
    let session = control.start(config);
    let mut writer = Writer::new(0, 1, u64::MAX);
    (writer.burst_events, writer.pause_ms) = (50, 1);
    let mut child = daemon.spawn_writer(&writer, WritePath::Sequence);
    until("events arrive", || control.flush(session).events > 500);
    daemon.signal(Signal::KILL);
    daemon.wait();

    let unfinished =
        Trace::open(std::fs::File::open(&file).expect("cannot open")).expect("the file is not a trace");
    assert!(!unfinished.is_finalised(), "the killed daemon finalised the file");
    let repaired = daemon.path("repaired.etl");
    let sink = std::fs::File::create(&repaired).expect("a file cannot be created");
    repair(&unfinished, sink).expect("the trace cannot be repaired");
    assert_sound(&repaired);
    assert!(EventTally::read(&repaired).thread_numbers(0, 0).len() >= 500);

    daemon.restart();
    let second = daemon.path("second.etl");
    let mut control = daemon.connect();
    let session = control.start(file_session_config("second", &second));
    until("the running provider is enabled", || control.query(session).processes == 1);
    until("events of the provider arrive", || control.flush(session).events > 100);
    child.kill().expect("the writer cannot be killed");
    child.wait().expect("the writer cannot be waited for");
    let last = control.stop(session);
    let numbers = EventTally::read(&second).thread_numbers(0, 0);
    assert!(numbers.len() > 100);
    let span = numbers.last().unwrap() - numbers[0] + 1;
    assert!(span - numbers.len() as u64 <= last.events_lost, "missing events are not counted as lost");
}

#[test]
fn provider_registered_before_the_daemon_starts_is_enabled() {
    let mut daemon = Daemon::start();
    daemon.signal(Signal::TERM);
    assert!(daemon.wait().success());
    let mut writer = Writer::new(0, 1, u64::MAX);
    (writer.burst_events, writer.pause_ms) = (20, 1);
    let mut child = daemon.spawn_writer(&writer, WritePath::Sequence);
    until("the provider's socket exists", || {
        let providers = std::fs::read_dir(daemon.runtime().join("providers"));
        providers.is_ok_and(|mut entries| entries.next().is_some())
    });
    daemon.restart();
    let file = daemon.path("late.etl");
    let mut control = daemon.connect();
    let session = control.start(file_session_config("late", &file));
    until("events of the provider arrive", || control.flush(session).events > 100);
    child.kill().expect("the writer cannot be killed");
    child.wait().expect("the writer cannot be waited for");
    let last = control.stop(session);
    let numbers = EventTally::read(&file).thread_numbers(0, 0);
    let span = numbers.last().unwrap() - numbers[0] + 1;
    assert!(span - numbers.len() as u64 <= last.events_lost, "missing events are not counted as lost");
}

#[test]
fn stale_socket_is_replaced_but_a_live_daemon_is_not() {
    let mut daemon = Daemon::start();
    daemon.signal(Signal::KILL);
    daemon.wait();
    assert!(daemon.runtime().join("control.sock").exists(), "the socket of the killed daemon is missing");
    daemon.restart();
    let second = std::process::Command::new(crate::fixture::weir())
        .args(["daemon", "--runtime-dir"])
        .arg(daemon.runtime())
        .output()
        .expect("cannot run weir");
    assert!(!second.status.success());
    let text = String::from_utf8_lossy(&second.stderr);
    assert!(text.contains("already running"), "{text}");
    drop(daemon.connect());
}

#[test]
fn tied_session_ends_with_its_controller_without_loss() {
    let daemon = Daemon::start();
    let file = daemon.path("tied.etl");
    let mut control = daemon.connect();
    let session = control.start(SessionConfig { tied: true, ..file_session_config("tied", &file) });
    let mut writer = Writer::new(0, 1, 3_000);
    (writer.burst_events, writer.pause_ms) = (250, 1);
    collect_reports(vec![daemon.spawn_writer(&writer, WritePath::Sequence)]);
    drop(control);
    let mut second_control = daemon.connect();
    let query = Message::Control { session: SessionRef::Id(session), control: Control::Query };
    until("the session has ended", || {
        matches!(second_control.ask(&query, &[]).message, Message::Refused { .. })
    });
    assert_sound(&file);
    let tally = EventTally::read(&file);
    assert_eq!(tally.count_missing(0, 1, 3_000), tally.events_lost);
    assert_eq!(second_control.control(session, Control::Outcome).end_status, 0);
}
