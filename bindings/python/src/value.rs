//! Converts the fields of events to Python objects.
//!
//! | Value | Python |
//! |---|---|
//! | integer, pointer | `int` |
//! | value with a map | `str`: the name, or the names of the bits joined by a bar; `int` without a name |
//! | floating point | `float` |
//! | Boolean | `bool` |
//! | text, character, IP address, SID | `str` |
//! | bytes | `bytes` |
//! | GUID | `uuid.UUID` |
//! | date | aware `datetime`, rounded down to microseconds; `str` for years after 9999 |
//! | array, structure | `list`, `dict` |
//!
//! The values are those that `weir dump --format jsonl` writes, with types that JSON lacks.

use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDateTime, PyDict, PyList, PyString, PyTzInfo};
use traceweir_decode::Undecoded;
use traceweir_decode::format::{push_json, push_utf16_text};
use traceweir_decode::schema::{Field, FieldKind};
use traceweir_decode::value::Value;
use traceweir_decode::walk::{Visitor, Walker};
use traceweir_format::Guid;
use traceweir_format::spec::types::OutType;
use traceweir_format::time::FileTime;

use crate::json_string::parse_json_string;
use crate::kind::{EventKind, FieldNames};
use crate::time::try_datetime;

/// Maximum size of the values of one event. A few bytes of metadata can describe many values.
const MAX_VALUE_BYTES: usize = 16 << 20;
/// The bytes that are counted for a value besides its text.
const VALUE_BYTES: usize = 64;

/// All fields of an event, and the reason if the payload does not fit the schema.
pub(crate) struct DecodedFields<'py, 'p> {
    pub(crate) fields: Bound<'py, PyDict>,
    /// The bytes after the last field, or the reason why decoding ended early.
    pub(crate) rest: Result<&'p [u8], Undecoded>,
}

/// Decodes all fields of a payload.
pub(crate) fn decode_fields<'py, 'p>(
    py: Python<'py>,
    kind: &EventKind,
    payload: &'p [u8],
    pointer_size: usize,
) -> PyResult<DecodedFields<'py, 'p>> {
    let fields = PyDict::new(py);
    let mut builder = FieldBuilder::new(py, kind, Target::All(&fields))?;
    let rest = Walker::default().walk(&kind.prepared.schema, payload, pointer_size, &mut builder);
    builder.into_error()?;
    Ok(DecodedFields { fields, rest })
}

/// Decodes one top-level field of a payload. The result is an inner `Err` if the payload ends before
/// the field; the reason is missing if it ends at a field boundary.
pub(crate) fn decode_field<'py>(
    py: Python<'py>,
    kind: &EventKind,
    payload: &[u8],
    pointer_size: usize,
    index: usize,
) -> PyResult<Result<Bound<'py, PyAny>, Option<Undecoded>>> {
    let mut builder = FieldBuilder::new(py, kind, Target::One(index))?;
    let rest = Walker::default().walk(&kind.prepared.schema, payload, pointer_size, &mut builder);
    let found = builder.found.take();
    builder.into_error()?;
    Ok(found.ok_or_else(|| rest.err()))
}

/// Which fields are converted.
enum Target<'b, 'py> {
    All(&'b Bound<'py, PyDict>),
    /// The top-level field with this index.
    One(usize),
}

/// An array or a structure whose values are being decoded.
enum OpenContainer<'py> {
    List(Bound<'py, PyList>),
    Structure(Bound<'py, PyDict>),
}

struct FieldBuilder<'b, 'py> {
    py: Python<'py>,
    names: &'b FieldNames,
    kind: &'b EventKind,
    target: Target<'b, 'py>,
    open: Vec<OpenContainer<'py>>,
    /// Number of open arrays and structures that are left out.
    skipped: usize,
    /// The value of the only field, if one is wanted.
    found: Option<Bound<'py, PyAny>>,
    bytes: usize,
    scratch: Vec<u8>,
    error: Option<PyErr>,
}

impl<'b, 'py> FieldBuilder<'b, 'py> {
    fn new(py: Python<'py>, kind: &'b EventKind, target: Target<'b, 'py>) -> PyResult<Self> {
        Ok(Self {
            py,
            names: kind.field_names(py)?,
            kind,
            target,
            open: Vec::new(),
            skipped: 0,
            found: None,
            bytes: 0,
            scratch: Vec::new(),
            error: None,
        })
    }

    fn into_error(self) -> PyResult<()> {
        self.error.map_or(Ok(()), Err)
    }

    /// Returns whether a field of this index is left out at the current place.
    #[inline]
    fn is_left_out(&self, index: usize) -> bool {
        self.skipped > 0
            || (self.open.is_empty() && matches!(self.target, Target::One(wanted) if wanted != index))
    }

    fn put(&mut self, index: usize, value: PyResult<Bound<'py, PyAny>>) {
        let put = value.and_then(|value| match (self.open.last(), &self.target) {
            (Some(OpenContainer::List(list)), _) => list.append(value),
            (Some(OpenContainer::Structure(members)), _) => set_member(members, self.names, index, value),
            (None, Target::All(fields)) => set_member(fields, self.names, index, value),
            (None, Target::One(_)) => {
                self.found = Some(value);
                Ok(())
            }
        });
        if let Err(error) = put {
            self.error.get_or_insert(error);
        }
    }

    fn close(&mut self, index: usize) {
        if self.skipped > 0 {
            self.skipped -= 1;
            return;
        }
        let closed = match self.open.pop() {
            Some(OpenContainer::List(list)) => list.into_any(),
            Some(OpenContainer::Structure(members)) => members.into_any(),
            None => return,
        };
        self.put(index, Ok(closed));
    }
}

fn set_member<'py>(
    members: &Bound<'py, PyDict>,
    names: &FieldNames,
    index: usize,
    value: Bound<'py, PyAny>,
) -> PyResult<()> {
    match names.by_index.get(index) {
        Some(name) => members.set_item(name, value),
        None => Ok(()),
    }
}

impl<'p> Visitor<'p> for FieldBuilder<'_, '_> {
    fn value(&mut self, index: usize, field: &Field, value: Value<'p>) {
        if self.is_left_out(index) || self.kind.prepared.schema.is_padding(field) {
            return;
        }
        let text_bytes = match value {
            Value::Text16(bytes) | Value::Text8(bytes) | Value::Bytes(bytes) => bytes.len(),
            _ => 0,
        };
        self.scratch.clear();
        let converted = convert(self.py, self.kind, field, &value, &mut self.scratch);
        // The buffer has the text of values that the payload does not contain, such as the names of
        // a map.
        let text_bytes = text_bytes.max(self.scratch.len());
        self.bytes = self.bytes.saturating_add(VALUE_BYTES).saturating_add(text_bytes);
        self.put(index, converted);
    }
    fn begin_array(&mut self, index: usize, _: &Field, _: usize) {
        if self.is_left_out(index) {
            self.skipped += 1;
        } else {
            self.bytes = self.bytes.saturating_add(VALUE_BYTES);
            self.open.push(OpenContainer::List(PyList::empty(self.py)));
        }
    }
    fn end_array(&mut self, index: usize, _: &Field) {
        self.close(index);
    }
    fn begin_struct(&mut self, index: usize, _: &Field) {
        if self.is_left_out(index) {
            self.skipped += 1;
        } else {
            self.bytes = self.bytes.saturating_add(4 * VALUE_BYTES);
            self.open.push(OpenContainer::Structure(PyDict::new(self.py)));
        }
    }
    fn end_struct(&mut self, index: usize, _: &Field) {
        self.close(index);
    }
    #[inline]
    fn is_full(&self) -> bool {
        self.found.is_some() || self.error.is_some() || self.bytes > MAX_VALUE_BYTES
    }
}

#[inline]
fn convert<'py>(
    py: Python<'py>,
    kind: &EventKind,
    field: &Field,
    value: &Value<'_>,
    scratch: &mut Vec<u8>,
) -> PyResult<Bound<'py, PyAny>> {
    let (output, has_map) = match &field.kind {
        FieldKind::Value { output, map, .. } => (*output, map.is_some() && !kind.style.numeric),
        FieldKind::Struct { .. } => (OutType::NULL, false),
    };
    // With a map or a special out type, JSON decides between a name and a number.
    let is_plain = !has_map && matches!(output, OutType::NULL | OutType::PID | OutType::TID);
    match *value {
        Value::Null => Ok(py.None().into_bound(py)),
        Value::U8(v) if is_plain => v.into_bound_py_any(py),
        Value::U16(v) if is_plain => v.into_bound_py_any(py),
        Value::U32(v) if is_plain => v.into_bound_py_any(py),
        Value::U64(v) if is_plain => v.into_bound_py_any(py),
        Value::I8(v) if is_plain => v.into_bound_py_any(py),
        Value::I16(v) if is_plain => v.into_bound_py_any(py),
        Value::I32(v) if is_plain => v.into_bound_py_any(py),
        Value::I64(v) if is_plain => v.into_bound_py_any(py),
        Value::Pointer(v) if !has_map => v.into_bound_py_any(py),
        Value::F32(v) => f64::from(v).into_bound_py_any(py),
        Value::F64(v) => v.into_bound_py_any(py),
        Value::Bool(v) if !has_map => v.into_bound_py_any(py),
        Value::Guid(guid) => uuid(py, guid),
        Value::Text8(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => Ok(PyString::new(py, text).into_any()),
            Err(_) => convert_text(py, kind, field, value, scratch),
        },
        Value::Text16(bytes) => {
            scratch.clear();
            push_utf16_text(bytes, scratch);
            Ok(PyString::new(py, &String::from_utf8_lossy(scratch)).into_any())
        }
        Value::Bytes(bytes) => convert_bytes(py, kind, field, value, bytes, output, scratch),
        Value::Sid(_) => convert_text(py, kind, field, value, scratch),
        Value::FileTime(v) if output != OutType::ETWTIME && !has_map => {
            convert_date(py, kind, field, value, FileTime(v), scratch)
        }
        Value::SystemTime(words) => convert_system_time(py, kind, field, value, words, scratch),
        _ => convert_number(py, kind, field, value, output, scratch),
    }
}

/// Appends the JSON form of a value to an empty buffer and returns it.
fn write_json<'s>(kind: &EventKind, field: &Field, value: &Value<'_>, scratch: &'s mut Vec<u8>) -> &'s str {
    scratch.clear();
    push_json(field, value, kind.style, scratch);
    std::str::from_utf8(scratch).unwrap_or("null")
}

/// Converts a value whose JSON form is a string.
fn convert_text<'py>(
    py: Python<'py>,
    kind: &EventKind,
    field: &Field,
    value: &Value<'_>,
    scratch: &mut Vec<u8>,
) -> PyResult<Bound<'py, PyAny>> {
    let json = write_json(kind, field, value, scratch);
    Ok(PyString::new(py, &parse_json_string(json)).into_any())
}

/// Converts bytes; some out types make a text of them.
fn convert_bytes<'py>(
    py: Python<'py>,
    kind: &EventKind,
    field: &Field,
    value: &Value<'_>,
    bytes: &[u8],
    output: OutType,
    scratch: &mut Vec<u8>,
) -> PyResult<Bound<'py, PyAny>> {
    match output {
        OutType::STRING | OutType::UTF8 | OutType::JSON | OutType::XML => {
            convert_text(py, kind, field, value, scratch)
        }
        OutType::IPV6 | OutType::SOCKETADDRESS => {
            let text = parse_json_string(write_json(kind, field, value, scratch));
            // Bytes that are no address are written in hexadecimal, which has no such characters.
            match text.contains(['.', ':']) {
                true => Ok(PyString::new(py, &text).into_any()),
                false => Ok(PyBytes::new(py, bytes).into_any()),
            }
        }
        _ => Ok(PyBytes::new(py, bytes).into_any()),
    }
}

/// Converts a date, or returns its JSON form if the year is out of range.
fn convert_date<'py>(
    py: Python<'py>,
    kind: &EventKind,
    field: &Field,
    value: &Value<'_>,
    time: FileTime,
    scratch: &mut Vec<u8>,
) -> PyResult<Bound<'py, PyAny>> {
    match try_datetime(py, time)? {
        Some(time) => Ok(time.into_any()),
        None => convert_text(py, kind, field, value, scratch),
    }
}

/// Converts a SYSTEMTIME: `None` if it is no date.
fn convert_system_time<'py>(
    py: Python<'py>,
    kind: &EventKind,
    field: &Field,
    value: &Value<'_>,
    words: [u16; 8],
    scratch: &mut Vec<u8>,
) -> PyResult<Bound<'py, PyAny>> {
    if !write_json(kind, field, value, scratch).starts_with('"') {
        return Ok(py.None().into_bound(py));
    }
    let [year, month, _, day, hour, minute, second, millisecond] = words;
    let utc = PyTzInfo::utc(py)?;
    let narrow = |word: u16| u8::try_from(word).unwrap_or(u8::MAX);
    let (month, day, hour) = (narrow(month), narrow(day), narrow(hour));
    let microsecond = u32::from(millisecond) * 1000;
    let time = PyDateTime::new(
        py,
        year.into(),
        month,
        day,
        hour,
        narrow(minute),
        narrow(second),
        microsecond,
        Some(&utc),
    );
    match time {
        Ok(time) => Ok(time.into_any()),
        Err(_) => convert_text(py, kind, field, value, scratch),
    }
}

/// Converts an integer with a map or a special out type.
fn convert_number<'py>(
    py: Python<'py>,
    kind: &EventKind,
    field: &Field,
    value: &Value<'_>,
    output: OutType,
    scratch: &mut Vec<u8>,
) -> PyResult<Bound<'py, PyAny>> {
    let json = write_json(kind, field, value, scratch);
    if !json.starts_with('"') {
        return match json {
            "true" => true.into_bound_py_any(py),
            "false" => false.into_bound_py_any(py),
            "null" => Ok(py.None().into_bound(py)),
            number => integer_or_text(py, number),
        };
    }
    let text = parse_json_string(json).into_owned();
    let is_date = matches!(output, OutType::DATETIME | OutType::DATETIME_UTC | OutType::CIMDATETIME)
        && text.ends_with('Z');
    if is_named(kind, field, value) || matches!(output, OutType::STRING | OutType::IPV4) {
        Ok(PyString::new(py, &text).into_any())
    } else if is_date {
        let time = FileTime(value.bits().unwrap_or(0).cast_signed());
        convert_date(py, kind, field, value, time, scratch)
    } else {
        integer_or_text(py, &text)
    }
}

/// Returns whether the map of a field gives a value a name.
fn is_named(kind: &EventKind, field: &Field, value: &Value<'_>) -> bool {
    let FieldKind::Value { map: Some(map), .. } = &field.kind else { return false };
    let Some(bits) = value.bits().filter(|_| !kind.style.numeric) else { return false };
    if map.is_bit_map {
        map.entries().iter().any(|(mask, _)| if *mask == 0 { bits == 0 } else { bits & mask == *mask })
    } else {
        map.value(bits).is_some()
    }
}

/// Returns the `int` of a decimal or hexadecimal integer, and the `str` of another text.
fn integer_or_text<'py>(py: Python<'py>, text: &str) -> PyResult<Bound<'py, PyAny>> {
    let unsigned = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse::<u64>(),
    };
    match (unsigned, text.parse::<i64>()) {
        (Ok(number), _) => number.into_bound_py_any(py),
        (_, Ok(number)) => number.into_bound_py_any(py),
        _ => Ok(PyString::new(py, text).into_any()),
    }
}

/// Returns a GUID as `uuid.UUID`.
pub(crate) fn uuid(py: Python<'_>, guid: Guid) -> PyResult<Bound<'_, PyAny>> {
    static CLASS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let class = CLASS.get_or_try_init(py, || Ok::<_, PyErr>(py.import("uuid")?.getattr("UUID")?.unbind()))?;
    // The third parameter is `bytes_le`, the layout of a GUID in memory.
    class.bind(py).call1((py.None(), py.None(), PyBytes::new(py, &guid.to_bytes())))
}
