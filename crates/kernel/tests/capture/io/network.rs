//! Loopback traffic of known size.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};

use traceweir_format::kernel::hook::{
    TCP_ACCEPT, TCP_CONNECT, TCP_DISCONNECT, TCP_FAIL, TCP_RECEIVE, TCP_SEND, UDP_RECEIVE, UDP_SEND,
};
use traceweir_kernel::Group;

use super::support::{CapturedEvent, RunningCapture};
use crate::retry::retry_alternately_with_busy_processors;
use crate::support::skip::holds_or_skip;

/// Sizes of the client's send calls.
const SEND_SIZES: [usize; 5] = [1, 1000, 65_536, 3, 200_000];
/// Size of the server's answer.
const ANSWER_BYTES: usize = 5000;
/// Documented failure code.
const OTHER_REASON: u64 = 5;

fn loopback_address(is_v6: bool) -> IpAddr {
    if is_v6 { Ipv6Addr::LOCALHOST.into() } else { Ipv4Addr::LOCALHOST.into() }
}

fn address_bytes(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

/// Sends pieces of [`SEND_SIZES`] from the client. The server reads them and answers, and both
/// close the connection.
fn exchange_data(mut client: TcpStream, mut server: TcpStream) {
    let server_thread = std::thread::spawn(move || {
        let mut received = Vec::new();
        server.read_to_end(&mut received).expect("the data is not transferred");
        server.write_all(&[2; ANSWER_BYTES]).expect("the answer is not transferred");
        received.len()
    });
    for piece in SEND_SIZES {
        client.write_all(&vec![1; piece]).expect("the piece is not sent");
    }
    client.shutdown(Shutdown::Write).expect("the shutdown fails");
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).expect("the answer is not transferred");
    assert_eq!(
        (answer.len(), server_thread.join().expect("the server thread panicked")),
        (ANSWER_BYTES, SEND_SIZES.iter().sum())
    );
}

/// Returns the events with this hook, local port and remote port.
fn select_by_ports(events: &[CapturedEvent], hook: u16, local: u16, remote: u16) -> Vec<&CapturedEvent> {
    let ports = (u64::from(local), u64::from(remote));
    events
        .iter()
        .filter(|event| event.hook == hook && (event.number("sport"), event.number("dport")) == ports)
        .collect()
}

fn sum_sizes(events: &[&CapturedEvent]) -> usize {
    events.iter().map(|event| usize::try_from(event.number("size")).expect("the size does not fit")).sum()
}

/// Checks the events of one connection. `accepter` is the process that its accept event names, or
/// `None` if the connection is older than the capture.
fn assert_connection_events(
    events: &[CapturedEvent],
    (client, server): (SocketAddr, SocketAddr),
    accepter: Option<u32>,
) {
    // The hooks of IPv6 events are 0x10 higher.
    let ipv6_offset = if client.is_ipv6() { 0x10 } else { 0 };
    let sent: usize = SEND_SIZES.iter().sum();
    let find = |hook: u16, from: SocketAddr, to: SocketAddr| {
        select_by_ports(events, hook + ipv6_offset, from.port(), to.port())
    };
    for (from, to, out, back) in [(client, server, sent, ANSWER_BYTES), (server, client, ANSWER_BYTES, sent)]
    {
        let (sends, receives) = (find(TCP_SEND, from, to), find(TCP_RECEIVE, from, to));
        assert_eq!((sum_sizes(&sends), sum_sizes(&receives)), (out, back), "{from} → {to}");
        assert_eq!(find(TCP_DISCONNECT, from, to).len(), 1, "one disconnect of {from}");
        let connection = sends[0].number("connid");
        for event in sends.iter().chain(&receives).chain(&find(TCP_DISCONNECT, from, to)) {
            assert_eq!(event.number("PID"), u64::from(std::process::id()));
            assert_eq!(event.number("connid"), connection);
            assert_eq!(event.bytes("saddr"), address_bytes(from.ip()));
            assert_eq!(event.bytes("daddr"), address_bytes(to.ip()));
        }
    }
    let pieces: Vec<u64> = find(TCP_SEND, client, server).iter().map(|event| event.number("size")).collect();
    assert_eq!(pieces, SEND_SIZES.map(|piece| piece as u64));
    let start_count = usize::from(accepter.is_some());
    let (own, accepter) = (std::process::id(), accepter.unwrap_or(0));
    let starts = [(TCP_CONNECT, client, server, own), (TCP_ACCEPT, server, client, accepter)];
    for (hook, from, to, owner) in starts {
        let events = find(hook, from, to);
        assert_eq!(events.len(), start_count, "{hook:04x}");
        assert!(events.iter().all(|event| event.number("PID") == u64::from(owner)));
    }
    for (hook, from, to) in [(TCP_CONNECT, server, client), (TCP_ACCEPT, client, server)] {
        assert!(find(hook, from, to).is_empty(), "client and server are confused");
    }
}

fn start_network_capture() -> Option<RunningCapture> {
    let running = RunningCapture::start(&[Group::NETWORK], &[TCP_SEND])?;
    let is_present = running.has_tracepoint("sock:sock_send_length");
    holds_or_skip(is_present, "kernel events", "this kernel does not report what sockets send")
        .then_some(running)
}

#[test]
fn tcp_connection_is_recorded_from_connect_to_close() {
    retry_alternately_with_busy_processors(5, || {
        for (is_v6, is_polled) in [(false, false), (false, true), (true, false), (true, true)] {
            let Some(mut running) = start_network_capture() else { return };
            let Ok(listener) = TcpListener::bind((loopback_address(is_v6), 0)) else { continue };
            let server = listener.local_addr().expect("the socket has no address");
            let client = TcpStream::connect(server).expect("the connection does not open");
            let address = client.local_addr().expect("the socket has no address");
            let (accepted, _) = listener.accept().expect("the connection does not open");
            // The owner of a new connection is known only after its first use. If that is in the
            // same poll as the accept event, the event names the owner; otherwise it names none.
            let accepter = if is_polled { u32::MAX } else { std::process::id() };
            if is_polled {
                running.poll();
            }
            exchange_data(client, accepted);
            let events = running.end();
            assert_connection_events(&events, (address, server), Some(accepter));
            assert!(is_v6 || events.iter().any(|event| event.is_stack), "no send has a stack");
        }
    });
}

#[test]
fn older_connection_is_identified_by_received_data() {
    retry_alternately_with_busy_processors(5, || {
        let listener = TcpListener::bind((loopback_address(false), 0)).expect("the listener does not bind");
        let server = listener.local_addr().expect("the socket has no address");
        let mut client = TcpStream::connect(server).expect("the connection does not open");
        let address = client.local_addr().expect("the socket has no address");
        let (mut accepted, _) = listener.accept().expect("the connection does not open");
        client.write_all(&[1]).expect("the byte is not transferred");
        accepted.write_all(&[1]).expect("the byte is not transferred");
        let Some(running) = start_network_capture() else { return };
        // Each end receives something before the counted traffic.
        let mut byte = [0; 1];
        accepted.read_exact(&mut byte).expect("the byte is not transferred");
        client.read_exact(&mut byte).expect("the byte is not transferred");
        exchange_data(client, accepted);
        let mut events = running.end();
        let first = events
            .iter()
            .position(|event| event.hook == TCP_SEND && event.number("dport") == u64::from(server.port()));
        events.drain(..first.expect("no send is captured"));
        assert_connection_events(&events, (address, server), None);
    });
}

#[test]
fn refused_connection_is_recorded_as_failed() {
    retry_alternately_with_busy_processors(5, || {
        let Some(running) = start_network_capture() else { return };
        let listener = TcpListener::bind((loopback_address(false), 0)).expect("the listener does not bind");
        let address = listener.local_addr().expect("the socket has no address");
        drop(listener);
        TcpStream::connect(address).expect_err("the port is open");
        let events = running.end();
        let failed = events.iter().filter(|event| event.hook == TCP_FAIL);
        assert!(failed.clone().any(|event| (event.number("Proto"), event.number("FailureCode"))
            == (libc::AF_INET as u64, OTHER_REASON)));
        assert!(select_by_ports(&events, TCP_CONNECT, 0, address.port()).is_empty());
    });
}

/// No other test of this program has UDP sockets: a capture identifies a UDP socket only if it is
/// the only unknown one of its process.
#[test]
fn datagrams_are_recorded_with_sizes_and_ports() {
    retry_alternately_with_busy_processors(5, || {
        const SIZES: [usize; 4] = [1, 0, 1400, 9000];
        for is_v6 in [false, true] {
            let Some(mut running) = start_network_capture() else { return };
            let Ok(sender) = UdpSocket::bind((loopback_address(is_v6), 0)) else { continue };
            let from = sender.local_addr().expect("the socket has no address");
            let mut buffer = vec![0; 10_000];
            // The capture finds the sender, because it is still the only socket.
            sender.send_to(&[1; 77], from).expect("the datagram is not transferred");
            assert_eq!(sender.recv(&mut buffer).expect("the datagram is not transferred"), 77);
            running.poll();
            let receiver = UdpSocket::bind((loopback_address(is_v6), 0)).expect("the socket does not bind");
            let to = receiver.local_addr().expect("the socket has no address");
            receiver.connect(from).expect("the socket does not connect");
            for size in SIZES {
                sender.send_to(&vec![1; size], to).expect("the datagram is not transferred");
                assert_eq!(receiver.recv(&mut buffer).expect("the datagram is not transferred"), size);
            }
            running.poll();
            let events = running.end();
            // The hooks of IPv6 events are 0x10 higher.
            let ipv6_offset = if is_v6 { 0x10 } else { 0 };
            let own_pid = u64::from(std::process::id());
            let own_events = |hook: u16, port: &str, address: SocketAddr| -> Vec<&CapturedEvent> {
                let is_own = |event: &&CapturedEvent| {
                    event.number("PID") == own_pid && event.number(port) == u64::from(address.port())
                };
                events.iter().filter(|event| event.hook == hook + ipv6_offset).filter(is_own).collect()
            };
            let sizes = |datagrams: &[&CapturedEvent]| {
                datagrams.iter().map(|event| event.number("size") as usize).collect::<Vec<_>>()
            };
            let sent_sizes = [&[77], &SIZES[..]].concat();
            assert_eq!(sizes(&own_events(UDP_SEND, "sport", from)), sent_sizes);
            let received = own_events(UDP_RECEIVE, "dport", to);
            assert_eq!(sizes(&received), SIZES);
            for event in received {
                assert_eq!(event.bytes("daddr"), address_bytes(to.ip()));
                assert_eq!(
                    (event.bytes("saddr"), event.number("sport")),
                    (&*address_bytes(from.ip()), u64::from(from.port()))
                );
            }
            assert!(
                own_events(UDP_SEND, "sport", from).iter().all(|event| event.number("dport") == 0),
                "the destination is known"
            );
        }
    });
}
