//! Reads the names of levels, tasks, opcodes, keywords and channels.
//!
//! After signature, size and count, every table is a list of entries with the same three values at
//! different offsets:
//!
//! ```text
//!          size   value              message   name record
//!   LEVL    12    u32 @0                 4          8
//!   TASK    28    u32 @0                 4         24       GUID @8
//!   OPCO    12    u32 @0                 4          8       opcode << 16 | task, task 0 = any
//!   KEYW    16    u64 @0                 8         12
//!   CHAN    16    u32 @0                12          4       u32 @8 unknown
//! ```
//!
//! The numbers after `@` and below "message" and "name record" are offsets in the entry.
//!
//! The display name is the message, if the message table has it, else the name without `win:`. A
//! channel keeps its name, which is a path such as `Provider/Operational`, because its message
//! leaves the provider out.
//!
//! Events refer to entries by offset. If there is no entry at the offset, the entry with the value
//! in the event's descriptor is used, except for keywords.
//!
//! Source: Observed on the CLR's event resources; CHAN from public descriptions.

use std::collections::HashMap;
use std::sync::Arc;

use traceweir_format::spec::event::EventDescriptor;
use traceweir_format::wire::{Cursor, u32_at, u64_at};

use super::WevtReader;
use crate::Result;
use crate::source::provider::{ProviderNames, ValueName};

#[derive(Default)]
pub(super) struct WevtNameTables {
    pub(super) levels: WevtNameTable,
    pub(super) tasks: WevtNameTable,
    pub(super) opcodes: WevtNameTable,
    pub(super) keywords: WevtNameTable,
    pub(super) channels: WevtNameTable,
}

/// The names of one kind.
#[derive(Default)]
pub(super) struct WevtNameTable {
    /// Value and display name of the entry at each offset.
    by_offset: HashMap<u32, (u64, Arc<str>)>,
    /// Display name of each value.
    by_value: HashMap<u64, Arc<str>>,
    /// Name and message of each entry.
    names: Vec<ValueName>,
}

/// The size of an entry and the offsets of its message and name.
struct NameEntryLayout {
    size: usize,
    /// Whether the value has 64 bits.
    has_wide_value: bool,
    message: usize,
    name: usize,
    /// Whether the display name is the name even if there is a message.
    prefers_name: bool,
}

impl WevtNameTables {
    /// Returns the table for a signature, and the layout of its entries.
    fn table_for(&mut self, signature: &[u8; 4]) -> Option<(&mut WevtNameTable, NameEntryLayout)> {
        let layout = |size, message, name| NameEntryLayout {
            size,
            has_wide_value: false,
            message,
            name,
            prefers_name: false,
        };
        Some(match signature {
            b"LEVL" => (&mut self.levels, layout(12, 4, 8)),
            b"TASK" => (&mut self.tasks, layout(28, 4, 24)),
            b"OPCO" => (&mut self.opcodes, layout(12, 4, 8)),
            b"KEYW" => (&mut self.keywords, NameEntryLayout { has_wide_value: true, ..layout(16, 8, 12) }),
            b"CHAN" => (&mut self.channels, NameEntryLayout { prefers_name: true, ..layout(16, 12, 4) }),
            _ => return None,
        })
    }

    /// Removes and returns all names.
    pub(super) fn take_names(&mut self) -> ProviderNames {
        ProviderNames {
            keywords: self.keywords.take_names(),
            levels: self.levels.take_names(),
            channels: self.channels.take_names(),
            tasks: self.tasks.take_names(),
            opcodes: self.opcodes.take_names(),
        }
    }

    /// Returns the opcode's name: of the entry at `offset`, else for this task, else for any task.
    pub(super) fn opcode_name(&self, offset: u32, descriptor: &EventDescriptor) -> Option<Arc<str>> {
        let any_task = u64::from(descriptor.opcode) << 16;
        let this_task = any_task | u64::from(descriptor.task);
        self.opcodes.find(offset, this_task).or_else(|| self.opcodes.find(0, any_task))
    }
}

impl WevtNameTable {
    /// Returns the name of the entry at `offset`, else that of `value`.
    pub(super) fn find(&self, offset: u32, value: u64) -> Option<Arc<str>> {
        self.by_offset.get(&offset).map(|entry| &entry.1).or_else(|| self.by_value.get(&value)).cloned()
    }

    /// Returns the value and the name of the entry at `offset`.
    pub(super) fn entry_at(&self, offset: u32) -> Option<(u64, Arc<str>)> {
        self.by_offset.get(&offset).cloned()
    }

    /// Removes and returns all names, sorted by value.
    fn take_names(&mut self) -> Vec<ValueName> {
        self.names.sort();
        self.names.dedup();
        std::mem::take(&mut self.names)
    }
}

impl WevtReader<'_> {
    /// Reads an element if it is a name table. The cursor is after the signature.
    pub(super) fn read_name_table(
        &mut self,
        signature: &[u8; 4],
        mut element: Cursor<'_>,
        tables: &mut WevtNameTables,
    ) -> Result<()> {
        let Some((table, layout)) = tables.table_for(signature) else { return Ok(()) };
        let (_size, count) = (element.u32()?, element.u32()?);
        for _ in 0..count {
            let offset = u32::try_from(element.position()).unwrap_or(u32::MAX);
            let entry = element.bytes(layout.size)?;
            self.spend_bytes(layout.size)?;
            let value = if layout.has_wide_value { u64_at(entry, 0) } else { u64::from(u32_at(entry, 0)) };
            let message = self.messages.get(u32_at(entry, layout.message)).filter(|t| !t.is_empty()).cloned();
            let name_offset = u32_at(entry, layout.name);
            // An unreadable name is ignored here; below, it is an error if it is the display name.
            let record_name = if name_offset == 0 {
                None
            } else {
                self.texts.read_record(name_offset).ok().filter(|name| !name.is_empty())
            };
            if let Some(name) = record_name.or_else(|| message.clone()) {
                table.names.push(ValueName { value, name, text: message.clone() });
            }
            let display_name = match message {
                Some(message) if !layout.prefers_name => Some(message),
                message => self.texts.read_record_label(name_offset)?.or(message),
            };
            if let Some(name) = display_name {
                table.by_value.entry(value).or_insert_with(|| name.clone());
                table.by_offset.insert(offset, (value, name));
            }
        }
        Ok(())
    }
}
