//! Reads XML into [`raw`] definitions in one pass, with a stack of open elements; resolves nothing.
//!
//! Each open element has an [`Element`], which decides which children it may have. Any other
//! child opens [`Element::Ignored`], and so does everything below it.

use quick_xml::events::Event;
use quick_xml::name::{Namespace, NamespaceError, NamespaceResolver, QName, ResolveResult};
use quick_xml::reader::NsReader;

use super::encoding::as_offset;
use super::manifest_error;
use super::raw::{self, RawField, RawManifest, RawProvider, RawShape, RawTemplate};
use super::tag::Tag;
use crate::{Error, Result};

/// The namespace of manifests, for manifests that use it with a prefix.
const EVENTS_NAMESPACE: &str = "http://schemas.microsoft.com/win/2004/08/events";
/// The deepest nesting of elements. Manifests have 10 levels, plus those of `UserData`.
const MAX_DEPTH: usize = 64;
/// The most namespace declarations in force at one element.
const MAX_NAMESPACES: usize = 64;
/// The most definitions of all kinds: eight for each possible event id.
const MAX_DEFINITIONS: usize = 1 << 19;

/// The most providers of a manifest; resolving each needs tables of predefined names.
const MAX_PROVIDERS: usize = 4096;

/// The most mistakes that are listed.
pub(super) const MAX_MISTAKES: usize = 100;

/// The kind of an open element.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Element {
    /// Outside of providers and localization.
    Outside,
    Provider,
    Levels,
    Tasks,
    Task,
    TaskOpcodes,
    Opcodes,
    Keywords,
    Channels,
    Maps,
    Map,
    Templates,
    Template,
    Struct,
    Events,
    Filters,
    Localization,
    Resources {
        is_preferred: bool,
    },
    StringTable {
        is_preferred: bool,
    },
    Ignored,
}

/// Reads the definitions of a manifest's text. Fails at the first mistake.
pub(super) fn read(text: &str) -> Result<RawManifest> {
    read_into(text, DefinitionCollector::default())
}

/// Like [`read`], for a compiler: texts of `culture` are preferred, and wrong definitions are
/// skipped and listed, as long as the XML is well formed.
pub(super) fn read_collecting_mistakes(
    text: &str,
    culture: &str,
    mistakes: &mut Vec<Error>,
) -> Result<RawManifest> {
    let collector = DefinitionCollector {
        culture: Some(culture.to_owned()),
        mistakes: Some(mistakes),
        ..DefinitionCollector::default()
    };
    read_into(text, collector)
}

fn read_into(text: &str, mut collector: DefinitionCollector<'_>) -> Result<RawManifest> {
    let mut reader = NsReader::from_str(text);
    reader.config_mut().expand_empty_elements = true;
    reader.resolver_mut().set_max_namespace_bindings(MAX_NAMESPACES);
    loop {
        let offset = reader.buffer_position();
        match reader.read_event().map_err(|e| manifest_error(reader.error_position(), error_text(&e)))? {
            Event::Start(start) if is_foreign(reader.resolver(), start.name()) => {
                collector.push_element(Element::Ignored, offset)?
            }
            Event::Start(start) => collector.start_element(&start, offset)?,
            Event::End(_) => collector.end_element(offset)?,
            Event::DocType(_) => {
                return Err(manifest_error(offset, "document type declarations are not accepted"));
            }
            Event::GeneralRef(entity) => {
                let is_predefined =
                    quick_xml::escape::resolve_predefined_entity(&entity.xml10_content()).is_some();
                if !is_predefined && !entity.is_char_ref() {
                    return Err(manifest_error(
                        offset,
                        "entities other than the predefined ones are not accepted",
                    ));
                }
            }
            Event::Eof => break,
            // Text, comments and instructions hold nothing that a decoder needs.
            _ => {}
        }
    }
    collector.finish(as_offset(text.len()))
}

/// Returns whether an element called `name` may stand in `parent`. Only the children of elements of
/// providers and string tables are checked.
fn is_allowed_in(parent: Element, name: &str) -> bool {
    match parent {
        Element::Provider => matches!(
            name,
            "levels"
                | "tasks"
                | "opcodes"
                | "keywords"
                | "channels"
                | "maps"
                | "templates"
                | "events"
                | "filters"
                | "namedQueries"
        ),
        Element::Levels => name == "level",
        Element::Tasks => name == "task",
        Element::Task => matches!(name, "opcodes" | "events"),
        Element::TaskOpcodes | Element::Opcodes => name == "opcode",
        Element::Keywords => name == "keyword",
        Element::Channels => matches!(name, "channel" | "importChannel"),
        Element::Maps => matches!(name, "valueMap" | "bitMap" | "patternMaps"),
        Element::Map => name == "map",
        Element::Templates => name == "template",
        Element::Template => matches!(name, "data" | "struct" | "UserData" | "binary"),
        Element::Struct => matches!(name, "data" | "struct"),
        Element::Events => name == "event",
        Element::Filters => name == "filter",
        Element::StringTable { .. } => name == "string",
        Element::Outside | Element::Localization | Element::Resources { .. } | Element::Ignored => true,
    }
}

/// Returns the XML reader's message without its advice to programmers.
fn error_text(error: &quick_xml::Error) -> String {
    match error {
        quick_xml::Error::Namespace(NamespaceError::TooManyBindings(_)) => {
            "too many namespace declarations".to_owned()
        }
        other => other.to_string(),
    }
}

/// Returns whether an element has the prefix of a namespace other than that of manifests.
fn is_foreign(resolver: &NamespaceResolver, name: QName<'_>) -> bool {
    name.prefix().is_some()
        && resolver.resolve_element(name).0 != ResolveResult::Bound(Namespace(EVENTS_NAMESPACE))
}

#[derive(Default)]
struct DefinitionCollector<'m> {
    manifest: RawManifest,
    /// The culture whose texts are preferred; `None` means en-US.
    culture: Option<String>,
    /// Collects mistakes that do not end the reading.
    mistakes: Option<&'m mut Vec<Error>>,
    open_elements: Vec<Element>,
    /// Structures whose end has not been seen, the outermost first.
    structs: Vec<RawField>,
    definition_count: usize,
}

impl DefinitionCollector<'_> {
    fn start_element(&mut self, start: &quick_xml::events::BytesStart<'_>, offset: u64) -> Result<()> {
        let element = match self.open_elements.last().copied().unwrap_or(Element::Outside) {
            Element::Ignored => Element::Ignored,
            parent => {
                match Tag::new(start, offset).and_then(|tag| self.check_and_read_element(parent, tag)) {
                    Ok(element) => element,
                    Err(error) => self.record_mistake(error)?,
                }
            }
        };
        self.push_element(element, offset)
    }

    /// Reads an element. A decoder ignores unknown elements and attributes; for a compiler they are
    /// mistakes, because a misspelt name would lose a field or an event.
    fn check_and_read_element(&mut self, parent: Element, tag: Tag<'_>) -> Result<Element> {
        if self.mistakes.is_some() {
            if !is_allowed_in(parent, tag.name) {
                return Err(manifest_error(tag.offset, format!("element {} is not known here", tag.name)));
            }
            if let Some(attribute) = tag.unknown_attribute() {
                let reason = format!("element {} has no attribute {attribute} in manifests", tag.name);
                return Err(manifest_error(tag.offset, reason));
            }
        }
        self.read_element(parent, tag)
    }

    /// Lists a mistake and skips the element; returns the error if there is no list or a limit is
    /// reached.
    fn record_mistake(&mut self, error: Error) -> Result<Element> {
        match &mut self.mistakes {
            Some(mistakes) if mistakes.len() < MAX_MISTAKES && self.definition_count <= MAX_DEFINITIONS => {
                mistakes.push(error);
                Ok(Element::Ignored)
            }
            _ => Err(error),
        }
    }

    fn push_element(&mut self, element: Element, offset: u64) -> Result<()> {
        if self.open_elements.len() >= MAX_DEPTH {
            return Err(manifest_error(offset, "elements are nested too deeply"));
        }
        self.open_elements.push(element);
        Ok(())
    }

    fn end_element(&mut self, offset: u64) -> Result<()> {
        if self.open_elements.pop() == Some(Element::Struct)
            && let Some(field) = self.structs.pop()
        {
            self.add_field(field, offset)?;
        }
        Ok(())
    }

    fn finish(self, end: u64) -> Result<RawManifest> {
        if !self.open_elements.is_empty() {
            return Err(manifest_error(end, "the text ends inside an element"));
        }
        if self.manifest.providers.is_empty() {
            return Err(manifest_error(end, "no provider element: this is not an instrumentation manifest"));
        }
        Ok(self.manifest)
    }

    fn read_element(&mut self, parent: Element, tag: Tag<'_>) -> Result<Element> {
        Ok(match (parent, tag.name) {
            (Element::Outside, "instrumentationManifest" | "assembly" | "instrumentation" | "events") => {
                Element::Outside
            }
            (Element::Outside, "provider") => self.read_provider(tag)?,
            (Element::Outside, "localization") => Element::Localization,
            (Element::Provider, section) => match section {
                "levels" => Element::Levels,
                "tasks" => Element::Tasks,
                "opcodes" => Element::Opcodes,
                "keywords" => Element::Keywords,
                "channels" => Element::Channels,
                "maps" => Element::Maps,
                "templates" => Element::Templates,
                "events" => Element::Events,
                "filters" => Element::Filters,
                _ => Element::Ignored,
            },
            (Element::Task, "opcodes") => Element::TaskOpcodes,
            (Element::Localization, "resources") => {
                let is_preferred =
                    tag.attribute_equals("culture", self.culture.as_deref().unwrap_or("en-US"));
                self.manifest.has_culture |= is_preferred;
                Element::Resources { is_preferred }
            }
            (Element::Resources { is_preferred }, "stringTable") => Element::StringTable { is_preferred },
            (Element::Outside | Element::Task | Element::Localization | Element::Resources { .. }, _) => {
                Element::Ignored
            }
            _ => return self.read_definition(parent, tag),
        })
    }

    /// Reads an element that is a definition.
    fn read_definition(&mut self, parent: Element, mut tag: Tag<'_>) -> Result<Element> {
        self.definition_count = self.definition_count.saturating_add(1);
        if self.definition_count > MAX_DEFINITIONS {
            return Err(manifest_error(tag.offset, "too many definitions"));
        }
        match parent {
            Element::StringTable { is_preferred } => {
                if tag.name == "string" {
                    let (id, text) = (tag.take_required("id")?, tag.take_required("value")?);
                    let reason = format!("string {id} is defined twice");
                    if self.manifest.strings.add(id, is_preferred, &text) && self.mistakes.is_some() {
                        return Err(manifest_error(tag.offset, reason));
                    }
                }
                Ok(Element::Ignored)
            }
            Element::Template | Element::Struct => self.read_field(&mut tag),
            Element::Maps | Element::Map | Element::Templates | Element::Events | Element::Filters => {
                self.read_content(parent, &mut tag)
            }
            _ => self.read_name(parent, &mut tag),
        }
    }

    /// Reads a name for a number of the descriptor.
    fn read_name(&mut self, parent: Element, tag: &mut Tag<'_>) -> Result<Element> {
        const MAX_BYTE: u64 = u8::MAX as u64;
        const MAX_WORD: u64 = u16::MAX as u64;
        let provider = self.current_provider(tag)?;
        match (parent, tag.name) {
            (Element::Levels, "level") => provider.levels.push(tag.read_definition("value", MAX_BYTE)?),
            (Element::Opcodes, "opcode") => provider.opcodes.push(tag.read_definition("value", MAX_BYTE)?),
            (Element::Keywords, "keyword") => provider.keywords.push(tag.read_definition("mask", u64::MAX)?),
            (Element::Channels, "channel" | "importChannel") => provider.channels.push(tag.read_channel()?),
            (Element::Tasks, "task") => {
                let definition = tag.read_definition("value", MAX_WORD)?;
                let class = tag.take_text("eventGUID");
                provider.tasks.push(raw::RawTask { definition, class, opcodes: Vec::new() });
                return Ok(Element::Task);
            }
            (Element::TaskOpcodes, "opcode") => {
                let opcode = tag.read_definition("value", MAX_BYTE)?;
                if let Some(task) = provider.tasks.last_mut() {
                    task.opcodes.push(opcode);
                }
            }
            _ => {}
        }
        Ok(Element::Ignored)
    }

    /// Reads a map or one of its entries, a template, an event or a filter.
    fn read_content(&mut self, parent: Element, tag: &mut Tag<'_>) -> Result<Element> {
        let provider = self.current_provider(tag)?;
        match (parent, tag.name) {
            (Element::Maps, "valueMap" | "bitMap") => {
                provider.maps.push(tag.read_map()?);
                return Ok(Element::Map);
            }
            (Element::Map, "map") => {
                let entry = tag.read_map_entry()?;
                if let Some(map) = provider.maps.last_mut() {
                    map.entries.push(entry);
                }
            }
            (Element::Templates, "template") => {
                provider.templates.push(RawTemplate {
                    offset: tag.offset,
                    id: tag.take_required("tid")?,
                    fields: Vec::new(),
                });
                return Ok(Element::Template);
            }
            (Element::Events, "event") => provider.events.push(tag.read_event()?),
            (Element::Filters, "filter") => provider.filters.push(tag.read_filter()?),
            _ => {}
        }
        Ok(Element::Ignored)
    }

    /// Reads a field, or the start of a structure.
    fn read_field(&mut self, tag: &mut Tag<'_>) -> Result<Element> {
        match tag.name {
            "data" => {
                let field = tag.read_data_field()?;
                self.add_field(field, tag.offset)?;
                Ok(Element::Ignored)
            }
            "struct" => {
                self.structs.push(tag.read_field(RawShape::Struct(Vec::new()))?);
                Ok(Element::Struct)
            }
            _ => Ok(Element::Ignored),
        }
    }

    fn read_provider(&mut self, mut tag: Tag<'_>) -> Result<Element> {
        if self.manifest.providers.len() >= MAX_PROVIDERS {
            return Err(manifest_error(tag.offset, "too many providers"));
        }
        let guid = tag.take_required("guid")?;
        let id = guid.parse().map_err(|_| manifest_error(tag.offset, format!("{guid} is not a GUID")))?;
        let (offset, name, symbol) = (tag.offset, tag.take_text("name"), tag.take_text("symbol"));
        self.manifest.providers.push(RawProvider { offset, id, name, symbol, ..RawProvider::default() });
        Ok(Element::Provider)
    }

    fn current_provider(&mut self, tag: &Tag<'_>) -> Result<&mut RawProvider> {
        self.manifest
            .providers
            .last_mut()
            .ok_or_else(|| manifest_error(tag.offset, "definition outside a provider"))
    }

    /// Adds a field to the innermost open structure, or to the template.
    fn add_field(&mut self, field: RawField, offset: u64) -> Result<()> {
        let template = self.manifest.providers.last_mut().and_then(|p| p.templates.last_mut());
        let fields = match (self.structs.last_mut(), template) {
            (Some(RawField { shape: RawShape::Struct(members), .. }), _) => members,
            (None, Some(template)) => &mut template.fields,
            _ => return Err(manifest_error(offset, "field outside a template")),
        };
        fields.push(field);
        Ok(())
    }
}
