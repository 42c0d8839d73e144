//! Checks a record from a ring, and sets the fields that the process cannot know or is not trusted
//! with.
//!
//! ```text
//!   EVENT, FULL, INSTANCE   08 u32 thread (translated)
//!                           0C u32 process (true id)
//!                           10 i64 stamp (the stream's)
//!   MESSAGE                 the same, if its flags have these fields, and the sequence number
//!   anything else           rejected: kernel events do not come from a process
//!
//!   EVENT, if its flags in the ring ask for it: the identity of the process (identity.rs) as
//!   extended data items before its own
//!     │ header │ items, payload │   ──▶   │ header │ SID │ … │ items, payload │
//!   size, EXTENDED_INFO and linkage are adjusted
//! ```
//!
//! A record that already has items of those types is rejected: readers could not distinguish a
//! forged identity from a true one. So is one with a stack key: the session assigns keys, and an
//! invented one is the key of another process's stack.

use std::collections::HashMap;
use std::fmt;

use traceweir_format::header::message::{self, Origin};
use traceweir_format::header::{self, Family, Record, event};
use traceweir_format::spec::event::{EVENT_HEADER_FLAG_EXTENDED_INFO, HeaderType};
use traceweir_format::wire::i64_at;
use traceweir_transport::abi;

use crate::identity::{self, Identity, Items};
use crate::sequence::Sequence;

/// Thread ids cached per process before the cache is cleared.
const MAX_TRANSLATED: usize = 4096;

/// Offsets of the type of a record, of the flags of an EVENT header, and of the linkage of an item.
const KIND: usize = 2;
const FLAGS: usize = 4;
const LINKAGE: usize = 4;

/// Treatment of a process's thread ids.
pub enum Threads {
    /// Unchanged: the process is in the namespace of this process.
    AsGiven,
    /// Translated by this function, which is called once for each new id.
    Translated(Box<dyn FnMut(u32) -> u32 + Send>),
}

impl fmt::Debug for Threads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AsGiven => "AsGiven",
            Self::Translated(_) => "Translated",
        })
    }
}

/// Treatment of a record's own time stamp.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Stamp {
    /// Replaces it with this one.
    Ours(i64),
    /// Keeps it, but no later than the time of collection: a stamp from the future would delay
    /// every live consumer.
    Kept {
        /// Latest possible time of writing.
        latest: i64,
    },
}

impl Stamp {
    /// Returns the stamp that replaces the record's own, or `None` to keep that.
    fn replacement_for(self, own: i64) -> Option<i64> {
        match self {
            Self::Ours(time) => Some(time),
            Self::Kept { latest } => (own > latest).then_some(latest),
        }
    }
}

/// The process that writes the records of a region.
#[derive(Debug)]
pub(crate) struct Writer {
    process: u32,
    threads: Threads,
    translated_ids: HashMap<u32, u32>,
    identity: Identity,
    /// Its extended data items for each combination of flags that was asked for: at most
    /// thirty-two.
    items: HashMap<u16, Items>,
    sequence: Sequence,
}

impl Writer {
    pub(crate) fn new(process: impl Into<Identity>, threads: Threads) -> Self {
        let identity = process.into();
        let (translated_ids, items, sequence) = (HashMap::new(), HashMap::new(), Sequence::None);
        Self { process: identity.pid, threads, translated_ids, identity, items, sequence }
    }

    /// Numbers its messages from `sequence`.
    pub(crate) fn numbered(self, sequence: Sequence) -> Self {
        Self { sequence, ..self }
    }

    /// Returns the size of the extended data items that these flags ask for.
    pub(crate) fn item_bytes(&mut self, flags: u16) -> usize {
        let asked = flags & abi::WITH_ITEMS;
        let items = self.items.entry(asked).or_insert_with(|| self.identity.items(asked));
        items.bytes.len()
    }

    /// Inserts the extended data items into a signed record, which lies after room for them; the
    /// record then begins at the start of `room`. Returns its length, or `None` if it would have
    /// more items than a record can have.
    pub(crate) fn add_items(&self, room: &mut [u8], flags: u16) -> Option<usize> {
        let items = self.items.get(&(flags & abi::WITH_ITEMS))?;
        let (total_length, gap) = (room.len(), items.bytes.len());
        let kind = HeaderType(*room.get(gap.checked_add(KIND)?)?);
        if gap == 0 || !matches!(kind, HeaderType::EVENT_HEADER64 | HeaderType::EVENT_HEADER32) {
            room.copy_within(gap.., 0);
            let length = total_length.checked_sub(gap)?;
            // The bytes after it may become its padding.
            room.get_mut(length..)?.fill(0);
            return Some(length);
        }
        let header: [u8; event::SIZE] = *room.get(gap..)?.first_chunk()?;
        let has_items = u16::from(*header.get(FLAGS)?) & EVENT_HEADER_FLAG_EXTENDED_INFO != 0;
        *room.first_chunk_mut()? = header;
        let added = room.get_mut(event::SIZE..)?.get_mut(..gap)?;
        added.copy_from_slice(&items.bytes);
        *added.get_mut(items.last.checked_add(LINKAGE)?)? |= u8::from(has_items);
        *room.get_mut(FLAGS)? |= EVENT_HEADER_FLAG_EXTENDED_INFO.to_le_bytes()[0];
        *room.first_chunk_mut()? = u16::try_from(total_length).ok()?.to_le_bytes();
        let is_valid = !has_items || Record::parse(room, 0).is_ok_and(|record| !record.items_damaged());
        is_valid.then_some(total_length)
    }

    /// Returns the true process id.
    pub(crate) const fn process(&self) -> u32 {
        self.process
    }

    #[inline]
    fn thread(&mut self, given: u32) -> u32 {
        match &mut self.threads {
            Threads::AsGiven => given,
            Threads::Translated(translate) => {
                if self.translated_ids.len() >= MAX_TRANSLATED {
                    self.translated_ids.clear();
                }
                if let Some(translated_ids) = self.translated_ids.get(&given) {
                    return *translated_ids;
                }
                let found = translate(given);
                // Not cached if unknown: the next translation may succeed.
                if found != header::NO_ID {
                    self.translated_ids.insert(given, found);
                }
                found
            }
        }
    }

    /// Checks a record and sets its identity and time. Returns whether it may be stored.
    #[inline]
    pub(crate) fn sign(&mut self, record: &mut [u8], stamp: Stamp) -> bool {
        if self.is_plain_event(record) {
            self.sign_header(record, stamp);
            return true;
        }
        self.sign_other(record, stamp)
    }

    /// Recognises the common case: an EVENT without extended data items.
    #[inline]
    fn is_plain_event(&self, record: &[u8]) -> bool {
        let Some(&[low, high, kind, 0xC0, flags, ..]) = record.first_chunk::<{ event::SIZE }>() else {
            return false;
        };
        usize::from(u16::from_le_bytes([low, high])) == record.len()
            && matches!(HeaderType(kind), HeaderType::EVENT_HEADER64 | HeaderType::EVENT_HEADER32)
            && u16::from(flags) & EVENT_HEADER_FLAG_EXTENDED_INFO == 0
    }

    fn sign_other(&mut self, record: &mut [u8], stamp: Stamp) -> bool {
        let Ok(view) = Record::parse(record, 0) else { return false };
        if view.bytes().len() != record.len() || view.items_damaged() {
            return false;
        }
        let (given, time) = (view.thread_id(), stamp.replacement_for(view.time()));
        if view.items().any(|item| identity::is_ours(item.kind)) {
            return false;
        }
        match view.family() {
            Family::Event | Family::Full | Family::Instance => self.sign_header(record, stamp),
            Family::Message => {
                let thread_id = self.thread(given);
                message::set_origin(record, &Origin { time, thread_id, process_id: self.process });
                self.sequence.number(record);
            }
            _ => return false,
        }
        true
    }

    #[inline]
    fn sign_header(&mut self, record: &mut [u8], stamp: Stamp) {
        let Some(header) = record.first_chunk_mut::<0x18>() else { return };
        if matches!(self.threads, Threads::Translated(_)) {
            let [_, _, _, _, _, _, _, _, a, b, c, d, ..] = *header;
            let thread = self.thread(u32::from_le_bytes([a, b, c, d]));
            header[0x08..0x0C].copy_from_slice(&thread.to_le_bytes());
        }
        header[0x0C..0x10].copy_from_slice(&self.process.to_le_bytes());
        let time = match stamp {
            Stamp::Ours(time) => Some(time),
            Stamp::Kept { .. } => stamp.replacement_for(i64_at(header, 0x10)),
        };
        if let Some(time) = time {
            header[0x10..0x18].copy_from_slice(&time.to_le_bytes());
        }
    }
}

#[cfg(test)]
mod tests;
