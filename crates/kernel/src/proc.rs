//! Access to `/proc` for several families: ids in directories, file contents, descriptor links.
//!
//! Entries that have disappeared yield nothing, not an error. Links are read, never followed;
//! code that follows one does so with a timeout ([`patient`](crate::blocking)).

use std::fs::{self, File};
use std::io::Read;
use std::path::PathBuf;

/// Lists the ids of all processes.
pub(crate) fn processes() -> impl Iterator<Item = u32> {
    numbers("/proc")
}

/// Lists the thread ids of a process.
pub(crate) fn threads_of(process: u32) -> impl Iterator<Item = u32> {
    numbers(&format!("/proc/{process}/task"))
}

/// Lists the numbers of the open file descriptors of a process.
pub(crate) fn descriptors_of(process: u32) -> impl Iterator<Item = u32> {
    numbers(&format!("/proc/{process}/fd"))
}

/// Lists the entries of a directory whose names are numbers.
fn numbers(folder: &str) -> impl Iterator<Item = u32> + use<> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Returns the path of the link for a file descriptor of a process.
pub(crate) fn link_of(process: u32, descriptor: u32) -> String {
    format!("/proc/{process}/fd/{descriptor}")
}

/// Returns the path that the link of a file descriptor contains.
pub(crate) fn target_of(process: u32, descriptor: u32) -> Option<PathBuf> {
    fs::read_link(link_of(process, descriptor)).ok()
}

/// Reads a file, at most the first `most` bytes.
pub(crate) fn read(path: &str, most: u64) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(most).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn own_process_is_listed_with_its_threads_and_descriptors() {
        let me = std::process::id();
        assert!(processes().any(|pid| pid == me) && threads_of(me).any(|tid| tid == me));
        let file = File::open("/dev/null").unwrap();
        let number = u32::try_from(file.as_raw_fd()).unwrap();
        assert!(descriptors_of(me).any(|descriptor| descriptor == number));
        assert_eq!(target_of(me, number), Some("/dev/null".into()));
        assert_eq!(read("/proc/self/comm", 1).map(|bytes| bytes.len()), Some(1));
    }

    #[test]
    fn missing_processes_yield_nothing() {
        assert_eq!((threads_of(u32::MAX).count(), descriptors_of(u32::MAX).count()), (0, 0));
        assert_eq!((target_of(u32::MAX, 0), read("/proc/4294967295/stat", 9)), (None, None));
    }
}
