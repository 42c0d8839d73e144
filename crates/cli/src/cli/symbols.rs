//! Options that control the search for symbols.

use std::path::PathBuf;

use clap::Args;
use traceweir_analysis::symbols::SymbolOptions;

/// Arguments of commands that resolve functions.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct SymbolArgs {
    /// Search for symbols in this folder too, or use this System.map or vmlinux for the kernel; may
    /// be repeated. A folder may be laid out by build id (.build-id/ab/cdef.debug), as a debuginfod
    /// cache, as a symbol store (name.pdb/ID/name.pdb), by path, or flat
    #[arg(long, value_name = "PATH")]
    pub(crate) symbol_path: Vec<PathBuf>,
    /// Resolve functions only, without inlined functions, source files and lines; takes less time
    /// and memory
    #[arg(long)]
    pub(crate) no_lines: bool,
}

impl SymbolArgs {
    /// Returns where and how to search.
    pub(crate) fn options(&self) -> SymbolOptions {
        SymbolOptions { paths: self.symbol_path.clone(), omits_lines: self.no_lines, root: None }
    }
}
