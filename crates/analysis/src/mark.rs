//! Marks: events with a text for people, which `weir mark` writes to running sessions and
//! `weir relog --mark` to files.
//!
//! ```text
//!   provider  Traceweir.Marks (TraceLogging: the GUID is the hash of the name)
//!   event     Mark, level Informational, without keywords
//!   field     text: UTF-8 up to a NUL
//! ```

use traceweir_format::header::Record;
use traceweir_format::header::extended::Item;
use traceweir_format::spec::event::{CHANNEL_TRACELOGGING, EventDescriptor, ExtType};
use traceweir_format::spec::types::InType;
use traceweir_format::tracelogging::{EventMetadata, MetadataBuilder, TraitsBuilder};
use traceweir_format::wire::{Cursor, Put};
use traceweir_format::{Guid, Result};

/// The provider of marks.
pub const PROVIDER: &str = "Traceweir.Marks";
/// The longest text of a mark, in bytes.
pub const MAX_TEXT_BYTES: usize = 512;

const EVENT: &str = "Mark";
const LEVEL_INFO: u8 = 4;
/// Out type of the text: shown as UTF-8.
const OUT_TYPE_UTF8: u8 = 35;

/// Level, channel and numbers of a mark.
pub const DESCRIPTOR: EventDescriptor = EventDescriptor {
    id: 0,
    version: 0,
    channel: CHANNEL_TRACELOGGING,
    level: LEVEL_INFO,
    opcode: 0,
    task: 0,
    keyword: 0,
};

/// The descriptions that a mark carries.
#[derive(Clone, Debug)]
pub struct MarkSchema {
    /// GUID of the provider.
    pub provider: Guid,
    /// Traits of the provider.
    pub traits: Vec<u8>,
    /// Metadata of the event.
    pub metadata: Vec<u8>,
}

impl MarkSchema {
    /// Builds the descriptions.
    pub fn new() -> Result<Self> {
        let mut metadata = MetadataBuilder::new(EVENT, 0);
        metadata.add_field("text", InType::ANSISTRING.0 as u8, OUT_TYPE_UTF8, 0);
        Ok(Self {
            provider: Guid::from_provider_name(PROVIDER),
            traits: TraitsBuilder::new(PROVIDER).finish()?.to_vec(),
            metadata: metadata.finish()?.to_vec(),
        })
    }

    /// Returns the extended data items of a mark in a file.
    #[must_use]
    pub fn items(&self) -> [Item<'_>; 2] {
        [
            Item { kind: ExtType::PROV_TRAITS, data: &self.traits },
            Item { kind: ExtType::EVENT_SCHEMA_TL, data: &self.metadata },
        ]
    }

    /// Returns the payload of a mark.
    #[must_use]
    pub fn encode_text(&self, text: &str) -> Vec<u8> {
        let mut payload = Vec::new();
        payload.put_ansi_z(text);
        payload
    }

    /// Returns the text of a mark; `None` for other events. Invalid UTF-8 is replaced, and a text
    /// that is too long is cut.
    #[must_use]
    pub fn read_text(&self, record: &Record<'_>) -> Option<String> {
        if record.provider() != self.provider {
            return None;
        }
        let metadata = EventMetadata::parse(record.items().data_of(ExtType::EVENT_SCHEMA_TL)?).ok()?;
        if metadata.name != EVENT.as_bytes() {
            return None;
        }
        let text = Cursor::new("mark", record.payload()).ansi_z();
        Some(String::from_utf8_lossy(text.get(..MAX_TEXT_BYTES).unwrap_or(text)).into_owned())
    }
}
