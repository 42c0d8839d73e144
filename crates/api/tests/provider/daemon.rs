//! A daemon that the test plays message by message, and a real one.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use traceweir::controller::{Controller, EnableCode, EnableParams};
use traceweir::{Guid, Status};
use traceweir_daemon::Options;
use traceweir_format::header::Record;
use traceweir_transport::abi::{Layout, RegionParams};
use traceweir_transport::clock::Counter;
use traceweir_transport::cpu;
use traceweir_transport::message::{Message, Role, VERSIONS};
use traceweir_transport::ring::RegionReader;
use traceweir_transport::runtime::RuntimeDir;
use traceweir_transport::socket::{Connection, Listener};

use crate::daemon_thread::DaemonThread;
use crate::{TEST_TIMEOUT, eventually};

/// A real daemon in a thread of this process.
pub(crate) struct RealDaemon {
    pub(crate) controller: Controller,
    _daemon: DaemonThread,
}

impl RealDaemon {
    pub(crate) fn start(runtime: &Path) -> Self {
        let options = Options { reserve_mb: 0, ..Options::new(RuntimeDir::from_path(runtime)) };
        let daemon = DaemonThread::start(options);
        let controller = Controller::find_at(runtime).unwrap().expect("the daemon does not answer");
        Self { controller, _daemon: daemon }
    }
}

/// Listens on the control socket of a daemon.
pub(crate) fn listen(runtime: &Path) -> Listener {
    let dir = RuntimeDir::from_path(runtime);
    dir.ensure().unwrap();
    Listener::bind(&dir.control_socket(), 0o600).unwrap()
}

/// Returns the parameters of the regions that these tests create.
pub(crate) fn region_params() -> RegionParams {
    RegionParams {
        layout: Layout::new(cpu::possible(), 1 << 18).unwrap(),
        clock: Counter::best(),
        wake_at: 1 << 17,
        max_record: 65_535,
    }
}

/// Returns the path of the socket on which a process listens.
pub(crate) fn find_socket(dir: &RuntimeDir, pid: u32) -> Option<PathBuf> {
    let sockets = dir.provider_sockets(usize::MAX).unwrap();
    sockets.into_iter().find(|socket| socket.pid == pid).map(|socket| socket.path)
}

/// An order that a process could not carry out.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FailedOrder {
    /// 0 for an order without acknowledgement.
    pub(crate) order: u32,
    pub(crate) registration: Option<u32>,
    pub(crate) session: u64,
    pub(crate) status: Status,
}

impl FailedOrder {
    pub(crate) const fn new(order: u32, registration: Option<u32>, session: u64, status: Status) -> Self {
        Self { order, registration, session, status }
    }

    pub(crate) const fn timeout(order: u32, registration: Option<u32>, session: u64) -> Self {
        Self::new(order, registration, session, Status::ERROR_TIMEOUT)
    }
}

/// The daemon's end of a connection to a process.
pub(crate) struct ProcessConnection {
    connection: Connection,
    /// Registration ids with their providers.
    pub(crate) registered: Vec<(u32, Guid)>,
    region: Option<RegionReader>,
    /// Request id of the last message received; 0 if the message asks for no answer.
    request: u32,
}

impl ProcessConnection {
    /// Waits for a process to connect, and sends it `Welcome`.
    pub(crate) fn accept(listener: &Listener) -> Self {
        Self::welcome(eventually("the process connects", || listener.accept().unwrap()))
    }

    /// Connects to the socket of a process that started before the daemon, and sends it `Welcome`.
    pub(crate) fn knock(runtime: &Path, pid: u32) -> Self {
        let dir = RuntimeDir::from_path(runtime);
        let socket = eventually("the provider's socket exists", || find_socket(&dir, pid));
        let connection = Connection::connect(&socket, TEST_TIMEOUT).unwrap();
        connection.send(0, &Message::Knock { versions: VERSIONS }, &[], TEST_TIMEOUT).unwrap();
        Self::welcome(connection)
    }

    fn welcome(connection: Connection) -> Self {
        let mut process = Self { connection, registered: Vec::new(), region: None, request: 0 };
        match process.receive() {
            Message::Hello { role: Role::Provider, versions: VERSIONS, .. } => {}
            other => panic!("{other:?} instead of Hello"),
        }
        process.answer(&Message::Welcome { version: VERSIONS.1, daemon: 1 });
        process
    }

    pub(crate) fn pid(&self) -> u32 {
        self.connection.peer().pid
    }

    pub(crate) fn send(&self, message: &Message) {
        self.connection.send(0, message, &[], TEST_TIMEOUT).unwrap();
    }

    /// Answers the last message received. That message must be a request.
    pub(crate) fn answer(&self, message: &Message) {
        assert_ne!(self.request, 0, "{message:?} answers a message that is not a request");
        self.connection.send(self.request, message, &[], TEST_TIMEOUT).unwrap();
    }

    pub(crate) fn receive(&mut self) -> Message {
        let envelope = self.connection.receive(TEST_TIMEOUT).unwrap().expect("the process sent no message");
        self.request = envelope.request;
        envelope.message
    }

    /// Waits for a registration, and returns its id.
    pub(crate) fn await_register(&mut self) -> u32 {
        match self.receive() {
            Message::Register { registration, provider, .. } => {
                self.registered.push((registration, provider));
                registration
            }
            other => panic!("{other:?} instead of Register"),
        }
    }

    /// Sends the process a region for a session, and keeps the reader for [`Self::collect`].
    /// Returns the memory of the region.
    pub(crate) fn send_new_region(&mut self, session: u64) -> OwnedFd {
        let (reader, memory) = RegionReader::create(&region_params()).unwrap();
        self.send_region(session, &memory);
        self.region = Some(reader);
        memory
    }

    /// Sends the process a region with these parameters, and returns its reader.
    pub(crate) fn create_region(&self, session: u64, params: &RegionParams) -> RegionReader {
        let (reader, memory) = RegionReader::create(params).unwrap();
        self.send_region_as(session, &memory, params);
        reader
    }

    /// Sends the process a memory file, which need not be a valid region.
    pub(crate) fn send_region(&self, session: u64, memory: &OwnedFd) {
        self.send_region_as(session, memory, &region_params());
    }

    fn send_region_as(&self, session: u64, memory: &OwnedFd, params: &RegionParams) {
        let wake = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
        let message = Message::Region { session, params: *params };
        self.connection.send(0, &message, &[memory.as_fd(), wake.as_fd()], TEST_TIMEOUT).unwrap();
    }

    pub(crate) fn enable(
        &self,
        order: u32,
        registration: u32,
        session: u64,
        code: EnableCode,
        params: EnableParams,
    ) {
        let (registrations, params) = (vec![registration], Box::new(params));
        self.send(&Message::Enable { order, registrations, session, code, params });
    }

    /// Accepts a registration, sends a region, and enables all events of the registration.
    pub(crate) fn serve_registration(&mut self, session: u64) {
        let registration = self.await_register();
        self.send_new_region(session);
        self.enable(0, registration, session, EnableCode::Enable, EnableParams::default());
        self.answer(&Message::Registered { registration });
    }

    /// Waits for `Failed`, and returns its content without the reason.
    pub(crate) fn expect_failed(&mut self) -> FailedOrder {
        match self.receive() {
            Message::Failed { order, registration, session, status, reason } => {
                assert!(!reason.is_empty());
                FailedOrder { order, registration, session, status: Status(status) }
            }
            other => panic!("{other:?} instead of Failed"),
        }
    }

    pub(crate) fn expect_ack(&mut self, order: u32) {
        match self.receive() {
            Message::Ack { order: acknowledged } => assert_eq!(acknowledged, order),
            other => panic!("{other:?} instead of Ack"),
        }
    }

    /// Returns whether the process has closed the connection.
    pub(crate) fn has_disconnected(&self) -> bool {
        matches!(self.connection.receive(std::time::Duration::ZERO), Err(traceweir_transport::Error::Closed))
    }

    /// Returns the payloads of all records written so far, and the number of lost events.
    pub(crate) fn collect(&mut self) -> (Vec<Vec<u8>>, u64) {
        let region = self.region.as_mut().unwrap();
        let mut payloads = Vec::new();
        for ring in region.rings() {
            ring.poll().unwrap();
            while let Some(record) = ring.peek().unwrap() {
                let mut bytes = vec![0; record.length];
                ring.take(&mut bytes);
                payloads.push(Record::parse(&bytes, record.cpu).unwrap().payload().to_vec());
            }
            ring.release();
        }
        (payloads, region.lost())
    }
}
