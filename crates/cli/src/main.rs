//! The `weir` command: records, decodes, checks and repairs event traces.
#![forbid(unsafe_code)]

mod advice;
mod analysis;
mod cli;
mod cmd;
mod event;
mod existing_output;
mod exit;
mod export;
mod filter;
mod grammar;
mod grep;
mod images;
mod input;
mod live;
mod missing;
mod output;
mod own_command;
#[cfg(test)]
#[path = "../../../tests/support/pdb.rs"]
mod pdb_file;
mod printer;
mod processes;
mod profiles;
mod progress;
mod recordings;
mod schema_files;
mod sessions;
mod signals;
#[cfg(test)]
#[path = "../../../tests/support/skip.rs"]
mod skip;
mod symbols;
mod text;
mod tracefs;
mod traces;
mod user_folders;

fn main() -> std::process::ExitCode {
    traceweir_daemon::end_at_panics();
    let cli = cli::Cli::parse_arguments();
    text::set_color_choice(cli.color);
    exit::report_result(cmd::run(cli))
}
