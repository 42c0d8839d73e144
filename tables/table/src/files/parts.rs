//! The names of the files of a dataset, and how new files replace those of an earlier run.
//!
//! ```text
//!   .part-ID-N.parquet.RUN.tmp ──all files are complete──▶ part-ID-N.parquet
//!             └── failure ──▶ removed
//! ```
//!
//! The folder of a dataset may come from another user. Files are created under names that did not
//! exist, and renaming and removing never follow links. Links in place of folders are refused.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};

use super::format::FileFormat;

/// Returns random hexadecimal digits, for names that cannot be predicted.
fn random_digits() -> String {
    format!("{:016x}", RandomState::new().hash_one(std::process::id()))
}

/// Creates a file. Fails if the name exists, also as a link.
fn create_new(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).open(path)
}

/// Where the files of a dataset are, and how they are named.
#[derive(Clone, Debug)]
pub(crate) struct FileTarget {
    root: PathBuf,
    pub(super) format: FileFormat,
    /// Distinguishes the parts of this conversion from those of others in the same folders.
    id: String,
    /// Distinguishes incomplete files from those of other runs.
    run: String,
}

impl FileTarget {
    pub(crate) fn new(root: &Path, format: FileFormat, id: String) -> Self {
        Self { root: root.to_owned(), format, id, run: random_digits() }
    }

    fn part_name(&self, number: u32) -> String {
        format!("part-{}-{number:04}.{}", self.id, self.format.extension())
    }

    fn hidden_path(&self, folder: &str, number: u32) -> PathBuf {
        self.root.join(folder).join(format!(".{}.{}.tmp", self.part_name(number), self.run))
    }
}

/// Creates a folder of a dataset and the folders above it. Refuses links: a folder of another user
/// could lead to any place.
pub(crate) fn create_folder(root: &Path, folder: &str) -> Result<PathBuf> {
    let mut path = root.to_owned();
    for part in folder.split('/') {
        path.push(part);
        match fs::create_dir(&path) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                return Err(error).with_context(|| path.display().to_string());
            }
            Err(_) if !path.symlink_metadata().is_ok_and(|metadata| metadata.is_dir()) => {
                bail!("{}: is a link or a file, not a folder of the dataset", path.display());
            }
            _ => {}
        }
    }
    Ok(path)
}

/// The parts that one thread wrote under hidden names. Dropping this value removes them.
pub(super) struct HiddenParts {
    target: FileTarget,
    /// The number of parts in each folder.
    counts: HashMap<Arc<str>, u32>,
}

impl HiddenParts {
    pub(super) fn new(target: FileTarget) -> Self {
        Self { target, counts: HashMap::new() }
    }

    /// Creates the next part of a folder, and returns its hidden name.
    pub(super) fn begin(&mut self, folder: &Arc<str>) -> Result<(PathBuf, File)> {
        if !self.counts.contains_key(folder) {
            create_folder(&self.target.root, folder)?;
        }
        let count = self.counts.entry(Arc::clone(folder)).or_insert(0);
        let path = self.target.hidden_path(folder, *count);
        let file = create_new(&path).with_context(|| path.display().to_string())?;
        *count = count.saturating_add(1);
        Ok((path, file))
    }

    /// Gives the parts their names, then removes further parts that an earlier run of the same
    /// conversion left in their folders.
    pub(super) fn publish(mut self) -> Result<()> {
        for (folder, count) in &self.counts {
            for number in 0..*count {
                let path = self.target.root.join(&**folder).join(self.target.part_name(number));
                fs::rename(self.target.hidden_path(folder, number), &path)
                    .with_context(|| path.display().to_string())?;
            }
        }
        for (folder, count) in self.counts.drain() {
            remove_old_parts(&self.target, &folder, count)?;
        }
        Ok(())
    }
}

impl Drop for HiddenParts {
    fn drop(&mut self) {
        for (folder, count) in &self.counts {
            for number in 0..*count {
                // The error that ended the conversion is reported, not this one.
                let _ = fs::remove_file(self.target.hidden_path(folder, number));
            }
        }
    }
}

/// Removes the parts of earlier runs from a folder, except those that new parts have replaced.
fn remove_old_parts(target: &FileTarget, folder: &str, count: u32) -> Result<()> {
    let folder = target.root.join(folder);
    let prefix = format!("part-{}-", target.id);
    let is_new = |name: &str| {
        let number = name.strip_prefix(&prefix).and_then(|rest| rest.split('.').next()?.parse().ok());
        number.is_some_and(|number| number < count && name == target.part_name(number))
    };
    for entry in fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let is_part = name.strip_prefix('.').unwrap_or(&name).starts_with(&prefix);
        if is_part && !is_new(&name) && !entry.file_type()?.is_dir() {
            fs::remove_file(entry.path()).with_context(|| entry.path().display().to_string())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_in_a_dataset_are_not_followed() {
        let dataset = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        let (root, victim) = (dataset.path(), outside.path().join("victim"));
        fs::write(&victim, "old").unwrap();
        symlink(outside.path(), root.join("linked")).unwrap();
        let target = FileTarget::new(root, FileFormat::Parquet, "id".to_owned());
        let mut parts = HiddenParts::new(target.clone());
        assert!(parts.begin(&"linked".into()).is_err());
        assert!(parts.begin(&"linked/below".into()).is_err());
        fs::create_dir(root.join("t")).unwrap();
        for number in [0, 1] {
            symlink(&victim, root.join("t").join(target.part_name(number))).unwrap();
        }
        symlink(&victim, target.hidden_path("t", 1)).unwrap();
        let (_, mut file) = parts.begin(&"t".into()).unwrap();
        io::Write::write_all(&mut file, b"new").unwrap();
        assert!(parts.begin(&"t".into()).is_err(), "the hidden name is taken by a link");
        parts.publish().unwrap();
        let names: Vec<_> = fs::read_dir(root.join("t")).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(names, ["part-id-0000.parquet"]);
        assert_eq!(fs::read(root.join("t/part-id-0000.parquet")).unwrap(), b"new");
        assert_eq!(fs::read(&victim).unwrap(), b"old");
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
    }

    #[test]
    fn failed_run_keeps_the_parts_of_the_earlier_run() {
        let dataset = tempfile::tempdir().unwrap();
        let folder: Arc<str> = "t/date=2026-03-01".into();
        let begin = || {
            let target = FileTarget::new(dataset.path(), FileFormat::Parquet, "id".to_owned());
            let mut parts = HiddenParts::new(target);
            parts.begin(&folder).unwrap();
            parts
        };
        begin().publish().unwrap();
        let names = || {
            let entries = fs::read_dir(dataset.path().join(&*folder)).unwrap();
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(names(), ["part-id-0000.parquet"]);
        let unfinished = begin();
        assert_eq!(names().len(), 2);
        drop(unfinished);
        assert_eq!(names(), ["part-id-0000.parquet"]);
    }
}
