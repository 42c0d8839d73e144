//! Names of a file sequence: a pattern whose `%d` stands for a number.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use traceweir_format::spec::status::Status;
use traceweir_transport::message::MAX_NAME_UNITS;

use crate::error::{Result, refuse};

/// The placeholder for the number.
const PLACEHOLDER: &[u8] = b"%d";
/// Digits of the largest number, less the two characters of the placeholder.
const EXTRA_CHARS: usize = 8;

/// Rejects a path that is not a valid pattern.
pub fn check_sequence_pattern(pattern: &Path) -> Result<()> {
    let count_placeholders =
        |bytes: &[u8]| bytes.windows(PLACEHOLDER.len()).filter(|&w| w == PLACEHOLDER).count();
    let invalid = |reason| refuse(Status::ERROR_INVALID_PARAMETER, reason);
    if count_placeholders(pattern.as_os_str().as_bytes()) != 1 {
        return invalid("the name of a file sequence must have one %d, for the number");
    }
    if count_placeholders(pattern.file_name().unwrap_or_default().as_bytes()) != 1 {
        return invalid("the %d of a file sequence must be in the name of the file, not of its folder");
    }
    let length = pattern.to_string_lossy().encode_utf16().count();
    if length.saturating_add(EXTRA_CHARS) > MAX_NAME_UNITS {
        return invalid("the name of a file sequence leaves no room for its number");
    }
    Ok(())
}

/// Returns the name of a file of a sequence; the first has number 1.
#[must_use]
pub fn sequence_file_name(pattern: &Path, number: u32) -> PathBuf {
    let bytes = pattern.as_os_str().as_bytes();
    let Some(at) = bytes.windows(PLACEHOLDER.len()).position(|w| w == PLACEHOLDER) else {
        return pattern.to_owned();
    };
    let (before, from_placeholder) = bytes.split_at(at);
    let after = from_placeholder.get(PLACEHOLDER.len()..).unwrap_or_default();
    let name = [before, number.to_string().as_bytes(), after].concat();
    OsString::from_vec(name).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_replaces_placeholder_and_invalid_patterns_are_rejected() {
        assert_eq!(sequence_file_name(Path::new("/a/b%d.etl"), 1), Path::new("/a/b1.etl"));
        assert_eq!(sequence_file_name(Path::new("/a/%d"), u32::MAX), Path::new("/a/4294967295"));
        let invalid_patterns = ["/a/b.etl", "/a/%d%d", "/%d/b", "/%d/%d", "/a/%"];
        assert!(invalid_patterns.iter().all(|pattern| check_sequence_pattern(Path::new(pattern)).is_err()));
        let long = |length: usize| check_sequence_pattern(&Path::new("/").join("n".repeat(length) + "%d"));
        // A slash, 1012 characters and ten digits are 1023.
        assert!(long(1012).is_ok() && long(1013).is_err());
    }
}
