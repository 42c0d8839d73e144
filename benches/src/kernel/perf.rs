//! Runs `perf record` on the whole machine from [`Perf::start`] to [`Perf::stop`].
//!
//! ```text
//!   spawn ──▶ rings open, events off ──"enable"──▶ ◀──"ack"── the workload runs
//!         ──SIGINT──▶ perf writes its file and ends
//! ```

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::unistd::{Pid, mkfifo};

use super::{STACK_BYTES, StackCapture};
use crate::error::{Error, Result};
use crate::process::{self, program_error};

/// Size of each of perf's rings.
const RING_SIZE: &str = "2M";
/// Time limit for perf to begin recording. It first inspects all processes of the machine.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// A recording perf process.
#[derive(Debug)]
pub(super) struct Perf {
    child: Child,
    command: Command,
    file: PathBuf,
    /// Processor time of children that had ended before the start.
    before: Duration,
}

impl Perf {
    /// Starts perf and returns when it records events.
    pub(super) fn start(folder: &Path, kind: StackCapture) -> Result<Self> {
        let file = folder.join("perf.data");
        let [requests, answers] = [folder.join("perf-requests"), folder.join("perf-answers")];
        for fifo in [&requests, &answers] {
            let _ = std::fs::remove_file(fifo);
            mkfifo(fifo, Mode::S_IRUSR | Mode::S_IWUSR).map_err(Error::system("creating a named pipe"))?;
        }
        let before = process::time_of_children()?;
        // `-D -1` starts with events off, until "enable" comes through the pipe of `--control`.
        let mut command = Command::new("perf");
        command.args(["record", "-q", "-a", "-e", "sched:sched_switch", "-m", RING_SIZE, "-D", "-1"]);
        command
            .arg(format!("--control=fifo:{},{}", requests.display(), answers.display()))
            .arg("-o")
            .arg(&file);
        match kind {
            StackCapture::Plain => {}
            StackCapture::Chains => drop(command.args(["--call-graph", "fp"])),
            StackCapture::Unwound => drop(command.args(["--call-graph", &format!("dwarf,{STACK_BYTES}")])),
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let child = command.spawn().map_err(|e| program_error(&command, e.to_string()))?;
        let mut perf = Self { child, command, file, before };
        match perf.enable(&requests, &answers) {
            Ok(()) => Ok(perf),
            Err(error) => {
                let _ = perf.child.kill();
                perf.stop().and(Err(error))
            }
        }
    }

    fn enable(&mut self, requests: &Path, answers: &Path) -> Result<()> {
        // Opening a pipe for reading and writing does not wait for perf to open the other end.
        let open = |path: &Path| File::options().read(true).write(true).open(path).map_err(Error::file(path));
        let (mut request, mut answer) = (open(requests)?, open(answers)?);
        request.write_all(b"enable\n").map_err(Error::file(requests))?;
        let (send, receive) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let _ = answer.read(&mut [0; 16]);
            let _ = send.send(());
        });
        let start = Instant::now();
        while receive.recv_timeout(Duration::from_millis(20)).is_err() {
            let has_ended = self.child.try_wait().map_err(Error::file(answers))?.is_some();
            if has_ended || start.elapsed() > START_TIMEOUT {
                return Err(program_error(&self.command, "has not begun to record".into()));
            }
        }
        Ok(())
    }

    /// Stops perf and returns its processor time; `None` if it lost events.
    pub(super) fn stop(self) -> Result<Option<Duration>> {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap_or(i32::MAX));
        let _ = kill(pid, Signal::SIGINT);
        let ended = self.child.wait_with_output().map_err(Error::file(Path::new("perf")))?;
        let _ = std::fs::remove_file(&self.file);
        let messages = String::from_utf8_lossy(&ended.stderr).to_lowercase();
        let time = process::time_of_children()?.saturating_sub(self.before);
        Ok((!messages.contains("lost")).then_some(time))
    }
}
