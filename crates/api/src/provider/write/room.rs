//! Slices on the stack of whoever writes, as many as an event may have: only those that there are cost something.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;

use super::MAX_BLOCKS;

/// Room for the blocks of payload.
pub(in crate::provider) struct Room<'a> {
    slices: [MaybeUninit<&'a [u8]>; MAX_BLOCKS],
    /// The first so many are written.
    count: usize,
}

impl<'a> Room<'a> {
    #[inline(always)]
    pub(in crate::provider) const fn new() -> Self {
        Self { slices: [const { MaybeUninit::uninit() }; MAX_BLOCKS], count: 0 }
    }

    /// One more. The callers bound their number; a slice too many would be an event of a wrong length, hence no silent drop.
    #[inline(always)]
    pub(in crate::provider) fn push(&mut self, slice: &'a [u8]) {
        debug_assert!(self.count < MAX_BLOCKS);
        if let Some(place) = self.slices.get_mut(self.count) {
            place.write(slice);
            self.count += 1;
        }
    }

    /// All that were pushed.
    #[inline(always)]
    pub(in crate::provider) fn filled(&self) -> &[&'a [u8]] {
        // SAFETY: the first `count` places were written by `push`, the only place that raises `count`.
        unsafe { std::slice::from_raw_parts(self.slices.as_ptr().cast(), self.count) }
    }
}
