//! Command-line arguments of `weir sql`.

use std::ffi::OsString;

use clap::Args;

/// Arguments of `weir sql`, which the program `weir-sql` parses.
#[derive(Debug, Args)]
pub(crate) struct SqlArgs {
    /// Traces or datasets, options, and the query; weir sql --help lists them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
    pub(crate) arguments: Vec<OsString>,
}
