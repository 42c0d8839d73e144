//! The definitions of a manifest as written: names and references are still text.
//!
//! `offset` is the start of the element, for errors that show only after everything is read.

use std::collections::HashMap;
use std::sync::Arc;

use traceweir_format::Guid;
use traceweir_format::spec::types::{InType, OutType};

#[derive(Default)]
pub(super) struct RawManifest {
    pub(super) providers: Vec<RawProvider>,
    pub(super) strings: StringTables,
    /// Whether the manifest has texts of the preferred culture.
    pub(super) has_culture: bool,
}

#[derive(Default)]
pub(super) struct RawProvider {
    pub(super) offset: u64,
    pub(super) id: Guid,
    pub(super) name: Option<String>,
    pub(super) symbol: Option<String>,
    pub(super) levels: Vec<RawDefinition>,
    pub(super) opcodes: Vec<RawDefinition>,
    pub(super) keywords: Vec<RawDefinition>,
    pub(super) tasks: Vec<RawTask>,
    pub(super) channels: Vec<RawChannel>,
    pub(super) maps: Vec<RawMap>,
    pub(super) templates: Vec<RawTemplate>,
    pub(super) events: Vec<RawEvent>,
    pub(super) filters: Vec<RawFilter>,
}

/// A level, opcode, task or keyword: a name for a number.
pub(super) struct RawDefinition {
    pub(super) offset: u64,
    pub(super) name: String,
    pub(super) value: u64,
    pub(super) message: Option<String>,
    pub(super) symbol: Option<String>,
}

pub(super) struct RawTask {
    pub(super) definition: RawDefinition,
    /// The class GUID that the events of the task have as classic events.
    pub(super) class: Option<String>,
    pub(super) opcodes: Vec<RawDefinition>,
}

pub(super) struct RawChannel {
    pub(super) offset: u64,
    /// The id that events refer to. Without an id, events refer to the name.
    pub(super) id: Option<String>,
    pub(super) name: String,
    pub(super) value: Option<u8>,
    pub(super) message: Option<String>,
    pub(super) symbol: Option<String>,
    pub(super) is_imported: bool,
}

pub(super) struct RawMap {
    pub(super) offset: u64,
    pub(super) name: String,
    pub(super) is_bit_map: bool,
    pub(super) symbol: Option<String>,
    pub(super) entries: Vec<RawMapEntry>,
}

pub(super) struct RawMapEntry {
    pub(super) offset: u64,
    pub(super) value: u64,
    pub(super) message: String,
    pub(super) symbol: Option<String>,
}

pub(super) struct RawTemplate {
    pub(super) offset: u64,
    pub(super) id: String,
    pub(super) fields: Vec<RawField>,
}

pub(super) struct RawField {
    pub(super) offset: u64,
    pub(super) name: String,
    pub(super) shape: RawShape,
    pub(super) count: Option<RawSize>,
    pub(super) length: Option<RawSize>,
}

pub(super) enum RawShape {
    Value { input: InType, output: OutType, map: Option<String> },
    Struct(Vec<RawField>),
}

/// A count or length: a number, or the name of the field that holds it.
pub(super) enum RawSize {
    Number(u16),
    Field(String),
}

pub(super) struct RawEvent {
    pub(super) offset: u64,
    pub(super) id: u16,
    pub(super) version: u8,
    pub(super) level: Option<String>,
    pub(super) opcode: Option<String>,
    pub(super) task: Option<String>,
    pub(super) keywords: Option<String>,
    pub(super) channel: Option<String>,
    pub(super) template: Option<String>,
    pub(super) message: Option<String>,
    pub(super) symbol: Option<String>,
}

/// A filter that a session may pass to a provider to select events.
pub(super) struct RawFilter {
    pub(super) offset: u64,
    pub(super) id: u8,
    pub(super) version: u8,
    pub(super) template: Option<String>,
    pub(super) message: Option<String>,
}

/// The string tables of all cultures in one. A text is that of the preferred culture (en-US by
/// default) if this culture has it, else that of the first culture that has it.
///
/// The table uses the standard hasher on purpose: names come from the manifest and may be chosen to
/// collide under a simpler hasher.
#[derive(Default)]
pub(super) struct StringTables {
    /// For each id, whether the text is that of the preferred culture, and the text.
    texts: HashMap<String, (bool, Arc<str>)>,
}

impl StringTables {
    /// Adds a text of the preferred culture or of another one. Of several texts with one id, the
    /// first of the preferred culture is kept, or else the first. Returns whether the text is a
    /// second one of the preferred culture.
    pub(super) fn add(&mut self, id: String, is_preferred: bool, text: &str) -> bool {
        let had_preferred = self.texts.get(&id).map(|(is_preferred, _)| *is_preferred);
        if had_preferred.is_none_or(|had_preferred| is_preferred && !had_preferred) {
            self.texts.insert(id, (is_preferred, text.into()));
        }
        is_preferred && had_preferred == Some(true)
    }

    /// Returns whether a message attribute refers to a text that no table has.
    pub(super) fn lacks(&self, message: &str) -> bool {
        let id = message.trim().strip_prefix("$(string.").map(|id| id.strip_suffix(')').unwrap_or(id));
        id.is_some_and(|id| !self.texts.contains_key(id))
    }

    /// Returns the text of a message attribute: the text of `$(string.id)`, or the attribute itself
    /// if it is not a reference. Returns `None` for an empty text.
    pub(super) fn resolve(&self, message: &str) -> Option<Arc<str>> {
        let message = message.trim();
        let Some(reference) = message.strip_prefix("$(") else {
            return (!message.is_empty()).then(|| message.into());
        };
        let id = reference.strip_suffix(')')?.strip_prefix("string.")?;
        self.texts.get(id).map(|(_, text)| text.clone()).filter(|text| !text.is_empty())
    }
}
