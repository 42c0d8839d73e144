//! The folder that keeps indexes: `$XDG_CACHE_HOME/traceweir` or `~/.cache/traceweir`.
//!
//! ```text
//!   view-HASH.index     HASH of the paths; inside: path, size, mtime and inode of each trace
//!   no folder, no room, not ours ──▶ an unlinked temporary file, which is not kept
//! ```
//!
//! A file is used if it is a regular file of this user that nobody else can write, and if its
//! identity is that of the traces. Old files are removed when all together exceed
//! [`MAX_CACHE_BYTES`].

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::store::Put;

/// Indexes that were not used for longest are removed above this size of all.
const MAX_CACHE_BYTES: u64 = 8 << 30;
const PREFIX: &str = "view-";
const SUFFIX: &str = ".index";

/// The file that an index is written to.
#[derive(Debug)]
pub(crate) struct NewIndexFile {
    pub(crate) file: File,
    /// The temporary name and the final name; `None` if the index is not kept.
    names: Option<(PathBuf, PathBuf)>,
}

/// Returns what distinguishes traces from others: path, size, mtime and inode of each; `None` if one
/// has no path or no size, such as a pipe.
pub(crate) fn identify(paths: &[PathBuf], options: &str) -> Option<Vec<u8>> {
    let mut identity = Vec::new();
    identity.put_text(env!("CARGO_PKG_VERSION"));
    identity.put_text(options);
    for path in paths {
        let metadata = fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
        let path = fs::canonicalize(path).ok()?;
        identity.put_varint(path.as_os_str().len() as u64);
        identity.extend_from_slice(path.as_os_str().as_bytes());
        for number in [metadata.len(), metadata.dev(), metadata.ino()] {
            identity.put_u64(number);
        }
        identity.put_i64(metadata.mtime());
        identity.put_i64(metadata.mtime_nsec());
    }
    Some(identity)
}

/// Returns the cache folder, which is created for this user only.
fn cache_folder() -> Option<PathBuf> {
    let base = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let base = base.or_else(|| {
        let home = std::env::var_os("HOME").map(PathBuf::from).filter(|path| path.is_absolute())?;
        Some(home.join(".cache"))
    })?;
    let folder = base.join("traceweir");
    DirBuilder::new().recursive(true).mode(0o700).create(&folder).ok()?;
    let metadata = fs::symlink_metadata(&folder).ok()?;
    (metadata.is_dir() && is_private(&metadata)).then_some(folder)
}

/// Returns whether only this user can change a file.
fn is_private(metadata: &fs::Metadata) -> bool {
    metadata.uid() == rustix::process::geteuid().as_raw() && metadata.mode() & 0o022 == 0
}

fn index_path(folder: &Path, identity: &[u8]) -> PathBuf {
    // The hash only finds the file; the identity inside decides.
    let mut hasher = DefaultHasher::new();
    identity.hash(&mut hasher);
    folder.join(format!("{PREFIX}{:016x}{SUFFIX}", hasher.finish()))
}

/// Opens the index of traces; also returns its size.
pub(crate) fn open(identity: &[u8]) -> Option<(File, u64)> {
    let path = index_path(&cache_folder()?, identity);
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(&path).ok()?;
    let metadata = file.metadata().ok()?;
    if !metadata.is_file() || !is_private(&metadata) {
        return None;
    }
    // The time of the last use decides which indexes are removed.
    let _ = file.set_modified(std::time::SystemTime::now());
    Some((file, metadata.len()))
}

/// Creates the file for the index of traces. `identity` is `None` for an index that is not kept.
pub(crate) fn create(identity: Option<&[u8]>) -> Result<NewIndexFile> {
    if let Some((identity, folder)) = identity.zip(cache_folder()) {
        remove_old(&folder);
        let path = index_path(&folder, identity);
        let temporary = path.with_extension(format!("new-{}", std::process::id()));
        let _ = fs::remove_file(&temporary);
        let flags = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create_new(true).mode(0o600).custom_flags(flags);
        if let Ok(file) = options.open(&temporary) {
            return Ok(NewIndexFile { file, names: Some((temporary, path)) });
        }
    }
    let file = create_unlinked().context("cannot create a temporary file for the index")?;
    Ok(NewIndexFile { file, names: None })
}

/// Creates a file without a name, which is removed when it is closed.
pub(crate) fn create_unlinked() -> std::io::Result<File> {
    let in_cache = cache_folder().and_then(|folder| tempfile::tempfile_in(folder).ok());
    in_cache.map_or_else(tempfile::tempfile, Ok)
}

impl NewIndexFile {
    /// Gives a complete index its name.
    pub(crate) fn keep(names: Option<(PathBuf, PathBuf)>) {
        if let Some((temporary, path)) = names
            && fs::rename(&temporary, &path).is_err()
        {
            let _ = fs::remove_file(&temporary);
        }
    }

    /// Returns the file and its names.
    pub(crate) fn into_parts(self) -> (File, Option<(PathBuf, PathBuf)>) {
        (self.file, self.names)
    }
}

/// Removes the oldest indexes above the limit, and temporary files of programs that have ended.
fn remove_old(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    let mut indexes: Vec<(std::time::SystemTime, u64, PathBuf)> = Vec::new();
    for entry in entries.flatten() {
        let (name, Ok(metadata)) = (entry.file_name(), entry.metadata()) else { continue };
        let name = name.to_string_lossy();
        if !name.starts_with(PREFIX) || !metadata.is_file() {
            continue;
        }
        if let Some((_, pid)) = name.rsplit_once(".new-") {
            let is_running = Path::new("/proc").join(pid).exists();
            if !is_running {
                let _ = fs::remove_file(entry.path());
            }
        } else if name.ends_with(SUFFIX)
            && let Ok(modified) = metadata.modified()
        {
            indexes.push((modified, metadata.len(), entry.path()));
        }
    }
    indexes.sort();
    let mut total: u64 = indexes.iter().map(|(_, bytes, _)| *bytes).fold(0, u64::saturating_add);
    for (_, bytes, path) in indexes {
        if total <= MAX_CACHE_BYTES {
            break;
        }
        let _ = fs::remove_file(path);
        total = total.saturating_sub(bytes);
    }
}
