//! Names of the traces that a program opens: UTF-16 or bytes, terminated by a NUL.

use std::ffi::{OsString, c_void};

use traceweir::Status;

use crate::ptr;
use crate::text::{MAX_PATH_UNITS, Unit};

/// The encoding of names.
#[derive(Clone, Copy)]
pub(super) enum Text {
    /// The name is UTF-16.
    Wide,
    /// Bytes, as in file names.
    Narrow,
}

/// A name, and a copy in the program's encoding.
pub(super) struct Name {
    pub(super) text: OsString,
    /// Includes the NUL. Each unit holds two bytes of a narrow name.
    pub(super) copy: Box<[u16]>,
}

impl Text {
    /// Reads the name at an address. Returns `None` for NULL and for an empty name.
    ///
    /// # Safety
    ///
    /// `at` is NULL, or the address of characters that end with a NUL.
    pub(super) unsafe fn read(self, at: *const c_void) -> Result<Option<Name>, Status> {
        if at.is_null() {
            return Ok(None);
        }
        let name = match self {
            // SAFETY: by the contract.
            Self::Wide => unsafe { read_name(at.cast::<u16>(), |units| units.to_vec()) }?,
            // SAFETY: by the contract.
            Self::Narrow => unsafe { read_name(at.cast::<u8>(), pairs) }?,
        };
        Ok((!name.text.is_empty()).then_some(name))
    }
}

/// # Safety
///
/// `at` is the address of characters that end with a NUL.
unsafe fn read_name<U: Unit>(at: *const U, copied: impl FnOnce(&[U]) -> Vec<u16>) -> Result<Name, Status> {
    // SAFETY: by the contract.
    let units = unsafe { ptr::text(at, MAX_PATH_UNITS) }.ok_or(Status::ERROR_BAD_PATHNAME)?;
    let mut copy = copied(&units);
    copy.push(0);
    let text = U::decoded(units).ok_or(Status::ERROR_INVALID_PARAMETER)?;
    Ok(Name { text, copy: copy.into() })
}

fn pairs(bytes: &[u8]) -> Vec<u16> {
    let pairs = bytes.chunks(2).map(|pair| match pair {
        [low, high] => u16::from_ne_bytes([*low, *high]),
        [low] => u16::from_ne_bytes([*low, 0]),
        _ => 0,
    });
    pairs.collect()
}

impl Name {
    /// Returns the name as the name of a session, which must be valid UTF-8.
    pub(super) fn session_name(&self) -> Result<String, Status> {
        self.text.to_str().map(str::to_owned).ok_or(Status::ERROR_INVALID_PARAMETER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_end_at_a_nul_and_empty_ones_are_none() {
        let wide: Vec<u16> = "größe\0x".encode_utf16().collect();
        // SAFETY: texts with a NUL, or NULL.
        unsafe {
            let name = Text::Wide.read(wide.as_ptr().cast()).unwrap().unwrap();
            assert_eq!((name.text.to_str(), name.copy.len()), (Some("größe"), 6));
            let name = Text::Narrow.read(c"abc".as_ptr().cast()).unwrap().unwrap();
            assert_eq!(name.text, "abc");
            assert_eq!(name.copy.iter().flat_map(|u| u.to_ne_bytes()).collect::<Vec<_>>(), b"abc\0\0\0");
            assert!(Text::Narrow.read(c"".as_ptr().cast()).unwrap().is_none());
            assert!(Text::Wide.read(std::ptr::null()).unwrap().is_none());
        }
        let endless = vec![b'x'; MAX_PATH_UNITS];
        // SAFETY: no more than `MAX_PATH_UNITS` bytes are read.
        assert!(unsafe { Text::Narrow.read(endless.as_ptr().cast()) }.is_err());
    }

    #[test]
    fn invalid_text_is_refused_and_not_repaired() {
        let refused = |name: Result<Option<Name>, Status>| name.err();
        let lone = [0x61_u16, 0xD800, 0];
        // SAFETY: texts with a NUL.
        unsafe {
            assert_eq!(refused(Text::Wide.read(lone.as_ptr().cast())), Some(Status::ERROR_INVALID_PARAMETER));
            let bytes = Text::Narrow.read(c"\xFF".as_ptr().cast()).unwrap().unwrap();
            assert_eq!(bytes.text.as_encoded_bytes(), b"\xFF", "valid as the name of a file");
            assert_eq!(bytes.session_name(), Err(Status::ERROR_INVALID_PARAMETER), "not of a session");
        }
    }
}
