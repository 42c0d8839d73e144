//! The folders in which this process and the daemons find each other, and the connections that came of it.
//!
//! A daemon is believed when it runs as root, as this user, or as the owner of the folder (`rights`); nobody else can make this process write its events, nor
//! hold it up: connections of others are closed by a janitor, and what is believed may send descriptors only from then on.

use std::collections::{HashMap, HashSet, VecDeque};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::Duration;

use traceweir_transport::message::Message;
use traceweir_transport::runtime::{RuntimeDir, Scope, is_privileged_by_file};
use traceweir_transport::socket::{Connection, Janitor, Listener};
use traceweir_transport::{Error, Result};

use super::{process, rights};

/// The longest that connecting to a daemon may take.
const CONNECT: Duration = Duration::from_millis(500);

/// Sockets of others that are looked through for stale ones of this process's number.
const MAX_SOCKETS: usize = 4096;

/// One folder.
#[derive(Debug)]
pub(super) struct Link {
    dir: RuntimeDir,
    pub(super) listener: Option<Listener>,
    socket: Option<PathBuf>,
    janitor: Janitor,
}

impl Link {
    /// Listens in the folder, then knocks at its daemon: in this order, so that a daemon that starts meanwhile finds one or the other. With a line for people.
    pub(super) fn open(dir: RuntimeDir) -> (Self, Option<Connection>, String) {
        let bound = Self::listen(&dir);
        let mut state = match &bound {
            Ok((listener, _)) => {
                process::remember(listener.as_fd());
                format!("{}: listening", dir.path().display())
            }
            Err(e) => format!("{}: not listening ({e})", dir.path().display()),
        };
        let (listener, socket) = bound.ok().unzip();
        let link = Self { dir, listener, socket, janitor: Janitor::new() };
        let found = link.connect();
        match &found {
            Ok(_) => state.push_str(", connected to its daemon"),
            Err(e) => state.push_str(&format!(", no daemon ({e})")),
        }
        (link, found.ok(), state)
    }

    /// Connects to the daemon of the folder, where there is one that may be believed.
    pub(super) fn connect(&self) -> Result<Connection> {
        let connected = Connection::connect_warily(&self.dir.control_socket(), CONNECT);
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
        Ok((Listener::bind(&socket, dir.socket_mode())?, socket))
    }

    /// The socket file, where there is one.
    pub(super) fn socket(&self) -> Option<PathBuf> {
        self.socket.clone()
    }

    /// Takes a connection that a daemon made.
    pub(super) fn accept(&self) -> Option<Connection> {
        let connection = self.listener.as_ref()?.accept().ok()??;
        self.check(connection).ok()
    }

    fn check(&self, connection: Connection) -> Result<Connection> {
        let connection = connection.with_janitor(&self.janitor);
        let uid = connection.peer().uid;
        let owner = std::fs::metadata(self.dir.path()).map(|m| m.uid());
        // The owner is root or this user, of whom the folder was chosen.
        if rights::believes(uid) || (owner.is_ok_and(|o| o == uid) && !is_privileged_by_file()) {
            // Regions come with descriptors.
            connection.take_descriptors()?;
            Ok(connection)
        } else {
            Err(Error::Invalid("the daemon runs as a user that may not trace this process"))
        }
    }
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
    /// The daemon has said welcome.
    pub(super) ready: bool,
    /// Registrations that it was told.
    pub(super) announced: HashSet<u32>,
    /// What it has not answered, by the request's number.
    asked: HashMap<u32, Asked>,
    last_request: u32,
    outbox: VecDeque<(u32, Message)>,
}

impl Peer {
    pub(super) fn new(id: u64, connection: Connection, link: usize, ours: bool) -> Self {
        process::remember(connection.as_fd());
        Self {
            id,
            connection,
            link,
            ours,
            ready: false,
            announced: HashSet::new(),
            asked: HashMap::new(),
            last_request: 0,
            outbox: VecDeque::new(),
        }
    }

    /// Says what wants no answer: sends it, or keeps it for when there is room. The control thread waits for nobody.
    pub(super) fn say(&mut self, message: Message) {
        self.outbox.push_back((0, message));
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
        self.outbox.push_back((self.last_request, message));
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
        while let Some((request, message)) = self.outbox.front() {
            match self.connection.send(*request, message, &[], Duration::ZERO) {
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

impl Drop for Peer {
    fn drop(&mut self) {
        process::forget(self.connection.as_fd());
    }
}
