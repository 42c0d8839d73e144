//! Tests of private sessions that a controller starts. Such a session runs in each process of the
//! provider, and each process has its own file.

use std::path::{Path, PathBuf};

use rustix::process::Signal;
use traceweir::controller::{
    Controller, EnableCode, EnableParams, Filter, Properties, SessionConfig, SessionRef, Update,
};
use traceweir::{Guid, Status};
use traceweir_format::spec::enable::{
    EVENT_ENABLE_PROPERTY_PROVIDER_GROUP, EVENT_FILTER_TYPE_EVENT_ID, EVENT_FILTER_TYPE_EXECUTABLE_NAME,
    EVENT_FILTER_TYPE_PID,
};
use traceweir_format::spec::session::{
    EVENT_TRACE_FILE_MODE_APPEND, EVENT_TRACE_FILE_MODE_NEWFILE, EVENT_TRACE_FILE_MODE_PREALLOCATE,
    EVENT_TRACE_FILE_MODE_SEQUENTIAL, EVENT_TRACE_PRIVATE_LOGGER_MODE, EVENT_TRACE_REAL_TIME_MODE,
};

use super::{EVENTS_PER_ORDER, SHOP, arg, run_shop, running_sessions, shop_events_in, start_shop};
use crate::util::{Daemon, Process, eventually};

const PRIVATE_SEQUENTIAL: u32 = EVENT_TRACE_FILE_MODE_SEQUENTIAL | EVENT_TRACE_PRIVATE_LOGGER_MODE;

fn connect_controller(daemon: &Daemon) -> Controller {
    Controller::find_at(daemon.folder()).unwrap().expect("the daemon does not answer")
}

fn private_config(name: &str, file: &Path) -> SessionConfig {
    SessionConfig {
        name: name.to_owned(),
        guid: Guid::from_provider_name(SHOP),
        log_file_mode: PRIVATE_SEQUENTIAL,
        log_file: Some(file.to_owned()),
        flush_timer: 1,
        ..SessionConfig::default()
    }
}

fn start_and_enable(controller: &mut Controller, config: &SessionConfig) -> (SessionRef, Properties) {
    let properties = controller.start(config).unwrap();
    let session = SessionRef::Id(properties.id);
    enable_shop(controller, &session);
    (session, properties)
}

fn enable_shop(controller: &mut Controller, session: &SessionRef) {
    let provider = Guid::from_provider_name(SHOP);
    controller.enable(session, provider, EnableCode::Enable, &EnableParams::default(), 5000).unwrap();
}

fn status_of(result: traceweir::Result<impl std::fmt::Debug>) -> Status {
    result.err().map_or(Status::ERROR_SUCCESS, |error| error.status())
}

/// Starts the sample program and waits until the daemon knows its provider.
fn start_registered_shop(daemon: &Daemon) -> Process {
    let shop = start_shop(daemon);
    eventually("the shop is registered", || {
        let providers = connect_controller(daemon).provider_entries().unwrap();
        providers.iter().any(|provider| provider.pids.contains(&shop.id())).then_some(())
    });
    shop
}

/// Returns the file of a process that was not the first to join the session: NAME_PID.
fn process_file(file: &Path, process: &Process) -> PathBuf {
    PathBuf::from(format!("{}_{}", arg(file), process.id()))
}

#[test]
fn each_process_writes_its_own_file_and_later_ones_join() {
    let daemon = Daemon::start();
    let (first, second) = (start_registered_shop(&daemon), start_registered_shop(&daemon));
    let (mut controller, file) = (connect_controller(&daemon), daemon.path("app.etl"));
    let (session, started) = start_and_enable(&mut controller, &private_config("App", &file));
    assert_eq!((started.processes, started.config.log_file_mode), (2, PRIVATE_SEQUENTIAL));
    let third = start_registered_shop(&daemon);
    eventually("three processes take part and have written events", || {
        let properties = controller.query(&SessionRef::Name("APP".into())).unwrap();
        (properties.processes == 3 && properties.events > 300).then_some(())
    });
    assert_eq!(controller.query_all().unwrap(), [], "a private session is listed");
    assert_eq!(running_sessions(&daemon).len(), 0);
    assert_eq!(status_of(controller.start(&private_config("app", &file))), Status::ERROR_ALREADY_EXISTS);
    controller.flush(&session, None).unwrap();

    let end = controller.stop(&session).unwrap();
    let files = [file.clone(), process_file(&file, &second), process_file(&file, &third)];
    let counts: Vec<usize> = files.iter().map(|file| shop_events_in(file).len()).collect();
    assert!(counts.iter().all(|count| *count > 0), "a file has no events: {counts:?}");
    assert_eq!(end.events_lost, 0);
    assert_eq!(end.events, counts.iter().sum::<usize>() as u64, "the count is not the sum of all files");
    let pids: Vec<_> = files.iter().map(|file| shop_events_in(file)[0]["pid"].as_u64().unwrap()).collect();
    assert_eq!(
        pids,
        [&first, &second, &third].map(|process| u64::from(process.id())),
        "a file has events of another process"
    );
    assert_eq!(status_of(controller.query(&session)), Status::ERROR_WMI_INSTANCE_NOT_FOUND);
    assert_eq!(status_of(controller.stop(&session)), Status::ERROR_WMI_INSTANCE_NOT_FOUND);
}

#[test]
fn later_process_records_its_first_event_and_finalises_at_exit() {
    let daemon = Daemon::start();
    let (mut controller, file) = (connect_controller(&daemon), daemon.path("app.etl"));
    let (session, started) = start_and_enable(&mut controller, &private_config("App", &file));
    assert_eq!(started.processes, 0, "the session has a process before one runs");
    run_shop(&daemon, 4);
    assert_eq!(
        shop_events_in(&file).len(),
        4 * EVENTS_PER_ORDER,
        "the file lacks events of the first process"
    );
    run_shop(&daemon, 2);
    assert_eq!(
        shop_events_in(&file).len(),
        4 * EVENTS_PER_ORDER,
        "the second process wrote to the file of the first"
    );
    let second_file = std::fs::read_dir(daemon.folder())
        .unwrap()
        .flatten()
        .find(|entry| entry.file_name().to_string_lossy().starts_with("app.etl_"))
        .expect("the second process has no separate file");
    assert_eq!(shop_events_in(&second_file.path()).len(), 2 * EVENTS_PER_ORDER);
    assert_eq!(controller.stop(&session).unwrap().processes, 0);
}

#[test]
fn session_filters_limit_the_participating_processes() {
    let daemon = Daemon::start();
    let (mut controller, shops) =
        (connect_controller(&daemon), [start_registered_shop(&daemon), start_registered_shop(&daemon)]);
    let filtered_config = |name: &str, kind: u32, data: Vec<u8>| {
        let filters = vec![Filter { kind, data }];
        SessionConfig { filters, ..private_config(name, &daemon.path(&format!("{name}.etl"))) }
    };
    let utf16 = |text: &str| text.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<u8>>();
    let pid = shops[1].id().to_le_bytes().to_vec();
    for (config, processes) in [
        (filtered_config("Pid", EVENT_FILTER_TYPE_PID, pid), 1),
        (filtered_config("Program", EVENT_FILTER_TYPE_EXECUTABLE_NAME, utf16("other;WEIR")), 2),
        (filtered_config("Other", EVENT_FILTER_TYPE_EXECUTABLE_NAME, utf16("weir2")), 0),
    ] {
        let (session, started) = start_and_enable(&mut controller, &config);
        assert_eq!(started.processes, processes, "{}", config.name);
        controller.stop(&session).unwrap();
    }
    // A filter of event ids (FilterIn, reserved, Count 1, id 1), and a part of a process id.
    assert_eq!(
        status_of(controller.start(&filtered_config(
            "Ids",
            EVENT_FILTER_TYPE_EVENT_ID,
            vec![1, 0, 1, 0, 1, 0]
        ))),
        Status::ERROR_INVALID_PARAMETER
    );
    assert_eq!(
        status_of(controller.start(&filtered_config("Odd", EVENT_FILTER_TYPE_PID, vec![1]))),
        Status::ERROR_INVALID_PARAMETER
    );
}

#[test]
fn ninth_private_session_of_a_process_is_refused() {
    let daemon = Daemon::start();
    let (mut controller, _shop) = (connect_controller(&daemon), start_registered_shop(&daemon));
    let numbered_config =
        |number: u32| private_config(&format!("s{number}"), &daemon.path(&format!("{number}.etl")));
    for number in 1..=8 {
        assert_eq!(controller.start(&numbered_config(number)).unwrap().processes, 1);
    }
    assert_eq!(status_of(controller.start(&numbered_config(9))), Status::ERROR_NO_SYSTEM_RESOURCES);
    assert_eq!(
        status_of(controller.query(&SessionRef::Name("s9".into()))),
        Status::ERROR_WMI_INSTANCE_NOT_FOUND,
        "the refused session exists"
    );
    controller.stop(&SessionRef::Name("s1".into())).unwrap();
    controller.start(&numbered_config(9)).unwrap();
}

#[test]
fn only_file_and_flush_timer_can_be_updated() {
    let daemon = Daemon::start();
    let (mut controller, _shop) = (connect_controller(&daemon), start_registered_shop(&daemon));
    let (old_file, new_file) = (daemon.path("old.etl"), daemon.path("new.etl"));
    let (session, _) = start_and_enable(&mut controller, &private_config("App", &old_file));
    let update = Update { log_file: Some(new_file.clone()), flush_timer: Some(2), ..Update::default() };
    let updated = controller.update(&session, &update).unwrap();
    assert_eq!((updated.config.flush_timer, updated.config.log_file), (2, Some(new_file.clone())));
    for refused_update in [
        Update { maximum_buffers: Some(99), ..Update::default() },
        Update { real_time: Some(true), ..Update::default() },
    ] {
        assert_eq!(status_of(controller.update(&session, &refused_update)), Status::ERROR_INVALID_PARAMETER);
    }
    let missing_folder = Update { log_file: Some(daemon.path("none/x.etl")), ..Update::default() };
    assert_eq!(
        status_of(controller.update(&session, &missing_folder)),
        Status::ERROR_PATH_NOT_FOUND,
        "the status is not that of the traced process"
    );
    eventually("the session has more events", || {
        (controller.query(&session).unwrap().events > 20).then_some(())
    });
    controller.stop(&session).unwrap();
    shop_events_in(&old_file);
    assert!(!shop_events_in(&new_file).is_empty(), "the new file has no events");
}

#[test]
fn private_session_refuses_other_modes_a_null_guid_and_groups() {
    let daemon = Daemon::start();
    let (mut controller, file) = (connect_controller(&daemon), daemon.path("%d.etl"));
    for mode in [
        EVENT_TRACE_REAL_TIME_MODE,
        EVENT_TRACE_FILE_MODE_NEWFILE,
        EVENT_TRACE_FILE_MODE_SEQUENTIAL | EVENT_TRACE_FILE_MODE_PREALLOCATE,
        EVENT_TRACE_FILE_MODE_APPEND,
    ] {
        let mode = mode | EVENT_TRACE_PRIVATE_LOGGER_MODE;
        let config =
            SessionConfig { log_file_mode: mode, maximum_file_size: 1, ..private_config("App", &file) };
        assert_eq!(status_of(controller.start(&config)), Status::ERROR_INVALID_PARAMETER, "{mode:#x}");
    }
    let without_guid = SessionConfig { guid: Guid::NULL, ..private_config("App", &file) };
    assert_eq!(status_of(controller.start(&without_guid)), Status::ERROR_INVALID_PARAMETER);
    let (session, _) = start_and_enable(&mut controller, &private_config("App", &daemon.path("a.etl")));
    let group_params =
        EnableParams { property: EVENT_ENABLE_PROPERTY_PROVIDER_GROUP, ..EnableParams::default() };
    let provider = Guid::from_provider_name(SHOP);
    assert_eq!(
        status_of(controller.enable(&session, provider, EnableCode::Enable, &group_params, 0)),
        Status::ERROR_INVALID_PARAMETER
    );
}

#[test]
fn killed_daemon_makes_each_process_finalise_its_file() {
    let mut daemon = Daemon::start();
    let shop = start_registered_shop(&daemon);
    let (mut controller, file) = (connect_controller(&daemon), daemon.path("app.etl"));
    let (session, _) = start_and_enable(&mut controller, &private_config("App", &file));
    eventually("the session has events", || (controller.query(&session).unwrap().events > 20).then_some(()));
    daemon.kill();
    eventually("the file is finalised", || {
        (crate::util::weir(["check", arg(&file)]).code == 0).then_some(())
    });
    assert!(!shop_events_in(&file).is_empty());
    shop.signal(Signal::KILL);
}
