//! Kernel events: the rights to them, and requests that come during a kernel change.

use std::sync::atomic::Ordering::SeqCst;

use traceweir_format::info::{ClassicEventId, GroupMask, Set};
use traceweir_format::kernel::hook;
use traceweir_format::kernel::providers::KERNEL_PROCESS;
use traceweir_format::security::{Ace, AceKind, SecurityDescriptor, Sid};
use traceweir_format::spec::access::{DEFAULT_TRACE_SECURITY, Rights};
use traceweir_format::spec::event::class::{SYSTEM_TRACE_CONTROL, THREAD};
use traceweir_format::spec::session::EVENT_TRACE_SYSTEM_LOGGER_MODE;
use traceweir_format::spec::system::{NO_SYSCONFIG, OWN_GROUPS, SYSTEM_PROVIDERS};
use traceweir_kernel::CaptureScope;
use traceweir_session::info::System;

use super::*;
use crate::kernel::{EventHub, RequestedGroups, TestSourceState};
use crate::service::kernel::{KernelProviders, NewSettings, SystemLoggers};

/// The mode of a real-time session that receives kernel events.
const SYSTEM_LOGGER_MODE: u32 = EVENT_TRACE_REAL_TIME_MODE | EVENT_TRACE_SYSTEM_LOGGER_MODE;
/// EVENT_TRACE_FLAG_CSWITCH.
const CSWITCH: u32 = 0x10;
const PROCESSES: GroupMask = first_word(0x1);
const DISKS: GroupMask = first_word(0x100);
/// A context switch.
const SWITCH: ClassicEventId = ClassicEventId { class: THREAD, opcode: 36 };

/// Returns a group mask with these EnableFlags.
const fn first_word(flags: u32) -> GroupMask {
    [flags, 0, 0, 0, 0, 0, 0, 0]
}

/// Creates a service with the daemon's own user at link 1 and a guest at link 2.
fn service_with_kernel_scope(scope: Scope, kernel_scope: CaptureScope) -> Service {
    let mut service = service(scope);
    service.system_loggers = SystemLoggers::with_scope(kernel_scope);
    connect(&mut service, 1, OWN_UID);
    connect(&mut service, 2, GUEST_UID);
    service
}

fn refusal_status(service: &Service, link: LinkId, groups: &GroupMask) -> Status {
    service
        .system_loggers
        .check_events(&service.core.access, link, groups)
        .err()
        .map_or(Status::ERROR_SUCCESS, |refusal| refusal.status)
}

#[test]
fn guest_needs_profiling_right_or_kernel_access_list() {
    let mut service = service_with_kernel_scope(Scope::System, CaptureScope::Everything);
    assert_eq!(refusal_status(&service, 1, &DISKS), Status::ERROR_SUCCESS, "the daemon's own user");
    assert_eq!(refusal_status(&service, 2, &PROCESSES), Status::ERROR_PRIVILEGE_NOT_HELD);
    assert_eq!(
        refusal_status(&service, 2, &first_word(NO_SYSCONFIG)),
        Status::ERROR_SUCCESS,
        "a mask without events needs no right"
    );
    let mut list = SecurityDescriptor::built_in(OWN_UID, None);
    let allow_entry = |rights| Ace::new(AceKind::Allow, Sid::user(GUEST_UID), rights);
    list.dacl.as_mut().unwrap().add(allow_entry(Rights::TRACELOG_CREATE_REALTIME));
    service.core.access.rules_mut().lists.set_list(SYSTEM_TRACE_CONTROL, Some(list.clone()));
    assert_eq!(
        refusal_status(&service, 2, &PROCESSES),
        Status::ERROR_PRIVILEGE_NOT_HELD,
        "another right does not suffice"
    );
    list.dacl.as_mut().unwrap().add(allow_entry(Rights::TRACELOG_ACCESS_KERNEL_LOGGER));
    service.core.access.rules_mut().lists.set_list(SYSTEM_TRACE_CONTROL, Some(list));
    assert_eq!(refusal_status(&service, 2, &DISKS), Status::ERROR_SUCCESS);
}

#[test]
fn unprivileged_daemon_has_only_groups_of_own_processes() {
    let service = service_with_kernel_scope(Scope::User, CaptureScope::Own);
    // Context switches (4) and samples (2) have a second bit, in the second word.
    let own_groups = [OWN_GROUPS, 0x6, 0, 0, 0, 0, 0, 0];
    assert_eq!(
        (refusal_status(&service, 1, &PROCESSES), refusal_status(&service, 1, &own_groups)),
        (Status::ERROR_SUCCESS, Status::ERROR_SUCCESS)
    );
    assert_eq!(refusal_status(&service, 1, &DISKS), Status::ERROR_PRIVILEGE_NOT_HELD);
    let reason = service.system_loggers.check_events(&service.core.access, 1, &DISKS).unwrap_err().reason;
    assert!(reason.starts_with("kernel events: DISK_IO") && reason.contains("CAP_PERFMON"), "{reason}");
}

/// Returns an access list that grants the guest these rights.
fn list_granting(rights: Rights) -> SecurityDescriptor {
    let mut list = SecurityDescriptor::built_in(OWN_UID, None);
    list.dacl.as_mut().unwrap().add(Ace::new(AceKind::Allow, Sid::user(GUEST_UID), rights));
    list
}

#[test]
fn guest_with_session_rights_cannot_read_kernel_events_of_others() {
    let (mut service, notices) = service_with_notices(Scope::System, OWN_UID, 4);
    service
        .core
        .access
        .rules_mut()
        .lists
        .set_list(DEFAULT_TRACE_SECURITY, Some(list_granting(Rights::WMIGUID_ALL_ACCESS)));
    for (link, uid, role) in
        [(1, OWN_UID, Role::Controller), (2, GUEST_UID, Role::Controller), (3, GUEST_UID, Role::Consumer)]
    {
        connect(&mut service, link, uid);
        send(&mut service, link, hello(role, link));
    }
    take_sent(&mut service);
    let config = |name: &str| SessionConfig {
        name: name.to_owned(),
        log_file_mode: SYSTEM_LOGGER_MODE,
        ..SessionConfig::default()
    };
    let answer = |service: &mut Service, link, message| {
        send(service, link, message);
        loop {
            if let Some(answer) = take_sent(service).pop() {
                return answer;
            }
            deliver_notice(service, &notices);
        }
    };
    let refused = "2 refused ERROR_PRIVILEGE_NOT_HELD";
    assert_eq!(answer(&mut service, 2, Message::Start(Box::new(config("its own")))), refused);
    answer(&mut service, 1, Message::Start(Box::new(config("s"))));
    let id = service.core.sessions.running_ids().pop().unwrap();
    let session = || SessionRef::Id(id);
    let control = |control| Message::Control { session: session(), control };
    let guest_file = || Some("/mine.etl".into());
    let to_file = Update { log_file: guest_file(), ..Update::default() };
    let live = Update { real_time: Some(true), ..Update::default() };
    let exposing = [
        Control::Update(to_file),
        Control::Update(live),
        Control::Flush { log_file: guest_file() },
        Control::ConvertToRealTime,
    ];
    for control_request in exposing {
        assert_eq!(answer(&mut service, 2, control(control_request.clone())), refused, "{control_request:?}");
    }
    let capture_state = |provider| Message::EnableProvider {
        session: session(),
        provider,
        code: EnableCode::CaptureState,
        params: Box::default(),
        name: String::new(),
        timeout_ms: 0,
    };
    for provider in [SYSTEM_TRACE_CONTROL, SYSTEM_PROVIDERS[0].1] {
        service
            .core
            .access
            .rules_mut()
            .lists
            .set_list(provider, Some(list_granting(Rights::TRACELOG_GUID_ENABLE)));
        assert_eq!(answer(&mut service, 2, capture_state(provider)), refused);
    }
    let open_consumer = || Message::OpenConsumer { session: session() };
    assert_eq!(answer(&mut service, 3, open_consumer()), "3 refused ERROR_PRIVILEGE_NOT_HELD");
    assert!(
        answer(&mut service, 2, control(Control::Query)).contains("Properties"),
        "a request that shows no events needs no kernel right"
    );
    let rights = Rights::TRACELOG_ACCESS_KERNEL_LOGGER | Rights::TRACELOG_GUID_ENABLE;
    service.core.access.rules_mut().lists.set_list(SYSTEM_TRACE_CONTROL, Some(list_granting(rights)));
    assert_eq!(answer(&mut service, 2, capture_state(SYSTEM_TRACE_CONTROL)), "2 Done");
    assert!(answer(&mut service, 3, open_consumer()).starts_with("3 Consumer"));
    answer(&mut service, 2, control(Control::Stop));
}

fn set_information(session: u64, set: &Set) -> Message {
    let (class, data) = (set.class().number(), set.to_bytes());
    Message::SetInformation { session: SessionRef::Id(session), class, data }
}

#[test]
fn starting_session_gets_no_second_capture() {
    let (mut service, notices) = service_with_controller();
    let steps = |service: &Service| {
        let new_settings = NewSettings::System(System::default());
        service.system_loggers.capture_steps(&new_settings, &service.core.information).len()
    };
    let (name, log_file_mode, enable_flags) = ("k".to_owned(), SYSTEM_LOGGER_MODE, CSWITCH);
    let config = SessionConfig { name, log_file_mode, enable_flags, ..SessionConfig::default() };
    send(&mut service, 1, Message::Start(Box::new(config)));
    assert_eq!(steps(&service), 0, "the outcome of the first capture is still open");
    deliver_notice(&mut service, &notices);
    assert_eq!(steps(&service), 0, "the session has a capture, or could not start");
}

#[test]
fn session_without_capture_gets_one_once_it_runs() {
    let (mut service, notices) = service_with_controller();
    let (name, log_file_mode) = ("k".to_owned(), SYSTEM_LOGGER_MODE);
    let config = SessionConfig { name, log_file_mode, ..SessionConfig::default() };
    send(&mut service, 1, Message::Start(Box::new(config)));
    let ThreadNotice::Started { id, outcome: Ok(mut started) } =
        notices.recv_timeout(Duration::from_secs(30)).unwrap()
    else {
        panic!("the session did not start");
    };
    // The same outcome as if no capture could be opened.
    started.kernel = None;
    let groups = RequestedGroups::from_flags(CSWITCH);
    let new_settings = NewSettings::Session { id, groups, settings: Box::default() };
    assert_eq!(service.system_loggers.capture_steps(&new_settings, &service.core.information).len(), 0);
    service.handle_notice(ThreadNotice::Started { id, outcome: Ok(started) }, service.now());
    assert_eq!(service.system_loggers.capture_steps(&new_settings, &service.core.information).len(), 1);
}

#[test]
fn requests_during_a_kernel_change_are_answered_after_it_in_order() {
    let (mut service, notices) = service_with_controller();
    take_sent(&mut service);
    let deliver_next = |service: &mut Service| {
        deliver_notice(service, &notices);
        take_sent(service)
    };
    let (name, log_file_mode) = ("k".to_owned(), SYSTEM_LOGGER_MODE);
    let config = SessionConfig { name, log_file_mode, ..SessionConfig::default() };
    send(&mut service, 1, Message::Start(Box::new(config)));
    assert_eq!(deliver_next(&mut service).len(), 1, "the session starts even without kernel events");
    let id = service.core.sessions.running_ids().pop().unwrap();
    send(&mut service, 1, set_information(id, &Set::SystemTraceEnableFlags(first_word(CSWITCH))));
    let stacks = vec![SWITCH];
    send(&mut service, 1, set_information(id, &Set::StackTracing(stacks)));
    send(&mut service, 1, set_information(id, &Set::SystemTraceEnableFlags([0; 8])));
    send(&mut service, 1, Message::Control { session: SessionRef::Id(id), control: Control::Query });
    let sent = take_sent(&mut service);
    assert!(sent.len() == 1 && sent[0].contains("Properties"), "other requests do not wait: {sent:?}");
    let mut answers = deliver_next(&mut service);
    while answers.len() < 3 {
        answers.extend(deliver_next(&mut service));
    }
    let is_accepted = answers[0] == "1 Done";
    assert!(
        is_accepted
            || ["1 refused ERROR_NOT_SUPPORTED", "1 refused ERROR_PRIVILEGE_NOT_HELD"]
                .contains(&answers[0].as_str()),
        "{answers:?}"
    );
    assert_eq!(answers[1..], ["1 Done", "1 Done"]);
    send(&mut service, 1, Message::Control { session: SessionRef::Id(id), control: Control::Stop });
    while service.core.sessions.running_session(id).is_some() || service.core.sessions.session(id).is_some() {
        deliver_next(&mut service);
    }
}

#[test]
fn guests_cannot_fill_the_queue_of_kernel_requests() {
    let mut service = service_with_kernel_scope(Scope::System, CaptureScope::Everything);
    let mut list = list_granting(Rights::WMIGUID_QUERY);
    for link in 3..10 {
        let uid = GUEST_UID + u32::try_from(link).unwrap();
        let allow_entry = Ace::new(AceKind::Allow, Sid::user(uid), Rights::WMIGUID_QUERY);
        list.dacl.as_mut().unwrap().add(allow_entry);
        connect(&mut service, link, uid);
    }
    service.core.access.rules_mut().lists.set_list(DEFAULT_TRACE_SECURITY, Some(list));
    for link in 1..10 {
        send(&mut service, link, hello(Role::Controller, link));
        assert_eq!(take_sent(&mut service), [format!("{link} welcome 77")]);
    }
    service.system_loggers.simulate_change();
    let flood = |service: &mut Service, link: LinkId| {
        for _ in 0..100 {
            send(service, link, set_information(7, &Set::SystemTraceEnableFlags([0; 8])));
        }
        take_sent(service).iter().filter(|line| **line == format!("{link} refused ERROR_BUSY")).count()
    };
    assert_eq!(flood(&mut service, 2), 92, "one guest may defer 8 requests");
    let refused: usize = (3..10).map(|link| flood(&mut service, link)).sum();
    assert_eq!(refused, 700 - 24, "all guests together may defer 32 requests");
    // Of the 64 requests that may be deferred in all, the guests have 32.
    assert_eq!(flood(&mut service, 1), 100 - 32, "the daemon's own user");
}

#[test]
fn system_logger_can_start_with_stacks() {
    let (mut service, notices) = service_with_controller();
    take_sent(&mut service);
    let list = Set::StackTracing(vec![SWITCH]).to_bytes();
    let start = |log_file_mode, kernel_stacks: &[u8]| {
        let (name, kernel_stacks) = ("s".to_owned(), kernel_stacks.to_vec());
        let config = SessionConfig { name, log_file_mode, kernel_stacks, ..SessionConfig::default() };
        Message::Start(Box::new(config))
    };
    for (mode, stacks, status) in [
        (EVENT_TRACE_REAL_TIME_MODE, list.as_slice(), "ERROR_INVALID_PARAMETER"),
        (SYSTEM_LOGGER_MODE, &list[1..], "ERROR_BAD_LENGTH"),
        (SYSTEM_LOGGER_MODE, &[0xFF; 24], "ERROR_INVALID_PARAMETER"),
    ] {
        send(&mut service, 1, start(mode, stacks));
        assert_eq!(take_sent(&mut service), [format!("1 refused {status}")], "{mode:#x} {stacks:?}");
    }
    send(&mut service, 1, start(SYSTEM_LOGGER_MODE, &list));
    deliver_notice(&mut service, &notices);
    let id = service.core.sessions.running_ids().pop().unwrap();
    assert_eq!(service.core.information.settings(id).stack_hooks(), [hook::CONTEXT_SWITCH]);
    let config = service.core.sessions.running_session(id).unwrap().properties().config;
    assert_eq!(config.kernel_stacks, [0; 0], "the stack configuration moves to the settings");
}

/// A service with a running session, and a capture of the kernel's manifest providers that can
/// refuse.
struct ProviderTest {
    service: Service,
    notices: Notices,
    hub: Arc<EventHub>,
    source: Arc<TestSourceState>,
    id: u64,
}

impl ProviderTest {
    fn new() -> Self {
        let (mut service, notices) = service_with_controller();
        let source = Arc::new(TestSourceState::default());
        let hub = Arc::new(source.create_hub());
        service.system_loggers = SystemLoggers::with_scope(CaptureScope::Everything);
        service.kernel_providers = KernelProviders::with_hub(Arc::clone(&hub));
        let (name, log_file_mode) = ("p".to_owned(), EVENT_TRACE_REAL_TIME_MODE);
        let config = SessionConfig { name, log_file_mode, ..SessionConfig::default() };
        send(&mut service, 1, Message::Start(Box::new(config)));
        deliver_notice(&mut service, &notices);
        take_sent(&mut service);
        let id = service.core.sessions.running_ids().pop().unwrap();
        Self { service, notices, hub, source, id }
    }

    /// Requests an enable of the process provider with this keyword.
    fn enable(&mut self, match_any: u64) {
        let message = Message::EnableProvider {
            session: SessionRef::Id(self.id),
            provider: KERNEL_PROCESS,
            code: EnableCode::Enable,
            params: Box::new(EnableParams { level: 5, match_any, ..EnableParams::default() }),
            name: String::new(),
            timeout_ms: 0,
        };
        send(&mut self.service, 1, message);
    }

    /// Delivers notices until this many requests are answered.
    fn take_answers(&mut self, count: usize) -> Vec<String> {
        let mut answers = take_sent(&mut self.service);
        while answers.len() < count {
            deliver_notice(&mut self.service, &self.notices);
            answers.extend(take_sent(&mut self.service));
        }
        answers
    }

    /// Returns the keyword that the hub has for the session.
    fn enabled_keyword(&self) -> Option<u64> {
        self.hub.enables(self.id).get(&KERNEL_PROCESS).map(|params| params.match_any)
    }

    fn has_listed_enable(&self) -> bool {
        self.service.providers.registry.has_enables(self.id)
    }
}

/// Keywords of the process provider: processes (group 0x1) and images (group 0x4).
const PROCESS_KEYWORD: u64 = 0x10;
const IMAGE_KEYWORD: u64 = 0x40;
const REFUSED: &str = "1 refused ERROR_NO_SYSTEM_RESOURCES";

#[test]
fn refused_enable_of_a_kernel_provider_does_not_remove_a_later_one() {
    let mut test = ProviderTest::new();
    test.source.refusals.store(1, SeqCst);
    test.enable(PROCESS_KEYWORD);
    test.enable(IMAGE_KEYWORD);
    assert_eq!(test.take_answers(2), [REFUSED, "1 Done"]);
    assert_eq!((test.enabled_keyword(), test.has_listed_enable()), (Some(IMAGE_KEYWORD), true));
}

#[test]
fn refused_enables_of_a_kernel_provider_leave_nothing() {
    let mut test = ProviderTest::new();
    test.source.refusals.store(2, SeqCst);
    test.enable(PROCESS_KEYWORD);
    test.enable(IMAGE_KEYWORD);
    assert_eq!(test.take_answers(2), [REFUSED, REFUSED]);
    assert_eq!((test.enabled_keyword(), test.has_listed_enable()), (None, false));
}

#[test]
fn refused_change_of_a_kernel_provider_restores_the_capture() {
    let mut test = ProviderTest::new();
    test.enable(PROCESS_KEYWORD);
    assert_eq!(test.take_answers(1), ["1 Done"]);
    let flags_before = test.source.reached_flags();
    test.source.refusals.store(1, SeqCst);
    test.enable(IMAGE_KEYWORD);
    assert_eq!(test.take_answers(1), [REFUSED]);
    assert_eq!((test.enabled_keyword(), test.has_listed_enable()), (Some(PROCESS_KEYWORD), true));
    let deadline = Instant::now() + Duration::from_secs(30);
    while test.source.reached_flags() != flags_before {
        assert!(Instant::now() < deadline, "the capture keeps the refused groups");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn stopped_session_gets_no_kernel_provider_back() {
    let mut test = ProviderTest::new();
    test.enable(PROCESS_KEYWORD);
    assert_eq!(test.take_answers(1), ["1 Done"]);
    test.source.refusals.store(1, SeqCst);
    test.enable(IMAGE_KEYWORD);
    // The refusal is delivered only after the stop.
    let refused = test.notices.recv_timeout(Duration::from_secs(30)).unwrap();
    assert!(matches!(refused, ThreadNotice::ProvidersApplied { .. }));
    let control = Control::Stop;
    send(&mut test.service, 1, Message::Control { session: SessionRef::Id(test.id), control });
    test.take_answers(1);
    test.service.handle_notice(refused, test.service.now());
    assert_eq!(take_sent(&mut test.service), [REFUSED]);
    assert_eq!((test.enabled_keyword(), test.has_listed_enable()), (None, false));
}
