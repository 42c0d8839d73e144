//! Executable mappings of a process, from `/proc`.
//!
//! ```text
//!   /proc/PID/maps   7f61…000-7f62…000 r-xp 00026000 fe:00 326279    /usr/lib/libc.so.6
//!                    start    end        │  offset device inode      name, with line ends as \012
//!                                        x: executable
//! ```
//!
//! The kernel writes the lines, but any user can choose the names in them. The amount read for one
//! process is bounded.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::blocking::{self, READ_TIMEOUT};

/// The most bytes of one process's list that are read.
const MAX_LIST_BYTES: u64 = 64 << 20;
/// The most executable mappings of one process that are kept.
pub(crate) const MAX_MAPPINGS: usize = 1 << 14;
/// The most bytes of a name that are kept.
const MAX_NAME_BYTES: usize = 4096;

/// Name of memory without a file, here and in perf's records.
pub(crate) const ANONYMOUS: &str = "//anon";
/// Name of the code that the kernel maps into each process.
pub(crate) const VDSO: &str = "[vdso]";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CodeMapping {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) offset: u64,
    /// Major and minor number of the device.
    pub(crate) device: (u32, u32),
    pub(crate) inode: u64,
    pub(crate) name: String,
}

/// Returns the executable mappings of a process; none if it is gone or must not be inspected.
pub(crate) fn read_code_mappings(pid: u32) -> Vec<CodeMapping> {
    let read =
        move || File::open(format!("/proc/{pid}/maps")).map_or_else(|_| Vec::new(), parse_code_mappings);
    // A process that keeps changing its mappings can block this read, so it has a timeout.
    blocking::run_for_process(pid, READ_TIMEOUT, read).unwrap_or_default()
}

/// Returns the executable mappings in a list.
pub(crate) fn parse_code_mappings(list: impl Read) -> Vec<CodeMapping> {
    let mut lines = BufReader::with_capacity(16 << 10, list.take(MAX_LIST_BYTES));
    let (mut line, mut mappings) = (Vec::new(), Vec::new());
    loop {
        line.clear();
        match lines.read_until(b'\n', &mut line) {
            Ok(1..) if mappings.len() < MAX_MAPPINGS => mappings.extend(parse_line(line.trim_ascii_end())),
            _ => return mappings,
        }
    }
}

fn parse_line(line: &[u8]) -> Option<CodeMapping> {
    let mut remaining = line;
    let mut next_word = || {
        let end = remaining.iter().position(|byte| *byte == b' ').unwrap_or(remaining.len());
        let (word, after) = remaining.split_at_checked(end)?;
        remaining = after.trim_ascii_start();
        std::str::from_utf8(word).ok()
    };
    let (range, rights, offset, device, inode) =
        (next_word()?, next_word()?, next_word()?, next_word()?, next_word()?);
    let (start, end) = range.split_once('-')?;
    let hex = |digits| u64::from_str_radix(digits, 16).ok();
    let (start, end, offset) = (hex(start)?, hex(end)?, hex(offset)?);
    // `[vsyscall]`, a page at the top of the address space, is listed for each process but belongs
    // to none.
    let is_code = rights.as_bytes().get(2) == Some(&b'x') && start < end && remaining != b"[vsyscall]";
    let (major, minor) = device.split_once(':')?;
    let device = (u32::from_str_radix(major, 16).ok()?, u32::from_str_radix(minor, 16).ok()?);
    let inode = inode.parse().ok()?;
    is_code.then(|| CodeMapping {
        start,
        end,
        offset,
        device,
        inode,
        name: image_name(&unescape_newlines(remaining)),
    })
}

/// Replaces `\012` with a line end. The kernel escapes nothing else.
fn unescape_newlines(name: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(name.len());
    let mut remaining = name;
    while let Some((byte, after)) = remaining.split_first() {
        remaining = after.strip_prefix(b"012").filter(|_| *byte == b'\\').unwrap_or(after);
        out.push(if remaining.len() == after.len() { *byte } else { b'\n' });
    }
    out
}

/// Returns the image name of a mapping, without the suffix ` (deleted)`: the build id identifies a
/// deleted file.
pub(crate) fn image_name(name: &[u8]) -> String {
    let name = name.strip_suffix(b" (deleted)").unwrap_or(name);
    if name.is_empty() || name.starts_with(b"[anon:") {
        return ANONYMOUS.to_owned();
    }
    String::from_utf8_lossy(name.get(..MAX_NAME_BYTES).unwrap_or(name)).into_owned()
}

/// Returns whether a mapping name is the path of a file.
pub(crate) fn is_file_path(name: &str) -> bool {
    name.starts_with('/') && name != ANONYMOUS
}

/// Returns the size of the pages in which files are mapped.
pub(crate) fn page_size() -> u64 {
    u64::try_from(rustix::param::page_size()).unwrap_or(4096).max(1)
}

/// Rounds an address down to its page.
pub(crate) fn page_start(address: u64) -> u64 {
    address & !page_size().wrapping_sub(1)
}

pub(crate) fn count_threads(pid: u32) -> u32 {
    // A directory has one link for itself, one in its parent, and one in each subdirectory.
    let task = Path::new("/proc").join(pid.to_string()).join("task");
    let links = task.metadata().map_or(0, |folder| folder.nlink());
    u32::try_from(links.saturating_sub(2)).unwrap_or(u32::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_executable_mappings_are_parsed() {
        let list = b"00400000-00401000 r--p 00000000 fe:00 12 /bin/a b\n\
            00401000-00402000 r-xp 00001000 fe:00 12                     /bin/a b (deleted)\n\
            7f0000000000-7f0000001000 rwxp 00000000 00:00 0 \n\
            7f0000002000-7f0000003000 r-xp 00000000 00:00 0 [anon:jit]\n\
            7f0000004000-7f0000005000 r-xs 00002000 00:01 9 /tmp/a\\012b\\x\n\
            ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0 [vsyscall]\n\
            nonsense\n7f-zz r-xp 0 0 0\n7f0000009000-7f0000008000 r-xp 0 0 0 x\n";
        let mappings = parse_code_mappings(&list[..]);
        let names: Vec<_> = mappings
            .iter()
            .map(|mapping| (mapping.start, mapping.offset, mapping.inode, mapping.name.as_str()))
            .collect();
        assert_eq!(mappings[0].device, (0xFE, 0));
        assert_eq!(
            names,
            [
                (0x40_1000, 0x1000, 12, "/bin/a b"),
                (0x7F00_0000_0000, 0, 0, ANONYMOUS),
                (0x7F00_0000_2000, 0, 0, ANONYMOUS),
                (0x7F00_0000_4000, 0x2000, 9, "/tmp/a\nb\\x"),
            ]
        );
    }

    #[test]
    fn own_process_has_code_and_threads() {
        let mappings = read_code_mappings(std::process::id());
        assert!(mappings.iter().any(|mapping| is_file_path(&mapping.name)), "{mappings:?}");
        assert!(count_threads(std::process::id()) >= 1);
        assert_eq!(read_code_mappings(u32::MAX), []);
    }
}
