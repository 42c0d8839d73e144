//! The subcommands of `weir`, one file each; commands that send one request about a session share
//! `control`.

mod access;
mod answer;
mod ask;
mod autologger;
mod check;
mod control;
mod daemon;
mod demo;
mod doctor;
mod dump;
mod enable;
mod error;
mod flame;
mod info;
mod list;
mod mc;
mod providers;
mod record;
mod relog;
mod repair;
mod report;
mod shims;
mod start;
mod stats;
mod watch;

pub(crate) use doctor::has_kprobes;

use anstream::eprintln;
use anyhow::Result;

use crate::cli::{Cli, Command};
use crate::exit::Outcome;
use crate::export::plain_lines;
use crate::traces::Reading;

/// Runs the subcommand.
pub(crate) fn run(cli: Cli) -> Result<Outcome> {
    match cli.command {
        Command::Record(options) => record::run(&options),
        Command::Watch(options) => watch::run(&options),
        Command::Start(options) => answer::print(options.json, start::run(&options)),
        Command::Stop(options) => answer::print(options.json, control::stop(&options)),
        Command::Query(options) => control::query(&options),
        Command::List(options) => list::run(&options),
        Command::Providers(options) => providers::run(&options),
        Command::Enable(options) => answer::print(options.targets.json, enable::enable(&options)),
        Command::Disable(options) => answer::print(options.targets.json, enable::disable(&options.targets)),
        Command::CaptureState(options) => {
            answer::print(options.targets.json, enable::capture_state(&options.targets))
        }
        Command::Update(options) => answer::print(options.json, control::update(&options)),
        Command::Flush(options) => answer::print(options.json, control::flush(&options)),
        Command::Increment(options) => answer::print(options.json, control::increment(&options)),
        Command::ConvertToRealtime(options) => answer::print(options.json, control::convert(&options)),
        Command::Access(options) => access::run(&options),
        Command::Ask(options) => ask::run(&options),
        Command::Info(options) => info::run(&options),
        Command::Dump(options) => dump::run(&options),
        Command::Stats(options) => stats::run(&options),
        Command::Report(options) => report::run(&options.verb),
        Command::Flame(options) => flame::run(&options),
        Command::Check(options) => check::run(&options),
        Command::Repair(options) => repair::run(&options),
        Command::Relog(options) => relog::run(&options),
        Command::Mc(options) => mc::run(&options),
        Command::Error(options) => error::run(&options),
        Command::Doctor(options) => doctor::run(&options),
        Command::Shims(options) => shims::run(&options),
        Command::Demo(options) => demo::run(&options),
        Command::DemoShop(options) => demo::serve(&options),
        Command::Autologger(options) => autologger::run(&options.verb),
        Command::Daemon(options) => daemon::run(&options),
    }
}

/// Prints the warnings of reading a trace to standard error.
fn warn(reading: &Reading) {
    reading.warnings.iter().for_each(|warning| print_warning(warning));
}

/// Prints a warning to standard error.
fn print_warning(warning: &str) {
    let style = anstyle::AnsiColor::Yellow.on_default().bold();
    eprintln!("{style}warning:{style:#} {}", plain_lines(warning));
}

/// Formats a count with its noun, in plural where needed: "3 events".
pub(crate) fn counted(n: u64, noun: &str) -> String {
    let ending = match n {
        1 => "",
        _ if ["s", "ch", "sh"].iter().any(|end| noun.ends_with(end)) => "es",
        _ => "s",
    };
    format!("{} {noun}{ending}", grouped(n))
}

/// Formats a number with thousands separators.
pub(crate) fn grouped(n: u64) -> String {
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
