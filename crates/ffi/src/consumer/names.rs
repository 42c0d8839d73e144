//! Names that a program opens traces by: UTF-16, or bytes, up to a NUL.

use std::ffi::{OsString, c_void};

use traceweir::Status;

use crate::ptr;
use crate::text::{MAX_PATH_UNITS, Unit};

/// How names are written.
#[derive(Clone, Copy)]
pub(super) enum Text {
    /// UTF-16.
    Wide,
    /// Bytes as the system takes them.
    Narrow,
}

/// A name, and a copy as the program had it.
pub(super) struct Name {
    pub(super) text: OsString,
    /// Up to and including the NUL; bytes lie in it two by two.
    pub(super) copy: Box<[u16]>,
}

impl Text {
    /// The name at an address; none at NULL and where it is empty.
    ///
    /// # Safety
    ///
    /// `at` is NULL, or characters of which one is 0.
    pub(super) unsafe fn read(self, at: *const c_void) -> Result<Option<Name>, Status> {
        if at.is_null() {
            return Ok(None);
        }
        let name = match self {
            // SAFETY: by the contract.
            Self::Wide => unsafe { named(at.cast::<u16>(), |units| units.to_vec()) }?,
            // SAFETY: by the contract.
            Self::Narrow => unsafe { named(at.cast::<u8>(), pairs) }?,
        };
        Ok((!name.text.is_empty()).then_some(name))
    }
}

/// # Safety
///
/// `at` is characters of which one is 0.
unsafe fn named<U: Unit>(at: *const U, copied: impl FnOnce(&[U]) -> Vec<u16>) -> Result<Name, Status> {
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
    /// The name as a session's, which is text.
    pub(super) fn of_session(&self) -> Result<String, Status> {
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
        // SAFETY: as many bytes as are looked at.
        assert!(unsafe { Text::Narrow.read(endless.as_ptr().cast()) }.is_err());
    }

    #[test]
    fn what_is_no_text_is_refused_and_not_mended() {
        let refused = |name: Result<Option<Name>, Status>| name.err();
        let lone = [0x61_u16, 0xD800, 0];
        // SAFETY: texts with a NUL.
        unsafe {
            assert_eq!(refused(Text::Wide.read(lone.as_ptr().cast())), Some(Status::ERROR_INVALID_PARAMETER));
            let bytes = Text::Narrow.read(c"\xFF".as_ptr().cast()).unwrap().unwrap();
            assert_eq!(bytes.text.as_encoded_bytes(), b"\xFF", "a file may have such a name");
            assert_eq!(bytes.of_session(), Err(Status::ERROR_INVALID_PARAMETER), "a session has none such");
        }
    }
}
