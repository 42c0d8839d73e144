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
use traceweir_analysis::filter::EventFilter;
use traceweir_analysis::traces::TraceSet;
use traceweir_convert::perf_data::{FILE_IN_FOLDER, OutputError};
use traceweir_convert::{Conversion, ConvertInput};
use traceweir_format::time::FileTime;

use self::tables::TableConversion;
use self::target::{OutputFile, OutputFolder};
use super::dump;
use crate::cli::{ConvertArgs, TableLayout, exit_with_conflict, exit_with_missing_argument};
use crate::convert_formats::{
    ConvertFormat, ConvertToStream, FormatWriter, ImportRecording, KERNEL_LAYOUT_OPTIONS, PrintedFormat,
    TableFormat, format_of_path, formats_with_option, has_option,
};
use crate::existing_output::is_same_file;
use crate::exit::CommandOutcome;
use crate::filter::{check_times, no_match_hint};
use crate::output::BufferedOutput;
use crate::progress::TerminalObserver;
use crate::reading::{print_import_warnings, print_warnings, reading_outcome, warn_of_missing_images};
use crate::text::{escape_path, format_count};

pub(super) fn run(options: &ConvertArgs) -> Result<CommandOutcome> {
    let format = choose_format(options);
    let output = options.output.as_deref().filter(|path| path.as_os_str() != "-");
    check_options(options, format);
    check_output(options, output)?;
    check_span(options);
    match format.writer {
        FormatWriter::Printer(printed) => print(options, format, printed, output),
        FormatWriter::Stream { is_binary: true, .. }
            if output.is_none() && std::io::stdout().is_terminal() =>
        {
            bail!("{} is binary, and standard output is a terminal: name a file with -o", format.name)
        }
        FormatWriter::Stream { convert, .. } => write_stream(options, format, convert, output),
        FormatWriter::Tables(file_format) => write_tables(options, format, file_format, output),
        FormatWriter::Import(import) => import_recording(options, format, import, output),
        FormatWriter::Folder { convert, has_file } => {
            let Some(output) = output else {
                exit_with_missing_argument(&format!("{} is a folder: name it with -o OUT", format.name));
            };
            let folder = OutputFolder::create(output, options.force, has_file)?;
            let conversion = convert(&build_input(options, false), folder.hidden_path())?;
            let size = folder.finish()?;
            finish(options, &conversion, Some(WrittenOutput { path: output, format, size: Some(size) }))
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

/// Exits with a usage error if the command line has an option that the format does not take.
fn check_options(options: &ConvertArgs, format: &ConvertFormat) {
    for option in options.given_options() {
        if !has_option(format.options, option) {
            exit_with_conflict(&format!(
                "{} does not take {option}; formats that do: {}",
                format.name,
                formats_with_option(option)
            ));
        }
        if options.layout == Some(TableLayout::Kernel) && !has_option(KERNEL_LAYOUT_OPTIONS, option) {
            exit_with_conflict(&format!(
                "--layout kernel does not take {option}: its rows are no events; --from and --until select a time span"
            ));
        }
    }
}

/// Rejects an output that is an input.
fn check_output(options: &ConvertArgs, output: Option<&Path>) -> Result<()> {
    let Some(output) = output else { return Ok(()) };
    // An imported recording may be the file in a folder.
    let is_input =
        |input: &PathBuf| is_same_file(input, output) || is_same_file(&input.join(FILE_IN_FOLDER), output);
    if options.input_paths().any(is_input) {
        bail!("{} is an input; name another file with -o", escape_path(output));
    }
    Ok(())
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
fn print(
    options: &ConvertArgs,
    format: &ConvertFormat,
    printed: PrintedFormat,
    output: Option<&Path>,
) -> Result<CommandOutcome> {
    let dump_options = options.to_dump_args(printed);
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
            let (hidden, file) = OutputFile::create(path, options.force)?;
            let mut out = BufferedOutput::from_file(file);
            let outcome = dump::print_traces(&dump_options, &mut traces, &filter, &mut out)?;
            drop(out);
            if let Some(size) = hidden.finish()? {
                eprintln!("{}: {}, {}", escape_path(path), format.name, format_count(size, "byte"));
            }
            outcome
        }
    };
    warn_of_missing_images(&traces);
    Ok(outcome)
}

/// Writes a format of one stream.
fn write_stream(
    options: &ConvertArgs,
    format: &ConvertFormat,
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
    let (hidden, file) = OutputFile::create(path, options.force)?;
    let mut out = BufferedOutput::from_file(file);
    let conversion = convert(&input, &mut out)?;
    out.flush()?;
    drop(out);
    let size = hidden.finish()?;
    finish(options, &conversion, Some(WrittenOutput { path, format, size }))
}

/// Imports a recording of another tool.
fn import_recording(
    options: &ConvertArgs,
    format: &ConvertFormat,
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
    let (hidden, file) = OutputFile::create(path, options.force)?;
    let conversion = import(recording, file.file, &*TerminalObserver::create(false));
    let conversion = conversion.map_err(|error| match error.is::<OutputError>() {
        true => error.context(format!("cannot write {}", escape_path(path))),
        false => error,
    })?;
    let size = hidden.finish()?;
    print_summary(&conversion, Some(WrittenOutput { path, format, size }));
    print_import_warnings(&conversion.reading);
    Ok(reading_outcome(&conversion.reading))
}

/// Writes tables: a file, or into the folder of a dataset.
fn write_tables(
    options: &ConvertArgs,
    format: &ConvertFormat,
    file_format: TableFormat,
    output: Option<&Path>,
) -> Result<CommandOutcome> {
    let input = build_input(options, output.is_none());
    let tables = TableConversion {
        input: &input,
        layout: options.layout.unwrap_or_default(),
        host: options.host.as_deref(),
    };
    let Some(path) = output else {
        if file_format == TableFormat::Parquet || std::io::stdout().is_terminal() {
            exit_with_missing_argument("tables are binary: name a file or folder with -o OUT");
        }
        let conversion = tables.write_file(TableFormat::ArrowStream, std::io::stdout())?;
        return finish(options, &conversion, None);
    };
    if tables::is_dataset(path) {
        let mut conversion = tables.write_dataset(file_format, path)?;
        if options.force {
            conversion.notes.push("a conversion adds to a dataset; --force has no effect".to_owned());
        }
        return finish(options, &conversion, Some(WrittenOutput { path, format, size: None }));
    }
    let named = format_of_path(path).filter(|named| matches!(named.writer, FormatWriter::Tables(_)));
    if let Some(named) = named.filter(|named| named.name != format.name) {
        let (path, named, format) = (escape_path(path), named.name, format.name);
        exit_with_conflict(&format!("{path} is the name of a file for --to {named}, not --to {format}"));
    }
    let file_format = if tables::is_stream(path) { TableFormat::ArrowStream } else { file_format };
    let (hidden, file) = OutputFile::create(path, options.force)?;
    let conversion = tables.write_file(file_format, file)?;
    let size = hidden.finish()?;
    finish(options, &conversion, Some(WrittenOutput { path, format, size }))
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

/// An output that is complete.
struct WrittenOutput<'a> {
    path: &'a Path,
    format: &'a ConvertFormat,
    /// The size in bytes, if it is known.
    size: Option<u64>,
}

/// Prints the result of a conversion, and returns the outcome of the command.
fn finish(
    options: &ConvertArgs,
    conversion: &Conversion,
    output: Option<WrittenOutput<'_>>,
) -> Result<CommandOutcome> {
    print_summary(conversion, output);
    let filter = EventFilter::new(&options.criteria(), FileTime::default());
    if conversion.events == 0 && filter.is_restrictive() {
        eprintln!("no event matched{}", no_match_hint(&filter));
    }
    print_warnings(&conversion.reading);
    Ok(reading_outcome(&conversion.reading))
}

/// Prints how much was written, and what the output lacks.
fn print_summary(conversion: &Conversion, output: Option<WrittenOutput<'_>>) {
    let written = format_count(conversion.written, conversion.written_noun);
    match output {
        Some(WrittenOutput { path, format, size }) => {
            let size = size.map(|size| format!(", {}", format_count(size, "byte"))).unwrap_or_default();
            eprintln!("{}: {}, {written}{size}", escape_path(path), format.name);
        }
        None => eprintln!("{written}"),
    }
    for note in &conversion.notes {
        eprintln!("note: {note}");
    }
}
