//! A real daemon for a test: in a thread, or in a separate process that can be killed.
#![allow(dead_code)] // Each test program uses a part of this module.

use std::io::{Read, Seek, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use traceweir::controller::{Controller, Scope};
use traceweir_daemon::{Options, RuntimeDir, Stopper, run_until};

use crate::support::{TEST_TIMEOUT, until, wait};

#[path = "../../../../tests/support/daemon_thread.rs"]
mod daemon_thread;
use daemon_thread::DaemonThread;

/// Environment variable with the name of the test that this process runs.
const SEPARATE_TEST: &str = "TRACEWEIR_TEST_ALONE";
/// Environment variable with the runtime directory of the daemon that this process runs.
const DAEMON_FOLDER: &str = "TRACEWEIR_TEST_DAEMON";
/// Environment variable that makes the daemon of this process serve all users.
const DAEMON_FOR_ALL_USERS: &str = "TRACEWEIR_TEST_DAEMON_FOR_ALL";
/// Environment variable that makes the daemon of this process exit after it has been idle for
/// [`ON_DEMAND_IDLE_EXIT`].
const ON_DEMAND: &str = "TRACEWEIR_TEST_DAEMON_ON_DEMAND";

/// Idle timeout of a daemon that is started on demand: even clients on a busy machine connect
/// earlier.
pub(crate) const ON_DEMAND_IDLE_EXIT: Duration = Duration::from_secs(10);
/// Idle timeout of other daemon processes: only a daemon whose test was killed is idle for so long.
const ORPHAN_IDLE_EXIT: Duration = TEST_TIMEOUT;

fn options(folder: &Path, idle_exit: Option<Duration>) -> Options {
    let mut runtime = RuntimeDir::from_path(folder);
    if std::env::var_os(DAEMON_FOR_ALL_USERS).is_some() {
        runtime.scope = Scope::System;
    }
    Options { idle_exit, ..Options::new(runtime) }
}

/// Runs `test` in a separate process with a separate runtime directory for its providers and
/// controllers.
pub(crate) fn run_in_own_process(name: &str, test: impl FnOnce(&Path)) {
    if std::env::var(SEPARATE_TEST).is_ok_and(|test| test == name) {
        let folder = std::env::var_os("TRACEWEIR_RUNTIME_DIR").expect("the runtime directory is not set");
        return test(Path::new(&folder));
    }
    let thread = std::thread::current();
    let current_test = thread.name().filter(|thread| *thread != "main");
    assert!(current_test.is_none_or(|test| test == name), "`{name}` is not the name of the current test");
    let folder = tempfile::tempdir().unwrap();
    // A file, not a pipe: a process that the test leaves behind would keep a pipe open.
    let mut output_file = tempfile::tempfile().unwrap();
    let mut command = test_command(name);
    command.env(SEPARATE_TEST, name).env("TRACEWEIR_RUNTIME_DIR", folder.path());
    let status =
        command.stdout(output_file.try_clone().unwrap()).stderr(output_file.try_clone().unwrap()).status();
    let status = status.unwrap();
    let mut output = Vec::new();
    output_file.rewind().and_then(|()| output_file.read_to_end(&mut output)).unwrap();
    let output = String::from_utf8_lossy(&output);
    assert!(status.success(), "{name} in a separate process: {status}\n{output}");
    // The test harness captures `eprintln!`, but not direct writes to standard error.
    let mut terminal = std::io::stderr();
    for note in skip_notes(&output) {
        let _ = writeln!(terminal, "{note}");
    }
}

/// Returns the notes about skipped checks, without harness output before them on their lines.
fn skip_notes(output: &str) -> impl Iterator<Item = &str> {
    const NOTE_STARTS: [&str; 2] =
        ["some checks need more than this machine offers", "skipped (cannot write"];
    output.lines().filter_map(|line| NOTE_STARTS.iter().find_map(|start| Some(&line[line.find(start)?..])))
}

#[test]
fn skip_notes_are_found_in_the_output_of_a_test() {
    let output = "\nrunning 1 test\ntest a ... some checks need more than this machine offers: see list\nok\n\
                  skipped (cannot write list: full) a: root: needs root\ntest result: ok.\n";
    let notes: Vec<&str> = skip_notes(output).collect();
    let expected = [
        "some checks need more than this machine offers: see list",
        "skipped (cannot write list: full) a: root: needs root",
    ];
    assert_eq!(notes, expected);
}

/// Returns a command that runs one test of this program.
pub(crate) fn test_command(name: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", name, "--include-ignored", "--nocapture"]);
    command
}

/// Body of the ignored test `daemon_role`: runs a daemon if this process was started for one.
pub(crate) fn run_daemon_role() {
    if let Some(folder) = std::env::var_os(DAEMON_FOLDER) {
        let stopper = Stopper::new().unwrap();
        let is_on_demand = std::env::var_os(ON_DEMAND).is_some();
        let idle_exit = if is_on_demand { ON_DEMAND_IDLE_EXIT } else { ORPHAN_IDLE_EXIT };
        // If another daemon runs already, this process ends.
        let _ = run_until(options(Path::new(&folder), Some(idle_exit)), &stopper);
    }
}

/// Writes a program that runs a daemon when called as `weir daemon --on-demand --runtime-dir
/// FOLDER`.
pub(crate) fn write_daemon_program(folder: &Path) -> PathBuf {
    let path = folder.join("weir");
    let program = std::env::current_exe().unwrap();
    let exec_line = format!("exec '{}' --exact daemon_role --include-ignored --nocapture", program.display());
    std::fs::write(&path, format!("#!/bin/sh\n{ON_DEMAND}=1 {DAEMON_FOLDER}=\"$4\" {exec_line}\n")).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    path
}

/// A daemon in a thread, which stops on drop.
pub(crate) struct DaemonInThread(DaemonThread);

impl DaemonInThread {
    pub(crate) fn new(folder: &Path) -> Self {
        Self(DaemonThread::start(options(folder, None)))
    }
}

/// Starts a daemon in a thread, with a temporary runtime directory.
pub(crate) fn start_daemon_in_temp_folder() -> (TempDir, DaemonInThread) {
    let folder = tempfile::tempdir().unwrap();
    let daemon = DaemonInThread::new(folder.path());
    (folder, daemon)
}

/// A daemon in a separate process, which is killed on drop.
pub(crate) struct SeparateDaemon(Child);

impl SeparateDaemon {
    pub(crate) fn new(folder: &Path) -> Self {
        Self::spawn(folder, &mut test_command("daemon_role"))
    }

    /// Starts a daemon that exits after it has been idle for [`ON_DEMAND_IDLE_EXIT`].
    pub(crate) fn on_demand(folder: &Path) -> Self {
        Self::spawn(folder, test_command("daemon_role").env(ON_DEMAND, "1"))
    }

    /// Starts a daemon that accepts other users as guests. Needs root.
    pub(crate) fn for_all_users(folder: &Path) -> Self {
        std::fs::set_permissions(folder, PermissionsExt::from_mode(0o755)).unwrap();
        Self::spawn(folder, test_command("daemon_role").env(DAEMON_FOR_ALL_USERS, "1"))
    }

    /// Starts a daemon whose log goes to a file.
    pub(crate) fn with_log(folder: &Path, log: &Path) -> Self {
        let mut command = test_command("daemon_role");
        let child = command.env(DAEMON_FOLDER, folder).stdout(Stdio::null());
        let child = child.stderr(std::fs::File::create(log).unwrap()).spawn().unwrap();
        Self(child).wait_until_ready(folder)
    }

    fn spawn(folder: &Path, command: &mut Command) -> Self {
        let child =
            command.env(DAEMON_FOLDER, folder).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        Self(child).wait_until_ready(folder)
    }

    fn wait_until_ready(self, folder: &Path) -> Self {
        until("the daemon answers", || {
            Controller::find_at(folder).is_ok_and(|controller| controller.is_some())
        });
        self
    }
}

impl Drop for SeparateDaemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
