//! Reads files such as `proc/…` below a root folder: `/`, or another folder in tests.

use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Maximum size to read from a file.
pub(super) const MAX_FILE_BYTES: u64 = 1 << 20;

/// Files below a root folder.
#[derive(Clone, Copy)]
pub(super) struct RootFiles<'a>(pub(super) &'a Path);

impl RootFiles<'_> {
    /// Returns the beginning of a file.
    pub(super) fn read_bytes(self, path: &str) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        File::open(self.0.join(path)).ok()?.take(MAX_FILE_BYTES).read_to_end(&mut bytes).ok()?;
        Some(bytes)
    }

    /// Returns the beginning of a file as text.
    pub(super) fn read_text(self, path: &str) -> Option<String> {
        Some(String::from_utf8_lossy(&self.read_bytes(path)?).into_owned())
    }

    /// Returns the text of a file without surrounding blanks; `None` if nothing is left.
    pub(super) fn read_trimmed(self, path: &str) -> Option<String> {
        self.read_text(path).map(|text| text.trim().to_owned()).filter(|word| !word.is_empty())
    }

    pub(super) fn read_number(self, path: &str) -> Option<i64> {
        self.read_trimmed(path)?.parse().ok()
    }
}
