//! Command-line arguments of `weir report` and `weir flame`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::{InputFiles, SchemaArgs};
use crate::symbols::SymbolArgs;
use crate::text::{Moment, parse_moment};

const AFTER_REPORT: &str = "\
Examples:
  weir report cpu trace.etl                      where processor time went, by function
  weir report sched trace.etl --process shell    which threads ran, and what they waited for
  weir report disk trace.etl --top 5             disk latency by disk, process and file
  weir report cpu trace.etl --json | jq 'select(.by == \"function\")'

Record kernel events with weir record --kernel, or on Windows; docs/reports.md lists the events that
each report needs.";

#[derive(Debug, Args)]
#[command(after_help = AFTER_REPORT, arg_required_else_help = true, subcommand_value_name = "cpu|sched|disk")]
pub(crate) struct ReportArgs {
    #[command(subcommand)]
    pub(crate) verb: ReportVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ReportVerb {
    /// Show where processor time went, by samples: functions, modules, processes, threads
    Cpu(Box<ReportCpuArgs>),
    /// Show which threads ran and waited, by context switches: processors, processes, threads, wait
    /// reasons, blocked stacks, wakeup latency
    Sched(Box<ReportSchedArgs>),
    /// Show what disks did: operations, bytes and latency by disk, process and file
    Disk(Box<ReportDiskArgs>),
}

/// The traces, processes, threads and time span that a report covers.
#[derive(Debug, Args)]
pub(crate) struct TraceSelection {
    #[command(flatten)]
    pub(crate) files: InputFiles,
    /// Include only this process: id, or name (case-insensitive, wildcards * and ?); may be
    /// repeated
    #[arg(long, value_name = "NAME|PID")]
    pub(crate) process: Vec<String>,
    /// Include only this thread; may be repeated
    #[arg(long, value_name = "TID")]
    pub(crate) thread: Vec<u32>,
    /// Skip events before this time: UTC (2020-07-29T00:07:01.5) or offset from the start (1.5s,
    /// 200ms)
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = parse_moment)]
    pub(crate) from: Option<Moment>,
    /// Skip events after this time; same formats as --from
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = parse_moment)]
    pub(crate) to: Option<Moment>,
}

/// Output options of a report.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct TableArgs {
    /// Show at most N rows of each table (0 = all)
    #[arg(long, default_value_t = 20, value_name = "N")]
    pub(crate) top: usize,
    /// Print one JSON object per row
    #[arg(long)]
    pub(crate) json: bool,
}

const AFTER_CPU: &str = "\
A share is a percentage of the reported samples, given with its standard error: two shares that
differ by less than about three standard errors may differ by chance. The column own counts samples
in the function itself; the column all also counts samples in the functions that it calls. Samples
of idle processors are counted but not reported, unless --idle is given.

Examples:
  weir report cpu trace.etl
  weir report cpu trace.etl --process 'build*' --from 2s --to 5s";

#[derive(Debug, Args)]
#[command(after_help = AFTER_CPU)]
pub(crate) struct ReportCpuArgs {
    #[command(flatten)]
    pub(crate) selection: TraceSelection,
    #[command(flatten)]
    pub(crate) tables: TableArgs,
    /// Include samples of idle processors
    #[arg(long)]
    pub(crate) idle: bool,
    #[command(flatten)]
    pub(crate) symbols: SymbolArgs,
}

const AFTER_SCHED: &str = "\
A thread runs from the time it is switched in until it is switched out. It waits while it is
blocked, and is ready while it could run but does not. The latency of a wakeup is the time from the
event that made the thread ready until the thread is switched in. Blocked stacks are the call stacks
of waiting threads, weighted by time. Time before the first and after the last switch of a processor
is not counted.

Examples:
  weir report sched trace.etl
  weir report sched trace.etl --thread 4711 --top 50";

#[derive(Debug, Args)]
#[command(after_help = AFTER_SCHED)]
pub(crate) struct ReportSchedArgs {
    #[command(flatten)]
    pub(crate) selection: TraceSelection,
    #[command(flatten)]
    pub(crate) tables: TableArgs,
    #[command(flatten)]
    pub(crate) symbols: SymbolArgs,
}

const AFTER_DISK: &str = "\
An operation is counted when it completes. Latency is the time that the system measured from its
start to its completion.

Examples:
  weir report disk trace.etl
  weir report disk trace.etl --process postgres --top 0";

#[derive(Debug, Args)]
#[command(after_help = AFTER_DISK)]
pub(crate) struct ReportDiskArgs {
    #[command(flatten)]
    pub(crate) selection: TraceSelection,
    #[command(flatten)]
    pub(crate) tables: TableArgs,
}

const AFTER_FLAME: &str = "\
The page is self-contained: it loads nothing from the network. Click or Enter zooms, Escape zooms
out, the arrow keys move, / searches. The URL keeps zoom and search.

Examples:
  weir flame trace.etl -o flame.html                            where processor time went
  weir flame trace.etl --kind off-cpu -o wait.html              where threads waited, by time
  weir flame trace.etl --event FileIo/Read -o reads.html        where an event came from
  weir flame trace.etl -o trace.speedscope.json                 a profile for speedscope
  weir flame trace.etl --collapsed | flamegraph.pl > flame.svg  collapsed stacks for other tools";

#[derive(Debug, Args)]
#[command(after_help = AFTER_FLAME)]
pub(crate) struct FlameArgs {
    #[command(flatten)]
    pub(crate) selection: TraceSelection,
    /// Write to this file. Unless an option selects the format, the extension does (.html; .json:
    /// speedscope; .txt, .folded, .collapsed: collapsed stacks)
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Replace an existing output file
    #[arg(long)]
    pub(crate) force: bool,
    /// What the width of a frame measures
    #[arg(long, value_enum, default_value_t)]
    pub(crate) kind: FlameKind,
    /// Count the stacks of this event instead: name or id as for weir dump; may be repeated
    #[arg(long, value_name = "NAME|ID", conflicts_with = "kind")]
    pub(crate) event: Vec<String>,
    /// Write collapsed stacks: one line per stack, functions separated by semicolons, then the
    /// weight
    #[arg(long, conflicts_with = "speedscope")]
    pub(crate) collapsed: bool,
    /// Write a JSON profile for speedscope
    #[arg(long)]
    pub(crate) speedscope: bool,
    /// Separate the threads of each process
    #[arg(long)]
    pub(crate) by_thread: bool,
    /// Include samples of idle processors
    #[arg(long)]
    pub(crate) idle: bool,
    /// Draw at most N nodes; the lightest ones are merged into "(other)"
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = parse_max_nodes)]
    pub(crate) nodes: usize,
    #[command(flatten)]
    pub(crate) symbols: SymbolArgs,
    #[command(flatten)]
    pub(crate) schemas: SchemaArgs,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum FlameKind {
    /// CPU samples
    #[default]
    Cpu,
    /// Time that threads waited, by call stack
    OffCpu,
}

/// Parses the maximum number of nodes of a page.
fn parse_max_nodes(text: &str) -> Result<usize, String> {
    let number = text.trim().parse().ok().filter(|n| (1..=1_000_000).contains(n));
    number.ok_or_else(|| "give a number from 1 to 1000000".to_owned())
}
