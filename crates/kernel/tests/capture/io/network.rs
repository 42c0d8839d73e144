//! Loopback traffic of known size.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};

use traceweir_kernel::Group;

use super::support::{CapturedEvent, Running};
use crate::again::again;
use crate::support::skip::can;

/// Sizes of the client's send calls.
const PIECES: [usize; 5] = [1, 1000, 65_536, 3, 200_000];
/// Size of the server's answer.
const ANSWER: usize = 5000;

fn loopback(is_v6: bool) -> IpAddr {
    if is_v6 { Ipv6Addr::LOCALHOST.into() } else { Ipv4Addr::LOCALHOST.into() }
}

fn bytes_of(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

/// The client sends all pieces, the server reads them and answers, and both close the connection.
fn converse(mut client: TcpStream, mut server: TcpStream) {
    let served = std::thread::spawn(move || {
        let mut all = Vec::new();
        server.read_to_end(&mut all).expect("data");
        server.write_all(&[2; ANSWER]).expect("an answer");
        all.len()
    });
    for piece in PIECES {
        client.write_all(&vec![1; piece]).expect("a piece");
    }
    client.shutdown(Shutdown::Write).expect("an end");
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).expect("an answer");
    assert_eq!((answer.len(), served.join().expect("a server")), (ANSWER, PIECES.iter().sum()));
}

/// Returns the events with this hook, local port and remote port.
fn between(events: &[CapturedEvent], hook: u16, local: u16, remote: u16) -> Vec<&CapturedEvent> {
    let ports = (u64::from(local), u64::from(remote));
    events
        .iter()
        .filter(|event| event.hook == hook && (event.number("sport"), event.number("dport")) == ports)
        .collect()
}

fn sum_sizes(events: &[&CapturedEvent]) -> usize {
    events.iter().map(|event| usize::try_from(event.number("size")).expect("a size")).sum()
}

/// Checks the events of one connection. `accepter` is the process that its accept event names, or
/// `None` if the connection is older than the capture.
fn check(events: &[CapturedEvent], (client, server): (SocketAddr, SocketAddr), accepter: Option<u32>) {
    let v6 = if client.is_ipv6() { 0x10 } else { 0 };
    let sent: usize = PIECES.iter().sum();
    let find =
        |hook: u16, from: SocketAddr, to: SocketAddr| between(events, hook + v6, from.port(), to.port());
    for (from, to, out, back) in [(client, server, sent, ANSWER), (server, client, ANSWER, sent)] {
        let (sends, receives) = (find(0x060A, from, to), find(0x060B, from, to));
        assert_eq!((sum_sizes(&sends), sum_sizes(&receives)), (out, back), "{from} → {to}");
        assert_eq!(find(0x060D, from, to).len(), 1, "one disconnect of {from}");
        let connection = sends[0].number("connid");
        for event in sends.iter().chain(&receives).chain(&find(0x060D, from, to)) {
            assert_eq!(event.number("PID"), u64::from(std::process::id()));
            assert_eq!(event.number("connid"), connection);
            assert_eq!(event.bytes("saddr"), bytes_of(from.ip()));
            assert_eq!(event.bytes("daddr"), bytes_of(to.ip()));
        }
    }
    let pieces: Vec<u64> = find(0x060A, client, server).iter().map(|event| event.number("size")).collect();
    assert_eq!(pieces, PIECES.map(|piece| piece as u64));
    let begun = usize::from(accepter.is_some());
    let (own, accepter) = (std::process::id(), accepter.unwrap_or(0));
    let begins = [(0x060C, client, server, own), (0x060F, server, client, accepter)];
    for (hook, from, to, owner) in begins {
        let events = find(hook, from, to);
        assert_eq!(events.len(), begun, "{hook:04x}");
        assert!(events.iter().all(|event| event.number("PID") == u64::from(owner)));
    }
    for (hook, from, to) in [(0x060C, server, client), (0x060F, client, server)] {
        assert!(find(hook, from, to).is_empty(), "the client connects and the server accepts");
    }
}

fn running() -> Option<Running> {
    let running = Running::start(&[Group::NETWORK], &[0x060A])?;
    let has = running.has("sock:sock_send_length");
    can(has, "kernel events", "this kernel does not report what sockets send").then_some(running)
}

#[test]
fn tcp_connection_is_recorded_from_connect_to_close() {
    again(5, || {
        for (is_v6, is_polled) in [(false, false), (false, true), (true, false), (true, true)] {
            let Some(mut running) = running() else { return };
            let Ok(listener) = TcpListener::bind((loopback(is_v6), 0)) else { continue };
            let server = listener.local_addr().expect("an address");
            let client = TcpStream::connect(server).expect("a connection");
            let address = client.local_addr().expect("an address");
            let (accepted, _) = listener.accept().expect("a connection");
            // The first use of a new connection shows its owner, which is known if the same poll
            // sees both.
            let accepter = if is_polled { u32::MAX } else { std::process::id() };
            if is_polled {
                running.poll();
            }
            converse(client, accepted);
            let events = running.end();
            check(&events, (address, server), Some(accepter));
            assert!(is_v6 || events.iter().any(|event| event.is_stack), "a send has a stack");
        }
    });
}

#[test]
fn older_connection_is_identified_by_received_data() {
    again(5, || {
        let listener = TcpListener::bind((loopback(false), 0)).expect("a listener");
        let server = listener.local_addr().expect("an address");
        let mut client = TcpStream::connect(server).expect("a connection");
        let address = client.local_addr().expect("an address");
        let (mut accepted, _) = listener.accept().expect("a connection");
        client.write_all(&[1]).expect("a byte");
        accepted.write_all(&[1]).expect("a byte");
        let Some(running) = running() else { return };
        // Each end receives something before the counted traffic.
        let mut byte = [0; 1];
        accepted.read_exact(&mut byte).expect("a byte");
        client.read_exact(&mut byte).expect("a byte");
        converse(client, accepted);
        let mut events = running.end();
        let first = events
            .iter()
            .position(|event| event.hook == 0x060A && event.number("dport") == u64::from(server.port()));
        events.drain(..first.expect("a send"));
        check(&events, (address, server), None);
    });
}

#[test]
fn refused_connection_is_recorded_as_failed() {
    again(5, || {
        let Some(running) = running() else { return };
        let listener = TcpListener::bind((loopback(false), 0)).expect("a listener");
        let address = listener.local_addr().expect("an address");
        drop(listener);
        TcpStream::connect(address).expect_err("a closed port");
        let events = running.end();
        let failed = events.iter().filter(|event| event.hook == 0x0611);
        assert!(failed.clone().any(|event| (event.number("Proto"), event.number("FailureCode")) == (2, 5)));
        assert!(between(&events, 0x060C, 0, address.port()).is_empty());
    });
}

/// This test has all UDP sockets of this program: a socket is identified as the only unknown one.
#[test]
fn datagrams_are_recorded_with_sizes_and_ports() {
    again(5, || {
        const SIZES: [usize; 4] = [1, 0, 1400, 9000];
        for is_v6 in [false, true] {
            let Some(mut running) = running() else { return };
            let Ok(sender) = UdpSocket::bind((loopback(is_v6), 0)) else { continue };
            let from = sender.local_addr().expect("an address");
            let mut buffer = vec![0; 10_000];
            // It is found as the only socket.
            sender.send_to(&[1; 77], from).expect("a datagram");
            assert_eq!(sender.recv(&mut buffer).expect("a datagram"), 77);
            running.poll();
            let receiver = UdpSocket::bind((loopback(is_v6), 0)).expect("a socket");
            let to = receiver.local_addr().expect("an address");
            receiver.connect(from).expect("a peer");
            for size in SIZES {
                sender.send_to(&vec![1; size], to).expect("a datagram");
                assert_eq!(receiver.recv(&mut buffer).expect("a datagram"), size);
            }
            running.poll();
            let events = running.end();
            let v6 = if is_v6 { 0x10 } else { 0 };
            let me = u64::from(std::process::id());
            let mine = |hook: u16, port: &str, address: SocketAddr| -> Vec<&CapturedEvent> {
                let is_mine = |event: &&CapturedEvent| {
                    event.number("PID") == me && event.number(port) == u64::from(address.port())
                };
                events.iter().filter(|event| event.hook == hook + v6).filter(is_mine).collect()
            };
            let sizes = |all: &[&CapturedEvent]| {
                all.iter().map(|event| event.number("size") as usize).collect::<Vec<_>>()
            };
            let all = [&[77], &SIZES[..]].concat();
            assert_eq!(sizes(&mine(0x080A, "sport", from)), all, "sent by the sender");
            let received = mine(0x080B, "dport", to);
            assert_eq!(sizes(&received), SIZES, "received by the receiver");
            for event in received {
                assert_eq!(event.bytes("daddr"), bytes_of(to.ip()));
                assert_eq!(
                    (event.bytes("saddr"), event.number("sport")),
                    (&*bytes_of(from.ip()), u64::from(from.port()))
                );
            }
            assert!(mine(0x080A, "sport", from).iter().all(|event| event.number("dport") == 0), "unknown");
        }
    });
}
