//! The formats of `weir convert`. The help page, the choice of a format by the name of the output,
//! usage errors and the table in `docs/convert.md` come from [`FORMATS`].

use std::fs::File;
use std::io::Write;
use std::path::Path;

use anyhow::Result;
use traceweir_analysis::observer::ReadObserver;
use traceweir_convert::{
    Conversion, ConvertInput, chrome, collapsed, ctf, firefox, otlp, otlp_spans, pcapng, perf_data, perfetto,
    pprof, speedscope,
};

use crate::text::escape_path;

/// A format that `weir convert` writes.
pub(crate) struct ConvertFormat {
    /// The value of `--to`.
    pub(crate) name: &'static str,
    /// Other values of `--to` with the same meaning.
    pub(crate) aliases: &'static [&'static str],
    /// Endings of file names, without the first dot. Each belongs to one format.
    pub(crate) extensions: &'static [&'static str],
    /// The line in the help page.
    pub(crate) about: &'static str,
    /// Tools that open the format.
    pub(crate) tools: &'static str,
    /// The options that the format takes, besides those that every format takes.
    pub(crate) options: &'static [OptionGroup],
    /// What writes the format.
    pub(crate) writer: FormatWriter,
}

/// Names of options that the same formats take.
pub(crate) type OptionGroup = &'static [&'static str];

const PRINT_OPTIONS: OptionGroup = &["--numeric", "--threads"];
const TABLE_OPTIONS: OptionGroup = &["--layout", "--host"];
const SYMBOL_OPTIONS: OptionGroup = &["--symbol-path", "--no-lines"];
const SCHEMA_OPTIONS: OptionGroup = &["--manifest", "--tmf", "--pdb", "--no-binaries"];
const TIME_FILTERS: OptionGroup = &["--from", "--until"];
const THREAD_FILTERS: OptionGroup = &["--event", "--pid", "--tid"];
const OTHER_FILTERS: OptionGroup = &["--provider", "--level", "--keyword", "--cpu", "--head", "--grep"];

/// All groups, in the order of the help page.
pub(crate) const OPTION_GROUPS: [OptionGroup; 7] = [
    PRINT_OPTIONS,
    TABLE_OPTIONS,
    SYMBOL_OPTIONS,
    SCHEMA_OPTIONS,
    TIME_FILTERS,
    THREAD_FILTERS,
    OTHER_FILTERS,
];

/// The options of a format of `weir dump` that shows no functions.
const PRINTER_OPTIONS: &[OptionGroup] =
    &[PRINT_OPTIONS, SCHEMA_OPTIONS, TIME_FILTERS, THREAD_FILTERS, OTHER_FILTERS];
/// The options of a format of `weir dump` that shows functions.
const NAMING_PRINTER_OPTIONS: &[OptionGroup] =
    &[PRINT_OPTIONS, SYMBOL_OPTIONS, SCHEMA_OPTIONS, TIME_FILTERS, THREAD_FILTERS, OTHER_FILTERS];
/// The options of tables.
const DATA_TABLE_OPTIONS: &[OptionGroup] =
    &[TABLE_OPTIONS, SYMBOL_OPTIONS, SCHEMA_OPTIONS, TIME_FILTERS, THREAD_FILTERS, OTHER_FILTERS];
/// The options of a format that selects events by every filter.
const EVENT_OPTIONS: &[OptionGroup] = &[SCHEMA_OPTIONS, TIME_FILTERS, THREAD_FILTERS, OTHER_FILTERS];
/// Those of a format that also names functions.
const ACTIVITY_OPTIONS: &[OptionGroup] =
    &[SYMBOL_OPTIONS, SCHEMA_OPTIONS, TIME_FILTERS, THREAD_FILTERS, OTHER_FILTERS];
/// Those of a format that has call stacks and nothing else.
const STACK_OPTIONS: &[OptionGroup] = &[SYMBOL_OPTIONS, SCHEMA_OPTIONS, TIME_FILTERS, THREAD_FILTERS];
/// Those of the layout `kernel` of tables, whose rows are no events.
pub(crate) const KERNEL_LAYOUT_OPTIONS: &[OptionGroup] =
    &[TABLE_OPTIONS, SYMBOL_OPTIONS, SCHEMA_OPTIONS, TIME_FILTERS];

/// What writes a format.
#[derive(Clone, Copy)]
pub(crate) enum FormatWriter {
    /// The printer of `weir dump`.
    Printer(PrintedFormat),
    /// A converter to one stream. Binary data is not written to a terminal.
    Stream { convert: ConvertToStream, is_binary: bool },
    /// The import of one recording of another tool.
    Import(ImportRecording),
    /// A converter that fills a folder with files of its own names.
    Folder { convert: ConvertToFolder, has_file: HasFile },
    /// Tables: a file, or a folder to which further conversions add.
    Tables(TableFormat),
}

/// A format of tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TableFormat {
    Parquet,
    Arrow,
    ArrowStream,
}

/// Converts traces to one stream.
pub(crate) type ConvertToStream = fn(&ConvertInput, &mut dyn Write) -> Result<Conversion>;

/// Converts traces to files in a folder.
pub(crate) type ConvertToFolder = fn(&ConvertInput, &Path) -> Result<Conversion>;

/// Returns whether a format writes a file of a name.
pub(crate) type HasFile = fn(&str) -> bool;

/// Imports the recording at a path, and writes the trace to a file.
pub(crate) type ImportRecording = fn(&Path, File, &dyn ReadObserver) -> Result<Conversion>;

/// A format of `weir dump`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PrintedFormat {
    Text,
    Jsonl,
    Csv,
    Xml,
}

/// All formats, in the order of the help page.
pub(crate) static FORMATS: &[ConvertFormat] = &[
    ConvertFormat {
        name: "text",
        aliases: &[],
        extensions: &["txt", "log"],
        about: "One line per event",
        tools: "editors and grep",
        options: NAMING_PRINTER_OPTIONS,
        writer: FormatWriter::Printer(PrintedFormat::Text),
    },
    ConvertFormat {
        name: "jsonl",
        aliases: &["json", "ndjson"],
        extensions: &["jsonl", "ndjson", "json"],
        about: "One JSON object per event and line",
        tools: "jq, DuckDB, pandas",
        options: NAMING_PRINTER_OPTIONS,
        writer: FormatWriter::Printer(PrintedFormat::Jsonl),
    },
    ConvertFormat {
        name: "csv",
        aliases: &[],
        extensions: &["csv"],
        about: "Comma-separated values; the fields of an event share one column",
        tools: "spreadsheets",
        options: PRINTER_OPTIONS,
        writer: FormatWriter::Printer(PrintedFormat::Csv),
    },
    ConvertFormat {
        name: "xml",
        aliases: &[],
        extensions: &["xml"],
        about: "XML in the format of tracerpt",
        tools: "tools that read the output of tracerpt",
        options: PRINTER_OPTIONS,
        writer: FormatWriter::Printer(PrintedFormat::Xml),
    },
    ConvertFormat {
        name: "collapsed",
        aliases: &["folded"],
        extensions: &["collapsed", "folded"],
        about: "Call stacks with weights, one line per stack",
        tools: "flamegraph.pl, inferno",
        options: STACK_OPTIONS,
        writer: FormatWriter::Stream { convert: collapsed::convert, is_binary: false },
    },
    ConvertFormat {
        name: "speedscope",
        aliases: &[],
        extensions: &["speedscope.json", "speedscope"],
        about: "Call stacks with weights, as a JSON profile",
        tools: "speedscope.app",
        options: STACK_OPTIONS,
        writer: FormatWriter::Stream { convert: speedscope::convert, is_binary: false },
    },
    ConvertFormat {
        name: "perfetto",
        aliases: &["perfetto-trace"],
        extensions: &["perfetto-trace", "pftrace"],
        about: "Processes, threads, scheduling, slices, counters and samples",
        tools: "ui.perfetto.dev, trace_processor",
        options: ACTIVITY_OPTIONS,
        writer: FormatWriter::Stream { convert: perfetto::convert, is_binary: true },
    },
    ConvertFormat {
        name: "chrome",
        aliases: &["trace-event"],
        extensions: &["trace.json"],
        about: "The same as JSON, in the Trace Event format",
        tools: "chrome://tracing, ui.perfetto.dev",
        options: ACTIVITY_OPTIONS,
        writer: FormatWriter::Stream { convert: chrome::convert, is_binary: false },
    },
    ConvertFormat {
        name: "firefox",
        aliases: &[],
        extensions: &["profile.json"],
        about: "Samples, markers and counters, as a processed profile",
        tools: "profiler.firefox.com, samply",
        options: ACTIVITY_OPTIONS,
        writer: FormatWriter::Stream { convert: firefox::convert, is_binary: false },
    },
    ConvertFormat {
        name: "pprof",
        aliases: &[],
        extensions: &["pprof", "pb.gz"],
        about: "Samples and waits with stacks, as a compressed profile",
        tools: "go tool pprof, Grafana Pyroscope",
        options: ACTIVITY_OPTIONS,
        writer: FormatWriter::Stream { convert: pprof::convert, is_binary: true },
    },
    ConvertFormat {
        name: "pcapng",
        aliases: &["pcap"],
        extensions: &["pcapng"],
        about: "Packets of captures by NDIS and PktMon",
        tools: "Wireshark, tshark",
        options: EVENT_OPTIONS,
        writer: FormatWriter::Stream { convert: pcapng::convert, is_binary: true },
    },
    ConvertFormat {
        name: "otlp",
        aliases: &["otlp-logs"],
        extensions: &["otlp.jsonl"],
        about: "Events as OpenTelemetry logs, one request per line",
        tools: "the OpenTelemetry collector",
        options: EVENT_OPTIONS,
        writer: FormatWriter::Stream { convert: otlp::convert, is_binary: false },
    },
    ConvertFormat {
        name: "otlp-spans",
        aliases: &["otlp-traces"],
        extensions: &["spans.jsonl"],
        about: "Start and stop pairs as OpenTelemetry spans",
        tools: "the OpenTelemetry collector",
        options: EVENT_OPTIONS,
        writer: FormatWriter::Stream { convert: otlp_spans::convert, is_binary: false },
    },
    ConvertFormat {
        name: "ctf",
        aliases: &[],
        extensions: &["ctf"],
        about: "Common Trace Format 1.8, a folder",
        tools: "babeltrace2, Trace Compass",
        options: EVENT_OPTIONS,
        writer: FormatWriter::Folder { convert: ctf::convert, has_file: ctf::has_file },
    },
    ConvertFormat {
        name: "etl",
        aliases: &[],
        extensions: &["etl"],
        about: "Event trace, from the perf.data of perf record",
        tools: "weir, Windows Performance Analyzer",
        options: &[],
        writer: FormatWriter::Import(perf_data::import),
    },
    ConvertFormat {
        name: "parquet",
        aliases: &[],
        extensions: &["parquet"],
        about: "Tables in Parquet, a file or a partitioned folder",
        tools: "DuckDB, Spark, pandas, weir sql",
        options: DATA_TABLE_OPTIONS,
        writer: FormatWriter::Tables(TableFormat::Parquet),
    },
    ConvertFormat {
        name: "arrow",
        aliases: &["feather"],
        extensions: &["arrow", "feather", "arrows"],
        about: "Tables in Arrow IPC, a file, a stream or a folder",
        tools: "pyarrow, Polars, DataFusion",
        options: DATA_TABLE_OPTIONS,
        writer: FormatWriter::Tables(TableFormat::Arrow),
    },
];

/// Names the formats that take an option: "text, jsonl" or "all except etl".
pub(crate) fn formats_with_option(option: &str) -> String {
    let names_of = |takes: bool| -> Vec<&str> {
        let matching = FORMATS.iter().filter(|format| has_option(format.options, option) == takes);
        matching.map(|format| format.name).collect()
    };
    let (takers, others) = (names_of(true), names_of(false));
    if others.len() < takers.len() { format!("all except {}", others.join(", ")) } else { takers.join(", ") }
}

/// Returns whether an option is in one of the groups.
pub(crate) fn has_option(groups: &[OptionGroup], option: &str) -> bool {
    groups.iter().any(|group| group.contains(&option))
}

/// Returns the format with a name or alias, ignoring case.
pub(crate) fn find_format(name: &str) -> Option<&'static ConvertFormat> {
    let has_name = |format: &&ConvertFormat| {
        std::iter::once(&format.name).chain(format.aliases).any(|own| own.eq_ignore_ascii_case(name))
    };
    FORMATS.iter().find(has_name)
}

/// Returns the format that the name of an output ends with; of several, the one with the longest
/// ending.
pub(crate) fn format_of_path(path: &Path) -> Option<&'static ConvertFormat> {
    let name = path.file_name()?.to_str()?.to_ascii_lowercase();
    let endings = FORMATS.iter().flat_map(|format| format.extensions.iter().map(move |end| (end, format)));
    let matching = endings
        .filter(|(end, _)| name.strip_suffix(*end).is_some_and(|stem| stem.len() > 1 && stem.ends_with('.')));
    matching.max_by_key(|(end, _)| end.len()).map(|(_, format)| format)
}

/// Returns a note if the name of an output stands for another format than `written`, which only
/// another command writes.
pub(crate) fn other_format_note(output: &Path, written: &str) -> Option<String> {
    let named = format_of_path(output).filter(|named| named.name != written)?;
    let command = match named.writer {
        FormatWriter::Import(_) => "weir relog",
        _ => "weir convert",
    };
    let name = escape_path(output);
    Some(format!("{name} has the format {written}, not {}, which {command} writes", named.name))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_aliases_and_endings_are_unique() {
        let mut names = BTreeSet::new();
        let mut endings = BTreeSet::new();
        for format in FORMATS {
            for name in std::iter::once(&format.name).chain(format.aliases) {
                assert!(names.insert(*name), "{name}");
                assert_eq!(find_format(&name.to_uppercase()).map(|found| found.name), Some(format.name));
            }
            for ending in format.extensions {
                assert!(endings.insert(*ending), "{ending}");
                let path = format!("out/a.b.{}", ending.to_uppercase());
                assert_eq!(format_of_path(Path::new(&path)).map(|found| found.name), Some(format.name));
            }
            assert!(!format.about.ends_with('.') && !format.about.is_empty(), "{}", format.name);
        }
    }

    /// Returns the table of formats for the documentation.
    fn format_table() -> String {
        let mut table =
            "| Format | Other names | Endings of OUT | Content | Opened by |\n|---|---|---|---|---|\n"
                .to_owned();
        let list = |words: &[&str], prefix: &str| {
            words.iter().map(|word| format!("`{prefix}{word}`")).collect::<Vec<_>>().join(", ")
        };
        for format in FORMATS {
            let (aliases, endings) = (list(format.aliases, ""), list(format.extensions, "."));
            table += &format!(
                "| `{}` | {aliases} | {endings} | {} | {} |\n",
                format.name, format.about, format.tools
            );
        }
        table.replace("|  |", "| – |")
    }

    /// Returns the table of options for the documentation.
    fn option_table() -> String {
        let mut table = "| Options | Formats |\n|---|---|\n".to_owned();
        for group in OPTION_GROUPS {
            let options = group.iter().map(|option| format!("`{option}`")).collect::<Vec<_>>().join(", ");
            table += &format!("| {options} | {} |\n", formats_with_option(group[0]));
        }
        table
    }

    #[test]
    fn documentation_has_the_tables_of_formats_and_options() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/convert.md");
        let page = std::fs::read_to_string(path).unwrap();
        let mut blessed = page.clone();
        for (name, table) in [("formats", format_table()), ("options", option_table())] {
            let begin =
                format!("<!-- The table of {name} begins. A test compares it with the program. -->\n");
            let end = format!("<!-- The table of {name} ends. -->");
            let (before, rest) = blessed.split_once(&begin).unwrap();
            let (_, after) = rest.split_once(&end).unwrap();
            blessed = [before, &begin, &table, &end, after].concat();
        }
        if page != blessed {
            assert!(
                std::env::var_os("BLESS").is_some(),
                "docs/convert.md has other tables; BLESS=1 writes them"
            );
            std::fs::write(path, blessed).unwrap();
        }
    }

    #[test]
    fn longest_ending_selects_the_format() {
        let name_of = |path: &str| format_of_path(Path::new(path)).map(|format| format.name);
        assert_eq!(name_of("a.speedscope.json"), Some("speedscope"));
        assert_eq!(name_of("speedscope.json"), Some("jsonl"));
        assert_eq!(name_of("a.json"), Some("jsonl"));
        for path in ["a", "json", ".json", "a.unknown", "ajson", ""] {
            assert_eq!(name_of(path), None, "{path}");
        }
    }
}
