//! Other processes: daemons, and this program as a process with one provider.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitCode, ExitStatus, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use traceweir::controller::SessionConfig;
use traceweir::provider::activity;
use traceweir::{EventDescriptor, Guid, PrivateSession, Provider};
use traceweir_format::spec::session::EVENT_TRACE_FILE_MODE_SEQUENTIAL;

use crate::control_group;
use crate::daemon_process::DaemonProcess;

/// Makes this program a provider process: it registers the provider with this GUID, prints a line,
/// and runs until its input ends. Each byte of the input is an event id. For each byte the process
/// writes an event with level 4 and keyword 1, and then prints a line.
pub(crate) const PROVIDER_VARIABLE: &str = "TRACEWEIR_CONFORMANCE_PROVIDER";
/// Makes a provider process record its own events into this file, in a private session.
const RECORD_VARIABLE: &str = "TRACEWEIR_CONFORMANCE_RECORD";

/// Makes a provider process first enter the control group of this folder.
const GROUP_VARIABLE: &str = "TRACEWEIR_CONFORMANCE_GROUP";

/// Runs this program as a provider process.
pub(crate) fn run_provider_process(provider: &OsStr) -> ExitCode {
    if let Some(group) = std::env::var_os(GROUP_VARIABLE) {
        control_group::enter(Path::new(&group), std::process::id());
    }
    let guid: Guid =
        provider.to_str().and_then(|text| text.parse().ok()).expect("the variable is not a GUID");
    let private_session = std::env::var_os(RECORD_VARIABLE).map(|file| {
        let log_file = Some(file.into());
        let config = SessionConfig {
            name: "own".into(),
            log_file_mode: EVENT_TRACE_FILE_MODE_SEQUENTIAL,
            log_file,
            ..Default::default()
        };
        let session = PrivateSession::start(&config).expect("the private session did not start");
        session.enable(guid, &Default::default()).expect("the provider cannot be enabled");
        session
    });
    let provider = Provider::register(guid, None).expect("the provider did not register");
    print_line(&format!("registered {}", activity::create()));
    let mut id = [0];
    while matches!(std::io::stdin().read(&mut id), Ok(1)) {
        let descriptor = EventDescriptor { id: id[0].into(), level: 4, keyword: 1, ..Default::default() };
        provider.write(&descriptor, &[]).expect("the event cannot be written");
        print_line("written");
    }
    drop(private_session);
    ExitCode::SUCCESS
}

fn print_line(line: &str) {
    println!("{line}");
    std::io::stdout().flush().expect("standard output is not open");
}

/// A provider process, and an activity id that it made. Dropping this value kills the process.
pub(crate) struct OtherProcess {
    child: Child,
    activity: Guid,
    output: BufReader<ChildStdout>,
}

impl OtherProcess {
    /// Starts the process and waits until it has registered its provider. The process uses the
    /// daemon of `folder`, or of this run if `folder` is `None`.
    pub(crate) fn start(provider: Guid, folder: Option<&Path>) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("this program has no path"));
        if let Some(folder) = folder {
            command.env("TRACEWEIR_RUNTIME_DIR", folder);
        }
        Self::spawn(command, provider)
    }

    /// Links or copies this program to the path `program` and starts the process from there.
    pub(crate) fn start_as(program: &Path, provider: Guid) -> Self {
        let this_program = std::env::current_exe().expect("this program has no path");
        if std::fs::hard_link(&this_program, program).is_err() {
            std::fs::copy(&this_program, program).expect("this program cannot be copied");
        }
        Self::spawn(Command::new(program), provider)
    }

    /// Starts the process in a control group.
    pub(crate) fn start_in_group(group: &Path, provider: Guid) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("this program has no path"));
        command.env(GROUP_VARIABLE, group);
        Self::spawn(command, provider)
    }

    /// Starts the process without a daemon. The process records its own events into `file`.
    pub(crate) fn start_without_daemon(provider: Guid, folder: &Path, file: &Path) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("this program has no path"));
        command.env("TRACEWEIR_RUNTIME_DIR", folder).env(RECORD_VARIABLE, file);
        Self::spawn(command, provider)
    }

    fn spawn(mut command: Command, provider: Guid) -> Self {
        command.env(PROVIDER_VARIABLE, provider.to_string()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("this program did not start");
        let output = BufReader::new(child.stdout.take().expect("standard output is not a pipe"));
        let mut process = Self { child, activity: Guid::NULL, output };
        let line = process.read_line();
        let activity = line.strip_prefix("registered ").expect("the process has not registered");
        process.activity = activity.trim().parse().expect("the process does not print an activity id");
        process
    }

    fn read_line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("the process does not print a line");
        line
    }

    /// Makes the process write an event, and waits until the event is written.
    pub(crate) fn write(&mut self, id: u8) {
        self.child
            .stdin
            .as_ref()
            .expect("standard input is not a pipe")
            .write_all(&[id])
            .expect("the process does not read its input");
        assert_eq!(self.read_line(), "written\n");
    }

    /// Closes the input of the process, and waits until the process has ended.
    pub(crate) fn exit_and_wait(mut self) {
        drop(self.child.stdin.take());
        let status = self.child.wait().expect("the process cannot be waited for");
        assert!(status.success(), "the process failed: {status}");
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn activity(&self) -> Guid {
        self.activity
    }

    /// Stops the process with SIGSTOP until drop kills it.
    pub(crate) fn freeze(&self) {
        let id = Pid::from_child(&self.child);
        kill_process(id, Signal::STOP).expect("the process cannot be stopped");
    }
}

impl Drop for OtherProcess {
    fn drop(&mut self) {
        // The process may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A daemon in its own folder, with its log. Dropping this value kills the daemon.
pub(crate) struct Daemon {
    process: DaemonProcess,
    log: PathBuf,
}

impl Daemon {
    #[track_caller]
    pub(crate) fn start(folder: &Path) -> Self {
        let log = folder.with_extension("log");
        let process = DaemonProcess::start(folder, File::create(&log).expect("the log cannot be created"));
        Self { process, log }
    }

    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Returns the log of the daemon.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Returns the exit status if the daemon has ended.
    pub(crate) fn exit_status(&mut self) -> Option<ExitStatus> {
        self.process.try_exit_status()
    }
}
