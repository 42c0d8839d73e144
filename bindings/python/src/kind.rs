//! The kinds of events: schemas together with the Python objects that their events share.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::mem::size_of;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyString};
use traceweir_decode::format::Style;
use traceweir_decode::schema::Field;
use traceweir_decode::source::PreparedSchema;
use traceweir_decode::source::prepared::SchemaId;

use crate::json_string::parse_json_string;

/// A schema, and the Python objects that are made once for all its events.
pub(crate) struct EventKind {
    pub(crate) prepared: PreparedSchema,
    pub(crate) style: Style,
    /// The event name, or `None`.
    name: PyOnceLock<Py<PyAny>>,
    names: PyOnceLock<FieldNames>,
}

/// The names of fields as Python strings.
pub(crate) struct FieldNames {
    /// By index of the field. Fields of the same name in one structure are numbered.
    pub(crate) by_index: Vec<Py<PyString>>,
    /// The indexes of the top-level fields by name.
    pub(crate) top_indexes: Py<PyDict>,
}

impl EventKind {
    fn new(prepared: &PreparedSchema, style: Style) -> Self {
        Self { prepared: prepared.clone(), style, name: PyOnceLock::new(), names: PyOnceLock::new() }
    }

    /// Returns the event name, or Python's `None`.
    pub(crate) fn name(&self, py: Python<'_>) -> Py<PyAny> {
        let create_name = || match &self.prepared.event_name {
            Some(name) => PyString::new(py, name).into_any().unbind(),
            None => py.None(),
        };
        self.name.get_or_init(py, create_name).clone_ref(py)
    }

    /// Returns the names of the fields.
    pub(crate) fn field_names(&self, py: Python<'_>) -> PyResult<&FieldNames> {
        self.names.get_or_try_init(py, || {
            let schema = &self.prepared.schema;
            let (mut by_index, top_indexes) = (Vec::new(), PyDict::new(py));
            for index in 0..schema.fields().len() {
                // The key is the quoted name and a colon.
                let key = self.prepared.json_key(index);
                let quoted = std::str::from_utf8(key.strip_suffix(b":").unwrap_or(key)).unwrap_or_default();
                // Not interned: some versions of Python never free interned strings, and traces
                // may have any number of names.
                let name = PyString::new(py, &parse_json_string(quoted));
                if index < schema.top().len() {
                    top_indexes.set_item(&name, index)?;
                }
                by_index.push(name.unbind());
            }
            Ok(FieldNames { by_index, top_indexes: top_indexes.unbind() })
        })
    }
}

/// Estimates the bytes that a kind of event takes.
fn estimate_bytes(prepared: &PreparedSchema) -> usize {
    /// Bytes of a key, a label and their allocations.
    const DERIVED_BYTES_PER_FIELD: usize = 192;
    const DERIVED_BYTES_PER_BYTE: usize = 10;
    let schema = &prepared.schema;
    // Names and maps are shared with the decoder; keys and labels are not.
    let field_bytes = |field: &Field| {
        let derived_bytes = field.name.len().saturating_mul(DERIVED_BYTES_PER_BYTE);
        size_of::<Field>().saturating_add(DERIVED_BYTES_PER_FIELD).saturating_add(derived_bytes)
    };
    let message = schema.message.as_ref().map_or(0, |text| text.len().saturating_mul(2));
    let fields = schema.fields().iter().map(field_bytes).fold(0, usize::saturating_add);
    size_of::<EventKind>().saturating_add(fields).saturating_add(message)
}

/// The kinds of recent events, by schema.
pub(crate) struct KindCache {
    kinds: HashMap<SchemaId, Arc<EventKind>, BuildHasherDefault<IdHasher>>,
    style: Style,
    /// Estimated bytes of the kinds in the cache.
    cached_bytes: usize,
    /// Estimated bytes of the kinds that were made since [`Self::take_new_bytes`] was called.
    new_bytes: usize,
}

impl KindCache {
    /// The cache is emptied when its kinds take more than this.
    const MAX_BYTES: usize = 16 << 20;

    pub(crate) fn new(style: Style) -> Self {
        Self { kinds: HashMap::default(), style, cached_bytes: 0, new_bytes: 0 }
    }

    /// Returns the kind of events with this schema.
    #[inline]
    pub(crate) fn find(&mut self, prepared: &PreparedSchema) -> Arc<EventKind> {
        match self.kinds.get(&prepared.id()) {
            Some(kind) => Arc::clone(kind),
            None => self.add(prepared),
        }
    }

    #[cold]
    fn add(&mut self, prepared: &PreparedSchema) -> Arc<EventKind> {
        let bytes = estimate_bytes(prepared);
        if self.cached_bytes.saturating_add(bytes) > Self::MAX_BYTES {
            self.kinds.clear();
            self.cached_bytes = 0;
        }
        self.cached_bytes = self.cached_bytes.saturating_add(bytes);
        self.new_bytes = self.new_bytes.saturating_add(bytes);
        let kind = Arc::new(EventKind::new(prepared, self.style));
        self.kinds.insert(prepared.id(), Arc::clone(&kind));
        kind
    }

    /// Returns the estimated bytes of the kinds that were made since the last call.
    pub(crate) fn take_new_bytes(&mut self) -> usize {
        std::mem::take(&mut self.new_bytes)
    }
}

/// Hashes the ids of schemas, which this process numbers itself.
#[derive(Default)]
struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }
    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0.rotate_left(5) ^ number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}
