//! Log files of autologgers: their names, their generations, and how they are opened.
//!
//! ```text
//!   FileMax 0:   NAME.etl
//!   FileMax 3:   NAME.etl.0001 ─▶ .0002 ─▶ .0003 ─▶ .0001 …     FileCounter: the last one written
//! ```
//!
//! No controller passes these files. The daemon opens them itself, with the functions that
//! controllers use (`traceweir_session::open_log_file`). Opening does not empty a file, because the
//! session may still be refused.

use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

use rustix::io::Errno;
use traceweir_format::spec::status::Status;
use traceweir_session::{LOG_FILE_RIGHTS, open_folder, open_log_file};

use super::definition::AutologgerDefinition;
use crate::error::Refusal;
use crate::folders::DaemonFolders;

/// Returns the next generation; 0 if the log has no generations.
pub(super) fn next_generation(definition: &AutologgerDefinition, counter: u32) -> u32 {
    match definition.file_max {
        0 | 1 => 0,
        generations => counter.checked_rem(generations).unwrap_or(0).saturating_add(1),
    }
}

pub(super) fn log_path(
    folders: &DaemonFolders,
    definition: &AutologgerDefinition,
    generation: u32,
) -> PathBuf {
    let default = || folders.logs.join(format!("{}.etl", definition.name));
    let mut path = definition.file_name.clone().unwrap_or_else(default).into_os_string();
    if generation != 0 {
        path.push(format!(".{generation:04}"));
    }
    path.into()
}

pub(super) fn open_log(path: &Path) -> Result<OwnedFd, Refusal> {
    let Some((folder, Component::Normal(name))) = path.parent().zip(path.components().next_back()) else {
        return Err(path_refusal(path, Status::ERROR_BAD_PATHNAME, "this is not a file"));
    };
    let own_uid = rustix::process::geteuid().as_raw();
    let dir = open_folder(folder, own_uid).map_err(|e| match e {
        Errno::NOENT | Errno::NOTDIR => {
            path_refusal(path, Status::ERROR_PATH_NOT_FOUND, "its folder does not exist")
        }
        e => folder_refusal(path, e),
    })?;
    match open_log_file(&dir, Path::new(name), own_uid, LOG_FILE_RIGHTS) {
        Ok((file, _)) => Ok(file.into()),
        Err(e) => Err(path_refusal(path, e.status(), &e.to_string())),
    }
}

fn folder_refusal(path: &Path, error: Errno) -> Refusal {
    if error == Errno::LOOP {
        let reason = "the path leads through a symbolic link that others can change";
        return path_refusal(path, Status::ERROR_ACCESS_DENIED, reason);
    }
    let error = std::io::Error::from(error);
    path_refusal(path, traceweir_transport::error::status_of(&error), &error.to_string())
}

fn path_refusal(path: &Path, status: Status, reason: &str) -> Refusal {
    Refusal::new(status, format!("{}: {reason}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};
    use traceweir_format::Guid;

    fn open_status(path: &Path) -> Status {
        open_log(path).err().map_or(Status::ERROR_SUCCESS, |refusal| refusal.status)
    }

    #[test]
    fn generations_wrap_around() {
        let mut definition = AutologgerDefinition::new("a", Guid::from_u128(1));
        assert_eq!(next_generation(&definition, 7), 0);
        definition.file_max = 3;
        let generations: Vec<u32> = (0..5).map(|counter| next_generation(&definition, counter)).collect();
        assert_eq!(generations, [1, 2, 3, 1, 2]);
        assert_eq!(next_generation(&definition, u32::MAX), 1, "u32::MAX is a multiple of 3");
    }

    #[test]
    fn log_is_opened_only_at_safe_paths_and_keeps_its_content() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        let path = root.join("a.etl");
        assert_eq!(open_status(&path), Status::ERROR_SUCCESS);
        assert_eq!(
            path.metadata().unwrap().permissions().mode() & 0o137,
            0,
            "the mode permits no more than 0640"
        );
        fs::write(&path, "old").unwrap();
        assert_eq!(
            (open_status(&path), fs::read(&path).unwrap()),
            (Status::ERROR_SUCCESS, b"old".to_vec()),
            "opening does not empty the file"
        );
        assert_eq!(open_status(&root.join("none/a.etl")), Status::ERROR_PATH_NOT_FOUND);
        assert_eq!(open_status(&path.join("a.etl")), Status::ERROR_PATH_NOT_FOUND);
        assert_eq!(open_status(root), Status::ERROR_BAD_PATHNAME);
        assert_eq!(open_status(Path::new("/")), Status::ERROR_BAD_PATHNAME);
        symlink(&path, root.join("link.etl")).unwrap();
        assert_eq!(open_status(&root.join("link.etl")), Status::ERROR_ACCESS_DENIED);
        fs::create_dir(root.join("real")).unwrap();
        symlink("real", root.join("way")).unwrap();
        assert_eq!(
            open_status(&root.join("way/a.etl")),
            Status::ERROR_SUCCESS,
            "a link of this user, in a folder that no other user can write"
        );
        fs::set_permissions(root, Permissions::from_mode(0o777)).unwrap();
        assert_eq!(
            open_status(&root.join("way/b.etl")),
            Status::ERROR_ACCESS_DENIED,
            "others could have created the link"
        );
        fs::hard_link(&path, root.join("real/other")).unwrap();
        assert_eq!(open_status(&path), Status::ERROR_ACCESS_DENIED, "the file has another hard link");
    }
}
