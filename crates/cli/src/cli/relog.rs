//! Command-line arguments of `weir relog`.

use std::path::PathBuf;

use clap::Args;
use traceweir_analysis::mark::MAX_TEXT_BYTES;

use super::{FilterArgs, InputFiles, SchemaArgs, ThreadArgs};
use crate::text::{Moment, parse_moment};

const AFTER_HELP: &str = "\
A kept event retains its bytes, time, processor, thread and process. Of several files, the one that
starts first defines clock and machine; timestamps of other clocks are converted. Counts of lost
events are added up. Events that are needed to read others (machine configuration, schemas, rundown
of processes, threads and images) are kept whatever the filters are, unless --bare is given or
--drop names their provider.

Examples:
  weir relog a.etl b.etl -o both.etl             merge files in time order
  weir relog big.etl -o cut.etl --from 10s --to 12s
  weir relog big.etl -o app.etl --provider MyCompany.App --level warning
  weir relog big.etl -o rest.etl --drop 'Microsoft-*'
  weir relog plain.etl -o small.etl --compress
  weir relog a.etl -o b.etl --mark '2.5s=here it hangs'";

#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct RelogArgs {
    #[command(flatten)]
    pub(crate) files: InputFiles,
    /// File to write; it appears only when it is complete
    #[arg(short, long, value_name = "OUT")]
    pub(crate) output: PathBuf,
    /// Replace OUT if it exists, but never an input; without it, an existing trace is moved to
    /// NAME.old.etl, and any other file is refused
    #[arg(long)]
    pub(crate) force: bool,
    /// Compress the buffers [default: compress if an input is compressed]
    #[arg(long, conflicts_with = "decompress")]
    pub(crate) compress: bool,
    /// Store the buffers uncompressed
    #[arg(long)]
    pub(crate) decompress: bool,
    /// Leave out this provider; same forms as --provider; may be repeated
    #[arg(long, value_name = "NAME|GUID")]
    pub(crate) drop: Vec<String>,
    /// Add an event of the provider Traceweir.Marks with this text; TIME as for --from; may be
    /// repeated
    #[arg(long, value_name = "TIME=TEXT", allow_hyphen_values = true, value_parser = parse_mark)]
    pub(crate) mark: Vec<(Moment, String)>,
    /// Keep only events that pass the filters
    #[arg(long)]
    pub(crate) bare: bool,
    #[command(flatten)]
    pub(crate) threads: ThreadArgs,
    #[command(flatten)]
    pub(crate) schemas: SchemaArgs,
    #[command(flatten)]
    pub(crate) filters: FilterArgs,
}

impl RelogArgs {
    /// Returns every path that is read, so that the output does not overwrite one of them.
    pub(crate) fn input_paths(&self) -> Vec<PathBuf> {
        let SchemaArgs { manifest, tmf, pdb, no_binaries: _ } = &self.schemas;
        self.files.files.iter().chain(manifest).chain(tmf).chain(pdb).cloned().collect()
    }
}

/// Parses a mark, `TIME=TEXT`.
fn parse_mark(text: &str) -> Result<(Moment, String), String> {
    let Some((time, text)) = text.split_once('=') else {
        return Err("use TIME=TEXT, such as 2.5s=here".to_owned());
    };
    if text.len() > MAX_TEXT_BYTES || text.contains('\0') {
        return Err(format!("the text has more than {MAX_TEXT_BYTES} bytes, or a NUL"));
    }
    Ok((parse_moment(time)?, text.to_owned()))
}
