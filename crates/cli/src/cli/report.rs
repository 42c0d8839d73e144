//! The flags of `weir report` and `weir flame`, as typed.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::{Files, Schemas};
use crate::filter::{Moment, parse_moment};
use crate::symbols::SymbolArgs;

const AFTER_REPORT: &str = "\
Examples:
  weir report cpu trace.etl                      where processor time went: functions, modules, processes, threads
  weir report sched trace.etl --process shell    who ran, who waited and for what, how late wakes were
  weir report disk trace.etl --top 5             how long disks took, by disk, process and file
  weir report cpu trace.etl --json | jq 'select(.by == \"function\")'

Traces of kernel events are made by a system session, here or on Windows; docs/reports.md says which events each report needs.";

#[derive(Debug, Args)]
#[command(after_help = AFTER_REPORT, arg_required_else_help = true, subcommand_value_name = "cpu|sched|disk")]
pub(crate) struct Report {
    #[command(subcommand)]
    pub(crate) verb: ReportVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ReportVerb {
    /// Where processor time went, by samples: functions, modules, processes, threads
    Cpu(Box<ReportCpu>),
    /// Who ran and who waited, by context switches: processors, processes, threads, reasons, blocked stacks, latency of wakes
    Sched(Box<ReportSched>),
    /// What disks did: operations, bytes and latency by disk, process and file
    Disk(Box<ReportDisk>),
}

/// What a report is about.
#[derive(Debug, Args)]
pub(crate) struct Look {
    #[command(flatten)]
    pub(crate) files: Files,
    /// Only this process: its number, or its name (without regard to case, * and ? as wildcards); may be repeated
    #[arg(long, value_name = "NAME|PID")]
    pub(crate) process: Vec<String>,
    /// Only this thread; may be repeated
    #[arg(long, value_name = "TID")]
    pub(crate) thread: Vec<u32>,
    /// Not before: UTC (2020-07-29T00:07:01.5) or offset from the start (1.5s, 200ms)
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = parse_moment)]
    pub(crate) from: Option<Moment>,
    /// Not after: as --from
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = parse_moment)]
    pub(crate) to: Option<Moment>,
}

/// How much of it is shown.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Tables {
    /// Show at most N rows of each table (0 = all)
    #[arg(long, default_value_t = 20, value_name = "N")]
    pub(crate) top: usize,
    /// One JSON object a row
    #[arg(long)]
    pub(crate) json: bool,
}

const AFTER_CPU: &str = "\
A share is that of the samples reported, with its standard error: between one run and the next two shares differ by chance if they lie within some three of them. Own samples are those that
were taken in a function itself, all samples those in it and in what it calls. Idle processors are sampled too; those samples are counted and left out, unless --idle is given.

Examples:
  weir report cpu trace.etl
  weir report cpu trace.etl --process 'build*' --from 2s --to 5s";

#[derive(Debug, Args)]
#[command(after_help = AFTER_CPU)]
pub(crate) struct ReportCpu {
    #[command(flatten)]
    pub(crate) look: Look,
    #[command(flatten)]
    pub(crate) tables: Tables,
    /// Samples of idle processors too
    #[arg(long)]
    pub(crate) idle: bool,
    #[command(flatten)]
    pub(crate) symbols: SymbolArgs,
}

const AFTER_SCHED: &str = "\
A thread runs from the switch to it to the switch from it; it waits while it needs something, and is ready while it could run and does not. The latency of a wake is the time from the event that
made the thread ready to the switch to it. Blocked stacks are where threads waited, by the time they were away. Time before the first and behind the last switch of a processor is not counted.

Examples:
  weir report sched trace.etl
  weir report sched trace.etl --thread 4711 --top 50";

#[derive(Debug, Args)]
#[command(after_help = AFTER_SCHED)]
pub(crate) struct ReportSched {
    #[command(flatten)]
    pub(crate) look: Look,
    #[command(flatten)]
    pub(crate) tables: Tables,
    #[command(flatten)]
    pub(crate) symbols: SymbolArgs,
}

const AFTER_DISK: &str = "\
An operation is counted when it ends. Latency is what the system measured from its start to its end.

Examples:
  weir report disk trace.etl
  weir report disk trace.etl --process postgres --top 0";

#[derive(Debug, Args)]
#[command(after_help = AFTER_DISK)]
pub(crate) struct ReportDisk {
    #[command(flatten)]
    pub(crate) look: Look,
    #[command(flatten)]
    pub(crate) tables: Tables,
}

const AFTER_FLAME: &str = "\
The page needs nothing but a browser: it loads nothing from elsewhere. Click or Enter zooms, Escape goes back, the arrow keys walk, / searches. Its address keeps zoom and search.

Examples:
  weir flame trace.etl -o flame.html             where processor time went
  weir flame trace.etl --kind off-cpu -o wait.html      where threads waited, by time
  weir flame trace.etl --event FileIo/Read -o reads.html        where any event with stacks came from
  weir flame trace.etl -o trace.speedscope.json  for speedscope
  weir flame trace.etl --collapsed | flamegraph.pl > flame.svg  one line a stack, for other tools";

#[derive(Debug, Args)]
#[command(after_help = AFTER_FLAME)]
pub(crate) struct Flame {
    #[command(flatten)]
    pub(crate) look: Look,
    /// Write to this file; what it becomes is told by its ending (.html, .json for speedscope, .txt, .folded or .collapsed) unless an option says so
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// What stacks are weighed by
    #[arg(long, value_enum, default_value_t)]
    pub(crate) kind: FlameKind,
    /// Count the stacks of this event instead: name or id as for weir dump; may be repeated
    #[arg(long, value_name = "NAME|ID", conflicts_with = "kind")]
    pub(crate) event: Vec<String>,
    /// One line a stack: functions with semicolons between them, and the weight
    #[arg(long, conflicts_with = "speedscope")]
    pub(crate) collapsed: bool,
    /// JSON as speedscope reads it
    #[arg(long)]
    pub(crate) speedscope: bool,
    /// Threads apart, below their process
    #[arg(long)]
    pub(crate) by_thread: bool,
    /// Samples of idle processors too
    #[arg(long)]
    pub(crate) idle: bool,
    /// At most N nodes on the page; the lightest others become "(other)"
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = nodes)]
    pub(crate) nodes: usize,
    #[command(flatten)]
    pub(crate) symbols: SymbolArgs,
    #[command(flatten)]
    pub(crate) schemas: Schemas,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum FlameKind {
    /// Samples
    #[default]
    Cpu,
    /// Time that threads waited, by where they did
    OffCpu,
}

/// Nodes of a page.
fn nodes(text: &str) -> Result<usize, String> {
    let number = text.trim().parse().ok().filter(|n| (1..=1_000_000).contains(n));
    number.ok_or_else(|| "give a number from 1 to 1000000".to_owned())
}
