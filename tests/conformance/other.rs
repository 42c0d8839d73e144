//! Other processes: daemons, and this program as a process with one provider.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use traceweir::provider::activity;
use traceweir::{Guid, Provider};

/// Makes this program a process that registers the provider of this GUID, says so, and stays until its input ends.
pub(crate) const PROVIDER: &str = "TRACEWEIR_CONFORMANCE_PROVIDER";

/// The other process's `main`.
pub(crate) fn play(provider: &OsStr) -> ExitCode {
    let guid: Guid = provider.to_str().and_then(|text| text.parse().ok()).expect("a GUID");
    let _provider = Provider::register(guid, None).expect("the provider registers");
    println!("registered {}", activity::create());
    std::io::stdout().flush().expect("said");
    let _ = std::io::stdin().read(&mut [0]);
    ExitCode::SUCCESS
}

/// A process with one provider, and an activity id that it made; killed when the rule is over.
pub(crate) struct Other(Child, Guid);

impl Other {
    /// Starts it; it has registered when this returns. It finds the daemon of this folder, or of this run.
    pub(crate) fn start(provider: Guid, folder: Option<&Path>) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.env(PROVIDER, provider.to_string()).stdin(Stdio::piped()).stdout(Stdio::piped());
        if let Some(folder) = folder {
            command.env("TRACEWEIR_RUNTIME_DIR", folder);
        }
        let mut child = command.spawn().expect("this program runs again");
        let mut line = String::new();
        let said = child.stdout.take().expect("its output");
        BufReader::new(said).read_line(&mut line).expect("a line");
        let activity = line.strip_prefix("registered ").expect("it has registered");
        Self(child, activity.trim().parse().expect("an id"))
    }

    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }

    pub(crate) fn activity(&self) -> Guid {
        self.1
    }

    /// Stops all its threads, until it is killed.
    pub(crate) fn freeze(&self) {
        let id = Pid::from_child(&self.0);
        kill_process(id, Signal::STOP).expect("it stops");
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        // It may have left by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A daemon in a folder of its own; killed on drop.
pub(crate) struct Daemon {
    child: Child,
    log: PathBuf,
}

impl Daemon {
    pub(crate) fn start(folder: &Path) -> Self {
        let log = folder.with_extension("log");
        let child = Command::new(env!("CARGO_BIN_EXE_weir"))
            .args(["daemon", "--runtime-dir"])
            .arg(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log).expect("a log"))
            .spawn()
            .expect("weir daemon starts");
        Self { child, log }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// What it wrote about itself.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Whether it has left, and how.
    pub(crate) fn has_ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It may have left by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
