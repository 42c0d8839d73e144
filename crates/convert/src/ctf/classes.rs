//! The event classes: what the metadata says about each event type.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use traceweir_analysis::event::DescribedEvent;
use traceweir_decode::source::PreparedSchema;
use traceweir_decode::source::prepared::SchemaId;
use traceweir_format::Guid;
use traceweir_format::header::Family;

use super::layout::{Layout, MAX_DECLARATIONS_BYTES, push_declarations};
use super::tsdl::{NameSet, push_string_literal};

/// The largest number of classes and of providers.
const MAX_CLASSES: u32 = 1 << 16;
/// The limit of the text of all classes.
const MAX_DECLARATION_BYTES: usize = 32 << 20;
/// The largest number of entries of a cache, which is emptied when it is full.
const MAX_CACHED: usize = 1 << 16;
/// The largest number of fields of all cached layouts.
const MAX_CACHED_FIELDS: usize = 1 << 20;

/// The largest number of classes of one event type.
const MAX_VARIANTS: u16 = 32;

/// What the payload of an event has, besides its schema.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct PayloadShape {
    /// The number of top-level fields.
    pub(super) present: usize,
    /// Whether bytes follow the fields.
    pub(super) has_extra: bool,
    /// The texts that are empty, one bit each.
    pub(super) empty_texts: u64,
}

/// The fields of an event without fields of its own.
const UNDECODED_FIELDS: &str =
    "\t\tstring _undecoded;\n\t\tu32 __payload_length;\n\t\tx8 _payload[__payload_length];\n";

/// What decides the class of an event.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum ClassKey {
    Typed {
        schema: SchemaId,
        provider: Guid,
        level: u8,
        shape: PayloadShape,
    },
    Undecoded {
        schema: Option<SchemaId>,
        provider: Guid,
        is_classic: bool,
        id: u16,
        opcode: u8,
        version: u8,
        level: u8,
    },
}

/// An event that has no class with fields.
pub(super) struct UndecodedEvent {
    key: ClassKey,
    level: u8,
    /// Name of provider and event.
    pub(super) name: String,
}

impl UndecodedEvent {
    pub(super) fn new(event: &DescribedEvent<'_>) -> Self {
        let (record, descriptor) = (&event.record, event.record.descriptor());
        let is_classic = !matches!(record.family(), Family::Event | Family::Message);
        let (id, opcode) = if is_classic { (0, descriptor.opcode) } else { (descriptor.id, 0) };
        let (provider, version, level) = (record.provider(), descriptor.version, descriptor.level);
        let schema = event.schema_match.as_ref().ok().map(|schema_match| schema_match.prepared.id());
        let key = ClassKey::Undecoded { schema, provider, is_classic, id, opcode, version, level };
        Self { key, level: descriptor.level, name: name_event(event) }
    }
}

/// The classes so far.
pub(super) struct ClassTable {
    layouts: HashMap<SchemaId, Arc<Layout>>,
    cached_fields: usize,
    classes: HashMap<ClassKey, u32>,
    /// The classes by the hash of their text and their empty texts. Schemas that are dropped and read
    /// again have other ids, but the same text.
    classes_by_text: HashMap<(u128, u64), u32>,
    /// The number of classes with a text.
    variants: HashMap<u128, u16>,
    hashers: [RandomState; 2],
    providers: HashMap<Guid, u32>,
    provider_names: Vec<Guid>,
    declarations: String,
    is_full: bool,
}

impl Default for ClassTable {
    fn default() -> Self {
        let mut table = Self {
            layouts: HashMap::new(),
            cached_fields: 0,
            classes: HashMap::new(),
            classes_by_text: HashMap::new(),
            variants: HashMap::new(),
            hashers: [RandomState::new(), RandomState::new()],
            providers: HashMap::new(),
            provider_names: Vec::new(),
            declarations: String::new(),
            is_full: false,
        };
        let fields = format!("\t\tstring _name;\n{UNDECODED_FIELDS}");
        table.declare(Self::SHARED, &declare_event("other", 0, &fields));
        table
    }
}

impl ClassTable {
    /// The class of events whose type has no class of its own.
    pub(super) const SHARED: u32 = 0;
    /// The number of all providers beyond the limit.
    pub(super) const UNLISTED_PROVIDER: u32 = u32::MAX;

    /// Returns the layout of a schema.
    pub(super) fn layout(&mut self, prepared: &PreparedSchema) -> Arc<Layout> {
        if let Some(layout) = self.layouts.get(&prepared.id()) {
            return Arc::clone(layout);
        }
        let layout = Arc::new(Layout::new(&prepared.schema));
        self.cached_fields = self.cached_fields.saturating_add(layout.types.len()).saturating_add(1);
        if self.layouts.len() >= MAX_CACHED || self.cached_fields > MAX_CACHED_FIELDS {
            self.layouts.clear();
            self.cached_fields = layout.types.len();
        }
        self.layouts.insert(prepared.id(), Arc::clone(&layout));
        layout
    }

    /// Returns the class of an event whose payload has this shape; `None` if there is no room for its
    /// class.
    ///
    /// Events with different empty texts have classes of their own: babeltrace2 2.0.4 shows an empty
    /// text as the text of an earlier event of its class, if that was not empty.
    pub(super) fn find_typed(
        &mut self,
        event: &DescribedEvent<'_>,
        prepared: &PreparedSchema,
        shape: PayloadShape,
    ) -> Option<u32> {
        let level = event.record.descriptor().level;
        let provider = event.record.provider();
        let key = ClassKey::Typed { schema: prepared.id(), provider, level, shape };
        if let Some(class) = self.classes.get(&key) {
            return Some(*class).filter(|class| *class != Self::SHARED);
        }
        let layout = self.layout(prepared);
        let mut names = NameSet::default();
        let mut fields = String::new();
        push_declarations(&prepared.schema, &layout, shape.present, &mut names, &mut fields);
        if fields.len() > MAX_DECLARATIONS_BYTES {
            self.is_full = true;
            self.remember(key, Self::SHARED);
            return None;
        }
        if shape.has_extra {
            let name = names.choose("extra");
            let length = names.choose_length(&name);
            // Writing to a string cannot fail.
            let _ = write!(fields, "\t\tu32 {length};\n\t\tx8 {name}[{length}];\n");
        }
        if prepared.message.is_some() {
            let _ = writeln!(fields, "\t\tstring {};", names.choose("message"));
        }
        let declaration = declare_event(&name_event(event), level, &fields);
        let class = self.add_class(key, &declaration, shape.empty_texts);
        Some(class).filter(|class| *class != Self::SHARED)
    }

    /// Returns the class of an event without fields.
    pub(super) fn find_undecoded(&mut self, event: &UndecodedEvent) -> u32 {
        if let Some(class) = self.classes.get(&event.key) {
            return *class;
        }
        self.add_class(event.key.clone(), &declare_event(&event.name, event.level, UNDECODED_FIELDS), 0)
    }

    /// Adds a class, or finds the one with the same text and the same empty texts.
    fn add_class(&mut self, key: ClassKey, declaration: &str, empty_texts: u64) -> u32 {
        let [high, low] = self.hashers.each_ref().map(|hasher| hasher.hash_one(declaration));
        let hash = u128::from(high) << 64 | u128::from(low);
        let is_known = self.classes_by_text.contains_key(&(hash, empty_texts));
        let has_many = || self.variants.get(&hash).is_some_and(|count| *count >= MAX_VARIANTS);
        let empty_texts = if !is_known && has_many() { 0 } else { empty_texts };
        let class = match self.classes_by_text.get(&(hash, empty_texts)) {
            Some(class) => *class,
            None => self.declare_new(declaration, (hash, empty_texts)),
        };
        self.remember(key, class);
        class
    }

    fn remember(&mut self, key: ClassKey, class: u32) {
        if self.classes.len() >= MAX_CACHED {
            self.classes.clear();
        }
        self.classes.insert(key, class);
    }

    /// Declares a class, if there is room.
    fn declare_new(&mut self, declaration: &str, text_key: (u128, u64)) -> u32 {
        let number = u32::try_from(self.classes_by_text.len()).unwrap_or(u32::MAX).saturating_add(1);
        let size = self.declarations.len().saturating_add(declaration.len());
        if number >= MAX_CLASSES || size > MAX_DECLARATION_BYTES {
            self.is_full = true;
            return Self::SHARED;
        }
        self.classes_by_text.insert(text_key, number);
        let count = self.variants.entry(text_key.0).or_default();
        *count = count.saturating_add(1);
        self.declare(number, declaration);
        number
    }

    fn declare(&mut self, number: u32, declaration: &str) {
        let _ = write!(self.declarations, "\nevent {{\n\tid = {number};\n{declaration}");
    }

    /// Returns the number of a provider in the metadata.
    pub(super) fn provider_number(&mut self, provider: Guid) -> u32 {
        if let Some(number) = self.providers.get(&provider) {
            return *number;
        }
        let number = u32::try_from(self.provider_names.len()).unwrap_or(u32::MAX);
        if number >= MAX_CLASSES {
            return Self::UNLISTED_PROVIDER;
        }
        self.providers.insert(provider, number);
        self.provider_names.push(provider);
        number
    }

    /// Returns the GUIDs of the providers with their numbers, as the values of an enumeration.
    pub(super) fn list_providers(&self) -> String {
        let mut out = String::new();
        let _ = write!(out, "\"other\" = {}", Self::UNLISTED_PROVIDER);
        for (number, provider) in self.provider_names.iter().enumerate() {
            let _ = write!(out, ", \"{provider}\" = {number}");
        }
        out
    }

    /// Returns the text of all classes.
    pub(super) fn declarations(&self) -> &str {
        &self.declarations
    }

    /// Returns whether event types share class 0.
    pub(super) const fn is_full(&self) -> bool {
        self.is_full
    }
}

/// Returns the text of a class after its number.
fn declare_event(name: &str, level: u8, fields: &str) -> String {
    let mut text = String::from("\tname = ");
    push_string_literal(name, &mut text);
    text.push_str(";\n\tstream_id = 0;\n");
    if let Some(level) = convert_level(level) {
        let _ = writeln!(text, "\tloglevel = {level};");
    }
    let _ = write!(text, "\tfields := struct {{\n{fields}\t}};\n}};\n");
    text
}

/// Returns the level of syslog that readers of CTF expect, from critical (2) to debug (14).
const fn convert_level(level: u8) -> Option<u8> {
    match level {
        0 => None,
        1 => Some(2),
        2 => Some(3),
        3 => Some(4),
        4 => Some(6),
        _ => Some(14),
    }
}

/// Returns the name of provider and event, with numbers where a name is unknown.
fn name_event(event: &DescribedEvent<'_>) -> String {
    let provider = event.provider.map_or_else(|| event.record.provider().to_string(), str::to_owned);
    let descriptor = event.record.descriptor();
    let name = event.identity().event_name.map(str::to_owned);
    let name = name.unwrap_or_else(|| match event.record.family() {
        Family::Event | Family::Message => descriptor.id.to_string(),
        _ => format!("type {}", descriptor.opcode),
    });
    format!("{provider}:{name}")
}
