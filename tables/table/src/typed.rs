//! One table for each type of event, with the fields of the payload as typed columns.
//!
//! ```text
//!   schema ──▶ TypeLayout: field ─▶ column, type, safe name
//!   payload ──walk──▶ TypedRow ──▶ columns: head (time, process, …), then fields
//! ```
//!
//! | field | column |
//! |---|---|
//! | integer, floating-point number, Boolean | the same, as the out type says |
//! | pointer | `UInt64` |
//! | mapped integer | dictionary of the names; the number as text where the map has none |
//! | FILETIME, SYSTEMTIME | timestamp in nanoseconds, UTC; null outside 1677 to 2262 |
//! | text, GUID, SID, address of a network | `Utf8` |
//! | other bytes | `Binary` |
//! | array of values | list of the type |
//! | structure, array of structures | `Utf8` with JSON |

mod layout;
mod row;
mod values;

use std::sync::Arc;

use anyhow::Result;
use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_schema::DataType;
use traceweir_analysis::event::DescribedEvent;
use traceweir_decode::walk::Walker;

pub use self::layout::{FIELD_NAME_KEY, HEAD_COLUMNS, TypeLayout};
use self::row::TypedRow;
use crate::column::Column;
use crate::events::{ColumnSet, EventColumn, EventColumns};
use crate::json::JsonNesting;

/// Bytes of a row in each column besides texts and lists, for limits of memory.
const COLUMN_BYTES: usize = 8;

/// Builds the rows of the table of one event type.
#[derive(Debug)]
pub struct TypedColumns {
    layout: Arc<TypeLayout>,
    head: EventColumns,
    fields: Vec<Column>,
    /// `None` if the layout has no such column.
    raw: Option<Column>,
    /// Whether a column needs the payload.
    is_walked: bool,
    field_bytes: usize,
    walker: Walker,
    scratch: Vec<u8>,
}

impl TypedColumns {
    /// Creates builders for a layout, with the same columns before the fields as the layout.
    #[must_use]
    pub fn new(layout: Arc<TypeLayout>, head: ColumnSet) -> Self {
        let fields: Vec<Column> = layout.types.iter().map(Column::new).collect();
        let is_walked = !fields.is_empty() || layout.has_raw || head.contains(EventColumn::Undecoded);
        let raw = layout.has_raw.then(|| Column::new(&DataType::Binary));
        Self {
            layout,
            head: EventColumns::new(head),
            fields,
            raw,
            is_walked,
            field_bytes: 0,
            walker: Walker::default(),
            scratch: Vec::new(),
        }
    }

    /// Creates builders for some columns of a table, in the order of the table. The columns are indices
    /// in the schema of the layout, whose columns before the fields are `head`.
    pub(crate) fn with_columns(layout: &TypeLayout, head: ColumnSet, indices: &[usize]) -> Self {
        let wanted = head.iter().enumerate().filter(|(index, _)| indices.contains(index));
        let head = ColumnSet::new(&wanted.map(|(_, column)| column).collect::<Vec<_>>());
        Self::new(Arc::new(layout.select(indices, head)), head)
    }

    /// Returns the layout of the table.
    #[must_use]
    pub const fn layout(&self) -> &Arc<TypeLayout> {
        &self.layout
    }

    /// Returns the number of rows since the last batch.
    #[must_use]
    pub const fn rows(&self) -> usize {
        self.head.rows()
    }

    /// Returns an estimate of the bytes of these rows.
    #[must_use]
    pub const fn byte_count(&self) -> usize {
        self.head.byte_count().saturating_add(self.field_bytes)
    }

    /// Appends an event whose schema has this layout.
    pub fn push_event(&mut self, event: &DescribedEvent<'_>, host: &str) {
        self.head.push_head(event, host);
        if !self.is_walked {
            return;
        }
        let (mut raw, mut misfit): (Option<&[u8]>, _) = (None, None);
        let mut is_complete = false;
        if let Ok(schema_match) = &event.schema_match {
            let prepared = schema_match.prepared;
            let payload = schema_match.payload;
            let mut row = TypedRow {
                layout: &self.layout,
                fields: &mut self.fields,
                prepared,
                list: None,
                json: None,
                nesting: JsonNesting::default(),
                scratch: &mut self.scratch,
                bytes: 0,
                values: 0,
            };
            let pointer_size = event.record.pointer_size();
            let walked = match prepared.schema.is_flat() {
                true => row.push_flat(&mut self.walker, payload, pointer_size),
                false => self.walker.walk(&prepared.schema, payload, pointer_size, &mut row),
            };
            match walked {
                Ok([]) => {}
                Ok(extra) => raw = Some(extra),
                Err(reason) => (raw, misfit) = (Some(payload), Some(reason)),
            }
            row.end_open_field();
            let text_bytes = row.bytes;
            is_complete = row.values == row.fields.len();
            let bytes = self.fields.len().saturating_mul(COLUMN_BYTES).saturating_add(text_bytes);
            self.field_bytes = self.field_bytes.saturating_add(bytes);
        } else if let Err(reason) = &event.schema_match {
            (raw, misfit) = (Some(event.record.payload()), Some(reason.clone()));
        }
        let rows = self.head.rows();
        if !is_complete {
            self.fields.iter_mut().for_each(|column| column.pad(rows));
        }
        if let (Some(column), Some(raw)) = (&mut self.raw, raw) {
            // Most rows have no such bytes; they get nulls later, all at once.
            column.pad(rows.saturating_sub(1));
            column.push_bytes(raw);
            self.field_bytes = self.field_bytes.saturating_add(raw.len());
        }
        if misfit.is_some() {
            self.head.push_undecoded(misfit.as_ref(), None);
        }
    }

    /// Begins new dictionaries for the next batch.
    pub(crate) fn forget_names(&mut self) {
        self.head.forget_names();
        self.fields.iter_mut().for_each(Column::forget_names);
    }

    /// Returns the rows as a batch, and begins the next batch.
    pub fn finish(&mut self) -> Result<RecordBatch> {
        self.field_bytes = 0;
        let rows = self.head.rows();
        let mut arrays: Vec<ArrayRef> = self.head.finish_arrays()?;
        for column in self.fields.iter_mut().chain(&mut self.raw) {
            column.pad(rows);
            arrays.push(column.finish()?);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        Ok(RecordBatch::try_new_with_options(Arc::clone(self.layout.schema()), arrays, &options)?)
    }
}
