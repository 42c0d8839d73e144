//! Command-line arguments of `weir mark`.

use clap::Args;
use traceweir_analysis::mark::MAX_TEXT_BYTES;

use super::DaemonChoice;

const AFTER_HELP: &str = "\
A mark is an event of the provider Traceweir.Marks with this text. weir mark enables the provider in the sessions first, and \
leaves it enabled. weir dump, report, view and convert show the marks of a trace. At most eight sessions can enable a provider.

Examples:
  weir mark 'load test begins'     in all sessions that weir list shows
  weir dump app.etl --event Mark   print the marks of a trace";

#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct MarkArgs {
    /// Text of the mark, at most 512 bytes
    #[arg(value_parser = parse_text)]
    pub(crate) text: String,
    #[command(flatten)]
    pub(crate) daemon_choice: DaemonChoice,
}

fn parse_text(text: &str) -> Result<String, String> {
    if text.trim().is_empty() || text.len() > MAX_TEXT_BYTES {
        return Err(format!("use a text of 1 to {MAX_TEXT_BYTES} bytes"));
    }
    Ok(text.to_owned())
}
