//! The socket that a daemon for all users offers to processes of its own user: which processes use
//! it, and when.

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
use traceweir_transport::enabled::{self, Enabled};
use traceweir_transport::message::{Message, Role, VERSIONS};
use traceweir_transport::runtime::RuntimeDir;
use traceweir_transport::socket::{Connection, Listener};

use crate::daemon::{Process, listen, params};
use crate::early::{DaemonProcess, EACH, OTHER, session};
use crate::late::FullQueue;
use crate::skip::can;
use crate::{PATIENCE, PROVIDER, Scenario, Stage, event, eventually, mark, until, wait_for_mark};

pub(crate) const SCENARIOS: &[Scenario] =
    &[("one before and one after", one_before_and_one_after), ("register and stay", register_and_stay)];

/// The sockets of a stopped daemon for all users: the one for its own user, and the one for all.
struct Sockets {
    stage: Stage,
    own: Listener,
    shared: Listener,
}

impl Sockets {
    /// Opens the sockets, and writes a file that enables the providers of the scenarios.
    fn open() -> Self {
        let stage = Stage::new();
        let shared = listen(&stage.runtime());
        let folder = RuntimeDir::from_path(&stage.runtime()).make_own().unwrap();
        let own = Listener::bind(&folder.control_socket(), 0o600).unwrap();
        own.take_descriptors().unwrap();
        let enable = |target| Enabled {
            target,
            name: String::new(),
            session: 7,
            region: params(),
            params: EnableParams::default(),
        };
        enabled::write(&folder, &[enable(PROVIDER), enable(OTHER)]).unwrap();
        Self { stage, own, shared }
    }

    fn folder(&self) -> std::path::PathBuf {
        self.stage.runtime().join("own")
    }
}

#[test]
fn process_of_daemon_user_sends_region_before_daemon_accepts() {
    let sockets = Sockets::open();
    sockets.stage.spawn("write and end").succeeded();
    let connection = eventually("a connection", || sockets.own.accept().unwrap());
    let next = || connection.receive(PATIENCE).unwrap().unwrap();
    assert!(matches!(next().message, Message::Hello { role: Role::Provider, .. }));
    let region = next();
    assert!(matches!(region.message, Message::Region { session: 7, .. }), "{region:?}");
    assert_eq!(region.descriptors.len(), 1);
    assert!(matches!(next().message, Message::Register { provider: PROVIDER, .. }));
    assert!(sockets.shared.accept().unwrap().is_none(), "one connection is enough");
}

#[test]
fn folder_open_to_other_users_is_not_used() {
    let is_root = can(rustix::process::geteuid().is_root(), "root", "giving files away takes root");
    let foreign: fn(&Path) = |folder| chown(folder, Some(64_123), None).unwrap();
    let open: fn(&Path) = |folder| fs::set_permissions(folder, PermissionsExt::from_mode(0o710)).unwrap();
    let link: fn(&Path) = |folder| {
        let elsewhere = folder.with_file_name("elsewhere");
        fs::rename(folder, &elsewhere).unwrap();
        symlink(elsewhere, folder).unwrap();
    };
    let changes = [("open to a group", open), ("a link", link), ("of another user", foreign)];
    for (name, change) in &changes[..if is_root { 3 } else { 2 }] {
        let sockets = Sockets::open();
        change(&sockets.folder());
        // The scenario asserts that nothing is enabled.
        sockets.stage.spawn("register and end").succeeded();
        assert!(sockets.own.accept().unwrap().is_none(), "{name}");
        let connection = eventually("a connection", || sockets.shared.accept().unwrap());
        let next = || connection.receive(PATIENCE).unwrap().unwrap().message;
        assert!(matches!(next(), Message::Hello { .. }), "{name}");
        assert!(matches!(next(), Message::Register { provider: PROVIDER, .. }), "{name}");
    }
}

#[test]
fn process_not_accepted_by_exiting_daemon_uses_shared_socket() {
    let Sockets { stage, own, shared } = Sockets::open();
    let scenario = stage.spawn("register and stay");
    wait_for_mark(stage.folder.path(), "registered");
    assert!(shared.accept().unwrap().is_none(), "the process waits at the daemon user's socket");
    // A daemon that exits does the same.
    RuntimeDir::from_path(&stage.runtime()).remove_own();
    drop(own);
    let mut process = Process::accept(&shared);
    let registration = process.await_register();
    process.answer(&Message::Registered { registration });
    mark(stage.folder.path(), "done");
    scenario.succeeded();
}

#[test]
fn stale_socket_of_killed_daemon_leads_to_shared_socket() {
    let Sockets { stage, own, shared } = Sockets::open();
    drop(own);
    // The scenario asserts that nothing is enabled, whatever the file of the killed daemon
    // contains.
    stage.spawn("register and end").succeeded();
    let connection = eventually("a connection", || shared.accept().unwrap());
    let next = || connection.receive(PATIENCE).unwrap().unwrap().message;
    assert!(matches!(next(), Message::Hello { .. }));
    assert!(matches!(next(), Message::Register { provider: PROVIDER, .. }));
}

fn register_and_stay(folder: &Path) {
    let _provider = Provider::register(PROVIDER, None).unwrap();
    mark(folder, "registered");
    wait_for_mark(folder, "done");
}

#[test]
fn process_found_by_daemon_loses_no_event_while_daemon_is_stopped() {
    found_and_stopped(Scope::Named);
}

#[test]
fn root_process_found_by_system_daemon_loses_no_event_while_it_is_stopped() {
    if can(rustix::process::geteuid().is_root(), "root", "the system's daemon is root's") {
        found_and_stopped(Scope::System);
    }
}

/// Starts the process before the daemon, which then connects to it.
fn found_and_stopped(scope: Scope) {
    let stage = Stage::new();
    let scenario = stage.spawn("one before and one after");
    wait_for_mark(stage.folder.path(), "registered");
    let mut daemon_process = DaemonProcess::start_on(stage, scope);
    until("the daemon has found the process", || {
        let providers = daemon_process.controller.provider_entries().unwrap();
        providers.iter().any(|provider| provider.provider == PROVIDER && !provider.pids.is_empty())
    });
    daemon_process
        .controller
        .enable(&session(), OTHER, EnableCode::Enable, &EnableParams::default(), 0)
        .unwrap();
    // The process has no region left, so the next registration creates one.
    daemon_process
        .controller
        .enable(&session(), PROVIDER, EnableCode::Disable, &EnableParams::default(), 5000)
        .unwrap();
    daemon_process.stop_daemon();
    mark(daemon_process.stage.folder.path(), "stopped");
    scenario.succeeded();
    daemon_process.signal(Signal::CONT);
    until("all events are collected or counted", || {
        let properties = daemon_process.controller.query(&session()).unwrap();
        properties.events + properties.events_lost + u64::from(properties.uncounted_processes) * EACH >= EACH
    });
    let properties = daemon_process.controller.query(&session()).unwrap();
    assert_eq!((properties.events, properties.events_lost), (EACH, 0), "{properties:?}");
    assert_eq!(properties.uncounted_processes, 0);
    // The events of the other provider are not counted here.
    assert_eq!(daemon_process.end(EACH), (0, 0));
}

fn one_before_and_one_after(folder: &Path) {
    let _first = Provider::register(PROVIDER, None).unwrap();
    mark(folder, "registered");
    wait_for_mark(folder, "stopped");
    let other = Provider::register(OTHER, None).unwrap();
    assert!(other.enabled(4, 0), "enabled by the daemon's file");
    for n in 0..EACH {
        other.write(&event(1), &[&n.to_le_bytes()]).unwrap();
    }
}

/// Plays a daemon on a thread until it is dropped: welcomes controllers and consumers, and knows no
/// session.
struct Welcoming {
    is_over: Arc<AtomicBool>,
    served: Option<JoinHandle<Vec<Role>>>,
}

impl Welcoming {
    /// Answers the connections of a listener, and closes those of another one.
    fn start(listener: Listener, closed: Option<Listener>) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let until = is_over.clone();
        let served = std::thread::spawn(move || {
            let mut roles = Vec::new();
            while !until.load(Ordering::SeqCst) {
                drop(closed.as_ref().map(Listener::accept));
                match listener.accept().unwrap() {
                    Some(connection) => roles.extend(answer(&connection)),
                    None => std::thread::sleep(Duration::from_millis(5)),
                }
            }
            roles
        });
        Self { is_over, served: Some(served) }
    }

    /// Ends the daemon, and returns the roles of the clients that it has answered.
    fn end(mut self) -> Vec<Role> {
        self.is_over.store(true, Ordering::SeqCst);
        self.served.take().unwrap().join().unwrap()
    }
}

impl Drop for Welcoming {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
    }
}

/// Answers a client, unless it has given up.
fn answer(connection: &Connection) -> Option<Role> {
    let hello = connection.receive(PATIENCE).ok()??;
    let Message::Hello { role, .. } = hello.message else { return None };
    let welcome = Message::Welcome { version: VERSIONS.1, daemon: 1 };
    connection.send(hello.request, &welcome, &[], PATIENCE).ok()?;
    if role == Role::Consumer {
        let request = connection.receive(PATIENCE).ok()??.request;
        let refusal = Message::Refused { status: 4201, reason: "no such session".to_owned() };
        connection.send(request, &refusal, &[], PATIENCE).ok()?;
    }
    Some(role)
}

#[test]
fn controllers_and_consumers_of_daemon_user_do_not_need_the_shared_socket() {
    let Sockets { stage, own, shared } = Sockets::open();
    let runtime = stage.runtime();
    // Other users can do the same.
    let _queue = FullQueue::new(&shared, &RuntimeDir::from_path(&runtime).control_socket());
    let daemon = Welcoming::start(own, None);
    let controller = eventually("a daemon", || Controller::find_at(&runtime).ok().flatten());
    assert_eq!(controller.socket(), runtime.join("control.sock"), "the name of the daemon for people");
    until("an answer to a consumer", || {
        let refusal = Trace::live_at(&runtime, "no session").unwrap_err();
        refusal.status() == Status::ERROR_WMI_INSTANCE_NOT_FOUND
    });
    let roles = daemon.end();
    assert!(roles.contains(&Role::Controller) && roles.contains(&Role::Consumer), "{roles:?}");
}

#[test]
fn controller_uses_shared_socket_if_that_of_the_daemon_user_is_stale_or_closed() {
    for is_stale in [true, false] {
        let Sockets { stage, own, shared } = Sockets::open();
        // A daemon that exits closes connections without an answer.
        let daemon = Welcoming::start(shared, (!is_stale).then_some(own));
        eventually("a daemon", || Controller::find_at(&stage.runtime()).ok().flatten());
        assert!(daemon.end().contains(&Role::Controller), "{is_stale}");
    }
}
