//! Events and stack frames as Python objects.

use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDateTime, PyDict, PyList, PyString};
use traceweir_analysis::text::escape;
use traceweir_decode::Undecoded;
use traceweir_decode::expand::MessageExpander;
use traceweir_decode::source::SchemaMatch;
use traceweir_format::header::NO_ID;
use traceweir_format::kernel::class_name;

use crate::batch::{EventData, FrameData};
use crate::guard::guard;
use crate::items::{ItemValue, list_items};
use crate::time::datetime;
use crate::value::{decode_field, decode_fields, uuid};

/// An event of a trace or of a live session.
///
/// Attributes of the header are ready at once. Fields, message and stack are decoded when they are
/// read:
///
///     for event in traceweir.open("trace.etl"):
///         if event.name == "Order":
///             print(event.time, event.pid, event["Total"])
///
/// An event holds a copy of its own data. It stays valid when the trace is closed, and keeps no
/// other event in memory.
#[pyclass(frozen, module = "traceweir")]
pub(crate) struct Event {
    data: EventData,
    fields: PyOnceLock<DecodedEvent>,
}

/// The result of decoding all fields of an event.
struct DecodedEvent {
    fields: Py<PyDict>,
    /// Number of bytes after the last field.
    extra_bytes: usize,
    /// Why the payload does not fit the schema.
    error: Option<String>,
}

impl Event {
    pub(crate) fn new(data: EventData) -> Self {
        Self { data, fields: PyOnceLock::new() }
    }

    fn pointer_size(&self) -> usize {
        usize::from(self.data.pointer_size)
    }

    fn decode(&self, py: Python<'_>) -> PyResult<&DecodedEvent> {
        self.fields.get_or_try_init(py, || {
            guard(|| {
                let Ok(kind) = &self.data.kind else {
                    return Ok(DecodedEvent {
                        fields: PyDict::new(py).unbind(),
                        extra_bytes: 0,
                        error: self.undecoded_reason(),
                    });
                };
                let decoded = decode_fields(py, kind, self.data.payload(), self.pointer_size())?;
                let (extra_bytes, error) = match decoded.rest {
                    Ok(extra) => (extra.len(), None),
                    Err(reason) => (0, Some(escape(&reason.to_string()))),
                };
                Ok(DecodedEvent { fields: decoded.fields.unbind(), extra_bytes, error })
            })
        })
    }

    /// Returns why the event has no schema.
    fn undecoded_reason(&self) -> Option<String> {
        self.data.kind.as_ref().err().map(|reason| escape(reason))
    }

    /// Returns a top-level field; the error is the reason if there is one.
    fn find_field<'py>(
        &self,
        py: Python<'py>,
        name: &Bound<'py, PyAny>,
    ) -> PyResult<Result<Bound<'py, PyAny>, Option<String>>> {
        if let Some(decoded) = self.fields.get(py) {
            return Ok(decoded.fields.bind(py).get_item(name)?.ok_or_else(|| decoded.error.clone()));
        }
        let Ok(kind) = &self.data.kind else { return Ok(Err(self.undecoded_reason())) };
        let Some(index) = kind.field_names(py)?.top_indexes.bind(py).get_item(name)? else {
            return Ok(Err(None));
        };
        let index = index.extract::<usize>()?;
        let found = guard(|| decode_field(py, kind, self.data.payload(), self.pointer_size(), index))?;
        Ok(found.map_err(|reason: Option<Undecoded>| reason.map(|reason| escape(&reason.to_string()))))
    }

    /// Returns the name that messages use for the event: its name or, without one, its id.
    fn display_name(&self) -> String {
        let descriptor = self.data.descriptor;
        let name = self.data.kind.as_ref().ok().and_then(|kind| kind.prepared.event_name.as_deref());
        match (name, self.data.is_kernel) {
            (Some(name), _) => escape(name),
            (None, true) => {
                format!("{}/{}", class_name(&self.data.provider).unwrap_or("?"), descriptor.opcode)
            }
            (None, false) => descriptor.id.to_string(),
        }
    }
}

/// Returns an id, or `None` for the number that means "no id".
fn known_id(id: u32) -> Option<u32> {
    (id != NO_ID).then_some(id)
}

#[pymethods]
impl Event {
    /// Time of the event, in UTC, rounded down to microseconds; see time_ns.
    #[getter]
    fn time<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDateTime>> {
        datetime(py, self.data.time)
    }

    /// Time of the event in nanoseconds since 1970-01-01 UTC; the resolution is 100 ns.
    #[getter]
    fn time_ns(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let ns = self.data.time.unix_ns();
        // Nearly all times fit, and smaller integers are faster to convert.
        match i64::try_from(ns) {
            Ok(ns) => ns.into_py_any(py),
            Err(_) => ns.into_py_any(py),
        }
    }

    /// Nanoseconds since the start of the first trace, by the clock of the trace.
    #[getter]
    fn ns_since_start(&self) -> i64 {
        self.data.ns_since_start
    }

    /// Name of the provider; None if it is unknown.
    #[getter]
    fn provider(&self) -> Option<&str> {
        self.data.provider_name.as_deref()
    }

    /// GUID of the provider; for kernel events, of their class.
    #[getter]
    fn provider_id<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        uuid(py, self.data.provider)
    }

    /// Name of the event, such as "Order" or "Process/Start"; None if no schema is known.
    #[getter]
    fn name(&self, py: Python<'_>) -> Py<PyAny> {
        match &self.data.kind {
            Ok(kind) => kind.name(py),
            Err(_) => py.None(),
        }
    }

    /// Id of the event.
    #[getter]
    fn id(&self) -> u16 {
        self.data.descriptor.id
    }

    /// Version of the event.
    #[getter]
    fn version(&self) -> u8 {
        self.data.descriptor.version
    }

    /// Channel of the event.
    #[getter]
    fn channel(&self) -> u8 {
        self.data.descriptor.channel
    }

    /// Level: 1 critical, 2 error, 3 warning, 4 information, 5 verbose; 0 means "always".
    #[getter]
    fn level(&self) -> u8 {
        self.data.descriptor.level
    }

    /// Opcode of the event; of a kernel event, its type.
    #[getter]
    fn opcode(&self) -> u8 {
        self.data.descriptor.opcode
    }

    /// Task of the event.
    #[getter]
    fn task(&self) -> u16 {
        self.data.descriptor.task
    }

    /// Keyword bits of the event.
    #[getter]
    fn keyword(&self) -> u64 {
        self.data.descriptor.keyword
    }

    /// Id of the process that the event concerns: that of the header, unless the event names
    /// another one. None if it is unknown.
    #[getter]
    fn pid(&self) -> Option<u32> {
        known_id(self.data.concerned().pid)
    }

    /// Id of the thread that the event concerns: that of the header, unless the event names another
    /// one. None if it is unknown.
    #[getter]
    fn tid(&self) -> Option<u32> {
        known_id(self.data.concerned().tid)
    }

    /// Process id in the header of the event; None if there is none.
    #[getter]
    fn header_pid(&self) -> Option<u32> {
        known_id(self.data.pid)
    }

    /// Thread id in the header of the event; None if there is none.
    #[getter]
    fn header_tid(&self) -> Option<u32> {
        known_id(self.data.tid)
    }

    /// Name of the program of the process that the event concerns; None if it is unknown.
    #[getter]
    fn process(&self) -> Option<&str> {
        self.data.process.as_deref()
    }

    /// Number of the processor.
    #[getter]
    fn cpu(&self) -> u16 {
        self.data.cpu
    }

    /// Index of the trace in Trace.files.
    #[getter]
    fn file_index(&self) -> usize {
        self.data.file
    }

    /// Whether this is an event of the kernel.
    #[getter]
    fn is_kernel(&self) -> bool {
        self.data.is_kernel
    }

    /// Whether this event describes the file: its header, or a process that wrote to it. The session
    /// writes these events itself and does not count them.
    #[getter]
    fn describes_file(&self) -> bool {
        self.data.describes_file
    }

    /// Activity that the event belongs to; None if there is none.
    #[getter]
    fn activity_id<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.data.activity.map(|guid| uuid(py, guid)).transpose()
    }

    /// Related activity; None if there is none.
    #[getter]
    fn related_activity_id<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let related = self.data.record().and_then(|record| record.items().related_activity());
        related.map(|guid| uuid(py, guid)).transpose()
    }

    /// Details of the writer that the session recorded, by name: "sid", "session", "app",
    /// "start_key", "event_key" and "container".
    #[getter]
    fn extended<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let items = PyDict::new(py);
        for (name, value) in self.data.record().iter().flat_map(list_items) {
            match value {
                ItemValue::Text(text) => items.set_item(name, text)?,
                ItemValue::Number(number) => items.set_item(name, number)?,
            }
        }
        Ok(items)
    }

    /// The fields of the event by name. If the payload does not fit the schema, these are the fields
    /// before the misfit; see error.
    #[getter]
    fn fields<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        Ok(self.decode(py)?.fields.bind(py).clone())
    }

    /// The message of the event with its fields filled in; None if its schema has no message.
    #[getter]
    fn message(&self) -> PyResult<Option<String>> {
        let Ok(kind) = &self.data.kind else { return Ok(None) };
        guard(|| {
            let schema_match = SchemaMatch { prepared: &kind.prepared, payload: self.data.payload() };
            let mut text = Vec::new();
            let expanded =
                MessageExpander::default().expand(&schema_match, self.pointer_size(), kind.style, &mut text);
            Ok(expanded.map(|_| String::from_utf8_lossy(&text).into_owned()))
        })
    }

    /// The call stack, innermost frame first; None if the event has none.
    #[getter]
    fn stack<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyList>>> {
        let Some(frames) = &self.data.stack else { return Ok(None) };
        let stack = PyList::empty(py);
        for frame in frames {
            stack.append(Py::new(py, Frame { data: frame.clone() })?)?;
        }
        Ok(Some(stack))
    }

    /// Why the event is not decoded, or not completely; None for a decoded event.
    #[getter]
    fn error(&self, py: Python<'_>) -> PyResult<Option<String>> {
        Ok(self.decode(py)?.error.clone())
    }

    /// The payload.
    #[getter]
    fn payload<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.data.payload())
    }

    /// The bytes of the payload after the last field.
    #[getter]
    fn extra<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let extra_bytes = self.decode(py)?.extra_bytes;
        let payload = self.data.payload();
        let start = payload.len().saturating_sub(extra_bytes);
        Ok(PyBytes::new(py, payload.get(start..).unwrap_or_default()))
    }

    /// Returns a field by name. Decodes only this field, unless all fields were decoded before.
    fn __getitem__<'py>(&self, py: Python<'py>, name: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        match self.find_field(py, name)? {
            Ok(value) => Ok(value),
            Err(None) => Err(PyKeyError::new_err(name.clone().unbind())),
            Err(Some(reason)) => {
                let name = escape(&name.str()?.to_cow()?);
                Err(PyKeyError::new_err(format!("{name} (event {}: {reason})", self.display_name())))
            }
        }
    }

    /// Returns whether the event has a field of this name.
    fn __contains__(&self, py: Python<'_>, name: &Bound<'_, PyAny>) -> PyResult<bool> {
        Ok(self.find_field(py, name)?.is_ok())
    }

    /// Returns a field by name, or the default if the event has no such field.
    #[pyo3(signature = (name, default = None))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        name: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        Ok(self.find_field(py, name)?.ok().or(default))
    }

    /// Returns the names of the fields.
    fn keys<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        Ok(self.decode(py)?.fields.bind(py).keys())
    }

    fn __repr__(&self) -> String {
        let provider = match &self.data.provider_name {
            Some(name) => escape(name),
            None => format!("{{{}}}", self.data.provider),
        };
        format!("<traceweir.Event {provider}/{} at {}>", self.display_name(), self.data.time)
    }
}

/// A frame of a call stack: an address and, if the trace was opened with symbols, a function.
///
/// Inlined functions have frames of their own with the same address, the innermost first.
#[pyclass(frozen, module = "traceweir")]
pub(crate) struct Frame {
    data: FrameData,
}

impl Frame {
    fn symbol(&self) -> Option<&traceweir_analysis::symbols::SymbolFrame> {
        self.data.function.as_ref().and_then(|function| function.frames.get(function.index))
    }
}

#[pymethods]
impl Frame {
    /// Address of the instruction, or the return address.
    #[getter]
    fn address(&self) -> u64 {
        self.data.address
    }

    /// Name of the file of code; None if it is unknown.
    #[getter]
    fn module(&self) -> Option<&str> {
        self.symbol().and_then(|symbol| symbol.module.as_deref())
    }

    /// Name of the function; None if it is unknown.
    #[getter]
    fn function(&self) -> Option<&str> {
        self.symbol().and_then(|symbol| symbol.function.as_deref())
    }

    /// Bytes between the start of the function, or of the module, and the address; None without
    /// symbols.
    #[getter]
    fn offset(&self) -> Option<u64> {
        let lookup_offset = self.data.function.as_ref()?.lookup_offset;
        Some(self.symbol()?.offset.saturating_add(lookup_offset))
    }

    /// Path of the source file; None if it is unknown.
    #[getter]
    fn file(&self) -> Option<&str> {
        self.symbol().and_then(|symbol| symbol.file.as_deref())
    }

    /// Line in the source file; None if it is unknown.
    #[getter]
    fn line(&self) -> Option<u32> {
        self.symbol().and_then(|symbol| symbol.line)
    }

    /// Whether the function is inlined into that of the next frame.
    #[getter]
    fn is_inlined(&self) -> bool {
        self.symbol().is_some_and(|symbol| symbol.is_inlined)
    }

    fn __repr__<'py>(&self, py: Python<'py>) -> Bound<'py, PyString> {
        let place = match (self.module(), self.function()) {
            (Some(module), Some(function)) => format!("{}!{}", escape(module), escape(function)),
            (Some(module), None) => escape(module),
            (None, Some(function)) => escape(function),
            (None, None) => return PyString::new(py, &format!("<traceweir.Frame {:#x}>", self.data.address)),
        };
        let offset = self.offset().unwrap_or(0);
        PyString::new(py, &format!("<traceweir.Frame {place}+{offset:#x}>"))
    }
}
