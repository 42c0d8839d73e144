//! Where symbols are looked for, as people say it.

use std::path::{Path, PathBuf};

use clap::Args;

/// Flags of commands that name functions.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct SymbolArgs {
    /// Look for symbols in this folder too, or take this System.map or vmlinux for the kernel; may be repeated. Folders may be laid out by build id
    /// (.build-id/ab/cdef.debug), as a debuginfod client's cache, as a symbol store (name.pdb/ID/name.pdb), by path, or be flat
    #[arg(long, value_name = "PATH")]
    pub(crate) symbol_path: Vec<PathBuf>,
    /// Functions only: neither inlined ones nor sources and lines, which takes less time and memory
    #[arg(long)]
    pub(crate) no_lines: bool,
}

/// Where symbols are looked for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    /// What people named.
    pub(super) paths: Vec<PathBuf>,
    /// Whether inlined functions and lines are left out.
    pub(super) without_lines: bool,
    /// A folder that stands for the whole file system, in tests.
    pub(super) root: Option<PathBuf>,
}

impl From<&SymbolArgs> for Options {
    fn from(args: &SymbolArgs) -> Self {
        Self { paths: args.symbol_path.clone(), without_lines: args.no_lines, root: None }
    }
}

impl Options {
    /// A path of this machine.
    pub(super) fn here(&self, path: &str) -> PathBuf {
        match &self.root {
            Some(root) => root.join(path.trim_start_matches('/')),
            None => Path::new(path).to_owned(),
        }
    }
}
