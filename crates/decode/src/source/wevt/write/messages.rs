//! Assigns message ids to the texts of a compiled manifest.
//!
//! ```text
//!   id   31..28 kind: 1 keyword, 3 opcode, 5 level, 7 task, 9 channel, B event, D value map,
//!               F bit map
//!        27..0  ordinal
//! ```
//!
//! The kinds are those of the message compiler, except 9 (channel), which this project chose. Equal
//! texts of a kind share an id.
//!
//! Source: Documented ("MESSAGE_RESOURCE_DATA"). The kinds, except 9, are Observed on the CLR's
//! event resources.

use std::collections::BTreeMap;
use std::collections::HashMap;

use traceweir_format::wire::Put;

use crate::source::messages::{MESSAGE_RESOURCE_UNICODE, NO_MESSAGE};
use crate::{Error, Result};

/// The kind of object that a text belongs to: the highest four bits of its id.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum MessageKind {
    Keyword = 1,
    Opcode = 3,
    Level = 5,
    Task = 7,
    Channel = 9,
    Event = 11,
    ValueMap = 13,
    BitMap = 15,
}

#[derive(Default)]
pub(super) struct MessageIds {
    ids: HashMap<(MessageKind, String), u32>,
    texts: BTreeMap<u32, String>,
    counts: HashMap<MessageKind, u32>,
}

impl MessageIds {
    /// Returns the id of a text; [`NO_MESSAGE`] for `None`.
    pub(super) fn assign_id(&mut self, kind: MessageKind, text: Option<&str>) -> Result<u32> {
        let Some(text) = text else { return Ok(NO_MESSAGE) };
        if let Some(id) = self.ids.get(&(kind, text.to_owned())) {
            return Ok(*id);
        }
        let count = self.counts.entry(kind).or_insert(0);
        *count = count.saturating_add(1);
        let id = ((kind as u32) << 28) | *count;
        if *count >= 1 << 28 || id == NO_MESSAGE {
            return Err(Error::Schema("too many messages"));
        }
        self.ids.insert((kind, text.to_owned()), id);
        self.texts.insert(id, text.to_owned());
        Ok(id)
    }

    /// Encodes the table: one block of consecutive ids for each kind.
    pub(super) fn encode_table(&self) -> Result<Vec<u8>> {
        let mut blocks: Vec<(u32, u32)> = Vec::new();
        for &id in self.texts.keys() {
            match blocks.last_mut() {
                Some((_, high)) if high.checked_add(1) == Some(id) => *high = id,
                _ => blocks.push((id, id)),
            }
        }
        let mut entries = Vec::new();
        let mut table = Vec::new();
        let header_bytes = blocks.len().saturating_mul(12).saturating_add(4);
        table.put_u32(u32::try_from(blocks.len()).unwrap_or(u32::MAX));
        for (low, high) in blocks {
            let offset = u32::try_from(header_bytes.saturating_add(entries.len()));
            let offset = offset.map_err(|_| Error::Schema("the message table is larger than 4 GiB"))?;
            table.put_u32(low).put_u32(high).put_u32(offset);
            for text in self.texts.range(low..=high).map(|(_, text)| text) {
                write_entry(&mut entries, text)?;
            }
        }
        table.put(&entries);
        Ok(table)
    }
}

fn write_entry(entries: &mut Vec<u8>, text: &str) -> Result<()> {
    let mut body = Vec::new();
    body.put_wide_z(&format!("{text}\r\n"));
    let length = body.len().next_multiple_of(4);
    body.resize(length, 0);
    let length = u16::try_from(length.saturating_add(4));
    let length = length.map_err(|_| Error::Schema("a message is longer than 64 KiB in UTF-16"))?;
    entries.put_u16(length).put_u16(MESSAGE_RESOURCE_UNICODE).put(&body);
    Ok(())
}
