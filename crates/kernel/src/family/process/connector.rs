//! How processes ended: the kernel's process connector tells the exit status of every thread.
//!
//! ```text
//!   netlink message   0 length, type … (16) │ 10 idx = 1, val = 1, seq, ack, length, flags (20) │ 24 event
//!   event             24 what │ 28 cpu │ 2C time │ 34 thread │ 38 process │ 3C exit code, as wait() gives it │ …
//! ```
//!
//! 1. A message comes behind the record of the exit in the ring, a moment later: whoever does not find it here asks `/proc`, and then here again.
//! 2. Only the kernel is believed: a message from anybody else is dropped.
//! 3. A thread that runs another program takes the id of the first one, which ends for it: two messages about one id, told apart by their times.
//! 4. What nobody asks for is forgotten after a few looks, so that the next thread with the same id does not inherit it.
//!
//! Needs `CAP_NET_ADMIN` and the initial namespaces; without it there is none of this, and `/proc` alone tells.

use std::collections::HashMap;
use std::os::fd::OwnedFd;

use rustix::net::netlink::{CONNECTOR, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use traceweir_format::wire::{Put, u32_at, u64_at};

use crate::now_ns;

/// The connector's number for processes, which is its multicast group too.
const CN_IDX_PROC: u32 = 1;
const CN_VAL_PROC: u32 = 1;
const PROC_CN_MCAST_LISTEN: u32 = 1;
const PROC_EVENT_EXIT: u32 = 0x8000_0000;
const NLMSG_DONE: u16 = 3;
/// Bytes of the two headers.
const NETLINK_HEAD: usize = 16;
const CONNECTOR_HEAD: usize = 20;
const EVENT: usize = NETLINK_HEAD + CONNECTOR_HEAD;

/// Bytes that wait between two looks: some ten thousand exits.
const BUFFER: usize = 16 << 20;
/// Messages taken at a time, at most.
const MAX_MESSAGES: usize = 1 << 16;
/// Exit statuses remembered, at most.
const MAX_KNOWN: usize = 1 << 16;
/// Looks after which one is forgotten.
const KEPT: u64 = 3;
/// How far the clocks of records and of messages may have moved against each other since a message came.
const SLACK_NS: u64 = 500_000;

/// Exit statuses that were told.
#[derive(Debug, Default)]
pub(super) struct Connector {
    socket: Option<OwnedFd>,
    /// By thread.
    known: HashMap<u32, Exit>,
    looks: u64,
}

/// How a thread ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Exit {
    /// As wait() gives it.
    status: u32,
    /// On the clock of records.
    time: u64,
    /// The look in which it was told.
    look: u64,
}

impl Connector {
    /// Listens, where that is allowed.
    pub(super) fn open() -> Self {
        Self { socket: listen().ok(), ..Self::default() }
    }

    /// Takes what has come, and forgets what is old.
    pub(super) fn look(&mut self) {
        self.looks = self.looks.wrapping_add(1);
        let looks = self.looks;
        self.known.retain(|_, exit| looks.wrapping_sub(exit.look) < KEPT);
        self.drain();
    }

    /// Takes what has come.
    pub(super) fn drain(&mut self) {
        let Some(socket) = &self.socket else { return };
        let mut message = [0; 256];
        let ahead = monotonic_ns().wrapping_sub(now_ns());
        for _ in 0..MAX_MESSAGES {
            let length = match rustix::net::recvfrom(socket, &mut message, RecvFlags::DONTWAIT) {
                Ok((length, _, from)) => {
                    let sender = from.and_then(|from| SocketAddrNetlink::try_from(from).ok());
                    if sender.is_some_and(|sender| sender.pid() == 0) { length } else { 0 }
                }
                // Some found no room; those behind them are there.
                Err(rustix::io::Errno::NOBUFS | rustix::io::Errno::INTR) => 0,
                Err(_) => return,
            };
            if let Some((thread, status, time)) = exit_in(message.get(..length).unwrap_or_default())
                && self.known.len() < MAX_KNOWN
            {
                let exit = Exit { status, time: time.wrapping_sub(ahead), look: self.looks };
                self.known.insert(thread, exit);
            }
        }
    }

    /// The exit status of a thread that ended at this time, once.
    pub(super) fn take(&mut self, thread: u32, time: u64) -> Option<u32> {
        let exit = *self.known.get(&thread)?;
        if exit.time.saturating_add(SLACK_NS) < time {
            return None;
        }
        self.known.remove(&thread);
        Some(exit.status)
    }

    /// Forgets how a thread ended.
    pub(super) fn forget(&mut self, thread: u32) {
        self.known.remove(&thread);
    }

    /// Whether statuses are told at all.
    pub(super) fn is_open(&self) -> bool {
        self.socket.is_some()
    }
}

fn listen() -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::DGRAM, flags, Some(CONNECTOR))?;
    rustix::net::bind(&socket, &SocketAddrNetlink::new(0, CN_IDX_PROC))?;
    rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, BUFFER)?;
    // The first form is every kernel's and asks for everything; newer ones take the second too, and leave out what is not asked for.
    for body in [&[PROC_CN_MCAST_LISTEN][..], &[PROC_CN_MCAST_LISTEN, PROC_EVENT_EXIT]] {
        rustix::net::send(&socket, &request(body), SendFlags::empty())?;
    }
    Ok(socket)
}

fn request(body: &[u32]) -> Vec<u8> {
    let size = u16::try_from(body.len().saturating_mul(4)).unwrap_or(0);
    let total = u32::try_from(EVENT).unwrap_or(0).saturating_add(u32::from(size));
    let mut out = Vec::new();
    out.put_u32(total).put_u16(NLMSG_DONE).put_u16(0).put_u32(0).put_u32(0);
    out.put_u32(CN_IDX_PROC).put_u32(CN_VAL_PROC).put_u32(0).put_u32(0).put_u16(size).put_u16(0);
    body.iter().for_each(|word| {
        out.put_u32(*word);
    });
    out
}

fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0).saturating_mul(1_000_000_000);
    seconds.saturating_add(u64::try_from(now.tv_nsec).unwrap_or(0))
}

/// Thread, exit status and time of a message, where it tells of an exit.
fn exit_in(message: &[u8]) -> Option<(u32, u32, u64)> {
    let event = message.get(EVENT..)?;
    let is_ours =
        (u32_at(message, NETLINK_HEAD), u32_at(message, NETLINK_HEAD + 4)) == (CN_IDX_PROC, CN_VAL_PROC);
    let is_exit = is_ours && event.len() >= 28 && u32_at(event, 0) == PROC_EVENT_EXIT;
    is_exit.then(|| (u32_at(event, 16), u32_at(event, 24), u64_at(event, 8)))
}

/// What `ExitStatus` is for a status as wait() gives it: the exit code, or the signal with a minus.
pub(super) fn exit_status(wait: u32) -> i32 {
    let signal = i32::try_from(wait & 0x7F).unwrap_or(0);
    let code = i32::try_from(wait >> 8 & 0xFF).unwrap_or(0);
    if signal == 0 { code } else { signal.saturating_neg() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exits_are_found_in_messages_and_nonsense_is_nothing() {
        let mut message = request(&[PROC_EVENT_EXIT, 0, 1, 2, 4711, 4700, 0x300, 17]);
        assert_eq!(exit_in(&message), Some((4711, 0x300, 0x2_0000_0001)));
        for length in 0..EVENT + 28 {
            assert_eq!(exit_in(&message[..length]), None, "{length}");
        }
        message[EVENT] = 1;
        assert_eq!(exit_in(&message), None);
    }

    #[test]
    fn a_status_is_the_code_or_the_signal() {
        assert_eq!([0, 0x300, 0xFF00, 9, 11 | 0x80].map(exit_status), [0, 3, 255, -9, -11]);
    }

    #[test]
    fn what_nobody_asks_for_is_forgotten() {
        let mut connector = Connector::default();
        let exit = |status| Exit { status, time: 10_000_000, look: 0 };
        connector.known.extend([(1, exit(0x100)), (2, exit(0x200)), (3, exit(0x300))]);
        assert_eq!(connector.take(1, 20_000_000), None, "the next one with this id");
        assert_eq!(connector.take(1, 9_000_000), Some(0x100));
        assert_eq!(connector.take(1, 9_000_000), None);
        connector.forget(3);
        (0..KEPT).for_each(|_| connector.look());
        assert_eq!((connector.take(2, 0), connector.known.len()), (None, 0));
    }
}
