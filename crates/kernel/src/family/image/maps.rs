//! What a process has mapped as code, as /proc tells.
//!
//! ```text
//!   /proc/PID/maps   7f61…000-7f62…000 r-xp 00026000 fe:00 326279    /usr/lib/libc.so.6
//!                    start    end        │  offset         inode     name, with line ends as \012
//! ```
//!
//! Lines come from the kernel, names in them from anybody. What is read of one process is bounded.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::patient::{self, PATIENCE};

/// Bytes that are read of the list of one process.
const MAX_BYTES: u64 = 64 << 20;
/// Mappings of code that are taken of one process.
pub(crate) const MAX_MAPPINGS: usize = 1 << 14;
/// Bytes of a name that are kept.
const MAX_NAME: usize = 4096;

/// How memory without a file is called, here as in perf's records.
pub(crate) const ANONYMOUS: &str = "//anon";
/// The kernel's code in each process.
pub(crate) const VDSO: &str = "[vdso]";

/// A mapping of code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mapped {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) offset: u64,
    /// Major and minor number.
    pub(crate) device: (u32, u32),
    pub(crate) inode: u64,
    pub(crate) name: String,
}

/// The mappings of code of a process; none where it is gone or not to be looked at.
pub(crate) fn code_of(pid: u32) -> Vec<Mapped> {
    let read = move || File::open(format!("/proc/{pid}/maps")).map_or_else(|_| Vec::new(), code_in);
    // Who changes its mappings for ever keeps us from reading them.
    patient::within_of(pid, PATIENCE, read).unwrap_or_default()
}

/// The mappings of code in a list.
pub(crate) fn code_in(list: impl Read) -> Vec<Mapped> {
    let mut lines = BufReader::with_capacity(16 << 10, list.take(MAX_BYTES));
    let (mut line, mut found) = (Vec::new(), Vec::new());
    loop {
        line.clear();
        match lines.read_until(b'\n', &mut line) {
            Ok(1..) if found.len() < MAX_MAPPINGS => found.extend(code_of_line(line.trim_ascii_end())),
            _ => return found,
        }
    }
}

fn code_of_line(line: &[u8]) -> Option<Mapped> {
    let mut rest = line;
    let mut word = || {
        let at = rest.iter().position(|byte| *byte == b' ').unwrap_or(rest.len());
        let (word, behind) = rest.split_at_checked(at)?;
        rest = behind.trim_ascii_start();
        std::str::from_utf8(word).ok()
    };
    let (range, rights, offset, device, inode) = (word()?, word()?, word()?, word()?, word()?);
    let (start, end) = range.split_once('-')?;
    let hex = |digits| u64::from_str_radix(digits, 16).ok();
    let (start, end, offset) = (hex(start)?, hex(end)?, hex(offset)?);
    // One page at the top of the address space is called like a mapping of each process and belongs to none.
    let is_code = rights.as_bytes().get(2) == Some(&b'x') && start < end && rest != b"[vsyscall]";
    let (major, minor) = device.split_once(':')?;
    let device = (u32::from_str_radix(major, 16).ok()?, u32::from_str_radix(minor, 16).ok()?);
    let inode = inode.parse().ok()?;
    is_code.then(|| Mapped { start, end, offset, device, inode, name: name_of(&unescaped(rest)) })
}

/// Line ends are written as a backslash and three digits; nothing else is.
fn unescaped(name: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(name.len());
    let mut rest = name;
    while let Some((byte, behind)) = rest.split_first() {
        rest = behind.strip_prefix(b"012").filter(|_| *byte == b'\\').unwrap_or(behind);
        out.push(if rest.len() == behind.len() { *byte } else { b'\n' });
    }
    out
}

/// The name of an image: without the remark that its file is there no more, which a build id tells better.
pub(crate) fn name_of(name: &[u8]) -> String {
    let name = name.strip_suffix(b" (deleted)").unwrap_or(name);
    if name.is_empty() || name.starts_with(b"[anon:") {
        return ANONYMOUS.to_owned();
    }
    String::from_utf8_lossy(name.get(..MAX_NAME).unwrap_or(name)).into_owned()
}

/// Whether a name is that of a file.
pub(crate) fn is_file(name: &str) -> bool {
    name.starts_with('/') && name != ANONYMOUS
}

/// How many threads a process has.
pub(crate) fn threads_of(pid: u32) -> u32 {
    // A folder has a link for itself, one in its parent, and one in each folder in it.
    let links = Path::new("/proc").join(pid.to_string()).join("task").metadata().map_or(0, |it| it.nlink());
    u32::try_from(links.saturating_sub(2)).unwrap_or(u32::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_code_are_taken_and_others_are_not() {
        let list = b"00400000-00401000 r--p 00000000 fe:00 12 /bin/a b\n\
            00401000-00402000 r-xp 00001000 fe:00 12                     /bin/a b (deleted)\n\
            7f0000000000-7f0000001000 rwxp 00000000 00:00 0 \n\
            7f0000002000-7f0000003000 r-xp 00000000 00:00 0 [anon:jit]\n\
            7f0000004000-7f0000005000 r-xs 00002000 00:01 9 /tmp/a\\012b\\x\n\
            ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0 [vsyscall]\n\
            nonsense\n7f-zz r-xp 0 0 0\n7f0000009000-7f0000008000 r-xp 0 0 0 x\n";
        let found = code_in(&list[..]);
        let names: Vec<_> =
            found.iter().map(|it| (it.start, it.offset, it.inode, it.name.as_str())).collect();
        assert_eq!(found[0].device, (0xFE, 0));
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
    fn this_process_has_code_and_threads() {
        let found = code_of(std::process::id());
        assert!(found.iter().any(|it| is_file(&it.name)), "{found:?}");
        assert!(threads_of(std::process::id()) >= 1);
        assert_eq!(code_of(u32::MAX), []);
    }
}
