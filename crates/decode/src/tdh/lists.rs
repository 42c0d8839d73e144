//! Lists the providers, and the keywords, levels, channels, tasks, opcodes, events and filters of a
//! provider.

use std::collections::BTreeMap;

use traceweir_format::Guid;
use traceweir_format::spec::event::{EventDescriptor, class};
use traceweir_format::wire::Put;

use super::event_info::encode_filter_info;
use super::texts::TextTable;
use super::{Answer, MAX_ANSWER_BYTES, Refusal};
use crate::source::{FilterSchema, ProviderNames, ProviderSchemas, ValueName};

/// The EVENT_FIELD_TYPE numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventFieldType {
    /// Type number 0.
    Keyword,
    /// Type number 1.
    Level,
    /// Type number 2.
    Channel,
    /// Type number 3.
    Task,
    /// Type number 4.
    Opcode,
}

impl EventFieldType {
    /// Returns the type with an EVENT_FIELD_TYPE number.
    #[must_use]
    pub const fn from_code(code: u32) -> Option<Self> {
        Some(match code {
            0 => Self::Keyword,
            1 => Self::Level,
            2 => Self::Channel,
            3 => Self::Task,
            4 => Self::Opcode,
            _ => return None,
        })
    }

    const fn code(self) -> u32 {
        self as u32
    }

    fn select_names(self, names: &ProviderNames) -> &[ValueName] {
        match self {
            Self::Keyword => &names.keywords,
            Self::Level => &names.levels,
            Self::Channel => &names.channels,
            Self::Task => &names.tasks,
            Self::Opcode => &names.opcodes,
        }
    }
}

/// The name under which Windows lists the kernel event provider.
const KERNEL_PROVIDER_NAME: &str = "Windows Kernel Trace";

/// The DECODING_SOURCE of manifests.
const DECODING_SOURCE_XML_FILE: u32 = 0;
/// The DECODING_SOURCE of MOF classes.
const DECODING_SOURCE_WBEM: u32 = 1;
/// The number of DECODING_SOURCE values.
const DECODING_SOURCE_COUNT: u32 = 4;

/// Encodes a PROVIDER_ENUMERATION_INFO of all providers, or only of those whose DECODING_SOURCE is
/// `source`.
pub(super) fn encode_providers<'s>(
    providers: impl Iterator<Item = &'s ProviderSchemas>,
    source: Option<u32>,
) -> Answer<Vec<u8>> {
    if source.is_some_and(|source| source >= DECODING_SOURCE_COUNT) {
        return Err(Refusal::Invalid("no such decoding source"));
    }
    let is_selected = |candidate: u32| source.is_none_or(|source| source == candidate);
    let mut entries: BTreeMap<[u8; 16], (u32, &str)> = BTreeMap::new();
    if is_selected(DECODING_SOURCE_WBEM) {
        entries.insert(class::SYSTEM_TRACE_CONTROL.to_bytes(), (DECODING_SOURCE_WBEM, KERNEL_PROVIDER_NAME));
    }
    for provider in providers.filter(|_| is_selected(DECODING_SOURCE_XML_FILE)) {
        entries
            .entry(provider.id.to_bytes())
            .or_insert((DECODING_SOURCE_XML_FILE, provider.name.as_deref().unwrap_or_default()));
    }
    // A header of 8 bytes, and entries of 24 bytes.
    let mut texts = TextTable::new(entries.len().saturating_mul(24).saturating_add(8));
    let mut out = Vec::new();
    out.put_u32(to_u32_count(entries.len())).put_u32(0);
    for (id, (source, name)) in &entries {
        out.put(id).put_u32(*source).put_u32(texts.add(name));
    }
    append_texts(out, texts)
}

/// Encodes a PROVIDER_FIELD_INFOARRAY of a provider's names: all of a kind, or those of `value`,
/// which for keywords is a mask.
pub(super) fn encode_fields<'s>(
    descriptions: impl Iterator<Item = &'s ProviderSchemas>,
    kind: EventFieldType,
    value: Option<u64>,
) -> Answer<Vec<u8>> {
    let is_selected = |name: &&ValueName| match value {
        None => true,
        Some(value) if kind == EventFieldType::Keyword => name.value != 0 && name.value & value == name.value,
        Some(value) => name.value == value,
    };
    let mut names: Vec<_> = descriptions
        .flat_map(|schemas| kind.select_names(&schemas.value_names))
        .filter(is_selected)
        .collect();
    names.sort();
    names.dedup();
    if names.is_empty() {
        return Err(Refusal::NotFound("there is no such field of the provider"));
    }
    // A header of 8 bytes, and entries of 16 bytes.
    let mut texts = TextTable::new(names.len().saturating_mul(16).saturating_add(8));
    let mut out = Vec::new();
    out.put_u32(to_u32_count(names.len())).put_u32(kind.code());
    for name in names {
        out.put_u32(texts.add(&name.name))
            .put_u32(texts.add_optional(name.text.as_deref()))
            .put_u64(name.value);
    }
    append_texts(out, texts)
}

/// Encodes a PROVIDER_EVENT_INFO of a provider's events.
pub(super) fn encode_events<'s>(descriptions: impl Iterator<Item = &'s ProviderSchemas>) -> Answer<Vec<u8>> {
    let mut is_described = false;
    let mut descriptors: BTreeMap<(u16, u8), &EventDescriptor> = BTreeMap::new();
    for description in descriptions {
        is_described = true;
        for event in &description.events {
            descriptors.entry((event.descriptor.id, event.descriptor.version)).or_insert(&event.descriptor);
        }
    }
    if descriptors.is_empty() {
        return Err(if is_described { Refusal::Empty } else { Refusal::NoMetadata });
    }
    let mut out = Vec::new();
    out.put_u32(to_u32_count(descriptors.len())).put_u32(0);
    out.extend(descriptors.values().flat_map(|descriptor| descriptor.to_bytes()));
    append_texts(out, TextTable::default())
}

/// Encodes a PROVIDER_FILTER_INFO for each filter that a provider accepts, ordered by id.
pub(super) fn encode_filters<'s>(
    descriptions: impl Iterator<Item = &'s ProviderSchemas>,
) -> Answer<Vec<Vec<u8>>> {
    let mut is_described = false;
    let mut filters: BTreeMap<(u8, u8), &FilterSchema> = BTreeMap::new();
    for filter in descriptions.inspect(|_| is_described = true).flat_map(|description| &description.filters) {
        filters.entry((filter.id, filter.version)).or_insert(filter);
    }
    if filters.is_empty() {
        return Err(if is_described {
            Refusal::NotFound("there is no filter of this provider")
        } else {
            Refusal::NoMetadata
        });
    }
    let mut bytes_left = MAX_ANSWER_BYTES;
    let mut encoded = Vec::with_capacity(filters.len());
    for filter in filters.into_values() {
        let bytes = encode_filter_info(filter);
        bytes_left = bytes_left.checked_sub(bytes.len()).ok_or(Refusal::AnswerTooLarge)?;
        encoded.push(bytes);
    }
    Ok(encoded)
}

fn to_u32_count(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

fn append_texts(mut out: Vec<u8>, texts: TextTable<'_>) -> Answer<Vec<u8>> {
    out.extend_from_slice(&texts.into_bytes());
    if out.len() > MAX_ANSWER_BYTES { Err(Refusal::AnswerTooLarge) } else { Ok(out) }
}

/// Returns a predicate that matches providers with this id.
pub(super) fn has_id(id: Guid) -> impl Fn(&&ProviderSchemas) -> bool {
    move |provider| provider.id == id
}
