//! Access to `/proc` for several families: ids in directories, file contents, descriptor links.
//!
//! Entries that are gone or unreadable yield nothing, not an error. Links are read here, never
//! followed; other modules follow them with a timeout ([`blocking`](crate::blocking)).

use std::fs::{self, File};
use std::io::Read;
use std::path::PathBuf;

pub(crate) fn list_processes() -> impl Iterator<Item = u32> {
    list_numbers("/proc")
}

pub(crate) fn list_threads(process: u32) -> impl Iterator<Item = u32> {
    list_numbers(&format!("/proc/{process}/task"))
}

/// Lists the numbers of the open file descriptors of a process.
pub(crate) fn list_descriptors(process: u32) -> impl Iterator<Item = u32> {
    list_numbers(&format!("/proc/{process}/fd"))
}

/// Lists the entries of a directory whose names are numbers.
fn list_numbers(folder: &str) -> impl Iterator<Item = u32> + use<> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Returns the path of the link for a file descriptor of a process.
pub(crate) fn fd_link_path(process: u32, descriptor: u32) -> String {
    format!("/proc/{process}/fd/{descriptor}")
}

/// Returns the path that the link of a file descriptor contains.
pub(crate) fn read_fd_target(process: u32, descriptor: u32) -> Option<PathBuf> {
    fs::read_link(fd_link_path(process, descriptor)).ok()
}

/// Reads a file, at most the first `max_bytes` bytes.
pub(crate) fn read_file(path: &str, max_bytes: u64) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(max_bytes).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn own_process_is_listed_with_its_threads_and_descriptors() {
        let own_pid = std::process::id();
        assert!(
            list_processes().any(|pid| pid == own_pid) && list_threads(own_pid).any(|tid| tid == own_pid)
        );
        let file = File::open("/dev/null").unwrap();
        let number = u32::try_from(file.as_raw_fd()).unwrap();
        assert!(list_descriptors(own_pid).any(|descriptor| descriptor == number));
        assert_eq!(read_fd_target(own_pid, number), Some("/dev/null".into()));
        assert_eq!(read_file("/proc/self/comm", 1).map(|bytes| bytes.len()), Some(1));
    }

    #[test]
    fn missing_processes_yield_nothing() {
        assert_eq!((list_threads(u32::MAX).count(), list_descriptors(u32::MAX).count()), (0, 0));
        assert_eq!((read_fd_target(u32::MAX, 0), read_file("/proc/4294967295/stat", 9)), (None, None));
    }
}
