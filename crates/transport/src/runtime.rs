//! The runtime folder, where daemons and providers find each other: one folder for each daemon.
//!
//! ```text
//!   RUNTIME/
//!     control.sock      the daemon listens: controllers, consumers and new providers connect
//!     daemon.lock       held (flock) by the daemon that runs
//!     enabled           the providers that sessions have enabled (enabled.rs); the system's daemon
//!                       keeps this file in own/
//!     own/              only under the system's daemon, mode 0700: a second `control.sock`, and
//!                       `enabled`, for processes of the daemon's own user
//!     providers/
//!       1234-0f1e2d3c4b5a6978.sock
//!                       a provider process listens: a daemon that starts connects to each
//!
//!   scope     RUNTIME                                         mode     providers/ owner
//!   Named     $TRACEWEIR_RUNTIME_DIR                          0700     0700       user or root
//!   User      $XDG_RUNTIME_DIR/traceweir, if it is the        0700     0700       this user
//!             user's, else traceweir-UID in the temporary
//!             folder
//!   System    /run/traceweir                                  0755     1777       root
//! ```
//!
//! The columns `mode` and `providers/` are the modes with which RUNTIME and its folder `providers`
//! are created; `owner` is the owner that RUNTIME must have.
//!
//! 1. Sockets are searched only in folders that only their owner and root can change: a folder that
//!    other users may write to, or that has a foreign owner, is rejected. A symbolic link is
//!    accepted only for a named folder. The user's folder must have no permissions for other users.
//! 2. An existing folder is never changed, only checked; a missing folder is created.
//! 3. A program with more privileges than its caller (set-user-id, set-group-id, file capabilities)
//!    does not trust the caller's environment, and announces itself only to the system's daemon:
//!    the caller can change the user's folder and replace its daemon.
//! 4. No user can take the name of another user's provider socket: the name holds 64 random bits.
//!    The process id in the name is informative; the connection identifies the process that
//!    listens. The files of one user cannot hide those of another: they are counted by owner.
//! 5. If `TRACEWEIR_RUNTIME_DIR` is set and trusted, daemons, controllers and providers use only
//!    the folder that it names, whatever scope is requested.

mod sweep;
mod users;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{env, fs, io};

use crate::error::{Error, Result};
pub use crate::random::random;
use crate::socket::Connection;
pub use users::{UserSocket, user_folders, user_sockets};

/// Environment variable that names the folder of a daemon directly.
pub const RUNTIME_VARIABLE: &str = "TRACEWEIR_RUNTIME_DIR";

/// Folder of the system's daemon.
const SYSTEM_FOLDER: &str = "/run/traceweir";
const STICKY_BIT: u32 = 0o1000;

/// The daemon that a folder belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// The daemon of the folder that `TRACEWEIR_RUNTIME_DIR` names.
    Named,
    /// The system's daemon, in `/run/traceweir`.
    System,
    /// The user's own daemon.
    User,
}

/// The folder in which one daemon and its providers meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimeDir {
    /// The daemon that meets its providers here.
    pub scope: Scope,
    path: PathBuf,
}

impl RuntimeDir {
    /// Returns the folders in which a provider of this process announces itself: only the named
    /// folder if there is one, otherwise the user's and the system's. A program with more
    /// privileges than its caller uses only the system's folder.
    #[must_use]
    pub fn for_providers() -> Vec<Self> {
        if named_folder().is_some() {
            return Self::for_scope(Scope::Named).into_iter().collect();
        }
        let system = Self::for_scope(Scope::System).ok().filter(|system| system.path.is_dir());
        let user = if is_privileged_by_file() { None } else { Self::for_scope(Scope::User).ok() };
        user.into_iter().chain(system).collect()
    }

    /// Returns the folder of a daemon: the folder that `TRACEWEIR_RUNTIME_DIR` names, otherwise the
    /// folder of the scope.
    pub fn resolve(scope: Scope) -> Result<Self> {
        Self::for_scope(if named_folder().is_some() { Scope::Named } else { scope })
    }

    /// Returns the folders in which a controller or consumer searches for a daemon, in the order of
    /// the search. If there is a named folder, this is the only one. Otherwise it is the folder of
    /// the requested scope or, without a request, the system's folder and then the user's. In the
    /// last case the system's folder is left out if it must not be used, as in a user namespace,
    /// where its owner is the overflow user `nobody`.
    pub fn for_controllers(scope: Option<Scope>) -> Result<Vec<Self>> {
        let scopes = searched_scopes(scope, named_folder().is_some());
        let is_left_out =
            |scope: Scope, dir: &Result<Self>| dir.is_err() && scope == Scope::System && scopes.len() > 1;
        let folders = scopes.iter().map(|scope| (*scope, Self::for_scope(*scope)));
        folders.filter(|(scope, dir)| !is_left_out(*scope, dir)).map(|(_, dir)| dir).collect()
    }

    /// Returns whether a daemon in this folder also finds processes that have announced themselves
    /// only in the folders of their users: this is the system's folder, and this process is root's.
    #[must_use]
    pub fn is_for_all_users(&self) -> bool {
        self.scope == Scope::System && self.path == Path::new(SYSTEM_FOLDER) && own_uid() == 0
    }

    /// Returns whether a controller of this process may start the daemon of this folder. It may
    /// start the daemon of a named folder or of its own user; root may also start the system's
    /// daemon. A program with root privileges from its file does not count as root.
    #[must_use]
    pub fn may_be_started(&self) -> bool {
        self.scope != Scope::System || (own_uid() == 0 && !is_privileged_by_file())
    }

    /// Returns the folder of one scope, which may not exist. Fails for [`Scope::Named`] if
    /// `TRACEWEIR_RUNTIME_DIR` names no folder, and for every scope if the folder must not be used,
    /// because it has a foreign owner or is open to others.
    pub fn for_scope(scope: Scope) -> Result<Self> {
        let path = match scope {
            Scope::Named => named_folder().ok_or(Error::Invalid("TRACEWEIR_RUNTIME_DIR names no folder"))?,
            Scope::System => SYSTEM_FOLDER.into(),
            Scope::User => user_folder(trusted_variable("XDG_RUNTIME_DIR"), temporary_folder(), own_uid()),
        };
        let dir = Self { scope, path };
        dir.check_folder(own_uid())?;
        Ok(dir)
    }

    /// Returns the folder at a path as a named folder, without checking it.
    #[must_use]
    pub fn from_path(path: &Path) -> Self {
        Self { scope: Scope::Named, path: path.to_owned() }
    }

    /// Creates the folder and its `providers` if they do not exist, with the modes in the table of
    /// this module, and checks owners and modes.
    pub fn ensure(&self) -> Result<()> {
        let (folder, providers) = match self.scope {
            Scope::System => (0o755, 0o777 | STICKY_BIT),
            Scope::Named | Scope::User => (0o700, 0o700),
        };
        create_folder(&self.path, folder)?;
        self.check_folder(own_uid())?;
        create_folder(&self.providers(), providers)?;
        self.check_providers(own_uid())
    }

    /// Returns the path of the folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the permissions of the sockets in the folder. Every process may connect to the
    /// sockets of the system's daemon, which identifies the peer of each connection.
    #[must_use]
    pub fn socket_mode(&self) -> u32 {
        if self.scope == Scope::System { 0o666 } else { 0o600 }
    }

    /// Returns the path of the daemon's socket.
    #[must_use]
    pub fn control_socket(&self) -> PathBuf {
        self.path.join("control.sock")
    }

    /// Returns the path of the lock file that a running daemon holds.
    #[must_use]
    pub fn lock_file(&self) -> PathBuf {
        self.path.join("daemon.lock")
    }

    fn own_folder(&self) -> Self {
        Self { scope: Scope::User, path: self.path.join("own") }
    }

    /// Returns the folder for processes of the daemon's own user, if it exists and belongs only to
    /// the user of this process. Its `control.sock` and `enabled` are out of reach of all other
    /// users.
    #[must_use]
    pub fn own_user_folder(&self) -> Option<Self> {
        let own = self.own_folder();
        fs::symlink_metadata(&own.path).ok()?;
        self.check_folder(own_uid()).and_then(|()| own.check_folder(own_uid())).ok()?;
        Some(own)
    }

    /// Creates the folder for processes of the daemon's own user, which is the user of this
    /// process.
    pub fn make_own(&self) -> Result<Self> {
        let own = self.own_folder();
        create_folder(&own.path, 0o700)?;
        own.check_folder(own_uid())?;
        Ok(own)
    }

    /// Removes the folder for processes of the daemon's own user, with the socket and the file in
    /// it.
    pub fn remove_own(&self) {
        let Some(own) = self.own_user_folder() else { return };
        own.remove_enabled_file();
        // The next daemon replaces files that cannot be removed.
        let _ = fs::remove_file(own.control_socket());
        let _ = fs::remove_dir(own.path);
    }

    /// Returns the path of the file of enabled providers (see [`enabled`](crate::enabled)).
    pub(crate) fn enabled_file(&self) -> PathBuf {
        self.path.join("enabled")
    }

    /// Returns the path of the file of enabled providers while it is written.
    pub(crate) fn unfinished_enabled_file(&self) -> PathBuf {
        self.path.join(".enabled")
    }

    /// Removes the file of enabled providers, and an unfinished one that a killed daemon left.
    pub fn remove_enabled_file(&self) {
        // Errors do not matter: often, the files do not exist.
        let _ = fs::remove_file(self.enabled_file());
        let _ = fs::remove_file(self.unfinished_enabled_file());
    }

    /// Returns the folder of provider sockets.
    #[must_use]
    pub fn providers(&self) -> PathBuf {
        self.path.join("providers")
    }

    /// Returns a name for the socket of a provider process, which no other process can guess.
    #[must_use]
    pub fn new_provider_socket(&self, pid: u32) -> PathBuf {
        self.providers().join(format!("{pid}-{:016x}.sock", random()))
    }

    /// Returns the sockets of providers, stale or not: at most `max_per_user` of each user. The
    /// first sockets of all users come first, then the second sockets, and so on.
    pub fn provider_sockets(&self, max_per_user: usize) -> Result<Vec<ProviderSocket>> {
        let entries = match fs::read_dir(self.providers()) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(|e| Error::system("reading the folder of providers", e))?,
        };
        let mut by_owner: BTreeMap<u32, Vec<ProviderSocket>> = BTreeMap::new();
        for entry in entries.flatten() {
            if let Some(socket) = ProviderSocket::from_entry(&entry) {
                let sockets = by_owner.entry(socket.uid).or_default();
                if sockets.len() < max_per_user {
                    sockets.push(socket);
                }
            }
        }
        let mut sockets: Vec<(usize, ProviderSocket)> =
            by_owner.into_values().flat_map(|sockets| sockets.into_iter().enumerate()).collect();
        sockets.sort_by_key(|(index, _)| *index);
        Ok(sockets.into_iter().map(|(_, socket)| socket).collect())
    }

    /// Fails if sockets must not be searched in the folder; a missing folder is fine.
    fn check_folder(&self, uid: u32) -> Result<()> {
        // A named folder may be a symbolic link. Other folders may not, because another user could
        // have created the link.
        let metadata = match self.scope {
            Scope::Named => fs::metadata(&self.path),
            Scope::User | Scope::System => fs::symlink_metadata(&self.path),
        };
        let Some(metadata) = metadata_if_present(metadata)? else { return Ok(()) };
        let (is_owner_right, forbidden) = match self.scope {
            Scope::Named => (metadata.uid() == uid || metadata.uid() == 0, 0o022),
            Scope::User => (metadata.uid() == uid, 0o077),
            Scope::System => (metadata.uid() == 0, 0o022),
        };
        if !metadata.is_dir() || !is_owner_right {
            return Err(access_denied("the runtime folder is not a folder of the right owner"));
        }
        if metadata.mode() & forbidden != 0 {
            return Err(access_denied("the runtime folder is open to others"));
        }
        Ok(())
    }

    /// Checks the folder of provider sockets, which many users share under the system's daemon.
    fn check_providers(&self, uid: u32) -> Result<()> {
        let metadata = fs::symlink_metadata(self.providers());
        let Some(metadata) = metadata_if_present(metadata)? else { return Ok(()) };
        if !metadata.is_dir() || (metadata.uid() != uid && metadata.uid() != 0) {
            return Err(access_denied("the folder of provider sockets is not a folder of the right owner"));
        }
        let is_shared = metadata.mode() & 0o022 != 0;
        if is_shared && (self.scope == Scope::User || metadata.mode() & STICKY_BIT == 0) {
            return Err(access_denied("the folder of provider sockets is open to others"));
        }
        Ok(())
    }
}

/// A socket in the folder of providers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderSocket {
    /// Path of the socket.
    pub path: PathBuf,
    /// Process id in its name, in the process's own namespace.
    pub pid: u32,
    /// Owner of the file.
    pub uid: u32,
    /// Device and inode of the file, which several names may have.
    pub file_id: (u64, u64),
}

impl ProviderSocket {
    /// Returns the provider socket of a folder entry; `None` for links and other files.
    fn from_entry(entry: &fs::DirEntry) -> Option<Self> {
        let pid = parse_socket_pid(entry.file_name().to_str()?)?;
        if !entry.file_type().ok()?.is_socket() {
            return None;
        }
        let metadata = entry.metadata().ok()?;
        let file_id = (metadata.dev(), metadata.ino());
        Some(Self { path: entry.path(), pid, uid: metadata.uid(), file_id })
    }

    /// Connects to the process that listens, and accepts no descriptors from it. A socket without a
    /// listener is stale and is removed, if this process may remove it. A listener that is not the
    /// file's owner is rejected.
    pub fn connect(&self, timeout: Duration) -> Result<Connection> {
        let connected = Connection::connect_without_descriptors(&self.path, timeout);
        match &connected {
            Ok(connection) if connection.peer().uid != self.uid => {
                Err(Error::Invalid("the listener of a provider socket is not the socket's owner"))
            }
            Err(Error::System { source, .. }) if source.kind() == io::ErrorKind::ConnectionRefused => {
                // Fails if it is already removed, or owned by another user: a stale socket is
                // harmless.
                let _ = fs::remove_file(&self.path);
                connected
            }
            _ => connected,
        }
    }
}

/// Returns the process id in the name of a provider socket.
fn parse_socket_pid(name: &str) -> Option<u32> {
    let (pid, random) = name.strip_suffix(".sock")?.split_once('-')?;
    let is_random = random.len() == 16 && random.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    if is_random { pid.parse().ok() } else { None }
}

/// Turns the error of a missing file into `None`.
fn metadata_if_present(metadata: io::Result<fs::Metadata>) -> Result<Option<fs::Metadata>> {
    match metadata {
        Ok(metadata) => Ok(Some(metadata)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(Error::system("inspecting the runtime folder", e)),
    }
}

fn access_denied(reason: &'static str) -> Error {
    Error::system(reason, io::Error::from_raw_os_error(libc::EACCES))
}

/// Creates a folder with exactly this mode, whatever the umask; an existing folder stays unchanged.
fn create_folder(path: &Path, mode: u32) -> Result<()> {
    // The folder is created with the owner's permissions only, so it is never open too far.
    match fs::DirBuilder::new().mode(mode & 0o700).create(path) {
        Ok(()) => fs::set_permissions(path, fs::Permissions::from_mode(mode))
            .map_err(|e| Error::system("setting the permissions of the runtime folder", e)),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(e) => Err(Error::system("creating the runtime folder", e)),
    }
}

/// Returns the user's folder. Does not use a runtime folder of another user, which `su` and `sudo`
/// leave in the environment.
fn user_folder(runtime: Option<OsString>, temporary: PathBuf, uid: u32) -> PathBuf {
    let runtime = runtime.map(PathBuf::from).filter(|path| {
        path.is_absolute() && fs::metadata(path).is_ok_and(|stat| stat.is_dir() && stat.uid() == uid)
    });
    match runtime {
        Some(path) => path.join("traceweir"),
        None => temporary.join(format!("traceweir-{uid}")),
    }
}

fn named_folder() -> Option<PathBuf> {
    // Absolute, so that it stays valid if the process changes its working directory.
    std::path::absolute(trusted_variable(RUNTIME_VARIABLE)?).ok()
}

fn searched_scopes(requested: Option<Scope>, is_named: bool) -> &'static [Scope] {
    match requested {
        _ if is_named => &[Scope::Named],
        Some(Scope::Named) => &[Scope::Named],
        Some(Scope::System) => &[Scope::System],
        Some(Scope::User) => &[Scope::User],
        None => &[Scope::System, Scope::User],
    }
}

fn temporary_folder() -> PathBuf {
    if is_privileged_by_file() { "/tmp".into() } else { env::temp_dir() }
}

/// Returns the value of an environment variable; `None` if it is not set or empty, or if this
/// program has more privileges than its caller and so does not trust the environment.
#[must_use]
pub fn trusted_variable(name: &str) -> Option<OsString> {
    env::var_os(name).filter(|value| !value.is_empty() && !is_privileged_by_file())
}

fn own_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Returns whether the program file gave this process privileges that its caller does not have.
#[must_use]
pub fn is_privileged_by_file() -> bool {
    // SAFETY: reads a word of the auxiliary vector; no preconditions.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

#[cfg(test)]
mod tests;
