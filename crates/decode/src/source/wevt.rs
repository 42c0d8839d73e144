//! Compiled manifests: the form in which the message compiler puts a manifest into a program.
//!
//! ```text
//!   CRIM │ u32 size │ u16 major │ u16 minor │ u32 providers │ providers × { GUID │ u32 offset }
//!                                                                          │
//!   ┌──────────────────────────────────────────────────────────────────────┘
//!   ▼
//!   WEVT │ u32 size │ u32 message │ u32 elements │ elements × { u32 type │ u32 offset }
//!                                                                          │
//!   ┌──────────────────────────────────────────────────────────────────────┘
//!   ▼
//!   signature │ u32 size │ u32 count │ entries
//!     LEVL TASK OPCO KEYW CHAN   names (`names`)
//!     PRVA                       provider name
//!     MAPS TTBL                  maps, layouts (`template`)
//!     EVNT │ u32 0 │ events      48 bytes each, below
//!     SYMB                       { u16 id │ u8 version │ u8 0 │ u32 → symbol }
//!
//!   event: EVENT_DESCRIPTOR │ u32 message │ u32 → TEMP │ u32 → OPCO │ u32 → LEVL │ u32 → TASK
//!          │ u32 keywords │ u32 → (u32 → KEYW)[] │ u32 → CHAN
//! ```
//!
//! All offsets count from the start of `CRIM`. The signature of an element decides what it is; its
//! type number is ignored. Templates and maps are read where an event or a template's item points
//! at them, so MAPS and TTBL, whose offset arrays differ between versions 3.1 and 5.1, are not
//! read.
//!
//! Invariants: the total that is read stays proportional to the blob, however its offsets overlap.
//! Each record is subtracted from a budget that a sound blob does not exceed
//! (`WevtReader::spend_bytes`). The fields of events and the texts of maps have budgets of their
//! own.
//!
//! This project defines SYMB: the message compiler puts symbols only into its C header, and
//! without them an event without a task has no name. Other readers skip elements with an unknown
//! signature.
//!
//! An event without a template has no fields. The XML shape of templates (BinXML) is not read:
//! items alone describe the payload.
//!
//! [`compile`] is the inverse.
//!
//! Source: Observed on the CLR's event resources (version 5.1); version 3.1 from public
//! descriptions; SYMB is defined here.

#[cfg(test)]
pub(in crate::source) mod build;
mod names;
pub(in crate::source) mod property;
mod template;
#[cfg(test)]
mod tests;
pub(in crate::source) mod texts;
#[cfg(feature = "xml")]
mod write;

use std::collections::HashMap;
use std::sync::Arc;

use traceweir_format::Guid;
use traceweir_format::spec::event::EventDescriptor;
use traceweir_format::wire::Cursor;

use crate::schema::{Schema, SchemaNames, ValueMap};
use crate::source::messages::MessageTable;
use crate::source::provider::{EventSchema, ProviderSchemas};
use crate::{Error, Result};
use names::WevtNameTables;
use texts::SharedTexts;
#[cfg(feature = "xml")]
pub use write::{CompiledManifest, compile};

/// The attribute of PRVA that holds the provider's name.
const PROVIDER_NAME_ATTRIBUTE: u32 = 0x1000_0001;

/// The offset of the number of providers in CRIM.
const PROVIDER_LIST_OFFSET: u32 = 12;

/// The size of a provider's GUID and offset, in bytes.
const PROVIDER_ENTRY_BYTES: usize = 20;

/// The size of an element's type and offset, in bytes.
const ELEMENT_ENTRY_BYTES: usize = 8;

/// The size of an entry of SYMB, in bytes.
const SYMBOL_ENTRY_BYTES: usize = 8;

/// The size of an entry of PRVA, in bytes.
const ATTRIBUTE_ENTRY_BYTES: usize = 8;

/// The size of an event entry, in bytes.
const EVENT_ENTRY_BYTES: usize = 48;

/// The most keywords of an event, which has 64 keyword bits.
const MAX_KEYWORDS: u32 = 64;

/// The most fields that the events of one blob may have together.
const MAX_TOTAL_FIELDS: usize = 1 << 21;

/// The most bytes of text that the maps of one blob may copy from the message table.
const MAX_MAP_TEXT_BYTES: usize = 64 << 20;

/// Reads the providers that a compiled manifest describes, with names and texts from `messages`.
pub fn read_providers(blob: &[u8], messages: &MessageTable) -> Result<Vec<ProviderSchemas>> {
    let blob = trim_to_size(blob)?;
    let mut reader = WevtReader::new(blob, messages);
    let mut list = reader.cursor_at(PROVIDER_LIST_OFFSET)?;
    let count = list.u32()?;
    let mut providers = Vec::new();
    for _ in 0..count {
        let (id, offset) = (list.guid()?, list.u32()?);
        reader.spend_bytes(PROVIDER_ENTRY_BYTES)?;
        providers.push(reader.read_provider(id, offset)?);
    }
    Ok(providers)
}

/// Cuts the blob at the size in its size field. The bytes after it are padding or belong to the
/// container.
pub(in crate::source) fn trim_to_size(blob: &[u8]) -> Result<&[u8]> {
    let mut header = Cursor::new("compiled manifest", blob);
    if header.array::<4>()? != b"CRIM" {
        header.seek(0)?;
        return Err(header.invalid("signature is not CRIM").into());
    }
    let size = usize::try_from(header.u32()?).unwrap_or(usize::MAX);
    header.seek(0)?;
    Ok(header.bytes(size)?)
}

/// The state of reading a blob: caches, with offsets as keys, and budgets.
struct WevtReader<'a> {
    blob: &'a [u8],
    messages: &'a MessageTable,
    texts: SharedTexts<'a>,
    maps: HashMap<u32, Arc<ValueMap>>,
    templates: HashMap<u32, Schema>,
    bytes_left: usize,
    fields_left: usize,
    map_text_bytes_left: usize,
}

impl<'a> WevtReader<'a> {
    fn new(blob: &'a [u8], messages: &'a MessageTable) -> Self {
        let size = blob.len();
        Self {
            blob,
            messages,
            texts: SharedTexts::new("compiled manifest text", blob),
            maps: HashMap::default(),
            templates: HashMap::default(),
            bytes_left: size,
            // Events share templates and map entries share texts, so these totals may exceed the
            // size of the blob.
            fields_left: size.saturating_add(1 << 16).min(MAX_TOTAL_FIELDS),
            map_text_bytes_left: size.saturating_mul(32).saturating_add(1 << 16).min(MAX_MAP_TEXT_BYTES),
        }
    }

    fn cursor_at(&self, offset: u32) -> Result<Cursor<'a>> {
        let mut cursor = Cursor::new("compiled manifest", self.blob);
        cursor.seek(usize::try_from(offset).unwrap_or(usize::MAX))?;
        Ok(cursor)
    }

    /// Subtracts a record of `bytes` from the budget. Records of a sound blob do not overlap, so
    /// together they cost at most its size.
    fn spend_bytes(&mut self, bytes: usize) -> Result<()> {
        self.bytes_left =
            self.bytes_left.checked_sub(bytes).ok_or(Error::Schema("records of the manifest overlap"))?;
        Ok(())
    }

    /// Reads one WEVT block.
    fn read_provider(&mut self, id: Guid, offset: u32) -> Result<ProviderSchemas> {
        let mut block = self.cursor_at(offset)?;
        if block.array::<4>()? != b"WEVT" {
            return Err(block.invalid("signature is not WEVT").into());
        }
        let (_size, message, count) = (block.u32()?, block.u32()?, block.u32()?);
        let mut name = self.messages.get(message).cloned();
        let mut tables = WevtNameTables::default();
        let (mut event_lists, mut symbols) = (Vec::new(), HashMap::new());
        for _ in 0..count {
            let (_type, offset) = (block.u32()?, block.u32()?);
            self.spend_bytes(ELEMENT_ENTRY_BYTES)?;
            let mut element = self.cursor_at(offset)?;
            match element.array::<4>()? {
                b"EVNT" => event_lists.push(offset),
                b"SYMB" => self.read_symbols(element, &mut symbols)?,
                b"PRVA" => name = self.read_provider_name(element)?.or(name),
                signature => self.read_name_table(signature, element, &mut tables)?,
            }
        }
        let value_names = tables.take_names();
        let mut provider = ProviderSchemas { id, name, value_names, ..ProviderSchemas::default() };
        for offset in event_lists {
            self.read_events(offset, &tables, &mut provider)?;
        }
        for event in &mut provider.events {
            let identity = (event.descriptor.id, event.descriptor.version);
            event.schema.names.event = symbols.get(&identity).cloned();
        }
        Ok(provider)
    }

    /// Reads the symbols of events; the cursor is after the signature.
    fn read_symbols(
        &mut self,
        mut element: Cursor<'_>,
        symbols: &mut HashMap<(u16, u8), Arc<str>>,
    ) -> Result<()> {
        let (_size, count) = (element.u32()?, element.u32()?);
        for _ in 0..count {
            let (id, version, _zero, name) = (element.u16()?, element.u8()?, element.u8()?, element.u32()?);
            self.spend_bytes(SYMBOL_ENTRY_BYTES)?;
            symbols.insert((id, version), self.texts.read_record(name)?);
        }
        Ok(())
    }

    /// Returns the name among the provider's attributes; the cursor is after the signature.
    fn read_provider_name(&mut self, mut element: Cursor<'_>) -> Result<Option<Arc<str>>> {
        let (_size, count) = (element.u32()?, element.u32()?);
        for _ in 0..count {
            let (kind, offset) = (element.u32()?, element.u32()?);
            self.spend_bytes(ATTRIBUTE_ENTRY_BYTES)?;
            if kind == PROVIDER_NAME_ATTRIBUTE {
                return Ok(Some(self.texts.read_terminated(offset)?).filter(|t| !t.is_empty()));
            }
        }
        Ok(None)
    }

    /// Reads one EVNT element.
    fn read_events(
        &mut self,
        offset: u32,
        tables: &WevtNameTables,
        provider: &mut ProviderSchemas,
    ) -> Result<()> {
        let mut element = self.cursor_at(offset)?;
        let (_signature, _size, count, _zero) =
            (element.u32()?, element.u32()?, element.u32()?, element.u32()?);
        for _ in 0..count {
            self.spend_bytes(EVENT_ENTRY_BYTES)?;
            let mut entry = Cursor::new("compiled event", element.bytes(EVENT_ENTRY_BYTES)?);
            let event = self.read_event(&mut entry, tables, provider)?;
            provider.events.push(event);
        }
        Ok(())
    }

    fn read_event(
        &mut self,
        entry: &mut Cursor<'_>,
        tables: &WevtNameTables,
        provider: &ProviderSchemas,
    ) -> Result<EventSchema> {
        let descriptor = EventDescriptor::from_bytes(entry.array()?);
        let (message, template) = (entry.u32()?, entry.u32()?);
        let (opcode, level, task) = (entry.u32()?, entry.u32()?, entry.u32()?);
        let (keyword_count, keywords, channel) = (entry.u32()?, entry.u32()?, entry.u32()?);
        let mut schema = self.cached_template(template)?;
        schema.provider = provider.id;
        schema.message = self.messages.get(message).cloned();
        schema.names = SchemaNames {
            provider: provider.name.clone(),
            event: None,
            task: tables.tasks.find(task, u64::from(descriptor.task)),
            opcode: tables.opcode_name(opcode, &descriptor),
            level: tables.levels.find(level, u64::from(descriptor.level)),
            channel: tables.channels.find(channel, u64::from(descriptor.channel)),
            keywords: self.read_keywords(keyword_count, keywords, tables)?,
        };
        Ok(EventSchema { descriptor, schema })
    }

    /// Returns the keywords that an event's array of offsets names.
    fn read_keywords(
        &self,
        count: u32,
        offset: u32,
        tables: &WevtNameTables,
    ) -> Result<Vec<(u64, Arc<str>)>> {
        if count == 0 {
            return Ok(Vec::new());
        }
        let mut array = self.cursor_at(offset)?;
        if count > MAX_KEYWORDS {
            return Err(array.invalid("more keywords than keyword bits").into());
        }
        let mut keywords = Vec::new();
        for _ in 0..count {
            keywords.extend(tables.keywords.entry_at(array.u32()?));
        }
        Ok(keywords)
    }
}
