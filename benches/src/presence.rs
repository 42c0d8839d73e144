//! The cost of a program that has registered providers and is quiet.
//!
//! ```text
//!   presence_1000_registrations   memory of a process, 1,000 registrations
//!                                   − the same without registrations      ≤ 16 MiB
//!   presence_switches             context switches of that process
//!                                   in ten seconds                        none
//!   presence_each_of_200          memory of 200 processes, enabled, one event each
//!                                   − the same without registering        ≤ 256 KiB for each
//! ```
//!
//! Memory is proportional (Pss: a page shared by n processes counts as 1/n in each), as reported by
//! the kernel in `smaps_rollup`. The 200 processes are attached to a file session, so each has a
//! region; the growth of the daemon is added to their memory.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use traceweir::{Guid, Provider};

use crate::error::{Error, Result};
use crate::figure::{Figure, FigureUnit, Requirement, Rounds};
use crate::machine::MeasuredMachine;
use crate::process::program_error;
use crate::record::OutputOptions;
use crate::write::offer;
use crate::write::ours::{self, BenchDaemon};

const REGISTRATIONS: u32 = 1_000;
const PROCESSES: u32 = 200;
const QUIET_TIME: Duration = Duration::from_secs(10);
/// Time in which threads finish their work and go to sleep.
const SETTLE_TIME: Duration = Duration::from_secs(2);
const LIMIT_MIB: f64 = 16.0;
const LIMIT_KIB_EACH: f64 = 256.0;

/// The options of the measurement.
#[derive(Debug, clap::Args)]
pub(crate) struct PresenceOptions {
    #[command(flatten)]
    output: OutputOptions,
    /// The `weir` to measure [default: the one next to this program].
    #[arg(long, value_name = "PROGRAM")]
    weir: Option<PathBuf>,
}

/// Measures and prints the figures.
pub(crate) fn run(arguments: &PresenceOptions) -> Result<()> {
    let machine = MeasuredMachine::describe();
    let folder = tempfile::tempdir().map_err(Error::file(&std::env::temp_dir()))?;
    let daemon = BenchDaemon::start(&ours::find_weir(arguments.weir.as_deref())?, folder.path())?;
    let mut figures = measure_one_process(&daemon)?;
    figures.extend(measure_many_processes(&daemon, &folder.path().join("presence.etl"))?);
    arguments.output.report("presence", &machine, &[], &figures)
}

/// Returns a figure with a limit: the ratio is the used part of the limit.
fn limit_figure(name: &'static str, unit: FigureUnit, value: f64, limit: f64) -> Option<Figure> {
    let mut rounds = Rounds::default();
    rounds.add(Some(value), Some(limit));
    rounds.figure(name, unit, Requirement::at_most(1.0).with_target(0.5))
}

#[allow(clippy::cast_precision_loss)] // KiB and switches are far below 2⁵³.
fn measure_one_process(daemon: &BenchDaemon) -> Result<Vec<Figure>> {
    eprintln!("{REGISTRATIONS} registrations in one process");
    let without = ChildRole::start(daemon, &["present", "0"])?;
    let with = ChildRole::start(daemon, &["present", &REGISTRATIONS.to_string()])?;
    thread::sleep(SETTLE_TIME);
    let added = with.memory_kib()?.saturating_sub(without.memory_kib()?);
    let before = with.switches()?;
    thread::sleep(QUIET_TIME);
    let switches = with.switches()?.saturating_sub(before);
    let memory =
        limit_figure("presence_1000_registrations", FigureUnit::Mebibytes, added as f64 / 1024.0, LIMIT_MIB);
    // No switch is allowed; the peer is 1 because a ratio needs a divisor above 0.
    let mut rounds = Rounds::default();
    rounds.add(Some(switches as f64), Some(1.0));
    let quiet =
        rounds.figure("presence_switches", FigureUnit::Count, Requirement::at_most(0.0).with_target(0.0));
    Ok(memory.into_iter().chain(quiet).collect())
}

#[allow(clippy::cast_precision_loss)] // KiB are far below 2⁵³.
fn measure_many_processes(daemon: &BenchDaemon, file: &Path) -> Result<Option<Figure>> {
    eprintln!("{PROCESSES} processes");
    let session = ChildRole::start(daemon, &["hold", &file.to_string_lossy()])?;
    let measure = |arguments: &[&str]| -> Result<(u64, u64)> {
        let before = memory_kib(daemon.pid())?;
        let roles =
            (0..PROCESSES).map(|_| ChildRole::start(daemon, arguments)).collect::<Result<Vec<_>>>()?;
        thread::sleep(SETTLE_TIME);
        let total_kib = roles.iter().map(ChildRole::memory_kib).sum::<Result<u64>>()?;
        Ok((total_kib, memory_kib(daemon.pid())?.saturating_sub(before)))
    };
    let (without, _) = measure(&["present", "0"])?;
    let (with, daemon_growth) = measure(&["present", "1", "--write"])?;
    drop(session);
    let added = with.saturating_sub(without);
    eprintln!("processes took {added} KiB more, the daemon {daemon_growth} KiB");
    let each = (added + daemon_growth) as f64 / f64::from(PROCESSES);
    Ok(limit_figure("presence_each_of_200", FigureUnit::Kibibytes, each, LIMIT_KIB_EACH))
}

/// A child process in the role `present` or `hold`. It prints `ready`, and ends when its input ends.
struct ChildRole {
    child: Child,
}

impl ChildRole {
    fn start(daemon: &BenchDaemon, arguments: &[&str]) -> Result<Self> {
        let (role, arguments) = arguments.split_first().unwrap_or((&"present", &[]));
        let mut command: Command = daemon.command(role)?;
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|e| program_error(&command, e.to_string()))?;
        let mut line = String::new();
        let ready = child.stdout.take().map(|out| BufReader::new(out).read_line(&mut line));
        match ready {
            Some(Ok(_)) if line.trim() == "ready" => Ok(Self { child }),
            _ => Err(program_error(&command, format!("is not ready: {line:?}"))),
        }
    }

    fn memory_kib(&self) -> Result<u64> {
        memory_kib(self.child.id())
    }

    /// Returns the context switches of all its threads so far.
    fn switches(&self) -> Result<u64> {
        let tasks = PathBuf::from(format!("/proc/{}/task", self.child.id()));
        let mut sum = 0;
        for task in std::fs::read_dir(&tasks).map_err(Error::file(&tasks))?.flatten() {
            sum += parse_switches(&read(&task.path().join("status"))?);
        }
        Ok(sum)
    }
}

impl Drop for ChildRole {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).map_err(Error::file(path))
}

/// Returns the proportional memory of a process in KiB.
fn memory_kib(pid: u32) -> Result<u64> {
    let path = PathBuf::from(format!("/proc/{pid}/smaps_rollup"));
    let text = read(&path)?;
    parse_pss_kib(&text).ok_or_else(|| Error::IncompleteRun(format!("{} has no Pss", path.display())))
}

fn parse_pss_kib(rollup: &str) -> Option<u64> {
    let value = rollup.lines().find_map(|l| l.strip_prefix("Pss:"))?;
    value.trim().trim_end_matches(" kB").parse().ok()
}

/// Adds up `voluntary_ctxt_switches` and `nonvoluntary_ctxt_switches`.
fn parse_switches(status: &str) -> u64 {
    let lines = status.lines().filter_map(|l| l.split_once(':'));
    let counts = lines.filter(|(name, _)| name.ends_with("voluntary_ctxt_switches"));
    counts.filter_map(|(_, value)| value.trim().parse::<u64>().ok()).sum()
}

/// The role `present`: registers, writes an event if requested, prints `ready`, and stays.
pub(crate) fn run_present_role(registrations: u32, write: bool) -> Result<()> {
    let mut providers = Vec::new();
    for i in 0..registrations {
        let Guid { data1, .. } = ours::PROVIDER;
        let guid = Guid { data1: data1.wrapping_add(i), ..ours::PROVIDER };
        providers.push(Provider::register(guid, None)?);
    }
    if let (true, Some(provider)) = (write, providers.first())
        && offer::emit(provider, b"here\0", 1) > 0
    {
        return Err(Error::IncompleteRun("the event was not written".to_owned()));
    }
    print_ready_and_wait()
}

/// The role `hold`: a session that enables the bench's provider, until the input ends.
pub(crate) fn run_hold_role(file: &Path) -> Result<()> {
    ours::wait_for_daemon()?;
    let session = ours::start_session(ours::plain_session(file), None)?;
    let waited = print_ready_and_wait();
    session.stop()?;
    waited
}

fn print_ready_and_wait() -> Result<()> {
    println!("ready");
    let mut byte = [0];
    std::io::stdin().read(&mut byte).map(drop).map_err(Error::file(Path::new("standard input")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_and_switches_are_parsed_from_proc() {
        let rollup =
            "55d0-7ffe ---p 00000000 00:00 0 [rollup]\nRss:  900 kB\nPss:     123 kB\nPss_Anon:  7 kB\n";
        assert_eq!(parse_pss_kib(rollup), Some(123));
        assert_eq!(parse_pss_kib("Rss: 1 kB"), None);
        let status = "Name:\tx\nvoluntary_ctxt_switches:\t5\nnonvoluntary_ctxt_switches:\t2\n";
        assert_eq!(parse_switches(status), 7);
    }

    #[test]
    fn limit_figure_is_the_used_part_of_the_limit() {
        assert!(
            limit_figure("x", FigureUnit::Mebibytes, 4.0, 16.0)
                .unwrap()
                .to_json()
                .contains("\"ratio\":0.2500")
        );
    }
}
