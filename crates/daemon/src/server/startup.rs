//! Taking over a runtime folder as its daemon, and releasing it.
//!
//! ```text
//!   lock of daemon.lock taken? ─no─▶ AlreadyRunning (its holder answers) or retry (it is exiting)
//!        │ yes
//!   control.sock bound (a stale one replaced), or inherited from the service manager
//!        │ the system's daemon
//!   own/control.sock bound: its own user's processes send regions there before they are accepted
//!        │
//!   each providers/*.sock connected to: Knock.  No listener: the file is stale and removed
//!        │ the system's daemon, as root
//!   sockets in the folders of users connected to: Knock.  Nothing is removed there
//! ```
//!
//! A service manager that begins to listen for the same folder replaces the socket file of a daemon
//! that was started on demand. That daemon notices, serves its connected clients, and exits as soon
//! as it has no work; the service manager's daemon waits for the lock.
//!
//! The daemon binds its socket before it searches for providers, and a provider creates its socket
//! before it tries the daemon's: whichever starts later finds the other. If both connect, the
//! service refuses the second connection.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::low_level::{pipe, unregister};
use traceweir_transport::enabled::{self, ListedEnable};
use traceweir_transport::runtime::{
    ProviderSocket, RuntimeDir, Scope, UserSocket, user_folders, user_sockets,
};
use traceweir_transport::socket::{Connection, Janitor, Listener};

use super::{LISTENER, OWN_LISTENER};
use crate::error::{Error, Result};
use crate::limits::MAX_LINKS_PER_GUEST;
use crate::log::{log_info, log_warning};

/// How long a daemon that is exiting may hold the lock.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a daemon started by a service manager waits for the lock, because a daemon that was
/// started on demand may hold it until its work is finished.
const LOCK_TIMEOUT_FOR_MANAGER: Duration = Duration::from_secs(60);
/// Delay before the folders of users are searched again: a process that registers right now may
/// have missed the system's folder while the daemon missed its socket.
const SEARCH_AGAIN_DELAY: Duration = Duration::from_secs(1);
/// Maximum number of busy sockets (sockets with a full queue) of one user in the daemon's runtime
/// folder that are retried.
const MAX_BUSY_OF_USER: usize = 16;
/// Maximum number of busy sockets in one folder of a user that are retried.
const MAX_BUSY_OF_FOLDER: usize = 16;
/// Maximum number of busy sockets that each of the two searches retries.
const MAX_BUSY: usize = 256;
/// How long connecting to one provider may take.
const KNOCK_TIMEOUT: Duration = Duration::from_millis(200);
/// Maximum number of provider sockets inspected per user: as many as there can be connections.
pub(super) const MAX_SOCKETS: usize = 4096;

/// The runtime folder that this daemon serves, with lock and sockets.
pub(super) struct ServedFolder {
    listener: Listener,
    /// The socket for processes of the daemon's own user, if other users can connect to `listener`.
    own: Option<OwnSocket>,
    /// The socket file, if this daemon created it.
    socket: Option<SocketFile>,
    runtime: RuntimeDir,
    _lock: File,
}

/// The socket for processes of the daemon's own user, in a folder that no other user can enter.
struct OwnSocket {
    listener: Listener,
    folder: RuntimeDir,
}

impl OwnSocket {
    fn open(runtime: &RuntimeDir) -> Result<Self> {
        let folder = runtime.make_own()?;
        let listener = Listener::bind(&folder.control_socket(), folder.socket_mode())?;
        listener.allow_descriptors()?;
        Ok(Self { listener, folder })
    }
}

/// A socket file: its path, and its identity when it was created.
struct SocketFile {
    path: PathBuf,
    identity: Option<(u64, u64)>,
}

impl SocketFile {
    fn new(path: PathBuf) -> Self {
        let identity = file_identity(&path);
        Self { path, identity }
    }

    /// Returns whether another file has this path now.
    fn is_replaced(&self) -> bool {
        file_identity(&self.path).is_some_and(|identity| Some(identity) != self.identity)
    }
}

/// Returns device and inode number of a file.
fn file_identity(path: &Path) -> Option<(u64, u64)> {
    std::fs::symlink_metadata(path).ok().map(|metadata| (metadata.dev(), metadata.ino()))
}

/// Returns whether only processes of the daemon's own user can connect.
fn has_one_user(runtime: &RuntimeDir) -> bool {
    runtime.scope != Scope::System
}

impl ServedFolder {
    /// Becomes the daemon of a folder: takes the lock and opens the sockets.
    pub(super) fn acquire(runtime: &RuntimeDir, listener: Option<OwnedFd>) -> Result<Self> {
        raise_descriptor_limit();
        runtime.ensure()?;
        let lock = take_lock(runtime, listener.is_some())?;
        // Files of a previous daemon, removed before a process can connect to this one.
        runtime.remove_enabled_file();
        runtime.remove_own();
        let path = runtime.control_socket();
        let (listener, socket) = match listener {
            Some(fd) => (Listener::from_fd(fd)?, None),
            None => (Listener::bind(&path, runtime.socket_mode())?, Some(SocketFile::new(path))),
        };
        let mut own = None;
        if has_one_user(runtime) {
            // Before they are accepted, the user's processes send regions that they created.
            listener.allow_descriptors()?;
        } else {
            let opened = OwnSocket::open(runtime);
            own = opened
                .inspect_err(|e| {
                    log_warning!("processes of the daemon's user cannot record before it accepts them: {e}")
                })
                .ok();
        }
        Ok(Self { listener, own, socket, runtime: runtime.clone(), _lock: lock })
    }

    /// Returns the listening sockets with their epoll tokens.
    pub(super) fn listeners(&self) -> impl Iterator<Item = (u64, &Listener)> {
        let own = self.own.iter().map(|own| (OWN_LISTENER, &own.listener));
        own.chain([(LISTENER, &self.listener)])
    }

    /// Returns whether processes send regions through a listener before the daemon accepts them.
    pub(super) fn receives_early_regions(&self, token: u64) -> bool {
        token == OWN_LISTENER || has_one_user(&self.runtime)
    }

    /// Returns whether a connection that may already carry an early region waits to be accepted.
    pub(super) fn has_unaccepted(&self) -> bool {
        let no_wait = Timespec { tv_sec: 0, tv_nsec: 0 };
        // If polling fails, a connection may wait.
        let is_ready = |listener: &Listener| {
            poll(&mut [PollFd::new(listener, PollFlags::IN)], Some(&no_wait)).map_or(true, |ready| ready > 0)
        };
        let mut listeners = self.listeners().filter(|(token, _)| self.receives_early_regions(*token));
        listeners.any(|(_, listener)| is_ready(listener))
    }

    /// Writes the file of enabled providers for processes that start while the daemon is busy. The
    /// system's daemon writes the file where only its own user can read it. Other users must not
    /// learn its content. Also, processes that read it send regions before they are accepted, and
    /// descriptors of other users could block the daemon.
    pub(super) fn publish_enables(&self, enables: &[ListedEnable]) {
        let folder = match &self.own {
            Some(own) => &own.folder,
            None if has_one_user(&self.runtime) => &self.runtime,
            None => return,
        };
        if let Err(e) = enabled::write(folder, enables) {
            log_warning!(
                "the list of enabled providers cannot be written to {}: {e}",
                folder.path().display()
            );
            // The existing file may be outdated.
            folder.remove_enabled_file();
        }
    }

    /// Returns whether a service manager or another daemon has replaced the socket file, so that no
    /// client will connect to this daemon any more.
    pub(super) fn is_replaced(&self) -> bool {
        self.socket.as_ref().is_some_and(SocketFile::is_replaced)
    }

    /// Removes the file of enabled providers, the folder `own`, and the control socket unless
    /// another process has replaced it. Dropping the value releases the lock.
    pub(super) fn remove_sockets(&mut self) {
        self.runtime.remove_enabled_file();
        if self.own.is_some() {
            // A process that connected since the last check finds its connection closed, and tries
            // `control.sock`.
            self.runtime.remove_own();
        }
        if let Some(socket) = self.socket.take().filter(|socket| !socket.is_replaced()) {
            // A socket that stays is stale, and the next daemon replaces it.
            let _ = std::fs::remove_file(socket.path);
        }
    }
}

/// Takes the lock. A holder that answers connections is a running daemon; any other holder gets
/// time to exit.
fn take_lock(runtime: &RuntimeDir, is_socket_activated: bool) -> Result<File> {
    let path = runtime.lock_file();
    let nofollow = i32::try_from(OFlags::NOFOLLOW.bits()).unwrap_or(0);
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600).custom_flags(nofollow);
    let mut file = options.open(&path).map_err(|e| Error::system("lock file", e))?;
    let until = Instant::now() + if is_socket_activated { LOCK_TIMEOUT_FOR_MANAGER } else { LOCK_TIMEOUT };
    let mut is_logged = false;
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => break,
            Err(Errno::INTR) => {}
            Err(Errno::WOULDBLOCK) => {
                // With an inherited socket a connection proves nothing: it may wait in the
                // queue of that socket.
                let answers = !is_socket_activated
                    && Connection::connect(&runtime.control_socket(), KNOCK_TIMEOUT).is_ok();
                if answers || Instant::now() >= until {
                    return Err(Error::AlreadyRunning(runtime.path().to_owned()));
                }
                if is_socket_activated && !is_logged {
                    is_logged = true;
                    log_info!("waiting for the daemon that holds {} to end its sessions", path.display());
                }
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(e) => return Err(Error::system("locking the lock file", e)),
        }
    }
    // The process id is for administrators and for `weir`; no daemon reads it.
    let _ = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
    Ok(file)
}

/// Raises the soft limit of descriptors. Each process takes a connection and a region per session,
/// which soon exceeds the usual limit of 1024.
fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
        if let Err(e) = setrlimit(Resource::Nofile, raised) {
            log_warning!("the limit of file descriptors stays at {:?}: {e}", limit.current);
        }
    }
}

/// Connects to all running providers, on a separate thread. The first passes do not wait: a socket
/// whose queue is full must not delay the others.
pub(super) fn knock(runtime: RuntimeDir, janitor: Janitor, on_found: Arc<dyn Fn(Connection) + Send + Sync>) {
    let work = move || {
        let on_found = |connection: Connection| on_found(connection.with_janitor(&janitor));
        let mut search = RuntimeFolderSearch::default();
        let mut users = UserFolderSearch::default();
        search.knock(&runtime, &mut users, on_found);
        if runtime.is_for_all_users() {
            users.knock(on_found);
            std::thread::sleep(SEARCH_AGAIN_DELAY);
            users.knock(on_found);
        }
        search.knock_at_busy_sockets(on_found);
        users.knock_at_busy_sockets(on_found);
    };
    if let Err(e) = std::thread::Builder::new().name("weir-knock".into()).spawn(work) {
        log_warning!("running providers are not searched for: {e}");
    }
}

/// The search for providers in the daemon's runtime folder.
#[derive(Default)]
struct RuntimeFolderSearch {
    /// Sockets whose queue was full; they are retried after all others.
    busy: Vec<ProviderSocket>,
}

impl RuntimeFolderSearch {
    /// Connects to all sockets without waiting; records the processes found in `users`.
    fn knock(&mut self, runtime: &RuntimeDir, users: &mut UserFolderSearch, on_found: impl Fn(Connection)) {
        let sockets = runtime.provider_sockets(MAX_SOCKETS).unwrap_or_else(|e| {
            log_warning!("running providers cannot be found: {e}");
            Vec::new()
        });
        let mut tried = BTreeSet::new();
        let mut busy_of_user: BTreeMap<u32, usize> = BTreeMap::new();
        for socket in sockets {
            if !tried.insert(socket.file_id) {
                continue;
            }
            let connected = socket.connect(Duration::ZERO);
            let is_busy = matches!(connected, Err(traceweir_transport::Error::TimedOut));
            if is_busy || connected.is_ok() {
                users.announced.insert((socket.uid, socket.pid));
            }
            if let Ok(connection) = connected {
                on_found(connection);
            }
            let busy = busy_of_user.entry(socket.uid).or_default();
            if is_busy && *busy < MAX_BUSY_OF_USER && self.busy.len() < MAX_BUSY {
                *busy += 1;
                self.busy.push(socket);
            }
        }
    }

    /// Connects to the sockets whose queue was full.
    fn knock_at_busy_sockets(&mut self, on_found: impl Fn(Connection)) {
        for socket in std::mem::take(&mut self.busy) {
            if let Ok(connection) = socket.connect(KNOCK_TIMEOUT) {
                on_found(connection);
            }
        }
    }
}

#[derive(Default)]
struct UserFolderSearch {
    /// Users and process ids found in the daemon's runtime folder; this search skips them.
    announced: BTreeSet<(u32, u32)>,
    /// Sockets that a later pass skips: connected, in `busy`, over the user's limit, or unusable.
    tried: BTreeSet<(u64, u64)>,
    /// Number of connections to processes of each user.
    connections: BTreeMap<u32, usize>,
    /// Sockets whose queue was full; they are retried after all others.
    busy: Vec<UserSocket>,
}

/// Returns whether a connection failed because this process or the machine is short of descriptors
/// or memory.
fn is_shortage(error: &std::io::Error) -> bool {
    let shortages = [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::NOBUFS];
    shortages.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

impl UserFolderSearch {
    /// Connects to new sockets without waiting.
    fn knock(&mut self, on_found: impl Fn(Connection)) {
        let folders = user_folders().unwrap_or_else(|e| {
            log_warning!("providers of users cannot be found: {e}");
            Vec::new()
        });
        for folder in folders {
            // A folder that is unusable or gone is its owner's concern.
            let Ok(sockets) = user_sockets(&folder, MAX_SOCKETS) else { continue };
            let mut busy = 0;
            for socket in sockets {
                if self.announced.contains(&(socket.uid, socket.pid)) || !self.tried.insert(socket.file_id) {
                    continue;
                }
                let connections = self.connections.entry(socket.uid).or_default();
                if *connections >= MAX_LINKS_PER_GUEST {
                    continue;
                }
                match socket.connect(Duration::ZERO) {
                    Ok(connection) => {
                        *connections += 1;
                        on_found(connection);
                    }
                    Err(traceweir_transport::Error::System { source, .. }) if is_shortage(&source) => {
                        // The next pass, if there is one, tries this socket again.
                        self.tried.remove(&socket.file_id);
                        return;
                    }
                    Err(traceweir_transport::Error::TimedOut) => {
                        if busy < MAX_BUSY_OF_FOLDER && self.busy.len() < MAX_BUSY {
                            busy += 1;
                            self.busy.push(socket);
                        } else {
                            self.tried.remove(&socket.file_id);
                        }
                    }
                    Err(_) => {}
                }
            }
        }
    }

    /// Connects to the sockets whose queue was full.
    fn knock_at_busy_sockets(&mut self, on_found: impl Fn(Connection)) {
        for socket in std::mem::take(&mut self.busy) {
            if let Ok(connection) = socket.connect(KNOCK_TIMEOUT) {
                on_found(connection);
            }
        }
    }
}

/// Signal handlers that are removed when this is dropped.
pub(super) struct SignalHandlers(Vec<signal_hook::SigId>);

impl Drop for SignalHandlers {
    fn drop(&mut self) {
        for id in self.0.drain(..) {
            unregister(id);
        }
    }
}

/// The reading ends of the pipes that signal handlers write to.
pub(super) struct Signals {
    /// One byte for each SIGTERM and SIGINT.
    pub(super) stops: UnixStream,
    /// One byte for each SIGHUP; `None` where SIGHUP is ignored.
    pub(super) hangups: Option<UnixStream>,
    _handlers: SignalHandlers,
}

/// Installs the handlers of SIGTERM, SIGINT, SIGHUP and SIGXFSZ.
///
/// SIGHUP ends a daemon that was started in a terminal, since the terminal is gone then. Without a
/// terminal it is ignored: a log rotation or a reload that sends it does not intend to end
/// recordings. A SIGHUP that was ignored before (`nohup`) stays ignored.
pub(super) fn install_signal_handlers() -> Result<Signals> {
    let mut handlers = SignalHandlers(Vec::new());
    let (stops, writer) = signal_pipe()?;
    for signal in [SIGTERM, SIGINT] {
        let writer = writer.try_clone().map_err(Error::Signals)?;
        handlers.0.push(pipe::register(signal, writer).map_err(Error::Signals)?);
    }
    let mut hangups = None;
    if has_terminal() && !is_ignored(SIGHUP) {
        let (reader, writer) = signal_pipe()?;
        handlers.0.push(pipe::register(SIGHUP, writer).map_err(Error::Signals)?);
        hangups = Some(reader);
    } else {
        handlers.0.push(ignore_signal(SIGHUP).map_err(Error::Signals)?);
    }
    // A file that reaches the process's size limit ends its session, not the daemon.
    handlers.0.push(ignore_signal(SIGXFSZ).map_err(Error::Signals)?);
    Ok(Signals { stops, hangups, _handlers: handlers })
}

fn signal_pipe() -> Result<(UnixStream, UnixStream)> {
    let (reader, writer) = UnixStream::pair().map_err(Error::Signals)?;
    reader.set_nonblocking(true).map_err(Error::Signals)?;
    Ok((reader, writer))
}

fn ignore_signal(signal: i32) -> std::io::Result<signal_hook::SigId> {
    signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)))
}

/// Returns whether this process has a controlling terminal.
fn has_terminal() -> bool {
    File::open("/dev/tty").is_ok()
}

/// Returns whether this process ignores a signal, as after `nohup`.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    let bit = u32::try_from(signal.saturating_sub(1)).unwrap_or(u32::MAX);
    mask.checked_shr(bit).is_some_and(|bits| bits & 1 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates a provider socket whose queue is full.
    fn create_busy_socket(runtime: &RuntimeDir, pid: u32) -> (PathBuf, Listener, Vec<Connection>) {
        let path = runtime.new_provider_socket(pid);
        let listener = Listener::bind(&path, 0o600).unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let waiting = std::iter::from_fn(|| Connection::connect(&path, Duration::ZERO).ok()).collect();
        (path, listener, waiting)
    }

    #[test]
    fn busy_provider_sockets_are_retried_once_per_file_and_a_few_per_user() {
        let dir = tempfile::tempdir().unwrap();
        let runtime = RuntimeDir::from_path(dir.path());
        runtime.ensure().unwrap();
        let count_busy = || {
            let mut search = RuntimeFolderSearch::default();
            search.knock(&runtime, &mut UserFolderSearch::default(), |_| {
                panic!("a busy socket accepted a connection")
            });
            search.busy.len()
        };
        let (path, _listener, _waiting) = create_busy_socket(&runtime, 1);
        for pid in 2..8 {
            std::fs::hard_link(&path, runtime.new_provider_socket(pid)).unwrap();
        }
        assert_eq!(count_busy(), 1, "one file under several names");
        let _sockets: Vec<_> = (8..40).map(|pid| create_busy_socket(&runtime, pid)).collect();
        assert_eq!(count_busy(), MAX_BUSY_OF_USER);
    }
}
