//! What tests of the original look at.
#![doc(hidden)]

pub use traceweir::__tlg::{
    counted_size, filetime_from_duration_after_1970, filetime_from_duration_before_1970,
    filetime_from_time32, filetime_from_time64, slice_count,
};

use traceweir::__tlg::Plain;

/// The bytes of a value.
pub fn meta_as_bytes<T: Plain>(meta: &T) -> &[u8] {
    traceweir::__tlg::bytes(meta)
}

/// Bytes that a tag takes at least.
#[must_use]
pub const fn tag_size(tag: u32) -> usize {
    // Seven bits in a byte, the high ones first: zeros at the low end may go.
    let kept = 28_u32.saturating_sub(tag.trailing_zeros());
    if kept == 0 { 1 } else { kept.div_ceil(7) as usize }
}

/// A tag in so many bytes.
#[must_use]
pub const fn tag_encode<const SIZE: usize>(tag: u32) -> [u8; SIZE] {
    let mut bytes = [0; SIZE];
    let mut at = 0;
    while at < SIZE {
        let more = if at + 1 < SIZE { 0x80 } else { 0 };
        bytes[at] = (tag >> (21 - 7 * at)) as u8 & 0x7F | more;
        at += 1;
    }
    bytes
}
