//! Tests of the loop: the test itself runs the turns, and so decides when messages are read.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use rustix::process::{Gid, Uid};
use tempfile::TempDir;
use traceweir_format::Guid;
use traceweir_format::spec::session::EVENT_TRACE_REAL_TIME_MODE;
use traceweir_format::spec::status::Status;
use traceweir_transport::message::{
    Control, EnableCode, Message, Properties, Role, SessionConfig, SessionRef, VERSIONS,
};
use traceweir_transport::runtime::Scope;
use traceweir_transport::socket::Connection;

use super::*;
use crate::limits::MAX_LINKS_BEFORE_HELLO_PER_GUEST;
use crate::skip::holds_or_skip;

/// Time after which a test that hangs fails.
const TIME_LIMIT: Duration = Duration::from_secs(120);
const ANN: u32 = 64_311;
const BOB: u32 = 64_312;
/// The provider that sessions enable.
const PROVIDER: Guid = Guid::from_u128(0x1234_5678_9ABC_DEF0);

// Environment variables for this program when it runs again as a client: the socket to connect to,
// the user to act as, and the number of connections to make.
const SOCKET: &str = "TRACEWEIR_TEST_SOCKET";
const USER: &str = "TRACEWEIR_TEST_USER";
const CONNECTIONS: &str = "TRACEWEIR_TEST_CONNECTIONS";

fn hello_message(role: Role, instance: u64) -> Message {
    Message::Hello { versions: VERSIONS, role, instance, program: "test".into() }
}

fn register_message(registration: u32, provider: Guid) -> Message {
    Message::Register { registration, provider, traits: Vec::new(), classic: false }
}

fn is_root() -> bool {
    holds_or_skip(rustix::process::geteuid().is_root(), "root", "acting as other users needs root")
}

/// Runs `work` on a thread that acts as this user.
fn act_as<T: Send>(uid: u32, work: impl FnOnce() -> T + Send) -> T {
    let work = move || {
        if uid != rustix::process::geteuid().as_raw() {
            let (user, group) = (Uid::from_raw(uid), Gid::from_raw(uid));
            rustix::thread::set_thread_groups(&[]).unwrap();
            rustix::thread::set_thread_res_gid(group, group, group).unwrap();
            rustix::thread::set_thread_res_uid(user, user, user).unwrap();
        }
        work()
    };
    std::thread::scope(|scope| scope.spawn(work).join().unwrap())
}

/// A server whose turns the test runs.
struct TestServer {
    server: Server,
    runtime: RuntimeDir,
    controller: Connection,
    last_request: u32,
    _stopper: Stopper,
    _dir: TempDir,
}

impl TestServer {
    fn new(scope: Scope) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let mut runtime = RuntimeDir::from_path(&dir.path().join("run"));
        runtime.scope = scope;
        let served_folder = startup::ServedFolder::acquire(&runtime, None).unwrap();
        let stopper = Stopper::new().unwrap();
        let signals = startup::install_signal_handlers().unwrap();
        let server = Server::new(&runtime, served_folder, signals, &stopper, None, 8).unwrap();
        let controller = Connection::connect(&runtime.control_socket(), TIME_LIMIT).unwrap();
        let mut test_server =
            Self { server, runtime, controller, last_request: 0, _stopper: stopper, _dir: dir };
        assert!(matches!(test_server.request(&hello_message(Role::Controller, 0)), Message::Welcome { .. }));
        test_server
    }

    /// Runs turns until `get` returns a value.
    fn run_until<T>(&mut self, condition: &str, mut get: impl FnMut(&mut Self) -> Option<T>) -> T {
        let began = Instant::now();
        loop {
            self.server.apply_effects();
            if let Some(value) = get(self) {
                return value;
            }
            assert!(began.elapsed() < TIME_LIMIT, "time limit exceeded, waited until {condition}");
            self.server.run_turn(Some(Instant::now() + Duration::from_millis(5))).unwrap();
        }
    }

    fn receive(&mut self, connection: &Connection) -> Message {
        self.run_until("a message arrives", |_| connection.receive(Duration::ZERO).unwrap()).message
    }

    fn request(&mut self, message: &Message) -> Message {
        self.last_request += 1;
        self.controller.send(self.last_request, message, &[], TIME_LIMIT).unwrap();
        let answer = self.run_until("a reply arrives", |test_server| {
            test_server.controller.receive(Duration::ZERO).unwrap()
        });
        assert_eq!(answer.request, self.last_request);
        answer.message
    }

    fn request_properties(&mut self, message: &Message) -> Properties {
        match self.request(message) {
            Message::Properties(properties) => *properties,
            other => panic!("{other:?}"),
        }
    }

    fn start_session(&mut self, name: &str) -> u64 {
        let (name, log_file_mode) = (name.into(), EVENT_TRACE_REAL_TIME_MODE);
        let config = SessionConfig { name, log_file_mode, ..SessionConfig::default() };
        self.request_properties(&Message::Start(Box::new(config))).id
    }

    fn enable_provider(&mut self, session: u64) {
        let call = Message::EnableProvider {
            session: SessionRef::Id(session),
            provider: PROVIDER,
            code: EnableCode::Enable,
            params: Box::default(),
            name: String::new(),
            timeout_ms: 0,
        };
        assert_eq!(self.request(&call), Message::Done);
    }

    fn query_uncounted_processes(&mut self, session: u64) -> u32 {
        let query = Message::Control { session: SessionRef::Id(session), control: Control::Query };
        self.request_properties(&query).uncounted_processes
    }

    /// Runs turns until this many connections were accepted since `before`, and only the
    /// controller's is left.
    fn run_until_alone(&mut self, before: LinkId, accepted: u64) {
        self.run_until("all connections end", |test_server| {
            let is_done =
                test_server.server.last_link >= before + accepted && test_server.server.links.len() == 1;
            is_done.then_some(())
        });
    }

    fn connect(&self, uid: u32) -> Connection {
        let socket = self.runtime.control_socket();
        act_as(uid, move || Connection::connect(&socket, TIME_LIMIT).unwrap())
    }

    fn count_links_of(&self, uid: u32) -> usize {
        self.server.links.values().filter(|link| link.peer().uid == uid).count()
    }

    /// Runs `test` in another process, as a client that ends before the server accepts it.
    fn run_client(&self, test: &str, uid: u32, connections: usize) {
        let mut client = Command::new(std::env::current_exe().unwrap());
        client.args(["--exact", &format!("server::tests::{test}")]);
        client.env(SOCKET, self.runtime.control_socket());
        client.env(USER, uid.to_string()).env(CONNECTIONS, connections.to_string());
        // Waits for the end, so that the process is reaped.
        let ended = client.output().unwrap();
        assert!(ended.status.success(), "{ended:?}");
    }
}

/// Acts as the client that [`TestServer::run_client`] started, if this process is one: it registers
/// the provider of the session. On each of several connections, it registers 200 others first.
fn run_as_client() -> bool {
    let Some(socket) = std::env::var_os(SOCKET) else { return false };
    let number = |variable: &str| std::env::var(variable).unwrap().parse::<u32>().unwrap();
    let (uid, count) = (number(USER), number(CONNECTIONS));
    act_as(uid, move || {
        for instance in 0..count {
            let connection = Connection::connect(Path::new(&socket), TIME_LIMIT).unwrap();
            let send = |message: &Message| connection.send(1, message, &[], Duration::ZERO).unwrap();
            send(&hello_message(Role::Provider, instance.into()));
            let other_count = if count == 1 { 0 } else { 200 };
            for registration in 0..other_count {
                send(&register_message(registration, Guid::from_u128(7)));
            }
            send(&register_message(other_count, PROVIDER));
        }
    });
    true
}

#[test]
fn process_that_ended_before_it_was_accepted_is_counted() {
    if run_as_client() {
        return;
    }
    let mut test_server = TestServer::new(Scope::Named);
    let session = test_server.start_session("s");
    test_server.enable_provider(session);
    let before = test_server.server.last_link;
    let own_uid = rustix::process::geteuid().as_raw();
    test_server.run_client("process_that_ended_before_it_was_accepted_is_counted", own_uid, 1);
    test_server.run_until_alone(before, 1);
    assert_eq!(test_server.query_uncounted_processes(session), 1);
}

#[test]
fn ended_guests_are_counted_however_much_they_sent() {
    if run_as_client() || !is_root() {
        return;
    }
    let mut test_server = TestServer::new(Scope::System);
    let session = test_server.start_session("s");
    test_server.enable_provider(session);
    let before = test_server.server.last_link;
    let run_client = |uid, connections| {
        let name = "ended_guests_are_counted_however_much_they_sent";
        test_server.run_client(name, uid, connections);
    };
    // Five processes of Ann with 8 connections each, the most that a process may have, and one of
    // Bob with a single connection: 41.
    for _ in 0..5 {
        run_client(ANN, 8);
    }
    run_client(BOB, 1);
    test_server.run_until_alone(before, 41);
    assert_eq!(test_server.query_uncounted_processes(session), 41);
}

#[test]
fn refused_process_is_counted_once_in_sessions_that_enable_providers() {
    if !is_root() {
        return;
    }
    let mut test_server = TestServer::new(Scope::System);
    let session = test_server.start_session("s");
    let session_without_providers = test_server.start_session("without providers");
    test_server.enable_provider(session);
    let mut silent: Vec<Connection> =
        (0..MAX_LINKS_BEFORE_HELLO_PER_GUEST).map(|_| test_server.connect(ANN)).collect();
    while test_server.count_links_of(ANN) < MAX_LINKS_BEFORE_HELLO_PER_GUEST {
        test_server.server.accept_all();
    }
    // The silent connections must not expire, even on a slow machine.
    let ids = test_server.server.links.keys().copied();
    let silent_ids: Vec<LinkId> = ids.filter(|id| test_server.server.service.is_before_hello(*id)).collect();
    for id in silent_ids {
        test_server.server.expect_within(id, Some(TIME_LIMIT));
    }
    for _ in 0..5 {
        let refused = test_server.connect(ANN);
        let answer = test_server.receive(&refused);
        let Message::Refused { status, .. } = answer else { panic!("{answer:?}") };
        assert_eq!(Status(status), Status::ERROR_NO_SYSTEM_RESOURCES);
    }
    assert_eq!(
        [session, session_without_providers].map(|id| test_server.query_uncounted_processes(id)),
        [1, 0],
        "all refused connections are of one process"
    );
    let connection_of_bob = test_server.connect(BOB);
    connection_of_bob.send(1, &hello_message(Role::Provider, 1), &[], TIME_LIMIT).unwrap();
    assert!(
        matches!(test_server.receive(&connection_of_bob), Message::Welcome { .. }),
        "another user is not limited"
    );
    silent.clear();
    test_server.run_until("all connections of Ann are dropped", |test_server| {
        (test_server.count_links_of(ANN) == 0).then_some(())
    });
    let admitted = test_server.connect(ANN);
    admitted.send(1, &hello_message(Role::Provider, 2), &[], TIME_LIMIT).unwrap();
    assert!(matches!(test_server.receive(&admitted), Message::Welcome { .. }));
    assert_eq!(test_server.query_uncounted_processes(session), 1);
}

#[test]
fn guest_with_unread_hellos_is_not_refused() {
    if !is_root() {
        return;
    }
    let mut test_server = TestServer::new(Scope::System);
    let connections: Vec<Connection> = (0..MAX_LINKS_BEFORE_HELLO_PER_GUEST as u64 + 30)
        .map(|instance| {
            let connection = test_server.connect(ANN);
            connection.send(1, &hello_message(Role::Provider, instance), &[], TIME_LIMIT).unwrap();
            connection
        })
        .collect();
    let mut welcome = 0;
    for connection in &connections {
        match test_server.receive(connection) {
            Message::Welcome { .. } => welcome += 1,
            Message::Refused { reason, .. } => assert_eq!(reason, "this process has too many connections"),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(welcome, crate::limits::MAX_LINKS_OF_PROCESS);
}

#[test]
fn message_that_came_in_time_is_read_after_the_deadline() {
    let mut test_server = TestServer::new(Scope::Named);
    let connection = test_server.connect(rustix::process::geteuid().as_raw());
    let silent = test_server.connect(rustix::process::geteuid().as_raw());
    test_server.server.accept_all();
    let last = test_server.server.last_link;
    connection.send(1, &hello_message(Role::Consumer, 1), &[], TIME_LIMIT).unwrap();
    test_server.server.tick(Instant::now() + 2 * LINK_TIMEOUT);
    assert!(test_server.server.service.is_introduced(last - 1));
    assert!(!test_server.server.links.contains_key(&last), "a link that has sent nothing is dropped");
    drop(silent);
}
