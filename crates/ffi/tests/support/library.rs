//! The functions that the headers of the library declare, and the functions that it exports.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{ProgramFolder, crate_path, expect_success};

/// Returns the functions that headers declare but do not define.
pub(crate) fn declared_functions() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for header in list_headers() {
        for line in std::fs::read_to_string(header).unwrap().lines() {
            let words = line.split_once('(').map(|(front, _)| front.split_whitespace().collect::<Vec<_>>());
            // A declaration begins with the result type, the calling convention and the name.
            if let Some([_, "WINAPI" | "EVNTAPI" | "WMIAPI", name]) = words.as_deref() {
                names.insert((*name).to_owned());
            }
        }
    }
    names
}

/// Returns the functions that the shared library exports.
pub(crate) fn exported_functions(programs: &ProgramFolder) -> BTreeSet<String> {
    let symbols = expect_success(
        Command::new("nm").args(["-D", "--defined-only"]).arg(programs.path("libtraceweir.so")),
    );
    symbols.lines().filter_map(|line| line.split_whitespace().nth(2)).map(str::to_owned).collect()
}

/// Returns every header in the folder `include`.
pub(crate) fn list_headers() -> Vec<PathBuf> {
    let (mut headers, mut folders) = (Vec::new(), vec![crate_path("include")]);
    while let Some(folder) = folders.pop() {
        for path in list_folder(&folder) {
            if path.is_dir() { &mut folders } else { &mut headers }.push(path);
        }
    }
    headers
}

/// Returns the entries of a folder, in the order of names.
pub(crate) fn list_folder(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}
