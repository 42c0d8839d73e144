//! Writes the names of levels, tasks, opcodes, keywords and channels, and finds the entries that an
//! event uses.
//!
//! An event has its names in display form, so an entry is found by number and display name.
//! Predefined names are in no manifest; those that events use are added.

use std::collections::HashMap;

use traceweir_format::wire::Put;

use super::Blob;
use super::messages::{Kind, Messages};
use crate::Result;
use crate::source::manifest::{Name, ProviderDefinition};
use crate::source::provider::EventSchema;

/// The entries of one kind, with the offsets that they were written at.
struct Table {
    names: Vec<Name>,
    offsets: HashMap<(u64, String), u32>,
}

impl Table {
    fn new(names: &[Name]) -> Self {
        Self { names: names.to_vec(), offsets: HashMap::new() }
    }

    /// Adds the predefined name of a number, unless there is an entry with the same display name.
    fn add(&mut self, value: u64, display: Option<&str>) {
        let Some(display) = display else { return };
        if !self.names.iter().any(|name| name.value == value && name.display() == display) {
            self.names.push(Name { name: format!("win:{display}"), value, ..Name::default() });
        }
    }

    fn offset(&self, value: u64, display: Option<&str>) -> u32 {
        let key = display.map(|display| (value, display.to_owned()));
        key.and_then(|key| self.offsets.get(&key)).copied().unwrap_or(0)
    }
}

/// The entries that one event uses, by offset.
pub(super) struct Used {
    pub(super) opcode: u32,
    pub(super) level: u32,
    pub(super) task: u32,
    pub(super) channel: u32,
    pub(super) keywords: Vec<u32>,
}

pub(super) struct Tables {
    levels: Table,
    tasks: Table,
    opcodes: Table,
    keywords: Table,
    channels: Table,
}

/// Returns the value of an OPCO entry.
fn opcode_value(opcode: u64, task: u16) -> u64 {
    (opcode << 16) | u64::from(task)
}

impl Tables {
    pub(super) fn new(provider: &ProviderDefinition) -> Self {
        let mut opcodes = Table::new(&provider.opcodes);
        for name in &mut opcodes.names {
            name.value = opcode_value(name.value, name.task);
        }
        let mut channels = Table::new(&provider.channels);
        for channel in &mut channels.names {
            // A reader shows the name of a channel, never its text.
            channel.text = None;
        }
        let mut tables = Self {
            levels: Table::new(&provider.levels),
            tasks: Table::new(&provider.tasks),
            opcodes,
            keywords: Table::new(&provider.keywords),
            channels,
        };
        for event in &provider.events {
            tables.add(&event.event);
        }
        tables
    }

    /// Adds the predefined names that an event uses.
    fn add(&mut self, event: &EventSchema) {
        let (descriptor, names) = (&event.descriptor, &event.schema.names);
        self.levels.add(descriptor.level.into(), names.level.as_deref());
        self.tasks.add(descriptor.task.into(), names.task.as_deref());
        let of_task = opcode_value(descriptor.opcode.into(), descriptor.task);
        let display = names.opcode.as_deref();
        if !self.opcodes.names.iter().any(|name| name.value == of_task && Some(name.display()) == display) {
            self.opcodes.add(opcode_value(descriptor.opcode.into(), 0), display);
        }
        for (mask, name) in &names.keywords {
            self.keywords.add(*mask, Some(name));
        }
    }

    /// Writes the table of a signature.
    pub(super) fn write(
        &mut self,
        blob: &mut Blob,
        messages: &mut Messages,
        signature: &[u8; 4],
    ) -> Result<()> {
        let (table, kind) = match signature {
            b"LEVL" => (&mut self.levels, Kind::Level),
            b"TASK" => (&mut self.tasks, Kind::Task),
            b"OPCO" => (&mut self.opcodes, Kind::Opcode),
            b"KEYW" => (&mut self.keywords, Kind::Keyword),
            _ => (&mut self.channels, Kind::Channel),
        };
        let start = blob.begin(signature);
        blob.count(table.names.len())?;
        let mut names = Vec::with_capacity(table.names.len());
        for name in &table.names {
            table.offsets.entry((name.value, name.display().to_owned())).or_insert(blob.here()?);
            let message = messages.id(kind, name.text.as_deref().filter(|text| !text.trim().is_empty()))?;
            names.push((write_entry(blob, signature, name, message), name.name.as_str()));
        }
        blob.records(names)?;
        blob.end(start)
    }

    pub(super) fn used_by(&self, event: &EventSchema) -> Used {
        let (descriptor, names) = (&event.descriptor, &event.schema.names);
        let opcode =
            |task| self.opcodes.offset(opcode_value(descriptor.opcode.into(), task), names.opcode.as_deref());
        Used {
            opcode: match opcode(descriptor.task) {
                0 => opcode(0),
                of_task => of_task,
            },
            level: self.levels.offset(descriptor.level.into(), names.level.as_deref()),
            task: self.tasks.offset(descriptor.task.into(), names.task.as_deref()),
            channel: self.channels.offset(descriptor.channel.into(), names.channel.as_deref()),
            keywords: names
                .keywords
                .iter()
                .map(|(mask, name)| self.keywords.offset(*mask, Some(name)))
                .collect(),
        }
    }
}

/// Writes an entry; returns the hole for the offset of its name.
fn write_entry(blob: &mut Blob, signature: &[u8; 4], name: &Name, message: u32) -> usize {
    let narrow = u32::try_from(name.value).unwrap_or(u32::MAX);
    match signature {
        b"KEYW" => blob.bytes.put_u64(name.value),
        _ => blob.bytes.put_u32(narrow),
    };
    match signature {
        b"CHAN" => {
            let hole = blob.hole();
            blob.bytes.put_u32(0).put_u32(message);
            hole
        }
        b"TASK" => {
            blob.bytes.put_u32(message).put_guid(&name.class);
            blob.hole()
        }
        _ => {
            blob.bytes.put_u32(message);
            blob.hole()
        }
    }
}
