use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::Instant;

use super::super::{Connection, Message};
use super::*;

const LONG_TIMEOUT: Duration = Duration::from_secs(20);

/// Returns a socket whose last close waits for ten minutes, or until the other end is closed.
fn create_lingering_socket() -> (OwnedFd, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (other_end, _) = listener.accept().unwrap();
    socket.set_nonblocking(true).unwrap();
    while socket.write(&[0; 65_536]).is_ok() {}
    sockopt::set_socket_linger(&socket, Some(Duration::from_secs(600))).unwrap();
    (socket.into(), other_end)
}

/// Returns a connection whose close waits, because it holds an unread lingering socket.
fn create_stuck_connection() -> (Connection, TcpStream) {
    let (a, b) = Connection::pair().unwrap();
    let (socket, other_end) = create_lingering_socket();
    a.send(0, &Message::Done, &[socket.as_fd()], LONG_TIMEOUT).unwrap();
    (b, other_end)
}

fn wait_until(condition: &str, is_met: impl Fn() -> bool) {
    let deadline = Instant::now() + LONG_TIMEOUT;
    while !is_met() {
        assert!(Instant::now() < deadline, "timed out before {condition}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn count_threads(janitor: &Janitor) -> usize {
    janitor.0.lock().threads
}

#[test]
fn handing_over_never_waits_and_everything_is_closed() {
    let janitor = Janitor::new();
    let start = Instant::now();
    let (connections, other_ends): (Vec<_>, Vec<_>) =
        (0..MAX_THREADS).map(|_| create_stuck_connection()).unzip();
    for connection in connections {
        drop(connection.with_janitor(&janitor));
    }
    wait_until("all threads are stuck", || janitor.kept() == 0);
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    janitor.dispose([writer]);
    assert_eq!((count_threads(&janitor), janitor.kept()), (MAX_THREADS, 1), "the pipe is not queued");
    assert!(start.elapsed() < Duration::from_secs(300), "the caller waited for a close");
    drop(other_ends);
    assert_eq!(rustix::io::read(&reader, &mut [0; 1]).unwrap(), 0, "the queued pipe was not closed");
    wait_until("the threads have ended", || count_threads(&janitor) == 0);
}

#[test]
fn lingering_is_turned_off_for_received_descriptors() {
    let janitor = Janitor::new();
    let (sockets, _other_ends): (Vec<_>, Vec<_>) =
        (0..3 * MAX_THREADS).map(|_| create_lingering_socket()).unzip();
    janitor.dispose(sockets);
    wait_until("all are closed", || janitor.kept() == 0 && count_threads(&janitor) == 0);
}

#[test]
fn connection_without_unread_data_is_closed_at_once() {
    let janitor = Janitor::new();
    let (a, b) = Connection::pair().unwrap();
    drop(b.with_janitor(&janitor));
    assert!(a.send(0, &Message::Done, &[], LONG_TIMEOUT).is_err());
    assert_eq!(count_threads(&janitor), 0);
}

#[test]
fn empty_packet_counts_as_unread_data() {
    let (a, b) = Connection::pair().unwrap();
    let b = b.as_fd().try_clone_to_owned().unwrap();
    assert_eq!(rustix::net::send(&a, b"", rustix::net::SendFlags::empty()).unwrap(), 0);
    assert!(!shut_down_and_check_empty(&b));
    let (a, b) = Connection::pair().unwrap();
    let b = b.as_fd().try_clone_to_owned().unwrap();
    assert!(shut_down_and_check_empty(&b));
    let sent = rustix::net::send(&a, b"x", rustix::net::SendFlags::NOSIGNAL);
    assert!(sent.is_err(), "data arrived after the check");
}

#[test]
fn janitor_closes_descriptors_of_an_invalid_packet() {
    let janitor = Janitor::new();
    let (a, b) = Connection::pair().unwrap();
    let b = b.with_janitor(&janitor);
    let (carried, other_end) = create_stuck_connection();
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = rustix::net::SendAncillaryBuffer::new(&mut space);
    let sent_descriptors = [carried.as_fd()];
    assert!(control.push(rustix::net::SendAncillaryMessage::ScmRights(&sent_descriptors)));
    let flags = rustix::net::SendFlags::empty();
    rustix::net::sendmsg(&a, &[std::io::IoSlice::new(b"junk")], &mut control, flags).unwrap();
    // The copy in the packet keeps the connection open.
    drop(carried);
    let start = Instant::now();
    assert!(b.receive(LONG_TIMEOUT).is_err());
    assert!(start.elapsed() < Duration::from_secs(300), "the receiver waited for the close");
    drop(other_end);
    wait_until("the received copy is closed", || janitor.kept() == 0 && count_threads(&janitor) == 0);
}
