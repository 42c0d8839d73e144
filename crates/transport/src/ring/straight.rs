//! A record that is written into a ring directly from the memory of its pieces, without being
//! assembled first.
//!
//! ```text
//!   prefix │ first  thread  0 │ provider (16) │ descriptor (16) │ 0 │ activity (16) │
//!     16                        80 bytes: an event's header
//!   │ items: whole words │ head  bytes  zeros │ block │ block …
//!           run                  schema           payload
//! ```
//!
//! Most of an event already has its form in memory: the provider's id and its items in the
//! registration, descriptor and schema in the program's constants. Copying each piece once, by
//! moves as wide as it allows, takes half the time of assembling them on the stack and copying
//! again.
//!
//! A sequence works on one [`Frame`], for such a record as well as for a [`Gather`](super::Gather):
//! the latter has no header, and its run is the staged part.
//!
//! Invariant: the sizes in a frame add up to at most `size`, and every address in it can be read
//! for as many bytes as the frame says. The constructors ensure it.

use core::marker::PhantomData;
use core::mem::MaybeUninit;
use core::ptr;
use core::sync::atomic::AtomicU64;

use super::gather::Gather;
use crate::abi;

/// Size of an event's header in bytes.
const HEADER: usize = 80;
/// Shortest schema that the moves of the sequence can copy.
pub const SHORTEST_SCHEMA: usize = 16;

/// Bytes of a payload in place, with the memory layout of EVENT_DATA_DESCRIPTOR.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Block<'a> {
    at: u64,
    /// Number of bytes in the lower half; the upper half means nothing here.
    size: u64,
    lives: PhantomData<&'a [u8]>,
}

const _: () = assert!(size_of::<Block<'_>>() == 16 && core::mem::offset_of!(Block<'_>, size) == 8);

impl<'a> Block<'a> {
    /// Creates a block of these bytes, limited to what 32 bits can count. More never fit into a
    /// record.
    #[inline(always)]
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        let size = if bytes.len() > u32::MAX as usize { u64::from(u32::MAX) } else { bytes.len() as u64 };
        Self { at: bytes.as_ptr().expose_provenance() as u64, size, lives: PhantomData }
    }

    /// Views slices as blocks, in place.
    ///
    /// A length beyond 32 bits extends to the upper half of `size`: [`Blocks::of_slices`] rejects
    /// it, and [`bytes`](Self::bytes) returns as much as the lower half says.
    #[inline(always)]
    #[must_use]
    pub fn from_slices(slices: &'a [&'a [u8]]) -> &'a [Self] {
        for slice in slices {
            // Costs nothing: allows `bytes` to access this memory by its address.
            let _ = slice.as_ptr().expose_provenance();
        }
        // SAFETY: a block lies in memory as a reference to a slice does (see below): an address,
        // then a length whose lower half comes first.
        unsafe { core::slice::from_raw_parts(slices.as_ptr().cast(), slices.len()) }
    }

    /// Views C descriptors as blocks, in place.
    ///
    /// # Safety
    ///
    /// `first` is the first of `count` EVENT_DATA_DESCRIPTORs that live for `'a`. Each has an
    /// address of NULL and a size of 0, or the address of as many bytes as its size, which can be
    /// read and do not change for `'a`.
    #[inline(always)]
    #[must_use]
    pub unsafe fn from_described(first: *const u8, count: usize) -> &'a [Self] {
        // SAFETY: the caller passes `count` EVENT_DATA_DESCRIPTORs that live for `'a`, and a block
        // has the memory layout of such a descriptor.
        unsafe { core::slice::from_raw_parts(first.cast(), count) }
    }

    /// Returns the type that a C program gave (EVENT_DATA_DESCRIPTOR.Type); 0 for a block made from
    /// a slice.
    #[inline(always)]
    #[must_use]
    pub fn kind(&self) -> u8 {
        (self.size >> 32) as u8
    }

    /// Returns the number of bytes.
    #[inline(always)]
    #[must_use]
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.size as u32 as usize
    }

    /// Returns the bytes of the block.
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        if self.at == 0 {
            return &[];
        }
        let at = ptr::with_exposed_provenance(self.at as usize);
        // SAFETY: made from such a slice, or by a caller of `Blocks::described`, which promises
        // readable bytes.
        unsafe { core::slice::from_raw_parts(at, self.len()) }
    }
}

/// Blocks and their total size.
#[derive(Clone, Copy, Debug)]
pub struct Blocks<'a> {
    all: &'a [Block<'a>],
    bytes: usize,
}

impl<'a> Blocks<'a> {
    /// Adds up the sizes of these blocks.
    #[inline(always)]
    #[must_use]
    pub fn new(all: &'a [Block<'a>]) -> Self {
        // Each has less than 2³² bytes, and memory bounds their number: nothing wraps.
        let bytes = all.iter().fold(0_usize, |sum, block| sum.wrapping_add(block.size as u32 as usize));
        Self { all, bytes }
    }

    /// Creates blocks whose total is already known: a wrong sum makes a record that is rejected.
    #[inline(always)]
    #[must_use]
    pub fn counted(all: &'a [Block<'a>], bytes: usize) -> Self {
        debug_assert_eq!(Self::new(all).bytes, bytes);
        Self { all, bytes }
    }

    /// Returns all blocks.
    #[inline(always)]
    #[must_use]
    pub fn all(&self) -> &'a [Block<'a>] {
        self.all
    }

    /// Returns the total number of bytes.
    #[inline(always)]
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Creates blocks that were made [from slices](Block::from_slices). `None` if one is larger
    /// than a record.
    #[inline(always)]
    #[must_use]
    pub fn of_slices(all: &'a [Block<'a>]) -> Option<Self> {
        let (mut bytes, mut bits) = (0_usize, 0);
        for block in all {
            bytes = bytes.wrapping_add(block.size as usize);
            bits |= block.size;
        }
        (bits <= abi::MAX_RECORD as u64).then_some(Self { all, bytes })
    }

    /// Creates blocks from C descriptors with a total of `bytes` bytes.
    ///
    /// # Safety
    ///
    /// As [`Block::from_described`]. Their sizes add up to `bytes`.
    #[inline(always)]
    #[must_use]
    pub unsafe fn described(first: *const u8, count: usize, bytes: usize) -> Self {
        // SAFETY: the caller makes the promises of `Block::from_described`.
        Self { all: unsafe { Block::from_described(first, count) }, bytes }
    }
}

/// The header of an event, before its items.
#[derive(Clone, Copy, Debug)]
pub struct Header<'a> {
    /// The first word, with zeros for the size in its lowest sixteen bits.
    pub first: u64,
    /// Thread id, the second word.
    pub thread: u32,
    /// The sixteen bytes after the third word, which is zero.
    pub provider: &'a [AtomicU64; 2],
    /// The sixteen bytes after those.
    pub descriptor: &'a [u8; 16],
    /// The last sixteen bytes, after a word of zeros.
    pub activity: &'a [u8; 16],
}

/// A record in pieces, ready to be written.
#[derive(Debug)]
pub struct Straight<'a> {
    pub(super) frame: Frame,
    pub(super) length: usize,
    lives: PhantomData<&'a [u8]>,
}

impl<'a> Straight<'a> {
    /// Creates the record of these pieces: `items` as they stand in it; then `schema`, head and
    /// data, padded with zeros to a multiple of eight; then the blocks. `flags` are those of
    /// [`abi::FLAGS`]. `None` if it has more than [`abi::MAX_RECORD`] bytes, a schema of less than
    /// [`SHORTEST_SCHEMA`], or one word of items, which no item is.
    #[inline(always)]
    #[must_use]
    pub fn new(
        header: &Header<'a>,
        items: &'a [u64],
        schema: Option<(u64, &'a [u8])>,
        blocks: Blocks<'a>,
        flags: u16,
    ) -> Option<Self> {
        let (schema_head, schema) = schema.unwrap_or((0, &[]));
        // No item is that short, and the moves of the sequence are longer.
        if items.len() == 1 {
            return None;
        }
        let after_items = HEADER.wrapping_add(size_of_val(items));
        let mut length = after_items;
        if schema_head != 0 {
            if schema.len().wrapping_sub(SHORTEST_SCHEMA) > abi::MAX_RECORD {
                return None;
            }
            length = length.wrapping_add((schema.len() + 15) & !7);
        }
        length = length.wrapping_add(blocks.bytes);
        if length > abi::MAX_RECORD {
            return None;
        }
        let (run, blocks) = (items.as_ptr_range(), blocks.all.as_ptr_range());
        let frame = Frame {
            size: abi::size_in_ring(length) as u64,
            prefix: abi::prefix_word(length as u32, 0, flags),
            provider: ptr::from_ref(header.provider).cast(),
            first: header.first | length as u64,
            thread: u64::from(header.thread),
            descriptor: header.descriptor.as_ptr(),
            activity: header.activity.as_ptr(),
            run: run.start,
            run_end: run.end,
            after_run: (abi::PREFIX_BYTES + after_items) as u64,
            schema_head,
            schema: schema.as_ptr(),
            schema_bytes: schema.len() as u64,
            blocks: blocks.start.cast(),
            blocks_end: blocks.end.cast(),
        };
        Some(Self { frame, length, lives: PhantomData })
    }
}

/// The input of a sequence, in memory because registers do not suffice. Fields are accessed by
/// `offset_of`, so their order does not matter.
#[repr(C)]
#[derive(Debug)]
pub(super) struct Frame {
    /// Number of bytes in the ring.
    pub(super) size: u64,
    /// The first word of the prefix, without the CPU.
    pub(super) prefix: u64,
    /// Null if there is no header.
    pub(super) provider: *const u8,
    pub(super) first: u64,
    pub(super) thread: u64,
    pub(super) descriptor: *const u8,
    pub(super) activity: *const u8,
    pub(super) run: *const u64,
    pub(super) run_end: *const u64,
    /// Offset of the rest from the start of the prefix: up to seven bytes before the end of the
    /// run.
    pub(super) after_run: u64,
    /// 0 if there is no schema.
    pub(super) schema_head: u64,
    pub(super) schema: *const u8,
    pub(super) schema_bytes: u64,
    /// Pairs of an address and a size of 32 bits, sixteen bytes apart.
    pub(super) blocks: *const u8,
    pub(super) blocks_end: *const u8,
}

// A reference to a slice is such a pair too. The language does not promise that, so the compiler
// checks it: the second word of one is its length. The lower half of a length comes first.
const _: () = {
    union Reference {
        slice: &'static [u8],
        words: [MaybeUninit<usize>; 2],
    }
    assert!(size_of::<&[u8]>() == 16 && align_of::<&[u8]>() == align_of::<Block<'_>>());
    let reference = Reference { slice: &[0; 77] };
    // SAFETY: both fields have sixteen bytes; if this word is the address, the compiler refuses to
    // read it as a number.
    assert!(unsafe { reference.words[1].assume_init() } == 77);
    assert!(cfg!(target_endian = "little"));
};

impl Frame {
    /// Creates the frame of a record that is sound for `length`.
    #[inline(always)]
    pub(super) fn gathered(record: &Gather<'_>, length: usize) -> Self {
        let rest = record.rest.as_ptr_range();
        let run = record.staged.as_ptr().wrapping_add(abi::PREFIX_BYTES / 8);
        Self {
            size: abi::size_in_ring(length) as u64,
            prefix: abi::prefix_word(length as u32, 0, record.flags),
            provider: ptr::null(),
            first: 0,
            thread: 0,
            descriptor: ptr::null(),
            activity: ptr::null(),
            run,
            run_end: run.wrapping_byte_add(record.staged_size() - abi::PREFIX_BYTES),
            after_run: (abi::PREFIX_BYTES + record.staged_bytes) as u64,
            schema_head: 0,
            schema: ptr::null(),
            schema_bytes: 0,
            blocks: rest.start.cast(),
            blocks_end: rest.end.cast(),
        }
    }
}
