//! The output of a conversion: a file or folder that appears under its name when it is complete.
//!
//! ```text
//!   .OUT.XXXXXX ──written──▶ renamed to OUT
//!        └── failure, Ctrl-C ──▶ removed
//! ```
//!
//! 1. Devices, pipes and symbolic links are written in place, because renaming would replace them.
//! 2. Without `--force`, the renaming replaces at most an empty file or folder, also if another
//!    program created the output during the conversion.
//! 3. An output that replaces another gets its permissions and, if the user may set it, its owner.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anstream::eprintln;
use anyhow::{Context, Result, bail};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use traceweir::Error;

use crate::convert_formats::HasFile;
use crate::existing_output;
use crate::output::{NamedFile, create_file, name_missing_folder};
use crate::signals::{INTERRUPTED, handle_interrupts};
use crate::text::escape_path;

/// Permissions of a new file, before the umask of the user.
const FILE_MODE: u32 = 0o666;
/// Permissions of a new folder, before the umask of the user.
const FOLDER_MODE: u32 = 0o777;
/// Permissions of an output, until it gets those of the file or folder that it replaces.
const PRIVATE_FILE_MODE: u32 = 0o600;
const PRIVATE_FOLDER_MODE: u32 = 0o700;
/// The most bytes of the output's name in a hidden name. Some file systems limit names to 143 bytes.
const MAX_NAME_BYTES: usize = 128;

/// An incomplete output under a hidden name. Dropping this value removes the output.
struct HiddenOutput {
    /// The hidden name; `None` once the output has its own name.
    path: Arc<Mutex<Option<PathBuf>>>,
}

impl HiddenOutput {
    /// Takes over a file or folder. From now on, Ctrl-C removes it and ends the program.
    fn new(hidden: PathBuf, output: &Path) -> Result<Self> {
        let hidden = Self { path: Arc::new(Mutex::new(Some(hidden))) };
        let (path, output) = (Arc::clone(&hidden.path), output.to_owned());
        handle_interrupts(move |_| {
            // The lock is not released: the output must not get its name any more.
            let mut path = lock(&path);
            if let Some(path) = path.take() {
                let _ = remove(&path);
                eprintln!("{}: interrupted; nothing was written", escape_path(&output));
            }
            std::process::exit(INTERRUPTED.into());
        })?;
        Ok(hidden)
    }

    /// Gives a file its name. Without `force`, it replaces at most an empty file.
    fn rename(self, output: &Path, force: bool) -> Result<()> {
        let mut path = lock(&self.path);
        let Some(hidden) = &*path else { return Ok(()) };
        let is_empty_file = || output.symlink_metadata().is_ok_and(|file| file.is_file() && file.len() == 0);
        let renamed = if force { fs::rename(hidden, output) } else { rename_to_new(hidden, output) };
        let renamed = match renamed {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && is_empty_file() => {
                fs::rename(hidden, output)
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                return Err(existing_output::exists_error(output));
            }
            renamed => renamed,
        };
        renamed.with_context(|| format!("cannot write {}", escape_path(output)))?;
        *path = None;
        Ok(())
    }

    /// Gives a folder its name. It replaces at most an empty folder.
    fn rename_folder(self, output: &Path) -> Result<()> {
        let mut path = lock(&self.path);
        if let Some(hidden) = &*path {
            // The system renames a folder neither over a file nor over a folder with content.
            fs::rename(hidden, output).with_context(|| format!("cannot write {}", escape_path(output)))?;
            *path = None;
        }
        Ok(())
    }

    /// Gives a folder its name, and removes the folder that had the name before.
    fn replace_folder(self, output: &Path, has_file: HasFile) -> Result<()> {
        let mut path = lock(&self.path);
        let Some(hidden) = &*path else { return Ok(()) };
        let mut replaced = hidden.clone().into_os_string();
        replaced.push(".old");
        let replaced = PathBuf::from(replaced);
        let context = || format!("cannot write {}", escape_path(output));
        let has_replaced = output.symlink_metadata().is_ok();
        if has_replaced {
            fs::rename(output, &replaced).with_context(context)?;
        }
        let renamed = fs::rename(hidden, output);
        if has_replaced && renamed.is_err() {
            // The error of the new folder is reported.
            let _ = fs::rename(&replaced, output);
        }
        renamed.with_context(context)?;
        *path = None;
        if has_replaced {
            remove_own_files(&replaced, has_file)
                .with_context(|| format!("cannot remove {}", escape_path(&replaced)))?;
        }
        Ok(())
    }
}

impl Drop for HiddenOutput {
    fn drop(&mut self) {
        if let Some(path) = lock(&self.path).take() {
            // The command reports its own failure.
            let _ = remove(&path);
        }
    }
}

fn lock(path: &Mutex<Option<PathBuf>>) -> MutexGuard<'_, Option<PathBuf>> {
    path.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Renames a file without replacing another.
fn rename_to_new(from: &Path, to: &Path) -> io::Result<()> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // For a file system without NOREPLACE: a hard link never replaces a name.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => match fs::hard_link(from, to) {
            Ok(()) => fs::remove_file(from),
            // A file system without links, too.
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists && to.symlink_metadata().is_err() => {
                fs::rename(from, to)
            }
            Err(error) => Err(error),
        },
        renamed => Ok(renamed?),
    }
}

/// Gives an output the owner and the permissions of the file or folder that it replaces, as far as
/// the user may.
fn copy_permissions(output: &File, replaced: &Metadata) -> io::Result<()> {
    let mut mode = replaced.mode() & 0o777;
    let (user, group) = (Some(replaced.uid()), Some(replaced.gid()));
    if fchown(output, user, group).or_else(|_| fchown(output, None, group)).is_err() {
        // Another group does not get the rights of the replaced one.
        mode &= !0o070;
    }
    output.set_permissions(Permissions::from_mode(mode))
}

/// Returns the metadata of what exists at a path; `None` if nothing exists.
fn find_existing(path: &Path) -> Result<Option<Metadata>> {
    match path.symlink_metadata() {
        Ok(metadata) => Ok(Some(metadata)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        // The path cannot be written either, because it is too long, for example.
        Err(error) => Err(error).with_context(|| format!("cannot write {}", escape_path(path))),
    }
}

/// Removes a file, or a folder with its content. Links are not followed.
fn remove(path: &Path) -> io::Result<()> {
    if path.symlink_metadata()?.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }
}

/// Removes a folder of the format. Files of others that were added meanwhile, and with them the folder,
/// remain.
fn remove_own_files(folder: &Path, has_file: HasFile) -> io::Result<()> {
    for entry in folder.read_dir()? {
        let entry = entry?;
        if entry.file_name().to_str().is_some_and(has_file) {
            fs::remove_file(entry.path())?;
        }
    }
    fs::remove_dir(folder)
}

/// A file to be written, beside its later name.
pub(super) struct OutputFile {
    path: PathBuf,
    force: bool,
    /// `None` if the output is written in place.
    hidden: Option<HiddenOutput>,
}

impl OutputFile {
    /// Creates the output. An existing file with content is replaced with `force` only.
    pub(super) fn create(path: &Path, force: bool) -> Result<(Self, NamedFile)> {
        existing_output::check_other(path, force)?;
        let replaced = find_existing(path)?;
        if replaced.as_ref().is_some_and(|metadata| !metadata.is_file()) {
            let file = NamedFile { file: create_file(path)?, path: path.to_owned() };
            return Ok((Self { path: path.to_owned(), force, hidden: None }, file));
        }
        let mode = if replaced.is_some() { PRIVATE_FILE_MODE } else { FILE_MODE };
        let created = tempfile::Builder::new()
            .prefix(&hidden_prefix(path))
            .permissions(Permissions::from_mode(mode))
            .tempfile_in(folder_of(path))
            .and_then(|file| Ok(file.keep()?));
        let (file, hidden) = created.map_err(|error| explain_error(path, error))?;
        let hidden = HiddenOutput::new(hidden, path)?;
        if let Some(replaced) = replaced {
            copy_permissions(&file, &replaced)
                .with_context(|| format!("cannot set the permissions of {}", escape_path(path)))?;
        }
        let file = NamedFile { file, path: path.to_owned() };
        Ok((Self { path: path.to_owned(), force, hidden: Some(hidden) }, file))
    }

    /// Gives the file its name, and returns its size; `None` if it is not a regular file.
    pub(super) fn finish(self) -> Result<Option<u64>> {
        if let Some(hidden) = self.hidden {
            hidden.rename(&self.path, self.force)?;
        }
        let metadata = self.path.metadata().ok().filter(Metadata::is_file);
        Ok(metadata.map(|metadata| metadata.len()))
    }
}

/// A folder to be filled, beside its later name.
pub(super) struct OutputFolder {
    path: PathBuf,
    force: bool,
    hidden: HiddenOutput,
    /// The hidden name of the folder.
    hidden_path: PathBuf,
    has_file: HasFile,
    /// The folder that this one replaces.
    replaced: Option<Metadata>,
}

impl OutputFolder {
    /// Creates the folder. An existing folder is replaced with `force`, if it contains only files
    /// that `has_file` accepts.
    pub(super) fn create(path: &Path, force: bool, has_file: HasFile) -> Result<Self> {
        let replaced = find_existing(path)?;
        check_folder(path, force, has_file)?;
        let mode = if replaced.is_some() { PRIVATE_FOLDER_MODE } else { FOLDER_MODE };
        let created = tempfile::Builder::new()
            .prefix(&hidden_prefix(path))
            .permissions(Permissions::from_mode(mode))
            .tempdir_in(folder_of(path))
            .map_err(|error| explain_error(path, error))?;
        let hidden_path = created.keep();
        let hidden = HiddenOutput::new(hidden_path.clone(), path)?;
        Ok(Self { path: path.to_owned(), force, hidden, hidden_path, has_file, replaced })
    }

    /// Returns the folder to fill.
    pub(super) fn hidden_path(&self) -> &Path {
        &self.hidden_path
    }

    /// Gives the folder its name, and returns the size of its files.
    pub(super) fn finish(self) -> Result<u64> {
        let context = || format!("cannot write {}", escape_path(&self.path));
        let mut size = 0_u64;
        for entry in self.hidden_path.read_dir().with_context(context)? {
            size = size.saturating_add(entry.and_then(|entry| entry.metadata()).with_context(context)?.len());
        }
        if let Some(replaced) = &self.replaced {
            File::open(&self.hidden_path)
                .and_then(|folder| copy_permissions(&folder, replaced))
                .with_context(context)?;
        }
        if self.force {
            check_folder(&self.path, true, self.has_file)?;
            self.hidden.replace_folder(&self.path, self.has_file)?;
        } else {
            self.hidden.rename_folder(&self.path)?;
        }
        Ok(size)
    }
}

/// Refuses a folder that exists, unless it is empty or `force` is set and it contains only files that
/// the format writes.
fn check_folder(path: &Path, force: bool, has_file: HasFile) -> Result<()> {
    let escaped = escape_path(path);
    let Ok(metadata) = path.symlink_metadata() else { return Ok(()) };
    if !metadata.is_dir() {
        bail!("cannot write {escaped}: it exists already and is not a folder");
    }
    let mut is_empty = true;
    for entry in path.read_dir().with_context(|| format!("cannot read {escaped}"))? {
        let entry = entry.with_context(|| format!("cannot read {escaped}"))?;
        let name = entry.file_name();
        let has_own_name = || name.to_str().is_some_and(has_file);
        if !entry.metadata().is_ok_and(|metadata| metadata.is_file()) || !has_own_name() {
            bail!(
                "cannot write {escaped}: the folder contains {}, which is of another kind",
                escape_path(Path::new(&name))
            );
        }
        is_empty = false;
    }
    if !is_empty && !force {
        return Err(existing_output::exists_error(path));
    }
    Ok(())
}

/// Returns the beginning of the hidden name of an output. A long name is cut, because the hidden one
/// is longer.
fn hidden_prefix(path: &Path) -> OsString {
    let name = path.file_name().unwrap_or_default().as_bytes();
    let is_boundary = |end: &usize| name.get(*end).is_none_or(|byte| byte & 0xC0 != 0x80);
    let end = (0..=name.len().min(MAX_NAME_BYTES)).rev().find(is_boundary).unwrap_or(0);
    let mut prefix = OsString::from(".");
    prefix.push(OsStr::from_bytes(name.get(..end).unwrap_or_default()));
    prefix.push(".");
    prefix
}

/// Returns the folder of an output.
fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Returns the error for an output that cannot be created, with the name of the output instead of
/// the hidden one.
fn explain_error(path: &Path, error: io::Error) -> anyhow::Error {
    // The error of the crate `tempfile` contains the hidden name.
    let kind = error.kind();
    let code = error.get_ref().and_then(|inner| inner.source()?.downcast_ref::<io::Error>()?.raw_os_error());
    let source = code.map_or_else(|| io::Error::from(kind), io::Error::from_raw_os_error);
    let error = name_missing_folder(path, Error::File { path: path.to_owned(), source });
    anyhow::Error::new(error).context("cannot write")
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn mode_of(path: &Path) -> u32 {
        path.metadata().unwrap().mode() & 0o777
    }

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    fn write(path: &Path, force: bool, meanwhile: impl FnOnce()) -> Result<Option<u64>> {
        let (output, mut file) = OutputFile::create(path, force)?;
        file.write_all(b"new").unwrap();
        meanwhile();
        output.finish()
    }

    #[test]
    fn file_created_during_the_conversion_is_replaced_only_with_force() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.csv");
        let error = write(&path, false, || fs::write(&path, "mine").unwrap()).unwrap_err();
        assert!(error.to_string().contains("it exists already (--force replaces it)"), "{error:#}");
        assert_eq!(fs::read(&path).unwrap(), b"mine");
        assert_eq!(folder.path().read_dir().unwrap().count(), 1, "the hidden file is removed");
        let refused = write(&path, false, || panic!("the existing file was not checked"));
        assert!(refused.is_err());
        assert_eq!(write(&path, true, || fs::write(&path, "mine").unwrap()).unwrap(), Some(3));
        fs::write(&path, "").unwrap();
        assert_eq!(write(&path, false, || ()).unwrap(), Some(3), "an empty file is replaced");
        assert_eq!(fs::read(&path).unwrap(), b"new");
    }

    #[test]
    fn folder_created_during_the_conversion_is_replaced_only_with_force() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.ctf");
        let convert = |force| {
            let output = OutputFolder::create(&path, force, |name| name == "metadata")?;
            fs::write(output.hidden_path().join("metadata"), "new").unwrap();
            let _ = fs::create_dir(&path);
            fs::write(path.join("metadata"), "mine").unwrap();
            output.finish()
        };
        assert!(convert(false).is_err());
        assert_eq!(fs::read(path.join("metadata")).unwrap(), b"mine");
        set_mode(&path, 0o750);
        convert(true).unwrap();
        assert_eq!(fs::read(path.join("metadata")).unwrap(), b"new");
        assert_eq!(mode_of(&path), 0o750);
        assert_eq!(folder.path().read_dir().unwrap().count(), 1);
    }

    #[test]
    fn replaced_file_keeps_its_permissions() {
        let folder = tempfile::tempdir().unwrap();
        let (path, new) = (folder.path().join("out.csv"), folder.path().join("new.csv"));
        for mode in [0o600, 0o640, 0o666] {
            fs::write(&path, "old").unwrap();
            set_mode(&path, mode);
            write(&path, true, || ()).unwrap();
            assert_eq!(mode_of(&path), mode);
        }
        write(&new, false, || ()).unwrap();
        let plain = folder.path().join("plain");
        fs::write(&plain, "").unwrap();
        assert_eq!(mode_of(&new), mode_of(&plain), "a new file follows the umask");
    }

    #[test]
    fn longest_names_are_written_and_longer_ones_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["x".repeat(255), format!("x{}", "é".repeat(127))] {
            write(&folder.path().join(&name), false, || ()).unwrap();
            assert!(folder.path().join(&name).exists());
            assert!(hidden_prefix(Path::new(&name)).to_str().is_some(), "a character is cut");
        }
        let path = folder.path().join("x".repeat(256));
        let error = write(&path, false, || panic!("the name was not checked")).unwrap_err();
        assert!(error.to_string().starts_with("cannot write"), "{error:#}");
    }
}
