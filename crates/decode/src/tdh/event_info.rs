//! Encodes a schema as TRACE_EVENT_INFO, a map as EVENT_MAP_INFO, and a filter as
//! PROVIDER_FILTER_INFO.
//!
//! The bytes are encoded once for each schema. Two things differ from event to event: the
//! descriptor, which the caller fills in, and the number of elements or bytes of a property that
//! extends to the end of the payload.
//!
//! The layouts are those that [`embedded`](crate::source::embedded) reads from merged traces.

use traceweir_format::Guid;
use traceweir_format::spec::event::class;
use traceweir_format::spec::types::{InType, OutType};
use traceweir_format::wire::Put;

use super::MAX_ANSWER_BYTES;
use super::listed::{MetadataSizes, expand_prefixes, wpp_property_schema};
use super::texts::TextTable;
use crate::schema::{Count, Field, FieldKind, Length, Schema, SchemaOrigin, ValueMap};
use crate::source::FilterSchema;
use crate::source::kernel::KERNEL_PROVIDER;
use traceweir_format::spec::types::map;
use traceweir_format::spec::types::property::{
    PROPERTY_HAS_TAGS, PROPERTY_PARAM_COUNT, PROPERTY_PARAM_FIXED_COUNT, PROPERTY_PARAM_FIXED_LENGTH,
    PROPERTY_PARAM_LENGTH, PROPERTY_STRUCT,
};

/// Byte offset of the properties in a PROVIDER_FILTER_INFO.
const FILTER_PROPERTIES_OFFSET: usize = 16;
/// Byte offset of the properties in a TRACE_EVENT_INFO.
pub(super) const PROPERTIES_OFFSET: usize = 112;
/// The size of a property, in bytes.
pub(super) const PROPERTY_BYTES: usize = 24;
/// Byte offset of the count in a property.
const PROPERTY_COUNT_OFFSET: usize = 16;
/// Byte offset of the length in a property.
const PROPERTY_LENGTH_OFFSET: usize = 18;

/// The template flag of events whose XML has the form `EventData`.
const TEMPLATE_EVENT_DATA: u32 = 1;

/// A schema encoded as TRACE_EVENT_INFO.
#[derive(Clone, Debug, Default)]
pub struct EventInfo {
    /// Empty if the structure would be too large.
    bytes: Vec<u8>,
    /// The schema whose fields are the properties; `None` if it is the event's own schema.
    listed_schema: Option<Schema>,
    /// The property that extends to the end of the payload.
    open_property: Option<OpenProperty>,
}

/// A property that extends to the end of the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenProperty {
    /// An array of elements, with the property's index.
    Elements(usize),
    /// A byte string, with the property's index.
    Bytes(usize),
}

impl OpenProperty {
    fn find(schema: &Schema) -> Option<Self> {
        schema.top().iter().enumerate().find_map(|(index, field)| match field.kind {
            _ if field.count == Count::ToEnd => Some(Self::Elements(index)),
            FieldKind::Value { input: InType::BINARY, output, .. }
                if field.length == Length::Natural
                    && output != OutType::IPV6
                    && field.count == Count::One =>
            {
                Some(Self::Bytes(index))
            }
            _ => None,
        })
    }

    /// Returns the property's index.
    #[must_use]
    pub const fn index(self) -> usize {
        match self {
            Self::Elements(index) | Self::Bytes(index) => index,
        }
    }
}

/// Returns the DECODING_SOURCE number of a schema's origin.
pub(super) const fn decoding_source(origin: SchemaOrigin) -> u32 {
    match origin {
        SchemaOrigin::Manifest | SchemaOrigin::Embedded | SchemaOrigin::StringOnly => 0,
        SchemaOrigin::Kernel => 1,
        SchemaOrigin::Wpp => 2,
        SchemaOrigin::TraceLogging => 3,
    }
}

impl EventInfo {
    /// Encodes a schema as TRACE_EVENT_INFO.
    #[must_use]
    pub fn encode(schema: &Schema) -> Self {
        Self::encode_with_metadata(schema, None)
    }

    /// Like [`EventInfo::encode`], for a payload that follows metadata of these sizes.
    pub(super) fn encode_with_metadata(schema: &Schema, metadata_sizes: Option<MetadataSizes>) -> Self {
        let listed_schema = if schema.origin == SchemaOrigin::Wpp {
            Some(wpp_property_schema())
        } else {
            expand_prefixes(schema, metadata_sizes)
        };
        let property_schema = listed_schema.as_ref().unwrap_or(schema);
        let open_property = OpenProperty::find(property_schema);
        let bytes = encode_event_info(schema, property_schema);
        let bytes = if bytes.len() > MAX_ANSWER_BYTES { Vec::new() } else { bytes };
        Self { bytes, listed_schema, open_property }
    }

    /// Returns the size of the structure in memory, in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        let fields = self.listed_schema.as_ref().map_or(0, |schema| schema.fields().len());
        fields.saturating_mul(size_of::<Field>()).saturating_add(self.bytes.len())
    }

    /// Returns the bytes of the structure; `None` if it would be too large.
    #[must_use]
    pub fn bytes(&self) -> Option<&[u8]> {
        (!self.bytes.is_empty()).then_some(&self.bytes)
    }

    /// Returns the schema whose fields are the properties; `event_schema` is the schema of the
    /// event.
    #[must_use]
    pub fn property_schema<'s>(&'s self, event_schema: &'s Schema) -> &'s Schema {
        self.listed_schema.as_ref().unwrap_or(event_schema)
    }

    /// Returns the property whose count or length depends on the payload.
    #[must_use]
    pub const fn open_property(&self) -> Option<OpenProperty> {
        self.open_property
    }

    /// Returns the bytes with the count or length of the open property filled in.
    pub(super) fn with_open_property(&self, open: OpenProperty, number: u16) -> Vec<u8> {
        let (flag, offset_in_property) = match open {
            OpenProperty::Elements(_) => (PROPERTY_PARAM_FIXED_COUNT, PROPERTY_COUNT_OFFSET),
            OpenProperty::Bytes(_) => (PROPERTY_PARAM_FIXED_LENGTH, PROPERTY_LENGTH_OFFSET),
        };
        let mut bytes = self.bytes.clone();
        let at = PROPERTIES_OFFSET.saturating_add(open.index().saturating_mul(PROPERTY_BYTES));
        for (offset, value) in [(0, &flag.to_le_bytes()[..]), (offset_in_property, &number.to_le_bytes())] {
            let start = at.saturating_add(offset);
            if let Some(field) = bytes.get_mut(start..start.saturating_add(value.len())) {
                field.iter_mut().zip(value).for_each(|(to, from)| *to |= from);
            }
        }
        bytes
    }
}

/// The name that Windows gives to the provider of kernel events.
const SYSTEM_TRACE: &str = "MSNT_SystemTrace";

fn encode_event_info(schema: &Schema, property_schema: &Schema) -> Vec<u8> {
    let fields = property_schema.fields();
    let fixed_bytes = PROPERTIES_OFFSET.saturating_add(fields.len().saturating_mul(PROPERTY_BYTES));
    let mut texts = TextTable::new(fixed_bytes);
    let (provider, event_guid) = provider_and_event_guid(schema);
    let names = &schema.names;
    let mut out = Vec::with_capacity(fixed_bytes.saturating_mul(2));
    out.put(&provider.to_bytes()).put(&event_guid.to_bytes()).put(&[0; 16]);
    out.put_u32(decoding_source(schema.origin));
    let provider_name = match names.provider.as_deref() {
        Some(KERNEL_PROVIDER) if schema.origin == SchemaOrigin::Kernel => Some(SYSTEM_TRACE),
        name => name,
    };
    out.put_u32(texts.add_optional(provider_name));
    out.put_u32(texts.add_optional(names.level.as_deref()));
    out.put_u32(texts.add_optional(names.channel.as_deref()));
    out.put_u32(texts.add_list(names.keywords.iter().map(|(_, name)| &**name)));
    // The event's name is also the task of a TraceLogging event, as on Windows.
    let task = match schema.origin {
        SchemaOrigin::TraceLogging => names.event.as_deref(),
        _ => names.task.as_deref(),
    };
    out.put_u32(texts.add_optional(task));
    out.put_u32(texts.add_optional(names.opcode.as_deref()));
    out.put_u32(texts.add_optional(schema.message.as_deref()));
    // The provider has no message, and there is no BinXML.
    out.put_u32(0).put_u32(0).put_u32(0);
    // In events of MOF classes these two fields hold the names of activity ids.
    let event = names.event.as_deref().filter(|_| schema.origin != SchemaOrigin::Kernel);
    out.put_u32(texts.add_optional(event)).put_u32(0);
    let count = |fields: &[Field]| u32::try_from(fields.len()).unwrap_or(u32::MAX);
    out.put_u32(count(fields)).put_u32(count(property_schema.top()));
    let is_classic = matches!(schema.origin, SchemaOrigin::Kernel | SchemaOrigin::Wpp);
    let template = if is_classic { 0 } else { TEMPLATE_EVENT_DATA };
    out.put_u32(template | schema.tags << 4);
    for field in fields {
        put_property(field, &mut texts, &mut out);
    }
    out.extend_from_slice(&texts.into_bytes());
    out
}

/// Returns the provider GUID, and the event GUID, which is null except for classic events and WPP
/// messages.
fn provider_and_event_guid(schema: &Schema) -> (Guid, Guid) {
    match schema.origin {
        SchemaOrigin::Kernel if schema.provider == class::EVENT_TRACE => (schema.provider, schema.provider),
        SchemaOrigin::Kernel => (class::SYSTEM_TRACE_CONTROL, schema.provider),
        SchemaOrigin::Wpp => (schema.provider, schema.provider),
        _ => (schema.provider, Guid::NULL),
    }
}

/// Encodes a filter as PROVIDER_FILTER_INFO.
pub(super) fn encode_filter_info(filter: &FilterSchema) -> Vec<u8> {
    let fields = filter.schema.fields();
    let fixed_bytes = fields.len().saturating_mul(PROPERTY_BYTES).saturating_add(FILTER_PROPERTIES_OFFSET);
    let mut texts = TextTable::new(fixed_bytes);
    let mut out = Vec::with_capacity(fixed_bytes);
    out.put(&[filter.id, filter.version, 0, 0]);
    out.put_u32(texts.add_optional(filter.schema.message.as_deref())).put_u32(0);
    out.put_u32(u32::try_from(fields.len()).unwrap_or(u32::MAX));
    for field in fields {
        put_property(field, &mut texts, &mut out);
    }
    out.extend_from_slice(&texts.into_bytes());
    out
}

/// Appends an EVENT_PROPERTY_INFO.
fn put_property<'f>(field: &'f Field, texts: &mut TextTable<'f>, out: &mut Vec<u8>) {
    let (count_flag, count) = match field.count {
        Count::One | Count::Prefixed | Count::ToEnd => (0, 1),
        Count::Fixed(n) => (PROPERTY_PARAM_FIXED_COUNT, n),
        Count::Field(index) => (PROPERTY_PARAM_COUNT, index),
    };
    // `EventInfo::with_open_property` fills in the number of elements.
    let count = if field.count == Count::ToEnd { 0 } else { count };
    let (length_flag, length) = match (field.length, &field.kind) {
        (Length::Fixed(n), _) => (PROPERTY_PARAM_FIXED_LENGTH, n),
        (Length::Field(index), _) => (PROPERTY_PARAM_LENGTH, index),
        (Length::Natural, FieldKind::Value { input, .. }) => (0, natural_length(*input)),
        (Length::Natural, FieldKind::Struct { .. }) => (0, 0),
    };
    let is_struct = matches!(field.kind, FieldKind::Struct { .. });
    let flags = count_flag
        | length_flag
        | if is_struct { PROPERTY_STRUCT } else { 0 }
        | if field.tags == 0 { 0 } else { PROPERTY_HAS_TAGS };
    out.put_u32(flags).put_u32(texts.add(&field.name));
    match &field.kind {
        FieldKind::Struct { first, members } => out.put_u16(*first).put_u16(*members).put_u32(0),
        FieldKind::Value { input, output, map } => {
            let map = texts.add_optional(map.as_deref().map(|map| &*map.name));
            out.put_u16(input.0).put_u16(output.0).put_u32(map)
        }
    };
    out.put_u16(count).put_u16(length).put_u32(field.tags);
}

/// Returns the size of a type in bytes; 0 if the payload or the pointer size decides.
fn natural_length(input: InType) -> u16 {
    let [narrow, wide] = [4, 8].map(|pointer| input.size(pointer));
    if narrow == wide { wide.and_then(|size| u16::try_from(size).ok()).unwrap_or(0) } else { 0 }
}

/// Encodes a map as EVENT_MAP_INFO. Texts end with a blank, as documented for manifests, unless the
/// map belongs to a classic event.
pub(super) fn encode_map_info(map: &ValueMap, origin: SchemaOrigin) -> Vec<u8> {
    let is_classic = origin == SchemaOrigin::Kernel;
    let entries = map.entries();
    let fixed_bytes = entries.len().saturating_mul(8).saturating_add(16);
    let mut texts = TextTable::new(fixed_bytes);
    let flag = match (is_classic, map.is_bit_map) {
        (false, false) => map::MANIFEST_VALUEMAP,
        (false, true) => map::MANIFEST_BITMAP,
        (true, false) => map::WBEM_VALUEMAP,
        (true, true) => map::WBEM_BITMAP,
    };
    let mut out = Vec::with_capacity(fixed_bytes);
    out.put_u32(texts.add(&map.name))
        .put_u32(flag)
        .put_u32(u32::try_from(entries.len()).unwrap_or(0))
        .put_u32(0);
    for (value, text) in entries {
        let at = if is_classic { texts.add(text) } else { texts.add_with_blank(text) };
        out.put_u32(at).put_u32(u32::try_from(value & u64::from(u32::MAX)).unwrap_or(0));
    }
    out.extend_from_slice(&texts.into_bytes());
    out
}
