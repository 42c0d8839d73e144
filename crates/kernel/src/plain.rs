//! Plain files that strangers name, found without opening what is none.
//!
//! ```text
//!   mapping of a process ──▶ /proc/PID/map_files/START-END ─▶ the very file, deleted or in another place of the tree
//!                       else /proc/PID/root/PATH ──┐
//!                       else PATH ─────────────────┴─▶ some file: whoever asks compares it with the mapping
//!
//!   O_PATH ──▶ a local file system? ──▶ a plain file? ──▶ Found ──open──▶ /proc/self/fd/N, for reading
//! ```
//!
//! 1. Whoever maps a file chose it: nothing but a plain file is opened, for opening others may do something or wait. A link is not followed where a path ends.
//! 2. The file system is asked for first, and only those are gone into that keep files on this machine: those of the kernel are doors to it, and whoever serves those of programs and of
//!    other machines may never answer. An overlay may lie over one of them, and finding may have to wait too: whoever calls this does it with patience, or where nobody waits.
//! 3. A file is [trusted](Found::is_trusted) where nobody could have made it but root and this user. A file system that somebody else brought along may say of its files what it likes: such
//!    are mounted without set-user-id bits, or are overlays, of which only the one that the daemon itself has as its root is trusted.

use std::fs::File;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Statx, StatxFlags};

/// `AT_STATX_DONT_SYNC`: what this machine knows is enough, whoever else keeps a file is not asked. rustix names it for glibc only.
pub(crate) const QUIETLY: AtFlags = AtFlags::from_bits_retain(0x4000);
/// File systems that keep files on this machine: ext2 to ext4, xfs, btrfs, tmpfs, f2fs, squashfs, erofs, zfs, ramfs, bcachefs; overlays of them.
const LOCAL: [u64; 11] = [
    0xEF53,
    0x5846_5342,
    0x9123_683E,
    TMPFS,
    0xF2F5_2010,
    0x7371_7368,
    0xE0F5_E1E2,
    0x2FC1_2FC1,
    0x8584_58F6,
    0xCA45_1A4E,
    OVERLAY,
];
/// Its files are made here, by whom they say.
const TMPFS: u64 = 0x0102_1994;
const OVERLAY: u64 = 0x794C_7630;
/// Mounted without set-user-id bits.
const NOSUID: u64 = 2;
/// Who may write beside the owner.
const OTHERS_WRITE: u16 = 0o022;

/// What a file is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Now {
    device: (u32, u32),
    pub(crate) inode: u64,
    changed: (i64, u32),
    size: u64,
}

/// The place of a plain file, not opened for reading yet.
#[derive(Debug)]
pub(crate) struct Found {
    place: OwnedFd,
    pub(crate) now: Now,
    /// Nobody but root and this user could have made it or can change it.
    pub(crate) is_trusted: bool,
}

impl Found {
    /// Opens it for reading.
    pub(crate) fn open(&self) -> Option<File> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let again = format!("/proc/self/fd/{}", self.place.as_raw_fd());
        Some(File::from(rustix::fs::open(again, flags, Mode::empty()).ok()?))
    }
}

/// Ways to what a process has mapped, best first, to be given to [`find`].
pub(crate) fn ways(process: u32, range: &Range<u64>, path: &str) -> [(String, OFlags); 3] {
    let link = format!("/proc/{process}/map_files/{:x}-{:x}", range.start, range.end);
    let named = format!("/proc/{process}/root/{}", path.trim_start_matches('/'));
    [(link, OFlags::empty()), (named, OFlags::NOFOLLOW), (path.to_owned(), OFlags::NOFOLLOW)]
}

/// Finds a plain file. Nothing is opened for reading.
pub(crate) fn find(path: &str, flags: OFlags) -> Option<Found> {
    let place = rustix::fs::open(path, flags | OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let system = rustix::fs::fstatfs(&place).ok()?;
    // A number that tells file systems apart, and flags: as wide as the platform has them.
    #[allow(clippy::cast_sign_loss, clippy::unnecessary_cast)]
    let (kind, mounted) = (system.f_type as u64 & 0xFFFF_FFFF, system.f_flags as u64);
    let is_brought = mounted & NOSUID != 0 && kind != TMPFS;
    if !LOCAL.contains(&kind) {
        return None;
    }
    let asked = StatxFlags::BASIC_STATS | StatxFlags::MNT_ID;
    let quietly = AtFlags::EMPTY_PATH | QUIETLY;
    let stat = rustix::fs::statx(&place, "", quietly, asked).ok()?;
    if FileType::from_raw_mode(stat.stx_mode.into()) != FileType::RegularFile || stat.stx_size == 0 {
        return None;
    }
    let is_trusted = is_ours(&stat, is_brought) && (kind != OVERLAY || is_in_root(&stat));
    let changed = (stat.stx_ctime.tv_sec, stat.stx_ctime.tv_nsec);
    let device = (stat.stx_dev_major, stat.stx_dev_minor);
    let now = Now { device, inode: stat.stx_ino, changed, size: stat.stx_size };
    Some(Found { place, now, is_trusted })
}

/// Whether a file belongs to root or to this user, and nobody else may write it; `is_brought`: its file system may say of root what it likes.
fn is_ours(stat: &Statx, is_brought: bool) -> bool {
    let is_owned = match stat.stx_uid {
        0 => !is_brought,
        owner => owner == rustix::process::geteuid().as_raw(),
    };
    is_owned && stat.stx_mode & OTHERS_WRITE == 0
}

/// Whether a file lies in what is mounted as this process's root.
fn is_in_root(stat: &Statx) -> bool {
    let asked = StatxFlags::MNT_ID;
    let root = rustix::fs::statx(CWD, "/", QUIETLY, asked);
    let has_number = |stat: &Statx| StatxFlags::from_bits_retain(stat.stx_mask).contains(asked);
    root.is_ok_and(|root| has_number(&root) && has_number(stat) && root.stx_mnt_id == stat.stx_mnt_id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    #[test]
    fn nothing_but_a_plain_file_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        std::fs::write(at("plain"), "x").unwrap();
        std::fs::write(at("empty"), "").unwrap();
        symlink(at("plain"), at("link")).unwrap();
        symlink("/dev/zero", at("device")).unwrap();
        rustix::fs::mknodat(CWD, at("pipe"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        for name in ["empty", "link", "device", "pipe", "none", ""] {
            assert!(find(&at(name), OFlags::NOFOLLOW).is_none(), "{name}");
        }
        assert!(find(&at("device"), OFlags::empty()).is_none(), "a link that is followed");
        for path in ["/proc/self/maps", "/sys/kernel/mm/transparent_hugepage/enabled", "/dev/null", "/"] {
            assert!(find(path, OFlags::NOFOLLOW).is_none(), "{path}");
        }
        let found = find(&at("plain"), OFlags::NOFOLLOW).expect("a plain file");
        assert_eq!(found.now.inode, std::fs::metadata(at("plain")).unwrap().ino());
        assert_eq!(std::io::read_to_string(found.open().unwrap()).unwrap(), "x");
    }

    #[test]
    fn what_others_may_write_is_not_trusted() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let may_write = |mode| {
            std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(mode)).unwrap();
            let asked = StatxFlags::BASIC_STATS | StatxFlags::MNT_ID;
            rustix::fs::statx(CWD, file.path(), AtFlags::empty(), asked).unwrap()
        };
        for (mode, is_trusted) in [(0o644, true), (0o755, true), (0o664, false), (0o646, false)] {
            assert_eq!(is_ours(&may_write(mode), false), is_trusted, "{mode:o}");
        }
        let mut stat = may_write(0o644);
        stat.stx_uid = rustix::process::geteuid().as_raw().wrapping_add(1).max(1);
        assert!(!is_ours(&stat, false), "another user's");
        stat.stx_uid = 0;
        assert!(is_ours(&stat, false) && !is_ours(&stat, true), "a stick that says it is root's");
    }

    #[test]
    fn a_mapping_is_looked_for_in_its_own_process_first() {
        let [link, named, path] = ways(7, &(0x1000..0x2000), "/a b");
        assert_eq!((link.0.as_str(), link.1), ("/proc/7/map_files/1000-2000", OFlags::empty()));
        assert_eq!((named.0.as_str(), named.1), ("/proc/7/root/a b", OFlags::NOFOLLOW));
        assert_eq!((path.0.as_str(), path.1), ("/a b", OFlags::NOFOLLOW));
    }
}
