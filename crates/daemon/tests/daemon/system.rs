//! Sessions that receive kernel events: how they start, which events they request while they
//! run, and what their files contain. Uses real captures where this machine permits them.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::sync::mpsc::sync_channel;

use traceweir_format::Guid;
use traceweir_format::etl::{Trace, check};
use traceweir_format::info::{Answer, GroupMask, Query, Set};
use traceweir_format::kernel::hook;
use traceweir_format::security::Sid;
use traceweir_format::spec::access::{DEFAULT_TRACE_SECURITY, Rights, SecurityOperation};
use traceweir_format::spec::event::class;
use traceweir_format::spec::info::InfoClass;
use traceweir_format::spec::session::{
    EVENT_TRACE_FILE_MODE_SEQUENTIAL, EVENT_TRACE_REAL_TIME_MODE, EVENT_TRACE_SYSTEM_LOGGER_MODE,
};
use traceweir_format::spec::status::Status;
use traceweir_format::spec::system::SYSTEM_PROVIDERS;
use traceweir_transport::message::{
    Control, EnableCode, EnableParams, Message, Properties, Role, SessionConfig, SessionRef, Update,
};

use crate::access::{ANN, client_as_user, grant, is_root};
use crate::util::*;

const KERNEL_LOGGER: &str = "NT Kernel Logger";
const CIRCULAR: &str = "Circular Kernel Context Logger";

// EnableFlags.
const CSWITCH: u32 = 0x10;
const DISPATCHER: u32 = 0x800;
const REGISTRY: u32 = 0x2_0000;
const PROFILE: u32 = 0x100_0000;

// Hook ids.
const SWITCH: u16 = hook::CONTEXT_SWITCH;
const READY: u16 = hook::READY_THREAD;
const STACK: u16 = hook::STACK_WALK;

// Statuses with which a daemon that cannot capture kernel events refuses them.
const UNSUPPORTED: u32 = Status::ERROR_NOT_SUPPORTED.0;
const UNPRIVILEGED: u32 = PRIVILEGE_NOT_HELD.0;

/// Starts a session that receives kernel events; `None` if this machine provides none.
fn start_kernel_session(controller: &mut Client, config: SessionConfig) -> Option<Properties> {
    let file = config.log_file.as_deref().map(open_log_file);
    let files: Vec<_> = file.iter().collect();
    match controller.request_with(Message::Start(Box::new(config)), &files) {
        Message::Properties(properties) => Some(*properties),
        Message::Refused { status: UNSUPPORTED | UNPRIVILEGED, reason } => {
            assert!(reason.contains("kernel events"), "{reason}");
            skip("kernel events", &reason);
            None
        }
        other => panic!("{other:?}"),
    }
}

/// Returns whether a request about a running session was accepted; an unprivileged daemon refuses
/// some groups.
fn is_accepted(answer: &Message) -> bool {
    match answer {
        Message::Done => true,
        Message::Refused { status: UNSUPPORTED | UNPRIVILEGED, reason } => {
            assert!(reason.contains("kernel events"), "{reason}");
            skip("kernel events", reason);
            false
        }
        other => panic!("{other:?}"),
    }
}

fn system_logger_config(name: &str, flags: u32) -> SessionConfig {
    SessionConfig {
        log_file_mode: EVENT_TRACE_REAL_TIME_MODE | EVENT_TRACE_SYSTEM_LOGGER_MODE,
        enable_flags: flags,
        ..real_time_config(name)
    }
}

fn kernel_logger(path: &Path, flags: u32) -> SessionConfig {
    SessionConfig { enable_flags: flags, ..file_config(KERNEL_LOGGER, path) }
}

fn set_information(controller: &mut Client, session: u64, set: &Set) -> Status {
    let (class, data) = (set.class().number(), set.to_bytes());
    controller.status(Message::SetInformation { session: SessionRef::Id(session), class, data })
}

fn query_groups(controller: &mut Client, session: u64) -> GroupMask {
    let class = InfoClass::TraceSystemTraceEnableFlagsInfo.number();
    let query = Query::new(class, 0).unwrap();
    let message = Message::QueryInformation { session: SessionRef::Id(session), class, input: 0 };
    match controller.request(message) {
        Message::Information { data } => match Answer::from_bytes(query, &data) {
            Ok(Answer::SystemTraceEnableFlags(mask)) => mask,
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

fn update_flags(controller: &mut Client, session: u64, flags: u32) -> Status {
    let update = Update { enable_flags: Some(flags), ..Update::default() };
    status(&controller.control(session, Control::Update(update)))
}

fn system_provider(name: &str) -> Guid {
    SYSTEM_PROVIDERS.iter().find(|(known, _)| *known == name).unwrap().1
}

fn enable_keywords(session: u64, provider: Guid, code: EnableCode, match_any: u64) -> Message {
    enable_message_with(session, provider, code, EnableParams { match_any, ..EnableParams::default() }, 0)
}

fn stack_tracing(events: &[(Guid, u8)]) -> Set {
    let id = |&(class, opcode): &(Guid, u8)| traceweir_format::info::ClassicEventId { class, opcode };
    Set::StackTracing(events.iter().map(id).collect())
}

/// Runs two threads that wait for each other `rounds` times; returns the id of the second, which
/// has ended.
fn switch_threads(rounds: usize) -> i32 {
    let (request_sender, request_receiver) = sync_channel::<()>(0);
    let (reply_sender, reply_receiver) = sync_channel::<()>(0);
    std::thread::scope(|scope| {
        let partner = scope.spawn(move || {
            request_receiver.into_iter().for_each(|()| reply_sender.send(()).unwrap());
            rustix::thread::gettid().as_raw_nonzero().get()
        });
        for _ in 0..rounds {
            request_sender.send(()).unwrap();
            reply_receiver.recv().unwrap();
        }
        drop(request_sender);
        partner.join().unwrap()
    })
}

#[derive(Clone, Copy, Default)]
struct KernelEvent {
    hook: u16,
    time: i64,
    /// The first eight bytes of the payload: a time for a stack, two threads for a context switch.
    payload: i64,
}

/// Returns the kernel events of a final, valid trace by processor.
fn read_kernel_events(path: &Path) -> BTreeMap<u16, Vec<KernelEvent>> {
    let trace = Trace::open(File::open(path).unwrap()).unwrap();
    assert!(trace.is_finalised());
    check(&trace, &mut |finding| panic!("{}: {finding:?}", path.display())).unwrap();
    read_kernel_events_so_far(path)
}

/// Like [`read_kernel_events`], for a file that is not finalised.
fn read_kernel_events_so_far(path: &Path) -> BTreeMap<u16, Vec<KernelEvent>> {
    let trace = Trace::open(File::open(path).unwrap()).unwrap();
    let mut events = trace.events();
    let mut events_by_cpu: BTreeMap<u16, Vec<KernelEvent>> = BTreeMap::new();
    while let Some(record) = events.next().unwrap() {
        if let Some(hook) = record.hook() {
            let payload = record.payload().first_chunk().map_or(0, |bytes| i64::from_le_bytes(*bytes));
            events_by_cpu.entry(record.cpu()).or_default().push(KernelEvent {
                hook,
                time: record.time(),
                payload,
            });
        }
    }
    events_by_cpu
}

fn count_hook(events: &BTreeMap<u16, Vec<KernelEvent>>, hook: u16) -> usize {
    events.values().flatten().filter(|event| event.hook == hook).count()
}

/// Counts the switches to a thread, and away from it.
fn count_switches(events: &BTreeMap<u16, Vec<KernelEvent>>, thread: i32) -> usize {
    let thread = i64::from(thread);
    let involves_thread = |event: &&KernelEvent| {
        event.hook == SWITCH && (event.payload & 0xFFFF_FFFF == thread || event.payload >> 32 == thread)
    };
    events.values().flatten().filter(involves_thread).count()
}

#[test]
fn kernel_logger_has_its_guid_and_the_events_of_its_flags() {
    retry_alternately_with_busy_processors(5, || {
        let daemon = Daemon::start();
        let (mut controller, path) = (daemon.controller(), daemon.path("a.etl"));
        let config = SessionConfig { guid: Guid::from_u128(7), ..kernel_logger(&path, CSWITCH | REGISTRY) };
        let Some(session) = start_kernel_session(&mut controller, config) else { return };
        assert_eq!(
            (session.config.guid, session.config.enable_flags),
            (class::SYSTEM_TRACE_CONTROL, CSWITCH | REGISTRY)
        );
        let second_start = Message::Start(Box::new(kernel_logger(&daemon.path("b.etl"), 1)));
        assert_eq!(
            status(&controller.request_with(second_start, &[&open_log_file(&daemon.path("b.etl"))])),
            ALREADY_EXISTS
        );
        switch_threads(300);
        let stopped = controller.stop(session.id);
        let events_by_cpu = read_kernel_events(&path);
        assert!(count_hook(&events_by_cpu, SWITCH) >= 300, "{} switches", count_hook(&events_by_cpu, SWITCH));
        assert_eq!(
            (count_hook(&events_by_cpu, READY), count_hook(&events_by_cpu, STACK)),
            (0, 0),
            "these events were not requested"
        );
        assert_eq!(stopped.events_lost, 0);
    });
}

#[test]
fn stacks_follow_the_listed_events_once_requested() {
    retry_alternately_with_busy_processors(5, || {
        let daemon = Daemon::start();
        let (mut controller, path) = (daemon.controller(), daemon.path("a.etl"));
        let Some(session) = start_kernel_session(&mut controller, kernel_logger(&path, CSWITCH | DISPATCHER))
        else {
            return;
        };
        switch_threads(200);
        assert_eq!(status(&controller.control(session.id, Control::Flush { log_file: None })), SUCCESS);
        let events_without_stacks = read_kernel_events_so_far(&path);
        assert!(
            count_hook(&events_without_stacks, READY) >= 200
                && count_hook(&events_without_stacks, STACK) == 0
        );
        // Opcode 50 of the class is ReadyThread.
        assert_eq!(
            set_information(&mut controller, session.id, &stack_tracing(&[(class::THREAD, 50)])),
            SUCCESS
        );
        switch_threads(200);
        controller.stop(session.id);
        let events_by_cpu = read_kernel_events(&path);
        assert!(count_hook(&events_by_cpu, STACK) >= 200, "{} stacks", count_hook(&events_by_cpu, STACK));
        for events in events_by_cpu.values() {
            let mut event = KernelEvent::default();
            for next_event in events {
                if next_event.hook == STACK {
                    // The kernel's part and the program's part may be two stacks of one event.
                    assert_eq!(
                        (event.hook, event.time),
                        (READY, next_event.payload),
                        "a stack follows the event that it belongs to"
                    );
                } else {
                    event = *next_event;
                }
            }
        }
    });
}

#[test]
fn groups_of_system_providers_are_independent_of_flags_and_class_4() {
    retry_alternately_with_busy_processors(5, || {
        let daemon = Daemon::start();
        let mut controller = daemon.controller();
        // Class 4 is TraceSystemTraceEnableFlagsInfo.
        let Some(session) = start_kernel_session(&mut controller, system_logger_config("s", 0x3)) else {
            return;
        };
        let id = session.id;
        assert_eq!(query_groups(&mut controller, id), [3, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(update_flags(&mut controller, id, 0x11), SUCCESS);
        // Some groups have a second bit in the second word: 4 for context switches (0x10).
        assert_eq!(query_groups(&mut controller, id), [0x11, 4, 0, 0, 0, 0, 0, 0]);
        assert_eq!(controller.query(id).config.enable_flags, 0x11);
        assert_eq!(update_flags(&mut controller, id, 0x8000_0000), INVALID_PARAMETER);
        let (process, scheduler) = (system_provider("Process"), system_provider("Scheduler"));
        // The keywords 0x801 of Process stand for the groups 0x3; the keywords 0x202 of Scheduler
        // stand for 0x810 in the first word and 0x204 in the second.
        assert_eq!(controller.status(enable_keywords(id, process, EnableCode::Enable, 0x801)), SUCCESS);
        if !is_accepted(&controller.request(enable_keywords(id, scheduler, EnableCode::Enable, 0x202))) {
            return;
        }
        assert_eq!(query_groups(&mut controller, id), [0x813, 0x204, 0, 0, 0, 0, 0, 0]);
        // Replaces the flags 0x11; the groups of the providers (0x3, and 0x810 with 0x204) stay.
        let mask = [0x2, 0, 0, 0, 0x40, 0, 0, 0];
        assert_eq!(set_information(&mut controller, id, &Set::SystemTraceEnableFlags(mask)), SUCCESS);
        assert_eq!(query_groups(&mut controller, id), [0x813, 0x204, 0, 0, 0x40, 0, 0, 0]);
        assert_eq!(controller.status(enable_keywords(id, scheduler, EnableCode::Disable, 0)), SUCCESS);
        assert_eq!(query_groups(&mut controller, id), [0x3, 0, 0, 0, 0x40, 0, 0, 0]);
        assert_eq!(update_flags(&mut controller, id, 0), SUCCESS);
        assert_eq!(
            query_groups(&mut controller, id),
            [0x3, 0, 0, 0, 0, 0, 0, 0],
            "the groups of the provider are separate"
        );
        assert_eq!(controller.status(enable_keywords(id, process, EnableCode::Disable, 0)), SUCCESS);
        assert_eq!(query_groups(&mut controller, id), [0; 8]);
        controller.stop(id);
    });
}

#[test]
fn events_are_captured_only_while_requested() {
    retry_alternately_with_busy_processors(5, || {
        let daemon = Daemon::start();
        let (mut controller, path) = (daemon.controller(), daemon.path("a.etl"));
        let config = SessionConfig {
            log_file_mode: EVENT_TRACE_FILE_MODE_SEQUENTIAL | EVENT_TRACE_SYSTEM_LOGGER_MODE,
            ..file_config("s", &path)
        };
        let Some(session) = start_kernel_session(&mut controller, config) else { return };
        // A capture of single threads always records switches, and keeps or drops them at the next
        // poll. A flush polls everything.
        let flush = |controller: &mut Client| {
            assert_eq!(status(&controller.control(session.id, Control::Flush { log_file: None })), SUCCESS);
        };
        let thread_before = switch_threads(200);
        flush(&mut controller);
        // Keyword 0x200 of Scheduler stands for context switches.
        if !is_accepted(&controller.request(enable_keywords(
            session.id,
            system_provider("Scheduler"),
            EnableCode::Enable,
            0x200,
        ))) {
            return;
        }
        let thread_while_enabled = switch_threads(200);
        flush(&mut controller);
        assert_eq!(
            controller.status(enable_keywords(
                session.id,
                system_provider("Scheduler"),
                EnableCode::Disable,
                0
            )),
            SUCCESS
        );
        let thread_after = switch_threads(200);
        controller.stop(session.id);
        let events_by_cpu = read_kernel_events(&path);
        let switches = [thread_before, thread_while_enabled, thread_after]
            .map(|thread| count_switches(&events_by_cpu, thread));
        assert!(switches[0] == 0 && switches[1] >= 100 && switches[2] == 0, "{switches:?}");
    });
}

#[test]
fn system_providers_need_system_logger_mode() {
    let daemon = Daemon::start();
    let mut controller = daemon.controller();
    let (plain, session) =
        (controller.start(real_time_config("plain")).id, controller.start(system_logger_config("s", 0)).id);
    let enable = |controller: &mut Client, session, provider, code| {
        controller.status(enable_keywords(session, provider, code, 1))
    };
    for code in [EnableCode::Enable, EnableCode::Disable, EnableCode::CaptureState] {
        assert_eq!(enable(&mut controller, plain, system_provider("Process"), code), INVALID_PARAMETER);
        assert_eq!(enable(&mut controller, plain, class::SYSTEM_TRACE_CONTROL, code), INVALID_PARAMETER);
    }
    assert_eq!(
        enable(&mut controller, session, class::SYSTEM_TRACE_CONTROL, EnableCode::Enable),
        INVALID_PARAMETER
    );
    assert_eq!(
        enable(&mut controller, session, class::SYSTEM_TRACE_CONTROL, EnableCode::CaptureState),
        SUCCESS
    );
    assert_eq!(
        enable(&mut controller, session, system_provider("Registry"), EnableCode::CaptureState),
        SUCCESS
    );
    let providers = vec![system_provider("Process"), PROVIDER];
    assert_eq!(controller.status(Message::CheckEnables { providers }), SUCCESS);
    let named_config =
        SessionConfig { log_file_mode: EVENT_TRACE_REAL_TIME_MODE, ..system_logger_config(CIRCULAR, 0) };
    let named = controller.start(named_config).id;
    assert_eq!(
        enable(&mut controller, named, system_provider("Process"), EnableCode::Enable),
        INVALID_PARAMETER,
        "the session does not have SYSTEM_LOGGER_MODE"
    );
}

#[test]
fn six_system_loggers_run_besides_the_two_reserved_ones() {
    let daemon = Daemon::start();
    let mut controller = daemon.controller();
    let ids: Vec<u64> =
        (0..6).map(|n| controller.start(system_logger_config(&format!("system {n}"), 0)).id).collect();
    let start_seventh = |controller: &mut Client| {
        controller.request(Message::Start(Box::new(system_logger_config("one more", 0))))
    };
    assert_eq!(status(&start_seventh(&mut controller)), NO_SYSTEM_RESOURCES);
    for name in [KERNEL_LOGGER, CIRCULAR] {
        controller.start(SessionConfig {
            log_file_mode: EVENT_TRACE_REAL_TIME_MODE,
            ..system_logger_config(name, 0)
        });
    }
    assert_eq!(status(&start_seventh(&mut controller)), NO_SYSTEM_RESOURCES);
    controller.start(real_time_config("a plain one"));
    controller.stop(ids[2]);
    assert_eq!(status(&start_seventh(&mut controller)), SUCCESS);
}

#[test]
fn sample_interval_is_set_for_the_system_and_not_for_a_session() {
    retry_alternately_with_busy_processors(5, || {
        let daemon = Daemon::start();
        let (mut controller, path) = (daemon.controller(), daemon.path("a.etl"));
        let Some(session) = start_kernel_session(&mut controller, kernel_logger(&path, PROFILE)) else {
            return;
        };
        let interval = |interval| {
            Set::SampledProfileInterval(traceweir_format::info::ProfileInterval { source: 0, interval })
        };
        let set_status = |controller: &mut Client, set: &Set| {
            let (class, data) = (set.class().number(), set.to_bytes());
            controller.status(Message::SetInformation { session: SessionRef::Id(0), class, data })
        };
        let first = set_status(&mut controller, &interval(20_000));
        if !holds_or_skip(first != PRIVILEGE_NOT_HELD, "root", "profiling needs CAP_PERFMON") {
            return;
        }
        assert_eq!(first, SUCCESS);
        assert_eq!(
            set_information(&mut controller, session.id, &interval(20_000)),
            INVALID_PARAMETER,
            "not a setting of a session"
        );
        assert_eq!(set_status(&mut controller, &interval(10_000)), SUCCESS);
        controller.stop(session.id);
        read_kernel_events(&path);
    });
}

#[test]
fn several_sessions_receive_the_same_events_independently() {
    retry_alternately_with_busy_processors(5, || {
        let daemon = Daemon::start();
        let mut controller = daemon.controller();
        let config = |name: &str, path: &Path, flags| SessionConfig {
            log_file_mode: EVENT_TRACE_FILE_MODE_SEQUENTIAL | EVENT_TRACE_SYSTEM_LOGGER_MODE,
            enable_flags: flags,
            ..file_config(name, path)
        };
        let (a, b) = (daemon.path("a.etl"), daemon.path("b.etl"));
        let Some(first) = start_kernel_session(&mut controller, config("one", &a, CSWITCH)) else { return };
        let Some(second) = start_kernel_session(&mut controller, config("two", &b, CSWITCH | DISPATCHER))
        else {
            return;
        };
        switch_threads(200);
        controller.stop(first.id);
        switch_threads(200);
        controller.stop(second.id);
        let (first_events, second_events) = (read_kernel_events(&a), read_kernel_events(&b));
        assert!(count_hook(&first_events, SWITCH) >= 200 && count_hook(&first_events, READY) == 0);
        assert!(count_hook(&second_events, SWITCH) >= 400 && count_hook(&second_events, READY) >= 400);
    });
}

#[test]
fn guest_gets_kernel_events_by_the_kernel_access_list() {
    if !is_root() {
        return;
    }
    let daemon = Daemon::start_for_all_users(tempfile::tempdir().unwrap());
    let mut root = daemon.controller();
    let (ann, all_rights) = (Sid::user(ANN), Rights::WMIGUID_ALL_ACCESS);
    grant(&mut root, DEFAULT_TRACE_SECURITY, ann, all_rights);
    let mut guest = client_as_user(&daemon, ANN, Role::Controller);
    assert_eq!(
        guest.status(Message::Start(Box::new(system_logger_config("s", CSWITCH)))),
        PRIVILEGE_NOT_HELD
    );
    let kernel =
        SessionConfig { log_file_mode: EVENT_TRACE_REAL_TIME_MODE, ..system_logger_config(KERNEL_LOGGER, 0) };
    assert_eq!(
        guest.status(Message::Start(Box::new(kernel))),
        ACCESS_DENIED,
        "the name is reserved for the system"
    );
    assert_eq!(
        guest.status(Message::Start(Box::new(system_logger_config("s", 0)))),
        PRIVILEGE_NOT_HELD,
        "the session might request events later"
    );
    let id = root.start(system_logger_config("s", 0)).id;
    let mut reader = client_as_user(&daemon, ANN, Role::Consumer);
    let open_consumer = || Message::OpenConsumer { session: SessionRef::Id(id) };
    assert_eq!(reader.status(open_consumer()), PRIVILEGE_NOT_HELD, "another user started the session");
    assert_eq!(update_flags(&mut guest, id, CSWITCH), PRIVILEGE_NOT_HELD);
    assert_eq!(
        set_information(&mut guest, id, &Set::SystemTraceEnableFlags([CSWITCH, 0, 0, 0, 0, 0, 0, 0])),
        PRIVILEGE_NOT_HELD
    );
    assert_eq!(
        guest.status(enable_keywords(id, system_provider("Scheduler"), EnableCode::Enable, 0x200)),
        PRIVILEGE_NOT_HELD
    );
    assert_eq!(query_groups(&mut guest, id), [0; 8], "nothing has changed");
    let (object, sid, rights) = (class::SYSTEM_TRACE_CONTROL, ann.to_bytes(), all_rights.0);
    let grant_to_itself =
        Message::SetAccess { object, operation: SecurityOperation::ADD_DACL.0, sid, rights, allow: true };
    assert_eq!(guest.status(grant_to_itself), ACCESS_DENIED);
    grant(&mut root, class::SYSTEM_TRACE_CONTROL, ann, Rights::TRACELOG_ACCESS_KERNEL_LOGGER);
    if is_accepted(&guest.request(enable_keywords(
        id,
        system_provider("Scheduler"),
        EnableCode::Enable,
        0x200,
    ))) {
        assert_eq!(query_groups(&mut guest, id), [CSWITCH, 4, 0, 0, 0, 0, 0, 0]);
    }
}
