//! Checks a record from a ring, and sets the fields that the process does not know or could forge.
//!
//! ```text
//!   EVENT, FULL, INSTANCE   08 u32 thread (translated)
//!                           0C u32 process (true id)
//!                           10 i64 stamp (the stream's)
//!   MESSAGE                 the same, if its flags have these fields, and the sequence number
//!   anything else           rejected: kernel events do not come from a process
//!
//!   EVENT, if its flags in the ring ask for it: the identity of the process (identity.rs) as
//!   extended data items before the items of the record
//!     │ header │ items, payload │   ──▶   │ header │ SID │ … │ items, payload │
//!   size, EXTENDED_INFO and linkage are adjusted
//! ```
//!
//! A record that already has items of those types is rejected: readers could not distinguish a
//! forged identity from a true one. A record with a stack key is rejected too: the session assigns
//! keys, and an invented key may belong to the stack of another process.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use traceweir_format::header::message::{self, Origin};
use traceweir_format::header::{self, Family, Record, event};
use traceweir_format::spec::event::{EVENT_HEADER_FLAG_EXTENDED_INFO, HeaderType};
use traceweir_format::wire::i64_at;
use traceweir_transport::abi;

use crate::identity::{self, EncodedItems, Identity};
use crate::message_sequence::MessageSequence;
use crate::process_record;

/// Thread ids cached per process before the cache is cleared.
const MAX_TRANSLATED_IDS: usize = 4096;

/// Offset of the type in a record.
const TYPE_OFFSET: usize = 2;
/// Offset of the flags in an EVENT header.
const FLAGS_OFFSET: usize = 4;
/// Offset of the linkage in an extended data item.
const LINKAGE_OFFSET: usize = 4;

/// The mapping from a process's own thread ids to the recorded ones.
#[derive(Clone)]
pub enum ThreadIdMapping {
    /// Unchanged: the process is in the PID namespace of this process.
    AsGiven,
    /// Translated by this function, which is called for each id that is not cached.
    Translated(Arc<Mutex<dyn FnMut(u32) -> u32 + Send>>),
}

impl fmt::Debug for ThreadIdMapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AsGiven => "AsGiven",
            Self::Translated(_) => "Translated",
        })
    }
}

/// Treatment of the time stamp in a record.
#[derive(Clone, Copy, Debug)]
pub(crate) enum StampPolicy {
    /// Replaces the stamp in the record with this one.
    Replaced(i64),
    /// Keeps the stamp in the record, unless it is later than `latest`: a stamp from the future
    /// would delay every live consumer.
    Kept {
        /// The stamp that the record would get with `Replaced`.
        latest: i64,
    },
}

impl StampPolicy {
    /// Returns the stamp that replaces `record_time`, or `None` to keep it.
    fn replacement_for(self, record_time: i64) -> Option<i64> {
        match self {
            Self::Replaced(time) => Some(time),
            Self::Kept { latest } => (record_time > latest).then_some(latest),
        }
    }
}

/// The process that writes the records of a region. A clone signs its records on another thread.
#[derive(Clone, Debug)]
pub(crate) struct RegionWriter {
    process_id: u32,
    thread_ids: ThreadIdMapping,
    translated_ids: HashMap<u32, u32>,
    identity: Identity,
    /// The encoded extended data items for each requested combination of the flags in
    /// [`abi::WITH_ITEMS`].
    items: HashMap<u16, EncodedItems>,
    sequence: MessageSequence,
}

impl RegionWriter {
    pub(crate) fn new(process: impl Into<Identity>, thread_ids: ThreadIdMapping) -> Self {
        let identity = process.into();
        let (translated_ids, items, sequence) = (HashMap::new(), HashMap::new(), MessageSequence::None);
        Self { process_id: identity.pid, thread_ids, translated_ids, identity, items, sequence }
    }

    /// Returns the event that describes the process; `None` if its program is unknown.
    pub(crate) fn process_record(&self) -> Option<Vec<u8>> {
        process_record::encode(&self.identity)
    }

    /// Sets the sequence that numbers the messages of the process.
    pub(crate) fn with_message_sequence(self, sequence: MessageSequence) -> Self {
        Self { sequence, ..self }
    }

    /// Returns the size of the extended data items that these flags ask for.
    pub(crate) fn item_bytes(&mut self, flags: u16) -> usize {
        let item_flags = flags & abi::WITH_ITEMS;
        let items = self.items.entry(item_flags).or_insert_with(|| self.identity.encode_items(item_flags));
        items.bytes.len()
    }

    /// Inserts the extended data items into a [signed](Self::sign) record. The record lies at the
    /// end of `space`, after a gap of the size of the items; afterwards it begins at the start of
    /// `space`. Returns the new length of the record, or `None` if the record cannot hold the
    /// items.
    pub(crate) fn add_items(&self, space: &mut [u8], flags: u16) -> Option<usize> {
        let items = self.items.get(&(flags & abi::WITH_ITEMS))?;
        let (total_length, gap) = (space.len(), items.bytes.len());
        let kind = HeaderType(*space.get(gap.checked_add(TYPE_OFFSET)?)?);
        if gap == 0 || !matches!(kind, HeaderType::EVENT_HEADER64 | HeaderType::EVENT_HEADER32) {
            space.copy_within(gap.., 0);
            let length = total_length.checked_sub(gap)?;
            // The bytes after the record may become its padding.
            space.get_mut(length..)?.fill(0);
            return Some(length);
        }
        let header: [u8; event::SIZE] = *space.get(gap..)?.first_chunk()?;
        let has_items = u16::from(*header.get(FLAGS_OFFSET)?) & EVENT_HEADER_FLAG_EXTENDED_INFO != 0;
        *space.first_chunk_mut()? = header;
        let added = space.get_mut(event::SIZE..)?.get_mut(..gap)?;
        added.copy_from_slice(&items.bytes);
        *added.get_mut(items.last_item.checked_add(LINKAGE_OFFSET)?)? |= u8::from(has_items);
        *space.get_mut(FLAGS_OFFSET)? |= EVENT_HEADER_FLAG_EXTENDED_INFO.to_le_bytes()[0];
        *space.first_chunk_mut()? = u16::try_from(total_length).ok()?.to_le_bytes();
        let is_valid = !has_items || Record::parse(space, 0).is_ok_and(|record| !record.has_damaged_items());
        is_valid.then_some(total_length)
    }

    /// Returns the true process id.
    pub(crate) const fn process_id(&self) -> u32 {
        self.process_id
    }

    #[inline]
    fn translate_thread(&mut self, thread_id: u32) -> u32 {
        match &self.thread_ids {
            ThreadIdMapping::AsGiven => thread_id,
            ThreadIdMapping::Translated(translate) => {
                if self.translated_ids.len() >= MAX_TRANSLATED_IDS {
                    self.translated_ids.clear();
                }
                if let Some(translated) = self.translated_ids.get(&thread_id) {
                    return *translated;
                }
                let mut translate = translate.lock().unwrap_or_else(PoisonError::into_inner);
                let translated = translate(thread_id);
                // Not cached if unknown: the next translation may succeed.
                if translated != header::NO_ID {
                    self.translated_ids.insert(thread_id, translated);
                }
                translated
            }
        }
    }

    /// Checks a record and sets its identity and time. Returns whether it may be stored.
    #[inline]
    pub(crate) fn sign(&mut self, record: &mut [u8], stamp: StampPolicy) -> bool {
        if self.is_plain_event(record) {
            self.sign_header(record, stamp);
            return true;
        }
        self.sign_parsed(record, stamp)
    }

    /// Returns whether a record is the common case: an EVENT without extended data items.
    #[inline]
    fn is_plain_event(&self, record: &[u8]) -> bool {
        // Size, header type, marker of records with such a header, and the low byte of the flags.
        let Some(&[low, high, kind, 0xC0, flags, ..]) = record.first_chunk::<{ event::SIZE }>() else {
            return false;
        };
        usize::from(u16::from_le_bytes([low, high])) == record.len()
            && matches!(HeaderType(kind), HeaderType::EVENT_HEADER64 | HeaderType::EVENT_HEADER32)
            && u16::from(flags) & EVENT_HEADER_FLAG_EXTENDED_INFO == 0
    }

    fn sign_parsed(&mut self, record: &mut [u8], stamp: StampPolicy) -> bool {
        let Ok(view) = Record::parse(record, 0) else { return false };
        if view.bytes().len() != record.len() || view.has_damaged_items() {
            return false;
        }
        let (thread_id, time) = (view.thread_id(), stamp.replacement_for(view.time()));
        if view.items().any(|item| identity::is_session_item(item.kind)) {
            return false;
        }
        match view.family() {
            Family::Event | Family::Full | Family::Instance => self.sign_header(record, stamp),
            Family::Message => {
                let thread_id = self.translate_thread(thread_id);
                message::set_origin(record, &Origin { time, thread_id, process_id: self.process_id });
                self.sequence.write_next_number(record);
            }
            _ => return false,
        }
        true
    }

    #[inline]
    fn sign_header(&mut self, record: &mut [u8], stamp: StampPolicy) {
        let Some(header) = record.first_chunk_mut::<0x18>() else { return };
        if matches!(self.thread_ids, ThreadIdMapping::Translated(_)) {
            let [_, _, _, _, _, _, _, _, a, b, c, d, ..] = *header;
            let thread = self.translate_thread(u32::from_le_bytes([a, b, c, d]));
            header[0x08..0x0C].copy_from_slice(&thread.to_le_bytes());
        }
        header[0x0C..0x10].copy_from_slice(&self.process_id.to_le_bytes());
        let time = match stamp {
            StampPolicy::Replaced(time) => Some(time),
            StampPolicy::Kept { .. } => stamp.replacement_for(i64_at(header, 0x10)),
        };
        if let Some(time) = time {
            header[0x10..0x18].copy_from_slice(&time.to_le_bytes());
        }
    }
}

#[cfg(test)]
mod tests;
