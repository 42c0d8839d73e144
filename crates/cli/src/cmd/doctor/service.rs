//! Daemons: where they are looked for, and which one runs there.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use traceweir::Status;
use traceweir::controller::{Controller, Scope};
use traceweir_daemon::{RUNTIME_VARIABLE, RuntimeDir, trusted_variable};

use super::machine::Files;
use super::process::Process;
use crate::processes;

/// A folder in which a daemon is looked for.
#[derive(Debug)]
pub(super) struct Folder {
    pub(super) scope: Scope,
    pub(super) path: PathBuf,
    pub(super) life: Life,
}

/// What is there.
#[derive(Debug)]
pub(super) enum Life {
    /// Nobody, and nothing is wrong with that.
    Absent,
    /// Nobody, and the system's daemon is started when it is needed, for root asks.
    Startable,
    /// A daemon that serves us.
    Running(Daemon),
    /// One that does not let us in.
    Refused(String),
    /// The folder cannot be used, or who listens there does not answer.
    Unusable(String),
}

/// A daemon that runs.
#[derive(Debug)]
pub(super) struct Daemon {
    /// By its lock; `None` where that cannot be read.
    pub(super) pid: Option<u32>,
    /// What it runs, where it lets us look.
    pub(super) program: Option<String>,
    /// Whether that is the very file of this program; `None`: not known.
    pub(super) is_same_program: Option<bool>,
    pub(super) process: Option<Process>,
}

impl Folder {
    /// The process of the daemon that runs there and serves us.
    pub(super) fn process(&self) -> Option<&Process> {
        match &self.life {
            Life::Running(daemon) => daemon.process.as_ref(),
            _ => None,
        }
    }

    /// Whether the system's daemon runs there and serves us, or would be started.
    pub(super) fn is_of_system(&self) -> bool {
        self.scope == Scope::System && matches!(self.life, Life::Running(_) | Life::Startable)
    }

    /// Whose daemon it is, for people.
    pub(super) fn daemon_choice(&self) -> &'static str {
        match self.scope {
            Scope::System => "the system's daemon",
            Scope::User => "your own daemon",
            Scope::Named => "the daemon of TRACEWEIR_RUNTIME_DIR",
        }
    }
}

/// The folders of this user, in the order in which they are tried. No daemon is started.
pub(super) fn folders(scope: Option<Scope>) -> Vec<Folder> {
    let scopes: &[Scope] = match scope {
        _ if named().is_some() => &[Scope::Named],
        Some(Scope::System) => &[Scope::System],
        Some(Scope::User) => &[Scope::User],
        _ => &[Scope::System, Scope::User],
    };
    scopes.iter().map(|scope| look(*scope)).collect()
}

/// The folder that the environment names, where it may be believed.
pub(super) fn named() -> Option<PathBuf> {
    trusted_variable(RUNTIME_VARIABLE).map(PathBuf::from)
}

fn look(scope: Scope) -> Folder {
    let dir = match RuntimeDir::of(scope) {
        Ok(dir) => dir,
        Err(e) => {
            let path = match scope {
                Scope::System => "/run/traceweir".into(),
                Scope::Named => named().unwrap_or_default(),
                Scope::User => "$XDG_RUNTIME_DIR/traceweir or /tmp/traceweir-UID".into(),
            };
            return Folder { scope, path, life: Life::Unusable(e.to_string()) };
        }
    };
    let life = match Controller::find(Some(scope)) {
        Ok(None) if scope == Scope::System && dir.may_be_started() => Life::Startable,
        Ok(None) => Life::Absent,
        Ok(Some(_)) => Life::Running(daemon(&dir)),
        Err(e) if e.status() == Status::ERROR_ACCESS_DENIED => Life::Refused(e.to_string()),
        Err(e) => Life::Unusable(e.to_string()),
    };
    Folder { scope, path: dir.path().to_owned(), life }
}

/// Who holds the lock of a folder.
fn daemon(dir: &RuntimeDir) -> Daemon {
    let lock = Files(dir.path()).text("daemon.lock");
    let told = lock.and_then(|text| text.trim().parse().ok());
    let pid: Option<u32> =
        told.or_else(|| holder(&dir.lock_file(), &Files(Path::new("/")).text("proc/locks")?));
    let file = |path: &Path| fs::metadata(path).ok().map(|it| (it.dev(), it.ino()));
    let own = file(Path::new("/proc/self/exe"));
    let its = pid.and_then(|pid| file(Path::new(&format!("/proc/{pid}/exe"))));
    Daemon {
        pid,
        program: pid.and_then(processes::program),
        is_same_program: own.zip(its).map(|(own, its)| own == its),
        process: pid.map(|pid| Process::at(Path::new("/"), &pid.to_string())),
    }
}

/// Who holds the lock of a file that he alone may read: the kernel lists the locks of all, as `3: FLOCK  ADVISORY  WRITE 4711 00:1a:93 0 EOF`.
fn holder(file: &Path, locks: &str) -> Option<u32> {
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
    fn the_holder_of_a_lock_is_found_among_the_locks_of_all() {
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
        assert_eq!(holder(&path, &locks), Some(4711));
        assert_eq!(holder(&path, "2: FLOCK ADVISORY WRITE 4711 00:00:1 0 EOF\nnonsense\n"), None);
        assert_eq!(holder(&folder.path().join("none"), &locks), None);
    }

    #[test]
    fn the_kernel_lists_a_lock_in_memory_as_it_is_looked_for() {
        // A file system in memory, as that of runtime folders: others may number their files otherwise.
        let Ok(folder) = tempfile::tempdir_in("/dev/shm") else {
            return skip::skip("shm", "there is no /dev/shm to write to");
        };
        let path = folder.path().join("daemon.lock");
        let file = fs::File::create(&path).unwrap();
        rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).unwrap();
        let locks = fs::read_to_string("/proc/locks").unwrap();
        assert_eq!(holder(&path, &locks), Some(std::process::id()), "{locks}");
    }
}
