//! Finding the daemon for a call, and the greeting.
//!
//! ```text
//!   TRACEWEIR_RUNTIME_DIR set ─────────────▶ that folder, whatever the scope
//!   a scope ───────────────────────────────▶ its folder
//!   neither ───────────────────────────────▶ the system's, if it runs and admits this user;
//!                                            else the user's
//!
//!   folder/own/control.sock   first, if this process runs as the daemon's own user: other users
//!                             cannot fill its queue. Stale, full or closed ─▶ the other socket
//!   folder/control.sock   missing, or no listener     ─▶ no daemon
//!                         Hello ─▶ Welcome            ─▶ a link
//!                         Refused                     ─▶ Error::Refused: it runs, but refuses
//!                         no permission to connect    ─▶ the same, with the missing rights
//!                         silent, another version     ─▶ Error::Unreachable with the socket
//!                         its queue is full           ─▶ the same; the error advises to call
//!                                                        again if the daemon holds its lock
//! ```
//!
//! `launch` starts daemons.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use traceweir_format::spec::status::Status;
use traceweir_transport::message::{Message, Role, VERSIONS};
use traceweir_transport::runtime::{RuntimeDir, Scope, random};
use traceweir_transport::socket::{Connection, Envelope};

use crate::error::{Error, Result};

/// Timeout of the connection and of the Welcome.
const GREETING_TIMEOUT: Duration = Duration::from_secs(3);

/// The reason why a daemon that runs is out of reach for the moment.
const FULL_QUEUE: &str = "it runs, but too many connections wait for it";

/// The longest single wait; longer timeouts are split into several waits.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

/// A connection over which a daemon has sent a Welcome.
#[derive(Debug)]
pub(crate) struct DaemonLink {
    pub(crate) connection: Connection,
    socket: PathBuf,
    last_request: u32,
}

impl DaemonLink {
    /// Connects to the daemon of a folder; `None` if there is none.
    pub(crate) fn open(dir: &RuntimeDir, role: Role) -> Result<Option<Self>> {
        let own = dir.own_user_folder().map(|own| own.control_socket());
        // If the own user's socket is stale or full, the socket for all users is next.
        let through_own = own.and_then(|own| Connection::connect(&own, GREETING_TIMEOUT).ok());
        if let Some(connection) = through_own
            && let Some(link) = Self::greet_through(connection, dir, role)?
        {
            return Ok(Some(link));
        }
        let socket = dir.control_socket();
        let connection = match Connection::connect(&socket, GREETING_TIMEOUT) {
            Ok(connection) => connection,
            Err(e) if is_not_running(&e) => return Ok(None),
            Err(traceweir_transport::Error::TimedOut) if is_running(dir) => {
                let reason = format!("{FULL_QUEUE}; call again");
                return Err(Error::Unreachable { socket, reason });
            }
            Err(traceweir_transport::Error::TimedOut) => {
                return Err(unreachable_error(&socket, "it does not accept connections"));
            }
            Err(e) if is_denied(&e) => return Err(access_denied_error(&socket)),
            Err(e) => return Err(e.into()),
        };
        Self::greet_through(connection, dir, role)
    }

    /// Sends Hello over a connection and waits for the Welcome; `None` if the daemon is about to
    /// exit.
    fn greet_through(connection: Connection, dir: &RuntimeDir, role: Role) -> Result<Option<Self>> {
        // The path that errors name, even if the connection uses the socket for the daemon's user.
        let socket = dir.control_socket();
        let mut link = Self { connection, socket, last_request: 0 };
        match link.greet(role) {
            // A daemon that is about to exit closes unanswered connections, which counts as no
            // daemon.
            Err(Error::Transport(traceweir_transport::Error::Closed)) => Ok(None),
            Err(e) => Err(e),
            Ok(()) => Ok(Some(link)),
        }
    }

    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    fn greet(&mut self, role: Role) -> Result<()> {
        let hello = Message::Hello { versions: VERSIONS, role, instance: random(), program: program_name() };
        let answer = self.ask(&hello, &[], GREETING_TIMEOUT);
        match answer.map(|e| e.message) {
            Ok(Message::Welcome { version, .. }) if (VERSIONS.0..=VERSIONS.1).contains(&version) => Ok(()),
            Ok(Message::Welcome { version, .. }) => {
                Err(self.foreign_version_error(&format!("version {version}")))
            }
            Ok(other) => {
                Err(self
                    .foreign_version_error(&format!("an unexpected answer ({})", message_kind_name(&other))))
            }
            Err(Error::Refused { status: Status::ERROR_NOT_SUPPORTED, reason }) => {
                Err(self.foreign_version_error(&reason))
            }
            Err(Error::Transport(
                e @ (traceweir_transport::Error::Message(_)
                | traceweir_transport::Error::Unexpected(_)
                | traceweir_transport::Error::Version { .. }),
            )) => Err(self.foreign_version_error(&e.to_string())),
            Err(e) => Err(e),
        }
    }

    /// Sends a request and waits for its answer. Answers to abandoned requests are skipped.
    pub(crate) fn ask(
        &mut self,
        message: &Message,
        descriptors: &[std::os::fd::BorrowedFd<'_>],
        timeout: Duration,
    ) -> Result<Envelope> {
        let started = Instant::now();
        let request = match self.send(message, descriptors, timeout) {
            // The daemon may have sent the reason before it closed the connection.
            Err(e) if e.is_disconnect() => return Err(self.read_last_refusal().unwrap_or(e)),
            sent => sent?,
        };
        loop {
            let left = timeout.saturating_sub(started.elapsed());
            let answer = match self.connection.receive(left.min(LONGEST_WAIT)) {
                // A closed connection is reported before messages that are still unread.
                Err(e @ traceweir_transport::Error::Closed) => {
                    return Err(self.read_last_refusal().unwrap_or(e.into()));
                }
                answer => answer?,
            };
            match answer {
                // Number 0: the connection itself is refused, before any request.
                Some(Envelope { message: Message::Refused { status, reason }, request: refused, .. })
                    if refused == request || refused == 0 =>
                {
                    return Err(Error::Refused { status: Status(status), reason });
                }
                Some(answer) if answer.request != request => {}
                Some(answer) => return Ok(answer),
                None => {}
            }
            if started.elapsed() >= timeout {
                let seconds = timeout.as_secs();
                return Err(unreachable_error(&self.socket, &format!("no answer within {seconds} s")));
            }
        }
    }

    /// Returns the refusal that a closed connection still holds.
    fn read_last_refusal(&self) -> Option<Error> {
        match self.connection.receive(Duration::ZERO).ok()??.message {
            Message::Refused { status, reason } => Some(Error::Refused { status: Status(status), reason }),
            _ => None,
        }
    }

    fn send(
        &mut self,
        message: &Message,
        descriptors: &[std::os::fd::BorrowedFd<'_>],
        timeout: Duration,
    ) -> Result<u32> {
        // 0 is for messages without an answer.
        self.last_request = self.last_request.checked_add(1).unwrap_or(1);
        match self.connection.send(self.last_request, message, descriptors, timeout.min(LONGEST_WAIT)) {
            Ok(()) => Ok(self.last_request),
            Err(traceweir_transport::Error::TimedOut) => {
                Err(unreachable_error(&self.socket, "it does not accept requests"))
            }
            Err(e) => Err(e.into()),
        }
    }

    fn foreign_version_error(&self, detail: &str) -> Error {
        let (low, high) = VERSIONS;
        let reason = format!(
            "it speaks another version of the control protocol than this program ({low} to {high}): {detail}; \
             use the daemon and the library of one release (stop the daemon with SIGTERM, the next call starts a new one)"
        );
        Error::Unreachable { socket: self.socket.clone(), reason }
    }
}

/// Returns the folders in which a call searches for a daemon, in order.
pub(crate) fn folders(scope: Option<Scope>) -> Result<Vec<RuntimeDir>> {
    Ok(RuntimeDir::for_controllers(scope)?)
}

/// Connects to the first daemon of the folders that answers, if any. A daemon that denies access is
/// skipped, unless its folder is the last.
pub(crate) fn connect_first(folders: &[RuntimeDir], role: Role) -> Result<Option<DaemonLink>> {
    let Some((last, others)) = folders.split_last() else { return Ok(None) };
    for dir in others {
        match DaemonLink::open(dir, role) {
            Ok(Some(link)) => return Ok(Some(link)),
            Ok(None) => {}
            Err(e) if e.status() == Status::ERROR_ACCESS_DENIED => {}
            Err(e) => return Err(e),
        }
    }
    DaemonLink::open(last, role)
}

/// Returns the refusal of the first daemon that denies access, in all folders except the last.
pub(crate) fn find_refusal(folders: &[RuntimeDir], role: Role) -> Option<Error> {
    let (_, others) = folders.split_last()?;
    let open_error = |dir: &RuntimeDir| DaemonLink::open(dir, role).err();
    others.iter().filter_map(open_error).find(|e| e.status() == Status::ERROR_ACCESS_DENIED)
}

pub(crate) fn unexpected_answer(link: &DaemonLink, message: &Message) -> Error {
    unreachable_error(
        link.socket(),
        &format!("it sent an unexpected answer ({})", message_kind_name(message)),
    )
}

fn unreachable_error(socket: &Path, reason: &str) -> Error {
    let reason =
        format!("{reason}; if the daemon hangs, end it and call again (`fuser {}`)", socket.display());
    Error::Unreachable { socket: socket.to_owned(), reason }
}

fn is_not_running(error: &traceweir_transport::Error) -> bool {
    use std::io::ErrorKind::{ConnectionRefused, NotADirectory, NotFound};
    matches!(error, traceweir_transport::Error::System { source, .. }
        if matches!(source.kind(), NotFound | ConnectionRefused | NotADirectory))
}

/// Returns whether a daemon holds the lock of a folder. Only the daemon's own user can open the
/// lock file; for other users the lock counts as held.
fn is_running(dir: &RuntimeDir) -> bool {
    match File::open(dir.lock_file()) {
        // A daemon that starts at this moment finds the lock taken and tries again.
        Ok(file) => flock(&file, FlockOperation::NonBlockingLockShared).is_err(),
        Err(e) => e.kind() == std::io::ErrorKind::PermissionDenied,
    }
}

/// Returns whether the system denies access to the socket.
fn is_denied(error: &traceweir_transport::Error) -> bool {
    use std::io::ErrorKind::PermissionDenied;
    matches!(error, traceweir_transport::Error::System { source, .. } if source.kind() == PermissionDenied)
}

fn access_denied_error(socket: &Path) -> Error {
    let (uid, socket) = (rustix::process::geteuid().as_raw(), socket.display());
    let reason = format!(
        "uid {uid} may not connect to {socket}: the permissions of the socket, or of a folder on the way to it, are for others"
    );
    Error::refused(Status::ERROR_ACCESS_DENIED, reason)
}

/// Returns the name of a message's kind, for error texts.
fn message_kind_name(message: &Message) -> String {
    let text = format!("{message:?}");
    text.split([' ', '(', '{']).next().unwrap_or_default().to_owned()
}

fn program_name() -> String {
    let path = std::env::current_exe().unwrap_or_default();
    path.file_name().map_or_else(String::new, |n| n.to_string_lossy().into_owned())
}
