//! The folders in which this process and the daemons find each other, and the resulting
//! connections.
//!
//! A daemon is trusted if it runs as root or, unless this process got rights from its program file,
//! as this user or as the owner of the folder (`rights`). No other process can get the events of
//! this process, or delay it: a janitor closes connections of untrusted processes, and descriptors
//! are accepted only after the check.
//!
//! ```text
//!   any user may connect to a socket in the system's folder ─▶ refused, and counted
//!   MAX_REFUSED within REFUSAL_INTERVAL ─▶ the listener pauses until the interval ends
//!                                     ─▶ connect to the daemon, accept again
//! ```
//!
//! While other processes fill the queue of the listener, a daemon may be unable to connect; so this
//! process connects to the daemon after each pause.

use std::collections::{HashMap, HashSet, VecDeque};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use traceweir_format::spec::status::Status;
use traceweir_transport::abi::RegionParams;
use traceweir_transport::enabled::{self, ListedEnable};
use traceweir_transport::message::{EnableParams, Message};
use traceweir_transport::runtime::{RuntimeDir, Scope, is_privileged_by_file};
use traceweir_transport::socket::{Connection, GuardedDescriptor, Janitor, Listener};
use traceweir_transport::{Error, Result};

use super::rights;
use crate::process;

/// The longest time that connecting to a daemon may take.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);

/// Maximum number of sockets that are checked when this process removes stale ones.
const MAX_SOCKETS: usize = 4096;

/// Number of messages that are read from a closed connection to find a refusal.
const MAX_LAST_MESSAGES: usize = 4;

/// Connections that are refused before the listener pauses.
const MAX_REFUSED: u32 = 32;
/// The interval in which refusals are counted. A pause lasts until the end of the interval.
const REFUSAL_INTERVAL: Duration = Duration::from_secs(1);

/// A count of refused connections, which bounds the cost of refusing them.
#[derive(Debug, Default)]
struct RefusalCount {
    /// The time of the first refusal, and the number since then.
    since: Option<(Instant, u32)>,
}

impl RefusalCount {
    fn add(&mut self, now: Instant) {
        let recent = self.since.filter(|(first, _)| now.saturating_duration_since(*first) < REFUSAL_INTERVAL);
        let (first, count) = recent.unwrap_or((now, 0));
        self.since = Some((first, count.saturating_add(1)));
    }

    /// Returns the end of the listener's pause, if it is paused.
    fn paused_until(&self) -> Option<Instant> {
        let (first, count) = self.since?;
        if count < MAX_REFUSED { None } else { first.checked_add(REFUSAL_INTERVAL) }
    }

    /// Ends a pause whose time is over, and returns whether it did.
    fn resume_if_due(&mut self, now: Instant) -> bool {
        let is_over = self.paused_until().is_some_and(|until| until <= now);
        if is_over {
            self.since = None;
        }
        is_over
    }
}

/// The way in which a connection between this process and a daemon was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectionKind {
    /// Through `control.sock` of the folder, or by the daemon, which connected to this process.
    AnyUser,
    /// Through the socket for processes of the daemon's own user, over which they may send regions
    /// before the daemon accepts.
    OwnUser,
}

/// A runtime folder and the listener in it.
#[derive(Debug)]
pub(super) struct DaemonFolder {
    dir: RuntimeDir,
    listener: Option<Listener>,
    socket: Option<PathBuf>,
    janitor: Janitor,
    refusals: RefusalCount,
    /// The folder was not tried yet, or no descriptor was free at the last attempt.
    needs_attempt: bool,
    /// The state of the folder, as a line of `link_state`.
    pub(super) description: String,
}

impl DaemonFolder {
    pub(super) fn new(dir: RuntimeDir) -> Self {
        Self {
            dir,
            listener: None,
            socket: None,
            janitor: Janitor::new(),
            refusals: RefusalCount::default(),
            needs_attempt: true,
            description: String::new(),
        }
    }

    /// Listens in the folder, then connects to its daemon. In this order, a daemon that starts
    /// meanwhile finds the listener or receives the connection. Fails with the error of the
    /// connection.
    pub(super) fn open(&mut self) -> Result<(Connection, ConnectionKind)> {
        self.needs_attempt = false;
        let folder = self.dir.path().display().to_string();
        let bound = if self.listener.is_some() { Ok(None) } else { Self::listen(&self.dir).map(Some) };
        let mut description = match bound {
            Ok(new) => {
                if let Some((listener, socket)) = new {
                    self.set_listener(listener, socket);
                }
                format!("{folder}: listening")
            }
            Err(e) => {
                self.needs_attempt |= is_resource_shortage(&e);
                format!("{folder}: not listening ({e})")
            }
        };
        let connected = self.connect();
        match &connected {
            Ok(_) => description.push_str(", connected to its daemon"),
            Err(e) => {
                self.needs_attempt |= is_resource_shortage(e);
                description.push_str(&format!(", no daemon ({e})"));
            }
        }
        self.description = description;
        connected
    }

    fn set_listener(&mut self, listener: Listener, socket: PathBuf) {
        process::remember_socket(listener.as_fd());
        (self.listener, self.socket) = (Some(listener), Some(socket));
    }

    /// Listens again if the program closed the listener, and returns whether it had.
    pub(super) fn replace_lost_listener(&mut self) -> bool {
        let Some(lost) = self.listener.take_if(|listener| !listener.is_intact()) else { return false };
        process::forget_socket(lost.as_fd());
        drop(lost);
        if let Some(stale) = self.socket.take() {
            let _ = std::fs::remove_file(stale);
        }
        match Self::listen(&self.dir) {
            Ok((listener, socket)) => self.set_listener(listener, socket),
            Err(e) => self.needs_attempt |= is_resource_shortage(&e),
        }
        true
    }

    pub(super) fn needs_attempt(&self) -> bool {
        self.needs_attempt
    }

    /// Connects to the daemon of the folder if it is trusted: through the socket for processes of
    /// the daemon's own user if this is one, else through the socket for all users.
    pub(super) fn connect(&self) -> Result<(Connection, ConnectionKind)> {
        let own_user = self.dir.own_user_folder().and_then(|own| self.connect_through(&own).ok());
        match own_user {
            Some(connection) => Ok((connection, ConnectionKind::OwnUser)),
            // There is no such socket, or it is stale, or its queue is full.
            None => self.connect_through(&self.dir).map(|connection| (connection, ConnectionKind::AnyUser)),
        }
    }

    fn connect_through(&self, folder: &RuntimeDir) -> Result<Connection> {
        let connected = Connection::connect_without_descriptors(&folder.control_socket(), CONNECT_TIMEOUT);
        connected.and_then(|connection| self.check_daemon(connection))
    }

    fn listen(dir: &RuntimeDir) -> Result<(Listener, PathBuf)> {
        let pid = std::process::id();
        // The system's daemon makes and cleans the system's folder, which may contain any number of
        // files of other users.
        if dir.scope != Scope::System {
            dir.ensure()?;
            remove_stale_sockets(dir, pid);
        }
        let socket = dir.new_provider_socket(pid);
        let listener = Listener::bind(&socket, dir.socket_mode())?;
        let is_shared = process::shares_descriptors();
        Ok((if is_shared { listener.guard(process::lowest_library_fd()) } else { listener }, socket))
    }

    /// Returns the enables of the daemon at the other end of a connection, from the file in its
    /// folder. Empty if the daemon does not take regions over the connection yet.
    pub(super) fn read_enables_of(&self, peer: &DaemonPeer) -> Vec<ListedEnable> {
        let daemon = peer.connection.peer().uid;
        match self.dir.own_user_folder() {
            // A daemon with a socket for its own user takes regions through the socket for all
            // users only after its Welcome.
            Some(_) if peer.kind == ConnectionKind::AnyUser && !peer.has_welcomed => Vec::new(),
            Some(own) => enabled::read(&own, daemon),
            None => enabled::read(&self.dir, daemon),
        }
    }

    pub(super) fn socket_path(&self) -> Option<PathBuf> {
        self.socket.clone()
    }

    /// Returns the listener, unless it is paused.
    pub(super) fn active_listener(&self) -> Option<&Listener> {
        self.listener.as_ref().filter(|_| self.refusals.paused_until().is_none())
    }

    pub(super) fn paused_until(&self) -> Option<Instant> {
        self.refusals.paused_until()
    }

    pub(super) fn resume_if_due(&mut self) -> bool {
        self.refusals.resume_if_due(Instant::now())
    }

    /// Accepts the next connection of a daemon, and refuses earlier ones of other processes.
    pub(super) fn accept(&mut self) -> Option<Connection> {
        loop {
            let connection = self.active_listener()?.accept().ok()??;
            match self.check_daemon(connection) {
                Ok(connection) => return Some(connection),
                Err(_) => self.refusals.add(Instant::now()),
            }
        }
    }

    fn check_daemon(&self, connection: Connection) -> Result<Connection> {
        let connection = connection.with_janitor(&self.janitor);
        let uid = connection.peer().uid;
        let owner = std::fs::metadata(self.dir.path()).map(|m| m.uid());
        // The owner was root or this user when the folder was chosen; this process may have changed
        // its user since.
        if rights::is_daemon_trusted(uid) || (owner.is_ok_and(|o| o == uid) && !is_privileged_by_file()) {
            // Regions come with descriptors.
            connection.allow_descriptors()?;
            let is_shared = process::shares_descriptors();
            Ok(if is_shared { connection.guard(process::lowest_library_fd()) } else { connection })
        } else {
            Err(Error::Invalid("the daemon runs as a user that may not trace this process"))
        }
    }
}

/// Returns whether a daemon that this process could not connect to may run: its queue of
/// connections was full, or this process lacked descriptors or memory.
pub(super) fn may_daemon_run(error: &Error) -> bool {
    matches!(error, Error::TimedOut) || is_resource_shortage(error)
}

/// Returns whether an operation failed for lack of descriptors or memory, which may be available
/// later.
fn is_resource_shortage(error: &Error) -> bool {
    let Error::System { source, .. } = error else { return false };
    let shortages = [libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::ENOBUFS];
    source.raw_os_error().is_some_and(|code| shortages.contains(&code))
}

/// Removes sockets of earlier processes with this id, so that a folder which no daemon cleans does
/// not grow forever.
fn remove_stale_sockets(dir: &RuntimeDir, pid: u32) {
    let sockets = dir.provider_sockets(MAX_SOCKETS).unwrap_or_default();
    for socket in sockets.into_iter().filter(|socket| socket.pid == pid) {
        // Connecting removes a stale socket. If a process in another PID namespace has this id and
        // listens, the socket stays.
        let _ = socket.connect(Duration::ZERO);
    }
}

/// A request about a registration that a daemon has not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PendingRequest {
    /// Register the provider.
    Register(u32),
    /// Set the traits of the registration.
    SetTraits(u32),
}

impl PendingRequest {
    pub(super) fn registration(self) -> u32 {
        match self {
            Self::Register(registration) | Self::SetTraits(registration) => registration,
        }
    }
}

/// A session that a registration was enabled for before the daemon's enable arrived.
#[derive(Debug)]
pub(super) struct EarlyEnable {
    pub(super) session: u64,
    /// The parameters of the enable in the daemon's file.
    pub(super) params: EnableParams,
    /// The request whose answer confirms or reverts the enable.
    pub(super) pending: PendingRequest,
}

/// A region that this process made for a session.
#[derive(Debug)]
pub(super) struct OfferedRegion {
    pub(super) session: u64,
    /// The request that follows the memory.
    pub(super) pending: PendingRequest,
}

/// A message that waits to be sent.
#[derive(Debug)]
struct OutgoingMessage {
    /// Number of the request; 0 if no answer is expected.
    request: u32,
    message: Message,
    memory: Option<GuardedDescriptor>,
}

impl OutgoingMessage {
    /// Returns whether the program closed the descriptor of the region in the message.
    fn has_lost_memory(&self) -> bool {
        self.memory.as_ref().is_some_and(|memory| !memory.is_intact())
    }
}

/// A connection to a daemon.
#[derive(Debug)]
pub(super) struct DaemonPeer {
    /// Number of the connection, never reused.
    pub(super) id: u64,
    pub(super) connection: Connection,
    /// Index of the folder of the connection.
    pub(super) folder: usize,
    /// This process connected to the daemon, and registrations wait for its Welcome.
    pub(super) is_outgoing: bool,
    pub(super) kind: ConnectionKind,
    /// The daemon has sent a message.
    pub(super) has_answered: bool,
    /// The daemon has sent a Welcome.
    pub(super) has_welcomed: bool,
    /// Registrations that were sent to the daemon.
    pub(super) announced_registrations: HashSet<u32>,
    /// Registrations whose calls returned while this process could not reach the daemon, and that
    /// the daemon has not answered yet.
    pub(super) missed_registrations: HashSet<u32>,
    /// Unanswered requests by request number.
    pending: HashMap<u32, PendingRequest>,
    last_request: u32,
    outbox: VecDeque<OutgoingMessage>,
    /// Registrations that were enabled before the daemon's enable arrived.
    pub(super) early_enables: Vec<EarlyEnable>,
    /// Regions that this process made and the daemon has not taken yet.
    pub(super) offered_regions: Vec<OfferedRegion>,
}

impl DaemonPeer {
    pub(super) fn new(
        id: u64,
        connection: Connection,
        folder: usize,
        outgoing: Option<ConnectionKind>,
    ) -> Self {
        process::remember_socket(connection.as_fd());
        Self {
            id,
            connection,
            folder,
            is_outgoing: outgoing.is_some(),
            kind: outgoing.unwrap_or(ConnectionKind::AnyUser),
            has_answered: false,
            has_welcomed: false,
            announced_registrations: HashSet::new(),
            missed_registrations: HashSet::new(),
            pending: HashMap::new(),
            last_request: 0,
            outbox: VecDeque::new(),
            early_enables: Vec::new(),
            offered_regions: Vec::new(),
        }
    }

    /// Returns whether registrations are sent to the daemon: it has sent a Welcome, or this process
    /// connected and messages wait in the connection.
    pub(super) fn takes_registrations(&self) -> bool {
        self.has_welcomed || self.is_outgoing
    }

    /// Sends the memory that this process made for a session, before a request.
    pub(super) fn offer_region(
        &mut self,
        session: u64,
        pending: PendingRequest,
        params: RegionParams,
        memory: OwnedFd,
    ) {
        self.offered_regions.push(OfferedRegion { session, pending });
        let is_shared = process::shares_descriptors();
        let memory = if is_shared {
            GuardedDescriptor::guarded(memory, process::lowest_library_fd())
        } else {
            GuardedDescriptor::plain(memory)
        };
        self.outbox.push_back(OutgoingMessage {
            request: 0,
            message: Message::Region { session, params },
            memory: Some(memory),
        });
    }

    /// Returns whether the program closed the connection, or memory that waits to be sent.
    pub(super) fn is_closed_by_program(&self) -> bool {
        !self.connection.is_intact() || self.outbox.iter().any(OutgoingMessage::has_lost_memory)
    }

    /// Returns whether this process made memory for a session that the daemon has not taken yet.
    pub(super) fn has_offered_region(&self, session: u64) -> bool {
        self.offered_regions.iter().any(|offered| offered.session == session)
    }

    pub(super) fn has_sent_all(&self) -> bool {
        self.outbox.is_empty()
    }

    /// Queues a message that expects no answer. The control thread never waits for a full
    /// connection.
    pub(super) fn queue(&mut self, message: Message) {
        self.outbox.push_back(OutgoingMessage { request: 0, message, memory: None });
    }

    /// Queues a message that expects an answer.
    pub(super) fn queue_request(&mut self, message: Message) {
        self.last_request = self.last_request.checked_add(1).unwrap_or(1);
        let pending = match message {
            Message::Register { registration, .. } => Some(PendingRequest::Register(registration)),
            Message::SetTraits { registration, .. } => Some(PendingRequest::SetTraits(registration)),
            _ => None,
        };
        self.pending.extend(pending.map(|pending| (self.last_request, pending)));
        self.outbox.push_back(OutgoingMessage { request: self.last_request, message, memory: None });
    }

    pub(super) fn awaits_answer_to(&self, pending: PendingRequest) -> bool {
        self.pending.values().any(|other| *other == pending)
    }

    /// Records that the daemon knows a registration.
    pub(super) fn mark_registered(&mut self, registration: u32) {
        self.missed_registrations.remove(&registration);
        self.pending.retain(|_, pending| *pending != PendingRequest::Register(registration));
    }

    /// Removes and returns an answered request. A refused registration is not announced any more.
    pub(super) fn take_answered_request(&mut self, request: u32, is_refused: bool) -> Option<PendingRequest> {
        let pending = self.pending.remove(&request)?;
        if let (PendingRequest::Register(registration), true) = (pending, is_refused) {
            self.announced_registrations.remove(&registration);
        }
        Some(pending)
    }

    /// Sends queued messages until the connection is full.
    pub(super) fn flush(&mut self) -> Result<()> {
        while let Some(queued) = self.outbox.front() {
            if queued.has_lost_memory() {
                // The number may lead to a file of the program, which the daemon must not get.
                return Err(Error::Closed);
            }
            let descriptors: Vec<BorrowedFd<'_>> = queued.memory.iter().map(AsFd::as_fd).collect();
            match self.connection.send(queued.request, &queued.message, &descriptors, Duration::ZERO) {
                Ok(()) => {
                    self.outbox.pop_front();
                }
                Err(Error::TimedOut) => break,
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}

/// Returns the refusal among the messages that a daemon sent before it closed a connection.
pub(super) fn read_last_refusal(connection: &Connection) -> Option<(Status, String)> {
    for _ in 0..MAX_LAST_MESSAGES {
        if let Message::Refused { status, reason } = connection.receive(Duration::ZERO).ok()??.message {
            return Some((Status(status), reason));
        }
    }
    None
}

impl Drop for DaemonPeer {
    fn drop(&mut self) {
        process::forget_socket(self.connection.as_fd());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listener_pauses_after_many_refusals_and_not_after_few() {
        let (mut refusals, start) = (RefusalCount::default(), Instant::now());
        // One refusal in each interval, for a long time.
        for n in 0..4 * MAX_REFUSED {
            refusals.add(start + REFUSAL_INTERVAL * n);
            assert_eq!(refusals.paused_until(), None);
        }
        let start = start + REFUSAL_INTERVAL * 4 * MAX_REFUSED;
        for n in 0..MAX_REFUSED {
            assert_eq!(refusals.paused_until(), None, "{n}");
            refusals.add(start);
        }
        let end = start + REFUSAL_INTERVAL;
        assert_eq!(refusals.paused_until(), Some(end));
        assert!(!refusals.resume_if_due(end - Duration::from_millis(1)));
        assert!(refusals.resume_if_due(end) && !refusals.resume_if_due(end));
        assert_eq!(refusals.paused_until(), None);
    }

    #[test]
    fn refusal_is_read_from_a_connection_that_can_no_longer_send() {
        let (daemon, process) = Connection::pair().unwrap();
        let refusal =
            Message::Refused { status: Status::ERROR_NO_SYSTEM_RESOURCES.0, reason: "no room".to_owned() };
        daemon.send(0, &refusal, &[], Duration::ZERO).unwrap();
        drop(daemon);
        let mut peer = DaemonPeer::new(1, process, 0, Some(ConnectionKind::AnyUser));
        peer.queue(Message::Unregister { registration: 1 });
        assert!(peer.flush().is_err());
        let refusal = Some((Status::ERROR_NO_SYSTEM_RESOURCES, "no room".to_owned()));
        assert_eq!(read_last_refusal(&peer.connection), refusal);
        assert_eq!(read_last_refusal(&peer.connection), None);
    }
}
