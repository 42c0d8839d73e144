//! Reports on kernel traces: `weir report`, `weir flame`, and stacks below their events.
//!
//! The traces are made here, so that every number is known. Traces recorded by Windows are checked
//! too, where the samples are available.

mod browser;
mod cpu;
mod disk;
mod flame;
mod hostile;
mod scene;
mod sched;
mod speedscope;
mod stacks;
mod who;

use std::path::Path;

use serde_json::Value;

use crate::util::weir;

/// Returns the rows of a report with this `by`.
fn rows<'r>(report: &'r [Value], by: &str) -> Vec<&'r Value> {
    report.iter().filter(|row| row["by"] == by).collect()
}

/// Returns the row with this `by` and name.
#[track_caller]
fn row<'r>(report: &'r [Value], by: &str, name: &str) -> &'r Value {
    let found = rows(report, by).into_iter().find(|row| row["name"] == name);
    found.unwrap_or_else(|| panic!("a row of {by} {name} in {report:#?}"))
}

/// Runs `weir report` and returns its rows as objects.
fn report(kind: &str, path: &Path, arguments: &[&str]) -> Vec<Value> {
    let mut all = vec!["report", kind, path.to_str().unwrap(), "--json", "--top", "0"];
    all.extend(arguments);
    weir(&all).expect(0).json()
}

/// Returns an unsigned integer field of an object.
#[track_caller]
fn number(row: &Value, key: &str) -> u64 {
    row[key].as_u64().unwrap_or_else(|| panic!("{key} in {row}"))
}
