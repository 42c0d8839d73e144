//! The flags of the verbs that run and read sessions, as typed.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Args, ValueEnum};
use traceweir::controller::Scope;

use super::number::{buffers, pid, seconds, sessions};
use super::{EventFilters, Format, KERNEL, KernelChange, KernelEvents, Providers, Schemas, Shape, Show};
use crate::filter::parse_duration;
use crate::grammar::GRAMMAR;

/// Over the flags that choose one.
pub(super) const DAEMON: &str =
    "Daemon (TRACEWEIR_RUNTIME_DIR, where it is set, names the folder of another)";

/// Which daemon.
#[derive(Clone, Copy, Debug, Default, Args)]
#[command(next_help_heading = DAEMON)]
pub(crate) struct Whose {
    /// The system's daemon [default for root, and where it runs and permits; else your own]
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

const AFTER_START: &str = "\
Examples:
  weir start App -o app.etl -p MyCompany.App                 to a file, until weir stop App
  weir start App -o app.etl --circular --max-size 100        a file with the newest 100 MiB
  weir start App -o app-%d.etl --new-file --max-size 100     a row of files of 100 MiB each
  weir start App --buffering -p MyCompany.App                in memory, until weir flush App -o FILE
  weir start App -p MyCompany.App                            live only: weir watch App
  weir start K -o k.etl --kernel sched -p MyCompany.App      the kernel's events and the program's in one file";

#[derive(Debug, Args)]
#[command(after_help = GRAMMAR, after_long_help = format!("{AFTER_START}\n\n{GRAMMAR}\n\n{KERNEL}"))]
pub(crate) struct Start {
    /// A name for the session, of your choice
    pub(crate) name: String,
    /// The log file; one that is there is replaced, unless --append
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) providers: Providers,
    /// Manifest (XML), or PE or ELF file with a compiled one, or a folder of them: names of providers and keywords
    #[arg(long, value_name = "FILE|DIR")]
    pub(crate) manifest: Vec<PathBuf>,
    /// What came of it as one JSON object; docs/cli-json.md has the names
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) kernel: KernelEvents,
    #[command(flatten)]
    pub(crate) shape: Shape,
    #[command(flatten)]
    pub(crate) whose: Whose,
}

const AFTER_STOP: &str = "\
Examples:
  weir stop App                 everything written so far is in the file, or counted as lost; exit status 4 where any was
  weir stop {b3864c38-…}        a session by its GUID";

#[derive(Debug, Args)]
#[command(after_help = AFTER_STOP)]
pub(crate) struct Stop {
    /// The session, by name
    pub(crate) name: String,
    /// What came of it as one JSON object; docs/cli-json.md has the names
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) whose: Whose,
}

const AFTER_QUERY: &str = "\
Examples:
  weir query App                             what it is, what it has collected and lost, its providers
  weir query App --json | jq .events_lost    the same for programs
A session that has ended is shown as it was at its end, with exit status 1.";

#[derive(Debug, Args)]
#[command(after_help = AFTER_QUERY)]
pub(crate) struct Query {
    /// The session, by name
    pub(crate) name: String,
    /// One JSON object; docs/cli-json.md has the names
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
    /// What came of it as one JSON object; docs/cli-json.md has the names
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) whose: Whose,
}

const AFTER_UPDATE: &str = "\
Examples:
  weir update App --flush-timer 5              write out buffers each 5 seconds
  weir update App -o next.etl                  go on in another file; the one so far is finished
  weir update App --real-time on               weir watch App from now on, beside the file
  weir update K --kernel sched --stacks none   other kernel events, without call stacks, at once";

#[derive(Debug, Args)]
#[command(
    after_help = AFTER_UPDATE,
    override_usage = "weir update <NAME> [--flush-timer SECONDS] [--max-buffers N] [-o FILE] [--real-time on|off] [--kernel WHAT] [--stacks EVENTS] [--interval TIME]",
    group = ArgGroup::new("change").required(true).multiple(true).args(["flush_timer", "max_buffers", "output", "real_time", "kernel", "stacks", "interval"]),
)]
pub(crate) struct Update {
    /// The session, by name
    pub(crate) name: String,
    /// Write out buffers after so long, full or not; 0 leaves it as it is
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) flush_timer: Option<u32>,
    /// Buffers at most; a flight recorder keeps the memory it began with
    #[arg(long, value_name = "N", value_parser = buffers)]
    pub(crate) max_buffers: Option<u32>,
    /// Another log file; a flight recorder writes its snapshot there
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Live delivery
    #[arg(long, value_enum, value_name = "on|off", hide_possible_values = true)]
    pub(crate) real_time: Option<Switch>,
    /// What came of it as one JSON object; docs/cli-json.md has the names
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) kernel: KernelChange,
    #[command(flatten)]
    pub(crate) whose: Whose,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Switch {
    On,
    Off,
}

const AFTER_INCREMENT: &str = "\
Examples:
  weir start App -o app-%d.etl --new-file --max-size 100 -p MyCompany.App
  weir increment App                  app-1.etl is finished and can be taken away; events go to app-2.etl";

#[derive(Debug, Args)]
#[command(after_help = AFTER_INCREMENT)]
pub(crate) struct Increment {
    /// The session, by name; it was started with --new-file
    pub(crate) name: String,
    /// What came of it as one JSON object; docs/cli-json.md has the names
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) whose: Whose,
}

const AFTER_CONVERT: &str = "\
Examples:
  weir convert-to-realtime App        the file is finished; events are delivered live from now on
  weir watch App                      who wants to see them";

#[derive(Debug, Args)]
#[command(after_help = AFTER_CONVERT)]
pub(crate) struct ConvertToRealtime {
    /// The session, by name; it writes a file
    pub(crate) name: String,
    /// What came of it as one JSON object; docs/cli-json.md has the names
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) whose: Whose,
}

const AFTER_LIST: &str = "\
Examples:
  weir list                                        the sessions, also those that ended by themselves
  weir list --json | jq -r 'select(.events_lost > 0).name'
  weir list --providers                            as weir providers";

#[derive(Debug, Args)]
#[command(after_help = AFTER_LIST)]
pub(crate) struct List {
    /// Providers that are registered or enabled, instead of sessions
    #[arg(long)]
    pub(crate) providers: bool,
    /// One JSON object a line; docs/cli-json.md has the names
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) whose: Whose,
}

const EXAMPLES_OF_RECORD: &str = "\
Examples:
  weir record -p MyCompany.App -o app.etl -- ./app --its --flags
  weir record -p MyCompany.App::warning,Another.One -o app.etl --duration 10s
  weir record -pf providers.txt -o app.etl --circular --max-size 100
  weir record --kernel cpu -o cpu.etl -- ./app                  where the time goes, with call stacks
  weir record --kernel sched,disk -p MyCompany.App -o all.etl   kernel and program on one clock";

const AFTER_RECORD: &str = "\
Ctrl-C once ends the recording and finalises the file; twice leaves at once, and the daemon finalises the file.

Exit status: that of CMD; 126 where it cannot be run, 127 where it is not found, 125 when recording \
itself fails, 130 when Ctrl-C left CMD or the file behind. Without CMD as for the other commands, so 4 when events were lost.";

#[derive(Debug, Args)]
#[command(
    after_help = format!("{EXAMPLES_OF_RECORD}\n\n{GRAMMAR}\n\n{KERNEL}\n\n{AFTER_RECORD}"),
    override_usage = "weir record [OPTIONS] -p <PROVIDER> -o <FILE> [-- <CMD>...]\n       weir record [OPTIONS] --kernel <WHAT> -o <FILE> [-- <CMD>...]",
    group = ArgGroup::new("recorded").required(true).multiple(true).args(["provider", "provider_file", "kernel"]),
)]
pub(crate) struct Record {
    #[command(flatten)]
    pub(crate) providers: Providers,
    /// Manifest (XML), or PE or ELF file with a compiled one, or a folder of them: names of providers and keywords
    #[arg(long, value_name = "FILE|DIR")]
    pub(crate) manifest: Vec<PathBuf>,
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
    pub(crate) kernel: KernelEvents,
    #[command(flatten)]
    pub(crate) shape: Shape,
    #[command(flatten)]
    pub(crate) whose: Whose,
}

const EXAMPLES_OF_WATCH: &str = "\
Examples:
  weir watch -p MyCompany.App:0x10:warning     in a session of its own, until Ctrl-C
  weir watch App                               a session that runs (weir start App)
  weir watch -p MyCompany.App --format jsonl | jq .fields";

#[derive(Debug, Args)]
#[command(
    after_help = format!("{EXAMPLES_OF_WATCH}\n\n{GRAMMAR}"),
    override_usage = "weir watch [OPTIONS] -p <PROVIDER>\n       weir watch [OPTIONS] <SESSION> [-p <PROVIDER>]",
    group = ArgGroup::new("source").required(true).multiple(true).args(["session", "provider", "provider_file"]),
)]
pub(crate) struct Watch {
    /// A running real-time session, by name; with -p only what these providers wrote. Without it a session is made for this and
    /// removed at the end
    pub(crate) session: Option<String>,
    #[command(flatten)]
    pub(crate) providers: Providers,
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
    pub(crate) show: Show,
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
    /// Sessions at most, 32 to 256 [default: TRACEWEIR_MAX_SESSIONS, max_sessions in traceweir.conf, else 64]
    #[arg(long, value_name = "N", value_parser = sessions)]
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
