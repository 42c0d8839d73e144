//! Connections and roles, without a session: what a service does with whoever comes.

mod private;
mod told;

use std::collections::BTreeSet;

use super::*;
use std::sync::Arc;

use traceweir_format::Guid;
use traceweir_transport::message::{
    Control, EnableCode, EnableParams, SessionConfig, SessionRef, Update, VERSIONS,
};
use traceweir_transport::runtime::Scope;

use crate::limits::MAX_PROVIDERS;
use crate::registry::Process;

const OWN: u32 = 1000;
const STRANGER: u32 = 1001;

fn service(scope: Scope) -> Service {
    Service::new(Access::new(scope, OWN), 4, 77, Arc::new(|_| {}), Janitor::new())
}

fn connect(service: &mut Service, link: LinkId, uid: u32) {
    service.connected(link, Peer { pid: 100, uid, gid: uid }, ProcessKey::of(100), false);
}

fn say(service: &mut Service, link: LinkId, message: Message) {
    service.handle(link, Envelope { request: 9, message, descriptors: Vec::new() });
}

fn hello(role: Role, instance: u64) -> Message {
    Message::Hello { versions: VERSIONS, role, instance, program: "test".into() }
}

/// What was sent, in short: replies by their name or status, closes as such.
fn heard(service: &mut Service) -> Vec<String> {
    let text = |effect| match effect {
        Effect::Send { link, message: Message::Refused { status, .. }, .. } => {
            format!("{link} refused {status}")
        }
        Effect::Send { link, message: Message::Welcome { daemon, .. }, .. } => {
            format!("{link} welcome {daemon}")
        }
        Effect::Send { link, message: Message::Registered { registration }, .. } => {
            format!("{link} registered {registration}")
        }
        Effect::Send { link, message, .. } => format!("{link} {message:?}"),
        Effect::Close { link } => format!("{link} close"),
    };
    service.effects().into_iter().map(text).collect()
}

#[test]
fn whoever_says_hello_is_welcome_in_its_role() {
    for (link, role) in [(1, Role::Provider), (2, Role::Controller), (3, Role::Consumer)] {
        let mut service = service(Scope::User);
        connect(&mut service, link, OWN);
        assert!(!service.is_introduced(link));
        say(&mut service, link, hello(role, 1));
        assert!(service.is_introduced(link));
        assert_eq!(heard(&mut service), [format!("{link} welcome 77")]);
    }
}

#[test]
fn strangers_are_told_and_closed() {
    let mut service = service(Scope::User);
    connect(&mut service, 1, STRANGER);
    say(&mut service, 1, hello(Role::Provider, 1));
    assert_eq!(heard(&mut service), ["1 refused 5", "1 close"]);
}

#[test]
fn a_version_that_is_not_spoken_is_refused() {
    let mut service = service(Scope::User);
    connect(&mut service, 1, OWN);
    let message =
        Message::Hello { versions: (200, 300), role: Role::Controller, instance: 1, program: "new".into() };
    say(&mut service, 1, message);
    assert_eq!(heard(&mut service), ["1 refused 50", "1 close"]);
}

#[test]
fn a_process_has_one_connection_until_that_is_gone() {
    let mut service = service(Scope::User);
    for link in 1..=3 {
        connect(&mut service, link, OWN);
    }
    say(&mut service, 1, hello(Role::Provider, 5));
    say(&mut service, 2, hello(Role::Provider, 5));
    say(&mut service, 3, hello(Role::Provider, 6));
    assert_eq!(heard(&mut service), ["1 welcome 77", "2 refused 183", "2 close", "3 welcome 77"]);
    service.disconnected(1);
    connect(&mut service, 4, OWN);
    say(&mut service, 4, hello(Role::Provider, 5));
    assert_eq!(heard(&mut service), ["4 welcome 77"]);
}

#[test]
fn only_a_provider_answers_a_knock() {
    let mut service = service(Scope::User);
    service.connected(1, Peer { pid: 100, uid: OWN, gid: OWN }, None, true);
    assert!(heard(&mut service).first().is_some_and(|first| first.contains("Knock")));
    say(&mut service, 1, hello(Role::Controller, 1));
    assert_eq!(heard(&mut service), ["1 refused 87", "1 close"]);
}

#[test]
fn what_has_no_place_is_refused_and_closed() {
    let register = || Message::Register {
        registration: 1,
        provider: Guid::from_u128(1),
        traits: Vec::new(),
        classic: false,
    };
    let all = || Message::QueryAll { from: 0 };
    for (role, message) in [
        (Role::Provider, all()),
        (Role::Provider, Message::Registered { registration: 1 }),
        (Role::Controller, register()),
        (Role::Controller, Message::Ack { order: 1 }),
        (Role::Consumer, all()),
        (Role::Consumer, hello(Role::Consumer, 1)),
    ] {
        let mut service = service(Scope::User);
        connect(&mut service, 1, OWN);
        say(&mut service, 1, hello(role, 1));
        heard(&mut service);
        say(&mut service, 1, message);
        assert_eq!(heard(&mut service), ["1 refused 87", "1 close"], "{role:?}");
    }
    let mut service = service(Scope::User);
    connect(&mut service, 1, OWN);
    say(&mut service, 1, all());
    assert_eq!(heard(&mut service), ["1 refused 87", "1 close"], "before hello");
}

#[test]
fn sessions_that_are_not_there_are_4201() {
    let mut service = service(Scope::User);
    connect(&mut service, 1, OWN);
    connect(&mut service, 2, OWN);
    say(&mut service, 1, hello(Role::Controller, 1));
    say(&mut service, 2, hello(Role::Consumer, 1));
    heard(&mut service);
    for session in [SessionRef::Id(0x1_0001), SessionRef::Name("nobody".into())] {
        for control in [
            Control::Query,
            Control::Stop,
            Control::Update(Update::default()),
            Control::Flush { log_file: None },
        ] {
            say(&mut service, 1, Message::Control { session: session.clone(), control });
        }
        let params = Box::new(EnableParams::default());
        let (provider, code) = (Guid::from_u128(1), EnableCode::Enable);
        say(
            &mut service,
            1,
            Message::EnableProvider {
                session: session.clone(),
                provider,
                code,
                params,
                name: String::new(),
                timeout_ms: 0,
            },
        );
        say(&mut service, 2, Message::OpenConsumer { session });
        let heard = heard(&mut service);
        assert_eq!(heard.len(), 6);
        assert!(heard.iter().all(|line| line.ends_with("refused 4201")), "{heard:?}");
    }
}

#[test]
fn registering_and_leaving_keep_the_registry_in_step() {
    let mut service = service(Scope::System);
    connect(&mut service, 1, STRANGER);
    say(&mut service, 1, hello(Role::Provider, 1));
    for registration in [4, 5] {
        say(
            &mut service,
            1,
            Message::Register {
                registration,
                provider: Guid::from_u128(1),
                traits: Vec::new(),
                classic: false,
            },
        );
    }
    say(
        &mut service,
        1,
        Message::Register {
            registration: 5,
            provider: Guid::from_u128(2),
            traits: Vec::new(),
            classic: false,
        },
    );
    assert_eq!(heard(&mut service), ["1 welcome 77", "1 registered 4", "1 registered 5", "1 refused 87"]);
    assert_eq!(service.registry.providers(None, &BTreeSet::new()).count(), 1);
    say(&mut service, 1, Message::Unregister { registration: 4 });
    say(&mut service, 1, Message::Ack { order: 12345 });
    assert_eq!(heard(&mut service), ["1 Done"]);
    service.disconnected(1);
    assert!(service.registry.providers(None, &BTreeSet::new()).next().is_none());
}

#[test]
fn idleness_is_the_absence_of_sessions_and_consumers() {
    let mut service = service(Scope::User);
    assert!(service.idle_since().is_some());
    connect(&mut service, 1, OWN);
    say(&mut service, 1, hello(Role::Provider, 1));
    assert!(service.idle_since().is_some(), "providers alone do not keep it");
    connect(&mut service, 2, OWN);
    say(&mut service, 2, hello(Role::Consumer, 1));
    assert!(service.idle_since().is_none());
    let before = Instant::now();
    service.disconnected(2);
    assert!(service.idle_since().is_some_and(|since| since >= before), "from when it left");
}

#[test]
fn a_leaving_daemon_takes_no_new_work() {
    let mut service = service(Scope::User);
    connect(&mut service, 1, OWN);
    say(&mut service, 1, hello(Role::Controller, 1));
    service.shut_down();
    assert!(service.is_finished());
    heard(&mut service);
    say(&mut service, 1, Message::Start(Box::default()));
    assert_eq!(heard(&mut service), ["1 refused 1450"]);
}

/// A service whose sessions are real; their notices are delivered by hand.
fn with_notices() -> (Service, std::sync::mpsc::Receiver<Notice>) {
    let (sender, notices) = std::sync::mpsc::channel();
    let post: Post = Arc::new(move |notice| drop(sender.send(notice)));
    let mut service = Service::new(Access::new(Scope::User, OWN), 4, 77, post, Janitor::new());
    connect(&mut service, 1, OWN);
    say(&mut service, 1, hello(Role::Controller, 1));
    (service, notices)
}

fn started(service: &mut Service, notices: &std::sync::mpsc::Receiver<Notice>) -> u64 {
    let config = SessionConfig { name: "s".into(), log_file_mode: 0x100, ..SessionConfig::default() };
    say(service, 1, Message::Start(Box::new(config)));
    service.notice(notices.recv_timeout(Duration::from_secs(30)).unwrap());
    heard(service);
    service.sessions.running().pop().unwrap()
}

fn enable(session: u64, timeout_ms: u32) -> Message {
    let (provider, code) = (Guid::from_u128(1), EnableCode::Enable);
    let params = Box::new(EnableParams::default());
    Message::EnableProvider {
        session: SessionRef::Id(session),
        provider,
        code,
        params,
        name: String::new(),
        timeout_ms,
    }
}

#[test]
fn calls_that_wait_are_bounded_and_end_with_their_controller() {
    let (mut service, notices) = with_notices();
    let session = started(&mut service, &notices);
    connect(&mut service, 2, OWN);
    say(&mut service, 2, hello(Role::Provider, 1));
    say(
        &mut service,
        2,
        Message::Register {
            registration: 1,
            provider: Guid::from_u128(1),
            traits: Vec::new(),
            classic: false,
        },
    );
    for _ in 0..64 {
        say(&mut service, 1, enable(session, u32::MAX));
    }
    assert!(!heard(&mut service).contains(&"1 refused 170".into()));
    say(&mut service, 1, enable(session, u32::MAX));
    assert_eq!(heard(&mut service), ["1 refused 170"]);
    assert_eq!(service.registry.processes[&2].awaited.len(), 64);
    service.disconnected(1);
    assert!(service.registry.processes[&2].awaited.is_empty());
    assert_eq!(service.waits.of(1), [] as [u64; 0]);
}

#[test]
fn a_wait_that_expires_leaves_nothing_behind() {
    let (mut service, notices) = with_notices();
    let session = started(&mut service, &notices);
    connect(&mut service, 2, OWN);
    say(&mut service, 2, hello(Role::Provider, 1));
    say(
        &mut service,
        2,
        Message::Register {
            registration: 1,
            provider: Guid::from_u128(1),
            traits: Vec::new(),
            classic: false,
        },
    );
    say(&mut service, 1, enable(session, 5000));
    heard(&mut service);
    let deadline = service.deadline().unwrap();
    service.tick(deadline - Duration::from_millis(1));
    assert_eq!(heard(&mut service), [] as [String; 0]);
    service.tick(deadline);
    assert_eq!(heard(&mut service), ["1 refused 1460"]);
    assert!(service.registry.processes[&2].awaited.is_empty());
    assert_eq!(service.deadline(), None);
}

/// A process with a registration that the session wants.
fn register(service: &mut Service, link: LinkId) {
    connect(service, link, OWN);
    say(service, link, hello(Role::Provider, link));
    let provider = Guid::from_u128(1);
    say(service, link, Message::Register { registration: 1, provider, traits: Vec::new(), classic: false });
}

#[test]
fn a_process_that_gets_no_region_is_counted_and_gets_it_when_there_is_room() {
    let (mut service, notices) = with_notices();
    let session = started(&mut service, &notices);
    say(&mut service, 1, enable(session, 0));
    heard(&mut service);
    service.descriptors = Descriptors::limited_to(0);
    register(&mut service, 2);
    let said = heard(&mut service);
    assert_eq!(said, ["2 welcome 77", "2 registered 1"], "no region, and no enable without one");
    let lost = |service: &Service| {
        let properties = service.sessions.properties(session).unwrap();
        assert_eq!(properties.events_lost, properties.lost_by_cause.sum());
        properties.lost_by_cause.no_region
    };
    assert_eq!(lost(&service), 1);
    say(&mut service, 1, enable(session, 5000));
    assert_eq!(heard(&mut service), ["1 refused 1450"], "who waits is told");
    assert_eq!(lost(&service), 1, "the same process");
    let again = service.deadline().unwrap();
    service.tick(again);
    assert_eq!(heard(&mut service), [] as [String; 0], "still none");
    service.descriptors = Descriptors::of_process();
    let again = service.deadline().unwrap();
    service.tick(again);
    let said = heard(&mut service);
    assert!(said[0].starts_with("2 Region") && said[1].starts_with("2 Enable"), "{said:?}");
    assert_eq!((said.len(), service.deadline()), (2, None));
}

#[test]
fn who_left_or_is_wanted_no_more_gets_no_region_later() {
    let (mut service, notices) = with_notices();
    let session = started(&mut service, &notices);
    say(&mut service, 1, enable(session, 0));
    service.descriptors = Descriptors::limited_to(0);
    register(&mut service, 2);
    register(&mut service, 3);
    service.disconnected(2);
    let disable = Message::EnableProvider {
        session: SessionRef::Id(session),
        provider: Guid::from_u128(1),
        code: EnableCode::Disable,
        params: Box::default(),
        name: String::new(),
        timeout_ms: 0,
    };
    say(&mut service, 1, disable);
    heard(&mut service);
    service.descriptors = Descriptors::of_process();
    let again = service.deadline().unwrap();
    service.tick(again);
    assert_eq!((heard(&mut service), service.deadline()), (vec![], None));
}

#[test]
fn all_sessions_together_take_a_bounded_part_of_the_memory() {
    let (mut service, notices) = with_notices();
    heard(&mut service);
    let start = |service: &mut Service, name: &str, maximum_buffers| {
        let (log_file_mode, buffer_size) = (0x100, 1024);
        let name = name.into();
        let config =
            SessionConfig { name, log_file_mode, buffer_size, maximum_buffers, ..SessionConfig::default() };
        say(service, 1, Message::Start(Box::new(config)));
        match service.effects().pop() {
            Some(Effect::Send { message: Message::Refused { status, .. }, .. }) => Err(status),
            Some(other) => panic!("{other:?}"),
            None => {
                service.notice(notices.recv_timeout(Duration::from_secs(30)).unwrap());
                service.effects();
                let id = service.sessions.running().pop().unwrap();
                Ok((id, service.sessions.properties(id).unwrap().config))
            }
        }
    };
    let least = start(&mut service, "a", 1).unwrap().1.maximum_buffers;
    let mib = |buffers: u32| u64::from(buffers) << 20;
    service.sessions.pool_budget = mib(3 * least + 5);
    let (second, config) = start(&mut service, "b", 10_000).unwrap();
    assert_eq!(config.maximum_buffers, 2 * least + 5, "what is left");
    assert_eq!(start(&mut service, "c", 0).unwrap_err(), 1450);
    service.sessions.pool_budget = mib(3 * least + 7);
    let update = Update { maximum_buffers: Some(10_000), ..Update::default() };
    let control = Control::Update(update);
    say(&mut service, 1, Message::Control { session: SessionRef::Id(second), control });
    service.notice(notices.recv_timeout(Duration::from_secs(30)).unwrap());
    let updated = service.sessions.properties(second).unwrap().config.maximum_buffers;
    assert_eq!(updated, 2 * least + 7);
    assert_eq!(service.sessions.pool_left(false), 0);
}

#[test]
fn providers_leave_places_for_those_who_control() {
    let mut service = service(Scope::System);
    for link in 0..u64::try_from(MAX_PROVIDERS).unwrap() {
        let pid = u32::try_from(link).unwrap() + 2;
        service.registry.processes.insert(link, Process::new(Peer { pid, uid: STRANGER, gid: 1 }, None, 1));
    }
    connect(&mut service, 9000, 0);
    connect(&mut service, 9001, OWN);
    say(&mut service, 9000, hello(Role::Provider, 2));
    say(&mut service, 9001, hello(Role::Controller, 1));
    assert_eq!(heard(&mut service), ["9000 refused 1450", "9000 close", "9001 welcome 77"]);
}

#[test]
fn changes_under_way_are_bounded() {
    let (mut service, notices) = with_notices();
    let session = started(&mut service, &notices);
    let flush =
        || Message::Control { session: SessionRef::Id(session), control: Control::Flush { log_file: None } };
    for _ in 0..64 {
        say(&mut service, 1, flush());
    }
    assert_eq!(heard(&mut service), [] as [String; 0]);
    say(&mut service, 1, flush());
    assert_eq!(heard(&mut service), ["1 refused 170"]);
    service.notice(notices.recv_timeout(Duration::from_secs(30)).unwrap());
    heard(&mut service);
    say(&mut service, 1, flush());
    assert_eq!(heard(&mut service), [] as [String; 0], "one is over");
}

#[test]
fn a_stop_that_comes_while_a_session_ends_by_itself_gets_the_outcome() {
    let (mut service, notices) = with_notices();
    let session = started(&mut service, &notices);
    service.notice(Notice::Ended { id: session, status: Status::ERROR_DISK_FULL });
    let stop = || Message::Control { session: SessionRef::Id(session), control: Control::Stop };
    say(&mut service, 1, stop());
    assert_eq!(heard(&mut service), [] as [String; 0]);
    say(&mut service, 1, stop());
    assert_eq!(heard(&mut service), ["1 refused 2402"]);
    assert!(service.idle_since().is_none());
    service.notice(notices.recv_timeout(Duration::from_secs(30)).unwrap());
    assert!(heard(&mut service).iter().any(|line| line.starts_with("1 Properties")));
    assert!(service.idle_since().is_some());
}

#[test]
fn a_session_that_ends_before_it_was_seen_to_run_is_stopped() {
    let (mut service, notices) = with_notices();
    let config = SessionConfig { name: "s".into(), log_file_mode: 0x100, ..SessionConfig::default() };
    say(&mut service, 1, Message::Start(Box::new(config)));
    let start = notices.recv_timeout(Duration::from_secs(30)).unwrap();
    let Notice::Started { id, .. } = start else { panic!("not started") };
    service.notice(Notice::Ended { id, status: Status::ERROR_DISK_FULL });
    service.notice(start);
    assert!(heard(&mut service).iter().any(|line| line.starts_with("1 Properties")), "it did run");
    service.notice(notices.recv_timeout(Duration::from_secs(30)).unwrap());
    assert!(service.sessions.is_empty());
}

#[test]
fn a_session_that_nobody_may_stop_runs_until_the_daemon_leaves() {
    let (tell, told) = std::sync::mpsc::channel();
    let tell = std::sync::Mutex::new(tell);
    let post: Post = Arc::new(move |notice| tell.lock().unwrap().send(notice).unwrap());
    let mut service = Service::new(Access::new(Scope::User, OWN), 4, 77, post, Janitor::new());
    connect(&mut service, 1, OWN);
    say(&mut service, 1, hello(Role::Controller, 1));
    let raw = SessionConfig { name: "boot".into(), log_file_mode: 0x140, ..SessionConfig::default() };
    say(&mut service, 1, Message::Start(Box::new(raw.clone())));
    assert_eq!(heard(&mut service), ["1 welcome 77", "1 refused 87"], "not for controllers");
    service.admit_own();
    let passed = Passed::new(Vec::new(), &service.janitor);
    service.start(Asker { link: own::OWN, request: 9 }, raw, passed).unwrap();
    service.notice(told.recv().unwrap());
    heard(&mut service);
    let session = SessionRef::Name("BOOT".into());
    say(&mut service, 1, Message::Control { session, control: Control::Stop });
    assert_eq!(heard(&mut service), ["1 refused 5"]);
    service.shut_down();
    service.notice(told.recv().unwrap());
    assert!(service.is_finished());
}
