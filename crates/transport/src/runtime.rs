//! Where daemons and providers find each other: one folder for each daemon.
//!
//! ```text
//!   RUNTIME/
//!     control.sock      the daemon listens: controllers, consumers and new providers connect
//!     daemon.lock       held (flock) by the daemon that runs
//!     own/              only under the system's daemon, mode 0700: a second `control.sock`, and
//!                       `enabled`, for processes of the daemon's own user
//!     providers/
//!       1234-0f1e2d3c4b5a6978.sock
//!                       a provider process listens: a daemon that starts connects to each
//!
//!   scope     RUNTIME                                               RUNTIME  providers  owner
//!   Named     $TRACEWEIR_RUNTIME_DIR                                0700     0700       this user or root
//!   User      $XDG_RUNTIME_DIR/traceweir, if that folder is ours,   0700     0700       this user
//!             else traceweir-UID in the temporary folder
//!   System    /run/traceweir                                        0755     1777       root
//! ```
//!
//! 1. Sockets are looked for only in folders that nobody but their owner (and root) can change: a folder that others may write to, has
//!    a foreign owner or, for the user's, is a symbolic link or open to others, is refused.
//! 2. An existing folder is never changed, only checked; missing ones are made.
//! 3. A program with more rights than its caller (set-user-id, set-group-id, capabilities of its file) does not believe the caller's environment, and
//!    announces itself to the system's daemon only: the user's folder is the caller's to change, and its daemon the caller's to replace.
//! 4. Nobody can take the name of another's provider socket: it holds 64 random bits. The process id in it is for people and for
//!    the process itself; who listens is told by the socket. Nor can one user's files hide those of another: they are counted by owner.
//! 5. The variable wins, where it is set and may be believed, for daemons, controllers and providers alike: nothing but the folder it
//!    names is used, whatever scope is asked for.

mod sweep;
mod users;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::hash::{BuildHasher, RandomState};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{env, fs, io};

use crate::error::{Error, Result};
use crate::socket::Connection;
pub use users::{UserSocket, user_folders, user_sockets};

/// The variable that names the folder of a daemon outright.
pub const RUNTIME_VARIABLE: &str = "TRACEWEIR_RUNTIME_DIR";

/// The folder of the system's daemon.
const SYSTEM: &str = "/run/traceweir";
const STICKY: u32 = 0o1000;

/// Which daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// The one named by `TRACEWEIR_RUNTIME_DIR`.
    Named,
    /// The system's, in `/run/traceweir`.
    System,
    /// The user's own.
    User,
}

/// The folder in which one daemon and the providers it may reach meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimeDir {
    /// Whose.
    pub scope: Scope,
    path: PathBuf,
}

impl RuntimeDir {
    /// The folders that a provider of this process announces itself in: the named one alone, or the user's and the system's. A program
    /// with more rights than its caller: the system's alone.
    #[must_use]
    pub fn for_providers() -> Vec<Self> {
        if named().is_some() {
            return Self::of(Scope::Named).into_iter().collect();
        }
        let system = Self::of(Scope::System).ok().filter(|system| system.path.is_dir());
        let user = if is_privileged_by_file() { None } else { Self::of(Scope::User).ok() };
        user.into_iter().chain(system).collect()
    }

    /// The folder of the daemon that is asked for: the named one where the variable names one, else that of the scope.
    pub fn resolve(scope: Scope) -> Result<Self> {
        Self::of(if named().is_some() { Scope::Named } else { scope })
    }

    /// The folders in which a controller or consumer looks, in that order: the one asked for; if none is, the system's and the user's. The
    /// system's is left out where it must not be used: in a user namespace its owner is nobody.
    pub fn for_controllers(scope: Option<Scope>) -> Result<Vec<Self>> {
        let scopes = scopes(scope, named().is_some());
        let is_passed_over =
            |scope: Scope, found: &Result<Self>| found.is_err() && scope == Scope::System && scopes.len() > 1;
        let folders = scopes.iter().map(|scope| (*scope, Self::of(*scope)));
        folders.filter(|(scope, found)| !is_passed_over(*scope, found)).map(|(_, found)| found).collect()
    }

    /// Whether a daemon here is to find the processes of all users, also those that have not announced themselves in this folder: it is the system's
    /// folder, and this process is root's.
    #[must_use]
    pub fn is_for_all_users(&self) -> bool {
        self.scope == Scope::System && self.path == Path::new(SYSTEM) && own_uid() == 0
    }

    /// Whether a controller of this process may start the daemon of this folder: its user's own, and for root the system's too. A program that
    /// has root's rights from its file is not root.
    #[must_use]
    pub fn may_be_started(&self) -> bool {
        self.scope != Scope::System || (own_uid() == 0 && !is_privileged_by_file())
    }

    /// The folder of one scope; an error where it cannot be told (none is named) or must not be used (a foreign owner). It may be missing.
    pub fn of(scope: Scope) -> Result<Self> {
        let path = match scope {
            Scope::Named => named().ok_or(Error::Invalid("TRACEWEIR_RUNTIME_DIR names no folder"))?,
            Scope::System => SYSTEM.into(),
            Scope::User => users(trusted_variable("XDG_RUNTIME_DIR"), temporary(), own_uid()),
        };
        let found = Self { scope, path };
        found.check_folder(own_uid())?;
        Ok(found)
    }

    /// A folder given by its path.
    #[must_use]
    pub fn at(path: &Path) -> Self {
        Self { scope: Scope::Named, path: path.to_owned() }
    }

    /// Creates it where it is missing (mode 0700 and owner checked for the user's; `providers` with mode 1777 for the system's).
    pub fn ensure(&self) -> Result<()> {
        let (folder, providers) = match self.scope {
            Scope::System => (0o755, 0o777 | STICKY),
            Scope::Named | Scope::User => (0o700, 0o700),
        };
        make(&self.path, folder)?;
        self.check_folder(own_uid())?;
        make(&self.providers(), providers)?;
        self.check_providers(own_uid())
    }

    /// The folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The permissions of the sockets in it: whoever may reach the folder of the system's daemon may connect, and is asked who he is.
    #[must_use]
    pub fn socket_mode(&self) -> u32 {
        if self.scope == Scope::System { 0o666 } else { 0o600 }
    }

    /// The daemon's socket.
    #[must_use]
    pub fn control_socket(&self) -> PathBuf {
        self.path.join("control.sock")
    }

    /// The lock that a running daemon holds.
    #[must_use]
    pub fn lock_file(&self) -> PathBuf {
        self.path.join("daemon.lock")
    }

    fn own_folder(&self) -> Self {
        Self { scope: Scope::User, path: self.path.join("own") }
    }

    /// Returns the folder for processes of the daemon's own user, where it exists and belongs to
    /// the user of this process alone. Its `control.sock` and `enabled` are out of reach of all
    /// other users.
    #[must_use]
    pub fn own(&self) -> Option<Self> {
        let own = self.own_folder();
        fs::symlink_metadata(&own.path).ok()?;
        self.check_folder(own_uid()).and_then(|()| own.check_folder(own_uid())).ok()?;
        Some(own)
    }

    /// Creates the folder for processes of the daemon's own user, which is the user of this
    /// process.
    pub fn make_own(&self) -> Result<Self> {
        let own = self.own_folder();
        make(&own.path, 0o700)?;
        own.check_folder(own_uid())?;
        Ok(own)
    }

    /// Removes the folder for processes of the daemon's own user, with the socket and the file in
    /// it.
    pub fn remove_own(&self) {
        let Some(own) = self.own() else { return };
        #[cfg(not(loom))]
        crate::enabled::remove(&own);
        // What cannot be removed is replaced by the next daemon.
        let _ = fs::remove_file(own.control_socket());
        let _ = fs::remove_dir(own.path);
    }

    /// The folder of provider sockets.
    #[must_use]
    pub fn providers(&self) -> PathBuf {
        self.path.join("providers")
    }

    /// A name for the socket of a provider process, which nobody can guess.
    #[must_use]
    pub fn new_provider_socket(&self, pid: u32) -> PathBuf {
        self.providers().join(format!("{pid}-{:016x}.sock", random()))
    }

    /// The sockets among the providers, somebody behind them or not: at most so many of each user, the users in turn.
    pub fn provider_sockets(&self, of_each: usize) -> Result<Vec<ProviderSocket>> {
        let entries = match fs::read_dir(self.providers()) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(|e| Error::system("reading the folder of providers", e))?,
        };
        let mut by_owner: BTreeMap<u32, Vec<ProviderSocket>> = BTreeMap::new();
        for entry in entries.flatten() {
            if let Some(socket) = ProviderSocket::of(&entry) {
                let others = by_owner.entry(socket.uid).or_default();
                if others.len() < of_each {
                    others.push(socket);
                }
            }
        }
        let mut all: Vec<(usize, ProviderSocket)> =
            by_owner.into_values().flat_map(|sockets| sockets.into_iter().enumerate()).collect();
        all.sort_by_key(|(turn, _)| *turn);
        Ok(all.into_iter().map(|(_, socket)| socket).collect())
    }

    /// Whether sockets may be looked for in the folder; a missing one is fine.
    fn check_folder(&self, uid: u32) -> Result<()> {
        // A name given outright may be a link; one that others could have put there may not.
        let found = match self.scope {
            Scope::Named => fs::metadata(&self.path),
            Scope::User | Scope::System => fs::symlink_metadata(&self.path),
        };
        let Some(found) = present(found)? else { return Ok(()) };
        let (owner_is_right, forbidden) = match self.scope {
            Scope::Named => (found.uid() == uid || found.uid() == 0, 0o022),
            Scope::User => (found.uid() == uid, 0o077),
            Scope::System => (found.uid() == 0, 0o022),
        };
        if !found.is_dir() || !owner_is_right {
            return Err(refused("the runtime folder is not a folder of the right owner"));
        }
        if found.mode() & forbidden != 0 {
            return Err(refused("the runtime folder is open to others"));
        }
        Ok(())
    }

    /// The same for the folder of provider sockets, which many users share under the system's daemon.
    fn check_providers(&self, uid: u32) -> Result<()> {
        let found = fs::symlink_metadata(self.providers());
        let Some(found) = present(found)? else { return Ok(()) };
        if !found.is_dir() || (found.uid() != uid && found.uid() != 0) {
            return Err(refused("the folder of provider sockets is not a folder of the right owner"));
        }
        let shared = found.mode() & 0o022 != 0;
        if shared && (self.scope == Scope::User || found.mode() & STICKY == 0) {
            return Err(refused("the folder of provider sockets is open to others"));
        }
        Ok(())
    }
}

/// A socket in the folder of providers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderSocket {
    /// Where.
    pub path: PathBuf,
    /// The process that its name claims, in the process's own namespace.
    pub pid: u32,
    /// Who owns the file.
    pub uid: u32,
}

impl ProviderSocket {
    /// A folder's entry, where it is one: links and files that are no socket are nobody's provider.
    fn of(entry: &fs::DirEntry) -> Option<Self> {
        let pid = claimed_pid(entry.file_name().to_str()?)?;
        if !entry.file_type().ok()?.is_socket() {
            return None;
        }
        Some(Self { path: entry.path(), pid, uid: entry.metadata().ok()?.uid() })
    }

    /// Connects to who listens, whom the connection names, and takes no descriptors of him. A socket that nobody listens to is stale:
    /// it is removed, where that is allowed. One that leads to somebody else than the file's owner is not believed.
    pub fn connect(&self, within: Duration) -> Result<Connection> {
        let connected = Connection::connect_warily(&self.path, within);
        match &connected {
            Ok(connection) if connection.peer().uid != self.uid => {
                Err(Error::Invalid("a provider socket leads to somebody else than its owner"))
            }
            Err(Error::System { source, .. }) if source.kind() == io::ErrorKind::ConnectionRefused => {
                // Gone already, or not ours to remove: either way it stays stale and harmless.
                let _ = fs::remove_file(&self.path);
                connected
            }
            _ => connected,
        }
    }
}

/// The process id in the name of a provider socket.
fn claimed_pid(name: &str) -> Option<u32> {
    let (pid, random) = name.strip_suffix(".sock")?.split_once('-')?;
    let is_random = random.len() == 16 && random.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    if is_random { pid.parse().ok() } else { None }
}

/// What was found; `None` where nothing is.
fn present(found: io::Result<fs::Metadata>) -> Result<Option<fs::Metadata>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(Error::system("looking at the runtime folder", e)),
    }
}

fn refused(why: &'static str) -> Error {
    Error::system(why, io::Error::from_raw_os_error(libc::EACCES))
}

/// Makes a folder with exactly this mode, whatever the umask; one that is there stays as it is.
fn make(path: &Path, mode: u32) -> Result<()> {
    // Never wider than meant, not even for a moment; then as wide as meant.
    match fs::DirBuilder::new().mode(mode & 0o700).create(path) {
        Ok(()) => fs::set_permissions(path, fs::Permissions::from_mode(mode))
            .map_err(|e| Error::system("setting the permissions of the runtime folder", e)),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(e) => Err(Error::system("creating the runtime folder", e)),
    }
}

/// The user's folder. A runtime folder of somebody else, which `su` and `sudo` leave in the environment, is not used.
fn users(runtime: Option<OsString>, temporary: PathBuf, uid: u32) -> PathBuf {
    let runtime = runtime.map(PathBuf::from).filter(|path| {
        path.is_absolute() && fs::metadata(path).is_ok_and(|found| found.is_dir() && found.uid() == uid)
    });
    match runtime {
        Some(path) => path.join("traceweir"),
        None => temporary.join(format!("traceweir-{uid}")),
    }
}

fn named() -> Option<PathBuf> {
    // Absolute, so that a process that changes its folder stays where it is.
    std::path::absolute(trusted_variable(RUNTIME_VARIABLE)?).ok()
}

fn scopes(asked: Option<Scope>, named: bool) -> &'static [Scope] {
    match asked {
        _ if named => &[Scope::Named],
        Some(Scope::Named) => &[Scope::Named],
        Some(Scope::System) => &[Scope::System],
        Some(Scope::User) => &[Scope::User],
        None => &[Scope::System, Scope::User],
    }
}

fn temporary() -> PathBuf {
    if is_privileged_by_file() { "/tmp".into() } else { env::temp_dir() }
}

/// A variable that is set, not empty, and whose giver may be believed: a program with more rights than its caller believes none.
#[must_use]
pub fn trusted_variable(name: &str) -> Option<OsString> {
    env::var_os(name).filter(|value| !value.is_empty() && !is_privileged_by_file())
}

fn own_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Whether the program file gave this process rights that its caller does not have.
#[must_use]
pub fn is_privileged_by_file() -> bool {
    // SAFETY: reads a word of the auxiliary vector; no preconditions.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// A number that no other process, daemon or library has drawn.
#[must_use]
pub fn random() -> u64 {
    // The hasher is keyed at random once for each thread; a forked child has its parent's keys, and another thread id or moment.
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let thread = rustix::thread::gettid().as_raw_nonzero().get();
    RandomState::new().hash_one((now.tv_sec, now.tv_nsec, thread))
}

#[cfg(test)]
mod tests;
