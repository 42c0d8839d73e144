//! Lists on the disk: one file for each, named after its GUID.
//!
//! ```text
//!   CONFIG/security.d/0811c1af-7a07-4a06-82ed-869455cdf713       CONFIG is in `folders`; RUNTIME for a user without a home
//! ```
//!
//! 1. A file holds the bytes of a self-relative security descriptor. It is replaced as a whole: written beside, brought to the disk, renamed.
//! 2. Only files that nobody but root and the daemon's own user can write are believed, in a folder of which the same is true.
//! 3. A file that is not believed, or makes no sense, stands for a list that grants nothing; a folder that cannot be read, or holds more than
//!    there can be, for such a list of every GUID that has none. The log says so.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use traceweir_format::Guid;
use traceweir_format::security::SecurityDescriptor;
use traceweir_transport::runtime::RuntimeDir;

use super::lists::{MAX_LIST_BYTES, MAX_LISTS, strict};
use crate::folders::Folders;
use crate::log::warning;

/// Files that are being written begin with it.
const UNFINISHED: &str = ".new-";
const FOLDER_MODE: u32 = 0o755;
const FILE_MODE: u32 = 0o644;
/// Whoever may write by one of these bits is not the owner.
const OTHERS_WRITE: u32 = 0o022;

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

    /// Reads all lists, for a daemon of this user.
    pub(super) fn read(&self, uid: u32) -> Found {
        let mut found = Found { lists: BTreeMap::new(), is_whole: true };
        if let Err(e) = self.read_into(&mut found, uid) {
            warning!("access lists in {}: {e}; what has no list grants nothing", self.0.display());
            found.is_whole = false;
        }
        found
    }

    fn read_into(&self, found: &mut Found, uid: u32) -> io::Result<()> {
        match fs::metadata(&self.0) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            folder => check_owner(&folder?, uid)?,
        }
        for entry in fs::read_dir(&self.0)? {
            let entry = entry?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if name.starts_with(UNFINISHED) {
                // Of a daemon that ended while it wrote: the change was never confirmed.
                let _ = fs::remove_file(entry.path());
                continue;
            }
            let Some(object) = name.parse::<Guid>().ok().filter(|guid| guid.to_string() == *name) else {
                warning!(
                    "{} is not named after a GUID (lower case, no braces) and is no access list",
                    entry.path().display()
                );
                continue;
            };
            if found.lists.len() >= MAX_LISTS {
                return Err(io::Error::other(format!("there are more than {MAX_LISTS}")));
            }
            let list = read_list(&entry.path(), uid).unwrap_or_else(|e| {
                let path = entry.path();
                warning!(
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
        self.make()?;
        let unfinished = self.0.join(format!("{UNFINISHED}{object}"));
        let written = write_file(&unfinished, bytes)
            .and_then(|()| fs::rename(&unfinished, self.0.join(object.to_string())));
        if written.is_err() {
            let _ = fs::remove_file(&unfinished);
        }
        written.and_then(|()| self.sync())
    }

    /// Keeps no list any more.
    pub(crate) fn remove(&self, object: Guid) -> io::Result<()> {
        match fs::remove_file(self.0.join(object.to_string())) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed.and_then(|()| self.sync()),
        }
    }

    fn sync(&self) -> io::Result<()> {
        File::open(&self.0)?.sync_all()
    }

    /// Makes the folder, and the one that it is in, where they are missing.
    fn make(&self) -> io::Result<()> {
        let above = self.0.parent().and_then(Path::parent);
        if let Some(above) = above {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(above)?;
        }
        for folder in self.0.parent().into_iter().chain([self.0.as_path()]) {
            match fs::DirBuilder::new().mode(0o700).create(folder) {
                // As wide as meant, whatever the umask.
                Ok(()) => fs::set_permissions(folder, fs::Permissions::from_mode(FOLDER_MODE))?,
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}

/// Whether nobody but root and this user can write it.
fn check_owner(found: &fs::Metadata, uid: u32) -> io::Result<()> {
    let why = if found.uid() != 0 && found.uid() != uid {
        "it belongs to somebody else than root and the daemon's user"
    } else if found.mode() & OTHERS_WRITE != 0 {
        "others than its owner may write it"
    } else {
        return Ok(());
    };
    Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
}

fn read_list(path: &Path, uid: u32) -> io::Result<SecurityDescriptor> {
    let damaged = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
    // No link is followed, and nobody is waited for who should write to a pipe.
    let flags = i32::try_from((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits()).unwrap_or(0);
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(damaged("it is no file".to_owned()));
    }
    check_owner(&found, uid)?;
    let mut bytes = Vec::new();
    file.take(MAX_LIST_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > MAX_LIST_BYTES {
        return Err(damaged(format!("it has more than {MAX_LIST_BYTES} bytes")));
    }
    let list = SecurityDescriptor::parse(&bytes).map_err(|e| damaged(e.to_string()))?;
    if list.dacl.is_none() {
        return Err(damaged("it has no list of who may do what".to_owned()));
    }
    Ok(list)
}

fn write_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    // One that is left over is of a change that was never confirmed.
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    file.set_permissions(fs::Permissions::from_mode(FILE_MODE))?;
    file.sync_all()
}
