//! The flags of `weir doctor`, as typed.

use clap::{Args, ValueEnum};

use super::Whose;
use super::number::pid;

const AFTER: &str = "\
Examples:
  weir doctor                              what is limited or missing, and what changes it
  weir doctor --all                        everything that was looked at
  weir doctor --need kernel --need stacks  exit status 77 unless both are there: for scripts
  weir doctor --pid 4711                   why events of a process do not arrive
  weir doctor --json | jq 'select(.check and .state != \"ok\")'

Nothing is changed: what it says to type is yours to type. Events of your own programs take no right at all.
docs/doctor.md says what is looked at, and why.

Exit status: 0 where events of programs work and every --need is met, 77 where one is not.";

#[derive(Debug, Args)]
#[command(after_help = AFTER)]
pub(crate) struct Doctor {
    /// Leave with status 77 unless this works; may be repeated
    #[arg(long, value_enum, value_name = "NEED")]
    pub(crate) need: Vec<Need>,
    /// Also say why events of this process may not arrive
    #[arg(long, value_name = "PID", value_parser = pid)]
    pub(crate) pid: Option<u32>,
    /// What is as it should be with its reasons too
    #[arg(long)]
    pub(crate) all: bool,
    /// One JSON object a check, then one a need; docs/cli-json.md has the names
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) whose: Whose,
}

/// What somebody may want to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Need {
    /// Events of programs, in sessions of your own
    Events,
    /// Samples, context switches and page faults of your own processes
    Samples,
    /// Kernel events of the whole machine
    Kernel,
    /// Call stacks that go through the kernel
    Stacks,
    /// Names of kernel functions in those stacks
    Symbols,
}

impl Need {
    /// All of them, in the order in which each takes more than the one before.
    pub(crate) const ALL: [Self; 5] =
        [Self::Events, Self::Samples, Self::Kernel, Self::Stacks, Self::Symbols];

    /// As it is typed.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Events => "events",
            Self::Samples => "samples",
            Self::Kernel => "kernel",
            Self::Stacks => "stacks",
            Self::Symbols => "symbols",
        }
    }

    /// What it is.
    pub(crate) const fn about(self) -> &'static str {
        match self {
            Self::Events => "events of programs, in sessions of your own",
            Self::Samples => "samples, context switches and page faults of your own processes",
            Self::Kernel => "kernel events of the whole machine",
            Self::Stacks => "call stacks that go through the kernel",
            Self::Symbols => "names of kernel functions in those stacks",
        }
    }
}
