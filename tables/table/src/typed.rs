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

use std::borrow::Cow;
use std::sync::Arc;

use anyhow::Result;
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{DataType, Field as ArrowField, Schema as ArrowSchema, SchemaRef};
use traceweir_analysis::event::DescribedEvent;
use traceweir_analysis::grep::MAX_FIELDS_BYTES;
use traceweir_decode::format::{Style, push_json, push_text};
use traceweir_decode::schema::{Count, Field, FieldKind, Schema};
use traceweir_decode::source::prepared::PreparedSchema;
use traceweir_decode::value::Value;
use traceweir_decode::walk::{Visitor, Walker};
use traceweir_format::spec::event::class;
use traceweir_format::spec::types::{InType, OutType};
use traceweir_format::text::{chars16, decode_cp1252};
use traceweir_format::time::{Civil, FileTime};

use crate::column::{Column, list_type, name_type, time_type};
use crate::events::{ColumnSet, EventColumn, EventColumns};
use crate::json::{JsonNesting, is_padding};
use crate::names::{UniqueNames, column_name};

/// The key of the metadata of a column with the name that the field has in the trace.
pub const FIELD_NAME_KEY: &str = "traceweir.field";

/// The columns that come before the fields.
pub const HEAD_COLUMNS: [EventColumn; 11] = [
    EventColumn::Time,
    EventColumn::ProcessId,
    EventColumn::Process,
    EventColumn::ThreadId,
    EventColumn::Cpu,
    EventColumn::Level,
    EventColumn::Keywords,
    EventColumn::Activity,
    EventColumn::RelatedActivity,
    EventColumn::Stack,
    EventColumn::Undecoded,
];

/// Names that no field can have: columns of every table, and the partitions of a dataset.
const RESERVED: [&str; 15] = [
    "time",
    "host",
    "provider",
    "date",
    "process_id",
    "process",
    "thread_id",
    "cpu",
    "level",
    "keywords",
    "activity",
    "related_activity",
    "stack",
    "undecoded",
    "raw",
];

/// How the values of a field become a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Conversion {
    /// The bits of an integer, without sign extension.
    Unsigned,
    /// An integer with its sign.
    Signed,
    /// A 16-bit port in network byte order.
    Port,
    Bool,
    Float,
    Time,
    /// Text as `weir dump` prints it.
    Text,
    Bytes,
    /// JSON of the whole field.
    Json,
}

/// The layout of the table of one event type.
#[derive(Debug)]
pub struct TypeLayout {
    /// For each field of the schema, the index of its column, or `None` for padding and members.
    columns: Vec<Option<usize>>,
    conversions: Vec<Conversion>,
    types: Vec<DataType>,
    schema: SchemaRef,
    /// A text that is equal for equal layouts.
    fingerprint: String,
}

impl TypeLayout {
    /// Derives the layout of a table from the schema of its events, with these columns before the
    /// fields.
    #[must_use]
    pub fn new(schema: &Schema, head: ColumnSet) -> Self {
        let mut names = UniqueNames::with(&RESERVED);
        let (mut columns, mut conversions, mut types) = (Vec::new(), Vec::new(), Vec::new());
        let mut fields: Vec<Arc<ArrowField>> = head.schema().fields().iter().cloned().collect();
        for field in schema.top() {
            if is_padding(schema.origin, field) {
                columns.push(None);
                continue;
            }
            // By the schema, two fields of the log-file header are pointers; the walk gives the
            // names that follow the header instead.
            let is_header_name =
                schema.provider == class::EVENT_TRACE && matches!(&*field.name, "LoggerName" | "LogFileName");
            let (data_type, conversion) = match is_header_name {
                true => (DataType::Utf8, Conversion::Text),
                false => column_type(field),
            };
            let name = names.insert(&column_name(&field.name));
            let mut arrow_field = ArrowField::new(name, data_type.clone(), true);
            if arrow_field.name() != &*field.name {
                let metadata = [(FIELD_NAME_KEY.to_owned(), field.name.to_string())];
                arrow_field.set_metadata(metadata.into());
            }
            fields.push(Arc::new(arrow_field));
            columns.push(Some(types.len()));
            conversions.push(conversion);
            types.push(data_type);
        }
        fields.push(Arc::new(ArrowField::new("raw", DataType::Binary, true)));
        let schema = Arc::new(ArrowSchema::new(fields));
        let fingerprint = fingerprint(&schema);
        Self { columns, conversions, types, schema, fingerprint }
    }

    /// Returns the Arrow schema of the table.
    #[must_use]
    pub const fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Returns a text that is equal for equal layouts.
    #[must_use]
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }
}

/// Returns the names and types of all columns as one text.
pub(crate) fn fingerprint(schema: &ArrowSchema) -> String {
    let mut text = String::new();
    for field in schema.fields() {
        text.push_str(&format!("{} {}\n", field.name(), field.data_type()));
    }
    text
}

/// Returns the type of the column of a field, and how values become its values.
fn column_type(field: &Field) -> (DataType, Conversion) {
    let FieldKind::Value { input, output, map } = &field.kind else {
        return (DataType::Utf8, Conversion::Json);
    };
    let (scalar, conversion) =
        if map.is_some() { (name_type(), Conversion::Text) } else { scalar_type(*input, *output) };
    if field.count == Count::One {
        return (scalar, conversion);
    }
    let is_text = *output == OutType::STRING
        && matches!(*input, InType::UINT8 | InType::INT8 | InType::UINT16)
        || matches!(*input, InType::ANSICHAR | InType::UNICODECHAR);
    if is_text { (DataType::Utf8, Conversion::Text) } else { (list_type(scalar), conversion) }
}

fn scalar_type(input: InType, output: OutType) -> (DataType, Conversion) {
    use Conversion::{Bool, Bytes, Float, Port, Signed, Text, Time, Unsigned};
    let integer = |bits: u8, is_signed: bool| {
        let is_unsigned_out = matches!(
            output,
            OutType::UNSIGNEDBYTE
                | OutType::UNSIGNEDSHORT
                | OutType::UNSIGNEDINT
                | OutType::UNSIGNEDLONG
                | OutType::PID
                | OutType::TID
        );
        let is_signed_out = matches!(output, OutType::BYTE | OutType::SHORT | OutType::INT | OutType::LONG);
        match output {
            OutType::BOOLEAN => return (DataType::Boolean, Bool),
            OutType::STRING if bits <= 16 => return (DataType::Utf8, Text),
            OutType::PORT if bits == 16 => return (DataType::UInt16, Port),
            OutType::IPV4 if bits == 32 => return (DataType::Utf8, Text),
            OutType::DATETIME | OutType::DATETIME_UTC | OutType::CIMDATETIME if bits == 64 => {
                return (time_type(), Time);
            }
            OutType::HEXINT64 | OutType::CODE_POINTER if bits == 64 => return (DataType::UInt64, Unsigned),
            _ => {}
        }
        let signed = is_signed_out || (is_signed && !is_unsigned_out);
        let data_type = match (bits, signed) {
            (8, false) => DataType::UInt8,
            (8, true) => DataType::Int8,
            (16, false) => DataType::UInt16,
            (16, true) => DataType::Int16,
            (32, false) => DataType::UInt32,
            (32, true) => DataType::Int32,
            (_, false) => DataType::UInt64,
            (_, true) => DataType::Int64,
        };
        (data_type, if signed { Signed } else { Unsigned })
    };
    match input {
        InType::INT8 => integer(8, true),
        InType::UINT8 => integer(8, false),
        InType::INT16 => integer(16, true),
        InType::UINT16 => integer(16, false),
        InType::INT32 => integer(32, true),
        InType::UINT32 | InType::HEXINT32 => integer(32, false),
        InType::INT64 => integer(64, true),
        InType::UINT64 | InType::HEXINT64 => integer(64, false),
        InType::POINTER | InType::SIZET => (DataType::UInt64, Unsigned),
        InType::FLOAT => (DataType::Float32, Float),
        InType::DOUBLE => (DataType::Float64, Float),
        InType::BOOLEAN => (DataType::Boolean, Bool),
        InType::FILETIME if output == OutType::ETWTIME => (DataType::Int64, Signed),
        InType::FILETIME | InType::SYSTEMTIME => (time_type(), Time),
        InType::BINARY | InType::COUNTEDBINARY | InType::HEXDUMP => match output {
            OutType::IPV6
            | OutType::SOCKETADDRESS
            | OutType::STRING
            | OutType::UTF8
            | OutType::JSON
            | OutType::XML => (DataType::Utf8, Text),
            _ => (DataType::Binary, Bytes),
        },
        _ => (DataType::Utf8, Text),
    }
}

/// Builds the rows of the table of one event type.
#[derive(Debug)]
pub struct TypedColumns {
    layout: Arc<TypeLayout>,
    head: EventColumns,
    fields: Vec<Column>,
    raw: Column,
    field_bytes: usize,
    walker: Walker,
    scratch: Vec<u8>,
}

impl TypedColumns {
    /// Creates builders for a layout, with the same columns before the fields as the layout.
    #[must_use]
    pub fn new(layout: Arc<TypeLayout>, head: ColumnSet) -> Self {
        let fields = layout.types.iter().map(Column::new).collect();
        Self {
            layout,
            head: EventColumns::new(head),
            fields,
            raw: Column::new(&DataType::Binary),
            field_bytes: 0,
            walker: Walker::default(),
            scratch: Vec::new(),
        }
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
        let (mut raw, mut misfit): (Option<&[u8]>, _) = (None, None);
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
            };
            let pointer_size = event.record.pointer_size();
            match self.walker.walk(&prepared.schema, payload, pointer_size, &mut row) {
                Ok([]) => {}
                Ok(extra) => raw = Some(extra),
                Err(reason) => (raw, misfit) = (Some(payload), Some(reason)),
            }
            row.end_open_field();
            // Bytes of the values, and of the fixed part of each column.
            let fixed = self.fields.len().saturating_mul(8);
            self.field_bytes = self.field_bytes.saturating_add(row_bytes(payload, fixed));
        } else if let Err(reason) = &event.schema_match {
            (raw, misfit) = (Some(event.record.payload()), Some(reason.clone()));
        }
        let rows = self.head.rows();
        self.fields.iter_mut().for_each(|column| column.pad(rows));
        match raw {
            Some(raw) => self.raw.push_bytes(raw),
            None => self.raw.push_null(),
        }
        self.field_bytes = self.field_bytes.saturating_add(raw.map_or(0, <[u8]>::len));
        self.head.push_undecoded(misfit.as_ref(), None);
    }

    /// Returns the rows as a batch, and begins the next batch.
    pub fn finish(&mut self) -> Result<RecordBatch> {
        self.field_bytes = 0;
        let mut arrays: Vec<ArrayRef> = self.head.finish_arrays()?;
        for column in &mut self.fields {
            arrays.push(column.finish()?);
        }
        arrays.push(self.raw.finish()?);
        Ok(RecordBatch::try_new(Arc::clone(&self.layout.schema), arrays)?)
    }
}

/// Returns an estimate of the bytes that the fields of a payload take in columns. Text in UTF-16
/// and bytes stay within a small multiple of the payload.
fn row_bytes(payload: &[u8], fixed: usize) -> usize {
    payload.len().saturating_mul(2).saturating_add(fixed)
}

/// Puts the values of one event into columns.
struct TypedRow<'a> {
    layout: &'a TypeLayout,
    fields: &'a mut [Column],
    prepared: &'a PreparedSchema,
    /// The column of the list that is open.
    list: Option<usize>,
    /// The column of the JSON text that is open.
    json: Option<usize>,
    nesting: JsonNesting,
    scratch: &'a mut Vec<u8>,
    /// Bytes of JSON and of elements of lists, which few bytes of payload can multiply.
    bytes: usize,
}

impl TypedRow<'_> {
    #[inline(always)]
    fn column_index(&self, field: usize) -> Option<usize> {
        self.layout.columns.get(field).copied().flatten()
    }

    /// Ends the list or JSON text that an error left open.
    fn end_open_field(&mut self) {
        if let Some(column) = self.list.take().and_then(|index| self.fields.get_mut(index)) {
            column.end_list();
        }
        if let Some(Column::Text(column)) = self.json.take().and_then(|index| self.fields.get_mut(index)) {
            column.end_value();
        }
    }

    /// Begins an array or structure; `is_array` says which.
    fn begin(&mut self, index: usize, is_array: bool) {
        let Self { fields, prepared, nesting, .. } = self;
        if let Some(column) = self.json {
            if let Some(Column::Text(column)) = fields.get_mut(column) {
                nesting.open(prepared, index, is_array, column.open_value());
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
                }
            }
        } else if let Some(column) = self.list.take().and_then(|at| self.fields.get_mut(at)) {
            column.end_list();
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
        if let Column::List(list) = column {
            self.bytes = self.bytes.saturating_add(16);
            push_value(&mut list.items, conversion, field, &value, self.scratch);
            if self.list.is_none() {
                // The walk gives text in place of an array of characters.
                column.end_list();
            }
            return;
        }
        push_value(column, conversion, field, &value, self.scratch);
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

#[inline]
fn push_value(
    column: &mut Column,
    conversion: Conversion,
    field: &Field,
    value: &Value<'_>,
    scratch: &mut Vec<u8>,
) {
    match conversion {
        Conversion::Unsigned => match value.bits() {
            Some(bits) => column.push_unsigned(bits),
            None => column.push_null(),
        },
        Conversion::Signed => column.push_signed(sign_extend(value)),
        Conversion::Bool => match value.bits() {
            Some(bits) => column.push_bool(bits != 0),
            None => column.push_null(),
        },
        Conversion::Port => match value {
            Value::U16(port) => column.push_unsigned(port.swap_bytes().into()),
            Value::I16(port) => column.push_unsigned(port.cast_unsigned().swap_bytes().into()),
            _ => column.push_null(),
        },
        Conversion::Float => match *value {
            Value::F32(number) => column.push_float(number.into()),
            Value::F64(number) => column.push_float(number),
            _ => column.push_null(),
        },
        Conversion::Time => match to_time(value) {
            Some(time) => column.push_time(time),
            None => column.push_null(),
        },
        Conversion::Bytes => match value {
            Value::Bytes(bytes) => column.push_bytes(bytes),
            _ => column.push_null(),
        },
        Conversion::Text | Conversion::Json => push_text_value(column, field, value, scratch),
    }
}

/// Returns an integer, sign-extended from the width of its type.
fn sign_extend(value: &Value<'_>) -> Option<i64> {
    Some(match *value {
        Value::U8(v) => v.cast_signed().into(),
        Value::U16(v) => v.cast_signed().into(),
        Value::U32(v) => v.cast_signed().into(),
        Value::FileTime(v) => v,
        _ => value.as_u64()?.cast_signed(),
    })
}

fn to_time(value: &Value<'_>) -> Option<FileTime> {
    match *value {
        Value::FileTime(time) => Some(FileTime(time)),
        Value::U64(time) => Some(FileTime(i64::try_from(time).ok()?)),
        Value::I64(time) => Some(FileTime(time)),
        Value::SystemTime([year, month, _, day, hour, minute, second, millisecond]) => {
            let small = |number: u16| u8::try_from(number).ok();
            let is_time = hour < 24 && minute < 60 && second < 60 && millisecond < 1000;
            FileTime::from_civil(&Civil {
                year: i32::from(year),
                month: small(month)?,
                day: small(day)?,
                hour: small(hour)?,
                minute: small(minute)?,
                second: small(second)?,
                units: u32::from(millisecond).saturating_mul(10_000),
            })
            .filter(|_| is_time)
        }
        _ => None,
    }
}

/// Appends a value as text. Texts of the payload keep every character.
fn push_text_value(column: &mut Column, field: &Field, value: &Value<'_>, scratch: &mut Vec<u8>) {
    let has_map = matches!(&field.kind, FieldKind::Value { map: Some(_), .. });
    if let (Column::Text(column), false) = (&mut *column, has_map) {
        let out = column.open_value();
        match value {
            Value::Text8(bytes) if bytes.is_ascii() => out.extend_from_slice(bytes),
            Value::Text8(bytes) => push_8_bit_text(field, bytes, out),
            Value::Text16(bytes) => push_utf16(bytes, out),
            Value::Guid(guid) => out.extend_from_slice(&guid.to_ascii()),
            Value::Null => return column.push_null(),
            value => out.extend_from_slice(shown_text(field, value, scratch).as_bytes()),
        }
        return column.end_value();
    }
    column.push_text(&shown_text(field, value, scratch));
}

/// Returns a value as JSON shows it, without quotes: a name, a number, digits of bytes.
fn shown_text<'s>(field: &Field, value: &Value<'_>, scratch: &'s mut Vec<u8>) -> Cow<'s, str> {
    scratch.clear();
    push_json(field, value, Style::default(), scratch);
    let is_quoted = scratch.first() == Some(&b'"');
    if is_quoted && scratch.contains(&b'\\') {
        scratch.clear();
        push_text(field, value, Style::default(), scratch);
        return String::from_utf8_lossy(scratch);
    }
    let end = scratch.len().saturating_sub(1);
    let shown = if is_quoted { scratch.get(1..end) } else { Some(scratch.as_slice()) };
    String::from_utf8_lossy(shown.unwrap_or_default())
}

fn push_8_bit_text(field: &Field, bytes: &[u8], out: &mut Vec<u8>) {
    let is_utf8 =
        matches!(field.kind, FieldKind::Value { output: OutType::UTF8 | OutType::JSON | OutType::XML, .. });
    match std::str::from_utf8(bytes) {
        Ok(text) => out.extend_from_slice(text.as_bytes()),
        Err(_) if is_utf8 => out.extend_from_slice(String::from_utf8_lossy(bytes).as_bytes()),
        Err(_) => {
            let text: String = bytes.iter().map(|byte| decode_cp1252(*byte)).collect();
            out.extend_from_slice(text.as_bytes());
        }
    }
}

fn push_utf16(bytes: &[u8], out: &mut Vec<u8>) {
    if bytes.chunks_exact(2).all(|unit| matches!(unit, [low, 0] if low.is_ascii())) {
        out.extend(bytes.iter().step_by(2).take(bytes.len() / 2));
    } else {
        for c in chars16(bytes) {
            out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
        }
    }
}
