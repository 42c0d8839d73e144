//! Writes compiled manifests: the inverse of the reader, from a compiler's definitions.
//!
//! ```text
//!   definitions ──▶ CRIM │ WEVT: MAPS TTBL PRVA OPCO LEVL TASK KEYW CHAN EVNT SYMB │ …
//!               └─▶ texts ──▶ message table
//! ```
//!
//! Elements are in the order of the message compiler. The name tables hold the names that the
//! manifest defines and the predefined ones that its events use. Reading the result with
//! [`super::read_providers`] gives the schemas of the definitions.
//!
//! Source: as for the reader; the order of elements Observed on the CLR's event resources.

mod messages;
mod table;
mod template;

use std::collections::HashMap;

use traceweir_format::wire::Put;

use super::{EVENT_ENTRY_BYTES, PROVIDER_NAME_ATTRIBUTE};
use crate::source::manifest::{EventDefinition, ProviderDefinition};
use crate::{Error, Result};
use messages::{MessageIds, MessageKind};
use table::WrittenNameTables;

/// The result of compiling a manifest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CompiledManifest {
    /// The resource WEVT_TEMPLATE.
    pub template: Vec<u8>,
    /// The message table that the resource refers to.
    pub messages: Vec<u8>,
}

/// The version of the structure that is written.
const FORMAT_VERSION: (u16, u16) = (5, 1);

/// The type numbers of elements in a provider's block.
mod element {
    pub(super) const LEVL: u32 = 0;
    pub(super) const TASK: u32 = 1;
    pub(super) const OPCO: u32 = 2;
    pub(super) const KEYW: u32 = 3;
    pub(super) const EVNT: u32 = 4;
    pub(super) const CHAN: u32 = 5;
    pub(super) const MAPS: u32 = 6;
    pub(super) const TTBL: u32 = 7;
    pub(super) const PRVA: u32 = 13;
    /// The element that this project defines, far from the numbers of other elements.
    pub(super) const SYMB: u32 = 0x5457_0001;
}

/// Compiles the definitions of a manifest.
pub fn compile(providers: &[ProviderDefinition]) -> Result<CompiledManifest> {
    let mut messages = MessageIds::default();
    let mut blob = PatchedBlob::default();
    blob.bytes.put(b"CRIM");
    let size = blob.reserve_u32();
    blob.bytes.put_u16(FORMAT_VERSION.0).put_u16(FORMAT_VERSION.1);
    blob.put_count(providers.len())?;
    let mut blocks = Vec::with_capacity(providers.len());
    for provider in providers {
        blob.bytes.put_guid(&provider.id);
        blocks.push(blob.reserve_u32());
    }
    for (provider, block) in providers.iter().zip(blocks) {
        blob.fill_position(block)?;
        write_provider(&mut blob, &mut messages, provider)?;
    }
    blob.fill_position(size)?;
    Ok(CompiledManifest { template: blob.bytes, messages: messages.encode_table()? })
}

fn write_provider(
    blob: &mut PatchedBlob,
    messages: &mut MessageIds,
    provider: &ProviderDefinition,
) -> Result<()> {
    use element::{CHAN, EVNT, KEYW, LEVL, MAPS, OPCO, PRVA, SYMB, TASK, TTBL};
    let start = blob.begin_structure(b"WEVT");
    blob.bytes.put_u32(u32::MAX);
    let kinds = [MAPS, TTBL, PRVA, OPCO, LEVL, TASK, KEYW, CHAN, EVNT, SYMB];
    blob.put_count(kinds.len())?;
    let holes = kinds.map(|kind| {
        blob.bytes.put_u32(kind);
        blob.reserve_u32()
    });
    let [maps, ttbl, prva, opco, levl, task, keyw, chan, evnt, symb] = holes;
    blob.fill_position(maps)?;
    let maps = template::write_maps(blob, messages, &provider.maps)?;
    blob.fill_position(ttbl)?;
    let templates = template::write_templates(blob, &provider.events, &maps)?;
    blob.fill_position(prva)?;
    write_attributes(blob, provider)?;
    let mut tables = WrittenNameTables::new(provider);
    for (hole, signature) in
        [(opco, b"OPCO"), (levl, b"LEVL"), (task, b"TASK"), (keyw, b"KEYW"), (chan, b"CHAN")]
    {
        blob.fill_position(hole)?;
        tables.write_table(blob, messages, signature)?;
    }
    let mut events: Vec<&EventDefinition> = provider.events.iter().collect();
    events.sort_by_key(|e| (e.event.descriptor.id, e.event.descriptor.version));
    blob.fill_position(evnt)?;
    write_events(blob, messages, &events, &tables, &templates)?;
    blob.fill_position(symb)?;
    write_symbols(blob, &events)?;
    blob.end_structure(start)
}

/// Writes the provider's name.
fn write_attributes(blob: &mut PatchedBlob, provider: &ProviderDefinition) -> Result<()> {
    let start = blob.begin_structure(b"PRVA");
    blob.bytes.put_u32(1).put_u32(PROVIDER_NAME_ATTRIBUTE);
    let name = blob.reserve_u32();
    blob.fill_position(name)?;
    blob.bytes.put_wide_z(provider.name.as_deref().unwrap_or_default());
    blob.pad_to_4();
    blob.end_structure(start)
}

fn write_events(
    blob: &mut PatchedBlob,
    messages: &mut MessageIds,
    events: &[&EventDefinition],
    tables: &WrittenNameTables,
    templates: &HashMap<&str, u32>,
) -> Result<()> {
    let start = blob.begin_structure(b"EVNT");
    blob.put_count(events.len())?;
    blob.bytes.put_u32(0);
    let mut arrays = Vec::with_capacity(events.len());
    for event in events {
        let (descriptor, schema) = (&event.event.descriptor, &event.event.schema);
        let entry = blob.bytes.len();
        let template = event.template.as_deref().and_then(|id| templates.get(id)).copied().unwrap_or(0);
        blob.bytes
            .put(&descriptor.to_bytes())
            .put_u32(messages.assign_id(MessageKind::Event, schema.message.as_deref())?);
        let offsets = tables.offsets_used_by(&event.event);
        blob.bytes.put_u32(template).put_u32(offsets.opcode).put_u32(offsets.level).put_u32(offsets.task);
        blob.put_count(offsets.keywords.len())?;
        arrays.push((blob.reserve_u32(), offsets.keywords));
        blob.bytes.put_u32(offsets.channel);
        debug_assert_eq!(blob.bytes.len().saturating_sub(entry), EVENT_ENTRY_BYTES);
    }
    for (hole, keywords) in arrays.into_iter().filter(|(_, keywords)| !keywords.is_empty()) {
        blob.fill_position(hole)?;
        for keyword in keywords {
            blob.bytes.put_u32(keyword);
        }
    }
    blob.end_structure(start)
}

/// Writes the symbols of events, which the message compiler puts only into its C header.
fn write_symbols(blob: &mut PatchedBlob, events: &[&EventDefinition]) -> Result<()> {
    let events_with_symbol =
        || events.iter().filter_map(|e| Some((&e.event.descriptor, e.event.schema.names.event.as_deref()?)));
    let start = blob.begin_structure(b"SYMB");
    blob.put_count(events_with_symbol().count())?;
    let mut names = Vec::new();
    for (descriptor, name) in events_with_symbol() {
        blob.bytes.put_u16(descriptor.id).put_u8(descriptor.version).put_u8(0);
        names.push((blob.reserve_u32(), name));
    }
    blob.put_text_records(names)?;
    blob.end_structure(start)
}

/// Bytes with holes: numbers that are filled in when they are known.
#[derive(Default)]
struct PatchedBlob {
    bytes: Vec<u8>,
}

impl PatchedBlob {
    fn position(&self) -> Result<u32> {
        u32::try_from(self.bytes.len())
            .map_err(|_| Error::Schema("the compiled manifest is larger than 4 GiB"))
    }

    /// Appends a hole and returns its offset.
    fn reserve_u32(&mut self) -> usize {
        let at = self.bytes.len();
        self.bytes.put_u32(0);
        at
    }

    fn fill_u32(&mut self, hole: usize, value: u32) {
        if let Some(bytes) = self.bytes.get_mut(hole..hole.saturating_add(4)) {
            bytes.copy_from_slice(&value.to_le_bytes());
        }
    }

    /// Fills a hole with the current end of the bytes.
    fn fill_position(&mut self, hole: usize) -> Result<()> {
        self.fill_u32(hole, self.position()?);
        Ok(())
    }

    fn put_count(&mut self, n: usize) -> Result<()> {
        self.bytes.put_u32(u32::try_from(n).map_err(|_| Error::Schema("too many entries"))?);
        Ok(())
    }

    /// Begins a structure with signature and size; returns its start.
    fn begin_structure(&mut self, signature: &[u8; 4]) -> usize {
        let start = self.bytes.len();
        self.bytes.put(signature).put_u32(0);
        start
    }

    /// Ends a structure and fills in its size.
    fn end_structure(&mut self, start: usize) -> Result<()> {
        let size = self.position()?.saturating_sub(u32::try_from(start).unwrap_or(u32::MAX));
        self.fill_u32(start.saturating_add(4), size);
        Ok(())
    }

    /// Pads to a multiple of 4 bytes, because every structure begins at one.
    fn pad_to_4(&mut self) {
        let padded = self.bytes.len().next_multiple_of(4);
        self.bytes.resize(padded, 0);
    }

    /// Writes text records and fills their offsets into the holes.
    fn put_text_records<'n>(&mut self, names: impl IntoIterator<Item = (usize, &'n str)>) -> Result<()> {
        for (hole, name) in names {
            self.fill_position(hole)?;
            let start = self.bytes.len();
            let size = self.reserve_u32();
            self.bytes.put_wide_z(name);
            self.pad_to_4();
            self.fill_u32(size, self.position()?.saturating_sub(u32::try_from(start).unwrap_or(u32::MAX)));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
