//! One record on its way from a ring into a buffer: is it what it says, and what the process cannot know or is not trusted with.
//!
//! ```text
//!   EVENT, FULL, INSTANCE   08 u32 thread (translated) │ 0C u32 process (ours) │ 10 i64 stamp (the stream's)
//!   MESSAGE                 the same, where its flags give room, and the sequence number
//!   anything else           refused: kernel events do not come from a process
//!
//!   EVENT, where its flags in the ring ask for it: what the process is (identity.rs), in front of the items that it has
//!     │ header │ items, payload │   ──▶   │ header │ SID │ … │ items, payload │        size, EXTENDED_INFO and linkage follow
//! ```
//!
//! A record that brings items of those types itself is refused: it would say who wrote it, and nobody could tell the difference. So is one with the key of a
//! stack: keys are the session's, and one that is invented is that of somebody else's stack.

use std::collections::HashMap;
use std::fmt;

use traceweir_format::header::message::{self, Origin};
use traceweir_format::header::{self, Family, Record, event};
use traceweir_format::spec::event::{EVENT_HEADER_FLAG_EXTENDED_INFO, HeaderType};
use traceweir_format::wire::i64_at;
use traceweir_transport::abi;

use crate::identity::{self, Identity, Items};
use crate::sequence::Sequence;

/// Thread ids remembered for a process before all are asked for again.
const REMEMBERED: usize = 4096;

/// Where the type of a record and the flags of an EVENT header are, and the linkage of an item.
const KIND: usize = 2;
const FLAGS: usize = 4;
const LINKAGE: usize = 4;

/// How thread ids of a process are written.
pub enum Threads {
    /// As the process gave them: it lives in this process's namespace.
    AsGiven,
    /// Translated: called once for each new id.
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

/// What becomes of a record's own time stamp.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Stamp {
    /// It is replaced by this one.
    Ours(i64),
    /// It is kept, but nothing was written later than it was collected: a stamp from the future would hold up every live consumer.
    Kept {
        /// When it was written at the latest.
        latest: i64,
    },
}

impl Stamp {
    /// The stamp to be written in place of the record's own; `None`: its own stays.
    fn instead_of(self, own: i64) -> Option<i64> {
        match self {
            Self::Ours(time) => Some(time),
            Self::Kept { latest } => (own > latest).then_some(latest),
        }
    }
}

/// Who writes the records of a region.
#[derive(Debug)]
pub(crate) struct Writer {
    process: u32,
    threads: Threads,
    known: HashMap<u32, u32>,
    identity: Identity,
    /// Its items for each combination of flags that was asked for: thirty-two at most.
    items: HashMap<u16, Items>,
    sequence: Sequence,
}

impl Writer {
    pub(crate) fn new(who: impl Into<Identity>, threads: Threads) -> Self {
        let identity = who.into();
        let (known, items, sequence) = (HashMap::new(), HashMap::new(), Sequence::None);
        Self { process: identity.pid, threads, known, identity, items, sequence }
    }

    /// Whose messages get their numbers from here.
    pub(crate) fn numbered(self, sequence: Sequence) -> Self {
        Self { sequence, ..self }
    }

    /// Bytes of the items that these flags ask for.
    pub(crate) fn item_bytes(&mut self, flags: u16) -> usize {
        let asked = flags & abi::WITH_ITEMS;
        let items = self.items.entry(asked).or_insert_with(|| self.identity.items(asked));
        items.bytes.len()
    }

    /// Puts the items into a signed record that lies behind room for them; the record begins with `room` then. Its length, or `None` where it would have
    /// more items than a record can.
    pub(crate) fn add_items(&self, room: &mut [u8], flags: u16) -> Option<usize> {
        let items = self.items.get(&(flags & abi::WITH_ITEMS))?;
        let (whole, gap) = (room.len(), items.bytes.len());
        let kind = HeaderType(*room.get(gap.checked_add(KIND)?)?);
        if gap == 0 || !matches!(kind, HeaderType::EVENT_HEADER64 | HeaderType::EVENT_HEADER32) {
            room.copy_within(gap.., 0);
            let length = whole.checked_sub(gap)?;
            // What is behind it may become its padding.
            room.get_mut(length..)?.fill(0);
            return Some(length);
        }
        let header: [u8; event::SIZE] = *room.get(gap..)?.first_chunk()?;
        let has_items = u16::from(*header.get(FLAGS)?) & EVENT_HEADER_FLAG_EXTENDED_INFO != 0;
        *room.first_chunk_mut()? = header;
        let place = room.get_mut(event::SIZE..)?.get_mut(..gap)?;
        place.copy_from_slice(&items.bytes);
        *place.get_mut(items.last.checked_add(LINKAGE)?)? |= u8::from(has_items);
        *room.get_mut(FLAGS)? |= EVENT_HEADER_FLAG_EXTENDED_INFO.to_le_bytes()[0];
        *room.first_chunk_mut()? = u16::try_from(whole).ok()?.to_le_bytes();
        let sound = !has_items || Record::parse(room, 0).is_ok_and(|record| !record.items_damaged());
        sound.then_some(whole)
    }

    /// The process, as the session knows it.
    pub(crate) const fn process(&self) -> u32 {
        self.process
    }

    #[inline]
    fn thread(&mut self, given: u32) -> u32 {
        match &mut self.threads {
            Threads::AsGiven => given,
            Threads::Translated(translate) => {
                if self.known.len() >= REMEMBERED {
                    self.known.clear();
                }
                if let Some(known) = self.known.get(&given) {
                    return *known;
                }
                let found = translate(given);
                // A thread that is not known yet may be the next time.
                if found != header::NO_ID {
                    self.known.insert(given, found);
                }
                found
            }
        }
    }

    /// Checks a record and signs it. Whether it may be stored.
    #[inline]
    pub(crate) fn sign(&mut self, record: &mut [u8], stamp: Stamp) -> bool {
        if self.is_plain_event(record) {
            self.sign_header(record, stamp);
            return true;
        }
        self.sign_other(record, stamp)
    }

    /// The common case: an EVENT without extended items.
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
        let (given, time) = (view.thread_id(), stamp.instead_of(view.time()));
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
            Stamp::Kept { .. } => stamp.instead_of(i64_at(header, 0x10)),
        };
        if let Some(time) = time {
            header[0x10..0x18].copy_from_slice(&time.to_le_bytes());
        }
    }
}

#[cfg(test)]
mod tests;
