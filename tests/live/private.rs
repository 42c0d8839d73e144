//! Private sessions seen from outside: each process of the provider runs one, with its own file.

use std::path::{Path, PathBuf};

use rustix::process::Signal;
use traceweir::controller::{
    Controller, EnableCode, EnableParams, Filter, Properties, SessionConfig, SessionRef, Update,
};
use traceweir::{Guid, Status};

use super::{EVENTS_PER_ORDER, SHOP, events_in, open_shop, serve, sessions, text};
use crate::util::{Daemon, Process, eventually};

/// EVENT_TRACE_FILE_MODE_SEQUENTIAL and EVENT_TRACE_PRIVATE_LOGGER_MODE.
const PRIVATE: u32 = 0x801;
const PID_FILTER: u32 = 0x8000_0004;
const PROGRAM_FILTER: u32 = 0x8000_0008;

fn controller(daemon: &Daemon) -> Controller {
    Controller::find_at(daemon.folder()).unwrap().expect("the daemon runs")
}

fn config(name: &str, file: &Path) -> SessionConfig {
    SessionConfig {
        name: name.to_owned(),
        guid: Guid::from_provider_name(SHOP),
        log_file_mode: PRIVATE,
        log_file: Some(file.to_owned()),
        flush_timer: 1,
        ..SessionConfig::default()
    }
}

fn start(controller: &mut Controller, config: &SessionConfig) -> (SessionRef, Properties) {
    let properties = controller.start(config).unwrap();
    let session = SessionRef::Id(properties.id);
    enable(controller, &session);
    (session, properties)
}

fn enable(controller: &mut Controller, session: &SessionRef) {
    let provider = Guid::from_provider_name(SHOP);
    controller.enable(session, provider, EnableCode::Enable, &EnableParams::default(), 5000).unwrap();
}

fn status(outcome: traceweir::Result<impl std::fmt::Debug>) -> u32 {
    outcome.err().map_or(0, |e| e.status().0)
}

/// Starts the sample program and waits until the daemon knows its provider.
fn open_known_shop(daemon: &Daemon) -> Process {
    let shop = open_shop(daemon);
    eventually("a registered shop", || {
        let known = controller(daemon).provider_entries().unwrap();
        known.iter().any(|provider| provider.pids.contains(&shop.id())).then_some(())
    });
    shop
}

/// Returns the file of a process that was not the first to join.
fn process_file(file: &Path, process: &Process) -> PathBuf {
    PathBuf::from(format!("{}_{}", text(file), process.id()))
}

#[test]
fn each_process_writes_its_own_file_and_later_ones_join() {
    let daemon = Daemon::start();
    let (first, second) = (open_known_shop(&daemon), open_known_shop(&daemon));
    let (mut controller, file) = (controller(&daemon), daemon.path("app.etl"));
    let (session, started) = start(&mut controller, &config("App", &file));
    assert_eq!((started.processes, started.config.log_file_mode), (2, PRIVATE));
    let third = open_known_shop(&daemon);
    eventually("events of three processes", || {
        let now = controller.query(&SessionRef::Name("APP".into())).unwrap();
        (now.processes == 3 && now.events > 300).then_some(())
    });
    assert_eq!(controller.query_all().unwrap(), [], "it is in no list");
    assert_eq!(sessions(&daemon).len(), 0);
    assert_eq!(status(controller.start(&config("app", &file))), Status::ERROR_ALREADY_EXISTS.0);
    controller.flush(&session, None).unwrap();

    let end = controller.stop(&session).unwrap();
    let files = [file.clone(), process_file(&file, &second), process_file(&file, &third)];
    let counts: Vec<usize> = files.iter().map(|file| events_in(file).len()).collect();
    assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
    assert_eq!(end.events_lost, 0);
    assert_eq!(end.events, counts.iter().sum::<usize>() as u64, "the sum of all");
    let pids: Vec<_> = files.iter().map(|file| events_in(file)[0]["pid"].as_u64().unwrap()).collect();
    assert_eq!(pids, [&first, &second, &third].map(|process| u64::from(process.id())), "each its own events");
    assert_eq!(status(controller.query(&session)), 4201);
    assert_eq!(status(controller.stop(&session)), 4201);
}

#[test]
fn later_process_records_its_first_event_and_finalises_at_exit() {
    let daemon = Daemon::start();
    let (mut controller, file) = (controller(&daemon), daemon.path("app.etl"));
    let (session, started) = start(&mut controller, &config("App", &file));
    assert_eq!(started.processes, 0, "no process needs to be there");
    serve(&daemon, 4);
    assert_eq!(events_in(&file).len(), 4 * EVENTS_PER_ORDER, "from the first to the last");
    serve(&daemon, 2);
    assert_eq!(events_in(&file).len(), 4 * EVENTS_PER_ORDER, "the name is not given twice");
    let others = std::fs::read_dir(daemon.folder()).unwrap().flatten();
    let others = others.filter(|entry| entry.file_name().to_string_lossy().starts_with("app.etl_"));
    let other = others.map(|entry| entry.path()).next().expect("the second has a file of its own");
    assert_eq!(events_in(&other).len(), 2 * EVENTS_PER_ORDER);
    assert_eq!(controller.stop(&session).unwrap().processes, 0);
}

#[test]
fn session_filters_limit_the_participating_processes() {
    let daemon = Daemon::start();
    let (mut controller, shops) = (controller(&daemon), [open_known_shop(&daemon), open_known_shop(&daemon)]);
    let with = |name: &str, kind: u32, data: Vec<u8>| {
        let filters = vec![Filter { kind, data }];
        SessionConfig { filters, ..config(name, &daemon.path(&format!("{name}.etl"))) }
    };
    let utf16 = |text: &str| text.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<u8>>();
    let pid = shops[1].id().to_le_bytes().to_vec();
    for (config, processes) in [
        (with("Pid", PID_FILTER, pid), 1),
        (with("Program", PROGRAM_FILTER, utf16("other;WEIR")), 2),
        (with("Other", PROGRAM_FILTER, utf16("weir2")), 0),
    ] {
        let (session, started) = start(&mut controller, &config);
        assert_eq!(started.processes, processes, "{}", config.name);
        controller.stop(&session).unwrap();
    }
    assert_eq!(status(controller.start(&with("Ids", 0x8000_0200, vec![1, 0, 1, 0, 1, 0]))), 87);
    assert_eq!(status(controller.start(&with("Odd", PID_FILTER, vec![1]))), 87);
}

#[test]
fn ninth_private_session_of_a_process_is_refused() {
    let daemon = Daemon::start();
    let (mut controller, _shop) = (controller(&daemon), open_known_shop(&daemon));
    let name = |n: u32| config(&format!("s{n}"), &daemon.path(&format!("{n}.etl")));
    for n in 1..=8 {
        assert_eq!(controller.start(&name(n)).unwrap().processes, 1);
    }
    assert_eq!(status(controller.start(&name(9))), 1450);
    assert_eq!(status(controller.query(&SessionRef::Name("s9".into()))), 4201, "it is not there");
    controller.stop(&SessionRef::Name("s1".into())).unwrap();
    controller.start(&name(9)).unwrap();
}

#[test]
fn only_file_and_flush_timer_can_be_updated() {
    let daemon = Daemon::start();
    let (mut controller, _shop) = (controller(&daemon), open_known_shop(&daemon));
    let (old, new) = (daemon.path("old.etl"), daemon.path("new.etl"));
    let (session, _) = start(&mut controller, &config("App", &old));
    let update = Update { log_file: Some(new.clone()), flush_timer: Some(2), ..Update::default() };
    let updated = controller.update(&session, &update).unwrap();
    assert_eq!((updated.config.flush_timer, updated.config.log_file), (2, Some(new.clone())));
    for wrong in [
        Update { maximum_buffers: Some(99), ..Update::default() },
        Update { real_time: Some(true), ..Update::default() },
    ] {
        assert_eq!(status(controller.update(&session, &wrong)), 87);
    }
    let nowhere = Update { log_file: Some(daemon.path("none/x.etl")), ..Update::default() };
    assert_eq!(status(controller.update(&session, &nowhere)), 3, "as the process sees it");
    eventually("events in the new file", || (controller.query(&session).unwrap().events > 20).then_some(()));
    controller.stop(&session).unwrap();
    events_in(&old);
    assert!(!events_in(&new).is_empty());
}

#[test]
fn modes_that_private_sessions_do_not_support_are_refused() {
    let daemon = Daemon::start();
    let (mut controller, file) = (controller(&daemon), daemon.path("%d.etl"));
    for (mode, wanted) in [(0x900, 87), (0x808, 87), (0x821, 87), (0x804, 87)] {
        let config = SessionConfig { log_file_mode: mode, maximum_file_size: 1, ..config("App", &file) };
        assert_eq!(status(controller.start(&config)), wanted, "{mode:#x}");
    }
    let without_guid = SessionConfig { guid: Guid::NULL, ..config("App", &file) };
    assert_eq!(status(controller.start(&without_guid)), 87);
    let (session, _) = start(&mut controller, &config("App", &daemon.path("a.etl")));
    let group = EnableParams { property: 0x20, ..EnableParams::default() };
    let provider = Guid::from_provider_name(SHOP);
    assert_eq!(status(controller.enable(&session, provider, EnableCode::Enable, &group, 0)), 87);
}

#[test]
fn killed_daemon_makes_each_process_finalise_its_file() {
    let mut daemon = Daemon::start();
    let shop = open_known_shop(&daemon);
    let (mut controller, file) = (controller(&daemon), daemon.path("app.etl"));
    let (session, _) = start(&mut controller, &config("App", &file));
    eventually("events", || (controller.query(&session).unwrap().events > 20).then_some(()));
    daemon.kill();
    eventually("a final file", || (crate::util::weir(["check", text(&file)]).code == 0).then_some(()));
    assert!(!events_in(&file).is_empty());
    shop.signal(Signal::KILL);
}
