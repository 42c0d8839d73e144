//! The flags of `weir relog`, as typed.

use std::path::PathBuf;

use clap::Args;

use super::{Files, Filters, Schemas};
use crate::filter::{Moment, parse_moment};

/// The longest text of a mark, in bytes.
const LONGEST_MARK: usize = 512;

const AFTER_HELP: &str = "\
An event that is kept has the bytes, the time, the processor, the thread and the process it had. Of
several files the one that starts first gives clock and machine; stamps of other clocks are
converted. Lost events are summed. What other events are read by (configuration of the machine,
schemas, rundown of processes, threads and images) is kept whatever the filters say, unless --bare
is given or --drop names it.

Examples:
  weir relog a.etl b.etl -o both.etl             one file of several, in time order
  weir relog big.etl -o cut.etl --from 10s --to 12s
  weir relog big.etl -o app.etl --provider MyCompany.App --level warning
  weir relog big.etl -o rest.etl --drop 'Microsoft-*'
  weir relog plain.etl -o small.etl --compress
  weir relog a.etl -o b.etl --mark '2.5s=here it hangs'";

#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Relog {
    #[command(flatten)]
    pub(crate) files: Files,
    /// The new file; it appears when it is whole
    #[arg(short, long, value_name = "OUT")]
    pub(crate) output: PathBuf,
    /// Replace OUT if it exists; never an input
    #[arg(long)]
    pub(crate) force: bool,
    /// Compress the buffers; without this and --decompress it is done where an input is compressed
    #[arg(long, conflicts_with = "decompress")]
    pub(crate) compress: bool,
    /// Store the buffers as they are
    #[arg(long)]
    pub(crate) decompress: bool,
    /// Leave this provider out: as --provider; may be repeated
    #[arg(long, value_name = "NAME|GUID")]
    pub(crate) drop: Vec<String>,
    /// Add an event of the provider Traceweir.Relog with this text; TIME as --from; may be repeated
    #[arg(long, value_name = "TIME=TEXT", allow_hyphen_values = true, value_parser = parse_mark)]
    pub(crate) mark: Vec<(Moment, String)>,
    /// Keep nothing but what the filters let through
    #[arg(long)]
    pub(crate) bare: bool,
    #[command(flatten)]
    pub(crate) schemas: Schemas,
    #[command(flatten)]
    pub(crate) filters: Filters,
}

impl Relog {
    /// Everything that is read and so must not be written.
    pub(crate) fn inputs(&self) -> Vec<PathBuf> {
        let Schemas { manifest, tmf, pdb, no_binaries: _ } = &self.schemas;
        self.files.files.iter().chain(manifest).chain(tmf).chain(pdb).cloned().collect()
    }
}

/// A mark, as typed.
fn parse_mark(text: &str) -> Result<(Moment, String), String> {
    let Some((time, text)) = text.split_once('=') else {
        return Err("use a time and a text, such as 2.5s=here".to_owned());
    };
    if text.len() > LONGEST_MARK || text.contains('\0') {
        return Err(format!("the text has more than {LONGEST_MARK} bytes, or a NUL"));
    }
    Ok((parse_moment(time)?, text.to_owned()))
}
