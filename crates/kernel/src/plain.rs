//! Finds regular files named by other processes, without opening anything else.
//!
//! ```text
//!   mapping of a process ──▶ /proc/PID/map_files/START-END ─▶ exactly the mapped file, even if
//!                                                             deleted or moved
//!                       else /proc/PID/root/PATH ──┐
//!                       else PATH ─────────────────┴─▶ a candidate: the caller compares it with
//!                                                      the mapping
//!
//!   O_PATH ─▶ local file system? ─▶ regular? ─▶ RegularFile ──open──▶ /proc/self/fd/N, to read
//! ```
//!
//! 1. The process that maps a file chooses it. So only regular files are opened, because opening
//!    anything else may block or have side effects. A symbolic link at the end of a path is not
//!    followed.
//! 2. The type of the file system is checked first, and only types that store files on this machine
//!    are accepted. File systems of the kernel expose kernel interfaces, and the servers of FUSE
//!    and network file systems may never answer. An overlay may lie on top of one of these, and
//!    path lookup may block too: callers use a timeout, or a thread for which nothing waits.
//! 3. A file is [trusted](RegularFile::is_trusted) if only root and this user could have created it
//!    and can change it. A file system provided by another user may claim anything about its files.
//!    Such file systems are mounted nosuid, or they are overlays, of which only the root file
//!    system of the daemon is trusted.

use std::fs::File;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Statx, StatxFlags};

/// `AT_STATX_DONT_SYNC`: cached attributes suffice, and no server is queried. rustix defines the
/// flag for glibc only.
pub(crate) const DONT_SYNC: AtFlags = AtFlags::from_bits_retain(0x4000);
/// Magic numbers of file systems that store files on this machine, and of overlays.
const LOCAL_FILE_SYSTEMS: [u64; 11] = [
    0xEF53,      // ext2 to ext4
    0x5846_5342, // xfs
    0x9123_683E, // btrfs
    TMPFS,
    0xF2F5_2010, // f2fs
    0x7371_7368, // squashfs
    0xE0F5_E1E2, // erofs
    0x2FC1_2FC1, // zfs
    0x8584_58F6, // ramfs
    0xCA45_1A4E, // bcachefs
    OVERLAY,
];
/// The owners of tmpfs files are real, because the files are created on this machine.
const TMPFS: u64 = 0x0102_1994;
const OVERLAY: u64 = 0x794C_7630;
const ST_NOSUID: u64 = 2;
/// The mode bits that let group and others write.
const GROUP_OR_OTHERS_WRITE: u16 = 0o022;

/// The identity and version of a file at the time of the check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FileVersion {
    device: (u32, u32),
    pub(crate) inode: u64,
    change_time: (i64, u32),
    size: u64,
}

/// A regular file that was found but is not open for reading.
#[derive(Debug)]
pub(crate) struct RegularFile {
    path_fd: OwnedFd,
    pub(crate) version: FileVersion,
    /// Whether only root and this user could have created it and can change it.
    pub(crate) is_trusted: bool,
}

impl RegularFile {
    pub(crate) fn open(&self) -> Option<File> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let path = format!("/proc/self/fd/{}", self.path_fd.as_raw_fd());
        Some(File::from(rustix::fs::open(path, flags, Mode::empty()).ok()?))
    }
}

/// Returns the paths to a file that a process has mapped, best first, to pass to
/// [`find_regular_file`].
pub(crate) fn mapped_file_paths(process: u32, range: &Range<u64>, path: &str) -> [(String, OFlags); 3] {
    let link = format!("/proc/{process}/map_files/{:x}-{:x}", range.start, range.end);
    let path_in_root = format!("/proc/{process}/root/{}", path.trim_start_matches('/'));
    [(link, OFlags::empty()), (path_in_root, OFlags::NOFOLLOW), (path.to_owned(), OFlags::NOFOLLOW)]
}

/// Finds a regular file that is not empty. Nothing is opened for reading.
pub(crate) fn find_regular_file(path: &str, flags: OFlags) -> Option<RegularFile> {
    let path_fd = rustix::fs::open(path, flags | OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let system = rustix::fs::fstatfs(&path_fd).ok()?;
    // The magic number and the mount flags; their types differ between platforms.
    #[allow(clippy::cast_sign_loss, clippy::unnecessary_cast)]
    let (magic, mount_flags) = (system.f_type as u64 & 0xFFFF_FFFF, system.f_flags as u64);
    let is_foreign = mount_flags & ST_NOSUID != 0 && magic != TMPFS;
    if !LOCAL_FILE_SYSTEMS.contains(&magic) {
        return None;
    }
    let requested = StatxFlags::BASIC_STATS | StatxFlags::MNT_ID;
    let at_flags = AtFlags::EMPTY_PATH | DONT_SYNC;
    let stat = rustix::fs::statx(&path_fd, "", at_flags, requested).ok()?;
    if FileType::from_raw_mode(stat.stx_mode.into()) != FileType::RegularFile || stat.stx_size == 0 {
        return None;
    }
    let is_trusted = is_owned_by_us(&stat, is_foreign) && (magic != OVERLAY || is_in_root(&stat));
    let change_time = (stat.stx_ctime.tv_sec, stat.stx_ctime.tv_nsec);
    let device = (stat.stx_dev_major, stat.stx_dev_minor);
    let version = FileVersion { device, inode: stat.stx_ino, change_time, size: stat.stx_size };
    Some(RegularFile { path_fd, version, is_trusted })
}

/// Returns whether a file belongs to root or this user, and no other user may write to it.
/// `is_foreign` means that the file system may falsely claim that files belong to root.
fn is_owned_by_us(stat: &Statx, is_foreign: bool) -> bool {
    let is_owned = match stat.stx_uid {
        0 => !is_foreign,
        owner => owner == rustix::process::geteuid().as_raw(),
    };
    is_owned && stat.stx_mode & GROUP_OR_OTHERS_WRITE == 0
}

/// Returns whether a file lies in the mount that is this process's root.
fn is_in_root(stat: &Statx) -> bool {
    let requested = StatxFlags::MNT_ID;
    let root = rustix::fs::statx(CWD, "/", DONT_SYNC, requested);
    let has_mount_id = |stat: &Statx| StatxFlags::from_bits_retain(stat.stx_mask).contains(requested);
    root.is_ok_and(|root| has_mount_id(&root) && has_mount_id(stat) && root.stx_mnt_id == stat.stx_mnt_id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    #[test]
    fn only_regular_files_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        std::fs::write(at("plain"), "x").unwrap();
        std::fs::write(at("empty"), "").unwrap();
        symlink(at("plain"), at("link")).unwrap();
        symlink("/dev/zero", at("device")).unwrap();
        rustix::fs::mknodat(CWD, at("pipe"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        for name in ["empty", "link", "device", "pipe", "none", ""] {
            assert!(find_regular_file(&at(name), OFlags::NOFOLLOW).is_none(), "{name}");
        }
        assert!(find_regular_file(&at("device"), OFlags::empty()).is_none(), "followed a link to a device");
        for path in ["/proc/self/maps", "/sys/kernel/mm/transparent_hugepage/enabled", "/dev/null", "/"] {
            assert!(find_regular_file(path, OFlags::NOFOLLOW).is_none(), "{path}");
        }
        let file = find_regular_file(&at("plain"), OFlags::NOFOLLOW).expect("not a regular file");
        assert_eq!(file.version.inode, std::fs::metadata(at("plain")).unwrap().ino());
        assert_eq!(std::io::read_to_string(file.open().unwrap()).unwrap(), "x");
    }

    #[test]
    fn files_that_others_own_or_may_write_are_not_trusted() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let stat_with = |mode| {
            std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(mode)).unwrap();
            let requested = StatxFlags::BASIC_STATS | StatxFlags::MNT_ID;
            rustix::fs::statx(CWD, file.path(), AtFlags::empty(), requested).unwrap()
        };
        for (mode, is_trusted) in [(0o644, true), (0o755, true), (0o664, false), (0o646, false)] {
            assert_eq!(is_owned_by_us(&stat_with(mode), false), is_trusted, "{mode:o}");
        }
        let mut stat = stat_with(0o644);
        stat.stx_uid = rustix::process::geteuid().as_raw().wrapping_add(1).max(1);
        assert!(!is_owned_by_us(&stat, false), "owned by another user");
        stat.stx_uid = 0;
        assert!(
            is_owned_by_us(&stat, false) && !is_owned_by_us(&stat, true),
            "the claims of a foreign file system decide"
        );
    }

    #[test]
    fn mapping_is_searched_in_its_own_process_first() {
        let [link, path_in_root, path] = mapped_file_paths(7, &(0x1000..0x2000), "/a b");
        assert_eq!((link.0.as_str(), link.1), ("/proc/7/map_files/1000-2000", OFlags::empty()));
        assert_eq!((path_in_root.0.as_str(), path_in_root.1), ("/proc/7/root/a b", OFlags::NOFOLLOW));
        assert_eq!((path.0.as_str(), path.1), ("/a b", OFlags::NOFOLLOW));
    }
}
