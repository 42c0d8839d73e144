//! Which socket of a process one is that the kernel names by an address only, by what /proc says now: best effort.
//!
//! ```text
//!   /proc/PID/net/udp    2: 0100007F:14E9 00000000:0000 07 … uid timeout inode ref pointer      every socket of its network
//!   /proc/PID/fd/N       socket:[inode]                                                         those of the process
//! ```
//!
//! 1. Where the kernel shows the address of a socket (`kptr_restrict` is 1), it is the one with that address.
//! 2. Else it is the only socket of that kind that the process has and that is none of those known already. Where there are several, nothing is said, unless all of them have the same
//!    ends, as those have that share a port.
//! 3. All of these texts are read up to a bound, and each line and each descriptor is looked at once.

use std::collections::{HashMap, HashSet};

use super::ends::Ends;
use crate::proc;

/// Bytes of a table of sockets that are looked at.
const MAX_TABLE: u64 = 1 << 20;
/// Descriptors of a process that are looked at.
const MAX_DESCRIPTORS: usize = 4096;

/// A socket of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) ends: Ends,
    pub(super) inode: u64,
    descriptor: u32,
}

impl Found {
    /// Whether the process still has it there.
    pub(super) fn is_there(&self, process: u32) -> bool {
        inode_of(process, self.descriptor) == Some(self.inode)
    }
}

/// One line of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Line {
    ends: Ends,
    inode: u64,
    pointer: u64,
}

/// The socket of a process, by its table (`udp`, `tcp`) and the kernel's address of it; `taken`: those that are known to be others.
pub(super) fn socket(table: &str, is_v6: bool, sk: u64, process: u32, taken: &HashSet<u64>) -> Option<Found> {
    let name = format!("/proc/{process}/net/{table}{}", if is_v6 { "6" } else { "" });
    let text = String::from_utf8(proc::read(&name, MAX_TABLE)?).ok()?;
    let lines: Vec<Line> = text.lines().filter_map(parse).collect();
    let own = descriptors(process);
    choose(&lines, |inode| own.get(&inode).copied(), sk, |inode| taken.contains(&inode))
}

/// The one among the lines that it is, if that can be told; `own`: where the process has a socket.
fn choose(
    lines: &[Line],
    own: impl Fn(u64) -> Option<u32>,
    sk: u64,
    is_taken: impl Fn(u64) -> bool,
) -> Option<Found> {
    let found = |line: &Line| {
        let descriptor = own(line.inode)?;
        Some(Found { ends: line.ends, inode: line.inode, descriptor })
    };
    if let Some(line) = lines.iter().find(|line| line.pointer == sk) {
        return found(line);
    }
    let mut rest = lines.iter().filter(|line| !is_taken(line.inode)).filter_map(found);
    let first = rest.next()?;
    rest.all(|other| other.ends == first.ends).then_some(first)
}

/// Sockets that a process has open: their inodes, and where.
fn descriptors(process: u32) -> HashMap<u64, u32> {
    let all = proc::descriptors_of(process).take(MAX_DESCRIPTORS);
    all.filter_map(|descriptor| Some((inode_of(process, descriptor)?, descriptor))).collect()
}

fn inode_of(process: u32, descriptor: u32) -> Option<u64> {
    let target = proc::target_of(process, descriptor)?;
    target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

/// `2: 0100007F:14E9 00000000:0000 07 00000000:00000000 00:00000000 00000000  0  0 31337 2 000000004a13a161 0`
fn parse(line: &str) -> Option<Line> {
    let mut words = line.split_ascii_whitespace();
    words.next()?;
    let (local, remote) = (end(words.next()?)?, end(words.next()?)?);
    let mut words = words.skip(6);
    let inode = words.next()?.parse().ok()?;
    words.next()?;
    let pointer = u64::from_str_radix(words.next()?, 16).ok()?;
    let ends = Ends::new((&local.0, local.1), (&remote.0, remote.1));
    Some(Line { ends, inode, pointer })
}

/// `0100007F:14E9`: words of four bytes, each as the machine reads it, and a port.
fn end(text: &str) -> Option<([u8; 16], u32)> {
    let (address, port) = text.split_once(':')?;
    let word = |at: usize| {
        let text = address.get(at.checked_mul(8)?..at.checked_mul(8)?.checked_add(8)?)?;
        Some(u32::from_str_radix(text, 16).ok()?.to_ne_bytes())
    };
    let words = match address.len() {
        8 => [[0; 4], [0; 4], [0, 0, 0xFF, 0xFF], word(0)?],
        32 => [word(0)?, word(1)?, word(2)?, word(3)?],
        _ => return None,
    };
    let mut bytes = [0; 16];
    bytes.iter_mut().zip(words.iter().flatten()).for_each(|(to, from)| *to = *from);
    Some((bytes, u32::from_str_radix(port, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn lines_of_a_table_are_read() {
        let text = "   2: 0100007F:14E9 0200000A:0035 07 00000000:00000000 00:00000000 00000000  0  0 31337 2 ffff888012345678 0";
        let line = parse(text).expect("a line");
        assert_eq!((line.inode, line.pointer), (31337, 0xffff_8880_1234_5678));
        let mut payload = Vec::new();
        line.ends.put(&mut payload, 0, 0, false);
        assert_eq!(payload[8..], [10, 0, 0, 2, 127, 0, 0, 1, 0, 0x35, 0x14, 0xE9]);
        let text =
            text.replace("0100007F", "00000000000000000000000001000000").replace("0200000A", &"0".repeat(32));
        let line = parse(&text).expect("a line");
        assert!(line.ends.is_v6);
    }

    #[test]
    fn what_is_no_line_is_none() {
        for text in [
            "",
            "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode",
            "0: 0100007F 0:0 07",
            "0: é100007F:1 00000000:0 07 0:0 0:0 0 0 0 1 2 3",
            "0: 0100007F:0001 00000000:0000 07 0:0 0:0 0 0 0 many 2 3",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_process_that_is_not_there_has_no_sockets() {
        assert_eq!(socket("udp", false, 1, u32::MAX, &HashSet::new()), None);
    }

    /// A line of a socket that is bound to a port.
    fn bound(port: u32, inode: u64) -> Line {
        let (local, remote) = (end("0100007F:0001").expect("an end"), end("00000000:0000").expect("an end"));
        Line { ends: Ends::new((&local.0, port), (&remote.0, 0)), inode, pointer: inode << 8 }
    }

    #[test]
    fn a_socket_is_the_one_that_is_left() {
        let lines = [bound(53, 1), bound(53, 2), bound(99, 3), bound(7, 4)];
        let own = HashMap::from([(1, 11), (2, 12), (3, 13)]);
        let port = |sk: u64, taken: &[u64]| {
            let found = choose(&lines, |it| own.get(&it).copied(), sk, |it| taken.contains(&it));
            found.map(|it| (it.ends.local_port(), it.inode))
        };
        assert_eq!(port(2 << 8, &[]), Some((53, 2)), "the kernel's address");
        assert_eq!(port(4 << 8, &[]), None, "another process's");
        assert_eq!(port(5, &[]), None, "several");
        assert_eq!(port(5, &[1, 2]), Some((99, 3)), "the last that is not known");
        assert_eq!(port(5, &[3]), Some((53, 1)), "both have the same port");
        assert_eq!(port(5, &[1, 2, 3]), None);
    }

    #[test]
    fn many_sockets_are_looked_at_once() {
        const MANY: u64 = 10_000;
        let lines: Vec<Line> = (0..MANY).map(|inode| bound(1, inode)).collect();
        let asked = [const { Cell::new(0) }; 2];
        let count = |at: usize| asked[at].set(asked[at].get() + 1);
        let own = |inode: u64| {
            count(0);
            inode.is_multiple_of(2).then_some(3)
        };
        let is_taken = |inode: u64| {
            count(1);
            inode.is_multiple_of(4)
        };
        assert_eq!(choose(&lines, own, 1, is_taken).map(|it| it.inode), Some(2));
        assert_eq!(
            asked.map(Cell::into_inner),
            [MANY - MANY / 4, MANY],
            "those that are others are not asked for"
        );
    }
}
