//! Which files a daemon obeys, and how it writes its own.
//!
//! ```text
//!   the folder    a folder, no link; root's or the daemon's own; nobody else may write it
//!   the file      a plain file, no link; root's or the daemon's own; nobody else may write it; at most 64 KiB
//! ```
//!
//! Who can put a file there could have the daemon write wherever it may, so whoever is not the daemon's user or root must not be able to.
//! The file that is judged is the file that is read: it is opened first, without following a link and without waiting for one who
//! opens the other end of a pipe.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use super::{MAX_BYTES, Wrong};

/// Files of one folder that are looked at.
const MAX_FILES: usize = 256;
const OTHERS_WRITE: u32 = 0o022;

/// The text of a file; `None` where there is none.
pub(crate) fn read(path: &Path) -> Result<Option<String>, Wrong> {
    let whole = |why: String| Wrong::new(0, why);
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let flags = i32::try_from(flags.bits()).unwrap_or(0);
    let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) if e.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => {
            return Err(whole("it is a symbolic link, which is not followed".to_owned()));
        }
        Err(e) => return Err(whole(format!("it cannot be opened: {e}"))),
    };
    let found = file.metadata().map_err(|e| whole(format!("it cannot be looked at: {e}")))?;
    if !found.is_file() {
        return Err(whole("it is no plain file".to_owned()));
    }
    is_ours(&found).map_err(whole)?;
    let mut bytes = Vec::new();
    let most = u64::try_from(MAX_BYTES).unwrap_or(u64::MAX).saturating_add(1);
    file.take(most).read_to_end(&mut bytes).map_err(|e| whole(format!("it cannot be read: {e}")))?;
    String::from_utf8(bytes).map(Some).map_err(|_| whole("it is not UTF-8 text".to_owned()))
}

/// The names of the files with this ending in a folder, in order, without the ending; none where there is no folder.
pub(crate) fn names_in(folder: &Path, ending: &str) -> Result<Vec<String>, Wrong> {
    let whole = |why: String| Wrong::new(0, format!("{}: {why}", folder.display()));
    match folder.symlink_metadata() {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(whole(e.to_string())),
        Ok(found) if !found.is_dir() => return Err(whole("this is no folder".to_owned())),
        Ok(found) => is_ours(&found).map_err(whole)?,
    }
    let entries = folder.read_dir().map_err(|e| whole(e.to_string()))?;
    let mut names: Vec<String> = entries
        .flatten()
        .filter_map(|entry| Some(entry.file_name().to_str()?.strip_suffix(ending)?.to_owned()))
        .filter(|name| is_file_name(name))
        .collect();
    names.sort();
    if names.len() > MAX_FILES {
        return Err(whole(format!("there are more than {MAX_FILES} files in it")));
    }
    Ok(names)
}

/// Whether a name can be that of a file which is not hidden.
pub(crate) fn is_file_name(name: &str) -> bool {
    !name.is_empty() && !name.starts_with('.') && !name.contains('/') && !name.chars().any(char::is_control)
}

/// Replaces a file at once: whoever reads it sees the old text or the new one.
pub(crate) fn write(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    let (temporary, mut file) = new_beside(path, mode)?;
    let written = file
        .write_all(text.as_bytes())
        .and_then(|()| file.sync_all())
        .and_then(|()| std::fs::rename(&temporary, path));
    if written.is_err() {
        let _ = std::fs::remove_file(&temporary);
    }
    written
}

/// A new file in the folder of another, with a name that nobody reads.
fn new_beside(path: &Path, mode: u32) -> io::Result<(PathBuf, File)> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_string_lossy();
    let hidden = format!(".{name}.{:016x}", traceweir_transport::runtime::random());
    let temporary = path.with_file_name(hidden);
    let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&temporary)?;
    Ok((temporary, file))
}

/// Whether nobody but root and this user can change it.
fn is_ours(found: &Metadata) -> Result<(), String> {
    let me = rustix::process::geteuid().as_raw();
    if found.uid() != me && found.uid() != 0 {
        return Err(format!("it belongs to user {}, and must be root's or this user's", found.uid()));
    }
    if found.mode() & OTHERS_WRITE != 0 {
        return Err(format!("others may write it (mode {:o}): chmod go-w", found.mode() & 0o7777));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn why(path: &Path) -> String {
        read(path).expect_err("refused").why
    }

    #[test]
    fn only_plain_files_that_others_cannot_write_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.conf");
        assert_eq!(read(&path), Ok(None));
        write(&path, "A = 1\n", 0o644).unwrap();
        assert_eq!(read(&path), Ok(Some("A = 1\n".to_owned())));
        for mode in [0o664, 0o646, 0o666] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            assert!(why(&path).contains("chmod"), "{mode:o}");
        }
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        let link = dir.path().join("link.conf");
        symlink(&path, &link).unwrap();
        assert!(why(&link).contains("symbolic link"));
        assert!(why(dir.path()).contains("no plain file"));
        let pipe = dir.path().join("pipe.conf");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        assert!(why(&pipe).contains("no plain file"), "nobody is waited for");
        fs::write(&path, [0xFF]).unwrap();
        assert!(why(&path).contains("UTF-8"));
    }

    #[test]
    fn a_file_of_somebody_else_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.conf");
        fs::write(&path, "").unwrap();
        if std::os::unix::fs::chown(&path, Some(54_321), None).is_ok() {
            assert!(why(&path).contains("54321"));
        }
    }

    #[test]
    fn names_are_listed_in_order_from_folders_that_others_cannot_write() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("d");
        assert_eq!(names_in(&folder, ".conf"), Ok(vec![]));
        fs::create_dir(&folder).unwrap();
        fs::set_permissions(&folder, Permissions::from_mode(0o755)).unwrap();
        for name in ["b.conf", "a b.conf", ".c.conf", ".conf", "d", "e.conf~"] {
            fs::write(folder.join(name), "").unwrap();
        }
        assert_eq!(names_in(&folder, ".conf"), Ok(vec!["a b".to_owned(), "b".to_owned()]));
        fs::set_permissions(&folder, Permissions::from_mode(0o777)).unwrap();
        assert!(names_in(&folder, ".conf").unwrap_err().why.contains("others may write"));
        fs::set_permissions(&folder, Permissions::from_mode(0o755)).unwrap();
        symlink(&folder, dir.path().join("l")).unwrap();
        assert!(names_in(&dir.path().join("l"), ".conf").unwrap_err().why.contains("no folder"));
        for n in 0..MAX_FILES {
            fs::write(folder.join(format!("{n}.conf")), "").unwrap();
        }
        assert!(names_in(&folder, ".conf").unwrap_err().why.contains("more than"));
    }
}
