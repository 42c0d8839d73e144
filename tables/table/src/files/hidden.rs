//! Files under hidden names that cannot be predicted, until they are complete.

use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::path::{Path, PathBuf};

/// Returns random hexadecimal digits.
pub(super) fn random_digits() -> String {
    format!("{:016x}", RandomState::new().hash_one(std::process::id()))
}

/// Creates a file. Fails if the name exists, also as a link.
pub(super) fn create_new(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).open(path)
}

/// A file beside its later name. Dropping this value removes the file.
pub(crate) struct HiddenFile {
    /// `None` once the file has its name.
    path: Option<PathBuf>,
}

impl HiddenFile {
    /// Creates a file for an output.
    pub(crate) fn create(output: &Path) -> io::Result<(Self, File)> {
        let name = output.file_name().unwrap_or_default().to_string_lossy();
        let path = output.with_file_name(format!(".{name}.{}.tmp", random_digits()));
        let file = create_new(&path)?;
        Ok((Self { path: Some(path) }, file))
    }

    /// Gives the file the name of the output.
    pub(crate) fn rename(mut self, output: &Path) -> io::Result<()> {
        if let Some(path) = &self.path {
            fs::rename(path, output)?;
        }
        self.path = None;
        Ok(())
    }
}

impl Drop for HiddenFile {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            // The error that ended the conversion is reported, not this one.
            let _ = fs::remove_file(path);
        }
    }
}
