//! Prints results as a table, CSV or JSON lines.

use std::collections::BTreeSet;
use std::io::{BufWriter, IsTerminal, Stdout, Write, stderr, stdout};
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::Result;
use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use datafusion::arrow::csv;
use datafusion::arrow::json::LineDelimitedWriter;
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use traceweir_analysis::text::{escape, format_number};
use traceweir_analysis::traces::ReadSummary;

use crate::arguments::OutputFormat;

/// The most rows of a table on a screen; other formats have no limit.
const MAX_TABLE_ROWS: usize = 10_000;
/// The most characters of a value in a table.
const MAX_CELL_CHARS: usize = 120;

/// Prints batches to standard output.
pub(crate) struct Printer {
    out: BufWriter<Stdout>,
    is_terminal: bool,
    format: OutputFormat,
    header: Vec<String>,
    rows: Vec<Vec<String>>,
    /// For each column, whether all values are numbers, which are right-aligned.
    is_number: Vec<bool>,
    omitted: u64,
}

impl Printer {
    pub(crate) fn new(format: OutputFormat) -> Self {
        Self {
            out: BufWriter::new(stdout()),
            is_terminal: stdout().is_terminal(),
            format,
            header: Vec::new(),
            rows: Vec::new(),
            is_number: Vec::new(),
            omitted: 0,
        }
    }

    pub(crate) fn begin(&mut self, schema: &SchemaRef) -> Result<()> {
        self.header = schema.fields().iter().map(|field| escape(field.name())).collect();
        self.is_number = schema.fields().iter().map(|field| field.data_type().is_numeric()).collect();
        if self.format == OutputFormat::Csv {
            self.print_csv(&RecordBatch::new_empty(schema.clone()), true)?;
        }
        Ok(())
    }

    pub(crate) fn print(&mut self, batch: &RecordBatch) -> Result<()> {
        match self.format {
            OutputFormat::Table => self.collect(batch)?,
            OutputFormat::Csv => self.print_csv(batch, false)?,
            OutputFormat::Jsonl => {
                let mut text = Vec::new();
                let mut writer = LineDelimitedWriter::new(&mut text);
                writer.write(batch)?;
                writer.finish()?;
                self.write_text(&text)?;
            }
        }
        Ok(())
    }

    fn print_csv(&mut self, batch: &RecordBatch, has_header: bool) -> Result<()> {
        let mut text = Vec::new();
        csv::WriterBuilder::new().with_header(has_header).build(&mut text).write(&flatten(batch)?)?;
        self.write_text(&text)
    }

    /// Writes lines. On a terminal, their control characters are escaped: texts of traces are
    /// untrusted, and a format may allow these characters.
    fn write_text(&mut self, text: &[u8]) -> Result<()> {
        match self.is_terminal {
            true => self.out.write_all(&escape_lines(text))?,
            false => self.out.write_all(text)?,
        }
        Ok(())
    }

    /// Keeps the rows of a table until their widths are known.
    fn collect(&mut self, batch: &RecordBatch) -> Result<()> {
        let options = FormatOptions::default();
        let columns = batch
            .columns()
            .iter()
            .map(|column| ArrayFormatter::try_new(column, &options))
            .collect::<Result<Vec<_>, _>>()?;
        for row in 0..batch.num_rows() {
            if self.rows.len() >= MAX_TABLE_ROWS {
                self.omitted = self.omitted.saturating_add((batch.num_rows() - row) as u64);
                break;
            }
            // Texts of traces are untrusted: no value leaves its line or controls a terminal.
            let cells = columns.iter().map(|column| shorten(&escape(&column.value(row).to_string())));
            self.rows.push(cells.collect());
        }
        Ok(())
    }

    pub(crate) fn end(mut self) -> Result<()> {
        if self.format == OutputFormat::Table {
            self.print_table()?;
        }
        self.out.flush()?;
        if self.omitted > 0 {
            let omitted = format_number(self.omitted);
            let note = format!("{omitted} more rows; --format csv and --format jsonl print all");
            print_message("note", &note);
        }
        Ok(())
    }

    fn print_table(&mut self) -> Result<()> {
        let mut widths: Vec<usize> = self.header.iter().map(|name| name.chars().count()).collect();
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let Self { out, header, rows, is_number, .. } = self;
        let mut print_row = |cells: &[String]| -> Result<()> {
            let mut line = String::new();
            for ((cell, width), is_number) in cells.iter().zip(&widths).zip(is_number.iter()) {
                if !line.is_empty() {
                    line.push_str("  ");
                }
                let padding = " ".repeat(width.saturating_sub(cell.chars().count()));
                let parts = if *is_number { [padding.as_str(), cell] } else { [cell.as_str(), &padding] };
                line.extend(parts);
            }
            Ok(writeln!(out, "{}", line.trim_end())?)
        };
        print_row(header)?;
        let rules: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
        print_row(&rules)?;
        rows.iter().try_for_each(|row| print_row(row))
    }
}

fn shorten(cell: &str) -> String {
    match cell.char_indices().nth(MAX_CELL_CHARS) {
        Some((end, _)) => format!("{}…", cell.get(..end).unwrap_or_default()),
        None => cell.to_owned(),
    }
}

/// Returns a batch with texts in place of lists, which CSV does not have.
fn flatten(batch: &RecordBatch) -> Result<RecordBatch> {
    use arrow_array::{Array, ArrayRef, StringArray};
    use arrow_schema::{DataType, Field, Schema};
    use std::sync::Arc;

    let options = FormatOptions::default();
    let mut fields: Vec<Arc<Field>> = Vec::new();
    let mut columns: Vec<ArrayRef> = Vec::new();
    for (field, column) in batch.schema().fields().iter().zip(batch.columns()) {
        if field.data_type().is_nested() || *field.data_type() == DataType::Binary {
            let formatter = ArrayFormatter::try_new(column, &options)?;
            let text = |row| (!column.is_null(row)).then(|| formatter.value(row).to_string());
            let texts: StringArray = (0..column.len()).map(text).collect();
            fields.push(Arc::new(Field::new(field.name(), DataType::Utf8, true)));
            columns.push(Arc::new(texts));
        } else {
            fields.push(Arc::clone(field));
            columns.push(Arc::clone(column));
        }
    }
    let options = arrow_array::RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    Ok(RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options)?)
}

/// Escapes each of several lines for a terminal.
fn escape_lines(text: &[u8]) -> Vec<u8> {
    let mut escaped = Vec::with_capacity(text.len());
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        let content = line.strip_suffix(b"\n").unwrap_or(line);
        escaped.extend_from_slice(escape(&String::from_utf8_lossy(content)).as_bytes());
        escaped.extend_from_slice(line.get(content.len()..).unwrap_or_default());
    }
    escaped
}

/// Prints lines to standard output.
pub(crate) fn print_lines(lines: &[String]) -> Result<()> {
    let mut out = BufWriter::new(stdout());
    lines.iter().try_for_each(|line| writeln!(out, "{line}"))?;
    Ok(out.flush()?)
}

/// What reading the traces of a query found.
struct Findings {
    is_damaged: bool,
    /// The warnings that were printed: a query may read a trace several times.
    printed: BTreeSet<String>,
}

static FINDINGS: Mutex<Findings> = Mutex::new(Findings { is_damaged: false, printed: BTreeSet::new() });

fn lock_findings() -> MutexGuard<'static, Findings> {
    FINDINGS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Prints defects and losses of traces, each once.
pub(crate) fn print_findings(reading: &ReadSummary) {
    let mut findings = lock_findings();
    findings.is_damaged |= reading.is_damaged;
    let defects = reading.warnings.iter().map(ToString::to_string);
    for warning in defects.chain(reading.losses.iter().cloned()) {
        if !findings.printed.contains(&warning) {
            print_message("warning", &escape(&warning));
            findings.printed.insert(warning);
        }
    }
}

/// Returns whether a trace of the query is damaged, so that only its readable part was read.
pub(crate) fn found_damage() -> bool {
    lock_findings().is_damaged
}

/// Prints a message for people to standard error.
pub(crate) fn print_message(kind: &str, message: &str) {
    // If nothing reads standard error, nothing reads this error.
    let _ = writeln!(stderr(), "{kind}: {message}");
}

/// Returns whether an error means that the reader of standard output ended, as in `| head`.
pub(crate) fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let io_errors = error.chain().filter_map(|cause| cause.downcast_ref::<std::io::Error>());
    io_errors.map(std::io::Error::kind).any(|kind| kind == std::io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_for_terminals_have_no_control_characters() {
        let escaped = escape_lines("a,\"b\u{1b}[2J\nc\"\nd\u{9b}".as_bytes());
        assert_eq!(String::from_utf8_lossy(&escaped), "a,\"b\\x1b[2J\nc\"\nd\\x9b");
    }
}
