//! The memory in which a record is composed.
//!
//! ```text
//!   words ┌────────┬──────────────┬───────┬────────────────┐        remaining blocks
//!         │ prefix │ EVENT_HEADER │ items │ small blocks   │   +    [in place] [in place] …
//!         └────────┴──────────────┴───────┴────────────────┘
//!           16       80             as many blocks as fit           from the first block on that is
//!                                                                   large or does not fit
//! ```
//!
//! Most events are a header and a few numbers. They are gathered here with a handful of moves, so
//! that the restartable sequence copies one run of bytes. A large block is copied once, from the
//! caller's memory.
//!
//! The words lie on the writer's stack, and the remaining blocks are the end of the caller's list
//! of blocks, so no list is built. Only a record whose items do not fit, or whose payload is not
//! the end of such a list, needs its own list (`parts`), which is too large for a stack
//! (scratch.rs).
//!
//! Invariants
//!
//! 1. `words[..ceil(filled_bytes / 8)]` and `parts[..part_count]` are initialised; nothing else is
//!    ever read. Clearing either array would cost as much as the whole event.
//! 2. `filled_bytes <= CAPACITY_BYTES`; eight bytes of slack after it take the zeros that complete
//!    the last word.
//! 3. Once there is a part or a remaining block, nothing is added to the words: bytes keep their
//!    order. There are no remaining blocks if there are parts.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;

use traceweir_format::header::event;
use traceweir_format::header::extended::ITEM_HEAD_BYTES;
use traceweir_transport::abi::PREFIX_BYTES;
use traceweir_transport::ring::{Block, Gather, MAX_SMALL_BYTES, copy_array, copy_small};

/// Bytes that can be staged, including the prefix.
const CAPACITY_BYTES: usize = 320;
/// Words for these bytes, and one for the zeros that complete the last word.
pub(super) const STAGE_WORDS: usize = CAPACITY_BYTES / 8 + 1;
/// 128 data blocks, and six extended data items of head, data and padding.
pub(super) const MAX_PARTS: usize = 128 + 6 * 3;

/// Memory for the beginning of a record.
pub(super) type StageWords = [MaybeUninit<u64>; STAGE_WORDS];
/// Memory for the list of blocks that follow the words.
pub(super) type StageParts<'a> = [MaybeUninit<Block<'a>>; MAX_PARTS];

/// A record under construction.
pub(super) struct Stage<'a> {
    words: &'a mut StageWords,
    filled_bytes: usize,
    parts: &'a mut [MaybeUninit<Block<'a>>],
    part_count: usize,
    /// Blocks that follow the words.
    remaining_blocks: &'a [Block<'a>],
    /// Bytes of the parts, or of the remaining blocks.
    remaining_bytes: usize,
}

impl<'a> Stage<'a> {
    /// Words before anything was written to them.
    pub(super) const EMPTY: StageWords = [const { MaybeUninit::uninit() }; STAGE_WORDS];

    /// Creates an empty stage; [`begin`](Self::begin) comes next.
    #[inline(always)]
    pub(super) const fn new(words: &'a mut StageWords) -> Self {
        Self {
            words,
            filled_bytes: 0,
            parts: &mut [],
            part_count: 0,
            remaining_blocks: &[],
            remaining_bytes: 0,
        }
    }

    /// Creates an empty stage for items of any size and any list of blocks.
    pub(super) const fn with_parts(words: &'a mut StageWords, parts: &'a mut StageParts<'a>) -> Self {
        Self { words, filled_bytes: 0, parts, part_count: 0, remaining_blocks: &[], remaining_bytes: 0 }
    }

    /// Begins a record with the words of its header, after space for the prefix.
    #[inline(always)]
    pub(super) fn begin<const N: usize>(&mut self, header: [u64; N]) {
        const { assert!(PREFIX_BYTES == 16 && PREFIX_BYTES + N * 8 <= CAPACITY_BYTES) };
        self.words[0].write(0);
        self.words[1].write(0);
        // By index, so that the loop is unrolled and the words go from registers to their final
        // place.
        #[allow(clippy::needless_range_loop)]
        for i in 0..N {
            self.words[2 + i].write(header[i].to_le());
        }
        self.filled_bytes = PREFIX_BYTES + N * 8;
    }

    /// Overwrites the first word of the record.
    #[inline(always)]
    pub(super) fn set_first_word(&mut self, word: u64) {
        self.words[2].write(word.to_le());
    }

    /// Overwrites the provider in an event header (at 0x18).
    pub(super) fn set_provider(&mut self, words: [u64; 2]) {
        self.words[2 + 3].write(words[0].to_le());
        self.words[2 + 4].write(words[1].to_le());
    }

    /// Returns the size of the record so far, in bytes.
    #[inline(always)]
    pub(super) fn size(&self) -> usize {
        self.filled_bytes - PREFIX_BYTES + self.remaining_bytes
    }

    /// Appends a part of an item; copies it now if it is small. Requires
    /// [`with_parts`](Self::with_parts).
    pub(super) fn push(&mut self, bytes: &'a [u8]) {
        if self.part_count != 0 || !self.try_copy_small(bytes) {
            self.push_part(Block::new(bytes));
        }
    }

    /// Appends the payload, after which nothing is appended. Small blocks are copied now; from the
    /// first large one on, blocks are copied when the record is written.
    #[inline(always)]
    pub(super) fn push_payload(&mut self, blocks: &'a [Block<'a>]) {
        if self.part_count != 0 {
            return blocks.iter().for_each(|block| self.push_part(*block));
        }
        let mut staged = 0;
        // In a register: through `self` it would be stored and loaded again for each block.
        let mut filled_bytes = self.filled_bytes;
        let base = self.words.as_mut_ptr().cast::<u8>();
        for block in blocks {
            let bytes = block.bytes();
            if bytes.len() > MAX_SMALL_BYTES || filled_bytes + bytes.len() > CAPACITY_BYTES {
                break;
            }
            // SAFETY: `filled_bytes + len <= CAPACITY_BYTES`, so the bytes lie inside `words`,
            // which is borrowed mutably; `bytes` cannot overlap it.
            unsafe { copy_small(base.add(filled_bytes), bytes) };
            filled_bytes += bytes.len();
            staged += 1;
        }
        self.filled_bytes = filled_bytes;
        self.remaining_blocks = blocks.get(staged..).unwrap_or(&[]);
        self.remaining_bytes =
            self.remaining_blocks.iter().fold(0, |sum, block| sum.saturating_add(block.len()));
    }

    /// Appends the payload of a list that also contains other blocks. Requires
    /// [`with_parts`](Self::with_parts).
    pub(super) fn push_mixed_payload(&mut self, blocks: &'a [Block<'a>]) {
        for block in blocks.iter().filter(|block| block.kind() == 0) {
            self.push(block.bytes());
        }
    }

    /// Copies the bytes after the staged ones if they are small and fit, and returns whether it
    /// did.
    fn try_copy_small(&mut self, bytes: &[u8]) -> bool {
        let fits = bytes.len() <= MAX_SMALL_BYTES && self.filled_bytes + bytes.len() <= CAPACITY_BYTES;
        if fits {
            // SAFETY: `filled_bytes + len <= CAPACITY_BYTES`, so the bytes lie inside `words`,
            // which is borrowed mutably; `bytes` cannot overlap it.
            unsafe { copy_small(self.words.as_mut_ptr().cast::<u8>().add(self.filled_bytes), bytes) };
            self.filled_bytes += bytes.len();
        }
        fits
    }

    /// Returns whether [`stage_items`](Self::stage_items) can append items of this size, including
    /// heads and padding.
    #[inline(always)]
    pub(super) const fn can_stage_items(bytes: usize) -> bool {
        bytes <= CAPACITY_BYTES - PREFIX_BYTES - event::SIZE
    }

    /// Appends extended data items to an event header, each a head, data and zeros up to a multiple
    /// of eight. Nothing may follow the header yet, and
    /// [`can_stage_items`](Self::can_stage_items) must hold for all of them.
    ///
    /// They are staged in whole words: a word composed by two stores would have to wait for both
    /// when it is copied on.
    #[inline(always)]
    pub(super) fn stage_items(&mut self, items: [Option<(u64, &[u8])>; 2], last: Option<[u64; 3]>) {
        let base = self.words.as_mut_ptr().cast::<u8>();
        let mut filled_bytes = PREFIX_BYTES + event::SIZE;
        debug_assert_eq!(self.filled_bytes, filled_bytes);
        for (head, data) in items.into_iter().flatten() {
            // SAFETY: the caller checked the size; header and items are whole words, so everything
            // ends at `CAPACITY_BYTES` at the latest. `words` is borrowed mutably, so `data` does
            // not overlap it.
            unsafe {
                base.add(filled_bytes).cast::<u64>().write(head.to_le());
                copy_padded(base.add(filled_bytes + ITEM_HEAD_BYTES), data);
            }
            filled_bytes += ITEM_HEAD_BYTES + data.len().next_multiple_of(8);
        }
        if let Some(words) = last {
            // SAFETY: the caller checked the size, so these words end at `CAPACITY_BYTES` at the
            // latest.
            unsafe { base.add(filled_bytes).cast::<[u64; 3]>().write(words.map(u64::to_le)) };
            filled_bytes += size_of_val(&words);
        }
        self.filled_bytes = filled_bytes;
    }

    fn push_part(&mut self, block: Block<'a>) {
        // The callers bound the number of blocks; a part that does not fit would give a record of
        // the wrong length.
        debug_assert!(self.part_count < self.parts.len());
        if let Some(part) = self.parts.get_mut(self.part_count)
            && block.len() != 0
        {
            part.write(block);
            self.part_count += 1;
            self.remaining_bytes = self.remaining_bytes.saturating_add(block.len());
        }
    }

    /// Returns the record in the form that the transport writes.
    #[inline(always)]
    pub(super) fn gather(&mut self) -> Gather<'_> {
        let base = self.words.as_mut_ptr().cast::<u8>();
        // SAFETY: `filled_bytes <= CAPACITY_BYTES`, and `words` holds eight bytes more. The write
        // completes the last word (invariant 2), so that all bytes of `words[..ceil(filled_bytes /
        // 8)]` are initialised.
        unsafe { base.add(self.filled_bytes).cast::<u64>().write_unaligned(0) };
        // SAFETY: invariant 1; any bits are a u64; the slice borrows `self` mutably through the
        // result.
        let staged = unsafe {
            std::slice::from_raw_parts_mut(
                self.words.as_mut_ptr().cast::<u64>(),
                self.filled_bytes.div_ceil(8),
            )
        };
        // SAFETY: the first `part_count` parts were written by `push_part`, the only place that
        // raises `part_count`.
        let parts =
            unsafe { std::slice::from_raw_parts(self.parts.as_ptr().cast::<Block<'a>>(), self.part_count) };
        let rest = if parts.is_empty() { self.remaining_blocks } else { parts };
        Gather { staged, staged_bytes: self.filled_bytes - PREFIX_BYTES, further_parts: rest, flags: 0 }
    }
}

/// Copies bytes in whole words, the last one completed by zeros, and stores no target byte twice.
///
/// # Safety
///
/// `to` is valid for writes of `from.len()` bytes rounded up to a multiple of eight, and does not
/// overlap `from`.
#[inline(always)]
unsafe fn copy_padded(to: *mut u8, from: &[u8]) {
    let (at, n) = (from.as_ptr(), from.len());
    // SAFETY: each read covers bytes inside `0..n`, by the condition of its branch; each write
    // covers the same range, and the last one the remainder of its word.
    unsafe {
        if n < 8 {
            let mut last = [0; 8];
            copy_small(last.as_mut_ptr(), from);
            if n != 0 {
                copy_array::<8>(to, last.as_ptr());
            }
            return;
        }
        let mut done = 0;
        while done + 16 <= n {
            copy_array::<16>(to.add(done), at.add(done));
            done += 16;
        }
        if done + 8 <= n {
            copy_array::<8>(to.add(done), at.add(done));
            done += 8;
        }
        if done < n {
            let last = u64::from_le_bytes(at.add(n - 8).cast::<[u8; 8]>().read());
            let last = last >> (8 * (8 - (n - done)) as u32);
            to.add(done).cast::<[u8; 8]>().write(last.to_le_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gathered_bytes(gather: &Gather<'_>) -> Vec<u8> {
        let mut bytes: Vec<u8> = gather.staged.iter().flat_map(|w| w.to_ne_bytes()).collect();
        assert!(
            bytes[PREFIX_BYTES + gather.staged_bytes..].iter().all(|b| *b == 0),
            "the padding of the last word must be zero"
        );
        bytes.truncate(PREFIX_BYTES + gather.staged_bytes);
        bytes.drain(..PREFIX_BYTES);
        for part in gather.further_parts {
            bytes.extend_from_slice(part.bytes());
        }
        bytes
    }

    #[test]
    fn blocks_of_every_size_keep_their_bytes_and_order() {
        let source: Vec<u8> = (0..600u32).map(|i| (i * 7 + 3) as u8).collect();
        for first in 0..=300 {
            for second in [0, 1, 3, 8, 40, 65, 200] {
                let blocks = [&source[..first], &source[first..first + second], &source[5..12]];
                let expected = [&[1, 2, 3, 4, 5, 6, 7, 8][..], &blocks.concat()].concat();
                let (mut words, mut parts) = (Stage::EMPTY, [const { MaybeUninit::uninit() }; MAX_PARTS]);
                let mut stage = Stage::new(&mut words);
                stage.begin([0x0807_0605_0403_0201]);
                stage.push_payload(Block::from_slices(&blocks));
                assert_eq!(stage.size(), expected.len());
                assert_eq!(gathered_bytes(&stage.gather()), expected, "{first} {second}");
                // The first two blocks as items, the last one as payload.
                let mut words = Stage::EMPTY;
                let mut stage = Stage::with_parts(&mut words, &mut parts);
                stage.begin([0x0807_0605_0403_0201]);
                blocks[..2].iter().for_each(|block| stage.push(block));
                stage.push_payload(Block::from_slices(&blocks[2..]));
                assert_eq!(stage.size(), expected.len());
                assert_eq!(gathered_bytes(&stage.gather()), expected, "{first} {second}");
            }
        }
    }

    #[test]
    fn items_of_every_size_are_padded_with_zeros() {
        let source: Vec<u8> = (0..600u32).map(|i| (i * 7 + 3) as u8 | 1).collect();
        for length in 0..=80 {
            for more in [0, 3, 8, 80] {
                let bytes = ITEM_HEAD_BYTES
                    + length
                    + 7
                    + ITEM_HEAD_BYTES
                    + more
                    + 7
                    + ITEM_HEAD_BYTES
                    + 16
                    + b"tail".len();
                assert!(Stage::can_stage_items(bytes));
                // Bytes that were in the memory before must not appear in the record.
                let mut words = [MaybeUninit::new(u64::MAX); STAGE_WORDS];
                let mut stage = Stage::new(&mut words);
                stage.begin([7; 10]);
                let mut expected: Vec<u8> = [7u64; 10].iter().flat_map(|w| w.to_le_bytes()).collect();
                let (first, second) = (&source[..length], &source[1..1 + more]);
                for (head, data) in [(1_u64, first), (2, second)] {
                    expected.extend_from_slice(&head.to_le_bytes());
                    expected.extend_from_slice(data);
                    expected.resize(expected.len().next_multiple_of(8), 0);
                }
                stage.stage_items([Some((1, first)), Some((2, second))], Some([3, 4, 5]));
                [3_u64, 4, 5].iter().for_each(|word| expected.extend_from_slice(&word.to_le_bytes()));
                let tail = [&b"tail"[..]];
                stage.push_payload(Block::from_slices(&tail));
                expected.extend_from_slice(b"tail");
                assert_eq!(gathered_bytes(&stage.gather()), expected, "{length} {more}");
            }
        }
    }

    #[test]
    fn small_blocks_beyond_the_capacity_stay_in_place() {
        let blocks = [&[0xA5u8; 17][..]; 128];
        let mut words = Stage::EMPTY;
        let mut stage = Stage::new(&mut words);
        stage.begin([0; 10]);
        stage.push_payload(Block::from_slices(&blocks));
        assert_eq!(stage.size(), 80 + 128 * 17);
        let gather = stage.gather();
        assert!(!gather.further_parts.is_empty());
        assert_eq!(gathered_bytes(&gather).len(), 80 + 128 * 17);
    }
}
