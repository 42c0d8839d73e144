//! Reads a manifest for a compiler: the schemas and everything that has a name or a symbol, or all
//! mistakes at once.
//!
//! ```text
//!   text ─reader─▶ raw definitions ──┬─ resolve ─▶ schemas of events      (for a decoder)
//!                        │           └─ here ────▶ tables of names, maps  (and a compiler)
//!                        └─ mistakes: line, column, reason
//! ```
//!
//! A decoder reads as much as it can. A compiler must refuse definitions of undecodable events, so
//! this module is stricter than [`parse`](super::parse): referenced texts and maps must exist, ids
//! and symbols are unique, symbols are identifiers, types are those of manifests, and `win:Binary`
//! fields have a length. [`rules`](super::rules) has the rules that apply to the definitions as
//! written.
//!
//! Events of a channel get the keyword bit that the message compiler reserves for the channel: the
//! highest for the first channel of the provider, the next lower for the next.
//!
//! Source: Documented ("EventManifest Schema", "Defining Channels"); the channels' bits as Event
//! Viewer shows them in the keywords of logged events (0x8000000000000000 for the first channel of
//! most providers).

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use traceweir_format::Guid;
use traceweir_format::spec::types::{InType, OutType};

use super::encoding::Document;
use super::layout::{TemplateLayout, lay_out};
use super::raw::{self, RawManifest, RawProvider, RawShape, StringTables};
use super::reader::MAX_MISTAKES;
use super::resolve::{NameTables, Resolver, SizeBudget, resolve_maps, strip_win_prefix};
use super::{MAX_MANIFEST_BYTES, manifest_error, reader, rules};
use crate::Error;
use crate::schema::{Count, Length, ValueMap};
use crate::source::provider::EventSchema;

/// The most channels of a provider: each takes one of the reserved keyword bits.
const MAX_CHANNELS: usize = 8;

/// The default culture of texts. A manifest without texts of this culture is valid.
const DEFAULT_CULTURE: &str = "en-US";

/// A mistake in a manifest, with its position.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {reason}")]
pub struct ManifestMistake {
    /// Line number, from 1 on.
    pub line: usize,
    /// Column number in characters, from 1 on.
    pub column: usize,
    /// Describes the mistake.
    pub reason: String,
}

/// A provider with everything that its manifest defines.
#[derive(Clone, Debug, Default)]
pub struct ProviderDefinition {
    /// GUID of the provider.
    pub id: Guid,
    /// Name of the provider.
    pub name: Option<Arc<str>>,
    /// The identifier of the provider in generated code.
    pub symbol: Option<String>,
    /// Levels that the manifest defines.
    pub levels: Vec<NameDefinition>,
    /// Tasks that the manifest defines.
    pub tasks: Vec<NameDefinition>,
    /// Opcodes that the manifest defines, including those of tasks.
    pub opcodes: Vec<NameDefinition>,
    /// Keywords that the manifest defines.
    pub keywords: Vec<NameDefinition>,
    /// Channels, including imported ones.
    pub channels: Vec<NameDefinition>,
    /// Maps in the order of the manifest.
    pub maps: Vec<MapDefinition>,
    /// Events in the order of the manifest.
    pub events: Vec<EventDefinition>,
}

/// A name for a number of the descriptor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NameDefinition {
    /// The name as the manifest has it, including a prefix such as `win:`.
    pub name: String,
    /// The identifier of the name in generated code.
    pub symbol: Option<String>,
    /// The message text that people read instead of the name.
    pub text: Option<Arc<str>>,
    /// The number that is named.
    pub value: u64,
    /// The task of an opcode; 0 if the opcode belongs to all tasks.
    pub task: u16,
    /// For a task, the class GUID that its events have as classic events; otherwise null.
    pub class: Guid,
}

impl NameDefinition {
    /// Returns the message text, or else the name without `win:`.
    #[must_use]
    pub fn display(&self) -> &str {
        let text = self.text.as_deref().filter(|text| !text.trim().is_empty());
        text.unwrap_or_else(|| strip_win_prefix(&self.name))
    }
}

/// A map with the identifiers of its entries.
#[derive(Clone, Debug, Default)]
pub struct MapDefinition {
    /// The identifier of the map in generated code.
    pub symbol: Option<String>,
    /// The map's name and texts.
    pub map: Arc<ValueMap>,
    /// Value, text and identifier of each entry, in the order of the manifest.
    pub entries: Vec<(u32, Option<Arc<str>>, Option<String>)>,
}

/// One event of a manifest.
#[derive(Clone, Debug)]
pub struct EventDefinition {
    /// The event's descriptor, names, message and fields.
    pub event: EventSchema,
    /// The id of the event's template.
    pub template: Option<String>,
}

/// Reads a manifest for a compiler, with texts of `culture` if the manifest has them. Returns all
/// mistakes if there are any.
pub fn read_definitions(xml: &[u8], culture: &str) -> Result<Vec<ProviderDefinition>, Vec<ManifestMistake>> {
    let mistake_in_bytes = |error: Error| {
        vec![to_mistake(error, |offset| String::from_utf8_lossy(bytes_before(xml, offset)).into_owned())]
    };
    if xml.len() > MAX_MANIFEST_BYTES {
        return Err(mistake_in_bytes(manifest_error(0, "the manifest is larger than 64 MiB")));
    }
    let document = Document::decode(xml).map_err(mistake_in_bytes)?;
    let mut mistakes = Vec::new();
    let providers = match reader::read_collecting_mistakes(&document.text, culture, &mut mistakes) {
        Ok(manifest) => {
            if !manifest.has_culture && !culture.eq_ignore_ascii_case(DEFAULT_CULTURE) {
                mistakes.push(manifest_error(0, format!("there are no texts of culture {culture}")));
            }
            define_providers(&manifest, xml.len(), &mut mistakes)
        }
        Err(error) => {
            mistakes.push(error);
            Vec::new()
        }
    };
    if mistakes.is_empty() {
        return Ok(providers);
    }
    let text_before =
        |offset| String::from_utf8_lossy(bytes_before(document.text.as_bytes(), offset)).into_owned();
    let mut mistakes: Vec<_> = mistakes.into_iter().map(|error| to_mistake(error, text_before)).collect();
    mistakes.sort_by_key(|mistake| (mistake.line, mistake.column));
    Err(mistakes)
}

fn bytes_before(bytes: &[u8], offset: u64) -> &[u8] {
    usize::try_from(offset).ok().and_then(|end| bytes.get(..end)).unwrap_or(bytes)
}

/// Converts an error to a mistake with line and column; `text_before` returns the text before an
/// offset.
fn to_mistake(error: Error, text_before: impl Fn(u64) -> String) -> ManifestMistake {
    let Error::Xml { offset, reason } = error else {
        return ManifestMistake { line: 1, column: 1, reason: error.to_string() };
    };
    let text = text_before(offset);
    let line_start = text.rfind('\n').map_or(0, |at| at.saturating_add(1));
    let column = text.get(line_start..).map_or(0, |line| line.chars().count()).saturating_add(1);
    ManifestMistake { line: text.matches('\n').count().saturating_add(1), column, reason }
}

fn define_providers(
    manifest: &RawManifest,
    size: usize,
    mistakes: &mut Vec<Error>,
) -> Vec<ProviderDefinition> {
    let mut budget = SizeBudget::new(size);
    let mut definer = Definer { strings: &manifest.strings, mistakes };
    rules::check_manifest(manifest, &mut |offset, reason| definer.report(offset, reason));
    manifest.providers.iter().map(|provider| definer.define_provider(provider, &mut budget)).collect()
}

struct Definer<'m> {
    strings: &'m StringTables,
    mistakes: &'m mut Vec<Error>,
}

impl Definer<'_> {
    fn report(&mut self, offset: u64, reason: impl AsRef<str>) {
        self.add_mistake(manifest_error(offset, reason));
    }

    fn add_mistake(&mut self, error: Error) {
        if self.mistakes.len() < MAX_MISTAKES {
            self.mistakes.push(error);
        }
    }

    fn define_provider(&mut self, provider: &RawProvider, budget: &mut SizeBudget) -> ProviderDefinition {
        let mut maps_by_name = HashMap::new();
        match resolve_maps(provider, self.strings, budget) {
            Ok(maps) => maps_by_name = maps,
            Err(error) => self.add_mistake(error),
        }
        let mut templates: HashMap<&str, TemplateLayout> = HashMap::new();
        for template in &provider.templates {
            self.check_fields(&template.fields, &maps_by_name);
            let layout = lay_out(template, &maps_by_name).unwrap_or_else(|error| {
                self.add_mistake(error);
                TemplateLayout { fields: Vec::new(), top: 0 }
            });
            if let Some((name, size)) = find_array_used_as_size(&layout) {
                let reason = format!("field {size}, the count or length of {name}, is an array itself");
                self.report(template.offset, reason);
            }
            if templates.insert(&template.id, layout).is_some() {
                self.report(template.offset, format!("template {} is defined twice", template.id));
            }
        }
        if provider.name.is_none() {
            self.report(provider.offset, "element provider has no attribute name");
        }
        self.check_symbol(provider.offset, provider.symbol.as_deref());
        let name = provider.name.as_deref().map(Arc::from);
        let tables = NameTables::new(provider, self.strings);
        let channels = self.define_channels(provider, &tables);
        let resolver = Resolver { provider, name, tables, templates, strings: self.strings };
        ProviderDefinition {
            id: provider.id,
            symbol: provider.symbol.clone(),
            levels: self.define_names(provider.levels.iter()),
            tasks: self.define_tasks(&provider.tasks),
            opcodes: self.define_opcodes(provider),
            keywords: self.define_names(provider.keywords.iter()),
            maps: self.define_maps(provider, &maps_by_name),
            events: self.define_events(&resolver, &channels, budget),
            channels,
            name: resolver.name,
        }
    }

    fn define_events(
        &mut self,
        resolver: &Resolver<'_>,
        channels: &[NameDefinition],
        budget: &mut SizeBudget,
    ) -> Vec<EventDefinition> {
        let mut ids = HashSet::new();
        let mut events = Vec::with_capacity(resolver.provider.events.len());
        for raw in &resolver.provider.events {
            if !ids.insert((raw.id, raw.version)) {
                self.report(raw.offset, format!("event {} version {} is defined twice", raw.id, raw.version));
            }
            self.check_symbol(raw.offset, raw.symbol.as_deref());
            self.check_message(raw.offset, raw.message.as_deref());
            match resolver.resolve_event(raw, budget) {
                Ok(mut event) => {
                    let channel = event.schema.names.channel.as_deref();
                    let index = channels.iter().position(|c| Some(c.name.trim()) == channel);
                    event.descriptor.keyword |= index.map_or(0, channel_bit);
                    events.push(EventDefinition { event, template: raw.template.clone() });
                }
                Err(error) => self.add_mistake(error),
            }
        }
        events
    }

    fn define_names<'d>(
        &mut self,
        definitions: impl Iterator<Item = &'d raw::RawDefinition>,
    ) -> Vec<NameDefinition> {
        let mut seen = HashSet::new();
        let mut names = Vec::new();
        for definition in definitions {
            if !seen.insert(definition.name.trim()) {
                self.report(definition.offset, format!("{} is defined twice", definition.name));
            }
            names.push(self.define_name(definition));
        }
        names
    }

    fn define_name(&mut self, definition: &raw::RawDefinition) -> NameDefinition {
        self.check_symbol(definition.offset, definition.symbol.as_deref());
        self.check_message(definition.offset, definition.message.as_deref());
        NameDefinition {
            name: definition.name.trim().to_owned(),
            symbol: definition.symbol.clone(),
            text: definition.message.as_deref().and_then(|message| self.strings.resolve(message)),
            value: definition.value,
            ..NameDefinition::default()
        }
    }

    fn define_tasks(&mut self, tasks: &[raw::RawTask]) -> Vec<NameDefinition> {
        let mut names = self.define_names(tasks.iter().map(|task| &task.definition));
        for (name, task) in names.iter_mut().zip(tasks) {
            let Some(class) = &task.class else { continue };
            match class.trim().parse() {
                Ok(class) => name.class = class,
                Err(_) => self.report(task.definition.offset, format!("{class} is not a GUID")),
            }
        }
        names
    }

    fn define_opcodes(&mut self, provider: &RawProvider) -> Vec<NameDefinition> {
        let mut names = self.define_names(provider.opcodes.iter());
        for task in &provider.tasks {
            let task_names = self.define_names(task.opcodes.iter());
            let task = u16::try_from(task.definition.value).unwrap_or_default();
            names.extend(task_names.into_iter().map(|name| NameDefinition { task, ..name }));
        }
        names
    }

    fn define_channels(&mut self, provider: &RawProvider, tables: &NameTables<'_>) -> Vec<NameDefinition> {
        let mut names = Vec::new();
        for channel in &provider.channels {
            if names.len() == MAX_CHANNELS {
                self.report(channel.offset, "a provider has at most eight channels");
                break;
            }
            self.check_symbol(channel.offset, channel.symbol.as_deref());
            self.check_message(channel.offset, channel.message.as_deref());
            let value = tables.channels.find(&channel.name, channel.offset).map_or(0, |(value, _)| value);
            names.push(NameDefinition {
                name: channel.name.trim().to_owned(),
                symbol: channel.symbol.clone(),
                text: channel.message.as_deref().and_then(|message| self.strings.resolve(message)),
                value,
                ..NameDefinition::default()
            });
        }
        names
    }

    fn define_maps(
        &mut self,
        provider: &RawProvider,
        resolved: &HashMap<&str, Arc<ValueMap>>,
    ) -> Vec<MapDefinition> {
        let mut seen = HashSet::new();
        let mut maps = Vec::new();
        for raw in &provider.maps {
            if !seen.insert(raw.name.as_str()) {
                self.report(raw.offset, format!("map {} is defined twice", raw.name));
            }
            self.check_symbol(raw.offset, raw.symbol.as_deref());
            let mut entries = Vec::with_capacity(raw.entries.len());
            for entry in &raw.entries {
                self.check_symbol(entry.offset, entry.symbol.as_deref());
                self.check_message(entry.offset, Some(&entry.message));
                let Ok(value) = u32::try_from(entry.value) else {
                    self.report(entry.offset, "the value of a map has 32 bits");
                    continue;
                };
                entries.push((value, self.strings.resolve(&entry.message), entry.symbol.clone()));
            }
            let map = resolved.get(raw.name.as_str()).cloned().unwrap_or_default();
            maps.push(MapDefinition { symbol: raw.symbol.clone(), map, entries });
        }
        maps
    }

    /// Checks fields for mistakes that a decoder tolerates. The reader bounds the nesting.
    fn check_fields(&mut self, fields: &[raw::RawField], maps: &HashMap<&str, Arc<ValueMap>>) {
        for field in fields {
            match &field.shape {
                RawShape::Struct(members) => self.check_fields(members, maps),
                RawShape::Value { input, map, output } => {
                    if let Some(map) = map.as_deref().filter(|map| !maps.contains_key(*map)) {
                        self.report(field.offset, format!("map {map} is not defined"));
                    }
                    if input.0 > u16::from(u8::MAX) {
                        let reason = format!("field {}: its inType belongs to classic events", field.name);
                        self.report(field.offset, reason);
                    }
                    let has_size = field.length.is_some() || *output == OutType::IPV6;
                    if *input == InType::BINARY && !has_size {
                        self.report(field.offset, format!("field {}: win:Binary needs a length", field.name));
                    }
                }
            }
        }
    }

    fn check_message(&mut self, offset: u64, message: Option<&str>) {
        if let Some(message) = message.filter(|message| self.strings.lacks(message)) {
            self.report(offset, format!("{} is in no string table", message.trim()));
        }
    }

    fn check_symbol(&mut self, offset: u64, symbol: Option<&str>) {
        if let Some(symbol) = symbol.filter(|symbol| !is_identifier(symbol)) {
            self.report(offset, format!("symbol {symbol} is not an identifier"));
        }
    }
}

/// Returns the names of a field whose count or length refers to an array, and of this array.
fn find_array_used_as_size(layout: &TemplateLayout) -> Option<(&str, &str)> {
    layout.fields.iter().find_map(|field| {
        let (count, length) = (field.count, field.length);
        let count_index = if let Count::Field(index) = count { Some(index) } else { None };
        let length_index = if let Length::Field(index) = length { Some(index) } else { None };
        let sizes = count_index.into_iter().chain(length_index);
        let array = sizes
            .filter_map(|index| layout.fields.get(usize::from(index)))
            .find(|f| f.count != Count::One)?;
        Some((&*field.name, &*array.name))
    })
}

/// Returns the keyword bit of the channel at this index of the list.
fn channel_bit(index: usize) -> u64 {
    u32::try_from(index).ok().and_then(|index| (1_u64 << 63).checked_shr(index)).unwrap_or(0)
}

fn is_identifier(symbol: &str) -> bool {
    symbol.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && symbol.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find_mistakes(inside: &str) -> Vec<(usize, String)> {
        let xml = format!(
            "<instrumentationManifest>\n<provider name=\"P\" guid=\"{{11223344-5566-7788-99aa-bbccddeeff00}}\">\n{inside}\n</provider></instrumentationManifest>"
        );
        let mistakes = read_definitions(xml.as_bytes(), "en-US").unwrap_err();
        mistakes.into_iter().map(|m| (m.line, m.reason)).collect()
    }

    #[test]
    fn all_mistakes_are_reported_at_once_with_their_lines() {
        let mistakes = find_mistakes(
            "<keywords><keyword name=\"K\" mask=\"x\"/></keywords>
            <maps><valueMap name=\"M\"><map value=\"0x100000000\" message=\"$(string.no)\"/></valueMap></maps>
            <templates><template tid=\"T\">
              <data name=\"a\" inType=\"win:Nothing\"/>
              <data name=\"b\" inType=\"win:Binary\"/>
              <data name=\"c\" inType=\"win:SizeT\" map=\"Q\"/>
              <data name=\"d\" inType=\"win:UInt8\" count=\"z\"/>
            </template></templates><events>
            <event value=\"1\" symbol=\"1st\" level=\"loud\" template=\"T\"/>
            <event value=\"1\" symbol=\"Two\" template=\"U\"/>
            <event value=\"2\" symbol=\"Two\"/></events>",
        );
        let lines: Vec<usize> = mistakes.iter().map(|m| m.0).collect();
        assert_eq!(lines, [3, 4, 4, 6, 7, 8, 8, 9, 11, 11, 12, 12, 13], "{mistakes:#?}");
        for (part, line) in
            [("mask x", 3), ("32 bits", 4), ("no string table", 4), ("Nothing", 6), ("length", 7)]
        {
            assert!(mistakes.iter().any(|m| m.0 == line && m.1.contains(part)), "{part}: {mistakes:#?}");
        }
    }

    #[test]
    fn mistakes_are_bounded_and_broken_xml_has_a_line() {
        assert!(
            find_mistakes(&"<events><event/></events>\n".repeat(5000)).len()
                <= MAX_MISTAKES.saturating_add(1)
        );
        assert_eq!(find_mistakes("\n<x:a>\n</b>")[0].0, 5);
        let utf16: Vec<u8> =
            [0xFF, 0xFE].into_iter().chain("<a>\n\n</b>".encode_utf16().flat_map(u16::to_le_bytes)).collect();
        assert_eq!(read_definitions(&utf16, "en-US").unwrap_err()[0].line, 3);
    }

    #[test]
    fn channels_take_the_highest_bits_in_their_order() {
        assert_eq!((channel_bit(0), channel_bit(1)), (1 << 63, 1 << 62));
    }
}
