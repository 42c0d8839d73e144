//! The schemas of one provider: the form that every manifest source produces.

use std::sync::Arc;

use traceweir_format::Guid;
use traceweir_format::spec::event::EventDescriptor;

use crate::schema::Schema;

/// A provider and all events that its manifest describes.
#[derive(Clone, Debug, Default)]
pub struct ProviderSchemas {
    /// GUID of the provider.
    pub id: Guid,
    /// Name of the provider.
    pub name: Option<Arc<str>>,
    /// Names that the provider defines for numbers, and the predefined names that it uses.
    pub value_names: ProviderNames,
    /// Events of the provider.
    pub events: Vec<EventSchema>,
    /// Filters that the provider accepts from sessions; compiled manifests are read without them.
    pub filters: Vec<FilterSchema>,
}

impl ProviderSchemas {
    /// Returns each keyword bit with its name; a keyword whose message text differs from its name
    /// comes twice.
    pub fn keywords(&self) -> impl Iterator<Item = (u64, &str)> {
        self.value_names.keywords.iter().flat_map(ValueName::value_with_names)
    }

    /// Returns the provider's own levels, in the same form as [`Self::keywords`].
    pub fn levels(&self) -> impl Iterator<Item = (u64, &str)> {
        self.value_names
            .levels
            .iter()
            .filter(|level| !level.name.starts_with("win:"))
            .flat_map(ValueName::value_with_names)
    }
}

/// The names that a provider has for the numbers of its events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProviderNames {
    /// Names of keyword bits.
    pub keywords: Vec<ValueName>,
    /// Names of levels.
    pub levels: Vec<ValueName>,
    /// Names of channels.
    pub channels: Vec<ValueName>,
    /// Names of tasks.
    pub tasks: Vec<ValueName>,
    /// Names of opcodes: the value has the opcode in the high half of 32 bits, and its task or 0 in
    /// the low half.
    pub opcodes: Vec<ValueName>,
}

/// A name for a number.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ValueName {
    /// The number that is named.
    pub value: u64,
    /// The name in the manifest, with the prefix `win:` of predefined names.
    pub name: Arc<str>,
    /// The message text that people read instead of the name.
    pub text: Option<Arc<str>>,
}

impl ValueName {
    /// Returns the number paired with its name, without prefix, and with its text if that differs.
    fn value_with_names(&self) -> impl Iterator<Item = (u64, &str)> {
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
    /// The event's names and fields.
    pub schema: Schema,
}

/// A filter that a provider accepts. A session passes the values by which the filter selects
/// events.
#[derive(Clone, Debug)]
pub struct FilterSchema {
    /// Number of the filter.
    pub id: u8,
    /// Version of the filter.
    pub version: u8,
    /// The filter's fields and message text.
    pub schema: Schema,
}
