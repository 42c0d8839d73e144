//! Copies of few bytes, without a call.

/// The most bytes that [`copy_small`] copies.
pub const MAX_SMALL_BYTES: usize = 64;

/// Copies up to [`MAX_SMALL_BYTES`] bytes by a few moves that may overlap: a call to the
/// general `memcpy` costs more than all other gathering.
///
/// # Safety
///
/// `to` is valid for writes of `from.len()` bytes, at most [`MAX_SMALL_BYTES`], and does not
/// overlap `from`.
#[inline(always)]
pub unsafe fn copy_small(to: *mut u8, from: &[u8]) {
    let (at, n) = (from.as_ptr(), from.len());
    // SAFETY: each move covers bytes inside `0..n` of both, by the condition of its branch.
    unsafe {
        match n {
            8 => copy_array::<8>(to, at),
            4 => copy_array::<4>(to, at),
            0 => {}
            1..=3 => {
                copy_array::<1>(to, at);
                copy_array::<1>(to.add(n / 2), at.add(n / 2));
                copy_array::<1>(to.add(n - 1), at.add(n - 1));
            }
            5..=7 => {
                copy_array::<4>(to, at);
                copy_array::<4>(to.add(n - 4), at.add(n - 4));
            }
            9..=16 => {
                copy_array::<8>(to, at);
                copy_array::<8>(to.add(n - 8), at.add(n - 8));
            }
            17..=32 => {
                copy_array::<16>(to, at);
                copy_array::<16>(to.add(n - 16), at.add(n - 16));
            }
            _ => {
                copy_array::<32>(to, at);
                copy_array::<32>(to.add(n - 32), at.add(n - 32));
            }
        }
    }
}

/// Copies `N` bytes with plain moves.
///
/// # Safety
///
/// `to` is valid for writes and `from` for reads of `N` bytes.
#[inline(always)]
pub unsafe fn copy_array<const N: usize>(to: *mut u8, from: *const u8) {
    // SAFETY: the caller promises that both pointers are valid for `N` bytes; an array of bytes
    // needs no alignment.
    unsafe { to.cast::<[u8; N]>().write(from.cast::<[u8; N]>().read()) }
}
