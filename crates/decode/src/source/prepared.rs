//! A schema with the values derived from it once: the event's name, the parsed message, the JSON
//! keys.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::format::{PaddedText, push_escaped_text, push_json_string, push_word};
use crate::message::EventMessage;
use crate::schema::{Count, Field, FieldKind, Length, Schema};
use traceweir_format::spec::types::{InType, OutType};
use traceweir_format::wire::chunk;

/// Identifies a prepared schema in this process, for caches of values that other modules derive
/// from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SchemaId(u64);

impl SchemaId {
    /// Returns the number of the schema. Schemas are numbered in the order in which they are prepared.
    #[inline]
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0
    }
}

/// A schema with its derived values, ready for use.
#[derive(Clone, Debug)]
pub struct PreparedSchema {
    /// The layout and names.
    pub schema: Schema,
    /// The event's display name; see [`Schema::event_name`].
    pub event_name: Option<Arc<str>>,
    /// The parsed message text.
    pub message: Option<EventMessage>,
    /// The text `provider/event` on one line, if both names are known.
    pub title: Option<PaddedText>,
    keys: Vec<PaddedText>,
    labels: Vec<PaddedText>,
    /// For pointers of 4 and of 8 bytes.
    id_offsets: [Option<IdOffsets>; 2],
    id: SchemaId,
}

/// The offsets in the payload of the first process id and the first thread id that an event names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct IdOffsets {
    pid: Option<usize>,
    tid: Option<usize>,
}

impl IdOffsets {
    /// Finds the offsets, if every event with the schema has its ids at the same offsets.
    fn find(schema: &Schema, pointer_size: usize) -> Option<Self> {
        let is_id = |field: &Field| {
            matches!(field.kind, FieldKind::Value { output: OutType::PID | OutType::TID, .. })
        };
        let mut ids_left = schema.fields().iter().filter(|field| is_id(field)).count();
        let mut offsets = Self::default();
        let mut offset = 0_usize;
        for field in schema.top() {
            if ids_left == 0 {
                break;
            }
            let FieldKind::Value { input, output, .. } = &field.kind else { return None };
            let size = match (field.count, field.length) {
                (Count::One, Length::Natural) => input.size(pointer_size).filter(|size| *size > 0)?,
                (Count::One, Length::Fixed(n)) if *input == InType::BINARY && n > 0 => usize::from(n),
                _ => return None,
            };
            if is_id(field) {
                if *input != InType::UINT32 {
                    return None;
                }
                let slot = if *output == OutType::PID { &mut offsets.pid } else { &mut offsets.tid };
                slot.get_or_insert(offset);
                ids_left = ids_left.saturating_sub(1);
            }
            offset = offset.saturating_add(size);
        }
        (ids_left == 0 && !schema.is_log_file_header).then_some(offsets)
    }

    /// Returns the process id and the thread id that a payload contains.
    #[inline]
    pub(crate) fn read(self, payload: &[u8]) -> (Option<u32>, Option<u32>) {
        let read = |offset| chunk(payload, offset).map(|bytes| u32::from_le_bytes(*bytes));
        (self.pid.and_then(read), self.tid.and_then(read))
    }
}

impl PreparedSchema {
    /// Returns an upper limit of the bytes that [`PreparedSchema::new`] derives. Fields and events
    /// may share the texts of a schema, but derived texts are not shared.
    pub(super) fn derived_bytes(schema: &Schema) -> usize {
        /// Bytes of two allocations and the structures that point to them.
        const BYTES_PER_FIELD: usize = 192;
        /// A control character becomes six bytes of JSON and four bytes of text.
        const ESCAPED_BYTES_PER_BYTE: usize = 10;
        let fields = schema
            .fields()
            .iter()
            .map(|f| f.name.len().saturating_mul(ESCAPED_BYTES_PER_BYTE).saturating_add(BYTES_PER_FIELD));
        let n = &schema.names;
        let texts = [&schema.message, &n.provider, &n.event, &n.task, &n.opcode];
        let texts = texts.into_iter().flatten().map(|t| t.len().saturating_mul(ESCAPED_BYTES_PER_BYTE));
        fields.chain(texts).fold(0, usize::saturating_add)
    }

    /// Creates a schema with its derived values.
    #[must_use]
    pub fn new(schema: Schema) -> Self {
        let event_name: Option<Arc<str>> = schema.event_name().map(Into::into);
        let message = schema.message.as_deref().filter(|m| !m.trim().is_empty()).map(EventMessage::parse);
        let (title, keys, labels) =
            (build_title(&schema, &event_name), build_json_keys(&schema), build_labels(&schema));
        static NEXT_ID: AtomicU64 = AtomicU64::new(0);
        let id = SchemaId(NEXT_ID.fetch_add(1, Ordering::Relaxed));
        let id_offsets = [4, 8].map(|pointer_size| IdOffsets::find(&schema, pointer_size));
        Self { schema, event_name, message, title, keys, labels, id_offsets, id }
    }

    /// Returns where a payload with pointers of this size has its ids; `None` if only a walk finds
    /// them.
    #[inline]
    pub(crate) fn id_offsets(&self, pointer_size: usize) -> Option<IdOffsets> {
        let [with_4_bytes, with_8_bytes] = self.id_offsets;
        if pointer_size == 4 { with_4_bytes } else { with_8_bytes }
    }

    /// Returns the id of the schema.
    #[inline]
    #[must_use]
    pub const fn id(&self) -> SchemaId {
        self.id
    }

    /// Returns the JSON key of a field, quoted, escaped and followed by a colon. Fields of the same
    /// name in one object are numbered.
    #[inline]
    #[must_use]
    pub fn json_key(&self, index: usize) -> &[u8] {
        self.keys.get(index).map_or(b"\"?\":", PaddedText::as_bytes)
    }

    /// Appends the [JSON key](Self::json_key) of a field.
    #[inline(always)]
    pub fn push_json_key(&self, index: usize, out: &mut Vec<u8>) {
        match self.keys.get(index) {
            Some(key) => key.push(out),
            None => out.extend_from_slice(self.json_key(index)),
        }
    }

    /// Returns the label of a field for one-line text: a blank, the name, an equals sign.
    #[inline]
    #[must_use]
    pub fn label(&self, index: usize) -> &[u8] {
        self.labels.get(index).map_or(b" ?=", PaddedText::as_bytes)
    }

    /// Appends the [label](Self::label) of a field.
    #[inline(always)]
    pub fn push_label(&self, index: usize, out: &mut Vec<u8>) {
        match self.labels.get(index) {
            Some(label) => label.push(out),
            None => out.extend_from_slice(self.label(index)),
        }
    }
}

fn build_title(schema: &Schema, event_name: &Option<Arc<str>>) -> Option<PaddedText> {
    let (provider, event) = (schema.names.provider.as_deref()?, event_name.as_deref()?);
    let mut title = Vec::new();
    push_escaped_text(provider.as_bytes(), &mut title);
    title.push(b'/');
    push_escaped_text(event.as_bytes(), &mut title);
    Some(PaddedText::new(&title))
}

fn build_labels(schema: &Schema) -> Vec<PaddedText> {
    let build_label = |name: &str| {
        let mut label = vec![b' '];
        push_word(name.as_bytes(), &mut label);
        label.push(b'=');
        PaddedText::new(&label)
    };
    schema.fields().iter().map(|f| build_label(&f.name)).collect()
}

fn build_json_keys(schema: &Schema) -> Vec<PaddedText> {
    let mut keys = vec![PaddedText::new(b""); schema.fields().len()];
    build_scope_keys(schema, 0, schema.top().len(), &mut keys);
    for field in schema.fields() {
        if let FieldKind::Struct { first, members } = field.kind {
            build_scope_keys(schema, usize::from(first), usize::from(members), &mut keys);
        }
    }
    keys
}

fn build_scope_keys(schema: &Schema, first: usize, count: usize, keys: &mut [PaddedText]) {
    let mut taken = HashSet::new();
    let mut repeats = HashMap::<&str, u32>::new();
    for (index, field) in schema.fields().iter().enumerate().skip(first).take(count) {
        let repeat = repeats.entry(&field.name).or_insert(0);
        let mut name = field.name.to_string();
        loop {
            *repeat = repeat.saturating_add(1);
            if *repeat > 1 {
                name = format!("{}_{}", field.name, *repeat);
            }
            if taken.insert(name.clone()) {
                break;
            }
        }
        let mut key = Vec::with_capacity(name.len().saturating_add(3));
        push_json_string(&name, &mut key);
        key.push(b':');
        if let Some(slot) = keys.get_mut(index) {
            *slot = PaddedText::new(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_with_equal_names_are_numbered() {
        let field = |name| Field::value(name, InType::UINT8, OutType::NULL);
        let fields = vec![field("a"), field("a"), field("a_2"), field("a"), field("q\"")];
        let prepared = PreparedSchema::new(Schema::default().seal(fields, 5).unwrap());
        let keys: Vec<_> =
            (0..5).map(|i| String::from_utf8_lossy(prepared.json_key(i)).into_owned()).collect();
        assert_eq!(keys, ["\"a\":", "\"a_2\":", "\"a_2_2\":", "\"a_3\":", "\"q\\\"\":"]);
    }

    #[test]
    fn ids_have_offsets_only_after_fields_of_fixed_size() {
        let prepare = |fields: Vec<Field>| {
            let count = fields.len();
            PreparedSchema::new(Schema::default().seal(fields, count).unwrap())
        };
        let pointer = || Field::value("a", InType::POINTER, OutType::NULL);
        let [pid, tid] = [OutType::PID, OutType::TID].map(|out| Field::value("id", InType::UINT32, out));
        let text = || Field::value("t", InType::ANSISTRING, OutType::NULL);
        let prepared = prepare(vec![pointer(), tid.clone(), pid.clone(), tid.clone(), text()]);
        let payload = [[0_u32; 2], [7, 8], [9, 0]].map(|pair| pair.map(u32::to_le_bytes));
        let payload = payload.as_flattened().as_flattened();
        let read = |pointer_size, length| prepared.id_offsets(pointer_size).unwrap().read(&payload[..length]);
        assert_eq!(read(8, 24), (Some(8), Some(7)));
        assert_eq!(read(8, 15), (None, Some(7)), "the payload ends inside the process id");
        assert_eq!(read(4, 24), (Some(7), Some(0)));
        assert_eq!(prepare(vec![text()]).id_offsets(8).unwrap().read(payload), (None, None));
        assert_eq!(prepare(vec![text(), pid]).id_offsets(8), None);
    }
}
