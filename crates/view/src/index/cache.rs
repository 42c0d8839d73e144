//! The folder that keeps indexes: `$XDG_CACHE_HOME/traceweir` or `~/.cache/traceweir`.
//!
//! ```text
//!   view-HASH.index     HASH of the paths; inside: version, options, and path, size, mtime and inode
//!                       of each trace and each file with schemas
//!   no folder, no room, not ours ──▶ an unlinked temporary file, which is not kept
//! ```
//!
//! A file is used if it is a regular file that only this user can write, and if its identity is that
//! of the traces. The index of a trace that was recorded again replaces the index before. An index is
//! not kept if a trace or a file with schemas has changed since it was opened. The folder is checked
//! once it is open, and files are found relative to it, so that its path may change at any time. Old
//! files are removed when all together exceed [`MAX_CACHE_BYTES`].

use std::fs::{self, DirBuilder, File, Metadata};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, openat, renameat, statat, unlinkat};
use traceweir_analysis::schema_files::{SchemaFiles, list_schema_files};

use super::store::Put;

/// Indexes that were not used for longest are removed above this size of all.
const MAX_CACHE_BYTES: u64 = 8 << 30;
const PREFIX: &str = "view-";
const SUFFIX: &str = ".index";

/// The file that an index is written to.
#[derive(Debug)]
pub(crate) struct NewIndexFile {
    pub(crate) file: File,
    /// `None` if the index is not kept.
    names: Option<IndexNames>,
}

/// The temporary name of an index, which ends with this value, and the name that it gets when it is
/// complete.
#[derive(Debug)]
pub(crate) struct IndexNames {
    folder: CacheFolder,
    temporary: String,
    identity: IndexIdentity,
}

/// An open folder that only this user can change.
#[derive(Debug)]
struct CacheFolder(OwnedFd);

/// What an index belongs to.
#[derive(Clone, Debug)]
pub(crate) struct IndexIdentity {
    paths: Vec<PathBuf>,
    schemas: SchemaFiles,
    /// The content of each trace.
    traces: Vec<FileVersion>,
    /// Name of the file, by the paths of the traces.
    file_name: String,
    /// Distinguishes traces, and ways to read them, from all others.
    pub(crate) bytes: Vec<u8>,
}

/// Changes with the content of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileVersion {
    bytes: u64,
    device: u64,
    inode: u64,
    /// Seconds and nanoseconds.
    modified: [i64; 2],
}

impl FileVersion {
    fn new(metadata: &Metadata) -> Self {
        Self {
            bytes: metadata.len(),
            device: metadata.dev(),
            inode: metadata.ino(),
            modified: [metadata.mtime(), metadata.mtime_nsec()],
        }
    }

    fn put(&self, path: &Path, identity: &mut Vec<u8>) {
        identity.put_varint(path.as_os_str().len() as u64);
        identity.extend_from_slice(path.as_os_str().as_bytes());
        for number in [self.bytes, self.device, self.inode] {
            identity.put_u64(number);
        }
        self.modified.iter().for_each(|number| identity.put_i64(*number));
    }
}

/// Returns the identity of the index of traces that are read with some schemas; `None` if a trace or
/// a file with schemas has no path or no size, such as a pipe.
pub(crate) fn identify(paths: &[PathBuf], schemas: &SchemaFiles) -> Option<IndexIdentity> {
    let read_version = |path: &Path| {
        let metadata = fs::metadata(path).ok().filter(Metadata::is_file)?;
        Some(FileVersion::new(&metadata))
    };
    let mut identity = Vec::new();
    let mut hasher = DefaultHasher::new();
    let mut traces = Vec::new();
    identity.put_text(env!("CARGO_PKG_VERSION"));
    identity.put_text(&format!("{schemas:?}"));
    identity.put_varint(paths.len() as u64);
    for path in paths {
        let version = read_version(path)?;
        let path = fs::canonicalize(path).ok()?;
        path.hash(&mut hasher);
        version.put(&path, &mut identity);
        traces.push(version);
    }
    for path in list_schema_files(schemas) {
        read_version(&path)?.put(&path, &mut identity);
    }
    // The hash only finds the file; the identity inside decides.
    let file_name = format!("{PREFIX}{:016x}{SUFFIX}", hasher.finish());
    Some(IndexIdentity {
        paths: paths.to_vec(),
        schemas: schemas.clone(),
        traces,
        file_name,
        bytes: identity,
    })
}

impl IndexIdentity {
    /// Returns whether these opened files are the traces, in their order.
    pub(crate) fn is_of<'f>(&self, files: impl Iterator<Item = &'f File>) -> bool {
        let versions = files.map(|file| file.metadata().ok().map(|metadata| FileVersion::new(&metadata)));
        versions.eq(self.traces.iter().map(|version| Some(*version)))
    }

    /// Returns whether the paths still lead to the same content.
    fn is_current(&self) -> bool {
        identify(&self.paths, &self.schemas).is_some_and(|now| now.bytes == self.bytes)
    }
}

/// Returns whether only this user can change a file.
fn is_private(metadata: &Metadata) -> bool {
    metadata.uid() == rustix::process::geteuid().as_raw() && metadata.mode() & 0o022 == 0
}

/// Returns the folder of the caches of this user.
fn base_folder() -> Option<PathBuf> {
    let base = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    base.or_else(|| {
        let home = std::env::var_os("HOME").map(PathBuf::from).filter(|path| path.is_absolute())?;
        Some(home.join(".cache"))
    })
}

impl CacheFolder {
    /// Opens the cache folder, which is created for this user only. Folders of another user get
    /// none, such as the home of a user that `sudo` keeps.
    fn open(base: &Path) -> Option<Self> {
        let existing = base.ancestors().find_map(|path| fs::metadata(path).ok())?;
        if existing.uid() != rustix::process::geteuid().as_raw() {
            return None;
        }
        let path = base.join("traceweir");
        DirBuilder::new().recursive(true).mode(0o700).create(&path).ok()?;
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::CLOEXEC;
        let folder = File::from(rustix::fs::open(&path, flags, Mode::empty()).ok()?);
        is_private(&folder.metadata().ok()?).then(|| Self(folder.into()))
    }

    /// Opens a file of this user; also returns its size.
    fn open_file(&self, name: &str) -> Option<(File, u64)> {
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::RDONLY | OFlags::CLOEXEC;
        let file = File::from(openat(&self.0, name, flags, Mode::empty()).ok()?);
        let metadata = file.metadata().ok().filter(|metadata| metadata.is_file() && is_private(metadata))?;
        Some((file, metadata.len()))
    }

    /// Creates a file that does not exist.
    fn create_file(&self, name: &str) -> Option<File> {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::RDWR | OFlags::CLOEXEC;
        openat(&self.0, name, flags, Mode::RUSR | Mode::WUSR).ok().map(File::from)
    }

    fn remove_file(&self, name: &str) {
        // A file that stays takes only room.
        let _ = unlinkat(&self.0, name, AtFlags::empty());
    }

    /// Removes the oldest indexes above a limit, and temporary files of programs that have ended.
    fn remove_old(&self, max_bytes: u64) {
        let Ok(entries) = Dir::read_from(&self.0) else { return };
        let mut indexes: Vec<((_, _), u64, String)> = Vec::new();
        for entry in entries.flatten() {
            let Ok(name) = entry.file_name().to_str() else { continue };
            let Ok(stat) = statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
            if !name.starts_with(PREFIX) || !FileType::from_raw_mode(stat.st_mode).is_file() {
                continue;
            }
            if let Some((_, pid)) = name.rsplit_once(".new-") {
                if !Path::new("/proc").join(pid).exists() {
                    self.remove_file(name);
                }
            } else if name.ends_with(SUFFIX) {
                let modified = (stat.st_mtime, stat.st_mtime_nsec);
                indexes.push((modified, u64::try_from(stat.st_size).unwrap_or(0), name.to_owned()));
            }
        }
        indexes.sort();
        let mut total: u64 = indexes.iter().map(|(_, bytes, _)| *bytes).fold(0, u64::saturating_add);
        for (_, bytes, name) in indexes {
            if total <= max_bytes {
                break;
            }
            self.remove_file(&name);
            total = total.saturating_sub(bytes);
        }
    }
}

/// Opens the index of traces; also returns its size.
pub(crate) fn open(identity: &IndexIdentity) -> Option<(File, u64)> {
    let (file, bytes) = CacheFolder::open(&base_folder()?)?.open_file(&identity.file_name)?;
    // The time of the last use decides which indexes are removed.
    let _ = file.set_modified(std::time::SystemTime::now());
    Some((file, bytes))
}

/// Creates the file for the index of traces. `identity` is `None` for an index that is not kept.
pub(crate) fn create(identity: Option<&IndexIdentity>) -> Result<NewIndexFile> {
    let folder = || CacheFolder::open(&base_folder()?);
    if let Some(identity) = identity
        && let Some(folder) = folder()
    {
        folder.remove_old(MAX_CACHE_BYTES);
        let temporary = format!("{}.new-{}", identity.file_name, std::process::id());
        folder.remove_file(&temporary);
        if let Some(file) = folder.create_file(&temporary) {
            let names = Some(IndexNames { folder, temporary, identity: identity.clone() });
            return Ok(NewIndexFile { file, names });
        }
    }
    let file = create_unlinked().context("cannot create a temporary file for the index")?;
    Ok(NewIndexFile { file, names: None })
}

/// Creates a file without a name, which is removed when it is closed.
pub(crate) fn create_unlinked() -> std::io::Result<File> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let in_cache = || {
        let folder = CacheFolder::open(&base_folder()?)?;
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{PREFIX}unlinked-{count}.new-{}", std::process::id());
        let file = folder.create_file(&name)?;
        folder.remove_file(&name);
        Some(file)
    };
    in_cache().map_or_else(tempfile::tempfile, Ok)
}

impl IndexNames {
    /// Gives a complete index its name, unless a trace or a schema has changed since it was opened.
    pub(crate) fn keep(self) {
        if self.identity.is_current() {
            // Afterwards, the temporary name does not exist, and dropping it changes nothing.
            let _ = renameat(&self.folder.0, &self.temporary, &self.folder.0, &self.identity.file_name);
        }
    }
}

impl Drop for IndexNames {
    fn drop(&mut self) {
        self.folder.remove_file(&self.temporary);
    }
}

impl NewIndexFile {
    /// Returns the file and its names.
    pub(crate) fn into_parts(self) -> (File, Option<IndexNames>) {
        (self.file, self.names)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn names_in(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn folder_that_others_can_change_is_not_used() {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("traceweir");
        assert!(CacheFolder::open(base.path()).is_some());
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o700);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o770)).unwrap();
        assert!(CacheFolder::open(base.path()).is_none());
        fs::remove_dir(&path).unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        symlink(elsewhere.path(), &path).unwrap();
        assert!(CacheFolder::open(base.path()).is_none(), "a link was followed");
        // /proc/1 belongs to root; the tests may run as root.
        if rustix::process::geteuid().as_raw() != 0 {
            assert!(CacheFolder::open(Path::new("/proc/1/x")).is_none());
        }
    }

    #[test]
    fn files_stay_in_the_folder_that_was_checked() {
        let base = tempfile::tempdir().unwrap();
        let (path, moved) = (base.path().join("traceweir"), base.path().join("moved"));
        let folder = CacheFolder::open(base.path()).unwrap();
        fs::rename(&path, &moved).unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        symlink(elsewhere.path(), &path).unwrap();
        assert!(folder.create_file("view-a.new-1").is_some());
        assert!(folder.create_file("view-a.new-1").is_none(), "an existing file was opened");
        let identity = identify(&[], &SchemaFiles::default()).unwrap();
        let complete = identity.file_name.clone();
        IndexNames { folder, temporary: "view-a.new-1".to_owned(), identity }.keep();
        assert_eq!(names_in(&moved), [complete]);
        assert!(names_in(elsewhere.path()).is_empty());
    }

    #[test]
    fn index_that_is_not_complete_or_not_current_leaves_no_file() {
        let base = tempfile::tempdir().unwrap();
        let trace = base.path().join("a.etl");
        fs::write(&trace, "one").unwrap();
        let identity = identify(std::slice::from_ref(&trace), &SchemaFiles::default()).unwrap();
        let create = || {
            let folder = CacheFolder::open(base.path()).unwrap();
            drop(folder.create_file("view-a.new-1").unwrap());
            IndexNames { folder, temporary: "view-a.new-1".to_owned(), identity: identity.clone() }
        };
        let folder = base.path().join("traceweir");
        drop(create());
        assert!(names_in(&folder).is_empty());
        create().keep();
        assert_eq!(names_in(&folder), [identity.file_name.as_str()]);
        fs::remove_file(folder.join(&identity.file_name)).unwrap();
        let names = create();
        fs::write(&trace, "another recording").unwrap();
        names.keep();
        assert!(names_in(&folder).is_empty(), "the index of an older trace was kept");
    }

    #[test]
    fn identity_is_that_of_the_opened_files() {
        let folder = tempfile::tempdir().unwrap();
        let paths = ["a.etl", "b.etl"].map(|name| folder.path().join(name));
        paths.iter().for_each(|path| fs::write(path, "trace").unwrap());
        let identity = identify(&paths, &SchemaFiles::default()).unwrap();
        let open = || paths.each_ref().map(|path| File::open(path).unwrap());
        let [a, b] = open();
        assert!(identity.is_of([&a, &b].into_iter()));
        assert!(!identity.is_of([&b, &a].into_iter()) && !identity.is_of([&a].into_iter()));
        fs::remove_file(&paths[1]).unwrap();
        fs::write(&paths[1], "trace").unwrap();
        assert!(!identity.is_of(open().iter()), "another file of this name");
    }

    #[test]
    fn identity_changes_with_files_of_schemas() {
        let folder = tempfile::tempdir().unwrap();
        let (trace, manifests) = (folder.path().join("a.etl"), folder.path().join("manifests"));
        let (manifest, pdb) = (manifests.join("a.man"), folder.path().join("a.pdb"));
        fs::create_dir(&manifests).unwrap();
        for path in [&trace, &manifest, &pdb] {
            fs::write(path, "one").unwrap();
        }
        let schemas =
            SchemaFiles { manifests: vec![manifests.clone()], pdb: vec![pdb.clone()], ..Default::default() };
        let mut known = Vec::new();
        let mut check = |change: &str| {
            let identity = identify(std::slice::from_ref(&trace), &schemas).unwrap().bytes;
            assert!(!known.contains(&identity), "{change}");
            known.push(identity);
        };
        check("nothing");
        fs::write(&manifest, "another").unwrap();
        check("another manifest");
        fs::write(manifests.join("b.xml"), "one").unwrap();
        check("one more manifest");
        fs::write(&pdb, "another").unwrap();
        check("another PDB file");
    }

    #[test]
    fn only_private_regular_files_are_opened() {
        let base = tempfile::tempdir().unwrap();
        let folder = CacheFolder::open(base.path()).unwrap();
        let path = base.path().join("traceweir");
        drop(folder.create_file("view-a.index").unwrap());
        assert!(folder.open_file("view-a.index").is_some());
        fs::set_permissions(path.join("view-a.index"), fs::Permissions::from_mode(0o622)).unwrap();
        symlink("/etc/passwd", path.join("view-b.index")).unwrap();
        fs::create_dir(path.join("view-c.index")).unwrap();
        for name in ["view-a.index", "view-b.index", "view-c.index", "view-d.index"] {
            assert!(folder.open_file(name).is_none(), "{name}");
        }
    }

    #[test]
    fn index_of_a_trace_that_was_recorded_again_has_the_same_name() {
        let folder = tempfile::tempdir().unwrap();
        let (trace, other) = (folder.path().join("a.etl"), folder.path().join("b.etl"));
        for path in [&trace, &other] {
            fs::write(path, "one").unwrap();
        }
        let paths = [trace.clone()];
        let identify_traces = |paths: &[PathBuf]| identify(paths, &SchemaFiles::default());
        let first = identify_traces(&paths).unwrap();
        assert_eq!(identify_traces(&paths).unwrap().bytes, first.bytes);
        fs::write(&trace, "another recording").unwrap();
        let other_schemas = SchemaFiles { ignores_programs: true, ..SchemaFiles::default() };
        let with_other_schemas = identify(&paths, &other_schemas).unwrap();
        for again in [identify_traces(&paths).unwrap(), with_other_schemas] {
            assert!(again.file_name == first.file_name && again.bytes != first.bytes);
        }
        for paths in [vec![other.clone()], vec![trace.clone(), other.clone()], vec![other, trace]] {
            assert_ne!(identify_traces(&paths).unwrap().file_name, first.file_name);
        }
        assert!(identify_traces(&[folder.path().to_owned()]).is_none());
    }

    #[test]
    fn oldest_indexes_and_abandoned_files_are_removed() {
        let base = tempfile::tempdir().unwrap();
        let folder = CacheFolder::open(base.path()).unwrap();
        let old = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1);
        for (name, modified) in [("view-old.index", Some(old)), ("view-new.index", None)] {
            let file = folder.create_file(name).unwrap();
            file.set_len(1000).unwrap();
            if let Some(modified) = modified {
                file.set_modified(modified).unwrap();
            }
        }
        let running = format!("view-x.new-{}", std::process::id());
        for name in ["view-x.new-4294967295", &running, "other"] {
            folder.create_file(name).unwrap();
        }
        folder.remove_old(1500);
        let mut names = names_in(&base.path().join("traceweir"));
        names.sort();
        assert_eq!(names, ["other", "view-new.index", &running]);
    }
}
