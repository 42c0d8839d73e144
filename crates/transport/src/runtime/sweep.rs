//! Removes everything except provider sockets from a folder that all users may write to.
//!
//! ```text
//!   providers/  socket of a provider    kept, up to a limit for each user
//!               any other file, a link  removed
//!               a folder                its files removed, its folders moved up into providers/
//!                                       for the next round; removed when it is empty
//! ```
//!
//! The owner of a folder can change it during the sweep. So the sweep uses no paths: it opens each
//! folder without following a link, and names an entry by one component below the opened folder.
//! The sweep does not descend, because folders can be nested too deep for a stack or for the limit
//! of descriptors.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, openat, renameat, statat, unlinkat};
use rustix::io::Errno;

use super::{RuntimeDir, parse_socket_pid};
use crate::error::{Error, Result};
use crate::random::random;

/// Largest number of entries that one sweep removes or moves; the next sweep continues.
const MAX_STEPS: usize = 100_000;

impl RuntimeDir {
    /// Removes everything that is not a provider socket, and sockets of a user beyond
    /// `max_per_user`. All users may create files in the folder of the system's daemon, so the
    /// sweep keeps a user from filling it. Returns how many entries were removed.
    pub fn sweep_providers(&self, max_per_user: usize) -> Result<usize> {
        let to_error = |e: Errno| Error::system("reading the folder of providers", io::Error::from(e));
        let folder = match open_folder(CWD, self.providers().as_os_str()) {
            Err(Errno::NOENT) => return Ok(0),
            folder => folder.map_err(to_error)?,
        };
        let mut sweep = Sweep {
            folder,
            sockets_by_user: BTreeMap::new(),
            max_per_user,
            remaining_steps: MAX_STEPS,
            removed: 0,
        };
        // The first round checks the existing entries. Another round follows as long as the last
        // round moved folders up.
        while sweep.sweep_once().map_err(to_error)? && sweep.remaining_steps > 0 {}
        Ok(sweep.removed)
    }
}

struct Sweep {
    folder: OwnedFd,
    sockets_by_user: BTreeMap<u32, usize>,
    max_per_user: usize,
    remaining_steps: usize,
    removed: usize,
}

impl Sweep {
    /// Checks all entries. Returns whether folders below them were moved up.
    fn sweep_once(&mut self) -> rustix::io::Result<bool> {
        self.sockets_by_user.clear();
        let mut has_more = false;
        for entry in Dir::read_from(&self.folder)? {
            let Ok(entry) = entry else { break };
            if self.remaining_steps == 0 {
                break;
            }
            let name = entry.file_name();
            if is_dot_entry(name) || self.is_kept(name) {
                continue;
            }
            self.remaining_steps = self.remaining_steps.saturating_sub(1);
            if unlinkat(&self.folder, name, AtFlags::empty()).is_ok() {
                self.removed = self.removed.saturating_add(1);
            } else if let Ok(subfolder) = open_folder(self.folder.as_fd(), name) {
                has_more |= self.empty_folder(&subfolder);
                let is_removed = unlinkat(&self.folder, name, AtFlags::REMOVEDIR).is_ok();
                self.removed = self.removed.saturating_add(usize::from(is_removed));
            }
        }
        Ok(has_more)
    }

    /// Returns whether an entry is a provider's socket within its owner's limit, or cannot be
    /// inspected.
    fn is_kept(&mut self, name: &std::ffi::CStr) -> bool {
        let has_socket_name = name.to_str().is_ok_and(|name| parse_socket_pid(name).is_some());
        let Ok(stat) = statat(&self.folder, name, AtFlags::SYMLINK_NOFOLLOW) else { return true };
        if !has_socket_name || FileType::from_raw_mode(stat.st_mode) != FileType::Socket {
            return false;
        }
        let count = self.sockets_by_user.entry(stat.st_uid).or_default();
        *count = count.saturating_add(1);
        *count <= self.max_per_user
    }

    /// Removes the files of a folder and moves its folders up. Returns whether a folder was moved.
    fn empty_folder(&mut self, subfolder: &OwnedFd) -> bool {
        let Ok(entries) = Dir::read_from(subfolder) else { return false };
        let mut has_more = false;
        for entry in entries {
            let Ok(entry) = entry else { break };
            if self.remaining_steps == 0 {
                break;
            }
            let name = entry.file_name();
            if is_dot_entry(name) {
                continue;
            }
            self.remaining_steps = self.remaining_steps.saturating_sub(1);
            if unlinkat(subfolder, name, AtFlags::empty()).is_ok() {
                self.removed = self.removed.saturating_add(1);
            } else {
                let moved = renameat(subfolder, name, &self.folder, format!("swept-{:016x}", random()));
                has_more |= moved.is_ok();
            }
        }
        has_more
    }
}

fn open_folder(at: impl AsFd, name: impl rustix::path::Arg) -> rustix::io::Result<OwnedFd> {
    openat(at, name, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
}

fn is_dot_entry(name: &std::ffi::CStr) -> bool {
    matches!(name.to_bytes(), b"." | b"..")
}
