//! Lists the folders that are searched for daemons, with the daemon in each.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use traceweir::Status;
use traceweir::controller::{Controller, Scope};
use traceweir_analysis::processes;
use traceweir_daemon::{RUNTIME_VARIABLE, RuntimeDir, trusted_variable};

use super::files::RootFiles;
use super::process::ProcessPrivileges;

/// A runtime folder that is searched for a daemon.
#[derive(Debug)]
pub(super) struct RuntimeFolder {
    pub(super) scope: Scope,
    pub(super) path: PathBuf,
    pub(super) state: FolderState,
}

/// The daemon of a folder, if any.
#[derive(Debug)]
pub(super) enum FolderState {
    /// No daemon runs. The daemon of a user or of a named folder is started when needed; the
    /// system's daemon cannot be started by this user.
    Absent,
    /// The system's daemon does not run and is started when needed, because the caller is root.
    Startable,
    /// A daemon runs and accepts this user.
    Running(RunningDaemon),
    /// A daemon runs and refuses this user.
    Refused(String),
    /// The folder is not usable, or the process that listens there does not answer.
    Unusable(String),
}

#[derive(Debug)]
pub(super) struct RunningDaemon {
    /// Pid, from the lock file or `/proc/locks`; `None` if neither shows it.
    pub(super) pid: Option<u32>,
    /// Path of the program, if readable.
    pub(super) program: Option<String>,
    /// Whether the daemon runs the same file as this process; `None` if unknown.
    pub(super) is_same_program: Option<bool>,
    pub(super) privileges: Option<ProcessPrivileges>,
}

impl RuntimeFolder {
    /// Returns the privileges of the daemon, if it runs and accepts this user.
    pub(super) fn privileges(&self) -> Option<&ProcessPrivileges> {
        match &self.state {
            FolderState::Running(daemon) => daemon.privileges.as_ref(),
            _ => None,
        }
    }

    /// Returns whether the system's daemon runs in this folder and accepts this user, or would be
    /// started.
    pub(super) fn serves_system(&self) -> bool {
        self.scope == Scope::System && matches!(self.state, FolderState::Running(_) | FolderState::Startable)
    }

    /// Returns the name of the daemon of this folder, for people.
    pub(super) fn daemon_name(&self) -> &'static str {
        match self.scope {
            Scope::System => "the system's daemon",
            Scope::User => "your own daemon",
            Scope::Named => "the daemon of TRACEWEIR_RUNTIME_DIR",
        }
    }
}

/// Returns the folders of this user in the order in which they are tried. Starts no daemon.
pub(super) fn list_folders(scope: Option<Scope>) -> Vec<RuntimeFolder> {
    let scopes: &[Scope] = match scope {
        _ if folder_from_env().is_some() => &[Scope::Named],
        Some(Scope::System) => &[Scope::System],
        Some(Scope::User) => &[Scope::User],
        _ => &[Scope::System, Scope::User],
    };
    scopes.iter().map(|scope| inspect_folder(*scope)).collect()
}

/// Returns the folder in `TRACEWEIR_RUNTIME_DIR`, unless the environment is not trusted.
pub(super) fn folder_from_env() -> Option<PathBuf> {
    trusted_variable(RUNTIME_VARIABLE).map(PathBuf::from)
}

fn inspect_folder(scope: Scope) -> RuntimeFolder {
    let dir = match RuntimeDir::for_scope(scope) {
        Ok(dir) => dir,
        Err(e) => {
            let path = match scope {
                Scope::System => "/run/traceweir".into(),
                Scope::Named => folder_from_env().unwrap_or_default(),
                Scope::User => "$XDG_RUNTIME_DIR/traceweir or /tmp/traceweir-UID".into(),
            };
            return RuntimeFolder { scope, path, state: FolderState::Unusable(e.to_string()) };
        }
    };
    let state = match Controller::find(Some(scope)) {
        Ok(None) if scope == Scope::System && dir.may_be_started() => FolderState::Startable,
        Ok(None) => FolderState::Absent,
        Ok(Some(_)) => FolderState::Running(inspect_daemon(&dir)),
        Err(e) if e.status() == Status::ERROR_ACCESS_DENIED => FolderState::Refused(e.to_string()),
        Err(e) => FolderState::Unusable(e.to_string()),
    };
    RuntimeFolder { scope, path: dir.path().to_owned(), state }
}

/// Returns pid, program and privileges of the daemon that holds the lock of a folder.
fn inspect_daemon(dir: &RuntimeDir) -> RunningDaemon {
    let lock = RootFiles(dir.path()).read_text("daemon.lock");
    let pid_in_lock = lock.and_then(|text| text.trim().parse().ok());
    let pid: Option<u32> = pid_in_lock
        .or_else(|| find_lock_holder(&dir.lock_file(), &RootFiles(Path::new("/")).read_text("proc/locks")?));
    let file_id = |path: &Path| fs::metadata(path).ok().map(|metadata| (metadata.dev(), metadata.ino()));
    let own_program = file_id(Path::new("/proc/self/exe"));
    let daemon_program = pid.and_then(|pid| file_id(Path::new(&format!("/proc/{pid}/exe"))));
    RunningDaemon {
        pid,
        program: pid.and_then(processes::program_of),
        is_same_program: own_program.zip(daemon_program).map(|(own, daemon)| own == daemon),
        privileges: pid.map(|pid| ProcessPrivileges::read(Path::new("/"), &pid.to_string())),
    }
}

/// Finds the process that holds the lock on `file` in the lines of `/proc/locks`, such as
/// `3: FLOCK  ADVISORY  WRITE 4711 00:1a:93 0 EOF`. This also works for users who cannot read the
/// lock file itself.
fn find_lock_holder(file: &Path, locks: &str) -> Option<u32> {
    let metadata = fs::metadata(file).ok()?;
    let (major, minor) = (rustix::fs::major(metadata.dev()), rustix::fs::minor(metadata.dev()));
    let lock_id = format!("{major:02x}:{minor:02x}:{}", metadata.ino());
    locks.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, "FLOCK", _, _, pid, locked_file, ..] = *words.as_slice() else { return None };
        if locked_file == lock_id { pid.parse().ok() } else { None }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::skip;

    #[test]
    fn lock_holder_is_found_in_proc_locks() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("daemon.lock");
        let file = fs::File::create(&path).unwrap();
        rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).unwrap();
        let metadata = fs::metadata(&path).unwrap();
        let lock_id = format!(
            "{:02x}:{:02x}:{}",
            rustix::fs::major(metadata.dev()),
            rustix::fs::minor(metadata.dev()),
            metadata.ino()
        );
        let locks = format!(
            "1: POSIX  ADVISORY  WRITE 7 {lock_id} 0 EOF\n2: FLOCK  ADVISORY  WRITE 4711 {lock_id} 0 EOF\n"
        );
        assert_eq!(find_lock_holder(&path, &locks), Some(4711));
        assert_eq!(find_lock_holder(&path, "2: FLOCK ADVISORY WRITE 4711 00:00:1 0 EOF\nnonsense\n"), None);
        assert_eq!(find_lock_holder(&folder.path().join("none"), &locks), None);
    }

    #[test]
    fn kernel_lists_lock_on_tmpfs_in_expected_format() {
        // Runtime folders are on tmpfs; other file systems may number their files differently.
        let Ok(folder) = tempfile::tempdir_in("/dev/shm") else {
            return skip::skip("shm", "there is no /dev/shm to write to");
        };
        let path = folder.path().join("daemon.lock");
        let file = fs::File::create(&path).unwrap();
        rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).unwrap();
        let locks = fs::read_to_string("/proc/locks").unwrap();
        assert_eq!(find_lock_holder(&path, &locks), Some(std::process::id()), "{locks}");
    }
}
