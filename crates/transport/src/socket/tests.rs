use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::PathBuf;

use super::*;

const LONG_TIMEOUT: Duration = Duration::from_secs(20);
const NO_WAIT: Duration = Duration::ZERO;

fn ack(order: u32) -> Message {
    Message::Ack { order }
}

fn is_system(error: &Error, errno: i32) -> bool {
    matches!(error, Error::System { source, .. } if source.raw_os_error() == Some(errno))
}

/// Connects to a path. Returns the client's end and the listener's end.
fn connect_and_accept(listener: &Listener, path: &Path) -> (Connection, Connection) {
    let client = Connection::connect(path, LONG_TIMEOUT).unwrap();
    (client, listener.accept().unwrap().expect("no connection waits"))
}

/// Sends bytes and descriptors that no valid message has.
fn send_raw(to: &Connection, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(16))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(descriptors.is_empty() || control.push(SendAncillaryMessage::ScmRights(descriptors)));
    sendmsg(to, &[IoSlice::new(bytes)], &mut control, SendFlags::empty()).unwrap();
}

#[test]
fn messages_arrive_whole_and_in_order() {
    let (a, b) = Connection::pair().unwrap();
    assert!(b.receive(NO_WAIT).unwrap().is_none());
    let large = Message::Register {
        registration: 1,
        provider: traceweir_format::Guid::NULL,
        traits: vec![7; 60_000],
        classic: false,
    };
    a.send(1, &ack(1), &[], NO_WAIT).unwrap();
    a.send(2, &large, &[], NO_WAIT).unwrap();
    a.send(3, &Message::Done, &[], NO_WAIT).unwrap();
    for expected in [(1, ack(1)), (2, large), (3, Message::Done)] {
        let received = b.receive(LONG_TIMEOUT).unwrap().unwrap();
        assert_eq!((received.request, received.message), expected);
        assert!(received.descriptors.is_empty());
    }
    assert!(b.receive(NO_WAIT).unwrap().is_none());
}

#[test]
fn descriptors_come_with_their_message_and_are_not_inherited() {
    let (a, b) = Connection::pair().unwrap();
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    a.send(1, &ack(1), &[writer.as_fd(), reader.as_fd(), reader.as_fd(), reader.as_fd()], LONG_TIMEOUT)
        .unwrap();
    drop(writer);
    let mut received = b.receive(LONG_TIMEOUT).unwrap().unwrap();
    assert_eq!(received.descriptors.len(), 4);
    for fd in &received.descriptors {
        assert!(rustix::io::fcntl_getfd(fd).unwrap().contains(rustix::io::FdFlags::CLOEXEC));
    }
    File::from(received.descriptors.swap_remove(0)).write_all(b"through").unwrap();
    let mut text = String::new();
    // The read returns only when all copies of the writing end are closed.
    File::from(reader).read_to_string(&mut text).unwrap();
    assert_eq!(text, "through");
}

#[test]
fn too_many_descriptors_are_rejected_on_both_sides_and_closed() {
    let (a, b) = Connection::pair().unwrap();
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    // A message may have four descriptors.
    let five = [writer.as_fd(); 5];
    assert!(matches!(a.send(1, &ack(1), &five, LONG_TIMEOUT), Err(Error::Invalid(_))));
    let mut bytes = Vec::new();
    ack(1).encode(1, &mut bytes).unwrap();
    for count in [5, 6, 12] {
        send_raw(&a, &bytes, &vec![writer.as_fd(); count]);
        assert!(matches!(b.receive(LONG_TIMEOUT), Err(Error::Invalid(_))), "{count} descriptors");
    }
    drop(writer);
    assert_eq!(File::from(reader).read(&mut [0]).unwrap(), 0, "a copy is still open");
}

#[test]
fn invalid_packet_is_an_error_and_the_next_message_arrives() {
    let (a, b) = Connection::pair().unwrap();
    send_raw(&a, b"hello, daemon", &[]);
    send_raw(&a, &vec![0; MAX_MESSAGE_BYTES + 1], &[]);
    a.send(9, &Message::Done, &[], LONG_TIMEOUT).unwrap();
    assert!(matches!(b.receive(LONG_TIMEOUT), Err(Error::Message(_))));
    assert!(matches!(b.receive(LONG_TIMEOUT), Err(Error::Invalid(_))));
    assert_eq!(b.receive(LONG_TIMEOUT).unwrap().unwrap().request, 9);
}

#[test]
fn full_queue_times_out_and_continues_when_it_is_drained() {
    let (a, b) = Connection::pair().unwrap();
    let mut sent = 0;
    let full = loop {
        match a.send(sent, &ack(0), &[], NO_WAIT) {
            Ok(()) => sent += 1,
            Err(e) => break e,
        }
    };
    assert!(matches!(full, Error::TimedOut), "{full}");
    assert!(matches!(a.send(sent, &ack(0), &[], Duration::from_millis(5)), Err(Error::TimedOut)));
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| a.send(sent, &ack(0), &[], LONG_TIMEOUT));
        for request in 0..=sent {
            assert_eq!(b.receive(LONG_TIMEOUT).unwrap().unwrap().request, request);
        }
        waiting.join().unwrap().unwrap();
    });
}

#[test]
fn messages_sent_before_the_close_arrive_first() {
    let (a, b) = Connection::pair().unwrap();
    a.send(1, &ack(1), &[], LONG_TIMEOUT).unwrap();
    drop(a);
    assert_eq!(b.receive(NO_WAIT).unwrap().unwrap().message, ack(1));
    assert!(matches!(b.receive(LONG_TIMEOUT), Err(Error::Closed)));
    assert!(matches!(b.send(1, &ack(1), &[], LONG_TIMEOUT), Err(Error::Closed)));
    let (a, b) = Connection::pair().unwrap();
    a.send(1, &ack(1), &[], LONG_TIMEOUT).unwrap();
    drop(b);
    assert!(matches!(a.receive(LONG_TIMEOUT), Err(Error::Closed)), "a reset was not reported as closed");
}

#[test]
fn both_ends_know_each_other() {
    let this_process = Peer {
        pid: std::process::id(),
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let listener = Listener::bind(&path, 0o600).unwrap();
    let (client, server) = connect_and_accept(&listener, &path);
    assert_eq!((client.peer(), server.peer()), (this_process, this_process));
    client.send(1, &Message::Done, &[], LONG_TIMEOUT).unwrap();
    assert_eq!(server.receive(LONG_TIMEOUT).unwrap().unwrap().message, Message::Done);
    assert!(listener.accept().unwrap().is_none());
}

#[test]
fn socket_file_has_requested_mode_and_no_other_file_stays() {
    let folder = tempfile::tempdir().unwrap();
    for mode in [0o600, 0o666] {
        let path = folder.path().join(format!("{mode:o}"));
        let _listener = Listener::bind(&path, mode).unwrap();
        let metadata = std::fs::symlink_metadata(&path).unwrap();
        assert!(metadata.file_type().is_socket());
        assert_eq!(metadata.permissions().mode() & 0o7777, mode);
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
}

#[test]
fn live_socket_stays_and_stale_one_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let missing = Connection::connect(&path, LONG_TIMEOUT).unwrap_err();
    assert!(is_system(&missing, libc::ENOENT), "{missing}");
    let first = Listener::bind(&path, 0o600).unwrap();
    assert!(is_system(&Listener::bind(&path, 0o600).unwrap_err(), libc::EADDRINUSE));
    // The check for a listener has left a connection that was closed at once.
    let check = first.accept().unwrap().unwrap();
    assert!(matches!(check.receive(LONG_TIMEOUT), Err(Error::Closed)));
    connect_and_accept(&first, &path);
    drop(first);
    assert!(is_system(&Connection::connect(&path, LONG_TIMEOUT).unwrap_err(), libc::ECONNREFUSED));
    let second = Listener::bind(&path, 0o600).unwrap();
    connect_and_accept(&second, &path);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn file_that_is_not_a_socket_is_never_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("precious");
    std::fs::write(&path, "data").unwrap();
    assert!(is_system(&Listener::bind(&path, 0o600).unwrap_err(), libc::EADDRINUSE));
    let link = folder.path().join("link");
    std::os::unix::fs::symlink("precious", &link).unwrap();
    assert!(is_system(&Listener::bind(&link, 0o600).unwrap_err(), libc::EADDRINUSE));
    assert_eq!(std::fs::read(&path).unwrap(), b"data");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
}

#[test]
fn paths_longer_than_an_address_work() {
    let root = tempfile::tempdir().unwrap();
    let folder: PathBuf = root.path().join("f".repeat(90)).join("g".repeat(90));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("control.sock");
    // The address of a Unix socket has room for 108 bytes.
    assert!(path.as_os_str().as_bytes().len() > 108);
    let listener = Listener::bind(&path, 0o600).unwrap();
    connect_and_accept(&listener, &path);
    assert!(is_system(&Listener::bind(&path, 0o600).unwrap_err(), libc::EADDRINUSE));
    drop(listener);
    connect_and_accept(&Listener::bind(&path, 0o600).unwrap(), &path);
}

#[test]
fn connect_to_a_full_queue_is_bounded() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let listener = Listener::bind(&path, 0o600).unwrap();
    // With a backlog of 0, one connection may wait.
    rustix::net::listen(&listener, 0).unwrap();
    let _waiting = Connection::connect(&path, NO_WAIT).unwrap();
    assert!(matches!(Connection::connect(&path, NO_WAIT), Err(Error::TimedOut)));
    assert!(matches!(Connection::connect(&path, Duration::from_millis(20)), Err(Error::TimedOut)));
    let refused = Listener::bind(&path, 0o600).unwrap_err();
    assert!(is_system(&refused, libc::EADDRINUSE), "a busy socket was treated as stale: {refused}");
    std::thread::scope(|scope| {
        let late = scope.spawn(|| Connection::connect(&path, LONG_TIMEOUT));
        while !late.is_finished() {
            let _ = listener.accept().unwrap();
            std::thread::yield_now();
        }
        late.join().unwrap().unwrap();
    });
}

#[test]
fn only_seqpacket_sockets_are_taken_over() {
    let stream = std::os::unix::net::UnixStream::pair().unwrap().0;
    assert!(matches!(Connection::from_fd(stream.into()), Err(Error::Invalid(_))));
    assert!(Connection::from_fd(File::open("/dev/null").unwrap().into()).is_err());
    let (a, _b) = Connection::pair().unwrap();
    assert!(matches!(Listener::from_fd(a.as_fd().try_clone_to_owned().unwrap()), Err(Error::Invalid(_))));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let listener =
        Listener::from_fd(rustix::io::dup(Listener::bind(&path, 0o600).unwrap()).unwrap()).unwrap();
    connect_and_accept(&listener, &path);
}

/// Returns whether the kernel lets a socket refuse descriptors; reports a skip if not.
fn can_refuse_descriptors() -> bool {
    let is_supported = rights::set_passing(&Connection::pair().unwrap().0, true).unwrap();
    crate::skip::holds_or_skip(is_supported, "passrights", "this kernel has no SO_PASSRIGHTS")
}

#[test]
fn accepted_connection_takes_descriptors_only_on_request() {
    if !can_refuse_descriptors() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let bound = Listener::bind(&path, 0o600).unwrap();
    let activated = Listener::from_fd(rustix::io::dup(&bound).unwrap()).unwrap();
    let (reader, _writer) = rustix::pipe::pipe().unwrap();
    for listener in [bound, activated] {
        let client = Connection::connect(&path, LONG_TIMEOUT).unwrap();
        let send = || client.send(1, &ack(1), &[reader.as_fd()], LONG_TIMEOUT);
        assert!(is_system(&send().unwrap_err(), libc::EPERM), "wrong error before the accept");
        let server = listener.accept().unwrap().unwrap();
        assert!(is_system(&send().unwrap_err(), libc::EPERM), "wrong error after the accept");
        server.allow_descriptors().unwrap();
        send().unwrap();
        assert_eq!(server.receive(LONG_TIMEOUT).unwrap().unwrap().descriptors.len(), 1);
        // The client accepts descriptors from the start.
        server.send(1, &ack(1), &[reader.as_fd()], LONG_TIMEOUT).unwrap();
    }
}

#[test]
fn connection_without_descriptors_takes_none_until_requested() {
    if !can_refuse_descriptors() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let listener = Listener::bind(&path, 0o600).unwrap();
    let client = Connection::connect_without_descriptors(&path, LONG_TIMEOUT).unwrap();
    let server = listener.accept().unwrap().unwrap();
    let (reader, _writer) = rustix::pipe::pipe().unwrap();
    let send = || server.send(1, &ack(1), &[reader.as_fd()], LONG_TIMEOUT);
    assert!(is_system(&send().unwrap_err(), libc::EPERM));
    client.allow_descriptors().unwrap();
    send().unwrap();
    assert_eq!(client.receive(LONG_TIMEOUT).unwrap().unwrap().descriptors.len(), 1);
}

#[test]
fn groups_of_the_other_end_are_sorted() {
    let (a, _b) = Connection::pair().unwrap();
    let mut own: Vec<u32> =
        rustix::process::getgroups().unwrap().iter().map(|group| group.as_raw()).collect();
    own.sort_unstable();
    assert_eq!(a.peer_groups(), Some(own));
}

#[test]
fn groups_are_those_of_the_connecting_thread_within_a_limit() {
    if !rustix::process::geteuid().is_root() {
        return crate::skip::skip("root", "taking groups needs root");
    }
    let read_groups = |groups: Vec<u32>| {
        let connect = move || {
            let groups: Vec<_> = groups.into_iter().map(rustix::process::Gid::from_raw).collect();
            rustix::thread::set_thread_groups(&groups).unwrap();
            Connection::pair().unwrap().0.peer_groups()
        };
        std::thread::spawn(connect).join().unwrap()
    };
    assert_eq!(read_groups(vec![90_002, 90_001]), Some(vec![90_001, 90_002]));
    assert_eq!(read_groups(Vec::new()), Some(Vec::new()));
    let max_groups = MAX_GROUPS as u32;
    assert_eq!(read_groups((1..=max_groups).collect()), Some((1..=max_groups).collect()));
    assert_eq!(read_groups((0..=max_groups).collect()), None);
}

#[test]
fn ended_peer_process_is_recognised() {
    const SOCKET: &str = "TRACEWEIR_TEST_SOCKET";
    if let Some(path) = std::env::var_os(SOCKET) {
        // In the child process: the connection waits to be accepted.
        drop(Connection::connect(Path::new(&path), Duration::from_secs(10)).unwrap());
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.sock");
    let listener = Listener::bind(&path, 0o600).unwrap();
    let own = Connection::connect(&path, Duration::from_secs(10)).unwrap();
    assert!(!listener.accept().unwrap().unwrap().peer_has_ended(), "this process counts as ended");
    assert!(!own.peer_has_ended());
    let mut child = std::process::Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "socket::tests::ended_peer_process_is_recognised"]);
    let output = child.env(SOCKET, &path).output().unwrap();
    assert!(output.status.success(), "the child failed: {output:?}");
    let connection = listener.accept().unwrap().unwrap();
    assert_ne!(connection.peer().pid, std::process::id());
    // Without support (Linux before 6.5), the peer counts as running.
    let is_supported = !matches!(peer_process(connection.as_fd()), Err(Errno::NOPROTOOPT));
    assert_eq!(connection.peer_has_ended(), is_supported);
}

#[test]
fn messages_of_a_peer_that_closed_without_reading_arrive() {
    let (a, b) = Connection::pair().unwrap();
    b.send(1, &Message::Done, &[], NO_WAIT).unwrap();
    a.send(1, &ack(1), &[], NO_WAIT).unwrap();
    a.send(2, &ack(2), &[], NO_WAIT).unwrap();
    drop(a);
    for order in [1, 2] {
        assert_eq!(b.receive(LONG_TIMEOUT).unwrap().unwrap().message, ack(order));
    }
    assert!(matches!(b.receive(LONG_TIMEOUT), Err(Error::Closed)));
}
