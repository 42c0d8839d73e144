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

/// Exit status after reading a damaged trace, as of `weir`.
const DAMAGED: u8 = 3;

fn main() -> ExitCode {
    // Help, the version and usage errors end the program.
    let arguments = arguments::parse(std::env::args_os()).unwrap_or_else(|error| error.exit());
    match engine::run(arguments) {
        Ok(()) if output::found_damage() => ExitCode::from(DAMAGED),
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if output::is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            output::print_message("error", &traceweir_analysis::text::escape(&errors::describe(&error)));
            ExitCode::FAILURE
        }
    }
}
