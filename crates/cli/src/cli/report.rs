//! Command-line arguments of `weir report` and `weir flame`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use traceweir_analysis::report::{AnalysisOptions, ThreadSelection};

use super::{OptionalFiles, SchemaArgs, SymbolArgs, ThreadArgs};
use crate::text::{Moment, parse_moment};

const AFTER_REPORT: &str = "\
Without a report name, weir chooses the first of cpu, sched, disk, file, net and syscall that the
trace has events for. A report name is never a file: ./cpu names a file called cpu.

Examples:
  weir report                                    the newest weir-*.etl of this folder
  weir report cpu trace.etl                      where processor time went, by function
  weir report cpu trace.etl --function parse     callers and callees of one function
  weir report sched trace.etl --process shell    which threads ran, and what they waited for
  weir report disk trace.etl --top 5             disk latency by disk, process and file
  weir report file trace.etl                     file operations by process and path
  weir report net trace.etl                      bytes and packets by process and peer
  weir report syscall trace.etl                  system calls by process and name, with time
  weir report cpu trace.etl --json | jq 'select(.by == \"function\")'

Record kernel events with weir record --kernel, or on Windows; docs/reports.md lists the events that
each report needs.";

#[derive(Debug, Args)]
#[command(
    after_help = AFTER_REPORT,
    args_conflicts_with_subcommands = true,
    subcommand_value_name = "cpu|sched|disk|file|net|syscall"
)]
pub(crate) struct ReportArgs {
    #[command(subcommand)]
    pub(crate) verb: Option<ReportVerb>,
    #[command(flatten)]
    pub(crate) automatic: ReportAutoArgs,
}

/// Options of a report that is chosen by the content of the trace.
#[derive(Debug, Args)]
pub(crate) struct ReportAutoArgs {
    #[command(flatten)]
    pub(crate) selection: TraceSelection,
    #[command(flatten)]
    pub(crate) tables: TableArgs,
    #[command(flatten)]
    pub(crate) symbols: SymbolArgs,
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
    /// Show what processes did with files: operations, bytes and time by process and path
    File(Box<ReportFileArgs>),
    /// Show what processes sent and received: bytes and packets by process, connection and peer
    Net(Box<ReportNetArgs>),
    /// Show system calls: number, failures and time by process and name
    Syscall(Box<ReportSyscallArgs>),
}

impl ReportVerb {
    /// Returns the traces that the report reads.
    pub(crate) fn files_mut(&mut self) -> &mut OptionalFiles {
        match self {
            Self::Cpu(options) => &mut options.selection.files,
            Self::Sched(options) => &mut options.selection.files,
            Self::Disk(options) => &mut options.selection.files,
            Self::File(options) => &mut options.selection.files,
            Self::Net(options) => &mut options.selection.files,
            Self::Syscall(options) => &mut options.selection.files,
        }
    }
}

impl ReportArgs {
    /// Returns the traces that the report reads.
    pub(crate) fn files_mut(&mut self) -> &mut OptionalFiles {
        match &mut self.verb {
            Some(verb) => verb.files_mut(),
            None => &mut self.automatic.selection.files,
        }
    }
}

/// The traces, processes, threads and time span that a report covers.
#[derive(Debug, Args)]
pub(crate) struct TraceSelection {
    #[command(flatten)]
    pub(crate) files: OptionalFiles,
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
    #[command(flatten)]
    pub(crate) threads: ThreadArgs,
}

impl TraceSelection {
    /// Returns the traces and the time window, with symbols from the default places.
    pub(crate) fn options(&self) -> AnalysisOptions {
        AnalysisOptions {
            files: self.files.files.clone(),
            threads: self.threads.requested,
            from: self.from,
            to: self.to,
            ..AnalysisOptions::default()
        }
    }

    /// Returns the traces and the time window, with the places where symbols are searched.
    pub(crate) fn options_with(&self, symbols: &SymbolArgs) -> AnalysisOptions {
        AnalysisOptions { symbols: symbols.options(), ..self.options() }
    }

    /// Returns the processes and threads to include.
    pub(crate) fn thread_selection(&self) -> ThreadSelection {
        ThreadSelection::new(&self.process, &self.thread)
    }
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
  weir report cpu trace.etl --function parse_line
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
    /// Show callers and callees of this function instead: its whole name, with or without module!,
    /// or a part of the name that only one function has (case-insensitive)
    #[arg(long, value_name = "NAME")]
    pub(crate) function: Option<String>,
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

const AFTER_FILE: &str = "\
An operation is counted when it begins. Its time ends when the call returns, in traces that record
that (group FILE_IO). Bytes are those that were transferred; where the trace does not record the end
of an operation, those that were requested.

Examples:
  weir record --kernel file -o file.etl -- ./app
  weir report file file.etl
  weir report file file.etl --process app --top 0";

#[derive(Debug, Args)]
#[command(after_help = AFTER_FILE)]
pub(crate) struct ReportFileArgs {
    #[command(flatten)]
    pub(crate) selection: TraceSelection,
    #[command(flatten)]
    pub(crate) tables: TableArgs,
}

const AFTER_NET: &str = "\
A packet is one send or receive event: on Linux, one call of a program. A peer is the remote address
of a connection, whatever its ports.

Examples:
  weir record --kernel net -o net.etl -- ./app
  weir report net net.etl
  weir report net net.etl --process curl --json";

#[derive(Debug, Args)]
#[command(after_help = AFTER_NET)]
pub(crate) struct ReportNetArgs {
    #[command(flatten)]
    pub(crate) selection: TraceSelection,
    #[command(flatten)]
    pub(crate) tables: TableArgs,
}

const AFTER_SYSCALL: &str = "\
The time of a call is the time from its entry to its return in the same thread. Events of system
calls do not name their thread: it is known only if the trace has context switches.

Examples:
  weir record --kernel syscall -o calls.etl -- ./app
  weir report syscall calls.etl
  weir report syscall calls.etl --process app --top 0";

#[derive(Debug, Args)]
#[command(after_help = AFTER_SYSCALL)]
pub(crate) struct ReportSyscallArgs {
    #[command(flatten)]
    pub(crate) selection: TraceSelection,
    #[command(flatten)]
    pub(crate) tables: TableArgs,
    #[command(flatten)]
    pub(crate) symbols: SymbolArgs,
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
    /// Write to this file [default: standard output; on a terminal, a page gets the name of the
    /// trace, in the current folder]. Unless an option selects the format, the extension does (.html; .json:
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
