//! Options that control the search for symbols.

use std::path::{Path, PathBuf};

use clap::Args;

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

/// Where and how to search for symbols.
#[derive(Clone, Debug, Default)]
pub(crate) struct SymbolOptions {
    /// Folders and files from the command line.
    pub(super) paths: Vec<PathBuf>,
    /// Whether inlined functions and lines are left out.
    pub(super) omits_lines: bool,
    /// A folder that replaces the root of the file system, in tests.
    pub(super) root: Option<PathBuf>,
}

impl From<&SymbolArgs> for SymbolOptions {
    fn from(args: &SymbolArgs) -> Self {
        Self { paths: args.symbol_path.clone(), omits_lines: args.no_lines, root: None }
    }
}

impl SymbolOptions {
    /// Returns `path` on this machine, or below the root of a test.
    pub(super) fn local_path(&self, path: &str) -> PathBuf {
        match &self.root {
            Some(root) => root.join(path.trim_start_matches('/')),
            None => Path::new(path).to_owned(),
        }
    }
}
