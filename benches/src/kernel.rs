//! The cost that capturing kernel events adds to a workload, compared with `perf record` of the
//! same events.
//!
//! ```text
//!   one workload for all rounds: two processes on one processor pass a byte back and forth by
//!   pipes, a batch at a time; each pass is two context switches
//!
//!   round    alone │ captured by us          alone │ by perf record        median of the batches
//!            t₀    │ t₀ + ours               t₀′   │ t₀′ + perf's
//!
//!   kernel_vs_perf          a system logger with CSWITCH, to a file     perf record -a
//!                                                                       -e sched:sched_switch
//!   kernel_stacks_vs_perf   the same, with frame-pointer call chains    --call-graph fp
//!   kernel_unwind_vs_perf   the same, with copies of user stacks that   --call-graph dwarf (perf
//!                           the session unwinds                         only stores the copies)
//! ```
//!
//! 1. Both captures record the same two processes. The added time is relative to batches without a
//!    capture that run directly before, because the memory pages of a process and the current speed
//!    of the machine change the duration of a switch by more than capturing does.
//! 2. The capture that runs first changes from round to round. A round in which either capture lost
//!    an event is discarded.
//! 3. The captures' own processor time, on another processor, is reported separately: that of the
//!    session's threads, and that of perf.

mod perf;
mod workload;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use traceweir::controller::info::{ClassicEventId, Set};
use traceweir::{Guid, LogFileMode, Session};

use crate::error::{Error, Result};
use crate::figure::{Direction, Figure, FigureUnit, Requirement, Rounds};
use crate::machine::MeasuredMachine;
use crate::process;
use crate::record::OutputOptions;
use crate::write::ours::{self, BenchDaemon};

use self::perf::Perf;
use self::workload::{SwitchLoad, Workload};
pub(crate) use self::workload::{echo, ping_pong};

/// The enable flag EVENT_TRACE_FLAG_CSWITCH.
const CSWITCH: u32 = 0x10;
/// The class GUID and event type of a context switch.
const SWITCH: ClassicEventId =
    ClassicEventId { class: Guid::from_u128(0x3d6f_a8d1_fe05_11d0_9dda_00c0_4fd7_ba7c), opcode: 36 };
const BUFFER_KIB: u32 = 256;
const BUFFERS: u32 = 64;
/// Bytes of user stack that are copied with each switch when stacks are unwound.
const STACK_BYTES: u32 = 2048;

/// The options of the measurement.
#[derive(Debug, clap::Args)]
pub(crate) struct KernelOptions {
    #[command(flatten)]
    output: OutputOptions,
    /// Rounds of each measurement.
    #[arg(long, default_value_t = 15, value_name = "N")]
    rounds: u32,
    /// Number of times that the byte goes back and forth in a batch.
    #[arg(long, default_value_t = 5_000, value_name = "N")]
    passes: u32,
    /// Number of batches, of which the median counts.
    #[arg(long, default_value_t = 25, value_name = "N")]
    batches: u32,
    /// The `weir` to measure [default: the one next to this program].
    #[arg(long, value_name = "PROGRAM")]
    weir: Option<PathBuf>,
}

/// Measures and prints the figures.
pub(crate) fn run(arguments: &KernelOptions) -> Result<()> {
    let machine = MeasuredMachine::describe();
    let folder = tempfile::tempdir().map_err(Error::file(&std::env::temp_dir()))?;
    let version = process::run(Command::new("perf").arg("--version"), Stdio::piped());
    let Ok(version) = version else {
        eprintln!("peer: perf is not installed; nothing to compare with");
        return Ok(());
    };
    let version = version.stdout.trim().to_owned();
    eprintln!("{}, {} cores, Linux {}; peer: {version}", machine.cpu, machine.cores, machine.kernel);
    let daemon = BenchDaemon::start(&ours::find_weir(arguments.weir.as_deref())?, folder.path())?;
    let mut bench = KernelBench { daemon, folder: folder.path(), workload: Workload::start()? };
    let load = SwitchLoad { passes: arguments.passes, batches: arguments.batches, pause: Duration::ZERO };
    // Stack bytes fill a ring within a thousand switches, so both captures get time to empty
    // their rings.
    let with_pauses =
        SwitchLoad { passes: 150, batches: arguments.batches * 4, pause: Duration::from_millis(10) };
    let mut figures = Vec::new();
    for kind in [StackCapture::Plain, StackCapture::Chains, StackCapture::Unwound] {
        let load = if kind == StackCapture::Unwound { with_pauses } else { load };
        figures.extend(bench.measure(kind, load, arguments.rounds)?);
    }
    let passes = format!("{} batches of {} passes", arguments.batches, arguments.passes);
    let circumstances = [("perf", version), ("workload", passes)];
    arguments.output.report("kernel", &machine, &circumstances, &figures)
}

/// The data captured with each switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StackCapture {
    Plain,
    Chains,
    Unwound,
}

impl StackCapture {
    /// Returns the names of the figures: for the added time, and for the captures' own time.
    const fn figure_names(self) -> [&'static str; 2] {
        match self {
            Self::Plain => ["kernel_vs_perf", "kernel_capture_cpu"],
            Self::Chains => ["kernel_stacks_vs_perf", "kernel_stacks_capture_cpu"],
            Self::Unwound => ["kernel_unwind_vs_perf", "kernel_unwind_capture_cpu"],
        }
    }

    const fn requirement(self) -> Requirement {
        match self {
            Self::Plain | Self::Chains => Requirement::at_most(1.2).with_target(1.05),
            Self::Unwound => Requirement::report_only(Direction::Smaller),
        }
    }
}

struct KernelBench<'a> {
    daemon: BenchDaemon,
    folder: &'a Path,
    workload: Workload,
}

/// The measured nanoseconds of a context switch.
#[derive(Clone, Copy)]
struct CaptureCost {
    /// Duration of a switch while it is captured.
    switch_ns: f64,
    /// Processor time of capturing it.
    capture_ns: f64,
}

/// The cost of a capture, compared with the same workload without one.
#[derive(Clone, Copy)]
struct AddedCost {
    alone_ns: f64,
    added_ns: f64,
    capture_ns: f64,
}

impl KernelBench<'_> {
    fn measure(&mut self, kind: StackCapture, load: SwitchLoad, rounds: u32) -> Result<Vec<Figure>> {
        let (mut added, mut cpu) = (Rounds::default(), Rounds::default());
        // A warm-up run for programs, files and the daemon.
        self.run_ours(kind, load)?;
        for round in 0..rounds {
            let (mut ours, mut perf): (Option<AddedCost>, Option<AddedCost>) = (None, None);
            for turn in 0..2 {
                let alone = self.workload.run(load)?;
                let (result, run) = match (round + turn) % 2 {
                    0 => (&mut ours, self.run_ours(kind, load)?),
                    _ => (&mut perf, self.run_perf(kind, load)?),
                };
                *result = run.map(|CaptureCost { switch_ns, capture_ns }| AddedCost {
                    alone_ns: alone,
                    // More than 0, because the added time of perf divides that of Traceweir.
                    added_ns: (switch_ns - alone).max(0.1),
                    capture_ns,
                });
            }
            let describe = |run: Option<AddedCost>| match run {
                Some(AddedCost { alone_ns, added_ns, .. }) => format!("{alone_ns:.0} + {added_ns:.0}"),
                None => "lossy".to_owned(),
            };
            eprintln!("round {}: ns a switch: ours {}, perf {}", round + 1, describe(ours), describe(perf));
            added.add(ours.map(|cost| cost.added_ns), perf.map(|cost| cost.added_ns));
            cpu.add(ours.map(|cost| cost.capture_ns), perf.map(|cost| cost.capture_ns));
        }
        let [added_name, cpu_name] = kind.figure_names();
        let added = added.figure(added_name, FigureUnit::Nanoseconds, kind.requirement());
        let cpu = cpu.figure(cpu_name, FigureUnit::Nanoseconds, Requirement::report_only(Direction::Smaller));
        Ok(added.into_iter().chain(cpu).collect())
    }

    /// Runs the workload under a session of Traceweir.
    #[allow(clippy::cast_precision_loss)] // A run takes seconds, far below 2⁵³ nanoseconds.
    fn run_ours(&mut self, kind: StackCapture, load: SwitchLoad) -> Result<Option<CaptureCost>> {
        let file = self.folder.join("ours.etl");
        let session = Session::builder("bench-kernel")
            .daemon_at(self.daemon.runtime())
            .log_file(&file)
            .mode(LogFileMode::SYSTEM_LOGGER)
            .kernel_flags(CSWITCH)
            .buffer_kib(BUFFER_KIB)
            .minimum_buffers(BUFFERS / 2)
            .maximum_buffers(BUFFERS)
            .kernel_stack_bytes(if kind == StackCapture::Unwound { STACK_BYTES } else { 0 })
            .start()?;
        let run = self.run_under_session(&session, kind, load);
        let stopped = session.stop()?;
        let _ = std::fs::remove_file(&file);
        let switch_ns = run?;
        let is_without_loss = stopped.events_lost == 0 && stopped.events >= load.switches();
        let capture_ns = stopped.collector_time.as_nanos() as f64 / load.switches() as f64;
        Ok(is_without_loss.then_some(CaptureCost { switch_ns, capture_ns }))
    }

    fn run_under_session(&mut self, session: &Session, kind: StackCapture, load: SwitchLoad) -> Result<f64> {
        if kind != StackCapture::Plain {
            session.set_information(&Set::StackTracing(vec![SWITCH]))?;
        }
        self.workload.run(load)
    }

    /// Runs the workload under perf.
    #[allow(clippy::cast_precision_loss)]
    fn run_perf(&mut self, kind: StackCapture, load: SwitchLoad) -> Result<Option<CaptureCost>> {
        let perf = Perf::start(self.folder, kind)?;
        let switch_ns = self.workload.run(load)?;
        let time = perf.stop()?;
        let capture_ns = |time: Duration| time.as_nanos() as f64 / load.switches() as f64;
        Ok(time.map(|time| CaptureCost { switch_ns, capture_ns: capture_ns(time) }))
    }
}
