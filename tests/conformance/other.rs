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

use crate::control_group;
use crate::daemon_process::DaemonProcess;

/// Makes this program a process that registers the provider with this GUID, prints a line, and
/// stays until its input ends. Each byte that it reads is the id of an event that it writes with
/// level 4 and keyword 1; it prints a line for that, too.
pub(crate) const PROVIDER: &str = "TRACEWEIR_CONFORMANCE_PROVIDER";
/// Makes such a process record itself into this file, in a private session.
const RECORD: &str = "TRACEWEIR_CONFORMANCE_RECORD";

/// Makes such a process enter the control group of this folder first.
const GROUP: &str = "TRACEWEIR_CONFORMANCE_GROUP";

/// The `main` function of the other process.
pub(crate) fn play(provider: &OsStr) -> ExitCode {
    if let Some(group) = std::env::var_os(GROUP) {
        control_group::enter(Path::new(&group), std::process::id());
    }
    let guid: Guid = provider.to_str().and_then(|text| text.parse().ok()).expect("a GUID");
    let own = std::env::var_os(RECORD).map(|file| {
        let log_file = Some(file.into());
        let config = SessionConfig { name: "own".into(), log_file_mode: 1, log_file, ..Default::default() };
        let session = PrivateSession::start(&config).expect("a private session");
        session.enable(guid, &Default::default()).expect("it enables the provider");
        session
    });
    let provider = Provider::register(guid, None).expect("the provider registers");
    print_line(&format!("registered {}", activity::create()));
    let mut id = [0];
    while matches!(std::io::stdin().read(&mut id), Ok(1)) {
        let descriptor = EventDescriptor { id: id[0].into(), level: 4, keyword: 1, ..Default::default() };
        provider.write(&descriptor, &[]).expect("the event is written");
        print_line("written");
    }
    drop(own);
    ExitCode::SUCCESS
}

fn print_line(what: &str) {
    println!("{what}");
    std::io::stdout().flush().expect("said");
}

/// A process with one provider, and an activity id that it made. Drop kills it.
pub(crate) struct Other {
    child: Child,
    activity: Guid,
    output: BufReader<ChildStdout>,
}

impl Other {
    /// Starts the process and waits until it has registered. It uses the daemon of this folder, or
    /// that of this run.
    pub(crate) fn start(provider: Guid, folder: Option<&Path>) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        if let Some(folder) = folder {
            command.env("TRACEWEIR_RUNTIME_DIR", folder);
        }
        Self::run(command, provider)
    }

    /// Starts the process as a program at this path, which is made first.
    pub(crate) fn start_as(program: &Path, provider: Guid) -> Self {
        let own = std::env::current_exe().expect("this program");
        if std::fs::hard_link(&own, program).is_err() {
            std::fs::copy(&own, program).expect("a copy of this program");
        }
        Self::run(Command::new(program), provider)
    }

    /// Starts the process in a control group.
    pub(crate) fn start_in(group: &Path, provider: Guid) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.env(GROUP, group);
        Self::run(command, provider)
    }

    /// Starts the process where no daemon is; it records itself into a file.
    pub(crate) fn start_alone(provider: Guid, folder: &Path, file: &Path) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.env("TRACEWEIR_RUNTIME_DIR", folder).env(RECORD, file);
        Self::run(command, provider)
    }

    fn run(mut command: Command, provider: Guid) -> Self {
        command.env(PROVIDER, provider.to_string()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("this program runs again");
        let output = BufReader::new(child.stdout.take().expect("its output"));
        let mut other = Self { child, activity: Guid::NULL, output };
        let line = other.read_line_of_output();
        let activity = line.strip_prefix("registered ").expect("it has registered");
        other.activity = activity.trim().parse().expect("an id");
        other
    }

    fn read_line_of_output(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("a line");
        line
    }

    /// Makes the process write an event, and waits for that.
    pub(crate) fn write(&mut self, id: u8) {
        self.child.stdin.as_ref().expect("its input").write_all(&[id]).expect("it listens");
        assert_eq!(self.read_line_of_output(), "written\n");
    }

    /// Lets the process end by itself, and waits for it.
    pub(crate) fn leave(mut self) {
        drop(self.child.stdin.take());
        assert!(self.child.wait().expect("it ends").success());
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn activity(&self) -> Guid {
        self.activity
    }

    /// Stops all its threads with SIGSTOP, until it is killed.
    pub(crate) fn freeze(&self) {
        let id = Pid::from_child(&self.child);
        kill_process(id, Signal::STOP).expect("it stops");
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        // The process may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A daemon in its own folder, with its log. Drop kills it.
pub(crate) struct Daemon {
    process: DaemonProcess,
    log: PathBuf,
}

impl Daemon {
    #[track_caller]
    pub(crate) fn start(folder: &Path) -> Self {
        let log = folder.with_extension("log");
        let process = DaemonProcess::start(folder, File::create(&log).expect("a log"));
        Self { process, log }
    }

    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Returns what the daemon has logged.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Returns the exit status if the daemon has ended.
    pub(crate) fn has_ended(&mut self) -> Option<ExitStatus> {
        self.process.has_ended()
    }
}
