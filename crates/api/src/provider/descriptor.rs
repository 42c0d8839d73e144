//! Events whose data a C program describes: EVENT_DATA_DESCRIPTOR.
//!
//! ```text
//!   ptr u64 │ size u32 │ type u8 │ reserved u8, u16              16 bytes, a block each, 128 at most
//!
//!   type   0 payload                       ─▶ behind the others
//!          1 metadata of the event         ─▶ item 11
//!          2 metadata of the provider      ─▶ item 12; dropped where the registration has traits
//!          3 time stamp, 8 bytes           ─▶ header: the session keeps it
//! ```
//!
//! Types mean something once the provider said so (EventSetInformation: descriptor types, or traits); before, what stands there may be anything and every
//! block is payload. Each of the types 1 to 3 stands once at most.
//!
//! The blocks are checked and used where the caller described them; no list of them is made.
#![allow(unsafe_code)]

use traceweir_format::Guid;
use traceweir_format::spec::event::{
    EVENT_DATA_DESCRIPTOR_TYPE_EVENT_METADATA as EVENT_METADATA, EVENT_DATA_DESCRIPTOR_TYPE_NONE as NONE,
    EVENT_DATA_DESCRIPTOR_TYPE_PROVIDER_METADATA as PROVIDER_METADATA,
    EVENT_DATA_DESCRIPTOR_TYPE_TIMESTAMP_OVERRIDE as TIMESTAMP_OVERRIDE, EventDescriptor,
};

use traceweir_transport::ring::Block;

use super::deliver::Except;
use super::write::{self, Event, Given, MAX_BLOCKS};
use super::{Handle, WriteError};

/// EVENT_DATA_DESCRIPTOR: a block of an event's data, as C programs describe it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DataDescriptor {
    /// The address of the first byte.
    pub ptr: u64,
    /// Bytes.
    pub size: u32,
    /// What they are, where the provider has descriptor types; else it means nothing.
    pub kind: u8,
    /// Zero.
    pub reserved1: u8,
    /// Zero.
    pub reserved2: u16,
}

const _: () = assert!(size_of::<DataDescriptor>() == 16 && align_of::<DataDescriptor>() == 8);
const _: () = assert!(std::mem::offset_of!(DataDescriptor, kind) == 12);

impl DataDescriptor {
    /// The block of payload that lies in `data`.
    #[must_use]
    pub fn new(data: &[u8]) -> Self {
        Self::of_kind(NONE, data)
    }

    /// The block of another kind. More than 4 GiB are cut; they are more than an event can have in any case.
    #[must_use]
    pub fn of_kind(kind: u8, data: &[u8]) -> Self {
        let size = u32::try_from(data.len()).unwrap_or(u32::MAX);
        Self { ptr: data.as_ptr().expose_provenance() as u64, size, kind, ..Self::default() }
    }

    /// Whether it has an address, or needs none.
    #[inline(always)]
    pub(super) fn is_there(&self) -> bool {
        self.ptr != 0 || self.size == 0
    }

    /// The bytes; an address of NULL has none.
    ///
    /// # Safety
    ///
    /// `ptr` is NULL, or `size` bytes there can be read and stay as they are for `'a`.
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

/// The blocks of an event by what they are.
struct Sorted<'a> {
    payload: &'a [Block<'a>],
    /// Other blocks stand in `payload`, too.
    is_mixed: bool,
    metadata: Option<&'a [u8]>,
    provider: Option<&'a [u8]>,
    stamp: Option<u64>,
}

/// The blocks that are no payload.
#[derive(Default)]
struct Typed<'a> {
    metadata: Option<&'a [u8]>,
    provider: Option<&'a [u8]>,
    stamp: Option<&'a [u8]>,
}

impl<'a> Typed<'a> {
    /// Takes one more.
    // Apart, so that the loop over the payload stays small.
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
    /// Checks and sorts blocks. Their types count where `typed`.
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
        // As TraceLogging has them, in front of all others: two comparisons for what would be a decision at every block.
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
        // SAFETY: by the contract; those without an address have no bytes.
        let payload = unsafe { Block::from_described(others.as_ptr().cast(), others.len()) };
        let stamp = stamp.and_then(|bytes| bytes.first_chunk()).map(|bytes| u64::from_ne_bytes(*bytes));
        Ok(Self { payload, is_mixed, metadata, provider, stamp })
    }
}

/// From the first to the last block of payload, and whether others stand between them.
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
    /// Looked at in this order: the registration, whether anybody listens, the parameters. [`WriteError::InvalidParameter`]: more than
    /// [`MAX_BLOCKS`] blocks, one without an address that has a size, other `flags` than those of [`Provider::write_ex`](super::Provider::write_ex), and,
    /// where the provider has descriptor types, a type of 4 or more, one of 1 to 3 twice, a time stamp that has not 8 bytes.
    ///
    /// This is for a façade: it is part of the function that calls it, and a call stack begins at the caller of that function.
    ///
    /// # Safety
    ///
    /// Each block's address is NULL, or that of so many bytes as its size says, which can be read and do not change during the call.
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
        let given = Given { traits: sorted.provider.unwrap_or(&[]), stamp: sorted.stamp, depth: 1 };
        let Sorted { payload, is_mixed, metadata, .. } = sorted;
        let event = Event { metadata, activity, related, is_mixed, ..Event::described(descriptor, payload) };
        let Some(asked) = write::asked(self.slot, &event) else { return Ok(()) };
        write::write_given(self.slot, &event, &given, asked, except)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What becomes of blocks: payload, metadata, the provider's, the stamp.
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
    fn with_types_each_block_goes_where_it_belongs_wherever_it_stands() {
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
    fn what_is_no_type_or_stands_twice_is_refused() {
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
    fn an_address_of_null_has_no_bytes() {
        let null = |size, kind| DataDescriptor { size, kind, ..DataDescriptor::default() };
        for typed in [false, true] {
            assert_eq!(sorted(&[null(0, 0)], typed), Ok((vec![Vec::new()], None, None, None)));
            assert_eq!(sorted(&[block(0, b"x"), null(1, 0)], typed), REFUSED);
        }
        assert_eq!(sorted(&[null(0, 1)], true), Ok((vec![], Some(vec![]), None, None)));
        assert_eq!(sorted(&[null(8, 3)], true), REFUSED);
    }

    #[test]
    fn there_are_a_hundred_and_twenty_eight_blocks_at_most() {
        let blocks = vec![block(0, b"b"); MAX_BLOCKS + 1];
        assert_eq!(sorted(&blocks, true), REFUSED);
        assert_eq!(sorted(&blocks[1..], true).unwrap().0.len(), MAX_BLOCKS);
        assert_eq!(sorted(&[], true), Ok((vec![], None, None, None)));
    }
}
