//! The files that the configuration is read from, below a directory that is `/` except in tests.
//!
//! The kernel writes `/proc` and `/sys`, but names and labels in them come from firmware, devices
//! and administrators. Reads are bounded, and only regular files are read.

use crate::blocking::{self, READ_TIMEOUT};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags};

/// The most bytes of a file that are read; `/proc/cpuinfo` takes more than a kilobyte for each
/// processor.
const MAX_FILE_BYTES: u64 = 16 << 20;
/// The most names of a directory, and the most ranges of a list, that are read.
const MAX_NAMES: usize = 4096;

/// The configuration files of a machine.
#[derive(Clone, Debug)]
pub(crate) struct MachineFiles {
    root: PathBuf,
}

/// Total and free space of a file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FileSystemSpace {
    pub(crate) block_bytes: u64,
    pub(crate) total_blocks: u64,
    pub(crate) free_blocks: u64,
}

impl MachineFiles {
    pub(crate) fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Returns whether the files are those of this machine, so that system calls can query it too.
    pub(crate) fn is_this_machine(&self) -> bool {
        self.root == Path::new("/")
    }

    fn full_path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    pub(crate) fn has_path(&self, path: &str) -> bool {
        self.full_path(path).exists()
    }

    pub(crate) fn read_bytes(&self, path: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let Ok(file) = rustix::fs::open(self.full_path(path), flags, Mode::empty()) else { return bytes };
        let kind = rustix::fs::fstat(&file).map(|stat| FileType::from_raw_mode(stat.st_mode));
        if kind == Ok(FileType::RegularFile) {
            // Bytes read before an error are used.
            let _ = File::from(file).take(MAX_FILE_BYTES).read_to_end(&mut bytes);
        }
        bytes
    }

    /// Returns the trimmed text of a file; empty if the file is missing. NULs, which end texts in
    /// events, are replaced by blanks.
    pub(crate) fn read_text(&self, path: &str) -> String {
        let bytes = self.read_bytes(path);
        String::from_utf8_lossy(bytes.trim_ascii()).replace('\0', " ")
    }

    /// Returns the number in a file; 0 if there is none.
    pub(crate) fn read_number(&self, path: &str) -> u64 {
        self.read_text(path).parse().unwrap_or(0)
    }

    /// Returns the names in a directory, sorted.
    pub(crate) fn list_names(&self, path: &str) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(self.full_path(path)) else { return Vec::new() };
        let name = |entry: std::io::Result<std::fs::DirEntry>| entry.ok()?.file_name().into_string().ok();
        let mut names: Vec<String> = entries.filter_map(name).take(MAX_NAMES).collect();
        names.sort_unstable();
        names
    }

    /// Returns the last component of a link's target.
    pub(crate) fn read_link_name(&self, path: &str) -> Option<String> {
        let link = std::fs::read_link(self.full_path(path)).ok()?;
        Some(link.file_name()?.to_str()?.to_owned())
    }

    /// Returns the space of the file system at a path; zeros if it is unknown or the file
    /// system does not answer in time.
    pub(crate) fn query_space(&self, path: &str) -> FileSystemSpace {
        let path = path.to_owned();
        let query = move || rustix::fs::statvfs(path).ok();
        let stat = self
            .is_this_machine()
            .then(|| blocking::run_with_timeout(READ_TIMEOUT, query))
            .flatten()
            .flatten();
        stat.map_or_else(FileSystemSpace::default, |stat| FileSystemSpace {
            block_bytes: stat.f_frsize,
            total_blocks: stat.f_blocks,
            free_blocks: stat.f_bfree,
        })
    }
}

/// Parses a list of numbers as the kernel writes it: `0-3,8`. Leaves out numbers from `limit` on,
/// and returns at most `limit` numbers.
pub(crate) fn parse_list(text: &str, limit: u32) -> Vec<u32> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.trim().parse().ok()?..=last.trim().parse::<u32>().ok()?.min(limit.checked_sub(1)?))
    };
    let mut numbers: Vec<u32> = text.split(',').take(MAX_NAMES).filter_map(range).flatten().collect();
    numbers.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
    numbers
}

/// Returns the lowest 64 bits of a mask as the kernel writes it: `ff,ffffffff`.
pub(crate) fn parse_mask(text: &str) -> u64 {
    let mut words = text.rsplit(',').map(|word| u64::from_str_radix(word.trim(), 16).unwrap_or(0));
    let (low, high) = (words.next().unwrap_or(0), words.next().unwrap_or(0));
    low & 0xFFFF_FFFF | high << 32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_masks_are_parsed_within_bounds() {
        assert_eq!(parse_list("0-3,8", 4096), [0, 1, 2, 3, 8]);
        assert_eq!(parse_list("0-4294967295", 3), [0, 1, 2]);
        assert_eq!(parse_list("0-2,0-2,0-2", 4), [0, 1, 2, 0], "more than `limit` numbers");
        assert_eq!(parse_list("", 8), [] as [u32; 0]);
        assert_eq!(parse_list("x,3-1,5-", 8), [] as [u32; 0]);
        assert_eq!(parse_mask("ff,00000001\n"), 0xFF_0000_0001);
        assert_eq!(parse_mask("3"), 3);
        assert_eq!(parse_mask("no"), 0);
    }

    #[test]
    fn pipes_and_missing_files_are_empty() {
        let root = tempfile::tempdir().unwrap();
        let pipe = root.path().join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        std::fs::write(root.path().join("text"), " a\0b \n").unwrap();
        let files = MachineFiles::new(root.path());
        assert_eq!((files.read_text("/pipe"), files.read_text("/none")), (String::new(), String::new()));
        assert_eq!(files.read_text("/text"), "a b");
        assert_eq!((files.read_number("/text"), files.list_names("/none")), (0, Vec::<String>::new()));
    }
}
