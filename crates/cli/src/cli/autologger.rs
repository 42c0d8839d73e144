//! Command-line arguments of `weir autologger`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::number::{parse_buffer_count, parse_kib, parse_mib, parse_seconds};
use super::shape::parse_mode;
use super::{ClockName, DaemonChoice, ProviderArgs};
use crate::grammar::PROVIDER_SYNTAX;

const AFTER_AUTOLOGGER: &str = "\
Examples:
  weir autologger add Boot -p MyCompany.App                  to a file of at most 100 MiB
  weir autologger add Boot -p MyCompany.App --generations 5  keep the logs of the last five starts
  weir autologger list                                       list all, with the status of their last start
  weir autologger show Boot                                  print the definition file of one

The daemon starts autologgers before it accepts connections; no user needs to be logged in. The system's daemon has \
its files in /etc/traceweir/autologger.d, your own in ~/.config/traceweir/autologger.d.";

/// Arguments of `weir autologger`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_AUTOLOGGER)]
pub(crate) struct AutologgerArgs {
    #[command(subcommand)]
    pub(crate) verb: AutologgerVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AutologgerVerb {
    /// Define a session that the daemon starts
    Add(Box<AddAutologger>),
    /// Remove a definition; recorded files stay
    Remove(NamedAutologger),
    /// List all definitions, with the status of their last start
    List(ListAutologgers),
    /// Print the definition file of one, with the status of its last start
    Show(NamedAutologger),
}

const AFTER_ADD: &str = "\
Examples:
  weir autologger add Boot -p MyCompany.App:0x10:warning -o /var/log/app.etl
  weir autologger add Ring -p MyCompany.App --circular --max-size 50     keep the newest 50 MiB
  weir autologger add Live -p MyCompany.App --real-time                  live only: weir watch Live";

#[derive(Debug, Args)]
#[command(after_help = format!("{AFTER_ADD}\n\n{PROVIDER_SYNTAX}"))]
pub(crate) struct AddAutologger {
    /// Name of the session and of its definition file
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) providers: ProviderArgs,
    /// Manifest file that defines names of providers and keywords
    #[arg(long, value_name = "FILE")]
    pub(crate) manifest: Vec<PathBuf>,
    /// Log file; the daemon opens it with its own rights [default: NAME.etl in the daemon's log
    /// folder]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Keep the logs of the last N starts, 2 to 16: FILE.0001 and so on
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=16))]
    pub(crate) generations: Option<u32>,
    /// Maximum size of the file [default: 100]
    #[arg(long, value_name = "MIB", value_parser = parse_mib)]
    pub(crate) max_size: Option<u32>,
    /// Keep the newest events, as many as fit in --max-size
    #[arg(long, conflicts_with = "buffering")]
    pub(crate) circular: bool,
    /// Deliver events to live consumers (weir watch); with -o, --circular or --generations also to
    /// a file
    #[arg(long, conflicts_with = "buffering")]
    pub(crate) real_time: bool,
    /// Run a flight recorder: keep the newest events in memory until weir flush NAME -o FILE
    #[arg(long)]
    pub(crate) buffering: bool,
    /// Refuse to stop the session; it ends with the daemon
    #[arg(long)]
    pub(crate) non_stoppable: bool,
    /// Further LogFileMode flags: names (use-local-sequence) or bits (0x8000), separated by commas
    #[arg(long, value_delimiter = ',', value_name = "MODE", value_parser = parse_mode)]
    pub(crate) mode: Vec<u32>,
    /// Size of each buffer
    #[arg(long, value_name = "KIB", value_parser = parse_kib)]
    pub(crate) buffer_size: Option<u32>,
    /// Minimum number of buffers
    #[arg(long, value_name = "N", value_parser = parse_buffer_count)]
    pub(crate) min_buffers: Option<u32>,
    /// Maximum number of buffers
    #[arg(long, value_name = "N", value_parser = parse_buffer_count)]
    pub(crate) max_buffers: Option<u32>,
    /// Flush partly filled buffers after this time; 0 flushes only full ones [default: 0]
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    pub(crate) flush_timer: Option<u32>,
    /// Clock for timestamps [default: qpc]
    #[arg(long, value_enum, value_name = "CLOCK")]
    pub(crate) clock: Option<ClockName>,
    /// Write the definition, but do not start the session with the daemon
    #[arg(long)]
    pub(crate) off: bool,
    /// Replace a definition of the same name
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) daemon_choice: DaemonChoice,
}

#[derive(Debug, Args)]
pub(crate) struct NamedAutologger {
    /// Name of the autologger
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) daemon_choice: DaemonChoice,
}

#[derive(Debug, Args)]
pub(crate) struct ListAutologgers {
    /// Print one JSON object per line
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) daemon_choice: DaemonChoice,
}
