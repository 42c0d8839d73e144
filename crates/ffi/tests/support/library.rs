//! The functions of the library: those that its headers declare, and those that it exports.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Workshop, expect_success, here};

/// Returns the functions that headers declare but do not define.
pub(crate) fn declared() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for header in headers() {
        for line in std::fs::read_to_string(header).unwrap().lines() {
            let words = line.split_once('(').map(|(front, _)| front.split_whitespace().collect::<Vec<_>>());
            if let Some([_, "WINAPI" | "EVNTAPI" | "WMIAPI", name]) = words.as_deref() {
                names.insert((*name).to_owned());
            }
        }
    }
    names
}

/// Returns the functions that the shared library exports.
pub(crate) fn exported(workshop: &Workshop) -> BTreeSet<String> {
    let listed = expect_success(
        Command::new("nm").args(["-D", "--defined-only"]).arg(workshop.path("libtraceweir.so")),
    );
    listed.lines().filter_map(|l| l.split_whitespace().nth(2)).map(str::to_owned).collect()
}

/// Returns every header of this project.
pub(crate) fn headers() -> Vec<PathBuf> {
    let (mut all, mut folders) = (Vec::new(), vec![here("include")]);
    while let Some(folder) = folders.pop() {
        for path in entries(&folder) {
            if path.is_dir() { &mut folders } else { &mut all }.push(path);
        }
    }
    all
}

/// Returns the entries of a folder, in the order of names.
pub(crate) fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}
