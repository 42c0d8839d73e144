//! A daemon for one test, and the clients that speak to it.

use std::fs::{File, OpenOptions};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tempfile::TempDir;
use traceweir_daemon::Options;
use traceweir_format::Guid;
use traceweir_format::etl::{Trace, check};
use traceweir_format::header::event::EventHeader;
use traceweir_format::spec::session::{EVENT_TRACE_FILE_MODE_SEQUENTIAL, EVENT_TRACE_REAL_TIME_MODE};
use traceweir_format::spec::status::Status;
use traceweir_transport::Error;
use traceweir_transport::message::{
    Control, EnableCode, EnableParams, Message, Properties, Role, SessionConfig, SessionRef, VERSIONS,
};
use traceweir_transport::ring::{Gather, Outlet, RegionSource};
use traceweir_transport::runtime::{RuntimeDir, Scope};
use traceweir_transport::socket::{Connection, Envelope};

#[path = "../../../../tests/support/daemon_thread.rs"]
mod daemon_thread;
#[path = "../../../../tests/support/retry.rs"]
mod retry;
#[path = "../../../../tests/support/skip.rs"]
mod skip;
#[path = "../../../../tests/support/wait.rs"]
mod wait;

use daemon_thread::DaemonThread;
pub(crate) use retry::retry_alternately_with_busy_processors;
pub(crate) use skip::{holds_or_skip, skip};
pub(crate) use wait::{TEST_TIMEOUT, eventually, until};

pub(crate) const ACCESS_DENIED: Status = Status::ERROR_ACCESS_DENIED;
pub(crate) const ACTIVE_CONNECTIONS: Status = Status::ERROR_ACTIVE_CONNECTIONS;
pub(crate) const ALREADY_EXISTS: Status = Status::ERROR_ALREADY_EXISTS;
pub(crate) const BAD_PATHNAME: Status = Status::ERROR_BAD_PATHNAME;
pub(crate) const DISK_FULL: Status = Status::ERROR_DISK_FULL;
pub(crate) const INVALID_FUNCTION: Status = Status::ERROR_INVALID_FUNCTION;
pub(crate) const INVALID_PARAMETER: Status = Status::ERROR_INVALID_PARAMETER;
pub(crate) const NO_SYSTEM_RESOURCES: Status = Status::ERROR_NO_SYSTEM_RESOURCES;
pub(crate) const PATH_NOT_FOUND: Status = Status::ERROR_PATH_NOT_FOUND;
pub(crate) const PRIVILEGE_NOT_HELD: Status = Status::ERROR_PRIVILEGE_NOT_HELD;
pub(crate) const SUCCESS: Status = Status::ERROR_SUCCESS;
pub(crate) const TIMEOUT: Status = Status::ERROR_TIMEOUT;
pub(crate) const WMI_GUID_NOT_FOUND: Status = Status::ERROR_WMI_GUID_NOT_FOUND;
pub(crate) const WMI_INSTANCE_NOT_FOUND: Status = Status::ERROR_WMI_INSTANCE_NOT_FOUND;

/// The provider of most tests.
pub(crate) const PROVIDER: Guid = Guid::from_u128(0x1234_5678_9ABC_DEF0);

pub(crate) struct Daemon {
    thread: DaemonThread,
    dir: TempDir,
}

impl Daemon {
    /// Starts a daemon that does not exit when it is idle.
    pub(crate) fn start() -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), |_| {})
    }

    /// Starts a daemon in this folder, with changed options.
    pub(crate) fn start_in(dir: TempDir, change: impl FnOnce(&mut Options)) -> Self {
        let runtime = RuntimeDir::from_path(&dir.path().join("run"));
        let mut options = Options::new(runtime);
        change(&mut options);
        Self { thread: DaemonThread::start(options), dir }
    }

    pub(crate) fn runtime(&self) -> RuntimeDir {
        RuntimeDir::from_path(&self.dir.path().join("run"))
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn connection(&self) -> Connection {
        Connection::connect(&self.runtime().control_socket(), TEST_TIMEOUT).unwrap()
    }

    pub(crate) fn controller(&self) -> Client {
        Client::connect_as(self.connection(), Role::Controller)
    }

    pub(crate) fn provider(&self) -> Client {
        Client::connect_as(self.connection(), Role::Provider)
    }

    pub(crate) fn consumer(&self) -> Client {
        Client::connect_as(self.connection(), Role::Consumer)
    }

    /// Starts a daemon that serves all users, as the system daemon does, with its access lists in
    /// its own folder.
    pub(crate) fn start_for_all_users(dir: TempDir) -> Self {
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        Self::start_in(dir, |options| options.runtime.scope = Scope::System)
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.thread.has_ended()
    }

    /// Waits until the daemon has exited.
    pub(crate) fn wait(self) -> TempDir {
        self.thread.wait();
        self.dir
    }

    /// Stops the daemon and returns its folder.
    pub(crate) fn stop(self) -> TempDir {
        self.thread.request_stop();
        self.wait()
    }
}

pub(crate) struct Client {
    pub(crate) connection: Connection,
    last_request: u32,
}

pub(crate) fn hello_message(role: Role, instance: u64) -> Message {
    Message::Hello { versions: VERSIONS, role, instance, program: "test".into() }
}

/// Returns a new instance number, so that each client counts as a separate process.
pub(crate) fn new_instance() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed)
}

impl Client {
    pub(crate) fn new(connection: Connection) -> Self {
        Self { connection, last_request: 0 }
    }

    /// Sends `Hello` on a new connection; the daemon must admit the client.
    pub(crate) fn connect_as(connection: Connection, role: Role) -> Self {
        let mut client = Self::new(connection);
        let answer = client.request(hello_message(role, new_instance()));
        assert!(matches!(answer, Message::Welcome { .. }), "{answer:?}");
        client
    }

    /// Sends a message without waiting for a reply; returns the number of the request.
    pub(crate) fn send(&mut self, message: &Message) -> u32 {
        self.send_with(message, &[])
    }

    pub(crate) fn send_with(&mut self, message: &Message, files: &[&OwnedFd]) -> u32 {
        self.last_request += 1;
        let files: Vec<_> = files.iter().map(|file| file.as_fd()).collect();
        self.connection.send(self.last_request, message, &files, TEST_TIMEOUT).unwrap();
        self.last_request
    }

    pub(crate) fn receive_envelope(&mut self) -> Envelope {
        self.connection.receive(TEST_TIMEOUT).unwrap().expect("no message arrived")
    }

    pub(crate) fn receive(&mut self) -> Message {
        self.receive_envelope().message
    }

    /// Sends a request and receives its reply; nothing else may come between.
    pub(crate) fn request(&mut self, message: Message) -> Message {
        self.request_with(message, &[])
    }

    pub(crate) fn request_with(&mut self, message: Message, files: &[&OwnedFd]) -> Message {
        let request = self.send_with(&message, files);
        let envelope = self.receive_envelope();
        assert_eq!(envelope.request, request, "{:?}", envelope.message);
        envelope.message
    }

    /// Sends a request and returns the status of its reply.
    pub(crate) fn status(&mut self, message: Message) -> Status {
        status(&self.request(message))
    }

    /// Asserts that the daemon has closed the connection and sent nothing more.
    pub(crate) fn assert_closed(&mut self) {
        match self.connection.receive(TEST_TIMEOUT) {
            Err(Error::Closed) => {}
            other => panic!("not closed: {other:?}"),
        }
    }

    /// Asserts that nothing has arrived.
    pub(crate) fn assert_quiet(&mut self) {
        let received = self.connection.receive(Duration::from_millis(50)).unwrap();
        assert!(received.is_none(), "nothing was expected: {received:?}");
    }

    /// Sends a registration without waiting for its reply.
    pub(crate) fn register(&mut self, registration: u32, provider: Guid) {
        self.send(&Message::Register { registration, provider, traits: Vec::new(), classic: false });
    }

    /// Registers a provider; the daemon must answer without enabling it.
    pub(crate) fn register_unenabled(&mut self, registration: u32, provider: Guid) {
        self.register(registration, provider);
        assert_eq!(self.receive(), Message::Registered { registration });
    }

    pub(crate) fn acknowledge(&mut self, order: u32) {
        self.connection.send(0, &Message::Ack { order }, &[], TEST_TIMEOUT).unwrap();
    }

    /// Receives an `Enable` of exactly one registration.
    pub(crate) fn receive_enable(&mut self) -> EnableMessage {
        let message = self.receive_enables();
        assert_eq!(message.registrations.len(), 1, "the message is not for one registration: {message:?}");
        message
    }

    pub(crate) fn receive_enables(&mut self) -> EnableMessage {
        match self.receive() {
            Message::Enable { order, registrations, session, code, params } => {
                EnableMessage { order, registrations, session, code, params: *params }
            }
            other => panic!("no enable: {other:?}"),
        }
    }

    /// Receives a `Region` with its two descriptors.
    pub(crate) fn receive_region(&mut self, session: u64) -> Region {
        let mut envelope = self.receive_envelope();
        let Message::Region { session: id, params } = envelope.message else {
            panic!("no region: {:?}", envelope.message)
        };
        assert_eq!(id, session);
        assert_eq!(envelope.descriptors.len(), 2);
        let wake = envelope.descriptors.pop().unwrap();
        let memory = envelope.descriptors.pop().unwrap();
        Region { params, memory, wake }
    }

    /// Receives a `CloseSession`; returns its order.
    pub(crate) fn receive_close(&mut self, session: u64) -> u32 {
        match self.receive() {
            Message::CloseSession { order, session: id } if id == session => order,
            other => panic!("no close: {other:?}"),
        }
    }

    pub(crate) fn start(&mut self, config: SessionConfig) -> Properties {
        let file = config.log_file.as_deref().map(open_log_file);
        let files: Vec<&OwnedFd> = file.iter().collect();
        expect_properties(self.request_with(Message::Start(Box::new(config)), &files))
    }

    pub(crate) fn control(&mut self, session: u64, control: Control) -> Message {
        self.request(Message::Control { session: SessionRef::Id(session), control })
    }

    pub(crate) fn query(&mut self, session: u64) -> Properties {
        expect_properties(self.control(session, Control::Query))
    }

    pub(crate) fn stop(&mut self, session: u64) -> Properties {
        expect_properties(self.control(session, Control::Stop))
    }

    pub(crate) fn enable(&mut self, session: u64, provider: Guid) {
        assert_eq!(self.request(enable_message(session, provider, EnableCode::Enable, 0)), Message::Done);
    }

    pub(crate) fn disable(&mut self, session: u64, provider: Guid) {
        assert_eq!(self.request(enable_message(session, provider, EnableCode::Disable, 0)), Message::Done);
    }
}

/// The fields of an `Enable` message.
#[derive(Debug, PartialEq)]
pub(crate) struct EnableMessage {
    pub(crate) order: u32,
    pub(crate) registrations: Vec<u32>,
    pub(crate) session: u64,
    pub(crate) code: EnableCode,
    pub(crate) params: EnableParams,
}

impl EnableMessage {
    pub(crate) fn registration(&self) -> u32 {
        self.registrations[0]
    }
}

/// The region that a process receives for a session.
pub(crate) struct Region {
    pub(crate) params: traceweir_transport::abi::RegionParams,
    pub(crate) memory: OwnedFd,
    pub(crate) wake: OwnedFd,
}

pub(crate) fn enable_message(session: u64, provider: Guid, code: EnableCode, timeout_ms: u32) -> Message {
    enable_message_with(session, provider, code, EnableParams::default(), timeout_ms)
}

pub(crate) fn enable_message_with(
    session: u64,
    provider: Guid,
    code: EnableCode,
    params: EnableParams,
    timeout_ms: u32,
) -> Message {
    let params = Box::new(params);
    Message::EnableProvider {
        session: SessionRef::Id(session),
        provider,
        code,
        params,
        name: String::new(),
        timeout_ms,
    }
}

/// Returns the status of a reply: that of a refusal, else success.
pub(crate) fn status(message: &Message) -> Status {
    match message {
        Message::Refused { status, .. } => Status(*status),
        _ => Status::ERROR_SUCCESS,
    }
}

pub(crate) fn expect_properties(message: Message) -> Properties {
    match message {
        Message::Properties(properties) => *properties,
        other => panic!("no properties: {other:?}"),
    }
}

/// Opens a log file as a controller does.
pub(crate) fn open_log_file(path: &Path) -> OwnedFd {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap().into()
}

pub(crate) fn file_config(name: &str, path: &Path) -> SessionConfig {
    SessionConfig {
        log_file_mode: EVENT_TRACE_FILE_MODE_SEQUENTIAL,
        log_file: Some(path.into()),
        ..real_time_config(name)
    }
}

pub(crate) fn real_time_config(name: &str) -> SessionConfig {
    SessionConfig {
        name: name.into(),
        log_file_mode: EVENT_TRACE_REAL_TIME_MODE,
        buffer_size: 64,
        minimum_buffers: 4,
        ..SessionConfig::default()
    }
}

/// Counts the events of [`PROVIDER`] in a trace that must be finalised and valid.
pub(crate) fn count_events_of_finalised_file(path: &Path) -> usize {
    let trace = Trace::open(File::open(path).unwrap()).unwrap();
    assert!(trace.is_finalised(), "{} is not finalised", path.display());
    check(&trace, &mut |finding| panic!("{}: {finding:?}", path.display())).unwrap();
    let mut events = trace.events();
    let mut count: usize = 0;
    while let Some(event) = events.next().unwrap() {
        count += usize::from(event.provider() == PROVIDER);
    }
    count
}

/// Writes events of [`PROVIDER`] as a process does; returns how many were lost.
pub(crate) fn write_events(region: Region, count: usize) -> usize {
    // An outlet is never freed, because a writer may access it at any time.
    let outlet: &'static Outlet = Box::leak(Box::default());
    let source = RegionSource::File { memory: region.memory, wake: region.wake };
    let ticket = outlet.open(source, &region.params).unwrap();
    let mut record = Vec::new();
    let header = EventHeader { pointer_size: 8, provider: PROVIDER, thread_id: 1, ..EventHeader::default() };
    header.encode(b"payload!", &mut record).unwrap();
    let thread = 1;
    let mut lost = 0;
    for _ in 0..count {
        // Two words for the prefix of the record.
        let mut staged = vec![0u64; 2];
        staged.extend(record.as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word)));
        let gather =
            &mut Gather { staged: &mut staged, staged_bytes: record.len(), further_parts: &[], flags: 0 };
        lost += usize::from(outlet.write(ticket, thread, gather).is_err());
    }
    assert!(outlet.close());
    lost
}

/// Returns the names of the ended sessions that the daemon lists, the latest first.
pub(crate) fn ended_names(controller: &mut Client) -> Vec<String> {
    match controller.request(Message::QueryEnded { from: 0 }) {
        Message::Sessions { sessions, .. } => {
            sessions.into_iter().map(|session| session.config.name).collect()
        }
        other => panic!("not a list of sessions: {other:?}"),
    }
}
