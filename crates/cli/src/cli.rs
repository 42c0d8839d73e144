//! Command-line arguments of `weir`, parsed with clap.

mod access;
mod ask;
mod autologger;
mod cc;
mod convert;
mod daemon_choice;
mod doctor;
#[cfg(test)]
mod documented;
mod error;
mod kernel;
mod mc;
mod number;
mod providers;
mod record;
mod relog;
mod report;
mod sessions;
mod shape;
mod shims;
mod sql;
mod suggest;
mod symbols;
mod verbs;
mod view;

use std::num::NonZero;
use std::path::{Path, PathBuf};

use clap::error::ErrorKind;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use traceweir_analysis::filter::FilterCriteria;
use traceweir_analysis::schema_files::SchemaFiles;
use traceweir_format::spec::enable::MAX_EVENT_FILTER_PID_COUNT;

pub(crate) use access::{
    AccessArgs, AccessEntryArgs, AccessListArgs, AccessRemoveArgs, AccessShowArgs, AccessVerb,
};
pub(crate) use ask::AskArgs;
pub(crate) use autologger::{
    AddAutologger, AutologgerArgs, AutologgerVerb, ListAutologgers, NamedAutologger,
};
pub(crate) use cc::CcArgs;
pub(crate) use convert::{ConvertArgs, TableLayout};
pub(crate) use daemon_choice::DaemonChoice;
pub(crate) use doctor::{DoctorArgs, Need};
pub(crate) use error::{ErrorArgs, NamedStatus, StatusCode};
pub(crate) use kernel::{KERNEL_SYNTAX, KernelChange, KernelEvents};
pub(crate) use mc::McArgs;
pub(crate) use number::{SizeLimit, clamp_buffer_kib};
use providers::expand_logman_flags;
pub(crate) use providers::{
    CaptureStateArgs, DisableArgs, EnableArgs, ListProvidersArgs, ProviderArgs, SessionProviderArgs,
};
pub(crate) use record::{ProfilesArgs, RecordArgs, UntilCondition};
pub(crate) use relog::RelogArgs;
pub(crate) use report::{
    FlameArgs, FlameKind, ReportArgs, ReportAutoArgs, ReportCpuArgs, ReportDiskArgs, ReportFileArgs,
    ReportNetArgs, ReportSchedArgs, ReportSyscallArgs, ReportVerb, TableArgs, TraceSelection,
};
pub(crate) use sessions::{
    ConvertToRealtimeArgs, DaemonArgs, DemoArgs, DemoShopArgs, FlushArgs, IncrementArgs, ListArgs, OnOff,
    QueryArgs, StartArgs, StopArgs, UpdateArgs, WatchArgs,
};
pub(crate) use shape::{ClockName, ShapeArgs};
pub(crate) use shims::ShimsArgs;
pub(crate) use sql::SqlArgs;
pub(crate) use symbols::SymbolArgs;
pub(crate) use view::ViewArgs;

use crate::convert_formats::other_format_note;
use crate::text::{ColorChoice, Moment, parse_level, parse_mask, parse_moment};

const AFTER_HELP: &str = "\
weir VERB --help describes one command, with examples.

Exit status: 0 success; 1 error; 2 wrong usage; 3 damaged input, of which the
readable part was processed; 4 this run lost events; 77 not permitted; 130 ended
by Ctrl-C before the end of its work. weir record -- CMD: the status of CMD.";

/// Record, watch, decode and repair event traces (.etl) of Linux and Windows.
#[derive(Debug, Parser)]
#[command(name = "weir", version, about, after_help = AFTER_HELP, arg_required_else_help = true)]
pub(crate) struct Cli {
    /// Print colours: auto (on terminals), always or never
    #[arg(
        long,
        global = true,
        value_enum,
        value_name = "WHEN",
        default_value_t,
        hide_default_value = true,
        hide_possible_values = true
    )]
    #[arg(display_order = 1000)]
    pub(crate) color: ColorChoice,
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Cli {
    /// Parses the command line. Help, the version and usage errors are printed, and end the program.
    pub(crate) fn parse_arguments() -> Self {
        let arguments: Vec<_> = expand_logman_flags(std::env::args_os()).collect();
        let mut command = verbs::add_help(Self::command());
        let parsed = command.try_get_matches_from_mut(&arguments);
        let parsed = parsed
            .and_then(|matches| Self::from_arg_matches(&matches).map_err(|error| error.format(&mut command)));
        parsed.unwrap_or_else(|mut error| {
            suggest::improve_suggestions(&mut error, &command, &arguments);
            error.exit()
        })
    }
}

/// Prints a usage error for conflicting arguments and exits.
pub(crate) fn exit_with_conflict(reason: &str) -> ! {
    find_subcommand(std::env::args()).error(ErrorKind::ArgumentConflict, reason).exit()
}

/// Prints a usage error and exits if there are more processes than a filter of process trees can hold.
pub(crate) fn check_pid_count(pids: &[u32]) {
    if pids.len() > MAX_EVENT_FILTER_PID_COUNT {
        exit_with_conflict(&format!("--pid takes at most {MAX_EVENT_FILTER_PID_COUNT} processes"));
    }
}

/// Prints a usage error for a value that parses, but is invalid together with another argument or a
/// file, and exits.
pub(crate) fn exit_with_invalid_value(reason: &str) -> ! {
    find_subcommand(std::env::args()).error(ErrorKind::ValueValidation, reason).exit()
}

/// Prints a usage error for a missing argument and exits.
pub(crate) fn exit_with_missing_argument(reason: &str) -> ! {
    find_subcommand(std::env::args()).error(ErrorKind::MissingRequiredArgument, reason).exit()
}

/// Returns the subcommand named on the command line, so that an error shows its usage.
fn find_subcommand(arguments: impl Iterator<Item = String>) -> clap::Command {
    let mut command = Cli::command();
    command.build();
    // Options may precede a subcommand: `weir --color never start App`.
    for word in arguments.skip(1) {
        if let Some(found) = command.find_subcommand(&word) {
            command = found.clone();
        }
    }
    command
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Record events to a file while a program runs, or until Ctrl-C
    Record(Box<RecordArgs>),
    /// List and explain the profiles: sets of events to record
    Profiles(ProfilesArgs),
    /// Print live events, decoded
    Watch(Box<WatchArgs>),
    /// Start a session that runs until it is stopped
    Start(Box<StartArgs>),
    /// Stop a session and finalise its log file
    Stop(StopArgs),
    /// Show a session: settings, buffers, providers, losses by cause
    Query(QueryArgs),
    /// List sessions, or providers with --providers
    List(ListArgs),
    /// List providers, their processes, and the sessions that enable them
    Providers(ListProvidersArgs),
    /// Enable providers in a session
    Enable(Box<EnableArgs>),
    /// Disable providers in a session
    Disable(Box<DisableArgs>),
    /// Ask providers to write their state as events; same as enable --capture-state
    #[command(hide = true)]
    CaptureState(Box<CaptureStateArgs>),
    /// Change settings of a running session
    Update(UpdateArgs),
    /// Write buffered events to the file, or a flight recorder's snapshot
    Flush(FlushArgs),
    /// Continue in the next file of a sequence; same as update --next-file
    #[command(hide = true)]
    Increment(IncrementArgs),
    /// Finish the log file and deliver live; same as update --to-real-time
    #[command(hide = true)]
    ConvertToRealtime(ConvertToRealtimeArgs),
    /// Show and change access rights of the system's daemon
    Access(AccessArgs),
    /// Query information classes: limits, profile sources, counters
    Ask(AskArgs),
    /// Show what a trace contains: session, machine, time span, losses
    Info(InfoArgs),
    /// Print every event, decoded, in time order; merges several traces
    Dump(Box<DumpArgs>),
    /// Write traces in the formats of other tools
    Convert(Box<ConvertArgs>),
    /// Count events and bytes by provider, event and process
    Stats(Box<StatsArgs>),
    /// Report on a kernel trace: CPU, threads, disks, files, network
    Report(Box<ReportArgs>),
    /// Draw call stacks as a flame graph, or export them for other tools
    Flame(Box<FlameArgs>),
    /// Show traces as a timeline in the browser
    View(Box<ViewArgs>),
    /// Query traces and datasets with SQL; needs the program weir-sql
    #[command(disable_help_flag = true)]
    Sql(SqlArgs),
    /// List the rules of the file format that a trace breaks
    #[command(
        after_help = "Remarks are listed too. A remark is not damage: for example, a provider may supply a timestamp that is earlier than those around it.\nA file with only remarks is sound, and the exit status is 0."
    )]
    Check(CheckArgs),
    /// Finalise a log file that was not closed, as after a crash
    Repair(RepairArgs),
    /// Write a new trace from others: cut, filter, merge, compress
    Relog(Box<RelogArgs>),
    /// Compile a manifest to a C header, a Rust module and binary form
    Mc(McArgs),
    /// Run a C or C++ compiler for sources that were written for Windows
    Cc(CcArgs),
    /// Explain status codes and suggest what to do about them
    Error(ErrorArgs),
    /// Check what this machine allows, and print how to allow the rest
    Doctor(DoctorArgs),
    /// Create links for programs that load advapi32, sechost or tdh
    Shims(ShimsArgs),
    /// Record a sample program and show its events
    Demo(DemoArgs),
    /// Manage sessions that start with the daemon
    Autologger(AutologgerArgs),
    /// Run the daemon that owns the sessions; for service managers
    Daemon(DaemonArgs),
    #[command(hide = true)]
    DemoShop(DemoShopArgs),
}

#[derive(Debug, Args)]
pub(crate) struct InputFiles {
    /// Traces to read: .etl, .etl.zip, .etl.gz or .etlgz; - is standard input
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
}

/// Traces to read; if the list is empty, the newest recording of the current folder.
#[derive(Debug, Default, Args)]
pub(crate) struct OptionalFiles {
    /// Traces to read: .etl, .etl.zip, .etl.gz or .etlgz; - is standard input. Without FILE: the
    /// newest weir-*.etl of the current folder
    #[arg(value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
}

/// How many threads read the traces.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct ThreadArgs {
    /// Read with N threads, at most 64; the output is the same [default: one for each processor, one
    /// for short traces]
    #[arg(id = "threads", long = "threads", value_name = "N")]
    pub(crate) requested: Option<NonZero<usize>>,
}

/// Sources of event schemas besides the trace itself.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Schemas")]
pub(crate) struct SchemaArgs {
    /// Instrumentation manifest (XML), a PE or ELF file with a compiled one, or a folder of these
    #[arg(long, value_name = "FILE|DIR")]
    pub(crate) manifest: Vec<PathBuf>,
    /// Message formats of WPP events: a TMF file or a folder of TMF files
    #[arg(long, value_name = "FILE|DIR")]
    pub(crate) tmf: Vec<PathBuf>,
    /// Message formats of WPP events: a PDB file
    #[arg(long, value_name = "FILE")]
    pub(crate) pdb: Vec<PathBuf>,
    /// Do not read schemas from program files that the trace names. Without this flag, such a file
    /// is used if it is a regular file and is exactly the one that was traced
    #[arg(long)]
    pub(crate) no_binaries: bool,
}

impl SchemaArgs {
    /// Returns the files to read schemas from.
    pub(crate) fn files(&self) -> SchemaFiles {
        SchemaFiles {
            manifests: self.manifest.clone(),
            tmf: self.tmf.clone(),
            pdb: self.pdb.clone(),
            ignores_programs: self.no_binaries,
        }
    }
}

/// Event filters, including the provider.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Filters")]
pub(crate) struct FilterArgs {
    /// Keep only this provider: name (case-insensitive, wildcards * and ?) or GUID; may be repeated
    #[arg(short, long, value_name = "NAME|GUID")]
    pub(crate) provider: Vec<String>,
    #[command(flatten)]
    pub(crate) events: EventFilterArgs,
}

impl FilterArgs {
    /// Returns the criteria of the filter.
    pub(crate) fn criteria(&self) -> FilterCriteria {
        FilterCriteria { providers: self.provider.clone(), ..self.events.criteria() }
    }
}

/// Event filters other than the provider.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Filters")]
pub(crate) struct EventFilterArgs {
    /// Keep only this event: name (Task/Opcode or its last part, wildcards * and ?), or id (type of
    /// kernel events); may be repeated
    #[arg(long, value_name = "NAME|ID")]
    pub(crate) event: Vec<String>,
    /// Keep only events of this level or more severe; level 0 always passes. One of 0 to 255,
    /// critical, error, warning, info, verbose
    #[arg(long, value_parser = parse_level)]
    pub(crate) level: Option<u8>,
    /// Keep only events with any of these keyword bits: hexadecimal with 0x, or decimal
    #[arg(long, value_name = "MASK", value_parser = parse_mask)]
    pub(crate) keyword: Option<u64>,
    /// Keep only events that this process wrote or that are about it; may be repeated
    #[arg(long)]
    pub(crate) pid: Vec<u32>,
    /// Keep only this thread; may be repeated
    #[arg(long)]
    pub(crate) tid: Vec<u32>,
    /// Keep only this processor; may be repeated
    #[arg(long)]
    pub(crate) cpu: Vec<u16>,
    /// Skip events before this time: UTC (2020-07-29T00:07:01.5) or offset from the start (1.5s,
    /// 200ms)
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = parse_moment)]
    pub(crate) from: Option<Moment>,
    /// Skip events after this time; same formats as --from
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = parse_moment)]
    pub(crate) to: Option<Moment>,
    /// Stop after N events
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) head: Option<u64>,
    /// Keep only events whose names, values or message contain this text (case-insensitive)
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub(crate) grep: Option<String>,
}

impl EventFilterArgs {
    /// Returns the criteria of the filter, for all providers.
    pub(crate) fn criteria(&self) -> FilterCriteria {
        FilterCriteria {
            providers: Vec::new(),
            events: self.event.clone(),
            level: self.level,
            keyword: self.keyword,
            pids: self.pid.clone(),
            tids: self.tid.clone(),
            cpus: self.cpu.clone(),
            from: self.from,
            to: self.to,
            head: self.head,
            text: self.grep.clone(),
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct InfoArgs {
    #[command(flatten)]
    pub(crate) files: OptionalFiles,
    /// Print one JSON object per file
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) schemas: SchemaArgs,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputFormat {
    /// One line per event, for people
    #[default]
    Text,
    /// One JSON object per event, with one member per field; begins with the header of the file
    #[value(alias = "json", alias = "ndjson")]
    Jsonl,
    /// Comma-separated values with a header line; the fields of an event share one column
    Csv,
    /// XML in the format of tracerpt
    Xml,
}

/// Optional parts of an event that are printed with its fields.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct ShownParts {
    /// Text: print call stacks below their events, one frame per line, with module names where the
    /// trace has them. The other formats always contain the addresses
    #[arg(long)]
    pub(crate) stacks: bool,
    /// CSV: add columns for extended data items (sid, session, app, start_key, event_key,
    /// container). The other formats print them where an event has them
    #[arg(long)]
    pub(crate) items: bool,
    /// Text: how to print the time of an event
    #[arg(long, value_enum, value_name = "STYLE", default_value_t)]
    pub(crate) time: TimeStyle,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum TimeStyle {
    /// Date and time in UTC
    #[default]
    Abs,
    /// Date and time in the local time zone (TZ)
    Local,
    /// Seconds since the start of the trace, as --from and --to take them
    Rel,
    /// Seconds since the event printed before
    Delta,
}

#[derive(Debug, Args)]
pub(crate) struct DumpArgs {
    #[command(flatten)]
    pub(crate) files: OptionalFiles,
    /// Output format [default: by the extension of the -o file (.jsonl, .json, .csv, .xml), or else
    /// text]
    #[arg(short, long, value_enum)]
    format: Option<OutputFormat>,
    /// Write to this file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Replace an existing output file
    #[arg(long)]
    pub(crate) force: bool,
    /// Print numbers instead of the names of enumeration values and flags
    #[arg(long)]
    pub(crate) numeric: bool,
    /// Text: also print the events that describe the file itself, such as its header. Without this
    /// flag, they are printed only if --event selects them. The other formats always contain them
    #[arg(long)]
    pub(crate) all: bool,
    /// Print only the last N events that the filters keep
    #[arg(long, value_name = "N", conflicts_with = "head", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) tail: Option<u64>,
    /// Keep printing events while a session writes them to the file, until it finalises the file or
    /// Ctrl-C
    #[arg(long, conflicts_with = "stacks")]
    pub(crate) follow: bool,
    #[command(flatten)]
    pub(crate) threads: ThreadArgs,
    #[command(flatten)]
    pub(crate) show: ShownParts,
    /// Resolve addresses in call stacks and kernel events to functions, source files and lines:
    /// below the events in text, as objects in JSON. Implied by --symbol-path
    #[arg(long)]
    pub(crate) symbols: bool,
    #[command(flatten)]
    pub(crate) symbol: SymbolArgs,
    #[command(flatten)]
    pub(crate) schemas: SchemaArgs,
    #[command(flatten)]
    pub(crate) filters: FilterArgs,
}

impl DumpArgs {
    /// Returns the format that is given, or else that of the output file.
    pub(crate) fn output_format(&self) -> OutputFormat {
        let extension = self.output.as_ref().and_then(|path| path.extension()?.to_str());
        let by_extension = || OutputFormat::from_str(extension?, true).ok();
        self.format.or_else(by_extension).unwrap_or_default()
    }

    /// Returns a note if no option names the format, and the name of the output stands for one that
    /// only another command writes.
    pub(crate) fn other_format_note(&self, output: &Path) -> Option<String> {
        let format = self.output_format().to_possible_value().filter(|_| self.format.is_none())?;
        other_format_note(output, format.get_name())
    }

    /// Returns whether addresses are resolved to functions.
    pub(crate) fn resolves_functions(&self) -> bool {
        self.symbols || !self.symbol.symbol_path.is_empty()
    }

    /// Returns whether to leave out events that describe the log file.
    pub(crate) fn hides_file_events(&self) -> bool {
        self.output_format() == OutputFormat::Text && !self.all && self.filters.events.event.is_empty()
    }

    /// Returns every path that is read, so that the output does not overwrite one of them.
    pub(crate) fn input_paths(&self) -> impl Iterator<Item = &PathBuf> {
        let SchemaArgs { manifest, tmf, pdb, no_binaries: _ } = &self.schemas;
        self.files.files.iter().chain(manifest).chain(tmf).chain(pdb).chain(&self.symbol.symbol_path)
    }
}

#[derive(Debug, Args)]
pub(crate) struct StatsArgs {
    #[command(flatten)]
    pub(crate) files: OptionalFiles,
    /// Which tables to print
    #[arg(long, value_enum, default_value_t)]
    pub(crate) by: GroupBy,
    /// Show at most N rows of each table (0 = all)
    #[arg(long, default_value_t = 20, value_name = "N")]
    pub(crate) top: usize,
    /// Print one JSON object per row
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) threads: ThreadArgs,
    #[command(flatten)]
    pub(crate) schemas: SchemaArgs,
    #[command(flatten)]
    pub(crate) filters: FilterArgs,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum GroupBy {
    /// Three tables: providers, events, processes
    #[default]
    All,
    /// By provider only
    Provider,
    /// By event only
    Event,
    /// By process only
    Process,
}

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    pub(crate) files: InputFiles,
    /// Print one JSON object per finding
    #[arg(long)]
    pub(crate) json: bool,
    /// Exit with status 4 if the session of a trace lost events
    #[arg(long)]
    pub(crate) strict: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RepairArgs {
    /// Trace to repair; it is not changed
    pub(crate) file: PathBuf,
    /// Where to write the finalised copy
    #[arg(short, long, value_name = "OUT")]
    pub(crate) output: PathBuf,
    /// Replace OUT if it exists; without it, an existing trace is moved to NAME.old.etl, and any
    /// other file is refused
    #[arg(long)]
    pub(crate) force: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_error_of_a_subcommand_shows_its_usage() {
        for (typed, usage) in [
            ("weir start App --circular", "weir start"),
            ("weir access grant X", "weir access grant"),
            ("weir", "weir [OPTIONS] <COMMAND>"),
        ] {
            let words = typed.split(' ').map(str::to_owned);
            let error = find_subcommand(words).error(ErrorKind::ValueValidation, "no").to_string();
            assert!(error.contains(&format!("Usage: {usage}")), "{error}");
        }
    }
}
