//! Helpers of all end-to-end tests: a temporary folder with a daemon, the command `weir`, the
//! samples, and recorded skips.

use std::ffi::OsString;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

#[path = "support/daemon_process.rs"]
pub(crate) mod daemon_process;
#[path = "support/skip.rs"]
pub(crate) mod skip;
#[path = "support/terminal.rs"]
pub(crate) mod terminal;
#[path = "support/wait.rs"]
pub(crate) mod wait;

use daemon_process::DaemonProcess;
pub(crate) use skip::skip;
pub(crate) use wait::eventually;

/// Returns the root folder of the project.
pub(crate) fn root() -> PathBuf {
    let cli = Path::new(env!("CARGO_MANIFEST_DIR"));
    cli.ancestors().nth(2).expect("the crate is not two folders below the root").to_owned()
}

/// Returns the path of the static C library, which cargo builds into the folder of the tests.
pub(crate) fn c_library() -> PathBuf {
    let test_program = std::env::current_exe().expect("the test program has no path");
    test_program.with_file_name("libtraceweir_c.a")
}

/// Returns the target folder of packages that tests build with cargo. The packages share this
/// folder, so that the crates on which they all depend are built once.
pub(crate) fn nested_target() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("nested")
}

/// Returns the cargo settings of packages that tests build. Each package is built once, so
/// incremental data would be useless; nothing reads its debug information.
pub(crate) fn nested_build() -> [(&'static str, OsString); 3] {
    [
        ("CARGO_TARGET_DIR", nested_target().into()),
        ("CARGO_INCREMENTAL", "0".into()),
        ("CARGO_PROFILE_DEV_DEBUG", "0".into()),
    ]
}

/// Exit code and output of a finished process.
pub(crate) struct Run {
    pub(crate) code: i32,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
}

impl Run {
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.stdout.clone()).expect("the output is not UTF-8")
    }

    /// Parses the lines of standard output as JSON objects.
    pub(crate) fn json(&self) -> Vec<Value> {
        let parse_line =
            |line: &str| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        self.text().lines().map(parse_line).collect()
    }

    /// Fails the test unless the exit code is as expected.
    #[track_caller]
    pub(crate) fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, code, "wrong exit code; standard error:\n{}", self.stderr);
        self
    }
}

/// Builds a `weir` command without running it.
pub(crate) fn weir_command<I: AsRef<std::ffi::OsStr>>(args: impl IntoIterator<Item = I>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(args).stdin(Stdio::null()).env_remove("NO_COLOR").env_remove("CLICOLOR_FORCE");
    command
}

/// Runs `weir` and waits for its end.
pub(crate) fn weir<I: AsRef<std::ffi::OsStr>>(args: impl IntoIterator<Item = I>) -> Run {
    let Output { status, stdout, stderr } = weir_command(args).output().expect("weir cannot be started");
    let stderr = String::from_utf8_lossy(&stderr).into_owned();
    let code = status.code().unwrap_or_else(|| panic!("weir was killed ({status}): {stderr}"));
    Run { code, stdout, stderr }
}

/// Returns the path of a sample, such as a real Windows trace or a manifest. If the sample is not
/// on this machine, records a skip and returns `None`.
///
/// The folder is `TRACEWEIR_SAMPLES`, or else `../shared/data` relative to the project. With
/// `TRACEWEIR_REQUIRE=all` (or `samples`) a missing sample fails the test.
#[track_caller]
pub(crate) fn sample(name: &str) -> Option<PathBuf> {
    let folder =
        std::env::var_os("TRACEWEIR_SAMPLES").map_or_else(|| root().join("../shared/data"), PathBuf::from);
    let path = folder.join(name);
    if path.exists() {
        return Some(path);
    }
    skip("samples", &format!("sample {name} is not in {}", folder.display()));
    None
}

/// A child process. Dropping this value kills the process.
pub(crate) struct Process(Child);

impl From<Child> for Process {
    fn from(child: Child) -> Self {
        Self(child)
    }
}

impl Process {
    pub(crate) fn start(command: &mut Command) -> Self {
        Self(command.spawn().expect("the program did not start"))
    }

    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.id()).ok().and_then(Pid::from_raw).expect("the process id is not valid");
        kill_process(pid, signal).expect("the process has ended");
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.0.try_wait().expect("the process cannot be waited for").is_none()
    }

    /// Returns the standard output, to be read while the process runs.
    pub(crate) fn stdout(&mut self) -> std::process::ChildStdout {
        self.0.stdout.take().expect("standard output is not a pipe")
    }

    /// Waits for the end of the process and returns its exit code and its output.
    pub(crate) fn finish(mut self) -> Run {
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let stdout_reader = self.0.stdout.take().map(|mut pipe| {
            std::thread::spawn(move || {
                pipe.read_to_end(&mut stdout).expect("standard output cannot be read");
                stdout
            })
        });
        if let Some(mut pipe) = self.0.stderr.take() {
            pipe.read_to_end(&mut stderr).expect("standard error cannot be read");
        }
        let stdout = stdout_reader
            .map(|reader| reader.join().expect("the reading thread panicked"))
            .unwrap_or_default();
        let status = self.0.wait().expect("the process cannot be waited for");
        let stderr = String::from_utf8_lossy(&stderr).into_owned();
        let code = status.code().unwrap_or_else(|| panic!("the process was killed ({status}): {stderr}"));
        Run { code, stdout, stderr }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A temporary folder for a daemon and its providers. Dropping this value stops the daemon, or
/// kills it if the test panics.
pub(crate) struct Daemon {
    folder: TempDir,
    process: Option<DaemonProcess>,
}

impl Daemon {
    /// Makes a folder without a daemon.
    pub(crate) fn not_started() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), process: None }
    }

    /// Makes a folder and starts a daemon in it.
    pub(crate) fn start() -> Self {
        let mut daemon = Self::not_started();
        daemon.restart();
        daemon
    }

    /// Starts a daemon in the folder. An earlier daemon must have ended.
    pub(crate) fn restart(&mut self) {
        self.process = Some(DaemonProcess::start(self.folder(), Stdio::null()));
    }

    /// Returns the folder, which may also contain files of the test.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Returns a path in the folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder().join(name)
    }

    /// Returns whether a daemon answers requests.
    pub(crate) fn is_answering(&self) -> bool {
        let run = self.weir(["list"]);
        run.code == 0 && !run.stderr.contains("no daemon")
    }

    /// Builds a `weir` command for this folder without running it.
    pub(crate) fn command<I: AsRef<std::ffi::OsStr>>(&self, args: impl IntoIterator<Item = I>) -> Command {
        let mut command = weir_command(args);
        command.env("TRACEWEIR_RUNTIME_DIR", self.folder());
        command
    }

    /// Runs `weir` in this folder and waits for its end.
    pub(crate) fn weir<I: AsRef<std::ffi::OsStr>>(&self, args: impl IntoIterator<Item = I>) -> Run {
        let mut command = self.command(args);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Process::start(&mut command).finish()
    }

    /// Starts `weir` in this folder with its output in pipes, which the test reads.
    pub(crate) fn spawn_weir<I: AsRef<std::ffi::OsStr>>(&self, args: impl IntoIterator<Item = I>) -> Process {
        Process::start(self.command(args).stdout(Stdio::piped()).stderr(Stdio::piped()))
    }

    /// Kills the daemon with SIGKILL.
    pub(crate) fn kill(&mut self) {
        drop(self.process.take());
    }

    /// Ends the daemon with SIGTERM, as a service manager does, and waits for it.
    pub(crate) fn stop(&mut self) {
        if let Some(process) = self.process.take() {
            let status = process.stop();
            assert!(status.success(), "the daemon failed: {status}");
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.stop();
        }
    }
}
