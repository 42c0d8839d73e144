//! Starting a daemon on demand.
//!
//! ```text
//!   weir: TRACEWEIR_DAEMON, else beside the program, beside the library, on PATH
//!   weir daemon --on-demand … ──▶ stdin, stdout: nothing; stderr: daemon.log in the runtime folder
//!                             ◀── connected to as soon as it answers
//! ```
//!
//! 1. Two controllers may do this at once: the daemon's lock decides, the loser's daemon leaves, both controllers find the winner's.
//! 2. Root starts the system's daemon, which serves all users; where its folder cannot be made (a file system that is read only), root's own. For
//!    others the system's daemon is never started here: that is the service manager's.
//! 3. The daemon outlives the controller and detaches itself; while the controller lives, one small thread waits to bury it.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use traceweir_transport::message::Role;
use traceweir_transport::runtime::{RUNTIME_VARIABLE, RuntimeDir, Scope, trusted_variable};

use super::find::Link;
use crate::client::process::spawn_quiet;
use crate::error::{Error, Result};

/// The variable that names the program to start.
const DAEMON_VARIABLE: &str = "TRACEWEIR_DAEMON";
const PROGRAM: &str = "weir";

/// How long a new daemon may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long another daemon may take to answer after ours gave way to it.
const PATIENCE_WITH_ANOTHER: Duration = Duration::from_secs(3);
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(10);
/// A daemon's log is begun anew beyond this.
const LOG_LIMIT: u64 = 1 << 20;
/// How much of the log's end is told when a daemon does not come up.
const LOG_TAIL: u64 = 2000;

/// Where to look for the program.
#[derive(Debug)]
pub(super) struct Search {
    /// Named outright: nothing else is tried.
    pub(super) named: Option<PathBuf>,
    /// Folders.
    pub(super) folders: Vec<PathBuf>,
}

impl Search {
    /// As the module head says.
    pub(super) fn usual() -> Self {
        let named = trusted_variable(DAEMON_VARIABLE).map(PathBuf::from);
        let beside = |file: PathBuf| file.parent().map(Path::to_owned);
        let program = std::env::current_exe().ok().and_then(beside);
        let library = library().and_then(beside);
        let path = trusted_variable("PATH").unwrap_or_default();
        // An empty entry means the working folder to a shell; a daemon is not looked for there.
        let path: Vec<PathBuf> = std::env::split_paths(&path).filter(|p| p.is_absolute()).collect();
        Self { named, folders: program.into_iter().chain(library).chain(path).collect() }
    }

    fn program(&self) -> Result<PathBuf> {
        if let Some(named) = &self.named {
            let absolute = std::path::absolute(named).unwrap_or_else(|_| named.clone());
            return if is_program(&absolute) {
                Ok(absolute)
            } else {
                let reason = format!("{DAEMON_VARIABLE} names {}, which is no program", named.display());
                Err(Error::NoDaemon { reason })
            };
        }
        let found = self.folders.iter().map(|f| f.join(PROGRAM)).find(|p| is_program(p));
        found.ok_or_else(|| {
            let reason = format!(
                "none is running, and `{PROGRAM}`, which could be started, is neither beside this program nor on PATH; \
                 install it or set {DAEMON_VARIABLE} to its path"
            );
            Error::NoDaemon { reason }
        })
    }
}

fn is_program(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}

/// The file that holds this very code, where it is not the program itself.
fn library() -> Option<PathBuf> {
    let here = library as fn() -> Option<PathBuf> as *const () as usize;
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    maps.lines().find_map(|line| file_at(line, here))
}

/// The file of one line of a memory map, if it covers the address.
fn file_at(line: &str, address: usize) -> Option<PathBuf> {
    let (range, rest) = line.split_once(' ')?;
    let (from, to) = range.split_once('-')?;
    let covers =
        usize::from_str_radix(from, 16).ok()? <= address && address < usize::from_str_radix(to, 16).ok()?;
    let file = rest.find('/').and_then(|at| rest.get(at..))?;
    covers.then(|| PathBuf::from(file))
}

/// Starts the daemon of the first of these folders that may be started, and waits until it answers.
pub(super) fn start(folders: &[RuntimeDir], search: &Search) -> Result<Link> {
    let mut startable = folders.iter().filter(|dir| dir.may_be_started());
    let Some(first) = startable.next() else { return Err(no_system_daemon(folders.last())) };
    let program = search.program()?;
    let dir = match (first.ensure(), startable.next()) {
        (Ok(()), _) => first,
        (Err(_), Some(next)) => {
            next.ensure()?;
            next
        }
        (Err(e), None) => return Err(e.into()),
    };
    let log = Log::open(dir.path())?;
    let child = spawn(&program, dir, &log)?;
    wait_for(child, dir, &program, &log)
}

fn no_system_daemon(dir: Option<&RuntimeDir>) -> Error {
    let socket = dir.map(RuntimeDir::control_socket).unwrap_or_default();
    let reason = format!(
        "the system's daemon does not run (nobody listens at {}); start it with `systemctl start traceweir.socket` or, as root, \
         `weir daemon --system`",
        socket.display()
    );
    Error::NoDaemon { reason }
}

fn spawn(program: &Path, dir: &RuntimeDir, log: &Log) -> Result<Child> {
    let mut command = Command::new(program);
    command.arg("daemon").arg("--on-demand");
    match dir.scope {
        Scope::Named => {
            let folder = std::path::absolute(dir.path()).unwrap_or_else(|_| dir.path().to_owned());
            command.args([OsStr::new("--runtime-dir"), folder.as_os_str()]);
        }
        Scope::User => {
            command.arg("--user");
        }
        Scope::System => {
            command.arg("--system");
        }
    }
    // What a service manager told this program is not meant for the daemon.
    for variable in
        ["NOTIFY_SOCKET", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES", "WATCHDOG_USEC", "WATCHDOG_PID"]
    {
        command.env_remove(variable);
    }
    // The daemon is to serve the folder in which this program looks for it: what was not believed here must not decide there.
    for variable in [RUNTIME_VARIABLE, "XDG_RUNTIME_DIR", "TMPDIR"] {
        if trusted_variable(variable).is_none() {
            command.env_remove(variable);
        }
    }
    let failed = |source| Error::File { path: program.to_owned(), source };
    let stderr = log.file.try_clone().map_err(failed)?;
    // A daemon that stood in the caller's folder would keep its file system busy.
    command.current_dir("/").stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr);
    command.spawn().map_err(|source| Error::NoDaemon {
        reason: format!("{} could not be started: {source}", program.display()),
    })
}

fn wait_for(child: Child, dir: &RuntimeDir, program: &Path, log: &Log) -> Result<Link> {
    let ended = bury(child);
    let mut deadline = Instant::now() + PATIENCE;
    let mut exit = None;
    loop {
        // It may be another daemon's answer: that is as good.
        if let Some(link) = Link::open(dir, Role::Controller)? {
            return Ok(link);
        }
        if exit.is_none() {
            exit = ended.try_recv().ok();
            // One that ends well has left its work to a child of its own.
            if exit.is_some_and(|status: ExitStatus| !status.success()) {
                deadline = deadline.min(Instant::now() + PATIENCE_WITH_ANOTHER);
            }
        }
        if Instant::now() >= deadline {
            return Err(not_up(exit, dir, program, log));
        }
        std::thread::sleep(PAUSE);
    }
}

/// Waits for the child's end on a thread of its own, so that no zombie stays in a program that runs for long.
fn bury(mut child: Child) -> Receiver<ExitStatus> {
    let (sender, receiver) = channel();
    // Where no thread can be had, the zombie goes with the program.
    let _ = spawn_quiet("traceweir-wait", move || {
        if let Ok(status) = child.wait() {
            // Nobody may be waiting any more.
            let _ = sender.send(status);
        }
    });
    receiver
}

fn not_up(exit: Option<ExitStatus>, dir: &RuntimeDir, program: &Path, log: &Log) -> Error {
    let (program, socket) = (program.display(), dir.control_socket());
    let what = match exit {
        Some(status) => format!("{program} daemon --on-demand ended ({status})"),
        None => {
            format!("{program} daemon --on-demand does not answer at {} after {PATIENCE:?}", socket.display())
        }
    };
    let said = log.tail();
    let reason = match said.trim() {
        "" => format!("{what}; it said nothing in {}", log.path.display()),
        said => format!("{what}; the end of {}:\n{said}", log.path.display()),
    };
    Error::NoDaemon { reason }
}

/// Where a daemon's last words go.
struct Log {
    file: File,
    path: PathBuf,
    /// Where this start's part begins.
    from: u64,
}

impl Log {
    fn open(folder: &Path) -> Result<Self> {
        let path = folder.join("daemon.log");
        let failed = |source| Error::File { path: path.clone(), source };
        let flags = (OFlags::NOFOLLOW | OFlags::CLOEXEC).bits().cast_signed();
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(true).mode(0o600).custom_flags(flags);
        let file = options.open(&path).map_err(failed)?;
        let mut from = file.metadata().map_err(failed)?.len();
        if from > LOG_LIMIT {
            file.set_len(0).map_err(failed)?;
            from = 0;
        }
        Ok(Self { file, path, from })
    }

    /// The last lines of this start, as far as they can be read.
    fn tail(&self) -> String {
        let mut bytes = Vec::new();
        let read = || -> std::io::Result<()> {
            let mut file = File::open(&self.path)?;
            let from = file.metadata()?.len().saturating_sub(LOG_TAIL).max(self.from);
            file.seek(SeekFrom::Start(from))?;
            file.take(LOG_TAIL).read_to_end(&mut bytes)?;
            Ok(())
        };
        let _ = { read }();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(dir: &Path, body: &str) -> PathBuf {
        let path = dir.join(PROGRAM);
        fs::write(&path, format!("#!/bin/sh\n{body}\n")).unwrap();
        fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        path
    }

    fn reason(result: Result<Link>) -> String {
        match result {
            Err(Error::NoDaemon { reason }) => reason,
            other => panic!("expected NoDaemon, not {other:?}"),
        }
    }

    #[test]
    fn without_a_program_the_error_says_what_to_set() {
        let dir = tempfile::tempdir().unwrap();
        let folders = [RuntimeDir::at(&dir.path().join("run"))];
        let nowhere = Search { named: None, folders: vec![dir.path().join("empty")] };
        assert!(reason(start(&folders, &nowhere)).contains(DAEMON_VARIABLE));
        let wrong = Search { named: Some(dir.path().join("none")), folders: Vec::new() };
        assert!(reason(start(&folders, &wrong)).contains("none"));
        assert!(!folders[0].path().exists(), "nothing is left behind");
    }

    #[test]
    fn a_daemon_that_ends_at_once_is_reported_with_its_last_words() {
        let dir = tempfile::tempdir().unwrap();
        let program = script(dir.path(), "echo \"cannot do $*\" >&2; exit 3");
        let folders = [RuntimeDir::at(&dir.path().join("run"))];
        let search = Search { named: Some(program), folders: Vec::new() };
        let said = reason(start(&folders, &search));
        assert!(said.contains("cannot do daemon --on-demand --runtime-dir"), "{said}");
        assert!(said.contains("exit status: 3"), "{said}");
    }

    #[test]
    fn ordinary_users_do_not_start_the_systems_daemon() {
        let Ok(system) = RuntimeDir::of(Scope::System) else { return };
        if system.may_be_started() {
            // Root's tests do not start one for the machine: those with a machine of their own do.
            return;
        }
        let search = Search { named: None, folders: Vec::new() };
        assert!(reason(start(&[system], &search)).contains("weir daemon --system"));
    }

    #[test]
    fn the_file_that_holds_this_code_is_found() {
        // In a test, code and program are one.
        assert_eq!(library(), std::env::current_exe().ok());
        assert_eq!(
            file_at("10-20 r-xp 00000000 08:01 42   /usr/lib/a b.so", 0x1f),
            Some("/usr/lib/a b.so".into())
        );
        assert_eq!(file_at("10-20 r-xp 00000000 08:01 42   /usr/lib/a b.so", 0x20), None);
        assert_eq!(file_at("10-20 rw-p 00000000 00:00 0", 0x1f), None);
    }

    #[test]
    fn folders_are_looked_through_in_order_and_only_programs_count() {
        let dir = tempfile::tempdir().unwrap();
        let (first, second) = (dir.path().join("1"), dir.path().join("2"));
        for folder in [&first, &second] {
            fs::create_dir(folder).unwrap();
        }
        fs::write(first.join(PROGRAM), "not executable").unwrap();
        let program = script(&second, "");
        let search = Search { named: None, folders: vec![first, second] };
        assert_eq!(search.program().unwrap(), program);
    }
}
