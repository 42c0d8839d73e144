//! Starting a daemon on demand.
//!
//! ```text
//!   weir: TRACEWEIR_DAEMON, else in the folder of the program, of the library, or of PATH
//!   weir daemon --on-demand … ──▶ stdin, stdout: null; stderr: daemon.log in the runtime folder
//!                             ◀── a connection as soon as it answers
//! ```
//!
//! 1. Two controllers may do this at once: the daemon's lock decides, the second daemon exits, and
//!    both controllers find the first.
//! 2. Root starts the system's daemon, which serves all users, or, if the folder of that daemon
//!    cannot be created (a read-only file system), the daemon of the user root. For other users the
//!    system's daemon is never started here: the service manager does that.
//! 3. The daemon detaches itself and outlives the controller's process. A thread of that process
//!    waits for the exit of the child that it started.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use traceweir_transport::message::Role;
use traceweir_transport::runtime::{RUNTIME_VARIABLE, RuntimeDir, Scope, trusted_variable};

use super::find::DaemonLink;
use crate::error::{Error, Result};
use crate::process::spawn_without_signals;
use crate::registration::find_mapped_path;

/// The variable that names the program to start.
const DAEMON_VARIABLE: &str = "TRACEWEIR_DAEMON";
const PROGRAM: &str = "weir";

/// How long a new daemon may take to answer.
const START_TIMEOUT: Duration = Duration::from_secs(10);
/// How long another daemon may take to answer after the new daemon has failed.
const OTHER_DAEMON_TIMEOUT: Duration = Duration::from_secs(3);
/// The pause between the first two attempts to connect; later pauses are longer.
const FIRST_RETRY_PAUSE: Duration = Duration::from_micros(500);
/// The longest pause between two attempts to connect.
const MAX_RETRY_PAUSE: Duration = Duration::from_millis(10);
/// Size in bytes above which a daemon's log is emptied.
const MAX_LOG_BYTES: u64 = 1 << 20;
/// Bytes of the log's end that an error quotes when a daemon does not start.
const LOG_TAIL_BYTES: u64 = 2000;

/// The file and folders to search for the daemon's program.
#[derive(Debug)]
pub(super) struct DaemonSearch {
    /// The program that the environment names; then no folder is searched.
    pub(super) named: Option<PathBuf>,
    /// Folders to search in order.
    pub(super) folders: Vec<PathBuf>,
}

impl DaemonSearch {
    pub(super) fn from_environment() -> Self {
        let named = trusted_variable(DAEMON_VARIABLE).map(PathBuf::from);
        let parent_folder = |file: PathBuf| file.parent().map(Path::to_owned);
        let program = std::env::current_exe().ok().and_then(parent_folder);
        let library = find_library_file().and_then(parent_folder);
        let path = trusted_variable("PATH").unwrap_or_default();
        // An empty entry means the working folder to a shell; it is not searched for a daemon.
        let path: Vec<PathBuf> = std::env::split_paths(&path).filter(|p| p.is_absolute()).collect();
        Self { named, folders: program.into_iter().chain(library).chain(path).collect() }
    }

    fn find_program(&self) -> Result<PathBuf> {
        if let Some(named) = &self.named {
            let absolute = std::path::absolute(named).unwrap_or_else(|_| named.clone());
            return if is_program(&absolute) {
                Ok(absolute)
            } else {
                let reason =
                    format!("{DAEMON_VARIABLE} names {}, which is not an executable file", named.display());
                Err(Error::NoDaemon { reason })
            };
        }
        let program = self.folders.iter().map(|f| f.join(PROGRAM)).find(|p| is_program(p));
        program.ok_or_else(|| {
            let reason = format!(
                "none is running, and `{PROGRAM}`, which could be started, is neither beside this program or library nor on PATH; \
                 install it or set {DAEMON_VARIABLE} to its path"
            );
            Error::NoDaemon { reason }
        })
    }
}

fn is_program(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}

/// Returns the file that holds this code: a library, or the program itself.
fn find_library_file() -> Option<PathBuf> {
    let here = find_library_file as fn() -> Option<PathBuf> as *const () as usize;
    find_mapped_path(here).map(|path| PathBuf::from(OsString::from_vec(path)))
}

/// Starts the daemon of the first folder whose daemon may be started, or of the second one if the
/// first cannot be created, and waits until it answers.
pub(super) fn start(folders: &[RuntimeDir], search: &DaemonSearch) -> Result<DaemonLink> {
    let mut startable = folders.iter().filter(|dir| dir.may_be_started());
    let Some(first) = startable.next() else { return Err(no_system_daemon_error(folders.last())) };
    let program = search.find_program()?;
    let dir = match (first.ensure(), startable.next()) {
        (Ok(()), _) => first,
        (Err(_), Some(next)) => {
            next.ensure()?;
            next
        }
        (Err(e), None) => return Err(e.into()),
    };
    let log = DaemonLog::open(dir.path())?;
    let child = spawn(&program, dir, &log)?;
    wait_until_daemon_answers(child, dir, &program, &log)
}

fn no_system_daemon_error(dir: Option<&RuntimeDir>) -> Error {
    let socket = dir.map(RuntimeDir::control_socket).unwrap_or_default();
    let reason = format!("the system's daemon does not run (no listener at {})", socket.display());
    Error::NoDaemon { reason }
}

fn spawn(program: &Path, dir: &RuntimeDir, log: &DaemonLog) -> Result<Child> {
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
    // Variables of a service manager for this program are not for the daemon.
    for variable in
        ["NOTIFY_SOCKET", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES", "WATCHDOG_USEC", "WATCHDOG_PID"]
    {
        command.env_remove(variable);
    }
    // The daemon must serve the folder in which this program searches for it: variables that are not
    // trusted here must not decide there.
    for variable in [RUNTIME_VARIABLE, "XDG_RUNTIME_DIR", "TMPDIR"] {
        if trusted_variable(variable).is_none() {
            command.env_remove(variable);
        }
    }
    let stderr = log.file.try_clone();
    let stderr = stderr.map_err(|source| Error::File { path: program.to_owned(), source })?;
    // A daemon in the caller's working folder would keep its file system busy.
    command.current_dir("/").stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr);
    command.spawn().map_err(|source| Error::NoDaemon {
        reason: format!("{} could not be started: {source}", program.display()),
    })
}

fn wait_until_daemon_answers(
    child: Child,
    dir: &RuntimeDir,
    program: &Path,
    log: &DaemonLog,
) -> Result<DaemonLink> {
    let exit_receiver = wait_in_background(child);
    let mut deadline = Instant::now() + START_TIMEOUT;
    let (mut exit, mut pause) = (None, FIRST_RETRY_PAUSE);
    loop {
        // The answer may come from a daemon that another process started, which serves as well.
        if let Some(link) = DaemonLink::open(dir, Role::Controller)? {
            return Ok(link);
        }
        if exit.is_none() {
            exit = exit_receiver.try_recv().ok();
            // A daemon that exits successfully has left its work to a child.
            if exit.is_some_and(|status: ExitStatus| !status.success()) {
                deadline = deadline.min(Instant::now() + OTHER_DAEMON_TIMEOUT);
            }
        }
        if Instant::now() >= deadline {
            return Err(start_failed_error(exit, dir, program, log));
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(MAX_RETRY_PAUSE);
    }
}

/// Waits for the child's exit on a separate thread, so that no zombie stays in a long-running
/// program.
fn wait_in_background(mut child: Child) -> Receiver<ExitStatus> {
    let (sender, receiver) = channel();
    // If no thread can be started, the zombie stays until this program exits.
    let _ = spawn_without_signals("traceweir-wait", move || {
        if let Ok(status) = child.wait() {
            // The receiver may be gone.
            let _ = sender.send(status);
        }
    });
    receiver
}

fn start_failed_error(exit: Option<ExitStatus>, dir: &RuntimeDir, program: &Path, log: &DaemonLog) -> Error {
    let (program, socket) = (program.display(), dir.control_socket());
    let failure = match exit {
        Some(status) => format!("{program} daemon --on-demand ended ({status})"),
        None => {
            format!(
                "{program} daemon --on-demand does not answer at {} after {START_TIMEOUT:?}",
                socket.display()
            )
        }
    };
    let output = log.read_tail();
    let reason = match output.trim() {
        "" => format!("{failure}; it wrote nothing to {}", log.path.display()),
        output => format!("{failure}; the end of {}:\n{output}", log.path.display()),
    };
    Error::NoDaemon { reason }
}

/// The file for a daemon's error output.
struct DaemonLog {
    file: File,
    path: PathBuf,
    /// Offset at which the output of this start begins.
    from: u64,
}

impl DaemonLog {
    fn open(folder: &Path) -> Result<Self> {
        let path = folder.join("daemon.log");
        let file_error = |source| Error::File { path: path.clone(), source };
        let flags = (OFlags::NOFOLLOW | OFlags::CLOEXEC).bits().cast_signed();
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(true).mode(0o600).custom_flags(flags);
        let file = options.open(&path).map_err(file_error)?;
        let mut from = file.metadata().map_err(file_error)?.len();
        if from > MAX_LOG_BYTES {
            file.set_len(0).map_err(file_error)?;
            from = 0;
        }
        Ok(Self { file, path, from })
    }

    /// Returns the end of the output of this start, as far as it can be read.
    fn read_tail(&self) -> String {
        let mut bytes = Vec::new();
        let mut read = || -> std::io::Result<()> {
            let mut file = File::open(&self.path)?;
            let from = file.metadata()?.len().saturating_sub(LOG_TAIL_BYTES).max(self.from);
            file.seek(SeekFrom::Start(from))?;
            file.take(LOG_TAIL_BYTES).read_to_end(&mut bytes)?;
            Ok(())
        };
        let _ = read();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write_script(dir: &Path, body: &str) -> PathBuf {
        let path = dir.join(PROGRAM);
        fs::write(&path, format!("#!/bin/sh\n{body}\n")).unwrap();
        fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        path
    }

    fn no_daemon_reason(result: Result<DaemonLink>) -> String {
        match result {
            Err(Error::NoDaemon { reason }) => reason,
            other => panic!("expected NoDaemon, not {other:?}"),
        }
    }

    #[test]
    fn missing_program_is_reported_and_creates_no_folder() {
        let dir = tempfile::tempdir().unwrap();
        let folders = [RuntimeDir::from_path(&dir.path().join("run"))];
        let nowhere = DaemonSearch { named: None, folders: vec![dir.path().join("empty")] };
        assert!(no_daemon_reason(start(&folders, &nowhere)).contains(DAEMON_VARIABLE));
        let wrong = DaemonSearch { named: Some(dir.path().join("none")), folders: Vec::new() };
        assert!(no_daemon_reason(start(&folders, &wrong)).contains("none"));
        assert!(!folders[0].path().exists(), "a failed search must not create the folder");
    }

    #[test]
    fn failed_start_quotes_the_daemons_error_output() {
        let dir = tempfile::tempdir().unwrap();
        let program = write_script(dir.path(), "echo \"cannot do $*\" >&2; exit 3");
        let folders = [RuntimeDir::from_path(&dir.path().join("run"))];
        let search = DaemonSearch { named: Some(program), folders: Vec::new() };
        let reason = no_daemon_reason(start(&folders, &search));
        assert!(reason.contains("cannot do daemon --on-demand --runtime-dir"), "{reason}");
        assert!(reason.contains("exit status: 3"), "{reason}");
    }

    #[test]
    fn ordinary_users_do_not_start_the_systems_daemon() {
        let Ok(system) = RuntimeDir::for_scope(Scope::System) else { return };
        if system.may_be_started() {
            // As root, this would start a daemon for the machine. Tests on a machine of their own
            // do that.
            return;
        }
        let search = DaemonSearch { named: None, folders: Vec::new() };
        assert!(no_daemon_reason(start(&[system], &search)).contains("the system's daemon does not run"));
    }

    #[test]
    fn file_of_this_code_is_found() {
        // In a test, the program itself contains this code.
        assert_eq!(find_library_file(), std::env::current_exe().ok());
    }

    #[test]
    fn folders_are_searched_in_order_for_programs() {
        let dir = tempfile::tempdir().unwrap();
        let (first, second) = (dir.path().join("1"), dir.path().join("2"));
        for folder in [&first, &second] {
            fs::create_dir(folder).unwrap();
        }
        fs::write(first.join(PROGRAM), "not executable").unwrap();
        let program = write_script(&second, "");
        let search = DaemonSearch { named: None, folders: vec![first, second] };
        assert_eq!(search.find_program().unwrap(), program);
    }
}
