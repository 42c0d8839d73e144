//! Extended data items, which lie between an EVENT header and its payload.
//!
//! ```text
//! 00 u16 item size = align8(8 + DataSize) │ 02 u16 ExtType │ 04 u16 bit 0 Linkage: another follows
//! 06 u16 DataSize │ 08 data
//! ```
//!
//! The published structure holds a pointer; a file holds the data in place. Items of unknown types
//! are skipped by their size. Source: Documented ("EVENT_HEADER_EXTENDED_DATA_ITEM") for the
//! contents, Observed for the bytes.

use alloc::vec::Vec;

use crate::guid::Guid;
use crate::spec::event::ExtType;
use crate::wire::{Put, align8, chunk, guid_at, u64_at};
use crate::{Error, Result};

/// The largest number of items of one event.
pub const MAX_ITEMS: usize = 32;

/// Size of an item's head, before its data, in bytes.
pub const ITEM_HEAD_BYTES: usize = 8;

/// One extended data item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item<'a> {
    /// The type of the item.
    pub kind: ExtType,
    /// The data after the item's head.
    pub data: &'a [u8],
}

/// Returns the offset after the items that begin at `at`, where the payload begins; `None` if the
/// items do not fit the record.
#[inline]
pub(super) fn end_of_items(record: &[u8], mut at: usize) -> Option<usize> {
    for _ in 0..MAX_ITEMS {
        let head = chunk::<ITEM_HEAD_BYTES>(record, at)?;
        let [size, _, linkage, data] = split_head(u64::from_le_bytes(*head));
        let (size, data) = (usize::from(size), usize::from(data));
        // Sums of a few 16-bit numbers: nothing wraps.
        if size < ITEM_HEAD_BYTES.wrapping_add(data) || size & 7 != 0 {
            return None;
        }
        at = at.wrapping_add(size);
        if at > record.len() {
            return None;
        }
        if linkage & 1 == 0 {
            return Some(at);
        }
    }
    None
}

/// Iterates over items whose bounds have been checked.
#[derive(Clone, Debug)]
pub struct ExtendedItems<'b> {
    remaining: &'b [u8],
}

impl<'b> ExtendedItems<'b> {
    pub(super) const fn new(remaining: &'b [u8]) -> Self {
        Self { remaining }
    }

    /// Returns the encoded items.
    #[inline]
    #[must_use]
    pub const fn bytes(&self) -> &'b [u8] {
        self.remaining
    }

    /// Returns the data of the first item of a type.
    #[inline]
    #[must_use]
    pub fn data_of(mut self, kind: ExtType) -> Option<&'b [u8]> {
        self.find_map(|i| (i.kind == kind).then_some(i.data))
    }

    /// Returns the related activity, if the event has one.
    #[must_use]
    pub fn related_activity(self) -> Option<Guid> {
        let data = self.data_of(ExtType::RELATED_ACTIVITYID)?;
        (data.len() >= 16).then(|| guid_at(data, 0))
    }

    /// Returns the call stack, if the event has one.
    #[must_use]
    pub fn stack(mut self) -> Option<Stack<'b>> {
        self.find_map(|i| {
            let address_bytes = match i.kind {
                ExtType::STACK_TRACE32 => 4,
                ExtType::STACK_TRACE64 => 8,
                _ => return None,
            };
            Some(Stack { match_id: u64_at(i.data, 0), frames: i.data.get(8..)?, address_bytes })
        })
    }
}

impl<'b> ExtendedItems<'b> {
    /// Returns the next item: the four numbers of its head, as one number, and its data.
    #[inline(always)]
    fn take_next(&mut self) -> Option<(u64, &'b [u8])> {
        let (head, after) = self.remaining.split_first_chunk::<ITEM_HEAD_BYTES>()?;
        let head = u64::from_le_bytes(*head);
        let [size, _, _, data] = split_head(head);
        let data = after.get(..usize::from(data))?;
        self.remaining = after.get(usize::from(size).checked_sub(ITEM_HEAD_BYTES)?..)?;
        Some((head, data))
    }

    /// Iterates over the items. Yields the first eight bytes of the published structure, and all
    /// bytes from the start of the item's data. Type, linkage and data size have the same offsets
    /// in the structure as in a file.
    #[inline(always)]
    pub fn iter_published(self) -> impl Iterator<Item = (u64, &'b [u8])> {
        /// The published structure reserves the field of the item size and has one bit of linkage.
        const PUBLISHED_BITS: u64 = 0xFFFF_0001_FFFF_0000;
        let mut remaining = self.remaining;
        core::iter::from_fn(move || {
            let (head, after) = remaining.split_first_chunk::<ITEM_HEAD_BYTES>()?;
            let head = u64::from_le_bytes(*head);
            let [size, _, _, _] = split_head(head);
            remaining = remaining.get(usize::from(size)..)?;
            Some((head & PUBLISHED_BITS, after))
        })
    }
}

impl<'b> Iterator for ExtendedItems<'b> {
    type Item = Item<'b>;

    #[inline(always)]
    fn next(&mut self) -> Option<Item<'b>> {
        let (head, data) = self.take_next()?;
        let [_, kind, _, _] = split_head(head);
        Some(Item { kind: ExtType(kind), data })
    }
}

/// Splits an item's head into its four numbers. The head is read as one number because compilers do
/// not merge eight single-byte reads.
#[inline(always)]
#[allow(clippy::cast_possible_truncation)] // Each cast extracts one field.
const fn split_head(head: u64) -> [u16; 4] {
    [head as u16, (head >> 16) as u16, (head >> 32) as u16, (head >> 48) as u16]
}

/// A call stack, innermost frame first.
#[derive(Clone, Copy, Debug)]
pub struct Stack<'b> {
    /// 0, or the id that the kernel and the user part of one stack share.
    pub match_id: u64,
    frames: &'b [u8],
    address_bytes: usize,
}

impl<'b> Stack<'b> {
    /// Returns the addresses of the frames, innermost first.
    pub fn frames(self) -> impl Iterator<Item = u64> + 'b {
        self.frames.chunks_exact(self.address_bytes).map(|c| match c {
            [a, b, c, d] => u64::from(u32::from_le_bytes([*a, *b, *c, *d])),
            _ => u64_at(c, 0),
        })
    }
}

/// Appends items. All except the last have the linkage bit.
pub(super) fn encode(items: &[Item<'_>], out: &mut Vec<u8>) -> Result<()> {
    if items.len() > MAX_ITEMS {
        let (size, limit) = (items.len() as u64, MAX_ITEMS as u64);
        return Err(Error::TooLarge { what: "list of extended items", size, limit });
    }
    for (index, item) in items.iter().enumerate() {
        let size = align8(ITEM_HEAD_BYTES.saturating_add(item.data.len()));
        let (Ok(item_size), Ok(data)) = (u16::try_from(size), u16::try_from(item.data.len())) else {
            let (size, limit) = (item.data.len() as u64, u64::from(u16::MAX));
            return Err(Error::TooLarge { what: "extended item", size, limit });
        };
        let linkage = u16::from(index.saturating_add(1) < items.len());
        let end = out.len().saturating_add(size);
        out.put_u16(item_size).put_u16(item.kind.0).put_u16(linkage).put_u16(data).put(item.data);
        out.resize(end, 0);
    }
    Ok(())
}
