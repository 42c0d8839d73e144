//! Builds tables row by row, for tables with few rows or simple columns.

use std::sync::Arc;

use anyhow::Result;
use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_schema::SchemaRef;
use traceweir_format::time::FileTime;

use crate::column::Column;

/// The value of one column in a row.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Cell<'a> {
    Null,
    Unsigned(u64),
    Bool(bool),
    Time(FileTime),
    Text(&'a str),
    Numbers(&'a [u64]),
    Texts(&'a [Arc<str>]),
}

impl Cell<'_> {
    fn byte_count(&self) -> usize {
        match self {
            Self::Text(text) => text.len().saturating_add(8),
            Self::Numbers(numbers) => numbers.len().saturating_mul(8),
            Self::Texts(texts) => texts.iter().map(|text| text.len().saturating_add(8)).sum(),
            _ => 8,
        }
    }
}

/// Returns a number as a cell; null for `None`.
pub(crate) fn number(value: Option<impl Into<u64>>) -> Cell<'static> {
    value.map_or(Cell::Null, |value| Cell::Unsigned(value.into()))
}

/// Returns a text as a cell; null for `None`.
pub(crate) fn text(value: Option<&str>) -> Cell<'_> {
    value.map_or(Cell::Null, Cell::Text)
}

/// Builds batches of a schema from rows.
#[derive(Debug)]
pub(crate) struct RowColumns {
    schema: SchemaRef,
    columns: Vec<Column>,
    rows: usize,
    bytes: usize,
}

impl RowColumns {
    pub(crate) fn new(schema: SchemaRef) -> Self {
        let columns = schema.fields().iter().map(|field| Column::new(field.data_type())).collect();
        Self { schema, columns, rows: 0, bytes: 0 }
    }

    pub(crate) const fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    pub(crate) const fn rows(&self) -> usize {
        self.rows
    }

    pub(crate) const fn byte_count(&self) -> usize {
        self.bytes
    }

    /// Appends a row; columns without a cell become null.
    pub(crate) fn push(&mut self, cells: &[Cell<'_>]) {
        self.push_at(cells.iter().enumerate());
    }

    /// Appends a row of cells with the positions of their columns; columns without a cell become
    /// null.
    pub(crate) fn push_at<'c>(&mut self, cells: impl Iterator<Item = (usize, &'c Cell<'c>)>) {
        self.rows = self.rows.saturating_add(1);
        for (position, cell) in cells {
            let Some(column) = self.columns.get_mut(position) else { continue };
            self.bytes = self.bytes.saturating_add(cell.byte_count());
            match *cell {
                Cell::Null => column.push_null(),
                Cell::Unsigned(value) => column.push_unsigned(value),
                Cell::Bool(value) => column.push_bool(value),
                Cell::Time(time) => column.push_time(time),
                Cell::Text(text) => column.push_text(text),
                Cell::Numbers(numbers) => column.push_numbers(Some(numbers.iter().copied())),
                Cell::Texts(texts) => {
                    if let Column::List(list) = column {
                        texts.iter().for_each(|text| list.items.push_text(text));
                    }
                    column.end_list();
                }
            }
        }
        let rows = self.rows;
        self.columns.iter_mut().for_each(|column| column.pad(rows));
    }

    /// Begins new dictionaries for the next batch.
    pub(crate) fn forget_names(&mut self) {
        self.columns.iter_mut().for_each(Column::forget_names);
    }

    pub(crate) fn finish(&mut self) -> Result<RecordBatch> {
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows));
        (self.rows, self.bytes) = (0, 0);
        let arrays = self.columns.iter_mut().map(Column::finish).collect::<Result<Vec<_>, _>>()?;
        Ok(RecordBatch::try_new_with_options(Arc::clone(&self.schema), arrays, &options)?)
    }
}
