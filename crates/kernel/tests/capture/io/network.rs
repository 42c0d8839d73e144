//! Loopback traffic of known size.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};

use traceweir_kernel::Group;

use super::support::{Running, Seen};
use crate::again::again;
use crate::support::skip::can;

/// What the client sends, call by call.
const PIECES: [usize; 5] = [1, 1000, 65_536, 3, 200_000];
/// What the server answers.
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

/// The client sends all pieces, the server reads them and answers; both ends close.
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

/// Events with this local and this remote port.
fn between(seen: &[Seen], hook: u16, local: u16, remote: u16) -> Vec<&Seen> {
    let ports = (u64::from(local), u64::from(remote));
    seen.iter().filter(|it| it.hook == hook && (it.number("sport"), it.number("dport")) == ports).collect()
}

fn sum(of: &[&Seen]) -> usize {
    of.iter().map(|it| usize::try_from(it.number("size")).expect("a size")).sum()
}

/// What has to be seen of one conversation; `accepter`: of one that has begun since, whom its beginning names.
fn check(seen: &[Seen], (client, server): (SocketAddr, SocketAddr), accepter: Option<u32>) {
    let v6 = if client.is_ipv6() { 0x10 } else { 0 };
    let sent: usize = PIECES.iter().sum();
    let of = |hook: u16, from: SocketAddr, to: SocketAddr| between(seen, hook + v6, from.port(), to.port());
    for (from, to, out, back) in [(client, server, sent, ANSWER), (server, client, ANSWER, sent)] {
        let (sends, receives) = (of(0x060A, from, to), of(0x060B, from, to));
        assert_eq!((sum(&sends), sum(&receives)), (out, back), "{from} → {to}");
        assert_eq!(of(0x060D, from, to).len(), 1, "one end of {from}");
        let connection = sends[0].number("connid");
        for event in sends.iter().chain(&receives).chain(&of(0x060D, from, to)) {
            assert_eq!(event.number("PID"), u64::from(std::process::id()));
            assert_eq!(event.number("connid"), connection);
            assert_eq!(event.bytes("saddr"), bytes_of(from.ip()));
            assert_eq!(event.bytes("daddr"), bytes_of(to.ip()));
        }
    }
    let pieces: Vec<u64> = of(0x060A, client, server).iter().map(|it| it.number("size")).collect();
    assert_eq!(pieces, PIECES.map(|piece| piece as u64));
    let begun = usize::from(accepter.is_some());
    let (own, accepter) = (std::process::id(), accepter.unwrap_or(0));
    let begins = [(0x060C, client, server, own), (0x060F, server, client, accepter)];
    for (hook, from, to, owner) in begins {
        let found = of(hook, from, to);
        assert_eq!(found.len(), begun, "{hook:04x}");
        assert!(found.iter().all(|it| it.number("PID") == u64::from(owner)));
    }
    for (hook, from, to) in [(0x060C, server, client), (0x060F, client, server)] {
        assert!(of(hook, from, to).is_empty(), "the client connects and the server accepts");
    }
}

fn running() -> Option<Running> {
    let running = Running::start(&[Group::NETWORK], &[0x060A])?;
    let has = running.has("sock:sock_send_length");
    can(has, "kernel events", "this kernel does not tell what sockets send").then_some(running)
}

#[test]
fn a_tcp_connection_is_told_from_beginning_to_end() {
    again(5, || {
        for (is_v6, is_looked_at) in [(false, false), (false, true), (true, false), (true, true)] {
            let Some(mut running) = running() else { return };
            let Ok(listener) = TcpListener::bind((loopback(is_v6), 0)) else { continue };
            let server = listener.local_addr().expect("an address");
            let client = TcpStream::connect(server).expect("a connection");
            let address = client.local_addr().expect("an address");
            let (accepted, _) = listener.accept().expect("a connection");
            // Whose a connection is that is just there, its first use tells: the look that sees both knows it.
            let accepter = if is_looked_at { u32::MAX } else { std::process::id() };
            if is_looked_at {
                running.look();
            }
            converse(client, accepted);
            let seen = running.end();
            check(&seen, (address, server), Some(accepter));
            assert!(is_v6 || seen.iter().any(|it| it.is_stack), "a send has a stack");
        }
    });
}

#[test]
fn a_connection_that_is_older_than_the_capture_is_known_by_what_it_receives() {
    again(5, || {
        let listener = TcpListener::bind((loopback(false), 0)).expect("a listener");
        let server = listener.local_addr().expect("an address");
        let mut client = TcpStream::connect(server).expect("a connection");
        let address = client.local_addr().expect("an address");
        let (mut accepted, _) = listener.accept().expect("a connection");
        client.write_all(&[1]).expect("a byte");
        accepted.write_all(&[1]).expect("a byte");
        let Some(running) = running() else { return };
        // Each end receives something before anything is counted.
        let mut byte = [0; 1];
        accepted.read_exact(&mut byte).expect("a byte");
        client.read_exact(&mut byte).expect("a byte");
        converse(client, accepted);
        let mut seen = running.end();
        let first =
            seen.iter().position(|it| it.hook == 0x060A && it.number("dport") == u64::from(server.port()));
        seen.drain(..first.expect("a send"));
        check(&seen, (address, server), None);
    });
}

#[test]
fn a_connection_that_is_refused_has_failed() {
    again(5, || {
        let Some(running) = running() else { return };
        let listener = TcpListener::bind((loopback(false), 0)).expect("a listener");
        let nobody = listener.local_addr().expect("an address");
        drop(listener);
        TcpStream::connect(nobody).expect_err("nobody listens");
        let seen = running.end();
        let failed = seen.iter().filter(|it| it.hook == 0x0611);
        assert!(failed.clone().any(|it| (it.number("Proto"), it.number("FailureCode")) == (2, 5)));
        assert!(between(&seen, 0x060C, 0, nobody.port()).is_empty());
    });
}

/// All UDP of this program is here: a socket is known by being the only one that is not known yet.
#[test]
fn datagrams_are_told_with_their_sizes_and_ports() {
    again(5, || {
        const SIZES: [usize; 4] = [1, 0, 1400, 9000];
        for is_v6 in [false, true] {
            let Some(mut running) = running() else { return };
            let Ok(sender) = UdpSocket::bind((loopback(is_v6), 0)) else { continue };
            let from = sender.local_addr().expect("an address");
            let mut buffer = vec![0; 10_000];
            // Alone, it is found.
            sender.send_to(&[1; 77], from).expect("a datagram");
            assert_eq!(sender.recv(&mut buffer).expect("a datagram"), 77);
            running.look();
            let receiver = UdpSocket::bind((loopback(is_v6), 0)).expect("a socket");
            let to = receiver.local_addr().expect("an address");
            receiver.connect(from).expect("a peer");
            for size in SIZES {
                sender.send_to(&vec![1; size], to).expect("a datagram");
                assert_eq!(receiver.recv(&mut buffer).expect("a datagram"), size);
            }
            running.look();
            let seen = running.end();
            let v6 = if is_v6 { 0x10 } else { 0 };
            let me = u64::from(std::process::id());
            let mine = |hook: u16, port: &str, of: SocketAddr| -> Vec<&Seen> {
                let is = |it: &&Seen| it.number("PID") == me && it.number(port) == u64::from(of.port());
                seen.iter().filter(|it| it.hook == hook + v6).filter(is).collect()
            };
            let sizes = |of: &[&Seen]| of.iter().map(|it| it.number("size") as usize).collect::<Vec<_>>();
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
            assert!(mine(0x080A, "sport", from).iter().all(|it| it.number("dport") == 0), "not told");
        }
    });
}
