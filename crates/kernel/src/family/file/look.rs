//! What /proc says of descriptors.
//!
//! Links are read, never opened; who looks at what one leads to does it with patience. What is no path is no file.

use std::os::unix::ffi::OsStrExt;

use rustix::fs::{CWD, StatxFlags};

use crate::patient::{self, PATIENCE};
use crate::plain::QUIETLY;
use crate::proc;

/// Descriptors that are looked at when a capture begins.
const MAX_SCANNED: usize = 1 << 16;
/// The kernel's mark on the name of a file that is deleted.
const DELETED: &str = " (deleted)";

/// The path of what a descriptor of a process is; `None`: no file, or not there.
pub(super) fn path(process: u32, descriptor: u32) -> Option<Box<str>> {
    let (link, target) = (proc::link_of(process, descriptor), proc::target_of(process, descriptor)?);
    if !target.as_os_str().as_bytes().starts_with(b"/") {
        return None;
    }
    let text = target.to_string_lossy();
    // A file may be called so, as long as it has a name.
    let is_deleted = text.ends_with(DELETED)
        && patient::within_of(process, PATIENCE, move || is_gone(&link)).unwrap_or(false);
    let name = if is_deleted { text.strip_suffix(DELETED).unwrap_or(&text) } else { &text };
    Some(name.into())
}

/// Whether what a link leads to has no name any more, as far as this machine knows: whoever else keeps it is not asked.
fn is_gone(link: &str) -> bool {
    let stat = rustix::fs::statx(CWD, link, QUIETLY, StatxFlags::NLINK);
    stat.is_ok_and(|it| it.stx_nlink == 0)
}

/// Gives all files that all processes have open.
pub(super) fn all(mut found: impl FnMut(u32, u32, Box<str>)) {
    let mut left = MAX_SCANNED;
    for process in proc::processes() {
        for descriptor in proc::descriptors_of(process) {
            let Some(rest) = left.checked_sub(1) else { return };
            left = rest;
            if let Some(name) = path(process, descriptor) {
                found(process, descriptor, name);
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
    fn files_have_paths_and_sockets_have_none() {
        let me = std::process::id();
        let folder = tempfile::tempdir().unwrap();
        let name = folder.path().join("x (deleted)");
        let file = fs::File::create(&name).unwrap();
        let number = u32::try_from(file.as_raw_fd()).unwrap();
        assert_eq!(path(me, number).as_deref(), name.to_str());
        fs::remove_file(&name).unwrap();
        assert_eq!(path(me, number).as_deref(), name.to_str());
        let (socket, _) = std::os::unix::net::UnixStream::pair().unwrap();
        assert_eq!(path(me, u32::try_from(socket.as_raw_fd()).unwrap()), None);
        assert_eq!(path(me, u32::MAX), None);
        assert_eq!(path(u32::MAX, 0), None);
    }
}
