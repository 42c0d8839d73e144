//! Names that a program opens traces by: UTF-16, or bytes, up to a NUL.

use std::ffi::{OsStr, OsString, c_void};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use traceweir::Status;

/// Characters that no name has: who does not end one before had no name in mind.
const MOST: usize = 0x8000;

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
            Self::Wide => wide(unsafe { units(at.cast::<u16>()) }?),
            // SAFETY: by the contract.
            Self::Narrow => narrow(unsafe { units(at.cast::<u8>()) }?),
        };
        Ok((!name.text.is_empty()).then_some(name))
    }
}

fn wide(mut units: Vec<u16>) -> Name {
    let text = OsString::from(String::from_utf16_lossy(&units));
    units.push(0);
    Name { text, copy: units.into() }
}

fn narrow(bytes: Vec<u8>) -> Name {
    let pairs = bytes.chunks(2).map(|pair| match pair {
        [low, high] => u16::from_ne_bytes([*low, *high]),
        [low] => u16::from_ne_bytes([*low, 0]),
        _ => 0,
    });
    let copy = pairs.chain([0]).collect();
    Name { text: OsString::from_vec(bytes), copy }
}

/// # Safety
///
/// `at` is characters of which one is 0.
unsafe fn units<T: Copy + Default + PartialEq>(at: *const T) -> Result<Vec<T>, Status> {
    let mut units = Vec::new();
    while units.len() < MOST {
        // SAFETY: by the contract; none before was 0.
        let unit = unsafe { at.wrapping_add(units.len()).read_unaligned() };
        if unit == T::default() {
            return Ok(units);
        }
        units.push(unit);
    }
    Err(Status::ERROR_BAD_PATHNAME)
}

/// The name of a session.
pub(super) fn session(name: &OsStr) -> String {
    String::from_utf8_lossy(name.as_bytes()).into_owned()
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
        let endless = vec![b'x'; MOST];
        // SAFETY: as many bytes as are looked at.
        assert!(unsafe { Text::Narrow.read(endless.as_ptr().cast()) }.is_err());
    }
}
