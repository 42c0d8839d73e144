//! Child processes that read traces: the installed babeltrace2, the built `weir`, and this program.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use memchr::memmem;

use crate::consume::EventTally;
use crate::error::{Error, Result};
use crate::process::{self, ChildResult, program_error};
use crate::sample::TEXT;

/// The installed babeltrace2.
#[derive(Clone, Debug)]
pub(crate) struct Babeltrace {
    /// The first line of its version output.
    pub(crate) version: String,
}

impl Babeltrace {
    /// Finds babeltrace2 in `PATH`.
    pub(crate) fn find() -> Option<Self> {
        let ended = process::run(Command::new("babeltrace2").arg("--version"), Stdio::piped()).ok()?;
        ended
            .has_succeeded
            .then(|| Self { version: ended.stdout.lines().next().unwrap_or_default().to_owned() })
    }

    /// Decodes a trace without output.
    pub(crate) fn decode_to_dummy(&self, trace: &Path) -> Result<ChildResult> {
        let mut command = Command::new("babeltrace2");
        process::run(command.arg(trace).args(["--component", "sink.utils.dummy"]), Stdio::null())
    }

    /// Prints a trace as text to `/dev/null`.
    pub(crate) fn print_to_null(&self, trace: &Path) -> Result<ChildResult> {
        process::run(Command::new("babeltrace2").arg(trace), Stdio::null())
    }

    /// Counts the events in the text that babeltrace2 prints, and sums their numbers.
    pub(crate) fn tally(&self, trace: &Path) -> Result<EventTally> {
        let number = |line: &[u8], name: &str| {
            let from = memmem::find(line, name.as_bytes()).map_or(line.len(), |at| at + name.len());
            let digits = line[from..].iter().take_while(|b| b.is_ascii_digit());
            digits.fold(0_u64, |n, d| n.wrapping_mul(10).wrapping_add(u64::from(d - b'0')))
        };
        let mut tally = EventTally::default();
        for_each_line(Command::new("babeltrace2").arg(trace), |line| {
            tally.events += 1;
            tally.sum = tally.sum.wrapping_add(number(line, "seq = ")).wrapping_add(number(line, "val = "));
        })?;
        Ok(tally)
    }
}

/// Returns whether a program succeeded and reported no loss.
pub(crate) fn is_without_loss(ended: &ChildResult) -> bool {
    ended.has_succeeded && !ended.stderr.contains("discarded") && !ended.stderr.contains("lost")
}

/// The program that prints a trace for Traceweir.
#[derive(Clone, Debug)]
pub(crate) enum TracePrinter {
    /// The command-line tool.
    Weir(PathBuf),
    /// This program's `print`.
    Library(PathBuf),
}

impl TracePrinter {
    /// Returns the `weir` at `path`; without a path, the `weir` next to this program, or else this
    /// program.
    pub(crate) fn find(path: Option<&Path>) -> Result<Self> {
        let own_path = this_program()?;
        let neighbour = own_path.with_file_name("weir");
        Ok(match path {
            Some(path) => Self::Weir(path.to_owned()),
            None if neighbour.is_file() => Self::Weir(neighbour),
            None => Self::Library(own_path),
        })
    }

    /// Describes the printer for people.
    pub(crate) fn describe(&self) -> &'static str {
        match self {
            Self::Weir(_) => "weir dump",
            Self::Library(_) => {
                "a loop over the library, as weir is not built (cargo build --profile dist -p traceweir-cli)"
            }
        }
    }

    /// Prints a trace as text to `/dev/null`.
    pub(crate) fn print_to_null(&self, trace: &Path) -> Result<ChildResult> {
        process::run(&mut self.command(trace), Stdio::null())
    }

    /// Prints a trace as JSON lines to `/dev/null`; `None` without `weir`.
    pub(crate) fn print_json_to_null(&self, trace: &Path) -> Result<Option<ChildResult>> {
        let Self::Weir(program) = self else { return Ok(None) };
        let mut command = Command::new(program);
        command.args(["dump", "--format", "jsonl"]).arg(trace);
        process::run(&mut command, Stdio::null()).map(Some)
    }

    /// Returns the number of lines with an event of the bench.
    pub(crate) fn count_events(&self, trace: &Path) -> Result<u64> {
        let text = memmem::Finder::new(TEXT);
        let mut events = 0;
        for_each_line(&mut self.command(trace), |line| events += u64::from(text.find(line).is_some()))?;
        Ok(events)
    }

    fn command(&self, trace: &Path) -> Command {
        let (program, arguments) = match self {
            Self::Weir(program) => (program, &["dump", "--format", "text"][..]),
            Self::Library(program) => (program, &["print"][..]),
        };
        let mut command = Command::new(program);
        command.args(arguments).arg(trace);
        command
    }
}

/// Runs this program's `decode` on a file; returns the result of the process, its tally and its
/// peak memory in KiB.
pub(crate) fn run_our_decoder(trace: &Path) -> Result<(ChildResult, EventTally, u64)> {
    let mut command = Command::new(this_program()?);
    let ended = process::run(command.arg("decode").arg(trace), Stdio::piped())?;
    let numbers: Vec<u64> = ended.stdout.split_whitespace().filter_map(|n| n.parse().ok()).collect();
    match numbers[..] {
        [events, sum, peak] if ended.has_succeeded => Ok((ended, EventTally { events, sum }, peak)),
        _ => Err(program_error(&command, format!("did not decode: {}", ended.stderr.trim()))),
    }
}

pub(crate) fn this_program() -> Result<PathBuf> {
    std::env::current_exe().map_err(Error::file(Path::new("this program")))
}

/// Runs a command and passes each printed line to `each`.
fn for_each_line(command: &mut Command, mut each: impl FnMut(&[u8])) -> Result<()> {
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let started = command.spawn();
    let mut child = started.map_err(|e| program_error(command, e.to_string()))?;
    if let Some(stdout) = child.stdout.take() {
        let mut lines = BufReader::with_capacity(1 << 18, stdout);
        let mut line = Vec::new();
        while lines.read_until(b'\n', &mut line).map_err(|e| program_error(command, e.to_string()))? > 0 {
            each(&line);
            line.clear();
        }
    }
    let status = child.wait().map_err(|e| program_error(command, e.to_string()))?;
    if status.success() { Ok(()) } else { Err(program_error(command, status.to_string())) }
}
