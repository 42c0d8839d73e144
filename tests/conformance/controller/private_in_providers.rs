//! Rules for private sessions that a controller starts in the processes of a provider. The last two
//! rules test in-process sessions. `rule.rs` explains the rows.

use std::path::{Path, PathBuf};

use traceweir::controller::{EnableParams, Filter, SessionConfig, Update};
use traceweir::private::PrivateSession;
use traceweir::{Guid, Provider};
use traceweir_format::spec::enable::{
    EVENT_ENABLE_PROPERTY_PROVIDER_GROUP, EVENT_FILTER_TYPE_EVENT_ID, EVENT_FILTER_TYPE_EXECUTABLE_NAME,
    EVENT_FILTER_TYPE_PACKAGE_ID, EVENT_FILTER_TYPE_PID,
};
use traceweir_format::spec::session::{
    EVENT_TRACE_FILE_MODE_SEQUENTIAL, EVENT_TRACE_PRIVATE_IN_PROC, EVENT_TRACE_PRIVATE_LOGGER_MODE,
    EVENT_TRACE_USE_PAGED_MEMORY,
};

use crate::helpers::{
    Fixture, INVALID_FUNCTION, INVALID_PARAMETER, NO_SYSTEM_RESOURCES, SUCCESS, Session, event, events_of,
    new_guid, status, until,
};
use crate::processes::OtherProcess;
use crate::rule::{Rule, rule};

#[rustfmt::skip]
pub(crate) const RULES: &[Rule] = &[
    rule!("controller 10", D, "the session runs in the processes of the provider that Wnode.Guid names, and gets their events",
        private_session_runs_in_provider_processes),
    rule!("controller 10", D, "a private session without a provider GUID → 87",
        private_session_needs_a_provider_guid),
    rule!("controller 10", D, "the first process writes to the given file name, later processes to NAME_PID",
        later_processes_write_files_named_by_pid),
    rule!("controller 10", D, "the provider need not be registered yet",
        private_session_waits_for_its_provider),
    rule!("controller 10", D, "a ninth private session in a process → 1450",
        ninth_private_session_of_a_process_is_refused),
    rule!("controller 10", D, "process ids in the V2 properties limit which processes take part",
        pid_filter_limits_a_private_session),
    rule!("controller 10", D, "program names limit which processes take part",
        program_filter_limits_a_private_session),
    rule!("controller 1.2 #FilterDesc", D, "a session filter other than process ids and program names → 87",
        other_session_filters_are_refused),
    rule!("controller 1.2 #FilterDescCount", D, "filters of a session that is not private → 87",
        session_filters_need_a_private_session),
    rule!("controller 10", D, "an enable of a provider group by a private session of a controller → 87", private_session_refuses_groups),
    rule!("controller 5", D, "private sessions that controllers start are never listed",
        private_sessions_of_controllers_are_not_listed),
    rule!("controller 10", D, "private sessions that controllers start do not count toward the limit of 64 sessions",
        private_sessions_of_controllers_do_not_count_as_sessions),
    rule!("controller 4.1", D, "an update of a private session other than of its file name and flush timer → 87",
        private_session_updates_file_and_timer_only),
    rule!("controller 4", P, "INCREMENT_FILE and CONVERT of a private session → 1",
        private_session_has_no_increment_or_convert),
    rule!("controller 10", P, "LoggerThreadId is a thread of the process that the session runs in",
        logger_thread_is_in_the_process),
    rule!("controller 2 #0x20000", D, "an in-process session that a controller starts → 87",
        controller_cannot_start_in_process_session),
    rule!("controller 2.1 #9", D, "private and paged memory: the paged flag is ignored",
        paged_flag_of_private_session_is_ignored),
    rule!("controller 10", P, "in-process sessions need no daemon", in_process_session_needs_no_daemon),
];

const PRIVATE: u32 = EVENT_TRACE_PRIVATE_LOGGER_MODE | EVENT_TRACE_FILE_MODE_SEQUENTIAL;

fn private_config(fixture: &Fixture, guid: Guid) -> SessionConfig {
    SessionConfig { log_file_mode: PRIVATE, guid, ..fixture.config() }
}

/// Starts a controller's private session in this process, with the provider registered and enabled.
fn start_in_this_process(fixture: &Fixture) -> (Session, Provider, Guid, PathBuf) {
    let guid = new_guid();
    let provider = Provider::register(guid, None).unwrap();
    let session = fixture.start(&private_config(fixture, guid));
    fixture.enable(&session, guid, &EnableParams::default());
    let path = session.properties.config.log_file.clone().unwrap();
    (session, provider, guid, path)
}

fn event_ids(path: &Path) -> Vec<u16> {
    events_of(path).iter().map(|seen| seen.descriptor.id).collect()
}

/// Returns the name of the file that a later process writes: NAME_PID.
fn process_path(path: &Path, pid: u32) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!("_{pid}"));
    name.into()
}

fn private_session_runs_in_provider_processes(fixture: &Fixture) {
    let (session, provider, guid, path) = start_in_this_process(fixture);
    assert_eq!(session.properties.config.guid, guid);
    provider.write(&event(1), &[]).unwrap();
    let end = fixture.stop(session);
    assert_eq!((end.events, event_ids(&path)), (1, vec![1]));
}

fn private_session_needs_a_provider_guid(fixture: &Fixture) {
    assert_eq!(fixture.start_status(&private_config(fixture, Guid::NULL)), INVALID_PARAMETER);
}

fn later_processes_write_files_named_by_pid(fixture: &Fixture) {
    let (session, provider, guid, path) = start_in_this_process(fixture);
    let mut other = OtherProcess::start(guid, None);
    provider.write(&event(1), &[]).unwrap();
    other.write(2);
    assert_eq!(fixture.stop(session).events, 2);
    assert_eq!((event_ids(&path), event_ids(&process_path(&path, other.id()))), (vec![1], vec![2]));
}

fn private_session_waits_for_its_provider(fixture: &Fixture) {
    let guid = new_guid();
    let session = fixture.start(&private_config(fixture, guid));
    fixture.enable(&session, guid, &EnableParams::default());
    let path = session.properties.config.log_file.clone().unwrap();
    let provider = Provider::register(guid, None).unwrap();
    provider.write(&event(1), &[]).unwrap();
    fixture.stop(session);
    assert_eq!(event_ids(&path), [1]);
}

fn ninth_private_session_of_a_process_is_refused(fixture: &Fixture) {
    let guid = new_guid();
    let _provider = Provider::register(guid, None).unwrap();
    let mut sessions: Vec<Session> = (0..8).map(|_| fixture.start(&private_config(fixture, guid))).collect();
    assert_eq!(fixture.start_status(&private_config(fixture, guid)), NO_SYSTEM_RESOURCES);
    let _in_process = PrivateSession::start(&fixture.config())
        .expect("the limit of controllers' private sessions refused an in-process session");
    fixture.stop(sessions.pop().unwrap());
    assert_eq!(fixture.start_status(&private_config(fixture, guid)), SUCCESS);
}

/// Returns whether this process takes part in a session with this filter, and whether another
/// process does.
fn participating_processes(fixture: &Fixture, filter: impl Fn(&OtherProcess) -> Filter) -> (bool, bool) {
    let guid = new_guid();
    let mut other = OtherProcess::start_as(
        &fixture.folder().join(format!("other {}", crate::helpers::unique_number())),
        guid,
    );
    let provider = Provider::register(guid, None).unwrap();
    let config = SessionConfig { filters: vec![filter(&other)], ..private_config(fixture, guid) };
    let session = fixture.start(&config);
    fixture.enable(&session, guid, &EnableParams::default());
    provider.write(&event(1), &[]).unwrap();
    other.write(2);
    fixture.stop(session);
    let path = config.log_file.unwrap();
    let ids: Vec<u16> =
        [path.clone(), process_path(&path, other.id()), process_path(&path, std::process::id())]
            .iter()
            .filter(|path| path.exists())
            .flat_map(|path| event_ids(path))
            .collect();
    (ids.contains(&1), ids.contains(&2))
}

fn pid_filter(pid: u32) -> Filter {
    Filter { kind: EVENT_FILTER_TYPE_PID, data: pid.to_le_bytes().to_vec() }
}

fn pid_filter_limits_a_private_session(fixture: &Fixture) {
    assert_eq!(participating_processes(fixture, |_| pid_filter(std::process::id())), (true, false));
    assert_eq!(participating_processes(fixture, |other| pid_filter(other.id())), (false, true));
}

fn program_filter_limits_a_private_session(fixture: &Fixture) {
    let program = std::env::current_exe().unwrap().file_name().unwrap().to_string_lossy().to_uppercase();
    let data: Vec<u8> = program.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let by_name = |_: &OtherProcess| Filter { kind: EVENT_FILTER_TYPE_EXECUTABLE_NAME, data: data.clone() };
    assert_eq!(participating_processes(fixture, by_name), (true, false));
}

fn other_session_filters_are_refused(fixture: &Fixture) {
    // A list of the event id 7, a package id, and a filter that the provider would define.
    for (kind, data) in [
        (EVENT_FILTER_TYPE_EVENT_ID, vec![1, 0, 1, 0, 7, 0]),
        (EVENT_FILTER_TYPE_PACKAGE_ID, vec![b'a', 0]),
        (7, vec![1]),
    ] {
        let filters = vec![Filter { kind, data }];
        assert_eq!(
            fixture.start_status(&SessionConfig { filters, ..private_config(fixture, new_guid()) }),
            INVALID_PARAMETER,
            "filter {kind:#x}"
        );
    }
}

fn session_filters_need_a_private_session(fixture: &Fixture) {
    let filters = vec![pid_filter(std::process::id())];
    assert_eq!(fixture.start_status(&SessionConfig { filters, ..fixture.config() }), INVALID_PARAMETER);
}

fn private_session_refuses_groups(fixture: &Fixture) {
    let (session, _provider, guid, _path) = start_in_this_process(fixture);
    let group_params =
        EnableParams { property: EVENT_ENABLE_PROPERTY_PROVIDER_GROUP, ..EnableParams::default() };
    assert_eq!(status(fixture.try_enable(&session, guid, &group_params)), INVALID_PARAMETER);
}

fn private_sessions_of_controllers_are_not_listed(fixture: &Fixture) {
    let (session, _provider, _guid, _path) = start_in_this_process(fixture);
    assert_eq!(fixture.query(&session).id, session.properties.id);
    assert_eq!(fixture.connect().query_all().unwrap(), []);
}

fn private_sessions_of_controllers_do_not_count_as_sessions(fixture: &Fixture) {
    let sessions: Vec<Session> =
        (0..65).map(|_| fixture.start(&private_config(fixture, new_guid()))).collect();
    assert_eq!(fixture.start_status(&fixture.config()), SUCCESS);
    drop(sessions);
}

fn private_session_updates_file_and_timer_only(fixture: &Fixture) {
    let (session, provider, _guid, path) = start_in_this_process(fixture);
    let apply = |update: &Update| fixture.connect().update(&session.id, update);
    let properties = apply(&Update { flush_timer: Some(9), ..Update::default() }).unwrap();
    assert_eq!(properties.config.flush_timer, 9);
    provider.write(&event(1), &[]).unwrap();
    let new_path = fixture.unique_path();
    apply(&Update { log_file: Some(new_path.clone()), ..Update::default() }).unwrap();
    provider.write(&event(2), &[]).unwrap();
    for update in [
        Update { real_time: Some(true), ..Update::default() },
        Update { maximum_buffers: Some(99), ..Update::default() },
    ] {
        assert_eq!(status(apply(&update)), INVALID_PARAMETER, "{update:?}");
    }
    fixture.stop(session);
    assert_eq!((event_ids(&path), event_ids(&new_path)), (vec![1], vec![2]));
}

fn private_session_has_no_increment_or_convert(fixture: &Fixture) {
    let (session, _provider, _guid, _path) = start_in_this_process(fixture);
    assert_eq!(status(fixture.connect().increment(&session.id)), INVALID_FUNCTION);
    assert_eq!(status(fixture.connect().convert_to_real_time(&session.id)), INVALID_FUNCTION);
}

fn logger_thread_is_in_the_process(fixture: &Fixture) {
    let (session, _provider, _guid, _path) = start_in_this_process(fixture);
    let thread = fixture.query(&session).logger_thread_id;
    assert!(
        Path::new(&format!("/proc/self/task/{thread}")).exists(),
        "{thread} is not a thread of this process"
    );
}

fn controller_cannot_start_in_process_session(fixture: &Fixture) {
    let config = SessionConfig {
        log_file_mode: PRIVATE | EVENT_TRACE_PRIVATE_IN_PROC,
        ..private_config(fixture, new_guid())
    };
    assert_eq!(fixture.start_status(&config), INVALID_PARAMETER);
}

fn paged_flag_of_private_session_is_ignored(fixture: &Fixture) {
    let (guid, config) = (
        new_guid(),
        SessionConfig {
            log_file_mode: EVENT_TRACE_USE_PAGED_MEMORY | EVENT_TRACE_FILE_MODE_SEQUENTIAL,
            ..fixture.config()
        },
    );
    let session = PrivateSession::start(&config).unwrap();
    session.enable(guid, &EnableParams::default()).unwrap();
    Provider::register(guid, None).unwrap().write(&event(1), &[]).unwrap();
    session.stop().unwrap();
    assert_eq!(event_ids(&config.log_file.unwrap()), [1]);
}

fn in_process_session_needs_no_daemon(fixture: &Fixture) {
    let (path, folder) = (fixture.unique_path(), fixture.folder().join("no daemon"));
    let mut process = OtherProcess::start_without_daemon(new_guid(), &folder, &path);
    process.write(1);
    process.exit_and_wait();
    until("the file exists", || path.exists());
    assert_eq!(event_ids(&path), [1]);
}
