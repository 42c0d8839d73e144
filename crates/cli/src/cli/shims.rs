//! The flags of `weir shims`.

use std::path::PathBuf;

use clap::Args;

const AFTER_HELP: &str = "\
Programs find the links where LD_LIBRARY_PATH names DIR, or where DIR is a folder that they look into anyway: a .NET program looks beside itself.

  weir shims ~/shims
  LD_LIBRARY_PATH=~/shims python3 program-that-loads-advapi32.py
  weir shims ~/shims --remove";

#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Shims {
    /// Where links are laid; made if it is not there
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
    /// The library, or the folder that holds it; else it is looked for beside weir, and where the system keeps libraries
    #[arg(long, value_name = "PATH", conflicts_with = "remove")]
    pub(crate) lib: Option<PathBuf>,
    /// Replace what is there under these names and is no link to the library
    #[arg(long, conflicts_with = "remove")]
    pub(crate) force: bool,
    /// Remove the links again; whatever else has one of the names stays
    #[arg(long)]
    pub(crate) remove: bool,
}
