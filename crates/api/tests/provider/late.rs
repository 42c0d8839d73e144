//! Processes that reach a running daemon only later: its queue of connections was full, or it had
//! no room. They connect when there is room, and report that sessions may have missed events.

use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Resource, Rlimit, setrlimit};
use traceweir::Provider;
use traceweir::controller::{Controller, EnableCode, EnableParams, Scope};
use traceweir::provider::link_state;
use traceweir_transport::Error;
use traceweir_transport::message::{Message, Role, VERSIONS};
use traceweir_transport::runtime::RuntimeDir;
use traceweir_transport::socket::{BACKLOG, Connection, Listener};

use crate::daemon::{Process, listen, socket_of};
use crate::descriptors::close_from_3;
use crate::early::{DaemonProcess, EACH, run_daemon};
use crate::fork::{fork, in_child};
use crate::sandbox::refuse;
use crate::{PATIENCE, PROVIDER, Scenario, Stage, event, eventually, mark, until, wait_for_mark};

pub(crate) const SCENARIOS: &[Scenario] = &[
    ("enabled later", enabled_later),
    ("enabled later, all closed", enabled_later_all_closed),
    ("enabled later, all closed in a sandbox", enabled_later_all_closed_in_a_sandbox),
    ("enabled later, forked", enabled_later_forked),
    ("many registrations", many_registrations),
    ("write later", write_later),
    ("daemon with few descriptors", daemon_with_few_descriptors),
];

const SESSION: u64 = 0x10001;

/// A listener whose queue of connections is full.
pub(crate) struct FullQueue {
    waiting: Vec<Connection>,
}

impl FullQueue {
    /// Fills the queue of a listener with connections of this process.
    pub(crate) fn new(listener: &Listener, socket: &Path) -> Self {
        rustix::net::listen(listener, 0).unwrap();
        let mut waiting = Vec::new();
        loop {
            match Connection::connect(socket, Duration::ZERO) {
                Ok(connection) => waiting.push(connection),
                Err(Error::TimedOut) => return Self { waiting },
                Err(e) => panic!("{e}"),
            }
        }
    }

    /// Accepts and closes the connections, which came first, and makes room for many.
    fn empty(self, listener: &Listener) {
        for _ in &self.waiting {
            assert!(listener.accept().unwrap().is_some());
        }
        rustix::net::listen(listener, BACKLOG).unwrap();
    }
}

/// Accepts a process and enables its registration, of which the session has missed events.
fn serve_late(listener: &Listener) -> Process {
    let mut process = Process::accept(listener);
    let registration = process.await_register();
    process.give_region(SESSION);
    let enable = |process: &Process, order| {
        process.enable(order, registration, SESSION, EnableCode::Enable, EnableParams::default());
    };
    enable(&process, 0);
    process.answer(&Message::Registered { registration });
    assert_eq!(process.expect_failed(), (0, Some(registration), SESSION, 1460));
    // A later enable has missed nothing.
    enable(&process, 7);
    process.expect_ack(7);
    process
}

/// Runs a scenario whose first connection finds the queue of the daemon full.
fn connects_when_queue_has_room(scenario: &str) {
    let stage = Stage::new();
    let listener = listen(&stage.runtime());
    let queue = FullQueue::new(&listener, &RuntimeDir::from_path(&stage.runtime()).control_socket());
    // A process that cannot connect ends like any other.
    stage.run("register and end");
    let running = stage.spawn(scenario);
    wait_for_mark(stage.folder.path(), "registered");
    queue.empty(&listener);
    let mut process = serve_late(&listener);
    assert_eq!(process.pid(), running.id());
    wait_for_mark(stage.folder.path(), "written");
    assert_eq!(process.collect().0.len(), 1);
    mark(stage.folder.path(), "done");
    running.succeeded();
}

#[test]
fn process_connects_when_a_full_queue_has_room_again() {
    connects_when_queue_has_room("enabled later");
}

#[test]
fn process_without_its_descriptors_connects_when_a_full_queue_has_room_again() {
    connects_when_queue_has_room("enabled later, all closed");
    connects_when_queue_has_room("enabled later, all closed in a sandbox");
}

#[test]
fn forked_child_connects_when_a_full_queue_has_room_again() {
    let stage = Stage::new();
    let listener = listen(&stage.runtime());
    let queue = FullQueue::new(&listener, &RuntimeDir::from_path(&stage.runtime()).control_socket());
    let running = stage.spawn("enabled later, forked");
    wait_for_mark(stage.folder.path(), "forked");
    queue.empty(&listener);
    let processes = [serve_late(&listener), serve_late(&listener)];
    assert_ne!(processes[0].pid(), processes[1].pid());
    mark(stage.folder.path(), "done");
    running.succeeded();
}

fn enabled_later(folder: &Path) {
    let provider = Provider::register(PROVIDER, None).unwrap();
    write_when_enabled(folder, &provider);
}

fn enabled_later_all_closed(folder: &Path) {
    let provider = Provider::register(PROVIDER, None).unwrap();
    close_from_3();
    write_when_enabled(folder, &provider);
}

fn enabled_later_all_closed_in_a_sandbox(folder: &Path) {
    refuse(&[libc::SYS_close_range, libc::SYS_unshare]);
    enabled_later_all_closed(folder);
}

fn write_when_enabled(folder: &Path, provider: &Provider) {
    assert!(!provider.enabled(0, 0));
    mark(folder, "registered");
    until("a session", || provider.enabled(4, 0));
    provider.write(&event(1), &[&1u64.to_le_bytes()]).unwrap();
    mark(folder, "written");
    wait_for_mark(folder, "done");
}

fn enabled_later_forked(folder: &Path) {
    let provider = Provider::register(PROVIDER, None).unwrap();
    in_child(fork, || {
        let has_tried = || link_state().iter().any(|line| line.contains(", no daemon ("));
        until("an attempt of the child", has_tried);
        mark(folder, "forked");
        until("a session of the child", || provider.enabled(4, 0));
        wait_for_mark(folder, "done");
    });
    until("a session of the parent", || provider.enabled(4, 0));
}

/// Refuses a process for lack of room.
fn refuse_for_lack_of_room(connection: &Connection) {
    let refusal = Message::Refused { status: 1450, reason: "no room".to_owned() };
    connection.send(0, &refusal, &[], PATIENCE).unwrap();
}

#[test]
fn process_connects_again_after_refusals_for_lack_of_room() {
    let stage = Stage::new();
    let listener = listen(&stage.runtime());
    let running = stage.spawn("enabled later");
    // At the accept, and after Hello.
    refuse_for_lack_of_room(&eventually("a connection", || listener.accept().unwrap()));
    let connection = eventually("the next connection", || listener.accept().unwrap());
    let hello = connection.receive(PATIENCE).unwrap().unwrap().message;
    assert!(matches!(hello, Message::Hello { role: Role::Provider, .. }), "{hello:?}");
    wait_for_mark(stage.folder.path(), "registered");
    refuse_for_lack_of_room(&connection);
    drop(connection);
    let process = serve_late(&listener);
    assert_eq!(process.pid(), running.id());
    mark(stage.folder.path(), "done");
    running.succeeded();
}

#[test]
fn process_found_by_daemon_without_room_connects_later() {
    let stage = Stage::new();
    let running = stage.spawn("enabled later");
    wait_for_mark(stage.folder.path(), "registered");
    let listener = listen(&stage.runtime());
    let dir = RuntimeDir::from_path(&stage.runtime());
    let socket = eventually("the provider's socket", || socket_of(&dir, running.id()));
    let connection = Connection::connect(&socket, PATIENCE).unwrap();
    refuse_for_lack_of_room(&connection);
    let process = serve_late(&listener);
    assert_eq!(process.pid(), running.id());
    mark(stage.folder.path(), "done");
    running.succeeded();
}

#[test]
fn refusal_that_comes_before_the_registrations_are_sent_is_heard() {
    let stage = Stage::new();
    let running = stage.spawn("many registrations");
    wait_for_mark(stage.folder.path(), "registered");
    let listener = listen(&stage.runtime());
    let dir = RuntimeDir::from_path(&stage.runtime());
    let socket = eventually("the provider's socket", || socket_of(&dir, running.id()));
    let connection = Connection::connect(&socket, PATIENCE).unwrap();
    refuse_for_lack_of_room(&connection);
    // At once, while the process still sends.
    let mut ready = [PollFd::new(&listener, PollFlags::IN)];
    let limit = Timespec::try_from(PATIENCE).unwrap();
    assert_eq!(poll(&mut ready, Some(&limit)).unwrap(), 1, "the process connects");
    refuse_for_lack_of_room(&listener.accept().unwrap().unwrap());
    assert_eq!(Process::accept(&listener).pid(), running.id());
    mark(stage.folder.path(), "done");
    running.succeeded();
}

fn many_registrations(folder: &Path) {
    let _all: Vec<Provider> = (0..1_000).map(|_| Provider::register(PROVIDER, None).unwrap()).collect();
    mark(folder, "registered");
    wait_for_mark(folder, "done");
}

#[test]
fn process_is_traced_and_counted_when_a_full_daemon_has_room_again() {
    let mut daemon = DaemonProcess::start_scenario(Stage::new(), "daemon with few descriptors");
    let (folder, runtime) = (daemon.stage.folder.path().to_owned(), daemon.stage.runtime());
    let connect = || Controller::find_at(&runtime).unwrap().unwrap();
    let mut connections: Vec<Controller> = Vec::new();
    while welcomes_processes(&runtime, connections.len() as u64) {
        connections.push(connect());
    }
    assert!(connections.len() > 100, "{} controllers", connections.len());
    // Descriptors that the daemon closes now must not make room.
    connections.extend((0..8).map(|_| connect()));
    let running = daemon.stage.spawn("write later");
    wait_for_mark(&folder, "registered");
    let is_known = |daemon: &mut DaemonProcess| {
        let providers = daemon.controller.providers().unwrap();
        providers.iter().any(|provider| provider.guid == PROVIDER && !provider.pids.is_empty())
    };
    assert!(!is_known(&mut daemon));
    // This process, which made the last probe, and the one that has registered.
    until("the session counts the refused processes", || daemon.uncounted() == 2);
    drop(connections);
    until("the daemon knows the process", || is_known(&mut daemon));
    mark(&folder, "write");
    running.succeeded();
    assert_eq!(daemon.uncounted(), 2, "a process that is accepted later is not counted again");
    assert_eq!(daemon.end(EACH), (EACH, 0));
}

/// Returns whether a daemon has room for another process with registrations.
fn welcomes_processes(runtime: &Path, instance: u64) -> bool {
    let socket = RuntimeDir::from_path(runtime).control_socket();
    let connection = Connection::connect(&socket, PATIENCE).unwrap();
    let program = "probe".to_owned();
    let hello = Message::Hello { versions: VERSIONS, role: Role::Provider, instance, program };
    connection.send(1, &hello, &[], PATIENCE).unwrap();
    match connection.receive(PATIENCE).unwrap().unwrap().message {
        Message::Welcome { .. } => true,
        Message::Refused { status: 1450, .. } => false,
        other => panic!("{other:?}"),
    }
}

fn daemon_with_few_descriptors(folder: &Path) {
    let few = Some(256);
    setrlimit(Resource::Nofile, Rlimit { current: few, maximum: few }).unwrap();
    run_daemon(folder, Scope::Named);
}

fn write_later(folder: &Path) {
    let provider = Provider::register(PROVIDER, None).unwrap();
    let is_refused = || link_state().iter().any(|line| line.contains("refuses this process"));
    until("the refusal", is_refused);
    mark(folder, "registered");
    wait_for_mark(folder, "write");
    until("a session", || provider.enabled(4, 0));
    for n in 0..EACH {
        provider.write(&event(1), &[&n.to_le_bytes()]).unwrap();
    }
}
