//! Text that callers pass and receive: UTF-16 in functions that end with W, UTF-8 in those that end
//! with A.
//!
//! Nothing is read past the memory of the text, nor past the length of the longest name: a text
//! without a terminator is a name that is too long. Invalid text, such as a lone surrogate, is
//! refused and never repaired: the repaired name could be that of another session or file.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use traceweir::Status;

use crate::ptr;

/// Units of the longest name with its terminator, in UTF-16. Sessions have the rules for names.
const MAX_UNITS: usize = 1024;

/// Units of the longest path, or list of paths, that is opened, with its terminator. A longer text
/// is not a path.
pub(crate) const MAX_PATH_UNITS: usize = 0x8000;

/// One unit of a text: WCHAR or CHAR.
pub(crate) trait Unit: Copy + Default + PartialEq {
    /// Units of the longest name with its terminator.
    const MOST: usize;

    /// Decodes units. Returns `None` if they are not valid text.
    fn decoded(units: Vec<Self>) -> Option<OsString>;

    /// Encodes a text.
    fn encoded(text: &OsStr) -> Vec<Self>;
}

impl Unit for u16 {
    const MOST: usize = MAX_UNITS;

    fn decoded(units: Vec<Self>) -> Option<OsString> {
        String::from_utf16(&units).ok().map(OsString::from)
    }

    fn encoded(text: &OsStr) -> Vec<Self> {
        text.to_string_lossy().encode_utf16().collect()
    }
}

impl Unit for u8 {
    /// A character of one unit in UTF-16 has up to three in UTF-8.
    const MOST: usize = 3 * MAX_UNITS;

    fn decoded(units: Vec<Self>) -> Option<OsString> {
        Some(OsString::from_vec(units))
    }

    fn encoded(text: &OsStr) -> Vec<Self> {
        text.as_bytes().to_vec()
    }
}

/// Reads the text at an address, which ends within `room` units. Returns ERROR_INVALID_PARAMETER if
/// it does not, or if it is not valid text.
///
/// # Safety
///
/// Units can be read at `at` up to the terminator, and at most `room`; they need not be aligned.
pub(crate) unsafe fn read<U: Unit>(at: *const U, room: usize) -> Result<OsString, Status> {
    // SAFETY: by the contract.
    let units = unsafe { ptr::text(at, room.min(U::MOST)) };
    units.and_then(U::decoded).ok_or(Status::ERROR_INVALID_PARAMETER)
}

/// Reads the name at an address. Returns `None` for NULL.
///
/// # Safety
///
/// `at` is NULL, or a text with a terminator.
pub(crate) unsafe fn name<U: Unit>(at: *const U) -> Result<Option<String>, Status> {
    if at.is_null() {
        return Ok(None);
    }
    // SAFETY: by the contract.
    let text = unsafe { read(at, usize::MAX) }?;
    text.into_string().map(Some).map_err(|_| Status::ERROR_INVALID_PARAMETER)
}

/// Writes a text with its terminator to memory of `room` units, and returns whether it fits. A text
/// that does not fit leaves an empty text there, if that fits.
///
/// # Safety
///
/// `room` units can be written at `at`; they need not be aligned.
pub(crate) unsafe fn write<U: Unit>(at: *mut U, room: usize, text: &OsStr) -> bool {
    let mut units = U::encoded(text);
    units.push(U::default());
    let fits = units.len() <= room;
    if !fits {
        units = vec![U::default(); room.min(1)];
    }
    for (index, unit) in units.iter().enumerate() {
        // SAFETY: `units` has at most `room` elements.
        unsafe { at.wrapping_add(index).write_unaligned(*unit) };
    }
    fits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_read_only_within_its_memory_and_written_only_if_it_fits() {
        let wide: Vec<u16> = "lün😀\0rest".encode_utf16().collect();
        let lone = [0xD800_u16, 0];
        // SAFETY: `room` is the length of the array, or less.
        unsafe {
            assert_eq!(read(wide.as_ptr(), wide.len()), Ok(OsString::from("lün😀")));
            assert_eq!(read(wide.as_ptr(), 5), Err(Status::ERROR_INVALID_PARAMETER));
            assert_eq!(read(lone.as_ptr(), 2), Err(Status::ERROR_INVALID_PARAMETER));
            assert_eq!(
                read(c"\xFF.etl".as_ptr().cast::<u8>(), 6),
                Ok(OsString::from_vec(b"\xFF.etl".to_vec()))
            );
            assert_eq!(name(c"\xFF".as_ptr().cast::<u8>()), Err(Status::ERROR_INVALID_PARAMETER));
            assert_eq!(name::<u16>(std::ptr::null()), Ok(None));
            let mut room = [7_u8; 4];
            assert!(write(room.as_mut_ptr(), 3, OsStr::new("ab")));
            assert_eq!(room, *b"ab\0\x07");
            assert!(!write(room.as_mut_ptr(), 3, OsStr::new("abc")));
            assert_eq!(room, *b"\0b\0\x07");
            assert!(!write(room.as_mut_ptr(), 0, OsStr::new("")));
            assert_eq!(room, *b"\0b\0\x07");
        }
    }

    #[test]
    fn name_without_terminator_is_refused() {
        let endless = [b'x'; 4000];
        // SAFETY: no more than the longest name is read, which the array has.
        assert_eq!(unsafe { name(endless.as_ptr()) }, Err(Status::ERROR_INVALID_PARAMETER));
    }
}
