//! The folders in which this process and the daemons find each other, and the connections that came of it.
//!
//! A daemon is believed when it runs as root, as this user, or as the owner of the folder; nobody else can make this process write its events.

use std::collections::{HashSet, VecDeque};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::Duration;

use traceweir_transport::message::Message;
use traceweir_transport::runtime::{RuntimeDir, Scope};
use traceweir_transport::socket::{Connection, Listener};
use traceweir_transport::{Error, Result};

use super::process;

/// The longest that connecting to a daemon may take.
const CONNECT: Duration = Duration::from_millis(500);

/// One folder.
#[derive(Debug)]
pub(super) struct Link {
    dir: RuntimeDir,
    pub(super) listener: Option<Listener>,
}

impl Link {
    /// Listens in the folder, then knocks at its daemon: in this order, so that a daemon that starts meanwhile finds one or the other. With a line for people.
    pub(super) fn open(dir: RuntimeDir) -> (Self, Option<Connection>, String) {
        let bound = Self::listen(&dir);
        let mut state = match &bound {
            Ok(listener) => {
                process::remember(listener.as_fd());
                format!("{}: listening", dir.path().display())
            }
            Err(e) => format!("{}: not listening ({e})", dir.path().display()),
        };
        let link = Self { dir, listener: bound.ok() };
        let found = Connection::connect(&link.dir.control_socket(), CONNECT).and_then(|c| link.check(c));
        match &found {
            Ok(_) => state.push_str(", connected to its daemon"),
            Err(e) => state.push_str(&format!(", no daemon ({e})")),
        }
        (link, found.ok(), state)
    }

    fn listen(dir: &RuntimeDir) -> Result<Listener> {
        // The system's folder is made by the system's daemon.
        let mode = if dir.scope == Scope::System { 0o666 } else { 0o600 };
        if dir.scope != Scope::System {
            dir.ensure()?;
        }
        Listener::bind(&dir.provider_socket(std::process::id()), mode)
    }

    /// The socket file, where there is one.
    pub(super) fn socket(&self) -> Option<PathBuf> {
        self.listener.as_ref().map(|_| self.dir.provider_socket(std::process::id()))
    }

    /// Takes a connection that a daemon made.
    pub(super) fn accept(&self) -> Option<Connection> {
        let connection = self.listener.as_ref()?.accept().ok()??;
        self.check(connection).ok()
    }

    fn check(&self, connection: Connection) -> Result<Connection> {
        let uid = connection.peer().uid;
        let owner = std::fs::metadata(self.dir.path()).map(|m| m.uid());
        let believed =
            uid == 0 || uid == rustix::process::geteuid().as_raw() || owner.is_ok_and(|o| o == uid);
        if believed {
            Ok(connection)
        } else {
            Err(Error::Invalid("the daemon runs as a user that may not trace this process"))
        }
    }
}

/// A connection to a daemon.
#[derive(Debug)]
pub(super) struct Peer {
    /// Number of the connection, never used again.
    pub(super) id: u64,
    pub(super) connection: Connection,
    /// We connected, and a registration waits for the answer.
    pub(super) ours: bool,
    /// The daemon has said welcome.
    pub(super) ready: bool,
    /// Registrations that it was told.
    pub(super) announced: HashSet<u32>,
    outbox: VecDeque<Message>,
}

impl Peer {
    pub(super) fn new(id: u64, connection: Connection, ours: bool) -> Self {
        process::remember(connection.as_fd());
        Self { id, connection, ours, ready: false, announced: HashSet::new(), outbox: VecDeque::new() }
    }

    /// Sends, or keeps for when there is room: the control thread waits for nobody.
    pub(super) fn say(&mut self, message: Message) {
        self.outbox.push_back(message);
    }

    /// Whether something is kept.
    pub(super) fn has_more(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// Sends what there is room for.
    pub(super) fn flush(&mut self) -> Result<()> {
        while let Some(message) = self.outbox.front() {
            match self.connection.send(0, message, &[], Duration::ZERO) {
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
