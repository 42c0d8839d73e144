//! The published contract, rule by rule: one row, one test, named by its section.
//!
//! ```text
//!   this program ──▶ weir daemon in a folder of its own
//!        └─────────▶ this program again, with that folder in its environment: runs the rules one after the other,
//!                    each with sessions and providers of its own, and compares the outcome with docs/conformance.md
//! ```
//!
//! | Arguments | |
//! |---|---|
//! | none | all rules; the table in the docs must be the one of this run |
//! | `TEXT` | the rules whose test, section or sentence contains it |
//! | `--list` | the tests |
//! | `--write-docs` | all rules, and the table is written anew |
//!
//! Rules that cannot hold on Linux, or that belong to the C façade, stand in the table with the reason.

mod controller;
mod provider;
mod rule;
mod stage;

use std::process::{Command, ExitCode, Stdio};

use rule::{Outcome, Rule};
use stage::Stage;

/// Where the daemon of this run lives; set for the inner program only.
const FOLDER: &str = "TRACEWEIR_CONFORMANCE_FOLDER";

fn rules() -> Vec<&'static Rule> {
    controller::RULES.iter().chain(provider::RULES).flat_map(|section| section.iter()).collect()
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|a| a == "--list") {
        rules().iter().for_each(|rule| println!("{}: test", rule.test));
        return ExitCode::SUCCESS;
    }
    match std::env::var_os(FOLDER) {
        Some(folder) => inner(&arguments, folder.as_ref()),
        None => outer(&arguments),
    }
}

/// Starts the daemon and this program under it.
fn outer(arguments: &[String]) -> ExitCode {
    let folder = tempfile::Builder::new().prefix("weir-rules-").tempdir().expect("a temporary folder");
    let runtime = folder.path().join("run");
    let mut daemon = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["daemon", "--runtime-dir"])
        .arg(&runtime)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(std::fs::File::create(folder.path().join("daemon.log")).expect("a log"))
        .spawn()
        .expect("weir daemon starts");
    let status = Command::new(std::env::current_exe().expect("this program"))
        .args(arguments)
        .env("TRACEWEIR_RUNTIME_DIR", &runtime)
        .env(FOLDER, folder.path())
        .status()
        .expect("this program runs again");
    let log = std::fs::read_to_string(folder.path().join("daemon.log")).unwrap_or_default();
    let gone = daemon.try_wait().ok().flatten();
    // It may have left by itself, which is judged below.
    let _ = daemon.kill();
    let _ = daemon.wait();
    if let Some(ended) = gone {
        eprintln!("the daemon ended meanwhile ({ended}):\n{log}");
        return ExitCode::FAILURE;
    }
    if log.contains("panicked") {
        eprintln!("the daemon panicked:\n{log}");
        return ExitCode::FAILURE;
    }
    if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs the rules.
fn inner(arguments: &[String], folder: &std::path::Path) -> ExitCode {
    let stage = Stage::new(folder);
    let filter = arguments.iter().find(|a| !a.starts_with('-'));
    let chosen: Vec<&Rule> =
        rules().into_iter().filter(|rule| filter.is_none_or(|f| rule.is_about(f))).collect();
    let outcomes: Vec<(&Rule, Outcome)> = chosen.iter().map(|rule| (*rule, rule.run(&stage))).collect();
    let failed = outcomes.iter().filter(|(_, outcome)| matches!(outcome, Outcome::Fails(_))).count();
    for (rule, outcome) in &outcomes {
        if let Outcome::Fails(why) = outcome {
            eprintln!(
                "{} ({}, {})\n    rule: {}\n    {why}\n",
                rule.test, rule.section, rule.mark, rule.says
            );
        }
    }
    println!("conformance: {} rules hold, {failed} do not", outcomes.len() - failed);
    if filter.is_some() {
        return if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let not_here: Vec<_> =
        controller::NOT_HERE.iter().chain(provider::NOT_HERE).flat_map(|all| all.iter()).collect();
    let written = rule::check_docs(&outcomes, &not_here, arguments.iter().any(|a| a == "--write-docs"));
    if failed == 0 && written { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
