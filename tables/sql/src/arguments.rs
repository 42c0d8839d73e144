//! The command line. Options have the names that they have in `weir dump` and `weir convert`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, ValueEnum};
use traceweir_analysis::schema_files::SchemaFiles;

const AFTER_HELP: &str = "\
Tables of a trace: events; one table for each type of event; processes, threads, images, switches,
samples, disk_io, network; losses. Tables of a dataset: its folders.

Functions: symbol(address [, process_id [, time]]) names the function at an address;
stack_contains(list, value), stack_leaf(list) inspect stacks and lists of functions;
duration(ns), milliseconds(ns), seconds(ns) convert nanoseconds;
field(payload, 'Name') reads a field of a JSON payload.

Examples:
  weir sql trace.etl \"SELECT provider, event, count(*) AS n FROM events GROUP BY 1, 2 ORDER BY n DESC\"
  weir sql trace.etl \"SELECT old_process, duration(sum(ran_ns)) FROM switches GROUP BY 1\"
  weir sql traces/ \"SELECT host, count(*) FROM events WHERE date = '2026-03-01' GROUP BY host\" -f csv";

/// How results are printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputFormat {
    /// Columns, for people; at most 10,000 rows
    #[default]
    Table,
    /// Comma-separated values with a header line
    Csv,
    /// One JSON object per row
    #[value(alias = "json", alias = "ndjson")]
    Jsonl,
}

/// Query event traces and datasets with SQL
#[derive(Debug, Parser)]
#[command(name = "weir-sql", bin_name = "weir sql", version, after_help = AFTER_HELP)]
#[command(override_usage = "weir sql [OPTIONS] <FILE|FOLDER>... \"SELECT ...\"")]
struct Options {
    /// Traces (.etl, .etl.gz, or ZIP archives of them), or datasets that weir convert --to parquet
    /// wrote; then the query
    #[arg(required_unless_present = "man", value_name = "FILE|FOLDER|QUERY")]
    operands: Vec<OsString>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    format: OutputFormat,
    /// List the tables, with the types of events in the traces
    #[arg(long)]
    tables: bool,
    /// List the columns of a table
    #[arg(long, value_name = "TABLE", conflicts_with = "tables")]
    schema: Option<String>,
    /// Print the plan of the query instead of running it
    #[arg(long, conflicts_with_all = ["tables", "schema"])]
    explain: bool,
    /// The host of traces that do not name it [default: the name of the file]
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
    /// Search for symbols in this folder or file too; may be repeated
    #[arg(long, value_name = "PATH")]
    symbol_path: Vec<PathBuf>,
    /// Instrumentation manifest (XML), a PE or ELF file with a compiled one, or a folder of these
    #[arg(long, value_name = "FILE|DIR", help_heading = "Schemas")]
    manifest: Vec<PathBuf>,
    /// Message formats of WPP events: a TMF file or a folder of TMF files
    #[arg(long, value_name = "FILE|DIR", help_heading = "Schemas")]
    tmf: Vec<PathBuf>,
    /// Message formats of WPP events: a PDB file
    #[arg(long, value_name = "FILE", help_heading = "Schemas")]
    pdb: Vec<PathBuf>,
    /// Do not read schemas from program files that the trace names
    #[arg(long, help_heading = "Schemas")]
    no_binaries: bool,
    /// Print the manual page, in the format of man
    #[arg(long, exclusive = true)]
    man: bool,
}

/// What to do with the inputs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Query(String),
    Explain(String),
    ListTables,
    ShowSchema(String),
    PrintManual,
}

/// A parsed command line.
#[derive(Debug)]
pub(crate) struct Arguments {
    pub(crate) inputs: Vec<PathBuf>,
    pub(crate) action: Action,
    pub(crate) format: OutputFormat,
    pub(crate) host: Option<String>,
    pub(crate) schemas: SchemaFiles,
    pub(crate) symbol_paths: Vec<PathBuf>,
}

/// Parses a command line that begins with the name of the program.
pub(crate) fn parse(arguments: impl Iterator<Item = OsString>) -> Result<Arguments, clap::Error> {
    let options = Options::try_parse_from(arguments)?;
    let mut operands = options.operands;
    let missing = |message: &str| Options::command().error(ErrorKind::MissingRequiredArgument, message);
    let action = match (options.tables, options.schema) {
        _ if options.man => Action::PrintManual,
        (true, _) => Action::ListTables,
        (false, Some(table)) => Action::ShowSchema(table),
        (false, None) => {
            let query = operands.pop().and_then(|query| query.into_string().ok());
            let query = query.filter(|query| is_query(query)).ok_or_else(|| {
                missing("the last argument is the query, in quotes: \"SELECT … FROM events\"")
            })?;
            if options.explain { Action::Explain(query) } else { Action::Query(query) }
        }
    };
    if operands.is_empty() && !options.man {
        return Err(missing("no trace and no dataset: name files or folders before the query"));
    }
    Ok(Arguments {
        inputs: operands.into_iter().map(PathBuf::from).collect(),
        action,
        format: options.format,
        host: options.host,
        schemas: SchemaFiles {
            manifests: options.manifest,
            tmf: options.tmf,
            pdb: options.pdb,
            ignores_programs: options.no_binaries,
        },
        symbol_paths: options.symbol_path,
    })
}

/// Returns the lines of the manual page, in the format of man.
pub(crate) fn manual_lines() -> std::io::Result<Vec<String>> {
    let mut page = Vec::new();
    clap_mangen::Man::new(Options::command()).render(&mut page)?;
    Ok(String::from_utf8_lossy(&page).lines().map(str::to_owned).collect())
}

/// Returns whether a text begins like a query, and not like the name of a file.
fn is_query(text: &str) -> bool {
    let text = text.trim_start();
    let first = text.split(|c: char| !c.is_ascii_alphabetic()).next().unwrap_or_default();
    let words = ["select", "with", "explain", "show", "describe", "values"];
    words.iter().any(|word| first.eq_ignore_ascii_case(word)) || text.starts_with('(')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_words(words: &[&str]) -> Result<Arguments, clap::Error> {
        parse(["weir-sql"].iter().chain(words).map(OsString::from))
    }

    #[test]
    fn last_argument_is_the_query() {
        let parsed = parse_words(&["a.etl", "--format=csv", "b.etl", "--host", "h", "select 1"]).unwrap();
        assert_eq!(parsed.inputs, [PathBuf::from("a.etl"), PathBuf::from("b.etl")]);
        assert_eq!(parsed.action, Action::Query("select 1".to_owned()));
        assert_eq!((parsed.format, parsed.host.as_deref()), (OutputFormat::Csv, Some("h")));
    }

    #[test]
    fn options_have_the_names_of_other_commands() {
        let parsed = parse_words(&[
            "--symbol-path",
            "s",
            "--manifest",
            "m",
            "--tmf",
            "t",
            "--pdb",
            "p",
            "--no-binaries",
            "-f",
            "json",
            "a.etl",
            "(select 1)",
        ]);
        let parsed = parsed.unwrap();
        let paths = |path: &str| vec![PathBuf::from(path)];
        assert_eq!(parsed.symbol_paths, paths("s"));
        let SchemaFiles { manifests, tmf, pdb, ignores_programs } = parsed.schemas;
        assert_eq!((manifests, tmf, pdb), (paths("m"), paths("t"), paths("p")));
        assert!(ignores_programs);
        assert_eq!(parsed.format, OutputFormat::Jsonl);
    }

    #[test]
    fn mistakes_are_explained() {
        for (words, part) in [
            (&["a.etl"][..], "the last argument is the query"),
            (&["select 1"], "no trace"),
            (&["a.etl", "--format", "xml", "select 1"], "[possible values: table, csv, jsonl]"),
            (&["a.etl", "--frob", "select 1"], "unexpected argument '--frob'"),
            (&["a.etl", "--schema"], "a value is required"),
            (&["a.etl", "--tables", "--schema", "events"], "cannot be used with"),
            (&[], "required"),
        ] {
            let error = parse_words(words).expect_err("the command line is wrong").to_string();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn manual_page_names_every_option() {
        assert_eq!(parse_words(&["--man"]).unwrap().action, Action::PrintManual);
        assert!(parse_words(&["--man", "a.etl"]).is_err());
        // A page has a backslash before each hyphen.
        let page = manual_lines().unwrap().concat().replace('\\', "");
        for option in Options::command().get_arguments().filter_map(clap::Arg::get_long) {
            assert!(page.contains(&format!("--{option}")), "{option}");
        }
    }

    #[test]
    fn help_lists_every_option() {
        Options::command().debug_assert();
        let help = parse_words(&["--help"]).expect_err("help ends the program");
        assert_eq!(help.exit_code(), 0);
        assert!(help.to_string().contains("--symbol-path <PATH>"), "{help}");
    }
}
