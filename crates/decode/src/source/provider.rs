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
    /// Its keywords: bits and a name for them; one that has a name for people beside its own stands twice.
    pub keywords: Vec<(u64, Arc<str>)>,
    /// Its levels, in the same way; a compiled manifest also has those of all providers that it uses.
    pub levels: Vec<(u64, Arc<str>)>,
    /// Its events.
    pub events: Vec<EventSchema>,
}

/// One event of a manifest.
#[derive(Clone, Debug)]
pub struct EventSchema {
    /// Id, version, level, opcode, task, keyword and channel as the manifest gives them.
    pub descriptor: EventDescriptor,
    /// Its names and fields.
    pub schema: Schema,
}
