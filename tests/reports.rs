//! Tests of reports on kernel traces: `weir report`, `weir flame`, and the stacks that
//! `weir dump --stacks` prints.
//!
//! The tests build the traces, so that every number is known. They also check traces that Windows
//! recorded, if these sample files are on the machine.

mod attribution;
mod automatic;
mod browser;
mod callers;
mod cpu;
mod disk;
mod file;
mod flame;
mod hostile;
mod managed;
mod net;
mod sched;
mod speedscope;
mod stacks;
mod syscall;
mod trace_builder;

use std::path::Path;

use serde_json::Value;

use crate::util::weir;

/// Returns the rows of a report with this value of `by`.
fn rows_by<'r>(report: &'r [Value], by: &str) -> Vec<&'r Value> {
    report.iter().filter(|row| row["by"] == by).collect()
}

/// Returns the row with these values of `by` and `name`.
#[track_caller]
fn find_row<'r>(report: &'r [Value], by: &str, name: &str) -> &'r Value {
    let row = rows_by(report, by).into_iter().find(|row| row["name"] == name);
    row.unwrap_or_else(|| panic!("no row of {by} {name} in {report:#?}"))
}

/// Runs `weir report` and returns its rows as objects.
fn run_report(kind: &str, path: &Path, arguments: &[&str]) -> Vec<Value> {
    let mut command = vec!["report", kind, path.to_str().unwrap(), "--json", "--top", "0"];
    command.extend(arguments);
    weir(&command).expect(0).json()
}

/// Returns an unsigned integer field of an object.
#[track_caller]
fn number(row: &Value, key: &str) -> u64 {
    row[key].as_u64().unwrap_or_else(|| panic!("no number {key} in {row}"))
}
