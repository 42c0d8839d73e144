//! Skeleton: where daemons and providers find each other.

use std::path::{Path, PathBuf};

use crate::error::Result;

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
    /// The folders that a provider of this process announces itself in: the named one alone, or the user's and the system's.
    #[must_use]
    pub fn for_providers() -> Vec<Self> {
        todo!()
    }

    /// The folder of one scope; an error where it cannot be told (no home for the user's, a foreign owner).
    pub fn of(scope: Scope) -> Result<Self> {
        let _ = scope;
        todo!()
    }

    /// A folder given by its path.
    #[must_use]
    pub fn at(path: &Path) -> Self {
        Self { scope: Scope::Named, path: path.to_owned() }
    }

    /// Creates it where it is missing (mode 0700 and owner checked for the user's; `providers` with mode 1777 for the system's).
    pub fn ensure(&self) -> Result<()> {
        todo!()
    }

    /// The folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
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

    /// The folder of provider sockets.
    #[must_use]
    pub fn providers(&self) -> PathBuf {
        self.path.join("providers")
    }

    /// The socket of one provider process.
    #[must_use]
    pub fn provider_socket(&self, pid: u32) -> PathBuf {
        self.providers().join(format!("{pid}.sock"))
    }
}
