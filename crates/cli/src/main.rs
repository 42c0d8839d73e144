//! The `weir` command: records, decodes, checks and repairs event traces.
#![forbid(unsafe_code)]

mod advice;
mod cli;
mod cmd;
mod convert_formats;
mod existing_output;
mod exit;
mod export;
mod filter;
mod grammar;
mod nearby;
mod output;
mod own_command;
mod printer;
mod profiles;
mod progress;
mod reading;
mod recordings;
mod screen;
mod sessions;
mod signals;
#[cfg(test)]
#[path = "../../../tests/support/skip.rs"]
mod skip;
mod text;
mod tracefs;

fn main() -> std::process::ExitCode {
    traceweir_daemon::end_at_panics();
    let cli = cli::Cli::parse_arguments();
    text::set_color_choice(cli.color);
    exit::report_result(cmd::run(cli))
}
