//! The file system in which the kernel describes tracepoints.

use std::fs;
use std::path::{Path, PathBuf};

/// Returns where a table of mounts has tracefs: by itself, else below debugfs.
pub(crate) fn find_mount(mounts: &str) -> Option<PathBuf> {
    let all = || {
        mounts.lines().filter_map(|line| {
            let mut words = line.split(' ');
            let (_, path, kind) = (words.next()?, words.next()?, words.next()?);
            Some((path.replace("\\040", " "), kind))
        })
    };
    let own = all().filter(|(_, kind)| *kind == "tracefs").map(|(path, _)| PathBuf::from(path));
    // The usual path is preferred over other mounts.
    let usual = Path::new("/sys/kernel/tracing");
    let own: Vec<PathBuf> = own.collect();
    let best = own.iter().find(|path| *path == usual).or_else(|| own.first()).cloned();
    let older =
        || all().find(|(_, kind)| *kind == "debugfs").map(|(path, _)| Path::new(&path).join("tracing"));
    best.or_else(older)
}

/// Returns whether this kernel has kprobes, which read paths as system calls received them; `None`
/// if tracefs is not mounted or not readable.
pub(crate) fn has_kprobes() -> Option<bool> {
    let folder = find_mount(&fs::read_to_string("/proc/self/mounts").ok()?)?;
    let is_readable = fs::read_dir(folder.join("events")).is_ok_and(|mut entries| entries.next().is_some());
    is_readable.then(|| folder.join("kprobe_events").exists())
}
