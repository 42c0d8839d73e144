//! The output of a conversion: a file or folder that appears under its name when it is complete.
//!
//! ```text
//!   .OUT.XXXXXX ──written──▶ renamed to OUT
//!        └── failure, Ctrl-C ──▶ removed
//! ```
//!
//! Devices, pipes and symbolic links are written in place, because renaming would replace them.

use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anstream::eprintln;
use anyhow::{Context, Result, bail};
use traceweir::Error;

use crate::convert_formats::HasFile;
use crate::output::{create_file, name_missing_folder};
use crate::signals::{INTERRUPTED, handle_interrupts};
use crate::text::escape_path;

/// Permissions of a new file, before the umask of the user.
const FILE_MODE: u32 = 0o666;
/// Permissions of a new folder, before the umask of the user.
const FOLDER_MODE: u32 = 0o777;

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

    /// Gives the output its name.
    fn rename(self, output: &Path) -> Result<()> {
        let mut path = lock(&self.path);
        if let Some(hidden) = &*path {
            fs::rename(hidden, output).with_context(|| format!("cannot write {}", escape_path(output)))?;
            *path = None;
        }
        Ok(())
    }
}

impl HiddenOutput {
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
    /// `None` if the output is written in place.
    hidden: Option<HiddenOutput>,
}

impl OutputFile {
    /// Creates the output.
    pub(super) fn create(path: &Path) -> Result<(Self, File)> {
        let is_in_place = path.symlink_metadata().is_ok_and(|metadata| !metadata.is_file());
        if is_in_place {
            return Ok((Self { path: path.to_owned(), hidden: None }, create_file(path)?));
        }
        let mut builder = tempfile::Builder::new();
        let prefix = hidden_prefix(path);
        let created = builder
            .prefix(&prefix)
            .permissions(Permissions::from_mode(FILE_MODE))
            .tempfile_in(folder_of(path))
            .and_then(|file| Ok(file.keep()?));
        let (file, hidden) = created.map_err(|error| explain_error(path, error))?;
        Ok((Self { path: path.to_owned(), hidden: Some(HiddenOutput::new(hidden, path)?) }, file))
    }

    /// Gives the file its name, and returns its size; `None` if it is not a regular file.
    pub(super) fn finish(self) -> Result<Option<u64>> {
        if let Some(hidden) = self.hidden {
            hidden.rename(&self.path)?;
        }
        let metadata = self.path.metadata().ok().filter(fs::Metadata::is_file);
        Ok(metadata.map(|metadata| metadata.len()))
    }
}

/// A folder to be filled, beside its later name.
pub(super) struct OutputFolder {
    path: PathBuf,
    hidden: HiddenOutput,
    /// The hidden name of the folder.
    hidden_path: PathBuf,
    has_file: HasFile,
}

impl OutputFolder {
    /// Creates the folder. An existing folder is replaced with `force`, if it contains only files
    /// that `has_file` accepts.
    pub(super) fn create(path: &Path, force: bool, has_file: HasFile) -> Result<Self> {
        check_folder(path, force, has_file)?;
        let prefix = hidden_prefix(path);
        let mut builder = tempfile::Builder::new();
        let created = builder
            .prefix(&prefix)
            .permissions(Permissions::from_mode(FOLDER_MODE))
            .tempdir_in(folder_of(path))
            .map_err(|error| explain_error(path, error))?;
        let hidden_path = created.keep();
        let hidden = HiddenOutput::new(hidden_path.clone(), path)?;
        Ok(Self { path: path.to_owned(), hidden, hidden_path, has_file })
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
        self.hidden.replace_folder(&self.path, self.has_file)?;
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
        bail!("cannot write {escaped}: it exists already (--force replaces it)");
    }
    Ok(())
}

/// Returns the beginning of the hidden name of an output.
fn hidden_prefix(path: &Path) -> OsString {
    let mut prefix = OsString::from(".");
    prefix.push(path.file_name().unwrap_or_default());
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
