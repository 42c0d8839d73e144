//! Command-line arguments of `weir shims`.

use std::path::PathBuf;

use clap::Args;

const AFTER_HELP: &str = "\
Programs find the links if LD_LIBRARY_PATH contains DIR, or if DIR is a folder that they search anyway: a .NET program searches its own folder.

  weir shims ~/shims
  LD_LIBRARY_PATH=~/shims python3 program-that-loads-advapi32.py
  weir shims ~/shims --remove";

#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct ShimsArgs {
    /// Folder for the links; created if it does not exist
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
    /// Library file, or the folder that holds it [default: searched beside weir, then in the
    /// system's library folders]
    #[arg(long, value_name = "PATH", conflicts_with = "remove")]
    pub(crate) lib: Option<PathBuf>,
    /// Replace files of these names that are not links to the library
    #[arg(long, conflicts_with = "remove")]
    pub(crate) force: bool,
    /// Remove the links; other files of these names stay
    #[arg(long)]
    pub(crate) remove: bool,
}
