//! Learns the schemas that a trace carries for its own events: manifests in chunks, and schemas
//! that a merge embedded.
//!
//! ```text
//!   EVENT 0xFFFE   00 u8 format 1 │ 01 u8 major, u8 minor │ 03 u8 magic 5B
//!                  │ 04 u16 chunks │ 06 u16 number │ 08 XML
//!   FULL  opcode 32  TRACE_EVENT_INFO ─┐  joined by the names of the maps;
//!   FULL  opcode 33  EVENT_MAP_INFO  ──┘  may come in any order
//! ```
//!
//! 0xFFFE is the event id of a chunk; the two-digit numbers are offsets in hexadecimal.
//!
//! Chunks of a provider must come in order. Chunk 0 starts a new set and drops an interrupted one.
//! A manifest that is sent again unchanged costs only its hash. A map that comes after the schemas
//! that name it is added to these schemas in place.
//!
//! Invariants: everything that a trace makes the decoder keep is subtracted from one budget,
//! [`MAX_KEPT_FIELDS`]: fields, entries and text. Incomplete manifests together have at most
//! [`MAX_INCOMPLETE_BYTES`] bytes. The time for each record is proportional to its size.
//!
//! Source: chunks Observed in traces of .NET 4.5; [`super::embedded`] describes the embedded forms.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hasher};
use std::sync::Arc;

use traceweir_format::Guid;
use traceweir_format::binary_path::BinaryPath;
use traceweir_format::header::{Family, Record};
use traceweir_format::kernel::shape_of;
use traceweir_format::spec::event::class;
use traceweir_format::time::FileTime;
use traceweir_format::wire::u16_at;

use super::embedded::{self, EmbeddedEvent};
use super::rank::EARLIEST;
use super::{Decoder, MAX_KEPT_FIELDS, SchemaCandidate, SourceRank, manifest};
use crate::schema::ValueMap;

/// The most bytes of manifests whose chunks are still arriving.
const MAX_INCOMPLETE_BYTES: usize = 64 << 20;
/// The most providers that may send chunks.
const MAX_SENDERS: usize = 1 << 16;
/// The number of bytes of text that cost as much as a field.
const TEXT_BYTES_PER_FIELD: usize = 64;

/// The format byte of a manifest chunk.
const CHUNK_FORMAT: u8 = 1;
/// The magic byte of a manifest chunk.
const CHUNK_MAGIC: u8 = 0x5B;

pub(super) const OPCODE_EVENT_INFO: u8 = 32;
pub(super) const OPCODE_EVENT_MAP: u8 = 33;

/// Key of an embedded schema: provider, class, id, version, and the opcode of classic events, which
/// have no ids.
type EmbeddedKey = (Guid, Guid, u16, u8, u8);

/// Key of a map: provider and name.
type MapKey = (Guid, Arc<str>);

/// Incomplete manifests, maps and schema keys that the decoder has read from a trace, and the spent
/// part of the budget.
#[derive(Debug, Default)]
pub(super) struct TraceSchemas {
    chunks_by_provider: HashMap<Guid, ManifestChunks>,
    /// The size of all incomplete manifests, in bytes.
    incomplete_bytes: usize,
    embedded: HashSet<EmbeddedKey>,
    maps: HashMap<MapKey, Arc<ValueMap>>,
    /// Indexes of the schemas and fields whose map has not arrived, by map.
    fields_without_map: HashMap<MapKey, Vec<(u32, usize)>>,
    /// The part of the budget that is spent, in fields.
    spent_fields: usize,
}

#[derive(Debug, Default)]
struct ManifestChunks {
    total: u16,
    next_number: u16,
    xml: Vec<u8>,
    /// Size and hash of the last complete manifest.
    last_complete: Option<(usize, u64)>,
}

impl TraceSchemas {
    /// Leaves this many fields of the budget.
    #[cfg(test)]
    pub(super) fn set_remaining_budget(&mut self, fields: usize) {
        self.spent_fields = MAX_KEPT_FIELDS - fields;
    }

    #[cfg(test)]
    pub(super) fn incomplete_bytes(&self) -> usize {
        self.incomplete_bytes
    }

    /// Subtracts fields and bytes of text from the budget; returns false if too little is left.
    pub(super) fn spend_budget(&mut self, fields: usize, text_bytes: usize) -> bool {
        let spent_fields = self
            .spent_fields
            .saturating_add(fields)
            .saturating_add(text_bytes / TEXT_BYTES_PER_FIELD)
            .saturating_add(1);
        let is_within_budget = spent_fields <= MAX_KEPT_FIELDS;
        if is_within_budget {
            self.spent_fields = spent_fields;
        }
        is_within_budget
    }

    /// Adds a chunk, and returns the manifest if it is complete and new.
    fn add_chunk(&mut self, provider: Guid, payload: &[u8]) -> Option<Vec<u8>> {
        let (header, body) = payload.split_first_chunk::<8>()?;
        let [format, _, _, magic, ..] = *header;
        let (total, number) = (u16_at(header, 4), u16_at(header, 6));
        if (format, magic) != (CHUNK_FORMAT, CHUNK_MAGIC) || number >= total {
            return None;
        }
        if self.chunks_by_provider.len() >= MAX_SENDERS && !self.chunks_by_provider.contains_key(&provider) {
            return None;
        }
        let chunks = self.chunks_by_provider.entry(provider).or_default();
        if number == 0 {
            self.incomplete_bytes = self.incomplete_bytes.saturating_sub(chunks.xml.len());
            chunks.xml = Vec::new();
            (chunks.total, chunks.next_number) = (total, 0);
        }
        let incomplete_bytes = self.incomplete_bytes.saturating_add(body.len());
        if number != chunks.next_number || total != chunks.total || incomplete_bytes > MAX_INCOMPLETE_BYTES {
            return None;
        }
        self.incomplete_bytes = incomplete_bytes;
        chunks.xml.extend_from_slice(body);
        chunks.next_number = chunks.next_number.saturating_add(1);
        if chunks.next_number < chunks.total {
            return None;
        }
        let xml = std::mem::take(&mut chunks.xml);
        self.incomplete_bytes = self.incomplete_bytes.saturating_sub(xml.len());
        let mut hasher = DefaultHasher::default();
        hasher.write(&xml);
        let identity = Some((xml.len(), hasher.finish()));
        (std::mem::replace(&mut chunks.last_complete, identity) != identity).then_some(xml)
    }
}

impl Decoder {
    /// Returns whether [`observe`](Self::observe) may learn something from an event.
    #[inline(always)]
    #[must_use]
    pub fn is_informative(record: &Record<'_>) -> bool {
        match record.family() {
            Family::Event => record.descriptor().is_manifest_chunk(),
            Family::Full => record.provider() == class::EVENT_METADATA || BinaryPath::is_in(record),
            _ => false,
        }
    }

    /// Learns from an event that carries schemas for other events or names a file with them.
    /// Returns whether the event is of this kind. A manifest replaces the earlier ones of its
    /// provider.
    #[inline]
    pub fn observe(&mut self, record: &Record<'_>) -> bool {
        self.observe_at(record, EARLIEST)
    }

    /// Like [`observe`](Self::observe), but a manifest replaces the earlier ones only for events
    /// that [`locate_at`](Self::locate_at) locates at this time or later.
    #[inline]
    pub fn observe_at(&mut self, record: &Record<'_>, time: FileTime) -> bool {
        let is_informative = Self::is_informative(record);
        if is_informative {
            self.learn_schemas(record, time);
        }
        is_informative
    }

    fn learn_schemas(&mut self, record: &Record<'_>, time: FileTime) {
        if record.family() == Family::Event {
            if let Some(xml) = self.in_trace.add_chunk(record.provider(), record.payload()) {
                self.add_manifest_xml(record.provider(), &xml, time);
            }
        } else if record.provider() == class::EVENT_METADATA {
            self.observe_metadata(record.descriptor().opcode, record.payload());
        } else {
            self.observe_binary_path(record);
        }
    }

    fn add_manifest_xml(&mut self, id: Guid, xml: &[u8], time: FileTime) {
        let Ok(providers) = manifest::parse(xml) else { return };
        let fields =
            providers.iter().flat_map(|p| &p.events).map(|e| e.schema.fields().len().saturating_add(1));
        if !self.in_trace.spend_budget(fields.sum(), xml.len()) {
            return;
        }
        for mut provider in providers {
            // Events carry the GUID of the EventSource, which may differ from the GUID in the
            // manifest.
            provider.id = id;
            if self.add_provider(provider, SourceRank::InTrace, time).is_err() {
                return;
            }
        }
    }

    fn observe_metadata(&mut self, opcode: u8, payload: &[u8]) {
        match opcode {
            OPCODE_EVENT_INFO => {
                if let Ok(info) = embedded::parse_event_info(payload) {
                    self.add_embedded(info, payload.len());
                }
            }
            OPCODE_EVENT_MAP => {
                if let Ok((provider, map)) = embedded::parse_event_map(payload) {
                    self.add_map(provider, Arc::new(map), payload.len());
                }
            }
            _ => {}
        }
    }

    fn add_embedded(&mut self, mut info: EmbeddedEvent, size: usize) {
        let d = info.descriptor;
        // In manifest events, `event_guid` may be the GUID of the task; only the decoding source
        // shows whether it is a class.
        let is_classic = info.is_classic();
        // The kernel tables take precedence over the trace.
        if is_classic && shape_of(&info.event_guid, d.opcode, d.version).is_some() {
            return;
        }
        let key = (info.provider, info.event_guid, d.id, d.version, if is_classic { d.opcode } else { 0 });
        let fields = info.schema.fields().len();
        if self.in_trace.embedded.contains(&key) || !self.in_trace.spend_budget(fields, size) {
            return;
        }
        self.in_trace.embedded.insert(key);
        if let Some(name) = &info.schema.names.provider {
            Arc::make_mut(&mut self.names).entry(info.provider).or_insert_with(|| name.clone());
        }
        let mut missing_maps = Vec::new();
        for (index, name) in info.map_names {
            match self.in_trace.maps.get(&(info.provider, name.clone())) {
                Some(map) => info.schema.set_map(index, map),
                None => missing_maps.push((index, name)),
            }
        }
        let Ok(schema) = self.store_schema(info.schema) else { return };
        for (index, name) in missing_maps {
            self.in_trace.fields_without_map.entry((info.provider, name)).or_default().push((schema, index));
        }
        if is_classic {
            let key = (info.event_guid, d.opcode, d.version);
            Arc::make_mut(&mut self.classic).insert(key, schema);
            self.resolved_classic.remove(&key);
            self.recent_classic.clear();
        } else {
            self.add_candidate(
                info.provider,
                d.id,
                SchemaCandidate { version: d.version, rank: SourceRank::Embedded, since: EARLIEST, schema },
            );
        }
    }

    /// Stores a map and gives it to the embedded schemas that wait for it.
    fn add_map(&mut self, provider: Guid, map: Arc<ValueMap>, size: usize) {
        let key = (provider, map.name.clone());
        if self.in_trace.maps.contains_key(&key) || !self.in_trace.spend_budget(map.entries().len(), size) {
            return;
        }
        for (schema, index) in self.in_trace.fields_without_map.remove(&key).unwrap_or_default() {
            if let Some(prepared) = usize::try_from(schema).ok().and_then(|k| self.schemas.get_mut(k)) {
                Arc::make_mut(prepared).schema.set_map(index, &map);
            }
        }
        self.in_trace.maps.insert(key, map);
    }
}
