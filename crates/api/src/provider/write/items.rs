//! The extended data items of a composed event: heads, data in place, zeros up to a multiple of
//! eight.

use traceweir_format::Guid;
use traceweir_format::header::extended::ITEM_HEAD;
use traceweir_format::spec::event::ExtType;

use crate::provider::stage::Stage;

const ZEROS: [u8; 8] = [0; 8];

/// The extended data items of one event: heads that stay on the stack until the record is written,
/// and the data in the caller's memory.
pub(in crate::provider) struct Items<'a> {
    pub(super) any: bool,
    pub(super) traits: ([u8; ITEM_HEAD], &'a [u8]),
    schema: ([u8; ITEM_HEAD], Option<&'a [u8]>),
    related: ([u8; ITEM_HEAD], Option<[u8; 16]>),
    extras: Option<&'a Extras<'a>>,
}

impl<'a> Items<'a> {
    /// Builds the items of the event, followed by those that only some sessions get.
    pub(in crate::provider) fn with(
        traits: &'a [u8],
        metadata: Option<&'a [u8]>,
        related: Option<&Guid>,
        extras: Option<&'a Extras<'a>>,
    ) -> Self {
        let behind_related = extras.is_some_and(|extras| !extras.is_empty());
        let behind_schema = related.is_some() || behind_related;
        let behind_traits = metadata.is_some() || behind_schema;
        Self {
            any: behind_traits || !traits.is_empty(),
            traits: (item_head(ExtType::PROV_TRAITS, traits.len(), behind_traits), traits),
            schema: (
                item_head(ExtType::EVENT_SCHEMA_TL, metadata.map_or(0, <[u8]>::len), behind_schema),
                metadata,
            ),
            related: (
                item_head(ExtType::RELATED_ACTIVITYID, 16, behind_related),
                related.map(|id| id.to_bytes()),
            ),
            extras,
        }
    }

    pub(super) fn push_to(&'a self, stage: &mut Stage<'a>) {
        if !self.traits.1.is_empty() {
            push_item(stage, &self.traits.0, self.traits.1);
        }
        if let Some(metadata) = self.schema.1 {
            push_item(stage, &self.schema.0, metadata);
        }
        if let Some(related) = &self.related.1 {
            push_item(stage, &self.related.0, related);
        }
        if let Some(extras) = self.extras {
            extras.push_to(stage);
        }
    }
}

/// Items that only some sessions get.
pub(in crate::provider) struct Extras<'a> {
    key: ([u8; ITEM_HEAD], Option<[u8; 8]>),
    stack: ([u8; ITEM_HEAD], Option<&'a [u8]>),
}

impl<'a> Extras<'a> {
    pub(in crate::provider) fn new(key: Option<u64>, stack: Option<&'a [u8]>) -> Self {
        Self {
            key: (item_head(ExtType::EVENT_KEY, 8, stack.is_some()), key.map(u64::to_le_bytes)),
            stack: (item_head(ExtType::STACK_TRACE64, stack.map_or(0, <[u8]>::len), false), stack),
        }
    }

    /// Returns whether there are no extra items; then no item may be linked to them.
    fn is_empty(&self) -> bool {
        self.key.1.is_none() && self.stack.1.is_none()
    }

    /// Returns the bytes that the items add to a record.
    pub(in crate::provider) fn size(&self) -> usize {
        // Both are whole words.
        self.key.1.map_or(0, |key| ITEM_HEAD + key.len())
            + self.stack.1.map_or(0, |frames| ITEM_HEAD + frames.len())
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

/// Returns the head of an item. A size beyond 16 bits is truncated: such a record is too large and
/// refused by its own size.
#[inline(always)]
pub(in crate::provider) fn item_word(kind: ExtType, length: usize, another_follows: bool) -> u64 {
    // Not `next_multiple_of`, which checks for overflow.
    let whole = (ITEM_HEAD + 7).wrapping_add(length) as u16 & !7;
    u64::from(whole)
        | u64::from(kind.0) << 16
        | u64::from(another_follows) << 32
        | u64::from(length as u16) << 48
}

/// Returns the head of an item as bytes.
#[inline(always)]
pub(in crate::provider) fn item_head(kind: ExtType, length: usize, another_follows: bool) -> [u8; ITEM_HEAD] {
    item_word(kind, length, another_follows).to_le_bytes()
}

fn push_item<'a>(stage: &mut Stage<'a>, head: &'a [u8; ITEM_HEAD], data: &'a [u8]) {
    stage.push(head);
    stage.push(data);
    stage.push(ZEROS.get(..data.len().wrapping_neg() % 8).unwrap_or(&[]));
}
