//! Opening of programs that an untrusted trace names.
//!
//! The writer of the trace chose the paths. Nothing is run or loaded, and only a regular file is
//! opened for reading: opening a device or a pipe may have effects. Files of the kernel's own file
//! systems look regular, but are refused too. The checks apply to the open file, so it does not
//! matter if the name leads to another file a moment later.

use std::fs::File;
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags};

/// Maximum size in bytes of a program that is opened.
const MAX_FILE_BYTES: u64 = 1 << 30;

/// File systems whose files are interfaces of the kernel.
const KERNEL_FILE_SYSTEMS: [&str; 3] = ["/proc/", "/sys/", "/dev/"];

/// Opens a program that a trace names, for reading.
///
/// It must be a regular file of 1 byte to 1 GiB. The path must be absolute, and its last component
/// must not be a symbolic link. Returns `None` for anything else.
#[must_use]
pub fn open_program(path: &Path) -> Option<File> {
    if !path.is_absolute() {
        return None;
    }
    // A path descriptor: opening a device or a pipe this way has no effects.
    let path_fd =
        rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW, Mode::empty()).ok()?;
    let stat = rustix::fs::fstat(&path_fd).ok()?;
    let size = u64::try_from(stat.st_size).ok()?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile || size == 0 || size > MAX_FILE_BYTES {
        return None;
    }
    let fd_path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&path_fd));
    let real_path = std::fs::read_link(&fd_path).ok()?;
    if KERNEL_FILE_SYSTEMS.iter().any(|folder| real_path.starts_with(folder)) {
        return None;
    }
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    rustix::fs::open(fd_path, flags, Mode::empty()).ok().map(File::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_regular_files_are_opened() {
        let folder = tempfile::tempdir().unwrap();
        let (regular, pipe, link) =
            (folder.path().join("regular"), folder.path().join("pipe"), folder.path().join("link"));
        std::fs::write(&regular, "x").unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        std::os::unix::fs::symlink(&regular, &link).unwrap();
        assert!(open_program(&regular).is_some());
        for path in [
            &*pipe,
            &*link,
            folder.path(),
            Path::new("regular"),
            Path::new("/dev/null"),
            Path::new("/dev/tty"),
        ] {
            assert!(open_program(path).is_none(), "{}", path.display());
        }
        for path in
            ["/proc/self/maps", "/sys/kernel/uevent_seqnum", "/proc/self/root/proc/version", "/proc/self/exe"]
        {
            assert!(open_program(Path::new(path)).is_none(), "{path}");
        }
    }
}
