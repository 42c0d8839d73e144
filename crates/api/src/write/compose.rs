//! The bytes of a record: header, extended data items, payload.
//!
//! The bytes are those of the file (`traceweir_format::header::event`), except for the process id
//! and, unless the caller passed one, the time stamp: the owner of the region fills them in.
//! Extended data items, here with the number of their type, come in this order: traits (12), schema
//! (11), related activity (1), event key (10), stack (6). If the traits name another GUID to decode
//! by, the header contains that GUID, and item 14, before all others, contains the provider's own
//! GUID.

use traceweir_format::header::event;
use traceweir_format::header::extended::ITEM_HEAD_BYTES;
use traceweir_format::spec::event::{EVENT_HEADER_FLAG_EXTENDED_INFO, ExtType, HeaderType};

use super::Options;
use super::stage::Stage;
use crate::event::{CallerEvent, item_head};
use crate::process::thread;
use crate::registration::{DecodeGuidWords, RegistrationSlot};

/// The bits of the first header word other than size and flags: the header type, and 0xC0, which
/// marks a trace header.
pub(super) const FIRST_WORD_BITS: u64 = (HeaderType::EVENT_HEADER64.0 as u64) << 16 | 0xC0 << 24;

/// Bytes of the usual items without the data of traits and metadata: heads and padding of those
/// two, and a related activity.
const OTHER_ITEM_BYTES: usize = 2 * (ITEM_HEAD_BYTES + 7) + ITEM_HEAD_BYTES + 16;

const ZEROS: [u8; 8] = [0; 8];

/// The sources of an event's plain record: the record without items that only some sessions get.
#[derive(Clone, Copy)]
pub(super) struct RecordSource<'a> {
    pub(super) slot: &'a RegistrationSlot,
    pub(super) event: &'a CallerEvent<'a>,
    pub(super) options: &'a Options<'a>,
    pub(super) thread: u32,
}

impl<'a> RecordSource<'a> {
    /// Returns the traits that the event carries: those of the registration, else those of the
    /// call.
    #[inline(always)]
    fn traits(&self) -> &'a [u8] {
        let traits = self.slot.traits();
        if traits.is_empty() { self.options.traits } else { traits }
    }

    /// Returns whether the items of the plain record fit into the staged words, its header has no
    /// decode GUID, and its payload is one run of blocks.
    #[inline(always)]
    pub(super) fn is_small(&self) -> bool {
        let traits = self.traits();
        let bytes = traits.len().saturating_add(self.event.metadata.map_or(0, <[u8]>::len));
        let has_decode_guid = !traits.is_empty() && self.slot.decoding().is_some();
        !has_decode_guid
            && !self.event.is_mixed
            && Stage::can_stage_items(bytes.saturating_add(OTHER_ITEM_BYTES))
    }

    /// Composes the plain record of an event for which [`is_small`](Self::is_small) holds, and
    /// returns its size in bytes.
    #[inline(always)]
    pub(super) fn compose_small(&self, stage: &mut Stage<'a>) -> usize {
        let (event, traits) = (self.event, self.traits());
        stage.begin(self.header_words());
        if traits.is_empty() && event.metadata.is_none() && event.related.is_none() {
            return self.finish(stage, 0);
        }
        let is_schema_followed = event.related.is_some();
        let are_traits_followed = event.metadata.is_some() || is_schema_followed;
        let traits = (item_head(ExtType::PROV_TRAITS, traits.len(), are_traits_followed), traits);
        let schema = event.metadata.map(|metadata| {
            (item_head(ExtType::EVENT_SCHEMA_TL, metadata.len(), is_schema_followed), metadata)
        });
        let related = event.related.map(|id| {
            let [low, high] = id.to_words();
            [item_head(ExtType::RELATED_ACTIVITYID, 16, false), low, high]
        });
        stage.stage_items([(!traits.1.is_empty()).then_some(traits), schema], related);
        self.finish(stage, EVENT_HEADER_FLAG_EXTENDED_INFO)
    }

    /// Composes the record with any items and returns its size in bytes. The size field of a record
    /// above `MAX_RECORD_BYTES` is wrong.
    #[inline(never)]
    pub(super) fn compose(&self, stage: &mut Stage<'a>, items: &'a RecordItems<'a>) -> usize {
        stage.begin(self.header_words());
        if items.has_items {
            if !items.traits.1.is_empty()
                && let Some(decoding) = self.slot.decoding()
            {
                set_decode_guid(stage, decoding);
            }
            items.push_to(stage);
        }
        self.finish(stage, if items.has_items { EVENT_HEADER_FLAG_EXTENDED_INFO } else { 0 })
    }

    /// Appends the payload, writes the first header word and returns the size in bytes.
    #[inline(always)]
    fn finish(&self, stage: &mut Stage<'a>, flags: u16) -> usize {
        if self.event.is_mixed {
            stage.push_mixed_payload(self.event.blocks);
        } else {
            stage.push_payload(self.event.blocks);
        }
        stage.set_first_word(
            stage.size() as u64 | FIRST_WORD_BITS | u64::from(self.event.flags | flags) << 32,
        );
        stage.size()
    }

    /// Returns EVENT_HEADER as words, except for the first word; the offsets are those of
    /// `traceweir_format::header::event`.
    #[inline(always)]
    fn header_words(&self) -> [u64; event::SIZE / 8] {
        let provider = self.slot.provider_words();
        let fields = self.event.descriptor;
        let descriptor = u64::from(fields.id)
            | u64::from(fields.version) << 16
            | u64::from(fields.channel) << 24
            | u64::from(fields.level) << 32
            | u64::from(fields.opcode) << 40
            | u64::from(fields.task) << 48;
        let activity = match self.event.activity {
            Some(id) => id.to_words(),
            None => thread::activity().to_words(),
        };
        let stamp = self.options.stamp.unwrap_or(0);
        // `finish` sets the first word. The 0 after the keyword stands for the processor times.
        [
            0,
            u64::from(self.thread),
            stamp,
            provider[0],
            provider[1],
            descriptor,
            fields.keyword,
            0,
            activity[0],
            activity[1],
        ]
    }
}

/// Replaces the provider id in the header with the decode GUID, and appends item 14.
#[cold]
fn set_decode_guid(stage: &mut Stage<'_>, decoding: &'static DecodeGuidWords) {
    stage.set_provider(decoding.header_guid);
    stage.push(&decoding.control_item);
}

/// The head of an extended data item in memory.
type ItemHead = [u8; ITEM_HEAD_BYTES];

fn head_bytes(kind: ExtType, length: usize, another_follows: bool) -> ItemHead {
    item_head(kind, length, another_follows).to_le_bytes()
}

/// The extended data items of one event: heads that stay in memory until the record is written, and
/// the data in the caller's memory.
pub(super) struct RecordItems<'a> {
    has_items: bool,
    traits: (ItemHead, &'a [u8]),
    schema: (ItemHead, Option<&'a [u8]>),
    related: (ItemHead, Option<[u8; 16]>),
    session_items: &'a SessionItems<'a>,
}

impl<'a> RecordItems<'a> {
    /// Builds the items of the event, followed by those that only some sessions get.
    pub(super) fn new(source: &RecordSource<'a>, session_items: &'a SessionItems<'a>) -> Self {
        let (traits, metadata, related) = (source.traits(), source.event.metadata, source.event.related);
        let is_related_followed = !session_items.is_empty();
        let is_schema_followed = related.is_some() || is_related_followed;
        let are_traits_followed = metadata.is_some() || is_schema_followed;
        Self {
            has_items: are_traits_followed || !traits.is_empty(),
            traits: (head_bytes(ExtType::PROV_TRAITS, traits.len(), are_traits_followed), traits),
            schema: (
                head_bytes(ExtType::EVENT_SCHEMA_TL, metadata.map_or(0, <[u8]>::len), is_schema_followed),
                metadata,
            ),
            related: (
                head_bytes(ExtType::RELATED_ACTIVITYID, 16, is_related_followed),
                related.map(|id| id.to_bytes()),
            ),
            session_items,
        }
    }

    fn push_to(&'a self, stage: &mut Stage<'a>) {
        if !self.traits.1.is_empty() {
            push_item(stage, &self.traits.0, self.traits.1);
        }
        if let Some(metadata) = self.schema.1 {
            push_item(stage, &self.schema.0, metadata);
        }
        if let Some(related) = &self.related.1 {
            push_item(stage, &self.related.0, related);
        }
        self.session_items.push_to(stage);
    }
}

/// Items that only some sessions get.
pub(super) struct SessionItems<'a> {
    key: (ItemHead, Option<[u8; 8]>),
    stack: (ItemHead, Option<&'a [u8]>),
}

impl<'a> SessionItems<'a> {
    pub(super) fn new(key: Option<u64>, stack: Option<&'a [u8]>) -> Self {
        Self {
            key: (head_bytes(ExtType::EVENT_KEY, 8, stack.is_some()), key.map(u64::to_le_bytes)),
            stack: (head_bytes(ExtType::STACK_TRACE64, stack.map_or(0, <[u8]>::len), false), stack),
        }
    }

    /// Returns whether there are no such items; then the item before them is the last one.
    fn is_empty(&self) -> bool {
        self.key.1.is_none() && self.stack.1.is_none()
    }

    /// Returns the bytes that the items add to a record.
    pub(super) fn size(&self) -> usize {
        // Neither needs padding: both consist of whole words.
        self.key.1.map_or(0, |key| ITEM_HEAD_BYTES + key.len())
            + self.stack.1.map_or(0, |frames| ITEM_HEAD_BYTES + frames.len())
    }

    fn push_to(&'a self, stage: &mut Stage<'a>) {
        if let Some(key) = &self.key.1 {
            push_item(stage, &self.key.0, key);
        }
        if let Some(frames) = self.stack.1 {
            push_item(stage, &self.stack.0, frames);
        }
    }
}

fn push_item<'a>(stage: &mut Stage<'a>, head: &'a ItemHead, data: &'a [u8]) {
    stage.push(head);
    stage.push(data);
    stage.push(ZEROS.get(..data.len().wrapping_neg() % 8).unwrap_or(&[]));
}
