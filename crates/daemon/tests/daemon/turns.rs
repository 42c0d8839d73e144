//! Order of service: the requests of one user neither delay other users for long nor disconnect
//! them.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{Gid, Uid};
use traceweir_format::security::Sid;
use traceweir_format::spec::access::Rights;
use traceweir_transport::message::{EnableCode, EnableParams, Filter, Message, Role, SessionConfig};
use traceweir_transport::socket::{BACKLOG, Connection};

use crate::access::{ANN, BOB, SESSION, client_as_user, grant, is_root};
use crate::util::*;

/// The longest allowed delay of a request, on any machine.
const MAX_DELAY: Duration = Duration::from_secs(30);

/// Time that the daemon gives a process to read a long queue.
const READ_LIMIT: Duration = Duration::from_secs(5);

fn register_message(registration: u32) -> Message {
    Message::Register { registration, provider: PROVIDER, traits: Vec::new(), classic: false }
}

/// Ends the loop of another thread, also when the test fails.
struct EndOnDrop<'a>(&'a AtomicBool);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Registers and unregisters on all connections as fast as possible, and reads the replies.
fn register_endlessly(clients: &[Client], is_over: &AtomicBool) -> usize {
    let mut rounds = 0;
    while !is_over.load(Ordering::Relaxed) {
        for client in clients {
            let send = |message: &Message| client.connection.send(7, message, &[], Duration::ZERO).is_ok();
            rounds +=
                usize::from(send(&register_message(1)) && send(&Message::Unregister { registration: 1 }));
            while let Ok(Some(_)) = client.connection.receive(Duration::ZERO) {}
        }
    }
    rounds
}

#[test]
fn user_who_registers_endlessly_delays_neither_root_nor_others() {
    if !is_root() {
        return;
    }
    let daemon = Daemon::start_for_all_users(tempfile::tempdir().unwrap());
    let mut root = daemon.controller();
    let session = root.start(real_time_config("s")).id;
    root.enable(session, PROVIDER);
    let clients_of_ann: Vec<Client> = (0..7).map(|_| client_as_user(&daemon, ANN, Role::Provider)).collect();
    let is_over = AtomicBool::new(false);
    let (rounds, slowest) = std::thread::scope(|scope| {
        let registering = scope.spawn(|| register_endlessly(&clients_of_ann, &is_over));
        let end = EndOnDrop(&is_over);
        let mut slowest = Duration::ZERO;
        for _ in 0..10 {
            let began = Instant::now();
            assert!(matches!(
                root.request(Message::QueryAll { from: 0 }),
                Message::Sessions { total: 1, .. }
            ));
            slowest = slowest.max(began.elapsed());
            let began = Instant::now();
            let mut client_of_bob = client_as_user(&daemon, BOB, Role::Provider);
            client_of_bob.send(&register_message(1));
            while !matches!(client_of_bob.receive(), Message::Registered { .. }) {}
            slowest = slowest.max(began.elapsed());
        }
        drop(end);
        (registering.join().unwrap(), slowest)
    });
    assert!(rounds > 0 && slowest < MAX_DELAY, "{slowest:?} during {rounds} rounds");
}

#[test]
fn guest_who_fills_a_process_queue_is_held_back_until_it_is_read() {
    if !is_root() {
        return;
    }
    // The daemon drops a process that does not read in time. A busy machine may be the reason, so
    // the test tries again.
    assert!((0..10).any(|_| fill_and_read_queue()), "the process was dropped each time");
}

/// Has a guest fill the queue of a process, and reads the queue after an answer to root. Returns
/// whether the process received everything. Fails the test if the daemon dropped the process before
/// [`READ_LIMIT`] had passed.
fn fill_and_read_queue() -> bool {
    let daemon = Daemon::start_for_all_users(tempfile::tempdir().unwrap());
    let mut root = daemon.controller();
    let rights = Rights::TRACELOG_CREATE_REALTIME | Rights::TRACELOG_GUID_ENABLE | Rights::WMIGUID_QUERY;
    for object in [SESSION, PROVIDER] {
        grant(&mut root, object, Sid::user(ANN), rights);
    }
    let session = root.start(SessionConfig { guid: SESSION, ..real_time_config("s") }).id;
    let mut client_of_bob = client_as_user(&daemon, BOB, Role::Provider);
    client_of_bob.register_unenabled(1, PROVIDER);
    let mut ann = client_as_user(&daemon, ANN, Role::Controller);
    let filters = (1..=8).map(|kind| Filter { kind, data: vec![7; 1024] }).collect();
    let params = EnableParams { level: 4, filters, ..EnableParams::default() };
    // More than the daemon queues for a process.
    const CALLS: usize = 300;
    let calls = AtomicUsize::new(0);
    let began = Instant::now();
    let received = std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..CALLS {
                let call = enable_message_with(session, PROVIDER, EnableCode::Enable, params.clone(), 0);
                assert_eq!(ann.request(call), Message::Done);
                calls.fetch_add(1, Ordering::Relaxed);
            }
        });
        wait_while_growing(&calls, CALLS);
        // If this answer waited until the queue is read, the daemon would drop the process.
        assert!(matches!(root.request(Message::QueryAll { from: 0 }), Message::Sessions { .. }));
        let mut received = Vec::new();
        while received.len() < CALLS + 1
            && let Ok(Some(envelope)) = client_of_bob.connection.receive(TEST_TIMEOUT)
        {
            received.push(envelope.message);
        }
        received
    });
    let uncounted = root.query(session).uncounted_processes;
    if received.len() < CALLS + 1 || uncounted > 0 {
        let (count, elapsed) = (received.len(), began.elapsed());
        assert!(
            elapsed >= READ_LIMIT,
            "dropped after {elapsed:?} and {count} messages; {uncounted} processes with uncounted losses"
        );
        return false;
    }
    assert!(matches!(received[0], Message::Region { .. }), "{:?}", received[0]);
    assert!(received[1..].iter().all(|message| matches!(message, Message::Enable { .. })));
    true
}

/// Waits until a number that has begun to grow stays the same for a while, or is `full`.
fn wait_while_growing(number: &AtomicUsize, full: usize) {
    let (mut last_count, mut last_growth) = (0, Instant::now());
    until("the calls are held back", || {
        let count = number.load(Ordering::Relaxed);
        if count != last_count {
            (last_count, last_growth) = (count, Instant::now());
        }
        count == full || (count > 0 && last_growth.elapsed() > Duration::from_millis(500))
    });
}

/// Connects as Ann without pause, and counts the connections.
fn connect_endlessly(socket: &Path, connected: &AtomicUsize, is_over: &AtomicBool) {
    let (user, group) = (Uid::from_raw(ANN), Gid::from_raw(ANN));
    rustix::thread::set_thread_groups(&[]).unwrap();
    rustix::thread::set_thread_res_gid(group, group, group).unwrap();
    rustix::thread::set_thread_res_uid(user, user, user).unwrap();
    while !is_over.load(Ordering::Relaxed) {
        if Connection::connect(socket, Duration::from_secs(1)).is_ok() {
            connected.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[test]
fn user_who_connects_endlessly_does_not_delay_root() {
    if !is_root() {
        return;
    }
    let daemon = Daemon::start_for_all_users(tempfile::tempdir().unwrap());
    let mut root = daemon.controller();
    let socket = daemon.runtime().control_socket();
    let (connected, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let connects_per_request: Vec<usize> = std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| connect_endlessly(&socket, &connected, &is_over));
        }
        let backlog = BACKLOG as usize;
        until("more connections than can wait", || connected.load(Ordering::Relaxed) > 2 * backlog);
        let mut request = || {
            let connected_before = connected.load(Ordering::Relaxed);
            let answer = root.request(Message::QueryAll { from: 0 });
            assert!(matches!(answer, Message::Sessions { .. }), "{answer:?}");
            connected.load(Ordering::Relaxed) - connected_before
        };
        let counts = (0..20).map(|_| request()).collect();
        is_over.store(true, Ordering::Relaxed);
        counts
    });
    // If a request had to wait for the guest, it would wait for a whole backlog of connections. The
    // smallest count is used, because the scheduler may stop this thread during some requests.
    let fewest_connects = connects_per_request.iter().min().unwrap();
    assert!(*fewest_connects < BACKLOG as usize / 2, "{connects_per_request:?}");
}
