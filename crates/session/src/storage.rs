//! Writes a log to storage, through the page cache or directly to the device.
//!
//! ```text
//!   low data rate    ──▶ page cache ──▶ (later, by the kernel) device
//!                        bursts are absorbed, the device may sleep
//!   high data rate   ──▶ device, from the buffer itself (O_DIRECT)
//!                        no write-back stalls, no copy for the cache
//! ```
//!
//! A log that is written faster than people read it gains nothing from the page cache, and loses
//! whenever the kernel decides to write back: a write then stalls for tens of milliseconds, which
//! is longer than the buffers of a busy session last. So whole buffers go directly to the device
//! while the data rate is high and the device is fast; a slow device, or a file system that refuses
//! O_DIRECT, gets them through the cache.
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
    fn reserve(&mut self, length: u64) -> io::Result<()>;
    /// Returns its current state, if it is a file that other processes could change.
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
/// Bytes per second from which on the data rate is high.
const HIGH_RATE: u64 = 8 << 20;
/// A device that takes longer per byte, on average, is slow: 100 MB/s.
const SLOW_NS_PER_BYTE: u64 = 10;
/// Bytes over which the speed of the device is measured. A single slow write is not enough: what
/// the cache then takes has to go to the same device, and makes it slower still.
const MEASURED: u64 = 64 << 20;
/// Bytes that go through the cache after the device was found slow.
const CACHED_AFTER_SLOW: u64 = 256 << 20;

/// A log file, written through the page cache or directly to the device.
pub(crate) struct LogStorage {
    file: File,
    /// The same file, opened with O_DIRECT; `None` if that is refused.
    direct: Option<File>,
    flow: Flow,
    /// Keeps the file off root's reserved blocks; `None` if it may use them.
    room: Option<UnreservedSpace>,
}

/// The data rate of a log and the speed of its device.
struct Flow {
    second: Instant,
    in_second: u64,
    is_high_rate: bool,
    measured: u64,
    took: Duration,
    /// Bytes that still go through the cache because the device was slow.
    cached_bytes: u64,
}

impl Flow {
    fn new() -> Self {
        let (measured, took) = (0, Duration::ZERO);
        Self { second: Instant::now(), in_second: 0, is_high_rate: false, measured, took, cached_bytes: 0 }
    }

    /// Returns whether the next `bytes` bytes should go directly to the device.
    fn should_write_directly(&mut self, bytes: u64) -> bool {
        if self.second.elapsed() >= Duration::from_secs(1) {
            self.is_high_rate = self.in_second >= HIGH_RATE;
            (self.second, self.in_second) = (Instant::now(), 0);
        }
        self.in_second = self.in_second.saturating_add(bytes);
        self.is_high_rate |= self.in_second >= HIGH_RATE;
        self.cached_bytes = self.cached_bytes.saturating_sub(bytes);
        self.is_high_rate && self.cached_bytes == 0
    }

    /// Records how long the device took for `bytes` bytes.
    fn measure(&mut self, bytes: u64, took: Duration) {
        self.measured = self.measured.saturating_add(bytes);
        self.took = self.took.saturating_add(took);
        if self.measured < MEASURED {
            return;
        }
        if self.took > Duration::from_nanos(self.measured.saturating_mul(SLOW_NS_PER_BYTE)) {
            self.cached_bytes = CACHED_AFTER_SLOW;
        }
        (self.measured, self.took) = (0, Duration::ZERO);
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
        Self { file, direct, flow: Flow::new(), room: None }
    }

    /// Creates storage that leaves the blocks alone that its file system reserves for root.
    pub(crate) fn without_reserved_blocks(file: File) -> Self {
        let room = Some(UnreservedSpace::new(&file));
        Self { room, ..Self::new(file) }
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Writes directly to the device. Returns how many bytes, from the first on, were written this
    /// way.
    fn write_direct(&mut self, pieces: &[&[u8]], offset: u64) -> io::Result<u64> {
        let is_whole = |number: u64| number.is_multiple_of(ALIGNMENT as u64);
        let fits = |p: &&[u8]| is_whole(p.len() as u64) && p.as_ptr().align_offset(ALIGNMENT) == 0;
        let length = pieces.iter().map(|p| p.len() as u64).sum();
        if !is_whole(offset) || !pieces.iter().all(fits) || !self.flow.should_write_directly(length) {
            return Ok(0);
        }
        let Some(direct) = &self.direct else { return Ok(0) };
        let vectors: Vec<IoSlice<'_>> = pieces.iter().map(|p| IoSlice::new(p)).collect();
        let begin = Instant::now();
        match rustix::io::pwritev(direct, &vectors, offset) {
            Ok(written) => {
                self.flow.measure(written as u64, begin.elapsed());
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
        if let Some(room) = &mut self.room {
            room.claim(&self.file, offset, pieces.iter().map(|p| p.len() as u64).sum())?;
        }
        let end = offset.saturating_add(self.write_direct(pieces, offset)?);
        for piece in pieces {
            // The rest goes through the cache.
            let done = end.saturating_sub(offset).min(piece.len() as u64);
            let rest = usize::try_from(done).ok().and_then(|done| piece.get(done..)).unwrap_or_default();
            if !rest.is_empty() {
                self.file.write_all_at(rest, offset.saturating_add(done))?;
            }
            offset = offset.saturating_add(piece.len() as u64);
        }
        Ok(())
    }

    fn reserve(&mut self, length: u64) -> io::Result<()> {
        if let Some(room) = &mut self.room {
            room.claim(&self.file, 0, length)?;
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
        if let Some(room) = &mut self.room {
            room.truncate(length);
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
        let buffers = 2 * HIGH_RATE / (64 << 10);
        for n in 0..buffers {
            let aligned = &mut memory[from..from + (64 << 10)];
            aligned.copy_from_slice(&buffer(n));
            storage.write_all_at(aligned, n << 16).unwrap();
            if n % 100 == 0 {
                storage.write_all_at(b"odd", n << 16).unwrap();
            }
        }
        assert_eq!(open().metadata().unwrap().size(), buffers << 16);
        let mut found = vec![0; 64 << 10];
        for n in 0..buffers {
            open().read_exact_at(&mut found, n << 16).unwrap();
            let mut wanted = buffer(n);
            if n % 100 == 0 {
                wanted[..3].copy_from_slice(b"odd");
            }
            assert!(found == wanted, "buffer {n}");
        }
        // Batches with and without an unaligned piece are written correctly too.
        let whole = &memory[from..from + (64 << 10)];
        storage.write_pieces_at(&[whole, b"odd", whole], 0).unwrap();
        storage.write_pieces_at(&[whole, whole, &whole[..ALIGNMENT]], 1 << 20).unwrap();
        for (at, wanted) in
            [(0, [whole, b"odd", whole].concat()), (1 << 20, [whole, whole, &whole[..ALIGNMENT]].concat())]
        {
            let mut found = vec![0; wanted.len()];
            open().read_exact_at(&mut found, at).unwrap();
            assert!(found == wanted, "batch at {at}");
        }
        storage.truncate(100).unwrap();
        assert_eq!(open().metadata().unwrap().size(), 100);
    }

    #[test]
    fn slow_device_gets_cached_writes_for_a_while() {
        let mut flow = Flow::new();
        assert!(
            !flow.should_write_directly(HIGH_RATE - 1) && flow.should_write_directly(1),
            "the rate is high from then on"
        );
        flow.measure(MEASURED, Duration::from_nanos(MEASURED * SLOW_NS_PER_BYTE / 2));
        assert!(flow.should_write_directly(1));
        flow.measure(1, Duration::from_millis(500));
        assert!(flow.should_write_directly(1), "a single slow write does not count");
        flow.measure(MEASURED, Duration::from_nanos(MEASURED * SLOW_NS_PER_BYTE * 2));
        assert!(!flow.should_write_directly(CACHED_AFTER_SLOW - 1) && flow.should_write_directly(1));
    }
}
