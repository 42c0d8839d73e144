//! Limits the logs of users other than root to space that is not reserved for root.
//!
//! ```text
//!   file system:  [ used | free for all users (f_bavail) | reserved for root ]
//!                          ▲ a log without access to reserved blocks ends here, even if a root
//!                            process writes it
//! ```
//!
//! Some file systems reserve blocks so that root can still work when users have filled the other
//! blocks. The system's daemon runs as root and writes the logs of all users, so the kernel would
//! let every log use the reserved blocks. Therefore the daemon checks the free space itself.
//!
//! A log does not query the file system for each write. After a query it may use one of
//! [`FREE_SPACE_SHARES`] shares of the free space, for at most a second. A daemon has at most that
//! many sessions, so together their shares cannot exceed the free space. A write that is larger
//! than a share is allowed if the free space suffices right then.
//!
//! - M1 Overwriting older bytes takes no space, so on a full disk a circular log continues and a
//!   header can be completed. This holds only if the file has all its blocks: the owner of the file
//!   may have punched holes into it.
//! - M2 If the file system does not report its free space, the writes themselves fail when it is
//!   full.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

/// Number of shares of the free space; a daemon has at most this many sessions.
const FREE_SPACE_SHARES: u64 = 256;
/// Upper limit of a share: other processes write too, and can use up the space that a query found.
const MAX_SHARE_BYTES: u64 = 16 << 20;
/// Time for which a log relies on the result of a query.
const QUERY_VALIDITY: Duration = Duration::from_secs(1);

/// The space that a log may still use.
pub(super) struct UnreservedSpace {
    /// Length of the file.
    end: u64,
    /// Bytes that the log may still write without another query.
    share_bytes: u64,
    queried_at: Instant,
}

impl UnreservedSpace {
    pub(super) fn new(file: &File) -> Self {
        Self {
            end: file.metadata().map_or(0, |metadata| metadata.len()),
            share_bytes: 0,
            queried_at: Instant::now(),
        }
    }

    /// Claims space for `length` bytes at `offset`. Fails with ENOSPC if there is not enough.
    pub(super) fn claim(&mut self, file: &File, offset: u64, length: u64) -> io::Result<()> {
        let end = offset.saturating_add(length);
        if self.share_bytes < length || self.queried_at.elapsed() >= QUERY_VALIDITY {
            let free = unreserved_bytes(file);
            if free < length && !self.has_blocks(file, end) {
                return Err(rustix::io::Errno::NOSPC.into());
            }
            self.share_bytes = (free / FREE_SPACE_SHARES).min(MAX_SHARE_BYTES);
            self.queried_at = Instant::now();
        }
        self.share_bytes = self.share_bytes.saturating_sub(length);
        self.end = self.end.max(end);
        Ok(())
    }

    /// Records that the file was truncated to `length`.
    pub(super) fn truncate(&mut self, length: u64) {
        self.end = length;
    }

    /// Returns whether the file has blocks for everything up to `end`.
    fn has_blocks(&self, file: &File, end: u64) -> bool {
        // `st_blocks` counts units of 512 bytes on every file system.
        let allocated_bytes = |metadata: std::fs::Metadata| metadata.blocks().saturating_mul(512);
        end <= self.end && file.metadata().map(allocated_bytes).is_ok_and(|bytes| bytes >= self.end)
    }
}

fn unreserved_bytes(file: &File) -> u64 {
    rustix::fs::fstatvfs(file).map_or(u64::MAX, |stats| stats.f_bavail.saturating_mul(stats.f_frsize))
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};
    use std::process::Command;

    use super::*;
    use crate::storage::{LogStorage, Storage};

    /// A file system of 16 MiB, half of it reserved for root; unmounted at the end.
    struct HalfReservedFileSystem {
        folder: tempfile::TempDir,
    }

    impl HalfReservedFileSystem {
        fn mount() -> Option<Self> {
            let folder = tempfile::tempdir().unwrap();
            let (image, mount_point) = (folder.path().join("image"), folder.path().join("mount"));
            File::create(&image).unwrap().set_len(16 << 20).unwrap();
            std::fs::create_dir(&mount_point).unwrap();
            let run = |command: &mut Command| command.output().is_ok_and(|output| output.status.success());
            let is_mounted = run(Command::new("mkfs.ext4").args(["-q", "-m", "50"]).arg(&image))
                && run(Command::new("mount").args(["-o", "loop"]).args([&image, &mount_point]));
            is_mounted.then_some(Self { folder })
        }

        fn mount_point(&self) -> PathBuf {
            self.folder.path().join("mount")
        }

        fn open(&self, name: &str) -> File {
            let mut options = File::options();
            options.read(true).write(true).create(true).truncate(false);
            options.open(self.mount_point().join(name)).unwrap()
        }
    }

    impl Drop for HalfReservedFileSystem {
        fn drop(&mut self) {
            let _ = Command::new("umount").arg("-l").arg(self.mount_point()).status();
        }
    }

    /// Writes pieces of 64 KiB from `offset` on until a write fails. Returns the offset of the
    /// failed write.
    fn write_until_full(storage: &mut LogStorage, mut offset: u64) -> u64 {
        let piece = [0x5A; 64 << 10];
        loop {
            match storage.write_all_at(&piece, offset) {
                Ok(()) => offset += piece.len() as u64,
                Err(error) => {
                    assert_eq!(error.kind(), io::ErrorKind::StorageFull, "{error}");
                    return offset;
                }
            }
        }
    }

    fn bytes_free_for_root(mount_point: &Path) -> u64 {
        let stats = rustix::fs::statvfs(mount_point).unwrap();
        stats.f_bfree * stats.f_frsize
    }

    #[test]
    fn user_log_does_not_use_blocks_reserved_for_root() {
        let Some(file_system) = HalfReservedFileSystem::mount() else {
            return crate::skip::skip("root", "a file system with reserved blocks cannot be mounted here");
        };
        let mut storage = LogStorage::without_reserved_blocks(file_system.open("guests"));
        let end = write_until_full(&mut storage, 0);
        assert!(end > 1 << 20, "{end}: no free space at the start");
        let free_for_root = bytes_free_for_root(&file_system.mount_point());
        assert!(free_for_root > 6 << 20, "{free_for_root}: the log used root's blocks");
        assert!(storage.preallocate(end + (1 << 20)).is_err(), "preallocation used reserved blocks");

        // Older bytes can be overwritten, but holes cannot be filled.
        storage.write_all_at(&[1; 64 << 10], 0).unwrap();
        storage.truncate(end - (64 << 10)).unwrap();
        let mut filler = LogStorage::without_reserved_blocks(file_system.open("filler"));
        write_until_full(&mut filler, 0);
        assert!(
            storage.write_all_at(&[1; 64 << 10], end - (64 << 10)).is_err(),
            "the file grew on a full disk"
        );
        let punch_flags = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(file_system.open("guests"), punch_flags, 0, 256 << 10).unwrap();
        // The filler takes the blocks that the hole has freed, at an offset far beyond its end.
        write_until_full(&mut filler, u64::from(u32::MAX));
        assert!(storage.write_all_at(&[1; 64 << 10], 0).is_err(), "a hole was filled on a full disk");

        let mut roots = LogStorage::new(file_system.open("roots"));
        assert!(write_until_full(&mut roots, 0) > 5 << 20, "root cannot use its blocks");
    }
}
