//! Clients that break the rules are refused and disconnected, and can use only limited resources;
//! other clients are not affected.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::net::{SendFlags, send};
use traceweir_format::Guid;
use traceweir_format::security::Sid;
use traceweir_format::spec::access::Rights;
use traceweir_format::spec::enable::EVENT_FILTER_TYPE_EVENT_NAME;
use traceweir_format::spec::session::EVENT_TRACE_FILE_MODE_SEQUENTIAL;
use traceweir_transport::Error;
use traceweir_transport::message::{EnableCode, EnableParams, Filter, Message, Role, SessionConfig};
use traceweir_transport::socket::Connection;

use crate::access::{ANN, client_as_user, connect_as_user, grant, is_root};
use crate::util::*;

#[test]
fn messages_out_of_role_are_refused_and_the_connection_is_closed() {
    let daemon = Daemon::start();
    let start = || Message::Start(Box::new(real_time_config("s")));
    for (mut client, message) in [
        (daemon.provider(), start()),
        (daemon.consumer(), start()),
        (daemon.controller(), Message::Ack { order: 1 }),
        (Client::new(daemon.connection()), start()),
        (Client::new(daemon.connection()), Message::Done),
    ] {
        assert_eq!(client.status(message), INVALID_PARAMETER);
        client.assert_closed();
    }
}

#[test]
fn malformed_bytes_are_refused_and_the_connection_is_closed() {
    let daemon = Daemon::start();
    let mut good = Vec::new();
    hello_message(Role::Controller, 1).encode(1, &mut good).unwrap();
    let mut samples = vec![b"x".to_vec(), vec![0; 100], vec![0xFF; 60_000]];
    samples.extend((1..good.len()).map(|cut| good[..cut].to_vec()));
    samples.extend((0..good.len().min(16)).map(|i| {
        let mut bad = good.clone();
        bad[i] ^= 0x80;
        bad
    }));
    for bytes in samples {
        let mut client = Client::new(daemon.connection());
        send(client.connection.as_fd(), &bytes, SendFlags::NOSIGNAL).unwrap();
        let answer = client.receive_envelope().message;
        // A `Hello` in which only the request number was changed is still a `Hello`.
        if !matches!(answer, Message::Welcome { .. }) {
            assert!(status(&answer) != SUCCESS, "{answer:?}");
            client.assert_closed();
        }
    }
    daemon.controller();
}

#[test]
fn unrequested_descriptors_are_closed() {
    let daemon = Daemon::start();
    let mut controller = daemon.controller();
    let (reader, writer) = std::io::pipe().unwrap();
    let writer = OwnedFd::from(writer);
    let four_descriptors = [&writer; 4];
    for _ in 0..50 {
        let answer = controller.request_with(Message::QueryAll { from: 0 }, &four_descriptors);
        assert!(matches!(answer, Message::Sessions { .. }));
    }
    let config = SessionConfig {
        log_file: Some("/tmp/x.etl".into()),
        log_file_mode: EVENT_TRACE_FILE_MODE_SEQUENTIAL,
        ..real_time_config("s")
    };
    assert_eq!(
        status(&controller.request_with(Message::Start(Box::new(config)), &four_descriptors)),
        INVALID_PARAMETER
    );
    assert_eq!(
        status(&controller.request_with(Message::Start(Box::new(real_time_config("s"))), &four_descriptors)),
        INVALID_PARAMETER
    );
    drop(writer);
    let mut end = Vec::new();
    std::io::Read::read_to_end(&mut { reader }, &mut end).unwrap();
    assert_eq!(end, b"", "the daemon has closed all copies of the write end");
}

#[test]
fn client_that_never_reads_is_dropped_and_delays_no_other() {
    let daemon = Daemon::start();
    let mut controller = daemon.controller();
    for i in 0..20 {
        controller.start(real_time_config(&format!("{i}-{}", "n".repeat(900))));
    }
    let non_reader = daemon.controller();
    let mut is_dropped = false;
    for request in 1..2000 {
        match non_reader.connection.send(request, &Message::QueryAll { from: 0 }, &[], TEST_TIMEOUT) {
            Ok(()) => {}
            Err(Error::Closed) => {
                is_dropped = true;
                break;
            }
            Err(e) => panic!("{e}"),
        }
    }
    assert!(is_dropped, "the daemon does not queue megabytes of replies");
    let Message::Sessions { total, .. } = controller.request(Message::QueryAll { from: 0 }) else {
        panic!("unexpected reply")
    };
    assert_eq!(total, 20);
}

#[test]
fn provider_that_never_reads_is_dropped_and_not_waited_for() {
    let daemon = Daemon::start();
    let mut controller = daemon.controller();
    let id = controller.start(real_time_config("s")).id;
    let mut non_reader = daemon.provider();
    for registration in 0..500 {
        non_reader.register_unenabled(registration, PROVIDER);
    }
    // As large as a filter can be: keywords and level (17 bytes), FilterIn, NameCount, one name.
    let data = [&[0; 17][..], &[1, 1, 0], &[b'n'; 4075], &[0]].concat();
    let filters = vec![Filter { kind: EVENT_FILTER_TYPE_EVENT_NAME, data }];
    let params = EnableParams { filters, ..EnableParams::default() };
    let message = |timeout| enable_message_with(id, PROVIDER, EnableCode::Enable, params.clone(), timeout);
    for _ in 0..400 {
        assert_eq!(controller.request(message(0)), Message::Done);
    }
    assert_eq!(controller.request(message(u32::MAX)), Message::Done, "a dropped process is not waited for");
    until("its region is detached", || controller.query(id).processes == 0);
    assert_eq!(controller.query(id).uncounted_processes, 1, "the dropped process is counted");
}

#[test]
fn daemon_answers_during_a_flood_of_requests() {
    let daemon = Daemon::start();
    let id = daemon.controller().start(real_time_config("s")).id;
    std::thread::scope(|scope| {
        for thread_number in 0..4u32 {
            let daemon = &daemon;
            scope.spawn(move || {
                for _ in 0..20 {
                    let mut provider = daemon.provider();
                    for registration in 0..50 {
                        provider.register_unenabled(
                            registration,
                            Guid::from_u128(u128::from(thread_number) + 10),
                        );
                    }
                    let mut controller = daemon.controller();
                    for _ in 0..50 {
                        controller.query(id);
                    }
                }
            });
        }
        let mut controller = daemon.controller();
        for _ in 0..200 {
            controller.query(id);
        }
    });
    let mut controller = daemon.controller();
    until("all connections are removed", || {
        let Message::Providers { providers, .. } =
            controller.request(Message::QueryProviders { after: None })
        else {
            panic!("unexpected reply")
        };
        providers.is_empty()
    });
}

#[test]
fn silent_connection_is_dropped() {
    let daemon = Daemon::start();
    let silent = daemon.connection();
    match silent.receive(TEST_TIMEOUT) {
        Err(Error::Closed) => {}
        other => panic!("{other:?}"),
    }
}

#[test]
fn unrequested_acknowledgements_do_nothing() {
    let daemon = Daemon::start();
    let mut controller = daemon.controller();
    let id = controller.start(real_time_config("s")).id;
    let mut provider = daemon.provider();
    provider.register_unenabled(1, PROVIDER);
    for order in [0, 1, 77, u32::MAX] {
        provider.acknowledge(order);
    }
    controller.enable(id, PROVIDER);
    provider.receive_region(id);
    provider.receive_enable();
    assert_eq!(
        provider.request(Message::Unregister { registration: 99 }),
        Message::Done,
        "an unknown registration"
    );
    until("the process is counted", || controller.query(id).processes == 1);
    provider.assert_quiet();
}

/// Returns a socket whose last close blocks for ten minutes, or until the other end is closed.
fn create_lingering_socket() -> (OwnedFd, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (other_end, _) = listener.accept().unwrap();
    socket.set_nonblocking(true).unwrap();
    while socket.write(&[0; 65_536]).is_ok() {}
    rustix::net::sockopt::set_socket_linger(&socket, Some(Duration::from_secs(600))).unwrap();
    (socket.into(), other_end)
}

/// Sends a message with a descriptor; returns whether the daemon's end accepts it. If this copy of
/// the descriptor is the last, closing it may block, so a separate thread does it.
fn can_send_descriptor(to: &Connection, message: &Message, descriptor: OwnedFd) -> bool {
    let sent = to.send(1, message, &[descriptor.as_fd()], TEST_TIMEOUT);
    std::thread::spawn(move || drop(descriptor));
    match sent {
        Ok(()) => true,
        Err(Error::Closed) => false,
        Err(Error::System { source, .. }) => {
            assert_eq!(source.kind(), std::io::ErrorKind::PermissionDenied);
            false
        }
        Err(e) => panic!("{e}"),
    }
}

#[test]
fn descriptor_whose_close_blocks_delays_no_client() {
    let daemon = Daemon::start();
    let mut controller = daemon.controller();
    let mut other_ends = Vec::new();
    let mut linger = || {
        let (socket, other_end) = create_lingering_socket();
        other_ends.push(other_end);
        socket
    };
    // First, clients that are not admitted yet send such descriptors.
    for role in [Role::Provider, Role::Controller, Role::Consumer] {
        let connection = daemon.connection();
        can_send_descriptor(&connection, &hello_message(role, new_instance()), linger());
        can_send_descriptor(&connection, &Message::Done, linger());
    }
    // Then an admitted client sends them, with a request and in place of a log file.
    let admitted = daemon.controller();
    assert!(can_send_descriptor(&admitted.connection, &Message::QueryAll { from: 0 }, linger()));
    let config = SessionConfig {
        log_file: Some("/tmp/x.etl".into()),
        log_file_mode: EVENT_TRACE_FILE_MODE_SEQUENTIAL,
        ..real_time_config("s")
    };
    assert!(can_send_descriptor(&admitted.connection, &Message::Start(Box::new(config)), linger()));
    // Finally, they come with messages that are never read, because an invalid message before them
    // closes the connection.
    send(admitted.connection.as_fd(), b"no message", SendFlags::NOSIGNAL).unwrap();
    for _ in 0..8 {
        can_send_descriptor(&admitted.connection, &Message::QueryAll { from: 0 }, linger());
    }
    let id = controller.start(real_time_config("answers")).id;
    controller.stop(id);
    drop(daemon.provider());
    drop(other_ends);
}

/// Returns whether the kernel lets a socket refuse descriptors (`SO_PASSRIGHTS`, Linux 6.16).
fn kernel_can_refuse_descriptors() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    holds_or_skip(version >= (6, 16), "passrights", "this kernel has no SO_PASSRIGHTS")
}

#[test]
fn other_users_cannot_send_descriptors_unless_they_control_sessions() {
    if !is_root() || !kernel_can_refuse_descriptors() {
        return;
    }
    let daemon = Daemon::start_for_all_users(tempfile::tempdir().unwrap());
    let (reader, _writer) = std::io::pipe().unwrap();
    let reader = || OwnedFd::from(reader.try_clone().unwrap());
    let send = |client: &Client| can_send_descriptor(&client.connection, &Message::Done, reader());
    assert!(!send(&client_as_user(&daemon, ANN, Role::Provider)));
    // The daemon may or may not have accepted this connection when the message is sent.
    let connection = connect_as_user(&daemon, ANN);
    assert!(
        !can_send_descriptor(&connection, &hello_message(Role::Provider, new_instance()), reader()),
        "before Hello"
    );
    assert!(send(&Daemon::start().provider()), "a process sends memory to its user's daemon");
    let mut root = daemon.controller();
    grant(&mut root, Guid::from_u128(1), Sid::user(ANN), Rights::WMIGUID_SET);
    assert!(send(&client_as_user(&daemon, ANN, Role::Controller)), "a controller sends log files");
}

#[test]
fn connections_of_one_process_are_limited() {
    let daemon = Daemon::start();
    let clients: Vec<Client> = (0..8).map(|_| daemon.provider()).collect();
    let mut ninth = Client::new(daemon.connection());
    assert_eq!(ninth.status(hello_message(Role::Provider, new_instance())), NO_SYSTEM_RESOURCES);
    ninth.assert_closed();
    daemon.controller();
    drop(clients);
    until("there is room again", || {
        let answer = Client::new(daemon.connection()).request(hello_message(Role::Provider, new_instance()));
        matches!(answer, Message::Welcome { .. })
    });
}
