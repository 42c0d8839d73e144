//! Markers with a schema for each kind of event: the provider, the name, and the names and types of the
//! fields.

use std::collections::HashMap;
use std::sync::Arc;

use fxprof_processed_profile::{
    CategoryHandle, Marker, MarkerFieldFlags, MarkerFieldFormat, MarkerLocations, MarkerTypeHandle, Profile,
    RuntimeSchemaMarkerField, RuntimeSchemaMarkerSchema, StringHandle, ThreadHandle,
};

use super::memory::ProfileMemory;

use crate::activity::{EventDetail, FieldValue};
use crate::json::{UniqueKeys, push_members, push_value};

/// The most kinds of events, and the most fields of a kind.
const MAX_KINDS: usize = 1 << 12;
const MAX_FIELDS: usize = 64;
/// The most bytes of the fields of all kinds, of which the schemas have copies.
const MAX_KIND_BYTES: usize = 4 << 20;
/// The bytes of a field besides its name.
const FIELD_BYTES: usize = 64;

/// A kind of event.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct KindKey {
    provider: Arc<str>,
    name: Arc<str>,
    /// Names of the fields, and whether each is a number.
    fields: Vec<(Arc<str>, bool)>,
}

/// The schemas of kinds of events.
pub(super) struct MarkerKinds {
    category: CategoryHandle,
    kinds: HashMap<KindKey, MarkerTypeHandle>,
    bytes: usize,
    /// The schema of events beyond the limit: one field with all values as JSON.
    other: Option<MarkerTypeHandle>,
}

impl MarkerKinds {
    pub(super) fn new(category: CategoryHandle) -> Self {
        Self { category, kinds: HashMap::new(), bytes: 0, other: None }
    }

    /// Returns the schema of a kind; `None` beyond the limit.
    fn find_or_register(&mut self, key: KindKey, profile: &mut Profile) -> Option<MarkerTypeHandle> {
        if let Some(handle) = self.kinds.get(&key) {
            return Some(*handle);
        }
        let names = key.fields.iter().map(|(name, _)| name.len().saturating_add(FIELD_BYTES));
        let bytes = names.fold(key.provider.len().saturating_add(key.name.len()), usize::saturating_add);
        if self.kinds.len() >= MAX_KINDS || self.bytes.saturating_add(bytes) > MAX_KIND_BYTES {
            return None;
        }
        self.bytes = self.bytes.saturating_add(bytes);
        let mut keys = UniqueKeys::default();
        // These keys have a meaning of their own in the format.
        for reserved in ["type", "name", "category", "cause", "provider"] {
            keys.make_unique(reserved);
        }
        let provider_field = ("provider".to_owned(), "Provider".to_owned(), false);
        let fields =
            key.fields.iter().map(|(name, is_number)| (keys.make_unique(name), name.to_string(), *is_number));
        let fields = std::iter::once(provider_field).chain(fields).collect();
        let type_name = format!("{}/{} {}", key.provider, key.name, self.kinds.len());
        let handle = self.register(type_name, fields, profile);
        self.kinds.insert(key, handle);
        Some(handle)
    }

    fn register(
        &self,
        type_name: String,
        fields: Vec<(String, String, bool)>,
        profile: &mut Profile,
    ) -> MarkerTypeHandle {
        let to_field = |(key, label, is_number)| RuntimeSchemaMarkerField {
            key,
            label,
            format: if is_number { MarkerFieldFormat::Decimal } else { MarkerFieldFormat::String },
            flags: MarkerFieldFlags::SEARCHABLE,
        };
        profile.register_marker_type(RuntimeSchemaMarkerSchema {
            type_name,
            description: None,
            locations: MarkerLocations::MARKER_CHART | MarkerLocations::MARKER_TABLE,
            chart_label: None,
            tooltip_label: None,
            table_label: Some("{marker.data.provider}".to_owned()),
            fields: fields.into_iter().map(to_field).collect(),
            graphs: Vec::new(),
        })
    }

    fn find_other(&mut self, profile: &mut Profile) -> MarkerTypeHandle {
        if let Some(handle) = self.other {
            return handle;
        }
        let field = |name: &str| (name.to_lowercase(), name.to_owned(), false);
        let handle =
            self.register("Other events".to_owned(), vec![field("Provider"), field("Fields")], profile);
        self.other = Some(handle);
        handle
    }
}

/// The value of a field of a marker.
enum MarkerValue {
    Text(StringHandle),
    Number(f64),
}

/// The texts of the markers of a thread.
pub(super) struct MarkerTexts<'p> {
    pub(super) thread: ThreadHandle,
    pub(super) profile: &'p mut Profile,
    pub(super) memory: &'p mut ProfileMemory,
}

impl MarkerTexts<'_> {
    fn intern(&mut self, text: &str) -> StringHandle {
        let handle = self.profile.intern_string(text);
        self.memory.add_text(self.thread, handle, text);
        handle
    }
}

/// An event as a marker.
pub(super) struct EventMarker {
    kind: MarkerTypeHandle,
    category: CategoryHandle,
    name: StringHandle,
    values: Vec<MarkerValue>,
}

impl EventMarker {
    pub(super) fn new(detail: &EventDetail, kinds: &mut MarkerKinds, texts: &mut MarkerTexts<'_>) -> Self {
        let name = texts.intern(&detail.name);
        let provider = MarkerValue::Text(texts.intern(&detail.provider));
        let attributes = detail.attributes();
        let fields: Vec<&(Arc<str>, FieldValue)> = detail.fields.values.iter().chain(&attributes).collect();
        let is_number = |value: &FieldValue| value.as_f64().is_some_and(f64::is_finite);
        let key = KindKey {
            provider: Arc::clone(&detail.provider),
            name: Arc::clone(&detail.name),
            fields: fields.iter().map(|(name, value)| (Arc::clone(name), is_number(value))).collect(),
        };
        let is_small = fields.len() <= MAX_FIELDS;
        let kind = is_small.then(|| kinds.find_or_register(key, texts.profile)).flatten();
        let mut values = vec![provider];
        let push_json = |push: &dyn Fn(&mut Vec<u8>), texts: &mut MarkerTexts<'_>| {
            let mut json = Vec::new();
            push(&mut json);
            MarkerValue::Text(texts.intern(&String::from_utf8_lossy(&json)))
        };
        if kind.is_none() {
            let members = || fields.iter().map(|(name, value)| (&**name, value));
            values.push(push_json(&|json| push_members(members(), json), texts));
        } else {
            values.extend(fields.iter().map(|(_, value)| match (value, value.as_f64()) {
                (_, Some(number)) if number.is_finite() => MarkerValue::Number(number),
                (FieldValue::Text(text), _) => MarkerValue::Text(texts.intern(text)),
                _ => push_json(&|json| push_value(value, json), texts),
            }));
        }
        texts.memory.add_marker(values.len());
        let kind = kind.unwrap_or_else(|| kinds.find_other(texts.profile));
        Self { kind, category: kinds.category, name, values }
    }
}

impl Marker for EventMarker {
    fn marker_type(&self, _: &mut Profile) -> MarkerTypeHandle {
        self.kind
    }

    fn name(&self, _: &mut Profile) -> StringHandle {
        self.name
    }

    fn category(&self, _: &mut Profile) -> CategoryHandle {
        self.category
    }

    /// Returns a value by the number of its field. The schema says which fields are texts, and the
    /// values follow it.
    fn string_field_value(&self, field_index: u32) -> StringHandle {
        match self.values.get(field_index as usize) {
            Some(MarkerValue::Text(text)) => *text,
            _ => self.name,
        }
    }

    fn number_field_value(&self, field_index: u32) -> f64 {
        match self.values.get(field_index as usize) {
            Some(MarkerValue::Number(number)) => *number,
            _ => 0.0,
        }
    }
}
