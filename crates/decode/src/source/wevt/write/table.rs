//! Writes the names of levels, tasks, opcodes, keywords and channels, and finds the entries that an
//! event uses.
//!
//! An event has its names in display form (the message text, or else the name without `win:`), so
//! an entry is found by number and display name. A manifest need not define the predefined names;
//! those that events use are added.

use std::collections::HashMap;

use traceweir_format::wire::Put;

use super::PatchedBlob;
use super::messages::{MessageIds, MessageKind};
use crate::Result;
use crate::source::manifest::{NameDefinition, ProviderDefinition};
use crate::source::provider::EventSchema;

/// The entries of one kind, with the offsets that they were written at.
struct WrittenNameTable {
    names: Vec<NameDefinition>,
    offsets: HashMap<(u64, String), u32>,
}

impl WrittenNameTable {
    fn new(names: &[NameDefinition]) -> Self {
        Self { names: names.to_vec(), offsets: HashMap::new() }
    }

    /// Adds the predefined name of a number, unless an entry has this number and display name.
    fn add_predefined(&mut self, value: u64, display: Option<&str>) {
        let Some(display) = display else { return };
        if !self.names.iter().any(|name| name.value == value && name.display() == display) {
            self.names.push(NameDefinition {
                name: format!("win:{display}"),
                value,
                ..NameDefinition::default()
            });
        }
    }

    fn offset_of(&self, value: u64, display: Option<&str>) -> u32 {
        let key = display.map(|display| (value, display.to_owned()));
        key.and_then(|key| self.offsets.get(&key)).copied().unwrap_or(0)
    }
}

/// The offsets of the entries that one event uses. 0 means no entry.
pub(super) struct UsedOffsets {
    pub(super) opcode: u32,
    pub(super) level: u32,
    pub(super) task: u32,
    pub(super) channel: u32,
    pub(super) keywords: Vec<u32>,
}

pub(super) struct WrittenNameTables {
    levels: WrittenNameTable,
    tasks: WrittenNameTable,
    opcodes: WrittenNameTable,
    keywords: WrittenNameTable,
    channels: WrittenNameTable,
}

/// Returns the value of an OPCO entry.
fn opcode_value(opcode: u64, task: u16) -> u64 {
    (opcode << 16) | u64::from(task)
}

impl WrittenNameTables {
    pub(super) fn new(provider: &ProviderDefinition) -> Self {
        let mut opcodes = WrittenNameTable::new(&provider.opcodes);
        for name in &mut opcodes.names {
            name.value = opcode_value(name.value, name.task);
        }
        let mut channels = WrittenNameTable::new(&provider.channels);
        for channel in &mut channels.names {
            // A reader shows the name of a channel, never its text.
            channel.text = None;
        }
        let mut tables = Self {
            levels: WrittenNameTable::new(&provider.levels),
            tasks: WrittenNameTable::new(&provider.tasks),
            opcodes,
            keywords: WrittenNameTable::new(&provider.keywords),
            channels,
        };
        for event in &provider.events {
            tables.add_event_names(&event.event);
        }
        tables
    }

    /// Adds the predefined names that an event uses.
    fn add_event_names(&mut self, event: &EventSchema) {
        let (descriptor, names) = (&event.descriptor, &event.schema.names);
        self.levels.add_predefined(descriptor.level.into(), names.level.as_deref());
        self.tasks.add_predefined(descriptor.task.into(), names.task.as_deref());
        let task_opcode = opcode_value(descriptor.opcode.into(), descriptor.task);
        let display = names.opcode.as_deref();
        if !self.opcodes.names.iter().any(|name| name.value == task_opcode && Some(name.display()) == display)
        {
            self.opcodes.add_predefined(opcode_value(descriptor.opcode.into(), 0), display);
        }
        for (mask, name) in &names.keywords {
            self.keywords.add_predefined(*mask, Some(name));
        }
    }

    pub(super) fn write_table(
        &mut self,
        blob: &mut PatchedBlob,
        messages: &mut MessageIds,
        signature: &[u8; 4],
    ) -> Result<()> {
        let (table, kind) = match signature {
            b"LEVL" => (&mut self.levels, MessageKind::Level),
            b"TASK" => (&mut self.tasks, MessageKind::Task),
            b"OPCO" => (&mut self.opcodes, MessageKind::Opcode),
            b"KEYW" => (&mut self.keywords, MessageKind::Keyword),
            _ => (&mut self.channels, MessageKind::Channel),
        };
        let start = blob.begin_structure(signature);
        blob.put_count(table.names.len())?;
        let mut names = Vec::with_capacity(table.names.len());
        for name in &table.names {
            table.offsets.entry((name.value, name.display().to_owned())).or_insert(blob.position()?);
            let message =
                messages.assign_id(kind, name.text.as_deref().filter(|text| !text.trim().is_empty()))?;
            names.push((write_entry(blob, signature, name, message), name.name.as_str()));
        }
        blob.put_text_records(names)?;
        blob.end_structure(start)
    }

    pub(super) fn offsets_used_by(&self, event: &EventSchema) -> UsedOffsets {
        let (descriptor, names) = (&event.descriptor, &event.schema.names);
        let opcode_offset = |task| {
            self.opcodes.offset_of(opcode_value(descriptor.opcode.into(), task), names.opcode.as_deref())
        };
        UsedOffsets {
            opcode: match opcode_offset(descriptor.task) {
                0 => opcode_offset(0),
                offset => offset,
            },
            level: self.levels.offset_of(descriptor.level.into(), names.level.as_deref()),
            task: self.tasks.offset_of(descriptor.task.into(), names.task.as_deref()),
            channel: self.channels.offset_of(descriptor.channel.into(), names.channel.as_deref()),
            keywords: names
                .keywords
                .iter()
                .map(|(mask, name)| self.keywords.offset_of(*mask, Some(name)))
                .collect(),
        }
    }
}

/// Writes an entry; returns the hole for the offset of its name.
fn write_entry(blob: &mut PatchedBlob, signature: &[u8; 4], name: &NameDefinition, message: u32) -> usize {
    let value = u32::try_from(name.value).unwrap_or(u32::MAX);
    match signature {
        b"KEYW" => blob.bytes.put_u64(name.value),
        _ => blob.bytes.put_u32(value),
    };
    match signature {
        b"CHAN" => {
            let hole = blob.reserve_u32();
            blob.bytes.put_u32(0).put_u32(message);
            hole
        }
        b"TASK" => {
            blob.bytes.put_u32(message).put_guid(&name.class);
            blob.reserve_u32()
        }
        _ => {
            blob.bytes.put_u32(message);
            blob.reserve_u32()
        }
    }
}
