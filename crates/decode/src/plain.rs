//! Opens regular files by a path that a user or a trace gives.
//!
//! Such a path may lead to a pipe, where opening waits until a process writes, or to a device,
//! where opening has side effects. The file type is checked on the open file, not on the path, so
//! the file cannot be exchanged after the check.

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::fs::{Mode, OFlags};

/// Opens a regular file for reading without blocking. Returns an error of kind `InvalidInput` if
/// the path leads to anything else.
pub fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opening_anything_but_a_regular_file_fails_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, Mode::RUSR).unwrap();
        for path in [&pipe, folder.path(), Path::new("/dev/null")] {
            assert_eq!(open(path).unwrap_err().kind(), io::ErrorKind::InvalidInput, "{}", path.display());
        }
        assert_eq!(open(&folder.path().join("none")).unwrap_err().kind(), io::ErrorKind::NotFound);
        let file = folder.path().join("file");
        std::fs::write(&file, "x").unwrap();
        assert!(open(&file).is_ok());
    }
}
