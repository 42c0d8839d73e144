//! Puts the fields of one payload into columns.

use traceweir_analysis::grep::MAX_FIELDS_BYTES;
use traceweir_decode::Undecoded;
use traceweir_decode::schema::Field;
use traceweir_decode::source::prepared::PreparedSchema;
use traceweir_decode::value::Value;
use traceweir_decode::walk::{Visitor, Walker};

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

    /// Puts the fields of a [flat](traceweir_decode::schema::Schema::is_flat) schema into columns, as a
    /// walk does, and returns the bytes that no field claimed.
    #[inline(always)]
    pub(super) fn push_flat<'p>(
        &mut self,
        walker: &mut Walker,
        payload: &'p [u8],
        pointer_size: usize,
    ) -> Result<&'p [u8], Undecoded> {
        let (schema, layout) = (&self.prepared.schema, self.layout);
        let mut rest = payload;
        for (field, at) in schema.top().iter().zip(&layout.columns) {
            if rest.is_empty() {
                break;
            }
            let Some((value, after)) = field.fast_path().split_value(rest, pointer_size) else {
                // Only a walk names the field and the offset in its error.
                return walker.walk(schema, payload, pointer_size, &mut IgnoredValues);
            };
            rest = after;
            let Some(at) = *at else { continue };
            let conversion = layout.conversions.get(at).copied().unwrap_or(Conversion::Text);
            let Some(column) = self.fields.get_mut(at) else { continue };
            self.values = self.values.saturating_add(1);
            match (&mut *column, value, conversion) {
                (Column::U8(builder), Value::U8(value), Conversion::Unsigned) => builder.append_value(value),
                (Column::U16(builder), Value::U16(value), Conversion::Unsigned) => {
                    builder.append_value(value);
                }
                (Column::U32(builder), Value::U32(value), Conversion::Unsigned) => {
                    builder.append_value(value);
                }
                (Column::I32(builder), Value::I32(value), Conversion::Signed) => builder.append_value(value),
                (Column::U64(builder), Value::U64(value) | Value::Pointer(value), Conversion::Unsigned) => {
                    builder.append_value(value)
                }
                (Column::Text(column), Value::Text8(text), Conversion::Text) if text.is_ascii() => {
                    column.push(Some(text));
                    self.bytes = self.bytes.saturating_add(text.len());
                }
                _ => {
                    let before = column.text_bytes();
                    push_value(column, conversion, field, &value, self.scratch);
                    self.bytes = self.bytes.saturating_add(column.text_bytes().saturating_sub(before));
                }
            }
            if self.is_full() {
                return Err(Undecoded::TooLarge);
            }
        }
        Ok(rest)
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

/// Ignores all values.
struct IgnoredValues;

impl<'p> Visitor<'p> for IgnoredValues {
    fn value(&mut self, _: usize, _: &Field, _: Value<'p>) {}
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::ColumnSet;
    use traceweir_decode::schema::Schema;
    use traceweir_format::spec::types::{InType, OutType};

    /// The arrays of a row, the bytes that no field claimed, and the numbers of bytes and values.
    type ReadRow = (Vec<arrow_array::ArrayRef>, Result<Vec<u8>, Undecoded>, (usize, usize));

    fn read(prepared: &PreparedSchema, layout: &TypeLayout, payload: &[u8], is_flat: bool) -> ReadRow {
        let mut fields: Vec<Column> = layout.types.iter().map(Column::new).collect();
        let (mut walker, mut scratch) = (Walker::default(), Vec::new());
        let mut row = TypedRow {
            layout,
            fields: &mut fields,
            prepared,
            list: None,
            json: None,
            nesting: JsonNesting::default(),
            scratch: &mut scratch,
            bytes: 0,
            values: 0,
        };
        let rest = match is_flat {
            true => row.push_flat(&mut walker, payload, 8),
            false => walker.walk(&prepared.schema, payload, 8, &mut row),
        };
        let counts = (row.bytes, row.values);
        let rest = rest.map(<[u8]>::to_vec);
        fields.iter_mut().for_each(|column| column.pad(1));
        (fields.iter_mut().map(|column| column.finish().unwrap()).collect(), rest, counts)
    }

    #[test]
    fn flat_rows_equal_walked_ones_at_every_length() {
        let types = [
            (InType::UINT8, OutType::NULL),
            (InType::UINT16, OutType::PORT),
            (InType::UINT16, OutType::NULL),
            (InType::UINT32, OutType::INT),
            (InType::HEXINT32, OutType::NULL),
            (InType::INT32, OutType::NULL),
            (InType::UINT64, OutType::NULL),
            (InType::POINTER, OutType::NULL),
            (InType::ANSISTRING, OutType::NULL),
            (InType::ANSISTRING, OutType::UTF8),
            (InType::UNICODESTRING, OutType::NULL),
        ];
        let fields: Vec<Field> = types
            .iter()
            .enumerate()
            .map(|(n, (input, output))| Field::value(&format!("f{n}"), *input, *output))
            .collect();
        let count = fields.len();
        let prepared = PreparedSchema::new(Schema::default().seal(fields, count).unwrap());
        assert!(prepared.schema.is_flat());
        let all = TypeLayout::new(&prepared.schema, ColumnSet::new(&[]));
        let some = all.select(&[1, 4, 9], ColumnSet::new(&[]));
        let mut payload: Vec<u8> = (200..233).collect();
        payload.extend_from_slice(b"plain\0caf\xC3\xA9 \xE9\0w\0\xAC\x20\0\0rest");
        for (end, layout) in (0..=payload.len()).flat_map(|end| [(end, &all), (end, &some)]) {
            let payload = &payload[..end];
            let (flat, walked) =
                (read(&prepared, layout, payload, true), read(&prepared, layout, payload, false));
            assert_eq!(flat, walked, "{end} bytes");
        }
    }
}
