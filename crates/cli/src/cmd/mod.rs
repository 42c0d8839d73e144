//! The verbs of `weir`, one file each.

mod check;
mod demo;
mod dump;
mod grep;
mod info;
mod repair;
mod stats;

use anstream::eprintln;
use anyhow::Result;

use crate::cli::{Cli, Command};
use crate::exit::Outcome;
use crate::traces::Reading;

/// Runs what was asked for.
pub(crate) fn run(cli: Cli) -> Result<Outcome> {
    match cli.command {
        Command::Info(options) => info::run(&options),
        Command::Dump(options) => dump::run(&options),
        Command::Stats(options) => stats::run(&options),
        Command::Check(options) => check::run(&options),
        Command::Repair(options) => repair::run(&options),
        Command::Demo(options) => demo::run(&options),
    }
}

/// Says on standard error what reading had to forgive.
fn warn(reading: &Reading) {
    let style = anstyle::AnsiColor::Yellow.on_default().bold();
    for warning in &reading.warnings {
        eprintln!("{style}warning:{style:#} {warning}");
    }
}

/// A number with separators, for people.
fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}
