//! Processes that cannot connect to a running daemon at first: its queue of connections was full,
//! or it had no resources for another process. They connect later, and report that sessions may
//! have missed events.

use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Resource, Rlimit, setrlimit};
use traceweir::controller::{Controller, EnableCode, EnableParams, Scope};
use traceweir::provider::link_state;
use traceweir::{Provider, Status};
use traceweir_transport::Error;
use traceweir_transport::message::{Message, Role, VERSIONS};
use traceweir_transport::runtime::RuntimeDir;
use traceweir_transport::socket::{BACKLOG, Connection, Listener};

use crate::daemon::{FailedOrder, ProcessConnection, find_socket, listen};
use crate::descriptors::close_all_above_stderr;
use crate::early::{DaemonProcess, EVENT_COUNT, run_daemon};
use crate::fork::{fork, run_in_child};
use crate::sandbox::refuse;
use crate::{
    INFORMATION, PROVIDER, Scenario, ScenarioRunner, TEST_TIMEOUT, event, eventually, set_mark, until,
    wait_for_mark,
};

pub(crate) const SCENARIOS: &[Scenario] = &[
    ("enabled later", write_once_enabled),
    ("enabled later, all closed", close_all_and_write_once_enabled),
    ("enabled later, all closed in a sandbox", close_all_in_sandbox_and_write_once_enabled),
    ("enabled later, forked", fork_and_wait_until_enabled),
    ("many registrations", many_registrations),
    ("write later", write_after_refusal),
    ("daemon with few descriptors", daemon_with_few_descriptors),
];

const SESSION: u64 = 0x10001;

/// A listener whose queue of connections is full.
pub(crate) struct FullQueue {
    connections: Vec<Connection>,
}

impl FullQueue {
    /// Fills the queue of a listener with connections of this process.
    pub(crate) fn new(listener: &Listener, socket: &Path) -> Self {
        rustix::net::listen(listener, 0).unwrap();
        let mut connections = Vec::new();
        loop {
            match Connection::connect(socket, Duration::ZERO) {
                Ok(connection) => connections.push(connection),
                Err(Error::TimedOut) => return Self { connections },
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Accepts and closes all connections of the queue, and makes the queue long.
    fn accept_all(self, listener: &Listener) {
        for _ in &self.connections {
            assert!(listener.accept().unwrap().is_some());
        }
        rustix::net::listen(listener, BACKLOG).unwrap();
    }
}

/// Accepts a process and enables its registration. The process reports that the session has missed
/// events.
fn serve_process_that_missed_events(listener: &Listener) -> ProcessConnection {
    let mut process = ProcessConnection::accept(listener);
    let registration = process.await_register();
    process.send_new_region(SESSION);
    let enable = |process: &ProcessConnection, order| {
        process.enable(order, registration, SESSION, EnableCode::Enable, EnableParams::default());
    };
    enable(&process, 0);
    process.answer(&Message::Registered { registration });
    assert_eq!(process.expect_failed(), FailedOrder::timeout(0, Some(registration), SESSION));
    // The process has missed no events of a further enable, so it acknowledges the order.
    enable(&process, 7);
    process.expect_ack(7);
    process
}

/// Runs a scenario whose first connection finds the queue of the daemon full.
fn assert_process_connects_after_full_queue(scenario: &str) {
    let runner = ScenarioRunner::new();
    let listener = listen(&runner.runtime());
    let queue = FullQueue::new(&listener, &RuntimeDir::from_path(&runner.runtime()).control_socket());
    // A process that cannot connect still ends normally.
    runner.run("register and end");
    let running = runner.spawn(scenario);
    runner.wait_for_mark("registered");
    queue.accept_all(&listener);
    let mut process = serve_process_that_missed_events(&listener);
    assert_eq!(process.pid(), running.id());
    runner.wait_for_mark("written");
    assert_eq!(process.collect().0.len(), 1);
    runner.set_mark("done");
    running.assert_success();
}

#[test]
fn process_connects_when_a_full_queue_has_room_again() {
    assert_process_connects_after_full_queue("enabled later");
}

#[test]
fn process_without_its_descriptors_connects_when_a_full_queue_has_room_again() {
    assert_process_connects_after_full_queue("enabled later, all closed");
    assert_process_connects_after_full_queue("enabled later, all closed in a sandbox");
}

#[test]
fn forked_child_connects_when_a_full_queue_has_room_again() {
    let runner = ScenarioRunner::new();
    let listener = listen(&runner.runtime());
    let queue = FullQueue::new(&listener, &RuntimeDir::from_path(&runner.runtime()).control_socket());
    let running = runner.spawn("enabled later, forked");
    runner.wait_for_mark("forked");
    queue.accept_all(&listener);
    let processes =
        [serve_process_that_missed_events(&listener), serve_process_that_missed_events(&listener)];
    assert_ne!(processes[0].pid(), processes[1].pid());
    runner.set_mark("done");
    running.assert_success();
}

fn write_once_enabled(folder: &Path) {
    let provider = Provider::register(PROVIDER, None).unwrap();
    write_when_enabled(folder, &provider);
}

fn close_all_and_write_once_enabled(folder: &Path) {
    let provider = Provider::register(PROVIDER, None).unwrap();
    close_all_above_stderr();
    write_when_enabled(folder, &provider);
}

fn close_all_in_sandbox_and_write_once_enabled(folder: &Path) {
    refuse(&[libc::SYS_close_range, libc::SYS_unshare]);
    close_all_and_write_once_enabled(folder);
}

fn write_when_enabled(folder: &Path, provider: &Provider) {
    assert!(!provider.enabled(0, 0));
    set_mark(folder, "registered");
    until("the provider is enabled", || provider.enabled(INFORMATION, 0));
    provider.write(&event(1), &[&1u64.to_le_bytes()]).unwrap();
    set_mark(folder, "written");
    wait_for_mark(folder, "done");
}

fn fork_and_wait_until_enabled(folder: &Path) {
    let provider = Provider::register(PROVIDER, None).unwrap();
    run_in_child(fork, || {
        let has_tried = || link_state().iter().any(|line| line.contains(", no daemon ("));
        until("the child has tried to connect", has_tried);
        set_mark(folder, "forked");
        until("the child is enabled", || provider.enabled(INFORMATION, 0));
        wait_for_mark(folder, "done");
    });
    until("the parent is enabled", || provider.enabled(INFORMATION, 0));
}

fn refuse_for_lack_of_resources(connection: &Connection) {
    let refusal =
        Message::Refused { status: Status::ERROR_NO_SYSTEM_RESOURCES.0, reason: "no room".to_owned() };
    connection.send(0, &refusal, &[], TEST_TIMEOUT).unwrap();
}

#[test]
fn process_connects_again_after_refusals_for_lack_of_room() {
    let runner = ScenarioRunner::new();
    let listener = listen(&runner.runtime());
    let running = runner.spawn("enabled later");
    // The daemon refuses the first connection when it accepts it, and the second after Hello.
    refuse_for_lack_of_resources(&eventually("the process connects", || listener.accept().unwrap()));
    let connection = eventually("the process connects again", || listener.accept().unwrap());
    let hello = connection.receive(TEST_TIMEOUT).unwrap().unwrap().message;
    assert!(matches!(hello, Message::Hello { role: Role::Provider, .. }), "{hello:?}");
    runner.wait_for_mark("registered");
    refuse_for_lack_of_resources(&connection);
    drop(connection);
    let process = serve_process_that_missed_events(&listener);
    assert_eq!(process.pid(), running.id());
    runner.set_mark("done");
    running.assert_success();
}

#[test]
fn process_found_by_daemon_without_room_connects_later() {
    let runner = ScenarioRunner::new();
    let running = runner.spawn("enabled later");
    runner.wait_for_mark("registered");
    let listener = listen(&runner.runtime());
    let dir = RuntimeDir::from_path(&runner.runtime());
    let socket = eventually("the provider's socket exists", || find_socket(&dir, running.id()));
    let connection = Connection::connect(&socket, TEST_TIMEOUT).unwrap();
    refuse_for_lack_of_resources(&connection);
    let process = serve_process_that_missed_events(&listener);
    assert_eq!(process.pid(), running.id());
    runner.set_mark("done");
    running.assert_success();
}

#[test]
fn refusal_that_arrives_while_registrations_are_sent_is_received() {
    let runner = ScenarioRunner::new();
    let running = runner.spawn("many registrations");
    runner.wait_for_mark("registered");
    let listener = listen(&runner.runtime());
    let dir = RuntimeDir::from_path(&runner.runtime());
    let socket = eventually("the provider's socket exists", || find_socket(&dir, running.id()));
    let connection = Connection::connect(&socket, TEST_TIMEOUT).unwrap();
    refuse_for_lack_of_resources(&connection);
    // The refusal comes at once, while the process still sends.
    let mut ready = [PollFd::new(&listener, PollFlags::IN)];
    let limit = Timespec::try_from(TEST_TIMEOUT).unwrap();
    assert_eq!(poll(&mut ready, Some(&limit)).unwrap(), 1, "the process did not connect");
    refuse_for_lack_of_resources(&listener.accept().unwrap().unwrap());
    assert_eq!(ProcessConnection::accept(&listener).pid(), running.id());
    runner.set_mark("done");
    running.assert_success();
}

fn many_registrations(folder: &Path) {
    let _providers: Vec<Provider> = (0..1_000).map(|_| Provider::register(PROVIDER, None).unwrap()).collect();
    set_mark(folder, "registered");
    wait_for_mark(folder, "done");
}

#[test]
fn process_is_traced_and_counted_when_a_full_daemon_has_room_again() {
    let mut daemon = DaemonProcess::start_scenario(ScenarioRunner::new(), "daemon with few descriptors");
    let (folder, runtime) = (daemon.runner.folder.path().to_owned(), daemon.runner.runtime());
    let connect = || Controller::find_at(&runtime).unwrap().unwrap();
    let mut connections: Vec<Controller> = Vec::new();
    while accepts_another_process(&runtime, connections.len() as u64) {
        connections.push(connect());
    }
    assert!(connections.len() > 100, "{} controllers", connections.len());
    // These eight take the descriptors that the daemon closes meanwhile, so that it stays full.
    connections.extend((0..8).map(|_| connect()));
    let running = daemon.runner.spawn("write later");
    wait_for_mark(&folder, "registered");
    let is_known = |daemon: &mut DaemonProcess| {
        let providers = daemon.controller.providers().unwrap();
        providers.iter().any(|provider| provider.guid == PROVIDER && !provider.pids.is_empty())
    };
    assert!(!is_known(&mut daemon));
    // Two processes: this one, whose last probe was refused, and the one that has registered.
    until("the session counts the refused processes", || daemon.uncounted() == 2);
    drop(connections);
    until("the daemon knows the process", || is_known(&mut daemon));
    set_mark(&folder, "write");
    running.assert_success();
    assert_eq!(daemon.uncounted(), 2, "a process that is accepted later was counted again");
    assert_eq!(daemon.end(EVENT_COUNT), (EVENT_COUNT, 0));
}

/// Returns whether a daemon accepts another process with registrations.
fn accepts_another_process(runtime: &Path, instance: u64) -> bool {
    let socket = RuntimeDir::from_path(runtime).control_socket();
    let connection = Connection::connect(&socket, TEST_TIMEOUT).unwrap();
    let program = "probe".to_owned();
    let hello = Message::Hello { versions: VERSIONS, role: Role::Provider, instance, program };
    connection.send(1, &hello, &[], TEST_TIMEOUT).unwrap();
    match connection.receive(TEST_TIMEOUT).unwrap().unwrap().message {
        Message::Welcome { .. } => true,
        Message::Refused { status, .. } if status == Status::ERROR_NO_SYSTEM_RESOURCES.0 => false,
        other => panic!("{other:?}"),
    }
}

fn daemon_with_few_descriptors(folder: &Path) {
    let few = Some(256);
    setrlimit(Resource::Nofile, Rlimit { current: few, maximum: few }).unwrap();
    run_daemon(folder, Scope::Named);
}

fn write_after_refusal(folder: &Path) {
    let provider = Provider::register(PROVIDER, None).unwrap();
    let is_refused = || link_state().iter().any(|line| line.contains("refuses this process"));
    until("the daemon refuses the process", is_refused);
    set_mark(folder, "registered");
    wait_for_mark(folder, "write");
    until("the provider is enabled", || provider.enabled(INFORMATION, 0));
    for n in 0..EVENT_COUNT {
        provider.write(&event(1), &[&n.to_le_bytes()]).unwrap();
    }
}
