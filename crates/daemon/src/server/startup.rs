//! Becoming the daemon of a folder, and ceasing to be it.
//!
//! ```text
//!   daemon.lock locked? ──no──▶ AlreadyRunning (the holder answers) or a second try (the holder is just leaving)
//!        │ yes
//!   control.sock bound (a stale one replaced), or taken over from the service manager
//!        │
//!   each providers/*.sock connected to: Knock.  Nobody listens: the file is stale and removed
//! ```
//!
//! The socket is bound before providers are looked for, and a provider makes its socket before it tries the daemon's: whichever of the
//! two comes later finds the other. Both may; the service refuses the second connection.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use signal_hook::consts::{SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::low_level::{pipe, unregister};
use traceweir_transport::enabled::{self, Enabled};
use traceweir_transport::runtime::{ProviderSocket, RuntimeDir};
use traceweir_transport::socket::{Connection, Janitor, Listener};

use crate::error::{Error, Result};
use crate::log::warning;

/// How long a daemon that is just leaving may hold the lock.
const LOCK_WITHIN: Duration = Duration::from_secs(2);
/// How long one provider may take to be connected to.
const KNOCK_WITHIN: Duration = Duration::from_millis(200);
/// Provider sockets of one user that are looked at: as many as there can be connections.
pub(super) const MAX_SOCKETS: usize = 4096;

/// The folder that this daemon serves: lock and socket.
pub(super) struct Home {
    listener: Listener,
    /// The socket file, where this daemon made it.
    socket: Option<PathBuf>,
    runtime: RuntimeDir,
    _lock: File,
}

impl Home {
    /// Becomes the daemon of a folder.
    pub(super) fn take(runtime: &RuntimeDir, listener: Option<OwnedFd>) -> Result<Self> {
        raise_descriptor_limit();
        runtime.ensure()?;
        let lock = lock(runtime, listener.is_some())?;
        // Of a daemon before this one. Removed before a process can connect to this one.
        enabled::remove(runtime);
        let path = runtime.control_socket();
        let (listener, socket) = match listener {
            Some(fd) => (Listener::from_fd(fd)?, None),
            None => (Listener::bind(&path, runtime.socket_mode())?, Some(path)),
        };
        // Processes of this user send memory before they are answered. Guests are kept from it when they are accepted.
        listener.take_descriptors()?;
        Ok(Self { listener, socket, runtime: runtime.clone(), _lock: lock })
    }

    /// Where connections come from.
    pub(super) fn listener(&self) -> &Listener {
        &self.listener
    }

    /// Writes what is enabled, for processes that come while the daemon is busy.
    pub(super) fn publish(&self, all: &[Enabled]) {
        if let Err(e) = enabled::write(&self.runtime, all) {
            warning!("what is enabled cannot be written to {}: {e}", self.runtime.path().display());
            // What is there may be wrong by now.
            enabled::remove(&self.runtime);
        }
    }

    /// Removes the socket; the lock goes with the value.
    pub(super) fn leave(&mut self) {
        enabled::remove(&self.runtime);
        if let Some(path) = self.socket.take() {
            // A socket that stays is stale and replaced by the next daemon.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Takes the lock. A holder that still answers is running; one that does not is given time to leave.
fn lock(runtime: &RuntimeDir, activated: bool) -> Result<File> {
    let path = runtime.lock_file();
    let nofollow = i32::try_from(OFlags::NOFOLLOW.bits()).unwrap_or(0);
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600).custom_flags(nofollow);
    let mut file = options.open(&path).map_err(|e| Error::system("lock file", e))?;
    let until = Instant::now() + LOCK_WITHIN;
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => break,
            Err(Errno::INTR) => {}
            Err(Errno::WOULDBLOCK) => {
                // With a socket of the service manager's a connection proves nothing: it may be our own backlog.
                let answers =
                    !activated && Connection::connect(&runtime.control_socket(), KNOCK_WITHIN).is_ok();
                if answers || Instant::now() >= until {
                    return Err(Error::AlreadyRunning(runtime.path().to_owned()));
                }
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(e) => return Err(Error::system("locking the lock file", e)),
        }
    }
    // For people; nobody reads it back.
    let _ = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
    Ok(file)
}

/// Each process takes a connection and, for each session, a region: the usual soft limit of 1024 descriptors is soon reached.
fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
        if let Err(e) = setrlimit(Resource::Nofile, raised) {
            warning!("the limit of descriptors stays at {:?}: {e}", limit.current);
        }
    }
}

/// Connects to all providers that are there already, on a thread of its own. First without waiting for anyone: a socket whose
/// queue is full must not delay those behind it.
pub(super) fn knock(runtime: RuntimeDir, janitor: Janitor, found: Arc<dyn Fn(Connection) + Send + Sync>) {
    let work = move || {
        let sockets = runtime.provider_sockets(MAX_SOCKETS).unwrap_or_else(|e| {
            warning!("providers that were there first cannot be found: {e}");
            Vec::new()
        });
        let try_all = |sockets: Vec<ProviderSocket>, within| -> Vec<ProviderSocket> {
            let is_busy = |socket: &ProviderSocket| match socket.connect(within) {
                Ok(connection) => {
                    found(connection.with_janitor(&janitor));
                    false
                }
                Err(e) => matches!(e, traceweir_transport::Error::TimedOut),
            };
            sockets.into_iter().filter(is_busy).collect()
        };
        let busy = try_all(sockets, Duration::ZERO);
        try_all(busy, KNOCK_WITHIN);
    };
    if let Err(e) = std::thread::Builder::new().name("weir-knock".into()).spawn(work) {
        warning!("providers that were there first are not looked for: {e}");
    }
}

/// The handlers of signals, for as long as it lives.
pub(super) struct Handlers(Vec<signal_hook::SigId>);

impl Drop for Handlers {
    fn drop(&mut self) {
        for id in self.0.drain(..) {
            unregister(id);
        }
    }
}

/// A byte can be read for each SIGTERM and SIGINT.
pub(super) fn take_signals() -> Result<(UnixStream, Handlers)> {
    let (reader, writer) = UnixStream::pair().map_err(Error::Signals)?;
    reader.set_nonblocking(true).map_err(Error::Signals)?;
    let mut handlers = Handlers(Vec::new());
    for signal in [SIGTERM, SIGINT] {
        let writer = writer.try_clone().map_err(Error::Signals)?;
        handlers.0.push(pipe::register(signal, writer).map_err(Error::Signals)?);
    }
    // A file that reaches the limit of the process is the end of its session, not of the daemon.
    let ignored = Arc::new(AtomicBool::new(false));
    handlers.0.push(signal_hook::flag::register(SIGXFSZ, ignored).map_err(Error::Signals)?);
    Ok((reader, handlers))
}
