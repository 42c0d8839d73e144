//! Reads files of the machine below any root folder.

use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Maximum number of bytes to read from a file.
pub(super) const MAX_FILE_BYTES: u64 = 1 << 20;

/// Files below a root folder.
#[derive(Clone, Copy)]
pub(super) struct Files<'a>(pub(super) &'a Path);

impl Files<'_> {
    /// Returns the beginning of a file.
    pub(super) fn bytes(self, path: &str) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        File::open(self.0.join(path)).ok()?.take(MAX_FILE_BYTES).read_to_end(&mut bytes).ok()?;
        Some(bytes)
    }

    /// Returns the beginning of a file as text.
    pub(super) fn text(self, path: &str) -> Option<String> {
        Some(String::from_utf8_lossy(&self.bytes(path)?).into_owned())
    }

    /// Returns a file without surrounding blanks, unless it is empty.
    pub(super) fn word(self, path: &str) -> Option<String> {
        self.text(path).map(|text| text.trim().to_owned()).filter(|word| !word.is_empty())
    }

    /// Returns the number in a file.
    pub(super) fn number(self, path: &str) -> Option<i64> {
        self.word(path)?.parse().ok()
    }
}
