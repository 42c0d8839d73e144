//! Puts the fields of one payload into columns.

use traceweir_analysis::grep::MAX_FIELDS_BYTES;
use traceweir_decode::schema::Field;
use traceweir_decode::source::prepared::PreparedSchema;
use traceweir_decode::value::Value;
use traceweir_decode::walk::Visitor;

use super::layout::{Conversion, TypeLayout};
use super::values::push_value;
use crate::column::Column;
use crate::json::JsonNesting;

/// Bytes of an item of a list besides its text.
const LIST_ITEM_BYTES: usize = 16;

/// Puts the values of one event into columns.
pub(super) struct TypedRow<'a> {
    pub(super) layout: &'a TypeLayout,
    pub(super) fields: &'a mut [Column],
    pub(super) prepared: &'a PreparedSchema,
    /// The column of the list that is open.
    pub(super) list: Option<usize>,
    /// The column of the JSON text that is open.
    pub(super) json: Option<usize>,
    pub(super) nesting: JsonNesting,
    pub(super) scratch: &'a mut Vec<u8>,
    /// Bytes of texts, names and elements of lists, which few bytes of payload can multiply.
    pub(super) bytes: usize,
    /// Number of columns that have their value.
    pub(super) values: usize,
}

impl TypedRow<'_> {
    #[inline(always)]
    fn column_index(&self, field: usize) -> Option<usize> {
        self.layout.columns.get(field).copied().flatten()
    }

    /// Ends the list or JSON text that an error left open.
    pub(super) fn end_open_field(&mut self) {
        if let Some(column) = self.list.take().and_then(|index| self.fields.get_mut(index)) {
            column.end_list();
        }
        if let Some(Column::Text(column)) = self.json.take().and_then(|index| self.fields.get_mut(index)) {
            column.end_value();
        }
    }

    /// Begins an array or structure; `is_array` says which.
    fn begin(&mut self, index: usize, is_array: bool) {
        let Self { fields, prepared, nesting, bytes, .. } = self;
        if let Some(column) = self.json {
            if let Some(Column::Text(column)) = fields.get_mut(column) {
                let out = column.open_value();
                let before = out.len();
                nesting.open(prepared, index, is_array, out);
                *bytes = bytes.saturating_add(out.len().saturating_sub(before));
            }
            return;
        }
        let Some(at) = self.layout.columns.get(index).copied().flatten() else { return };
        match fields.get_mut(at) {
            Some(Column::Text(column)) => {
                self.json = Some(at);
                nesting.open_unlabelled(is_array, column.open_value());
            }
            Some(Column::List(_)) if is_array => self.list = Some(at),
            _ => {}
        }
    }

    fn end(&mut self, is_array: bool) {
        if let Some(at) = self.json {
            if let Some(Column::Text(column)) = self.fields.get_mut(at) {
                self.nesting.close(is_array, column.open_value());
                if self.nesting.is_closed() {
                    column.end_value();
                    self.json = None;
                    self.values = self.values.saturating_add(1);
                }
            }
        } else if let Some(column) = self.list.take().and_then(|at| self.fields.get_mut(at)) {
            column.end_list();
            self.values = self.values.saturating_add(1);
        }
    }

    #[inline(never)]
    fn push_json_value(&mut self, at: usize, index: usize, field: &Field, value: &Value<'_>) {
        if let Some(Column::Text(column)) = self.fields.get_mut(at) {
            let out = column.open_value();
            let before = out.len();
            self.nesting.push_value(self.prepared, index, field, value, out);
            self.bytes = self.bytes.saturating_add(out.len().saturating_sub(before));
        }
    }
}

impl<'p> Visitor<'p> for TypedRow<'_> {
    #[inline(always)]
    fn value(&mut self, index: usize, field: &Field, value: Value<'p>) {
        if let Some(at) = self.json {
            return self.push_json_value(at, index, field, &value);
        }
        let Some(at) = self.column_index(index) else { return };
        let conversion = self.layout.conversions.get(at).copied().unwrap_or(Conversion::Text);
        let Some(column) = self.fields.get_mut(at) else { return };
        let before = column.text_bytes();
        if let Column::List(list) = column {
            self.bytes = self.bytes.saturating_add(LIST_ITEM_BYTES);
            push_value(&mut list.items, conversion, field, &value, self.scratch);
            if self.list.is_none() {
                // The walk gives text in place of an array of characters.
                column.end_list();
                self.values = self.values.saturating_add(1);
            }
        } else {
            push_value(column, conversion, field, &value, self.scratch);
            self.values = self.values.saturating_add(1);
        }
        self.bytes = self.bytes.saturating_add(column.text_bytes().saturating_sub(before));
    }
    fn begin_array(&mut self, index: usize, _: &Field, _: usize) {
        self.begin(index, true);
    }
    fn end_array(&mut self, _: usize, _: &Field) {
        self.end(true);
    }
    fn begin_struct(&mut self, index: usize, _: &Field) {
        self.begin(index, false);
    }
    fn end_struct(&mut self, _: usize, _: &Field) {
        self.end(false);
    }
    #[inline]
    fn is_full(&self) -> bool {
        self.bytes > MAX_FIELDS_BYTES
    }
}
