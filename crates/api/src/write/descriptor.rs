//! Events from the data descriptors of C programs: EVENT_DATA_DESCRIPTOR.
//!
//! ```text
//!   ptr u64 │ size u32 │ type u8 │ reserved u8, u16        16 bytes for each block, 128 at most
//!
//!   type   0 payload                       ─▶ after the others
//!          1 metadata of the event         ─▶ item 11
//!          2 metadata of the provider      ─▶ item 12; dropped if the registration has traits
//!          3 time stamp, 8 bytes           ─▶ header: the session keeps it
//! ```
//!
//! Types are used only if the provider has enabled them (EventSetInformation: descriptor types, or
//! traits); otherwise the type byte may be anything and every block is payload. Each of the types 1
//! to 3 may appear at most once.
//!
//! The blocks are checked and used in the caller's list; no other list is built.
#![allow(unsafe_code)]

use traceweir_format::Guid;
use traceweir_format::spec::event::{
    EVENT_DATA_DESCRIPTOR_TYPE_EVENT_METADATA as EVENT_METADATA, EVENT_DATA_DESCRIPTOR_TYPE_NONE as NONE,
    EVENT_DATA_DESCRIPTOR_TYPE_PROVIDER_METADATA as PROVIDER_METADATA,
    EVENT_DATA_DESCRIPTOR_TYPE_TIMESTAMP_OVERRIDE as TIMESTAMP_OVERRIDE, EventDescriptor,
};
use traceweir_transport::ring::{Block, Blocks};

use super::straight::{StraightTarget, UsualEvent};
use super::{Options, WriteError};
use crate::event::{CallerEvent, MAX_BLOCKS};
use crate::registration::{Handle, RegistrationSlot};

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
    /// Reserved; must be zero.
    pub reserved1: u8,
    /// Reserved; must be zero.
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

    /// Describes a block of this type. A size of 4 GiB or more becomes `u32::MAX`; no event can be
    /// that large.
    #[must_use]
    pub fn of_kind(kind: u8, data: &[u8]) -> Self {
        let size = u32::try_from(data.len()).unwrap_or(u32::MAX);
        Self { ptr: data.as_ptr().expose_provenance() as u64, size, kind, ..Self::default() }
    }

    /// Returns whether the block has an address or needs none.
    #[inline(always)]
    fn has_address(&self) -> bool {
        self.ptr != 0 || self.size == 0
    }

    /// Returns the bytes; none for a NULL address with size 0. Fails for a NULL address with
    /// another size.
    ///
    /// # Safety
    ///
    /// `ptr` is NULL, or `size` bytes there can be read and do not change for `'a`.
    #[inline(always)]
    unsafe fn bytes<'a>(&self) -> Result<&'a [u8], WriteError> {
        if self.ptr == 0 {
            return if self.size == 0 { Ok(&[]) } else { Err(WriteError::InvalidParameter) };
        }
        let at = std::ptr::with_exposed_provenance(self.ptr as usize);
        // SAFETY: not NULL, so the caller promises `size` readable bytes.
        Ok(unsafe { std::slice::from_raw_parts(at, self.size as usize) })
    }
}

/// The blocks of an event, sorted by type.
struct SortedBlocks<'a> {
    payload: &'a [Block<'a>],
    /// `payload` also contains other blocks.
    is_mixed: bool,
    metadata: Option<&'a [u8]>,
    provider_metadata: Option<&'a [u8]>,
    stamp: Option<u64>,
}

/// The blocks other than payload.
#[derive(Default)]
struct TypedBlocks<'a> {
    metadata: Option<&'a [u8]>,
    provider_metadata: Option<&'a [u8]>,
    stamp: Option<&'a [u8]>,
}

impl<'a> TypedBlocks<'a> {
    // A separate function, so that the loop over the payload stays small.
    #[cold]
    fn add(&mut self, kind: u8, bytes: &'a [u8]) -> Result<(), WriteError> {
        let field = match kind {
            EVENT_METADATA => &mut self.metadata,
            PROVIDER_METADATA => &mut self.provider_metadata,
            TIMESTAMP_OVERRIDE if bytes.len() == 8 => &mut self.stamp,
            _ => return Err(WriteError::InvalidParameter),
        };
        if field.replace(bytes).is_some() { Err(WriteError::InvalidParameter) } else { Ok(()) }
    }
}

impl<'a> SortedBlocks<'a> {
    /// Checks and sorts blocks. Without `has_types`, all blocks are payload.
    ///
    /// # Safety
    ///
    /// As [`DataDescriptor::bytes`], of each block.
    #[inline(always)]
    unsafe fn new(blocks: &'a [DataDescriptor], has_types: bool) -> Result<Self, WriteError> {
        if blocks.len() > MAX_BLOCKS {
            return Err(WriteError::InvalidParameter);
        }
        let mut typed_blocks = TypedBlocks::default();
        let mut payload_blocks = blocks;
        // The order of TraceLogging, metadata first: two comparisons instead of two calls of
        // `TypedBlocks::add`.
        if has_types
            && let [provider, metadata, rest @ ..] = blocks
            && (provider.kind, metadata.kind) == (PROVIDER_METADATA, EVENT_METADATA)
        {
            // SAFETY: the caller promises that the bytes of each block can be read.
            let (provider, metadata) = unsafe { (provider.bytes()?, metadata.bytes()?) };
            typed_blocks =
                TypedBlocks { provider_metadata: Some(provider), metadata: Some(metadata), stamp: None };
            payload_blocks = rest;
        }
        let mut is_mixed = false;
        for block in payload_blocks {
            // SAFETY: the caller promises that the bytes of each block can be read.
            let bytes = unsafe { block.bytes() }?;
            if has_types && block.kind != NONE {
                typed_blocks.add(block.kind, bytes)?;
                is_mixed = true;
            }
        }
        if is_mixed {
            (payload_blocks, is_mixed) = trim_to_payload(payload_blocks);
        }
        let TypedBlocks { metadata, provider_metadata, stamp } = typed_blocks;
        // SAFETY: the caller promises that the bytes of each block can be read; the loop refused
        // blocks that have a size but no address.
        let payload =
            unsafe { Block::from_descriptors(payload_blocks.as_ptr().cast(), payload_blocks.len()) };
        let stamp = stamp.and_then(|bytes| bytes.first_chunk()).map(|bytes| u64::from_ne_bytes(*bytes));
        Ok(Self { payload, is_mixed, metadata, provider_metadata, stamp })
    }
}

/// Returns the blocks from the first to the last payload block, and whether others are between
/// them.
#[cold]
fn trim_to_payload(mut blocks: &[DataDescriptor]) -> (&[DataDescriptor], bool) {
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

/// Writes an event, which has passed the check of level and keyword, from data descriptors to all
/// sessions except those that `options` excludes. `event` has neither metadata nor blocks yet.
///
/// # Safety
///
/// As [`DataDescriptor::bytes`], of each descriptor.
#[inline(always)]
pub(crate) unsafe fn write_descriptors(
    slot: &RegistrationSlot,
    event: CallerEvent<'_>,
    options: Options<'_>,
    descriptors: &[DataDescriptor],
) -> Result<(), WriteError> {
    // SAFETY: the caller promises that the bytes of each descriptor can be read.
    let sorted = unsafe { SortedBlocks::new(descriptors, slot.has_descriptor_types()) }?;
    let SortedBlocks { payload, is_mixed, metadata, provider_metadata, stamp } = sorted;
    let options = Options { traits: provider_metadata.unwrap_or(&[]), stamp, skipped_frames: 1, ..options };
    super::write_with_options(slot, &CallerEvent { metadata, blocks: payload, is_mixed, ..event }, &options)
}

/// Writes an event that a C program passes to EventWriteTransfer, if it is a usual event
/// (`straight::UsualEvent`).
///
/// Returns whether the event was written. Otherwise the caller uses the general path, which checks
/// everything again.
///
/// # Safety
///
/// Pointers are NULL or valid. `data` has `count` elements, and the address of each is NULL or
/// points to as many bytes as its size states, which do not change during the call.
// Inlined into the function that a C program calls: one frame for both.
#[doc(hidden)]
#[inline(always)]
pub unsafe fn try_straight(
    handle: u64,
    descriptor: *const EventDescriptor,
    activity: *const Guid,
    related: *const Guid,
    count: u32,
    data: *const DataDescriptor,
) -> bool {
    let Some(handle) = Handle::from_raw(handle) else { return false };
    let has_blocks = !data.is_null() && data.is_aligned();
    if descriptor.is_null() || !related.is_null() || count as usize > MAX_BLOCKS || count != 0 && !has_blocks
    {
        return false;
    }
    // SAFETY: `descriptor` is not NULL, so the caller promises that it is valid, as is `activity`
    // unless it is NULL; bytes need no alignment.
    let (descriptor, activity) =
        unsafe { (&*descriptor.cast::<[u8; 16]>(), activity.cast::<[u8; 16]>().as_ref()) };
    // SAFETY: not NULL and aligned, and the caller promises `count` elements.
    let blocks = if count == 0 { &[] } else { unsafe { std::slice::from_raw_parts(data, count as usize) } };
    let slot = handle.slot();
    let Some(target) = StraightTarget::find(slot, descriptor, 0) else { return false };
    let (mut metadata, mut payload) = (None, blocks);
    let has_types = slot.has_descriptor_types();
    if has_types
        && let [provider, event, rest @ ..] = blocks
        && (provider.kind, event.kind) == (PROVIDER_METADATA, EVENT_METADATA)
    {
        // A usual event uses the traits of the registration; without them, the general path uses
        // the provider's metadata.
        // SAFETY: the caller promises that the bytes of each element can be read.
        let (true, Ok(bytes)) = (slot.has_traits() && provider.has_address(), unsafe { event.bytes() })
        else {
            return false;
        };
        (metadata, payload) = (Some(bytes), rest);
    }
    // SAFETY: the caller promises that the bytes of each element can be read.
    let Some(payload) = (unsafe { all_payload_blocks(payload, has_types) }) else { return false };
    UsualEvent { descriptor, flags: 0, metadata, activity, payload }.try_write(&target)
}

/// Writes an event of the TraceLogging macros of C, if it is a usual event
/// (`straight::UsualEvent`).
///
/// Descriptor and metadata are constants of the program, there are no activity ids, and the
/// provider's metadata come with the registration.
///
/// # Safety
///
/// `descriptor` and `metadata` are valid, the latter for `metadata_bytes`; `data` as in
/// [`try_straight`], but never NULL.
#[doc(hidden)]
#[inline(always)]
pub unsafe fn try_straight_described(
    handle: u64,
    descriptor: *const EventDescriptor,
    metadata: *const u8,
    metadata_bytes: u32,
    count: u32,
    data: *const DataDescriptor,
) -> bool {
    let Some(handle) = Handle::from_raw(handle) else { return false };
    let slot = handle.slot();
    if count as usize > MAX_BLOCKS || !slot.has_traits() {
        return false;
    }
    // SAFETY: the caller promises that all three are valid, for `metadata_bytes` bytes and `count`
    // elements; a descriptor as bytes needs no alignment.
    let (descriptor, metadata, blocks) = unsafe {
        (
            &*descriptor.cast::<[u8; 16]>(),
            std::slice::from_raw_parts(metadata, metadata_bytes as usize),
            std::slice::from_raw_parts(data, count as usize),
        )
    };
    // SAFETY: the caller promises that the bytes of each element can be read.
    let Some(payload) = (unsafe { all_payload_blocks(blocks, true) }) else { return false };
    let Some(target) = StraightTarget::find(slot, descriptor, 0) else { return false };
    UsualEvent { descriptor, flags: 0, metadata: Some(metadata), activity: None, payload }.try_write(&target)
}

/// Returns the blocks if all are payload; `None` if one has a size but no address, or another type.
///
/// # Safety
///
/// As [`DataDescriptor::bytes`], of each block.
#[inline(always)]
unsafe fn all_payload_blocks(blocks: &[DataDescriptor], has_types: bool) -> Option<Blocks<'_>> {
    let mut bytes = 0_usize;
    for block in blocks {
        if !block.has_address() || has_types && block.kind != NONE {
            return None;
        }
        // Each size is below 2³², and there are at most 128, so the sum fits into 64 bits.
        bytes = bytes.wrapping_add(block.size as usize);
    }
    // SAFETY: every block that has a size has an address, where the caller promises as many bytes;
    // `bytes` is their sum.
    Some(unsafe { Blocks::from_descriptors(blocks.as_ptr().cast(), blocks.len(), bytes) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A copy of sorted blocks.
    #[derive(Debug, Default, PartialEq)]
    struct SortedCopy {
        payload: Vec<Vec<u8>>,
        metadata: Option<Vec<u8>>,
        provider: Option<Vec<u8>>,
        stamp: Option<u64>,
    }

    type SortResult = Result<SortedCopy, WriteError>;

    fn sort_blocks(blocks: &[DataDescriptor], has_types: bool) -> SortResult {
        // SAFETY: every block here is NULL, or made from bytes that outlive the call.
        let sorted = unsafe { SortedBlocks::new(blocks, has_types) }?;
        let copy = |bytes: &[u8]| bytes.to_vec();
        let descriptor = EventDescriptor::default();
        let event = CallerEvent {
            is_mixed: sorted.is_mixed,
            ..CallerEvent::from_blocks(&descriptor, sorted.payload)
        };
        let payload = event.payload().map(copy).collect();
        Ok(SortedCopy {
            payload,
            metadata: sorted.metadata.map(copy),
            provider: sorted.provider_metadata.map(copy),
            stamp: sorted.stamp,
        })
    }

    fn block(kind: u8, data: &'static [u8]) -> DataDescriptor {
        DataDescriptor::of_kind(kind, data)
    }

    fn payload(data: &'static [u8]) -> DataDescriptor {
        block(NONE, data)
    }

    fn metadata(data: &'static [u8]) -> DataDescriptor {
        block(EVENT_METADATA, data)
    }

    fn traits(data: &'static [u8]) -> DataDescriptor {
        block(PROVIDER_METADATA, data)
    }

    fn stamp(data: &'static [u8]) -> DataDescriptor {
        block(TIMESTAMP_OVERRIDE, data)
    }

    const STAMP: &[u8] = &[1, 0, 0, 0, 0, 0, 0, 0x10];
    const REFUSED: SortResult = Err(WriteError::InvalidParameter);

    #[test]
    fn without_types_every_block_is_payload() {
        let blocks = [metadata(b"one"), traits(b""), stamp(b"x"), block(255, b"y"), metadata(b"again")];
        let expected = [&b"one"[..], b"", b"x", b"y", b"again"].map(<[u8]>::to_vec).to_vec();
        assert_eq!(
            sort_blocks(&blocks, false),
            Ok(SortedCopy { payload: expected, ..SortedCopy::default() })
        );
    }

    #[test]
    fn typed_blocks_are_sorted_at_any_position() {
        let blocks = [payload(b"a"), stamp(STAMP), metadata(b"meta"), payload(b""), traits(b"traits")];
        let expected = SortedCopy {
            payload: vec![b"a".to_vec(), Vec::new()],
            metadata: Some(b"meta".to_vec()),
            provider: Some(b"traits".to_vec()),
            stamp: Some(0x1000_0000_0000_0001),
        };
        assert_eq!(sort_blocks(&blocks, true).as_ref(), Ok(&expected));
        let blocks = [traits(b"traits"), metadata(b"meta"), payload(b"a"), stamp(STAMP), payload(b"")];
        assert_eq!(sort_blocks(&blocks, true), Ok(expected));
    }

    #[test]
    fn invalid_typed_blocks_are_refused() {
        for kind in [4, 5, 128, 255] {
            assert_eq!(sort_blocks(&[block(kind, b"x")], true), REFUSED, "{kind}");
        }
        for kind in [EVENT_METADATA, PROVIDER_METADATA, TIMESTAMP_OVERRIDE] {
            assert_eq!(sort_blocks(&[block(kind, STAMP), payload(b"x"), block(kind, STAMP)], true), REFUSED);
        }
        for repeated in [EVENT_METADATA, PROVIDER_METADATA] {
            assert_eq!(sort_blocks(&[traits(b"t"), metadata(b"m"), block(repeated, b"x")], true), REFUSED);
        }
        for wrong in [&b""[..], b"1234567", b"123456789"] {
            assert_eq!(sort_blocks(&[stamp(wrong)], true), REFUSED, "{wrong:?}");
        }
    }

    #[test]
    fn null_address_has_no_bytes() {
        let null = |size, kind| DataDescriptor { size, kind, ..DataDescriptor::default() };
        for has_types in [false, true] {
            assert_eq!(
                sort_blocks(&[null(0, NONE)], has_types),
                Ok(SortedCopy { payload: vec![Vec::new()], ..SortedCopy::default() })
            );
            assert_eq!(sort_blocks(&[payload(b"x"), null(1, NONE)], has_types), REFUSED);
        }
        assert_eq!(
            sort_blocks(&[null(0, EVENT_METADATA)], true),
            Ok(SortedCopy { metadata: Some(vec![]), ..SortedCopy::default() })
        );
        assert_eq!(sort_blocks(&[null(8, TIMESTAMP_OVERRIDE)], true), REFUSED);
    }

    #[test]
    fn more_than_128_blocks_are_refused() {
        let blocks = vec![payload(b"b"); MAX_BLOCKS + 1];
        assert_eq!(sort_blocks(&blocks, true), REFUSED);
        assert_eq!(sort_blocks(&blocks[1..], true).unwrap().payload.len(), MAX_BLOCKS);
        assert_eq!(sort_blocks(&[], true), Ok(SortedCopy::default()));
    }
}
