//! Command-line arguments of `weir convert`.

use std::path::PathBuf;

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use traceweir_analysis::filter::FilterCriteria;

use super::{
    DumpArgs, FilterArgs, OptionalFiles, OutputFormat, SchemaArgs, ShownParts, SymbolArgs, ThreadArgs,
};
use crate::convert_formats::{ConvertFormat, FORMATS, PrintedFormat, find_format};

const AFTER_HELP: &str = "\
The output appears only when it is complete: a failure or Ctrl-C leaves no output. A dataset of
Parquet gets its files one by one. Options that belong to other formats have no effect.
docs/convert.md describes the formats, and what each leaves out.

Examples:
  weir convert trace.etl -o trace.csv                    the format follows from the name
  weir convert trace.etl --to jsonl | jq .event          to standard output
  weir convert trace.etl --to collapsed | flamegraph.pl > flame.svg
  weir convert a.etl b.etl -o both.jsonl --from 2s --until 3s --level warning";

/// Arguments of `weir convert`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
// The option --to names the format, so the end of the time span has another name than elsewhere.
#[command(mut_arg("to", |argument| argument.long("until")))]
pub(crate) struct ConvertArgs {
    #[command(flatten)]
    pub(crate) files: OptionalFiles,
    /// Output format [default: by the name of OUT]
    #[arg(
        id = "format",
        long = "to",
        alias = "format",
        value_name = "FORMAT",
        value_parser = format_parser(),
        ignore_case = true
    )]
    pub(crate) format: Option<FormatChoice>,
    /// File or folder to write; - is standard output [default: standard output, for formats of one
    /// file]
    #[arg(short, long, value_name = "OUT")]
    pub(crate) output: Option<PathBuf>,
    /// Replace OUT if it exists, but never an input
    #[arg(long)]
    pub(crate) force: bool,
    /// Text, JSON, CSV, XML: print numbers instead of the names of enumeration values and flags
    #[arg(long)]
    pub(crate) numeric: bool,
    /// Parquet, Arrow: the tables to write
    #[arg(long, value_name = "LAYOUT", value_enum, default_value = "events")]
    pub(crate) layout: TableLayout,
    /// Parquet, Arrow: the host of traces that do not name it [default: the name of the file]
    #[arg(long, value_name = "NAME")]
    pub(crate) host: Option<String>,
    #[command(flatten)]
    pub(crate) threads: ThreadArgs,
    #[command(flatten)]
    pub(crate) symbols: SymbolArgs,
    #[command(flatten)]
    pub(crate) schemas: SchemaArgs,
    #[command(flatten)]
    pub(crate) filters: FilterArgs,
}

/// The tables of Parquet and Arrow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum TableLayout {
    /// One table, with the fields of an event as JSON
    Events,
    /// One table for each type of event, with the fields as columns
    ByType,
    /// Processes, threads, images, switches, samples, disk operations and network
    Kernel,
}

/// A value of `--to`.
#[derive(Clone, Copy)]
pub(crate) struct FormatChoice(pub(crate) &'static ConvertFormat);

impl std::fmt::Debug for FormatChoice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0.name)
    }
}

fn format_parser() -> impl TypedValueParser<Value = FormatChoice> {
    let to_value = |format: &ConvertFormat| {
        let help = format!("{}; for {}", format.about, format.tools);
        PossibleValue::new(format.name).aliases(format.aliases.iter().copied()).help(help)
    };
    PossibleValuesParser::new(FORMATS.iter().map(to_value))
        .try_map(|name| find_format(&name).map(FormatChoice).ok_or("unknown format"))
}

impl ConvertArgs {
    /// Returns the criteria of the filters.
    pub(crate) fn criteria(&self) -> FilterCriteria {
        self.filters.criteria()
    }

    /// Returns every path that is read, so that the output does not overwrite one of them.
    pub(crate) fn input_paths(&self) -> impl Iterator<Item = &PathBuf> {
        let SchemaArgs { manifest, tmf, pdb, no_binaries: _ } = &self.schemas;
        self.files.files.iter().chain(manifest).chain(tmf).chain(pdb).chain(&self.symbols.symbol_path)
    }

    /// Returns the options of `weir dump` with the same meaning.
    pub(crate) fn to_dump_args(&self, format: PrintedFormat) -> DumpArgs {
        let SchemaArgs { manifest, tmf, pdb, no_binaries } = &self.schemas;
        DumpArgs {
            files: OptionalFiles { files: self.files.files.clone() },
            format: Some(match format {
                PrintedFormat::Text => OutputFormat::Text,
                PrintedFormat::Jsonl => OutputFormat::Jsonl,
                PrintedFormat::Csv => OutputFormat::Csv,
                PrintedFormat::Xml => OutputFormat::Xml,
            }),
            output: self.output.clone(),
            force: self.force,
            numeric: self.numeric,
            all: false,
            tail: None,
            follow: false,
            threads: self.threads,
            show: ShownParts::default(),
            symbols: false,
            symbol: self.symbols.clone(),
            schemas: SchemaArgs {
                manifest: manifest.clone(),
                tmf: tmf.clone(),
                pdb: pdb.clone(),
                no_binaries: *no_binaries,
            },
            filters: self.filters.clone(),
        }
    }
}
