//! Pointers from C: what can be checked of them is checked here, and nowhere else.
//!
//! NULL is `None`, and so is an array at an address that its elements cannot have. Single values are copied, whatever their address, so that nothing here keeps a
//! reference to what C may change.

/// The value at an address.
///
/// # Safety
///
/// `at` is NULL, or a `T` can be read there.
#[inline(always)]
pub(crate) unsafe fn copied<T: Copy>(at: *const T) -> Option<T> {
    // SAFETY: not NULL, so by the contract.
    (!at.is_null()).then(|| unsafe { at.read_unaligned() })
}

/// Puts a value to an address, if there is one.
///
/// # Safety
///
/// `at` is NULL, or a `T` can be written there.
#[inline(always)]
pub(crate) unsafe fn store<T>(at: *mut T, value: T) {
    if !at.is_null() {
        // SAFETY: not NULL, so by the contract.
        unsafe { at.write_unaligned(value) };
    }
}

/// An array; one of no elements may be anywhere, NULL included.
///
/// # Safety
///
/// `at` is NULL, or `count` elements can be read there and stay as they are for `'a`.
#[inline(always)]
pub(crate) unsafe fn array<'a, T>(at: *const T, count: usize) -> Option<&'a [T]> {
    if count == 0 {
        return Some(&[]);
    }
    let fits = count.checked_mul(size_of::<T>()).is_some_and(|bytes| bytes <= isize::MAX as usize);
    if at.is_null() || !at.is_aligned() || !fits {
        return None;
    }
    // SAFETY: neither NULL nor misaligned nor too long, so by the contract.
    Some(unsafe { std::slice::from_raw_parts(at, count) })
}

/// Brings bytes to an address. They may lie in what is written over: a program may have given the same memory twice.
///
/// # Safety
///
/// As many bytes can be written there; nothing is asked of what they were.
pub(crate) unsafe fn put(at: *mut u8, bytes: &[u8]) {
    // SAFETY: by the contract; copies that overlap are allowed.
    unsafe { std::ptr::copy(bytes.as_ptr(), at, bytes.len()) };
}

/// The units of a text up to its terminator, which need not be aligned. `None` at NULL, and where none of the first `most` ends it.
///
/// # Safety
///
/// `at` is NULL, or as far as a text goes, and no further than `most` units, it can be read.
pub(crate) unsafe fn text<U: Copy + Default + PartialEq>(at: *const U, most: usize) -> Option<Vec<U>> {
    let mut units = Vec::new();
    while units.len() < most {
        // SAFETY: the text has not ended before, so by the contract.
        let unit = unsafe { copied(at.wrapping_add(units.len())) }?;
        if unit == U::default() {
            return Some(units);
        }
        units.push(unit);
    }
    None
}

/// The bytes at an address that a structure holds as a number.
///
/// # Safety
///
/// As [`array`].
pub(crate) unsafe fn bytes_at<'a>(address: u64, count: u32) -> Option<&'a [u8]> {
    let at = std::ptr::with_exposed_provenance::<u8>(usize::try_from(address).ok()?);
    // SAFETY: by the contract.
    unsafe { array(at, usize::try_from(count).ok()?) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_read_up_to_its_end_and_no_further_than_it_may_go() {
        let crooked = *b"-a\0b\0\0\0";
        // SAFETY: so much of the array is read.
        unsafe {
            assert_eq!(text(crooked.as_ptr().add(1).cast::<u16>(), 3), Some(vec![0x61, 0x62]));
            assert_eq!(text(crooked.as_ptr().add(1).cast::<u16>(), 2), None, "its end is behind");
            assert_eq!(text(crooked.as_ptr(), 7), Some(b"-a".to_vec()));
            assert_eq!(text(crooked.as_ptr(), 0), None);
        }
    }

    #[test]
    fn bytes_are_put_where_they_may_lie_themselves() {
        let mut bytes = *b"abcdef";
        let at = bytes.as_mut_ptr();
        // SAFETY: both within the array.
        unsafe { put(at.add(1), std::slice::from_raw_parts(at, 4)) };
        assert_eq!(&bytes, b"aabcdf");
    }

    #[test]
    fn null_and_crooked_addresses_are_nothing() {
        let words = [1u64, 2];
        let crooked = words.as_ptr().cast::<u8>().wrapping_add(1).cast::<u64>();
        // SAFETY: NULL, or addresses in `words`; the crooked one is read as a value that lies within it.
        unsafe {
            assert_eq!(copied::<u64>(std::ptr::null()), None);
            assert_eq!(copied(crooked), Some(2 << 56));
            assert_eq!(array(std::ptr::null::<u64>(), 1), None);
            assert_eq!(array(crooked, 1), None);
            assert_eq!(array(words.as_ptr(), usize::MAX), None);
            assert_eq!(array(std::ptr::null::<u64>(), 0), Some(&[][..]));
            assert_eq!(array(words.as_ptr(), 2), Some(&words[..]));
            assert_eq!(bytes_at(0, 0), Some(&[][..]));
            assert_eq!(bytes_at(0, 1), None);
            store(std::ptr::null_mut::<u64>(), 1);
            assert_eq!(text::<u16>(std::ptr::null(), 1), None);
        }
    }
}
