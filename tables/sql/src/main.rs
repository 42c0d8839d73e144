//! `weir sql`: queries event traces, and datasets that `weir convert` wrote, with SQL.
//!
//! ```text
//!   .etl ──▶ TraceTable: columns, times and providers pushed down ─┐
//!   dataset ──▶ Parquet files with partitions ─────────────────────┴─▶ DataFusion ─▶ table, csv, jsonl
//! ```
#![forbid(unsafe_code)]

mod arguments;
mod datasets;
mod engine;
mod errors;
mod functions;
mod output;
mod symbols;
mod traces;

use std::process::ExitCode;

use arguments::Command;

fn main() -> ExitCode {
    let arguments = match arguments::parse(std::env::args_os().skip(1)) {
        Ok(Command::Help) => {
            print!("{}", arguments::HELP);
            return ExitCode::SUCCESS;
        }
        Ok(Command::Version) => {
            println!("weir-sql {}", env!("CARGO_PKG_VERSION"));
            return ExitCode::SUCCESS;
        }
        Ok(Command::Run(arguments)) => arguments,
        Err(message) => {
            eprintln!("error: {message}");
            eprintln!("weir sql --help shows the options");
            return ExitCode::from(2);
        }
    };
    match engine::run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if output::is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", traceweir_analysis::text::escape(&errors::describe(&error)));
            ExitCode::FAILURE
        }
    }
}
