//! Log files of autologgers: their names, their generations, and how they are opened.
//!
//! ```text
//!   FileMax 0:   NAME.etl
//!   FileMax 3:   NAME.etl.0001 ─▶ .0002 ─▶ .0003 ─▶ .0001 …     FileCounter is the one that was written last
//! ```
//!
//! Nobody passes these files along: the daemon opens them itself. On the way to one, folders are entered one by one; a link is followed
//! only where it is root's or the daemon's own and nobody else could have put another one in its place. The file itself is never a
//! link, and in a folder that everybody can write an existing one is taken only if it is the daemon's own and has no other name. Nothing
//! is emptied here: the session may still be refused.

use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use traceweir_format::spec::status::Status;

use super::definition::Definition;
use crate::error::Refusal;
use crate::folders::Folders;

const MODE: Mode = Mode::from_raw_mode(0o640);
const ANY_OTHER_WRITES: u32 = 0o022;
const ALL_WRITE: u32 = 0o002;
const STICKY: u32 = 0o1000;

/// The generation that comes next; 0 where there are none.
pub(super) fn next(definition: &Definition, counter: u32) -> u32 {
    match definition.file_max {
        0 | 1 => 0,
        most => counter.checked_rem(most).unwrap_or(0).saturating_add(1),
    }
}

/// The path of a generation.
pub(super) fn path(folders: &Folders, definition: &Definition, generation: u32) -> PathBuf {
    let usual = || folders.logs.join(format!("{}.etl", definition.name));
    let mut path = definition.file_name.clone().unwrap_or_else(usual).into_os_string();
    if generation != 0 {
        path.push(format!(".{generation:04}"));
    }
    path.into()
}

/// Opens or creates a log file.
pub(super) fn open(path: &Path) -> Result<OwnedFd, Refusal> {
    let Some((folder, Component::Normal(name))) = path.parent().zip(path.components().next_back()) else {
        return Err(refused(path, Status::ERROR_BAD_PATHNAME, "this is no file"));
    };
    let dir = enter(folder).map_err(|e| match e {
        Errno::NOENT | Errno::NOTDIR => {
            refused(path, Status::ERROR_PATH_NOT_FOUND, "its folder is not there")
        }
        e => failed(path, e),
    })?;
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    // Two opens instead of one with CREATE: whether the file was there decides what it must be like.
    match rustix::fs::openat(&dir, Path::new(name), flags | OFlags::CREATE | OFlags::EXCL, MODE) {
        Ok(file) => return Ok(file),
        Err(Errno::EXIST) => {}
        Err(e) => return Err(failed(path, e)),
    }
    let file =
        rustix::fs::openat(&dir, Path::new(name), flags, Mode::empty()).map_err(|e| failed(path, e))?;
    let (found, folder) = (stat(path, &file)?, stat(path, &dir)?);
    if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
        return Err(refused(path, Status::ERROR_BAD_PATHNAME, "this is no plain file"));
    }
    if folder.st_mode & ALL_WRITE != 0 && (found.st_uid != me() || found.st_nlink != 1) {
        let why =
            "in a folder that everybody can write, a log file replaces only a file of the daemon's user";
        return Err(refused(path, Status::ERROR_ACCESS_DENIED, why));
    }
    Ok(file)
}

/// Enters an absolute folder step by step.
fn enter(folder: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut dir = rustix::fs::openat(CWD, "/", flags, Mode::empty())?;
    for step in folder.components() {
        let name = match step {
            Component::Normal(name) => Path::new(name),
            Component::ParentDir => Path::new(".."),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => continue,
        };
        dir = match rustix::fs::openat(&dir, name, flags | OFlags::NOFOLLOW, Mode::empty()) {
            // How a link is refused when a folder is wanted.
            Err(Errno::NOTDIR | Errno::LOOP) => {
                let link = rustix::fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
                if FileType::from_raw_mode(link.st_mode) != FileType::Symlink {
                    return Err(Errno::NOTDIR);
                }
                if !is_safe_link(&link, &rustix::fs::fstat(&dir)?) {
                    return Err(Errno::LOOP);
                }
                rustix::fs::openat(&dir, name, flags, Mode::empty())?
            }
            other => other?,
        };
    }
    Ok(dir)
}

/// Whether a link was put where it is by the daemon's user or root, and nobody else can put another one in its place.
fn is_safe_link(link: &Stat, folder: &Stat) -> bool {
    let ours = |stat: &Stat| stat.st_uid == me() || stat.st_uid == 0;
    let others_write = folder.st_mode & ANY_OTHER_WRITES != 0;
    ours(folder) && (!others_write || (folder.st_mode & STICKY != 0 && ours(link)))
}

fn me() -> u32 {
    rustix::process::geteuid().as_raw()
}

fn stat(path: &Path, fd: &OwnedFd) -> Result<Stat, Refusal> {
    rustix::fs::fstat(fd).map_err(|e| failed(path, e))
}

fn failed(path: &Path, error: Errno) -> Refusal {
    if error == Errno::LOOP {
        let why = "a log file is not written through a symbolic link that others can change";
        return refused(path, Status::ERROR_ACCESS_DENIED, why);
    }
    let error = std::io::Error::from(error);
    refused(path, traceweir_transport::error::status_of(&error), &error.to_string())
}

fn refused(path: &Path, status: Status, why: &str) -> Refusal {
    Refusal::new(status, format!("{}: {why}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};
    use traceweir_format::Guid;

    fn status(path: &Path) -> u32 {
        open(path).err().map_or(0, |refusal| refusal.status.0)
    }

    #[test]
    fn generations_go_round() {
        let mut definition = Definition::new("a", Guid::from_u128(1));
        assert_eq!(next(&definition, 7), 0);
        definition.file_max = 3;
        let counters: Vec<u32> = (0..5).map(|counter| next(&definition, counter)).collect();
        assert_eq!(counters, [1, 2, 3, 1, 2]);
        assert_eq!(next(&definition, u32::MAX), 1, "a counter that somebody invented");
    }

    #[test]
    fn a_log_is_opened_where_nobody_else_decides_what_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        let path = root.join("a.etl");
        assert_eq!(status(&path), 0);
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o137, 0, "no wider than 0640");
        fs::write(&path, "old").unwrap();
        assert_eq!((status(&path), fs::read(&path).unwrap()), (0, b"old".to_vec()), "not emptied yet");
        assert_eq!(status(&root.join("none/a.etl")), 3);
        assert_eq!(status(&path.join("a.etl")), 3);
        assert_eq!(status(root), 161);
        assert_eq!(status(Path::new("/")), 161);
        symlink(&path, root.join("link.etl")).unwrap();
        assert_eq!(status(&root.join("link.etl")), 5);
        fs::create_dir(root.join("real")).unwrap();
        symlink("real", root.join("way")).unwrap();
        assert_eq!(status(&root.join("way/a.etl")), 0, "our link, where only we write");
        fs::set_permissions(root, Permissions::from_mode(0o777)).unwrap();
        assert_eq!(status(&root.join("way/b.etl")), 5, "others could put it there");
        fs::hard_link(&path, root.join("real/other")).unwrap();
        assert_eq!(status(&path), 5, "it may be anybody's file by another name");
    }
}
