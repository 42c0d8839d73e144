//! What capturing kernel events costs the workload, beside `perf record` with the same events.
//!
//! ```text
//!   two processes on one processor pass a byte to and fro by pipes: each round is two context switches
//!
//!   alone            ──▶  t₀
//!   captured by us   ──▶  t₀ + ours      a system logger with CSWITCH, to a file                        kernel_vs_perf
//!   by perf record   ──▶  t₀ + perf's    perf record -a -e sched:sched_switch, to a file                kernel_stacks_vs_perf   (with call chains by frame pointers)
//! ```
//!
//! Rounds are paired: alone, ours and perf's follow each other in an order that turns, and the ratio is of the times that were added. A round in which
//! either side lost an event counts for nothing. What the captures take themselves, on another processor, is told beside: processor time of the session's
//! threads, and of perf.

use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use traceweir::Guid;
use traceweir::controller::info::{ClassicEventId, Set};
use traceweir::controller::{Controller, SessionConfig, SessionRef};

use crate::error::{Error, Result};
use crate::figure::{self, Figure, Rounds, Unit, Wanted};
use crate::machine::Machine;
use crate::peer::this_program;
use crate::process::{self, failed};
use crate::record;
use crate::write::ours::{self, Daemon};

/// EVENT_TRACE_FLAG_CSWITCH.
const CSWITCH: u32 = 0x10;
/// EVENT_TRACE_SYSTEM_LOGGER_MODE, and a sequential file.
const MODE: u32 = 0x0200_0000 | 1;
/// The class and type of a context switch.
const SWITCH: ClassicEventId =
    ClassicEventId { class: Guid::from_u128(0x3d6f_a8d1_fe05_11d0_9dda_00c0_4fd7_ba7c), opcode: 36 };
/// Memory of perf's rings; ours have as much.
const PERF_RING: &str = "2M";
const BUFFER_KIB: u32 = 256;
const BUFFERS: u32 = 64;

/// What to measure, and how.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Print one JSON object for each figure.
    #[arg(long)]
    json: bool,
    /// Keep the figures as `recorded/kernel-<date>.jsonl`.
    #[arg(long)]
    record: bool,
    /// Rounds of each measurement.
    #[arg(long, default_value_t = 9, value_name = "N")]
    rounds: u32,
    /// Times that the byte goes to and fro.
    #[arg(long, default_value_t = 150_000, value_name = "N")]
    passes: u32,
    /// The `weir` to measure [default: the one beside this program].
    #[arg(long, value_name = "PROGRAM")]
    weir: Option<PathBuf>,
}

/// Measures and prints.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let machine = Machine::describe();
    let folder = tempfile::tempdir().map_err(Error::file(&std::env::temp_dir()))?;
    let version = process::run(Command::new("perf").arg("--version"), Stdio::piped());
    let Ok(version) = version else {
        eprintln!("peer: perf is not installed; nothing to compare with");
        return Ok(());
    };
    let version = version.stdout.trim().to_owned();
    eprintln!("{}, {} cores, Linux {}; peer: {version}", machine.cpu, machine.cores, machine.kernel);
    let daemon = Daemon::start(&ours::find_weir(arguments.weir.as_deref())?, folder.path())?;
    let bench = Bench { daemon, folder: folder.path().to_owned(), passes: arguments.passes };
    let mut figures = Vec::new();
    for (stacks, names) in [
        (false, ["kernel_vs_perf", "kernel_capture_cpu"]),
        (true, ["kernel_stacks_vs_perf", "kernel_stacks_capture_cpu"]),
    ] {
        figures.extend(bench.measure(stacks, names, arguments.rounds)?);
    }
    if arguments.json {
        figures.iter().for_each(|f| println!("{}", f.json()));
    } else {
        print!("{}", figure::table(&figures));
    }
    if arguments.record {
        let circumstances = [("perf", version), ("passes", arguments.passes.to_string())];
        let path = record::write(&record::default_folder(), "kernel", &machine, &circumstances, &figures)?;
        eprintln!("recorded in {}", path.display());
    }
    Ok(())
}

struct Bench {
    daemon: Daemon,
    folder: PathBuf,
    passes: u32,
}

/// One run of the workload: nanoseconds that it took, and those of processor time that capturing took.
#[derive(Clone, Copy, Debug)]
struct Run {
    took: f64,
    capture: f64,
}

impl Bench {
    #[allow(clippy::cast_precision_loss)] // Nanoseconds of seconds are far below 2⁵³.
    fn measure(&self, stacks: bool, names: [&'static str; 2], rounds: u32) -> Result<Vec<Figure>> {
        let (mut added, mut cpu) = (Rounds::default(), Rounds::default());
        let events = f64::from(self.passes) * 2.0;
        // Warm: programs, files, the daemon.
        self.alone()?;
        for round in 0..rounds {
            let (mut alone, mut ours, mut perf) = (0.0, None, None);
            for turn in 0..3 {
                match (round + turn) % 3 {
                    0 => alone = self.alone()?,
                    1 => ours = self.ours(stacks)?,
                    _ => perf = self.perf(stacks)?,
                }
            }
            let extra = |run: Option<Run>| run.map(|run| ((run.took - alone) / events).max(0.1));
            eprintln!(
                "round {}: alone {:.0} ns a switch, ours +{:.0}, perf +{:.0}",
                round + 1,
                alone / events,
                extra(ours).unwrap_or(f64::NAN),
                extra(perf).unwrap_or(f64::NAN)
            );
            added.add(extra(ours), extra(perf));
            cpu.add(ours.map(|run| run.capture / events), perf.map(|run| run.capture / events));
        }
        let [time, own] = names;
        let time = added.figure(time, Unit::Nanoseconds, Wanted::at_most(1.2, 1.05));
        let own = cpu.figure(own, Unit::Nanoseconds, Wanted::told());
        Ok(time.into_iter().chain(own).collect())
    }

    fn workload(&self) -> Result<Command> {
        let mut command = Command::new(this_program()?);
        command.arg("ping-pong").arg(self.passes.to_string());
        Ok(command)
    }

    fn alone(&self) -> Result<f64> {
        nanoseconds(&mut self.workload()?)
    }

    /// Under a session of ours; `None` where it lost something.
    #[allow(clippy::cast_precision_loss)]
    fn ours(&self, stacks: bool) -> Result<Option<Run>> {
        let file = self.folder.join("ours.etl");
        let mut controller = self.daemon.controller()?;
        let config = SessionConfig {
            name: "bench-kernel".into(),
            log_file: Some(file.clone()),
            log_file_mode: MODE,
            enable_flags: CSWITCH,
            buffer_size: BUFFER_KIB,
            minimum_buffers: BUFFERS / 2,
            maximum_buffers: BUFFERS,
            ..SessionConfig::default()
        };
        let session = SessionRef::Id(controller.start(&config)?.id);
        let run = self.under(&mut controller, &session, stacks);
        let stopped = controller.stop(&session)?;
        let _ = std::fs::remove_file(&file);
        let took = run?;
        let is_whole = stopped.events_lost == 0 && stopped.events >= u64::from(self.passes) * 2;
        Ok(is_whole.then_some(Run { took, capture: stopped.collector_ns as f64 }))
    }

    fn under(&self, controller: &mut Controller, session: &SessionRef, stacks: bool) -> Result<f64> {
        if stacks {
            controller.set_information(session, &Set::StackTracing(vec![SWITCH]))?;
        }
        nanoseconds(&mut self.workload()?)
    }

    /// Under perf; `None` where it lost something.
    #[allow(clippy::cast_precision_loss)]
    fn perf(&self, stacks: bool) -> Result<Option<Run>> {
        let file = self.folder.join("perf.data");
        let mut command = Command::new("perf");
        command.args(["record", "-q", "-a", "-e", "sched:sched_switch", "-m", PERF_RING, "-o"]).arg(&file);
        if stacks {
            command.args(["--call-graph", "fp"]);
        }
        command.arg("--").arg(this_program()?).arg("ping-pong").arg(self.passes.to_string());
        let ended = process::run(&mut command, Stdio::piped())?;
        let _ = std::fs::remove_file(&file);
        if !ended.success {
            return Err(failed(&command, ended.stderr));
        }
        let took = parse(&command, &ended.stdout)?;
        let is_whole = !ended.stderr.to_lowercase().contains("lost");
        // What the workload took on its one processor is not perf's.
        let capture = (ended.time.as_nanos() as f64 - took).max(0.0);
        Ok(is_whole.then_some(Run { took, capture }))
    }
}

/// Runs the workload; the nanoseconds that it tells.
fn nanoseconds(command: &mut Command) -> Result<f64> {
    let ended = process::run(command, Stdio::piped())?;
    if !ended.success {
        return Err(failed(command, ended.stderr));
    }
    parse(command, &ended.stdout)
}

fn parse(command: &Command, text: &str) -> Result<f64> {
    text.trim().parse().map_err(|_| failed(command, format!("told {text:?} instead of nanoseconds")))
}

/// The workload: this process and a child of it, on one processor; prints how long it took.
pub(crate) fn ping_pong(passes: u32) -> Result<()> {
    pin_to_first()?;
    let pipe = || std::io::pipe().map_err(Error::file(Path::new("a pipe")));
    let ((mut from_there, to_here), (from_here, mut to_there)) = (pipe()?, pipe()?);
    let mut echo = Command::new(this_program()?);
    echo.arg0("echo").arg("echo").stdin(from_here).stdout(to_here);
    let mut child = echo.spawn().map_err(|e| failed(&echo, e.to_string()))?;
    drop(echo);
    let mut byte = [1];
    let mut pass = |times: u32| -> std::io::Result<()> {
        for _ in 0..times {
            to_there.write_all(&byte)?;
            from_there.read_exact(&mut byte)?;
        }
        Ok(())
    };
    let failed = Error::file(Path::new("a pipe"));
    pass(1000)
        .and_then(|()| {
            let begun = Instant::now();
            pass(passes)?;
            println!("{}", begun.elapsed().as_nanos());
            Ok(())
        })
        .map_err(failed)?;
    drop(to_there);
    let _ = child.wait();
    Ok(())
}

/// The other side of the workload.
pub(crate) fn echo() -> Result<()> {
    let (mut input, mut output) = (std::io::stdin().lock(), std::io::stdout().lock());
    let mut byte = [0];
    while input.read_exact(&mut byte).is_ok() {
        output.write_all(&byte).and_then(|()| output.flush()).map_err(Error::file(Path::new("a pipe")))?;
    }
    Ok(())
}

fn pin_to_first() -> Result<()> {
    let this = Pid::from_raw(0);
    let allowed = sched_getaffinity(this).map_err(Error::system("allowed processors"))?;
    let first = (0..CpuSet::count()).find(|&cpu| allowed.is_set(cpu).unwrap_or(false)).unwrap_or(0);
    let mut only = CpuSet::new();
    only.set(first)
        .and_then(|()| sched_setaffinity(this, &only))
        .map_err(Error::system("choosing a processor"))
}
