//! Information classes with a real daemon: the table of `fixtures/information`, and what each class that acts here does.
//!
//! Each test runs in a process of its own, because providers find daemons by the environment; the daemon is another process.

use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use traceweir::consumer;
use traceweir::controller::access::{Rights, SecurityOperation, Sid};
use traceweir::controller::info::{
    Answer, ClassicEventId, NO_SESSION, PeriodicCaptureState, ProfileInterval, Query, Set, StackCaching,
    enumerate_bytes, query_bytes, set_bytes,
};
use traceweir::controller::{Controller, EnableCode, EnableParams, SessionConfig, SessionRef};
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
use crate::support_daemon::{InProcess, alone, this_test};
use table::{Row, guid};

/// Tells a process that it is `plain` or `guest`, and the sessions of the table.
const LESSER: &str = "TRACEWEIR_TEST_LESSER";
const SYSTEM_LOGGER: u32 = 0x0200_0000;
const REAL_TIME: u32 = 0x100;

fn live(name: &str, mode: u32) -> SessionConfig {
    SessionConfig { name: name.into(), log_file_mode: REAL_TIME | mode, ..SessionConfig::default() }
}

fn may_profile() -> bool {
    capabilities() & (PERFMON | SYS_ADMIN) != 0
}

/// The user who is a guest of the table's daemon.
const GUEST: u32 = 64_313;

#[test]
fn every_call_of_the_table_returns_what_it_should() {
    alone("info_daemon::every_call_of_the_table_returns_what_it_should", |folder| {
        let is_root = rustix::process::geteuid().is_root() && may_profile();
        if !skip::can(
            is_root,
            "root",
            "without CAP_PERFMON and other users most of the table cannot be tried",
        ) {
            return;
        }
        let _daemon = InProcess::for_all(folder);
        let mut controller = Controller::find_at(folder).unwrap().expect("a daemon");
        let _provider = Provider::register(guid(0x7000), None).unwrap();
        let sessions = sessions_of_the_table(&mut controller, folder);
        let rows = Row::of("any");
        rows.iter().for_each(|row| row.check(&mut controller, &sessions, Machine::look()));

        let told: Vec<String> = sessions.iter().map(|(name, id)| format!("{name}={id}")).collect();
        let told = told.join(",");
        // The bounding set is the thread's own, and that of programs which it starts.
        let as_plain = told.clone();
        let plain = std::thread::spawn(move || {
            for capability in
                [rustix::thread::CapabilitySet::PERFMON, rustix::thread::CapabilitySet::SYS_ADMIN]
            {
                rustix::thread::remove_capability_from_bounding_set(capability).unwrap();
            }
            this_test("info_daemon::lesser_role").env(LESSER, format!("plain,{as_plain}")).status().unwrap()
        });
        assert!(plain.join().unwrap().success());

        // Some list has to name whoever is let in at all.
        let (add, guest) = (SecurityOperation::ADD_DACL, Sid::user(GUEST));
        controller.set_access(guid(1), add, &guest, Rights::WMIGUID_SET, true).unwrap();
        // What was built may lie where nobody else can look.
        let copy = folder.join("this-test");
        let made = Command::new("cp").arg(std::env::current_exe().unwrap()).arg(&copy).status();
        assert!(made.unwrap().success());
        let mut command = Command::new(copy);
        command.args(this_test("info_daemon::lesser_role").get_args()).uid(GUEST).gid(GUEST).current_dir("/");
        assert!(command.env(LESSER, format!("guest,{told}")).status().unwrap().success());
    });
}

/// Starts what the table speaks of: ids by name.
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
#[ignore = "the part of a process of its own"]
fn lesser_role() {
    let Ok(told) = std::env::var(LESSER) else { return };
    assert!(!may_profile());
    let (who, sessions) = told.split_once(',').unwrap();
    let folder = std::env::var_os("TRACEWEIR_RUNTIME_DIR").unwrap();
    let mut controller = Controller::find_at(Path::new(&folder)).unwrap().expect("a daemon");
    let sessions = sessions.split(',').map(|it| {
        let (name, id) = it.split_once('=').unwrap();
        (name.to_owned(), id.parse().unwrap())
    });
    let sessions = sessions.collect();
    Row::of(who).iter().for_each(|row| row.check(&mut controller, &sessions, Machine::look()));
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
fn a_group_does_not_enable_who_is_on_the_list() {
    alone("info_daemon::a_group_does_not_enable_who_is_on_the_list", |folder| {
        let _daemon = InProcess::new(folder);
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
        until("the listed one to be disabled", || !barred.enabled(4, 0));
        assert!(kept.enabled(4, 0));
        assert_eq!(session.answer_of(Query::DisallowList), Answer::DisallowList(vec![listed, guid(3)]));
        let later = Provider::register_with_traits(guid(3), &traits("Later"), None).unwrap();
        assert!(!later.enabled(4, 0), "who comes later is on the list too");
        kept.write(&event(1), &[]).unwrap();
        // Whoever is enabled directly is not a matter of groups.
        session.enable(listed, 0);
        until("the listed one to be enabled by itself", || barred.enabled(4, 0));
        session
            .controller
            .enable(&session.session, listed, EnableCode::Disable, &EnableParams::default(), 30_000)
            .unwrap();
        until("it to be disabled again", || !barred.enabled(4, 0));
        session.set(&Set::DisallowList(vec![guid(3)]));
        until("who left the list to be enabled", || barred.enabled(4, 0));
        assert!(!later.enabled(4, 0));
        until("its callbacks", || codes(&calls) == [1, 0, 1, 0, 1]);
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
        let seen = session.stop(|it| [wanted, listed].contains(&it.provider()).then(|| it.descriptor().id));
        assert_eq!(seen, [1, 2]);
    });
}

#[test]
fn providers_are_asked_for_their_state_on_time_until_they_are_not() {
    alone("info_daemon::providers_are_asked_for_their_state_on_time_until_they_are_not", |folder| {
        let _daemon = InProcess::new(folder);
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
        assert!(codes(&others).is_empty(), "the session has not enabled it");
        session.stop(|_| None::<()>);
    });
}

#[test]
fn a_session_that_tracks_binaries_is_told_now_and_later_and_files_at_their_front() {
    let name = "info_daemon::a_session_that_tracks_binaries_is_told_now_and_later_and_files_at_their_front";
    alone(name, |folder| {
        let _daemon = InProcess::new(folder);
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
                let told = BinaryPath::parse(record.payload()).unwrap();
                assert_eq!(Path::new(&told.path), program);
                return told.guids.first().copied();
            }
            (record.provider() == guid(1)).then_some(Guid::NULL)
        });
        // The one is told by a thread of the library, the other by who registers: either may be first.
        seen[..2].sort();
        assert_eq!(seen, [guid(1), guid(2), Guid::NULL], "in front of the first event");
    });
}

#[test]
fn a_private_session_tracks_binaries_in_its_processes() {
    alone("info_daemon::a_private_session_tracks_binaries_in_its_processes", |folder| {
        let _daemon = InProcess::new(folder);
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
        let (mut events, mut told) = (trace.events(), Vec::new());
        while let Some(record) = events.next().unwrap() {
            if BinaryPath::is_in(&record) {
                told.extend(BinaryPath::parse(record.payload()).unwrap().guids);
            }
        }
        // Either may be told first.
        told.sort_unstable();
        assert_eq!(told, [guid(1), guid(2)]);
    });
}

#[test]
fn settings_are_told_as_they_are_and_die_with_their_session() {
    alone("info_daemon::settings_are_told_as_they_are_and_die_with_their_session", |folder| {
        let _daemon = InProcess::new(folder);
        let mut controller = Controller::find_at(folder).unwrap().expect("a daemon");
        let switch = ClassicEventId { class: class::THREAD, opcode: 36 };
        for expected in [vec![], vec![switch]] {
            let id = controller.start(&live("system", SYSTEM_LOGGER)).unwrap().id;
            let session = SessionRef::Id(id);
            let empty = Answer::StackTracing(vec![]);
            assert_eq!(controller.query_information(&session, Query::StackTracing).unwrap(), empty);
            controller.set_information(&session, &Set::StackTracing(expected.clone())).unwrap();
            let told = controller.query_information(&session, Query::StackTracing).unwrap();
            assert_eq!(told, Answer::StackTracing(expected));
            if effects::gets_kernel_events(&mut controller, &session) {
                // Without privilege there is nothing beyond the first words.
                let last = u32::from(may_profile());
                let mask = Set::SystemTraceEnableFlags([0x10, 0, 0, 0, 0, 0, 0, last]);
                controller.set_information(&session, &mask).unwrap();
                let told = controller.query_information(&session, Query::SystemTraceEnableFlags).unwrap();
                let both = Answer::SystemTraceEnableFlags([0x10, 4, 0, 0, 0, 0, 0, last]);
                assert_eq!(told, both, "two names of one thing");
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
            let told = controller.query_information(&NO_SESSION, Query::SampledProfileInterval(0)).unwrap();
            assert_eq!(told, Answer::SampledProfileInterval(interval));
        }
    });
}

#[test]
fn equal_stacks_are_stored_once_and_every_event_leads_to_its_own() {
    alone("info_daemon::equal_stacks_are_stored_once_and_every_event_leads_to_its_own", |folder| {
        let _daemon = InProcess::new(folder);
        let mut session = Recording::new(folder);
        let provider = Provider::register(guid(1), None).unwrap();
        session.enable(guid(1), EVENT_ENABLE_PROPERTY_STACK_TRACE);
        let write = |id: u16| provider.write(&event(id), &[]).unwrap();
        write(1);
        // What waits in rings is collected under the setting that holds then.
        session.controller.flush(&session.session, None).unwrap();
        let on = StackCaching { is_enabled: true, ..StackCaching::default() };
        session.set(&Set::UnifiedStackCaching(on));
        (0..50).for_each(|_| write(2));
        session.controller.flush(&session.session, None).unwrap();
        session.set(&Set::UnifiedStackCaching(StackCaching::default()));
        write(3);
        let (mut known, mut definitions) = (Definitions::default(), 0);
        let seen = session.stop(|record| {
            definitions += u32::from(Definitions::is_informative(record));
            known.observe(record);
            let is_ours = record.provider() == guid(1);
            is_ours.then(|| {
                let frames: Vec<u64> = known.frames(record).expect("a stack").collect();
                (record.descriptor().id, StackKey::of(record).map(|it| it.key), frames)
            })
        });
        assert_eq!(seen.len(), 52);
        let keyed: Vec<_> = seen.iter().filter(|(id, ..)| *id == 2).collect();
        assert_eq!((keyed.len(), definitions), (50, 1), "one stack, written once");
        assert!(keyed.iter().all(|it| it.1.is_some() && *it == keyed[0]), "{keyed:?}");
        let plain: Vec<_> = seen.iter().filter(|(id, ..)| *id != 2).collect();
        assert!(plain.iter().all(|(_, key, frames)| key.is_none() && frames.len() >= 4));
        // All but the frames in which the calls themselves stand are the same.
        assert_eq!(keyed[0].2.last(), plain[0].2.last());
    });
}

#[test]
fn a_live_session_is_told_of_modules_and_stacks_as_they_come() {
    alone("info_daemon::a_live_session_is_told_of_modules_and_stacks_as_they_come", |folder| {
        let _daemon = InProcess::new(folder);
        let mut controller = Controller::find_at(folder).unwrap().expect("a daemon");
        let session = SessionRef::Id(controller.start(&live("live", 0)).unwrap().id);
        let provider = Provider::register(guid(1), None).unwrap();
        let property = EVENT_ENABLE_PROPERTY_STACK_TRACE;
        let params = EnableParams { level: 4, property, ..EnableParams::default() };
        controller.enable(&session, guid(1), EnableCode::Enable, &params, 30_000).unwrap();
        let trace = consumer::Trace::open_live_at(folder, &session).unwrap();
        let on = StackCaching { is_enabled: true, ..StackCaching::default() };
        controller.set_information(&session, &Set::UnifiedStackCaching(on)).unwrap();
        controller.set_information(&session, &Set::ProviderBinaryTracking(true)).unwrap();
        controller.flush(&session, None).unwrap();
        (0..3).for_each(|_| provider.write(&event(2), &[]).unwrap());
        let (mut known, mut modules, mut frames) = (Definitions::default(), 0, Vec::new());
        let stopping = std::thread::spawn(move || controller.stop(&session).unwrap());
        consumer::process(vec![trace], |item| {
            if let consumer::Item::Event(event) = item {
                known.observe(event.record);
                modules += u32::from(BinaryPath::is_in(event.record));
                if event.record.provider() == guid(1) {
                    assert!(StackKey::of(event.record).is_some());
                    frames.push(known.frames(event.record).expect("defined before").collect::<Vec<u64>>());
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
fn a_provider_is_told_of_registration_by_registration() {
    alone("info_daemon::a_provider_is_told_of_registration_by_registration", |folder| {
        let _daemon = InProcess::new(folder);
        let mut session = Recording::new(folder);
        session.enable(guid(1), 0);
        let ahead = session.controller.registrations(guid(1)).unwrap();
        assert_eq!((ahead.len(), ahead[0].pid, ahead[0].is_ahead, ahead[0].sessions.len()), (1, 0, true, 1));
        let _two = [Provider::register(guid(1), None).unwrap(), Provider::register(guid(1), None).unwrap()];
        let told = session.controller.registrations(guid(1)).unwrap();
        assert_eq!(told.len(), 2);
        for it in told {
            assert_eq!((it.pid, it.is_ahead, it.is_classic), (std::process::id(), false, false));
            assert_eq!((it.sessions.len(), it.sessions[0].level), (1, 4));
        }
        assert_eq!(traceweir::controller::info::own_providers(), [guid(1)]);
        let unknown = session.controller.registrations(guid(2)).unwrap_err();
        assert_eq!(unknown.status().0, 4200);
        session.stop(|_| None::<()>);
    });
}

#[test]
fn an_idle_system_answers_what_needs_no_daemon() {
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
