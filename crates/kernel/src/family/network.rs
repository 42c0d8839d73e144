//! TCP and UDP: data that programs send and receive, and the start and end of connections.
//!
//! ```text
//!   sock:sock_send_length      sk, ret                ──▶ TCP send, UDP send
//!   sock:sock_recv_length      sk, ret                ──▶ TCP receive, UDP receive
//!                              addresses of sk        ◀── Sockets
//!   sock:inet_sock_set_state   sk, addresses, states  ──▶ connect, accept, disconnect, fail
//!                              addresses              ──▶ Sockets
//!   tcp:tcp_rcv_space_adjust   sk, addresses          ──▶ Sockets
//!                              (a connection older than the capture)
//!   tcp:tcp_retransmit_skb     sk, addresses, state   ──▶ retransmit; reconnect while connecting
//!   udp:udp_fail_queue_rcv_skb rc, family             ──▶ UDP fail
//!   /proc/PID/net              once for each socket (find.rs) ──▶ Sockets
//! ```
//!
//! 1. Sends and receives are calls of programs, with the bytes that each call took or returned.
//!    Segments and headers are not counted.
//! 2. The process is the one that made the call. In events that the network causes it is the known
//!    owner of the socket, else `0xFFFFFFFF`. The process that accepts a connection is unknown
//!    until it first sends or receives. If that happens in the same poll, before the session takes
//!    the accept event, the process id is written into the event afterwards.
//!    With a scope, these events are written if the owner is in scope. An accept waits until the
//!    connection is first used, and then has the time of that use. Events of sockets without a
//!    known owner, and dropped UDP datagrams, are left out and counted.
//! 3. `connid` is the kernel's address of the socket. It is the same in all events of a connection.
//!    After the end of the connection, another socket may have this address.
//! 4. For TCP `daddr` is the remote address in both directions; for UDP `saddr` is the
//!    sender. Unknown addresses, ports and other fields, except the process, are 0.
//! 5. An IPv6 socket with IPv4 addresses at both endpoints counts as IPv4.

mod endpoints;
mod find;
mod sockets;

use traceweir_format::kernel::{PayloadLayout, hook};
use traceweir_format::put_kernel_event;

use self::endpoints::Endpoints;
use self::sockets::{PendingAccept, Sockets, TcpSocket, UNKNOWN_PROCESS};
use super::{Context, EventFamily, Row};
use crate::groups::Group;
use crate::out::{Out, PayloadPosition};
use crate::spec::SampleEvent;

#[derive(Debug, Default)]
pub(crate) struct NetworkFamily {
    sockets: Sockets,
}

/// The version of all events.
const VERSION: u8 = 2;

/// Defines the layouts of events with IPv4 and with IPv6 addresses.
macro_rules! layouts {
    ($v4:ident, $v6:ident: $($hook:ident),+) => {
        const $v4: PayloadLayout = PayloadLayout::shared(&[$(hook::$hook),+], VERSION);
        const $v6: PayloadLayout = PayloadLayout::shared(&[$(hook::to_ipv6(hook::$hook)),+], VERSION);
    };
}

layouts!(SEND_V4, SEND_V6: TCP_SEND);
layouts!(CONNECT_V4, CONNECT_V6: TCP_CONNECT, TCP_ACCEPT);
layouts!(PLAIN_V4, PLAIN_V6: TCP_RECEIVE, TCP_DISCONNECT, TCP_RETRANSMIT, TCP_RECONNECT);
layouts!(UDP_V4, UDP_V6: UDP_SEND, UDP_RECEIVE);
const TCP_FAIL_LAYOUT: PayloadLayout = PayloadLayout::new(hook::TCP_FAIL, VERSION);
const UDP_FAIL_LAYOUT: PayloadLayout = PayloadLayout::new(hook::UDP_FAIL, VERSION);

/// Lists the hook ids of events with IPv4 and with IPv6 addresses, and of one event
/// without addresses.
macro_rules! hooks {
    ($($hook:ident),+ $(; $other:ident)?) => {
        const { &[$(hook::$hook, hook::to_ipv6(hook::$hook),)+ $(hook::$other)?] }
    };
}

/// Appends the payload of an event with endpoints, by the layout for their address family.
/// `$is_from_remote`: whether the remote endpoint is the source.
macro_rules! put_with_endpoints {
    (
        $payload:expr, $v4:ident, $v6:ident, $endpoints:expr, $is_from_remote:expr,
        { $($field:ident: $value:expr),* $(,)? }
    ) => {{
        let endpoints: &Endpoints = $endpoints;
        let [destination, source] = endpoints.destination_and_source($is_from_remote);
        if endpoints.is_v6 {
            put_kernel_event!($payload, $v6, {
                daddr: destination.address,
                saddr: source.address,
                dport: destination.port,
                sport: source.port,
                $($field: $value),*
            });
        } else {
            put_kernel_event!($payload, $v4, {
                daddr: destination.ipv4_address(),
                saddr: source.ipv4_address(),
                dport: destination.port,
                sport: source.port,
                $($field: $value),*
            });
        }
    }};
}

const IPPROTO_TCP: u32 = 6;
/// Selects successful TCP (6) and UDP (17) calls over IPv4 (2) and IPv6 (10), including datagrams
/// without data.
const TRANSFER_FILTER: &str =
    "(protocol == 6 || protocol == 17) && (family == 2 || family == 10) && ret >= 0";

// Indexes of the fields of a send or receive.
const SK_FIELD: usize = 0;
const FAMILY_FIELD: usize = 1;
const PROTOCOL_FIELD: usize = 2;
const RET_FIELD: usize = 3;
const FLAGS_FIELD: usize = 4;

/// Indexes of the fields of every event with addresses: socket, ports, addresses.
const ADDRESS_FIELDS: [usize; 5] = [0, 1, 2, 3, 4];
// Indexes of further fields of `inet_sock_set_state`.
const OLD_STATE_FIELD: usize = 5;
const NEW_STATE_FIELD: usize = 6;
/// Index of a further field of `tcp_retransmit_skb`.
const STATE_FIELD: usize = 5;

// TCP states, numbered as in the kernel.
const ESTABLISHED: i64 = 1;
const SYN_SENT: i64 = 2;
const SYN_RECV: i64 = 3;
const CLOSE: i64 = 7;
const LISTEN: i64 = 10;

/// A field whose name starts with `?` is missing in some kernels; it is 0 there.
static ROWS: &[Row<NetworkFamily>] = &[
    Row::tracepoint(
        ("sock", "sock_send_length"),
        &[Group::NETWORK],
        hooks!(TCP_SEND, UDP_SEND),
        &["sk", "family", "protocol", "ret", "flags"],
        NetworkFamily::on_send,
    )
    .with_filter(TRANSFER_FILTER),
    Row::tracepoint(
        ("sock", "sock_recv_length"),
        &[Group::NETWORK],
        hooks!(TCP_RECEIVE, UDP_RECEIVE),
        &["sk", "family", "protocol", "ret", "flags"],
        NetworkFamily::on_receive,
    )
    .with_filter(TRANSFER_FILTER),
    Row::tracepoint(
        ("sock", "inet_sock_set_state"),
        &[Group::NETWORK],
        hooks!(TCP_CONNECT, TCP_ACCEPT, TCP_DISCONNECT; TCP_FAIL),
        &["skaddr", "sport", "dport", "saddr_v6", "daddr_v6", "oldstate", "newstate"],
        NetworkFamily::on_state_change,
    )
    .with_filter("protocol == 6"),
    Row::tracepoint(
        ("tcp", "tcp_rcv_space_adjust"),
        &[Group::NETWORK],
        &[],
        &["skaddr", "sport", "dport", "saddr_v6", "daddr_v6"],
        NetworkFamily::on_space_adjust,
    ),
    Row::tracepoint(
        ("tcp", "tcp_retransmit_skb"),
        &[Group::NETWORK],
        hooks!(TCP_RETRANSMIT, TCP_RECONNECT),
        &["skaddr", "sport", "dport", "saddr_v6", "daddr_v6", "?state"],
        NetworkFamily::on_retransmit,
    ),
    Row::tracepoint(
        ("udp", "udp_fail_queue_rcv_skb"),
        &[Group::NETWORK],
        &[hook::UDP_FAIL],
        &["rc", "?family"],
        |_, event, context, out| write_udp_drop(event, context, out),
    ),
];

impl EventFamily for NetworkFamily {
    fn rows() -> &'static [Row<Self>] {
        ROWS
    }

    /// Packets arrive in the context of any process, and each process may own a socket.
    fn handles_all_processes(&self) -> bool {
        true
    }

    fn begin_poll(&mut self, _: &Context) {
        self.sockets.begin_poll();
    }

    fn forget_after_loss(&mut self) {
        self.sockets.clear();
    }
}

/// Returns the kernel's address and the endpoints of the socket in an event with addresses.
fn parse_socket(event: &SampleEvent<'_>) -> (u64, Endpoints) {
    let [socket_field, source_port_field, destination_port_field, source_field, destination_field] =
        ADDRESS_FIELDS;
    let local = (event.bytes(source_field), event.u32(source_port_field));
    let remote = (event.bytes(destination_field), event.u32(destination_port_field));
    (event.u64(socket_field), Endpoints::new(local, remote))
}

impl NetworkFamily {
    fn on_send(&mut self, event: &SampleEvent<'_>, _: &mut Context, out: &mut Out<'_>) {
        self.write_transfer(event, hook::TCP_SEND, hook::UDP_SEND, out);
    }

    fn on_receive(&mut self, event: &SampleEvent<'_>, _: &mut Context, out: &mut Out<'_>) {
        /// Flags of a call that leaves the data in the queue, or reads errors instead of data.
        const NO_DATA: u32 = (libc::MSG_PEEK | libc::MSG_ERRQUEUE) as u32;
        if event.u32(FLAGS_FIELD) & NO_DATA == 0 {
            self.write_transfer(event, hook::TCP_RECEIVE, hook::UDP_RECEIVE, out);
        }
    }

    fn write_transfer(&mut self, event: &SampleEvent<'_>, tcp_hook: u16, udp_hook: u16, out: &mut Out<'_>) {
        let (sk, process, size) = (event.u64(SK_FIELD), event.sample.pid, event.u32(RET_FIELD));
        let is_v6 = event.u32(FAMILY_FIELD) == libc::AF_INET6 as u32;
        let is_tcp = event.u32(PROTOCOL_FIELD) == IPPROTO_TCP;
        // 0 bytes are the end of a TCP stream; a UDP datagram may be empty.
        if is_tcp && size == 0 {
            return;
        }
        let sockets = &mut self.sockets;
        // If a UDP socket has the address by now, the accepted connection is gone, and its event
        // stays without a process.
        match sockets.take_pending_accept(sk).filter(|_| is_tcp) {
            Some(PendingAccept::Written(position)) => out.complete_payload(position, process),
            Some(PendingAccept::Deferred(endpoints)) => {
                let sample = out.sample.take();
                let socket = TcpSocket::new_established(endpoints, process);
                write_connection(hook::TCP_ACCEPT, sk, &socket, out);
                out.sample = sample;
            }
            None => {}
        }
        let endpoints =
            if is_tcp { sockets.use_tcp(sk, process, is_v6) } else { sockets.use_udp(sk, process, is_v6) };
        let hook = if is_tcp { tcp_hook } else { udp_hook };
        let mut payload = out.new_payload();
        if hook == hook::TCP_SEND {
            // The call has just returned; its start is unknown.
            let now = to_tenths_of_second(event.sample.time);
            put_with_endpoints!(&mut payload, SEND_V4, SEND_V6, &endpoints, false, {
                PID: process,
                size: size,
                startime: now,
                endtime: now,
                connid: sk,
            });
        } else if is_tcp {
            put_with_endpoints!(&mut payload, PLAIN_V4, PLAIN_V6, &endpoints, false, {
                PID: process,
                size: size,
                connid: sk,
            });
        } else {
            put_with_endpoints!(&mut payload, UDP_V4, UDP_V6, &endpoints, hook == hook::UDP_RECEIVE, {
                PID: process,
                size: size,
                connid: sk,
            });
        }
        out.write_perfinfo(hook_for_family(hook, &endpoints), VERSION, payload);
    }

    fn on_state_change(&mut self, event: &SampleEvent<'_>, context: &mut Context, out: &mut Out<'_>) {
        let (sk, endpoints) = parse_socket(event);
        let sockets = &mut self.sockets;
        match (event.number(OLD_STATE_FIELD), event.number(NEW_STATE_FIELD)) {
            // The connecting program makes this change in its own context, so `pid` is the owner.
            (_, SYN_SENT) => sockets.insert(sk, TcpSocket::new_connecting(endpoints, event.sample.pid)),
            (old @ (SYN_SENT | SYN_RECV), ESTABLISHED) => {
                let socket = sockets.establish(sk, endpoints);
                // If both sides connect at once, a requested connection is in SYN_RECV too.
                let is_local_request = old == SYN_SENT || socket.is_connecting;
                if context.scope.is_some() && !is_local_request {
                    sockets.set_pending_accept(sk, Some(PendingAccept::Deferred(endpoints)));
                    return;
                }
                attribute_to_owner(&socket, context, out);
                let hook = if is_local_request { hook::TCP_CONNECT } else { hook::TCP_ACCEPT };
                let position = write_connection(hook, sk, &socket, out).filter(|_| !is_local_request);
                sockets.set_pending_accept(sk, position.map(PendingAccept::Written));
            }
            (SYN_SENT, CLOSE) => {
                let socket = sockets.remove(sk);
                let socket = socket.unwrap_or(TcpSocket::new_established(endpoints, UNKNOWN_PROCESS));
                attribute_to_owner(&socket, context, out);
                let mut payload = out.new_payload();
                put_kernel_event!(&mut payload, TCP_FAIL_LAYOUT, {
                    Proto: family_number(endpoints.is_v6),
                    FailureCode: OTHER_REASON,
                });
                out.write_perfinfo(hook::TCP_FAIL, VERSION, payload);
            }
            // These states have no established connection that could end.
            (LISTEN | SYN_RECV | CLOSE, _) => {}
            (_, CLOSE) => {
                let socket = sockets.close(sk, endpoints);
                // A deferred accept that no process has used has no owner either.
                sockets.take_pending_accept(sk);
                attribute_to_owner(&socket, context, out);
                write_without_size(hook::TCP_DISCONNECT, sk, &socket, out);
            }
            _ => {}
        }
    }

    fn on_space_adjust(&mut self, event: &SampleEvent<'_>, _: &mut Context, _: &mut Out<'_>) {
        let (sk, endpoints) = parse_socket(event);
        self.sockets.update_endpoints(sk, endpoints);
    }

    fn on_retransmit(&mut self, event: &SampleEvent<'_>, context: &mut Context, out: &mut Out<'_>) {
        let (sk, endpoints) = parse_socket(event);
        let socket = self.sockets.update_endpoints(sk, endpoints);
        attribute_to_owner(&socket, context, out);
        let hook =
            if event.number(STATE_FIELD) == SYN_SENT { hook::TCP_RECONNECT } else { hook::TCP_RETRANSMIT };
        write_without_size(hook, sk, &socket, out);
    }
}

/// Makes the following event one of the socket's owner, whatever process is running.
fn attribute_to_owner(socket: &TcpSocket, context: &mut Context, out: &mut Out<'_>) {
    if context.scope.is_none() {
        return;
    }
    out.is_in_scope = context.is_process_in_scope(socket.owner);
    if socket.owner == UNKNOWN_PROCESS {
        context.count_unattributed();
    }
}

/// Returns the hook for the address family of the endpoints.
const fn hook_for_family(hook: u16, endpoints: &Endpoints) -> u16 {
    if endpoints.is_v6 { hook::to_ipv6(hook) } else { hook }
}

/// Converts nanoseconds since the system started to tenths of a second.
fn to_tenths_of_second(ns: u64) -> u32 {
    u32::try_from(ns / 100_000_000).unwrap_or(u32::MAX)
}

/// The failure code of an unknown reason.
const OTHER_REASON: u16 = 5;

/// Writes a dropped datagram. The record does not say whose socket it was for, so that with a scope
/// it is left out.
fn write_udp_drop(event: &SampleEvent<'_>, context: &mut Context, out: &mut Out<'_>) {
    if context.scope.is_some() {
        context.count_unattributed();
        return;
    }
    const INSUFFICIENT_RESOURCES: u16 = 1;
    let result = event.number(0).saturating_neg();
    let is_full = [libc::ENOMEM, libc::ENOBUFS].iter().any(|error| i64::from(*error) == result);
    let reason = if is_full { INSUFFICIENT_RESOURCES } else { OTHER_REASON };
    let mut payload = out.new_payload();
    put_kernel_event!(&mut payload, UDP_FAIL_LAYOUT, {
        Proto: family_number(event.u32(1) == libc::AF_INET6 as u32),
        FailureCode: reason,
    });
    out.write_perfinfo(hook::UDP_FAIL, VERSION, payload);
}

/// Writes an event whose size is 0: nothing is transferred (disconnect, reconnect), or the size is
/// unknown (retransmit).
fn write_without_size(hook: u16, sk: u64, socket: &TcpSocket, out: &mut Out<'_>) {
    let mut payload = out.new_payload();
    put_with_endpoints!(&mut payload, PLAIN_V4, PLAIN_V6, &socket.endpoints, false, {
        PID: socket.owner,
        connid: sk,
    });
    out.write_perfinfo(hook_for_family(hook, &socket.endpoints), VERSION, payload);
}

/// Writes the start of a connection. The kernel does not report options, windows and sequence
/// numbers. The process, which is the first field, may be set later.
fn write_connection(hook: u16, sk: u64, socket: &TcpSocket, out: &mut Out<'_>) -> Option<PayloadPosition> {
    let mut payload = out.new_payload();
    put_with_endpoints!(&mut payload, CONNECT_V4, CONNECT_V6, &socket.endpoints, false, {
        PID: socket.owner,
        connid: sk,
    });
    out.write_completable_perfinfo(hook_for_family(hook, &socket.endpoints), VERSION, payload)
}

/// Returns the number that Windows gives to an address family.
const fn family_number(is_v6: bool) -> u16 {
    const AF_INET: u16 = 2;
    const AF_INET6: u16 = 23;
    if is_v6 { AF_INET6 } else { AF_INET }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::family::testing::{assert_written, run_row, run_row_with_numbers};
    use crate::record::PerfSample;

    /// Writes the events of TCP connections with these addresses, of UDP transfers, and of a UDP
    /// failure.
    fn write_connection_life([local, remote]: [&[u8; 16]; 2], family: u64, out: &mut Out<'_>) {
        const SOCKET_ADDRESS: u64 = 0xFFFF_8880_0000_1234;
        let (mut network, mut context) = (NetworkFamily::default(), Context::default());
        // No process has an id this large, so the search in `/proc` finds nothing.
        let sample = PerfSample { time: 5_000_000_000, pid: 0x5000_0A11, ..PerfSample::default() };
        let mut run = |name: &str, states: [i64; 2], out: &mut Out<'_>| {
            let (sk, ports) = (SOCKET_ADDRESS.to_le_bytes(), [80_u16, 0x1234].map(u16::to_le_bytes));
            let [old, new] = states.map(i64::to_le_bytes);
            let fields: [&[u8]; 7] = [&sk, &ports[0], &ports[1], local, remote, &old, &new];
            run_row(&mut network, &mut context, name, sample, &fields, out);
        };
        run("sock:inet_sock_set_state", [CLOSE, SYN_SENT], out);
        run("tcp:tcp_retransmit_skb", [SYN_SENT, 0], out);
        run("sock:inet_sock_set_state", [SYN_SENT, ESTABLISHED], out);
        run("tcp:tcp_retransmit_skb", [ESTABLISHED, 0], out);
        run("sock:inet_sock_set_state", [ESTABLISHED, CLOSE], out);
        run("sock:inet_sock_set_state", [SYN_RECV, ESTABLISHED], out);
        for name in ["sock:sock_send_length", "sock:sock_recv_length"] {
            for protocol in [u64::from(IPPROTO_TCP), libc::IPPROTO_UDP as u64] {
                let numbers = [SOCKET_ADDRESS, family, protocol, 0x0777, 0];
                run_row_with_numbers(&mut network, &mut context, name, sample, &numbers, out);
            }
        }
        let (name, numbers) = ("udp:udp_fail_queue_rcv_skb", [(-libc::ENOMEM) as u64, family]);
        run_row_with_numbers(&mut network, &mut context, name, sample, &numbers, out);
    }

    #[test]
    fn ipv4_payloads_have_the_documented_layout() {
        let local = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 127, 0, 0, 1];
        let remote = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 10, 0, 0, 2];
        let write = |out: &mut Out<'_>| write_connection_life([&local, &remote], libc::AF_INET as u64, out);
        // Hook id, version; process, size, remote and local address, remote and local port, fields
        // of this kind of event only, `connid`.
        assert_written(
            write,
            &[
                "0610 02 110a0050 00000000 0a000002 7f000001 1234 0050 00000000 341200008088ffff",
                "060c 02 110a0050 00000000 0a000002 7f000001 1234 0050 0000 0000 0000 0000 00000000 \
                 0000 0000 00000000 341200008088ffff",
                "060e 02 110a0050 00000000 0a000002 7f000001 1234 0050 00000000 341200008088ffff",
                "060d 02 110a0050 00000000 0a000002 7f000001 1234 0050 00000000 341200008088ffff",
                "060f 02 110a0050 00000000 0a000002 7f000001 1234 0050 0000 0000 0000 0000 00000000 \
                 0000 0000 00000000 341200008088ffff",
                "060a 02 110a0050 77070000 0a000002 7f000001 1234 0050 32000000 32000000 00000000 \
                 341200008088ffff",
                "080a 02 110a0050 77070000 00000000 00000000 0000 0000 00000000 341200008088ffff",
                "060b 02 110a0050 77070000 0a000002 7f000001 1234 0050 00000000 341200008088ffff",
                "080b 02 110a0050 77070000 00000000 00000000 0000 0000 00000000 341200008088ffff",
                "0811 02 0200 0100",
            ],
        );
    }

    #[test]
    fn ipv6_payloads_have_the_documented_layout() {
        let (local, remote) = ([0x11; 16], [0x22; 16]);
        let write = |out: &mut Out<'_>| write_connection_life([&local, &remote], libc::AF_INET6 as u64, out);
        // The same columns as for IPv4.
        assert_written(
            write,
            &[
                "0620 02 110a0050 00000000 22222222222222222222222222222222 \
                 11111111111111111111111111111111 1234 0050 00000000 341200008088ffff",
                "061c 02 110a0050 00000000 22222222222222222222222222222222 \
                 11111111111111111111111111111111 1234 0050 0000 0000 0000 0000 00000000 0000 0000 \
                 00000000 341200008088ffff",
                "061e 02 110a0050 00000000 22222222222222222222222222222222 \
                 11111111111111111111111111111111 1234 0050 00000000 341200008088ffff",
                "061d 02 110a0050 00000000 22222222222222222222222222222222 \
                 11111111111111111111111111111111 1234 0050 00000000 341200008088ffff",
                "061f 02 110a0050 00000000 22222222222222222222222222222222 \
                 11111111111111111111111111111111 1234 0050 0000 0000 0000 0000 00000000 0000 0000 \
                 00000000 341200008088ffff",
                "061a 02 110a0050 77070000 22222222222222222222222222222222 \
                 11111111111111111111111111111111 1234 0050 32000000 32000000 00000000 \
                 341200008088ffff",
                "081a 02 110a0050 77070000 00000000000000000000000000000000 \
                 00000000000000000000000000000000 0000 0000 00000000 341200008088ffff",
                "061b 02 110a0050 77070000 22222222222222222222222222222222 \
                 11111111111111111111111111111111 1234 0050 00000000 341200008088ffff",
                "081b 02 110a0050 77070000 00000000000000000000000000000000 \
                 00000000000000000000000000000000 0000 0000 00000000 341200008088ffff",
                "0811 02 1700 0100",
            ],
        );
    }
}
