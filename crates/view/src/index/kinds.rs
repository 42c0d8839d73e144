//! The kinds of events of an index: provider and event name, with the times of all events of a kind.

use std::collections::HashMap;
use std::sync::Arc;

use traceweir_decode::source::prepared::SchemaId;
use traceweir_format::Guid;
use traceweir_format::spec::event::EventDescriptor;

use super::series::{Item, Series, ValueKind};
use super::store::{Put, Reader, Store};
use super::threads::{put_name, read_name};
use crate::hash::FastMap;

/// The most kinds of events; further ones are merged into kind 0.
pub(super) const MAX_KINDS: usize = 1 << 15;
/// The most providers; further ones are merged into provider 0.
const MAX_PROVIDERS: usize = 1 << 15;
/// The kinds of a provider whose events the track of the provider adds up. The events of further kinds
/// are in a series of the provider too, so that the cost of its track does not depend on their number.
const MAX_ADDED_KINDS: u32 = 32;
const MAX_NAME_CHARS: usize = 200;

/// A kind by its index in the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct KindIndex(pub(crate) u16);

/// What distinguishes kinds before their names are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct KindKey {
    pub(crate) provider: Guid,
    pub(crate) descriptor: EventDescriptor,
    /// Hook id of a kernel event.
    pub(crate) hook: Option<u16>,
    pub(crate) schema: Option<SchemaId>,
}

/// The events of a provider that have the same name.
#[derive(Debug, Default)]
pub(crate) struct Kind {
    pub(crate) provider: u32,
    pub(crate) name: Option<Arc<str>>,
    /// The descriptor of the first event.
    pub(crate) descriptor: EventDescriptor,
    pub(crate) hook: Option<u16>,
    /// Whether events of the kind differ in descriptor or provider, or have a shortened name: a
    /// filter has to read each.
    pub(crate) is_mixed: bool,
    /// Whether events of the kind are about other processes or threads than their headers name.
    pub(crate) is_about_others: bool,
    /// Whether [`Provider::marks`] has the events of the kind.
    is_in_provider: bool,
    /// Row of the first event, to look up the name.
    pub(crate) first_row: u64,
    /// The times of the events; the value is the row.
    pub(crate) marks: Series,
}

#[derive(Debug, Default)]
pub(crate) struct Provider {
    pub(crate) guid: Guid,
    /// Name for people, with the class of kernel events.
    pub(crate) name: Arc<str>,
    kinds: u32,
    /// The events of all kinds but the first [`MAX_ADDED_KINDS`].
    pub(super) marks: Series,
}

impl Provider {
    fn new(guid: Guid, name: Arc<str>) -> Self {
        Self { guid, name, kinds: 0, marks: Series::new(ValueKind::Classes) }
    }

    /// Returns whether the name is only the GUID.
    pub(crate) fn is_unnamed(&self) -> bool {
        self.name.len() == 36 && *self.name == *self.guid.to_string()
    }
}

#[derive(Debug)]
pub(crate) struct Kinds {
    pub(crate) kinds: Vec<Kind>,
    pub(crate) providers: Vec<Provider>,
    by_key: FastMap<KindKey, u16>,
    by_name: HashMap<(u32, Arc<str>), u16>,
    by_provider: HashMap<Guid, u32>,
    max_kinds: usize,
}

impl Default for Kinds {
    fn default() -> Self {
        Self::with_limit(MAX_KINDS)
    }
}

impl Kinds {
    /// Creates a table of at most this many kinds.
    pub(super) fn with_limit(max_kinds: usize) -> Self {
        let other = Kind {
            name: Some("(other)".into()),
            is_mixed: true,
            is_about_others: true,
            marks: Series::new(ValueKind::Classes),
            ..Kind::default()
        };
        let providers = vec![Provider::new(Guid::NULL, "(other)".into())];
        Self {
            kinds: vec![other],
            providers,
            by_key: FastMap::default(),
            by_name: HashMap::new(),
            by_provider: HashMap::new(),
            max_kinds,
        }
    }
}

/// A key that is not in the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewKind<'n> {
    pub(crate) key: KindKey,
    pub(crate) names: KindNames<'n>,
    /// Row of the event.
    pub(crate) row: u64,
}

/// The names of an event, as far as its schema is known.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct KindNames<'n> {
    pub(crate) provider: Option<&'n str>,
    pub(crate) event: Option<&'n Arc<str>>,
}

impl Kinds {
    pub(crate) fn get(&self, index: KindIndex) -> Option<&Kind> {
        self.kinds.get(usize::from(index.0))
    }

    pub(crate) fn get_mut(&mut self, index: KindIndex) -> Option<&mut Kind> {
        self.kinds.get_mut(usize::from(index.0))
    }

    pub(crate) fn provider_of(&self, kind: &Kind) -> Option<&Provider> {
        self.providers.get(kind.provider as usize)
    }

    /// Adds an event to a kind and its provider.
    #[inline]
    pub(super) fn add_mark(&mut self, index: KindIndex, mark: Item, store: &mut Store) {
        let Some(kind) = self.kinds.get_mut(usize::from(index.0)) else { return };
        kind.marks.push(mark, store);
        if kind.is_in_provider
            && let Some(provider) = self.providers.get_mut(kind.provider as usize)
        {
            provider.marks.push(mark, store);
        }
    }

    /// Returns series that together have each event of a provider once.
    pub(crate) fn marks_of_provider(&self, provider: u32) -> impl Iterator<Item = &Series> {
        let is_added = move |kind: &&Kind| kind.provider == provider && !kind.is_in_provider;
        let added = self.kinds.iter().filter(is_added).map(|kind| &kind.marks);
        let others = self.providers.get(provider as usize).map(|provider| &provider.marks);
        added.chain(others).filter(|marks| !marks.is_empty())
    }

    /// Returns the number of events whose kinds are merged into kind 0.
    pub(crate) fn merged(&self) -> u64 {
        self.kinds.first().map_or(0, |kind| kind.marks.count())
    }

    /// Returns the kind of a key that was added before.
    #[inline]
    pub(crate) fn find(&self, key: &KindKey) -> Option<KindIndex> {
        self.by_key.get(key).map(|index| KindIndex(*index))
    }

    /// Adds a kind, or merges it into the kind with the same names.
    pub(crate) fn add(&mut self, NewKind { key, names, row }: NewKind<'_>) -> KindIndex {
        let provider = self.find_or_add_provider(key.provider, names.provider);
        let named = names.event.map(|name| (provider, bounded_name(name)));
        let known = named.as_ref().and_then(|named| self.by_name.get(named)).copied();
        let index = known.unwrap_or_else(|| {
            if self.kinds.len() >= self.max_kinds {
                return 0;
            }
            let index = u16::try_from(self.kinds.len()).unwrap_or(0);
            let entry = self.providers.get_mut(provider as usize);
            let number = entry.map_or(0, |entry| {
                entry.kinds = entry.kinds.saturating_add(1);
                entry.kinds
            });
            self.kinds.push(Kind {
                provider,
                name: named.as_ref().map(|(_, name)| Arc::clone(name)),
                descriptor: key.descriptor,
                hook: key.hook,
                is_mixed: provider == 0,
                is_about_others: false,
                is_in_provider: number > MAX_ADDED_KINDS,
                first_row: row,
                marks: Series::new(ValueKind::Classes),
            });
            index
        });
        if let Some(kind) = self.kinds.get_mut(usize::from(index)) {
            let is_shortened = names.event.is_some_and(|name| kind.name.as_ref() != Some(name));
            let is_same = kind.descriptor == key.descriptor && kind.hook == key.hook;
            kind.is_mixed |= is_shortened || !is_same;
        }
        if index != 0
            && let Some(named) = named
        {
            self.by_name.entry(named).or_insert(index);
        }
        // A key that repeats costs a lookup; a hostile trace cannot make the table grow forever.
        if self.by_key.len() < MAX_KINDS * 4 {
            self.by_key.insert(key, index);
        }
        KindIndex(index)
    }

    fn find_or_add_provider(&mut self, guid: Guid, name: Option<&str>) -> u32 {
        if let Some(index) = self.by_provider.get(&guid).copied() {
            if let Some(name) = name {
                self.set_provider_name(index, name);
            }
            return index;
        }
        if self.providers.len() >= MAX_PROVIDERS {
            return 0;
        }
        let index = u32::try_from(self.providers.len()).unwrap_or(0);
        let name = name.map_or_else(|| guid.to_string(), |name| name.chars().take(MAX_NAME_CHARS).collect());
        self.by_provider.insert(guid, index);
        self.providers.push(Provider::new(guid, name.into()));
        index
    }

    pub(crate) fn set_provider_name(&mut self, index: u32, name: &str) {
        if let Some(provider) = self.providers.get_mut(index as usize)
            && provider.is_unnamed()
        {
            provider.name = name.chars().take(MAX_NAME_CHARS).collect::<String>().into();
        }
    }

    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        out.put_varint(self.providers.len() as u64);
        for provider in &self.providers {
            out.extend_from_slice(&provider.guid.to_bytes());
            out.put_text(&provider.name);
            provider.marks.put(out);
        }
        out.put_varint(self.kinds.len() as u64);
        for kind in &self.kinds {
            out.put_varint(kind.provider.into());
            put_name(kind.name.as_ref(), out);
            let d = &kind.descriptor;
            for number in [d.id, d.version.into(), d.channel.into(), d.level.into(), d.opcode.into(), d.task]
            {
                out.put_varint(number.into());
            }
            out.put_varint(d.keyword);
            out.put_varint(kind.hook.map_or(0, |hook| u64::from(hook) + 1));
            let flags = [kind.is_mixed, kind.is_about_others, kind.is_in_provider];
            out.put_varint((0..).zip(flags).map(|(bit, flag)| u64::from(flag) << bit).sum());
            out.put_varint(kind.first_row);
            kind.marks.put(out);
        }
    }

    pub(crate) fn read(reader: &mut Reader<'_>, file_bytes: u64) -> Option<Self> {
        let mut table = Self { kinds: Vec::new(), providers: Vec::new(), ..Self::default() };
        for _ in 0..reader.count_up_to(MAX_PROVIDERS)? {
            let (low, high) = (reader.u64()?, reader.u64()?);
            let mut bytes = [0; 16];
            let (first, second) = bytes.split_at_mut(8);
            first.copy_from_slice(&low.to_le_bytes());
            second.copy_from_slice(&high.to_le_bytes());
            let mut provider = Provider::new(Guid::from_bytes(&bytes), reader.text()?.into());
            provider.marks = Series::read(reader, file_bytes)?;
            table.providers.push(provider);
        }
        for _ in 0..reader.count_up_to(MAX_KINDS)? {
            let provider = reader.u32().filter(|provider| (*provider as usize) < table.providers.len())?;
            let name = read_name(reader)?;
            let mut byte = || reader.varint().and_then(|value| u16::try_from(value).ok());
            let (id, version, channel, level) = (byte()?, byte()?, byte()?, byte()?);
            let (opcode, task) = (byte()?, byte()?);
            let descriptor = EventDescriptor {
                id,
                version: u8::try_from(version).ok()?,
                channel: u8::try_from(channel).ok()?,
                level: u8::try_from(level).ok()?,
                opcode: u8::try_from(opcode).ok()?,
                task,
                keyword: reader.varint()?,
            };
            let hook = match reader.varint()? {
                0 => None,
                hook => Some(u16::try_from(hook - 1).ok()?),
            };
            let flags = reader.varint()?;
            let (first_row, marks) = (reader.varint()?, Series::read(reader, file_bytes)?);
            table.kinds.push(Kind {
                provider,
                name,
                descriptor,
                hook,
                is_mixed: flags & 1 != 0,
                is_about_others: flags & 2 != 0,
                is_in_provider: flags & 4 != 0,
                first_row,
                marks,
            });
        }
        Some(table)
    }
}

fn bounded_name(name: &Arc<str>) -> Arc<str> {
    match name.char_indices().nth(MAX_NAME_CHARS) {
        Some((end, _)) => name.get(..end).unwrap_or_default().into(),
        None => Arc::clone(name),
    }
}
