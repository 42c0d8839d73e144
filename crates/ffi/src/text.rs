//! Text of callers and for them: UTF-16 in functions that end with W, UTF-8 in those that end with A.
//!
//! Nothing is read past the room that there is, nor past what the longest name takes: a text without a terminator is a name that is too long. What is no text, as
//! a lone surrogate is none, is refused and never mended: the mended name would be that of another session or file.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use traceweir::Status;

use crate::ptr;

/// Units of the longest name with its terminator, in UTF-16; the rules of names are the session's.
const MAX_UNITS: usize = 1024;

/// Units of the longest path, or list of paths, that is opened, with its terminator: who does not end one before had no path in mind.
pub(crate) const MAX_PATH_UNITS: usize = 0x8000;

/// One unit of a text: WCHAR or CHAR.
pub(crate) trait Unit: Copy + Default + PartialEq {
    /// Units of the longest name with its terminator.
    const MOST: usize;

    /// The text in these units, if they are one.
    fn decoded(units: Vec<Self>) -> Option<OsString>;

    /// The units of a text.
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
    /// What is one unit in UTF-16 is up to three in UTF-8.
    const MOST: usize = 3 * MAX_UNITS;

    fn decoded(units: Vec<Self>) -> Option<OsString> {
        Some(OsString::from_vec(units))
    }

    fn encoded(text: &OsStr) -> Vec<Self> {
        text.as_bytes().to_vec()
    }
}

/// The text at an address, which ends within so many units; ERROR_INVALID_PARAMETER where it does not, or is none.
///
/// # Safety
///
/// As far as a text goes, and no further than `room` units, it can be read; it need not be aligned.
pub(crate) unsafe fn read<U: Unit>(at: *const U, room: usize) -> Result<OsString, Status> {
    // SAFETY: by the contract.
    let units = unsafe { ptr::text(at, room.min(U::MOST)) };
    units.and_then(U::decoded).ok_or(Status::ERROR_INVALID_PARAMETER)
}

/// The name at an address; `None` for NULL.
///
/// # Safety
///
/// `at` is NULL, or a text that ends.
pub(crate) unsafe fn name<U: Unit>(at: *const U) -> Result<Option<String>, Status> {
    if at.is_null() {
        return Ok(None);
    }
    // SAFETY: by the contract.
    let text = unsafe { read(at, usize::MAX) }?;
    text.into_string().map(Some).map_err(|_| Status::ERROR_INVALID_PARAMETER)
}

/// Puts a text with its terminator into a room of so many units; one that does not fit leaves an empty text there, if that fits.
///
/// # Safety
///
/// So many units can be written there; they need not be aligned.
pub(crate) unsafe fn write<U: Unit>(at: *mut U, room: usize, text: &OsStr) -> bool {
    let mut units = U::encoded(text);
    units.push(U::default());
    let fits = units.len() <= room;
    if !fits {
        units = vec![U::default(); room.min(1)];
    }
    for (index, unit) in units.iter().enumerate() {
        // SAFETY: no more than the room that there is.
        unsafe { at.wrapping_add(index).write_unaligned(*unit) };
    }
    fits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_read_as_far_as_there_is_room_and_written_only_where_it_fits() {
        let wide: Vec<u16> = "lün😀\0rest".encode_utf16().collect();
        let lone = [0xD800_u16, 0];
        // SAFETY: rooms are those of the arrays.
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
    fn a_name_without_an_end_is_too_long() {
        let endless = [b'x'; 4000];
        // SAFETY: it is read no further than the longest name.
        assert_eq!(unsafe { name(endless.as_ptr()) }, Err(Status::ERROR_INVALID_PARAMETER));
    }
}
