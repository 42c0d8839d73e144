//! `weir convert --to parquet|arrow`: one file, or the folder of a dataset.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::{Context, Result, bail};
use arrow_ipc::writer::StreamWriter;
use traceweir_analysis::event::ReadFlow;
use traceweir_convert::{Conversion, ConvertInput};

use crate::dataset::{DatasetOptions, Layout, write_dataset};
use crate::events::{ColumnSet, EventColumn};
use crate::files::{BatchWriter, FileFormat, HiddenFile, ipc_options};
use crate::scan::{ScanOptions, scan_events};

/// How to convert traces to tables.
#[derive(Clone, Debug)]
pub struct TableOptions {
    /// The format of the files.
    pub format: FileFormat,
    /// The tables. A single file can only have the layout [`Layout::Events`].
    pub layout: Layout,
    /// The host of traces that do not name it.
    pub host: Option<String>,
    /// Whether the functions of stacks are written too, by their names.
    pub functions: bool,
}

/// Returns the format of a file by its name; `None` for the name of a folder.
#[must_use]
pub fn format_of_file(path: &Path) -> Option<FileFormat> {
    match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
        "parquet" => Some(FileFormat::Parquet),
        "arrow" | "feather" => Some(FileFormat::Arrow),
        "arrows" => Some(FileFormat::ArrowStream),
        _ => None,
    }
}

/// Converts traces to one file or a dataset, as the name of the output says: `.parquet`, `.arrow`
/// and `.feather` are files, `.arrows` a stream, `-` a stream to standard output, and every other
/// name is a folder.
pub fn convert_to_tables(input: &ConvertInput, options: &TableOptions, output: &Path) -> Result<Conversion> {
    let file_format = if output.as_os_str() == "-" {
        Some(FileFormat::ArrowStream)
    } else if output.is_dir() {
        None
    } else {
        format_of_file(output)
    };
    let is_parquet = options.format == FileFormat::Parquet;
    let Some(format) = file_format else {
        let format = if is_parquet { FileFormat::Parquet } else { FileFormat::Arrow };
        let TableOptions { layout, host, functions, .. } = options.clone();
        return write_dataset(input, &DatasetOptions { layout, format, host, functions }, output);
    };
    if options.layout != Layout::Events {
        bail!("a single file has one table: use -o FOLDER for this layout");
    }
    if is_parquet != (format == FileFormat::Parquet) {
        let name = output.display();
        bail!(
            "{name} is the name of another format: use .parquet with --to parquet, .arrow or .arrows with --to arrow, or the name of a folder"
        );
    }
    if output.as_os_str() == "-" {
        return write_file(input, options, format, std::io::stdout()).map(|(conversion, _)| conversion);
    }
    let written = match output.symlink_metadata() {
        // Renaming would replace a device, a pipe or a link.
        Ok(metadata) if !metadata.is_file() => write_in_place(input, options, format, output),
        _ => write_and_rename(input, options, format, output),
    };
    written.with_context(|| output.display().to_string())
}

fn write_in_place(
    input: &ConvertInput,
    options: &TableOptions,
    format: FileFormat,
    output: &Path,
) -> Result<Conversion> {
    let (conversion, mut out) = write_file(input, options, format, BufWriter::new(File::create(output)?))?;
    out.flush()?;
    Ok(conversion)
}

/// Writes a file that has its name only when it is complete.
fn write_and_rename(
    input: &ConvertInput,
    options: &TableOptions,
    format: FileFormat,
    output: &Path,
) -> Result<Conversion> {
    let (hidden, file) = HiddenFile::create(output)?;
    let (conversion, mut out) = write_file(input, options, format, BufWriter::new(file))?;
    out.flush()?;
    drop(out);
    hidden.rename(output)?;
    Ok(conversion)
}

/// Writes the table `events` to `out`.
pub fn write_file<W: Write + Send>(
    input: &ConvertInput,
    options: &TableOptions,
    format: FileFormat,
    out: W,
) -> Result<(Conversion, W)> {
    let columns =
        if options.functions { ColumnSet::ALL } else { ColumnSet::ALL.without(EventColumn::Functions) };
    let scan = ScanOptions { columns, host: options.host.clone(), ..ScanOptions::default() };
    let schema = columns.schema();
    if format == FileFormat::ArrowStream {
        let mut writer = StreamWriter::try_new_with_options(out, &schema, ipc_options()?)?;
        let conversion = scan_events(input, &scan, &mut |batch| {
            writer.write(&batch)?;
            Ok(ReadFlow::Continue)
        })?;
        writer.finish()?;
        return Ok((conversion, writer.into_inner()?));
    }
    let mut writer = BatchWriter::new(out, format, &schema)?;
    let conversion = scan_events(input, &scan, &mut |batch| {
        writer.write(&batch)?;
        Ok(ReadFlow::Continue)
    })?;
    Ok((conversion, writer.finish()?))
}
