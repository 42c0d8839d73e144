//! Access lists on disk: one file for each, named after its GUID.
//!
//! ```text
//!   CONFIG/security.d/0811c1af-7a07-4a06-82ed-869455cdf713
//! ```
//!
//! `folders` defines CONFIG. For a user without a home, the runtime folder takes its place.
//!
//! 1. A file holds the bytes of a self-relative security descriptor.
//! 2. `conf/trust` defines which files and folders are trusted, and how a file is replaced.
//! 3. A file that is malformed or not trusted counts as a list that grants nothing. If the folder
//!    cannot be read, or holds more than the maximum number of lists, GUIDs without a list grant
//!    nothing. The log reports both cases.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fs, io};

use traceweir_format::Guid;
use traceweir_format::security::SecurityDescriptor;
use traceweir_transport::runtime::RuntimeDir;

use super::lists::{MAX_LIST_BYTES, MAX_LISTS, StoredLists, deny_all_list};
use crate::conf::{ConfigError, trust};
use crate::folders::{self, DaemonFolders};
use crate::log::log_warning;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AccessListFolder(PathBuf);

impl AccessListFolder {
    /// Returns the folder with the access lists of the daemon that uses a runtime folder. For a
    /// user without a home, the lists are in the runtime folder.
    pub(crate) fn for_daemon(runtime: &RuntimeDir) -> Self {
        let folders =
            DaemonFolders::for_runtime(runtime).unwrap_or_else(|| DaemonFolders::inside(runtime.path()));
        Self(folders.security())
    }

    pub(super) fn read_lists(&self) -> StoredLists {
        let mut stored = StoredLists { lists: BTreeMap::new(), is_complete: true };
        if let Err(e) = self.read_lists_into(&mut stored) {
            log_warning!("access lists in {}: {e}; objects without a list grant nothing", self.0.display());
            stored.is_complete = false;
        }
        stored
    }

    fn read_lists_into(&self, stored: &mut StoredLists) -> Result<(), ConfigError> {
        // 0: the error has no line.
        let io_error = |e: io::Error| ConfigError::new(0, e.to_string());
        if !trust::check_folder(&self.0)? {
            return Ok(());
        }
        for entry in fs::read_dir(&self.0).map_err(io_error)? {
            let entry = entry.map_err(io_error)?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if name.starts_with(trust::UNFINISHED_PREFIX) {
                // Left by a daemon that ended while writing: the change was never confirmed.
                let _ = fs::remove_file(entry.path());
                continue;
            }
            let Some(object) = name.parse::<Guid>().ok().filter(|guid| guid.to_string() == *name) else {
                log_warning!(
                    "{} is not an access list: its name is not a GUID (lower case, no braces)",
                    entry.path().display()
                );
                continue;
            };
            if stored.lists.len() >= MAX_LISTS {
                return Err(ConfigError::new(0, format!("there are more than {MAX_LISTS} lists")));
            }
            let list = read_list(&entry.path()).unwrap_or_else(|e| {
                let path = entry.path();
                log_warning!(
                    "access list {}: {e}; until it is replaced or removed it grants nothing",
                    path.display()
                );
                deny_all_list()
            });
            stored.lists.insert(object, list);
        }
        Ok(())
    }

    /// Stores a list durably: it is on disk when this returns.
    pub(crate) fn save(&self, object: Guid, bytes: &[u8]) -> io::Result<()> {
        folders::create_folder(&self.0)?;
        trust::replace_file(&self.file_path(object), bytes)
    }

    pub(crate) fn remove(&self, object: Guid) -> io::Result<()> {
        trust::remove_file(&self.file_path(object)).map(drop)
    }

    fn file_path(&self, object: Guid) -> PathBuf {
        self.0.join(object.to_string())
    }
}

fn read_list(path: &Path) -> Result<SecurityDescriptor, ConfigError> {
    let Some(bytes) = trust::read_bytes(path, MAX_LIST_BYTES)? else {
        return Err(ConfigError::new(0, "it was removed meanwhile"));
    };
    let list = SecurityDescriptor::parse(&bytes).map_err(|e| ConfigError::new(0, e.to_string()))?;
    if list.dacl.is_none() {
        return Err(ConfigError::new(0, "it has no DACL"));
    }
    Ok(list)
}
