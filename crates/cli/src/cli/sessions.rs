//! Command-line arguments of the commands that control and watch sessions.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Args, ValueEnum};

use super::number::{parse_buffer_count, parse_max_sessions, parse_seconds};
use super::{
    DaemonChoice, EventFilterArgs, KERNEL_SYNTAX, KernelChange, KernelEvents, OutputFormat, ProviderArgs,
    SchemaArgs, ShapeArgs, ShownParts,
};
use crate::grammar::{KernelSelection, PROVIDER_SYNTAX, parse_kernel};
use crate::text::parse_duration;

const AFTER_START: &str = "\
Examples:
  weir start App -o app.etl -p MyCompany.App                 record to a file, until weir stop App
  weir start App -o app.etl --circular --max-size 100        keep the newest 100 MiB in the file
  weir start App -o app-%d.etl --new-file --max-size 100     write files of 100 MiB each
  weir start App --buffering -p MyCompany.App                keep in memory, until weir flush App
  weir start App -p MyCompany.App                            deliver live only: weir watch App
  weir start K -o k.etl --kernel sched -p MyCompany.App      record kernel and program events";

#[derive(Debug, Args)]
#[command(after_help = PROVIDER_SYNTAX, after_long_help = format!("{AFTER_START}\n\n{PROVIDER_SYNTAX}\n\n{KERNEL_SYNTAX}"))]
pub(crate) struct StartArgs {
    /// Name for the new session
    pub(crate) name: String,
    /// Log file
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Replace FILE if it exists; without it, an existing trace is moved to NAME.old.etl, and any
    /// other file is refused
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) providers: ProviderArgs,
    /// Profiles: sets of providers and kernel events (weir profiles), separated by commas
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub(crate) profile: Vec<String>,
    /// Instrumentation manifest (XML), a PE or ELF file with a compiled one, or a folder of these:
    /// defines names of providers and keywords
    #[arg(long, value_name = "FILE|DIR")]
    pub(crate) manifest: Vec<PathBuf>,
    /// Print the result as one JSON object; docs/cli-json.md lists the fields
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) kernel: KernelEvents,
    #[command(flatten)]
    pub(crate) shape: ShapeArgs,
    #[command(flatten)]
    pub(crate) daemon_choice: DaemonChoice,
}

const AFTER_STOP: &str = "\
Examples:
  weir stop App                 stop it; exit status 4 if events were lost. If it has ended by
                                itself, show how it ended
  weir stop {b3864c38-…}        stop a session by its GUID";

#[derive(Debug, Args)]
#[command(after_help = AFTER_STOP)]
pub(crate) struct StopArgs {
    /// Name of the session
    pub(crate) name: String,
    /// Print the result as one JSON object; docs/cli-json.md lists the fields
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) daemon_choice: DaemonChoice,
}

const AFTER_QUERY: &str = "\
Examples:
  weir query App                             show settings, collected and lost events, providers
  weir query App --json | jq .events_lost    the same for programs
A session that has ended is shown with its final state, and the exit status is 1.";

#[derive(Debug, Args)]
#[command(after_help = AFTER_QUERY)]
pub(crate) struct QueryArgs {
    /// Name of the session
    pub(crate) name: String,
    /// Print one JSON object; docs/cli-json.md lists the fields
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) daemon_choice: DaemonChoice,
}

const AFTER_FLUSH: &str = "\
Examples:
  weir flush App                write buffered events to the session's file and to live consumers
  weir flush App -o now.etl     write a flight recorder's memory to a file; the session continues";

#[derive(Debug, Args)]
#[command(after_long_help = AFTER_FLUSH)]
pub(crate) struct FlushArgs {
    /// Name of the session
    pub(crate) name: String,
    /// Where a flight recorder writes its snapshot [default: the session's own file]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Replace FILE if it exists; without it, an existing trace is moved to NAME.old.etl, and any
    /// other file is refused
    #[arg(long)]
    pub(crate) force: bool,
    /// Print the result as one JSON object; docs/cli-json.md lists the fields
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) daemon_choice: DaemonChoice,
}

const AFTER_UPDATE: &str = "\
Examples:
  weir update App --flush-timer 5              flush partly filled buffers after 5 seconds
  weir update App -o next.etl                  finish the current file and continue in another
  weir update App --real-time on               deliver live too: weir watch App
  weir update App --to-real-time               finish the file, and only deliver live from now on
  weir update App --next-file                  finish app-1.etl and continue in app-2.etl
  weir update K --kernel sched --stacks none   record other kernel events, without call stacks";

#[derive(Debug, Args)]
#[command(
    after_help = AFTER_UPDATE,
    override_usage = "weir update <NAME> [--flush-timer SECONDS] [--max-buffers N] [-o FILE]\n                   [--real-time on|off] [--kernel WHAT] [--stacks EVENTS] [--interval TIME]\n       weir update <NAME> --next-file\n       weir update <NAME> --to-real-time",
    group = ArgGroup::new("change").required(true).multiple(true).args(["flush_timer", "max_buffers", "output", "real_time", "next_file", "to_real_time", "kernel", "stacks", "interval"]),
)]
pub(crate) struct UpdateArgs {
    /// Name of the session
    pub(crate) name: String,
    /// Flush partly filled buffers after this time; 0 leaves the timer unchanged
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    pub(crate) flush_timer: Option<u32>,
    /// Maximum number of buffers; a flight recorder keeps the memory it started with
    #[arg(long, value_name = "N", value_parser = parse_buffer_count)]
    pub(crate) max_buffers: Option<u32>,
    /// Continue in this log file; a flight recorder writes its snapshot there
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Replace FILE if it exists; without it, an existing trace is moved to NAME.old.etl, and any
    /// other file is refused
    #[arg(long)]
    pub(crate) force: bool,
    /// Turn live delivery on or off
    #[arg(long, value_enum, value_name = "on|off", hide_possible_values = true)]
    pub(crate) real_time: Option<OnOff>,
    /// Finish the current log file and continue in the next one of the sequence; for a session
    /// that was started with --new-file
    #[arg(long, conflicts_with_all = ["flush_timer", "max_buffers", "output", "real_time", "to_real_time", "kernel", "stacks", "interval"])]
    pub(crate) next_file: bool,
    /// Finish the log file, and only deliver events live from now on
    #[arg(long, conflicts_with_all = ["flush_timer", "max_buffers", "output", "real_time", "kernel", "stacks", "interval"])]
    pub(crate) to_real_time: bool,
    /// Print the result as one JSON object; docs/cli-json.md lists the fields
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) kernel: KernelChange,
    #[command(flatten)]
    pub(crate) daemon_choice: DaemonChoice,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnOff {
    On,
    Off,
}

const AFTER_INCREMENT: &str = "\
Examples:
  weir start App -o app-%d.etl --new-file --max-size 100 -p MyCompany.App
  weir increment App                  finish app-1.etl and continue in app-2.etl";

#[derive(Debug, Args)]
#[command(after_help = AFTER_INCREMENT)]
pub(crate) struct IncrementArgs {
    /// Name of the session, which was started with --new-file
    pub(crate) name: String,
    /// Print the result as one JSON object; docs/cli-json.md lists the fields
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) daemon_choice: DaemonChoice,
}

const AFTER_CONVERT: &str = "\
Examples:
  weir convert-to-realtime App        finish the file and deliver events live from now on
  weir watch App                      print the live events";

#[derive(Debug, Args)]
#[command(after_help = AFTER_CONVERT)]
pub(crate) struct ConvertToRealtimeArgs {
    /// Name of the session, which writes a file
    pub(crate) name: String,
    /// Print the result as one JSON object; docs/cli-json.md lists the fields
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) daemon_choice: DaemonChoice,
}

const AFTER_LIST: &str = "\
Examples:
  weir list                                        list sessions; one that ended by itself is shown once
  weir list --json | jq -r 'select(.events_lost > 0).name'
  weir list --providers                            same as weir providers";

#[derive(Debug, Args)]
#[command(after_help = AFTER_LIST)]
pub(crate) struct ListArgs {
    /// List registered or enabled providers instead of sessions
    #[arg(long)]
    pub(crate) providers: bool,
    /// Print one JSON object per line; docs/cli-json.md lists the fields
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) daemon_choice: DaemonChoice,
}

const WATCH_EXAMPLES: &str = "\
Examples:
  weir watch -p MyCompany.App:0x10:warning     start a temporary session, until Ctrl-C
  weir watch App                               watch a running session (weir start App)
  weir watch --pid 4711                        all providers of a process tree
  weir watch --kernel process                  print processes that start and end
  weir watch --kernel file --pid 4711          print the file operations of a process tree
  weir watch -p MyCompany.App --format jsonl | jq .fields

With --pid alone, all providers of the process and its descendants are watched. A process that has
ended before weir reads its name has none.

With --kernel, events of weir itself are left out. A process that runs another program (exec)
appears as Process/End and Process/Start with the same id. The ExitStatus -2147483648 means that the
status is unknown.";

#[derive(Debug, Args)]
#[command(
    after_help = format!("{WATCH_EXAMPLES}\n\n{PROVIDER_SYNTAX}\n\n{KERNEL_SYNTAX}"),
    override_usage = "weir watch [OPTIONS] -p <PROVIDER>\n       weir watch [OPTIONS] --kernel <WHAT>\n       weir watch [OPTIONS] --pid <PID>\n       weir watch [OPTIONS] <SESSION> [-p <PROVIDER>]",
    group = ArgGroup::new("source").required(true).multiple(true).args(["session", "provider", "provider_file", "kernel", "pid"]),
    mut_arg("pid", |arg| arg.help("Only these processes and, without SESSION, their descendants; may be repeated")),
)]
pub(crate) struct WatchArgs {
    /// Name of a running real-time session; with -p, only events of these providers are shown.
    /// Without a name, a temporary session is started
    pub(crate) session: Option<String>,
    #[command(flatten)]
    pub(crate) providers: ProviderArgs,
    /// Print kernel events too: cpu, sched, disk, net, file, syscall, all, group names, or bits of
    /// EnableFlags; with --pid, those of these processes and their descendants. Call stacks are
    /// recorded with --stacks only
    #[arg(long, value_name = "WHAT", value_parser = parse_kernel, conflicts_with = "session")]
    pub(crate) kernel: Option<KernelSelection>,
    /// Watch for this long: 10s, 500ms, 2min [default: until Ctrl-C or the end of the session]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(crate) duration: Option<Duration>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    pub(crate) format: OutputFormat,
    /// Print numbers instead of the names of enumeration values and flags
    #[arg(long)]
    pub(crate) numeric: bool,
    #[command(flatten)]
    pub(crate) show: ShownParts,
    #[command(flatten)]
    pub(crate) daemon_choice: DaemonChoice,
    #[command(flatten)]
    pub(crate) schemas: SchemaArgs,
    #[command(flatten)]
    pub(crate) filters: EventFilterArgs,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Options (TRACEWEIR_RUNTIME_DIR, if set, overrides --system and --user)")]
pub(crate) struct DaemonArgs {
    /// Serve the whole system, in /run/traceweir
    #[arg(long, conflicts_with_all = ["user", "runtime_dir"])]
    pub(crate) system: bool,
    /// Serve your own programs, in $XDG_RUNTIME_DIR/traceweir [the default]
    #[arg(long, conflicts_with = "runtime_dir")]
    pub(crate) user: bool,
    /// Serve clients that name this folder in TRACEWEIR_RUNTIME_DIR
    #[arg(long, value_name = "DIR")]
    pub(crate) runtime_dir: Option<PathBuf>,
    /// Exit after this long without a session, consumer or changed system setting [default:
    /// TRACEWEIR_IDLE_EXIT, idle_exit in traceweir.conf, else never; with --on-demand 60]
    #[arg(long, value_name = "SECONDS")]
    pub(crate) idle_exit: Option<u64>,
    /// Maximum number of sessions, 32 to 256 [default: TRACEWEIR_MAX_SESSIONS, max_sessions in
    /// traceweir.conf, else 64]
    #[arg(long, value_name = "N", value_parser = parse_max_sessions)]
    pub(crate) max_sessions: Option<u32>,
    /// Detach from the terminal, and exit when idle
    #[arg(long)]
    pub(crate) on_demand: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Where to write the trace [default: weir-demo.etl in $XDG_STATE_HOME/traceweir, else in
    /// ~/.local/state/traceweir; each demo replaces it]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Runs the session in the folder that the parent process made for it
    #[arg(long, hide = true)]
    pub(crate) stage: bool,
}

/// Arguments of the demo's sample provider, which runs in its own process.
#[derive(Debug, Args)]
pub(crate) struct DemoShopArgs {
    /// Number of the first order
    #[arg(long, default_value_t = 1)]
    pub(crate) first: u32,
    /// Orders to serve
    #[arg(long, default_value_t = 2)]
    pub(crate) orders: u32,
    /// Pause between the steps of an order, in milliseconds
    #[arg(long, default_value_t = 10)]
    pub(crate) pause: u64,
    /// Keep running this many milliseconds after the last order
    #[arg(long, default_value_t = 0)]
    pub(crate) linger: u64,
    /// Exit status at the end
    #[arg(long, default_value_t = 0)]
    pub(crate) exit: u8,
}
