//! What a manifest says about one provider: the form that every manifest source produces.

use std::sync::Arc;

use traceweir_format::Guid;
use traceweir_format::spec::event::EventDescriptor;

use crate::schema::Schema;

/// A provider and all events that its manifest describes.
#[derive(Clone, Debug, Default)]
pub struct ProviderSchemas {
    /// The provider's id.
    pub id: Guid,
    /// Its name.
    pub name: Option<Arc<str>>,
    /// Names for numbers: its own, and the predefined ones that it uses.
    pub named: Named,
    /// Its events.
    pub events: Vec<EventSchema>,
    /// Filters that sessions may give it; compiled manifests are read without them.
    pub filters: Vec<FilterSchema>,
}

impl ProviderSchemas {
    /// Its keywords: bits and a name for them; one that has a name for people beside its own stands twice.
    pub fn keywords(&self) -> impl Iterator<Item = (u64, &str)> {
        self.named.keywords.iter().flat_map(Name::known_as)
    }

    /// Levels of its own, in the same way.
    pub fn levels(&self) -> impl Iterator<Item = (u64, &str)> {
        self.named.levels.iter().filter(|level| !level.name.starts_with("win:")).flat_map(Name::known_as)
    }
}

/// The names that a provider has for numbers of its events, by value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Named {
    /// Bits.
    pub keywords: Vec<Name>,
    /// Levels.
    pub levels: Vec<Name>,
    /// Channels.
    pub channels: Vec<Name>,
    /// Tasks.
    pub tasks: Vec<Name>,
    /// Opcodes: the number in the high half of 32 bits, its task or 0 in the low one.
    pub opcodes: Vec<Name>,
}

/// A name for a number.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name {
    /// The number.
    pub value: u64,
    /// The name as the manifest has it, with its prefix.
    pub name: Arc<str>,
    /// What people read instead.
    pub text: Option<Arc<str>>,
}

impl Name {
    /// The number with each of its names, without prefix.
    fn known_as(&self) -> impl Iterator<Item = (u64, &str)> {
        let name = self.name.strip_prefix("win:").unwrap_or(&self.name);
        let text = self.text.as_deref().filter(|text| *text != name && !text.trim().is_empty());
        [Some(name), text].into_iter().flatten().map(|name| (self.value, name))
    }
}

/// One event of a manifest.
#[derive(Clone, Debug)]
pub struct EventSchema {
    /// Id, version, level, opcode, task, keyword and channel as the manifest gives them.
    pub descriptor: EventDescriptor,
    /// Its names and fields.
    pub schema: Schema,
}

/// A filter that a provider takes: what a session gives it to choose events by.
#[derive(Clone, Debug)]
pub struct FilterSchema {
    /// Its number.
    pub id: u8,
    /// Which form of it.
    pub version: u8,
    /// Its fields, and what people read.
    pub schema: Schema,
}
