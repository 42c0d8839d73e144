//! The extended items of an event that is put together on the stack: heads, data where it lies, zeros up to a multiple of eight.

use traceweir_format::Guid;
use traceweir_format::header::extended::ITEM_HEAD;
use traceweir_format::spec::event::ExtType;

use crate::provider::stage::Stage;

const ZEROS: [u8; 8] = [0; 8];

/// The extended items of one event: heads that stay on the stack until the record is written, and the data where it lies.
pub(in crate::provider) struct Items<'a> {
    pub(super) any: bool,
    pub(super) traits: ([u8; ITEM_HEAD], &'a [u8]),
    schema: ([u8; ITEM_HEAD], Option<&'a [u8]>),
    related: ([u8; ITEM_HEAD], Option<[u8; 16]>),
    extras: Option<&'a Extras<'a>>,
}

impl<'a> Items<'a> {
    /// Those of the event, and behind them what only some sessions get.
    pub(in crate::provider) fn with(
        traits: &'a [u8],
        metadata: Option<&'a [u8]>,
        related: Option<&Guid>,
        extras: Option<&'a Extras<'a>>,
    ) -> Self {
        let behind_related = extras.is_some_and(|it| !it.is_empty());
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

    /// Whether there are none: then no item may be linked to them.
    fn is_empty(&self) -> bool {
        self.key.1.is_none() && self.stack.1.is_none()
    }

    /// Bytes that they make a record larger.
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

/// What stands in front of an item's data. Sizes beyond 16 bits are cut: then the record is too large as well, and is refused by its own size.
#[inline(always)]
pub(in crate::provider) fn item_word(kind: ExtType, length: usize, another_follows: bool) -> u64 {
    // Not `next_multiple_of`, which looks whether it overflows.
    let whole = (ITEM_HEAD + 7).wrapping_add(length) as u16 & !7;
    u64::from(whole)
        | u64::from(kind.0) << 16
        | u64::from(another_follows) << 32
        | u64::from(length as u16) << 48
}

/// The same as bytes.
#[inline(always)]
pub(in crate::provider) fn item_head(kind: ExtType, length: usize, another_follows: bool) -> [u8; ITEM_HEAD] {
    item_word(kind, length, another_follows).to_le_bytes()
}

fn push_item<'a>(stage: &mut Stage<'a>, head: &'a [u8; ITEM_HEAD], data: &'a [u8]) {
    stage.push(head);
    stage.push(data);
    stage.push(ZEROS.get(..data.len().wrapping_neg() % 8).unwrap_or(&[]));
}
