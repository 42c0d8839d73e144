//! A file as a sequence of buffers: reading, time order, writing, checking, repairing.
//!
//! ```text
//!   ReadAt ──▶ reader::Trace (header + index of buffers)
//!          ──▶ merge::Events (usually one buffer per CPU in memory) ──▶ Record
//!   records ──▶ writer::Writer (a buffer per CPU) ──▶ WriteAt
//!
//!   several Traces ──▶ MergedFiles: their events in time order
//!   Trace ──▶ check: the broken rules of the format
//!   Trace of an unfinished file ──▶ repair: a finalised copy
//! ```

#[cfg(any(test, feature = "std"))]
mod ahead;
mod check;
mod index;
mod lane;
mod load;
mod merge;
mod merged_files;
mod reader;
mod repair;
mod writer;

#[cfg(any(test, feature = "std"))]
pub use ahead::BufferThreads;
pub use check::{Finding, Rule, check};
pub use index::BufferRef;
pub use load::unpack;
pub use merge::{Damage, Events, RecordLocation};
pub use merged_files::MergedFiles;
pub use reader::Trace;
pub use repair::{Repair, repair};
#[cfg(any(test, feature = "std"))]
pub use writer::RunWork;
pub use writer::{BufferInPlace, Options, Summary, Tail, Writer};

use alloc::vec::Vec;

use crate::{Error, Result};

/// Bytes that can be read at any offset.
///
/// Files are read with `pread` (feature `std`), never mapped: if a file is truncated while it is
/// read, the result is a short read, not a `SIGBUS`.
pub trait ReadAt {
    /// Returns the number of bytes.
    fn len(&self) -> u64;

    /// Returns whether there are no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reads into `buf` from `offset`; a short count means that the bytes end there.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize>;

    /// Returns the first offset at or after `offset` that may hold a byte other than 0, or the
    /// length if all bytes from there are 0.
    ///
    /// An implementation that skips unallocated ranges makes reading a sparse file faster; this
    /// default skips nothing.
    fn next_data(&self, offset: u64) -> u64 {
        offset
    }
}

/// A sink that accepts bytes at any offset.
pub trait WriteAt {
    /// Writes all of `bytes` at `offset`.
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<()>;

    /// Writes several pieces, one after the other, from `offset`.
    fn write_pieces_at(&mut self, mut offset: u64, pieces: &[&[u8]]) -> Result<()> {
        for piece in pieces {
            self.write_at(offset, piece)?;
            offset = offset.saturating_add(<[u8]>::len(piece) as u64);
        }
        Ok(())
    }
}

impl ReadAt for [u8] {
    fn len(&self) -> u64 {
        <[u8]>::len(self) as u64
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let from = usize::try_from(offset).ok().and_then(|o| self.get(o..)).unwrap_or_default();
        let n = from.len().min(buf.len());
        if let (Some(to), Some(from)) = (buf.get_mut(..n), from.get(..n)) {
            to.copy_from_slice(from);
        }
        Ok(n)
    }
}

impl ReadAt for Vec<u8> {
    fn len(&self) -> u64 {
        ReadAt::len(self.as_slice())
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.as_slice().read_at(offset, buf)
    }
}

impl<T: ReadAt + ?Sized> ReadAt for &T {
    fn len(&self) -> u64 {
        (**self).len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        (**self).read_at(offset, buf)
    }

    fn next_data(&self, offset: u64) -> u64 {
        (**self).next_data(offset)
    }
}

impl<T: ReadAt + ?Sized> ReadAt for alloc::boxed::Box<T> {
    fn len(&self) -> u64 {
        (**self).len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        (**self).read_at(offset, buf)
    }

    fn next_data(&self, offset: u64) -> u64 {
        (**self).next_data(offset)
    }
}

impl<T: ReadAt + ?Sized> ReadAt for alloc::sync::Arc<T> {
    fn len(&self) -> u64 {
        (**self).len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        (**self).read_at(offset, buf)
    }

    fn next_data(&self, offset: u64) -> u64 {
        (**self).next_data(offset)
    }
}

impl WriteAt for Vec<u8> {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        let out_of_range = Error::TooLarge { what: "offset", size: offset, limit: usize::MAX as u64 };
        let start = usize::try_from(offset).map_err(|_| out_of_range.clone())?;
        let end = start.checked_add(bytes.len()).ok_or(out_of_range)?;
        if self.len() < end {
            self.resize(end, 0);
        }
        crate::header::patch(self, start, bytes);
        Ok(())
    }
}

impl<T: WriteAt + ?Sized> WriteAt for &mut T {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        (**self).write_at(offset, bytes)
    }
}

#[cfg(all(feature = "std", unix))]
mod file {
    use super::{Error, ReadAt, Result, WriteAt};
    use alloc::string::ToString;
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    fn io_error(offset: u64, error: &std::io::Error) -> Error {
        Error::Io { offset, reason: error.to_string() }
    }

    impl ReadAt for File {
        fn len(&self) -> u64 {
            self.metadata().map_or(0, |m| m.len())
        }

        fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
            let mut done = 0;
            while let Some(remaining) = buf.get_mut(done..).filter(|remaining| !remaining.is_empty()) {
                match FileExt::read_at(self, remaining, offset.saturating_add(done as u64)) {
                    Ok(0) => break,
                    Ok(n) => done = done.saturating_add(n),
                    Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                    Err(e) => return Err(io_error(offset, &e)),
                }
            }
            Ok(done)
        }
    }

    impl WriteAt for File {
        fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
            self.write_all_at(bytes, offset).map_err(|e| io_error(offset, &e))
        }
    }
}
