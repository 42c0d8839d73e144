//! The socket that a daemon for all users offers to processes of its own user: which processes use
//! this socket, and when.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::process::Signal;
use traceweir::consumer::Trace;
use traceweir::controller::{Controller, EnableCode, EnableParams, Scope};
use traceweir::{Provider, Status};
use traceweir_transport::enabled::{self, ListedEnable};
use traceweir_transport::message::{Message, Role, VERSIONS};
use traceweir_transport::runtime::RuntimeDir;
use traceweir_transport::socket::{Connection, Listener};

use crate::daemon::{ProcessConnection, listen, region_params};
use crate::early::{DaemonProcess, EVENT_COUNT, OTHER_PROVIDER, session};
use crate::late::FullQueue;
use crate::skip::holds_or_skip;
use crate::{
    INFORMATION, PROVIDER, Scenario, ScenarioRunner, TEST_TIMEOUT, event, eventually, set_mark, until,
    wait_for_mark,
};

pub(crate) const SCENARIOS: &[Scenario] = &[
    ("register before and during a suspension", register_before_and_during_suspension),
    ("register and stay", register_and_stay),
];

/// The sockets of a pretended daemon for all users. The test accepts the connections.
struct DaemonSockets {
    runner: ScenarioRunner,
    /// For processes of the daemon's user.
    own: Listener,
    /// For all users.
    shared: Listener,
}

impl DaemonSockets {
    /// Opens the sockets, and writes a file that enables the providers of the scenarios.
    fn open() -> Self {
        let runner = ScenarioRunner::new();
        let shared = listen(&runner.runtime());
        let folder = RuntimeDir::from_path(&runner.runtime()).make_own().unwrap();
        let own = Listener::bind(&folder.control_socket(), 0o600).unwrap();
        own.allow_descriptors().unwrap();
        let enable_entry = |target| ListedEnable {
            target,
            name: String::new(),
            session: 7,
            region: region_params(),
            params: EnableParams::default(),
        };
        enabled::write(&folder, &[enable_entry(PROVIDER), enable_entry(OTHER_PROVIDER)]).unwrap();
        Self { runner, own, shared }
    }

    fn folder(&self) -> std::path::PathBuf {
        self.runner.runtime().join("own")
    }
}

#[test]
fn process_of_daemon_user_sends_region_before_daemon_accepts() {
    let sockets = DaemonSockets::open();
    sockets.runner.spawn("write and end").assert_success();
    let connection = eventually("the process connects", || sockets.own.accept().unwrap());
    let receive_next = || connection.receive(TEST_TIMEOUT).unwrap().unwrap();
    assert!(matches!(receive_next().message, Message::Hello { role: Role::Provider, .. }));
    let region = receive_next();
    assert!(matches!(region.message, Message::Region { session: 7, .. }), "{region:?}");
    assert_eq!(region.descriptors.len(), 1);
    assert!(matches!(receive_next().message, Message::Register { provider: PROVIDER, .. }));
    assert!(sockets.shared.accept().unwrap().is_none(), "the process connected to the shared socket too");
}

#[test]
fn untrusted_folder_of_the_daemon_user_is_not_used() {
    let is_root =
        holds_or_skip(rustix::process::geteuid().is_root(), "root", "giving files away requires root");
    let give_to_other_user: fn(&Path) = |folder| chown(folder, Some(64_123), None).unwrap();
    let open_to_group: fn(&Path) =
        |folder| fs::set_permissions(folder, PermissionsExt::from_mode(0o710)).unwrap();
    let replace_by_link: fn(&Path) = |folder| {
        let elsewhere = folder.with_file_name("elsewhere");
        fs::rename(folder, &elsewhere).unwrap();
        symlink(elsewhere, folder).unwrap();
    };
    let changes = [
        ("open to a group", open_to_group),
        ("a link", replace_by_link),
        ("of another user", give_to_other_user),
    ];
    // The last change needs root.
    for (name, change) in &changes[..if is_root { 3 } else { 2 }] {
        let sockets = DaemonSockets::open();
        change(&sockets.folder());
        // The scenario asserts that nothing is enabled.
        sockets.runner.spawn("register and end").assert_success();
        assert!(sockets.own.accept().unwrap().is_none(), "{name}");
        let connection = eventually("the process connects", || sockets.shared.accept().unwrap());
        let receive_next = || connection.receive(TEST_TIMEOUT).unwrap().unwrap().message;
        assert!(matches!(receive_next(), Message::Hello { .. }), "{name}");
        assert!(matches!(receive_next(), Message::Register { provider: PROVIDER, .. }), "{name}");
    }
}

#[test]
fn process_not_accepted_by_exiting_daemon_uses_shared_socket() {
    let DaemonSockets { runner, own, shared } = DaemonSockets::open();
    let scenario = runner.spawn("register and stay");
    runner.wait_for_mark("registered");
    assert!(shared.accept().unwrap().is_none(), "the process did not wait at the daemon user's socket");
    // The next two lines do what a daemon does when it exits.
    RuntimeDir::from_path(&runner.runtime()).remove_own();
    drop(own);
    let mut process = ProcessConnection::accept(&shared);
    let registration = process.await_register();
    process.answer(&Message::Registered { registration });
    runner.set_mark("done");
    scenario.assert_success();
}

#[test]
fn stale_socket_of_killed_daemon_leads_to_shared_socket() {
    let DaemonSockets { runner, own, shared } = DaemonSockets::open();
    drop(own);
    // The scenario asserts that nothing is enabled, whatever the file of the killed daemon
    // contains.
    runner.spawn("register and end").assert_success();
    let connection = eventually("the process connects", || shared.accept().unwrap());
    let receive_next = || connection.receive(TEST_TIMEOUT).unwrap().unwrap().message;
    assert!(matches!(receive_next(), Message::Hello { .. }));
    assert!(matches!(receive_next(), Message::Register { provider: PROVIDER, .. }));
}

fn register_and_stay(folder: &Path) {
    let _provider = Provider::register(PROVIDER, None).unwrap();
    set_mark(folder, "registered");
    wait_for_mark(folder, "done");
}

#[test]
fn process_found_by_daemon_loses_no_event_while_daemon_is_suspended() {
    suspend_daemon_after_it_found_process(Scope::Named);
}

#[test]
fn root_process_found_by_system_daemon_loses_no_event_while_daemon_is_suspended() {
    if holds_or_skip(rustix::process::geteuid().is_root(), "root", "only root can run the system's daemon") {
        suspend_daemon_after_it_found_process(Scope::System);
    }
}

/// Starts the process before the daemon, which finds it. While the daemon is suspended, the process
/// registers another provider and writes events.
fn suspend_daemon_after_it_found_process(scope: Scope) {
    let runner = ScenarioRunner::new();
    let scenario = runner.spawn("register before and during a suspension");
    runner.wait_for_mark("registered");
    let mut daemon_process = DaemonProcess::start_on(runner, scope);
    until("the daemon has found the process", || {
        let providers = daemon_process.controller.provider_entries().unwrap();
        providers.iter().any(|provider| provider.provider == PROVIDER && !provider.pids.is_empty())
    });
    daemon_process
        .controller
        .enable(&session(), OTHER_PROVIDER, EnableCode::Enable, &EnableParams::default(), 0)
        .unwrap();
    // Disabling removes the region of the process, so that the next registration creates one.
    daemon_process
        .controller
        .enable(&session(), PROVIDER, EnableCode::Disable, &EnableParams::default(), 5000)
        .unwrap();
    daemon_process.suspend_daemon();
    daemon_process.runner.set_mark("suspended");
    scenario.assert_success();
    daemon_process.signal(Signal::CONT);
    until("all events are collected or lost, or the losses of the process are unknown", || {
        let properties = daemon_process.controller.query(&session()).unwrap();
        properties.events + properties.events_lost + u64::from(properties.uncounted_processes) * EVENT_COUNT
            >= EVENT_COUNT
    });
    let properties = daemon_process.controller.query(&session()).unwrap();
    assert_eq!((properties.events, properties.events_lost), (EVENT_COUNT, 0), "{properties:?}");
    assert_eq!(properties.uncounted_processes, 0);
    // `end` counts the events of `PROVIDER`, which wrote none.
    assert_eq!(daemon_process.end(EVENT_COUNT), (0, 0));
}

fn register_before_and_during_suspension(folder: &Path) {
    let _first = Provider::register(PROVIDER, None).unwrap();
    set_mark(folder, "registered");
    wait_for_mark(folder, "suspended");
    let other = Provider::register(OTHER_PROVIDER, None).unwrap();
    assert!(other.enabled(INFORMATION, 0), "not enabled by the daemon's file");
    for n in 0..EVENT_COUNT {
        other.write(&event(1), &[&n.to_le_bytes()]).unwrap();
    }
}

/// Plays a daemon on a thread until it is dropped. The daemon welcomes controllers and consumers,
/// and has no session.
struct WelcomingDaemon {
    is_stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<Vec<Role>>>,
}

impl WelcomingDaemon {
    /// Answers the connections of a listener, and closes the connections of `rejecting`.
    fn start(listener: Listener, rejecting: Option<Listener>) -> Self {
        let is_stopping = Arc::new(AtomicBool::new(false));
        let should_stop = is_stopping.clone();
        let thread = std::thread::spawn(move || {
            let mut roles = Vec::new();
            while !should_stop.load(Ordering::SeqCst) {
                drop(rejecting.as_ref().map(Listener::accept));
                match listener.accept().unwrap() {
                    Some(connection) => roles.extend(welcome_client(&connection)),
                    None => std::thread::sleep(Duration::from_millis(5)),
                }
            }
            roles
        });
        Self { is_stopping, thread: Some(thread) }
    }

    /// Ends the daemon, and returns the roles of the clients that it has answered.
    fn end(mut self) -> Vec<Role> {
        self.is_stopping.store(true, Ordering::SeqCst);
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Drop for WelcomingDaemon {
    fn drop(&mut self) {
        self.is_stopping.store(true, Ordering::SeqCst);
    }
}

/// Answers a client, unless it has given up.
fn welcome_client(connection: &Connection) -> Option<Role> {
    let hello = connection.receive(TEST_TIMEOUT).ok()??;
    let Message::Hello { role, .. } = hello.message else { return None };
    let welcome = Message::Welcome { version: VERSIONS.1, daemon: 1 };
    connection.send(hello.request, &welcome, &[], TEST_TIMEOUT).ok()?;
    if role == Role::Consumer {
        let request = connection.receive(TEST_TIMEOUT).ok()??.request;
        let refusal = Message::Refused {
            status: Status::ERROR_WMI_INSTANCE_NOT_FOUND.0,
            reason: "no such session".to_owned(),
        };
        connection.send(request, &refusal, &[], TEST_TIMEOUT).ok()?;
    }
    Some(role)
}

#[test]
fn controllers_and_consumers_of_daemon_user_do_not_need_the_shared_socket() {
    let DaemonSockets { runner, own, shared } = DaemonSockets::open();
    let runtime = runner.runtime();
    // Fills the queue of the shared socket, as other users could.
    let _queue = FullQueue::new(&shared, &RuntimeDir::from_path(&runtime).control_socket());
    let daemon = WelcomingDaemon::start(own, None);
    let controller =
        eventually("the controller finds the daemon", || Controller::find_at(&runtime).ok().flatten());
    assert_eq!(
        controller.socket(),
        runtime.join("control.sock"),
        "the controller does not show the path of the shared socket"
    );
    until("the daemon answers the consumer", || {
        let refusal = Trace::live_at(&runtime, "no session").unwrap_err();
        refusal.status() == Status::ERROR_WMI_INSTANCE_NOT_FOUND
    });
    let roles = daemon.end();
    assert!(roles.contains(&Role::Controller) && roles.contains(&Role::Consumer), "{roles:?}");
}

#[test]
fn controller_uses_shared_socket_if_that_of_the_daemon_user_is_stale_or_closed() {
    for is_stale in [true, false] {
        let DaemonSockets { runner, own, shared } = DaemonSockets::open();
        // A daemon that exits closes connections without an answer.
        let daemon = WelcomingDaemon::start(shared, (!is_stale).then_some(own));
        eventually("the controller finds the daemon", || {
            Controller::find_at(&runner.runtime()).ok().flatten()
        });
        assert!(daemon.end().contains(&Role::Controller), "stale: {is_stale}");
    }
}
