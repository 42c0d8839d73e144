//! Exit statuses of threads, from the kernel's process connector (netlink).
//!
//! ```text
//!   offsets in hexadecimal, sizes in parentheses in decimal
//!   netlink message   0 length, type … (16)
//!                     │ 10 idx = 1, val = 1, seq, ack, length, flags (20) │ 24 event
//!   event             24 what │ 28 cpu │ 2C time │ 34 thread │ 38 process
//!                     │ 3C exit code, encoded as wait() returns it │ …
//! ```
//!
//! 1. A message arrives shortly after the exit record in the ring. If it has not arrived yet, the
//!    caller reads `/proc` and then calls [`Connector::take_status`] again.
//! 2. Messages from senders other than the kernel are dropped.
//! 3. A thread that calls exec takes the id of its process's first thread, which ends. The
//!    connector then sends two messages about one id, which differ in their times.
//! 4. A status that is not taken within a few polls is dropped, so that the next thread with the
//!    same id does not inherit it.
//!
//! The connector needs `CAP_NET_ADMIN` and the initial namespaces. Without them `/proc` is the only
//! source of exit statuses.

use std::collections::HashMap;
use std::os::fd::OwnedFd;

use rustix::net::netlink::{CONNECTOR, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use traceweir_format::wire::{Put, u32_at, u64_at};

/// The connector's id for process events, which is also its multicast group.
const CN_IDX_PROC: u32 = 1;
const CN_VAL_PROC: u32 = 1;
const PROC_CN_MCAST_LISTEN: u32 = 1;
const PROC_EVENT_EXIT: u32 = 0x8000_0000;
const NLMSG_DONE: u16 = 3;
const NETLINK_HEADER_BYTES: usize = 16;
const CONNECTOR_HEADER_BYTES: usize = 20;
const EVENT_OFFSET: usize = NETLINK_HEADER_BYTES + CONNECTOR_HEADER_BYTES;

/// Size of the socket's receive buffer: enough for about ten thousand exits between two polls.
const RECEIVE_BUFFER_BYTES: usize = 16 << 20;
/// The most messages that one call of [`Connector::drain`] receives.
const MAX_MESSAGES: usize = 1 << 16;
/// The most exit statuses that are kept.
const MAX_EXITS: usize = 1 << 16;
/// Number of polls after which an exit status is dropped.
const KEPT_POLLS: u64 = 3;
/// How far the time of a message may be before that of the exit record.
const SLACK_NS: u64 = 500_000;

/// Exit statuses that the process connector has reported.
#[derive(Debug, Default)]
pub(super) struct Connector {
    /// `None` where listening is not permitted.
    socket: Option<OwnedFd>,
    /// Reported exits, by thread id.
    exits: HashMap<u32, ThreadExit>,
    polls: u64,
}

/// The reported exit of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ThreadExit {
    /// The status, encoded as `wait()` returns it.
    status: u32,
    /// The time in nanoseconds on the clock of perf records.
    time: u64,
    /// The poll that received the message.
    poll: u64,
}

impl Connector {
    /// Opens the connector's socket; without permission the connector stays closed.
    pub(super) fn open() -> Self {
        Self { socket: open_socket().ok(), ..Self::default() }
    }

    /// Receives pending messages and drops old statuses.
    pub(super) fn poll(&mut self) {
        self.polls = self.polls.wrapping_add(1);
        let polls = self.polls;
        self.exits.retain(|_, exit| polls.wrapping_sub(exit.poll) < KEPT_POLLS);
        self.drain();
    }

    /// Receives all pending messages.
    pub(super) fn drain(&mut self) {
        let Some(socket) = &self.socket else { return };
        let mut message = [0; 256];
        for _ in 0..MAX_MESSAGES {
            let length = match rustix::net::recvfrom(socket, &mut message, RecvFlags::DONTWAIT) {
                Ok((length, _, from)) => {
                    let sender = from.and_then(|from| SocketAddrNetlink::try_from(from).ok());
                    if sender.is_some_and(|sender| sender.pid() == 0) { length } else { 0 }
                }
                // ENOBUFS: the kernel dropped some messages. Later ones are still readable.
                Err(rustix::io::Errno::NOBUFS | rustix::io::Errno::INTR) => 0,
                Err(_) => return,
            };
            if let Some(ExitMessage { thread, status, time }) =
                parse_exit(message.get(..length).unwrap_or_default())
                && self.exits.len() < MAX_EXITS
            {
                self.exits.insert(thread, ThreadExit { status, time, poll: self.polls });
            }
        }
    }

    /// Removes and returns the exit status of a thread that ended at `time`. Returns `None` if the
    /// status is older, because it belongs to an earlier thread with this id.
    pub(super) fn take_status(&mut self, thread: u32, time: u64) -> Option<u32> {
        let exit = *self.exits.get(&thread)?;
        if exit.time.saturating_add(SLACK_NS) < time {
            return None;
        }
        self.exits.remove(&thread);
        Some(exit.status)
    }

    pub(super) fn remove_status(&mut self, thread: u32) {
        self.exits.remove(&thread);
    }

    /// Returns whether the kernel reports exit statuses to this process.
    pub(super) fn is_open(&self) -> bool {
        self.socket.is_some()
    }
}

fn open_socket() -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::DGRAM, flags, Some(CONNECTOR))?;
    rustix::net::bind(&socket, &SocketAddrNetlink::new(0, CN_IDX_PROC))?;
    rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, RECEIVE_BUFFER_BYTES)?;
    // Every kernel accepts the first form, which subscribes to all events. Newer kernels also
    // accept the second and then send only the requested events.
    for body in [&[PROC_CN_MCAST_LISTEN][..], &[PROC_CN_MCAST_LISTEN, PROC_EVENT_EXIT]] {
        rustix::net::send(&socket, &build_message(body), SendFlags::empty())?;
    }
    Ok(socket)
}

/// Builds a connector message with this body.
fn build_message(body: &[u32]) -> Vec<u8> {
    let size = u16::try_from(body.len().saturating_mul(4)).unwrap_or(0);
    let total = u32::try_from(EVENT_OFFSET).unwrap_or(0).saturating_add(u32::from(size));
    let mut out = Vec::new();
    out.put_u32(total).put_u16(NLMSG_DONE).put_u16(0).put_u32(0).put_u32(0);
    out.put_u32(CN_IDX_PROC).put_u32(CN_VAL_PROC).put_u32(0).put_u32(0).put_u16(size).put_u16(0);
    body.iter().for_each(|word| {
        out.put_u32(*word);
    });
    out
}

/// The content of a message that reports an exit.
#[derive(Debug, PartialEq, Eq)]
struct ExitMessage {
    thread: u32,
    /// The status, encoded as `wait()` returns it.
    status: u32,
    /// The time in nanoseconds on `CLOCK_MONOTONIC`, the clock of perf records.
    time: u64,
}

fn parse_exit(message: &[u8]) -> Option<ExitMessage> {
    let event = message.get(EVENT_OFFSET..)?;
    let is_ours = (u32_at(message, NETLINK_HEADER_BYTES), u32_at(message, NETLINK_HEADER_BYTES + 4))
        == (CN_IDX_PROC, CN_VAL_PROC);
    let is_exit = is_ours && event.len() >= 28 && u32_at(event, 0) == PROC_EVENT_EXIT;
    is_exit.then(|| ExitMessage {
        thread: u32_at(event, 16),
        status: u32_at(event, 24),
        time: u64_at(event, 8),
    })
}

/// Converts a `wait()` status to `ExitStatus`: the exit code, or the negated signal number.
pub(super) fn to_exit_status(wait_status: u32) -> i32 {
    let signal = i32::try_from(wait_status & 0x7F).unwrap_or(0);
    let code = i32::try_from(wait_status >> 8 & 0xFF).unwrap_or(0);
    if signal == 0 { code } else { signal.saturating_neg() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exits_are_parsed_and_malformed_messages_ignored() {
        // What, cpu, time (two words), thread, process, exit code, signal.
        let mut message = build_message(&[PROC_EVENT_EXIT, 0, 1, 2, 4711, 4700, 0x300, 17]);
        assert_eq!(
            parse_exit(&message),
            Some(ExitMessage { thread: 4711, status: 0x300, time: 0x2_0000_0001 })
        );
        for length in 0..EVENT_OFFSET + 28 {
            assert_eq!(parse_exit(&message[..length]), None, "{length}");
        }
        message[EVENT_OFFSET] = 1;
        assert_eq!(parse_exit(&message), None);
    }

    #[test]
    fn exit_status_is_code_or_negated_signal() {
        assert_eq!([0, 0x300, 0xFF00, 9, 11 | 0x80].map(to_exit_status), [0, 3, 255, -9, -11]);
    }

    #[test]
    fn untaken_statuses_are_dropped() {
        let mut connector = Connector::default();
        let exit = |status| ThreadExit { status, time: 10_000_000, poll: 0 };
        connector.exits.extend([(1, exit(0x100)), (2, exit(0x200)), (3, exit(0x300))]);
        assert_eq!(connector.take_status(1, 20_000_000), None, "took the status of an earlier thread");
        assert_eq!(connector.take_status(1, 9_000_000), Some(0x100));
        assert_eq!(connector.take_status(1, 9_000_000), None);
        connector.remove_status(3);
        (0..KEPT_POLLS).for_each(|_| connector.poll());
        assert_eq!((connector.take_status(2, 0), connector.exits.len()), (None, 0));
    }
}
