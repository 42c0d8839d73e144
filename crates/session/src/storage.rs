//! Writes a log to storage, through the page cache or directly to the device.
//!
//! ```text
//!   low data rate    ──▶ page cache ──▶ (later, by the kernel) device
//!                        bursts are absorbed, the device may sleep
//!   high data rate   ──▶ device, from the buffer itself (O_DIRECT)
//!                        no write-back stalls, no copy for the cache
//! ```
//!
//! The page cache does not help a log with a high data rate. When the kernel writes back, a write
//! stalls for tens of milliseconds, which is longer than the buffers of a busy session last. So
//! whole buffers go directly to the device while the data rate is high and the device is fast; a
//! slow device, or a file system that refuses O_DIRECT, gets them through the cache.
//!
//! `storage/room.rs` limits the log to space that is not reserved for root.

mod room;

use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::time::{Duration, Instant};

use rustix::fs::{FallocateFlags, Mode, OFlags};

use room::UnreservedSpace;

/// Storage of a log.
pub(crate) trait Storage: Send {
    /// Writes all bytes at `offset`.
    fn write_all_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// Writes all bytes of several pieces, one after the other.
    fn write_pieces_at(&mut self, pieces: &[&[u8]], mut offset: u64) -> io::Result<()> {
        for piece in pieces {
            self.write_all_at(piece, offset)?;
            offset = offset.saturating_add(piece.len() as u64);
        }
        Ok(())
    }
    /// Truncates the storage to `length`.
    fn truncate(&mut self, length: u64) -> io::Result<()>;
    /// Extends the storage to `length`, with blocks allocated on the device.
    fn preallocate(&mut self, length: u64) -> io::Result<()>;
    /// Returns the current state of the storage, if it is a file that other processes could change.
    fn state(&self) -> Option<FileState> {
        None
    }
    /// Reads at `offset`; a short count means that the storage ends there.
    fn read_at(&self, _bytes: &mut [u8], _offset: u64) -> io::Result<usize> {
        Ok(0)
    }
}

/// Attributes that change whenever a process writes to a file or truncates it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileState {
    pub(crate) size: u64,
    /// Modification time: seconds and nanoseconds.
    pub(crate) changed: (i64, i64),
}

/// Alignment that devices require of addresses, offsets and lengths.
pub(crate) const ALIGNMENT: usize = 4096;
/// Bytes per second at which the data rate counts as high.
const HIGH_RATE_BYTES_PER_SECOND: u64 = 8 << 20;
/// A device that takes longer per byte, on average, is slow (less than 100 MB/s).
const SLOW_NS_PER_BYTE: u64 = 10;
/// Bytes over which the speed of the device is measured. A single slow write does not mean that the
/// device is slow: the kernel's write-back of cached bytes to the same device delays direct writes.
const MEASURED_BYTES: u64 = 64 << 20;
/// Bytes that go through the cache after the device was found to be slow.
const CACHED_BYTES_AFTER_SLOW: u64 = 256 << 20;

/// A log file, written through the page cache or directly to the device.
pub(crate) struct LogStorage {
    file: File,
    /// The same file, opened with O_DIRECT; `None` if that is refused.
    direct: Option<File>,
    rate: WriteRate,
    /// Keeps the file off root's reserved blocks; `None` if it may use them.
    unreserved: Option<UnreservedSpace>,
}

/// The data rate of a log and the speed of its device.
struct WriteRate {
    second_start: Instant,
    bytes_in_second: u64,
    is_high_rate: bool,
    measured_bytes: u64,
    write_time: Duration,
    /// Bytes that still go through the cache because the device was slow.
    cached_bytes: u64,
}

impl WriteRate {
    fn new() -> Self {
        Self {
            second_start: Instant::now(),
            bytes_in_second: 0,
            is_high_rate: false,
            measured_bytes: 0,
            write_time: Duration::ZERO,
            cached_bytes: 0,
        }
    }

    /// Returns whether the next `bytes` bytes should go directly to the device.
    fn should_write_directly(&mut self, bytes: u64) -> bool {
        if self.second_start.elapsed() >= Duration::from_secs(1) {
            self.is_high_rate = self.bytes_in_second >= HIGH_RATE_BYTES_PER_SECOND;
            (self.second_start, self.bytes_in_second) = (Instant::now(), 0);
        }
        self.bytes_in_second = self.bytes_in_second.saturating_add(bytes);
        self.is_high_rate |= self.bytes_in_second >= HIGH_RATE_BYTES_PER_SECOND;
        self.cached_bytes = self.cached_bytes.saturating_sub(bytes);
        self.is_high_rate && self.cached_bytes == 0
    }

    /// Records how long the device took for `bytes` bytes.
    fn measure(&mut self, bytes: u64, elapsed: Duration) {
        self.measured_bytes = self.measured_bytes.saturating_add(bytes);
        self.write_time = self.write_time.saturating_add(elapsed);
        if self.measured_bytes < MEASURED_BYTES {
            return;
        }
        if self.write_time > Duration::from_nanos(self.measured_bytes.saturating_mul(SLOW_NS_PER_BYTE)) {
            self.cached_bytes = CACHED_BYTES_AFTER_SLOW;
        }
        (self.measured_bytes, self.write_time) = (0, Duration::ZERO);
    }
}

impl LogStorage {
    /// Creates storage that may use all the space that this process can use.
    pub(crate) fn new(file: File) -> Self {
        // A second open file description of the same file: O_DIRECT belongs to the description, and
        // small pieces are written without it.
        let path = format!("/proc/thread-self/fd/{}", file.as_raw_fd());
        let flags = OFlags::RDWR | OFlags::DIRECT | OFlags::CLOEXEC;
        let direct = rustix::fs::open(path, flags, Mode::empty()).ok().map(File::from);
        Self { file, direct, rate: WriteRate::new(), unreserved: None }
    }

    /// Creates storage that does not use the blocks that the file system reserves for root.
    pub(crate) fn without_reserved_blocks(file: File) -> Self {
        let unreserved = Some(UnreservedSpace::new(&file));
        Self { unreserved, ..Self::new(file) }
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Writes directly to the device if the pieces are aligned and the data rate is high. Returns
    /// how many bytes, from the first one on, were written this way.
    fn write_direct(&mut self, pieces: &[&[u8]], offset: u64) -> io::Result<u64> {
        let is_aligned = |number: u64| number.is_multiple_of(ALIGNMENT as u64);
        let fits = |p: &&[u8]| is_aligned(p.len() as u64) && p.as_ptr().align_offset(ALIGNMENT) == 0;
        let length = pieces.iter().map(|p| p.len() as u64).sum();
        if !is_aligned(offset) || !pieces.iter().all(fits) || !self.rate.should_write_directly(length) {
            return Ok(0);
        }
        let Some(direct) = &self.direct else { return Ok(0) };
        let vectors: Vec<IoSlice<'_>> = pieces.iter().map(|p| IoSlice::new(p)).collect();
        let begin = Instant::now();
        match rustix::io::pwritev(direct, &vectors, offset) {
            Ok(written) => {
                self.rate.measure(written as u64, begin.elapsed());
                Ok(written as u64)
            }
            // The file system has further requirements: do not try again.
            Err(rustix::io::Errno::INVAL) => {
                self.direct = None;
                Ok(0)
            }
            Err(rustix::io::Errno::INTR) => Ok(0),
            Err(e) => Err(e.into()),
        }
    }
}

impl Storage for LogStorage {
    fn write_all_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.write_pieces_at(&[bytes], offset)
    }

    fn write_pieces_at(&mut self, pieces: &[&[u8]], mut offset: u64) -> io::Result<()> {
        if let Some(unreserved) = &mut self.unreserved {
            unreserved.claim(&self.file, offset, pieces.iter().map(|p| p.len() as u64).sum())?;
        }
        let end = offset.saturating_add(self.write_direct(pieces, offset)?);
        for piece in pieces {
            // The bytes that were not written directly go through the cache.
            let direct_bytes = end.saturating_sub(offset).min(piece.len() as u64);
            let cached = usize::try_from(direct_bytes)
                .ok()
                .and_then(|direct_bytes| piece.get(direct_bytes..))
                .unwrap_or_default();
            if !cached.is_empty() {
                self.file.write_all_at(cached, offset.saturating_add(direct_bytes))?;
            }
            offset = offset.saturating_add(piece.len() as u64);
        }
        Ok(())
    }

    fn preallocate(&mut self, length: u64) -> io::Result<()> {
        if let Some(unreserved) = &mut self.unreserved {
            unreserved.claim(&self.file, 0, length)?;
        }
        loop {
            match rustix::fs::fallocate(&self.file, FallocateFlags::empty(), 0, length) {
                Err(rustix::io::Errno::INTR) => {}
                other => return other.map_err(io::Error::from),
            }
        }
    }

    fn state(&self) -> Option<FileState> {
        let metadata = self.file.metadata().ok()?;
        Some(FileState { size: metadata.size(), changed: (metadata.mtime(), metadata.mtime_nsec()) })
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        FileExt::read_at(&self.file, bytes, offset)
    }

    fn truncate(&mut self, length: u64) -> io::Result<()> {
        self.file.set_len(length)?;
        if let Some(unreserved) = &mut self.unreserved {
            unreserved.truncate(length);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn direct_and_cached_writes_reach_their_offsets() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let open =
            || File::options().read(true).write(true).create(true).truncate(false).open(&path).unwrap();
        let mut storage = LogStorage::new(open());
        let buffer = |n: u64| vec![u8::try_from(n % 251).unwrap(); 64 << 10];
        let mut memory = vec![0; (64 << 10) + ALIGNMENT];
        let from = memory.as_ptr().align_offset(ALIGNMENT);
        // Twice the bytes of a high data rate.
        let buffers = 2 * HIGH_RATE_BYTES_PER_SECOND / (64 << 10);
        for n in 0..buffers {
            // Buffer n is at n << 16: n times 64 KiB.
            let aligned = &mut memory[from..from + (64 << 10)];
            aligned.copy_from_slice(&buffer(n));
            storage.write_all_at(aligned, n << 16).unwrap();
            if n % 100 == 0 {
                storage.write_all_at(b"odd", n << 16).unwrap();
            }
        }
        assert_eq!(open().metadata().unwrap().size(), buffers << 16);
        let mut actual = vec![0; 64 << 10];
        for n in 0..buffers {
            open().read_exact_at(&mut actual, n << 16).unwrap();
            let mut expected = buffer(n);
            if n % 100 == 0 {
                expected[..3].copy_from_slice(b"odd");
            }
            assert!(actual == expected, "buffer {n}");
        }
        // Batches with and without an unaligned piece are written correctly too.
        let aligned_piece = &memory[from..from + (64 << 10)];
        storage.write_pieces_at(&[aligned_piece, b"odd", aligned_piece], 0).unwrap();
        storage
            .write_pieces_at(&[aligned_piece, aligned_piece, &aligned_piece[..ALIGNMENT]], 1 << 20)
            .unwrap();
        for (at, expected) in [
            (0, [aligned_piece, b"odd", aligned_piece].concat()),
            (1 << 20, [aligned_piece, aligned_piece, &aligned_piece[..ALIGNMENT]].concat()),
        ] {
            let mut actual = vec![0; expected.len()];
            open().read_exact_at(&mut actual, at).unwrap();
            assert!(actual == expected, "batch at {at}");
        }
        storage.truncate(100).unwrap();
        assert_eq!(open().metadata().unwrap().size(), 100);
    }

    #[test]
    fn slow_device_gets_cached_writes_for_a_while() {
        let mut rate = WriteRate::new();
        assert!(
            !rate.should_write_directly(HIGH_RATE_BYTES_PER_SECOND - 1) && rate.should_write_directly(1),
            "the rate does not become high exactly at the threshold"
        );
        rate.measure(MEASURED_BYTES, Duration::from_nanos(MEASURED_BYTES * SLOW_NS_PER_BYTE / 2));
        assert!(rate.should_write_directly(1));
        rate.measure(1, Duration::from_millis(500));
        assert!(rate.should_write_directly(1), "a single slow write made the device slow");
        rate.measure(MEASURED_BYTES, Duration::from_nanos(MEASURED_BYTES * SLOW_NS_PER_BYTE * 2));
        assert!(!rate.should_write_directly(CACHED_BYTES_AFTER_SLOW - 1) && rate.should_write_directly(1));
    }
}
