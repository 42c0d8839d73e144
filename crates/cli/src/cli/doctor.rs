//! Command-line arguments of `weir doctor`.

use clap::{Args, ValueEnum};

use super::DaemonChoice;
use super::number::parse_pid;

const AFTER_HELP: &str = "\
Examples:
  weir doctor                              list all checks; explain what is limited or missing
  weir doctor --all                        explain every check
  weir doctor --need kernel --need stacks  exit with status 77 unless both work: for scripts
  weir doctor --pid 4711                   explain why events of a process do not arrive
  weir doctor --json | jq 'select(.check and .state != \"ok\")'

The doctor changes nothing: it prints commands for you to run. Recording events of your own programs needs no privilege.
docs/doctor.md describes every check.

Exit status: 0 if events of programs work and every --need is met, otherwise 77; 1 if there is no process PID.";

#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct DoctorArgs {
    /// Exit with status 77 unless this works; may be repeated
    #[arg(long, value_enum, value_name = "NEED")]
    pub(crate) need: Vec<Need>,
    /// Explain why events of this process may not arrive; of the machine, list what is limited or missing
    #[arg(long, value_name = "PID", value_parser = parse_pid)]
    pub(crate) pid: Option<u32>,
    /// Explain passed checks too
    #[arg(long)]
    pub(crate) all: bool,
    /// Print one JSON object per check, then one per need; docs/cli-json.md lists the fields
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) daemon_choice: DaemonChoice,
}

/// A kind of recording that `--need` can require.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Need {
    /// Events of programs, in sessions of your own
    Events,
    /// Samples, context switches and page faults of your own processes
    #[value(aliases = ["cpu", "sched"])]
    Samples,
    /// Kernel events of the whole machine, such as those of disk, file, net and syscall
    #[value(aliases = ["disk", "file", "net", "syscall", "io"])]
    Kernel,
    /// Call stacks that include kernel frames
    Stacks,
    /// Names of kernel functions in those stacks
    Symbols,
}

impl Need {
    /// All needs, in the order of docs/doctor.md.
    pub(crate) const ALL: [Self; 5] =
        [Self::Events, Self::Samples, Self::Kernel, Self::Stacks, Self::Symbols];

    /// Returns the name used on the command line.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Events => "events",
            Self::Samples => "samples",
            Self::Kernel => "kernel",
            Self::Stacks => "stacks",
            Self::Symbols => "symbols",
        }
    }

    pub(crate) const fn description(self) -> &'static str {
        match self {
            Self::Events => "events of programs, in sessions of your own",
            Self::Samples => "samples, context switches and page faults of your own processes",
            Self::Kernel => "kernel events of the whole machine",
            Self::Stacks => "call stacks that include kernel frames",
            Self::Symbols => "names of kernel functions in those stacks",
        }
    }
}
