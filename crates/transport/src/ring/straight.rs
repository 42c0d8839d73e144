//! A record that is written into a ring directly from the memory of its pieces, without being
//! assembled first.
//!
//! ```text
//!   prefix │ first  thread  0 │ provider (16) │ descriptor (16) │ 0 │ activity (16) │
//!     16                        80 bytes: an event's header
//!   │ items: whole words │ header data  zeros │ block │ block …
//!           run                  schema           payload
//! ```
//!
//! Most pieces of an event already exist in memory in their final form: the provider's id and its
//! items in the registration, descriptor and schema in the program's constants. Copying each piece
//! once, by wide moves, takes half the time of assembling the pieces on the stack and copying them
//! again. Without sequences, the same pieces are copied under the lock of a ring.
//!
//! A sequence reads one [`WriteFrame`], which describes such a record or a
//! [`Gather`](super::Gather). A frame has a run of words: the items, which follow the header, or
//! the staged part of a `Gather`, which has no separate header.
//!
//! Invariant: the sizes in a frame add up to at most `size`, and every address in it can be read
//! for as many bytes as the frame says. The constructors ensure it.

use core::marker::PhantomData;
use core::ptr;
use core::sync::atomic::AtomicU64;

use super::block::{Block, Blocks};
use super::copy::{MAX_SMALL_BYTES, copy_array, copy_small};
use super::fallback::CopyRecord;
use super::gather::Gather;
use crate::abi;

/// Size of an event's header in bytes.
const EVENT_HEADER_BYTES: usize = 80;
/// Number of times that a sequence is started before the lock is used instead: a sequence that a
/// debugger steps through would never end.
const MAX_ATTEMPTS: u32 = 64;
/// Shortest schema that the moves of the sequence can copy.
pub const MIN_SCHEMA_BYTES: usize = 16;

/// The header of an event, before its items.
#[derive(Clone, Copy, Debug)]
pub struct Header<'a> {
    /// The first word, with zeros for the size in its lowest sixteen bits.
    pub first: u64,
    /// Thread id, the second word.
    pub thread: u32,
    /// Provider id: the sixteen bytes after the third word, which is zero.
    pub provider: &'a [AtomicU64; 2],
    /// Event descriptor: the sixteen bytes after the provider id.
    pub descriptor: &'a [u8; 16],
    /// Activity id: the last sixteen bytes, after a word of zeros.
    pub activity: &'a [u8; 16],
}

/// A record in pieces, ready to be written.
#[derive(Debug)]
pub struct Straight<'a> {
    pub(super) frame: WriteFrame,
    pub(super) length: usize,
    lifetime: PhantomData<&'a [u8]>,
}

impl<'a> Straight<'a> {
    /// Creates the record of these pieces: the header; `items`, already encoded; then the header
    /// and the data of `schema`, padded with zeros to a multiple of eight; then the blocks. `flags`
    /// are some of [`abi::FLAGS`]. Returns `None` if the record has more than
    /// [`abi::MAX_RECORD_BYTES`] bytes, the schema has less than [`MIN_SCHEMA_BYTES`], or `items`
    /// has one word, which is shorter than any item.
    #[inline(always)]
    #[must_use]
    pub fn new(
        header: &Header<'a>,
        items: &'a [u64],
        schema: Option<(u64, &'a [u8])>,
        blocks: Blocks<'a>,
        flags: u16,
    ) -> Option<Self> {
        let (schema_header, schema) = schema.unwrap_or((0, &[]));
        // No item is that short, and the sequence copies at least two words.
        if items.len() == 1 {
            return None;
        }
        let after_items = EVENT_HEADER_BYTES.wrapping_add(size_of_val(items));
        let mut length = after_items;
        if schema_header != 0 {
            // The difference wraps around for a schema that is too short, so this condition refuses
            // schemas that are too short or too long.
            if schema.len().wrapping_sub(MIN_SCHEMA_BYTES) > abi::MAX_RECORD_BYTES {
                return None;
            }
            // The header word (8 bytes) and the data, rounded up to a multiple of eight.
            length = length.wrapping_add((schema.len() + 15) & !7);
        }
        length = length.wrapping_add(blocks.bytes());
        if length > abi::MAX_RECORD_BYTES {
            return None;
        }
        let (run, blocks) = (items.as_ptr_range(), blocks.as_slice().as_ptr_range());
        let frame = WriteFrame {
            attempts: MAX_ATTEMPTS,
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
            schema_header,
            schema: schema.as_ptr(),
            schema_bytes: schema.len() as u64,
            blocks: blocks.start.cast(),
            blocks_end: blocks.end.cast(),
        };
        Some(Self { frame, length, lifetime: PhantomData })
    }
}

impl CopyRecord for Straight<'_> {
    #[inline(always)]
    fn prefix(&self, _: usize, cpu: u16) -> u64 {
        self.frame.prefix | u64::from(cpu) << 32
    }

    #[inline(always)]
    unsafe fn copy_to(&mut self, to: *mut u8, size: usize, [prefix, stamp]: [u64; 2]) -> bool {
        let frame = &self.frame;
        let mut at = abi::PREFIX_BYTES + EVENT_HEADER_BYTES;
        // SAFETY: the invariant of the frame: its addresses can be read for as many bytes as it says,
        // and header, items and schema together have at most `size` bytes, which can be written. The
        // blocks are those of `new`, and each is checked against the bytes that are left.
        unsafe {
            let words = to.cast::<u64>();
            words.write(prefix);
            words.add(1).write(stamp);
            words.add(2).write(frame.first);
            words.add(3).write(frame.thread);
            words.add(4).write(0);
            copy_array::<16>(to.add(40), frame.provider);
            copy_array::<16>(to.add(56), frame.descriptor);
            words.add(9).write(0);
            copy_array::<16>(to.add(80), frame.activity);
            let items = frame.run_end.addr().wrapping_sub(frame.run.addr());
            ptr::copy_nonoverlapping(frame.run.cast(), to.add(at), items);
            at += items;
            if frame.schema_header != 0 {
                let bytes = frame.schema_bytes as usize;
                let padded = (bytes + 7) & !7;
                to.add(at).cast::<u64>().write(frame.schema_header);
                to.add(at + padded).cast::<u64>().write(0);
                ptr::copy_nonoverlapping(frame.schema, to.add(at + 8), bytes);
                at += 8 + padded;
            }
            let count = frame.blocks_end.addr().wrapping_sub(frame.blocks.addr()) / size_of::<Block<'_>>();
            for block in core::slice::from_raw_parts(frame.blocks.cast::<Block<'_>>(), count) {
                // Read once: the program may change it meanwhile.
                let bytes = block.bytes();
                if bytes.len() > size.saturating_sub(at) {
                    return false;
                }
                if bytes.len() <= MAX_SMALL_BYTES {
                    copy_small(to.add(at), bytes);
                } else {
                    ptr::copy_nonoverlapping(bytes.as_ptr(), to.add(at), bytes.len());
                }
                at += bytes.len();
            }
        }
        true
    }
}

/// The input of a sequence, in memory because registers do not suffice. Fields are accessed by
/// `offset_of`, so their order does not matter.
#[repr(C)]
#[derive(Debug)]
pub(super) struct WriteFrame {
    /// Number of times that the sequence may still be started.
    pub(super) attempts: u32,
    /// Number of bytes that the record takes in the ring.
    pub(super) size: u64,
    /// The first word of the prefix, without the CPU.
    pub(super) prefix: u64,
    /// The provider's id; null if there is no header.
    pub(super) provider: *const u8,
    /// The first word of the header, with the size of the record.
    pub(super) first: u64,
    pub(super) thread: u64,
    pub(super) descriptor: *const u8,
    pub(super) activity: *const u8,
    pub(super) run: *const u64,
    pub(super) run_end: *const u64,
    /// Offset of the schema or the blocks from the start of the prefix. In a frame of a `Gather` it
    /// is up to seven bytes before the end of the run, which ends with a complete word.
    pub(super) after_run: u64,
    /// Header word of the schema; 0 if there is no schema.
    pub(super) schema_header: u64,
    pub(super) schema: *const u8,
    pub(super) schema_bytes: u64,
    /// Pairs of an address and a size of 32 bits, sixteen bytes apart.
    pub(super) blocks: *const u8,
    pub(super) blocks_end: *const u8,
}

impl WriteFrame {
    /// Creates the frame of a record that is sound for `length`.
    #[inline(always)]
    pub(super) fn from_gather(record: &Gather<'_>, length: usize) -> Self {
        let blocks = record.further_parts.as_ptr_range();
        let run = record.staged.as_ptr().wrapping_add(abi::PREFIX_BYTES / 8);
        Self {
            attempts: MAX_ATTEMPTS,
            size: abi::size_in_ring(length) as u64,
            prefix: abi::prefix_word(length as u32, 0, record.flags),
            provider: ptr::null(),
            first: 0,
            thread: 0,
            descriptor: ptr::null(),
            activity: ptr::null(),
            run,
            run_end: run.wrapping_byte_add(record.staged_copy_bytes() - abi::PREFIX_BYTES),
            after_run: (abi::PREFIX_BYTES + record.staged_bytes) as u64,
            schema_header: 0,
            schema: ptr::null(),
            schema_bytes: 0,
            blocks: blocks.start.cast(),
            blocks_end: blocks.end.cast(),
        }
    }
}
