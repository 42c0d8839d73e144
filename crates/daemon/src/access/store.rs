//! Lists on the disk: one file for each, named after its GUID.
//!
//! ```text
//!   CONFIG/security.d/0811c1af-7a07-4a06-82ed-869455cdf713       CONFIG is in `folders`; RUNTIME for a user without a home
//! ```
//!
//! 1. A file holds the bytes of a self-relative security descriptor.
//! 2. Which files and folders are believed, and how a file is replaced, is in `conf/trust`.
//! 3. A file that is not believed, or makes no sense, stands for a list that grants nothing; a folder that cannot be read, or holds more than
//!    there can be, for such a list of every GUID that has none. The log says so.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fs, io};

use traceweir_format::Guid;
use traceweir_format::security::SecurityDescriptor;
use traceweir_transport::runtime::RuntimeDir;

use super::lists::{MAX_LIST_BYTES, MAX_LISTS, strict};
use crate::conf::{Wrong, trust};
use crate::folders::{self, Folders};
use crate::log::log_warning;

/// Where the lists of a daemon are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Folder(PathBuf);

/// What was found there.
#[derive(Debug)]
pub(super) struct Found {
    /// The lists, those included that grant nothing because they could not be believed.
    pub(super) lists: BTreeMap<Guid, SecurityDescriptor>,
    /// Whether these are all.
    pub(super) is_whole: bool,
}

impl Folder {
    /// That of the daemon of a runtime folder. A user without a home has his lists in the runtime folder.
    pub(crate) fn of(runtime: &RuntimeDir) -> Self {
        let folders = Folders::of(runtime).unwrap_or_else(|| Folders::within(runtime.path()));
        Self(folders.security())
    }

    /// Reads all lists.
    pub(super) fn read(&self) -> Found {
        let mut found = Found { lists: BTreeMap::new(), is_whole: true };
        if let Err(e) = self.read_into(&mut found) {
            log_warning!("access lists in {}: {e}; what has no list grants nothing", self.0.display());
            found.is_whole = false;
        }
        found
    }

    fn read_into(&self, found: &mut Found) -> Result<(), Wrong> {
        let failed = |e: io::Error| Wrong::new(0, e.to_string());
        if !trust::check_folder(&self.0)? {
            return Ok(());
        }
        for entry in fs::read_dir(&self.0).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if name.starts_with(trust::UNFINISHED) {
                // Of a daemon that ended while it wrote: the change was never confirmed.
                let _ = fs::remove_file(entry.path());
                continue;
            }
            let Some(object) = name.parse::<Guid>().ok().filter(|guid| guid.to_string() == *name) else {
                log_warning!(
                    "{} is not named after a GUID (lower case, no braces) and is no access list",
                    entry.path().display()
                );
                continue;
            };
            if found.lists.len() >= MAX_LISTS {
                return Err(Wrong::new(0, format!("there are more than {MAX_LISTS}")));
            }
            let list = read_list(&entry.path()).unwrap_or_else(|e| {
                let path = entry.path();
                log_warning!(
                    "access list {}: {e}; until it is replaced or removed it grants nothing",
                    path.display()
                );
                strict()
            });
            found.lists.insert(object, list);
        }
        Ok(())
    }

    /// Keeps a list. When this returns, it is on the disk.
    pub(crate) fn save(&self, object: Guid, bytes: &[u8]) -> io::Result<()> {
        folders::make(&self.0)?;
        trust::write(&self.file(object), bytes)
    }

    /// Keeps no list any more.
    pub(crate) fn remove(&self, object: Guid) -> io::Result<()> {
        trust::remove(&self.file(object)).map(drop)
    }

    fn file(&self, object: Guid) -> PathBuf {
        self.0.join(object.to_string())
    }
}

fn read_list(path: &Path) -> Result<SecurityDescriptor, Wrong> {
    let Some(bytes) = trust::read_bytes(path, MAX_LIST_BYTES)? else {
        return Err(Wrong::new(0, "it went away"));
    };
    let list = SecurityDescriptor::parse(&bytes).map_err(|e| Wrong::new(0, e.to_string()))?;
    if list.dacl.is_none() {
        return Err(Wrong::new(0, "it has no list of who may do what"));
    }
    Ok(list)
}
