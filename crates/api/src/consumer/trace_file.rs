//! The file that a trace is read from.

use std::fs::File;
use std::sync::Arc;

use rustix::fs::SeekFrom;
use rustix::io::Errno;
use traceweir_format::etl::ReadAt;

/// A file that a trace is read from by offset, skipping the holes of sparse files.
///
/// The search for holes changes the position of the open file description. A clone shares it.
#[derive(Clone, Debug)]
pub struct TraceFile(Arc<File>);

impl TraceFile {
    /// Returns the underlying file.
    #[must_use]
    pub fn as_file(&self) -> &File {
        &self.0
    }
}

impl From<File> for TraceFile {
    fn from(file: File) -> Self {
        Self(Arc::new(file))
    }
}

impl ReadAt for TraceFile {
    fn len(&self) -> u64 {
        ReadAt::len(&*self.0)
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> traceweir_format::Result<usize> {
        ReadAt::read_at(&*self.0, offset, buf)
    }

    fn next_data(&self, offset: u64) -> u64 {
        match rustix::fs::seek(&*self.0, SeekFrom::Data(offset)) {
            Ok(data) => data.max(offset),
            // No data follows.
            Err(Errno::NXIO) => ReadAt::len(self).max(offset),
            // The file system cannot report holes.
            Err(_) => offset,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn data_after_a_hole_is_found() {
        let file = tempfile::tempfile().expect("a temporary file should be created");
        file.write_all_at(b"head", 0).expect("the head should be written");
        file.write_all_at(b"tail", 64 << 20).expect("the tail should be written");
        file.set_len(128 << 20).expect("the file should be extended");
        let file = TraceFile::from(file);
        assert_eq!(file.next_data(1), 1);
        // A file system without holes names the offset itself.
        let data = file.next_data(1 << 20);
        assert!(data == 1 << 20 || data == 64 << 20, "{data:#x}");
        let end = file.next_data(100 << 20);
        assert!(end == 100 << 20 || end == 128 << 20, "{end:#x}");
        assert!(file.next_data(1 << 40) >= 1 << 40);
    }
}
