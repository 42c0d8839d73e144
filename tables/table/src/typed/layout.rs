//! The columns of the table of one event type.

use std::sync::Arc;

use arrow_schema::{DataType, Field as ArrowField, Schema as ArrowSchema, SchemaRef};
use traceweir_decode::schema::{Count, Field, FieldKind, Schema};
use traceweir_format::spec::event::class;
use traceweir_format::spec::types::{InType, OutType};

use crate::column::{list_type, name_type, time_type};
use crate::events::{ColumnSet, EventColumn};
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
pub(super) enum Conversion {
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
    pub(super) columns: Vec<Option<usize>>,
    pub(super) conversions: Vec<Conversion>,
    pub(super) types: Vec<DataType>,
    /// Whether the last column is `raw`.
    pub(super) has_raw: bool,
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
            if schema.is_padding(field) {
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
        Self { columns, conversions, types, has_raw: true, schema, fingerprint }
    }

    /// Returns the layout with only some columns of the fields, by their indices in the schema of the
    /// table. `head` are the columns before the fields that the new layout has.
    pub(super) fn select(&self, indices: &[usize], head: ColumnSet) -> Self {
        let old_head = self.schema.fields().len().saturating_sub(self.types.len()).saturating_sub(1);
        let kept: Vec<usize> = (0..self.types.len())
            .filter(|column| indices.contains(&column.saturating_add(old_head)))
            .collect();
        let mut fields: Vec<Arc<ArrowField>> = head.schema().fields().iter().cloned().collect();
        let (mut conversions, mut types) = (Vec::new(), Vec::new());
        for column in &kept {
            fields.extend(self.schema.fields().get(column.saturating_add(old_head)).cloned());
            conversions.extend(self.conversions.get(*column).copied());
            types.extend(self.types.get(*column).cloned());
        }
        let has_raw = indices.contains(&old_head.saturating_add(self.types.len()));
        fields.extend(self.schema.fields().last().filter(|_| has_raw).cloned());
        let place = |column: &Option<usize>| kept.binary_search(column.as_ref()?).ok();
        let columns = self.columns.iter().map(place).collect();
        let schema = Arc::new(ArrowSchema::new(fields));
        Self { columns, conversions, types, has_raw, schema, fingerprint: String::new() }
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
