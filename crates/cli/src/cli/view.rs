//! Command-line arguments of `weir view`.

use std::path::PathBuf;

use clap::Args;

use super::{DaemonChoice, OptionalFiles, SchemaArgs, SymbolArgs};
use crate::text::{Moment, parse_moment};

const AFTER_VIEW: &str = "\
The page is served on this machine only, at an address with a random token that weir prints. All users \
with this address can read the traces. weir ends with Ctrl-C, or when the page has been closed for a \
minute.

The name of a running session instead of files follows the session: the timeline begins now or, if the \
session only writes a file, with the file, and grows until the session ends. weir keeps up to 4 GiB of its \
events in a temporary file, and removes it in the end.

The first time, weir reads the traces once and keeps an index in $XDG_CACHE_HOME/traceweir \
(~/.cache/traceweir). Later it opens them at once.

A weir that was built without the cargo feature view refuses this command.

Examples:
  weir view                                     the newest recording of the current folder
  weir view app.etl kernel.etl                  two traces in one timeline
  weir view App                                 the running session App, while it records
  weir view app.etl --export app.html --from 2s --to 3s
                                                write one second to a page of its own
  weir record --open -- ./app                   record, then show";

#[derive(Debug, Args)]
#[command(after_help = AFTER_VIEW)]
pub(crate) struct ViewArgs {
    #[command(flatten)]
    pub(crate) files: OptionalFiles,
    /// Print the address of the page, but do not start a browser
    #[arg(long)]
    pub(crate) no_browser: bool,
    /// Write a page that contains the traces and needs neither weir nor a network, to send to others:
    /// the timeline, tables and flame graphs of the time between --from and --to, and its first 5,000
    /// events, 1,000 of them with all details. Tables and flame graphs are of this whole time, and
    /// the filter has no level, keyword, pid and tid
    #[arg(long, value_name = "PAGE", conflicts_with = "no_browser")]
    pub(crate) export: Option<PathBuf>,
    /// With --export: replace an existing page
    #[arg(long, requires = "export")]
    pub(crate) force: bool,
    /// With --export: begin at this time: UTC (2020-07-29T00:07:01.5) or offset from the start (1.5s,
    /// 200ms)
    #[arg(long, value_name = "TIME", requires = "export", allow_hyphen_values = true, value_parser = parse_moment)]
    pub(crate) from: Option<Moment>,
    /// With --export: end at this time; same formats as --from
    #[arg(long, value_name = "TIME", requires = "export", allow_hyphen_values = true, value_parser = parse_moment)]
    pub(crate) to: Option<Moment>,
    #[command(flatten)]
    pub(crate) schemas: SchemaArgs,
    #[command(flatten)]
    pub(crate) symbols: SymbolArgs,
    #[command(flatten)]
    pub(crate) daemon_choice: DaemonChoice,
}
