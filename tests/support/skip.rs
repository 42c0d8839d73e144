//! Skips checks that need something that not every machine has (root, sample traces, a browser, …).
//!
//! A file in `target/skipped/`, named after the test program, lists the skipped checks. The program
//! prints one line that names this file. `TRACEWEIR_REQUIRE` is a comma-separated list of
//! requirements that must be met, such as `root`, or `all`. A skip for such a requirement fails the
//! test.
#![allow(dead_code)] // Each test program uses only some of these functions.

use std::fs::OpenOptions;
use std::io::{Result, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Serializes writes to the list: tests run on several threads.
static LIST: Mutex<()> = Mutex::new(());

/// Records a skipped check. Fails the test if `TRACEWEIR_REQUIRE` names the requirement.
#[track_caller]
pub(crate) fn skip(requirement: &str, reason: &str) {
    let required = std::env::var("TRACEWEIR_REQUIRE").unwrap_or_default();
    let is_required = required.split(',').any(|name| name == "all" || name == requirement);
    assert!(!is_required, "TRACEWEIR_REQUIRE requires {requirement}: {reason}");
    record(requirement, reason);
}

/// Records a skipped check, regardless of `TRACEWEIR_REQUIRE`.
pub(crate) fn record(requirement: &str, reason: &str) {
    let thread = std::thread::current();
    let line = format!("{}: {requirement}: {reason}\n", thread.name().unwrap_or("a test"));

    let _lock = LIST.lock().unwrap_or_else(PoisonError::into_inner);
    let list = skip_list_path();
    // The test harness captures the output of `eprintln!`, but not writes to the stream itself.
    let mut terminal = std::io::stderr();
    let _ = match append(&list, &line) {
        Ok(false) => Ok(()),
        Ok(true) => {
            writeln!(terminal, "some checks need more than this machine offers: see {}", list.display())
        }
        Err(error) => write!(terminal, "skipped (cannot write {}: {error}) {line}", list.display()),
    };
}

/// Returns `is_possible`, and records a skip if it is false.
#[track_caller]
pub(crate) fn holds_or_skip(is_possible: bool, requirement: &str, reason: &str) -> bool {
    if !is_possible {
        skip(requirement, reason);
    }
    is_possible
}

/// Appends a line to the list of this run. Returns whether it is the first line of the run, which
/// replaces the list of an earlier run.
fn append(list: &Path, line: &str) -> Result<bool> {
    let first_line = format!("skipped in process {}:\n", test_run_process());
    let is_first = !std::fs::read_to_string(list).is_ok_and(|text| text.starts_with(&first_line));
    if is_first {
        std::fs::write(list, first_line)?;
    }
    OpenOptions::new().append(true).open(list)?.write_all(line.as_bytes())?;
    Ok(is_first)
}

/// Returns `target/skipped/NAME.txt` for the test program `target/PROFILE/deps/NAME-HASH`, or a
/// temporary file for other programs.
fn skip_list_path() -> PathBuf {
    let program = std::env::current_exe().unwrap_or_default();
    let name = program.file_stem().unwrap_or_default().to_string_lossy();
    let name = name.rsplit_once('-').map_or(&*name, |(name, _hash)| name);
    let is_built_here = program.parent().is_some_and(|folder| folder.ends_with("deps"));
    let folder = match program.ancestors().nth(3).filter(|_| is_built_here) {
        Some(target) => target.join("skipped"),
        None => std::env::temp_dir(),
    };
    // If the folder cannot be made, writing the list fails too, and `record` reports that.
    let _ = std::fs::create_dir_all(&folder);
    folder.join(format!("{name}.txt"))
}

/// Returns the id of the process that runs the tests: this process, or its parent if the test runs
/// in a process of its own.
fn test_run_process() -> u32 {
    let parent = std::os::unix::process::parent_id();
    let program = |process: &str| std::fs::read_link(format!("/proc/{process}/exe")).ok();
    if program("self").is_some() && program(&parent.to_string()) == program("self") {
        parent
    } else {
        std::process::id()
    }
}
