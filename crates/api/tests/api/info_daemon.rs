//! Information classes with a real daemon: the table of `fixtures/information`, and the effects of
//! the classes that are supported.
//!
//! Each test with a daemon runs in a separate process, because providers find daemons by the
//! environment; the daemon is another process.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use traceweir::consumer;
use traceweir::controller::access::{Rights, SecurityOperation, Sid};
use traceweir::controller::info::{
    Answer, ClassicEventId, InfoClass, PeriodicCaptureState, ProfileInterval, Query, Set, StackCaching,
};
use traceweir::controller::{
    Controller, EnableCode, EnableParams, NO_SESSION, SessionConfig, SessionRef, enumerate_bytes,
    query_bytes, set_bytes,
};
use traceweir::provider::EnableCallback;
use traceweir::{EventDescriptor, Guid, Provider, Status};
use traceweir_format::binary_path::BinaryPath;
use traceweir_format::etl;
use traceweir_format::spec::enable::{
    EVENT_ENABLE_PROPERTY_PROVIDER_GROUP as OF_GROUP, EVENT_ENABLE_PROPERTY_STACK_TRACE,
};
use traceweir_format::spec::event::class;
use traceweir_format::spec::session::{
    EVENT_TRACE_FILE_MODE_SEQUENTIAL, EVENT_TRACE_NO_PER_PROCESSOR_BUFFERING,
    EVENT_TRACE_PRIVATE_LOGGER_MODE, EVENT_TRACE_REAL_TIME_MODE, EVENT_TRACE_SYSTEM_LOGGER_MODE,
};
use traceweir_format::stack_key::{Definitions, StackKey};
use traceweir_format::tracelogging::TraitsBuilder;

mod effects;
mod table;
use crate::machine::{Machine, PERFMON, SYS_ADMIN, capabilities};
use crate::recording::Recording;
use crate::skip;
use crate::support::until;
use crate::support_daemon::{SeparateDaemon, run_in_own_process, test_command};
use table::{TableRow, guid};

/// Environment variable of the process that makes the table's calls of unprivileged callers. Its
/// value is `plain` (root without CAP_PERFMON and CAP_SYS_ADMIN) or `guest` (another user), then
/// the sessions of the table as `NAME=ID`, separated by commas.
const UNPRIVILEGED_CALLER: &str = "TRACEWEIR_TEST_UNPRIVILEGED";

fn live_config(name: &str, mode: u32) -> SessionConfig {
    SessionConfig {
        name: name.into(),
        log_file_mode: EVENT_TRACE_REAL_TIME_MODE | mode,
        ..SessionConfig::default()
    }
}

fn can_profile() -> bool {
    capabilities() & (PERFMON | SYS_ADMIN) != 0
}

/// The user id of the caller `guest`.
const GUEST_UID: u32 = 64_313;

#[test]
fn every_call_of_the_table_has_the_expected_result() {
    run_in_own_process("info_daemon::every_call_of_the_table_has_the_expected_result", |folder| {
        let is_privileged = rustix::process::geteuid().is_root() && can_profile();
        if !skip::holds_or_skip(is_privileged, "root", "most of the table needs CAP_PERFMON and other users")
        {
            return;
        }
        let _daemon = SeparateDaemon::for_all_users(folder);
        let mut controller = Controller::find_at(folder).unwrap().expect("the daemon does not answer");
        let _provider = Provider::register(guid(0x7000), None).unwrap();
        let sessions = start_table_sessions(&mut controller, folder);
        let rows = TableRow::for_caller("any");
        rows.iter().for_each(|row| row.check(&mut controller, &sessions, Machine::inspect()));

        let session_list: Vec<String> = sessions.iter().map(|(name, id)| format!("{name}={id}")).collect();
        let session_list = session_list.join(",");
        // The capability bounding set applies to the thread and to the programs that it starts.
        let plain_list = session_list.clone();
        let plain = std::thread::spawn(move || {
            for capability in
                [rustix::thread::CapabilitySet::PERFMON, rustix::thread::CapabilitySet::SYS_ADMIN]
            {
                rustix::thread::remove_capability_from_bounding_set(capability).unwrap();
            }
            test_command("info_daemon::unprivileged_role")
                .env(UNPRIVILEGED_CALLER, format!("plain,{plain_list}"))
                .status()
                .unwrap()
        });
        assert!(plain.join().unwrap().success());

        // Another user can connect only if an access list names that user.
        let (add, guest) = (SecurityOperation::ADD_DACL, Sid::user(GUEST_UID));
        controller.set_access(guid(1), add, &guest, Rights::WMIGUID_SET, true).unwrap();
        // The build folder may be inaccessible to other users.
        let copy = folder.join("this-test");
        let copied = Command::new("cp").arg(std::env::current_exe().unwrap()).arg(&copy).status();
        assert!(copied.unwrap().success());
        let mut command = Command::new(copy);
        command
            .args(test_command("info_daemon::unprivileged_role").get_args())
            .uid(GUEST_UID)
            .gid(GUEST_UID)
            .current_dir("/");
        assert!(
            command.env(UNPRIVILEGED_CALLER, format!("guest,{session_list}")).status().unwrap().success()
        );
    });
}

/// Starts the sessions of the table, and returns their ids by name.
fn start_table_sessions(controller: &mut Controller, folder: &Path) -> BTreeMap<String, u64> {
    let private = SessionConfig {
        guid: guid(0x7002),
        log_file: Some(folder.join("private.etl")),
        log_file_mode: EVENT_TRACE_PRIVATE_LOGGER_MODE | EVENT_TRACE_FILE_MODE_SEQUENTIAL,
        ..live_config("private", 0)
    };
    let (system, spare) = (
        live_config("system", EVENT_TRACE_SYSTEM_LOGGER_MODE),
        live_config("spare", EVENT_TRACE_SYSTEM_LOGGER_MODE),
    );
    let configs = [live_config("live", 0), system, spare, private, live_config("stale", 0)];
    let started = configs.map(|config| (config.name.clone(), controller.start(&config).unwrap().id));
    let sessions = BTreeMap::from(started);
    controller.stop(&SessionRef::Id(sessions["stale"])).unwrap();
    let live = SessionRef::Id(sessions["live"]);
    for (number, property) in [(0x7000, 0), (0x7001, OF_GROUP)] {
        let params = EnableParams { level: 4, property, ..EnableParams::default() };
        controller.enable(&live, guid(number), EnableCode::Enable, &params, 30_000).unwrap();
    }
    sessions
}

#[test]
#[ignore = "run by other tests in a separate process"]
fn unprivileged_role() {
    let Ok(role) = std::env::var(UNPRIVILEGED_CALLER) else { return };
    assert!(!can_profile());
    let (caller, sessions) = role.split_once(',').unwrap();
    let folder = std::env::var_os("TRACEWEIR_RUNTIME_DIR").unwrap();
    let mut controller =
        Controller::find_at(Path::new(&folder)).unwrap().expect("the daemon does not answer");
    let sessions = sessions.split(',').map(|session| {
        let (name, id) = session.split_once('=').unwrap();
        (name.to_owned(), id.parse().unwrap())
    });
    let sessions = sessions.collect();
    TableRow::for_caller(caller)
        .iter()
        .for_each(|row| row.check(&mut controller, &sessions, Machine::inspect()));
}

impl Recording<'_> {
    fn enable(&mut self, guid: Guid, property: u32) {
        let params = EnableParams { level: 4, property, ..EnableParams::default() };
        self.controller.enable(&self.session, guid, EnableCode::Enable, &params, 30_000).unwrap();
    }

    fn set(&mut self, set: &Set) {
        self.controller.set_information(&self.session, set).unwrap();
    }

    fn query(&mut self, query: Query) -> Answer {
        self.controller.query_information(&self.session, query).unwrap()
    }
}

/// The code of each call of a callback (0 disable, 1 enable, 2 capture state), and its time.
type RecordedCalls = Arc<Mutex<Vec<(u32, Instant)>>>;

/// Returns a callback, and the list to which it adds its calls.
fn recording_callback() -> (RecordedCalls, EnableCallback) {
    let calls = RecordedCalls::default();
    let recorded = Arc::clone(&calls);
    (calls, Box::new(move |notice| recorded.lock().unwrap().push((notice.code, Instant::now()))))
}

fn recorded_codes(calls: &RecordedCalls) -> Vec<u32> {
    calls.lock().unwrap().iter().map(|(code, _)| *code).collect()
}

fn event(id: u16) -> EventDescriptor {
    EventDescriptor { id, level: 4, ..EventDescriptor::default() }
}

#[test]
fn group_does_not_enable_disallowed_providers() {
    run_in_own_process("info_daemon::group_does_not_enable_disallowed_providers", |folder| {
        let _daemon = SeparateDaemon::new(folder);
        let mut session = Recording::new(folder);
        let group = guid(0x6000);
        let traits = |name: &str| TraitsBuilder::new(name).group(&group).finish().unwrap().to_vec();
        let (calls, callback) = recording_callback();
        let (allowed, disallowed) = (guid(1), guid(2));
        let allowed_provider = Provider::register_with_traits(allowed, &traits("Kept"), None).unwrap();
        let disallowed_provider =
            Provider::register_with_traits(disallowed, &traits("Barred"), Some(callback)).unwrap();
        session.enable(group, OF_GROUP);
        assert!(allowed_provider.enabled(4, 0) && disallowed_provider.enabled(4, 0));
        session.set(&Set::DisallowList(vec![disallowed, guid(3)]));
        until("the listed provider is disabled", || !disallowed_provider.enabled(4, 0));
        assert!(allowed_provider.enabled(4, 0));
        assert_eq!(session.query(Query::DisallowList), Answer::DisallowList(vec![disallowed, guid(3)]));
        let later = Provider::register_with_traits(guid(3), &traits("Later"), None).unwrap();
        assert!(!later.enabled(4, 0), "the list does not apply to later registrations");
        allowed_provider.write(&event(1), &[]).unwrap();
        // The list applies to groups only, not to direct enables.
        session.enable(disallowed, 0);
        until("the listed provider is enabled directly", || disallowed_provider.enabled(4, 0));
        session
            .controller
            .enable(&session.session, disallowed, EnableCode::Disable, &EnableParams::default(), 30_000)
            .unwrap();
        until("the listed provider is disabled again", || !disallowed_provider.enabled(4, 0));
        session.set(&Set::DisallowList(vec![guid(3)]));
        until("the provider removed from the list is enabled", || disallowed_provider.enabled(4, 0));
        assert!(!later.enabled(4, 0));
        until("the callback of the listed provider has run five times", || {
            recorded_codes(&calls) == [1, 0, 1, 0, 1]
        });
        disallowed_provider.write(&event(2), &[]).unwrap();
        let info = session.controller.group_info(group).unwrap();
        assert_eq!(info.members, Vec::from_iter(BTreeSet::from([disallowed, allowed, guid(3)])));
        assert_eq!(info.enables.len(), 1);
        let seen = session.stop(|record| {
            [allowed, disallowed].contains(&record.provider()).then(|| record.descriptor().id)
        });
        assert_eq!(seen, [1, 2]);
    });
}

#[test]
fn periodic_capture_state_runs_until_it_is_turned_off() {
    run_in_own_process("info_daemon::periodic_capture_state_runs_until_it_is_turned_off", |folder| {
        let _daemon = SeparateDaemon::new(folder);
        let mut session = Recording::new(folder);
        let ((calls, callback), (other_calls, other_callback)) = (recording_callback(), recording_callback());
        let _periodic = Provider::register(guid(1), Some(callback)).unwrap();
        let _idle = Provider::register(guid(2), Some(other_callback)).unwrap();
        session.enable(guid(1), 0);
        let start = Instant::now();
        let capture_every = |seconds| {
            let providers = vec![guid(1), guid(2), guid(9)];
            Set::PeriodicCaptureState(Some(PeriodicCaptureState { seconds, providers }))
        };
        session.set(&capture_every(10));
        until("the provider was asked for its state twice", || recorded_codes(&calls) == [1, 2, 2]);
        let times: Vec<Duration> =
            calls.lock().unwrap().iter().skip(1).map(|(_, at)| at.duration_since(start)).collect();
        assert!(times[0] >= Duration::from_millis(9_500), "the first request came too early: {times:?}");
        assert!(times[1] >= Duration::from_millis(19_000), "{times:?}");
        session.set(&Set::PeriodicCaptureState(None));
        std::thread::sleep(Duration::from_millis(10_500));
        assert_eq!(recorded_codes(&calls).len(), 3, "a call followed the end of the setting");
        assert!(recorded_codes(&other_calls).is_empty(), "a provider that is not enabled was called");
        session.stop(|_| None::<()>);
    });
}

#[test]
fn binary_tracking_records_modules_at_the_start_of_the_file() {
    let name = "info_daemon::binary_tracking_records_modules_at_the_start_of_the_file";
    run_in_own_process(name, |folder| {
        let _daemon = SeparateDaemon::new(folder);
        let mut session = Recording::new(folder);
        let before = Provider::register(guid(1), None).unwrap();
        session.enable(guid(1), 0);
        before.write(&event(1), &[]).unwrap();
        session.set(&Set::ProviderBinaryTracking(true));
        session.enable(guid(2), 0);
        let _later = Provider::register(guid(2), None).unwrap();
        session.set(&Set::ProviderBinaryTracking(false));
        let _after = Provider::register(guid(3), None).unwrap();
        session.enable(guid(3), 0);
        let program = std::fs::canonicalize("/proc/self/exe").unwrap();
        let mut seen = session.stop(|record| {
            if BinaryPath::is_in(record) {
                let module = BinaryPath::parse(record.payload()).unwrap();
                assert_eq!(Path::new(&module.path), program);
                return module.guids.first().copied();
            }
            (record.provider() == guid(1)).then_some(Guid::NULL)
        });
        // A thread of the library reports one module, and the registering thread the other: either
        // may be first.
        seen[..2].sort();
        assert_eq!(seen, [guid(1), guid(2), Guid::NULL], "the modules are not before the first event");
    });
}

#[test]
fn private_session_tracks_binaries_in_its_processes() {
    run_in_own_process("info_daemon::private_session_tracks_binaries_in_its_processes", |folder| {
        let _daemon = SeparateDaemon::new(folder);
        let mut controller = Controller::find_at(folder).unwrap().expect("the daemon does not answer");
        let _first = Provider::register(guid(1), None).unwrap();
        let log_file = folder.join("trace.etl");
        let config = SessionConfig {
            guid: guid(1),
            log_file: Some(log_file.clone()),
            log_file_mode: EVENT_TRACE_PRIVATE_LOGGER_MODE | EVENT_TRACE_FILE_MODE_SEQUENTIAL,
            ..live_config("private", 0)
        };
        let session = SessionRef::Id(controller.start(&config).unwrap().id);
        let params = EnableParams { level: 4, ..EnableParams::default() };
        controller.enable(&session, guid(1), EnableCode::Enable, &params, 30_000).unwrap();
        controller.set_information(&session, &Set::ProviderBinaryTracking(true)).unwrap();
        controller.enable(&session, guid(2), EnableCode::Enable, &params, 30_000).unwrap();
        let _second = Provider::register(guid(2), None).unwrap();
        controller.stop(&session).unwrap();
        let trace = etl::Trace::open(std::fs::File::open(log_file).unwrap()).unwrap();
        let (mut events, mut tracked) = (trace.events(), Vec::new());
        while let Some(record) = events.next().unwrap() {
            if BinaryPath::is_in(&record) {
                tracked.extend(BinaryPath::parse(record.payload()).unwrap().guids);
            }
        }
        // Either module may be reported first.
        tracked.sort_unstable();
        assert_eq!(tracked, [guid(1), guid(2)]);
    });
}

#[test]
fn query_returns_current_settings_until_session_ends() {
    run_in_own_process("info_daemon::query_returns_current_settings_until_session_ends", |folder| {
        let _daemon = SeparateDaemon::new(folder);
        let mut controller = Controller::find_at(folder).unwrap().expect("the daemon does not answer");
        // The context switch.
        let switch = ClassicEventId { class: class::THREAD, opcode: 36 };
        for expected in [vec![], vec![switch]] {
            let id = controller.start(&live_config("system", EVENT_TRACE_SYSTEM_LOGGER_MODE)).unwrap().id;
            let session = SessionRef::Id(id);
            let empty = Answer::StackTracing(vec![]);
            assert_eq!(controller.query_information(&session, Query::StackTracing).unwrap(), empty);
            controller.set_information(&session, &Set::StackTracing(expected.clone())).unwrap();
            let answer = controller.query_information(&session, Query::StackTracing).unwrap();
            assert_eq!(answer, Answer::StackTracing(expected));
            if effects::can_get_kernel_events(&mut controller, &session) {
                // The last word of the mask can be set only with privilege.
                let last = u32::from(can_profile());
                let mask = Set::SystemTraceEnableFlags([0x10, 0, 0, 0, 0, 0, 0, last]);
                controller.set_information(&session, &mask).unwrap();
                let answer = controller.query_information(&session, Query::SystemTraceEnableFlags).unwrap();
                let expected_mask = Answer::SystemTraceEnableFlags([0x10, 4, 0, 0, 0, 0, 0, last]);
                assert_eq!(
                    answer, expected_mask,
                    "the context-switch flag does not set its bits in both words"
                );
            }
            controller.stop(&session).unwrap();
            let error = controller.query_information(&session, Query::StackTracing).unwrap_err();
            assert_eq!(error.status(), Status::ERROR_WMI_INSTANCE_NOT_FOUND);
        }
        let single =
            controller.start(&live_config("one", EVENT_TRACE_NO_PER_PROCESSOR_BUFFERING)).unwrap().id;
        let per_processor = controller.start(&live_config("many", 0)).unwrap().id;
        let streams = [single, per_processor]
            .map(|id| controller.query_information(&SessionRef::Id(id), Query::StreamCount).unwrap());
        let cpus = u32::from(traceweir_transport::cpu::possible());
        assert_eq!(streams, [Answer::StreamCount(1), Answer::StreamCount(cpus)]);
        let sessions = controller.query_information(&NO_SESSION, Query::MaxLoggers).unwrap();
        assert_eq!(sessions, Answer::MaxLoggers(64));
        if skip::holds_or_skip(can_profile(), "root", "intervals are set with CAP_PERFMON") {
            let interval = ProfileInterval { source: 0, interval: 50_000 };
            controller.set_information(&NO_SESSION, &Set::SampledProfileInterval(interval)).unwrap();
            let answer = controller.query_information(&NO_SESSION, Query::SampledProfileInterval(0)).unwrap();
            assert_eq!(answer, Answer::SampledProfileInterval(interval));
        }
    });
}

#[test]
fn equal_stacks_are_stored_once_and_every_event_finds_its_stack() {
    run_in_own_process(
        "info_daemon::equal_stacks_are_stored_once_and_every_event_finds_its_stack",
        |folder| {
            let _daemon = SeparateDaemon::new(folder);
            let mut session = Recording::new(folder);
            let provider = Provider::register(guid(1), None).unwrap();
            session.enable(guid(1), EVENT_ENABLE_PROPERTY_STACK_TRACE);
            let write = |id: u16| provider.write(&event(id), &[]).unwrap();
            write(1);
            // Flushes first: events in the rings would be collected with the new setting.
            session.controller.flush(&session.session, None).unwrap();
            let caching = StackCaching { is_enabled: true, ..StackCaching::default() };
            session.set(&Set::UnifiedStackCaching(caching));
            (0..50).for_each(|_| write(2));
            session.controller.flush(&session.session, None).unwrap();
            session.set(&Set::UnifiedStackCaching(StackCaching::default()));
            write(3);
            let (mut stacks, mut definitions) = (Definitions::default(), 0);
            let mut processors = BTreeSet::new();
            let seen = session.stop(|record| {
                definitions += usize::from(Definitions::is_informative(record));
                stacks.observe(record);
                let is_ours = record.provider() == guid(1);
                is_ours.then(|| {
                    let frames: Vec<u64> = stacks.frames(record).expect("the event has no stack").collect();
                    processors.insert((record.descriptor().id, record.cpu()));
                    (record.descriptor().id, StackKey::from_record(record).map(|stack| stack.key), frames)
                })
            });
            assert_eq!(seen.len(), 52);
            let keyed: Vec<_> = seen.iter().filter(|(id, ..)| *id == 2).collect();
            // The stack is defined once in the stream of each processor on which the thread ran.
            let keyed_processors = processors.iter().filter(|(id, _)| *id == 2).count();
            assert_eq!((keyed.len(), definitions), (50, keyed_processors), "a stack is stored too often");
            assert!(
                keyed.iter().all(|event| matches!(event, (_, Some(_), _)) && *event == keyed[0]),
                "{keyed:?}"
            );
            let plain: Vec<_> = seen.iter().filter(|(id, ..)| *id != 2).collect();
            assert!(plain.iter().all(|(_, key, frames)| key.is_none() && frames.len() >= 4));
            // The stacks differ in the frames of the calls themselves; the outermost frame is the
            // same.
            let ((.., keyed_frames), (.., plain_frames)) = (keyed[0], plain[0]);
            assert_eq!(keyed_frames.last(), plain_frames.last());
        },
    );
}

#[test]
fn live_consumer_gets_modules_and_stacks_before_they_are_used() {
    run_in_own_process("info_daemon::live_consumer_gets_modules_and_stacks_before_they_are_used", |folder| {
        let _daemon = SeparateDaemon::new(folder);
        let mut controller = Controller::find_at(folder).unwrap().expect("the daemon does not answer");
        let session = SessionRef::Id(controller.start(&live_config("live", 0)).unwrap().id);
        let provider = Provider::register(guid(1), None).unwrap();
        let property = EVENT_ENABLE_PROPERTY_STACK_TRACE;
        let params = EnableParams { level: 4, property, ..EnableParams::default() };
        controller.enable(&session, guid(1), EnableCode::Enable, &params, 30_000).unwrap();
        let trace = consumer::Trace::live_at(folder, "live").unwrap();
        let caching = StackCaching { is_enabled: true, ..StackCaching::default() };
        controller.set_information(&session, &Set::UnifiedStackCaching(caching)).unwrap();
        controller.set_information(&session, &Set::ProviderBinaryTracking(true)).unwrap();
        controller.flush(&session, None).unwrap();
        (0..3).for_each(|_| provider.write(&event(2), &[]).unwrap());
        let (mut stacks, mut modules, mut frames) = (Definitions::default(), 0, Vec::new());
        let stopping = std::thread::spawn(move || controller.stop(&session).unwrap());
        consumer::process(vec![trace], |item| {
            if let consumer::Item::Event(event) = item {
                stacks.observe(event.record);
                modules += u32::from(BinaryPath::is_in(event.record));
                if event.record.provider() == guid(1) {
                    assert!(StackKey::from_record(event.record).is_some());
                    frames.push(
                        stacks
                            .frames(event.record)
                            .expect("the stack is not defined before the event")
                            .collect::<Vec<u64>>(),
                    );
                }
            }
            std::ops::ControlFlow::Continue(())
        })
        .unwrap();
        assert_eq!(stopping.join().unwrap().events_lost, 0);
        assert_eq!(modules, 1);
        assert_eq!((frames.len(), frames[0] == frames[2]), (3, true));
    });
}

#[test]
fn registrations_of_a_provider_are_listed_one_by_one() {
    run_in_own_process("info_daemon::registrations_of_a_provider_are_listed_one_by_one", |folder| {
        let _daemon = SeparateDaemon::new(folder);
        let mut session = Recording::new(folder);
        session.enable(guid(1), 0);
        let pre_enabled = session.controller.registrations(guid(1)).unwrap();
        assert_eq!(
            (
                pre_enabled.len(),
                pre_enabled[0].pid,
                pre_enabled[0].is_pre_enabled,
                pre_enabled[0].sessions.len()
            ),
            (1, 0, true, 1)
        );
        let _two = [Provider::register(guid(1), None).unwrap(), Provider::register(guid(1), None).unwrap()];
        let registrations = session.controller.registrations(guid(1)).unwrap();
        assert_eq!(registrations.len(), 2);
        for registration in registrations {
            assert_eq!(
                (registration.pid, registration.is_pre_enabled, registration.is_classic),
                (std::process::id(), false, false)
            );
            assert_eq!((registration.sessions.len(), registration.sessions[0].level), (1, 4));
        }
        assert_eq!(traceweir::controller::info::own_providers(), [guid(1)]);
        let unknown = session.controller.registrations(guid(2)).unwrap_err();
        assert_eq!(unknown.status(), Status::ERROR_WMI_GUID_NOT_FOUND);
        session.stop(|_| None::<()>);
    });
}

#[test]
fn information_calls_are_answered_without_a_daemon() {
    const SESSION: u64 = 7;
    let ask = |class: InfoClass, session| {
        let outcome = query_bytes(None, session, class.number(), Some(&[0; 4]), 64);
        let status = outcome.result.err().map_or(Status::ERROR_SUCCESS, |error| error.status());
        (status, outcome.return_length)
    };
    // Class, session and expected ReturnLength.
    for (class, session, length) in [
        (InfoClass::TraceVersionInfo, 0, 8),
        (InfoClass::TracePeriodicCaptureStateInfo, SESSION, 8),
        (InfoClass::TraceMaxLoggersQuery, SESSION, 4),
        (InfoClass::TraceSampledProfileIntervalInfo, 0, 8),
        (InfoClass::TracePmcSessionInformation, 0, 0),
        (InfoClass::TraceMaxPmcCounterQuery, 0, 4),
    ] {
        assert_eq!(ask(class, session), (Status::ERROR_SUCCESS, Some(length)), "{class:?}");
    }
    for class in [InfoClass::TraceStackTracingInfo, InfoClass::TraceDisallowListQuery] {
        assert_eq!(ask(class, SESSION), (Status::ERROR_WMI_INSTANCE_NOT_FOUND, None), "{class:?}");
    }
    assert_eq!(ask(InfoClass::TraceStackTracingInfo, 0), (Status::ERROR_INVALID_PARAMETER, None));
    let tracking = InfoClass::TraceProviderBinaryTracking.number();
    assert_eq!(
        set_bytes(None, SESSION, tracking, Some(&[1]), 1).unwrap_err().status(),
        Status::ERROR_WMI_INSTANCE_NOT_FOUND
    );
    let list = InfoClass::TraceGuidQueryList.number();
    let outcome = enumerate_bytes(None, list, None, table::NO_OUTPUT);
    assert_eq!((outcome.result.is_ok(), outcome.return_length), (true, Some(0)));
    let info = InfoClass::TraceGuidQueryInfo.number();
    let outcome = enumerate_bytes(None, info, Some(&[0; 16]), table::NO_OUTPUT);
    assert_eq!(outcome.result.unwrap_err().status(), Status::ERROR_WMI_GUID_NOT_FOUND);
}
