//! The folders in which this process and the daemons find each other, and the connections that came of it.
//!
//! A daemon is believed when it runs as root, as this user, or as the owner of the folder (`rights`); nobody else can make this process write its events, nor
//! hold it up: connections of others are closed by a janitor, and what is believed may send descriptors only from then on.
//!
//! ```text
//!   any user may connect to a socket in the system's folder ─▶ refused, and counted
//!   MAX_REFUSED within REFUSED_WITHIN ─▶ the listener rests until that time is over ─▶ connect to the daemon, accept again
//! ```
//!
//! While others fill the queue of the listener a daemon may not get through; so this process connects to the daemon after each rest.

use std::collections::{HashMap, HashSet, VecDeque};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use traceweir_transport::abi::RegionParams;
use traceweir_transport::enabled::{self, Enabled};
use traceweir_transport::message::{EnableParams, Message};
use traceweir_transport::runtime::{RuntimeDir, Scope, is_privileged_by_file};
use traceweir_transport::socket::{Connection, Held, Janitor, Listener};
use traceweir_transport::{Error, Result};

use super::{process, rights};

/// The longest that connecting to a daemon may take.
const CONNECT: Duration = Duration::from_millis(500);

/// Sockets of others that are looked through for stale ones of this process's number.
const MAX_SOCKETS: usize = 4096;

/// Connections that are refused before the listener rests.
const MAX_REFUSED: u32 = 32;
/// The time in which they are counted, and until whose end the listener rests.
const REFUSED_WITHIN: Duration = Duration::from_secs(1);

/// Counts refused connections, so that refusing them costs little however many come.
#[derive(Debug, Default)]
struct Refusals {
    /// When the first was refused, and how many since.
    since: Option<(Instant, u32)>,
}

impl Refusals {
    /// A connection was refused.
    fn add(&mut self, now: Instant) {
        let recent = self.since.filter(|(first, _)| now.saturating_duration_since(*first) < REFUSED_WITHIN);
        let (first, count) = recent.unwrap_or((now, 0));
        self.since = Some((first, count.saturating_add(1)));
    }

    /// Until when the listener rests, if it does.
    fn rests_until(&self) -> Option<Instant> {
        let (first, count) = self.since?;
        if count < MAX_REFUSED { None } else { first.checked_add(REFUSED_WITHIN) }
    }

    /// Ends a rest that is over; whether one was.
    fn end_rest(&mut self, now: Instant) -> bool {
        let is_over = self.rests_until().is_some_and(|until| until <= now);
        if is_over {
            self.since = None;
        }
        is_over
    }
}

/// How a connection between this process and a daemon was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Door {
    /// Through `control.sock` of the folder, or by the daemon, which connected to this process.
    Shared,
    /// Through the socket for processes of the daemon's own user, which takes memory before the
    /// daemon accepts.
    Own,
}

/// One folder.
#[derive(Debug)]
pub(super) struct Link {
    dir: RuntimeDir,
    listener: Option<Listener>,
    socket: Option<PathBuf>,
    janitor: Janitor,
    refusals: Refusals,
    /// A descriptor was missing when the folder was tried last.
    is_starved: bool,
    /// For people: what came of the folder.
    pub(super) state: String,
}

impl Link {
    /// A folder that was not tried yet.
    pub(super) fn new(dir: RuntimeDir) -> Self {
        Self {
            dir,
            listener: None,
            socket: None,
            janitor: Janitor::new(),
            refusals: Refusals::default(),
            is_starved: true,
            state: String::new(),
        }
    }

    /// Listens in the folder, then knocks at its daemon: in this order, so that a daemon that starts meanwhile finds one or the other.
    pub(super) fn open(&mut self) -> Option<(Connection, Door)> {
        self.is_starved = false;
        let folder = self.dir.path().display().to_string();
        let bound = if self.listener.is_some() { Ok(None) } else { Self::listen(&self.dir).map(Some) };
        let mut state = match bound {
            Ok(new) => {
                if let Some((listener, socket)) = new {
                    self.set_listener(listener, socket);
                }
                format!("{folder}: listening")
            }
            Err(e) => {
                self.is_starved |= is_shortage(&e);
                format!("{folder}: not listening ({e})")
            }
        };
        let found = self.connect();
        match &found {
            Ok(_) => state.push_str(", connected to its daemon"),
            Err(e) => {
                self.is_starved |= is_shortage(e);
                state.push_str(&format!(", no daemon ({e})"));
            }
        }
        self.state = state;
        found.ok()
    }

    fn set_listener(&mut self, listener: Listener, socket: PathBuf) {
        process::remember(listener.as_fd());
        (self.listener, self.socket) = (Some(listener), Some(socket));
    }

    /// Listens anew where the program has closed the listener; whether it had.
    pub(super) fn replace_lost_listener(&mut self) -> bool {
        let Some(lost) = self.listener.take_if(|listener| !listener.is_own()) else { return false };
        process::forget(lost.as_fd());
        drop(lost);
        if let Some(stale) = self.socket.take() {
            let _ = std::fs::remove_file(stale);
        }
        match Self::listen(&self.dir) {
            Ok((listener, socket)) => self.set_listener(listener, socket),
            Err(e) => self.is_starved |= is_shortage(&e),
        }
        true
    }

    /// Whether the folder should be tried again: a descriptor was missing.
    pub(super) fn is_starved(&self) -> bool {
        self.is_starved
    }

    /// Connects to the daemon of the folder, where there is one that may be believed: through the
    /// socket for processes of the daemon's own user if this is one, else through that for all.
    pub(super) fn connect(&self) -> Result<(Connection, Door)> {
        let own = self.dir.own().and_then(|own| self.connect_through(&own).ok());
        match own {
            Some(connection) => Ok((connection, Door::Own)),
            // The socket is stale, or its queue is full.
            None => self.connect_through(&self.dir).map(|connection| (connection, Door::Shared)),
        }
    }

    fn connect_through(&self, folder: &RuntimeDir) -> Result<Connection> {
        let connected = Connection::connect_warily(&folder.control_socket(), CONNECT);
        connected.and_then(|connection| self.check(connection))
    }

    fn listen(dir: &RuntimeDir) -> Result<(Listener, PathBuf)> {
        let pid = std::process::id();
        // The system's folder is made by the system's daemon, and cleaned by it: nobody knows how many files of strangers are there.
        if dir.scope != Scope::System {
            dir.ensure()?;
            remove_stale(dir, pid);
        }
        let socket = dir.new_provider_socket(pid);
        let listener = Listener::bind(&socket, dir.socket_mode())?;
        let is_shared = process::shares_descriptors();
        Ok((if is_shared { listener.guard(process::lowest_number()) } else { listener }, socket))
    }

    /// What the daemon at the other end of a connection has enabled, by the file in its folder.
    /// Nothing where the connection does not take memory yet.
    pub(super) fn enabled_by(&self, peer: &Peer) -> Vec<Enabled> {
        let daemon = peer.connection.peer().uid;
        match self.dir.own() {
            // A daemon of all users takes memory through its other socket only from connections
            // that it has accepted.
            Some(_) if peer.door == Door::Shared && !peer.ready => Vec::new(),
            Some(own) => enabled::read(&own, daemon),
            None => enabled::read(&self.dir, daemon),
        }
    }

    /// The socket file, where there is one.
    pub(super) fn socket(&self) -> Option<PathBuf> {
        self.socket.clone()
    }

    /// The listener, unless it rests.
    pub(super) fn waiting_listener(&self) -> Option<&Listener> {
        self.listener.as_ref().filter(|_| self.refusals.rests_until().is_none())
    }

    /// Until when the listener rests, if it does.
    pub(super) fn rests_until(&self) -> Option<Instant> {
        self.refusals.rests_until()
    }

    /// Ends a rest of the listener that is over; whether one was.
    pub(super) fn end_rest(&mut self) -> bool {
        self.refusals.end_rest(Instant::now())
    }

    /// Takes the next connection that a daemon made, and refuses those of others on the way.
    pub(super) fn accept(&mut self) -> Option<Connection> {
        loop {
            let connection = self.waiting_listener()?.accept().ok()??;
            match self.check(connection) {
                Ok(connection) => return Some(connection),
                Err(_) => self.refusals.add(Instant::now()),
            }
        }
    }

    fn check(&self, connection: Connection) -> Result<Connection> {
        let connection = connection.with_janitor(&self.janitor);
        let uid = connection.peer().uid;
        let owner = std::fs::metadata(self.dir.path()).map(|m| m.uid());
        // The owner is root or this user, of whom the folder was chosen.
        if rights::believes(uid) || (owner.is_ok_and(|o| o == uid) && !is_privileged_by_file()) {
            // Regions come with descriptors.
            connection.take_descriptors()?;
            let is_shared = process::shares_descriptors();
            Ok(if is_shared { connection.guard(process::lowest_number()) } else { connection })
        } else {
            Err(Error::Invalid("the daemon runs as a user that may not trace this process"))
        }
    }
}

/// Whether an operation failed for lack of descriptors or memory, of which there may be more later.
fn is_shortage(error: &Error) -> bool {
    let Error::System { source, .. } = error else { return false };
    let shortages = [libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::ENOBUFS];
    source.raw_os_error().is_some_and(|code| shortages.contains(&code))
}

/// Removes what earlier processes of this number have left, so that a folder which no daemon cleans does not grow for ever.
fn remove_stale(dir: &RuntimeDir, pid: u32) {
    let sockets = dir.provider_sockets(MAX_SOCKETS).unwrap_or_default();
    for socket in sockets.into_iter().filter(|socket| socket.pid == pid) {
        // Connecting removes it, unless somebody listens after all: a process of another namespace may have this number.
        let _ = socket.connect(Duration::ZERO);
    }
}

/// What a daemon was asked for a registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// To know it.
    Register(u32),
    /// To take its traits.
    SetTraits(u32),
}

impl Asked {
    pub(super) fn registration(self) -> u32 {
        match self {
            Self::Register(registration) | Self::SetTraits(registration) => registration,
        }
    }
}

/// A session that a registration was enabled for before the daemon said so.
#[derive(Debug)]
pub(super) struct Early {
    pub(super) session: u64,
    /// What the session wanted of it, by the daemon's file.
    pub(super) params: EnableParams,
    /// The request whose answer decides.
    pub(super) asked: Asked,
}

/// A connection to a daemon.
#[derive(Debug)]
pub(super) struct Peer {
    /// Number of the connection, never used again.
    pub(super) id: u64,
    pub(super) connection: Connection,
    /// The folder by which it came.
    pub(super) link: usize,
    /// We connected, and a registration waits for the answer.
    pub(super) ours: bool,
    pub(super) door: Door,
    /// The daemon has said something.
    pub(super) has_answered: bool,
    /// The daemon has said welcome.
    pub(super) ready: bool,
    /// Registrations that it was told.
    pub(super) announced: HashSet<u32>,
    /// What it has not answered, by the request's number.
    asked: HashMap<u32, Asked>,
    last_request: u32,
    outbox: VecDeque<(u32, Message, Option<Held>)>,
    /// Registrations that were enabled before the daemon said so.
    pub(super) early: Vec<Early>,
    /// Sessions for which this process made the memory, and the daemon has not taken it yet; and
    /// the request that follows the memory.
    pub(super) offered: Vec<(u64, Asked)>,
}

impl Peer {
    pub(super) fn new(id: u64, connection: Connection, link: usize, ours: Option<Door>) -> Self {
        process::remember(connection.as_fd());
        Self {
            id,
            connection,
            link,
            ours: ours.is_some(),
            door: ours.unwrap_or(Door::Shared),
            has_answered: false,
            ready: false,
            announced: HashSet::new(),
            asked: HashMap::new(),
            last_request: 0,
            outbox: VecDeque::new(),
            early: Vec::new(),
            offered: Vec::new(),
        }
    }

    /// Whether registrations are sent to the daemon: it has said welcome, or this process connected, and what it sends waits in the connection.
    pub(super) fn is_told(&self) -> bool {
        self.ready || self.ours
    }

    /// Sends the memory that this process made for a session, before a request.
    pub(super) fn offer(&mut self, session: u64, asked: Asked, params: RegionParams, memory: OwnedFd) {
        self.offered.push((session, asked));
        let is_shared = process::shares_descriptors();
        let memory =
            if is_shared { Held::guarded(memory, process::lowest_number()) } else { Held::plain(memory) };
        self.outbox.push_back((0, Message::Region { session, params }, Some(memory)));
    }

    /// Whether the program has closed the connection, or memory that waits to be sent.
    pub(super) fn is_closed_by_program(&self) -> bool {
        !self.connection.is_own() || self.outbox.iter().any(|(_, _, memory)| is_lost(memory.as_ref()))
    }

    /// Whether this process made memory for a session that the daemon has not taken yet.
    pub(super) fn has_offered(&self, session: u64) -> bool {
        self.offered.iter().any(|(offered, _)| *offered == session)
    }

    /// Whether nothing waits for room in the connection.
    pub(super) fn has_sent_all(&self) -> bool {
        self.outbox.is_empty()
    }

    /// Says what wants no answer: sends it, or keeps it for when there is room. The control thread waits for nobody.
    pub(super) fn say(&mut self, message: Message) {
        self.outbox.push_back((0, message, None));
    }

    /// Says what wants an answer.
    pub(super) fn ask(&mut self, message: Message) {
        self.last_request = self.last_request.checked_add(1).unwrap_or(1);
        let asked = match message {
            Message::Register { registration, .. } => Some(Asked::Register(registration)),
            Message::SetTraits { registration, .. } => Some(Asked::SetTraits(registration)),
            _ => None,
        };
        self.asked.extend(asked.map(|asked| (self.last_request, asked)));
        self.outbox.push_back((self.last_request, message, None));
    }

    /// Whether the daemon has not answered a request.
    pub(super) fn awaits(&self, asked: Asked) -> bool {
        self.asked.values().any(|other| *other == asked)
    }

    /// A registration is known to the daemon.
    pub(super) fn registered(&mut self, registration: u32) {
        self.asked.retain(|_, asked| *asked != Asked::Register(registration));
    }

    /// A request was answered: what it was. Of a refused registration the daemon does not know.
    pub(super) fn answered(&mut self, request: u32, refused: bool) -> Option<Asked> {
        let asked = self.asked.remove(&request)?;
        if let (Asked::Register(registration), true) = (asked, refused) {
            self.announced.remove(&registration);
        }
        Some(asked)
    }

    /// Whether something is kept.
    pub(super) fn has_more(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// Sends what there is room for.
    pub(super) fn flush(&mut self) -> Result<()> {
        while let Some((request, message, memory)) = self.outbox.front() {
            if is_lost(memory.as_ref()) {
                // What the program has under this number is not for the daemon.
                return Err(Error::Closed);
            }
            let descriptors: Vec<BorrowedFd<'_>> = memory.iter().map(AsFd::as_fd).collect();
            match self.connection.send(*request, message, &descriptors, Duration::ZERO) {
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

/// Whether the program has closed memory that is to be sent.
fn is_lost(memory: Option<&Held>) -> bool {
    memory.is_some_and(|memory| !memory.is_own())
}

impl Drop for Peer {
    fn drop(&mut self) {
        process::forget(self.connection.as_fd());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listener_rests_after_many_refusals_and_not_after_few() {
        let (mut refusals, start) = (Refusals::default(), Instant::now());
        // One in each interval, for a long time.
        for n in 0..4 * MAX_REFUSED {
            refusals.add(start + REFUSED_WITHIN * n);
            assert_eq!(refusals.rests_until(), None);
        }
        let start = start + REFUSED_WITHIN * 4 * MAX_REFUSED;
        for n in 0..MAX_REFUSED {
            assert_eq!(refusals.rests_until(), None, "{n}");
            refusals.add(start);
        }
        let end = start + REFUSED_WITHIN;
        assert_eq!(refusals.rests_until(), Some(end));
        assert!(!refusals.end_rest(end - Duration::from_millis(1)));
        assert!(refusals.end_rest(end) && !refusals.end_rest(end));
        assert_eq!(refusals.rests_until(), None);
    }
}
