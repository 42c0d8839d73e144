//! Information classes with a real daemon: the table of `fixtures/information`, and the effects of
//! the classes that are supported.
//!
//! Each test runs in a separate process, because providers find daemons by the environment; the
//! daemon is another process.

use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use traceweir::consumer;
use traceweir::controller::access::{Rights, SecurityOperation, Sid};
use traceweir::controller::info::{
    Answer, ClassicEventId, PeriodicCaptureState, ProfileInterval, Query, Set, StackCaching,
};
use traceweir::controller::{
    Controller, EnableCode, EnableParams, NO_SESSION, SessionConfig, SessionRef, enumerate_bytes,
    query_bytes, set_bytes,
};
use traceweir::provider::EnableCallback;
use traceweir::{EventDescriptor, Guid, Provider};
use traceweir_format::binary_path::BinaryPath;
use traceweir_format::etl;
use traceweir_format::spec::enable::{
    EVENT_ENABLE_PROPERTY_PROVIDER_GROUP as OF_GROUP, EVENT_ENABLE_PROPERTY_STACK_TRACE,
};
use traceweir_format::spec::event::class;
use traceweir_format::stack_key::{Definitions, StackKey};
use traceweir_format::tracelogging::TraitsBuilder;

mod effects;
mod table;
use crate::machine::{Machine, PERFMON, SYS_ADMIN, capabilities};
use crate::recording::Recording;
use crate::skip;
use crate::support::until;
use crate::support_daemon::{DaemonInProcess, run_in_own_process, this_test};
use table::{Row, guid};

/// Environment variable that makes a process the caller `plain` or `guest`, with the sessions of
/// the table.
const LESSER: &str = "TRACEWEIR_TEST_LESSER";
const SYSTEM_LOGGER: u32 = 0x0200_0000;
const REAL_TIME: u32 = 0x100;

fn live(name: &str, mode: u32) -> SessionConfig {
    SessionConfig { name: name.into(), log_file_mode: REAL_TIME | mode, ..SessionConfig::default() }
}

fn may_profile() -> bool {
    capabilities() & (PERFMON | SYS_ADMIN) != 0
}

/// The user id of the guest of the table's daemon.
const GUEST: u32 = 64_313;

#[test]
fn every_call_of_the_table_has_the_expected_result() {
    run_in_own_process("info_daemon::every_call_of_the_table_has_the_expected_result", |folder| {
        let is_root = rustix::process::geteuid().is_root() && may_profile();
        if !skip::can(is_root, "root", "most of the table needs CAP_PERFMON and other users") {
            return;
        }
        let _daemon = DaemonInProcess::for_all(folder);
        let mut controller = Controller::find_at(folder).unwrap().expect("a daemon");
        let _provider = Provider::register(guid(0x7000), None).unwrap();
        let sessions = sessions_of_the_table(&mut controller, folder);
        let rows = Row::for_caller("any");
        rows.iter().for_each(|row| row.check(&mut controller, &sessions, Machine::inspect()));

        let session_list: Vec<String> = sessions.iter().map(|(name, id)| format!("{name}={id}")).collect();
        let session_list = session_list.join(",");
        // The bounding set belongs to the thread, and to the programs that it starts.
        let plain_list = session_list.clone();
        let plain = std::thread::spawn(move || {
            for capability in
                [rustix::thread::CapabilitySet::PERFMON, rustix::thread::CapabilitySet::SYS_ADMIN]
            {
                rustix::thread::remove_capability_from_bounding_set(capability).unwrap();
            }
            this_test("info_daemon::lesser_role").env(LESSER, format!("plain,{plain_list}")).status().unwrap()
        });
        assert!(plain.join().unwrap().success());

        // A user can connect only if some access list names it.
        let (add, guest) = (SecurityOperation::ADD_DACL, Sid::user(GUEST));
        controller.set_access(guid(1), add, &guest, Rights::WMIGUID_SET, true).unwrap();
        // The build folder may be inaccessible to other users.
        let copy = folder.join("this-test");
        let made = Command::new("cp").arg(std::env::current_exe().unwrap()).arg(&copy).status();
        assert!(made.unwrap().success());
        let mut command = Command::new(copy);
        command.args(this_test("info_daemon::lesser_role").get_args()).uid(GUEST).gid(GUEST).current_dir("/");
        assert!(command.env(LESSER, format!("guest,{session_list}")).status().unwrap().success());
    });
}

/// Starts the sessions of the table, and returns their ids by name.
fn sessions_of_the_table(controller: &mut Controller, folder: &Path) -> BTreeMap<String, u64> {
    let private = SessionConfig {
        guid: guid(0x7002),
        log_file: Some(folder.join("private.etl")),
        log_file_mode: 0x801,
        ..live("private", 0)
    };
    let (system, spare) = (live("system", SYSTEM_LOGGER), live("spare", SYSTEM_LOGGER));
    let configs = [live("live", 0), system, spare, private, live("stale", 0)];
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
fn lesser_role() {
    let Ok(role) = std::env::var(LESSER) else { return };
    assert!(!may_profile());
    let (caller, sessions) = role.split_once(',').unwrap();
    let folder = std::env::var_os("TRACEWEIR_RUNTIME_DIR").unwrap();
    let mut controller = Controller::find_at(Path::new(&folder)).unwrap().expect("a daemon");
    let sessions = sessions.split(',').map(|session| {
        let (name, id) = session.split_once('=').unwrap();
        (name.to_owned(), id.parse().unwrap())
    });
    let sessions = sessions.collect();
    Row::for_caller(caller).iter().for_each(|row| row.check(&mut controller, &sessions, Machine::inspect()));
}

impl Recording<'_> {
    fn enable(&mut self, guid: Guid, property: u32) {
        let params = EnableParams { level: 4, property, ..EnableParams::default() };
        self.controller.enable(&self.session, guid, EnableCode::Enable, &params, 30_000).unwrap();
    }

    fn set(&mut self, set: &Set) {
        self.controller.set_information(&self.session, set).unwrap();
    }

    fn answer_of(&mut self, query: Query) -> Answer {
        self.controller.query_information(&self.session, query).unwrap()
    }
}

type Calls = Arc<Mutex<Vec<(u32, Instant)>>>;

fn recorder() -> (Calls, EnableCallback) {
    let calls = Calls::default();
    let to = Arc::clone(&calls);
    (calls, Box::new(move |n| to.lock().unwrap().push((n.code, Instant::now()))))
}

fn codes(calls: &Calls) -> Vec<u32> {
    calls.lock().unwrap().iter().map(|(code, _)| *code).collect()
}

fn event(id: u16) -> EventDescriptor {
    EventDescriptor { id, level: 4, ..EventDescriptor::default() }
}

#[test]
fn group_does_not_enable_disallowed_providers() {
    run_in_own_process("info_daemon::group_does_not_enable_disallowed_providers", |folder| {
        let _daemon = DaemonInProcess::new(folder);
        let mut session = Recording::new(folder);
        let group = guid(0x6000);
        let traits = |name: &str| TraitsBuilder::new(name).group(&group).finish().unwrap().to_vec();
        let (calls, callback) = recorder();
        let (wanted, listed) = (guid(1), guid(2));
        let kept = Provider::register_with_traits(wanted, &traits("Kept"), None).unwrap();
        let barred = Provider::register_with_traits(listed, &traits("Barred"), Some(callback)).unwrap();
        session.enable(group, OF_GROUP);
        assert!(kept.enabled(4, 0) && barred.enabled(4, 0));
        session.set(&Set::DisallowList(vec![listed, guid(3)]));
        until("the listed provider is disabled", || !barred.enabled(4, 0));
        assert!(kept.enabled(4, 0));
        assert_eq!(session.answer_of(Query::DisallowList), Answer::DisallowList(vec![listed, guid(3)]));
        let later = Provider::register_with_traits(guid(3), &traits("Later"), None).unwrap();
        assert!(!later.enabled(4, 0), "the list applies to later registrations, too");
        kept.write(&event(1), &[]).unwrap();
        // The list applies to groups only, not to direct enables.
        session.enable(listed, 0);
        until("the listed provider is enabled directly", || barred.enabled(4, 0));
        session
            .controller
            .enable(&session.session, listed, EnableCode::Disable, &EnableParams::default(), 30_000)
            .unwrap();
        until("the listed provider is disabled again", || !barred.enabled(4, 0));
        session.set(&Set::DisallowList(vec![guid(3)]));
        until("the provider removed from the list is enabled", || barred.enabled(4, 0));
        assert!(!later.enabled(4, 0));
        until("the callbacks of the listed provider", || codes(&calls) == [1, 0, 1, 0, 1]);
        barred.write(&event(2), &[]).unwrap();
        let groups = session.controller.group_info(group).unwrap();
        assert_eq!(
            groups.members,
            [listed, wanted, guid(3)]
                .into_iter()
                .collect::<std::collections::BTreeSet<_>>()
                .into_iter()
                .collect::<Vec<_>>()
        );
        assert_eq!(groups.enables.len(), 1);
        let seen = session
            .stop(|record| [wanted, listed].contains(&record.provider()).then(|| record.descriptor().id));
        assert_eq!(seen, [1, 2]);
    });
}

#[test]
fn periodic_capture_state_runs_until_it_is_turned_off() {
    run_in_own_process("info_daemon::periodic_capture_state_runs_until_it_is_turned_off", |folder| {
        let _daemon = DaemonInProcess::new(folder);
        let mut session = Recording::new(folder);
        let ((calls, callback), (others, other_callback)) = (recorder(), recorder());
        let _asked = Provider::register(guid(1), Some(callback)).unwrap();
        let _idle = Provider::register(guid(2), Some(other_callback)).unwrap();
        session.enable(guid(1), 0);
        let began = Instant::now();
        let every = |seconds| {
            let providers = vec![guid(1), guid(2), guid(9)];
            Set::PeriodicCaptureState(Some(PeriodicCaptureState { seconds, providers }))
        };
        session.set(&every(10));
        until("two states", || codes(&calls) == [1, 2, 2]);
        let times: Vec<Duration> =
            calls.lock().unwrap().iter().skip(1).map(|(_, at)| at.duration_since(began)).collect();
        assert!(times[0] >= Duration::from_millis(9_500), "one period after the call: {times:?}");
        assert!(times[1] >= Duration::from_millis(19_000), "{times:?}");
        session.set(&Set::PeriodicCaptureState(None));
        std::thread::sleep(Duration::from_millis(10_500));
        assert_eq!(codes(&calls).len(), 3, "turned off");
        assert!(codes(&others).is_empty(), "the session has not enabled this provider");
        session.stop(|_| None::<()>);
    });
}

#[test]
fn binary_tracking_records_modules_at_the_start_of_the_file() {
    let name = "info_daemon::binary_tracking_records_modules_at_the_start_of_the_file";
    run_in_own_process(name, |folder| {
        let _daemon = DaemonInProcess::new(folder);
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
        assert_eq!(seen, [guid(1), guid(2), Guid::NULL], "in front of the first event");
    });
}

#[test]
fn private_session_tracks_binaries_in_its_processes() {
    run_in_own_process("info_daemon::private_session_tracks_binaries_in_its_processes", |folder| {
        let _daemon = DaemonInProcess::new(folder);
        let mut controller = Controller::find_at(folder).unwrap().expect("a daemon");
        let _first = Provider::register(guid(1), None).unwrap();
        let log_file = folder.join("trace.etl");
        let config = SessionConfig {
            guid: guid(1),
            log_file: Some(log_file.clone()),
            log_file_mode: 0x801,
            ..live("private", 0)
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
        let _daemon = DaemonInProcess::new(folder);
        let mut controller = Controller::find_at(folder).unwrap().expect("a daemon");
        let switch = ClassicEventId { class: class::THREAD, opcode: 36 };
        for expected in [vec![], vec![switch]] {
            let id = controller.start(&live("system", SYSTEM_LOGGER)).unwrap().id;
            let session = SessionRef::Id(id);
            let empty = Answer::StackTracing(vec![]);
            assert_eq!(controller.query_information(&session, Query::StackTracing).unwrap(), empty);
            controller.set_information(&session, &Set::StackTracing(expected.clone())).unwrap();
            let answer = controller.query_information(&session, Query::StackTracing).unwrap();
            assert_eq!(answer, Answer::StackTracing(expected));
            if effects::gets_kernel_events(&mut controller, &session) {
                // Without privilege only the first words can be set.
                let last = u32::from(may_profile());
                let mask = Set::SystemTraceEnableFlags([0x10, 0, 0, 0, 0, 0, 0, last]);
                controller.set_information(&session, &mask).unwrap();
                let answer = controller.query_information(&session, Query::SystemTraceEnableFlags).unwrap();
                let both = Answer::SystemTraceEnableFlags([0x10, 4, 0, 0, 0, 0, 0, last]);
                assert_eq!(answer, both, "the flag is part of two groups");
            }
            controller.stop(&session).unwrap();
            let gone = controller.query_information(&session, Query::StackTracing).unwrap_err();
            assert_eq!(gone.status().0, 4201);
        }
        let one = controller.start(&live("one", 0x1000_0000)).unwrap().id;
        let many = controller.start(&live("many", 0)).unwrap().id;
        let streams = [one, many]
            .map(|id| controller.query_information(&SessionRef::Id(id), Query::StreamCount).unwrap());
        let cpus = u32::from(traceweir_transport::cpu::possible());
        assert_eq!(streams, [Answer::StreamCount(1), Answer::StreamCount(cpus)]);
        let sessions = controller.query_information(&NO_SESSION, Query::MaxLoggers).unwrap();
        assert_eq!(sessions, Answer::MaxLoggers(64));
        if skip::can(may_profile(), "root", "intervals are set with CAP_PERFMON") {
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
            let _daemon = DaemonInProcess::new(folder);
            let mut session = Recording::new(folder);
            let provider = Provider::register(guid(1), None).unwrap();
            session.enable(guid(1), EVENT_ENABLE_PROPERTY_STACK_TRACE);
            let write = |id: u16| provider.write(&event(id), &[]).unwrap();
            write(1);
            // Flushes first: events in the rings would be collected with the new setting.
            session.controller.flush(&session.session, None).unwrap();
            let on = StackCaching { is_enabled: true, ..StackCaching::default() };
            session.set(&Set::UnifiedStackCaching(on));
            (0..50).for_each(|_| write(2));
            session.controller.flush(&session.session, None).unwrap();
            session.set(&Set::UnifiedStackCaching(StackCaching::default()));
            write(3);
            let (mut stacks, mut definitions) = (Definitions::default(), 0);
            let seen = session.stop(|record| {
                definitions += u32::from(Definitions::is_informative(record));
                stacks.observe(record);
                let is_ours = record.provider() == guid(1);
                is_ours.then(|| {
                    let frames: Vec<u64> = stacks.frames(record).expect("a stack").collect();
                    (record.descriptor().id, StackKey::from_record(record).map(|stack| stack.key), frames)
                })
            });
            assert_eq!(seen.len(), 52);
            let keyed: Vec<_> = seen.iter().filter(|(id, ..)| *id == 2).collect();
            assert_eq!((keyed.len(), definitions), (50, 1), "one stack, written once");
            assert!(keyed.iter().all(|event| event.1.is_some() && *event == keyed[0]), "{keyed:?}");
            let plain: Vec<_> = seen.iter().filter(|(id, ..)| *id != 2).collect();
            assert!(plain.iter().all(|(_, key, frames)| key.is_none() && frames.len() >= 4));
            // All frames except those of the calls themselves are the same.
            assert_eq!(keyed[0].2.last(), plain[0].2.last());
        },
    );
}

#[test]
fn live_consumer_gets_modules_and_stacks_before_they_are_used() {
    run_in_own_process("info_daemon::live_consumer_gets_modules_and_stacks_before_they_are_used", |folder| {
        let _daemon = DaemonInProcess::new(folder);
        let mut controller = Controller::find_at(folder).unwrap().expect("a daemon");
        let session = SessionRef::Id(controller.start(&live("live", 0)).unwrap().id);
        let provider = Provider::register(guid(1), None).unwrap();
        let property = EVENT_ENABLE_PROPERTY_STACK_TRACE;
        let params = EnableParams { level: 4, property, ..EnableParams::default() };
        controller.enable(&session, guid(1), EnableCode::Enable, &params, 30_000).unwrap();
        let trace = consumer::Trace::live_at(folder, "live").unwrap();
        let on = StackCaching { is_enabled: true, ..StackCaching::default() };
        controller.set_information(&session, &Set::UnifiedStackCaching(on)).unwrap();
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
                    frames.push(stacks.frames(event.record).expect("defined before").collect::<Vec<u64>>());
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
        let _daemon = DaemonInProcess::new(folder);
        let mut session = Recording::new(folder);
        session.enable(guid(1), 0);
        let ahead = session.controller.registrations(guid(1)).unwrap();
        assert_eq!((ahead.len(), ahead[0].pid, ahead[0].is_ahead, ahead[0].sessions.len()), (1, 0, true, 1));
        let _two = [Provider::register(guid(1), None).unwrap(), Provider::register(guid(1), None).unwrap()];
        let registrations = session.controller.registrations(guid(1)).unwrap();
        assert_eq!(registrations.len(), 2);
        for registration in registrations {
            assert_eq!(
                (registration.pid, registration.is_ahead, registration.is_classic),
                (std::process::id(), false, false)
            );
            assert_eq!((registration.sessions.len(), registration.sessions[0].level), (1, 4));
        }
        assert_eq!(traceweir::controller::info::own_providers(), [guid(1)]);
        let unknown = session.controller.registrations(guid(2)).unwrap_err();
        assert_eq!(unknown.status().0, 4200);
        session.stop(|_| None::<()>);
    });
}

#[test]
fn classes_without_daemon_are_answered_on_an_idle_system() {
    let ask = |class, session| {
        let done = query_bytes(None, session, class, Some(&[0; 4]), 64);
        (done.result.err().map_or(0, |e| e.status().0), done.return_length)
    };
    assert_eq!([ask(11, 0), ask(17, 7), ask(19, 7)], [(0, Some(8)), (0, Some(8)), (0, Some(4))]);
    assert_eq!([ask(5, 0), ask(27, 0), ask(22, 0)], [(0, Some(8)), (0, Some(0)), (0, Some(4))]);
    assert_eq!([ask(3, 7), ask(14, 7), ask(3, 0)], [(4201, None), (4201, None), (87, None)]);
    assert_eq!(set_bytes(None, 7, 18, Some(&[1]), 1).unwrap_err().status().0, 4201);
    let done = enumerate_bytes(None, 0, None, table::NOWHERE);
    assert_eq!((done.result.is_ok(), done.return_length), (true, Some(0)));
    let done = enumerate_bytes(None, 1, Some(&[0; 16]), table::NOWHERE);
    assert_eq!(done.result.unwrap_err().status().0, 4200);
}
