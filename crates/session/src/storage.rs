//! Where a log is stored, and how the bytes get there.
//!
//! ```text
//!   little flows   ──▶ page cache ──▶ (later, by the system) device      bursts are absorbed, the device may sleep
//!   much flows     ──▶ device, which fetches the buffer itself           no stalls of the system's write-back, no copy for the cache
//! ```
//!
//! A log that is written faster than people read it gains nothing from the page cache, and loses whenever the system decides to write back: a write
//! then stands still for tens of milliseconds, which is longer than the buffers of a busy session last. So whole buffers go straight to the device
//! while much flows and the device is quick; a slow device, or a file system that refuses, gets them by the cache.
//!
//! Whose room it takes is told in `storage/room.rs`.

mod room;

use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::time::{Duration, Instant};

use rustix::fs::{FallocateFlags, Mode, OFlags};

use room::Room;

/// Where a log is stored.
pub(crate) trait Storage: Send {
    /// Writes all bytes at an offset.
    fn write_all_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// Writes all bytes of several pieces, one behind the other.
    fn write_row_at(&mut self, pieces: &[&[u8]], mut offset: u64) -> io::Result<()> {
        for piece in pieces {
            self.write_all_at(piece, offset)?;
            offset = offset.saturating_add(piece.len() as u64);
        }
        Ok(())
    }
    /// Cuts it to a length.
    fn truncate(&mut self, length: u64) -> io::Result<()>;
    /// Makes it so long, with room on the device for all of it.
    fn reserve(&mut self, length: u64) -> io::Result<()>;
    /// How it is now, where it is a file that other processes could change.
    fn state(&self) -> Option<FileState> {
        None
    }
    /// Reads at an offset; a short count means that the bytes end there.
    fn read_at(&self, _bytes: &mut [u8], _offset: u64) -> io::Result<usize> {
        Ok(0)
    }
}

/// What changes whenever a process writes to a file or truncates it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileState {
    pub(crate) size: u64,
    /// When its contents changed last: seconds and nanoseconds.
    pub(crate) changed: (i64, i64),
}

/// What devices ask of addresses, offsets and lengths.
pub(crate) const ALIGNMENT: usize = 4096;
/// So many bytes in a second are much.
const MUCH: u64 = 8 << 20;
/// A device that takes longer than this for a byte, on average, is slow: 100 MB/s.
const SLOW_NS_PER_BYTE: u64 = 10;
/// Bytes over which the device is judged, and for which a slow one is left alone. Not after a single slow write: what the cache then takes has to go
/// to the same device, and makes it slower still.
const JUDGED: u64 = 64 << 20;
const LEFT_ALONE: u64 = 256 << 20;

/// A file, by the page cache or straight to the device.
pub(crate) struct LogStorage {
    file: File,
    /// The same file, opened for direct transfer; missing where that is refused.
    direct: Option<File>,
    flow: Flow,
    /// How it keeps off what is kept back for root; nothing where it may have that.
    room: Option<Room>,
}

/// How much flows, and how quick the device is.
struct Flow {
    second: Instant,
    in_second: u64,
    is_much: bool,
    judged: u64,
    took: Duration,
    /// Bytes for which a slow device is still left alone.
    alone: u64,
}

impl Flow {
    fn new() -> Self {
        let (judged, took) = (0, Duration::ZERO);
        Self { second: Instant::now(), in_second: 0, is_much: false, judged, took, alone: 0 }
    }

    /// So many bytes are to be written: whether they should go straight to the device.
    fn takes(&mut self, bytes: u64) -> bool {
        if self.second.elapsed() >= Duration::from_secs(1) {
            self.is_much = self.in_second >= MUCH;
            (self.second, self.in_second) = (Instant::now(), 0);
        }
        self.in_second = self.in_second.saturating_add(bytes);
        self.is_much |= self.in_second >= MUCH;
        self.alone = self.alone.saturating_sub(bytes);
        self.is_much && self.alone == 0
    }

    /// The device took so long for so many bytes.
    fn judge(&mut self, bytes: u64, took: Duration) {
        self.judged = self.judged.saturating_add(bytes);
        self.took = self.took.saturating_add(took);
        if self.judged < JUDGED {
            return;
        }
        if self.took > Duration::from_nanos(self.judged.saturating_mul(SLOW_NS_PER_BYTE)) {
            self.alone = LEFT_ALONE;
        }
        (self.judged, self.took) = (0, Duration::ZERO);
    }
}

impl LogStorage {
    /// A log that takes all the room that this process can have.
    pub(crate) fn new(file: File) -> Self {
        // A second opening of the same file: the flag belongs to the opening, and small pieces are written without it.
        let path = format!("/proc/thread-self/fd/{}", file.as_raw_fd());
        let flags = OFlags::RDWR | OFlags::DIRECT | OFlags::CLOEXEC;
        let direct = rustix::fs::open(path, flags, Mode::empty()).ok().map(File::from);
        Self { file, direct, flow: Flow::new(), room: None }
    }

    /// A log that leaves alone what its file system keeps back for root.
    pub(crate) fn of_everybody(file: File) -> Self {
        let room = Some(Room::of(&file));
        Self { room, ..Self::new(file) }
    }

    /// The file.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Writes straight to the device; bytes from the first on that were written so.
    fn write_direct(&mut self, pieces: &[&[u8]], offset: u64) -> io::Result<u64> {
        let is_whole = |number: u64| number.is_multiple_of(ALIGNMENT as u64);
        let fits = |p: &&[u8]| is_whole(p.len() as u64) && p.as_ptr().align_offset(ALIGNMENT) == 0;
        let length = pieces.iter().map(|p| p.len() as u64).sum();
        if !is_whole(offset) || !pieces.iter().all(fits) || !self.flow.takes(length) {
            return Ok(0);
        }
        let Some(direct) = &self.direct else { return Ok(0) };
        let vectors: Vec<IoSlice<'_>> = pieces.iter().map(|p| IoSlice::new(p)).collect();
        let begin = Instant::now();
        match rustix::io::pwritev(direct, &vectors, offset) {
            Ok(written) => {
                self.flow.judge(written as u64, begin.elapsed());
                Ok(written as u64)
            }
            // The file system wants more than we know of: it is asked no more.
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
        self.write_row_at(&[bytes], offset)
    }

    fn write_row_at(&mut self, pieces: &[&[u8]], mut offset: u64) -> io::Result<()> {
        if let Some(room) = &mut self.room {
            room.claim(&self.file, offset, pieces.iter().map(|p| p.len() as u64).sum())?;
        }
        let end = offset.saturating_add(self.write_direct(pieces, offset)?);
        for piece in pieces {
            // What was not taken at once goes by the cache.
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
            room.cut(length);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_either_way_is_in_the_file_in_its_place() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let open =
            || File::options().read(true).write(true).create(true).truncate(false).open(&path).unwrap();
        let mut storage = LogStorage::new(open());
        let buffer = |n: u64| vec![u8::try_from(n % 251).unwrap(); 64 << 10];
        let mut memory = vec![0; (64 << 10) + ALIGNMENT];
        let from = memory.as_ptr().align_offset(ALIGNMENT);
        // Twice as much as it takes to be much.
        let buffers = 2 * MUCH / (64 << 10);
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
        // A row of which one piece is odd, and one that is all whole, are in their places too.
        let whole = &memory[from..from + (64 << 10)];
        storage.write_row_at(&[whole, b"odd", whole], 0).unwrap();
        storage.write_row_at(&[whole, whole, &whole[..ALIGNMENT]], 1 << 20).unwrap();
        for (at, wanted) in
            [(0, [whole, b"odd", whole].concat()), (1 << 20, [whole, whole, &whole[..ALIGNMENT]].concat())]
        {
            let mut found = vec![0; wanted.len()];
            open().read_exact_at(&mut found, at).unwrap();
            assert!(found == wanted, "row at {at}");
        }
        storage.truncate(100).unwrap();
        assert_eq!(open().metadata().unwrap().size(), 100);
    }

    #[test]
    fn a_slow_device_is_left_alone_for_a_while() {
        let mut flow = Flow::new();
        assert!(!flow.takes(MUCH - 1) && flow.takes(1), "from then on much flows");
        flow.judge(JUDGED, Duration::from_nanos(JUDGED * SLOW_NS_PER_BYTE / 2));
        assert!(flow.takes(1));
        flow.judge(1, Duration::from_millis(500));
        assert!(flow.takes(1), "a single slow write says little");
        flow.judge(JUDGED, Duration::from_nanos(JUDGED * SLOW_NS_PER_BYTE * 2));
        assert!(!flow.takes(LEFT_ALONE - 1) && flow.takes(1));
    }
}
