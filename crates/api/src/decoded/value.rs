//! Fields of decoded events and their values.

use std::fmt;
use std::sync::Arc;

use traceweir_decode::Undecoded;
use traceweir_decode::format::{self, Style};
use traceweir_decode::schema;
use traceweir_decode::source::SchemaMatch;
use traceweir_decode::value::Value as RawValue;
use traceweir_decode::walk::{Visitor, Walker};
use traceweir_format::Guid;
use traceweir_format::time::{Civil, FileTime};

use crate::error::{Error, Result};

/// The largest size of the fields of one event in memory, in bytes. A few bytes of a hostile trace
/// can describe many values.
const MAX_FIELD_BYTES: usize = 4 << 20;

/// A field of a decoded event: its name and value.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    name: Arc<str>,
    value: Value,
}

impl Field {
    /// Returns the name of the field.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the value of the field.
    #[must_use]
    pub fn value(&self) -> &Value {
        &self.value
    }
}

/// A value of a decoded event: a number, text, bytes, an array or a structure.
///
/// `Display` formats it as the schema says: hexadecimal, by the names of a map, as a network
/// address or a date. The functions `as_…` return `None` if the value is of another type; `TryFrom`
/// converts to a number, `bool`, text, GUID or time, or fails.
#[derive(Clone, Debug, PartialEq)]
pub struct Value {
    data: ValueData,
    /// The value as the schema shows it; empty for arrays and structures.
    text: String,
}

#[derive(Clone, Debug, PartialEq)]
enum ValueData {
    Null,
    Signed(i64),
    Unsigned(u64),
    Float(f64),
    Bool(bool),
    Guid(Guid),
    Time(FileTime),
    Text,
    Bytes(Vec<u8>),
    Array(Vec<Value>),
    Struct(Vec<Field>),
}

impl Value {
    fn new(field: &schema::Field, raw: &RawValue<'_>) -> Self {
        let data = match *raw {
            RawValue::Null => ValueData::Null,
            RawValue::I8(v) => ValueData::Signed(v.into()),
            RawValue::I16(v) => ValueData::Signed(v.into()),
            RawValue::I32(v) => ValueData::Signed(v.into()),
            RawValue::I64(v) => ValueData::Signed(v),
            RawValue::U8(v) => ValueData::Unsigned(v.into()),
            RawValue::U16(v) => ValueData::Unsigned(v.into()),
            RawValue::U32(v) => ValueData::Unsigned(v.into()),
            RawValue::U64(v) | RawValue::Pointer(v) => ValueData::Unsigned(v),
            RawValue::F32(v) => ValueData::Float(v.into()),
            RawValue::F64(v) => ValueData::Float(v),
            RawValue::Bool(v) => ValueData::Bool(v),
            RawValue::Guid(v) => ValueData::Guid(v),
            RawValue::FileTime(v) => ValueData::Time(FileTime(v)),
            RawValue::SystemTime(parts) => to_file_time(parts).map_or(ValueData::Null, ValueData::Time),
            RawValue::Text16(_) | RawValue::Text8(_) => ValueData::Text,
            RawValue::Sid(bytes) | RawValue::Bytes(bytes) => ValueData::Bytes(bytes.to_owned()),
        };
        let mut text = Vec::new();
        format::push_text(field, raw, Style::default(), &mut text);
        let text =
            String::from_utf8(text).unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned());
        Self { data, text }
    }

    /// Returns an integer that is not negative.
    #[must_use]
    pub fn as_u64(&self) -> Option<u64> {
        match self.data {
            ValueData::Unsigned(number) => Some(number),
            ValueData::Signed(number) => u64::try_from(number).ok(),
            _ => None,
        }
    }

    /// Returns an integer that fits into an `i64`.
    #[must_use]
    pub fn as_i64(&self) -> Option<i64> {
        match self.data {
            ValueData::Unsigned(number) => i64::try_from(number).ok(),
            ValueData::Signed(number) => Some(number),
            _ => None,
        }
    }

    /// Returns a floating-point number.
    #[must_use]
    pub fn as_f64(&self) -> Option<f64> {
        match self.data {
            ValueData::Float(number) => Some(number),
            _ => None,
        }
    }

    /// Returns a truth value.
    #[must_use]
    pub fn as_bool(&self) -> Option<bool> {
        match self.data {
            ValueData::Bool(value) => Some(value),
            _ => None,
        }
    }

    /// Returns the text of a string value.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        match self.data {
            ValueData::Text => Some(&self.text),
            _ => None,
        }
    }

    /// Returns bytes, also those of a security identifier.
    #[must_use]
    pub fn as_bytes(&self) -> Option<&[u8]> {
        match &self.data {
            ValueData::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// Returns a GUID.
    #[must_use]
    pub fn as_guid(&self) -> Option<Guid> {
        match self.data {
            ValueData::Guid(guid) => Some(guid),
            _ => None,
        }
    }

    /// Returns a point in time.
    #[must_use]
    pub fn as_time(&self) -> Option<FileTime> {
        match self.data {
            ValueData::Time(time) => Some(time),
            _ => None,
        }
    }

    /// Returns the elements of an array.
    #[must_use]
    pub fn as_array(&self) -> Option<&[Self]> {
        match &self.data {
            ValueData::Array(elements) => Some(elements),
            _ => None,
        }
    }

    /// Returns the members of a structure.
    #[must_use]
    pub fn as_struct(&self) -> Option<&[Field]> {
        match &self.data {
            ValueData::Struct(members) => Some(members),
            _ => None,
        }
    }

    /// Returns a member of a structure by its name.
    #[must_use]
    pub fn member(&self, name: &str) -> Option<&Self> {
        self.as_struct()?.iter().find(|member| member.name() == name).map(Field::value)
    }

    fn type_error(&self, type_name: &str) -> Error {
        Error::ValueType { value: self.to_string(), type_name: type_name.to_owned() }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.data {
            ValueData::Array(elements) => {
                f.write_str("[")?;
                for (index, element) in elements.iter().enumerate() {
                    let separator = if index == 0 { "" } else { " " };
                    write!(f, "{separator}{element}")?;
                }
                f.write_str("]")
            }
            ValueData::Struct(members) => {
                f.write_str("{")?;
                for (index, Field { name, value }) in members.iter().enumerate() {
                    let separator = if index == 0 { "" } else { " " };
                    write!(f, "{separator}{name}={value}")?;
                }
                f.write_str("}")
            }
            _ => f.pad(&self.text),
        }
    }
}

macro_rules! integers {
    ($($integer:ident)*) => {$(
        impl TryFrom<&Value> for $integer {
            type Error = Error;
            fn try_from(value: &Value) -> Result<Self> {
                let number = match value.data {
                    ValueData::Signed(number) => Self::try_from(number).ok(),
                    ValueData::Unsigned(number) => Self::try_from(number).ok(),
                    _ => None,
                };
                number.ok_or_else(|| value.type_error(stringify!($integer)))
            }
        }
    )*};
}

integers! { i8 i16 i32 i64 u8 u16 u32 u64 usize }

macro_rules! conversions {
    ($($type:ident by $function:ident)*) => {$(
        impl TryFrom<&Value> for $type {
            type Error = Error;
            fn try_from(value: &Value) -> Result<Self> {
                value.$function().map($type::from).ok_or_else(|| value.type_error(stringify!($type)))
            }
        }
    )*};
}

conversions! { f64 by as_f64  bool by as_bool  String by as_str  Guid by as_guid  FileTime by as_time }

/// Converts the numbers of a SYSTEMTIME. The third one, the day of the week, is not needed.
fn to_file_time([year, month, _, day, hour, minute, second, millisecond]: [u16; 8]) -> Option<FileTime> {
    let to_byte = |part: u16| u8::try_from(part).ok();
    FileTime::from_civil(&Civil {
        year: year.into(),
        month: to_byte(month)?,
        day: to_byte(day)?,
        hour: to_byte(hour)?,
        minute: to_byte(minute)?,
        second: to_byte(second)?,
        units: u32::from(millisecond).checked_mul(10_000)?,
    })
}

/// Returns the fields of an event, and the reason if some are missing.
pub(super) fn collect_fields(
    walker: &mut Walker,
    schema_match: &SchemaMatch<'_, '_>,
    pointer_size: usize,
) -> (Vec<Field>, Option<Undecoded>) {
    let mut collector = FieldCollector::default();
    let walked =
        walker.walk(&schema_match.prepared.schema, schema_match.payload, pointer_size, &mut collector);
    (collector.fields, walked.err())
}

/// Collects values into fields.
#[derive(Default)]
struct FieldCollector {
    fields: Vec<Field>,
    /// The arrays and structures that have begun and not ended, the innermost last.
    open_values: Vec<ValueData>,
    bytes: usize,
}

impl FieldCollector {
    fn add(&mut self, field: &schema::Field, value: Value) {
        let name = || field.name.clone();
        self.bytes = self.bytes.saturating_add(size_of::<Field>()).saturating_add(value.text.len());
        match self.open_values.last_mut() {
            Some(ValueData::Array(elements)) => elements.push(value),
            Some(ValueData::Struct(members)) => members.push(Field { name: name(), value }),
            _ => self.fields.push(Field { name: name(), value }),
        }
    }

    fn close(&mut self, field: &schema::Field) {
        if let Some(data) = self.open_values.pop() {
            self.add(field, Value { data, text: String::new() });
        }
    }
}

impl<'p> Visitor<'p> for FieldCollector {
    fn value(&mut self, _index: usize, field: &schema::Field, value: RawValue<'p>) {
        let value = Value::new(field, &value);
        self.add(field, value);
    }

    fn begin_array(&mut self, _index: usize, _field: &schema::Field, _count: usize) {
        self.open_values.push(ValueData::Array(Vec::new()));
    }

    fn end_array(&mut self, _index: usize, field: &schema::Field) {
        self.close(field);
    }

    fn begin_struct(&mut self, _index: usize, _field: &schema::Field) {
        self.open_values.push(ValueData::Struct(Vec::new()));
    }

    fn end_struct(&mut self, _index: usize, field: &schema::Field) {
        self.close(field);
    }

    fn is_full(&self) -> bool {
        self.bytes > MAX_FIELD_BYTES
    }
}
