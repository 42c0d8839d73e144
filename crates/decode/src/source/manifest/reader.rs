//! From XML to [`raw`] definitions: one pass, a stack of places, nothing resolved.
//!
//! Each open element has a [`Place`], which decides what its children may be; whatever may not be there opens
//! [`Place::Ignored`], as does everything below it.

use quick_xml::events::Event;
use quick_xml::name::{Namespace, NamespaceError, NamespaceResolver, QName, ResolveResult};
use quick_xml::reader::NsReader;

use super::encoding::as_offset;
use super::invalid;
use super::raw::{self, Field, Manifest, Provider, Shape, Template};
use super::tag::Tag;
use crate::{Error, Result};

/// The namespace of manifests, for those that use it with a prefix.
const EVENTS: &str = "http://schemas.microsoft.com/win/2004/08/events";
/// The deepest nesting of elements. Manifests have 10 levels, and those of `UserData`.
const MAX_DEPTH: usize = 64;
/// The most namespace declarations in force at a place.
const MAX_NAMESPACES: usize = 64;
/// The most definitions of all kinds: eight for each event id there can be.
const MAX_DEFINITIONS: usize = 1 << 19;

/// The most providers of a manifest; each brings tables of predefined names with it while it is resolved.
const MAX_PROVIDERS: usize = 4096;

/// The most mistakes that are listed; what is wrong so often is wrong as a whole.
pub(super) const MAX_MISTAKES: usize = 100;

/// What an open element is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
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

/// The same for a compiler: texts of `culture` are preferred, and definitions that are wrong are left out and
/// listed, as far as the XML itself can be followed.
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
                collector.open(Place::Ignored, offset)?
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
            // Text, comments and instructions say nothing that a decoder needs.
            _ => {}
        }
    }
    collector.finish(as_offset(text.len()))
}

/// Whether manifests have such an element in a place; of the places outside of providers nothing is said.
fn may_be_in(parent: Place, name: &str) -> bool {
    match parent {
        Place::Provider => matches!(
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
        Place::Levels => name == "level",
        Place::Tasks => name == "task",
        Place::Task => matches!(name, "opcodes" | "events"),
        Place::TaskOpcodes | Place::Opcodes => name == "opcode",
        Place::Keywords => name == "keyword",
        Place::Channels => matches!(name, "channel" | "importChannel"),
        Place::Maps => matches!(name, "valueMap" | "bitMap" | "patternMaps"),
        Place::Map => name == "map",
        Place::Templates => name == "template",
        Place::Template => matches!(name, "data" | "struct" | "UserData" | "binary"),
        Place::Struct => matches!(name, "data" | "struct"),
        Place::Events => name == "event",
        Place::Filters => name == "filter",
        Place::StringTable { .. } => name == "string",
        Place::Outside | Place::Localization | Place::Resources { .. } | Place::Ignored => true,
    }
}

/// What the XML reader complains of, without its advice to programmers.
fn reason(error: &quick_xml::Error) -> String {
    match error {
        quick_xml::Error::Namespace(NamespaceError::TooManyBindings(_)) => {
            "too many namespace declarations".to_owned()
        }
        other => other.to_string(),
    }
}

/// Whether an element has the prefix of another namespace than that of manifests.
fn is_foreign(resolver: &NamespaceResolver, name: QName<'_>) -> bool {
    name.prefix().is_some() && resolver.resolve_element(name).0 != ResolveResult::Bound(Namespace(EVENTS))
}

#[derive(Default)]
struct Collector<'m> {
    manifest: Manifest,
    /// The culture whose texts are preferred, where it is not the usual one.
    culture: Option<String>,
    /// Where mistakes go that do not end the reading.
    mistakes: Option<&'m mut Vec<Error>>,
    places: Vec<Place>,
    /// Structures whose end has not been seen, the outermost first.
    structs: Vec<Field>,
    definitions: usize,
}

impl Collector<'_> {
    fn start(&mut self, start: &quick_xml::events::BytesStart<'_>, offset: u64) -> Result<()> {
        let place = match self.places.last().copied().unwrap_or(Place::Outside) {
            Place::Ignored => Place::Ignored,
            parent => match Tag::new(start, offset).and_then(|tag| self.judge(parent, tag)) {
                Ok(place) => place,
                Err(error) => self.forgive(error)?,
            },
        };
        self.open(place, offset)
    }

    /// Takes in an element. A decoder passes over what it does not know; for a compiler that is a slip of the pen, which would cost a field or an event.
    fn judge(&mut self, parent: Place, tag: Tag<'_>) -> Result<Place> {
        if self.mistakes.is_some() {
            if !may_be_in(parent, tag.name) {
                return Err(invalid(tag.offset, format!("element {} is not known in this place", tag.name)));
            }
            if let Some(attribute) = tag.unknown_attribute() {
                let why = format!("element {} has no attribute {attribute} in manifests", tag.name);
                return Err(invalid(tag.offset, why));
            }
        }
        self.enter(parent, tag)
    }

    /// Notes a mistake where there is a list for them, and goes on without the element.
    fn forgive(&mut self, error: Error) -> Result<Place> {
        match &mut self.mistakes {
            Some(mistakes) if mistakes.len() < MAX_MISTAKES && self.definitions <= MAX_DEFINITIONS => {
                mistakes.push(error);
                Ok(Place::Ignored)
            }
            _ => Err(error),
        }
    }

    fn open(&mut self, place: Place, offset: u64) -> Result<()> {
        if self.places.len() >= MAX_DEPTH {
            return Err(invalid(offset, "elements are nested too deeply"));
        }
        self.places.push(place);
        Ok(())
    }

    fn end(&mut self, offset: u64) -> Result<()> {
        if self.places.pop() == Some(Place::Struct)
            && let Some(field) = self.structs.pop()
        {
            self.add_field(field, offset)?;
        }
        Ok(())
    }

    fn finish(self, end: u64) -> Result<Manifest> {
        if !self.places.is_empty() {
            return Err(invalid(end, "the text ends inside an element"));
        }
        if self.manifest.providers.is_empty() {
            return Err(invalid(end, "no provider element: this is not an instrumentation manifest"));
        }
        Ok(self.manifest)
    }

    /// Takes in an element and says what it is.
    fn enter(&mut self, parent: Place, tag: Tag<'_>) -> Result<Place> {
        Ok(match (parent, tag.name) {
            (Place::Outside, "instrumentationManifest" | "assembly" | "instrumentation" | "events") => {
                Place::Outside
            }
            (Place::Outside, "provider") => self.provider(tag)?,
            (Place::Outside, "localization") => Place::Localization,
            (Place::Provider, section) => match section {
                "levels" => Place::Levels,
                "tasks" => Place::Tasks,
                "opcodes" => Place::Opcodes,
                "keywords" => Place::Keywords,
                "channels" => Place::Channels,
                "maps" => Place::Maps,
                "templates" => Place::Templates,
                "events" => Place::Events,
                "filters" => Place::Filters,
                _ => Place::Ignored,
            },
            (Place::Task, "opcodes") => Place::TaskOpcodes,
            (Place::Localization, "resources") => {
                let preferred = tag.is("culture", self.culture.as_deref().unwrap_or("en-US"));
                self.manifest.has_culture |= preferred;
                Place::Resources { preferred }
            }
            (Place::Resources { preferred }, "stringTable") => Place::StringTable { preferred },
            (Place::Outside | Place::Task | Place::Localization | Place::Resources { .. }, _) => {
                Place::Ignored
            }
            _ => return self.define(parent, tag),
        })
    }

    /// Takes in an element that defines something.
    fn define(&mut self, parent: Place, mut tag: Tag<'_>) -> Result<Place> {
        self.definitions = self.definitions.saturating_add(1);
        if self.definitions > MAX_DEFINITIONS {
            return Err(invalid(tag.offset, "too many definitions"));
        }
        match parent {
            Place::StringTable { preferred } => {
                if tag.name == "string" {
                    let (id, text) = (tag.required("id")?, tag.required("value")?);
                    let twice = format!("string {id} is defined twice");
                    if self.manifest.strings.add(id, preferred, &text) && self.mistakes.is_some() {
                        return Err(invalid(tag.offset, twice));
                    }
                }
                Ok(Place::Ignored)
            }
            Place::Template | Place::Struct => self.define_field(&mut tag),
            Place::Maps | Place::Map | Place::Templates | Place::Events | Place::Filters => {
                self.define_content(parent, &mut tag)
            }
            _ => self.define_name(parent, &mut tag),
        }
    }

    /// A name for a number of the descriptor.
    fn define_name(&mut self, parent: Place, tag: &mut Tag<'_>) -> Result<Place> {
        const BYTE: u64 = u8::MAX as u64;
        const WORD: u64 = u16::MAX as u64;
        let provider = self.provider_of(tag)?;
        match (parent, tag.name) {
            (Place::Levels, "level") => provider.levels.push(tag.definition("value", BYTE)?),
            (Place::Opcodes, "opcode") => provider.opcodes.push(tag.definition("value", BYTE)?),
            (Place::Keywords, "keyword") => provider.keywords.push(tag.definition("mask", u64::MAX)?),
            (Place::Channels, "channel" | "importChannel") => provider.channels.push(tag.channel()?),
            (Place::Tasks, "task") => {
                let definition = tag.definition("value", WORD)?;
                let class = tag.text("eventGUID");
                provider.tasks.push(raw::Task { definition, class, opcodes: Vec::new() });
                return Ok(Place::Task);
            }
            (Place::TaskOpcodes, "opcode") => {
                let opcode = tag.definition("value", BYTE)?;
                if let Some(task) = provider.tasks.last_mut() {
                    task.opcodes.push(opcode);
                }
            }
            _ => {}
        }
        Ok(Place::Ignored)
    }

    /// A map or one of its entries, a template, an event, a filter.
    fn define_content(&mut self, parent: Place, tag: &mut Tag<'_>) -> Result<Place> {
        let provider = self.provider_of(tag)?;
        match (parent, tag.name) {
            (Place::Maps, "valueMap" | "bitMap") => {
                provider.maps.push(tag.map()?);
                return Ok(Place::Map);
            }
            (Place::Map, "map") => {
                let entry = tag.map_entry()?;
                if let Some(map) = provider.maps.last_mut() {
                    map.entries.push(entry);
                }
            }
            (Place::Templates, "template") => {
                provider.templates.push(Template {
                    offset: tag.offset,
                    id: tag.required("tid")?,
                    fields: Vec::new(),
                });
                return Ok(Place::Template);
            }
            (Place::Events, "event") => provider.events.push(tag.event()?),
            (Place::Filters, "filter") => provider.filters.push(tag.filter()?),
            _ => {}
        }
        Ok(Place::Ignored)
    }

    /// A field, or the start of a structure.
    fn define_field(&mut self, tag: &mut Tag<'_>) -> Result<Place> {
        match tag.name {
            "data" => {
                let field = tag.data()?;
                self.add_field(field, tag.offset)?;
                Ok(Place::Ignored)
            }
            "struct" => {
                self.structs.push(tag.field(Shape::Struct(Vec::new()))?);
                Ok(Place::Struct)
            }
            _ => Ok(Place::Ignored),
        }
    }

    fn provider(&mut self, mut tag: Tag<'_>) -> Result<Place> {
        if self.manifest.providers.len() >= MAX_PROVIDERS {
            return Err(invalid(tag.offset, "too many providers"));
        }
        let guid = tag.required("guid")?;
        let id = guid.parse().map_err(|_| invalid(tag.offset, format!("{guid} is not a GUID")))?;
        let (offset, name, symbol) = (tag.offset, tag.text("name"), tag.text("symbol"));
        self.manifest.providers.push(Provider { offset, id, name, symbol, ..Provider::default() });
        Ok(Place::Provider)
    }

    /// The provider that is open.
    fn provider_of(&mut self, tag: &Tag<'_>) -> Result<&mut Provider> {
        self.manifest.providers.last_mut().ok_or_else(|| invalid(tag.offset, "definition outside a provider"))
    }

    /// Adds a field to the innermost structure that is open, or to the template.
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
