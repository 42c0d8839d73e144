//! One event as its caller passes it: blocks of bytes with the layout of EVENT_DATA_DESCRIPTOR.

use std::marker::PhantomData;

use traceweir_format::Guid;
use traceweir_format::spec::event::{EVENT_DATA_DESCRIPTOR_TYPE_EVENT_METADATA, EventDescriptor};

/// Maximum number of blocks of one event.
pub const MAX_BLOCKS: usize = 128;

/// Bytes of an event in place, as EVENT_DATA_DESCRIPTOR describes them.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Block<'a> {
    address: u64,
    size_bytes: u32,
    /// The type of the descriptor: 0 for payload.
    kind: u32,
    lifetime: PhantomData<&'a [u8]>,
}

const _: () = assert!(size_of::<Block<'_>>() == 16 && align_of::<Block<'_>>() == 8);

impl<'a> Block<'a> {
    /// An empty block.
    pub(super) const EMPTY: Self = Self { address: 0, size_bytes: 0, kind: 0, lifetime: PhantomData };

    /// Creates a payload block, limited to what 32 bits can count. More never fit into an event.
    #[inline(always)]
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        let size_bytes = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let address = bytes.as_ptr().expose_provenance() as u64;
        Self { address, size_bytes, kind: 0, lifetime: PhantomData }
    }

    /// Creates the block of a TraceLogging event's metadata.
    #[inline(always)]
    pub(super) fn new_metadata(bytes: &'a [u8]) -> Self {
        Self { kind: u32::from(EVENT_DATA_DESCRIPTOR_TYPE_EVENT_METADATA), ..Self::new(bytes) }
    }
}

/// The payload blocks of an event.
#[derive(Clone, Copy, Debug)]
pub struct Blocks<'a>(&'a [Block<'a>]);

impl<'a> Blocks<'a> {
    /// Creates a payload from blocks.
    #[inline(always)]
    #[must_use]
    pub fn new(all: &'a [Block<'a>]) -> Self {
        Self(all)
    }

    /// Returns all blocks.
    #[inline(always)]
    #[must_use]
    pub fn as_slice(&self) -> &'a [Block<'a>] {
        self.0
    }
}

/// The payload of an event in either form that callers have.
#[derive(Clone, Copy)]
pub(crate) enum CallerPayload<'a> {
    Slices(&'a [&'a [u8]]),
    Blocks(&'a [Block<'a>]),
}

/// An event in the memory of its caller.
#[derive(Clone, Copy)]
pub(crate) struct CallerEvent<'a> {
    pub(crate) descriptor: &'a EventDescriptor,
    /// The metadata of a TraceLogging event.
    pub(crate) metadata: Option<&'a [u8]>,
    /// The activity id; the thread's if missing.
    pub(crate) activity: Option<&'a Guid>,
    pub(crate) related: Option<&'a Guid>,
    pub(crate) payload: CallerPayload<'a>,
}

impl<'a> CallerEvent<'a> {
    /// Creates an event whose payload is the concatenation of these slices.
    #[inline(always)]
    pub(crate) fn new(descriptor: &'a EventDescriptor, payload: &'a [&'a [u8]]) -> Self {
        Self::with_payload(descriptor, CallerPayload::Slices(payload))
    }

    /// Creates an event whose payload is described by blocks.
    #[inline(always)]
    pub(crate) fn from_blocks(descriptor: &'a EventDescriptor, blocks: &'a [Block<'a>]) -> Self {
        Self::with_payload(descriptor, CallerPayload::Blocks(blocks))
    }

    fn with_payload(descriptor: &'a EventDescriptor, payload: CallerPayload<'a>) -> Self {
        Self { descriptor, metadata: None, activity: None, related: None, payload }
    }
}
