//! Text that callers pass and receive: UTF-16 in functions that end with W, UTF-8 in those that end
//! with A.
//!
//! No function reads past the memory of a text, or past the length of the longest name or path. A
//! text without a terminator within this length is refused. Invalid UTF-16, such as a lone
//! surrogate, and names that are not UTF-8 are refused too: repairing them could produce the name
//! of another session or file. 8-bit paths may contain any bytes. A path that is not UTF-8 is
//! repaired only when it is returned as UTF-16.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use traceweir::Status;

use crate::ptr;

/// UTF-16 units of the longest name, terminator included.
const MAX_NAME_UTF16_UNITS: usize = 1024;

/// Units of the longest path or list of paths, terminator included.
pub(crate) const MAX_PATH_UNITS: usize = 0x8000;

/// One unit of a text: WCHAR or CHAR.
pub(crate) trait TextUnit: Copy + Default + PartialEq {
    /// Units of the longest name, terminator included.
    const MAX_NAME_UNITS: usize;

    /// Decodes units. Returns `None` if they are not valid text.
    fn decode(units: Vec<Self>) -> Option<OsString>;

    /// Encodes a text.
    fn encode(text: &OsStr) -> Vec<Self>;
}

impl TextUnit for u16 {
    const MAX_NAME_UNITS: usize = MAX_NAME_UTF16_UNITS;

    fn decode(units: Vec<Self>) -> Option<OsString> {
        String::from_utf16(&units).ok().map(OsString::from)
    }

    fn encode(text: &OsStr) -> Vec<Self> {
        text.to_string_lossy().encode_utf16().collect()
    }
}

impl TextUnit for u8 {
    /// One UTF-16 unit becomes up to three bytes of UTF-8.
    const MAX_NAME_UNITS: usize = 3 * MAX_NAME_UTF16_UNITS;

    fn decode(units: Vec<Self>) -> Option<OsString> {
        Some(OsString::from_vec(units))
    }

    fn encode(text: &OsStr) -> Vec<Self> {
        text.as_bytes().to_vec()
    }
}

/// Reads the text at an address. Returns ERROR_INVALID_PARAMETER for invalid text, and for a text
/// without a terminator in its first `max_units` units. Whatever `max_units` is, at most
/// [`TextUnit::MAX_NAME_UNITS`] units are read, so this limit applies to paths too.
///
/// # Safety
///
/// Units can be read at `at` up to the terminator, and at most `max_units`; they need not be
/// aligned.
pub(crate) unsafe fn read<U: TextUnit>(at: *const U, max_units: usize) -> Result<OsString, Status> {
    // SAFETY: the caller guarantees that units can be read up to the terminator.
    let units = unsafe { ptr::read_text(at, max_units.min(U::MAX_NAME_UNITS)) };
    units.and_then(U::decode).ok_or(Status::ERROR_INVALID_PARAMETER)
}

/// Reads the name at an address. Returns `None` for NULL.
///
/// # Safety
///
/// `at` is NULL, or the address of a text with a terminator.
pub(crate) unsafe fn read_name<U: TextUnit>(at: *const U) -> Result<Option<String>, Status> {
    if at.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller fulfils the `# Safety` section; `read` requires no more.
    let text = unsafe { read(at, usize::MAX) }?;
    text.into_string().map(Some).map_err(|_| Status::ERROR_INVALID_PARAMETER)
}

/// Writes a text with its terminator to memory of `capacity` units. Returns `false` if the text
/// does not fit; the memory then holds an empty text if it has at least one unit.
///
/// # Safety
///
/// `capacity` units can be written at `at`; they need not be aligned.
pub(crate) unsafe fn write<U: TextUnit>(at: *mut U, capacity: usize, text: &OsStr) -> bool {
    let mut units = U::encode(text);
    units.push(U::default());
    let fits = units.len() <= capacity;
    if !fits {
        units = vec![U::default(); capacity.min(1)];
    }
    for (index, unit) in units.iter().enumerate() {
        // SAFETY: `units` has at most `capacity` elements.
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
        let lone_surrogate = [0xD800_u16, 0];
        // SAFETY: the number of units is at most the length of the array.
        unsafe {
            assert_eq!(read(wide.as_ptr(), wide.len()), Ok(OsString::from("lün😀")));
            assert_eq!(read(wide.as_ptr(), 5), Err(Status::ERROR_INVALID_PARAMETER));
            assert_eq!(read(lone_surrogate.as_ptr(), 2), Err(Status::ERROR_INVALID_PARAMETER));
            assert_eq!(
                read(c"\xFF.etl".as_ptr().cast::<u8>(), 6),
                Ok(OsString::from_vec(b"\xFF.etl".to_vec()))
            );
            assert_eq!(read_name(c"\xFF".as_ptr().cast::<u8>()), Err(Status::ERROR_INVALID_PARAMETER));
            assert_eq!(read_name::<u16>(std::ptr::null()), Ok(None));
            let mut memory = [7_u8; 4];
            assert!(write(memory.as_mut_ptr(), 3, OsStr::new("ab")));
            assert_eq!(memory, *b"ab\0\x07");
            assert!(!write(memory.as_mut_ptr(), 3, OsStr::new("abc")));
            assert_eq!(memory, *b"\0b\0\x07");
            assert!(!write(memory.as_mut_ptr(), 0, OsStr::new("")));
            assert_eq!(memory, *b"\0b\0\x07");
        }
    }

    #[test]
    fn name_without_terminator_is_refused() {
        let unterminated = [b'x'; 4000];
        // SAFETY: the array is longer than the longest name, and no more than that is read.
        assert_eq!(unsafe { read_name(unterminated.as_ptr()) }, Err(Status::ERROR_INVALID_PARAMETER));
    }
}
