//! Events from the data descriptors of C programs: EVENT_DATA_DESCRIPTOR.
//!
//! ```text
//!   ptr u64 │ size u32 │ type u8 │ reserved u8, u16        16 bytes, a block each, 128 at most
//!
//!   type   0 payload                       ─▶ after the others
//!          1 metadata of the event         ─▶ item 11
//!          2 metadata of the provider      ─▶ item 12; dropped if the registration has traits
//!          3 time stamp, 8 bytes           ─▶ header: the session keeps it
//! ```
//!
//! Types count once the provider enabled them (EventSetInformation: descriptor types, or traits);
//! before, the type byte may be anything and every block is payload. Each of the types 1 to 3 may
//! appear at most once.
//!
//! The blocks are checked and used in the caller's list; no other list is built.
#![allow(unsafe_code)]

use traceweir_format::Guid;
use traceweir_format::spec::event::{
    EVENT_DATA_DESCRIPTOR_TYPE_EVENT_METADATA as EVENT_METADATA, EVENT_DATA_DESCRIPTOR_TYPE_NONE as NONE,
    EVENT_DATA_DESCRIPTOR_TYPE_PROVIDER_METADATA as PROVIDER_METADATA,
    EVENT_DATA_DESCRIPTOR_TYPE_TIMESTAMP_OVERRIDE as TIMESTAMP_OVERRIDE, EventDescriptor,
};

use traceweir_transport::ring::Block;

use super::deliver::Except;
use super::write::{self, Event, MAX_BLOCKS, Overrides};
use super::{Handle, WriteError};

/// EVENT_DATA_DESCRIPTOR: a block of an event's data, as C programs describe it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DataDescriptor {
    /// Address of the first byte.
    pub ptr: u64,
    /// Number of bytes.
    pub size: u32,
    /// Type of the block, if the provider has descriptor types; otherwise ignored.
    pub kind: u8,
    /// Reserved; zero.
    pub reserved1: u8,
    /// Reserved; zero.
    pub reserved2: u16,
}

const _: () = assert!(size_of::<DataDescriptor>() == 16 && align_of::<DataDescriptor>() == 8);
const _: () = assert!(std::mem::offset_of!(DataDescriptor, kind) == 12);

impl DataDescriptor {
    /// Describes a block of payload.
    #[must_use]
    pub fn new(data: &[u8]) -> Self {
        Self::of_kind(NONE, data)
    }

    /// Describes a block of this type. A size above 4 GiB is truncated; no event can be that large.
    #[must_use]
    pub fn of_kind(kind: u8, data: &[u8]) -> Self {
        let size = u32::try_from(data.len()).unwrap_or(u32::MAX);
        Self { ptr: data.as_ptr().expose_provenance() as u64, size, kind, ..Self::default() }
    }

    /// Returns whether the block has an address or needs none.
    #[inline(always)]
    pub(super) fn is_there(&self) -> bool {
        self.ptr != 0 || self.size == 0
    }

    /// Returns the bytes; a NULL address has none.
    ///
    /// # Safety
    ///
    /// `ptr` is NULL, or `size` bytes there can be read and do not change for `'a`.
    #[inline(always)]
    pub(super) unsafe fn bytes<'a>(&self) -> Result<&'a [u8], WriteError> {
        if self.ptr == 0 {
            return if self.size == 0 { Ok(&[]) } else { Err(WriteError::InvalidParameter) };
        }
        let at = std::ptr::with_exposed_provenance(self.ptr as usize);
        // SAFETY: not NULL, so by the contract.
        Ok(unsafe { std::slice::from_raw_parts(at, self.size as usize) })
    }
}

/// The blocks of an event, sorted by type.
struct Sorted<'a> {
    payload: &'a [Block<'a>],
    /// `payload` also contains other blocks.
    is_mixed: bool,
    metadata: Option<&'a [u8]>,
    provider: Option<&'a [u8]>,
    stamp: Option<u64>,
}

/// The blocks other than payload.
#[derive(Default)]
struct Typed<'a> {
    metadata: Option<&'a [u8]>,
    provider: Option<&'a [u8]>,
    stamp: Option<&'a [u8]>,
}

impl<'a> Typed<'a> {
    /// Adds a block.
    // A separate function, so that the loop over the payload stays small.
    #[cold]
    fn add(&mut self, kind: u8, bytes: &'a [u8]) -> Result<(), WriteError> {
        let place = match kind {
            EVENT_METADATA => &mut self.metadata,
            PROVIDER_METADATA => &mut self.provider,
            TIMESTAMP_OVERRIDE if bytes.len() == 8 => &mut self.stamp,
            _ => return Err(WriteError::InvalidParameter),
        };
        if place.replace(bytes).is_some() { Err(WriteError::InvalidParameter) } else { Ok(()) }
    }
}

impl<'a> Sorted<'a> {
    /// Checks and sorts blocks. Their types count if `typed`.
    ///
    /// # Safety
    ///
    /// As [`DataDescriptor::bytes`], of each block.
    #[inline(always)]
    unsafe fn new(blocks: &'a [DataDescriptor], typed: bool) -> Result<Self, WriteError> {
        if blocks.len() > MAX_BLOCKS {
            return Err(WriteError::InvalidParameter);
        }
        let mut typed_blocks = Typed::default();
        let mut others = blocks;
        // The order of TraceLogging, metadata first: two comparisons instead of a branch for every
        // block.
        if typed
            && let [provider, metadata, behind @ ..] = blocks
            && (provider.kind, metadata.kind) == (PROVIDER_METADATA, EVENT_METADATA)
        {
            // SAFETY: by the contract.
            let (provider, metadata) = unsafe { (provider.bytes()?, metadata.bytes()?) };
            typed_blocks = Typed { provider: Some(provider), metadata: Some(metadata), stamp: None };
            others = behind;
        }
        let mut is_mixed = false;
        for block in others {
            // SAFETY: by the contract.
            let bytes = unsafe { block.bytes() }?;
            if typed && block.kind != NONE {
                typed_blocks.add(block.kind, bytes)?;
                is_mixed = true;
            }
        }
        if is_mixed {
            (others, is_mixed) = trimmed(others);
        }
        let Typed { metadata, provider, stamp } = typed_blocks;
        // SAFETY: by the contract; blocks without an address have no bytes.
        let payload = unsafe { Block::from_described(others.as_ptr().cast(), others.len()) };
        let stamp = stamp.and_then(|bytes| bytes.first_chunk()).map(|bytes| u64::from_ne_bytes(*bytes));
        Ok(Self { payload, is_mixed, metadata, provider, stamp })
    }
}

/// Returns the blocks from the first to the last payload block, and whether others are between
/// them.
#[cold]
fn trimmed(mut blocks: &[DataDescriptor]) -> (&[DataDescriptor], bool) {
    while let [first, rest @ ..] = blocks
        && first.kind != NONE
    {
        blocks = rest;
    }
    while let [rest @ .., last] = blocks
        && last.kind != NONE
    {
        blocks = rest;
    }
    (blocks, blocks.iter().any(|block| block.kind != NONE))
}

impl Handle {
    /// Writes an event from C's data descriptors (EventWrite, EventWriteTransfer, EventWriteEx).
    ///
    /// The checks come in this order: registration, enable state, parameters.
    /// [`WriteError::InvalidParameter`] means more than [`MAX_BLOCKS`] blocks, a block with a size
    /// but no address, other `flags` than those of
    /// [`Provider::write_ex`](super::Provider::write_ex), and, if the provider has descriptor
    /// types, a type of 4 or more, one of 1 to 3 twice, or a time stamp of other than 8 bytes.
    ///
    /// This is for a façade: it is inlined into the calling function, and a call stack begins at
    /// the caller of that function.
    ///
    /// # Safety
    ///
    /// Each block's address is NULL, or that of as many bytes as its size says, which can be read
    /// and do not change during the call.
    #[inline(always)]
    pub unsafe fn write_descriptors(
        self,
        descriptor: &EventDescriptor,
        exclude: u64,
        flags: u32,
        activity: Option<&Guid>,
        related: Option<&Guid>,
        blocks: &[DataDescriptor],
    ) -> Result<(), WriteError> {
        if !self.is_wanted(descriptor.level, descriptor.keyword)? {
            return Ok(());
        }
        let except = Except::new(exclude, flags)?;
        // SAFETY: by the contract.
        let sorted = unsafe { Sorted::new(blocks, self.slot.honours_types()) }?;
        let overrides = Overrides { traits: sorted.provider.unwrap_or(&[]), stamp: sorted.stamp, depth: 1 };
        let Sorted { payload, is_mixed, metadata, .. } = sorted;
        let event = Event { metadata, activity, related, is_mixed, ..Event::described(descriptor, payload) };
        let Some(passed_cell) = write::check_filters(self.slot, &event) else { return Ok(()) };
        write::write_with_overrides(self.slot, &event, &overrides, passed_cell, except)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Payload, event metadata, provider metadata and time stamp of sorted blocks.
    type Outcome = Result<(Vec<Vec<u8>>, Option<Vec<u8>>, Option<Vec<u8>>, Option<u64>), WriteError>;

    fn sorted(blocks: &[DataDescriptor], typed: bool) -> Outcome {
        // SAFETY: every block here is NULL, or made from bytes that live on.
        let sorted = unsafe { Sorted::new(blocks, typed) }?;
        let own = |bytes: &[u8]| bytes.to_vec();
        let descriptor = EventDescriptor::default();
        let event = Event { is_mixed: sorted.is_mixed, ..Event::described(&descriptor, sorted.payload) };
        let payload = event.payload().map(own).collect();
        Ok((payload, sorted.metadata.map(own), sorted.provider.map(own), sorted.stamp))
    }

    fn block(kind: u8, data: &'static [u8]) -> DataDescriptor {
        DataDescriptor::of_kind(kind, data)
    }

    const STAMP: &[u8] = &[1, 0, 0, 0, 0, 0, 0, 0x10];
    const REFUSED: Outcome = Err(WriteError::InvalidParameter);

    #[test]
    fn without_types_every_block_is_payload() {
        let blocks = [block(1, b"one"), block(2, b""), block(3, b"x"), block(255, b"y"), block(1, b"again")];
        let all = [&b"one"[..], b"", b"x", b"y", b"again"].map(<[u8]>::to_vec).to_vec();
        assert_eq!(sorted(&blocks, false), Ok((all, None, None, None)));
    }

    #[test]
    fn typed_blocks_are_sorted_at_any_position() {
        let blocks = [block(0, b"a"), block(3, STAMP), block(1, b"meta"), block(0, b""), block(2, b"traits")];
        let (payload, metadata, provider, stamp) = sorted(&blocks, true).unwrap();
        assert_eq!(payload, [b"a".to_vec(), Vec::new()]);
        assert_eq!((metadata, provider), (Some(b"meta".to_vec()), Some(b"traits".to_vec())));
        assert_eq!(stamp, Some(0x1000_0000_0000_0001));
        let blocks = [block(2, b"traits"), block(1, b"meta"), block(0, b"a"), block(3, STAMP), block(0, b"")];
        let usual = sorted(&blocks, true).unwrap();
        let expected = (vec![b"a".to_vec(), Vec::new()], Some(b"meta".to_vec()), Some(b"traits".to_vec()));
        assert_eq!((usual.0, usual.1, usual.2, usual.3), (expected.0, expected.1, expected.2, stamp));
    }

    #[test]
    fn unknown_and_repeated_types_are_refused() {
        for kind in [4, 5, 128, 255] {
            assert_eq!(sorted(&[block(kind, b"x")], true), REFUSED, "{kind}");
        }
        for kind in [1, 2, 3] {
            assert_eq!(sorted(&[block(kind, STAMP), block(0, b"x"), block(kind, STAMP)], true), REFUSED);
        }
        for again in [1, 2] {
            assert_eq!(sorted(&[block(2, b"t"), block(1, b"m"), block(again, b"x")], true), REFUSED);
        }
        for wrong in [&b""[..], b"1234567", b"123456789"] {
            assert_eq!(sorted(&[block(3, wrong)], true), REFUSED, "{wrong:?}");
        }
    }

    #[test]
    fn null_address_has_no_bytes() {
        let null = |size, kind| DataDescriptor { size, kind, ..DataDescriptor::default() };
        for typed in [false, true] {
            assert_eq!(sorted(&[null(0, 0)], typed), Ok((vec![Vec::new()], None, None, None)));
            assert_eq!(sorted(&[block(0, b"x"), null(1, 0)], typed), REFUSED);
        }
        assert_eq!(sorted(&[null(0, 1)], true), Ok((vec![], Some(vec![]), None, None)));
        assert_eq!(sorted(&[null(8, 3)], true), REFUSED);
    }

    #[test]
    fn more_than_128_blocks_are_refused() {
        let blocks = vec![block(0, b"b"); MAX_BLOCKS + 1];
        assert_eq!(sorted(&blocks, true), REFUSED);
        assert_eq!(sorted(&blocks[1..], true).unwrap().0.len(), MAX_BLOCKS);
        assert_eq!(sorted(&[], true), Ok((vec![], None, None, None)));
    }
}
