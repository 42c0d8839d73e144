//! TCP and UDP: what programs send and receive, and how connections begin and end.
//!
//! ```text
//!   sock:sock_send_length      sk, ret                  ──▶ TCP send, UDP send ─────────┐ addresses of sk
//!   sock:sock_recv_length      sk, ret                  ──▶ TCP receive, UDP receive ───┤
//!   sock:inet_sock_set_state   sk, addresses, states    ──▶ connect, accept, disconnect, fail ──▶ Sockets
//!   tcp:tcp_rcv_space_adjust   sk, addresses            ──▶ (a connection older than the capture) ──▶ │
//!   tcp:tcp_retransmit_skb     sk, addresses, state     ──▶ retransmit; reconnect while connecting     │
//!   udp:udp_fail_queue_rcv_skb rc, family               ──▶ UDP fail                                   │
//!                                                           /proc/PID/net, once a socket (find.rs) ────┘
//! ```
//!
//! 1. Sends and receives are those of programs, in their own bytes: what a call took or gave. Segments and headers are not counted.
//! 2. The process is the one that made the call; in events of the network itself it is the one that is known to own the socket, else `0xFFFFFFFF`.
//!    Who accepts a connection is not told when it is there, but by its first use: where that comes before the session takes the event of its beginning, the event is completed.
//! 3. `connid` is the kernel's address of the socket: the same for all events of a connection, and used again after its end.
//! 4. For TCP `daddr` is the remote end in both directions; for UDP `saddr` is the sender. What is not known is 0.
//! 5. A socket of IPv6 whose both ends are IPv4 speaks IPv4.

mod ends;
mod find;
mod sockets;

use traceweir_format::wire::Put;

use crate::groups::Group;
use crate::out::{Out, Written};
use crate::spec::{Event, Spec};
use crate::state::State as All;

use ends::Ends;
use sockets::Socket;
pub(crate) use sockets::State;

/// Hooks of IPv4; those of IPv6 are [`IPV6`] above them.
const TCP_SEND: u16 = 0x060A;
const TCP_RECEIVE: u16 = 0x060B;
const TCP_CONNECT: u16 = 0x060C;
const TCP_DISCONNECT: u16 = 0x060D;
const TCP_RETRANSMIT: u16 = 0x060E;
const TCP_ACCEPT: u16 = 0x060F;
const TCP_RECONNECT: u16 = 0x0610;
const TCP_FAIL: u16 = 0x0611;
const UDP_SEND: u16 = 0x080A;
const UDP_RECEIVE: u16 = 0x080B;
const UDP_FAIL: u16 = 0x0811;
const IPV6: u16 = 0x10;
const VERSION: u8 = 2;

const TCP: u32 = 6;
/// Calls that moved data, or a datagram without any, of TCP and UDP.
const MOVED: &str = "(protocol == 6 || protocol == 17) && (family == 2 || family == 10) && ret >= 0";

/// Fields of a transfer, by their place.
const SK: usize = 0;
const FAMILY: usize = 1;
const PROTOCOL: usize = 2;
const RET: usize = 3;
const FLAGS: usize = 4;

/// Fields of an event with addresses.
const ADDRESSED: [usize; 5] = [0, 1, 2, 3, 4];
const OLD_STATE: usize = 5;
const NEW_STATE: usize = 6;
const STATE: usize = 5;

/// States of a connection.
const ESTABLISHED: i64 = 1;
const SYN_SENT: i64 = 2;
const SYN_RECV: i64 = 3;
const CLOSE: i64 = 7;
const LISTEN: i64 = 10;

const fn filtered(spec: Spec, filter: &'static str) -> Spec {
    Spec { filter: Some(filter), ..spec }
}

pub(crate) static SPECS: &[Spec] = &[
    filtered(
        Spec::tracepoint(
            ("sock", "sock_send_length"),
            &[Group::NETWORK],
            &[TCP_SEND, TCP_SEND + IPV6, UDP_SEND, UDP_SEND + IPV6],
            &["sk", "family", "protocol", "ret", "flags"],
            sent,
        ),
        MOVED,
    ),
    filtered(
        Spec::tracepoint(
            ("sock", "sock_recv_length"),
            &[Group::NETWORK],
            &[TCP_RECEIVE, TCP_RECEIVE + IPV6, UDP_RECEIVE, UDP_RECEIVE + IPV6],
            &["sk", "family", "protocol", "ret", "flags"],
            received,
        ),
        MOVED,
    ),
    filtered(
        Spec::tracepoint(
            ("sock", "inet_sock_set_state"),
            &[Group::NETWORK],
            &[
                TCP_CONNECT,
                TCP_CONNECT + IPV6,
                TCP_ACCEPT,
                TCP_ACCEPT + IPV6,
                TCP_DISCONNECT,
                TCP_DISCONNECT + IPV6,
                TCP_FAIL,
            ],
            &["skaddr", "sport", "dport", "saddr_v6", "daddr_v6", "oldstate", "newstate"],
            changed,
        ),
        "protocol == 6",
    ),
    Spec::tracepoint(
        ("tcp", "tcp_rcv_space_adjust"),
        &[Group::NETWORK],
        &[],
        &["skaddr", "sport", "dport", "saddr_v6", "daddr_v6"],
        learned,
    ),
    Spec::tracepoint(
        ("tcp", "tcp_retransmit_skb"),
        &[Group::NETWORK],
        &[TCP_RETRANSMIT, TCP_RETRANSMIT + IPV6, TCP_RECONNECT, TCP_RECONNECT + IPV6],
        &["skaddr", "sport", "dport", "saddr_v6", "daddr_v6", "?state"],
        retransmitted,
    ),
    Spec::tracepoint(
        ("udp", "udp_fail_queue_rcv_skb"),
        &[Group::NETWORK],
        &[UDP_FAIL],
        &["rc", "?family"],
        dropped,
    ),
];

/// Before each look.
pub(crate) fn beside(state: &mut All) {
    state.network.begin_look();
}

/// Records were lost: what is known may be over.
pub(crate) fn forget(state: &mut All) {
    state.network.forget();
}

/// Socket and ends of an event with addresses.
fn addressed(event: &Event<'_>) -> (u64, Ends) {
    let [socket, source_port, destination_port, source, destination] = ADDRESSED;
    let (local, remote) = (event.bytes(source), event.bytes(destination));
    let ports = (event.u32(source_port), event.u32(destination_port));
    (event.u64(socket), Ends::new((local, ports.0), (remote, ports.1)))
}

fn sent(state: &mut All, event: &Event<'_>, out: &mut Out<'_>) {
    transferred(state, event, out, TCP_SEND, UDP_SEND);
}

fn received(state: &mut All, event: &Event<'_>, out: &mut Out<'_>) {
    /// The call leaves the data there, or reads errors instead of data.
    const NO_DATA: u32 = (libc::MSG_PEEK | libc::MSG_ERRQUEUE) as u32;
    if event.u32(FLAGS) & NO_DATA == 0 {
        transferred(state, event, out, TCP_RECEIVE, UDP_RECEIVE);
    }
}

fn transferred(state: &mut All, event: &Event<'_>, out: &mut Out<'_>, tcp: u16, udp: u16) {
    let (sk, process, size) = (event.u64(SK), event.sample.pid, event.u32(RET));
    let is_v6 = event.u32(FAMILY) == libc::AF_INET6 as u32;
    let is_tcp = event.u32(PROTOCOL) == TCP;
    // The end of a stream is no data; a datagram may be empty.
    if is_tcp && size == 0 {
        return;
    }
    let network = &mut state.network;
    if let Some(accepted) = network.take_accepted(sk).filter(|_| is_tcp) {
        out.complete(accepted, process);
    }
    let ends = if is_tcp { network.tcp(sk, process, is_v6) } else { network.udp(sk, process, is_v6) };
    let hook = if is_tcp { tcp } else { udp };
    let mut payload = out.payload();
    ends.put(&mut payload, process, size, hook == UDP_RECEIVE);
    if hook == TCP_SEND {
        // The call has just returned; when it began is not told.
        let now = tenths(event.sample.time);
        payload.put_u32(now).put_u32(now);
    }
    payload.put_u32(0).put_u64(sk);
    out.perfinfo(of(hook, &ends), VERSION, payload);
}

/// The hook for the addresses of these ends.
const fn of(hook: u16, ends: &Ends) -> u16 {
    if ends.is_v6 { hook.saturating_add(IPV6) } else { hook }
}

/// Tenths of seconds since the system started.
fn tenths(ns: u64) -> u32 {
    u32::try_from(ns / 100_000_000).unwrap_or(u32::MAX)
}

fn changed(state: &mut All, event: &Event<'_>, out: &mut Out<'_>) {
    let (sk, ends) = addressed(event);
    let network = &mut state.network;
    match (event.number(OLD_STATE), event.number(NEW_STATE)) {
        // This is made by the program itself.
        (_, SYN_SENT) => network.insert(sk, Socket::connecting(ends, event.sample.pid)),
        (old @ (SYN_SENT | SYN_RECV), ESTABLISHED) => {
            let known = network.established(sk, ends);
            let is_ours = old == SYN_SENT || known.is_connecting;
            let begun = connection(if is_ours { TCP_CONNECT } else { TCP_ACCEPT }, sk, &known, out);
            network.accepted(sk, begun.filter(|_| !is_ours));
        }
        (SYN_SENT, CLOSE) => {
            network.remove(sk);
            fail(TCP_FAIL, ends.is_v6, OTHER_REASON, out);
        }
        (LISTEN | SYN_RECV | CLOSE, _) => {}
        (_, CLOSE) => {
            let known = network.closed(sk, ends);
            plain(TCP_DISCONNECT, sk, &known, out);
        }
        _ => {}
    }
}

fn learned(state: &mut All, event: &Event<'_>, _: &mut Out<'_>) {
    let (sk, ends) = addressed(event);
    state.network.learn(sk, ends);
}

fn retransmitted(state: &mut All, event: &Event<'_>, out: &mut Out<'_>) {
    let (sk, ends) = addressed(event);
    let known = state.network.learn(sk, ends);
    let hook = if event.number(STATE) == SYN_SENT { TCP_RECONNECT } else { TCP_RETRANSMIT };
    plain(hook, sk, &known, out);
}

/// Why something failed, where there is no better reason.
const OTHER_REASON: u16 = 5;

fn dropped(_: &mut All, event: &Event<'_>, out: &mut Out<'_>) {
    const INSUFFICIENT_RESOURCES: u16 = 1;
    let result = event.number(0).saturating_neg();
    let is_full = [libc::ENOMEM, libc::ENOBUFS].iter().any(|it| i64::from(*it) == result);
    let reason = if is_full { INSUFFICIENT_RESOURCES } else { OTHER_REASON };
    fail(UDP_FAIL, event.u32(1) == libc::AF_INET6 as u32, reason, out);
}

/// An event without data.
fn plain(hook: u16, sk: u64, socket: &Socket, out: &mut Out<'_>) {
    let mut payload = out.payload();
    socket.ends.put(&mut payload, socket.owner, 0, false);
    payload.put_u32(0).put_u64(sk);
    out.perfinfo(of(hook, &socket.ends), VERSION, payload);
}

/// The beginning of a connection. Options, windows and sequence numbers are not told; the process, which is its first field, may be told later.
fn connection(hook: u16, sk: u64, socket: &Socket, out: &mut Out<'_>) -> Option<Written> {
    let mut payload = out.payload();
    socket.ends.put(&mut payload, socket.owner, 0, false);
    payload.put_u16(0).put_u16(0).put_u16(0).put_u16(0);
    payload.put_u32(0).put_u16(0).put_u16(0);
    payload.put_u32(0).put_u64(sk);
    out.perfinfo_to_complete(of(hook, &socket.ends), VERSION, payload)
}

fn fail(hook: u16, is_v6: bool, reason: u16, out: &mut Out<'_>) {
    /// Address families by Windows' numbers.
    const AF_INET: u16 = 2;
    const AF_INET6: u16 = 23;
    let mut payload = out.payload();
    payload.put_u16(if is_v6 { AF_INET6 } else { AF_INET }).put_u16(reason);
    out.perfinfo(hook, VERSION, payload);
}
