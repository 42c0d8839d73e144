//! Blocks: parts of a payload in the caller's memory, described by address and size.
//!
//! ```text
//!   &[u8]                   address │ length (u64)        viewed in place as blocks
//!   EVENT_DATA_DESCRIPTOR   address │ size (u32) │ type
//! ```

use core::marker::PhantomData;
use core::mem::MaybeUninit;
use core::ptr;

use crate::abi;

/// A part of a payload in the caller's memory, with the memory layout of EVENT_DATA_DESCRIPTOR.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Block<'a> {
    address: u64,
    /// Number of bytes in the lower half; the lowest byte of the upper half is the type of a C
    /// descriptor.
    size: u64,
    lifetime: PhantomData<&'a [u8]>,
}

const _: () = assert!(size_of::<Block<'_>>() == 16 && core::mem::offset_of!(Block<'_>, size) == 8);

impl<'a> Block<'a> {
    /// Creates a block of these bytes. The size is limited to `u32::MAX`, which is more than a
    /// record can hold.
    #[inline(always)]
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        let size = if bytes.len() > u32::MAX as usize { u64::from(u32::MAX) } else { bytes.len() as u64 };
        Self { address: bytes.as_ptr().expose_provenance() as u64, size, lifetime: PhantomData }
    }

    /// Views slices as blocks, in place.
    ///
    /// A length beyond 32 bits extends to the upper half of `size`: [`Blocks::from_slices`] rejects
    /// it, and [`bytes`](Self::bytes) returns as much as the lower half says.
    #[inline(always)]
    #[must_use]
    pub fn from_slices(slices: &'a [&'a [u8]]) -> &'a [Self] {
        for slice in slices {
            // Generates no code; lets `bytes` access this memory by its address.
            let _ = slice.as_ptr().expose_provenance();
        }
        // SAFETY: a block has the memory layout of a reference to a slice, an address and then a
        // length whose lower half comes first, as the assertions below check.
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
    pub unsafe fn from_descriptors(first: *const u8, count: usize) -> &'a [Self] {
        // SAFETY: the caller passes `count` EVENT_DATA_DESCRIPTORs that live for `'a`, and a block
        // has the memory layout of such a descriptor.
        unsafe { core::slice::from_raw_parts(first.cast(), count) }
    }

    /// Returns the type that a C program set (EVENT_DATA_DESCRIPTOR.Type); 0 for a block made from
    /// a slice of less than 4 GiB.
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
        if self.address == 0 {
            return &[];
        }
        let address = ptr::with_exposed_provenance(self.address as usize);
        // SAFETY: the address and the size are those of a slice that lives for `'a`, or those for
        // which a caller of `Block::from_descriptors` promised readable bytes.
        unsafe { core::slice::from_raw_parts(address, self.len()) }
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
        // Each block has fewer than 2³² bytes, and memory limits the number of blocks, so the sum
        // does not wrap.
        let bytes = all.iter().fold(0_usize, |sum, block| sum.wrapping_add(block.size as u32 as usize));
        Self { all, bytes }
    }

    /// Creates blocks whose total is already known. `bytes` must be the sum of their sizes: a
    /// restartable sequence refuses the record if `bytes` is smaller, and publishes a record that
    /// ends with old bytes of the ring if `bytes` is larger.
    #[inline(always)]
    #[must_use]
    pub fn with_total(all: &'a [Block<'a>], bytes: usize) -> Self {
        debug_assert_eq!(Self::new(all).bytes, bytes);
        Self { all, bytes }
    }

    /// Returns all blocks.
    #[inline(always)]
    #[must_use]
    pub fn as_slice(&self) -> &'a [Block<'a>] {
        self.all
    }

    /// Returns the total number of bytes.
    #[inline(always)]
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds up the sizes of blocks that were made [from slices](Block::from_slices). Returns `None`
    /// if a block is larger than a record can be.
    #[inline(always)]
    #[must_use]
    pub fn from_slices(all: &'a [Block<'a>]) -> Option<Self> {
        let (mut bytes, mut bits) = (0_usize, 0);
        for block in all {
            bytes = bytes.wrapping_add(block.size as usize);
            bits |= block.size;
        }
        // The limit is 2¹⁶ − 1, so the union of all bits exceeds it exactly if a size does.
        (bits <= abi::MAX_RECORD_BYTES as u64).then_some(Self { all, bytes })
    }

    /// Creates blocks from C descriptors with a total of `bytes` bytes.
    ///
    /// # Safety
    ///
    /// As for [`Block::from_descriptors`], and the sizes of the descriptors add up to `bytes`.
    #[inline(always)]
    #[must_use]
    pub unsafe fn from_descriptors(first: *const u8, count: usize, bytes: usize) -> Self {
        // SAFETY: the caller makes the promises of `Block::from_descriptors`.
        Self { all: unsafe { Block::from_descriptors(first, count) }, bytes }
    }
}

// A reference to a slice has the layout of a block. The language does not promise that, so the
// compiler checks it: the second word of a reference is its length, whose lower half comes first.
const _: () = {
    union SliceReference {
        slice: &'static [u8],
        words: [MaybeUninit<usize>; 2],
    }
    assert!(size_of::<&[u8]>() == 16 && align_of::<&[u8]>() == align_of::<Block<'_>>());
    let reference = SliceReference { slice: &[0; 77] };
    // SAFETY: both fields have sixteen bytes; if this word is the address, the compiler refuses to
    // read it as a number.
    assert!(unsafe { reference.words[1].assume_init() } == 77);
    assert!(cfg!(target_endian = "little"));
};
