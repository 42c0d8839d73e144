//! One event as every caller passes it: slices of Rust programs, data descriptors of C programs and
//! blocks of the TraceLogging macros all become a [`CallerEvent`] before anything reads them.

use traceweir_format::Guid;
use traceweir_format::header::extended::ITEM_HEAD_BYTES;
use traceweir_format::spec::event::{EventDescriptor, ExtType};
pub use traceweir_transport::ring::Block;
pub(crate) use traceweir_transport::ring::Blocks;

/// Maximum number of blocks of one event.
pub const MAX_BLOCKS: usize = 128;

/// An event in the memory of its caller.
#[derive(Clone, Copy)]
pub(crate) struct CallerEvent<'a> {
    pub(crate) descriptor: &'a EventDescriptor,
    /// Flags of the event header.
    pub(crate) flags: u16,
    /// The metadata of a TraceLogging event.
    pub(crate) metadata: Option<&'a [u8]>,
    /// The activity id; the thread's if missing.
    pub(crate) activity: Option<&'a Guid>,
    pub(crate) related: Option<&'a Guid>,
    /// The payload, which is the concatenation of these blocks.
    pub(crate) blocks: &'a [Block<'a>],
    /// `blocks` also contains blocks other than payload, which are skipped.
    pub(crate) is_mixed: bool,
}

impl<'a> CallerEvent<'a> {
    /// Creates an event whose payload is the concatenation of these slices.
    #[inline(always)]
    pub(crate) fn new(descriptor: &'a EventDescriptor, payload: &'a [&'a [u8]]) -> Self {
        Self::from_blocks(descriptor, Block::from_slices(payload))
    }

    /// Creates an event whose payload is described by blocks.
    #[inline(always)]
    pub(crate) const fn from_blocks(descriptor: &'a EventDescriptor, blocks: &'a [Block<'a>]) -> Self {
        Self { descriptor, flags: 0, metadata: None, activity: None, related: None, blocks, is_mixed: false }
    }

    /// Iterates over the payload blocks in order.
    pub(crate) fn payload(&self) -> PayloadBlocks<'a> {
        PayloadBlocks { blocks: self.blocks.iter(), is_mixed: self.is_mixed }
    }
}

/// The blocks of an event's payload.
#[derive(Clone)]
pub(crate) struct PayloadBlocks<'a> {
    blocks: std::slice::Iter<'a, Block<'a>>,
    is_mixed: bool,
}

impl<'a> Iterator for PayloadBlocks<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let is_mixed = self.is_mixed;
        // Kind 0 is payload.
        self.blocks.find(|block| !is_mixed || block.kind() == 0).map(Block::bytes)
    }
}

/// Returns the head of an extended data item as a word of four 16-bit fields: size of the item,
/// type, whether another item follows, size of its data. A size beyond 16 bits is truncated: such a
/// record is too large and refused by its own size.
#[inline(always)]
pub(crate) fn item_head(kind: ExtType, length: usize, another_follows: bool) -> u64 {
    // Not `next_multiple_of`, which checks for overflow.
    let item_bytes = (ITEM_HEAD_BYTES + 7).wrapping_add(length) as u16 & !7;
    u64::from(item_bytes)
        | u64::from(kind.0) << 16
        | u64::from(another_follows) << 32
        | u64::from(length as u16) << 48
}
