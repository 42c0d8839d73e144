//! Options that control the search for symbols.

use std::path::{Path, PathBuf};

/// Where and how to search for symbols.
#[derive(Clone, Debug, Default)]
pub struct SymbolOptions {
    /// Folders to search, and files with symbols of the kernel (System.map, vmlinux). A folder may be
    /// laid out by build id, as a debuginfod cache, as a symbol store, by path, or flat.
    pub paths: Vec<PathBuf>,
    /// Whether inlined functions and lines are left out.
    pub omits_lines: bool,
    /// A folder that replaces the root of the file system.
    pub root: Option<PathBuf>,
}

impl SymbolOptions {
    /// Returns `path` on this machine, or below the folder that replaces the root.
    pub(super) fn local_path(&self, path: &str) -> PathBuf {
        match &self.root {
            Some(root) => root.join(path.trim_start_matches('/')),
            None => Path::new(path).to_owned(),
        }
    }
}
