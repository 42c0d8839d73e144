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

use super::layout::{Layout, push_declarations};
use super::tsdl::{NameSet, push_string_literal};

/// The largest number of classes and of providers.
const MAX_CLASSES: u32 = 1 << 16;
/// The limit of the text of all classes.
const MAX_DECLARATION_BYTES: usize = 32 << 20;
/// The largest number of entries of a cache, which is emptied when it is full.
const MAX_CACHED: usize = 1 << 16;
/// The largest number of fields of all cached layouts.
const MAX_CACHED_FIELDS: usize = 1 << 20;

/// What decides the class of an event.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum ClassKey {
    Typed { schema: SchemaId, provider: Guid, level: u8, present: usize, has_extra: bool },
    Undecoded { provider: Guid, is_classic: bool, id: u16, opcode: u8, version: u8, level: u8 },
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
        let key = ClassKey::Undecoded { provider, is_classic, id, opcode, version, level };
        Self { key, level: descriptor.level, name: name_event(event) }
    }
}

/// The classes so far.
pub(super) struct ClassTable {
    layouts: HashMap<SchemaId, Arc<Layout>>,
    cached_fields: usize,
    classes: HashMap<ClassKey, u32>,
    /// The classes by the hash of their text. Schemas that are dropped and read again have other
    /// ids, but the same text.
    classes_by_text: HashMap<u128, u32>,
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
            hashers: [RandomState::new(), RandomState::new()],
            providers: HashMap::new(),
            provider_names: Vec::new(),
            declarations: String::new(),
            is_full: false,
        };
        table.declare(
            Self::SHARED,
            &declare_event(
                "other",
                0,
                "\t\tstring _name;\n\t\tu32 __payload_length;\n\t\tx8 _payload[__payload_length];\n",
            ),
        );
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

    /// Returns the class of an event with `present` top-level fields and possibly bytes after them;
    /// `None` if there is no room for its class.
    pub(super) fn find_typed(
        &mut self,
        event: &DescribedEvent<'_>,
        prepared: &PreparedSchema,
        present: usize,
        has_extra: bool,
    ) -> Option<u32> {
        let level = event.record.descriptor().level;
        let provider = event.record.provider();
        let key = ClassKey::Typed { schema: prepared.id(), provider, level, present, has_extra };
        if let Some(class) = self.classes.get(&key) {
            return Some(*class).filter(|class| *class != Self::SHARED);
        }
        let layout = self.layout(prepared);
        let mut names = NameSet::default();
        let mut fields = String::new();
        push_declarations(&prepared.schema, &layout, present, &mut names, &mut fields);
        if has_extra {
            let name = names.choose("extra");
            let length = names.choose_length(&name);
            // Writing to a string cannot fail.
            let _ = write!(fields, "\t\tu32 {length};\n\t\tx8 {name}[{length}];\n");
        }
        if prepared.message.is_some() {
            let _ = writeln!(fields, "\t\tstring {};", names.choose("message"));
        }
        let class = self.add_class(key, &declare_event(&name_event(event), level, &fields));
        Some(class).filter(|class| *class != Self::SHARED)
    }

    /// Returns the class of an event without fields.
    pub(super) fn find_undecoded(&mut self, event: &UndecodedEvent) -> u32 {
        if let Some(class) = self.classes.get(&event.key) {
            return *class;
        }
        let fields = "\t\tu32 __payload_length;\n\t\tx8 _payload[__payload_length];\n";
        self.add_class(event.key.clone(), &declare_event(&event.name, event.level, fields))
    }

    /// Adds a class, or finds the one with the same text.
    fn add_class(&mut self, key: ClassKey, declaration: &str) -> u32 {
        let [high, low] = [0, 1].map(|index| {
            self.hashers.get(index).map_or(0, |hasher: &RandomState| hasher.hash_one(declaration))
        });
        let hash = u128::from(high) << 64 | u128::from(low);
        let class = match self.classes_by_text.get(&hash) {
            Some(class) => *class,
            None => {
                let number = u32::try_from(self.classes_by_text.len()).map_or(MAX_CLASSES, |n| n + 1);
                let size = self.declarations.len().saturating_add(declaration.len());
                if number >= MAX_CLASSES || size > MAX_DECLARATION_BYTES {
                    self.is_full = true;
                    Self::SHARED
                } else {
                    self.classes_by_text.insert(hash, number);
                    self.declare(number, declaration);
                    number
                }
            }
        };
        if self.classes.len() >= MAX_CACHED {
            self.classes.clear();
        }
        self.classes.insert(key, class);
        class
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

    /// Appends the GUIDs of the providers with their numbers.
    pub(super) fn push_provider_names(&self, out: &mut String) {
        let _ = write!(out, "\"other\" = {}", Self::UNLISTED_PROVIDER);
        for (number, provider) in self.provider_names.iter().enumerate() {
            let _ = write!(out, ", \"{provider}\" = {number}");
        }
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
