//! The folders of a daemon's files, except its sockets.
//!
//! ```text
//!   daemon of        configuration               state                          logs
//!   the system       /etc/traceweir              /var/lib/traceweir             /var/log/traceweir
//!   a user           $XDG_CONFIG_HOME/traceweir  $XDG_STATE_HOME/traceweir      state/log
//!                    else ~/.config/traceweir    else ~/.local/state/traceweir
//!   another folder   that folder                 its folder state               its folder log
//! ```
//!
//! 1. Only the daemon in the system's runtime folder uses the folders of the system: a daemon that
//!    runs in another folder, named or not, neither reads nor writes them.
//! 2. A daemon only reads its configuration, except access lists, which it writes on request of a
//!    user who may change them.
//! 3. The daemon writes its state, which may be lost without harm.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use traceweir_transport::runtime::{RuntimeDir, Scope, trusted_variable};

/// The folders of one daemon; they may not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DaemonFolders {
    /// The folder with the configuration.
    pub config: PathBuf,
    /// The folder with the state that the daemon stores.
    pub state: PathBuf,
    /// The folder for log files without a chosen path.
    pub logs: PathBuf,
}

impl DaemonFolders {
    /// Returns the folders of a daemon; `None` if the environment names no home of the user.
    #[must_use]
    pub fn for_runtime(runtime: &RuntimeDir) -> Option<Self> {
        let is_system_folder =
            || RuntimeDir::for_scope(Scope::System).is_ok_and(|system| system.path() == runtime.path());
        match runtime.scope {
            Scope::System if is_system_folder() => Some(Self {
                config: "/etc/traceweir".into(),
                state: "/var/lib/traceweir".into(),
                logs: "/var/log/traceweir".into(),
            }),
            Scope::System | Scope::Named => Some(Self::inside(runtime.path())),
            Scope::User => {
                let state = user_folder("XDG_STATE_HOME", ".local/state")?;
                let logs = state.join("log");
                Some(Self { config: user_folder("XDG_CONFIG_HOME", ".config")?, state, logs })
            }
        }
    }

    pub(crate) fn inside(folder: &Path) -> Self {
        Self { config: folder.into(), state: folder.join("state"), logs: folder.join("log") }
    }

    /// Returns the folder of access lists.
    #[must_use]
    pub fn security(&self) -> PathBuf {
        self.config.join("security.d")
    }

    /// Returns the folder of autologgers.
    #[must_use]
    pub fn autologgers(&self) -> PathBuf {
        self.config.join("autologger.d")
    }

    /// Returns the settings file.
    #[must_use]
    pub fn settings(&self) -> PathBuf {
        self.config.join("traceweir.conf")
    }
}

fn user_folder(variable: &str, default: &str) -> Option<PathBuf> {
    let read_absolute =
        |name: &str| trusted_variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = read_absolute(variable).or_else(|| read_absolute("HOME").map(|home| home.join(default)))?;
    Some(base.join("traceweir"))
}

/// Creates a folder and its parent if they do not exist, writable for this user and readable for
/// all users. Missing folders above them are accessible to this user only.
pub(crate) fn create_folder(folder: &Path) -> io::Result<()> {
    let parent = folder.parent();
    if let Some(above) = parent.and_then(Path::parent) {
        DirBuilder::new().recursive(true).mode(0o700).create(above)?;
    }
    for folder in parent.into_iter().chain([folder]) {
        match DirBuilder::new().mode(0o700).create(folder) {
            // Sets the mode explicitly, regardless of the umask.
            Ok(()) => fs::set_permissions(folder, Permissions::from_mode(0o755))?,
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn named_folder_holds_everything_and_system_uses_standard_paths() {
        let named = DaemonFolders::for_runtime(&RuntimeDir::from_path(Path::new("/x"))).unwrap();
        assert_eq!(named.autologgers(), Path::new("/x/autologger.d"));
        assert_eq!(named.settings(), Path::new("/x/traceweir.conf"));
        assert_eq!(named.security(), Path::new("/x/security.d"));
        assert_eq!((&*named.state, &*named.logs), (Path::new("/x/state"), Path::new("/x/log")));
        let mut elsewhere = RuntimeDir::from_path(Path::new("/x"));
        elsewhere.scope = Scope::System;
        assert_eq!(
            DaemonFolders::for_runtime(&elsewhere),
            Some(named),
            "a daemon in another folder does not use the system's paths"
        );
        if let Ok(runtime) = RuntimeDir::for_scope(Scope::System) {
            let system = DaemonFolders::for_runtime(&runtime).unwrap();
            assert_eq!(system.autologgers(), Path::new("/etc/traceweir/autologger.d"));
            assert_eq!(system.security(), Path::new("/etc/traceweir/security.d"));
        }
    }
}
