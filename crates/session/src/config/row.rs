//! Names of a row of files: a pattern whose `%d` stands for a number.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use traceweir_format::spec::status::Status;
use traceweir_transport::message::MAX_NAME;

use super::refuse;
use crate::error::Result;

/// What stands for the number.
const PLACE: &[u8] = b"%d";
/// Digits of the largest number beyond the two bytes that they replace.
const LONGER: usize = 8;

/// Refuses what is no pattern.
pub fn check(pattern: &Path) -> Result<()> {
    let places = |bytes: &[u8]| bytes.windows(PLACE.len()).filter(|&w| w == PLACE).count();
    let invalid = |why| refuse(Status::ERROR_INVALID_PARAMETER, why);
    if places(pattern.as_os_str().as_bytes()) != 1 {
        return invalid("the name of a row of files has one %d, for the number");
    }
    if places(pattern.file_name().unwrap_or_default().as_bytes()) != 1 {
        return invalid("the %d of a row of files stands in the name of the file, not of its folder");
    }
    let length = pattern.to_string_lossy().encode_utf16().count();
    if length.saturating_add(LONGER) > MAX_NAME {
        return invalid("the name of a row of files leaves no room for its number");
    }
    Ok(())
}

/// The name of a file of a row; the first has number 1.
#[must_use]
pub fn numbered(pattern: &Path, number: u32) -> PathBuf {
    let bytes = pattern.as_os_str().as_bytes();
    let Some(at) = bytes.windows(PLACE.len()).position(|w| w == PLACE) else { return pattern.to_owned() };
    let (before, rest) = bytes.split_at(at);
    let behind = rest.get(PLACE.len()..).unwrap_or_default();
    let name = [before, number.to_string().as_bytes(), behind].concat();
    OsString::from_vec(name).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_stands_for_the_one_place_in_the_file_name() {
        assert_eq!(numbered(Path::new("/a/b%d.etl"), 1), Path::new("/a/b1.etl"));
        assert_eq!(numbered(Path::new("/a/%d"), u32::MAX), Path::new("/a/4294967295"));
        let wrong = ["/a/b.etl", "/a/%d%d", "/%d/b", "/%d/%d", "/a/%"];
        assert!(wrong.iter().all(|pattern| check(Path::new(pattern)).is_err()));
        let long = |length: usize| check(&Path::new("/").join("n".repeat(length) + "%d"));
        assert!(long(1012).is_ok() && long(1013).is_err());
    }
}
