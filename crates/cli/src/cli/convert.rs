//! Command-line arguments of `weir convert`.

use std::path::PathBuf;

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use traceweir_analysis::filter::FilterCriteria;

use super::{
    DumpArgs, FilterArgs, OptionalFiles, OutputFormat, SchemaArgs, ShownParts, SymbolArgs, ThreadArgs,
};
use crate::convert_formats::{
    ConvertFormat, FORMATS, FormatWriter, OPTION_GROUPS, PrintedFormat, find_format, formats_with_option,
};

const OUTPUT_HELP: &str = "\
The output appears only when it is complete: a failure or Ctrl-C leaves no output. The files of a
dataset appear when all are complete. docs/convert.md describes each format and what it leaves out.";

const EXAMPLES: &str = "\
Examples:
  weir convert trace.etl -o trace.csv                    the format follows from the name
  weir convert trace.etl --to jsonl | jq .event          to standard output
  weir convert trace.etl --to collapsed | flamegraph.pl > flame.svg
  weir convert trace.etl -o trace.pftrace                for ui.perfetto.dev
  weir convert trace.etl -o trace.ctf                    a folder for babeltrace2 and Trace Compass
  weir convert perf.data -o app.etl                      import a recording of perf record
  weir convert a.etl b.etl -o both.jsonl --from 2s --until 3s --level warning";

/// Returns the end of the help page, with the options that only some formats take.
fn after_help() -> String {
    let mut page = format!("{OUTPUT_HELP}\n\nOptions that some formats do not take:\n");
    for group in OPTION_GROUPS {
        let formats = formats_with_option(group.first().copied().unwrap_or_default());
        page += &format!("  {}\n      {formats}\n", group.join(", "));
    }
    page + "\n" + EXAMPLES
}

/// Arguments of `weir convert`.
#[derive(Debug, Args)]
#[command(after_help = after_help())]
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
    /// Print numbers instead of the names of enumeration values and flags
    #[arg(long)]
    pub(crate) numeric: bool,
    /// The tables to write [default: events]
    #[arg(long, value_name = "LAYOUT", value_enum)]
    pub(crate) layout: Option<TableLayout>,
    /// The host of traces that do not name it [default: the name of the file]
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum TableLayout {
    /// One table, with the fields of an event as JSON
    #[default]
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
        let is_absent = cfg!(not(feature = "table")) && matches!(format.writer, FormatWriter::Tables(_));
        let remark = if is_absent { "; not in this build" } else { "" };
        let help = format!("{}; for {}{remark}", format.about, format.tools);
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

    /// Returns the options of [`OPTION_GROUPS`] that the command line has.
    pub(crate) fn given_options(&self) -> impl Iterator<Item = &'static str> {
        let (symbols, schemas) = (&self.symbols, &self.schemas);
        let events = &self.filters.events;
        let options = [
            ("--numeric", self.numeric),
            ("--threads", self.threads.requested.is_some()),
            ("--layout", self.layout.is_some()),
            ("--host", self.host.is_some()),
            ("--symbol-path", !symbols.symbol_path.is_empty()),
            ("--no-lines", symbols.no_lines),
            ("--manifest", !schemas.manifest.is_empty()),
            ("--tmf", !schemas.tmf.is_empty()),
            ("--pdb", !schemas.pdb.is_empty()),
            ("--no-binaries", schemas.no_binaries),
            ("--provider", !self.filters.provider.is_empty()),
            ("--event", !events.event.is_empty()),
            ("--level", events.level.is_some()),
            ("--keyword", events.keyword.is_some()),
            ("--pid", !events.pid.is_empty()),
            ("--tid", !events.tid.is_empty()),
            ("--cpu", !events.cpu.is_empty()),
            ("--from", events.from.is_some()),
            ("--until", events.to.is_some()),
            ("--head", events.head.is_some()),
            ("--grep", events.grep.is_some()),
        ];
        options.into_iter().filter(|(_, is_given)| *is_given).map(|(name, _)| name)
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

#[cfg(test)]
mod tests {
    use clap::{ArgAction, Command, FromArgMatches};

    use super::*;

    /// Options that every format takes.
    const COMMON: [&str; 4] = ["--to", "--output", "--force", "--help"];

    #[test]
    fn every_option_belongs_to_one_group_and_is_noticed() {
        let mut command = ConvertArgs::augment_args(Command::new("convert"));
        command.build();
        let mut grouped: Vec<&str> = OPTION_GROUPS.iter().copied().flatten().copied().collect();
        grouped.sort_unstable();
        let mut options = Vec::new();
        for argument in command.get_arguments().filter(|argument| !argument.is_positional()) {
            let option = format!("--{}", argument.get_long().unwrap());
            if COMMON.contains(&&*option) {
                continue;
            }
            let mut line = vec!["convert".to_owned(), "a.etl".to_owned(), option.clone()];
            if !matches!(argument.get_action(), ArgAction::SetTrue) {
                let value = match &*option {
                    "--layout" => "kernel",
                    "--from" | "--until" => "1s",
                    _ => "1",
                };
                line.push(value.to_owned());
            }
            let matches = command.clone().try_get_matches_from(line).unwrap();
            let parsed = ConvertArgs::from_arg_matches(&matches).unwrap();
            assert_eq!(parsed.given_options().collect::<Vec<_>>(), [&*option]);
            options.push(option);
        }
        options.sort_unstable();
        assert_eq!(options, grouped);
    }
}
