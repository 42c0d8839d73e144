//! The cache of TraceLogging schemas, keyed by the bytes of their metadata, which are compared in
//! full.
//!
//! ```text
//!   all items ──cheap hash──▶ repeat ──equal provider and bytes?──▶ schema   (most events)
//!   provider, traits, metadata ──cheap hash──▶ slot ──equal bytes?──▶ schema  (most others)
//!                                                └─no─▶ map by a full hash ──▶ schema, or parse it
//! ```
//!
//! A trace that invents metadata for each event fills the cache; the cache is then cleared and
//! fills again, so memory stays bounded. Decoders for several threads share the limit. The time of a
//! lookup is bounded as well: metadata made to collide clears the cache too.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hasher};
use std::num::NonZero;

use traceweir_format::Guid;
use traceweir_format::wire::{chunk, u64_at};

use super::prepared::PreparedSchema;
use super::tracelogging;
use crate::error::Undecoded;

/// The offset of the provider GUID in an EVENT record.
const PROVIDER_OFFSET: usize = 0x18;
const SLOT_COUNT: usize = 1024;
const MAX_ENTRIES: usize = 16 << 10;
/// The most bytes of all caches that share the limit. A cache holds its last schema even if this
/// exceeds its part.
const MAX_CACHE_BYTES: usize = 64 << 20;
/// Bytes that a schema takes besides its fields.
const SCHEMA_BYTES: usize = 512;
/// Bytes that a schema takes for each field.
const FIELD_BYTES: usize = 256;
/// The most entries that share a full hash by chance. More entries are an attack.
const MAX_COLLISIONS: usize = 8;

#[derive(Debug)]
struct CachedSchema {
    provider: Guid,
    traits: Box<[u8]>,
    metadata: Box<[u8]>,
    prepared: PreparedSchema,
}

#[derive(Debug)]
pub(super) struct SelfDescribedCache {
    entries: Vec<CachedSchema>,
    slots: Vec<u32>,
    by_hash: HashMap<u64, Vec<u32>>,
    /// Bytes of the entries.
    bytes: usize,
    /// The most bytes of entries and repeats.
    max_bytes: usize,
    repeats: Vec<RepeatedItems>,
}

impl Default for SelfDescribedCache {
    fn default() -> Self {
        Self::with_max_bytes(MAX_CACHE_BYTES)
    }
}

/// The bytes of an event's extended data items, if all of them describe its schema. Most events
/// repeat the items of an earlier event.
#[derive(Clone, Debug, Default)]
struct RepeatedItems {
    provider: [u8; 16],
    items: Box<[u8]>,
    index: usize,
}

/// A multiplier that spreads similar words: 2^64 divided by the golden ratio.
const HASH_MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;
const REPEAT_SLOT_COUNT: usize = 256;
/// The most bytes of items that are remembered of one event.
const MAX_ITEMS_BYTES: usize = 1024;
/// The most bytes of all remembered items.
const MAX_REPEATS_BYTES: usize = REPEAT_SLOT_COUNT * (MAX_ITEMS_BYTES + size_of::<RepeatedItems>());

impl SelfDescribedCache {
    fn with_max_bytes(max_bytes: usize) -> Self {
        let (entries, slots, repeats) = (Vec::new(), Vec::new(), Vec::new());
        Self { entries, slots, by_hash: HashMap::new(), bytes: 0, max_bytes, repeats }
    }

    /// Returns an empty cache for one of `count` decoders that share the limit of this one.
    pub(super) fn fork(&self, count: NonZero<usize>) -> Self {
        Self::with_max_bytes(self.max_bytes / count)
    }

    /// Returns the index of the schema of an earlier event of the same provider with the same
    /// items, if the cache holds it.
    #[inline(always)]
    pub(super) fn find_repeated(&self, record: &[u8], items: &[u8]) -> Option<usize> {
        let repeat = self.repeats.get(hash_items_to_slot(items))?;
        let is_same = chunk::<16>(record, PROVIDER_OFFSET) == Some(&repeat.provider)
            && *repeat.items == *items
            && !items.is_empty();
        is_same.then_some(repeat.index)
    }

    #[cold]
    pub(super) fn remember_items(&mut self, record: &[u8], items: &[u8], index: usize) {
        if items.len() > MAX_ITEMS_BYTES {
            return;
        }
        if self.repeats.is_empty() {
            self.repeats.resize(REPEAT_SLOT_COUNT, RepeatedItems::default());
        }
        if let (Some(slot), Some(provider)) =
            (self.repeats.get_mut(hash_items_to_slot(items)), chunk(record, PROVIDER_OFFSET))
        {
            *slot = RepeatedItems { provider: *provider, items: items.into(), index };
        }
    }

    /// Returns the index of a schema, valid until the next lookup.
    #[inline]
    pub(super) fn find(
        &mut self,
        provider: Guid,
        traits: Option<&[u8]>,
        metadata: &[u8],
    ) -> Result<usize, Undecoded> {
        let traits = traits.unwrap_or_default();
        let slot = hash_metadata_to_slot(&provider, metadata);
        let cached = self.slots.get(slot).copied().and_then(|i| usize::try_from(i).ok());
        let hit =
            cached.filter(|&i| self.entries.get(i).is_some_and(|e| e.matches(&provider, traits, metadata)));
        match hit {
            Some(index) => Ok(index),
            None => self.find_or_parse(provider, traits, metadata, slot),
        }
    }

    /// Returns the schema that the last lookup found under `index`.
    #[inline]
    pub(super) fn get(&self, index: usize) -> Option<&PreparedSchema> {
        self.entries.get(index).map(|e| &e.prepared)
    }

    #[cold]
    fn find_or_parse(
        &mut self,
        provider: Guid,
        traits: &[u8],
        metadata: &[u8],
        slot: usize,
    ) -> Result<usize, Undecoded> {
        let hash = hash_fully(&provider, traits, metadata);
        let cached = self.by_hash.get(&hash).and_then(|list| {
            let is_same = |i: &&u32| {
                let entry = usize::try_from(**i).ok().and_then(|i| self.entries.get(i));
                entry.is_some_and(|e| e.matches(&provider, traits, metadata))
            };
            list.iter().find(is_same).copied()
        });
        let index = match cached {
            Some(index) => index,
            None => self.parse_and_insert(provider, traits, metadata, hash)?,
        };
        if self.slots.len() < SLOT_COUNT {
            self.slots.resize(SLOT_COUNT, u32::MAX);
        }
        if let Some(s) = self.slots.get_mut(slot) {
            *s = index;
        }
        Ok(usize::try_from(index).unwrap_or(usize::MAX))
    }

    fn parse_and_insert(
        &mut self,
        provider: Guid,
        traits: &[u8],
        metadata: &[u8],
        hash: u64,
    ) -> Result<u32, Undecoded> {
        let traits_item = (!traits.is_empty()).then_some(traits);
        let schema = tracelogging::build_schema(provider, traits_item, metadata)?;
        // The size of the metadata, the fields, and the values derived from both.
        let blobs = metadata.len().saturating_add(traits.len()).saturating_add(SCHEMA_BYTES);
        let fields = schema.fields().len().saturating_mul(FIELD_BYTES);
        let size = blobs.saturating_add(fields).saturating_add(PreparedSchema::derived_bytes(&schema));
        let collisions = self.by_hash.get(&hash).map_or(0, Vec::len);
        let bytes = self.bytes.saturating_add(size).saturating_add(MAX_REPEATS_BYTES);
        let is_full = self.entries.len() >= MAX_ENTRIES || bytes > self.max_bytes;
        if is_full || collisions >= MAX_COLLISIONS {
            *self = Self::with_max_bytes(self.max_bytes);
        }
        self.bytes = self.bytes.saturating_add(size);
        let index = u32::try_from(self.entries.len()).unwrap_or(u32::MAX);
        let prepared = PreparedSchema::new(schema);
        self.entries.push(CachedSchema {
            provider,
            traits: traits.into(),
            metadata: metadata.into(),
            prepared,
        });
        self.by_hash.entry(hash).or_default().push(index);
        Ok(index)
    }
}

impl CachedSchema {
    #[inline]
    fn matches(&self, provider: &Guid, traits: &[u8], metadata: &[u8]) -> bool {
        self.provider == *provider && *self.metadata == *metadata && *self.traits == *traits
    }
}

/// Returns the slot of the items: a hash of their length and of a few words from the middle and the
/// end, where the names of events and fields are.
#[inline(always)]
fn hash_items_to_slot(items: &[u8]) -> usize {
    let end = items.len();
    let mixed = u64_at(items, end.wrapping_sub(8))
        ^ u64_at(items, end.wrapping_sub(24)).rotate_left(21)
        ^ u64_at(items, (end >> 1) & !7).rotate_left(42)
        ^ (end as u64);
    // The highest 8 bits select one of `REPEAT_SLOT_COUNT` slots.
    usize::try_from(mixed.wrapping_mul(HASH_MULTIPLIER) >> 56).unwrap_or(0)
}

/// Returns the slot of metadata: a hash of the provider, the length and a few words. The caller
/// compares the bytes. The event's name begins at offset 3, after the size and one byte of tags.
#[inline]
fn hash_metadata_to_slot(provider: &Guid, metadata: &[u8]) -> usize {
    let tail = metadata.len().saturating_sub(8);
    let mixed = u64_at(metadata, 3)
        ^ u64_at(metadata, 11).rotate_left(21)
        ^ u64_at(metadata, tail).rotate_left(42)
        ^ u64::from(provider.data1)
        ^ (metadata.len() as u64).rotate_left(32);
    // The highest 10 bits select one of `SLOT_COUNT` slots.
    usize::try_from(mixed.wrapping_mul(HASH_MULTIPLIER) >> 54).unwrap_or(0)
}

fn hash_fully(provider: &Guid, traits: &[u8], metadata: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::default();
    hasher.write(&provider.to_bytes());
    hasher.write(metadata);
    hasher.write(traits);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use traceweir_format::tracelogging::MetadataBuilder;

    fn encode_metadata(name: &str, fields: u32) -> Vec<u8> {
        let mut builder = MetadataBuilder::new(name, 0);
        for n in 0..fields {
            builder.add_field(&n.to_string(), 8, 0, 0);
        }
        builder.finish().unwrap().to_vec()
    }

    #[test]
    fn the_cache_is_bounded_in_entries_and_bytes() {
        let mut cache = SelfDescribedCache::default();
        let mut clear_count = 0;
        for n in 0..MAX_ENTRIES * 2 + 10 {
            let before = cache.entries.len();
            let index = cache.find(Guid::NULL, None, &encode_metadata(&n.to_string(), 0)).unwrap();
            assert_eq!(cache.get(index).unwrap().event_name.as_deref(), Some(&*n.to_string()));
            clear_count += usize::from(cache.entries.len() < before);
            assert!(cache.entries.len() <= MAX_ENTRIES);
        }
        assert_eq!(clear_count, 2);
        for n in 0..100 {
            cache.find(Guid::NULL, None, &encode_metadata(&n.to_string(), 3000)).unwrap();
            assert!(cache.bytes <= MAX_CACHE_BYTES && cache.entries.len() < MAX_ENTRIES);
        }
        let field_count: usize = cache.entries.iter().map(|e| e.prepared.schema.fields().len()).sum();
        assert!(field_count * FIELD_BYTES <= MAX_CACHE_BYTES);
    }

    #[test]
    fn decoders_of_several_threads_share_the_limit_in_bytes() {
        let count = NonZero::new(64).unwrap();
        let mut caches: Vec<_> = (0..64).map(|_| SelfDescribedCache::default().fork(count)).collect();
        let mut was_cleared = false;
        for n in 0..2000 {
            let cache = &mut caches[n % 64];
            let before = cache.entries.len();
            let index = cache.find(Guid::NULL, None, &encode_metadata(&n.to_string(), 200)).unwrap();
            assert!(cache.get(index).is_some());
            was_cleared |= cache.entries.len() < before;
        }
        assert!(was_cleared);
        let total: usize = caches.iter().map(|cache| cache.bytes + MAX_REPEATS_BYTES).sum();
        assert!((MAX_CACHE_BYTES / 4..=MAX_CACHE_BYTES).contains(&total), "{total}");
        // The largest possible schema is kept until the next one, alone.
        let largest = encode_metadata("largest", 4000);
        let index = caches[0].find(Guid::NULL, None, &largest).unwrap();
        assert_eq!((index, caches[0].entries.len()), (0, 1));
    }

    #[test]
    fn hash_collisions_clear_the_cache() {
        let mut cache = SelfDescribedCache::default();
        for n in 0..MAX_COLLISIONS + 1 {
            cache.parse_and_insert(Guid::NULL, &[], &encode_metadata(&n.to_string(), 1), 42).unwrap();
        }
        assert_eq!((cache.entries.len(), cache.by_hash[&42].len()), (1, 1));
    }
}
