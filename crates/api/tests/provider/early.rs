//! Processes that register while the daemon is stopped: the daemon collects their events when it
//! continues.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, prlimit};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use traceweir::controller::{Controller, EnableCode, EnableParams, Scope, SessionConfig, SessionRef};
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
    PATIENCE, PROVIDER, RecordedEvent, Running, Scenario, Stage, event, eventually, mark, read,
    read_events_of, sequential, until, wait_for_mark,
};

pub(crate) const SCENARIOS: &[Scenario] = &[
    ("daemon of its own", daemon_of_its_own),
    ("daemon of all users", daemon_of_all_users),
    ("write and end", write_and_end),
    ("write on each processor", write_on_each_processor),
    ("write before and after", write_before_and_after),
    ("register and end", register_and_end),
    ("write other and stay", write_other_and_stay),
    ("go on without an answer", go_on_without_an_answer),
    ("enabled until the daemon answers", enabled_until_the_daemon_answers),
];

pub(crate) const EACH: u64 = 200;
const PROCESSES: u64 = 50;
/// Minimum time for which the daemon is stopped while processes start and end.
const STOPPED: Duration = Duration::from_secs(5);
pub(crate) const OTHER: Guid = Guid::from_u128(0x1f2e_3d4c_5b6a_4978_8796_a5b4_c3d2_e1f0);

/// A daemon in a separate process, with a session that enables everything of [`PROVIDER`].
pub(crate) struct DaemonProcess {
    pub(crate) stage: Stage,
    daemon: Running,
    pub(crate) controller: Controller,
}

impl DaemonProcess {
    pub(crate) fn start() -> Self {
        Self::start_on(Stage::new(), Scope::Named)
    }

    /// Starts a daemon. With the system's scope it serves all users, which needs root.
    pub(crate) fn start_on(stage: Stage, scope: Scope) -> Self {
        let is_for_all = scope == Scope::System;
        Self::start_scenario(stage, if is_for_all { "daemon of all users" } else { "daemon of its own" })
    }

    /// Starts the daemon that a scenario runs.
    pub(crate) fn start_scenario(stage: Stage, scenario: &str) -> Self {
        let daemon = stage.spawn(scenario);
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

    /// Returns the number of processes whose events the session may have missed.
    pub(crate) fn uncounted(&mut self) -> u64 {
        self.controller.query(&session()).unwrap().uncounted_processes.into()
    }

    /// Stops the session once `expected` events are collected or counted, and returns the events
    /// and lost events in the file.
    pub(crate) fn end(self, expected: u64) -> (u64, u64) {
        let (events, lost) = self.end_and_read(expected);
        (events.len() as u64, lost)
    }

    fn end_and_read(mut self, expected: u64) -> (Vec<RecordedEvent>, u64) {
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

pub(crate) fn run_daemon(folder: &Path, scope: Scope) {
    let mut options = Options { reserve_mb: 0, ..Options::new(RuntimeDir::from_path(&folder.join("run"))) };
    options.runtime.scope = scope;
    let stopper = Stopper::new().unwrap();
    let (stopper_in_thread, marks) = (stopper.clone(), folder.to_owned());
    std::thread::spawn(move || {
        wait_for_mark(&marks, "leave");
        stopper_in_thread.stop();
    });
    run_until(options, &stopper).unwrap();
}

#[test]
fn processes_lose_no_event_while_daemon_is_stopped() {
    lose_no_event_while_stopped(DaemonProcess::start());
}

#[test]
fn root_processes_lose_no_event_while_system_daemon_is_stopped() {
    if !can(rustix::process::geteuid().is_root(), "root", "the system's daemon is root's") {
        return;
    }
    let daemon_process = DaemonProcess::start_on(Stage::new(), Scope::System);
    let runtime = RuntimeDir::from_path(&daemon_process.stage.runtime());
    let mode = |path: &Path| std::fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777;
    let own = runtime.own().expect("a folder for root's processes");
    assert_eq!(mode(own.path()), 0o700);
    assert_eq!((mode(&own.control_socket()), mode(&own.path().join("enabled"))), (0o600, 0o600));
    assert!(!runtime.path().join("enabled").exists(), "other users see what is enabled");
    lose_no_event_while_stopped(daemon_process);
}

fn lose_no_event_while_stopped(mut daemon_process: DaemonProcess) {
    let other = SessionRef::Name("other".into());
    daemon_process.controller.start(&sequential("other", daemon_process.stage.path("other.etl"))).unwrap();
    daemon_process.controller.enable(&other, OTHER, EnableCode::Enable, &EnableParams::default(), 0).unwrap();
    let folder = daemon_process.stage.folder.path().to_owned();
    let attached = daemon_process.stage.spawn("write on each processor");
    wait_for_mark(&folder, "attached");
    daemon_process.stop_daemon();
    let stopped = Instant::now();
    let all: Vec<Running> = (0..PROCESSES).map(|_| daemon_process.stage.spawn("write and end")).collect();
    let processes: Vec<u32> = all.iter().map(Running::id).collect();
    all.into_iter().for_each(Running::succeeded);
    std::thread::sleep(STOPPED.saturating_sub(stopped.elapsed()));
    // The session collects these events before it has the regions of most processes.
    mark(&folder, "write");
    wait_for_mark(&folder, "written");
    daemon_process.signal(Signal::CONT);
    attached.succeeded();
    let later = processors().len() as u64;
    until("the other session has all", || {
        let properties = daemon_process.controller.query(&other).unwrap();
        properties.events + properties.events_lost >= PROCESSES * EACH + later
    });
    let properties = daemon_process.controller.stop(&other).unwrap();
    assert_eq!((properties.events, properties.events_lost), (PROCESSES * EACH + later, 0));
    assert_eq!(properties.uncounted_processes, 0);
    assert_eq!(daemon_process.uncounted(), 0);
    let spans: Vec<(u32, [i64; 2])> =
        processes.iter().map(|&process| (process, span(&folder, process))).collect();
    let (events, lost) = read_events_of(&daemon_process.stage.path("other.etl"), OTHER);
    assert_eq!((events.len() as u64, lost), (PROCESSES * EACH + later, 0));
    assert_times(&events, &spans);
    let (events, lost) = daemon_process.end_and_read(PROCESSES * EACH + later);
    assert_eq!((events.len() as u64, lost), (PROCESSES * EACH + later, 0));
    assert_times(&events, &spans);
}

/// Returns the counter at the start and at the end of a process.
fn span(folder: &Path, process: u32) -> [i64; 2] {
    let text = std::fs::read_to_string(folder.join(format!("span-{process}"))).unwrap();
    let stamps: Vec<i64> = text.split(' ').map(|stamp| stamp.parse().unwrap()).collect();
    stamps.try_into().unwrap()
}

/// Asserts that the events of each process are in the order in which it wrote them, with timestamps
/// within its lifetime.
fn assert_times(events: &[RecordedEvent], spans: &[(u32, [i64; 2])]) {
    for &(process, [start, end]) in spans {
        let own: Vec<&RecordedEvent> = events.iter().filter(|event| event.process == process).collect();
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

/// Registers with both sessions, and writes while the daemon is stopped.
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
fn stop_collects_events_of_ended_processes() {
    // More than the daemon accepts in one turn.
    const PROCESSES: u64 = 80;
    let mut daemon_process = DaemonProcess::start();
    let other = SessionRef::Name("other".into());
    daemon_process.controller.start(&sequential("other", daemon_process.stage.path("other.etl"))).unwrap();
    daemon_process.controller.enable(&other, OTHER, EnableCode::Enable, &EnableParams::default(), 0).unwrap();
    let socket = RuntimeDir::from_path(&daemon_process.stage.runtime()).control_socket();
    let controller = Connection::connect(&socket, PATIENCE).unwrap();
    let (role, program) = (Role::Controller, "stop".to_owned());
    send_message(&controller, 1, &Message::Hello { versions: VERSIONS, role, instance: 9, program }, &[]);
    let next = || controller.receive(PATIENCE).unwrap().unwrap().message;
    assert!(matches!(next(), Message::Welcome { .. }));
    daemon_process.stop_daemon();
    let all: Vec<Running> = (0..PROCESSES).map(|_| daemon_process.stage.spawn("write and end")).collect();
    all.into_iter().for_each(Running::succeeded);
    // When the daemon continues, the connections of the processes and this request are all pending.
    send_message(&controller, 2, &Message::Control { session: session(), control: Control::Stop }, &[]);
    daemon_process.signal(Signal::CONT);
    let Message::Properties(properties) = next() else { panic!("no properties") };
    assert_eq!((properties.events, properties.events_lost), (PROCESSES * EACH, 0), "{properties:?}");
    daemon_process.controller.stop(&other).unwrap();
    mark(daemon_process.stage.folder.path(), "leave");
    daemon_process.daemon.succeeded();
}

fn write_and_end(folder: &Path) {
    let start = Counter::best().now();
    let provider = Provider::register(PROVIDER, None).unwrap();
    assert!(provider.enabled(4, 0), "enabled by the daemon's file");
    for n in 0..EACH {
        provider.write(&event(1), &[&n.to_le_bytes()]).unwrap();
    }
    // After one registration has waited for a silent daemon, the next one does not wait, and is
    // enabled too. The process ends at once.
    let other = Provider::register(OTHER, None).unwrap();
    assert!(other.enabled(4, 0), "enabled by the daemon's file");
    for n in 0..EACH {
        other.write(&event(1), &[&n.to_le_bytes()]).unwrap();
    }
    let span = format!("{start} {}", Counter::best().now());
    std::fs::write(folder.join(format!("span-{}", std::process::id())), span).unwrap();
}

#[test]
fn process_keeps_its_region_when_stopped_daemon_continues() {
    let mut daemon_process = DaemonProcess::start();
    daemon_process.stop_daemon();
    let child = daemon_process.stage.spawn("write before and after");
    wait_for_mark(daemon_process.stage.folder.path(), "before");
    daemon_process.signal(Signal::CONT);
    until("the first half", || daemon_process.controller.query(&session()).unwrap().events == EACH);
    mark(daemon_process.stage.folder.path(), "after");
    until("the second half", || daemon_process.controller.query(&session()).unwrap().events == 2 * EACH);
    // From now on the process follows the daemon's enables.
    let level = EnableParams { level: 3, ..EnableParams::default() };
    daemon_process.controller.enable(&session(), PROVIDER, EnableCode::Enable, &level, 0).unwrap();
    child.succeeded();
    assert_eq!(daemon_process.end(2 * EACH), (2 * EACH, 0));
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
fn process_whose_registration_timed_out_reports_missed_events_at_enable() {
    let stage = Stage::new();
    let listener = listen(&stage.runtime());
    let scenario = stage.spawn("go on without an answer");
    // The test plays a daemon without an enable file, which answers after the registration has
    // timed out.
    wait_for_mark(stage.folder.path(), "registered");
    let mut process = Process::accept(&listener);
    process.serve_one(0x10001);
    let (registration, _) = process.registered[0];
    assert_eq!(process.expect_failed(), (0, Some(registration), 0x10001, 1460));
    mark(stage.folder.path(), "enabled");
    // A later enable has missed nothing.
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
fn enable_not_confirmed_by_daemon_is_removed() {
    const ENDED: u64 = 0x10001;
    const WANTED: u64 = 0x10002;
    let stage = Stage::new();
    let listener = listen(&stage.runtime());
    listener.take_descriptors().unwrap();
    // The file enables both sessions; the first has ended when the daemon reads the registration.
    let enabled = |session, level| Enabled {
        target: PROVIDER,
        name: String::new(),
        session,
        region: params(),
        params: EnableParams { level, ..EnableParams::default() },
    };
    let all = [enabled(ENDED, 5), enabled(WANTED, 3)];
    traceweir_transport::enabled::write(&RuntimeDir::from_path(&stage.runtime()), &all).unwrap();
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
    assert!(provider.enabled(5, 0) && provider.enabled(3, 0), "enabled by the daemon's file");
    mark(folder, "registered");
    until("the session that has ended is forgotten", || !provider.enabled(5, 0));
    assert!(provider.enabled(3, 0), "the other is not");
}

#[test]
fn process_that_ends_before_the_reply_has_sent_its_registration() {
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
    // Ends like a killed program: nothing is unregistered.
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
    let mut daemon_process = DaemonProcess::start();
    let id = daemon_process.controller.query(&session()).unwrap().id;
    let connection = Connection::connect(
        &RuntimeDir::from_path(&daemon_process.stage.runtime()).control_socket(),
        PATIENCE,
    )
    .unwrap();
    let hello =
        Message::Hello { versions: VERSIONS, role: Role::Provider, instance: 1, program: "late".to_owned() };
    send_message(&connection, 1, &hello, &[]);
    let register =
        Message::Register { registration: 7, provider: PROVIDER, traits: Vec::new(), classic: false };
    send_message(&connection, 2, &register, &[]);
    let reason = "it went on".to_owned();
    // A process is counted once; a report about a session that it does not write to changes
    // nothing.
    for session in [id, id, id + 1] {
        let (registration, status, reason) = (Some(7), 1460, reason.clone());
        send_message(
            &connection,
            0,
            &Message::Failed { order: 0, registration, session, status, reason },
            &[],
        );
    }
    until("the loss shows", || daemon_process.controller.query(&session()).unwrap().uncounted_processes == 1);
    let traced = |controller: &mut Controller| {
        let providers = controller.provider_entries().unwrap();
        providers.iter().flat_map(|provider| &provider.sessions).map(|session| session.traced).sum::<u32>()
    };
    assert_eq!(traced(&mut daemon_process.controller), 1, "the registration stays enabled");
    daemon_process.controller.stop(&session()).unwrap();
    mark(daemon_process.stage.folder.path(), "leave");
    daemon_process.daemon.succeeded();
}

/// Sends a message with these memory files to the daemon.
fn send_message(connection: &Connection, request: u32, message: &Message, memory: &[&OwnedFd]) {
    let memory: Vec<BorrowedFd<'_>> = memory.iter().map(|memory| memory.as_fd()).collect();
    connection.send(request, message, &memory, PATIENCE).unwrap();
}

#[test]
fn daemon_rejects_unsafe_memory_files() {
    let mut daemon_process = DaemonProcess::start();
    let id = daemon_process.controller.query(&session()).unwrap().id;
    let wanted = traceweir_transport::enabled::read(
        &RuntimeDir::from_path(&daemon_process.stage.runtime()),
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
        let connection = Connection::connect(
            &RuntimeDir::from_path(&daemon_process.stage.runtime()).control_socket(),
            PATIENCE,
        )
        .unwrap();
        let hello = Message::Hello {
            versions: VERSIONS,
            role: Role::Provider,
            instance: descriptors as u64,
            program: name.to_owned(),
        };
        send_message(&connection, 1, &hello, &[]);
        send_message(&connection, 0, &Message::Region { session: id, params }, &[&memory]);
        let register =
            Message::Register { registration: 7, provider: PROVIDER, traits: Vec::new(), classic: false };
        send_message(&connection, 2, &register, &[]);
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
        // The connection is closed before the next one, because a process can have few connections.
        drop(connection);
    }
    let uncounted = daemon_process.controller.query(&session()).unwrap().uncounted_processes;
    assert_eq!(uncounted, 4, "events in rejected memory are reported as lost");
    daemon_process.controller.stop(&session()).unwrap();
    mark(daemon_process.stage.folder.path(), "leave");
    daemon_process.daemon.succeeded();
}

/// Starts a session that enables everything of [`OTHER`].
fn start_other(daemon_process: &mut DaemonProcess, ring_bytes: u32) -> SessionRef {
    let config = sequential("other", daemon_process.stage.path("other.etl"));
    daemon_process.controller.start(&SessionConfig { ring_bytes, ..config }).unwrap();
    let other = SessionRef::Name("other".into());
    daemon_process.controller.enable(&other, OTHER, EnableCode::Enable, &EnableParams::default(), 0).unwrap();
    other
}

#[test]
fn stop_counts_a_process_that_could_not_be_accepted() {
    let mut daemon_process = DaemonProcess::start();
    let other = start_other(&mut daemon_process, 1 << 20);
    let pid = Pid::from_raw(daemon_process.daemon.id().cast_signed());
    // The daemon keeps its descriptors and gets no new ones.
    let maximum = getrlimit(Resource::Nofile).maximum;
    let limit = prlimit(pid, Resource::Nofile, Rlimit { current: Some(3), maximum }).unwrap();
    daemon_process.stage.spawn("write and end").succeeded();
    let properties = daemon_process.controller.stop(&session()).unwrap();
    prlimit(pid, Resource::Nofile, limit).unwrap();
    let lost = (properties.events, properties.events_lost, properties.uncounted_processes);
    assert_eq!(lost, (0, 0, 1), "its events are lost and not counted");
    // A session that still runs gets the events.
    until("the events in the other session", || {
        let properties = daemon_process.controller.query(&other).unwrap();
        properties.events + properties.events_lost == EACH || properties.uncounted_processes > 0
    });
    let properties = daemon_process.controller.stop(&other).unwrap();
    let lost = (properties.events, properties.events_lost, properties.uncounted_processes);
    assert_eq!(lost, (EACH, 0, 0));
    mark(daemon_process.stage.folder.path(), "leave");
    daemon_process.daemon.succeeded();
}

#[test]
fn ended_processes_lose_no_event_when_others_use_up_the_memory_of_a_session() {
    /// More rings of the first size than a session has memory for.
    const RUNNING: u64 = 30;
    const ENDED: u64 = 4;
    let mut daemon_process = DaemonProcess::start();
    let other = start_other(&mut daemon_process, 1 << 28);
    let folder = daemon_process.stage.folder.path().to_owned();
    daemon_process.stop_daemon();
    let running: Vec<Running> =
        (0..RUNNING).map(|_| daemon_process.stage.spawn("write other and stay")).collect();
    for process in &running {
        wait_for_mark(&folder, &format!("written-{}", process.id()));
    }
    daemon_process.signal(Signal::CONT);
    // All events of a process are collected, or the process is counted.
    let await_processes = |daemon_process: &mut DaemonProcess, count: u64| {
        eventually("all processes are collected from or counted", || {
            let properties = daemon_process.controller.query(&other).unwrap();
            let uncounted = u64::from(properties.uncounted_processes);
            (properties.events + uncounted * EACH == count * EACH).then_some(uncounted)
        })
    };
    let refused = await_processes(&mut daemon_process, RUNNING);
    daemon_process.stop_daemon();
    let mut ended: Vec<Running> = (0..ENDED).map(|_| daemon_process.stage.spawn("write and end")).collect();
    let unreaped = ended.split_off(ended.len() / 2);
    ended.into_iter().for_each(Running::succeeded);
    for process in &unreaped {
        let stat = format!("/proc/{}/stat", process.id());
        until("the process has ended", || {
            let text = std::fs::read_to_string(&stat).unwrap();
            text.rsplit(") ").next().unwrap().starts_with('Z')
        });
    }
    daemon_process.signal(Signal::CONT);
    let uncounted = await_processes(&mut daemon_process, RUNNING + ENDED);
    assert_eq!(uncounted, refused, "the processes that have ended are collected from");
    mark(&folder, "may end");
    running.into_iter().chain(unreaped).for_each(Running::succeeded);
    daemon_process.controller.stop(&other).unwrap();
    assert_eq!(daemon_process.end(ENDED * EACH), (ENDED * EACH, 0));
}

fn write_other_and_stay(folder: &Path) {
    let provider = Provider::register(OTHER, None).unwrap();
    assert!(provider.enabled(4, 0), "enabled by the daemon's file");
    for n in 0..EACH {
        provider.write(&event(1), &[&n.to_le_bytes()]).unwrap();
    }
    mark(folder, &format!("written-{}", std::process::id()));
    wait_for_mark(folder, "may end");
}
