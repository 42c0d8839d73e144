//! The kernel's manifest providers in ordinary sessions: events of this machine's kernel with the
//! published ids and fields.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use traceweir_format::Guid;
use traceweir_format::etl::{Trace, check};
use traceweir_format::filter::encode;
use traceweir_format::header::Family;
use traceweir_format::info::MIN_CAPTURE_STATE_SECONDS;
use traceweir_format::kernel::hook;
use traceweir_format::kernel::providers::{
    KERNEL_DISK, KERNEL_FILE, KERNEL_NETWORK, KERNEL_PROCESS, events_of_provider,
};
use traceweir_format::security::Sid;
use traceweir_format::spec::access::{DEFAULT_TRACE_SECURITY, Rights};
use traceweir_format::spec::enable::{EVENT_ENABLE_PROPERTY_STACK_TRACE, EVENT_FILTER_TYPE_PID};
use traceweir_format::spec::event::EventDescriptor;
use traceweir_format::spec::event::class::SYSTEM_TRACE_CONTROL;
use traceweir_format::spec::info::InfoClass;
use traceweir_format::spec::session::{EVENT_TRACE_FILE_MODE_SEQUENTIAL, EVENT_TRACE_SYSTEM_LOGGER_MODE};
use traceweir_format::spec::status::Status;
use traceweir_format::wire::{i64_at, u16_at, u32_at, u64_at};
use traceweir_transport::message::{
    Control, EnableCode, EnableParams, Filter, Message, Properties, Role, SessionConfig, SessionRef,
};

use crate::access::{ANN, client_as_user, grant, is_root};
use crate::util::*;

/// Statuses with which a daemon that cannot capture kernel events refuses them.
const UNAVAILABLE: [u32; 2] = [Status::ERROR_NOT_SUPPORTED.0, PRIVILEGE_NOT_HELD.0];

/// The exit code of a process whose exit code the daemon could not read.
const UNKNOWN_EXIT_CODE: u32 = 0x8000_0000;

/// An event of a kernel provider in a file.
struct KernelEvent {
    provider: Guid,
    descriptor: EventDescriptor,
    time: i64,
    process_id: u32,
    thread_id: u32,
    payload: Vec<u8>,
    frames: Vec<u64>,
}

impl KernelEvent {
    fn is(&self, provider: Guid, id: u16) -> bool {
        self.provider == provider && self.descriptor.id == id
    }

    /// Returns the UTF-16 text at an offset of the payload.
    fn text_at(&self, offset: usize) -> String {
        let units = self.payload[offset..].chunks_exact(2).map(|unit| u16_at(unit, 0));
        let units: Vec<u16> = units.take_while(|unit| *unit != 0).collect();
        String::from_utf16_lossy(&units)
    }
}

/// Returns the events of the kernel's providers in a final, valid trace.
fn read_events(path: &Path) -> Vec<KernelEvent> {
    let trace = Trace::open(File::open(path).unwrap()).unwrap();
    assert!(trace.is_finalised());
    check(&trace, &mut |finding| panic!("{}: {finding:?}", path.display())).unwrap();
    let (mut records, mut events) = (trace.events(), Vec::new());
    while let Some(record) = records.next().unwrap() {
        if record.family() != Family::Event || events_of_provider(record.provider()).next().is_none() {
            continue;
        }
        events.push(KernelEvent {
            provider: record.provider(),
            descriptor: record.descriptor(),
            time: record.time(),
            process_id: record.process_id(),
            thread_id: record.thread_id(),
            payload: record.payload().to_vec(),
            frames: record.items().stack().map(|stack| stack.frames().collect()).unwrap_or_default(),
        });
    }
    events
}

/// Reports whether the daemon of these tests may capture the whole machine with tracepoints. An
/// unprivileged daemon captures its own user's processes from side-band records.
fn captures_machine() -> bool {
    rustix::process::geteuid().is_root()
}

fn params(match_any: u64, property: u32) -> EnableParams {
    EnableParams { level: 5, match_any, property, ..EnableParams::default() }
}

/// Enables a provider; returns whether this machine has its events.
fn enable(controller: &mut Client, session: &Properties, provider: Guid, params: EnableParams) -> bool {
    match controller.request(enable_message_with(session.id, provider, EnableCode::Enable, params, 0)) {
        Message::Done => true,
        Message::Refused { status, reason } if UNAVAILABLE.contains(&status) => {
            assert!(reason.contains("kernel events"), "{reason}");
            skip("kernel events", &reason);
            false
        }
        other => panic!("{other:?}"),
    }
}

/// Starts an ordinary session with a file.
fn start_session(daemon: &Daemon, controller: &mut Client, name: &str) -> (Properties, PathBuf) {
    let path = daemon.path(&format!("{name}.etl"));
    let session = controller.start(file_config(name, &path));
    (session, path)
}

fn run_true() -> u32 {
    let mut child = Command::new("/bin/true").spawn().unwrap();
    child.wait().unwrap();
    child.id()
}

const FLUSH: Control = Control::Flush { log_file: None };

#[test]
fn process_provider_reports_a_program_from_start_to_stop() {
    retry_alternately_with_busy_processors(5, || {
        let daemon = Daemon::start();
        let mut controller = daemon.controller();
        let (session, path) = start_session(&daemon, &mut controller, "p");
        if !enable(&mut controller, &session, KERNEL_PROCESS, params(0, 0)) {
            return;
        }
        let child = run_true();
        let stopped = controller.stop(session.id);
        let events = read_events(&path);
        assert!(events.len() as u64 <= stopped.events);
        // Events 1 and 2: start and stop of a process; 3 and 4: of a thread; 5 and 6: load and
        // unload of an image. Offsets in their payloads:
        // - process: id 0, sequence number 4, create time 12; in a start: parent 20, path 60; in a
        //   stop: exit time 20, exit code 28
        // - thread: process 0, thread 4
        // - image: base 0, process 16, path 36
        let of_child = |id: u16, pid_offset: usize| {
            let is_child = move |event: &&KernelEvent| {
                event.is(KERNEL_PROCESS, id) && u32_at(&event.payload, pid_offset) == child
            };
            events.iter().filter(is_child).collect::<Vec<_>>()
        };
        let starts = of_child(1, 0);
        // A fork is a start, and so is an exec.
        let start = *starts.last().expect("no start of the program");
        assert_eq!((start.descriptor.version, start.descriptor.keyword), (3, 0x8000_0000_0000_0010));
        assert_eq!(u32_at(&start.payload, 20), std::process::id(), "not the parent");
        let image_name = start.text_at(60);
        // An unprivileged daemon reads the path from `/proc`, where a short program is soon gone.
        let has_name = image_name.ends_with("/true") || (!captures_machine() && image_name == "true");
        assert!(has_name, "{image_name}");
        let stops = of_child(2, 0);
        let stop = *stops.last().expect("no stop of the program");
        assert_eq!((stop.descriptor.version, stop.process_id), (2, child));
        assert_eq!(u64_at(&stop.payload, 4), u64_at(&start.payload, 4), "another sequence number");
        assert_eq!(i64_at(&stop.payload, 12), i64_at(&start.payload, 12), "another create time");
        assert!(i64_at(&stop.payload, 20) > i64_at(&stop.payload, 12), "the exit precedes the start");
        // Exit codes reach a privileged daemon through the process connector.
        let exit_codes: &[u32] = if captures_machine() { &[0] } else { &[0, UNKNOWN_EXIT_CODE] };
        assert!(exit_codes.contains(&u32_at(&stop.payload, 28)), "not the exit code");
        assert!(stop.payload.ends_with(b"true\0"));
        let threads = of_child(3, 0);
        assert!(threads.iter().any(|event| u32_at(&event.payload, 4) == child), "no start of its thread");
        assert!(!of_child(4, 0).is_empty(), "no stop of its thread");
        let loads = of_child(5, 16);
        assert!(loads.iter().any(|event| event.text_at(36).ends_with("/true")), "no load of the program");
        assert!(loads.iter().any(|event| event.text_at(36).contains("/ld-")), "no load of the loader");
        assert!(loads.iter().all(|event| event.process_id == child && u64_at(&event.payload, 0) > 0));
        assert!(!of_child(6, 16).is_empty(), "no unload");
        assert!(events.iter().all(|event| event.frames.is_empty()), "a stack that was not requested");
        assert!(start.time <= stop.time);
    });
}

#[test]
fn keywords_and_level_choose_events() {
    retry_alternately_with_busy_processors(5, || {
        let daemon = Daemon::start();
        let mut controller = daemon.controller();
        // Keyword 0x10 stands for processes, 0x40 for images.
        let (images, images_path) = start_session(&daemon, &mut controller, "images");
        let (processes, processes_path) = start_session(&daemon, &mut controller, "processes");
        let (none, none_path) = start_session(&daemon, &mut controller, "none");
        if !enable(&mut controller, &images, KERNEL_PROCESS, params(0x40, 0)) {
            return;
        }
        assert!(enable(&mut controller, &processes, KERNEL_PROCESS, params(0x10, 0)));
        let too_low = EnableParams { level: 3, ..params(0, 0) };
        assert!(enable(&mut controller, &none, KERNEL_PROCESS, too_low));
        let child = run_true();
        assert_eq!(status(&controller.control(images.id, FLUSH)), SUCCESS);
        // The session of processes continues without this one.
        controller.stop(images.id);
        let second_child = run_true();
        for session in [&processes, &none] {
            assert_eq!(controller.stop(session.id).events_lost, 0);
        }
        let ids = |path: &Path| {
            let mut ids: Vec<u16> = read_events(path).iter().map(|event| event.descriptor.id).collect();
            ids.sort_unstable();
            ids.dedup();
            ids
        };
        assert_eq!(ids(&images_path), [5, 6]);
        assert_eq!(ids(&processes_path), [1, 2]);
        assert_eq!(ids(&none_path), [0_u16; 0]);
        let events = read_events(&processes_path);
        for pid in [child, second_child] {
            assert!(events.iter().any(|event| event.is(KERNEL_PROCESS, 2) && event.process_id == pid));
        }
    });
}

#[test]
fn events_stop_after_a_disable_and_come_again_after_an_enable() {
    retry_alternately_with_busy_processors(5, || {
        let daemon = Daemon::start();
        let mut controller = daemon.controller();
        let (session, path) = start_session(&daemon, &mut controller, "p");
        if !enable(&mut controller, &session, KERNEL_PROCESS, params(0x10, 0)) {
            return;
        }
        let first = run_true();
        controller.disable(session.id, KERNEL_PROCESS);
        let second = run_true();
        assert!(enable(&mut controller, &session, KERNEL_PROCESS, params(0x10, 0)));
        let third = run_true();
        controller.stop(session.id);
        let events = read_events(&path);
        let has_stop =
            |pid: u32| events.iter().any(|event| event.is(KERNEL_PROCESS, 2) && event.process_id == pid);
        assert_eq!([first, second, third].map(has_stop), [true, false, true]);
    });
}

#[test]
fn stacks_are_part_of_the_events() {
    retry_alternately_with_busy_processors(5, || {
        let daemon = Daemon::start();
        let mut controller = daemon.controller();
        let (with, with_path) = start_session(&daemon, &mut controller, "with");
        let (without, without_path) = start_session(&daemon, &mut controller, "without");
        let property = EVENT_ENABLE_PROPERTY_STACK_TRACE;
        // Keyword 0x10 stands for processes, 0x20 for threads.
        if !enable(&mut controller, &with, KERNEL_PROCESS, params(0x30, property)) {
            return;
        }
        assert!(enable(&mut controller, &without, KERNEL_PROCESS, params(0x30, 0)));
        std::thread::spawn(|| {}).join().unwrap();
        controller.stop(with.id);
        controller.stop(without.id);
        let own_threads = |path: &Path| {
            let mut events = read_events(path);
            let own = std::process::id();
            events.retain(|event| event.is(KERNEL_PROCESS, 3) && u32_at(&event.payload, 0) == own);
            events
        };
        let events = own_threads(&with_path);
        assert!(!events.is_empty());
        let has_user_frames = |event: &KernelEvent| event.frames.iter().any(|frame| *frame < 1 << 63);
        if captures_machine() {
            assert!(events.iter().any(has_user_frames), "no thread start has the stack of its creator");
        } else {
            // The kernel reports these starts as side-band records, which have no stacks.
            assert!(!events.iter().any(has_user_frames), "a stack of unknown origin");
        }
        let events = own_threads(&without_path);
        assert!(!events.is_empty() && events.iter().all(|event| event.frames.is_empty()));
    });
}

#[test]
fn file_provider_reports_operations_and_names() {
    retry_alternately_with_busy_processors(5, || {
        let daemon = Daemon::start();
        let mut controller = daemon.controller();
        let (session, path) = start_session(&daemon, &mut controller, "f");
        if !enable(&mut controller, &session, KERNEL_FILE, params(0, 0)) {
            return;
        }
        let (name, renamed) = (daemon.path("written"), daemon.path("renamed"));
        let mut file = File::create(&name).unwrap();
        file.write_all(b"twelve bytes").unwrap();
        file.sync_all().unwrap();
        // Without a kprobe for paths, the name is read from /proc while the file is open.
        assert_eq!(status(&controller.control(session.id, FLUSH)), SUCCESS);
        drop(file);
        let mut text = String::new();
        File::open(&name).unwrap().read_to_string(&mut text).unwrap();
        std::fs::rename(&name, &renamed).unwrap();
        std::fs::remove_file(&renamed).unwrap();
        controller.stop(session.id);
        let mut events = read_events(&path);
        let thread = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
        let names: Vec<(u64, String)> = events
            .iter()
            .filter(|event| event.is(KERNEL_FILE, 10))
            .map(|event| (u64_at(&event.payload, 0), event.text_at(8)))
            .collect();
        events.retain(|event| event.thread_id == thread && event.process_id == std::process::id());
        // Events 10 and 11: a name begins and ends; 12: create; 14: close; 15: read; 16: write;
        // 18: delete; 19: rename; 21: flush; 24: end of an operation. In the payload of a write,
        // the offset in the file is at 0, the id of the operation at 8, the key of the file at 24,
        // the thread at 32 and the size at 36.
        let find = |id: u16| events.iter().filter(move |event| event.is(KERNEL_FILE, id));
        let write = find(16).find(|event| u32_at(&event.payload, 36) == 12).expect("no write of 12 bytes");
        assert_eq!((write.descriptor.version, write.payload.len()), (1, 48));
        assert_eq!((u64_at(&write.payload, 0), u32_at(&write.payload, 32)), (0, thread), "offset and thread");
        let key = u64_at(&write.payload, 24);
        let written_name = names.iter().find(|(known, _)| *known == key).map(|(_, name)| name.as_str());
        assert_eq!(written_name, name.to_str());
        let create = find(12).find(|event| u64_at(&event.payload, 8) == key).expect("no create");
        let opened = create.text_at(32);
        assert!(opened.is_empty() || Some(opened.as_str()) == name.to_str(), "{opened}");
        assert!(find(14).any(|event| u64_at(&event.payload, 16) == key), "no close");
        assert!(find(21).any(|event| u64_at(&event.payload, 16) == key), "no flush");
        assert!(find(11).any(|event| u64_at(&event.payload, 0) == key), "the name is still valid");
        assert!(find(15).count() >= 1, "no read");
        assert_eq!((find(19).count(), find(18).count()), (1, 1), "not one rename and one delete");
        let irp = u64_at(&write.payload, 8);
        let end = find(24).find(|event| u64_at(&event.payload, 0) == irp).expect("no end of the write");
        assert_eq!((u64_at(&end.payload, 8), u32_at(&end.payload, 16)), (12, 0), "bytes and status");
    });
}

#[test]
fn name_of_a_file_has_the_thread_that_opened_it_without_other_enables() {
    retry_alternately_with_busy_processors(5, || {
        let daemon = Daemon::start();
        let mut controller = daemon.controller();
        let (session, path) = start_session(&daemon, &mut controller, "f");
        // Keyword 0x10 stands for names.
        if !enable(&mut controller, &session, KERNEL_FILE, params(0x10, 0)) {
            return;
        }
        let name = daemon.path("named");
        let file = File::create(&name).unwrap();
        assert_eq!(status(&controller.control(session.id, FLUSH)), SUCCESS);
        drop(file);
        controller.stop(session.id);
        let events = read_events(&path);
        assert!(events.iter().all(|event| [10, 11].contains(&event.descriptor.id)), "not only names");
        let is_named =
            |event: &&KernelEvent| event.is(KERNEL_FILE, 10) && Some(&*event.text_at(8)) == name.to_str();
        let named = events.iter().find(is_named).expect("no name");
        let thread = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
        assert_eq!((named.process_id, named.thread_id), (std::process::id(), thread));
    });
}

#[test]
fn network_provider_reports_both_ends_of_a_connection() {
    retry_alternately_with_busy_processors(5, || {
        let daemon = Daemon::start();
        let mut controller = daemon.controller();
        let (session, path) = start_session(&daemon, &mut controller, "n");
        if !enable(&mut controller, &session, KERNEL_NETWORK, params(0x10, 0)) {
            return;
        }
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let (mut server, peer) = listener.accept().unwrap();
        client.write_all(&[7; 1234]).unwrap();
        let mut bytes = [0; 1234];
        server.read_exact(&mut bytes).unwrap();
        drop((client, server));
        let (sender, receiver) =
            (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        sender.send_to(&[1; 77], receiver.local_addr().unwrap()).unwrap();
        receiver.recv(&mut bytes).unwrap();
        controller.stop(session.id);
        let events = read_events(&path);
        assert!(events.iter().all(|event| event.descriptor.keyword & 0x10 != 0), "an event of IPv6");
        // Events 10 and 11: send and receive; 12: connect; 13: disconnect; 15: accept; 42 and 43:
        // send and receive of UDP. The process is at 0, the size at 4, the addresses are at 8.
        // Ports are big-endian, at 16 (remote) and 18 (local).
        let own = std::process::id();
        let port_at = |event: &KernelEvent, offset| u16_at(&event.payload, offset).swap_bytes();
        let is_at_client =
            |event: &&KernelEvent| (port_at(event, 16), port_at(event, 18)) == (port, peer.port());
        let is_at_server =
            |event: &&KernelEvent| (port_at(event, 16), port_at(event, 18)) == (peer.port(), port);
        let find = |id: u16| events.iter().filter(move |event| event.is(KERNEL_NETWORK, id));
        let connect = find(12).find(is_at_client).expect("no connect");
        assert_eq!((connect.process_id, u32_at(&connect.payload, 0)), (own, own));
        assert_eq!(connect.payload[8..16], [127, 0, 0, 1, 127, 0, 0, 1]);
        assert!(find(15).any(|event| is_at_server(&event)), "no accept");
        let send = find(10).find(is_at_client).expect("no send");
        assert_eq!((u32_at(&send.payload, 0), u32_at(&send.payload, 4)), (own, 1234));
        assert_eq!((send.process_id, send.payload.len()), (own, 36));
        let received: u32 = find(11).filter(is_at_server).map(|event| u32_at(&event.payload, 4)).sum();
        assert_eq!(received, 1234);
        assert!(find(13).any(|event| is_at_client(&event) || is_at_server(&event)), "no disconnect");
        let is_own_datagram =
            |event: &&KernelEvent| (u32_at(&event.payload, 0), u32_at(&event.payload, 4)) == (own, 77);
        assert!(
            find(42).any(|event| is_own_datagram(&event)) && find(43).any(|event| is_own_datagram(&event))
        );
    });
}

#[test]
fn disk_provider_is_accepted_and_reports_only_its_events() {
    retry_alternately_with_busy_processors(5, || {
        let daemon = Daemon::start();
        let mut controller = daemon.controller();
        let (session, path) = start_session(&daemon, &mut controller, "d");
        if !enable(&mut controller, &session, KERNEL_DISK, params(0, 0)) {
            return;
        }
        let mut file = File::create(daemon.path("written")).unwrap();
        file.write_all(&vec![1; 1 << 20]).unwrap();
        file.sync_all().unwrap();
        let device = std::os::unix::fs::MetadataExt::dev(&file.metadata().unwrap());
        controller.stop(session.id);
        let events = read_events(&path);
        // Events 10: read; 11: write (with its size at 8); 14: flush.
        // A folder in memory has no requests; its device has no major number.
        if rustix::fs::major(device) != 0 {
            let writes = events.iter().filter(|event| event.is(KERNEL_DISK, 11));
            let written: u64 = writes.map(|event| u64::from(u32_at(&event.payload, 8))).sum();
            assert!(written >= 1 << 20, "{written} bytes of writes");
        }
        for event in events {
            let expected_length = if event.descriptor.id == 14 { 24 } else { 48 };
            assert!([10, 11, 14].contains(&event.descriptor.id), "{:?}", event.descriptor);
            assert_eq!(event.payload.len(), expected_length, "{:?}", event.descriptor);
        }
    });
}

#[test]
fn system_logger_has_classic_events_beside_those_of_a_provider() {
    retry_alternately_with_busy_processors(5, || {
        let daemon = Daemon::start();
        let (mut controller, path) = (daemon.controller(), daemon.path("s.etl"));
        let config = SessionConfig {
            log_file_mode: EVENT_TRACE_FILE_MODE_SEQUENTIAL | EVENT_TRACE_SYSTEM_LOGGER_MODE,
            enable_flags: 0x1,
            ..file_config("s", &path)
        };
        let start = Message::Start(Box::new(config));
        let session = match controller.request_with(start, &[&open_log_file(&path)]) {
            Message::Properties(properties) => *properties,
            Message::Refused { status, reason } if UNAVAILABLE.contains(&status) => {
                return skip("kernel events", &reason);
            }
            other => panic!("{other:?}"),
        };
        assert!(enable(&mut controller, &session, KERNEL_PROCESS, params(0x10, 0)));
        let child = run_true();
        controller.stop(session.id);
        let is_stop = |event: &KernelEvent| event.is(KERNEL_PROCESS, 2) && event.process_id == child;
        assert!(read_events(&path).iter().any(is_stop));
        let trace = Trace::open(File::open(&path).unwrap()).unwrap();
        let (mut records, mut has_classic) = (trace.events(), false);
        while let Some(record) = records.next().unwrap() {
            has_classic |= record.hook() == Some(hook::PROCESS_END) && u32_at(record.payload(), 8) == child;
        }
        assert!(has_classic, "no classic event");
    });
}

#[test]
fn capture_state_lists_running_processes() {
    retry_alternately_with_busy_processors(5, || {
        let daemon = Daemon::start();
        let mut controller = daemon.controller();
        let (session, path) = start_session(&daemon, &mut controller, "p");
        if !enable(&mut controller, &session, KERNEL_PROCESS, params(0x10, 0)) {
            return;
        }
        assert_eq!(status(&controller.control(session.id, FLUSH)), SUCCESS);
        let request = enable_message(session.id, KERNEL_PROCESS, EnableCode::CaptureState, 0);
        assert_eq!(controller.status(request), SUCCESS);
        controller.stop(session.id);
        let events = read_events(&path);
        let own = std::process::id();
        // Event 15: a process that runs. Its path is at 60.
        let is_own = |event: &&KernelEvent| event.is(KERNEL_PROCESS, 15) && u32_at(&event.payload, 0) == own;
        let listed: Vec<&KernelEvent> = events.iter().filter(is_own).collect();
        assert_eq!(listed.len(), 1, "this process is not listed once");
        let program = std::env::current_exe().unwrap();
        assert_eq!(listed[0].text_at(60), program.to_str().unwrap());
    });
}

/// Returns a request for the state of a provider every ten seconds.
fn periodic_state_message(session: u64, provider: Guid) -> Message {
    let data = [&MIN_CAPTURE_STATE_SECONDS.to_le_bytes(), &[1, 0, 0, 0], &provider.to_bytes()[..]].concat();
    let class = InfoClass::TracePeriodicCaptureStateListInfo.number();
    Message::SetInformation { session: SessionRef::Id(session), class, data }
}

#[test]
fn periodic_capture_state_lists_running_processes() {
    retry_alternately_with_busy_processors(3, || {
        let daemon = Daemon::start();
        let mut controller = daemon.controller();
        let (session, path) = start_session(&daemon, &mut controller, "p");
        let (other, other_path) = start_session(&daemon, &mut controller, "other");
        if !enable(&mut controller, &session, KERNEL_PROCESS, params(0x10, 0)) {
            return;
        }
        assert!(enable(&mut controller, &other, KERNEL_PROCESS, params(0x10, 0)));
        assert_eq!(controller.status(periodic_state_message(session.id, KERNEL_PROCESS)), SUCCESS);
        // One period, and time for the rundown.
        std::thread::sleep(Duration::from_secs(u64::from(MIN_CAPTURE_STATE_SECONDS) + 5));
        for session in [&session, &other] {
            controller.stop(session.id);
        }
        let own = std::process::id();
        let is_own = |event: &KernelEvent| event.is(KERNEL_PROCESS, 15) && u32_at(&event.payload, 0) == own;
        assert!(read_events(&path).iter().any(is_own), "this process is not listed");
        assert!(!read_events(&other_path).iter().any(is_own), "a list that was not requested");
    });
}

#[test]
fn eight_system_loggers_leave_room_for_the_providers() {
    let daemon = Daemon::start();
    let mut controller = daemon.controller();
    // Two of the eight are reserved for sessions with fixed names.
    for number in 0..6 {
        let config = SessionConfig {
            log_file_mode: real_time_config("").log_file_mode | EVENT_TRACE_SYSTEM_LOGGER_MODE,
            ..real_time_config(&format!("system {number}"))
        };
        match controller.request(Message::Start(Box::new(config))) {
            Message::Properties(_) => {}
            Message::Refused { status, reason } if UNAVAILABLE.contains(&status) => {
                return skip("kernel events", &reason);
            }
            other => panic!("{other:?}"),
        }
    }
    let (session, _) = start_session(&daemon, &mut controller, "p");
    if enable(&mut controller, &session, KERNEL_PROCESS, params(0, 0)) {
        let listed = Message::QueryRegistrations { provider: KERNEL_PROCESS, from: 0 };
        match controller.request(listed) {
            Message::Registrations { registrations, .. } => {
                let only = &registrations[0];
                assert_eq!((registrations.len(), only.pid, only.is_pre_enabled), (1, 0, false));
                assert_eq!(only.sessions[0].session, session.id);
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn filters_of_processes_are_refused() {
    let daemon = Daemon::start();
    let mut controller = daemon.controller();
    let (session, _) = start_session(&daemon, &mut controller, "p");
    let filters = vec![Filter { kind: EVENT_FILTER_TYPE_PID, data: encode::pids(&[1]) }];
    let params = EnableParams { filters, ..params(0, 0) };
    let request = enable_message_with(session.id, KERNEL_PROCESS, EnableCode::Enable, params, 0);
    assert_eq!(controller.status(request), Status::ERROR_NOT_SUPPORTED);
}

#[test]
fn guest_needs_the_right_to_kernel_events() {
    if !is_root() {
        return;
    }
    let daemon = Daemon::start_for_all_users(tempfile::tempdir().unwrap());
    let mut root = daemon.controller();
    let ann = Sid::user(ANN);
    grant(&mut root, DEFAULT_TRACE_SECURITY, ann, Rights::WMIGUID_ALL_ACCESS);
    let mut guest = client_as_user(&daemon, ANN, Role::Controller);
    let guest_session = guest.start(real_time_config("guest"));
    let request = |id| enable_message_with(id, KERNEL_PROCESS, EnableCode::Enable, params(0, 0), 0);
    assert_eq!(guest.status(request(guest_session.id)), PRIVILEGE_NOT_HELD);
    assert_eq!(guest.status(periodic_state_message(guest_session.id, KERNEL_PROCESS)), PRIVILEGE_NOT_HELD);
    // Nor may the guest read kernel events of a session of root.
    let session = root.start(real_time_config("root"));
    let open_consumer = || Message::OpenConsumer { session: SessionRef::Id(session.id) };
    let mut reader = client_as_user(&daemon, ANN, Role::Consumer);
    if !enable(&mut root, &session, KERNEL_PROCESS, params(0, 0)) {
        return;
    }
    assert_eq!(reader.status(open_consumer()), PRIVILEGE_NOT_HELD);
    // Nor may root enable kernel events where the guest already receives the events.
    let read_session = root.start(real_time_config("read"));
    let mut early_reader = client_as_user(&daemon, ANN, Role::Consumer);
    assert_eq!(
        early_reader.status(Message::OpenConsumer { session: SessionRef::Id(read_session.id) }),
        SUCCESS
    );
    for id in [read_session.id, guest_session.id] {
        assert_eq!(root.status(request(id)), Status::ERROR_ACCESS_DENIED);
    }
    grant(&mut root, SYSTEM_TRACE_CONTROL, ann, Rights::TRACELOG_ACCESS_KERNEL_LOGGER);
    assert_eq!(reader.status(open_consumer()), SUCCESS);
    assert_eq!(root.status(request(read_session.id)), SUCCESS);
}
