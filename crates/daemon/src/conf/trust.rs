//! Which files a daemon trusts, and how it writes its own files.
//!
//! ```text
//!   the folder    a folder, not a link; owned by root or the daemon's user; not writable by others
//!   the file      a plain file, not a link; owned by root or the daemon's user; not writable by
//!                 others; not larger than the limit of its kind
//!   replacement   written next to the file under a hidden name, synced and renamed; then the
//!                 folder is synced
//! ```
//!
//! A user who can create a configuration file could make the daemon write to any file that the
//! daemon may write. Therefore only root and the daemon's user may be able to write in the folder.
//! A file is opened before it is checked, so that the checked file is the file that is read.
//! Opening follows no link and does not wait for the other end of a pipe.

use std::fs::{File, Metadata, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use super::{ConfigError, MAX_FILE_BYTES};

/// Maximum number of files that [`list_names`] lists; more are an error.
const MAX_FILES: usize = 256;
const FILE_MODE: u32 = 0o644;
/// Mode bits that let users other than the owner write.
const OTHERS_WRITE: u32 = 0o022;
/// Name prefix of files that are not in effect: a process is writing them, or ended while it wrote
/// them.
pub(crate) const UNFINISHED_PREFIX: &str = ".new-";

/// Reads the text of a file; `None` if it does not exist.
pub(crate) fn read_text(path: &Path) -> Result<Option<String>, ConfigError> {
    let Some(bytes) = read_bytes(path, MAX_FILE_BYTES)? else { return Ok(None) };
    String::from_utf8(bytes).map(Some).map_err(|_| ConfigError::new(0, "it is not UTF-8 text"))
}

/// Reads a file of at most `max_bytes` bytes; `None` if it does not exist.
pub(crate) fn read_bytes(path: &Path, max_bytes: usize) -> Result<Option<Vec<u8>>, ConfigError> {
    let error = |reason: String| ConfigError::new(0, reason);
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let flags = i32::try_from(flags.bits()).unwrap_or(0);
    let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) if e.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => {
            return Err(error("it is a symbolic link, which is not followed".to_owned()));
        }
        Err(e) => return Err(error(format!("it cannot be opened: {e}"))),
    };
    let metadata = file.metadata().map_err(|e| error(format!("it cannot be inspected: {e}")))?;
    if !metadata.is_file() {
        return Err(error("it is not a plain file".to_owned()));
    }
    check_ownership(&metadata).map_err(error)?;
    let mut bytes = Vec::new();
    let one_more = u64::try_from(max_bytes).unwrap_or(u64::MAX).saturating_add(1);
    file.take(one_more).read_to_end(&mut bytes).map_err(|e| error(format!("it cannot be read: {e}")))?;
    if bytes.len() > max_bytes {
        return Err(error(format!("it has more than {max_bytes} bytes")));
    }
    Ok(Some(bytes))
}

/// Returns whether a folder exists; fails if it is not trusted.
pub(crate) fn check_folder(folder: &Path) -> Result<bool, ConfigError> {
    let error = |reason: String| ConfigError::new(0, reason);
    match folder.symlink_metadata() {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(error(e.to_string())),
        Ok(metadata) if !metadata.is_dir() => Err(error("this is not a folder".to_owned())),
        Ok(metadata) => check_ownership(&metadata).map(|()| true).map_err(error),
    }
}

/// Returns the sorted names of the files with this extension in a folder, without the extension;
/// empty if the folder does not exist.
pub(crate) fn list_names(folder: &Path, extension: &str) -> Result<Vec<String>, ConfigError> {
    let error = |reason: String| ConfigError::new(0, format!("{}: {reason}", folder.display()));
    if !check_folder(folder).map_err(|untrusted| error(untrusted.reason))? {
        return Ok(Vec::new());
    }
    let entries = folder.read_dir().map_err(|e| error(e.to_string()))?;
    let mut names: Vec<String> = entries
        .flatten()
        .filter_map(|entry| Some(entry.file_name().to_str()?.strip_suffix(extension)?.to_owned()))
        .filter(|name| is_file_name(name))
        .collect();
    names.sort();
    if names.len() > MAX_FILES {
        return Err(error(format!("there are more than {MAX_FILES} files in it")));
    }
    Ok(names)
}

/// Returns whether a name can be that of a file which is not hidden.
pub(crate) fn is_file_name(name: &str) -> bool {
    !name.is_empty() && !name.starts_with('.') && !name.contains('/') && !name.chars().any(char::is_control)
}

/// Replaces a file atomically: a reader sees the old bytes or the new ones. The file is on disk
/// when this returns; every user may read it.
pub(crate) fn replace_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let (temporary, mut file) = create_temporary(path)?;
    let written = file
        .write_all(bytes)
        // Sets the mode explicitly, regardless of the umask.
        .and_then(|()| file.set_permissions(Permissions::from_mode(FILE_MODE)))
        .and_then(|()| file.sync_all())
        .and_then(|()| std::fs::rename(&temporary, path));
    if written.is_err() {
        let _ = std::fs::remove_file(&temporary);
    }
    written.and_then(|()| sync_parent(path))
}

/// Removes a file durably; returns `false` if it does not exist.
pub(crate) fn remove_file(path: &Path) -> io::Result<bool> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        removed => removed.and_then(|()| sync_parent(path)).map(|()| true),
    }
}

fn sync_parent(path: &Path) -> io::Result<()> {
    File::open(path.parent().ok_or(io::ErrorKind::InvalidInput)?)?.sync_all()
}

/// Creates a hidden file next to a file. Readers ignore the hidden file because of its name.
fn create_temporary(path: &Path) -> io::Result<(PathBuf, File)> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_string_lossy();
    let hidden_name = format!("{UNFINISHED_PREFIX}{name}.{:016x}", traceweir_transport::runtime::random());
    let temporary = path.with_file_name(hidden_name);
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
    Ok((temporary, file))
}

/// Checks that only root and this user can change a file.
fn check_ownership(metadata: &Metadata) -> Result<(), String> {
    let own_uid = rustix::process::geteuid().as_raw();
    if metadata.uid() != own_uid && metadata.uid() != 0 {
        return Err(format!("it belongs to user {}, and must belong to root or this user", metadata.uid()));
    }
    if metadata.mode() & OTHERS_WRITE != 0 {
        return Err(format!("others may write it (mode {:o}): chmod go-w", metadata.mode() & 0o7777));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn read_error(path: &Path) -> String {
        read_text(path).expect_err("the file was read").reason
    }

    #[test]
    fn only_plain_files_that_others_cannot_write_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.conf");
        assert_eq!(read_text(&path), Ok(None));
        replace_file(&path, b"A = 1\n").unwrap();
        assert_eq!(read_text(&path), Ok(Some("A = 1\n".to_owned())));
        assert_eq!(path.metadata().unwrap().mode() & 0o7777, 0o644);
        assert_eq!(read_bytes(&path, 6), Ok(Some(b"A = 1\n".to_vec())));
        assert!(read_bytes(&path, 5).unwrap_err().reason.contains("more than 5"));
        for mode in [0o664, 0o646, 0o666] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            assert!(read_error(&path).contains("chmod"), "{mode:o}");
        }
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        let link = dir.path().join("link.conf");
        symlink(&path, &link).unwrap();
        assert!(read_error(&link).contains("symbolic link"));
        assert!(read_error(dir.path()).contains("not a plain file"));
        let pipe = dir.path().join("pipe.conf");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        assert!(read_error(&pipe).contains("not a plain file"), "opening does not block");
        fs::write(&path, [0xFF]).unwrap();
        assert!(read_error(&path).contains("UTF-8"));
        assert_eq!((remove_file(&path).unwrap(), remove_file(&path).unwrap()), (true, false));
        let mut remaining = dir.path().read_dir().unwrap().flatten();
        assert!(!remaining.any(|entry| entry.file_name().to_string_lossy().starts_with(UNFINISHED_PREFIX)));
    }

    #[test]
    fn file_of_another_user_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.conf");
        fs::write(&path, "").unwrap();
        let can_chown = std::os::unix::fs::chown(&path, Some(54_321), None).is_ok();
        if crate::skip::holds_or_skip(can_chown, "root", "changing the owner of a file needs root") {
            assert!(read_error(&path).contains("54321"));
        }
    }

    #[test]
    fn names_are_listed_in_order_from_folders_that_others_cannot_write() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("d");
        assert_eq!(list_names(&folder, ".conf"), Ok(vec![]));
        fs::create_dir(&folder).unwrap();
        fs::set_permissions(&folder, Permissions::from_mode(0o755)).unwrap();
        for name in ["b.conf", "a b.conf", ".c.conf", ".conf", "d", "e.conf~"] {
            fs::write(folder.join(name), "").unwrap();
        }
        assert_eq!(list_names(&folder, ".conf"), Ok(vec!["a b".to_owned(), "b".to_owned()]));
        fs::set_permissions(&folder, Permissions::from_mode(0o777)).unwrap();
        assert!(list_names(&folder, ".conf").unwrap_err().reason.contains("others may write"));
        fs::set_permissions(&folder, Permissions::from_mode(0o755)).unwrap();
        symlink(&folder, dir.path().join("l")).unwrap();
        assert!(list_names(&dir.path().join("l"), ".conf").unwrap_err().reason.contains("not a folder"));
        for n in 0..MAX_FILES {
            fs::write(folder.join(format!("{n}.conf")), "").unwrap();
        }
        assert!(list_names(&folder, ".conf").unwrap_err().reason.contains("more than"));
    }
}
