//! The flags of the verbs that run and read sessions, as typed.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Args, ValueEnum};
use traceweir::controller::Scope;

use super::number::{buffers, kib, mib, pid, seconds};
use super::{EventFilters, Format, Schemas};
use crate::filter::{parse_duration, parse_level, parse_mask};
use crate::providers::{GRAMMAR, Wanted, parse_provider};

/// Which daemon.
#[derive(Clone, Copy, Debug, Default, Args)]
#[command(next_help_heading = "Daemon (TRACEWEIR_RUNTIME_DIR, where it is set, names the folder of another)")]
pub(crate) struct Whose {
    /// The system's daemon [default: the system's where it runs and permits, else your own]
    #[arg(long, conflicts_with = "user")]
    pub(crate) system: bool,
    /// Your own daemon
    #[arg(long)]
    pub(crate) user: bool,
}

impl Whose {
    /// The daemon that is meant; `None`: the usual one. A folder that the environment names goes before either.
    pub(crate) fn scope(self) -> Option<Scope> {
        match self {
            Self { system: true, .. } => Some(Scope::System),
            Self { user: true, .. } => Some(Scope::User),
            _ => None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mode {
    /// A file that grows, up to --max-size
    Sequential,
    /// A file that keeps the newest events, as many as fit --max-size
    Circular,
    /// A flight recorder: the newest events stay in memory; flush -o FILE writes them, and so does stop where -o names a file
    Buffering,
    /// For live consumers (weir watch); with -o also a file
    RealTime,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ClockName {
    /// The processor's time-stamp counter
    Qpc,
    /// Wall time in units of 100 ns
    System,
    /// Processor cycles
    Cycles,
}

/// How a session is made.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Session")]
pub(crate) struct Shape {
    /// What becomes of the events [default: sequential with -o, else real-time]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "MODE")]
    pub(crate) mode: Vec<Mode>,
    /// Size of a buffer [default: 64]
    #[arg(long, value_name = "KIB", value_parser = kib)]
    pub(crate) buffer_size: Option<u32>,
    /// Buffers at least [default: 4 MiB of them; a flight recorder has a fixed number, 16 MiB of them]
    #[arg(long, value_name = "N", value_parser = buffers)]
    pub(crate) min_buffers: Option<u32>,
    /// Buffers at most [default: 32 MiB of them]
    #[arg(long, value_name = "N", value_parser = buffers)]
    pub(crate) max_buffers: Option<u32>,
    /// Size of the file at most; one that grows ends its session there, a circular one goes round [default: no limit]
    #[arg(long, value_name = "MIB", value_parser = mib)]
    pub(crate) max_size: Option<u32>,
    /// Write out buffers after so long, full or not; each takes its whole size in the file. 0: only full ones [default: 1]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) flush_timer: Option<u32>,
    /// How events are stamped [default: qpc]
    #[arg(long, value_enum, value_name = "CLOCK")]
    pub(crate) clock: Option<ClockName>,
    /// Collect each event at once instead of when room runs short
    #[arg(long)]
    pub(crate) low_latency: bool,
}

const AFTER_START: &str = "\
Examples:
  weir start App -o app.etl -p MyCompany.App                 to a file, until weir stop App
  weir start App -o app.etl --mode circular --max-size 100   a file with the newest 100 MiB
  weir start App --mode buffering -p MyCompany.App           in memory, until weir flush App -o FILE
  weir start App -p MyCompany.App                            live only: weir watch App";

#[derive(Debug, Args)]
#[command(after_help = GRAMMAR, after_long_help = format!("{AFTER_START}\n\n{GRAMMAR}"))]
pub(crate) struct Start {
    /// A name for the session, of your choice
    pub(crate) name: String,
    /// The log file; one that is there is replaced
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Enable this provider; may be repeated
    #[arg(short, long, value_name = "PROVIDER", value_delimiter = ',', value_parser = parse_provider)]
    pub(crate) provider: Vec<Wanted>,
    #[command(flatten)]
    pub(crate) shape: Shape,
    #[command(flatten)]
    pub(crate) whose: Whose,
}

#[derive(Debug, Args)]
pub(crate) struct Stop {
    /// The session, by name
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) whose: Whose,
}

#[derive(Debug, Args)]
pub(crate) struct Query {
    /// The session, by name
    pub(crate) name: String,
    /// One JSON object
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) whose: Whose,
}

const AFTER_FLUSH: &str = "\
Examples:
  weir flush App                what is buffered goes to the session's file and to live consumers
  weir flush App -o now.etl     a flight recorder writes what it remembers, and goes on";

#[derive(Debug, Args)]
#[command(after_long_help = AFTER_FLUSH)]
pub(crate) struct Flush {
    /// The session, by name
    pub(crate) name: String,
    /// Where a flight recorder writes its snapshot [default: the session's own file]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) whose: Whose,
}

#[derive(Debug, Args)]
pub(crate) struct List {
    /// Providers that are registered or enabled, instead of sessions
    #[arg(long)]
    pub(crate) providers: bool,
    /// One JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) whose: Whose,
}

const AFTER_ENABLE: &str = "\
Examples:
  weir enable App MyCompany.App                         everything, in every process that has it
  weir enable App MyCompany.App:0x10:warning            these keywords, this level or more severe
  weir enable App MyCompany.App --level 3 --any 0x10    the same
  weir enable App MyCompany.App --pid 1234              in one process";

#[derive(Debug, Args)]
#[command(after_help = GRAMMAR, after_long_help = format!("{AFTER_ENABLE}\n\n{GRAMMAR}"))]
pub(crate) struct Enable {
    /// The session, by name
    pub(crate) name: String,
    /// The provider
    #[arg(value_parser = parse_provider)]
    pub(crate) provider: Wanted,
    /// Only events of this level or more severe: 0 to 255, critical, error, warning, info, verbose [default: all]
    #[arg(long, value_parser = parse_level)]
    pub(crate) level: Option<u8>,
    /// Only events with any of these keyword bits [default: all]
    #[arg(long, visible_alias = "any", value_name = "MASK", value_parser = parse_mask)]
    pub(crate) keywords: Option<u64>,
    /// Only events with all of these keyword bits
    #[arg(long, value_name = "MASK", value_parser = parse_mask)]
    pub(crate) all: Option<u64>,
    /// Only in these processes
    #[arg(long, value_name = "PID", value_delimiter = ',', value_parser = pid)]
    pub(crate) pid: Vec<u32>,
    /// Wait so long for the processes to take it up: 2s, 500ms; 0s: do not wait
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_duration)]
    pub(crate) timeout: Duration,
    #[command(flatten)]
    pub(crate) whose: Whose,
}

#[derive(Debug, Args)]
pub(crate) struct Disable {
    /// The session, by name
    pub(crate) name: String,
    /// The provider
    #[arg(value_parser = parse_provider)]
    pub(crate) provider: Wanted,
    /// Wait so long for the processes to take it up: 2s, 500ms; 0s: do not wait
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_duration)]
    pub(crate) timeout: Duration,
    #[command(flatten)]
    pub(crate) whose: Whose,
}

const AFTER_RECORD: &str = "\
Ctrl-C once ends the recording and finalises the file; twice leaves at once, and the daemon finalises the file.

Exit status: that of CMD; 126 where it cannot be run, 127 where it is not found, 125 when recording \
itself fails, 130 when Ctrl-C left CMD or the file behind. Without CMD as for the other commands, so 4 when events were lost.";

#[derive(Debug, Args)]
#[command(after_help = format!("{GRAMMAR}\n\n{AFTER_RECORD}"))]
pub(crate) struct Record {
    /// Record this provider, in every process that has it; may be repeated
    #[arg(short, long, required = true, value_name = "PROVIDER", value_delimiter = ',', value_parser = parse_provider)]
    pub(crate) provider: Vec<Wanted>,
    /// The trace; a file that is there is replaced
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: PathBuf,
    /// Record for so long: 10s, 500ms, 2min [default: until CMD ends, or Ctrl-C]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(crate) duration: Option<Duration>,
    /// Only these running processes, and only while one of them runs; may be repeated
    #[arg(long, value_name = "PID", value_delimiter = ',', value_parser = pid, conflicts_with = "command")]
    pub(crate) pid: Vec<u32>,
    /// A program to run while recording, and its arguments; other processes that have the provider are recorded too
    #[arg(last = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
    #[command(flatten)]
    pub(crate) shape: Shape,
    #[command(flatten)]
    pub(crate) whose: Whose,
}

#[derive(Debug, Args)]
#[command(after_help = GRAMMAR, group = ArgGroup::new("source").required(true).multiple(true).args(["session", "provider"]))]
pub(crate) struct Watch {
    /// A running real-time session, by name
    pub(crate) session: Option<String>,
    /// Watch this provider, in a session made for this and removed at the end; with SESSION: show only what it wrote. May be repeated
    #[arg(short, long, value_name = "PROVIDER", value_delimiter = ',', value_parser = parse_provider)]
    pub(crate) provider: Vec<Wanted>,
    /// Watch for so long: 10s, 500ms, 2min [default: until Ctrl-C or the end of the session]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(crate) duration: Option<Duration>,
    /// How events are written
    #[arg(short, long, value_enum, default_value_t)]
    pub(crate) format: Format,
    /// Numbers instead of the names of enumerations and flags
    #[arg(long)]
    pub(crate) numeric: bool,
    #[command(flatten)]
    pub(crate) whose: Whose,
    #[command(flatten)]
    pub(crate) schemas: Schemas,
    #[command(flatten)]
    pub(crate) filters: EventFilters,
}

#[derive(Debug, Args)]
#[command(
    next_help_heading = "Options (TRACEWEIR_RUNTIME_DIR, where it is set, goes before --system and --user)"
)]
pub(crate) struct Daemon {
    /// Serve the whole system, in /run/traceweir
    #[arg(long, conflicts_with_all = ["user", "runtime_dir"])]
    pub(crate) system: bool,
    /// Serve your own programs, in $XDG_RUNTIME_DIR/traceweir [the default]
    #[arg(long, conflicts_with = "runtime_dir")]
    pub(crate) user: bool,
    /// Serve those who name this folder in TRACEWEIR_RUNTIME_DIR
    #[arg(long, value_name = "DIR")]
    pub(crate) runtime_dir: Option<PathBuf>,
    /// Leave after so many seconds without session, enabled provider or consumer [default: TRACEWEIR_IDLE_EXIT, idle_exit in
    /// traceweir.conf, else stay; with --on-demand 60]
    #[arg(long, value_name = "SECONDS")]
    pub(crate) idle_exit: Option<u64>,
    /// Sessions at most [default: TRACEWEIR_MAX_SESSIONS, max_sessions in traceweir.conf, else 64]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65535))]
    pub(crate) max_sessions: Option<u32>,
    /// Detach from the terminal and leave when idle
    #[arg(long)]
    pub(crate) on_demand: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// Where the trace is written [default: weir-demo.etl in the temporary folder]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Runs the session, in a folder that was made for it
    #[arg(long, hide = true)]
    pub(crate) stage: bool,
}

/// The sample provider in a process of its own.
#[derive(Debug, Args)]
pub(crate) struct DemoShop {
    /// Number of the first order
    #[arg(long, default_value_t = 1)]
    pub(crate) first: u32,
    /// Orders to serve
    #[arg(long, default_value_t = 2)]
    pub(crate) orders: u32,
    /// Pause between the steps of an order, in milliseconds
    #[arg(long, default_value_t = 10)]
    pub(crate) pause: u64,
    /// Stay so many milliseconds after the last order
    #[arg(long, default_value_t = 0)]
    pub(crate) linger: u64,
    /// Exit status at the end
    #[arg(long, default_value_t = 0)]
    pub(crate) exit: u8,
}
