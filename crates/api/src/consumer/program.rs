//! Programs that a trace names: a file that somebody else's trace leads to is opened with care.
//!
//! Whoever wrote the trace chose the paths. Nothing is run or loaded, and what is no plain file is not even opened for reading: opening a device or a
//! pipe may do something. Files of the kernel's own file systems look plain and are not. What was found is checked on the file that is open, so it does
//! not matter what its name leads to a moment later.

use std::fs::File;
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags};

/// The largest program that is looked into.
const MAX_FILE: u64 = 1 << 30;

/// File systems whose plain files are doors to the kernel.
const NOT_FILES: [&str; 3] = ["/proc/", "/sys/", "/dev/"];

/// Opens a program that a trace names, to look into it: a plain file of at most 1 GiB by its absolute path, which is no link. `None` for anything else.
#[must_use]
pub fn open_program(path: &Path) -> Option<File> {
    if !path.is_absolute() {
        return None;
    }
    // The place alone: opening a device or a pipe this way does nothing.
    let place =
        rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW, Mode::empty()).ok()?;
    let found = rustix::fs::fstat(&place).ok()?;
    let size = u64::try_from(found.st_size).ok()?;
    if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile || size == 0 || size > MAX_FILE {
        return None;
    }
    let again = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&place));
    let really = std::fs::read_link(&again).ok()?;
    if NOT_FILES.iter().any(|folder| really.starts_with(folder)) {
        return None;
    }
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    rustix::fs::open(again, flags, Mode::empty()).ok().map(File::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_files_are_opened() {
        let folder = tempfile::tempdir().unwrap();
        let (plain, pipe, link) =
            (folder.path().join("plain"), folder.path().join("pipe"), folder.path().join("link"));
        std::fs::write(&plain, "x").unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        std::os::unix::fs::symlink(&plain, &link).unwrap();
        assert!(open_program(&plain).is_some());
        for path in
            [&*pipe, &*link, folder.path(), Path::new("plain"), Path::new("/dev/null"), Path::new("/dev/tty")]
        {
            assert!(open_program(path).is_none(), "{}", path.display());
        }
        for path in
            ["/proc/self/maps", "/sys/kernel/uevent_seqnum", "/proc/self/root/proc/version", "/proc/self/exe"]
        {
            assert!(open_program(Path::new(path)).is_none(), "{path}");
        }
    }
}
