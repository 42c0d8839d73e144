//! An event in parts: what a look-up needs to know of it, whether it comes from the bytes of a trace or from what a consumer was given.

use traceweir_format::Guid;
use traceweir_format::header::Record;
use traceweir_format::spec::event::{EVENT_HEADER_FLAG_STRING_ONLY, EventDescriptor, ExtType};
use traceweir_format::text::until_nul16;
use traceweir_format::wire::chunk;

/// What kind of provider wrote an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EventKind {
    /// One with a manifest, or with metadata in the event.
    #[default]
    Described,
    /// A classic one: the provider is the class, the opcode the type.
    Classic,
    /// A WPP message: the provider is the message's GUID, the id its number.
    Message,
}

/// An event in parts.
#[derive(Clone, Copy, Debug, Default)]
pub struct Event<'p> {
    /// What kind of provider wrote it.
    pub kind: EventKind,
    /// The provider, class or message GUID.
    pub provider: Guid,
    /// Id, version and the other attributes.
    pub descriptor: EventDescriptor,
    /// Whether its header says that the payload is one text.
    pub string_only: bool,
    /// Provider traits.
    pub traits: Option<&'p [u8]>,
    /// TraceLogging metadata.
    pub metadata: Option<&'p [u8]>,
    /// The provider by which the event was enabled, where it is decoded by another.
    pub control: Option<Guid>,
    /// The payload.
    pub payload: &'p [u8],
}

impl<'p> Event<'p> {
    /// The parts of a described event's record, and whether it has no items but those that describe it.
    pub(super) fn of(record: &Record<'p>) -> (Self, bool) {
        let mut event = Self {
            kind: EventKind::Described,
            provider: record.provider(),
            descriptor: record.descriptor(),
            string_only: record.flags() & EVENT_HEADER_FLAG_STRING_ONLY != 0,
            payload: record.payload(),
            ..Self::default()
        };
        let mut alone = true;
        for item in record.items() {
            alone &= event.take_item(item.kind, item.data);
        }
        (event, alone)
    }

    /// Takes what an extended item says; whether it describes the event.
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

    /// An event of EventWriteString: flagged so, or without any identity and with one whole string as its payload.
    pub(super) fn is_string(&self) -> bool {
        let (d, payload) = (&self.descriptor, self.payload);
        let anonymous = (d.id, d.version, d.channel, d.opcode, d.task) == (0, 0, 0, 0, 0);
        let is_text = || payload.len() >= 4 && until_nul16(payload).len().saturating_add(2) == payload.len();
        self.string_only || (anonymous && is_text())
    }
}
