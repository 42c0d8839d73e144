//! Resolves raw definitions to schemas: names to their definitions, messages to their texts, events
//! to their fields.

use std::collections::HashMap;
use std::sync::Arc;

use traceweir_format::spec::event::EventDescriptor;

use super::layout::{Maps, TemplateLayout, lay_out};
use super::manifest_error;
use super::raw::{RawChannel, RawDefinition, RawEvent, RawFilter, RawManifest, RawProvider, StringTables};
use super::tag::parse_number;
use super::winmeta::{self, FIRST_MANIFEST_CHANNEL};
use crate::Result;
use crate::schema::{Schema, SchemaNames, SchemaOrigin, ValueMap};
use crate::source::provider::{EventSchema, FilterSchema, ProviderNames, ProviderSchemas, ValueName};

/// The most fields of all events together.
const MAX_TOTAL_FIELDS: usize = 1 << 20;

/// A limit on the total size of definitions that are used more than once.
///
/// An event that uses a large template, or a map entry that uses a long text, takes few bytes of
/// XML. With the limit, the result stays within a small multiple of the manifest's size.
pub(super) struct SizeBudget {
    /// The number of fields that events may still have.
    fields: usize,
    /// The bytes of text that map entries may still have.
    map_bytes: usize,
}

impl SizeBudget {
    /// Creates the budget of a manifest of `size` bytes.
    pub(super) fn new(size: usize) -> Self {
        Self {
            fields: size.saturating_add(16 << 10).min(MAX_TOTAL_FIELDS),
            map_bytes: size.saturating_mul(4).saturating_add(16 << 10),
        }
    }
}

/// Resolves the schemas of all providers of a manifest of `size` bytes.
pub(super) fn resolve_providers(manifest: &RawManifest, size: usize) -> Result<Vec<ProviderSchemas>> {
    let mut budget = SizeBudget::new(size);
    manifest.providers.iter().map(|p| resolve_provider(p, &manifest.strings, &mut budget)).collect()
}

fn resolve_provider(
    provider: &RawProvider,
    strings: &StringTables,
    budget: &mut SizeBudget,
) -> Result<ProviderSchemas> {
    let name = provider.name.as_deref().map(Arc::from);
    let maps = resolve_maps(provider, strings, budget)?;
    let mut templates = HashMap::with_capacity(provider.templates.len());
    for template in &provider.templates {
        let layout = lay_out(template, &maps)?;
        templates.entry(template.id.as_str()).or_insert(layout);
    }
    let resolver =
        Resolver { provider, name, tables: NameTables::new(provider, strings), templates, strings };
    let events = provider
        .events
        .iter()
        .map(|event| resolver.resolve_event(event, budget))
        .collect::<Result<Vec<_>>>()?;
    let filters = provider
        .filters
        .iter()
        .map(|filter| resolver.resolve_filter(filter, budget))
        .collect::<Result<Vec<_>>>()?;
    let value_names = collect_names(provider, &resolver.tables, strings, &events);
    Ok(ProviderSchemas { id: provider.id, name: resolver.name, value_names, events, filters })
}

/// Returns the names that a provider defines, and the predefined ones that its events use.
fn collect_names(
    provider: &RawProvider,
    tables: &NameTables<'_>,
    strings: &StringTables,
    events: &[EventSchema],
) -> ProviderNames {
    let to_name = |definition: &RawDefinition, value| ValueName {
        value,
        name: definition.name.trim().into(),
        text: definition.message.as_deref().and_then(|message| strings.resolve(message)),
    };
    let to_names =
        |definitions: &[RawDefinition]| definitions.iter().map(|d| to_name(d, d.value)).collect::<Vec<_>>();
    // TDH has the opcode in the upper 16 bits and its task in the lower 16 bits.
    let to_opcode_name = |d: &RawDefinition, task: u64| to_name(d, d.value << 16 | task & 0xFFFF);
    let task_opcodes =
        provider.tasks.iter().flat_map(|t| t.opcodes.iter().map(move |d| (d, t.definition.value)));
    let mut names = ProviderNames {
        keywords: to_names(&provider.keywords),
        levels: to_names(&provider.levels),
        channels: tables.channels.list_names(),
        tasks: provider.tasks.iter().map(|t| to_name(&t.definition, t.definition.value)).collect(),
        opcodes: provider
            .opcodes
            .iter()
            .map(|d| (d, 0))
            .chain(task_opcodes)
            .map(|(d, task)| to_opcode_name(d, task))
            .collect(),
    };
    add_used_predefined(&mut names.levels, winmeta::LEVELS, 0, |value| {
        events.iter().any(|e| u64::from(e.descriptor.level) == value)
    });
    let is_opcode_used = |value: u64| events.iter().any(|e| u64::from(e.descriptor.opcode) == value >> 16);
    add_used_predefined(&mut names.opcodes, winmeta::OPCODES, 16, is_opcode_used);
    // Keywords stay in the order of the manifest, because they are displayed in that order.
    for list in [&mut names.levels, &mut names.channels, &mut names.tasks, &mut names.opcodes] {
        list.sort();
        list.dedup();
    }
    names
}

/// Adds predefined names of used numbers that have no name from the provider. The list has each
/// predefined number shifted left by `shift` bits.
fn add_used_predefined(
    list: &mut Vec<ValueName>,
    predefined: &[(&str, u64)],
    shift: u32,
    is_used: impl Fn(u64) -> bool,
) {
    for (name, value) in predefined {
        let value = value << shift;
        if is_used(value) && list.iter().all(|name| name.value != value) {
            list.push(ValueName { value, name: (*name).into(), text: Some(strip_win_prefix(name).into()) });
        }
    }
}

/// Resolves the value and bit maps. An entry without a text is left out, so that the number is
/// shown.
pub(super) fn resolve_maps<'m>(
    provider: &'m RawProvider,
    strings: &StringTables,
    budget: &mut SizeBudget,
) -> Result<Maps<'m>> {
    let mut maps = Maps::new();
    for map in &provider.maps {
        let mut entries = Vec::with_capacity(map.entries.len());
        for entry in &map.entries {
            let Some(text) = strings.resolve(&entry.message) else { continue };
            budget.map_bytes = budget
                .map_bytes
                .checked_sub(text.len())
                .ok_or_else(|| manifest_error(map.offset, "texts of maps are repeated too often"))?;
            entries.push((entry.value, text.as_ref().to_owned()));
        }
        maps.entry(map.name.as_str())
            .or_insert_with(|| Arc::new(ValueMap::new(&map.name, map.is_bit_map, entries)));
    }
    Ok(maps)
}

/// Numbers and display names by the names that events use.
pub(super) struct NameTable<'m> {
    /// The kind of names in the table, for errors.
    kind: &'static str,
    entries: HashMap<&'m str, (u64, Arc<str>)>,
}

impl<'m> NameTable<'m> {
    fn new<'d: 'm>(
        kind: &'static str,
        predefined: &'static [(&'static str, u64)],
        definitions: impl Iterator<Item = &'d RawDefinition>,
        strings: &StringTables,
    ) -> Self {
        let mut entries: HashMap<&str, _> =
            predefined.iter().map(|(name, value)| (*name, (*value, strip_win_prefix(name).into()))).collect();
        let mut defined: HashMap<&str, _> = HashMap::new();
        for definition in definitions {
            let entry = || (definition.value, display_name(definition, strings));
            defined.entry(definition.name.trim()).or_insert_with(entry);
        }
        entries.extend(defined);
        Self { kind, entries }
    }

    /// Returns all entries with their display names.
    fn list_names(&self) -> Vec<ValueName> {
        self.entries
            .values()
            .map(|(value, name)| ValueName { value: *value, name: name.clone(), text: None })
            .collect()
    }

    /// Returns the number and the display name of a name. A number stands for itself and has no
    /// display name.
    pub(super) fn find(&self, name: &str, offset: u64) -> Result<(u64, Option<Arc<str>>)> {
        let name = name.trim();
        if let Some((value, display)) = self.entries.get(name) {
            return Ok((*value, Some(display.clone())));
        }
        let number = parse_number(name)
            .ok_or_else(|| manifest_error(offset, format!("{} {name} is not defined", self.kind)))?;
        Ok((number, None))
    }

    /// Like [`Self::find`], for an optional reference to a number of limited size.
    fn find_optional<T: TryFrom<u64> + Default>(
        &self,
        name: Option<&String>,
        offset: u64,
    ) -> Result<(T, Option<Arc<str>>)> {
        let Some(name) = name else { return Ok((T::default(), None)) };
        let (number, display) = self.find(name, offset)?;
        let number = T::try_from(number)
            .map_err(|_| manifest_error(offset, format!("{} {name} is out of range", self.kind)))?;
        Ok((number, display))
    }
}

/// Returns the text of a definition's message, or else its name.
fn display_name(definition: &RawDefinition, strings: &StringTables) -> Arc<str> {
    let message = definition.message.as_deref().and_then(|message| strings.resolve(message));
    message
        .filter(|text| !text.trim().is_empty())
        .unwrap_or_else(|| strip_win_prefix(&definition.name).into())
}

/// Returns a predefined name without its prefix, for display.
pub(super) fn strip_win_prefix(name: &str) -> &str {
    let name = name.trim();
    name.strip_prefix("win:").unwrap_or(name)
}

pub(super) struct NameTables<'m> {
    levels: NameTable<'m>,
    opcodes: NameTable<'m>,
    tasks: NameTable<'m>,
    keywords: NameTable<'m>,
    pub(super) channels: NameTable<'m>,
    /// The opcodes of tasks that define their own, by task.
    task_opcodes: HashMap<&'m str, NameTable<'m>>,
}

impl<'m> NameTables<'m> {
    pub(super) fn new(provider: &'m RawProvider, strings: &StringTables) -> Self {
        let mut task_opcodes = HashMap::new();
        for task in provider.tasks.iter().filter(|task| !task.opcodes.is_empty()) {
            task_opcodes
                .entry(task.definition.name.trim())
                .or_insert_with(|| NameTable::new("opcode", &[], task.opcodes.iter(), strings));
        }
        let tasks = provider.tasks.iter().map(|task| &task.definition);
        Self {
            levels: NameTable::new("level", winmeta::LEVELS, provider.levels.iter(), strings),
            opcodes: NameTable::new("opcode", winmeta::OPCODES, provider.opcodes.iter(), strings),
            tasks: NameTable::new("task", winmeta::TASKS, tasks, strings),
            keywords: NameTable::new("keyword", winmeta::KEYWORDS, provider.keywords.iter(), strings),
            channels: build_channel_table(&provider.channels),
            task_opcodes,
        }
    }
}

/// Builds the table of channels by id and by name. A channel without a number gets its well-known
/// one if it is imported, else the next free one, as the message compiler assigns it.
fn build_channel_table(channels: &[RawChannel]) -> NameTable<'_> {
    let mut taken = [false; 256];
    for value in channels.iter().filter_map(|channel| channel.value) {
        if let Some(is_taken) = taken.get_mut(usize::from(value)) {
            *is_taken = true;
        }
    }
    let mut next = usize::from(FIRST_MANIFEST_CHANNEL);
    let mut entries = HashMap::with_capacity(channels.len());
    for channel in channels {
        let well_known =
            winmeta::CHANNELS.iter().find(|(name, _)| channel.is_imported && *name == channel.name.trim());
        let value = match (channel.value, well_known) {
            (Some(value), _) => u64::from(value),
            (None, Some((_, value))) => *value,
            (None, None) => {
                next = next.saturating_add(taken.iter().skip(next).take_while(|is_taken| **is_taken).count());
                let value = u64::try_from(next).unwrap_or(u64::MAX);
                next = next.saturating_add(1);
                value
            }
        };
        let entry = (value, Arc::from(channel.name.trim()));
        if let Some(id) = &channel.id {
            entries.entry(id.trim()).or_insert_with(|| entry.clone());
        }
        entries.entry(channel.name.trim()).or_insert(entry);
    }
    NameTable { kind: "channel", entries }
}

/// The tables that the events of a provider refer to.
pub(super) struct Resolver<'m> {
    pub(super) provider: &'m RawProvider,
    pub(super) name: Option<Arc<str>>,
    pub(super) tables: NameTables<'m>,
    pub(super) templates: HashMap<&'m str, TemplateLayout>,
    pub(super) strings: &'m StringTables,
}

impl Resolver<'_> {
    pub(super) fn resolve_event(&self, event: &RawEvent, budget: &mut SizeBudget) -> Result<EventSchema> {
        let (descriptor, names) = self.resolve_descriptor(event)?;
        let mut schema = Schema::default();
        schema.origin = SchemaOrigin::Manifest;
        schema.provider = self.provider.id;
        schema.names = names;
        schema.message = event.message.as_deref().and_then(|message| self.strings.resolve(message));
        let schema = self.seal_with_template(schema, event.template.as_deref(), event.offset, budget)?;
        Ok(EventSchema { descriptor, schema })
    }

    fn resolve_filter(&self, filter: &RawFilter, budget: &mut SizeBudget) -> Result<FilterSchema> {
        let mut schema = Schema::default();
        schema.origin = SchemaOrigin::Manifest;
        schema.provider = self.provider.id;
        schema.message = filter.message.as_deref().and_then(|message| self.strings.resolve(message));
        let schema = self.seal_with_template(schema, filter.template.as_deref(), filter.offset, budget)?;
        Ok(FilterSchema { id: filter.id, version: filter.version, schema })
    }

    /// Completes a schema with the fields of a template, if there is one.
    fn seal_with_template(
        &self,
        schema: Schema,
        template: Option<&str>,
        offset: u64,
        budget: &mut SizeBudget,
    ) -> Result<Schema> {
        let Some(name) = template else { return Ok(schema) };
        let layout = self
            .templates
            .get(name)
            .ok_or_else(|| manifest_error(offset, format!("template {name} is not defined")))?;
        budget.fields = budget
            .fields
            .checked_sub(layout.fields.len())
            .ok_or_else(|| manifest_error(offset, "the events have too many fields in all"))?;
        schema.seal(layout.fields.clone(), layout.top)
    }

    /// Returns the descriptor of an event and the names of its numbers.
    fn resolve_descriptor(&self, event: &RawEvent) -> Result<(EventDescriptor, SchemaNames)> {
        let (tables, offset) = (&self.tables, event.offset);
        let (level, level_name) = tables.levels.find_optional(event.level.as_ref(), offset)?;
        let (task, task_name) = tables.tasks.find_optional(event.task.as_ref(), offset)?;
        let (opcode, opcode_name) =
            self.opcode_table_for(event).find_optional(event.opcode.as_ref(), offset)?;
        let (channel, channel_name) = tables.channels.find_optional(event.channel.as_ref(), offset)?;
        let mut keyword = 0;
        let mut keywords = Vec::new();
        for name in event.keywords.iter().flat_map(|list| list.split_whitespace()) {
            let (mask, display) = tables.keywords.find(name, offset)?;
            keyword |= mask;
            keywords.extend(display.filter(|_| mask != 0).map(|display| (mask, display)));
        }
        let names = SchemaNames {
            provider: self.name.clone(),
            event: event.symbol.as_deref().map(Arc::from),
            task: task_name.filter(|_| task != 0),
            opcode: opcode_name,
            level: level_name,
            channel: channel_name,
            keywords,
        };
        let descriptor =
            EventDescriptor { id: event.id, version: event.version, channel, level, opcode, task, keyword };
        Ok((descriptor, names))
    }

    /// Returns the opcode table of the event's task if the table has the event's opcode, else that
    /// of the provider.
    fn opcode_table_for(&self, event: &RawEvent) -> &NameTable<'_> {
        let task_table = event.task.as_deref().and_then(|task| self.tables.task_opcodes.get(task.trim()));
        let table = task_table
            .filter(|table| event.opcode.as_deref().is_some_and(|o| table.entries.contains_key(o.trim())));
        table.unwrap_or(&self.tables.opcodes)
    }
}
