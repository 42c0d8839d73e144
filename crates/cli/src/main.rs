//! `weir`: event traces on the command line.
#![forbid(unsafe_code)]

mod cli;
mod cmd;
mod exit;
mod export;
mod filter;
mod input;
mod output;
mod progress;
mod traces;

use clap::Parser;

fn main() -> std::process::ExitCode {
    let cli = cli::Cli::parse();
    exit::report(cmd::run(cli))
}
