//! Where facts about the machine are read: files below a folder, which is `/` but in tests.
//!
//! What /proc and /sys say comes from the kernel; names and labels in it from firmware, devices and administrators. Reads are bounded, and what is no plain file is not opened.

use crate::patient::{self, PATIENCE};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags};

/// Bytes that are read of a file; /proc/cpuinfo takes more than a kilobyte for each processor.
const MAX_TEXT: u64 = 16 << 20;
/// Names that are taken of a folder.
const MAX_NAMES: usize = 4096;

/// Files about a machine.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    root: PathBuf,
}

/// How full a file system is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Space {
    pub(crate) block_bytes: u64,
    pub(crate) blocks: u64,
    pub(crate) free: u64,
}

impl Source {
    pub(crate) fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Whether it is this machine, which can be asked for what is in no file.
    pub(crate) fn is_here(&self) -> bool {
        self.root == Path::new("/")
    }

    fn at(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    pub(crate) fn has(&self, path: &str) -> bool {
        self.at(path).exists()
    }

    pub(crate) fn bytes(&self, path: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let Ok(file) = rustix::fs::open(self.at(path), flags, Mode::empty()) else { return bytes };
        let kind = rustix::fs::fstat(&file).map(|it| FileType::from_raw_mode(it.st_mode));
        if kind == Ok(FileType::RegularFile) {
            // What was read before an error counts.
            let _ = File::from(file).take(MAX_TEXT).read_to_end(&mut bytes);
        }
        bytes
    }

    /// The text of a file without blanks around it; nothing where there is none. NULs end texts in events, so there are none.
    pub(crate) fn text(&self, path: &str) -> String {
        let bytes = self.bytes(path);
        String::from_utf8_lossy(bytes.trim_ascii()).replace('\0', " ")
    }

    /// The number that a file holds.
    pub(crate) fn number(&self, path: &str) -> u64 {
        self.text(path).parse().unwrap_or(0)
    }

    /// What lies in a folder, in order.
    pub(crate) fn names(&self, path: &str) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(self.at(path)) else { return Vec::new() };
        let name = |entry: std::io::Result<std::fs::DirEntry>| entry.ok()?.file_name().into_string().ok();
        let mut names: Vec<String> = entries.filter_map(name).take(MAX_NAMES).collect();
        names.sort_unstable();
        names
    }

    /// The last part of what a link leads to.
    pub(crate) fn link(&self, path: &str) -> Option<String> {
        let link = std::fs::read_link(self.at(path)).ok()?;
        Some(link.file_name()?.to_str()?.to_owned())
    }

    /// How full the file system at a path is.
    pub(crate) fn space(&self, path: &str) -> Space {
        let path = path.to_owned();
        let ask = move || rustix::fs::statvfs(path).ok();
        let found = self.is_here().then(|| patient::within(PATIENCE, ask)).flatten().flatten();
        found.map_or_else(Space::default, |it| Space {
            block_bytes: it.f_frsize,
            blocks: it.f_blocks,
            free: it.f_bfree,
        })
    }
}

/// A list of numbers as the kernel writes it: `0-3,8`. Numbers from `below` on are left out.
pub(crate) fn list(text: &str, below: u32) -> Vec<u32> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.trim().parse().ok()?..=last.trim().parse::<u32>().ok()?.min(below.checked_sub(1)?))
    };
    let mut numbers: Vec<u32> = text.split(',').take(MAX_NAMES).filter_map(range).flatten().collect();
    numbers.truncate(usize::try_from(below).unwrap_or(usize::MAX));
    numbers
}

/// The lowest 64 bits of a mask as the kernel writes it: `ff,ffffffff`.
pub(crate) fn mask(text: &str) -> u64 {
    let mut words = text.rsplit(',').map(|word| u64::from_str_radix(word.trim(), 16).unwrap_or(0));
    let (low, high) = (words.next().unwrap_or(0), words.next().unwrap_or(0));
    low & 0xFFFF_FFFF | high << 32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_masks_are_read_within_bounds() {
        assert_eq!(list("0-3,8", 4096), [0, 1, 2, 3, 8]);
        assert_eq!(list("0-4294967295", 3), [0, 1, 2]);
        assert_eq!(list("0-2,0-2,0-2", 4), [0, 1, 2, 0], "no more than there can be");
        assert_eq!(list("", 8), [] as [u32; 0]);
        assert_eq!(list("x,3-1,5-", 8), [] as [u32; 0]);
        assert_eq!(mask("ff,00000001\n"), 0xFF_0000_0001);
        assert_eq!(mask("3"), 3);
        assert_eq!(mask("no"), 0);
    }

    #[test]
    fn pipes_and_missing_files_say_nothing() {
        let root = tempfile::tempdir().unwrap();
        let pipe = root.path().join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        std::fs::write(root.path().join("text"), " a\0b \n").unwrap();
        let source = Source::new(root.path());
        assert_eq!((source.text("/pipe"), source.text("/none")), (String::new(), String::new()));
        assert_eq!(source.text("/text"), "a b");
        assert_eq!((source.number("/text"), source.names("/none")), (0, Vec::<String>::new()));
    }
}
