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
//! The display name is the message, if the message table has it, else the name without `win:`. A
//! channel keeps its name, which is a path such as `Provider/Operational`, because its message
//! leaves the provider out.
//!
//! Events refer to entries by offset. If an offset is 0, the entry of equal value is used.
//!
//! Source: Observed on the CLR's event resources; CHAN from public descriptions.

use std::collections::HashMap;
use std::sync::Arc;

use traceweir_format::spec::event::EventDescriptor;
use traceweir_format::wire::{Cursor, u32_at, u64_at};

use super::Reader;
use crate::Result;
use crate::source::provider::{Name, Named};

/// The name tables of one provider.
#[derive(Default)]
pub(super) struct Tables {
    pub(super) levels: Table,
    pub(super) tasks: Table,
    pub(super) opcodes: Table,
    pub(super) keywords: Table,
    pub(super) channels: Table,
}

/// The names of one kind, by the offset of their entry and by their value.
#[derive(Default)]
pub(super) struct Table {
    entries: HashMap<u32, (u64, Arc<str>)>,
    values: HashMap<u64, Arc<str>>,
    listed: Vec<Name>,
}

/// The size of an entry and the offsets in it.
struct Layout {
    size: usize,
    wide_value: bool,
    message: usize,
    name: usize,
    prefer_name: bool,
}

impl Tables {
    /// Returns the table for a signature.
    fn select(&mut self, signature: &[u8; 4]) -> Option<(&mut Table, Layout)> {
        let layout =
            |size, message, name| Layout { size, wide_value: false, message, name, prefer_name: false };
        Some(match signature {
            b"LEVL" => (&mut self.levels, layout(12, 4, 8)),
            b"TASK" => (&mut self.tasks, layout(28, 4, 24)),
            b"OPCO" => (&mut self.opcodes, layout(12, 4, 8)),
            b"KEYW" => (&mut self.keywords, Layout { wide_value: true, ..layout(16, 8, 12) }),
            b"CHAN" => (&mut self.channels, Layout { prefer_name: true, ..layout(16, 12, 4) }),
            _ => return None,
        })
    }

    /// Removes and returns all names.
    pub(super) fn take_listed(&mut self) -> Named {
        Named {
            keywords: self.keywords.all(),
            levels: self.levels.all(),
            channels: self.channels.all(),
            tasks: self.tasks.all(),
            opcodes: self.opcodes.all(),
        }
    }

    /// Returns the opcode's name: of the entry at `offset`, else for this task, else for any task.
    pub(super) fn opcode(&self, offset: u32, descriptor: &EventDescriptor) -> Option<Arc<str>> {
        let any_task = u64::from(descriptor.opcode) << 16;
        let own_task = any_task | u64::from(descriptor.task);
        self.opcodes.find(offset, own_task).or_else(|| self.opcodes.find(0, any_task))
    }
}

impl Table {
    /// Returns the name of the entry at `offset`, else that of `value`.
    pub(super) fn find(&self, offset: u32, value: u64) -> Option<Arc<str>> {
        self.entries.get(&offset).map(|e| &e.1).or_else(|| self.values.get(&value)).cloned()
    }

    /// Returns the value and the name of the entry at `offset`.
    pub(super) fn entry(&self, offset: u32) -> Option<(u64, Arc<str>)> {
        self.entries.get(&offset).cloned()
    }

    /// Returns all names, by value.
    fn all(&mut self) -> Vec<Name> {
        self.listed.sort();
        self.listed.dedup();
        std::mem::take(&mut self.listed)
    }
}

impl Reader<'_> {
    /// Reads one name table; ignores other elements. The cursor is after the signature.
    pub(super) fn name_table(
        &mut self,
        signature: &[u8; 4],
        mut element: Cursor<'_>,
        tables: &mut Tables,
    ) -> Result<()> {
        let Some((table, layout)) = tables.select(signature) else { return Ok(()) };
        let (_size, count) = (element.u32()?, element.u32()?);
        for _ in 0..count {
            let offset = u32::try_from(element.position()).unwrap_or(u32::MAX);
            let entry = element.bytes(layout.size)?;
            self.spend(layout.size)?;
            let value = if layout.wide_value { u64_at(entry, 0) } else { u64::from(u32_at(entry, 0)) };
            let message = self.messages.get(u32_at(entry, layout.message)).filter(|t| !t.is_empty()).cloned();
            let at = u32_at(entry, layout.name);
            // An unreadable name is ignored here; below it is an error if it is the display name.
            let own = if at == 0 { None } else { self.texts.record(at).ok().filter(|name| !name.is_empty()) };
            if let Some(name) = own.or_else(|| message.clone()) {
                table.listed.push(Name { value, name, text: message.clone() });
            }
            let name = match message {
                Some(message) if !layout.prefer_name => Some(message),
                message => self.texts.record_label(at)?.or(message),
            };
            if let Some(name) = name {
                table.values.entry(value).or_insert_with(|| name.clone());
                table.entries.insert(offset, (value, name));
            }
        }
        Ok(())
    }
}
