//! Tests of connections, roles and the end of sessions.
//!
//! The modules test limits on what users can consume (`bounds`), panics of a session (`fault`),
//! kernel events (`kernel`), orders to registrations (`model`), private sessions (`private`) and
//! changing rights (`rights`).

mod bounds;
mod fault;
mod kernel;
mod model;
mod private;
mod rights;

use std::collections::BTreeSet;

use super::*;
use std::sync::Arc;

use traceweir_format::Guid;
use traceweir_format::spec::session::{EVENT_TRACE_NONSTOPPABLE_MODE, EVENT_TRACE_REAL_TIME_MODE};
use traceweir_transport::message::{
    Control, EnableCode, EnableParams, SessionConfig, SessionRef, Update, VERSIONS,
};
use traceweir_transport::runtime::Scope;

use crate::limits::{DescriptorLimit, MAX_PROVIDER_LINKS};
use crate::registry::ProviderProcess;

const OWN_UID: u32 = 1000;
const GUEST_UID: u32 = 1001;

impl Service {
    /// Returns the time that the last call passed to the service.
    fn now(&self) -> Instant {
        self.core.turn.now
    }
}

type Notices = std::sync::mpsc::Receiver<ThreadNotice>;

/// Creates a service of this user with real sessions and the run id 77; the test delivers the
/// notices of the sessions.
fn service_with_notices(scope: Scope, uid: u32, max_sessions: usize) -> (Service, Notices) {
    let (sender, notices) = std::sync::mpsc::channel();
    let post: NoticeSender = Arc::new(move |notice| drop(sender.send(notice)));
    let (rules, janitor) = (AccessRules::new(scope, uid), Janitor::new());
    let service = Service::new(rules, max_sessions, 77, post, janitor, Instant::now(), SystemTime::now());
    (service, notices)
}

fn service(scope: Scope) -> Service {
    service_with_notices(scope, OWN_UID, 4).0
}

/// Waits for the next notice of a session and passes it to the service.
fn deliver_notice(service: &mut Service, notices: &Notices) {
    service.handle_notice(notices.recv_timeout(Duration::from_secs(30)).unwrap(), service.now());
}

fn connect(service: &mut Service, link: LinkId, uid: u32) {
    // A process that always exists.
    let pid = 1;
    service.add_connection(
        link,
        Peer { pid, uid, gid: uid },
        ProcessKey::from_pid(pid),
        false,
        service.now(),
    );
}

fn send(service: &mut Service, link: LinkId, message: Message) {
    service.handle(link, Envelope { request: 9, message, descriptors: Vec::new() }, service.now());
}

fn hello(role: Role, instance: u64) -> Message {
    Message::Hello { versions: VERSIONS, role, instance, program: "test".into() }
}

/// Removes the effects of the service and describes each in one line that begins with its link.
fn take_sent(service: &mut Service) -> Vec<String> {
    let describe = |effect| match effect {
        LinkEffect::Send { link, message: Message::Refused { status, .. }, .. } => {
            format!("{link} refused {}", Status(status).name().unwrap())
        }
        LinkEffect::Send { link, message: Message::Welcome { daemon, .. }, .. } => {
            format!("{link} welcome {daemon}")
        }
        LinkEffect::Send { link, message: Message::Registered { registration }, .. } => {
            format!("{link} registered {registration}")
        }
        LinkEffect::Send { link, message, .. } => format!("{link} {message:?}"),
        LinkEffect::Close { link } => format!("{link} close"),
    };
    service.take_effects().into_iter().map(describe).collect()
}

/// Creates a service with a controller at link 1.
fn service_with_controller() -> (Service, Notices) {
    let (mut service, notices) = service_with_notices(Scope::User, OWN_UID, 4);
    connect(&mut service, 1, OWN_UID);
    send(&mut service, 1, hello(Role::Controller, 1));
    (service, notices)
}

fn start_session(service: &mut Service, notices: &Notices) -> u64 {
    let config = SessionConfig {
        name: "s".into(),
        log_file_mode: EVENT_TRACE_REAL_TIME_MODE,
        ..SessionConfig::default()
    };
    send(service, 1, Message::Start(Box::new(config)));
    deliver_notice(service, notices);
    take_sent(service);
    service.core.sessions.running_ids().pop().unwrap()
}

fn enable_message(session: SessionRef, timeout_ms: u32) -> Message {
    let (provider, code) = (Guid::from_u128(1), EnableCode::Enable);
    let params = Box::new(EnableParams::default());
    Message::EnableProvider { session, provider, code, params, name: String::new(), timeout_ms }
}

fn register_message(registration: u32, provider: Guid) -> Message {
    Message::Register { registration, provider, traits: Vec::new(), classic: false }
}

/// Adds a process that registers the provider of [`enable_message`].
fn register_process(service: &mut Service, link: LinkId) {
    connect(service, link, OWN_UID);
    send(service, link, hello(Role::Provider, link));
    send(service, link, register_message(1, Guid::from_u128(1)));
}

#[test]
fn hello_is_answered_with_welcome_in_every_role() {
    for (link, role) in [(1, Role::Provider), (2, Role::Controller), (3, Role::Consumer)] {
        let mut service = service(Scope::User);
        connect(&mut service, link, OWN_UID);
        assert!(!service.is_introduced(link));
        send(&mut service, link, hello(role, 1));
        assert!(service.is_introduced(link));
        assert_eq!(take_sent(&mut service), [format!("{link} welcome 77")]);
    }
}

#[test]
fn other_users_are_refused_and_closed() {
    let mut service = service(Scope::User);
    connect(&mut service, 1, GUEST_UID);
    send(&mut service, 1, hello(Role::Provider, 1));
    assert_eq!(take_sent(&mut service), ["1 refused ERROR_ACCESS_DENIED", "1 close"]);
}

#[test]
fn unsupported_version_is_refused() {
    let mut service = service(Scope::User);
    connect(&mut service, 1, OWN_UID);
    let message =
        Message::Hello { versions: (200, 300), role: Role::Controller, instance: 1, program: "new".into() };
    send(&mut service, 1, message);
    assert_eq!(take_sent(&mut service), ["1 refused ERROR_NOT_SUPPORTED", "1 close"]);
}

#[test]
fn library_instance_has_one_connection_at_a_time() {
    let mut service = service(Scope::User);
    for link in 1..=3 {
        connect(&mut service, link, OWN_UID);
    }
    send(&mut service, 1, hello(Role::Provider, 5));
    send(&mut service, 2, hello(Role::Provider, 5));
    send(&mut service, 3, hello(Role::Provider, 6));
    assert_eq!(
        take_sent(&mut service),
        ["1 welcome 77", "2 refused ERROR_ALREADY_EXISTS", "2 close", "3 welcome 77"]
    );
    service.remove_connection(1, service.now());
    connect(&mut service, 4, OWN_UID);
    send(&mut service, 4, hello(Role::Provider, 5));
    assert_eq!(take_sent(&mut service), ["4 welcome 77"]);
}

#[test]
fn only_a_provider_answers_a_knock() {
    let mut service = service(Scope::User);
    service.add_connection(1, Peer { pid: 100, uid: OWN_UID, gid: OWN_UID }, None, true, service.now());
    assert!(take_sent(&mut service).first().is_some_and(|first| first.contains("Knock")));
    send(&mut service, 1, hello(Role::Controller, 1));
    assert_eq!(take_sent(&mut service), ["1 refused ERROR_INVALID_PARAMETER", "1 close"]);
}

#[test]
fn message_out_of_role_is_refused_and_closed() {
    let query_all = || Message::QueryAll { from: 0 };
    for (role, message) in [
        (Role::Provider, query_all()),
        (Role::Provider, Message::Registered { registration: 1 }),
        (Role::Controller, register_message(1, Guid::from_u128(1))),
        (Role::Controller, Message::Ack { order: 1 }),
        (Role::Consumer, query_all()),
        (Role::Consumer, hello(Role::Consumer, 1)),
    ] {
        let mut service = service(Scope::User);
        connect(&mut service, 1, OWN_UID);
        send(&mut service, 1, hello(role, 1));
        take_sent(&mut service);
        send(&mut service, 1, message);
        assert_eq!(take_sent(&mut service), ["1 refused ERROR_INVALID_PARAMETER", "1 close"], "{role:?}");
    }
    let mut service = service(Scope::User);
    connect(&mut service, 1, OWN_UID);
    send(&mut service, 1, query_all());
    assert_eq!(
        take_sent(&mut service),
        ["1 refused ERROR_INVALID_PARAMETER", "1 close"],
        "no message is allowed before Hello"
    );
}

#[test]
fn unknown_session_is_refused_with_4201() {
    let mut service = service(Scope::User);
    connect(&mut service, 1, OWN_UID);
    connect(&mut service, 2, OWN_UID);
    send(&mut service, 1, hello(Role::Controller, 1));
    send(&mut service, 2, hello(Role::Consumer, 1));
    take_sent(&mut service);
    for session in [SessionRef::Id(0x1_0001), SessionRef::Name("unknown".into())] {
        for control in [
            Control::Query,
            Control::Stop,
            Control::Update(Update::default()),
            Control::Flush { log_file: None },
        ] {
            send(&mut service, 1, Message::Control { session: session.clone(), control });
        }
        send(&mut service, 1, enable_message(session.clone(), 0));
        send(&mut service, 2, Message::OpenConsumer { session });
        let sent = take_sent(&mut service);
        assert_eq!(sent.len(), 6);
        assert!(sent.iter().all(|line| line.ends_with("refused ERROR_WMI_INSTANCE_NOT_FOUND")), "{sent:?}");
    }
}

#[test]
fn registry_follows_registrations_and_disconnects() {
    let mut service = service(Scope::System);
    connect(&mut service, 1, GUEST_UID);
    send(&mut service, 1, hello(Role::Provider, 1));
    for registration in [4, 5] {
        send(&mut service, 1, register_message(registration, Guid::from_u128(1)));
    }
    send(&mut service, 1, register_message(5, Guid::from_u128(2)));
    assert_eq!(
        take_sent(&mut service),
        ["1 welcome 77", "1 registered 4", "1 registered 5", "1 refused ERROR_INVALID_PARAMETER"]
    );
    assert_eq!(service.providers.registry.providers(None, &BTreeSet::new()).count(), 1);
    send(&mut service, 1, Message::Unregister { registration: 4 });
    send(&mut service, 1, Message::Ack { order: 12345 });
    assert_eq!(take_sent(&mut service), ["1 Done"]);
    service.remove_connection(1, service.now());
    assert!(service.providers.registry.providers(None, &BTreeSet::new()).next().is_none());
}

#[test]
fn daemon_is_idle_without_sessions_and_consumers() {
    let mut service = service(Scope::User);
    assert!(service.idle_since().is_some());
    connect(&mut service, 1, OWN_UID);
    send(&mut service, 1, hello(Role::Provider, 1));
    assert!(service.idle_since().is_some(), "providers alone do not keep the daemon busy");
    connect(&mut service, 2, OWN_UID);
    send(&mut service, 2, hello(Role::Consumer, 1));
    assert!(service.idle_since().is_none());
    let later = service.now() + Duration::from_secs(7);
    service.remove_connection(2, later);
    assert_eq!(service.idle_since(), Some(later), "idle since the consumer left");
}

#[test]
fn sessions_and_consumers_keep_the_daemon_running() {
    let (mut service, notices) = service_with_controller();
    let session = start_session(&mut service, &notices);
    let idle = Duration::from_secs(4);
    let later = service.now() + idle * 100;
    assert!(!service.is_idle_for(idle, later), "a session keeps the daemon running");
    connect(&mut service, 2, OWN_UID);
    send(&mut service, 2, hello(Role::Consumer, 1));
    send(&mut service, 1, Message::Control { session: SessionRef::Id(session), control: Control::Stop });
    deliver_notice(&mut service, &notices);
    assert!(service.core.sessions.is_empty());
    assert!(!service.is_idle_for(idle, later), "a consumer keeps the daemon running");
    service.remove_connection(2, later);
    assert!(!service.is_idle_for(idle, later + idle - Duration::from_millis(1)));
    assert!(service.is_idle_for(idle, later + idle));
}

#[test]
fn daemon_that_shuts_down_starts_no_session() {
    let mut service = service(Scope::User);
    connect(&mut service, 1, OWN_UID);
    send(&mut service, 1, hello(Role::Controller, 1));
    service.shut_down(service.now());
    assert!(service.is_finished());
    take_sent(&mut service);
    send(&mut service, 1, Message::Start(Box::default()));
    assert_eq!(take_sent(&mut service), ["1 refused ERROR_NO_SYSTEM_RESOURCES"]);
}

#[test]
fn first_stop_of_a_session_that_ends_by_itself_gets_the_outcome() {
    let (mut service, notices) = service_with_controller();
    let session = start_session(&mut service, &notices);
    service
        .handle_notice(ThreadNotice::Ended { id: session, status: Status::ERROR_DISK_FULL }, service.now());
    let stop = || Message::Control { session: SessionRef::Id(session), control: Control::Stop };
    send(&mut service, 1, stop());
    assert_eq!(take_sent(&mut service), [] as [String; 0]);
    send(&mut service, 1, stop());
    assert_eq!(take_sent(&mut service), ["1 refused ERROR_ACTIVE_CONNECTIONS"]);
    assert!(service.idle_since().is_none());
    deliver_notice(&mut service, &notices);
    assert!(take_sent(&mut service).iter().any(|line| line.starts_with("1 Properties")));
    assert!(service.idle_since().is_some());
}

#[test]
fn session_that_ends_before_its_start_report_is_stopped() {
    let (mut service, notices) = service_with_controller();
    let config = SessionConfig {
        name: "s".into(),
        log_file_mode: EVENT_TRACE_REAL_TIME_MODE,
        ..SessionConfig::default()
    };
    send(&mut service, 1, Message::Start(Box::new(config)));
    let start = notices.recv_timeout(Duration::from_secs(30)).unwrap();
    let ThreadNotice::Started { id, .. } = start else { panic!("the first notice is not the start") };
    service.handle_notice(ThreadNotice::Ended { id, status: Status::ERROR_DISK_FULL }, service.now());
    service.handle_notice(start, service.now());
    assert!(
        take_sent(&mut service).iter().any(|line| line.starts_with("1 Properties")),
        "the start request gets its reply"
    );
    deliver_notice(&mut service, &notices);
    assert!(service.core.sessions.is_empty());
}

#[test]
fn nonstoppable_session_runs_until_the_daemon_shuts_down() {
    // The daemon makes its own requests under its own uid.
    let own_uid = rustix::process::geteuid().as_raw();
    let (mut service, notices) = service_with_notices(Scope::User, own_uid, 4);
    connect(&mut service, 1, own_uid);
    send(&mut service, 1, hello(Role::Controller, 1));
    let config = SessionConfig {
        name: "boot".into(),
        log_file_mode: EVENT_TRACE_REAL_TIME_MODE | EVENT_TRACE_NONSTOPPABLE_MODE,
        ..SessionConfig::default()
    };
    send(&mut service, 1, Message::Start(Box::new(config.clone())));
    assert_eq!(
        take_sent(&mut service),
        ["1 welcome 77", "1 refused ERROR_INVALID_PARAMETER"],
        "only an autologger may be non-stoppable"
    );
    service.add_own_link(service.now());
    let passed = PassedDescriptors::new(Vec::new(), &service.janitor);
    service.start(ReplyTo { link: OWN_LINK, request: 9 }, config, passed).unwrap();
    deliver_notice(&mut service, &notices);
    take_sent(&mut service);
    let session = SessionRef::Name("BOOT".into());
    send(&mut service, 1, Message::Control { session, control: Control::Stop });
    assert_eq!(take_sent(&mut service), ["1 refused ERROR_ACCESS_DENIED"]);
    service.shut_down(service.now());
    deliver_notice(&mut service, &notices);
    assert!(service.is_finished());
}
