//! Reads XML into [`raw`] definitions in one pass, with a stack of open elements; resolves nothing.
//!
//! Each open element has an [`Element`], which decides which children it may have. Any other
//! child opens [`Element::Ignored`], and so does everything below it.

use quick_xml::events::Event;
use quick_xml::name::{Namespace, NamespaceError, NamespaceResolver, QName, ResolveResult};
use quick_xml::reader::NsReader;

use super::encoding::as_offset;
use super::invalid;
use super::raw::{self, Field, Manifest, Provider, Shape, Template};
use super::tag::Tag;
use crate::{Error, Result};

/// The namespace of manifests, for manifests that use it with a prefix.
const EVENTS: &str = "http://schemas.microsoft.com/win/2004/08/events";
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
    Resources { preferred: bool },
    StringTable { preferred: bool },
    Ignored,
}

/// Reads the definitions of a manifest's text; the first mistake ends it.
pub(super) fn read(text: &str) -> Result<Manifest> {
    read_into(text, Collector::default())
}

/// Like [`read`], for a compiler: texts of `culture` are preferred, and wrong definitions are
/// skipped and listed, as long as the XML itself can be followed.
pub(super) fn read_all(text: &str, culture: &str, mistakes: &mut Vec<Error>) -> Result<Manifest> {
    let collector =
        Collector { culture: Some(culture.to_owned()), mistakes: Some(mistakes), ..Collector::default() };
    read_into(text, collector)
}

fn read_into(text: &str, mut collector: Collector<'_>) -> Result<Manifest> {
    let mut reader = NsReader::from_str(text);
    reader.config_mut().expand_empty_elements = true;
    reader.resolver_mut().set_max_namespace_bindings(MAX_NAMESPACES);
    loop {
        let offset = reader.buffer_position();
        match reader.read_event().map_err(|e| invalid(reader.error_position(), reason(&e)))? {
            Event::Start(start) if is_foreign(reader.resolver(), start.name()) => {
                collector.open(Element::Ignored, offset)?
            }
            Event::Start(start) => collector.start(&start, offset)?,
            Event::End(_) => collector.end(offset)?,
            Event::DocType(_) => return Err(invalid(offset, "document type declarations are not accepted")),
            Event::GeneralRef(entity) => {
                let predefined =
                    quick_xml::escape::resolve_predefined_entity(&entity.xml10_content()).is_some();
                if !predefined && !entity.is_char_ref() {
                    return Err(invalid(offset, "entities other than the predefined ones are not accepted"));
                }
            }
            Event::Eof => break,
            // Text, comments and instructions hold nothing that a decoder needs.
            _ => {}
        }
    }
    collector.finish(as_offset(text.len()))
}

/// Returns whether manifests have such an element inside `parent`; elements outside of providers
/// are not checked.
fn may_be_in(parent: Element, name: &str) -> bool {
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
fn reason(error: &quick_xml::Error) -> String {
    match error {
        quick_xml::Error::Namespace(NamespaceError::TooManyBindings(_)) => {
            "too many namespace declarations".to_owned()
        }
        other => other.to_string(),
    }
}

/// Returns whether an element has the prefix of another namespace than that of manifests.
fn is_foreign(resolver: &NamespaceResolver, name: QName<'_>) -> bool {
    name.prefix().is_some() && resolver.resolve_element(name).0 != ResolveResult::Bound(Namespace(EVENTS))
}

#[derive(Default)]
struct Collector<'m> {
    manifest: Manifest,
    /// The culture whose texts are preferred, if it is not the default one.
    culture: Option<String>,
    /// Collects mistakes that do not end the reading.
    mistakes: Option<&'m mut Vec<Error>>,
    open_elements: Vec<Element>,
    /// Structures whose end has not been seen, the outermost first.
    structs: Vec<Field>,
    definitions: usize,
}

impl Collector<'_> {
    fn start(&mut self, start: &quick_xml::events::BytesStart<'_>, offset: u64) -> Result<()> {
        let kind = match self.open_elements.last().copied().unwrap_or(Element::Outside) {
            Element::Ignored => Element::Ignored,
            parent => match Tag::new(start, offset).and_then(|tag| self.check_and_enter(parent, tag)) {
                Ok(kind) => kind,
                Err(error) => self.list_mistake(error)?,
            },
        };
        self.open(kind, offset)
    }

    /// Reads an element. A decoder ignores unknown elements and attributes; for a compiler they are
    /// mistakes, because a misspelt name would lose a field or an event.
    fn check_and_enter(&mut self, parent: Element, tag: Tag<'_>) -> Result<Element> {
        if self.mistakes.is_some() {
            if !may_be_in(parent, tag.name) {
                return Err(invalid(tag.offset, format!("element {} is not known here", tag.name)));
            }
            if let Some(attribute) = tag.unknown_attribute() {
                let reason = format!("element {} has no attribute {attribute} in manifests", tag.name);
                return Err(invalid(tag.offset, reason));
            }
        }
        self.enter(parent, tag)
    }

    /// Lists a mistake and skips the element; returns the error if there is no list.
    fn list_mistake(&mut self, error: Error) -> Result<Element> {
        match &mut self.mistakes {
            Some(mistakes) if mistakes.len() < MAX_MISTAKES && self.definitions <= MAX_DEFINITIONS => {
                mistakes.push(error);
                Ok(Element::Ignored)
            }
            _ => Err(error),
        }
    }

    fn open(&mut self, kind: Element, offset: u64) -> Result<()> {
        if self.open_elements.len() >= MAX_DEPTH {
            return Err(invalid(offset, "elements are nested too deeply"));
        }
        self.open_elements.push(kind);
        Ok(())
    }

    fn end(&mut self, offset: u64) -> Result<()> {
        if self.open_elements.pop() == Some(Element::Struct)
            && let Some(field) = self.structs.pop()
        {
            self.add_field(field, offset)?;
        }
        Ok(())
    }

    fn finish(self, end: u64) -> Result<Manifest> {
        if !self.open_elements.is_empty() {
            return Err(invalid(end, "the text ends inside an element"));
        }
        if self.manifest.providers.is_empty() {
            return Err(invalid(end, "no provider element: this is not an instrumentation manifest"));
        }
        Ok(self.manifest)
    }

    /// Reads an element and returns its kind.
    fn enter(&mut self, parent: Element, tag: Tag<'_>) -> Result<Element> {
        Ok(match (parent, tag.name) {
            (Element::Outside, "instrumentationManifest" | "assembly" | "instrumentation" | "events") => {
                Element::Outside
            }
            (Element::Outside, "provider") => self.provider(tag)?,
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
                let preferred = tag.is("culture", self.culture.as_deref().unwrap_or("en-US"));
                self.manifest.has_culture |= preferred;
                Element::Resources { preferred }
            }
            (Element::Resources { preferred }, "stringTable") => Element::StringTable { preferred },
            (Element::Outside | Element::Task | Element::Localization | Element::Resources { .. }, _) => {
                Element::Ignored
            }
            _ => return self.define(parent, tag),
        })
    }

    /// Reads an element that defines something.
    fn define(&mut self, parent: Element, mut tag: Tag<'_>) -> Result<Element> {
        self.definitions = self.definitions.saturating_add(1);
        if self.definitions > MAX_DEFINITIONS {
            return Err(invalid(tag.offset, "too many definitions"));
        }
        match parent {
            Element::StringTable { preferred } => {
                if tag.name == "string" {
                    let (id, text) = (tag.required("id")?, tag.required("value")?);
                    let twice = format!("string {id} is defined twice");
                    if self.manifest.strings.add(id, preferred, &text) && self.mistakes.is_some() {
                        return Err(invalid(tag.offset, twice));
                    }
                }
                Ok(Element::Ignored)
            }
            Element::Template | Element::Struct => self.define_field(&mut tag),
            Element::Maps | Element::Map | Element::Templates | Element::Events | Element::Filters => {
                self.define_content(parent, &mut tag)
            }
            _ => self.define_name(parent, &mut tag),
        }
    }

    /// Reads a name for a number of the descriptor.
    fn define_name(&mut self, parent: Element, tag: &mut Tag<'_>) -> Result<Element> {
        const BYTE: u64 = u8::MAX as u64;
        const WORD: u64 = u16::MAX as u64;
        let provider = self.provider_of(tag)?;
        match (parent, tag.name) {
            (Element::Levels, "level") => provider.levels.push(tag.definition("value", BYTE)?),
            (Element::Opcodes, "opcode") => provider.opcodes.push(tag.definition("value", BYTE)?),
            (Element::Keywords, "keyword") => provider.keywords.push(tag.definition("mask", u64::MAX)?),
            (Element::Channels, "channel" | "importChannel") => provider.channels.push(tag.channel()?),
            (Element::Tasks, "task") => {
                let definition = tag.definition("value", WORD)?;
                let class = tag.text("eventGUID");
                provider.tasks.push(raw::Task { definition, class, opcodes: Vec::new() });
                return Ok(Element::Task);
            }
            (Element::TaskOpcodes, "opcode") => {
                let opcode = tag.definition("value", BYTE)?;
                if let Some(task) = provider.tasks.last_mut() {
                    task.opcodes.push(opcode);
                }
            }
            _ => {}
        }
        Ok(Element::Ignored)
    }

    /// Reads a map or one of its entries, a template, an event or a filter.
    fn define_content(&mut self, parent: Element, tag: &mut Tag<'_>) -> Result<Element> {
        let provider = self.provider_of(tag)?;
        match (parent, tag.name) {
            (Element::Maps, "valueMap" | "bitMap") => {
                provider.maps.push(tag.map()?);
                return Ok(Element::Map);
            }
            (Element::Map, "map") => {
                let entry = tag.map_entry()?;
                if let Some(map) = provider.maps.last_mut() {
                    map.entries.push(entry);
                }
            }
            (Element::Templates, "template") => {
                provider.templates.push(Template {
                    offset: tag.offset,
                    id: tag.required("tid")?,
                    fields: Vec::new(),
                });
                return Ok(Element::Template);
            }
            (Element::Events, "event") => provider.events.push(tag.event()?),
            (Element::Filters, "filter") => provider.filters.push(tag.filter()?),
            _ => {}
        }
        Ok(Element::Ignored)
    }

    /// Reads a field, or the start of a structure.
    fn define_field(&mut self, tag: &mut Tag<'_>) -> Result<Element> {
        match tag.name {
            "data" => {
                let field = tag.data()?;
                self.add_field(field, tag.offset)?;
                Ok(Element::Ignored)
            }
            "struct" => {
                self.structs.push(tag.field(Shape::Struct(Vec::new()))?);
                Ok(Element::Struct)
            }
            _ => Ok(Element::Ignored),
        }
    }

    fn provider(&mut self, mut tag: Tag<'_>) -> Result<Element> {
        if self.manifest.providers.len() >= MAX_PROVIDERS {
            return Err(invalid(tag.offset, "too many providers"));
        }
        let guid = tag.required("guid")?;
        let id = guid.parse().map_err(|_| invalid(tag.offset, format!("{guid} is not a GUID")))?;
        let (offset, name, symbol) = (tag.offset, tag.text("name"), tag.text("symbol"));
        self.manifest.providers.push(Provider { offset, id, name, symbol, ..Provider::default() });
        Ok(Element::Provider)
    }

    /// Returns the open provider.
    fn provider_of(&mut self, tag: &Tag<'_>) -> Result<&mut Provider> {
        self.manifest.providers.last_mut().ok_or_else(|| invalid(tag.offset, "definition outside a provider"))
    }

    /// Adds a field to the innermost open structure, or to the template.
    fn add_field(&mut self, field: Field, offset: u64) -> Result<()> {
        let template = self.manifest.providers.last_mut().and_then(|p| p.templates.last_mut());
        let fields = match (self.structs.last_mut(), template) {
            (Some(Field { shape: Shape::Struct(members), .. }), _) => members,
            (None, Some(template)) => &mut template.fields,
            _ => return Err(invalid(offset, "field outside a template")),
        };
        fields.push(field);
        Ok(())
    }
}
