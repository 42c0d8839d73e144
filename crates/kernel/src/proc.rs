//! What several look at in `/proc`: numbers in folders, texts, and where descriptors lead.
//!
//! Whatever is gone meanwhile is nothing, not an error. Links are read, never followed; who follows one does it with [patience](crate::patient).

use std::fs::{self, File};
use std::io::Read;
use std::path::PathBuf;

/// All processes.
pub(crate) fn processes() -> impl Iterator<Item = u32> {
    numbers("/proc")
}

/// The threads of a process.
pub(crate) fn threads_of(process: u32) -> impl Iterator<Item = u32> {
    numbers(&format!("/proc/{process}/task"))
}

/// The descriptors that a process has open.
pub(crate) fn descriptors_of(process: u32) -> impl Iterator<Item = u32> {
    numbers(&format!("/proc/{process}/fd"))
}

/// The numbers among the names of a folder.
fn numbers(folder: &str) -> impl Iterator<Item = u32> + use<> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// The link that a descriptor of a process is.
pub(crate) fn link_of(process: u32, descriptor: u32) -> String {
    format!("/proc/{process}/fd/{descriptor}")
}

/// What a descriptor of a process leads to, by name.
pub(crate) fn target_of(process: u32, descriptor: u32) -> Option<PathBuf> {
    fs::read_link(link_of(process, descriptor)).ok()
}

/// A text, up to so many bytes.
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
    fn this_process_is_found_with_its_threads_and_descriptors() {
        let me = std::process::id();
        assert!(processes().any(|it| it == me) && threads_of(me).any(|it| it == me));
        let file = File::open("/dev/null").unwrap();
        let number = u32::try_from(file.as_raw_fd()).unwrap();
        assert!(descriptors_of(me).any(|it| it == number));
        assert_eq!(target_of(me, number), Some("/dev/null".into()));
        assert_eq!(read("/proc/self/comm", 1).map(|it| it.len()), Some(1));
    }

    #[test]
    fn what_is_gone_is_nothing() {
        assert_eq!((threads_of(u32::MAX).count(), descriptors_of(u32::MAX).count()), (0, 0));
        assert_eq!((target_of(u32::MAX, 0), read("/proc/4294967295/stat", 9)), (None, None));
    }
}
