//! The workload: two processes on one processor that pass a byte back and forth, as often as
//! requested.
//!
//! ```text
//!   bench ──"5000\n"──▶ ping-pong ══byte══▶ echo         both on the first allowed processor
//!         ◀──nanoseconds──         ◀══byte══
//! ```

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

use crate::error::{Error, Result};
use crate::figure;
use crate::peer::this_program;
use crate::process::program_error;

#[derive(Clone, Copy, Debug)]
pub(super) struct SwitchLoad {
    /// Number of times that the byte goes back and forth in a batch.
    pub(super) passes: u32,
    pub(super) batches: u32,
    /// Pause before each batch.
    pub(super) pause: Duration,
}

impl SwitchLoad {
    /// Returns the context switches of all batches.
    pub(super) fn switches(self) -> u64 {
        2 * u64::from(self.passes) * u64::from(self.batches)
    }
}

#[derive(Debug)]
pub(super) struct Workload {
    child: Child,
    requests: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Workload {
    pub(super) fn start() -> Result<Self> {
        let mut command = Command::new(this_program()?);
        command.arg("ping-pong").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|e| program_error(&command, e.to_string()))?;
        let requests = child.stdin.take();
        let answers = child.stdout.take().ok_or_else(|| program_error(&command, "has no output".into()))?;
        Ok(Self { child, requests, answers: BufReader::new(answers) })
    }

    /// Runs the batches and returns the nanoseconds per switch of the median batch.
    pub(super) fn run(&mut self, load: SwitchLoad) -> Result<f64> {
        let mut ns_per_switch = Vec::new();
        for _ in 0..load.batches {
            std::thread::sleep(load.pause);
            ns_per_switch.push(self.run_batch(load.passes)? / (2.0 * f64::from(load.passes)));
        }
        figure::median_of(ns_per_switch.into_iter())
            .ok_or_else(|| Error::IncompleteRun("no batches to measure".into()))
    }

    fn run_batch(&mut self, passes: u32) -> Result<f64> {
        let mut line = String::new();
        let sent = self.requests.as_mut().map(|requests| writeln!(requests, "{passes}"));
        sent.unwrap_or(Ok(()))
            .and_then(|()| self.answers.read_line(&mut line))
            .map_err(Error::file(Path::new("the workload")))?;
        let unexpected =
            || Error::IncompleteRun(format!("the workload printed {line:?} instead of nanoseconds"));
        line.trim().parse().map_err(|_| unexpected())
    }
}

impl Drop for Workload {
    fn drop(&mut self) {
        drop(self.requests.take());
        let _ = self.child.wait();
    }
}

/// Runs the process of the workload that starts `echo` and prints the nanoseconds of each batch.
pub(crate) fn ping_pong() -> Result<()> {
    pin_to_first_core()?;
    let create_pipe = || std::io::pipe().map_err(Error::file(Path::new("a pipe")));
    let ((mut from_echo, echo_output), (echo_input, mut to_echo)) = (create_pipe()?, create_pipe()?);
    let mut echo = Command::new(this_program()?);
    echo.arg0("echo").arg("echo").stdin(echo_input).stdout(echo_output);
    let mut child = echo.spawn().map_err(|e| program_error(&echo, e.to_string()))?;
    // Closes this process's copies of `echo`'s pipe ends, so that reading fails if `echo` ends.
    drop(echo);
    let mut byte = [1];
    let mut pass = |times: u32| -> std::io::Result<()> {
        for _ in 0..times {
            to_echo.write_all(&byte)?;
            from_echo.read_exact(&mut byte)?;
        }
        Ok(())
    };
    for request in std::io::stdin().lock().lines() {
        let pipe_error = || Error::file(Path::new("a pipe"));
        let passes = request.map_err(pipe_error())?.trim().parse().unwrap_or(0);
        let start = Instant::now();
        pass(passes).map_err(pipe_error())?;
        println!("{}", start.elapsed().as_nanos());
    }
    drop(to_echo);
    let _ = child.wait();
    Ok(())
}

/// Runs the process of the workload that sends each byte back.
pub(crate) fn echo() -> Result<()> {
    let (mut input, mut output) = (std::io::stdin().lock(), std::io::stdout().lock());
    let mut byte = [0];
    while input.read_exact(&mut byte).is_ok() {
        output.write_all(&byte).and_then(|()| output.flush()).map_err(Error::file(Path::new("a pipe")))?;
    }
    Ok(())
}

fn pin_to_first_core() -> Result<()> {
    let own_process = Pid::from_raw(0);
    let allowed = sched_getaffinity(own_process).map_err(Error::system("querying the allowed processors"))?;
    let first = (0..CpuSet::count()).find(|&cpu| allowed.is_set(cpu).unwrap_or(false)).unwrap_or(0);
    let mut only = CpuSet::new();
    only.set(first)
        .and_then(|()| sched_setaffinity(own_process, &only))
        .map_err(Error::system("pinning to a processor"))
}
