//! The flags of `weir autologger`, as typed.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::number::{buffers, kib, mib, seconds};
use super::shape::parse_mode;
use super::{ClockName, Providers, Whose};
use crate::grammar::GRAMMAR;

const AFTER_AUTOLOGGER: &str = "\
Examples:
  weir autologger add Boot -p MyCompany.App                  sequential, 100 MiB at most, in the daemon's folder of logs
  weir autologger add Boot -p MyCompany.App --generations 5  the same, and the logs of the last five starts
  weir autologger list                                       all of them, and how their last start was
  weir autologger show Boot                                  the file that describes one

An autologger is started by the daemon before it answers anybody, and needs nobody who is logged in. The system's daemon has \
its files in /etc/traceweir/autologger.d, your own in ~/.config/traceweir/autologger.d.";

/// Sessions that run from the daemon's start on.
#[derive(Debug, Args)]
#[command(after_help = AFTER_AUTOLOGGER)]
pub(crate) struct Autologger {
    #[command(subcommand)]
    pub(crate) verb: AutologgerVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AutologgerVerb {
    /// Describe a session that the daemon is to start
    Add(Box<AddAutologger>),
    /// Remove it; what it has recorded stays
    Remove(NamedAutologger),
    /// List all, and how their last start was
    List(ListAutologgers),
    /// Print the file that describes one, and how its last start was
    Show(NamedAutologger),
}

const AFTER_ADD: &str = "\
Examples:
  weir autologger add Boot -p MyCompany.App:0x10:warning -o /var/log/app.etl
  weir autologger add Ring -p MyCompany.App --circular --max-size 50     the newest 50 MiB
  weir autologger add Live -p MyCompany.App --real-time                  for weir watch Live, without a file";

#[derive(Debug, Args)]
#[command(after_help = format!("{AFTER_ADD}\n\n{GRAMMAR}"))]
pub(crate) struct AddAutologger {
    /// A name for the session, of your choice; its file is called so too
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) providers: Providers,
    /// Manifests that give names of providers and keywords
    #[arg(long, value_name = "FILE")]
    pub(crate) manifest: Vec<PathBuf>,
    /// The log file, which the daemon opens with its own rights [default: NAME.etl in its folder of logs]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Keep the logs of the last N starts, 2 to 16: FILE.0001 and so on
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=16))]
    pub(crate) generations: Option<u32>,
    /// Size of the file at most; 100 where nothing is said
    #[arg(long, value_name = "MIB", value_parser = mib)]
    pub(crate) max_size: Option<u32>,
    /// The file keeps the newest events, as many as fit --max-size
    #[arg(long, conflicts_with = "buffering")]
    pub(crate) circular: bool,
    /// For live consumers (weir watch); with -o, --circular or --generations also a file
    #[arg(long, conflicts_with = "buffering")]
    pub(crate) real_time: bool,
    /// A flight recorder: the newest events stay in memory until weir flush NAME -o FILE
    #[arg(long)]
    pub(crate) buffering: bool,
    /// Nobody can stop it; it ends with the daemon
    #[arg(long)]
    pub(crate) non_stoppable: bool,
    /// More of LogFileMode: names (use-local-sequence) or bits (0x8000), separated by commas
    #[arg(long, value_delimiter = ',', value_name = "MODE", value_parser = parse_mode)]
    pub(crate) mode: Vec<u32>,
    /// Size of a buffer
    #[arg(long, value_name = "KIB", value_parser = kib)]
    pub(crate) buffer_size: Option<u32>,
    /// Buffers at least
    #[arg(long, value_name = "N", value_parser = buffers)]
    pub(crate) min_buffers: Option<u32>,
    /// Buffers at most
    #[arg(long, value_name = "N", value_parser = buffers)]
    pub(crate) max_buffers: Option<u32>,
    /// Write out buffers after so long, full or not; 0: only full ones [default: 0]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) flush_timer: Option<u32>,
    /// How events are stamped [default: qpc]
    #[arg(long, value_enum, value_name = "CLOCK")]
    pub(crate) clock: Option<ClockName>,
    /// Describe it, and do not start it
    #[arg(long)]
    pub(crate) off: bool,
    /// Replace one of the same name
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) whose: Whose,
}

#[derive(Debug, Args)]
pub(crate) struct NamedAutologger {
    /// The autologger, by name
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) whose: Whose,
}

#[derive(Debug, Args)]
pub(crate) struct ListAutologgers {
    /// One JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) whose: Whose,
}
