//! Recordings without a name of the user's choice: the name of a new one, and the newest one of the
//! current folder for commands without a file.
//!
//! ```text
//!   weir-20260801-101500.etl   weir-20260801-102200.etl ◀── the newest by modification time
//!   weir-notes.txt  other.etl  weir-folder.etl/         ◀── not recordings
//! ```

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anstream::eprintln;
use anyhow::{Result, bail};
use traceweir_format::time::{Civil, FileTime};

use crate::cli::{OptionalFiles, exit_with_missing_argument};
use crate::exit::print_warning;
use crate::text::escape_path;

/// How many names are tried for a new file.
const MAX_FILE_NAMES: u32 = 1000;
/// Prefix and suffix of the names that `weir record` gives to its files.
const NAME_PREFIX: &str = "weir-";
const NAME_SUFFIX: &str = ".etl";

/// Returns a name for a new file: `weir-DATE-TIME.etl`, with a number if that exists.
pub(crate) fn find_new_name(folder: &Path, time: FileTime) -> Result<PathBuf> {
    let Civil { year, month, day, hour, minute, second, .. } = time.civil();
    let base = format!("{NAME_PREFIX}{year:04}{month:02}{day:02}-{hour:02}{minute:02}{second:02}");
    find_unused_name(&folder.join(format!("{base}{NAME_SUFFIX}")))
}

/// Returns the path of a trace if no file has it, or else `NAME-2.etl` and so on.
pub(crate) fn find_unused_name(path: &Path) -> Result<PathBuf> {
    let stem = path.file_stem().unwrap_or_default();
    let numbered = |number: u32| {
        let mut name = stem.to_owned();
        name.push(format!("-{number}{NAME_SUFFIX}"));
        path.with_file_name(name)
    };
    let mut names = std::iter::once(path.to_owned()).chain((2..=MAX_FILE_NAMES).map(numbered));
    match names.find(|name| name.symlink_metadata().is_err()) {
        Some(name) => Ok(name),
        None => bail!("all names like {} are in use: name the file with -o", escape_path(path)),
    }
}

/// Adds the newest recording of the current folder to an empty list of files and prints its name.
/// If there is none, prints a usage error and exits.
pub(crate) fn choose_newest_if_empty(files: &mut OptionalFiles) {
    if !files.files.is_empty() {
        warn_of_repeated(&files.files);
        return;
    }
    let Some(newest) = find_newest(Path::new(".")) else {
        exit_with_missing_argument(
            "no FILE, and no weir-*.etl in the current folder: name a trace, or record one with weir record -- COMMAND",
        );
    };
    eprintln!("using {}", escape_path(&newest));
    files.files.push(newest);
}

/// Warns of files that the command line names more than once: the events of each are read as often.
pub(crate) fn warn_of_repeated(files: &[PathBuf]) {
    for file in find_repeated(files) {
        print_warning(&format!(
            "{} is named more than once: its events are there as often",
            escape_path(file)
        ));
    }
}

/// Returns the second name of each file that has several names in a list.
fn find_repeated(files: &[PathBuf]) -> Vec<&Path> {
    let mut counts: BTreeMap<(u64, u64), u32> = BTreeMap::new();
    let mut is_second = |file: &Path| {
        let path = if file.as_os_str() == "-" { Path::new("/dev/stdin") } else { file };
        path.metadata().is_ok_and(|metadata| {
            let count = counts.entry((metadata.dev(), metadata.ino())).or_default();
            *count += 1;
            *count == 2
        })
    };
    files.iter().map(PathBuf::as_path).filter(|file| is_second(file)).collect()
}

/// Returns the name of the recording in a folder that was modified last; among equal times, the
/// last name.
fn find_newest(folder: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(folder).ok()?.flatten();
    let recordings = entries.filter_map(|entry| {
        let name = entry.file_name();
        let text = name.to_string_lossy();
        if !(text.starts_with(NAME_PREFIX) && text.ends_with(NAME_SUFFIX)) {
            return None;
        }
        // The metadata is that of the entry itself, so that a symbolic link is not a regular file.
        let metadata = entry.metadata().ok().filter(fs::Metadata::is_file)?;
        Some((metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH), name))
    });
    recordings.max().map(|(_, name)| PathBuf::from(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::unix::fs::symlink;
    use std::time::Duration;

    #[test]
    fn newest_recording_is_a_regular_file_by_modification_time() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(find_newest(folder.path()), None);
        let write = |name: &str, seconds: u64| {
            let file = File::create(folder.path().join(name)).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)).unwrap();
        };
        write("weir-b.etl", 10);
        write("weir-a.etl", 20);
        write("other.etl", 99);
        write("weir-c.txt", 99);
        write("weir-d.etl.zip", 99);
        fs::create_dir(folder.path().join("weir-e.etl")).unwrap();
        symlink(folder.path().join("other.etl"), folder.path().join("weir-f.etl")).unwrap();
        assert_eq!(find_newest(folder.path()), Some("weir-a.etl".into()));
        write("weir-b.etl", 20);
        assert_eq!(find_newest(folder.path()), Some("weir-b.etl".into()), "equal times");
        assert_eq!(find_newest(&folder.path().join("absent")), None);
    }

    #[test]
    fn file_with_several_names_is_found_once() {
        let folder = tempfile::tempdir().unwrap();
        let [first, second, link] = ["a.etl", "b.etl", "link.etl"].map(|name| folder.path().join(name));
        fs::write(&first, "x").unwrap();
        fs::write(&second, "x").unwrap();
        symlink(&first, &link).unwrap();
        let missing = folder.path().join("missing.etl");
        let find = |files: &[&PathBuf]| {
            let files: Vec<PathBuf> = files.iter().map(|file| (*file).clone()).collect();
            find_repeated(&files).into_iter().map(Path::to_owned).collect::<Vec<_>>()
        };
        assert!(find(&[&first, &second, &missing, &missing]).is_empty());
        assert_eq!(find(&[&first, &second, &link, &first]), [link]);
        assert_eq!(find(&[&second, &second, &second]), [second]);
    }

    #[test]
    fn default_name_has_date_and_time_and_is_unused() {
        let folder = tempfile::tempdir().unwrap();
        let time = FileTime::from_unix(1_000_000_000, 0);
        let first = find_new_name(folder.path(), time).unwrap();
        assert_eq!(first, folder.path().join("weir-20010909-014640.etl"));
        fs::write(&first, "x").unwrap();
        let second = find_new_name(folder.path(), time).unwrap();
        assert_eq!(second, folder.path().join("weir-20010909-014640-2.etl"));
    }
}
