//! The rule for output files that exist already. Every `-o` follows it.
//!
//! ```text
//!   the file has        a trace is written           anything else is written
//!   nothing (or is      written                      written
//!     missing, empty)
//!   a trace             moved to NAME.old.etl        refused
//!   other content       refused                      refused
//!   with --force        replaced                     replaced
//! ```
//!
//! An earlier trace `NAME.old.etl` is replaced; if it is not a trace, the output is refused.
//!
//! Devices and pipes are not replaced, so commands that can write to them may do so. If a command
//! fails before it has written the new trace, the old trace gets its name back.

use std::fs::{self, File, Metadata};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anstream::eprintln;
use anyhow::{Context, Result, anyhow, bail};
use traceweir::consumer::TraceFile;
use traceweir_format::etl::Trace;

use crate::text::escape_path;

/// Returns whether an input and an output are the same regular file. The input `-` is standard input.
pub(crate) fn is_same_file(input: &Path, output: &Path) -> bool {
    let identity = |path: &Path| path.metadata().ok().filter(|m| m.is_file()).map(|m| (m.dev(), m.ino()));
    let input = if input.as_os_str() == "-" { Path::new("/dev/stdin") } else { input };
    identity(input).is_some_and(|input| identity(output) == Some(input))
}

/// Extension of a trace that a newer one replaced.
const OLD_EXTENSION: &str = "old.etl";

/// Refuses an output other than a trace if the file exists, unless `force` is set.
pub(crate) fn check_other(path: &Path, force: bool) -> Result<()> {
    // Links are followed: `/dev/stdout` is one.
    let has_content = |metadata: Metadata| metadata.is_file() && metadata.len() > 0;
    if !force && path.as_os_str() != "-" && path.metadata().is_ok_and(has_content) {
        return Err(exists_error(path));
    }
    Ok(())
}

/// Returns the error for an output that exists.
pub(crate) fn exists_error(path: &Path) -> anyhow::Error {
    anyhow!("cannot write {}: it exists already (--force replaces it)", escape_path(path))
}

/// Refuses the output of a trace if the file exists and is not a trace, unless `force` is set.
pub(crate) fn check_trace(path: &Path, force: bool) -> Result<()> {
    find_trace(path, force).map(drop)
}

/// Moves an existing trace out of the way of a new one, unless `force` is set: then the new trace
/// replaces it.
pub(crate) fn make_room(path: &Path, force: bool) -> Result<MovedTrace> {
    let moved = match find_trace(path, force)? {
        ExistingFile::Trace if !force => {
            let old = old_name(path);
            check_replaceable(path, &old)?;
            let older = if is_missing(&old) { None } else { Some(set_aside(&old)?) };
            let moved = OldTrace { path: old, older };
            if let Err(error) = fs::rename(path, &moved.path) {
                moved.restore_older();
                let text = format!("cannot move {} to {}", escape_path(path), escape_path(&moved.path));
                return Err(error).context(text);
            }
            Some(moved)
        }
        _ => None,
    };
    Ok(MovedTrace { path: path.to_owned(), moved })
}

/// Fails if moving the trace at `path` to `old` would replace something other than a trace of this
/// user.
fn check_replaceable(path: &Path, old: &Path) -> Result<()> {
    let is_foreign = |data: Metadata| data.uid() != rustix::process::geteuid().as_raw();
    let reason = if matches!(find_trace(old, true)?, ExistingFile::Other) {
        "is not a trace"
    } else if old.symlink_metadata().is_ok_and(is_foreign) {
        "belongs to another user"
    } else {
        return Ok(());
    };
    let (path, old) = (escape_path(path), escape_path(old));
    bail!(
        "cannot write {path}: its trace would replace {old}, which {reason} (--force replaces {path} instead)"
    )
}

/// An old trace that was moved. It gets its name back when this value is dropped, unless
/// [`keep`](Self::keep) was called or the name is used again.
#[must_use = "dropping it undoes the move"]
pub(crate) struct MovedTrace {
    path: PathBuf,
    moved: Option<OldTrace>,
}

/// A trace that was moved.
struct OldTrace {
    path: PathBuf,
    /// Where the trace is that had this name before.
    older: Option<PathBuf>,
}

impl OldTrace {
    /// Gives the older trace its name back.
    fn restore_older(&self) {
        if let Some(older) = &self.older {
            // The command reports its own failure.
            let _ = fs::rename(older, &self.path);
        }
    }
}

impl MovedTrace {
    /// Keeps the old trace at its new name, and prints that name.
    pub(crate) fn keep(mut self) {
        if let Some(old) = self.moved.take() {
            let (path, old_path) = (escape_path(&self.path), escape_path(&old.path));
            let replaced = if old.older.is_some() { ", and replaced the trace before it" } else { "" };
            if let Some(older) = &old.older {
                // The trace is replaced in any case; a file that stays takes only room.
                let _ = fs::remove_file(older);
            }
            eprintln!("note: {path} existed: its trace is now {old_path}{replaced}");
        }
    }
}

impl Drop for MovedTrace {
    fn drop(&mut self) {
        if let Some(old) = self.moved.take()
            && is_missing(&self.path)
        {
            // The command reports its own failure.
            if fs::rename(&old.path, &self.path).is_ok() {
                old.restore_older();
            }
        }
    }
}

/// Moves a trace to a hidden name in its folder until it is replaced or gets its name back.
fn set_aside(path: &Path) -> Result<PathBuf> {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}", std::process::id()));
    let hidden = path.with_file_name(name);
    // A file that a killed process of the same id left must not block this one.
    fs::rename(path, &hidden)
        .with_context(|| format!("cannot move {} to {}", escape_path(path), escape_path(&hidden)))?;
    Ok(hidden)
}

enum ExistingFile {
    /// There is no file, or it is empty or not a plain file.
    Nothing,
    Trace,
    /// A file with other content, which may be replaced.
    Other,
}

fn find_trace(path: &Path, force: bool) -> Result<ExistingFile> {
    let Ok(metadata) = path.symlink_metadata() else { return Ok(ExistingFile::Nothing) };
    if metadata.is_file() && metadata.len() == 0 {
        return Ok(ExistingFile::Nothing);
    }
    if metadata.is_file() && is_trace(path) {
        return Ok(ExistingFile::Trace);
    }
    if !metadata.is_file() && !metadata.is_symlink() {
        // Opening it fails with the reason.
        return Ok(ExistingFile::Nothing);
    }
    if force {
        return Ok(ExistingFile::Other);
    }
    let kind = if metadata.is_symlink() { "a symbolic link" } else { "not a trace" };
    bail!("cannot write {}: it exists already and is {kind} (--force replaces it)", escape_path(path));
}

fn is_trace(path: &Path) -> bool {
    File::open(path).is_ok_and(|file| Trace::open(TraceFile::from(file)).is_ok())
}

fn is_missing(path: &Path) -> bool {
    path.symlink_metadata().is_err_and(|error| error.kind() == ErrorKind::NotFound)
}

/// Returns the name that an existing trace gets: `NAME.old.etl` for `NAME.etl` and for `NAME`.
pub(crate) fn old_name(path: &Path) -> PathBuf {
    let is_etl = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("etl"));
    let base = if is_etl { path.with_extension("") } else { path.to_owned() };
    let mut name = base.into_os_string();
    name.push(".");
    name.push(OLD_EXTENSION);
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write_trace(path: &Path) -> Vec<u8> {
        let trace = fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/etl/tracelogging.etl"))
            .expect("the fixture must exist");
        fs::write(path, &trace).expect("the folder must be writable");
        trace
    }

    #[test]
    fn old_trace_is_moved_and_restored_unless_kept() {
        let folder = tempfile::tempdir().unwrap();
        let (path, old) = (folder.path().join("a.etl"), folder.path().join("a.old.etl"));
        let trace = write_trace(&path);
        drop(make_room(&path, false).unwrap());
        assert_eq!(fs::read(&path).unwrap(), trace, "a dropped move must be undone");
        make_room(&path, false).unwrap().keep();
        assert!(!path.exists());
        assert_eq!(fs::read(&old).unwrap(), trace);
        write_trace(&path);
        make_room(&path, true).unwrap().keep();
        assert!(path.exists(), "with --force, the file stays for the writer to replace");
    }

    #[test]
    fn older_trace_stays_if_the_new_one_is_not_written() {
        let folder = tempfile::tempdir().unwrap();
        let (path, old) = (folder.path().join("a.etl"), folder.path().join("a.old.etl"));
        let trace = write_trace(&path);
        let older = [trace.as_slice(), b"older"].concat();
        fs::write(&old, &older).unwrap();
        drop(make_room(&path, false).unwrap());
        assert_eq!((fs::read(&path).unwrap(), fs::read(&old).unwrap()), (trace.clone(), older));
        make_room(&path, false).unwrap().keep();
        assert_eq!(fs::read(&old).unwrap(), trace);
        assert_eq!(folder.path().read_dir().unwrap().count(), 1, "only the moved trace stays");
    }

    #[test]
    fn restored_name_is_not_taken_from_a_new_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.etl");
        write_trace(&path);
        let moved = make_room(&path, false).unwrap();
        fs::write(&path, "new").unwrap();
        drop(moved);
        assert_eq!(fs::read(&path).unwrap(), b"new");
    }

    #[test]
    fn other_files_are_refused_unless_forced_or_empty() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notes.txt");
        for (content, is_refused) in [("", false), ("text", true)] {
            fs::write(&path, content).unwrap();
            assert_eq!(check_trace(&path, false).is_err(), is_refused, "{content:?}");
            assert_eq!(check_other(&path, false).is_err(), is_refused, "{content:?}");
            assert!(check_trace(&path, true).is_ok() && check_other(&path, true).is_ok());
        }
        let link = folder.path().join("link.etl");
        std::os::unix::fs::symlink("missing", &link).unwrap();
        assert!(check_trace(&link, false).is_err(), "a link counts as an existing file");
        assert!(check_other(Path::new("/dev/null"), false).is_ok());
        assert!(check_other(Path::new("-"), false).is_ok());
    }

    #[test]
    fn old_name_keeps_the_rest_of_the_name() {
        for (path, old) in [
            ("/x/a.etl", "/x/a.old.etl"),
            ("a.b.ETL", "a.b.old.etl"),
            ("trace", "trace.old.etl"),
            ("a.old.etl", "a.old.old.etl"),
        ] {
            assert_eq!(old_name(Path::new(path)), Path::new(old), "{path}");
        }
    }
}
