//! Where a record is put together on the writer's stack.
//!
//! ```text
//!   words ┌────────┬──────────────┬───────┬────────────────┐        parts
//!         │ prefix │ EVENT_HEADER │ items │ small blocks   │   +    [in place] [in place] …
//!         └────────┴──────────────┴───────┴────────────────┘
//!           16       80             what fits, block by block       from the first block that is large, or that no longer fits
//! ```
//!
//! Most events are a header and a few numbers: those are gathered here with a handful of moves, so that the restartable sequence copies
//! one run of bytes. A large block is copied once, from where it lies.
//!
//! Invariants
//!
//! 1. `words[..ceil(filled / 8)]` and `parts[..count]` are initialised; nothing else is ever read. Clearing either array would cost as much as the
//!    whole event.
//! 2. `filled <= CAPACITY`; eight bytes of slack behind it take the zeros that complete the last word.
//! 3. Once a part is there, everything goes to the parts: bytes keep their order.
#![allow(unsafe_code)]

use std::io::IoSlice;
use std::mem::MaybeUninit;

use traceweir_format::header::event;
use traceweir_format::header::extended::ITEM_HEAD;
use traceweir_transport::abi::PREFIX_BYTES;
use traceweir_transport::ring::Gather;

/// Blocks above this size are copied from where they lie.
const SMALL: usize = 64;
/// Bytes that can be staged, the prefix included.
const CAPACITY: usize = 640;
const WORDS: usize = CAPACITY / 8 + 1;
/// 128 data blocks; six extended items of head, data and padding.
const PARTS: usize = 128 + 6 * 3;

/// A record under construction.
pub(super) struct Stage<'a> {
    words: [MaybeUninit<u64>; WORDS],
    filled: usize,
    parts: [MaybeUninit<IoSlice<'a>>; PARTS],
    count: usize,
    /// Bytes of the parts.
    in_parts: usize,
}

impl<'a> Stage<'a> {
    /// Nothing yet. [`begin`](Self::begin) comes next; apart from it, so that the arrays are made where they stay and never moved.
    #[inline(always)]
    pub(super) const fn empty() -> Self {
        Self {
            words: [const { MaybeUninit::uninit() }; WORDS],
            filled: 0,
            parts: [const { MaybeUninit::uninit() }; PARTS],
            count: 0,
            in_parts: 0,
        }
    }

    /// Begins a record with these words (little-endian), behind room for the prefix.
    #[inline(always)]
    pub(super) fn begin<const N: usize>(&mut self, head: [u64; N]) {
        const { assert!(PREFIX_BYTES == 16 && PREFIX_BYTES + N * 8 <= CAPACITY) };
        self.words[0].write(0);
        self.words[1].write(0);
        // By index, so that the loop is unrolled and the words go from registers to where they stay.
        #[allow(clippy::needless_range_loop)]
        for i in 0..N {
            self.words[2 + i].write(head[i].to_le());
        }
        self.filled = PREFIX_BYTES + N * 8;
    }

    /// Overwrites the first word of the record.
    #[inline(always)]
    pub(super) fn set_first(&mut self, word: u64) {
        self.words[2].write(word.to_le());
    }

    /// Overwrites the provider of an event header (at 0x18).
    pub(super) fn set_provider(&mut self, words: [u64; 2]) {
        self.words[2 + 3].write(words[0].to_le());
        self.words[2 + 4].write(words[1].to_le());
    }

    /// Bytes of the record so far.
    #[inline(always)]
    pub(super) fn size(&self) -> usize {
        self.filled - PREFIX_BYTES + self.in_parts
    }

    /// Appends a block.
    #[inline(always)]
    pub(super) fn push(&mut self, block: &'a [u8]) {
        self.push_all(&[block]);
    }

    /// Appends blocks; small ones are copied now, from the first large one on they are copied when the record is written.
    #[inline(always)]
    pub(super) fn push_all(&mut self, blocks: &[&'a [u8]]) {
        let base = self.words.as_mut_ptr().cast::<u8>();
        // In a register: through `self` it would be stored and loaded again for each block.
        let mut filled = self.filled;
        let mut blocks = blocks.iter();
        if self.count == 0 {
            for block in blocks.by_ref() {
                if block.len() > SMALL || filled + block.len() > CAPACITY {
                    self.push_part(block);
                    break;
                }
                // SAFETY: `filled + len <= CAPACITY`, so the bytes lie inside `words`, which is borrowed mutably; `block` cannot overlap it.
                unsafe { copy_small(base.add(filled), block) };
                filled += block.len();
            }
            self.filled = filled;
        }
        for block in blocks {
            self.push_part(block);
        }
    }

    /// Whether items with so many bytes, heads and padding included, can be staged by [`stage_items`](Self::stage_items).
    #[inline(always)]
    pub(super) const fn has_room_for_items(bytes: usize) -> bool {
        bytes <= CAPACITY - PREFIX_BYTES - event::SIZE
    }

    /// Appends extended items to an event header, each a head, data and zeros up to a multiple of eight. Nothing stands behind the header yet, and
    /// [`has_room_for_items`](Self::has_room_for_items) of all of them.
    ///
    /// They are staged in whole words: a word that is put together from two stores would have to wait for both when it is copied on.
    #[inline(always)]
    pub(super) fn stage_items(&mut self, items: [Option<(u64, &[u8])>; 2], last: Option<[u64; 3]>) {
        let base = self.words.as_mut_ptr().cast::<u8>();
        let mut filled = PREFIX_BYTES + event::SIZE;
        debug_assert_eq!(self.filled, filled);
        for (head, data) in items.into_iter().flatten() {
            // SAFETY: the caller asked for room; the header is whole words, and so is each item, so all ends at `CAPACITY` at the latest. `words` is
            // borrowed mutably, so `data` does not overlap it.
            unsafe {
                base.add(filled).cast::<u64>().write(head.to_le());
                copy_padded(base.add(filled + ITEM_HEAD), data);
            }
            filled += ITEM_HEAD + data.len().next_multiple_of(8);
        }
        if let Some(words) = last {
            // SAFETY: as above.
            unsafe { base.add(filled).cast::<[u64; 3]>().write(words.map(u64::to_le)) };
            filled += size_of_val(&words);
        }
        self.filled = filled;
    }

    #[inline(always)]
    fn push_part(&mut self, block: &'a [u8]) {
        // The callers bound the number of blocks; a part too many would be a record of a wrong length, hence no silent drop.
        debug_assert!(self.count < PARTS);
        if let Some(part) = self.parts.get_mut(self.count)
            && !block.is_empty()
        {
            part.write(IoSlice::new(block));
            self.count += 1;
            self.in_parts += block.len();
        }
    }

    /// The record as the transport takes it.
    #[inline(always)]
    pub(super) fn gather(&mut self) -> Gather<'_> {
        let base = self.words.as_mut_ptr().cast::<u8>();
        // SAFETY: `filled <= CAPACITY`, and `words` holds eight bytes more. The write completes the last word (invariant 2), so
        // that all bytes of `words[..ceil(filled / 8)]` are initialised.
        unsafe { base.add(self.filled).cast::<u64>().write_unaligned(0) };
        // SAFETY: invariant 1; any bits are a u64; the slice borrows `self` mutably through the result.
        let staged = unsafe {
            std::slice::from_raw_parts_mut(self.words.as_mut_ptr().cast::<u64>(), self.filled.div_ceil(8))
        };
        // SAFETY: the first `count` parts were written by `push_part`, the only place that raises `count`.
        let rest =
            unsafe { std::slice::from_raw_parts(self.parts.as_ptr().cast::<IoSlice<'a>>(), self.count) };
        Gather { staged, staged_bytes: self.filled - PREFIX_BYTES, rest, flags: 0 }
    }
}

/// Copies up to [`SMALL`] bytes by a few moves that may overlap: a call to the general `memcpy` costs more than the rest of the gathering.
///
/// # Safety
///
/// `to` is valid for writes of `from.len()` bytes, at most [`SMALL`], and does not overlap `from`.
#[inline(always)]
unsafe fn copy_small(to: *mut u8, from: &[u8]) {
    let (at, n) = (from.as_ptr(), from.len());
    // SAFETY: each move covers bytes inside `0..n` of both, by the condition it stands under.
    unsafe {
        match n {
            8 => step::<8>(to, at),
            4 => step::<4>(to, at),
            0 => {}
            1..=3 => {
                step::<1>(to, at);
                step::<1>(to.add(n / 2), at.add(n / 2));
                step::<1>(to.add(n - 1), at.add(n - 1));
            }
            5..=7 => {
                step::<4>(to, at);
                step::<4>(to.add(n - 4), at.add(n - 4));
            }
            9..=16 => {
                step::<8>(to, at);
                step::<8>(to.add(n - 8), at.add(n - 8));
            }
            17..=32 => {
                step::<16>(to, at);
                step::<16>(to.add(n - 16), at.add(n - 16));
            }
            _ => {
                step::<32>(to, at);
                step::<32>(to.add(n - 32), at.add(n - 32));
            }
        }
    }
}

/// Copies bytes in whole words, the last one completed by zeros: no byte of the target is stored twice.
///
/// # Safety
///
/// `to` is valid for writes of `from.len()` bytes up to a multiple of eight, and does not overlap `from`.
#[inline(always)]
unsafe fn copy_padded(to: *mut u8, from: &[u8]) {
    let (at, n) = (from.as_ptr(), from.len());
    // SAFETY: each read covers bytes inside `0..n`, by the condition it stands under; each write the same places, and the last one the rest of its word.
    unsafe {
        if n < 8 {
            let mut last = [0; 8];
            copy_small(last.as_mut_ptr(), from);
            if n != 0 {
                step::<8>(to, last.as_ptr());
            }
            return;
        }
        let mut done = 0;
        while done + 16 <= n {
            step::<16>(to.add(done), at.add(done));
            done += 16;
        }
        if done + 8 <= n {
            step::<8>(to.add(done), at.add(done));
            done += 8;
        }
        if done < n {
            let last = u64::from_le_bytes(at.add(n - 8).cast::<[u8; 8]>().read());
            let last = last >> (8 * (8 - (n - done)) as u32);
            to.add(done).cast::<[u8; 8]>().write(last.to_le_bytes());
        }
    }
}

/// Copies `N` bytes with plain moves.
///
/// # Safety
///
/// Both sides are valid for `N` bytes.
#[inline(always)]
unsafe fn step<const N: usize>(to: *mut u8, from: *const u8) {
    // SAFETY: by the contract; an array of bytes needs no alignment.
    unsafe { to.cast::<[u8; N]>().write(from.cast::<[u8; N]>().read()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes_of(gather: &Gather<'_>) -> Vec<u8> {
        let mut all: Vec<u8> = gather.staged.iter().flat_map(|w| w.to_ne_bytes()).collect();
        assert!(
            all[PREFIX_BYTES + gather.staged_bytes..].iter().all(|b| *b == 0),
            "the last word is completed by zeros"
        );
        all.truncate(PREFIX_BYTES + gather.staged_bytes);
        all.drain(..PREFIX_BYTES);
        for part in gather.rest {
            all.extend_from_slice(part);
        }
        all
    }

    #[test]
    fn blocks_of_every_size_keep_their_bytes_and_order() {
        let source: Vec<u8> = (0..600u32).map(|i| (i * 7 + 3) as u8).collect();
        for first in 0..=300 {
            for second in [0, 1, 3, 8, 40, 65, 200] {
                let mut stage = Stage::empty();
                stage.begin([0x0807_0605_0403_0201]);
                let mut want = vec![1, 2, 3, 4, 5, 6, 7, 8];
                for block in [&source[..first], &source[first..first + second], &source[5..12]] {
                    stage.push(block);
                    want.extend_from_slice(block);
                }
                assert_eq!(bytes_of(&stage.gather()), want, "{first} {second}");
            }
        }
    }

    #[test]
    fn items_of_every_size_are_padded_with_zeros() {
        let source: Vec<u8> = (0..600u32).map(|i| (i * 7 + 3) as u8 | 1).collect();
        for length in 0..=240 {
            for more in [0, 3, 8, 240] {
                let mut stage = Stage::empty();
                // What is not written must not be seen.
                stage.words.fill(MaybeUninit::new(u64::MAX));
                stage.begin([7; 10]);
                let mut want: Vec<u8> = [7u64; 10].iter().flat_map(|w| w.to_le_bytes()).collect();
                let (first, second) = (&source[..length], &source[1..1 + more]);
                for (head, data) in [(1_u64, first), (2, second)] {
                    want.extend_from_slice(&head.to_le_bytes());
                    want.extend_from_slice(data);
                    want.resize(want.len().next_multiple_of(8), 0);
                }
                stage.stage_items([Some((1, first)), Some((2, second))], Some([3, 4, 5]));
                [3_u64, 4, 5].iter().for_each(|word| want.extend_from_slice(&word.to_le_bytes()));
                stage.push(b"tail");
                want.extend_from_slice(b"tail");
                assert_eq!(bytes_of(&stage.gather()), want, "{length} {more}");
            }
        }
    }

    #[test]
    fn many_small_blocks_run_over_into_parts() {
        let block = [0xA5u8; 17];
        let mut stage = Stage::empty();
        stage.begin([0; 10]);
        for _ in 0..128 {
            stage.push(&block);
        }
        let gather = stage.gather();
        assert!(!gather.rest.is_empty());
        assert_eq!(bytes_of(&gather).len(), 80 + 128 * 17);
    }
}
