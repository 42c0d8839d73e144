//! How a daemon starts, is found, and exits.

use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use traceweir_daemon::{Error, Options, Stopper, run, run_until};
use traceweir_format::Guid;
use traceweir_format::tracelogging::TraitsBuilder;
use traceweir_transport::enabled;
use traceweir_transport::message::{EnableCode, Message, Role};
use traceweir_transport::ring::create_memory;
use traceweir_transport::runtime::{RuntimeDir, Scope};
use traceweir_transport::socket::{Connection, Listener};

use crate::util::*;

#[test]
fn second_daemon_of_a_folder_is_refused() {
    let daemon = Daemon::start();
    let options = Options { max_sessions: 1, ..Options::new(daemon.runtime()) };
    let error = run(options).unwrap_err();
    assert!(matches!(&error, Error::AlreadyRunning(path) if path == daemon.runtime().path()), "{error}");
    assert_eq!(error.status(), ALREADY_EXISTS);
    assert!(!daemon.has_ended());
    daemon.controller();
}

#[test]
fn stale_socket_is_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = RuntimeDir::from_path(&dir.path().join("run"));
    runtime.ensure().unwrap();
    drop(Listener::bind(&runtime.control_socket(), 0o600).unwrap());
    assert!(runtime.control_socket().exists());
    let daemon = Daemon::start_in(dir, |_| {});
    daemon.controller();
}

#[test]
fn stopped_daemon_leaves_no_socket_and_the_next_can_start() {
    let daemon = Daemon::start();
    let runtime = daemon.runtime();
    let mut client = daemon.controller();
    let dir = daemon.stop();
    assert!(!runtime.control_socket().exists());
    client.assert_closed();
    let daemon = Daemon::start_in(dir, |_| {});
    daemon.controller();
}

#[test]
fn socket_of_a_service_manager_is_served_and_kept() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = RuntimeDir::from_path(&dir.path().join("run"));
    runtime.ensure().unwrap();
    let socket = runtime.control_socket();
    let listener = Listener::bind(&socket, 0o600).unwrap().as_fd().try_clone_to_owned().unwrap();
    let daemon = Daemon::start_in(dir, |options| options.listener = Some(listener));
    daemon.controller();
    let _dir = daemon.stop();
    assert!(socket.exists(), "the daemon must not remove it");
}

#[test]
fn system_daemon_opens_its_own_users_socket_next_to_an_inherited_one() {
    if !holds_or_skip(rustix::process::geteuid().is_root(), "root", "the system daemon runs as root") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let runtime = RuntimeDir::from_path(&dir.path().join("run"));
    runtime.ensure().unwrap();
    // The folder was left by a daemon that was killed.
    let own_folder = runtime.make_own().unwrap();
    drop(Listener::bind(&own_folder.control_socket(), 0o600).unwrap());
    std::fs::write(own_folder.path().join("enabled"), "old").unwrap();
    let listener = Listener::bind(&runtime.control_socket(), 0o666).unwrap();
    let passed = listener.as_fd().try_clone_to_owned().unwrap();
    let daemon = Daemon::start_in(dir, |options| {
        options.runtime.scope = Scope::System;
        options.listener = Some(passed);
    });
    daemon.controller();
    assert!(!own_folder.path().join("enabled").exists(), "the file of the previous daemon is removed");
    let connection = Connection::connect(&own_folder.control_socket(), TEST_TIMEOUT).unwrap();
    let mut provider = Client::connect_as(connection, Role::Provider);
    let _dir = daemon.stop();
    provider.assert_closed();
    assert!(!own_folder.path().exists(), "the daemon removes its own folder");
    assert!(runtime.control_socket().exists(), "it belongs to the service manager");
    // A process that finds no socket of the daemon waits at the service manager's.
    Connection::connect(&runtime.control_socket(), TEST_TIMEOUT).unwrap();
}

#[test]
fn daemon_on_demand_gives_way_to_a_service_manager_once_its_sessions_have_ended() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = Daemon::start_in(dir, |options| options.idle_exit = Some(Duration::from_secs(3600)));
    let (runtime, mut controller) = (daemon.runtime(), daemon.controller());
    let session = controller.start(real_time_config("begun on demand")).id;

    // A service manager replaces the existing socket in this way.
    let (socket, manager_socket) = (runtime.control_socket(), daemon.path("manager.sock"));
    let listener = Listener::bind(&manager_socket, 0o600).unwrap().as_fd().try_clone_to_owned().unwrap();
    std::fs::rename(&manager_socket, &socket).unwrap();
    let stopper = Stopper::new().unwrap();
    let options = Options { listener: Some(listener), ..Options::new(runtime) };
    let second_stopper = stopper.clone();
    let second = std::thread::spawn(move || run_until(options, &second_stopper));
    // The connection waits in the queue of the service manager's socket.
    let waiting = Connection::connect(&socket, TEST_TIMEOUT).unwrap();
    assert_eq!(controller.query(session).id, session, "the session goes on");
    controller.stop(session);
    Client::connect_as(waiting, Role::Controller);
    let _dir = daemon.wait();
    assert!(socket.exists(), "it belongs to the service manager");
    stopper.stop();
    second.join().unwrap().unwrap();
}

#[test]
fn stopping_the_daemon_finalises_every_file() {
    let daemon = Daemon::start();
    let mut controller = daemon.controller();
    let mut provider = daemon.provider();
    provider.register_unenabled(1, PROVIDER);
    let paths: Vec<_> = (0..3).map(|i| daemon.path(&format!("{i}.etl"))).collect();
    let mut written = Vec::new();
    for (i, path) in paths.iter().enumerate() {
        let session = controller.start(file_config(&format!("s{i}"), path)).id;
        controller.enable(session, PROVIDER);
        let region = provider.receive_region(session);
        provider.receive_enable();
        written.push(100 + i - write_events(region, 100 + i));
    }
    // No process acknowledges; the daemon does not wait forever.
    let _dir = daemon.stop();
    assert_eq!(paths.iter().map(|path| count_events_of_finalised_file(path)).collect::<Vec<_>>(), written);
    controller.assert_closed();
}

/// Environment variable with the folder of the daemon that this program runs when it is started
/// again.
const FOLDER: &str = "TRACEWEIR_TEST_DAEMON_FOLDER";

#[test]
#[ignore = "the body of a daemon process that other tests start"]
fn daemon_process() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let runtime = RuntimeDir::from_path(std::path::Path::new(&folder));
    run(Options::new(runtime)).unwrap();
}

#[test]
fn signal_shuts_the_daemon_down_cleanly() {
    for signal in [Signal::TERM, Signal::INT] {
        let dir = tempfile::tempdir().unwrap();
        let runtime = RuntimeDir::from_path(&dir.path().join("run"));
        let mut daemon = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "life::daemon_process", "--ignored"])
            .env(FOLDER, runtime.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        until("the daemon answers", || Connection::connect(&runtime.control_socket(), TEST_TIMEOUT).is_ok());
        let connect = || Connection::connect(&runtime.control_socket(), TEST_TIMEOUT).unwrap();
        let mut controller = Client::connect_as(connect(), Role::Controller);
        let mut provider = Client::connect_as(connect(), Role::Provider);
        provider.register_unenabled(1, PROVIDER);
        let path = dir.path().join("log.etl");
        let session = controller.start(file_config("s", &path)).id;
        controller.enable(session, PROVIDER);
        let region = provider.receive_region(session);
        provider.receive_enable();
        assert_eq!(write_events(region, 500), 0);
        kill_process(Pid::from_child(&daemon), signal).unwrap();
        let order = provider.receive_close(session);
        provider.acknowledge(order);
        assert!(daemon.wait().unwrap().success());
        assert_eq!(count_events_of_finalised_file(&path), 500);
        assert!(!runtime.control_socket().exists());
    }
}

#[test]
fn idle_daemon_exits_despite_connected_providers() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = RuntimeDir::from_path(&dir.path().join("run"));
    runtime.ensure().unwrap();
    let listener = Listener::bind(&runtime.control_socket(), 0o600).unwrap();
    let passed = listener.as_fd().try_clone_to_owned().unwrap();
    // The provider is in the socket's queue before the daemon starts, so it is always served.
    let mut provider = Client::new(Connection::connect(&runtime.control_socket(), TEST_TIMEOUT).unwrap());
    provider.send(&hello_message(Role::Provider, new_instance()));
    provider.register(1, PROVIDER);
    let daemon = Daemon::start_in(dir, |options| {
        options.idle_exit = Some(Duration::from_millis(100));
        options.listener = Some(passed);
    });
    assert!(matches!(provider.receive(), Message::Welcome { .. }));
    assert_eq!(provider.receive(), Message::Registered { registration: 1 });
    daemon.wait();
    provider.assert_closed();
}

/// Accepts the knock of a daemon at the socket of a provider.
pub(crate) fn answer_knock(listener: &Listener, instance: u64) -> Client {
    let connection = eventually("a knock", || listener.accept().unwrap());
    connection.allow_descriptors().unwrap();
    let mut client = Client::new(connection);
    assert!(matches!(client.receive(), Message::Knock { .. }));
    assert!(matches!(client.request(hello_message(Role::Provider, instance)), Message::Welcome { .. }));
    client
}

#[test]
fn each_new_daemon_finds_running_providers() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = RuntimeDir::from_path(&dir.path().join("run"));
    runtime.ensure().unwrap();
    let listener = Listener::bind(&runtime.new_provider_socket(std::process::id()), 0o600).unwrap();
    let stale = runtime.new_provider_socket(1);
    drop(Listener::bind(&stale, 0o600).unwrap());
    let instance = new_instance();

    let mut dir = Some(dir);
    for _ in 0..2 {
        let daemon = Daemon::start_in(dir.take().unwrap(), |_| {});
        let mut provider = answer_knock(&listener, instance);
        provider.register_unenabled(1, PROVIDER);
        until("the stale socket is removed", || !stale.exists());
        let mut controller = daemon.controller();
        let session = controller.start(real_time_config("session")).id;
        controller.enable(session, PROVIDER);
        provider.receive_region(session);
        assert_eq!(provider.receive_enable().code, EnableCode::Enable);

        let mut second = Client::new(daemon.connection());
        assert_eq!(
            second.status(hello_message(Role::Provider, instance)),
            ALREADY_EXISTS,
            "the process is already connected"
        );
        second.assert_closed();
        dir = Some(daemon.stop());
        provider.receive_close(session);
        provider.assert_closed();
    }
}

/// Creates memory for a session as the daemon's file of enabled providers describes, and sends it.
fn offer_memory(process: &mut Client, runtime: &RuntimeDir) {
    let enables = enabled::read(runtime, rustix::process::geteuid().as_raw());
    let [enable] = &enables[..] else { panic!("{enables:?}") };
    let memory = create_memory(&enable.region).unwrap();
    let region = Message::Region { session: enable.session, params: enable.region };
    process.connection.send(0, &region, &[memory.as_fd()], TEST_TIMEOUT).unwrap();
}

#[test]
fn process_older_than_the_daemon_can_send_memory() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = RuntimeDir::from_path(&dir.path().join("run"));
    runtime.ensure().unwrap();
    let listener = Listener::bind(&runtime.new_provider_socket(std::process::id()), 0o600).unwrap();
    let daemon = Daemon::start_in(dir, |_| {});
    let mut process = answer_knock(&listener, new_instance());
    let mut controller = daemon.controller();
    let session = controller.start(real_time_config("session")).id;
    controller.enable(session, PROVIDER);
    offer_memory(&mut process, &runtime);
    process.register(1, PROVIDER);
    let envelope = process.receive_envelope();
    assert!(matches!(envelope.message, Message::Region { .. }), "{envelope:?}");
    assert_eq!(envelope.descriptors.len(), 1, "the session uses the memory that was sent");
}

#[test]
fn unwanted_offered_memory_is_dropped_without_loss() {
    const UNWANTED: Guid = Guid::from_u128(7);
    let daemon = Daemon::start();
    let mut controller = daemon.controller();
    let session = controller.start(real_time_config("session")).id;
    let mut process = daemon.provider();
    process.register_unenabled(1, UNWANTED);
    controller.enable(session, PROVIDER);
    offer_memory(&mut process, &daemon.runtime());
    let traits = TraitsBuilder::new("Nobody.Wants.This").finish().unwrap().to_vec();
    assert_eq!(process.request(Message::SetTraits { registration: 1, traits }), Message::Done);
    drop(process);
    until("the process is removed", || {
        controller.status(Message::QueryRegistrations { provider: UNWANTED, from: 0 }) == WMI_GUID_NOT_FOUND
    });
    assert_eq!(controller.query(session).uncounted_processes, 0);
}

#[test]
fn process_that_reconnects_at_once_is_not_refused_as_duplicate() {
    let daemon = Daemon::start();
    let instance = new_instance();
    for _ in 0..50 {
        let mut client = Client::new(daemon.connection());
        let answer = client.request(hello_message(Role::Provider, instance));
        assert!(matches!(answer, Message::Welcome { .. }), "{answer:?}");
        // Children that other tests fork have a copy of the descriptor until they execute a
        // program. Closing this one alone would not end the connection before that.
        rustix::net::shutdown(&client.connection, rustix::net::Shutdown::Both).unwrap();
    }
}

#[test]
fn unresponsive_provider_socket_delays_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = RuntimeDir::from_path(&dir.path().join("run"));
    runtime.ensure().unwrap();
    let listeners: Vec<_> =
        (1..5).map(|pid| Listener::bind(&runtime.new_provider_socket(pid), 0o600).unwrap()).collect();
    let daemon = Daemon::start_in(dir, |_| {});
    let mut controller = daemon.controller();
    let session = controller.start(real_time_config("session")).id;
    controller.stop(session);
    drop(listeners);
    Connection::connect(&daemon.runtime().control_socket(), TEST_TIMEOUT).unwrap();
}
