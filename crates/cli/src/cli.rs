//! The flags of `weir`, as typed.

mod access;
mod ask;
mod autologger;
mod doctor;
mod error;
mod kernel;
mod mc;
mod number;
mod providers;
mod relog;
mod report;
mod sessions;
mod shape;
mod shims;

use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};

pub(crate) use access::{Access, AccessEntry, AccessList, AccessRemove, AccessShow, AccessVerb};
pub(crate) use ask::Ask;
pub(crate) use autologger::{AddAutologger, Autologger, AutologgerVerb, ListAutologgers, NamedAutologger};
pub(crate) use doctor::{Doctor, Need};
pub(crate) use error::{ErrorText, Given, Named};
pub(crate) use kernel::{KERNEL, KernelChange, KernelEvents};
pub(crate) use mc::Mc;
pub(crate) use number::buffer_size;
pub(crate) use providers::{CaptureState, Disable, Enable, ListProviders, Providers, Which, with_long_flags};
pub(crate) use relog::Relog;
pub(crate) use report::{Flame, FlameKind, Report, ReportCpu, ReportDisk, ReportSched, ReportVerb, Tables};
pub(crate) use sessions::{
    ConvertToRealtime, Daemon, Demo, DemoShop, Flush, Increment, List, Query, Record, Start, Stop, Switch,
    Update, Watch, Whose,
};
pub(crate) use shape::{ClockName, Shape};
pub(crate) use shims::Shims;

use crate::filter::{Moment, parse_level, parse_mask, parse_moment};
use crate::symbols::SymbolArgs;

const AFTER_HELP: &str = "\
Examples:
  weir demo                                      a minute of everything, with a sample program
  weir record -p MyCompany.App -o app.etl -- ./app --its --flags
  weir record -p MyCompany.App -o app.etl        running programs, until Ctrl-C
  weir record --kernel cpu -o cpu.etl -- ./app   the kernel's events: where time is spent, with call stacks
  weir watch -p MyCompany.App:0x10:warning       live, decoded
  weir start App -o app.etl -p MyCompany.App     a session that runs on its own, until weir stop App
  weir providers                                 what can be recorded now
  weir dump trace.etl                            every event, decoded, in time order
  weir dump trace.etl --provider MyCompany.App --level warning
  weir dump trace.etl.zip --format jsonl | jq 'select(.pid == 4)'
  weir dump app.etl --manifest app.dll           schemas from a manifest, a DLL or an ELF file
  weir dump app.etl --stacks                     with the call stacks of events that have one (-p NAME@stack)
  weir dump kernel.etl --symbols                 functions, sources and lines in the place of addresses
  weir stats trace.etl                           who wrote how much
  weir report cpu trace.etl                      where processor time went, by samples and stacks
  weir flame trace.etl -o flame.html             the same as a picture
  weir relog a.etl b.etl -o both.etl             one file of several, in time order
  weir relog big.etl -o cut.etl --from 10s --to 12s --provider MyCompany.App
  weir check trace.etl                           what is wrong with the file, with offsets
  weir doctor                                    what this machine allows, and how to allow the rest

Exit status: 0 done, 1 error, 2 usage, 3 damaged input (what could be read was), 4 events were lost, 77 not permitted, 130 left by Ctrl-C; weir record -- CMD: that of CMD.";

/// Records, watches, decodes, checks and repairs event traces (.etl), made here or on Windows.
#[derive(Debug, Parser)]
#[command(name = "weir", version, about, after_help = AFTER_HELP, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Ends the program because flags contradict each other, as where one is wrong by itself.
pub(crate) fn misuse(why: &str) -> ! {
    verb(std::env::args()).error(ErrorKind::ArgumentConflict, why).exit()
}

/// Ends the program because a value is wrong, which only another argument or a file told.
pub(crate) fn invalid(why: &str) -> ! {
    verb(std::env::args()).error(ErrorKind::ValueValidation, why).exit()
}

/// The verb that was typed, whose usage stands below what is said about it.
fn verb(arguments: impl Iterator<Item = String>) -> clap::Command {
    let mut command = Cli::command();
    command.build();
    for word in arguments.skip(1) {
        match command.find_subcommand(&word) {
            Some(found) => command = found.clone(),
            None => break,
        }
    }
    command
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Record providers to a file, while a program runs or until Ctrl-C
    Record(Box<Record>),
    /// Show live events, decoded
    Watch(Box<Watch>),
    /// Start a session that runs until it is stopped
    Start(Box<Start>),
    /// Stop a session and finalise its file
    Stop(Stop),
    /// Show a session: configuration, buffers, losses by cause
    Query(Query),
    /// List the sessions, or the providers
    List(List),
    /// List the providers: who has registered them, which sessions enable them
    Providers(ListProviders),
    /// Enable providers in a session
    Enable(Box<Enable>),
    /// Disable providers in a session
    Disable(Box<Disable>),
    /// Ask providers to write their state into a session
    CaptureState(Box<CaptureState>),
    /// Change a session while it runs
    Update(Update),
    /// Write out what a session has buffered
    Flush(Flush),
    /// Go on in the next file of a row
    Increment(Increment),
    /// Finish the file of a session and deliver its events live
    ConvertToRealtime(ConvertToRealtime),
    /// Show and change who may do what with sessions and providers of the system's daemon
    Access(Access),
    /// Say what the information classes tell: limits, profile sources, counters, groups; of a session its streams and lists
    Ask(Ask),
    /// Say what a trace is: session, machine, clock, span, buffers, losses, providers
    Info(Info),
    /// Print every event, decoded, in time order; several traces are merged
    Dump(Box<Dump>),
    /// Count events and bytes by provider, event and process
    Stats(Box<Stats>),
    /// Say where time went in a kernel trace: processors, threads, disks
    Report(Report),
    /// Draw stacks as a flame graph, or hand them to other tools
    Flame(Box<Flame>),
    /// List every rule of the format that a file breaks, with offsets
    #[command(
        after_help = "Remarks are listed too: what whole files may have, such as stamps that providers supply, earlier than those around them.\nA file with nothing but remarks is sound, and the exit status 0."
    )]
    Check(Check),
    /// Finalise a file that a crash left behind
    Repair(Repair),
    /// Make one file of others: cut, filtered, merged, compressed
    Relog(Box<Relog>),
    /// Compile an instrumentation manifest: a C header, a Rust module, and what makes its events readable
    Mc(Mc),
    /// Say what status codes mean, and what to do about them
    Error(ErrorText),
    /// Say what this machine allows, and how to allow the rest
    Doctor(Doctor),
    /// Let programs that load advapi32, sechost or tdh by name find this library: lay links for them
    Shims(Shims),
    /// Record a sample program in other processes and show its events, live and from the file
    Demo(Demo),
    /// Sessions that run from the daemon's start on: add, remove, list, show
    Autologger(Autologger),
    /// Run the daemon that owns the sessions; it is started on demand, so this is for services
    Daemon(Daemon),
    #[command(hide = true)]
    DemoShop(DemoShop),
}

#[derive(Debug, Args)]
pub(crate) struct Files {
    /// Traces: .etl, .etl.zip, .etl.gz or .etlgz; - is standard input
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
}

/// Where schemas come from besides the trace itself.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Schemas")]
pub(crate) struct Schemas {
    /// Manifest (XML), or PE or ELF file with a compiled one, or a folder of them
    #[arg(long, value_name = "FILE|DIR")]
    pub(crate) manifest: Vec<PathBuf>,
    /// Message formats of WPP events: a TMF file or a folder of them
    #[arg(long, value_name = "FILE|DIR")]
    pub(crate) tmf: Vec<PathBuf>,
    /// Message formats of WPP events: a PDB file
    #[arg(long, value_name = "FILE")]
    pub(crate) pdb: Vec<PathBuf>,
    /// Do not look into programs that the trace names: they are opened where they are plain files, and believed where they are
    /// the very ones that were traced
    #[arg(long)]
    pub(crate) no_binaries: bool,
}

/// Which events are of interest.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Filters")]
pub(crate) struct Filters {
    /// Only this provider: name (without regard to case, * and ? as wildcards) or GUID; may be repeated
    #[arg(long, value_name = "NAME|GUID")]
    pub(crate) provider: Vec<String>,
    #[command(flatten)]
    pub(crate) events: EventFilters,
}

/// Which events are of interest, whosever they are.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Filters")]
pub(crate) struct EventFilters {
    /// Only this event: name (Task/Opcode or its last part, wildcards as above), or id (type of kernel events); may be repeated
    #[arg(long, value_name = "NAME|ID")]
    pub(crate) event: Vec<String>,
    /// Only events of this level or more severe, and those of level 0, which always count: 0 to 255, critical, error, warning,
    /// info, verbose
    #[arg(long, value_parser = parse_level)]
    pub(crate) level: Option<u8>,
    /// Only events with any of these keyword bits: hexadecimal with 0x, or decimal
    #[arg(long, value_name = "MASK", value_parser = parse_mask)]
    pub(crate) keyword: Option<u64>,
    /// Only this process, by the event's header or by what it is about; may be repeated
    #[arg(long)]
    pub(crate) pid: Vec<u32>,
    /// Only this thread; may be repeated
    #[arg(long)]
    pub(crate) tid: Vec<u32>,
    /// Only this processor; may be repeated
    #[arg(long)]
    pub(crate) cpu: Vec<u16>,
    /// Not before: UTC (2020-07-29T00:07:01.5) or offset from the start (1.5s, 200ms)
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = parse_moment)]
    pub(crate) from: Option<Moment>,
    /// Not after: as --from
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = parse_moment)]
    pub(crate) to: Option<Moment>,
    /// Stop after N events
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) head: Option<u64>,
    /// Only events whose names, values or message contain this, without regard to case
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub(crate) grep: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Info {
    #[command(flatten)]
    pub(crate) files: Files,
    /// One JSON object for each file
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) schemas: Schemas,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// One line an event, for people
    #[default]
    Text,
    /// One JSON object an event
    #[value(alias = "json", alias = "ndjson")]
    Jsonl,
    /// Comma-separated values with a header line
    Csv,
    /// XML as tracerpt writes it
    Xml,
}

/// What is shown of events besides their fields.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct Show {
    /// Text: call stacks below their events, one frame a line, by program or library where the trace tells which; other formats always have
    /// the addresses
    #[arg(long)]
    pub(crate) stacks: bool,
    /// CSV: columns for what an enable adds to events (sid, session, app, start_key, event_key, container); other formats have it
    /// where there is any
    #[arg(long)]
    pub(crate) items: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Dump {
    #[command(flatten)]
    pub(crate) files: Files,
    /// How events are written
    #[arg(short, long, value_enum, default_value_t)]
    pub(crate) format: Format,
    /// Write to this file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Numbers instead of the names of enumerations and flags
    #[arg(long)]
    pub(crate) numeric: bool,
    #[command(flatten)]
    pub(crate) show: Show,
    /// Functions for the addresses of call stacks and of kernel events, with sources and lines: text below the events, objects in JSON; --symbol-path implies it
    #[arg(long)]
    pub(crate) symbols: bool,
    #[command(flatten)]
    pub(crate) symbol: SymbolArgs,
    #[command(flatten)]
    pub(crate) schemas: Schemas,
    #[command(flatten)]
    pub(crate) filters: Filters,
}

impl Dump {
    /// Whether addresses get names.
    pub(crate) fn names_functions(&self) -> bool {
        self.symbols || !self.symbol.symbol_path.is_empty()
    }

    /// Everything that is read and so must not be written.
    pub(crate) fn inputs(&self) -> impl Iterator<Item = &PathBuf> {
        let Schemas { manifest, tmf, pdb, no_binaries: _ } = &self.schemas;
        self.files.files.iter().chain(manifest).chain(tmf).chain(pdb).chain(&self.symbol.symbol_path)
    }
}

#[derive(Debug, Args)]
pub(crate) struct Stats {
    #[command(flatten)]
    pub(crate) files: Files,
    /// Group by this
    #[arg(long, value_enum, default_value_t)]
    pub(crate) by: GroupBy,
    /// Show at most N rows of each table (0 = all)
    #[arg(long, default_value_t = 20, value_name = "N")]
    pub(crate) top: usize,
    /// One JSON object a row
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) schemas: Schemas,
    #[command(flatten)]
    pub(crate) filters: Filters,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum GroupBy {
    /// Three tables: providers, events, processes
    #[default]
    All,
    /// Providers
    Provider,
    /// Events
    Event,
    /// Processes
    Process,
}

#[derive(Debug, Args)]
pub(crate) struct Check {
    #[command(flatten)]
    pub(crate) files: Files,
    /// One JSON object a finding
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Repair {
    /// The file to repair; it is not changed
    pub(crate) file: PathBuf,
    /// The finalised copy
    #[arg(short, long, value_name = "OUT")]
    pub(crate) output: PathBuf,
    /// Replace OUT if it exists
    #[arg(long)]
    pub(crate) force: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_about_a_verb_ends_in_its_usage() {
        for (typed, usage) in [
            ("weir start App --circular", "weir start"),
            ("weir access grant X", "weir access grant"),
            ("weir", "weir <COMMAND>"),
        ] {
            let words = typed.split(' ').map(str::to_owned);
            let error = verb(words).error(ErrorKind::ValueValidation, "no").to_string();
            assert!(error.contains(&format!("Usage: {usage}")), "{error}");
        }
    }
}
