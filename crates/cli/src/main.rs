//! `weir`: event traces on the command line.
#![forbid(unsafe_code)]

mod cli;
mod cmd;
mod event;
mod exit;
mod export;
mod filter;
mod grep;
mod input;
mod live;
mod output;
mod printer;
mod progress;
mod providers;
mod sessions;
mod signals;
mod traces;

use clap::Parser;

fn main() -> std::process::ExitCode {
    let cli = cli::Cli::parse();
    exit::report(cmd::run(cli))
}
