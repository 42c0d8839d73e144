//! Paths of open descriptors, from `/proc/PID/fd`.
//!
//! The links are read, never opened. A check of a link's target has a timeout. A target that is not
//! a path is not a file.

use std::os::unix::ffi::OsStrExt;

use rustix::fs::{CWD, StatxFlags};

use crate::blocking::{self, READ_TIMEOUT};
use crate::plain::DONT_SYNC;
use crate::proc;

/// The most descriptors that one scan checks.
const MAX_SCANNED: usize = 1 << 16;
/// The kernel's suffix on the name of an unlinked file.
const DELETED: &str = " (deleted)";

/// Returns the path of a descriptor's file; `None` if it is not a file, or is closed.
pub(super) fn read_path(process: u32, descriptor: u32) -> Option<Box<str>> {
    let (link, target) =
        (proc::fd_link_path(process, descriptor), proc::read_fd_target(process, descriptor)?);
    if !target.as_os_str().as_bytes().starts_with(b"/") {
        return None;
    }
    let text = target.to_string_lossy();
    // A file that is not unlinked may have a name with this suffix too.
    let is_deleted = text.ends_with(DELETED)
        && blocking::run_for_process(process, READ_TIMEOUT, move || is_unlinked(&link)).unwrap_or(false);
    let name = if is_deleted { text.strip_suffix(DELETED).unwrap_or(&text) } else { &text };
    Some(name.into())
}

/// Returns whether the target of a link has no name left, as far as this machine knows: a network
/// file system's server is not asked.
fn is_unlinked(link: &str) -> bool {
    let stat = rustix::fs::statx(CWD, link, DONT_SYNC, StatxFlags::NLINK);
    stat.is_ok_and(|stat| stat.stx_nlink == 0)
}

/// Calls `add` for each descriptor of any process that refers to a file. Checks at most
/// [`MAX_SCANNED`] descriptors.
pub(super) fn scan_open_files(is_in_scope: impl Fn(u32) -> bool, mut add: impl FnMut(u32, u32, Box<str>)) {
    let mut remaining = MAX_SCANNED;
    for process in proc::list_processes().filter(|process| is_in_scope(*process)) {
        for descriptor in proc::list_descriptors(process) {
            let Some(after) = remaining.checked_sub(1) else { return };
            remaining = after;
            if let Some(name) = read_path(process, descriptor) {
                add(process, descriptor, name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::fd::AsRawFd;

    #[test]
    fn files_have_paths_and_sockets_do_not() {
        let own_pid = std::process::id();
        let folder = tempfile::tempdir().unwrap();
        let name = folder.path().join("x (deleted)");
        let file = fs::File::create(&name).unwrap();
        let number = u32::try_from(file.as_raw_fd()).unwrap();
        assert_eq!(read_path(own_pid, number).as_deref(), name.to_str());
        fs::remove_file(&name).unwrap();
        assert_eq!(read_path(own_pid, number).as_deref(), name.to_str());
        let (socket, _) = std::os::unix::net::UnixStream::pair().unwrap();
        assert_eq!(read_path(own_pid, u32::try_from(socket.as_raw_fd()).unwrap()), None);
        assert_eq!(read_path(own_pid, u32::MAX), None);
        assert_eq!(read_path(u32::MAX, 0), None);
    }
}
