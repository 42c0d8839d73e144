//! Further files of a file sequence, created by the daemon with the rights of the user who named
//! the log file.
//!
//! ```text
//!   writer thread ──▶ a separate thread: takes the user's groups, gid and uid
//!                         │      ──▶ openat(folder, name) ──▶ space?
//!                         └─ ends, and its rights with it
//!   writer thread ──▶ Claim ──▶ the session
//! ```
//!
//! W1 The daemon's other threads keep their rights. W2 Only the groups and the effective ids of the
//! separate thread change: its real and saved ids stay the daemon's, so that the user cannot send
//! it a signal. W3 A daemon that is not root changes no ids: it opens the files of its own user and
//! those of root with its own rights.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::AtFlags;
use rustix::process::{Gid, Uid, geteuid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use traceweir_format::spec::status::Status;
use traceweir_session::{Error, LOG_FILE_RIGHTS, NextFile, Result, SequenceFile, open_log_file};

use super::{ClaimedFiles, FileTerms, check_descriptor, check_free_space, properties_error};
use crate::access::UserIdentity;

/// The owner of the files: the user who named the log file, with the groups of the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileOwner {
    uid: u32,
    gid: u32,
    groups: Arc<[u32]>,
}

impl From<UserIdentity> for FileOwner {
    fn from(UserIdentity { uid, gid, groups }: UserIdentity) -> Self {
        Self { uid, gid, groups }
    }
}

/// Returns a function that creates the next file of a sequence in a folder, with at most these mode
/// bits, if the file meets `terms`.
pub(crate) fn next_file(
    folder: OwnedFd,
    owner: FileOwner,
    rights: u32,
    files: ClaimedFiles,
    terms: FileTerms,
) -> NextFile {
    Box::new(move |name| {
        let check_space = |file: &OwnedFd| check_free_space(file, &terms, files.reserve());
        let file = open_as(&owner, &folder, name, rights, &check_space)?;
        let claim = files.claim(check_descriptor(&file)?)?;
        Ok(SequenceFile { file: file.into(), claim: Box::new(claim) })
    })
}

/// Opens or creates a file with the rights of `owner`. A file that was created here but fails the
/// check is removed again.
fn open_as(
    owner: &FileOwner,
    folder: &OwnedFd,
    path: &Path,
    rights: u32,
    check: &(dyn Fn(&OwnedFd) -> Result<()> + Sync),
) -> Result<OwnedFd> {
    let Some(name) = path.file_name().map(Path::new) else {
        return Err(properties_error(Status::ERROR_BAD_PATHNAME, "the next log file has no name"));
    };
    let open = |user| {
        let (file, is_new) = open_log_file(folder, name, user, rights & LOG_FILE_RIGHTS)?;
        let file = OwnedFd::from(file);
        if let Err(e) = check(&file) {
            if is_new {
                // An empty file that remains does no harm.
                let _ = rustix::fs::unlinkat(folder, name, AtFlags::empty());
            }
            return Err(e);
        }
        Ok(file)
    };
    let own_uid = geteuid().as_raw();
    if own_uid == owner.uid || own_uid != 0 {
        return open(own_uid);
    }
    std::thread::scope(|scope| {
        let work = || {
            become_user(owner)?;
            open(owner.uid)
        };
        let thread = std::thread::Builder::new().name("weir-as-user".into()).spawn_scoped(scope, work);
        let result = thread.map_err(Error::File)?.join();
        result.unwrap_or_else(|_| {
            Err(properties_error(Status::ERROR_IO_DEVICE, "the next log file could not be opened"))
        })
    })
}

/// Gives only the calling thread the rights of a user.
fn become_user(owner: &FileOwner) -> Result<()> {
    let denied = |_| {
        properties_error(
            Status::ERROR_ACCESS_DENIED,
            "the daemon cannot take the rights of the user who named the log file",
        )
    };
    let groups: Vec<Gid> = owner.groups.iter().copied().map(Gid::from_raw).collect();
    set_thread_groups(&groups).map_err(denied)?;
    set_thread_res_gid(None, Gid::from_raw(owner.gid), None).map_err(denied)?;
    set_thread_res_uid(None, Uid::from_raw(owner.uid), None).map_err(denied)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
    use traceweir_format::spec::session::EVENT_TRACE_FILE_MODE_NEWFILE;

    fn owner(uid: u32, groups: &[u32]) -> FileOwner {
        FileOwner { uid, gid: uid, groups: groups.into() }
    }

    /// Opens `name` in a folder; returns the file or the error status.
    fn open_in(folder: &Path, name: &str, owner: &FileOwner) -> Result<fs::File, Status> {
        let dir = OwnedFd::from(fs::File::open(folder).unwrap());
        open_as(owner, &dir, &folder.join(name), 0o640, &|_| Ok(()))
            .map(fs::File::from)
            .map_err(|e| e.status())
    }

    #[test]
    fn file_is_created_only_with_the_rights_of_its_owner() {
        if geteuid().as_raw() != 0 {
            return crate::skip::skip("root", "only root can take the rights of another user");
        }
        let (ann, bob) = (&owner(54_321, &[]), &owner(54_322, &[]));
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("f");
        fs::create_dir(&folder).unwrap();
        for path in [dir.path(), &folder] {
            fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
        }
        let denied = Status::ERROR_ACCESS_DENIED;
        assert_eq!(open_in(&folder, "a", ann).err(), Some(denied), "the folder belongs to root");
        std::os::unix::fs::chown(&folder, Some(ann.uid), Some(ann.gid)).unwrap();
        let created = open_in(&folder, "a", ann).unwrap().metadata().unwrap();
        // 0o137 are the bits that are not in 0o640, the rights that `open_in` asks for.
        assert_eq!((created.uid(), created.gid(), created.mode() & 0o137), (ann.uid, ann.gid, 0));
        assert_eq!(open_in(&folder, "b", bob).err(), Some(denied));
        assert_eq!(open_in(&folder, "a", bob).err(), Some(denied));
        fs::set_permissions(&folder, PermissionsExt::from_mode(0o775)).unwrap();
        let with_group = open_in(&folder, "b", &owner(bob.uid, &[7, ann.gid])).unwrap().metadata().unwrap();
        assert_eq!(
            (with_group.uid(), with_group.gid()),
            (bob.uid, bob.gid),
            "a group of the connection may write"
        );
        assert_eq!(open_in(&folder, "c", bob).err(), Some(denied), "another connection lacks that group");
        symlink("/etc/passwd", folder.join("link")).unwrap();
        assert_eq!(open_in(&folder, "link", ann).err(), Some(denied));
        fs::create_dir(folder.join("folder")).unwrap();
        assert_eq!(open_in(&folder, "folder", ann).err(), Some(Status::ERROR_BAD_PATHNAME));
        fs::set_permissions(&folder, PermissionsExt::from_mode(0o1777)).unwrap();
        assert_eq!(
            open_in(&folder, "a", bob).err(),
            Some(denied),
            "another user's file in a folder that all may write"
        );
        fs::set_permissions(folder.join("a"), PermissionsExt::from_mode(0o666)).unwrap();
        assert_eq!(open_in(&folder, "a", bob).err(), Some(denied), "even if the user may write it");
        assert!(open_in(&folder, "a", ann).is_ok());
        assert_eq!(geteuid().as_raw(), 0, "this thread is still root");
        let written = fs::write(dir.path().join("mine"), "");
        assert!(written.is_ok(), "this thread can write as root");
    }

    #[test]
    fn next_file_needs_space_and_leaves_nothing_without_it() {
        let dir = tempfile::tempdir().unwrap();
        let config = |mib| traceweir_transport::message::SessionConfig {
            maximum_file_size: mib,
            log_file_mode: EVENT_TRACE_FILE_MODE_NEWFILE,
            ..Default::default()
        };
        let own_uid = geteuid().as_raw();
        let open_next = |mib, name: &str| {
            let folder = OwnedFd::from(fs::File::open(dir.path()).unwrap());
            let terms = FileTerms::for_log(&config(mib), own_uid);
            let mut next = next_file(folder, owner(own_uid, &[]), 0o640, ClaimedFiles::default(), terms);
            next(&dir.path().join(name)).map(drop).map_err(|e| e.status())
        };
        assert_eq!(open_next(u32::MAX, "a_2.etl"), Err(Status::ERROR_DISK_FULL));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "the created file is removed");
        fs::write(dir.path().join("a_2.etl"), "old").unwrap();
        assert_eq!(open_next(u32::MAX, "a_2.etl"), Err(Status::ERROR_DISK_FULL));
        assert_eq!(fs::read(dir.path().join("a_2.etl")).unwrap(), b"old", "an existing file stays");
        assert_eq!(open_next(1, "a_3.etl"), Ok(()));
    }
}
