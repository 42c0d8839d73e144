//! Finds the schema of an event: the lookup order, and the caches that make lookups cheap.
//!
//! ```text
//!   EVENT with metadata ──────────────▶ tracelogging   (cache by the metadata's bytes)
//!   EVENT with id 0xFFFE ─────────────▶ a manifest chunk; complete manifests are added
//!   EVENT (provider, id, version) ────▶ manifest in the trace ▸ schema that a merge embedded
//!                                       ▸ program that the trace names ▸ manifests from the user
//!                                       ▸ metadata in the payload ▸ plain string
//!                                       ▸ built-in schema of a well-known provider
//!   SYSTEM · COMPACT · PERFINFO ──────▶ kernel tables by (class, type, version)
//!   FULL · INSTANCE (class, type) ────▶ kernel tables ▸ schema that a merge embedded
//!   MESSAGE (guid, number) ───────────▶ wpp
//! ```
//!
//! `▸` means "otherwise". If no manifest has an event's version, the next lower version is used,
//! because older layouts are prefixes of newer ones. If there is no lower version, the next higher
//! one is used. The order of the manifests and embedded schemas counts among those that have the
//! same version. Schemas in the trace may come after the events they describe: when a lookup fails,
//! the caller passes all records of the file to [`Decoder::observe_at`]. If a provider sent several
//! manifests, the time of the event selects one. [`MAX_KEPT_FIELDS`] bounds what a hostile trace can
//! make the decoder keep.

mod absent;
pub mod binary;
mod builtin;
pub mod embedded;
mod event;
#[cfg(feature = "binaries")]
pub(crate) mod identified;
mod in_trace;
pub mod kernel;
#[cfg(feature = "xml")]
pub mod manifest;
pub mod messages;
pub mod prepared;
mod provider;
mod rank;
mod recent;
mod self_described;
pub mod tracelogging;
mod tracked;
mod well_known;
pub mod wevt;
pub mod wpp;

#[cfg(not(feature = "binaries"))]
pub(crate) use absent::identified;
#[cfg(not(feature = "xml"))]
pub(crate) use absent::manifest;
pub use event::{LookupEvent, LookupKind};
pub use prepared::PreparedSchema;
pub use provider::{EventSchema, FilterSchema, ProviderNames, ProviderSchemas, ValueName};

use std::collections::HashMap;
use std::num::NonZero;
use std::sync::Arc;

use traceweir_format::Guid;
use traceweir_format::header::{Family, Record};
use traceweir_format::kernel::shape_of;
use traceweir_format::spec::event::{CHANNEL_TRACELOGGING, EventDescriptor};
use traceweir_format::time::FileTime;
use traceweir_format::tracelogging::Traits;
use traceweir_format::wire::u16_at;

use crate::error::{Error, Result, Undecoded};
use crate::schema::Schema;
use in_trace::TraceSchemas;
pub use rank::Precedence;
use rank::{EARLIEST, LATEST, SchemaCandidate, SchemaPeriods, SourceRank, choose_schema};
use recent::RecentSchemas;
use self_described::SelfDescribedCache;
pub use tracked::MAX_TRACKED;
use tracked::TrackedFiles;
use well_known::WellKnownSchemas;
pub use well_known::{WELL_KNOWN, WellKnownProvider};

/// The most fields that the manifests and embedded schemas of a trace may have together. Also the
/// most results of lookups that a decoder and its forks cache for each kind of key.
pub const MAX_KEPT_FIELDS: usize = 1 << 20;

/// The most bytes that a decoder derives from schemas of files and traces ([`PreparedSchema`]). The
/// events of a complete Windows installation take a tenth of it.
const MAX_DERIVED_BYTES: usize = 256 << 20;

/// The schema of an event, and the payload that it describes.
#[derive(Clone, Copy, Debug)]
pub struct SchemaMatch<'d, 'p> {
    /// The schema with its derived values.
    pub prepared: &'d PreparedSchema,
    /// The payload, without the metadata that may come before it.
    pub payload: &'p [u8],
}

/// Reads a manifest: XML, or a PE or ELF file with a compiled one.
pub fn read_manifest(bytes: &[u8]) -> Result<Vec<ProviderSchemas>> {
    match binary::detect_file_kind(bytes) {
        binary::ProviderFileKind::Pe | binary::ProviderFileKind::Elf => binary::load(bytes),
        _ => manifest::parse(bytes),
    }
}

/// The result of adding a file of message formats.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddedFormats {
    /// The number of usable formats.
    pub formats: usize,
    /// Line numbers of unusable formats, with the reason.
    pub warnings: Vec<(usize, &'static str)>,
}

/// The location of an event's schema in a decoder, and the payload that the schema describes.
#[derive(Clone, Copy, Debug)]
pub struct LocatedSchema<'p> {
    slot: SchemaSlot,
    payload: &'p [u8],
}

#[derive(Clone, Copy, Debug)]
enum SchemaSlot {
    Stored(u32),
    SelfDescribed(usize),
    ManifestChunk,
    StringOnly,
}

/// Finds schemas for events.
#[derive(Debug, Default)]
pub struct Decoder {
    schemas: Vec<Arc<PreparedSchema>>,
    self_described: SelfDescribedCache,
    /// Manifest events by provider and id.
    events: Arc<HashMap<(Guid, u16), Vec<SchemaCandidate>>>,
    /// Schemas that later manifests in the trace replaced.
    periods: Arc<SchemaPeriods>,
    /// Results of earlier lookups by (provider, id, version), before the time selects a schema.
    resolved: HashMap<(Guid, u16, u8), Option<u32>>,
    /// The entries of `resolved` that recent events used.
    recent_resolved: RecentSchemas,
    /// Schemas of classic events that a merge embedded, by class, type and version.
    classic: Arc<HashMap<(Guid, u8, u8), u32>>,
    /// Kernel schemas, and results of earlier lookups by class, type and version.
    resolved_classic: HashMap<(Guid, u8, u8), Option<u32>>,
    /// The entries of `resolved_classic` that recent events used.
    recent_classic: RecentSchemas,
    /// WPP formats by message GUID and number.
    messages: Arc<HashMap<(Guid, u16), u32>>,
    /// Names of providers.
    names: Arc<HashMap<Guid, Arc<str>>>,
    in_trace: TraceSchemas,
    tracked: TrackedFiles,
    builtin: builtin::BuiltinSchemas,
    well_known: WellKnownSchemas,
    derived_bytes: usize,
    max_resolved: MaxResolved,
}

/// The most entries of `resolved` and of `resolved_classic`.
#[derive(Clone, Copy, Debug)]
struct MaxResolved(usize);

impl Default for MaxResolved {
    fn default() -> Self {
        Self(MAX_KEPT_FIELDS)
    }
}

impl Decoder {
    /// Creates a decoder with the kernel tables, for events that describe themselves or that the
    /// tables cover.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns a decoder with the same schemas, for one of `count` threads. It shares the schemas
    /// and has caches of its own; the caches of all threads together are limited as those of this
    /// decoder. Schemas that either learns later are not shared.
    #[must_use]
    pub fn fork(&self, count: NonZero<usize>) -> Self {
        Self {
            schemas: self.schemas.clone(),
            self_described: self.self_described.fork(count),
            events: self.events.clone(),
            periods: self.periods.clone(),
            resolved: HashMap::new(),
            recent_resolved: RecentSchemas::default(),
            classic: self.classic.clone(),
            resolved_classic: HashMap::new(),
            recent_classic: RecentSchemas::default(),
            messages: self.messages.clone(),
            names: self.names.clone(),
            in_trace: TraceSchemas::default(),
            tracked: TrackedFiles::default(),
            builtin: self.builtin.clone(),
            well_known: self.well_known.clone(),
            derived_bytes: self.derived_bytes,
            max_resolved: MaxResolved(self.max_resolved.0 / count),
        }
    }

    /// Adds manifests from a file's bytes: XML, or a PE or ELF file with compiled ones. Returns the
    /// number of events.
    pub fn add_manifest(&mut self, bytes: &[u8]) -> Result<usize> {
        self.add_providers(read_manifest(bytes)?, Precedence::Loaded)
    }

    /// Adds the providers of manifests. Returns the number of events.
    pub fn add_providers(
        &mut self,
        providers: Vec<ProviderSchemas>,
        precedence: Precedence,
    ) -> Result<usize> {
        let events = providers.iter().map(|p| p.events.len()).sum();
        for provider in providers {
            self.add_provider(provider, SourceRank::External(precedence), EARLIEST)?;
        }
        Ok(events)
    }

    /// Adds the message formats of a TMF file.
    pub fn add_tmf(&mut self, bytes: &[u8]) -> Result<AddedFormats> {
        self.add_formats(wpp::tmf::parse(bytes)?)
    }

    /// Adds the message formats of a PDB, which must be a regular file.
    pub fn add_pdb(&mut self, file: std::fs::File) -> Result<AddedFormats> {
        self.add_formats(wpp::pdb::load_file(file)?)
    }

    fn add_formats(&mut self, parsed: wpp::ParsedFormats) -> Result<AddedFormats> {
        let added = AddedFormats { formats: parsed.formats.len(), warnings: parsed.warnings };
        for format in parsed.formats {
            let id = self.store_schema(format.schema)?;
            Arc::make_mut(&mut self.messages).insert((format.guid, format.number), id);
        }
        Ok(added)
    }

    /// Returns the name of a provider, if a schema seen so far gives one or the provider is well
    /// known.
    #[must_use]
    pub fn provider_name(&self, provider: &Guid) -> Option<&str> {
        let name = self.names.get(provider).map(|n| &**n);
        name.or_else(|| WellKnownProvider::find(provider).map(|provider| provider.name))
    }

    /// Stores a schema from a file or a trace and returns its index. Fails if the derived values of
    /// all schemas would exceed the limit.
    fn store_schema(&mut self, schema: Schema) -> Result<u32> {
        let derived = self.derived_bytes.saturating_add(PreparedSchema::derived_bytes(&schema));
        if derived > MAX_DERIVED_BYTES {
            return Err(Error::Schema("names and messages are too large in total"));
        }
        self.derived_bytes = derived;
        Ok(self.push_schema(schema))
    }

    fn push_schema(&mut self, schema: Schema) -> u32 {
        self.schemas.push(Arc::new(PreparedSchema::new(schema)));
        u32::try_from(self.schemas.len().saturating_sub(1)).unwrap_or(u32::MAX)
    }

    /// Adds the events of a provider. A schema from the trace applies to events from `since` on.
    fn add_provider(&mut self, provider: ProviderSchemas, rank: SourceRank, since: FileTime) -> Result<()> {
        if let Some(name) = &provider.name {
            Arc::make_mut(&mut self.names).insert(provider.id, name.clone());
        }
        for event in provider.events {
            let (id, version) = (event.descriptor.id, event.descriptor.version);
            let schema = self.store_schema(event.schema)?;
            self.add_candidate(provider.id, id, SchemaCandidate { version, rank, since, schema });
        }
        Ok(())
    }

    fn add_candidate(&mut self, provider: Guid, id: u16, candidate: SchemaCandidate) {
        let candidates = Arc::make_mut(&mut self.events).entry((provider, id)).or_default();
        let is_same = |c: &&SchemaCandidate| (c.version, c.rank) == (candidate.version, candidate.rank);
        if candidate.rank == SourceRank::InTrace
            && let Some(earlier) = candidates.iter().find(is_same)
        {
            return Arc::make_mut(&mut self.periods).add(earlier, &candidate);
        }
        candidates.retain(|c| !is_same(&c));
        candidates.push(candidate);
        self.resolved.clear();
        self.recent_resolved.clear();
    }

    /// Returns the schema of an event.
    #[inline(always)]
    pub fn find<'d, 'p>(&'d mut self, record: &Record<'p>) -> Result<SchemaMatch<'d, 'p>, Undecoded> {
        let located = self.locate(record)?;
        Ok(self.get(&located))
    }

    /// Returns the schema of an event whose parts a consumer has separated.
    pub fn find_event<'d, 'p>(
        &'d mut self,
        event: &LookupEvent<'p>,
    ) -> Result<SchemaMatch<'d, 'p>, Undecoded> {
        let stored_or = |id: Option<u32>, error| {
            id.map(|id| LocatedSchema { slot: SchemaSlot::Stored(id), payload: event.payload }).ok_or(error)
        };
        let located = match (event.kind, event.metadata) {
            (LookupKind::Described, Some(metadata)) => {
                let index = self.self_described.find(event.provider, event.traits, metadata)?;
                LocatedSchema { slot: SchemaSlot::SelfDescribed(index), payload: event.payload }
            }
            (LookupKind::Described, None) => self.locate_manifest_event(event, LATEST)?,
            (LookupKind::Classic, _) => {
                let EventDescriptor { opcode, version, .. } = event.descriptor;
                stored_or(self.find_classic(event.provider, opcode, version), Undecoded::NoSchema)?
            }
            (LookupKind::Message, _) => {
                let id = self.messages.get(&(event.provider, event.descriptor.id)).copied();
                stored_or(id, Undecoded::NoMessageFormat)?
            }
        };
        Ok(self.get(&located))
    }

    /// Returns a located schema. The caller must not have changed the decoder since it located the
    /// schema.
    #[inline(always)]
    #[must_use]
    pub fn get<'d, 'p>(&'d self, located: &LocatedSchema<'p>) -> SchemaMatch<'d, 'p> {
        let prepared = match located.slot {
            SchemaSlot::Stored(id) => {
                usize::try_from(id).ok().and_then(|i| self.schemas.get(i)).map(|s| &**s)
            }
            SchemaSlot::SelfDescribed(index) => self.self_described.get(index),
            SchemaSlot::ManifestChunk => Some(&self.builtin.manifest_chunk),
            SchemaSlot::StringOnly => Some(&self.builtin.string_only),
        };
        SchemaMatch { prepared: prepared.unwrap_or(&self.builtin.empty), payload: located.payload }
    }

    /// Locates the schema of an event without keeping the decoder borrowed; [`Decoder::get`]
    /// returns the schema. Of several manifests in the trace, the last one applies.
    #[inline(always)]
    pub fn locate<'p>(&mut self, record: &Record<'p>) -> Result<LocatedSchema<'p>, Undecoded> {
        self.locate_at(record, LATEST)
    }

    /// Like [`locate`](Self::locate), with the last manifest that was complete at `time`, or the first
    /// one if there was none. The times are those that [`observe_at`](Self::observe_at) got.
    #[inline(always)]
    pub fn locate_at<'p>(
        &mut self,
        record: &Record<'p>,
        time: FileTime,
    ) -> Result<LocatedSchema<'p>, Undecoded> {
        match self.find_repeated_items(record) {
            Some(index) => {
                Ok(LocatedSchema { slot: SchemaSlot::SelfDescribed(index), payload: record.payload() })
            }
            None => self.locate_uncached(record, time),
        }
    }

    /// Returns the schema of a self-describing event that repeats the extended data items of a
    /// recent event; `None` does not mean that the event has no schema.
    ///
    /// All items of the event belong to its schema, and nothing can be learned from the event.
    #[inline(always)]
    #[must_use]
    pub fn find_repeated<'d, 'p>(&'d self, record: &Record<'p>) -> Option<SchemaMatch<'d, 'p>> {
        let index = self.find_repeated_items(record)?;
        let prepared = self.self_described.get(index).filter(|_| !Self::is_informative(record))?;
        Some(SchemaMatch { prepared, payload: record.payload() })
    }

    /// Returns the index of the schema of a self-describing event whose metadata repeats that of a
    /// recent event. Most events take this path, so all of it is inlined.
    #[inline(always)]
    fn find_repeated_items(&self, record: &Record<'_>) -> Option<usize> {
        let has_sound_items = record.family() == Family::Event && !record.has_damaged_items();
        if has_sound_items {
            self.self_described.find_repeated(record.bytes(), record.items().bytes())
        } else {
            None
        }
    }

    #[inline(never)]
    fn locate_uncached<'p>(
        &mut self,
        record: &Record<'p>,
        time: FileTime,
    ) -> Result<LocatedSchema<'p>, Undecoded> {
        let payload = record.payload();
        let id = match record.family() {
            Family::Event => return self.locate_event(record, time),
            Family::System | Family::Compact | Family::PerfInfo => {
                let (hook, version) = (record.hook().unwrap_or(0), record.descriptor().version);
                self.find_classic_record(record).ok_or(Undecoded::NoKernelLayout { hook, version })?
            }
            Family::Full | Family::Instance => self.find_classic_record(record).ok_or(Undecoded::NoSchema)?,
            Family::Message => {
                let id = self.messages.get(&(record.provider(), record.descriptor().id)).copied();
                id.ok_or(Undecoded::NoMessageFormat)?
            }
            Family::Other(kind) => return Err(Undecoded::UnknownRecord(kind)),
        };
        Ok(LocatedSchema { slot: SchemaSlot::Stored(id), payload })
    }

    fn locate_event<'p>(
        &mut self,
        record: &Record<'p>,
        time: FileTime,
    ) -> Result<LocatedSchema<'p>, Undecoded> {
        if record.has_damaged_items() {
            let reason = Error::Schema("extended data items exceed the record");
            return Err(Undecoded::BadMetadata(reason));
        }
        let (event, has_only_schema_items) = LookupEvent::from_record(record);
        if let Some(metadata) = event.metadata {
            let index = self.self_described.find(event.provider, event.traits, metadata)?;
            if has_only_schema_items {
                self.self_described.remember_items(record.bytes(), record.items().bytes(), index);
            }
            return Ok(LocatedSchema { slot: SchemaSlot::SelfDescribed(index), payload: event.payload });
        }
        self.locate_manifest_event(&event, time)
    }

    fn locate_manifest_event<'p>(
        &mut self,
        event: &LookupEvent<'p>,
        time: FileTime,
    ) -> Result<LocatedSchema<'p>, Undecoded> {
        let (descriptor, payload) = (&event.descriptor, event.payload);
        let located = |slot| Ok(LocatedSchema { slot, payload });
        if descriptor.is_manifest_chunk() {
            return located(SchemaSlot::ManifestChunk);
        }
        let id = self.find_manifest_schema(event.provider, descriptor).or_else(|| {
            // Manifests may list the events of a provider under its decode GUID, or under the GUID
            // that sessions enable.
            let decode_guid = event.traits.and_then(|t| Traits::parse(t).ok()).and_then(|t| t.decode_guid());
            decode_guid
                .and_then(|guid| self.find_manifest_schema(guid, descriptor))
                .or_else(|| event.control.and_then(|guid| self.find_manifest_schema(guid, descriptor)))
        });
        if let Some(id) = id {
            return located(SchemaSlot::Stored(self.periods.schema_at(id, time)));
        }
        if descriptor.channel == CHANNEL_TRACELOGGING
            && let Some((traits, metadata, data)) = split_metadata_payload(payload)
        {
            let index = self.self_described.find(event.provider, Some(traits), metadata)?;
            return Ok(LocatedSchema { slot: SchemaSlot::SelfDescribed(index), payload: data });
        }
        if event.is_string() {
            return located(SchemaSlot::StringOnly);
        }
        if let Some(id) = self.find_well_known(event.provider, descriptor) {
            // Later events of this kind take the short path, until another schema is added.
            self.resolved.insert((event.provider, descriptor.id, descriptor.version), Some(id));
            return located(SchemaSlot::Stored(id));
        }
        Err(Undecoded::NoSchema)
    }

    fn find_manifest_schema(&mut self, provider: Guid, descriptor: &EventDescriptor) -> Option<u32> {
        let EventDescriptor { id, version, .. } = *descriptor;
        let key = (provider, id, version);
        if let Some(schema) = self.recent_resolved.find(&key) {
            return Some(schema);
        }
        if let Some(schema) = self.resolved.get(&key).copied() {
            if let Some(schema) = schema {
                self.recent_resolved.remember(key, schema);
            }
            return schema;
        }
        let best = self.events.get(&(provider, id)).and_then(|candidates| choose_schema(candidates, version));
        self.resolved.insert(key, best);
        if self.resolved.len() > self.max_resolved.0 {
            self.resolved.clear();
        }
        best
    }

    fn find_classic_record(&mut self, record: &Record<'_>) -> Option<u32> {
        let descriptor = record.descriptor();
        self.find_classic(record.provider(), descriptor.opcode, descriptor.version)
    }

    fn find_classic(&mut self, class: Guid, opcode: u8, version: u8) -> Option<u32> {
        let recent_key = (class, u16::from(opcode), version);
        if let Some(id) = self.recent_classic.find(&recent_key) {
            return Some(id);
        }
        let key = (class, opcode, version);
        if let Some(id) = self.resolved_classic.get(&key).copied() {
            if let Some(id) = id {
                self.recent_classic.remember(recent_key, id);
            }
            return id;
        }
        let embedded = self.classic.get(&key).copied();
        let id = embedded.or_else(|| self.find_kernel(&class, opcode, version));
        if self.resolved_classic.len() < self.max_resolved.0 {
            self.resolved_classic.insert(key, id);
        }
        id
    }

    /// Returns the index of the kernel schema of a version. Versions with the same layout share one
    /// schema, so a hostile trace that uses every version number creates no more schemas.
    fn find_kernel(&mut self, class: &Guid, opcode: u8, version: u8) -> Option<u32> {
        let (shape, _) = shape_of(class, opcode, version)?;
        let layout_key = (*class, opcode, shape.version);
        if let Some(id) = self.resolved_classic.get(&layout_key).copied().flatten() {
            return Some(id);
        }
        let id = kernel::build_schema(class, opcode, shape.version).map(|s| self.push_schema(s))?;
        self.resolved_classic.insert(layout_key, Some(id));
        Some(id)
    }
}

/// Splits a payload into traits, event metadata and data, for a provider that could not pass
/// metadata to ETW separately.
fn split_metadata_payload(payload: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let (traits, remaining) = payload.split_at_checked(usize::from(u16_at(payload, 0)))?;
    let (metadata, data) = remaining.split_at_checked(usize::from(u16_at(remaining, 0)))?;
    (traits.len() > 2 && metadata.len() > 2).then_some((traits, metadata, data))
}

#[cfg(test)]
mod tests;
