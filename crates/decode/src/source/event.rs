//! The parts of an event that a schema lookup needs, from a record of a trace or from a consumer's
//! event.

use traceweir_format::Guid;
use traceweir_format::header::Record;
use traceweir_format::spec::event::{EVENT_HEADER_FLAG_STRING_ONLY, EventDescriptor, ExtType};
use traceweir_format::text::until_nul16;
use traceweir_format::wire::chunk;

/// The kind of provider that wrote an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LookupKind {
    /// A provider with a manifest, or with metadata in the event.
    #[default]
    Described,
    /// A classic provider: the provider GUID is the class, the opcode is the type.
    Classic,
    /// A WPP message: the provider GUID is the message GUID, the id is the message number.
    Message,
}

/// The parts of an event that a schema lookup needs.
#[derive(Clone, Copy, Debug, Default)]
pub struct LookupEvent<'p> {
    /// The kind of provider that wrote the event.
    pub kind: LookupKind,
    /// The provider, class or message GUID.
    pub provider: Guid,
    /// Id, version and the other attributes.
    pub descriptor: EventDescriptor,
    /// Whether the header says that the payload is one text.
    pub string_only: bool,
    /// Content of the provider traits item.
    pub traits: Option<&'p [u8]>,
    /// Content of the TraceLogging metadata item.
    pub metadata: Option<&'p [u8]>,
    /// The provider GUID that sessions enable, if the event carries another one.
    pub control: Option<Guid>,
    /// Payload, which may begin with metadata.
    pub payload: &'p [u8],
}

impl<'p> LookupEvent<'p> {
    /// Splits the record of a described event. Also returns whether all its extended data
    /// items describe its schema.
    pub(super) fn from_record(record: &Record<'p>) -> (Self, bool) {
        let mut event = Self {
            kind: LookupKind::Described,
            provider: record.provider(),
            descriptor: record.descriptor(),
            string_only: record.flags() & EVENT_HEADER_FLAG_STRING_ONLY != 0,
            payload: record.payload(),
            ..Self::default()
        };
        let mut has_only_schema_items = true;
        for item in record.items() {
            has_only_schema_items &= event.take_item(item.kind, item.data);
        }
        (event, has_only_schema_items)
    }

    /// Stores what an extended data item says about the schema. Returns whether the item is traits
    /// or metadata.
    pub fn take_item(&mut self, kind: ExtType, data: &'p [u8]) -> bool {
        match kind {
            ExtType::PROV_TRAITS => self.traits = Some(data),
            ExtType::EVENT_SCHEMA_TL => self.metadata = Some(data),
            ExtType::CONTROL_GUID => {
                self.control = chunk(data, 0).map(Guid::from_bytes);
                return false;
            }
            _ => return false,
        }
        true
    }

    /// Returns whether EventWriteString wrote the event: the header says so, or all identifying
    /// numbers of the descriptor are 0 and the payload is exactly one string.
    pub(super) fn is_string(&self) -> bool {
        let (d, payload) = (&self.descriptor, self.payload);
        let has_no_identity = (d.id, d.version, d.channel, d.opcode, d.task) == (0, 0, 0, 0, 0);
        let is_text = || payload.len() >= 4 && until_nul16(payload).len().saturating_add(2) == payload.len();
        self.string_only || (has_no_identity && is_text())
    }
}
