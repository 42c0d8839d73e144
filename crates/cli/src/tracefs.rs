//! The file system in which the kernel describes tracepoints.

use std::fs;
use std::path::{Path, PathBuf};

/// Returns the path of tracefs in a mount table: its own mount, or else the folder below debugfs.
pub(crate) fn find_mount(mounts: &str) -> Option<PathBuf> {
    let list_mounts = || {
        mounts.lines().filter_map(|line| {
            let mut words = line.split(' ');
            let (_, path, kind) = (words.next()?, words.next()?, words.next()?);
            Some((path.replace("\\040", " "), kind))
        })
    };
    let mounts_of_tracefs =
        list_mounts().filter(|(_, kind)| *kind == "tracefs").map(|(path, _)| PathBuf::from(path));
    // The default path is preferred over other mounts.
    let default = Path::new("/sys/kernel/tracing");
    let mounts_of_tracefs: Vec<PathBuf> = mounts_of_tracefs.collect();
    let best =
        mounts_of_tracefs.iter().find(|path| *path == default).or_else(|| mounts_of_tracefs.first()).cloned();
    let below_debugfs = || {
        list_mounts().find(|(_, kind)| *kind == "debugfs").map(|(path, _)| Path::new(&path).join("tracing"))
    };
    best.or_else(below_debugfs)
}

/// Returns whether this kernel has kprobes, which read paths as system calls received them; `None`
/// if tracefs is not mounted or not readable.
pub(crate) fn has_kprobes() -> Option<bool> {
    let folder = find_mount(&fs::read_to_string("/proc/self/mounts").ok()?)?;
    let is_readable = fs::read_dir(folder.join("events")).is_ok_and(|mut entries| entries.next().is_some());
    is_readable.then(|| folder.join("kprobe_events").exists())
}
