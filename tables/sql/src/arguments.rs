//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;

/// The help text.
pub(crate) const HELP: &str = "\
Query event traces and datasets with SQL

Usage: weir sql [OPTIONS] <FILE|FOLDER>… \"SELECT …\"

  FILE     a trace: .etl, .etl.gz, or a ZIP archive with traces
  FOLDER   a dataset that weir convert --to parquet wrote

Tables of a trace: events; one table for each type of event; processes, threads, images,
switches, samples, disk_io, network; losses. Tables of a dataset: its folders.

Options:
      --format FORMAT   table, csv or jsonl; by default table
      --tables          list the tables, with the types of events in the traces
      --schema TABLE    list the columns of a table
      --explain         print the plan of the query instead of running it
      --host NAME       the host of traces that do not name it
      --manifest FILE   read event schemas from a manifest, program or folder (repeatable)
      --symbols PATH    search for symbols in a folder or file too (repeatable)
      --no-programs     read no schemas from programs that the traces name
  -h, --help            print this help
  -V, --version         print the version

Functions: symbol(address [, process_id [, time]]) names the function at an address;
stack_contains(list, value), stack_leaf(list) inspect stacks and lists of functions;
duration(ns), milliseconds(ns), seconds(ns) convert nanoseconds;
field(payload, 'Name') reads a field of a JSON payload.

Examples:
  weir sql trace.etl \"SELECT provider, event, count(*) AS n FROM events GROUP BY 1, 2 ORDER BY n DESC\"
  weir sql trace.etl \"SELECT process, duration(sum(ran_ns)) FROM (SELECT old_process AS process, ran_ns FROM switches) GROUP BY 1\"
  weir sql traces/ \"SELECT host, count(*) FROM events WHERE date = '2026-03-01' GROUP BY host\" --format csv
";

/// How results are printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum OutputFormat {
    #[default]
    Table,
    Csv,
    Jsonl,
}

/// What to do with the inputs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Query(String),
    Explain(String),
    ListTables,
    ShowSchema(String),
}

/// A parsed command line that names inputs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Arguments {
    pub(crate) inputs: Vec<PathBuf>,
    pub(crate) action: Action,
    pub(crate) format: OutputFormat,
    pub(crate) host: Option<String>,
    pub(crate) manifests: Vec<PathBuf>,
    pub(crate) symbols: Vec<PathBuf>,
    pub(crate) ignores_programs: bool,
}

/// A parsed command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Help,
    Version,
    Run(Arguments),
}

/// Parses the arguments after the name of the program.
pub(crate) fn parse(arguments: impl Iterator<Item = OsString>) -> Result<Command, String> {
    let mut positional: Vec<OsString> = Vec::new();
    let mut parsed = Arguments {
        inputs: Vec::new(),
        action: Action::ListTables,
        format: OutputFormat::default(),
        host: None,
        manifests: Vec::new(),
        symbols: Vec::new(),
        ignores_programs: false,
    };
    let (mut lists_tables, mut explains, mut schema) = (false, false, None);
    let mut arguments = arguments;
    let mut only_positional = false;
    while let Some(argument) = arguments.next() {
        let text = argument.to_str().unwrap_or_default();
        if only_positional || !text.starts_with('-') || text == "-" {
            positional.push(argument);
            continue;
        }
        let (name, inline) = match text.split_once('=') {
            Some((name, value)) if name.starts_with("--") => (name, Some(OsString::from(value))),
            _ => (text, None),
        };
        let mut value =
            || inline.clone().or_else(|| arguments.next()).ok_or_else(|| format!("{name} needs a value"));
        let to_text =
            |value: OsString| value.into_string().map_err(|_| format!("the value of {name} is not UTF-8"));
        match name {
            "-h" | "--help" => return Ok(Command::Help),
            "-V" | "--version" => return Ok(Command::Version),
            "--" => only_positional = true,
            "--tables" => lists_tables = true,
            "--explain" => explains = true,
            "--no-programs" => parsed.ignores_programs = true,
            "--schema" => schema = Some(to_text(value()?)?),
            "--host" => parsed.host = Some(to_text(value()?)?),
            "--manifest" => parsed.manifests.push(value()?.into()),
            "--symbols" => parsed.symbols.push(value()?.into()),
            "--format" => {
                parsed.format = match to_text(value()?)?.as_str() {
                    "table" => OutputFormat::Table,
                    "csv" => OutputFormat::Csv,
                    "jsonl" => OutputFormat::Jsonl,
                    other => return Err(format!("unknown format {other:?}: use table, csv or jsonl")),
                };
            }
            unknown => return Err(format!("unknown option {unknown}")),
        }
    }
    parsed.action = match (lists_tables, schema) {
        (true, Some(_)) => return Err("use either --tables or --schema".to_owned()),
        (true, None) => Action::ListTables,
        (false, Some(table)) => Action::ShowSchema(table),
        (false, None) => {
            let query = positional.pop().ok_or("no trace and no query")?;
            let query = query.into_string().map_err(|_| "the query is not UTF-8")?;
            let first =
                query.trim_start().split(|c: char| !c.is_ascii_alphabetic()).next().unwrap_or_default();
            let is_query = ["select", "with", "explain", "show", "describe", "values"];
            let starts_query = is_query.iter().any(|word| first.eq_ignore_ascii_case(word));
            if !starts_query && !query.trim_start().starts_with('(') {
                return Err("the last argument is the query, in quotes: \"SELECT … FROM events\"".to_owned());
            }
            if explains { Action::Explain(query) } else { Action::Query(query) }
        }
    };
    parsed.inputs = positional.into_iter().map(PathBuf::from).collect();
    if parsed.inputs.is_empty() {
        return Err("no trace and no dataset: name files or folders before the query".to_owned());
    }
    Ok(Command::Run(parsed))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_words(words: &[&str]) -> Result<Command, String> {
        parse(words.iter().map(OsString::from))
    }

    #[test]
    fn last_argument_is_the_query() {
        let Ok(Command::Run(parsed)) =
            parse_words(&["a.etl", "--format=csv", "b.etl", "--host", "h", "select 1"])
        else {
            panic!("the command line is valid");
        };
        assert_eq!(parsed.inputs, [PathBuf::from("a.etl"), PathBuf::from("b.etl")]);
        assert_eq!(parsed.action, Action::Query("select 1".to_owned()));
        assert_eq!((parsed.format, parsed.host.as_deref()), (OutputFormat::Csv, Some("h")));
    }

    #[test]
    fn mistakes_are_explained() {
        for (words, part) in [
            (&["a.etl"][..], "the last argument is the query"),
            (&["select 1"], "no trace"),
            (&["a.etl", "--format", "xml", "select 1"], "use table, csv or jsonl"),
            (&["a.etl", "--frob", "select 1"], "unknown option --frob"),
            (&["a.etl", "--schema"], "needs a value"),
            (&[], "no trace"),
        ] {
            let error = parse_words(words).expect_err("the command line is wrong");
            assert!(error.contains(part), "{error}");
        }
        assert_eq!(parse_words(&["--help"]), Ok(Command::Help));
    }
}
