//! Names of the traces that a program opens: UTF-16 or bytes, terminated by a NUL.

use std::ffi::{OsString, c_void};

use traceweir::Status;

use crate::ptr;
use crate::text::{MAX_PATH_UNITS, TextUnit};

/// The encoding of names.
#[derive(Clone, Copy)]
pub(super) enum NameEncoding {
    /// Text in UTF-16.
    Wide,
    /// Bytes, as in file names.
    Narrow,
}

/// A name, and a copy in the program's encoding.
pub(super) struct TraceName {
    pub(super) text: OsString,
    /// Includes the NUL. Each unit holds two bytes of a narrow name.
    pub(super) copy: Box<[u16]>,
}

impl NameEncoding {
    /// Reads the name at an address. Returns `None` for NULL and for an empty name.
    ///
    /// # Safety
    ///
    /// `at` is NULL, or the address of characters that end with a NUL.
    pub(super) unsafe fn read(self, at: *const c_void) -> Result<Option<TraceName>, Status> {
        if at.is_null() {
            return Ok(None);
        }
        let name = match self {
            // SAFETY: the caller fulfils the `# Safety` section; `read_name` requires no more.
            Self::Wide => unsafe { read_name(at.cast::<u16>(), |units| units.to_vec()) }?,
            // SAFETY: the caller fulfils the `# Safety` section; `read_name` requires no more.
            Self::Narrow => unsafe { read_name(at.cast::<u8>(), pack_byte_pairs) }?,
        };
        Ok((!name.text.is_empty()).then_some(name))
    }
}

/// Reads a name of a known unit type. `to_units` converts its units for the copy.
///
/// # Safety
///
/// `at` is the address of characters that end with a NUL.
unsafe fn read_name<U: TextUnit>(
    at: *const U,
    to_units: impl FnOnce(&[U]) -> Vec<u16>,
) -> Result<TraceName, Status> {
    // SAFETY: the caller passes the address of characters that end with a NUL.
    let units = unsafe { ptr::read_text(at, MAX_PATH_UNITS) }.ok_or(Status::ERROR_BAD_PATHNAME)?;
    let mut copy = to_units(&units);
    copy.push(0);
    let text = U::decode(units).ok_or(Status::ERROR_INVALID_PARAMETER)?;
    Ok(TraceName { text, copy: copy.into() })
}

fn pack_byte_pairs(bytes: &[u8]) -> Vec<u16> {
    let pairs = bytes.chunks(2).map(|pair| match pair {
        [low, high] => u16::from_ne_bytes([*low, *high]),
        [low] => u16::from_ne_bytes([*low, 0]),
        _ => 0,
    });
    pairs.collect()
}

impl TraceName {
    /// Returns the name as the name of a session, which must be valid UTF-8.
    pub(super) fn session_name(&self) -> Result<String, Status> {
        self.text.to_str().map(str::to_owned).ok_or(Status::ERROR_INVALID_PARAMETER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_ends_at_its_nul_and_empty_name_is_none() {
        let wide: Vec<u16> = "größe\0x".encode_utf16().collect();
        // SAFETY: each address is NULL, or that of a text with a NUL.
        unsafe {
            let name = NameEncoding::Wide.read(wide.as_ptr().cast()).unwrap().unwrap();
            assert_eq!((name.text.to_str(), name.copy.len()), (Some("größe"), 6));
            let name = NameEncoding::Narrow.read(c"abc".as_ptr().cast()).unwrap().unwrap();
            assert_eq!(name.text, "abc");
            assert_eq!(name.copy.iter().flat_map(|u| u.to_ne_bytes()).collect::<Vec<_>>(), b"abc\0\0\0");
            assert!(NameEncoding::Narrow.read(c"".as_ptr().cast()).unwrap().is_none());
            assert!(NameEncoding::Wide.read(std::ptr::null()).unwrap().is_none());
        }
        let unterminated = vec![b'x'; MAX_PATH_UNITS];
        // SAFETY: no more than `MAX_PATH_UNITS` bytes are read.
        assert!(unsafe { NameEncoding::Narrow.read(unterminated.as_ptr().cast()) }.is_err());
    }

    #[test]
    fn invalid_text_is_refused_and_not_repaired() {
        let error_of = |name: Result<Option<TraceName>, Status>| name.err();
        let lone_surrogate = [0x61_u16, 0xD800, 0];
        // SAFETY: both texts end with a NUL.
        unsafe {
            assert_eq!(
                error_of(NameEncoding::Wide.read(lone_surrogate.as_ptr().cast())),
                Some(Status::ERROR_INVALID_PARAMETER)
            );
            let bytes = NameEncoding::Narrow.read(c"\xFF".as_ptr().cast()).unwrap().unwrap();
            assert_eq!(bytes.text.as_encoded_bytes(), b"\xFF", "any bytes are a valid file name");
            assert_eq!(bytes.session_name(), Err(Status::ERROR_INVALID_PARAMETER), "session names are UTF-8");
        }
    }
}
