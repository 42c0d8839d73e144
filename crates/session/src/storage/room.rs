//! Room that everybody may use, for a log that is not root's.
//!
//! ```text
//!   file system:  [ used | free to all (f_bavail) | kept back for root ]
//!                          ▲ a log of everybody ends here, even where root's process writes it
//! ```
//!
//! Some file systems keep blocks back, so that root can still work when users have filled the rest. The system's daemon is root and writes the
//! logs of all users: nothing would keep a log without limit from those blocks, so they are asked for here.
//!
//! The file system is asked once for a share of what it has, or for a second, and not for each write: the sessions of a daemon together cannot use up more than there
//! was (there are at most [`SHARES`]), and the fuller it is, the more often it is asked. M1 What is written in place of older bytes takes no
//! room, so a circular log goes on and a header is finished on a full disk; but only where the file has all its blocks, since its owner
//! may have punched holes into it. M2 Where the file system does not tell, it is left to say no by itself.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

/// A part of the free room that is not asked for again: no daemon has more sessions.
const SHARES: u64 = 256;
/// The part at most: others write too.
const MAX_SHARE: u64 = 16 << 20;
/// For so long.
const FRESH: Duration = Duration::from_secs(1);

/// What a log may still take.
pub(super) struct Room {
    /// Where its bytes end.
    end: u64,
    /// Bytes that need not be asked for.
    share: u64,
    asked: Instant,
}

impl Room {
    pub(super) fn of(file: &File) -> Self {
        Self { end: file.metadata().map_or(0, |it| it.len()), share: 0, asked: Instant::now() }
    }

    /// So many bytes are to be written at an offset: fails like a full disk where there is no room for them.
    pub(super) fn claim(&mut self, file: &File, offset: u64, length: u64) -> io::Result<()> {
        let end = offset.saturating_add(length);
        if self.share < length || self.asked.elapsed() >= FRESH {
            let free = free_to_all(file);
            if free < length && !self.is_there(file, end) {
                return Err(rustix::io::Errno::NOSPC.into());
            }
            self.share = (free / SHARES).min(MAX_SHARE);
            self.asked = Instant::now();
        }
        self.share = self.share.saturating_sub(length);
        self.end = self.end.max(end);
        Ok(())
    }

    /// It was cut to this length.
    pub(super) fn cut(&mut self, length: u64) {
        self.end = length;
    }

    /// Whether everything up to here has its blocks.
    fn is_there(&self, file: &File, end: u64) -> bool {
        let blocks = |it: std::fs::Metadata| it.blocks().saturating_mul(512);
        end <= self.end && file.metadata().map(blocks).is_ok_and(|there| there >= self.end)
    }
}

fn free_to_all(file: &File) -> u64 {
    rustix::fs::fstatvfs(file).map_or(u64::MAX, |it| it.f_bavail.saturating_mul(it.f_frsize))
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};
    use std::process::Command;

    use super::*;
    use crate::storage::{LogStorage, Storage};

    /// A file system of 16 MiB, half of it root's; unmounted at the end.
    struct HalfRoots {
        folder: tempfile::TempDir,
    }

    impl HalfRoots {
        fn mount() -> Option<Self> {
            let folder = tempfile::tempdir().unwrap();
            let (image, place) = (folder.path().join("image"), folder.path().join("place"));
            File::create(&image).unwrap().set_len(16 << 20).unwrap();
            std::fs::create_dir(&place).unwrap();
            let run = |command: &mut Command| command.output().is_ok_and(|it| it.status.success());
            let is_there = run(Command::new("mkfs.ext4").args(["-q", "-m", "50"]).arg(&image))
                && run(Command::new("mount").args(["-o", "loop"]).args([&image, &place]));
            is_there.then_some(Self { folder })
        }

        fn place(&self) -> PathBuf {
            self.folder.path().join("place")
        }

        fn open(&self, name: &str) -> File {
            let mut options = File::options();
            options.read(true).write(true).create(true).truncate(false);
            options.open(self.place().join(name)).unwrap()
        }
    }

    impl Drop for HalfRoots {
        fn drop(&mut self) {
            let _ = Command::new("umount").arg("-l").arg(self.place()).status();
        }
    }

    /// Writes pieces of 64 KiB from an offset on, until one is refused; where that is.
    fn fill(storage: &mut LogStorage, mut offset: u64) -> u64 {
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

    fn free_to_root(place: &Path) -> u64 {
        let it = rustix::fs::statvfs(place).unwrap();
        it.f_bfree * it.f_frsize
    }

    #[test]
    fn a_log_of_everybody_leaves_alone_what_is_kept_back_for_root() {
        let Some(system) = HalfRoots::mount() else {
            return crate::skip::skip("root", "a file system that keeps room back cannot be mounted here");
        };
        let mut storage = LogStorage::of_everybody(system.open("guests"));
        let end = fill(&mut storage, 0);
        assert!(end > 1 << 20, "{end}: there was room");
        let kept = free_to_root(&system.place());
        assert!(kept > 6 << 20, "{kept}: root's room is there");
        assert!(storage.reserve(end + (1 << 20)).is_err(), "nor is it reserved");

        // In place of older bytes it goes on, but not where they are none.
        storage.write_all_at(&[1; 64 << 10], 0).unwrap();
        storage.truncate(end - (64 << 10)).unwrap();
        let mut other = LogStorage::of_everybody(system.open("filler"));
        fill(&mut other, 0);
        assert!(storage.write_all_at(&[1; 64 << 10], end - (64 << 10)).is_err(), "it is longer again");
        let holes = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(system.open("guests"), holes, 0, 256 << 10).unwrap();
        fill(&mut other, u64::from(u32::MAX));
        assert!(storage.write_all_at(&[1; 64 << 10], 0).is_err(), "a hole takes room");

        let mut roots = LogStorage::new(system.open("roots"));
        assert!(fill(&mut roots, 0) > 5 << 20, "root has all of it");
    }
}
