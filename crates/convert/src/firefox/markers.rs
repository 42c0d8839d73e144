//! Markers with a schema for each kind of event: the provider, the name, and the names and types of the
//! fields.

use std::collections::HashMap;
use std::sync::Arc;

use fxprof_processed_profile::{
    CategoryHandle, Marker, MarkerFieldFlags, MarkerFieldFormat, MarkerLocations, MarkerTypeHandle, Profile,
    RuntimeSchemaMarkerField, RuntimeSchemaMarkerSchema, StringHandle,
};

use crate::activity::{EventDetail, FieldValue};
use crate::json::{UniqueKeys, push_value};

/// The most kinds of events, and the most fields of a kind.
const MAX_KINDS: usize = 1 << 12;
const MAX_FIELDS: usize = 64;
/// The most bytes of names of all kinds.
const MAX_KIND_BYTES: usize = 8 << 20;

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
        let names = key.fields.iter().map(|(name, _)| name.len());
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

/// An event as a marker.
pub(super) struct EventMarker {
    kind: MarkerTypeHandle,
    category: CategoryHandle,
    name: StringHandle,
    values: Vec<MarkerValue>,
    /// Bytes of the texts of the values.
    pub(super) text_bytes: usize,
}

impl EventMarker {
    pub(super) fn new(detail: &EventDetail, kinds: &mut MarkerKinds, profile: &mut Profile) -> Self {
        let name = profile.intern_string(&detail.name);
        let provider = MarkerValue::Text(profile.intern_string(&detail.provider));
        let ids = [("activity id", detail.activity), ("related activity id", detail.related_activity)];
        let ids: Vec<(Arc<str>, FieldValue)> = ids
            .into_iter()
            .filter_map(|(name, id)| Some((name.into(), FieldValue::Text(id?.to_string().into()))))
            .collect();
        let fields: Vec<&(Arc<str>, FieldValue)> = detail.fields.values.iter().chain(&ids).collect();
        let is_number = |value: &FieldValue| value.as_f64().is_some_and(f64::is_finite);
        let key = KindKey {
            provider: Arc::clone(&detail.provider),
            name: Arc::clone(&detail.name),
            fields: fields.iter().map(|(name, value)| (Arc::clone(name), is_number(value))).collect(),
        };
        let (kind, category) = (kinds.find_other(profile), kinds.category);
        let mut marker = Self { kind, category, name, values: vec![provider], text_bytes: 0 };
        let kind = if fields.len() <= MAX_FIELDS { kinds.find_or_register(key, profile) } else { None };
        let Some(kind) = kind else {
            let mut json = Vec::new();
            let members = fields.iter().map(|(name, value)| (&**name, value));
            crate::json::push_members(members, &mut json);
            marker.add_text(&String::from_utf8_lossy(&json), profile);
            return marker;
        };
        marker.kind = kind;
        for (_, value) in fields {
            match (value, value.as_f64().filter(|number| number.is_finite())) {
                (_, Some(number)) => marker.values.push(MarkerValue::Number(number)),
                (FieldValue::Text(text), _) => marker.add_text(text, profile),
                _ => {
                    let mut json = Vec::new();
                    push_value(value, &mut json);
                    marker.add_text(&String::from_utf8_lossy(&json), profile);
                }
            }
        }
        marker
    }

    fn add_text(&mut self, text: &str, profile: &mut Profile) {
        self.text_bytes = self.text_bytes.saturating_add(text.len());
        self.values.push(MarkerValue::Text(profile.intern_string(text)));
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
