//! Order of service: the requests of one user delay no other user for long, and disconnect none.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{Gid, Uid};
use traceweir_format::security::Sid;
use traceweir_format::spec::access::Rights;
use traceweir_transport::message::{EnableCode, EnableParams, Filter, Message, Role, SessionConfig};
use traceweir_transport::socket::{BACKLOG, Connection};

use crate::access::{ANN, BOB, SESSION, client_of, grant, is_root};
use crate::util::*;

/// The longest acceptable delay of a request that is handled at once.
const AT_ONCE: Duration = Duration::from_secs(1);

/// How long a controller without an answer counts as held back.
const HELD_BACK: Duration = Duration::from_millis(250);

fn register(registration: u32) -> Message {
    Message::Register { registration, provider: PROVIDER, traits: Vec::new(), classic: false }
}

/// Registers and unregisters on all connections as fast as possible, and reads the replies.
fn churn(clients: &[Client], is_over: &AtomicBool) -> usize {
    let mut rounds = 0;
    while !is_over.load(Ordering::Relaxed) {
        for client in clients {
            let send = |message: &Message| client.connection.send(7, message, &[], Duration::ZERO).is_ok();
            rounds += usize::from(send(&register(1)) && send(&Message::Unregister { registration: 1 }));
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
    let daemon = Daemon::start_for_all(tempfile::tempdir().unwrap());
    let mut root = daemon.controller();
    let session = root.start(live("s")).id;
    root.enable(session, PROVIDER);
    let anns: Vec<Client> = (0..7).map(|_| client_of(&daemon, ANN, Role::Provider)).collect();
    let is_over = AtomicBool::new(false);
    let (rounds, slowest) = std::thread::scope(|scope| {
        let churner = scope.spawn(|| churn(&anns, &is_over));
        let mut slowest = Duration::ZERO;
        for _ in 0..10 {
            let began = Instant::now();
            assert!(matches!(
                root.request(Message::QueryAll { from: 0 }),
                Message::Sessions { total: 1, .. }
            ));
            slowest = slowest.max(began.elapsed());
            let began = Instant::now();
            let mut bobs = client_of(&daemon, BOB, Role::Provider);
            bobs.send(&register(1));
            while !matches!(bobs.receive(), Message::Registered { .. }) {}
            slowest = slowest.max(began.elapsed());
        }
        is_over.store(true, Ordering::Relaxed);
        (churner.join().unwrap(), slowest)
    });
    assert!(rounds > 0 && slowest < AT_ONCE, "{slowest:?} during {rounds} rounds");
}

#[test]
fn guest_who_fills_a_process_queue_is_held_back_until_it_is_read() {
    if !is_root() {
        return;
    }
    let daemon = Daemon::start_for_all(tempfile::tempdir().unwrap());
    let mut root = daemon.controller();
    let rights = Rights::TRACELOG_CREATE_REALTIME | Rights::TRACELOG_GUID_ENABLE | Rights::WMIGUID_QUERY;
    for object in [SESSION, PROVIDER] {
        grant(&mut root, object, Sid::user(ANN), rights);
    }
    let session = root.start(SessionConfig { guid: SESSION, ..live("s") }).id;
    let mut bobs = client_of(&daemon, BOB, Role::Provider);
    bobs.register_quietly(1, PROVIDER);
    let mut ann = client_of(&daemon, ANN, Role::Controller);
    let filters = (1..=8).map(|kind| Filter { kind, data: vec![7; 1024] }).collect();
    let params = EnableParams { level: 4, filters, ..EnableParams::default() };
    const CALLS: usize = 300;
    let answered = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..CALLS {
                let call = enable_with(session, PROVIDER, EnableCode::Enable, params.clone(), 0);
                assert_eq!(ann.request(call), Message::Done);
                answered.fetch_add(1, Ordering::Relaxed);
            }
        });
        // The process is busy while more messages come than the daemon queues for a process.
        until("the controller is held back", || {
            let before = answered.load(Ordering::Relaxed);
            std::thread::sleep(HELD_BACK);
            before > 0 && answered.load(Ordering::Relaxed) == before
        });
        assert!(answered.load(Ordering::Relaxed) < CALLS, "the queue holds fewer messages");
        let began = Instant::now();
        assert!(matches!(root.request(Message::QueryAll { from: 0 }), Message::Sessions { .. }));
        assert!(began.elapsed() < AT_ONCE, "root is answered meanwhile");
        bobs.receive_region(session);
        for _ in 0..CALLS {
            bobs.receive_enable();
        }
    });
    assert_eq!(root.query(session).uncounted_processes, 0, "no process was dropped");
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
    let daemon = Daemon::start_for_all(tempfile::tempdir().unwrap());
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
            let before = connected.load(Ordering::Relaxed);
            let answer = root.request(Message::QueryAll { from: 0 });
            assert!(matches!(answer, Message::Sessions { .. }), "{answer:?}");
            connected.load(Ordering::Relaxed) - before
        };
        let counts = (0..20).map(|_| request()).collect();
        is_over.store(true, Ordering::Relaxed);
        counts
    });
    // A request that waits for the guest's connections waits for all that can wait to be accepted.
    // This thread may be stopped during some of the requests.
    let fewest = connects_per_request.iter().min().unwrap();
    assert!(*fewest < BACKLOG as usize / 2, "{connects_per_request:?}");
}
