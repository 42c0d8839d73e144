//! Finds daemons: the folders that are searched, and the daemon in each.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use traceweir::Status;
use traceweir::controller::{Controller, Scope};
use traceweir_daemon::{RUNTIME_VARIABLE, RuntimeDir, trusted_variable};

use super::files::Files;
use super::process::Process;
use crate::processes;

/// A runtime folder in which a daemon is searched.
#[derive(Debug)]
pub(super) struct Folder {
    pub(super) scope: Scope,
    pub(super) path: PathBuf,
    pub(super) state: FolderState,
}

/// The daemon of a folder, if any.
#[derive(Debug)]
pub(super) enum FolderState {
    /// No daemon runs, and none needs to.
    Absent,
    /// No daemon runs; the system's daemon is started when needed, because the caller is root.
    Startable,
    /// A daemon runs and accepts this user.
    Running(Daemon),
    /// A daemon runs and refuses this user.
    Refused(String),
    /// The folder is not usable, or the process that listens there does not answer.
    Unusable(String),
}

/// A running daemon.
#[derive(Debug)]
pub(super) struct Daemon {
    /// Its pid, from its lock; `None` if that cannot be read.
    pub(super) pid: Option<u32>,
    /// Path of its program, if readable.
    pub(super) program: Option<String>,
    /// Whether it runs the same file as this process; `None` if unknown.
    pub(super) is_same_program: Option<bool>,
    pub(super) process: Option<Process>,
}

impl Folder {
    /// Returns the process of the daemon, if it runs and accepts this user.
    pub(super) fn process(&self) -> Option<&Process> {
        match &self.state {
            FolderState::Running(daemon) => daemon.process.as_ref(),
            _ => None,
        }
    }

    /// Returns whether the system's daemon runs here and accepts this user, or would be started.
    pub(super) fn is_of_system(&self) -> bool {
        self.scope == Scope::System && matches!(self.state, FolderState::Running(_) | FolderState::Startable)
    }

    /// Returns which daemon it is, for people.
    pub(super) fn daemon_name(&self) -> &'static str {
        match self.scope {
            Scope::System => "the system's daemon",
            Scope::User => "your own daemon",
            Scope::Named => "the daemon of TRACEWEIR_RUNTIME_DIR",
        }
    }
}

/// Returns the folders of this user in the order in which they are tried. Starts no daemon.
pub(super) fn folders(scope: Option<Scope>) -> Vec<Folder> {
    let scopes: &[Scope] = match scope {
        _ if named().is_some() => &[Scope::Named],
        Some(Scope::System) => &[Scope::System],
        Some(Scope::User) => &[Scope::User],
        _ => &[Scope::System, Scope::User],
    };
    scopes.iter().map(|scope| inspect_folder(*scope)).collect()
}

/// Returns the folder in `TRACEWEIR_RUNTIME_DIR`, unless the environment is not trusted.
pub(super) fn named() -> Option<PathBuf> {
    trusted_variable(RUNTIME_VARIABLE).map(PathBuf::from)
}

fn inspect_folder(scope: Scope) -> Folder {
    let dir = match RuntimeDir::for_scope(scope) {
        Ok(dir) => dir,
        Err(e) => {
            let path = match scope {
                Scope::System => "/run/traceweir".into(),
                Scope::Named => named().unwrap_or_default(),
                Scope::User => "$XDG_RUNTIME_DIR/traceweir or /tmp/traceweir-UID".into(),
            };
            return Folder { scope, path, state: FolderState::Unusable(e.to_string()) };
        }
    };
    let state = match Controller::find(Some(scope)) {
        Ok(None) if scope == Scope::System && dir.may_be_started() => FolderState::Startable,
        Ok(None) => FolderState::Absent,
        Ok(Some(_)) => FolderState::Running(daemon(&dir)),
        Err(e) if e.status() == Status::ERROR_ACCESS_DENIED => FolderState::Refused(e.to_string()),
        Err(e) => FolderState::Unusable(e.to_string()),
    };
    Folder { scope, path: dir.path().to_owned(), state }
}

/// Reads the daemon that holds the lock of a folder.
fn daemon(dir: &RuntimeDir) -> Daemon {
    let lock = Files(dir.path()).text("daemon.lock");
    let locked_by = lock.and_then(|text| text.trim().parse().ok());
    let pid: Option<u32> =
        locked_by.or_else(|| lock_holder(&dir.lock_file(), &Files(Path::new("/")).text("proc/locks")?));
    let file = |path: &Path| fs::metadata(path).ok().map(|metadata| (metadata.dev(), metadata.ino()));
    let own = file(Path::new("/proc/self/exe"));
    let its = pid.and_then(|pid| file(Path::new(&format!("/proc/{pid}/exe"))));
    Daemon {
        pid,
        program: pid.and_then(processes::program_of),
        is_same_program: own.zip(its).map(|(own, its)| own == its),
        process: pid.map(|pid| Process::read(Path::new("/"), &pid.to_string())),
    }
}

/// Finds the process that holds a lock file which only its owner can read. The kernel lists all
/// locks, as `3: FLOCK  ADVISORY  WRITE 4711 00:1a:93 0 EOF`.
fn lock_holder(file: &Path, locks: &str) -> Option<u32> {
    let found = fs::metadata(file).ok()?;
    let (major, minor) = (rustix::fs::major(found.dev()), rustix::fs::minor(found.dev()));
    let wanted = format!("{major:02x}:{minor:02x}:{}", found.ino());
    locks.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, "FLOCK", _, _, pid, file, ..] = *words.as_slice() else { return None };
        if file == wanted { pid.parse().ok() } else { None }
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
        let found = fs::metadata(&path).unwrap();
        let place = format!(
            "{:02x}:{:02x}:{}",
            rustix::fs::major(found.dev()),
            rustix::fs::minor(found.dev()),
            found.ino()
        );
        let locks = format!(
            "1: POSIX  ADVISORY  WRITE 7 {place} 0 EOF\n2: FLOCK  ADVISORY  WRITE 4711 {place} 0 EOF\n"
        );
        assert_eq!(lock_holder(&path, &locks), Some(4711));
        assert_eq!(lock_holder(&path, "2: FLOCK ADVISORY WRITE 4711 00:00:1 0 EOF\nnonsense\n"), None);
        assert_eq!(lock_holder(&folder.path().join("none"), &locks), None);
    }

    #[test]
    fn kernel_lists_lock_on_tmpfs_in_expected_format() {
        // tmpfs, as runtime folders use: other file systems may number their files differently.
        let Ok(folder) = tempfile::tempdir_in("/dev/shm") else {
            return skip::skip("shm", "there is no /dev/shm to write to");
        };
        let path = folder.path().join("daemon.lock");
        let file = fs::File::create(&path).unwrap();
        rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).unwrap();
        let locks = fs::read_to_string("/proc/locks").unwrap();
        assert_eq!(lock_holder(&path, &locks), Some(std::process::id()), "{locks}");
    }
}
