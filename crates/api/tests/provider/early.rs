//! Processes that register while the daemon is stopped: their events are collected all the same.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use traceweir::controller::{Controller, EnableCode, EnableParams, Scope, SessionRef};
use traceweir::{Guid, Provider};
use traceweir_daemon::{Options, Stopper, run_until};
use traceweir_transport::abi::{Layout, RegionParams};
use traceweir_transport::clock::Counter;
use traceweir_transport::enabled::Enabled;
use traceweir_transport::message::{Control, Message, Role, VERSIONS};
use traceweir_transport::ring::create_memory;
use traceweir_transport::runtime::RuntimeDir;
use traceweir_transport::socket::Connection;

use crate::daemon::{Process, listen, params};
use crate::skip::can;
use crate::{
    PATIENCE, PROVIDER, Running, Scenario, Seen, Stage, event, eventually, mark, read, read_events_of,
    sequential, until, wait_for_mark,
};

pub(crate) const SCENARIOS: &[Scenario] = &[
    ("daemon of its own", daemon_of_its_own),
    ("daemon of all users", daemon_of_all_users),
    ("write and end", write_and_end),
    ("write on each processor", write_on_each_processor),
    ("write before and after", write_before_and_after),
    ("register and end", register_and_end),
    ("go on without an answer", go_on_without_an_answer),
    ("enabled until the daemon answers", enabled_until_the_daemon_answers),
];

pub(crate) const EACH: u64 = 200;
const PROCESSES: u64 = 50;
/// How long the daemon is stopped at least while processes come and go.
const STOPPED: Duration = Duration::from_secs(5);
pub(crate) const OTHER: Guid = Guid::from_u128(0x1f2e_3d4c_5b6a_4978_8796_a5b4_c3d2_e1f0);

/// A daemon in a process of its own, with a session that wants everything of the provider.
pub(crate) struct Apart {
    pub(crate) stage: Stage,
    daemon: Running,
    pub(crate) controller: Controller,
}

impl Apart {
    pub(crate) fn start() -> Self {
        Self::start_on(Stage::new(), Scope::Named)
    }

    /// A daemon that serves all users where the scope is the system's, which takes root.
    pub(crate) fn start_on(stage: Stage, scope: Scope) -> Self {
        let is_for_all = scope == Scope::System;
        let daemon = stage.spawn(if is_for_all { "daemon of all users" } else { "daemon of its own" });
        let mut controller =
            eventually("the daemon", || Controller::find_at(&stage.runtime()).ok().flatten());
        controller.start(&sequential("log", stage.path("log.etl"))).unwrap();
        controller.enable(&session(), PROVIDER, EnableCode::Enable, &EnableParams::default(), 0).unwrap();
        Self { stage, daemon, controller }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.daemon.id().cast_signed()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    pub(crate) fn stop_daemon(&self) {
        self.signal(Signal::STOP);
        let stat = format!("/proc/{}/stat", self.daemon.id());
        until("the daemon is stopped", || {
            let text = std::fs::read_to_string(&stat).unwrap();
            text.rsplit(") ").next().unwrap().starts_with('T')
        });
    }

    /// Processes of which the session may have missed events.
    pub(crate) fn uncounted(&mut self) -> u64 {
        self.controller.query(&session()).unwrap().uncounted_processes.into()
    }

    /// Ends the session once so many events are collected or counted; events and losses in the file.
    pub(crate) fn end(self, expected: u64) -> (u64, u64) {
        let (events, lost) = self.end_and_read(expected);
        (events.len() as u64, lost)
    }

    fn end_and_read(mut self, expected: u64) -> (Vec<Seen>, u64) {
        until("all events are collected or counted", || {
            let properties = self.controller.query(&session()).unwrap();
            properties.events + properties.events_lost >= expected
        });
        self.controller.stop(&session()).unwrap();
        mark(self.stage.folder.path(), "leave");
        self.daemon.succeeded();
        let own = self.stage.runtime().join("own");
        assert!(!own.exists(), "a daemon that leaves removes its socket for its own user");
        read(&self.stage.path("log.etl"))
    }
}

pub(crate) fn session() -> SessionRef {
    SessionRef::Name("log".into())
}

fn daemon_of_its_own(folder: &Path) {
    run_daemon(folder, Scope::Named);
}

fn daemon_of_all_users(folder: &Path) {
    run_daemon(folder, Scope::System);
}

fn run_daemon(folder: &Path, scope: Scope) {
    let mut options = Options { reserve_mb: 0, ..Options::new(RuntimeDir::at(&folder.join("run"))) };
    options.runtime.scope = scope;
    let stopper = Stopper::new().unwrap();
    let (its, marks) = (stopper.clone(), folder.to_owned());
    std::thread::spawn(move || {
        wait_for_mark(&marks, "leave");
        its.stop();
    });
    run_until(options, &stopper).unwrap();
}

#[test]
fn processes_that_live_while_the_daemon_is_stopped_lose_no_event() {
    lose_no_event_while_stopped(Apart::start());
}

#[test]
fn processes_of_root_that_live_while_the_systems_daemon_is_stopped_lose_no_event() {
    if !can(rustix::process::geteuid().is_root(), "root", "the system's daemon is root's") {
        return;
    }
    let apart = Apart::start_on(Stage::new(), Scope::System);
    let runtime = RuntimeDir::at(&apart.stage.runtime());
    let mode = |path: &Path| std::fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777;
    let own = runtime.own().expect("a folder for root's processes");
    assert_eq!(mode(own.path()), 0o700);
    assert_eq!((mode(&own.control_socket()), mode(&own.path().join("enabled"))), (0o600, 0o600));
    assert!(!runtime.path().join("enabled").exists(), "other users see what is enabled");
    lose_no_event_while_stopped(apart);
}

fn lose_no_event_while_stopped(mut apart: Apart) {
    let other = SessionRef::Name("other".into());
    apart.controller.start(&sequential("other", apart.stage.path("other.etl"))).unwrap();
    apart.controller.enable(&other, OTHER, EnableCode::Enable, &EnableParams::default(), 0).unwrap();
    let folder = apart.stage.folder.path().to_owned();
    let attached = apart.stage.spawn("write on each processor");
    wait_for_mark(&folder, "attached");
    apart.stop_daemon();
    let stopped = Instant::now();
    let all: Vec<Running> = (0..PROCESSES).map(|_| apart.stage.spawn("write and end")).collect();
    let processes: Vec<u32> = all.iter().map(Running::id).collect();
    all.into_iter().for_each(Running::succeeded);
    std::thread::sleep(STOPPED.saturating_sub(stopped.elapsed()));
    // The session collects these events before it has the memory of most processes.
    mark(&folder, "write");
    wait_for_mark(&folder, "written");
    apart.signal(Signal::CONT);
    attached.succeeded();
    let later = processors().len() as u64;
    until("the other session has all", || {
        let properties = apart.controller.query(&other).unwrap();
        properties.events + properties.events_lost >= PROCESSES * EACH + later
    });
    let properties = apart.controller.stop(&other).unwrap();
    assert_eq!((properties.events, properties.events_lost), (PROCESSES * EACH + later, 0));
    assert_eq!(properties.uncounted_processes, 0);
    assert_eq!(apart.uncounted(), 0);
    let spans: Vec<(u32, [i64; 2])> =
        processes.iter().map(|&process| (process, span(&folder, process))).collect();
    let (events, lost) = read_events_of(&apart.stage.path("other.etl"), OTHER);
    assert_eq!((events.len() as u64, lost), (PROCESSES * EACH + later, 0));
    assert_times(&events, &spans);
    let (events, lost) = apart.end_and_read(PROCESSES * EACH + later);
    assert_eq!((events.len() as u64, lost), (PROCESSES * EACH + later, 0));
    assert_times(&events, &spans);
}

/// The counter at the start and at the end of a process.
fn span(folder: &Path, process: u32) -> [i64; 2] {
    let text = std::fs::read_to_string(folder.join(format!("span-{process}"))).unwrap();
    let stamps: Vec<i64> = text.split(' ').map(|stamp| stamp.parse().unwrap()).collect();
    stamps.try_into().unwrap()
}

/// Asserts that the events of each process are in the order in which it wrote them, with stamps of
/// its lifetime.
fn assert_times(events: &[Seen], spans: &[(u32, [i64; 2])]) {
    for &(process, [start, end]) in spans {
        let own: Vec<&Seen> = events.iter().filter(|event| event.process == process).collect();
        assert!(own.iter().map(|event| event.number()).eq(0..EACH), "process {process}: order");
        assert!(own.is_sorted_by_key(|event| event.time), "process {process}: order of stamps");
        let [first, last] = [own[0].time, own[own.len() - 1].time];
        assert!(start <= first && first < last && last <= end, "{start} ≤ {first} < {last} ≤ {end}");
    }
}

fn processors() -> Vec<usize> {
    let allowed = sched_getaffinity(None).unwrap();
    (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu)).collect()
}

/// Has memory of both sessions, and writes when the daemon is stopped.
fn write_on_each_processor(folder: &Path) {
    let providers = [PROVIDER, OTHER].map(|provider| Provider::register(provider, None).unwrap());
    assert!(providers.iter().all(|provider| provider.enabled(4, 0)));
    mark(folder, "attached");
    wait_for_mark(folder, "write");
    for cpu in processors() {
        let mut only = CpuSet::new();
        only.set(cpu);
        sched_setaffinity(None, &only).unwrap();
        for provider in &providers {
            provider.write(&event(2), &[&[0; 8]]).unwrap();
        }
    }
    mark(folder, "written");
}

#[test]
fn stop_requested_after_processes_ended_collects_their_events() {
    const PROCESSES: u64 = 5;
    let mut apart = Apart::start();
    let other = SessionRef::Name("other".into());
    apart.controller.start(&sequential("other", apart.stage.path("other.etl"))).unwrap();
    apart.controller.enable(&other, OTHER, EnableCode::Enable, &EnableParams::default(), 0).unwrap();
    let socket = RuntimeDir::at(&apart.stage.runtime()).control_socket();
    let controller = Connection::connect(&socket, PATIENCE).unwrap();
    let (role, program) = (Role::Controller, "stop".to_owned());
    say(&controller, 1, &Message::Hello { versions: VERSIONS, role, instance: 9, program }, &[]);
    let next = || controller.receive(PATIENCE).unwrap().unwrap().message;
    assert!(matches!(next(), Message::Welcome { .. }));
    apart.stop_daemon();
    let all: Vec<Running> = (0..PROCESSES).map(|_| apart.stage.spawn("write and end")).collect();
    all.into_iter().for_each(Running::succeeded);
    // The daemon finds the connections of the processes and this request at the same time.
    say(&controller, 2, &Message::Control { session: session(), control: Control::Stop }, &[]);
    apart.signal(Signal::CONT);
    let Message::Properties(properties) = next() else { panic!("no properties") };
    assert_eq!((properties.events, properties.events_lost), (PROCESSES * EACH, 0), "{properties:?}");
    apart.controller.stop(&other).unwrap();
    mark(apart.stage.folder.path(), "leave");
    apart.daemon.succeeded();
}

fn write_and_end(folder: &Path) {
    let start = Counter::best().now();
    let provider = Provider::register(PROVIDER, None).unwrap();
    assert!(provider.enabled(4, 0), "by the daemon's file");
    for n in 0..EACH {
        provider.write(&event(1), &[&n.to_le_bytes()]).unwrap();
    }
    // After a daemon has been silent once, the next registration does not wait for it, and is enabled too. The process ends at once.
    let other = Provider::register(OTHER, None).unwrap();
    assert!(other.enabled(4, 0), "by the daemon's file");
    for n in 0..EACH {
        other.write(&event(1), &[&n.to_le_bytes()]).unwrap();
    }
    let span = format!("{start} {}", Counter::best().now());
    std::fs::write(folder.join(format!("span-{}", std::process::id())), span).unwrap();
}

#[test]
fn process_that_outlives_a_stop_of_the_daemon_goes_on_in_the_same_memory() {
    let mut apart = Apart::start();
    apart.stop_daemon();
    let child = apart.stage.spawn("write before and after");
    wait_for_mark(apart.stage.folder.path(), "before");
    apart.signal(Signal::CONT);
    until("the first half", || apart.controller.query(&session()).unwrap().events == EACH);
    mark(apart.stage.folder.path(), "after");
    until("the second half", || apart.controller.query(&session()).unwrap().events == 2 * EACH);
    // The daemon's word counts from now on.
    let level = EnableParams { level: 3, ..EnableParams::default() };
    apart.controller.enable(&session(), PROVIDER, EnableCode::Enable, &level, 0).unwrap();
    child.succeeded();
    assert_eq!(apart.end(2 * EACH), (2 * EACH, 0));
}

fn write_before_and_after(folder: &Path) {
    let provider = Provider::register(PROVIDER, None).unwrap();
    let write = || {
        for n in 0..EACH {
            provider.write(&event(1), &[&n.to_le_bytes()]).unwrap();
        }
    };
    write();
    mark(folder, "before");
    wait_for_mark(folder, "after");
    write();
    until("the change", || !provider.enabled(4, 0));
}

#[test]
fn process_that_went_on_without_an_answer_reports_it_with_its_enable() {
    let stage = Stage::new();
    let listener = listen(&stage.runtime());
    let scenario = stage.spawn("go on without an answer");
    // A daemon without a file, which answers when the registration has given up.
    wait_for_mark(stage.folder.path(), "registered");
    let mut process = Process::accept(&listener);
    process.serve_one(0x10001);
    let (registration, _) = process.registered[0];
    assert_eq!(process.expect_failed(), (0, Some(registration), 0x10001, 1460));
    mark(stage.folder.path(), "enabled");
    // What is enabled from now on has missed nothing.
    let next = process.await_register();
    process.enable(7, next, 0x10001, EnableCode::Enable, EnableParams::default());
    process.answer(&Message::Registered { registration: next });
    process.expect_ack(7);
    process.enable(8, registration, 0x10001, EnableCode::Enable, EnableParams::default());
    process.expect_ack(8);
    mark(stage.folder.path(), "done");
    scenario.succeeded();
}

#[test]
fn enable_that_the_daemon_does_not_confirm_is_taken_back() {
    const ENDED: u64 = 0x10001;
    const WANTED: u64 = 0x10002;
    let stage = Stage::new();
    let listener = listen(&stage.runtime());
    listener.take_descriptors().unwrap();
    // Both are in the file; the first has ended when the daemon reads of the registration.
    let enabled = |session, level| Enabled {
        target: PROVIDER,
        name: String::new(),
        session,
        region: params(),
        params: EnableParams { level, ..EnableParams::default() },
    };
    let all = [enabled(ENDED, 5), enabled(WANTED, 3)];
    traceweir_transport::enabled::write(&RuntimeDir::at(&stage.runtime()), &all).unwrap();
    let scenario = stage.spawn("enabled until the daemon answers");
    wait_for_mark(stage.folder.path(), "registered");
    let mut process = Process::accept(&listener);
    for session in [ENDED, WANTED] {
        let message = process.next();
        let is_memory = matches!(message, Message::Region { session: made_for, .. } if made_for == session);
        assert!(is_memory, "{message:?}");
    }
    let registration = process.await_register();
    let level = EnableParams { level: 3, ..EnableParams::default() };
    process.give_region(WANTED);
    process.enable(0, registration, WANTED, EnableCode::Enable, level);
    process.answer(&Message::Registered { registration });
    scenario.succeeded();
}

fn enabled_until_the_daemon_answers(folder: &Path) {
    let provider = Provider::register(PROVIDER, None).unwrap();
    assert!(provider.enabled(5, 0) && provider.enabled(3, 0), "by the daemon's file");
    mark(folder, "registered");
    until("the session that has ended is forgotten", || !provider.enabled(5, 0));
    assert!(provider.enabled(3, 0), "the other is not");
}

#[test]
fn process_that_ends_before_the_daemon_answers_has_sent_its_registration() {
    let stage = Stage::new();
    let listener = listen(&stage.runtime());
    stage.spawn("register and end").succeeded();
    let connection = eventually("a connection", || listener.accept().unwrap());
    let next = || connection.receive(PATIENCE).unwrap().unwrap().message;
    assert!(matches!(next(), Message::Hello { role: Role::Provider, .. }));
    assert!(matches!(next(), Message::Register { provider: PROVIDER, .. }));
}

fn register_and_end(_folder: &Path) {
    let provider = Provider::register(PROVIDER, None).unwrap();
    assert!(!provider.enabled(4, 0));
    // As a program that is killed: nothing is taken back.
    std::process::exit(0);
}

fn go_on_without_an_answer(folder: &Path) {
    let provider = Provider::register(PROVIDER, None).unwrap();
    assert!(!provider.enabled(4, 0));
    mark(folder, "registered");
    until("the session", || provider.enabled(4, 0));
    wait_for_mark(folder, "enabled");
    let _second = Provider::register(PROVIDER, None).unwrap();
    wait_for_mark(folder, "done");
}

#[test]
fn events_missed_before_a_late_enable_show_as_lost() {
    let mut apart = Apart::start();
    let id = apart.controller.query(&session()).unwrap().id;
    let connection =
        Connection::connect(&RuntimeDir::at(&apart.stage.runtime()).control_socket(), PATIENCE).unwrap();
    let hello =
        Message::Hello { versions: VERSIONS, role: Role::Provider, instance: 1, program: "late".to_owned() };
    say(&connection, 1, &hello, &[]);
    let register =
        Message::Register { registration: 7, provider: PROVIDER, traits: Vec::new(), classic: false };
    say(&connection, 2, &register, &[]);
    let reason = "it went on".to_owned();
    // A process is counted once, and one for a session that it does not write to changes nothing.
    for session in [id, id, id + 1] {
        let (registration, status, reason) = (Some(7), 1460, reason.clone());
        say(&connection, 0, &Message::Failed { order: 0, registration, session, status, reason }, &[]);
    }
    until("the loss shows", || apart.controller.query(&session()).unwrap().uncounted_processes == 1);
    let traced = |controller: &mut Controller| {
        let providers = controller.providers().unwrap();
        providers.iter().flat_map(|provider| &provider.sessions).map(|session| session.traced).sum::<u32>()
    };
    assert_eq!(traced(&mut apart.controller), 1, "the registration stays enabled");
    apart.controller.stop(&session()).unwrap();
    mark(apart.stage.folder.path(), "leave");
    apart.daemon.succeeded();
}

/// Says something to the daemon.
fn say(connection: &Connection, request: u32, message: &Message, memory: &[&OwnedFd]) {
    let memory: Vec<BorrowedFd<'_>> = memory.iter().map(|memory| memory.as_fd()).collect();
    connection.send(request, message, &memory, PATIENCE).unwrap();
}

#[test]
fn memory_that_could_hurt_the_daemon_is_not_taken() {
    let mut apart = Apart::start();
    let id = apart.controller.query(&session()).unwrap().id;
    let wanted = traceweir_transport::enabled::read(
        &RuntimeDir::at(&apart.stage.runtime()),
        rustix::process::geteuid().as_raw(),
    );
    let [wanted] = &wanted[..] else { panic!("{wanted:?}") };
    assert_eq!((wanted.target, wanted.session), (PROVIDER, id));
    let bytes = wanted.region.layout.region_bytes() as u64;
    let unsealed = rustix::fs::memfd_create("unsealed", rustix::fs::MemfdFlags::ALLOW_SEALING).unwrap();
    rustix::fs::ftruncate(&unsealed, bytes).unwrap();
    let file = tempfile::tempfile().unwrap();
    file.set_len(bytes).unwrap();
    let layout = Layout::new(wanted.region.layout.cpus(), 1 << 28).unwrap();
    let huge = RegionParams { layout, wake_at: 1 << 26, ..wanted.region };
    let small = create_memory(&RegionParams { layout: Layout::new(1, 1 << 16).unwrap(), ..wanted.region });
    let offers = [
        ("unsealed", wanted.region, unsealed, 2),
        ("a file of a disk", wanted.region, file.into(), 2),
        ("smaller than said", wanted.region, small.unwrap(), 2),
        ("cut otherwise", huge, create_memory(&huge).unwrap(), 2),
        ("as it should be", wanted.region, create_memory(&wanted.region).unwrap(), 1),
    ];
    for (name, params, memory, descriptors) in offers {
        let connection =
            Connection::connect(&RuntimeDir::at(&apart.stage.runtime()).control_socket(), PATIENCE).unwrap();
        let hello = Message::Hello {
            versions: VERSIONS,
            role: Role::Provider,
            instance: descriptors as u64,
            program: name.to_owned(),
        };
        say(&connection, 1, &hello, &[]);
        say(&connection, 0, &Message::Region { session: id, params }, &[&memory]);
        let register =
            Message::Register { registration: 7, provider: PROVIDER, traits: Vec::new(), classic: false };
        say(&connection, 2, &register, &[]);
        let next = || connection.receive(PATIENCE).unwrap().unwrap();
        assert!(matches!(next().message, Message::Welcome { .. }), "{name}");
        let mut came = 0;
        loop {
            let envelope = next();
            match envelope.message {
                Message::Region { session, .. } => {
                    assert_eq!(session, id);
                    came = envelope.descriptors.len();
                }
                Message::Enable { .. } => {}
                Message::Registered { registration: 7 } => break,
                other => panic!("{name}: {other:?}"),
            }
        }
        assert_eq!(came, descriptors, "{name}");
        // Gone before the next: one process has few connections.
        drop(connection);
    }
    let uncounted = apart.controller.query(&session()).unwrap().uncounted_processes;
    assert_eq!(uncounted, 4, "what was in memory that is not taken is reported as lost");
    apart.controller.stop(&session()).unwrap();
    mark(apart.stage.folder.path(), "leave");
    apart.daemon.succeeded();
}
