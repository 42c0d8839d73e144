//! Reads and writes memory at addresses that C programs pass.
//!
//! NULL becomes `None`, and so does an array at a misaligned address. Single values are copied,
//! aligned or not, so that no reference to memory that C may change is kept here.

/// Copies the value at an address. Returns `None` for NULL.
///
/// # Safety
///
/// `at` is NULL, or a `T` can be read there.
#[inline(always)]
pub(crate) unsafe fn read_value<T: Copy>(at: *const T) -> Option<T> {
    // SAFETY: `at` is not NULL, so the caller guarantees that a `T` can be read there.
    (!at.is_null()).then(|| unsafe { at.read_unaligned() })
}

/// Writes a value to an address. Does nothing for NULL.
///
/// # Safety
///
/// `at` is NULL, or a `T` can be written there.
#[inline(always)]
pub(crate) unsafe fn store<T>(at: *mut T, value: T) {
    if !at.is_null() {
        // SAFETY: `at` is not NULL, so the caller guarantees that a `T` can be written there.
        unsafe { at.write_unaligned(value) };
    }
}

/// Returns the array at an address. An array of no elements may be anywhere, NULL included.
///
/// # Safety
///
/// `at` is NULL, or `count` elements can be read there and do not change for `'a`.
#[inline(always)]
pub(crate) unsafe fn read_array<'a, T>(at: *const T, count: usize) -> Option<&'a [T]> {
    if count == 0 {
        return Some(&[]);
    }
    let fits = count.checked_mul(size_of::<T>()).is_some_and(|bytes| bytes <= isize::MAX as usize);
    if at.is_null() || !at.is_aligned() || !fits {
        return None;
    }
    // SAFETY: `at` is neither NULL nor misaligned, the array is not too long, and the caller
    // guarantees that `count` elements can be read and do not change.
    Some(unsafe { std::slice::from_raw_parts(at, count) })
}

/// Copies bytes to an address. Source and destination may overlap: a program may pass the same
/// memory twice.
///
/// # Safety
///
/// `bytes.len()` bytes can be written at `at`; they need not be initialized.
pub(crate) unsafe fn write_bytes(at: *mut u8, bytes: &[u8]) {
    // SAFETY: the caller guarantees that `at` has room for the bytes; `copy` allows overlap.
    unsafe { std::ptr::copy(bytes.as_ptr(), at, bytes.len()) };
}

/// Copies the units of a text up to its terminator; they need not be aligned. Returns `None` for
/// NULL, and if none of the first `max_units` units is the terminator.
///
/// # Safety
///
/// `at` is NULL, or units can be read there up to the terminator, and at most `max_units` of them.
pub(crate) unsafe fn read_text<U: Copy + Default + PartialEq>(
    at: *const U,
    max_units: usize,
) -> Option<Vec<U>> {
    let mut units = Vec::new();
    while units.len() < max_units {
        // SAFETY: no unit so far was the terminator, so the caller guarantees one more.
        let unit = unsafe { read_value(at.wrapping_add(units.len())) }?;
        if unit == U::default() {
            return Some(units);
        }
        units.push(unit);
    }
    None
}

/// Returns the bytes at an address that a structure holds as a number.
///
/// # Safety
///
/// As for [`read_array`].
pub(crate) unsafe fn read_bytes_at<'a>(address: u64, count: u32) -> Option<&'a [u8]> {
    let at = std::ptr::with_exposed_provenance::<u8>(usize::try_from(address).ok()?);
    // SAFETY: the caller fulfils the contract of `read_array`.
    unsafe { read_array(at, usize::try_from(count).ok()?) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_read_up_to_its_terminator_and_at_most_to_the_limit() {
        let misaligned = *b"-a\0b\0\0\0";
        // SAFETY: the limits lie within `misaligned`.
        unsafe {
            assert_eq!(read_text(misaligned.as_ptr().add(1).cast::<u16>(), 3), Some(vec![0x61, 0x62]));
            assert_eq!(read_text(misaligned.as_ptr().add(1).cast::<u16>(), 2), None, "read past the limit");
            assert_eq!(read_text(misaligned.as_ptr(), 7), Some(b"-a".to_vec()));
            assert_eq!(read_text(misaligned.as_ptr(), 0), None);
        }
    }

    #[test]
    fn source_and_destination_may_overlap() {
        let mut bytes = *b"abcdef";
        let at = bytes.as_mut_ptr();
        // SAFETY: source and destination lie within `bytes`.
        unsafe { write_bytes(at.add(1), std::slice::from_raw_parts(at, 4)) };
        assert_eq!(&bytes, b"aabcdf");
    }

    #[test]
    fn null_and_misaligned_arrays_are_none() {
        let words = [1u64, 2];
        let misaligned = words.as_ptr().cast::<u8>().wrapping_add(1).cast::<u64>();
        // SAFETY: each address is NULL or in `words`; the misaligned value lies within `words`.
        unsafe {
            assert_eq!(read_value::<u64>(std::ptr::null()), None);
            assert_eq!(read_value(misaligned), Some(2 << 56));
            assert_eq!(read_array(std::ptr::null::<u64>(), 1), None);
            assert_eq!(read_array(misaligned, 1), None);
            assert_eq!(read_array(words.as_ptr(), usize::MAX), None);
            assert_eq!(read_array(std::ptr::null::<u64>(), 0), Some(&[][..]));
            assert_eq!(read_array(words.as_ptr(), 2), Some(&words[..]));
            assert_eq!(read_bytes_at(0, 0), Some(&[][..]));
            assert_eq!(read_bytes_at(0, 1), None);
            store(std::ptr::null_mut::<u64>(), 1);
            assert_eq!(read_text::<u16>(std::ptr::null(), 1), None);
        }
    }
}
