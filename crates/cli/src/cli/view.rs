//! Command-line arguments of `weir view`.

use clap::Args;

use super::{OptionalFiles, SchemaArgs, SymbolArgs};

const AFTER_VIEW: &str = "\
The page is served on this machine only, at an address with a random token that weir prints; whoever has the address can \
read the traces. weir ends with Ctrl-C, or when the page has been closed for a minute.

The first time, weir reads the traces once and keeps an index in $XDG_CACHE_HOME/traceweir (~/.cache/traceweir). \
Later it opens them at once.

Examples:
  weir view                                     the newest recording of the current folder
  weir view app.etl kernel.etl                  two traces in one timeline
  weir record --open -- ./app                   record, then show";

#[derive(Debug, Args)]
#[command(after_help = AFTER_VIEW)]
pub(crate) struct ViewArgs {
    #[command(flatten)]
    pub(crate) files: OptionalFiles,
    /// Print the address of the page, but do not start a browser
    #[arg(long)]
    pub(crate) no_browser: bool,
    #[command(flatten)]
    pub(crate) schemas: SchemaArgs,
    #[command(flatten)]
    pub(crate) symbols: SymbolArgs,
}
