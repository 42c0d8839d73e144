//! `weir convert`: writes traces in the formats of other tools.
//!
//! ```text
//!   traces ──▶ printer of weir dump ──┐
//!         └──▶ crate convert ─────────┴──▶ standard output, or a hidden file beside OUT ──▶ OUT
//! ```

mod tables;
mod target;

use std::io::IsTerminal;
use std::mem::discriminant;
use std::path::{Path, PathBuf};

use anstream::eprintln;
use anyhow::{Result, bail};
use traceweir_analysis::filter::{EventFilter, FilterCriteria};
use traceweir_analysis::traces::TraceSet;
use traceweir_convert::perf_data::FILE_IN_FOLDER;
use traceweir_convert::{Conversion, ConvertInput};
use traceweir_format::time::FileTime;

use self::target::{OutputFile, OutputFolder};
use super::dump;
use crate::cli::{ConvertArgs, exit_with_missing_argument};
use crate::convert_formats::{
    ConvertFormat, ConvertToStream, FormatWriter, ImportRecording, PrintedFormat, format_of_path,
};
use crate::existing_output::{self, is_same_file};
use crate::exit::CommandOutcome;
use crate::filter::{check_times, no_match_hint};
use crate::output::BufferedOutput;
use crate::progress::TerminalObserver;
use crate::reading::{note_missing_images, print_warnings, reading_outcome};
use crate::text::{escape_path, format_count};

pub(super) fn run(options: &ConvertArgs) -> Result<CommandOutcome> {
    let format = choose_format(options);
    let output = options.output.as_deref().filter(|path| path.as_os_str() != "-");
    check_output(options, format, output)?;
    check_span(options);
    match format.writer {
        FormatWriter::Printer(printed) => print(options, printed, output),
        FormatWriter::Stream { is_binary: true, .. }
            if output.is_none() && std::io::stdout().is_terminal() =>
        {
            bail!("{} is binary, and standard output is a terminal: name a file with -o", format.name)
        }
        FormatWriter::Stream { convert, .. } => write_stream(options, convert, output),
        FormatWriter::Tables { is_parquet } => write_tables(options, is_parquet, output),
        FormatWriter::Import(import) => import_recording(options, import, output),
        FormatWriter::Folder { convert, has_file } => {
            let Some(output) = output else {
                exit_with_missing_argument(&format!("{} is a folder: name it with -o OUT", format.name));
            };
            let folder = OutputFolder::create(output, options.force, has_file)?;
            let conversion = convert(&build_input(options, false), folder.hidden_path())?;
            let size = folder.finish()?;
            finish(options, &conversion, Some((output, Some(size))))
        }
    }
}

/// Returns the format that `--to` names, or else that of the output's name.
fn choose_format(options: &ConvertArgs) -> &'static ConvertFormat {
    let by_name = || format_of_path(options.output.as_deref()?);
    if let Some(format) = options.format.map(|choice| choice.0).or_else(by_name) {
        return format;
    }
    let reason = match &options.output {
        Some(output) if output.as_os_str() != "-" => {
            format!("the name {} does not tell the format: name it with --to FORMAT", escape_path(output))
        }
        _ => {
            "name the format with --to FORMAT, or by the name of the output, such as -o trace.csv".to_owned()
        }
    };
    exit_with_missing_argument(&reason)
}

/// Rejects an output that is an input, and a file that exists.
fn check_output(options: &ConvertArgs, format: &ConvertFormat, output: Option<&Path>) -> Result<()> {
    let Some(output) = output else { return Ok(()) };
    // An imported recording may be the file in a folder.
    let is_input =
        |input: &PathBuf| is_same_file(input, output) || is_same_file(&input.join(FILE_IN_FOLDER), output);
    if options.input_paths().any(is_input) {
        bail!("{} is an input; name another file with -o", escape_path(output));
    }
    match format.writer {
        FormatWriter::Folder { .. } => Ok(()),
        FormatWriter::Tables { .. } if tables::is_dataset(output) => Ok(()),
        _ => existing_output::check_other(output, options.force),
    }
}

/// Exits with a usage error if no time can pass. Times of different kinds are compared when the start
/// of the trace is known.
fn check_span(options: &ConvertArgs) {
    let criteria = options.criteria();
    let kinds = criteria.from.zip(criteria.to).map(|(from, to)| (discriminant(&from), discriminant(&to)));
    if kinds.is_some_and(|(from, to)| from == to) {
        check_times(&EventFilter::new(&criteria, FileTime::default()), "--until");
    }
}

/// Writes a format of `weir dump`.
fn print(options: &ConvertArgs, format: PrintedFormat, output: Option<&Path>) -> Result<CommandOutcome> {
    let dump_options = options.to_dump_args(format);
    let is_on_terminal = output.is_none() && std::io::stdout().is_terminal();
    let schemas = options.schemas.files();
    let mut traces =
        TraceSet::open(&options.files.files, &schemas, TerminalObserver::create(is_on_terminal))?;
    let filter = EventFilter::new(&options.criteria(), traces.start());
    check_times(&filter, "--until");
    let outcome = match output {
        None => {
            let mut out = BufferedOutput::open(None)?;
            dump::print_traces(&dump_options, &mut traces, &filter, &mut out)?
        }
        Some(path) => {
            let (hidden, file) = OutputFile::create(path)?;
            let mut out = BufferedOutput::from_file(file);
            let outcome = dump::print_traces(&dump_options, &mut traces, &filter, &mut out)?;
            drop(out);
            print_size(path, hidden.finish()?);
            outcome
        }
    };
    note_missing_images(&traces);
    Ok(outcome)
}

/// Writes a format of one stream.
fn write_stream(
    options: &ConvertArgs,
    convert: ConvertToStream,
    output: Option<&Path>,
) -> Result<CommandOutcome> {
    let input = build_input(options, output.is_none());
    let Some(path) = output else {
        let mut out = BufferedOutput::open(None)?;
        let conversion = convert(&input, &mut out)?;
        out.flush()?;
        return finish(options, &conversion, None);
    };
    let (hidden, file) = OutputFile::create(path)?;
    let mut out = BufferedOutput::from_file(file);
    let conversion = convert(&input, &mut out)?;
    out.flush()?;
    drop(out);
    let size = hidden.finish()?;
    finish(options, &conversion, Some((path, size)))
}

/// Imports a recording of another tool.
fn import_recording(
    options: &ConvertArgs,
    import: ImportRecording,
    output: Option<&Path>,
) -> Result<CommandOutcome> {
    let Some(path) = output else {
        exit_with_missing_argument("the trace is a file: name it with -o OUT.etl");
    };
    let [recording] = options.files.files.as_slice() else {
        exit_with_missing_argument("an import reads one recording: name one file");
    };
    if recording.extension().is_some_and(|extension| extension == "etl") {
        bail!("{} is a trace already; weir relog copies traces", escape_path(recording));
    }
    if options.criteria() != FilterCriteria::default() {
        bail!("an import takes the whole recording; filter the trace with weir relog afterwards");
    }
    let (hidden, file) = OutputFile::create(path)?;
    let conversion = import(recording, file, &*TerminalObserver::create(false))?;
    let size = hidden.finish()?;
    finish(options, &conversion, Some((path, size)))
}

/// Writes tables: a file, or into the folder of a dataset.
fn write_tables(options: &ConvertArgs, is_parquet: bool, output: Option<&Path>) -> Result<CommandOutcome> {
    if output.is_none() && (is_parquet || std::io::stdout().is_terminal()) {
        exit_with_missing_argument("tables are binary: name a file or folder with -o OUT");
    }
    let target = tables::TableTarget {
        is_parquet,
        layout: options.layout,
        host: options.host.as_deref(),
        output: output.unwrap_or_else(|| Path::new("-")),
    };
    let conversion = tables::convert(&build_input(options, output.is_none()), &target)?;
    let size = output.and_then(|path| path.metadata().ok()).filter(std::fs::Metadata::is_file);
    finish(options, &conversion, output.map(|path| (path, size.map(|metadata| metadata.len()))))
}

fn build_input(options: &ConvertArgs, is_on_stdout: bool) -> ConvertInput {
    let is_on_terminal = is_on_stdout && std::io::stdout().is_terminal();
    ConvertInput {
        files: options.files.files.clone(),
        schemas: options.schemas.files(),
        symbols: options.symbols.options(),
        criteria: options.criteria(),
        observer: TerminalObserver::create(is_on_terminal),
    }
}

/// Prints the result of a conversion, and returns the outcome of the command.
fn finish(
    options: &ConvertArgs,
    conversion: &Conversion,
    output: Option<(&Path, Option<u64>)>,
) -> Result<CommandOutcome> {
    print_summary(conversion, output);
    if conversion.events == 0 {
        let filter = EventFilter::new(&options.criteria(), FileTime::default());
        eprintln!("no event matched{}", no_match_hint(&filter));
    }
    print_warnings(&conversion.reading);
    Ok(reading_outcome(&conversion.reading))
}

fn print_size(path: &Path, size: Option<u64>) {
    if let Some(size) = size {
        eprintln!("{}: {}", escape_path(path), format_count(size, "byte"));
    }
}

/// Prints how much was written, and what the output lacks.
fn print_summary(conversion: &Conversion, output: Option<(&Path, Option<u64>)>) {
    let written = format_count(conversion.written, conversion.written_noun);
    match output {
        Some((path, Some(size))) => {
            eprintln!("{}: {written}, {}", escape_path(path), format_count(size, "byte"));
        }
        Some((path, None)) => eprintln!("{}: {written}", escape_path(path)),
        None => eprintln!("{written}"),
    }
    for note in &conversion.notes {
        eprintln!("note: {note}");
    }
}
