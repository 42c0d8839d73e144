//! Prints results as a table, CSV or JSON lines.

use std::io::{BufWriter, Stdout, Write};

use anyhow::Result;
use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use datafusion::arrow::csv;
use datafusion::arrow::json::LineDelimitedWriter;
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use traceweir_analysis::text::{escape, format_number};

use crate::arguments::OutputFormat;

/// The most rows of a table on a screen; other formats have no limit.
const MAX_TABLE_ROWS: usize = 10_000;
/// The most characters of a value in a table.
const MAX_CELL_CHARS: usize = 120;

/// Prints batches to standard output.
pub(crate) struct Printer {
    out: BufWriter<Stdout>,
    format: OutputFormat,
    header: Vec<String>,
    rows: Vec<Vec<String>>,
    /// For each column, whether all values are numbers, which are right-aligned.
    is_number: Vec<bool>,
    omitted: u64,
    has_header: bool,
}

impl Printer {
    pub(crate) fn new(format: OutputFormat) -> Self {
        Self {
            out: BufWriter::new(std::io::stdout()),
            format,
            header: Vec::new(),
            rows: Vec::new(),
            is_number: Vec::new(),
            omitted: 0,
            has_header: false,
        }
    }

    pub(crate) fn begin(&mut self, schema: &SchemaRef) -> Result<()> {
        self.header = schema.fields().iter().map(|field| escape(field.name())).collect();
        self.is_number = schema.fields().iter().map(|field| field.data_type().is_numeric()).collect();
        if self.format == OutputFormat::Csv {
            let empty = RecordBatch::new_empty(schema.clone());
            csv::WriterBuilder::new().with_header(true).build(&mut self.out).write(&flatten(&empty)?)?;
            self.has_header = true;
        }
        Ok(())
    }

    pub(crate) fn print(&mut self, batch: &RecordBatch) -> Result<()> {
        match self.format {
            OutputFormat::Table => self.collect(batch)?,
            OutputFormat::Csv => {
                csv::WriterBuilder::new().with_header(false).build(&mut self.out).write(&flatten(batch)?)?;
            }
            OutputFormat::Jsonl => {
                let mut writer = LineDelimitedWriter::new(&mut self.out);
                writer.write(batch)?;
                writer.finish()?;
            }
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
            eprintln!("note: {omitted} more rows; --format csv and --format jsonl print all");
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

/// Returns whether an error means that the reader of standard output ended, as in `| head`.
pub(crate) fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let io = cause.downcast_ref::<std::io::Error>();
        io.is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
            || cause.to_string().contains("Broken pipe")
    })
}
