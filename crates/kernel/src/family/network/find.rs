//! Finds a socket in `/proc` if only its address in the kernel's memory is known. The search does
//! not always succeed.
//!
//! ```text
//!   /proc/PID/net/udp    2: 0100007F:14E9 00000000:0000 07 … uid timeout inode ref pointer
//!                        every socket of the network namespace
//!   /proc/PID/fd/N       socket:[inode]
//!                        the sockets of the process
//! ```
//!
//! 1. If `/proc` shows addresses of the kernel's memory (`kptr_restrict` is 1, and the reader has
//!    `CAP_SYSLOG`), the socket is the one with the known address.
//! 2. Otherwise the candidates are the process's sockets of that protocol; for UDP, without those
//!    that are already known. Several candidates give `None`, unless all of them have the same
//!    addresses and ports, as sockets that share a port do.
//! 3. All files are read up to a bound, and each line and each descriptor is inspected once.

use std::collections::{HashMap, HashSet};

use super::endpoints::Endpoints;
use crate::proc;

/// The most bytes of a socket table that are read.
const MAX_TABLE_BYTES: u64 = 1 << 20;
/// The most descriptors of a process that are inspected.
const MAX_DESCRIPTORS: usize = 4096;

/// A socket of a process, as `/proc` shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ProcSocket {
    pub(super) endpoints: Endpoints,
    pub(super) inode: u64,
    descriptor: u32,
}

impl ProcSocket {
    /// Returns whether the descriptor of the process still refers to this socket.
    pub(super) fn is_open(&self, process: u32) -> bool {
        read_socket_inode(process, self.descriptor) == Some(self.inode)
    }
}

/// One line of a socket table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SocketTableLine {
    endpoints: Endpoints,
    inode: u64,
    pointer: u64,
}

/// Finds a socket of a process in `table` (`udp`, `tcp`) by its address in the kernel's memory,
/// `sk`. `taken`: inodes of the process's other known sockets; empty for TCP, whose inodes are not
/// kept.
pub(super) fn find_socket(
    table: &str,
    is_v6: bool,
    sk: u64,
    process: u32,
    taken: &HashSet<u64>,
) -> Option<ProcSocket> {
    let name = format!("/proc/{process}/net/{table}{}", if is_v6 { "6" } else { "" });
    let text = String::from_utf8(proc::read_file(&name, MAX_TABLE_BYTES)?).ok()?;
    let lines: Vec<SocketTableLine> = text.lines().filter_map(parse_line).collect();
    let own_descriptors = list_socket_descriptors(process);
    choose_socket(&lines, |inode| own_descriptors.get(&inode).copied(), sk, |inode| taken.contains(&inode))
}

/// Chooses the line of a socket, unless several candidates have different endpoints.
/// `find_descriptor` returns the process's descriptor for an inode.
fn choose_socket(
    lines: &[SocketTableLine],
    find_descriptor: impl Fn(u64) -> Option<u32>,
    sk: u64,
    is_taken: impl Fn(u64) -> bool,
) -> Option<ProcSocket> {
    let to_socket = |line: &SocketTableLine| {
        let descriptor = find_descriptor(line.inode)?;
        Some(ProcSocket { endpoints: line.endpoints, inode: line.inode, descriptor })
    };
    if let Some(line) = lines.iter().find(|line| line.pointer == sk) {
        return to_socket(line);
    }
    let mut candidates = lines.iter().filter(|line| !is_taken(line.inode)).filter_map(to_socket);
    let first = candidates.next()?;
    candidates.all(|other| other.endpoints == first.endpoints).then_some(first)
}

/// Returns the descriptors of a process's sockets, by inode.
fn list_socket_descriptors(process: u32) -> HashMap<u64, u32> {
    let descriptors = proc::list_descriptors(process).take(MAX_DESCRIPTORS);
    descriptors.filter_map(|descriptor| Some((read_socket_inode(process, descriptor)?, descriptor))).collect()
}

fn read_socket_inode(process: u32, descriptor: u32) -> Option<u64> {
    let target = proc::read_fd_target(process, descriptor)?;
    target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

/// Parses a line of a socket table:
/// `2: 0100007F:14E9 00000000:0000 07 00000000:00000000 00:00000000 00000000  0  0 31337 2
/// 000000004a13a161 0`
fn parse_line(line: &str) -> Option<SocketTableLine> {
    let mut words = line.split_ascii_whitespace();
    words.next()?;
    let (local, remote) = (parse_address(words.next()?)?, parse_address(words.next()?)?);
    // State, queues, timer, retransmits, user, timeout.
    let mut words = words.skip(6);
    let inode = words.next()?.parse().ok()?;
    words.next()?;
    let pointer = u64::from_str_radix(words.next()?, 16).ok()?;
    let endpoints = Endpoints::new((&local.0, local.1), (&remote.0, remote.1));
    Some(SocketTableLine { endpoints, inode, pointer })
}

/// Parses an address and a port such as `0100007F:14E9`. Every four bytes of the address are a
/// number in the machine's byte order.
fn parse_address(text: &str) -> Option<([u8; 16], u32)> {
    let (address, port) = text.split_once(':')?;
    let word = |index: usize| {
        let start = index.checked_mul(8)?;
        let text = address.get(start..start.checked_add(8)?)?;
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
    fn socket_table_lines_are_parsed() {
        let text = "   2: 0100007F:14E9 0200000A:0035 07 00000000:00000000 00:00000000 00000000  0  0 \
            31337 2 ffff888012345678 0";
        let line = parse_line(text).expect("invalid line");
        assert_eq!((line.inode, line.pointer), (31337, 0xffff_8880_1234_5678));
        let [remote, local] = line.endpoints.destination_and_source(false);
        assert_eq!((remote.ipv4_address(), remote.port), ([10, 0, 0, 2], 0x35));
        assert_eq!((local.ipv4_address(), local.port), ([127, 0, 0, 1], 0x14E9));
        let text =
            text.replace("0100007F", "00000000000000000000000001000000").replace("0200000A", &"0".repeat(32));
        let line = parse_line(&text).expect("invalid line");
        assert!(line.endpoints.is_v6);
    }

    #[test]
    fn malformed_lines_are_rejected() {
        for text in [
            "",
            "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode",
            "0: 0100007F 0:0 07",
            "0: é100007F:1 00000000:0 07 0:0 0:0 0 0 0 1 2 3",
            "0: 0100007F:0001 00000000:0000 07 0:0 0:0 0 0 0 many 2 3",
        ] {
            assert_eq!(parse_line(text), None, "{text}");
        }
    }

    #[test]
    fn missing_process_has_no_sockets() {
        assert_eq!(find_socket("udp", false, 1, u32::MAX, &HashSet::new()), None);
    }

    /// Builds the line of a socket that is bound to a port.
    fn build_bound_line(port: u32, inode: u64) -> SocketTableLine {
        let parse = |text| parse_address(text).expect("invalid address");
        let (local, remote) = (parse("0100007F:0001"), parse("00000000:0000"));
        SocketTableLine {
            endpoints: Endpoints::new((&local.0, port), (&remote.0, 0)),
            inode,
            pointer: inode << 8,
        }
    }

    #[test]
    fn socket_is_chosen_by_address_or_as_only_candidate() {
        let lines = [
            build_bound_line(53, 1),
            build_bound_line(53, 2),
            build_bound_line(99, 3),
            build_bound_line(7, 4),
        ];
        let own_descriptors = HashMap::from([(1, 11), (2, 12), (3, 13)]);
        let choose = |sk: u64, taken: &[u64]| {
            let find_descriptor = |inode| own_descriptors.get(&inode).copied();
            let socket = choose_socket(&lines, find_descriptor, sk, |inode| taken.contains(&inode));
            socket.map(|socket| (socket.endpoints.local_port(), socket.inode))
        };
        assert_eq!(choose(2 << 8, &[]), Some((53, 2)), "its address");
        assert_eq!(choose(4 << 8, &[]), None, "a socket of another process");
        assert_eq!(choose(5, &[]), None, "several candidates");
        assert_eq!(choose(5, &[1, 2]), Some((99, 3)), "the only one that is not taken");
        assert_eq!(choose(5, &[3]), Some((53, 1)), "both have the same port");
        assert_eq!(choose(5, &[1, 2, 3]), None);
    }

    #[test]
    fn each_socket_is_inspected_once() {
        const LINE_COUNT: u64 = 10_000;
        let lines: Vec<SocketTableLine> = (0..LINE_COUNT).map(|inode| build_bound_line(1, inode)).collect();
        let calls = [const { Cell::new(0) }; 2];
        let count = |index: usize| calls[index].set(calls[index].get() + 1);
        let find_descriptor = |inode: u64| {
            count(0);
            inode.is_multiple_of(2).then_some(3)
        };
        let is_taken = |inode: u64| {
            count(1);
            inode.is_multiple_of(4)
        };
        assert_eq!(choose_socket(&lines, find_descriptor, 1, is_taken).map(|socket| socket.inode), Some(2));
        assert_eq!(
            calls.map(Cell::into_inner),
            [LINE_COUNT - LINE_COUNT / 4, LINE_COUNT],
            "a socket was inspected twice, or a taken one was looked up"
        );
    }
}
