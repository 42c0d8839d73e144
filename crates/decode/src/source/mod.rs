//! Which schema describes an event: the look-up order, and the caches that make it cheap.
//!
//! ```text
//!   EVENT with metadata ──────────────▶ tracelogging   (cache by the metadata's bytes)
//!   EVENT 0xFFFE ─────────────────────▶ a manifest chunk; complete manifests are taken in
//!   EVENT (provider, id, version) ────▶ manifest in the trace ▸ schema that merging embedded ▸ manifests given by the user
//!   SYSTEM · COMPACT · PERFINFO ──────▶ kernel tables by (class, type, version)
//!   FULL · INSTANCE (class, type) ────▶ kernel tables ▸ schema that merging embedded
//!   MESSAGE (guid, number) ───────────▶ wpp
//! ```
//!
//! A version that no manifest has is read with the next lower one, whose layout it begins with. Schemas in the trace may come after the
//! events they describe: whoever decodes a file lets [`Decoder::observe`] see all of it when a look-up
//! fails. What a hostile trace can make this keep is bounded by [`MAX_KEPT_FIELDS`].

pub mod binary;
mod builtin;
pub mod embedded;
pub mod kernel;
pub mod known;
pub mod manifest;
pub mod messages;
mod provider;
mod self_described;
pub mod tracelogging;
pub mod wevt;
pub mod wpp;

pub use known::Known;
pub use provider::{EventSchema, ProviderSchemas};

use std::sync::Arc;

use rustc_hash::FxHashMap;
use traceweir_format::header::{Family, Record};
use traceweir_format::spec::event::{
    CHANNEL_TRACELOGGING, EVENT_HEADER_FLAG_STRING_ONLY, EventDescriptor, ExtType, class,
};
use traceweir_format::tracelogging::Traits;
use traceweir_format::wire::{chunk, u16_at};
use traceweir_format::{Guid, text};

use crate::error::{Result, Undecoded};
use crate::schema::{Schema, ValueMap};
use embedded::EmbeddedEvent;
use self_described::SelfDescribed;

/// The most schema fields that a trace's own manifests and embedded schemas may take.
pub const MAX_KEPT_FIELDS: usize = 1 << 20;

/// The largest manifest that a trace may carry in chunks.
const MAX_MANIFEST: usize = 64 << 20;

/// Where a manifest schema came from, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    InTrace,
    Embedded,
    Given,
}

/// One version of an event in one source.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    version: u8,
    rank: Rank,
    known: u32,
}

/// A schema and the payload it describes.
#[derive(Clone, Copy, Debug)]
pub struct Found<'d, 'p> {
    /// The schema with what is derived from it.
    pub known: &'d Known,
    /// The payload; without metadata that stands in front of it.
    pub payload: &'p [u8],
}

/// Finds schemas for events.
#[derive(Debug, Default)]
pub struct Decoder {
    known: Vec<Known>,
    self_described: SelfDescribed,
    /// Manifest events by provider and id.
    events: FxHashMap<(Guid, u16), Vec<Candidate>>,
    /// What (provider, id, version) led to last time.
    resolved: FxHashMap<(Guid, u16, u8), Option<u32>>,
    /// Kernel and other classic events by class, type and version.
    classic: FxHashMap<(Guid, u8, u8), Option<u32>>,
    embedded: FxHashMap<(Guid, u16, u8), EmbeddedEvent>,
    maps: FxHashMap<(Guid, Arc<str>), Arc<ValueMap>>,
    messages: FxHashMap<(Guid, u16), u32>,
    chunks: FxHashMap<Guid, Chunks>,
    names: FxHashMap<Guid, Arc<str>>,
    builtin: builtin::Builtin,
    kept_fields: usize,
}

/// The chunks of a manifest that arrive one by one.
#[derive(Debug, Default)]
struct Chunks {
    total: u16,
    next: u16,
    xml: Vec<u8>,
    /// The last complete manifest, so that repetitions cost nothing.
    done: Vec<u8>,
}

impl Decoder {
    /// A decoder that knows what comes with events and the kernel tables.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds manifests from a file's bytes: XML, or a PE or ELF file with compiled ones. Returns the number of events.
    pub fn add_manifest(&mut self, bytes: &[u8]) -> Result<usize> {
        let providers = match binary::provider_binary_kind(bytes) {
            binary::Kind::Pe | binary::Kind::Elf => binary::load(bytes)?,
            _ => manifest::parse(bytes)?,
        };
        let events = providers.iter().map(|p| p.events.len()).sum();
        for provider in providers {
            self.add_provider(provider, Rank::Given);
        }
        Ok(events)
    }

    /// Adds the message formats of a TMF file. Returns their number.
    pub fn add_tmf(&mut self, bytes: &[u8]) -> Result<usize> {
        Ok(self.add_formats(wpp::tmf::parse(bytes)?))
    }

    /// Adds the message formats of a PDB file. Returns their number.
    pub fn add_pdb<R: std::io::Read + std::io::Seek + Send>(&mut self, file: R) -> Result<usize> {
        Ok(self.add_formats(wpp::pdb::load(file)?))
    }

    fn add_formats(&mut self, parsed: wpp::Parsed) -> usize {
        let count = parsed.formats.len();
        for format in parsed.formats {
            let id = self.keep(format.schema);
            self.messages.insert((format.guid, format.number), id);
        }
        count
    }

    /// The name of a provider, as far as anything seen so far tells.
    #[must_use]
    pub fn provider_name(&self, provider: &Guid) -> Option<&str> {
        self.names.get(provider).map(|n| &**n)
    }

    fn keep(&mut self, schema: Schema) -> u32 {
        self.known.push(Known::new(schema));
        u32::try_from(self.known.len().saturating_sub(1)).unwrap_or(u32::MAX)
    }

    fn add_provider(&mut self, provider: ProviderSchemas, rank: Rank) {
        if let Some(name) = &provider.name {
            self.names.insert(provider.id, name.clone());
        }
        for event in provider.events {
            let (id, version) = (event.descriptor.id, event.descriptor.version);
            let known = self.keep(event.schema);
            self.add_candidate(provider.id, id, Candidate { version, rank, known });
        }
    }

    fn add_candidate(&mut self, provider: Guid, id: u16, candidate: Candidate) {
        let list = self.events.entry((provider, id)).or_default();
        list.retain(|c| (c.version, c.rank) != (candidate.version, candidate.rank));
        list.push(candidate);
        self.resolved.clear();
    }

    /// Learns from an event that carries schemas for others. Returns whether it was one.
    #[inline]
    pub fn observe(&mut self, record: &Record<'_>) -> bool {
        match record.family() {
            Family::Event if is_manifest_chunk(&record.descriptor()) => {
                self.observe_chunk(record.provider(), record.payload());
                true
            }
            Family::Full if record.provider() == class::EVENT_METADATA => {
                self.observe_metadata(record.descriptor().opcode, record.payload());
                true
            }
            _ => false,
        }
    }

    fn observe_chunk(&mut self, provider: Guid, payload: &[u8]) {
        let Some((head, body)) = payload.split_first_chunk::<8>() else { return };
        let (format, magic) = (head[0], head[3]);
        let (total, number) = (u16_at(head, 4), u16_at(head, 6));
        if (format, magic) != (1, 0x5B) || number >= total {
            return;
        }
        let chunks = self.chunks.entry(provider).or_default();
        if number == 0 {
            chunks.xml.clear();
            (chunks.total, chunks.next) = (total, 0);
        }
        if number != chunks.next || total != chunks.total || chunks.xml.len().saturating_add(body.len()) > MAX_MANIFEST {
            return;
        }
        chunks.xml.extend_from_slice(body);
        chunks.next = chunks.next.saturating_add(1);
        if chunks.next < chunks.total {
            return;
        }
        let xml = std::mem::take(&mut chunks.xml);
        if chunks.done != xml {
            chunks.done.clone_from(&xml);
            self.take_in(provider, &xml);
        }
    }

    fn take_in(&mut self, id: Guid, xml: &[u8]) {
        let Ok(providers) = manifest::parse(xml) else { return };
        for mut provider in providers {
            let fields: usize = provider.events.iter().map(|e| e.schema.fields().len().saturating_add(1)).sum();
            if self.kept_fields.saturating_add(fields) > MAX_KEPT_FIELDS {
                return;
            }
            self.kept_fields = self.kept_fields.saturating_add(fields);
            // Events carry the id of the event source, whatever the manifest says.
            provider.id = id;
            self.add_provider(provider, Rank::InTrace);
        }
    }

    fn observe_metadata(&mut self, opcode: u8, payload: &[u8]) {
        match opcode {
            32 => {
                if let Ok(info) = embedded::event_info(payload) {
                    self.add_embedded(info);
                }
            }
            33 => {
                if let Ok((provider, map)) = embedded::event_map(payload) {
                    self.add_map(provider, Arc::new(map));
                }
            }
            _ => {}
        }
    }

    fn add_embedded(&mut self, mut info: EmbeddedEvent) {
        let (id, version) = (info.descriptor.id, info.descriptor.version);
        let key = (info.provider, id, version);
        let fields = info.schema.fields().len().saturating_add(1);
        if self.embedded.contains_key(&key) || self.kept_fields.saturating_add(fields) > MAX_KEPT_FIELDS {
            return;
        }
        self.kept_fields = self.kept_fields.saturating_add(fields);
        if let Some(name) = &info.schema.names.provider {
            self.names.entry(info.provider).or_insert_with(|| name.clone());
        }
        let wanted: Vec<Arc<str>> = info.map_names.iter().map(|(_, n)| n.clone()).collect();
        for name in wanted {
            if let Some(map) = self.maps.get(&(info.provider, name.clone())).cloned() {
                info.attach(&name, &map);
            }
        }
        let known = self.keep(info.schema.clone());
        if info.event_guid.is_null() {
            self.add_candidate(info.provider, id, Candidate { version, rank: Rank::Embedded, known });
        } else {
            self.classic.insert((info.event_guid, info.descriptor.opcode, version), Some(known));
        }
        self.embedded.insert(key, info);
    }

    /// Gives a map to the embedded schemas that wait for it.
    fn add_map(&mut self, provider: Guid, map: Arc<ValueMap>) {
        let key = (provider, map.name.clone());
        if self.maps.contains_key(&key) || self.maps.len() > MAX_KEPT_FIELDS / 16 {
            return;
        }
        let waiting: Vec<_> = self
            .embedded
            .iter()
            .filter(|(k, e)| k.0 == provider && e.map_names.iter().any(|(_, n)| **n == *map.name))
            .map(|(k, _)| *k)
            .collect();
        for key in waiting {
            let Some(info) = self.embedded.get_mut(&key) else { continue };
            info.attach(&map.name, &map);
            let (schema, event_guid, opcode) = (info.schema.clone(), info.event_guid, info.descriptor.opcode);
            let known = self.keep(schema);
            if event_guid.is_null() {
                self.add_candidate(key.0, key.1, Candidate { version: key.2, rank: Rank::Embedded, known });
            } else {
                self.classic.insert((event_guid, opcode, key.2), Some(known));
            }
        }
        self.maps.insert(key, map);
    }

    /// The schema of an event.
    #[inline]
    pub fn find<'d, 'p>(&'d mut self, record: &Record<'p>) -> Result<Found<'d, 'p>, Undecoded> {
        match record.family() {
            Family::Event => self.find_event(record),
            Family::System | Family::Compact | Family::PerfInfo => {
                let (hook, version) = (record.hook().unwrap_or(0), record.descriptor().version);
                let found = self.find_classic(record);
                found.ok_or(Undecoded::NoKernelLayout { hook, version })
            }
            Family::Full | Family::Instance => self.find_classic(record).ok_or(Undecoded::NoSchema),
            Family::Message => {
                let id = self.messages.get(&(record.provider(), record.descriptor().id)).copied();
                self.found(id, record.payload()).ok_or(Undecoded::NoMessageFormat)
            }
            Family::Other(kind) => Err(Undecoded::UnknownRecord(kind)),
        }
    }

    fn found<'d, 'p>(&'d self, id: Option<u32>, payload: &'p [u8]) -> Option<Found<'d, 'p>> {
        let known = self.known.get(usize::try_from(id?).ok()?)?;
        Some(Found { known, payload })
    }

    #[inline]
    fn find_event<'d, 'p>(&'d mut self, record: &Record<'p>) -> Result<Found<'d, 'p>, Undecoded> {
        if record.items_damaged() {
            let why = crate::Error::Schema("extended items leave the record");
            return Err(Undecoded::BadMetadata(why));
        }
        let (mut traits, mut metadata) = (None, None);
        for item in record.items() {
            match item.kind {
                ExtType::PROV_TRAITS => traits = Some(item.data),
                ExtType::EVENT_SCHEMA_TL => metadata = Some(item.data),
                _ => {}
            }
        }
        if let Some(metadata) = metadata {
            let known = self.self_described.find(record.provider(), traits, metadata)?;
            return Ok(Found { known, payload: record.payload() });
        }
        self.find_manifest_event(record, traits)
    }

    fn find_manifest_event<'d, 'p>(
        &'d mut self,
        record: &Record<'p>,
        traits: Option<&[u8]>,
    ) -> Result<Found<'d, 'p>, Undecoded> {
        let (d, payload) = (record.descriptor(), record.payload());
        if is_manifest_chunk(&d) {
            return Ok(Found { known: &self.builtin.manifest_chunk, payload });
        }
        let id = self.resolve(record.provider(), &d).or_else(|| {
            // A decode GUID stands for the provider in manifests.
            let decode = traits.and_then(|t| Traits::parse(t).ok()).and_then(|t| t.decode_guid());
            let control = record.items().data_of(ExtType::CONTROL_GUID).and_then(|g| chunk(g, 0)).map(Guid::from_bytes);
            decode.and_then(|g| self.resolve(g, &d)).or_else(|| control.and_then(|g| self.resolve(g, &d)))
        });
        if let Some(known) = id.and_then(|id| self.known.get(usize::try_from(id).ok()?)) {
            return Ok(Found { known, payload });
        }
        if d.channel == CHANNEL_TRACELOGGING {
            if let Some((traits, metadata, rest)) = metadata_in_payload(payload) {
                let known = self.self_described.find(record.provider(), Some(traits), metadata)?;
                return Ok(Found { known, payload: rest });
            }
        }
        if is_string_event(record, &d) {
            return Ok(Found { known: &self.builtin.string_only, payload });
        }
        Err(Undecoded::NoSchema)
    }

    fn resolve(&mut self, provider: Guid, d: &EventDescriptor) -> Option<u32> {
        let key = (provider, d.id, d.version);
        if let Some(known) = self.resolved.get(&key) {
            return *known;
        }
        let best = self.events.get(&(provider, d.id)).and_then(|list| choose(list, d.version));
        self.resolved.insert(key, best);
        if self.resolved.len() > MAX_KEPT_FIELDS {
            self.resolved.clear();
        }
        best
    }

    fn find_classic<'d, 'p>(&'d mut self, record: &Record<'p>) -> Option<Found<'d, 'p>> {
        let (class, d) = (record.provider(), record.descriptor());
        let key = (class, d.opcode, d.version);
        let id = match self.classic.get(&key) {
            Some(id) => *id,
            None => {
                let id = kernel::schema(&class, d.opcode, d.version).map(|s| self.keep(s));
                if id.is_some() || self.classic.len() < MAX_KEPT_FIELDS {
                    self.classic.insert(key, id);
                }
                id
            }
        };
        self.found(id, record.payload())
    }
}

/// The best schema for a version: the same, else the next lower one, else the next higher one; then by source.
fn choose(list: &[Candidate], version: u8) -> Option<u32> {
    let best = list.iter().min_by_key(|c| {
        let distance = match c.version.cmp(&version) {
            std::cmp::Ordering::Equal => (0, 0),
            std::cmp::Ordering::Less => (1, version.abs_diff(c.version)),
            std::cmp::Ordering::Greater => (2, c.version.abs_diff(version)),
        };
        (distance, c.rank)
    });
    best.map(|c| c.known)
}

/// EventSource sends its manifest as events of this identity.
fn is_manifest_chunk(d: &EventDescriptor) -> bool {
    d.id == 0xFFFE && d.task == 0xFFFE && d.opcode == 0xFE
}

/// An event of EventWriteString: flagged so, or without any identity and with one whole string as its payload.
fn is_string_event(record: &Record<'_>, d: &EventDescriptor) -> bool {
    if record.flags() & EVENT_HEADER_FLAG_STRING_ONLY != 0 {
        return true;
    }
    let anonymous = (d.id, d.version, d.channel, d.opcode, d.task) == (0, 0, 0, 0, 0);
    let payload = record.payload();
    anonymous && payload.len() >= 4 && text::until_nul16(payload).len().saturating_add(2) == payload.len()
}

/// Traits, event metadata and data, where a provider could not make ETW keep them apart.
fn metadata_in_payload(payload: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let (traits, rest) = payload.split_at_checked(usize::from(u16_at(payload, 0)))?;
    let (metadata, data) = rest.split_at_checked(usize::from(u16_at(rest, 0)))?;
    (traits.len() > 2 && metadata.len() > 2).then_some((traits, metadata, data))
}


#[cfg(test)]
mod tests;
