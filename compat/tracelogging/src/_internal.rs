//! Items that the tests of Microsoft's `tracelogging` crate use.
#![doc(hidden)]

pub use traceweir::__tlg::{
    counted_size, filetime_from_duration_after_1970, filetime_from_duration_before_1970,
    filetime_from_time32, filetime_from_time64, slice_count,
};

use traceweir::__tlg::Plain;

/// Returns the bytes of a value.
pub fn meta_as_bytes<T: Plain>(meta: &T) -> &[u8] {
    traceweir::__tlg::bytes(meta)
}

/// Returns the minimum number of bytes that a tag takes.
#[must_use]
pub const fn tag_size(tag: u32) -> usize {
    // A tag has 28 bits, seven in each byte, high bits first. Zeros at the low end can be left out.
    let kept_bits = 28_u32.saturating_sub(tag.trailing_zeros());
    if kept_bits == 0 { 1 } else { kept_bits.div_ceil(7) as usize }
}

/// Encodes a tag in `SIZE` bytes.
#[must_use]
pub const fn tag_encode<const SIZE: usize>(tag: u32) -> [u8; SIZE] {
    let mut bytes = [0; SIZE];
    let mut at = 0;
    while at < SIZE {
        let more_flag = if at + 1 < SIZE { 0x80 } else { 0 };
        bytes[at] = (tag >> (21 - 7 * at)) as u8 & 0x7F | more_flag;
        at += 1;
    }
    bytes
}
