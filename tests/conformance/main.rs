//! Tests the published contract of ETW rule by rule. Each rule is a row of a table and has a test.
//!
//! ```text
//!   this program ──▶ weir daemon in a temporary folder
//!        └─────────▶ this program again, with that folder in its environment: runs the rules in
//!                    sequence, each with its own sessions and providers, and compares the results
//!                    with docs/conformance.md
//! ```
//!
//! | Arguments | Effect |
//! |---|---|
//! | none | tests all rules; fails if docs/conformance.md does not match the results |
//! | `TEXT` | tests the rules whose test name, section or sentence contains TEXT |
//! | `--list` | lists the tests |
//! | `--write-docs` | tests all rules and rewrites docs/conformance.md |
//!
//! Rules that are not tested here, such as those of the C interface, are on that page with the
//! reason.

#[path = "../support/control_group.rs"]
mod control_group;
mod controller;
#[path = "../support/daemon_process.rs"]
mod daemon_process;
mod helpers;
mod limits;
mod processes;
mod provider;
mod random;
mod rule;
#[path = "../support/skip.rs"]
mod skip;
#[path = "../support/wait.rs"]
mod wait;

use std::process::{Command, ExitCode};

use helpers::Fixture;
use processes::Daemon;
use rule::{Outcome, Rule};

/// Process id of the daemon; set only for the program that runs the rules.
pub(crate) const DAEMON_PID_VARIABLE: &str = "TRACEWEIR_CONFORMANCE_DAEMON";
/// Temporary folder of this run; set only for the program that runs the rules.
const FOLDER_VARIABLE: &str = "TRACEWEIR_CONFORMANCE_FOLDER";

fn all_rules() -> Vec<&'static Rule> {
    let parts = controller::RULES.iter().chain(provider::RULES).chain([&limits::RULES, &random::RULES]);
    parts.flat_map(|section| section.iter()).collect()
}

/// Fails if two rules have tests of the same name: a test name must identify the broken rule.
fn assert_names_are_unique() {
    let mut names: Vec<&str> = all_rules().iter().map(|rule| rule.test).collect();
    names.sort_unstable();
    let duplicates: Vec<_> = names.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]).collect();
    assert!(duplicates.is_empty(), "several rules have the same test name: {duplicates:?}");
}

fn main() -> ExitCode {
    if let Some(provider) = std::env::var_os(processes::PROVIDER_VARIABLE) {
        return processes::run_provider_process(&provider);
    }
    assert_names_are_unique();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|argument| argument == "--list") {
        all_rules().iter().for_each(|rule| println!("{}: test", rule.test));
        return ExitCode::SUCCESS;
    }
    match std::env::var_os(FOLDER_VARIABLE) {
        Some(folder) => run_rules(&arguments, folder.as_ref()),
        None => run_with_daemon(&arguments),
    }
}

/// Starts the daemon and runs this program again with it.
fn run_with_daemon(arguments: &[String]) -> ExitCode {
    let folder = tempfile::Builder::new()
        .prefix("weir-rules-")
        .tempdir()
        .expect("the temporary folder cannot be made");
    let runtime = folder.path().join("run");
    let mut daemon = Daemon::start(&runtime);
    let status = Command::new(std::env::current_exe().expect("this program has no path"))
        .args(arguments)
        .env("TRACEWEIR_RUNTIME_DIR", &runtime)
        .env(DAEMON_PID_VARIABLE, daemon.id().to_string())
        .env(FOLDER_VARIABLE, folder.path())
        .status()
        .expect("this program did not start");
    let (log, exit_status) = (daemon.log(), daemon.exit_status());
    if let Some(exit_status) = exit_status {
        eprintln!("the daemon ended during the tests ({exit_status}):\n{log}");
        return ExitCode::FAILURE;
    }
    if log.contains("panicked") {
        eprintln!("the daemon panicked:\n{log}");
        return ExitCode::FAILURE;
    }
    if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run_rules(arguments: &[String], folder: &std::path::Path) -> ExitCode {
    let fixture = Fixture::new(folder);
    let filter = arguments.iter().find(|argument| !argument.starts_with('-'));
    let selected: Vec<&Rule> =
        all_rules().into_iter().filter(|rule| filter.is_none_or(|text| rule.is_about(text))).collect();
    let outcomes: Vec<(&Rule, Outcome)> = selected.iter().map(|rule| (*rule, rule.run(&fixture))).collect();
    let failed = outcomes.iter().filter(|(_, outcome)| matches!(outcome, Outcome::Fails(_))).count();
    for (rule, outcome) in &outcomes {
        if let Outcome::Fails(reason) = outcome {
            eprintln!(
                "{} ({}, {})\n    rule: {}\n    {reason}\n",
                rule.test, rule.section, rule.mark, rule.sentence
            );
        }
    }
    println!("conformance: {} rules hold, {failed} do not", outcomes.len() - failed);
    if filter.is_some() {
        return if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let untested_rules: Vec<_> = controller::UNTESTED_RULES
        .iter()
        .chain(provider::UNTESTED_RULES)
        .flat_map(|section| section.iter())
        .collect();
    let writes_docs = arguments.iter().any(|argument| argument == "--write-docs");
    let docs_match = rule::check_docs(&outcomes, &untested_rules, writes_docs);
    if failed == 0 && docs_match { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
