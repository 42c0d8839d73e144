//! Processes that register while the daemon is suspended (by SIGSTOP): the daemon collects their
//! events when it continues.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, prlimit};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use traceweir::controller::{Controller, EnableCode, EnableParams, Scope, SessionConfig, SessionRef};
use traceweir::{Guid, Provider, Status};
use traceweir_daemon::{Options, Stopper, run_until};
use traceweir_transport::abi::{Layout, RegionParams};
use traceweir_transport::clock::Counter;
use traceweir_transport::enabled::ListedEnable;
use traceweir_transport::message::{Control, Message, Role, VERSIONS};
use traceweir_transport::ring::create_memory;
use traceweir_transport::runtime::RuntimeDir;
use traceweir_transport::socket::Connection;

use crate::daemon::{FailedOrder, ProcessConnection, listen, region_params};
use crate::skip::holds_or_skip;
use crate::{
    INFORMATION, PROVIDER, RecordedEvent, RunningScenario, Scenario, ScenarioRunner, TEST_TIMEOUT, event,
    eventually, file_config, read_events, read_events_of, set_mark, until, wait_for_mark,
};

pub(crate) const SCENARIOS: &[Scenario] = &[
    ("daemon of its own", run_user_daemon),
    ("daemon of all users", run_system_daemon),
    ("write and end", write_and_end),
    ("write on each processor", write_on_each_processor),
    ("write before and after", write_before_and_after),
    ("register and end", register_and_end),
    ("write other and stay", write_other_provider_and_stay),
    ("go on without an answer", register_without_answer),
    ("enabled until the daemon answers", expect_early_enable_to_be_reverted),
];

/// Number of events of each provider that a process writes.
pub(crate) const EVENT_COUNT: u64 = 200;
const PROCESSES: u64 = 50;
/// Minimum time for which the daemon is suspended while processes start and end.
const MIN_SUSPENSION: Duration = Duration::from_secs(5);
pub(crate) const OTHER_PROVIDER: Guid = Guid::from_u128(0x1f2e_3d4c_5b6a_4978_8796_a5b4_c3d2_e1f0);

/// A daemon in a separate process, with a session that enables all events of [`PROVIDER`].
pub(crate) struct DaemonProcess {
    pub(crate) runner: ScenarioRunner,
    daemon: RunningScenario,
    pub(crate) controller: Controller,
}

impl DaemonProcess {
    pub(crate) fn start() -> Self {
        Self::start_on(ScenarioRunner::new(), Scope::Named)
    }

    /// Starts a daemon. With the system's scope it serves all users, which needs root.
    pub(crate) fn start_on(runner: ScenarioRunner, scope: Scope) -> Self {
        let is_for_all = scope == Scope::System;
        Self::start_scenario(runner, if is_for_all { "daemon of all users" } else { "daemon of its own" })
    }

    /// Starts the daemon that a scenario runs.
    pub(crate) fn start_scenario(runner: ScenarioRunner, scenario: &str) -> Self {
        let daemon = runner.spawn(scenario);
        let mut controller =
            eventually("the daemon answers", || Controller::find_at(&runner.runtime()).ok().flatten());
        controller.start(&file_config("log", runner.path("log.etl"))).unwrap();
        controller.enable(&session(), PROVIDER, EnableCode::Enable, &EnableParams::default(), 0).unwrap();
        Self { runner, daemon, controller }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.daemon.id().cast_signed()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    pub(crate) fn suspend_daemon(&self) {
        self.signal(Signal::STOP);
        let stat = format!("/proc/{}/stat", self.daemon.id());
        // The state follows the name in parentheses: T is stopped (below, Z is a zombie).
        until("the daemon is suspended", || {
            let text = std::fs::read_to_string(&stat).unwrap();
            text.rsplit(") ").next().unwrap().starts_with('T')
        });
    }

    /// Returns the number of processes whose events the session may have missed and cannot count.
    pub(crate) fn uncounted(&mut self) -> u64 {
        self.controller.query(&session()).unwrap().uncounted_processes.into()
    }

    /// Stops the session once `expected` events are collected or counted as lost, and returns the
    /// events and lost events in the file.
    pub(crate) fn end(self, expected: u64) -> (u64, u64) {
        let (events, lost) = self.end_and_read(expected);
        (events.len() as u64, lost)
    }

    fn end_and_read(mut self, expected: u64) -> (Vec<RecordedEvent>, u64) {
        until("all events are collected or counted as lost", || {
            let properties = self.controller.query(&session()).unwrap();
            properties.events + properties.events_lost >= expected
        });
        self.controller.stop(&session()).unwrap();
        self.runner.set_mark("leave");
        self.daemon.assert_success();
        let own = self.runner.runtime().join("own");
        assert!(!own.exists(), "the daemon left its socket for its own user behind");
        read_events(&self.runner.path("log.etl"))
    }
}

pub(crate) fn session() -> SessionRef {
    SessionRef::Name("log".into())
}

fn run_user_daemon(folder: &Path) {
    run_daemon(folder, Scope::Named);
}

fn run_system_daemon(folder: &Path) {
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
fn processes_lose_no_event_while_daemon_is_suspended() {
    assert_no_event_is_lost_while_suspended(DaemonProcess::start());
}

#[test]
fn root_processes_lose_no_event_while_system_daemon_is_suspended() {
    if !holds_or_skip(rustix::process::geteuid().is_root(), "root", "the system's daemon is root's") {
        return;
    }
    let daemon_process = DaemonProcess::start_on(ScenarioRunner::new(), Scope::System);
    let runtime = RuntimeDir::from_path(&daemon_process.runner.runtime());
    let mode = |path: &Path| std::fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777;
    let own = runtime.own_user_folder().expect("the daemon has no folder for root's processes");
    assert_eq!(mode(own.path()), 0o700);
    assert_eq!((mode(&own.control_socket()), mode(&own.path().join("enabled"))), (0o600, 0o600));
    assert!(
        !runtime.path().join("enabled").exists(),
        "the list of enabled providers is visible to other users"
    );
    assert_no_event_is_lost_while_suspended(daemon_process);
}

fn assert_no_event_is_lost_while_suspended(mut daemon_process: DaemonProcess) {
    let other = SessionRef::Name("other".into());
    daemon_process.controller.start(&file_config("other", daemon_process.runner.path("other.etl"))).unwrap();
    daemon_process
        .controller
        .enable(&other, OTHER_PROVIDER, EnableCode::Enable, &EnableParams::default(), 0)
        .unwrap();
    let folder = daemon_process.runner.folder.path().to_owned();
    let attached = daemon_process.runner.spawn("write on each processor");
    wait_for_mark(&folder, "attached");
    daemon_process.suspend_daemon();
    let suspended = Instant::now();
    let children: Vec<RunningScenario> =
        (0..PROCESSES).map(|_| daemon_process.runner.spawn("write and end")).collect();
    let processes: Vec<u32> = children.iter().map(RunningScenario::id).collect();
    children.into_iter().for_each(RunningScenario::assert_success);
    std::thread::sleep(MIN_SUSPENSION.saturating_sub(suspended.elapsed()));
    // The session collects these events before it has the regions of most processes.
    set_mark(&folder, "write");
    wait_for_mark(&folder, "written");
    daemon_process.signal(Signal::CONT);
    attached.assert_success();
    let later_events = allowed_processors().len() as u64;
    until("the other session has all events", || {
        let properties = daemon_process.controller.query(&other).unwrap();
        properties.events + properties.events_lost >= PROCESSES * EVENT_COUNT + later_events
    });
    let properties = daemon_process.controller.stop(&other).unwrap();
    assert_eq!((properties.events, properties.events_lost), (PROCESSES * EVENT_COUNT + later_events, 0));
    assert_eq!(properties.uncounted_processes, 0);
    assert_eq!(daemon_process.uncounted(), 0);
    let lifetimes: Vec<(u32, [i64; 2])> =
        processes.iter().map(|&process| (process, read_lifetime(&folder, process))).collect();
    let (events, lost) = read_events_of(&daemon_process.runner.path("other.etl"), OTHER_PROVIDER);
    assert_eq!((events.len() as u64, lost), (PROCESSES * EVENT_COUNT + later_events, 0));
    assert_order_and_times(&events, &lifetimes);
    let (events, lost) = daemon_process.end_and_read(PROCESSES * EVENT_COUNT + later_events);
    assert_eq!((events.len() as u64, lost), (PROCESSES * EVENT_COUNT + later_events, 0));
    assert_order_and_times(&events, &lifetimes);
}

/// Returns the values of `CLOCK_MONOTONIC` at the start and at the end of a process.
fn read_lifetime(folder: &Path, process: u32) -> [i64; 2] {
    let text = std::fs::read_to_string(folder.join(format!("lifetime-{process}"))).unwrap();
    let stamps: Vec<i64> = text.split(' ').map(|stamp| stamp.parse().unwrap()).collect();
    stamps.try_into().unwrap()
}

/// Asserts that the events of each process are in the order in which it wrote them, with timestamps
/// within its lifetime.
fn assert_order_and_times(events: &[RecordedEvent], lifetimes: &[(u32, [i64; 2])]) {
    for &(process, [start, end]) in lifetimes {
        let of_process: Vec<&RecordedEvent> =
            events.iter().filter(|event| event.process == process).collect();
        assert!(
            of_process.iter().map(|event| event.payload_number()).eq(0..EVENT_COUNT),
            "process {process}: events are missing or out of order"
        );
        assert!(
            of_process.is_sorted_by_key(|event| event.time),
            "process {process}: timestamps are out of order"
        );
        let [first, last] = [of_process[0].time, of_process[of_process.len() - 1].time];
        // The session converts the processor's counter to this clock, with an error below 1 ms.
        let (start, end) = (start - 1_000_000, end + 1_000_000);
        assert!(start <= first && first < last && last <= end, "{start} ≤ {first} < {last} ≤ {end}");
    }
}

fn allowed_processors() -> Vec<usize> {
    let allowed = sched_getaffinity(None).unwrap();
    (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu)).collect()
}

/// Registers both providers, and writes an event of each on each processor while the daemon is
/// suspended.
fn write_on_each_processor(folder: &Path) {
    let providers = [PROVIDER, OTHER_PROVIDER].map(|provider| Provider::register(provider, None).unwrap());
    assert!(providers.iter().all(|provider| provider.enabled(INFORMATION, 0)));
    set_mark(folder, "attached");
    wait_for_mark(folder, "write");
    for cpu in allowed_processors() {
        let mut only = CpuSet::new();
        only.set(cpu);
        sched_setaffinity(None, &only).unwrap();
        for provider in &providers {
            provider.write(&event(2), &[&[0; 8]]).unwrap();
        }
    }
    set_mark(folder, "written");
}

#[test]
fn stop_collects_events_of_ended_processes() {
    // More than the daemon accepts in one turn.
    const PROCESSES: u64 = 80;
    let mut daemon_process = DaemonProcess::start();
    let other = SessionRef::Name("other".into());
    daemon_process.controller.start(&file_config("other", daemon_process.runner.path("other.etl"))).unwrap();
    daemon_process
        .controller
        .enable(&other, OTHER_PROVIDER, EnableCode::Enable, &EnableParams::default(), 0)
        .unwrap();
    let socket = RuntimeDir::from_path(&daemon_process.runner.runtime()).control_socket();
    let controller = Connection::connect(&socket, TEST_TIMEOUT).unwrap();
    let (role, program) = (Role::Controller, "stop".to_owned());
    send_message(&controller, 1, &Message::Hello { versions: VERSIONS, role, instance: 9, program }, &[]);
    let receive_next = || controller.receive(TEST_TIMEOUT).unwrap().unwrap().message;
    assert!(matches!(receive_next(), Message::Welcome { .. }));
    daemon_process.suspend_daemon();
    let children: Vec<RunningScenario> =
        (0..PROCESSES).map(|_| daemon_process.runner.spawn("write and end")).collect();
    children.into_iter().for_each(RunningScenario::assert_success);
    // When the daemon continues, the connections of the processes and this request are all pending.
    send_message(&controller, 2, &Message::Control { session: session(), control: Control::Stop }, &[]);
    daemon_process.signal(Signal::CONT);
    let Message::Properties(properties) = receive_next() else { panic!("no properties") };
    assert_eq!((properties.events, properties.events_lost), (PROCESSES * EVENT_COUNT, 0), "{properties:?}");
    daemon_process.controller.stop(&other).unwrap();
    daemon_process.runner.set_mark("leave");
    daemon_process.daemon.assert_success();
}

fn write_and_end(folder: &Path) {
    let start = Counter::Monotonic.now();
    let provider = Provider::register(PROVIDER, None).unwrap();
    assert!(provider.enabled(INFORMATION, 0), "not enabled by the daemon's file");
    for n in 0..EVENT_COUNT {
        provider.write(&event(1), &[&n.to_le_bytes()]).unwrap();
    }
    // After one registration has waited for a silent daemon, the next one does not wait, and is
    // enabled too. The process ends at once.
    let other = Provider::register(OTHER_PROVIDER, None).unwrap();
    assert!(other.enabled(INFORMATION, 0), "not enabled by the daemon's file");
    for n in 0..EVENT_COUNT {
        other.write(&event(1), &[&n.to_le_bytes()]).unwrap();
    }
    let lifetime = format!("{start} {}", Counter::Monotonic.now());
    std::fs::write(folder.join(format!("lifetime-{}", std::process::id())), lifetime).unwrap();
}

#[test]
fn process_keeps_its_region_when_suspended_daemon_continues() {
    let mut daemon_process = DaemonProcess::start();
    daemon_process.suspend_daemon();
    let child = daemon_process.runner.spawn("write before and after");
    daemon_process.runner.wait_for_mark("before");
    daemon_process.signal(Signal::CONT);
    until("the first half is collected", || {
        daemon_process.controller.query(&session()).unwrap().events == EVENT_COUNT
    });
    daemon_process.runner.set_mark("after");
    until("the second half is collected", || {
        daemon_process.controller.query(&session()).unwrap().events == 2 * EVENT_COUNT
    });
    // From now on the process follows the daemon's enables.
    let level = EnableParams { level: 3, ..EnableParams::default() };
    daemon_process.controller.enable(&session(), PROVIDER, EnableCode::Enable, &level, 0).unwrap();
    child.assert_success();
    assert_eq!(daemon_process.end(2 * EVENT_COUNT), (2 * EVENT_COUNT, 0));
}

/// Writes events before and after the suspended daemon continues.
fn write_before_and_after(folder: &Path) {
    let provider = Provider::register(PROVIDER, None).unwrap();
    let write = || {
        for n in 0..EVENT_COUNT {
            provider.write(&event(1), &[&n.to_le_bytes()]).unwrap();
        }
    };
    write();
    set_mark(folder, "before");
    wait_for_mark(folder, "after");
    write();
    until("the new level is applied", || !provider.enabled(INFORMATION, 0));
}

#[test]
fn process_whose_registration_timed_out_reports_missed_events_at_enable() {
    let runner = ScenarioRunner::new();
    let listener = listen(&runner.runtime());
    let scenario = runner.spawn("go on without an answer");
    // The test plays a daemon without an enable file, which answers after the registration has
    // timed out.
    runner.wait_for_mark("registered");
    let mut process = ProcessConnection::accept(&listener);
    process.serve_registration(0x10001);
    let (registration, _) = process.registered[0];
    assert_eq!(process.expect_failed(), FailedOrder::timeout(0, Some(registration), 0x10001));
    runner.set_mark("enabled");
    // Further enables have missed nothing, so the process acknowledges them without a failure.
    let next = process.await_register();
    process.enable(7, next, 0x10001, EnableCode::Enable, EnableParams::default());
    process.answer(&Message::Registered { registration: next });
    process.expect_ack(7);
    process.enable(8, registration, 0x10001, EnableCode::Enable, EnableParams::default());
    process.expect_ack(8);
    runner.set_mark("done");
    scenario.assert_success();
}

#[test]
fn enable_not_confirmed_by_daemon_is_removed() {
    const ENDED_SESSION: u64 = 0x10001;
    const RUNNING_SESSION: u64 = 0x10002;
    let runner = ScenarioRunner::new();
    let listener = listen(&runner.runtime());
    listener.allow_descriptors().unwrap();
    // The file has enables of both sessions; the first has ended when the daemon reads the
    // registration.
    let enable_entry = |session, level| ListedEnable {
        target: PROVIDER,
        name: String::new(),
        session,
        region: region_params(),
        params: EnableParams { level, ..EnableParams::default() },
    };
    let enables = [enable_entry(ENDED_SESSION, 5), enable_entry(RUNNING_SESSION, 3)];
    traceweir_transport::enabled::write(&RuntimeDir::from_path(&runner.runtime()), &enables).unwrap();
    let scenario = runner.spawn("enabled until the daemon answers");
    runner.wait_for_mark("registered");
    let mut process = ProcessConnection::accept(&listener);
    for session in [ENDED_SESSION, RUNNING_SESSION] {
        let message = process.receive();
        let is_region =
            matches!(message, Message::Region { session: region_session, .. } if region_session == session);
        assert!(is_region, "{message:?}");
    }
    let registration = process.await_register();
    let level = EnableParams { level: 3, ..EnableParams::default() };
    process.send_new_region(RUNNING_SESSION);
    process.enable(0, registration, RUNNING_SESSION, EnableCode::Enable, level);
    process.answer(&Message::Registered { registration });
    scenario.assert_success();
}

fn expect_early_enable_to_be_reverted(folder: &Path) {
    let provider = Provider::register(PROVIDER, None).unwrap();
    assert!(provider.enabled(5, 0) && provider.enabled(3, 0), "not enabled by the daemon's file");
    set_mark(folder, "registered");
    until("the enable of the ended session is reverted", || !provider.enabled(5, 0));
    assert!(provider.enabled(3, 0), "the confirmed enable was reverted too");
}

#[test]
fn process_that_ends_before_the_reply_has_sent_its_registration() {
    let runner = ScenarioRunner::new();
    let listener = listen(&runner.runtime());
    runner.spawn("register and end").assert_success();
    let connection = eventually("the process connects", || listener.accept().unwrap());
    let receive_next = || connection.receive(TEST_TIMEOUT).unwrap().unwrap().message;
    assert!(matches!(receive_next(), Message::Hello { role: Role::Provider, .. }));
    assert!(matches!(receive_next(), Message::Register { provider: PROVIDER, .. }));
}

fn register_and_end(_folder: &Path) {
    let provider = Provider::register(PROVIDER, None).unwrap();
    assert!(!provider.enabled(INFORMATION, 0));
    // Ends like a killed program: nothing is unregistered.
    std::process::exit(0);
}

fn register_without_answer(folder: &Path) {
    let provider = Provider::register(PROVIDER, None).unwrap();
    assert!(!provider.enabled(INFORMATION, 0));
    set_mark(folder, "registered");
    until("the provider is enabled", || provider.enabled(INFORMATION, 0));
    wait_for_mark(folder, "enabled");
    let _second = Provider::register(PROVIDER, None).unwrap();
    wait_for_mark(folder, "done");
}

#[test]
fn process_that_missed_events_is_counted_once() {
    let mut daemon_process = DaemonProcess::start();
    let id = daemon_process.controller.query(&session()).unwrap().id;
    let connection = Connection::connect(
        &RuntimeDir::from_path(&daemon_process.runner.runtime()).control_socket(),
        TEST_TIMEOUT,
    )
    .unwrap();
    let hello =
        Message::Hello { versions: VERSIONS, role: Role::Provider, instance: 1, program: "late".to_owned() };
    send_message(&connection, 1, &hello, &[]);
    let register =
        Message::Register { registration: 7, provider: PROVIDER, traits: Vec::new(), classic: false };
    send_message(&connection, 2, &register, &[]);
    let reason = "the registration timed out".to_owned();
    // A process is counted once; a report about a session that it does not write to changes
    // nothing.
    for session in [id, id, id + 1] {
        let (registration, status, reason) = (Some(7), Status::ERROR_TIMEOUT.0, reason.clone());
        send_message(
            &connection,
            0,
            &Message::Failed { order: 0, registration, session, status, reason },
            &[],
        );
    }
    until("the session counts the process", || {
        daemon_process.controller.query(&session()).unwrap().uncounted_processes == 1
    });
    let traced_count = |controller: &mut Controller| {
        let providers = controller.provider_entries().unwrap();
        providers.iter().flat_map(|provider| &provider.sessions).map(|session| session.traced).sum::<u32>()
    };
    assert_eq!(traced_count(&mut daemon_process.controller), 1, "the registration is no longer enabled");
    daemon_process.controller.stop(&session()).unwrap();
    daemon_process.runner.set_mark("leave");
    daemon_process.daemon.assert_success();
}

/// Sends a message with these memory files to the daemon.
fn send_message(connection: &Connection, request: u32, message: &Message, memory: &[&OwnedFd]) {
    let memory: Vec<BorrowedFd<'_>> = memory.iter().map(|memory| memory.as_fd()).collect();
    connection.send(request, message, &memory, TEST_TIMEOUT).unwrap();
}

#[test]
fn daemon_rejects_unsafe_memory_files() {
    let mut daemon_process = DaemonProcess::start();
    let id = daemon_process.controller.query(&session()).unwrap().id;
    let enabled_provider = traceweir_transport::enabled::read(
        &RuntimeDir::from_path(&daemon_process.runner.runtime()),
        rustix::process::geteuid().as_raw(),
    );
    let [enabled_provider] = &enabled_provider[..] else { panic!("{enabled_provider:?}") };
    assert_eq!((enabled_provider.target, enabled_provider.session), (PROVIDER, id));
    let bytes = enabled_provider.region.layout.region_bytes() as u64;
    let unsealed = rustix::fs::memfd_create("unsealed", rustix::fs::MemfdFlags::ALLOW_SEALING).unwrap();
    rustix::fs::ftruncate(&unsealed, bytes).unwrap();
    let file = tempfile::tempfile().unwrap();
    file.set_len(bytes).unwrap();
    let layout = Layout::new(enabled_provider.region.layout.cpus(), 1 << 28).unwrap();
    let huge = RegionParams { layout, wake_at: 1 << 26, ..enabled_provider.region };
    let small =
        create_memory(&RegionParams { layout: Layout::new(1, 1 << 16).unwrap(), ..enabled_provider.region });
    // The last value is the number of descriptors in the reply: memory of the daemon and its
    // eventfd, or only the eventfd if the daemon adopts the offered memory.
    let offers = [
        ("unsealed", enabled_provider.region, unsealed, 2),
        ("a file on disk", enabled_provider.region, file.into(), 2),
        ("smaller than announced", enabled_provider.region, small.unwrap(), 2),
        ("different layout", huge, create_memory(&huge).unwrap(), 2),
        ("valid", enabled_provider.region, create_memory(&enabled_provider.region).unwrap(), 1),
    ];
    for (name, params, memory, descriptors) in offers {
        let connection = Connection::connect(
            &RuntimeDir::from_path(&daemon_process.runner.runtime()).control_socket(),
            TEST_TIMEOUT,
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
        let receive_next = || connection.receive(TEST_TIMEOUT).unwrap().unwrap();
        assert!(matches!(receive_next().message, Message::Welcome { .. }), "{name}");
        let mut received_descriptors = 0;
        loop {
            let envelope = receive_next();
            match envelope.message {
                Message::Region { session, .. } => {
                    assert_eq!(session, id);
                    received_descriptors = envelope.descriptors.len();
                }
                Message::Enable { .. } => {}
                Message::Registered { registration: 7 } => break,
                other => panic!("{name}: {other:?}"),
            }
        }
        assert_eq!(received_descriptors, descriptors, "{name}");
        // The connection is closed before the next one, because a process can have few connections.
        drop(connection);
    }
    let uncounted = daemon_process.controller.query(&session()).unwrap().uncounted_processes;
    assert_eq!(uncounted, 4, "not each process with rejected memory is counted");
    daemon_process.controller.stop(&session()).unwrap();
    daemon_process.runner.set_mark("leave");
    daemon_process.daemon.assert_success();
}

/// Starts a session that enables all events of [`OTHER_PROVIDER`].
fn start_other_session(daemon_process: &mut DaemonProcess, ring_bytes: u32) -> SessionRef {
    let config = file_config("other", daemon_process.runner.path("other.etl"));
    daemon_process.controller.start(&SessionConfig { ring_bytes, ..config }).unwrap();
    let other = SessionRef::Name("other".into());
    daemon_process
        .controller
        .enable(&other, OTHER_PROVIDER, EnableCode::Enable, &EnableParams::default(), 0)
        .unwrap();
    other
}

#[test]
fn stop_counts_a_process_that_could_not_be_accepted() {
    let mut daemon_process = DaemonProcess::start();
    let other = start_other_session(&mut daemon_process, 1 << 20);
    let pid = Pid::from_raw(daemon_process.daemon.id().cast_signed());
    // The daemon keeps its descriptors and gets no new ones.
    let maximum = getrlimit(Resource::Nofile).maximum;
    let limit = prlimit(pid, Resource::Nofile, Rlimit { current: Some(3), maximum }).unwrap();
    daemon_process.runner.spawn("write and end").assert_success();
    let properties = daemon_process.controller.stop(&session()).unwrap();
    prlimit(pid, Resource::Nofile, limit).unwrap();
    let counts = (properties.events, properties.events_lost, properties.uncounted_processes);
    assert_eq!(counts, (0, 0, 1), "events, lost events and uncounted processes");
    // A session that still runs gets the events.
    until("the other session has the events or counts the process", || {
        let properties = daemon_process.controller.query(&other).unwrap();
        properties.events + properties.events_lost == EVENT_COUNT || properties.uncounted_processes > 0
    });
    let properties = daemon_process.controller.stop(&other).unwrap();
    let counts = (properties.events, properties.events_lost, properties.uncounted_processes);
    assert_eq!(counts, (EVENT_COUNT, 0, 0));
    daemon_process.runner.set_mark("leave");
    daemon_process.daemon.assert_success();
}

#[test]
fn ended_processes_lose_no_event_when_others_use_up_the_memory_of_a_session() {
    /// More processes than the session has memory for rings.
    const RUNNING: u64 = 30;
    const ENDED: u64 = 4;
    let mut daemon_process = DaemonProcess::start();
    let other = start_other_session(&mut daemon_process, 1 << 28);
    let folder = daemon_process.runner.folder.path().to_owned();
    daemon_process.suspend_daemon();
    let running: Vec<RunningScenario> =
        (0..RUNNING).map(|_| daemon_process.runner.spawn("write other and stay")).collect();
    for process in &running {
        wait_for_mark(&folder, &format!("written-{}", process.id()));
    }
    daemon_process.signal(Signal::CONT);
    // All events of a process are collected, or the session counts the process.
    let await_processes = |daemon_process: &mut DaemonProcess, count: u64| {
        eventually("all processes are collected from or counted", || {
            let properties = daemon_process.controller.query(&other).unwrap();
            let uncounted = u64::from(properties.uncounted_processes);
            (properties.events + uncounted * EVENT_COUNT == count * EVENT_COUNT).then_some(uncounted)
        })
    };
    let refused = await_processes(&mut daemon_process, RUNNING);
    daemon_process.suspend_daemon();
    let mut ended: Vec<RunningScenario> =
        (0..ENDED).map(|_| daemon_process.runner.spawn("write and end")).collect();
    // Half of the processes stay zombies until the end of the test: the daemon must take them as
    // ended, too.
    let unreaped = ended.split_off(ended.len() / 2);
    ended.into_iter().for_each(RunningScenario::assert_success);
    for process in &unreaped {
        let stat = format!("/proc/{}/stat", process.id());
        // The main thread can be a zombie while other threads still end: the number of threads is
        // the 17th field after the state.
        until("the process has ended", || {
            let text = std::fs::read_to_string(&stat).unwrap();
            let mut fields = text.rsplit(") ").next().unwrap().split(' ');
            fields.next() == Some("Z") && matches!(fields.nth(16), Some("0" | "1"))
        });
    }
    daemon_process.signal(Signal::CONT);
    let uncounted = await_processes(&mut daemon_process, RUNNING + ENDED);
    assert_eq!(uncounted, refused, "events of ended processes were not collected");
    set_mark(&folder, "may end");
    running.into_iter().chain(unreaped).for_each(RunningScenario::assert_success);
    daemon_process.controller.stop(&other).unwrap();
    assert_eq!(daemon_process.end(ENDED * EVENT_COUNT), (ENDED * EVENT_COUNT, 0));
}

fn write_other_provider_and_stay(folder: &Path) {
    let provider = Provider::register(OTHER_PROVIDER, None).unwrap();
    assert!(provider.enabled(INFORMATION, 0), "not enabled by the daemon's file");
    for n in 0..EVENT_COUNT {
        provider.write(&event(1), &[&n.to_le_bytes()]).unwrap();
    }
    set_mark(folder, &format!("written-{}", std::process::id()));
    wait_for_mark(folder, "may end");
}
