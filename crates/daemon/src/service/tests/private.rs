//! Private sessions that controllers start: access, names, logger ids, timeouts, enables by name.

use traceweir_format::security::Sid;
use traceweir_format::spec::access::{Rights, SecurityOperation};
use traceweir_format::spec::enable::EVENT_FILTER_TYPE_PID;
use traceweir_format::spec::session::{EVENT_TRACE_FILE_MODE_SEQUENTIAL, EVENT_TRACE_PRIVATE_LOGGER_MODE};

use super::*;

use std::time::Duration;

use traceweir_format::tracelogging::TraitsBuilder;
use traceweir_transport::message::Properties;

const PROVIDER: Guid = Guid::from_u128(1);
const ANN_UID: u32 = GUEST_UID;
const BOB_UID: u32 = 1002;
// Controllers of the daemon's own user, of two guests, and of root.
const OWN_CONTROLLER: LinkId = 1;
const ANN_CONTROLLER: LinkId = 2;
const BOB_CONTROLLER: LinkId = 3;
const ROOT_CONTROLLER: LinkId = 4;
// A process of each guest.
const ANN_PROCESS: LinkId = 10;
const BOB_PROCESS: LinkId = 11;

fn grant(service: &mut Service, uid: u32, rights: Rights) {
    let (operation, sid, rights) = (SecurityOperation::ADD_DACL.0, Sid::user(uid).to_bytes(), rights.0);
    send(
        service,
        OWN_CONTROLLER,
        Message::SetAccess { object: PROVIDER, operation, sid, rights, allow: true },
    );
    assert_eq!(take_sent(service), [format!("{OWN_CONTROLLER} Done")]);
}

/// Creates a system daemon with the controllers and processes above; the guests have `rights` on
/// the provider.
fn service_with_guests(rights: Rights) -> Service {
    let mut service = service(Scope::System);
    connect(&mut service, OWN_CONTROLLER, OWN_UID);
    send(&mut service, OWN_CONTROLLER, hello(Role::Controller, 1));
    take_sent(&mut service);
    for uid in [ANN_UID, BOB_UID] {
        grant(&mut service, uid, rights | Rights::WMIGUID_QUERY);
    }
    for (link, uid) in [(ANN_CONTROLLER, ANN_UID), (BOB_CONTROLLER, BOB_UID), (ROOT_CONTROLLER, 0)] {
        connect(&mut service, link, uid);
        send(&mut service, link, hello(Role::Controller, link));
    }
    for (link, uid) in [(ANN_PROCESS, ANN_UID), (BOB_PROCESS, BOB_UID)] {
        connect(&mut service, link, uid);
        send(&mut service, link, hello(Role::Provider, link));
        let (registration, traits) = (1, Vec::new());
        send(
            &mut service,
            link,
            Message::Register { registration, provider: PROVIDER, traits, classic: false },
        );
    }
    take_sent(&mut service);
    service
}

fn start_private(name: &str) -> Message {
    Message::Start(Box::new(SessionConfig {
        name: name.into(),
        guid: PROVIDER,
        log_file_mode: EVENT_TRACE_PRIVATE_LOGGER_MODE | EVENT_TRACE_FILE_MODE_SEQUENTIAL,
        log_file: Some("/x/app.etl".into()),
        ..SessionConfig::default()
    }))
}

fn control_session(name: &str, control: Control) -> Message {
    Message::Control { session: SessionRef::Name(name.into()), control }
}

fn enable_provider(name: &str, code: EnableCode) -> Message {
    let (session, params) = (SessionRef::Name(name.into()), Box::default());
    Message::EnableProvider { session, provider: PROVIDER, code, params, name: String::new(), timeout_ms: 0 }
}

/// Answers all orders that processes received; returns for each order the process and the user that
/// the order names (an enable names none). Other effects stay queued.
fn answer_orders(service: &mut Service) -> Vec<(LinkId, Option<u32>)> {
    let mut orders = Vec::new();
    let effects = service.take_effects();
    for effect in effects {
        let (link, order, session, user) = match &effect {
            LinkEffect::Send {
                link, message: Message::PrivateStart { order, session, starter, .. }, ..
            } => (*link, *order, *session, Some(*starter)),
            LinkEffect::Send {
                link, message: Message::PrivateControl { order, session, user, .. }, ..
            } => (*link, *order, *session, Some(*user)),
            LinkEffect::Send { link, message: Message::PrivateEnable { order, session, .. }, .. } => {
                (*link, *order, *session, None)
            }
            _ => {
                service.core.turn.effects.push(effect);
                continue;
            }
        };
        orders.push((link, user));
        let (status, reason, properties) = (0, String::new(), Box::default());
        let state = Message::PrivateState { order, session, status, reason, properties };
        service.handle(link, Envelope { request: 0, message: state, descriptors: Vec::new() }, service.now());
    }
    orders
}

fn requests_that_name_a_file(name: &str) -> [Message; 2] {
    let log_file = Some("/y/other.etl".into());
    let update = Update { log_file: log_file.clone(), ..Update::default() };
    [control_session(name, Control::Update(update)), control_session(name, Control::Flush { log_file })]
}

const RUN_AND_ENABLE: Rights = Rights(Rights::TRACELOG_CREATE_ONDISK.0 | Rights::TRACELOG_GUID_ENABLE.0);

#[test]
fn start_needs_the_right_to_run_a_session_of_the_provider() {
    let mut service = service_with_guests(Rights::TRACELOG_GUID_ENABLE);
    send(&mut service, ANN_CONTROLLER, start_private("a"));
    assert_eq!(take_sent(&mut service), ["2 refused ERROR_ACCESS_DENIED"]);
    grant(&mut service, ANN_UID, Rights::TRACELOG_CREATE_ONDISK);
    send(&mut service, ANN_CONTROLLER, start_private("a"));
    assert_eq!(
        answer_orders(&mut service),
        [(ANN_PROCESS, Some(ANN_UID))],
        "only in the processes of the starter"
    );
    send(&mut service, BOB_CONTROLLER, start_private("b"));
    assert!(
        take_sent(&mut service).contains(&"3 refused ERROR_ACCESS_DENIED".into()),
        "the grant was for another user"
    );
}

#[test]
fn requests_of_other_guests_reach_no_process_of_the_session() {
    let mut service = service_with_guests(RUN_AND_ENABLE);
    send(&mut service, ANN_CONTROLLER, start_private("a"));
    answer_orders(&mut service);
    take_sent(&mut service);
    let timer = || Control::Update(Update { flush_timer: Some(1), ..Update::default() });
    let all_requests = || {
        let mut requests: Vec<Message> =
            [Control::Query, timer(), Control::Flush { log_file: None }, Control::Outcome, Control::Stop]
                .map(|request| control_session("a", request))
                .into();
        // These requests come after the query, and before the stop, which ends the session.
        requests.splice(1..1, requests_that_name_a_file("a"));
        let codes = [EnableCode::Enable, EnableCode::CaptureState, EnableCode::Disable];
        requests.splice(1..1, codes.map(|code| enable_provider("a", code)));
        requests
    };
    for message in all_requests() {
        let request = format!("{message:?}");
        send(&mut service, BOB_CONTROLLER, message);
        assert_eq!(take_sent(&mut service), ["3 refused ERROR_ACCESS_DENIED"], "{request}");
    }
    for message in all_requests().into_iter().filter(|message| !format!("{message:?}").contains("Outcome")) {
        let request = format!("{message:?}");
        send(&mut service, ANN_CONTROLLER, message);
        let orders = answer_orders(&mut service);
        assert!(matches!(orders[..], [(ANN_PROCESS, None | Some(ANN_UID))]), "{request}: {orders:?}");
        assert!(take_sent(&mut service).iter().all(|line| !line.contains("refused")), "{request}");
    }
}

#[test]
fn enables_of_a_private_session_are_listed_for_its_controllers_only() {
    let mut service = service_with_guests(RUN_AND_ENABLE);
    send(&mut service, ANN_CONTROLLER, start_private("a"));
    answer_orders(&mut service);
    send(&mut service, ANN_CONTROLLER, enable_provider("a", EnableCode::Enable));
    answer_orders(&mut service);
    service.take_effects();
    for (link, sees_enable) in
        [(OWN_CONTROLLER, true), (ANN_CONTROLLER, true), (BOB_CONTROLLER, false), (ROOT_CONTROLLER, true)]
    {
        send(&mut service, link, Message::QueryProviders { after: None });
        let effects = service.take_effects();
        let [LinkEffect::Send { message: Message::Providers { providers, .. }, .. }] = &effects[..] else {
            panic!("{effects:?}")
        };
        assert_eq!((providers.len(), providers[0].sessions.len()), (1, 0));
        let traced: Vec<u32> = providers[0].privates.iter().map(|enable| enable.traced).collect();
        assert_eq!(traced, if sees_enable { vec![1] } else { vec![] }, "{link}");
    }
}

#[test]
fn daemon_user_may_control_but_not_name_a_file_and_root_may_do_both() {
    let mut service = service_with_guests(RUN_AND_ENABLE);
    send(&mut service, ANN_CONTROLLER, start_private("a"));
    answer_orders(&mut service);
    take_sent(&mut service);
    for message in requests_that_name_a_file("a") {
        send(&mut service, OWN_CONTROLLER, message.clone());
        assert_eq!(take_sent(&mut service), ["1 refused ERROR_ACCESS_DENIED"]);
        send(&mut service, ROOT_CONTROLLER, message);
        assert_eq!(answer_orders(&mut service), [(ANN_PROCESS, Some(0))]);
        take_sent(&mut service);
    }
    send(&mut service, OWN_CONTROLLER, enable_provider("a", EnableCode::Enable));
    assert_eq!(answer_orders(&mut service), [(ANN_PROCESS, None)]);
    send(&mut service, OWN_CONTROLLER, control_session("a", Control::Stop));
    assert_eq!(answer_orders(&mut service), [(ANN_PROCESS, Some(OWN_UID))]);
}

#[test]
fn enable_also_needs_the_right_to_the_provider() {
    let mut service = service_with_guests(Rights::TRACELOG_CREATE_ONDISK);
    send(&mut service, ANN_CONTROLLER, start_private("a"));
    answer_orders(&mut service);
    take_sent(&mut service);
    send(&mut service, ANN_CONTROLLER, enable_provider("a", EnableCode::Enable));
    assert_eq!(take_sent(&mut service), ["2 refused ERROR_ACCESS_DENIED"]);
}

#[test]
fn daemon_that_shuts_down_forwards_no_request() {
    let mut service = service_with_guests(RUN_AND_ENABLE);
    send(&mut service, ANN_CONTROLLER, start_private("a"));
    answer_orders(&mut service);
    service.shut_down(service.now());
    take_sent(&mut service);
    for message in
        [start_private("b"), control_session("a", Control::Query), enable_provider("a", EnableCode::Enable)]
    {
        send(&mut service, ANN_CONTROLLER, message);
        assert_eq!(take_sent(&mut service), ["2 refused ERROR_NO_SYSTEM_RESOURCES"]);
    }
}

fn start_real_time(name: &str, guid: u128) -> Message {
    let (name, guid) = (name.to_owned(), Guid::from_u128(guid));
    Message::Start(Box::new(SessionConfig {
        name,
        guid,
        log_file_mode: EVENT_TRACE_REAL_TIME_MODE,
        ..SessionConfig::default()
    }))
}

#[test]
fn session_names_are_unique_even_while_starting() {
    let mut service = service_with_guests(RUN_AND_ENABLE);
    // The notice of its start is not delivered, so the session keeps starting.
    send(&mut service, OWN_CONTROLLER, start_real_time("Starting", 7));
    for name in ["STARTING", "00000000-0000-0000-0000-000000000007"] {
        send(&mut service, OWN_CONTROLLER, start_private(name));
        assert_eq!(take_sent(&mut service), ["1 refused ERROR_ALREADY_EXISTS"], "{name}");
    }
    send(&mut service, OWN_CONTROLLER, start_private("Private"));
    take_sent(&mut service);
    for message in [start_real_time("PRIVATE", 8), start_private("private")] {
        send(&mut service, OWN_CONTROLLER, message);
        assert_eq!(take_sent(&mut service), ["1 refused ERROR_ALREADY_EXISTS"]);
    }
}

#[test]
fn guid_finds_the_only_private_session_of_a_provider() {
    let mut service = service_with_guests(RUN_AND_ENABLE);
    let find_by_guid = |service: &mut Service| {
        send(service, ROOT_CONTROLLER, control_session(&PROVIDER.to_string(), Control::Query));
        let is_found = !answer_orders(service).is_empty();
        (is_found, take_sent(service).iter().any(|line| line == "4 refused ERROR_WMI_INSTANCE_NOT_FOUND"))
    };
    assert_eq!(find_by_guid(&mut service), (false, true));
    send(&mut service, ROOT_CONTROLLER, start_private("a"));
    answer_orders(&mut service);
    assert_eq!(find_by_guid(&mut service), (true, false));
    send(&mut service, ROOT_CONTROLLER, start_private("b"));
    answer_orders(&mut service);
    assert_eq!(find_by_guid(&mut service), (false, true), "two sessions have this provider");
    send(&mut service, ROOT_CONTROLLER, control_session("b", Control::Stop));
    answer_orders(&mut service);
    assert_eq!(find_by_guid(&mut service), (true, false));
    send(&mut service, OWN_CONTROLLER, start_real_time("s", 1));
    assert_eq!(find_by_guid(&mut service), (false, true), "another session with this GUID is starting");
}

#[test]
fn logger_ids_of_private_sessions_are_unique() {
    let mut service = service_with_guests(RUN_AND_ENABLE);
    for n in 0..4 {
        send(&mut service, OWN_CONTROLLER, start_real_time(&format!("s{n}"), 100 + n));
    }
    for n in 0..256 {
        // Every second session is being stopped while the following sessions start.
        send(&mut service, ROOT_CONTROLLER, start_private(&format!("p{n}")));
        answer_orders(&mut service);
        if n % 2 == 0 {
            send(&mut service, ROOT_CONTROLLER, control_session(&format!("p{n}"), Control::Stop));
        }
        take_sent(&mut service);
    }
    service.private_sessions.wrap_logger_ids();
    send(&mut service, ROOT_CONTROLLER, start_private("last"));
    let mut ids = service.private_sessions.session_ids();
    ids.extend((0..4).filter_map(|n| service.core.sessions.find_any(&SessionRef::Name(format!("s{n}")))));
    let loggers: BTreeSet<u64> = ids.iter().map(|id| id & 0xFFFF).collect();
    // Private sessions that run, private sessions that are being stopped, the last one, and
    // real-time sessions.
    assert_eq!((loggers.len(), ids.len()), (128 + 128 + 1 + 4, 128 + 128 + 1 + 4));
}

/// Removes all effects; returns the start and control orders among them as connection, order number
/// and session.
fn take_orders(service: &mut Service) -> Vec<(LinkId, u32, u64)> {
    let order = |effect| match effect {
        LinkEffect::Send { link, message: Message::PrivateStart { order, session, .. }, .. }
        | LinkEffect::Send { link, message: Message::PrivateControl { order, session, .. }, .. } => {
            Some((link, order, session))
        }
        _ => None,
    };
    service.take_effects().into_iter().filter_map(order).collect()
}

/// Reports the state of a session, with five events.
fn report_state(service: &mut Service, link: LinkId, order: (u32, u64), status: u32) {
    report_state_with_events(service, link, order, status, 5);
}

fn report_state_with_events(
    service: &mut Service,
    link: LinkId,
    (order, session): (u32, u64),
    status: u32,
    events: u64,
) {
    let (reason, properties) = (String::new(), Box::new(Properties { events, ..Properties::default() }));
    let state = Message::PrivateState { order, session, status, reason, properties };
    service.handle(link, Envelope { request: 0, message: state, descriptors: Vec::new() }, service.now());
}

/// Returns the events and the uncounted processes that a controller was sent.
fn take_reported_counts(service: &mut Service) -> Vec<(u64, u32)> {
    let counts = |effect| match effect {
        LinkEffect::Send { message: Message::Properties(properties), .. } => {
            Some((properties.events, properties.uncounted_processes))
        }
        LinkEffect::Send { message: refused @ Message::Refused { .. }, .. } => panic!("{refused:?}"),
        _ => None,
    };
    service.take_effects().into_iter().filter_map(counts).collect()
}

#[test]
fn session_of_root_waits_a_second_for_processes_of_others_and_counts_them() {
    let mut service = service_with_guests(RUN_AND_ENABLE);
    send(&mut service, ROOT_CONTROLLER, start_private("r"));
    let orders = take_orders(&mut service);
    let session = orders[0].2;
    assert_eq!(orders.len(), 2, "both guests' processes take part");
    report_state(&mut service, ANN_PROCESS, (orders[0].1, session), 0);
    assert_eq!(take_reported_counts(&mut service), [], "the other process still has time");
    let soon = service.now() + Duration::from_millis(1100);
    assert!(service.deadline().is_some_and(|at| at < soon));
    service.tick(soon);
    assert_eq!(
        take_reported_counts(&mut service),
        [(5, 0)],
        "started without the report of the other user's process"
    );

    send(&mut service, ROOT_CONTROLLER, control_session("r", Control::Stop));
    assert_eq!(take_orders(&mut service).len(), 2);
    service.tick(service.now() + Duration::from_millis(1100));
    assert_eq!(take_reported_counts(&mut service), [(5, 2)], "neither process reported how it ended");
}

#[test]
fn process_that_does_not_answer_times_out() {
    let mut service = service_with_guests(RUN_AND_ENABLE);
    send(&mut service, ANN_CONTROLLER, start_private("a"));
    let orders = take_orders(&mut service);
    let [(ANN_PROCESS, order, session)] = orders[..] else { panic!("{orders:?}") };
    let deadline = service.now() + Duration::from_secs(5);
    assert_eq!(service.deadline(), Some(deadline), "the process gets five seconds");
    service.tick(deadline - Duration::from_millis(1));
    assert!(service.take_effects().is_empty());
    service.tick(deadline);
    let processes = |effect: &LinkEffect| match effect {
        LinkEffect::Send { link: ANN_CONTROLLER, message: Message::Properties(properties), .. } => {
            properties.processes
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(service.take_effects().iter().map(processes).collect::<Vec<_>>(), [0]);
    report_state_with_events(&mut service, ANN_PROCESS, (order, session), 0, 7);

    let Message::EnableProvider { session: named, provider, code, params, name, .. } =
        enable_provider("a", EnableCode::Enable)
    else {
        panic!("another message")
    };
    let timeout_ms = 50;
    send(
        &mut service,
        ANN_CONTROLLER,
        Message::EnableProvider { session: named, provider, code, params, name, timeout_ms },
    );
    let is_enable = |effect: &LinkEffect, is_awaited: bool| matches!(effect, LinkEffect::Send { message: Message::PrivateEnable { order, .. }, .. } if (*order != 0) == is_awaited);
    assert!(service.take_effects().iter().any(|effect| is_enable(effect, true)));
    service.tick(service.now() + Duration::from_millis(50));
    assert_eq!(take_sent(&mut service), ["2 refused ERROR_TIMEOUT"], "the process has not answered");

    send(&mut service, ANN_CONTROLLER, control_session("a", Control::Query));
    let orders = take_orders(&mut service);
    report_state_with_events(&mut service, ANN_PROCESS, (orders[0].1, session), 0, 8);
    assert_eq!(take_reported_counts(&mut service), [(8, 0)], "a late report still counts");

    let later_process = 12;
    connect(&mut service, later_process, ANN_UID);
    send(&mut service, later_process, hello(Role::Provider, later_process));
    service.take_effects();
    let register =
        Message::Register { registration: 1, provider: PROVIDER, traits: Vec::new(), classic: false };
    send(&mut service, later_process, register);
    let effects = service.take_effects();
    assert!(matches!(&effects[0], LinkEffect::Send { message: Message::PrivateStart { .. }, .. }));
    assert!(is_enable(&effects[1], false), "a later process is enabled too: {effects:?}");
}

#[test]
fn process_that_refuses_to_run_a_session_is_counted() {
    let mut service = service_with_guests(RUN_AND_ENABLE);
    send(&mut service, ROOT_CONTROLLER, start_private("r"));
    let orders = take_orders(&mut service);
    for ((link, order, session), status) in orders.into_iter().zip([0, Status::ERROR_NO_SYSTEM_RESOURCES.0]) {
        report_state(&mut service, link, (order, session), status);
    }
    assert_eq!(take_reported_counts(&mut service), [(5, 1)]);
}

#[test]
fn processes_of_others_named_by_filters_get_five_seconds() {
    let mut service = service_with_guests(RUN_AND_ENABLE);
    // A process of Ann's that really exists on the system.
    let (pid, link) = (std::process::id(), 12);
    service.add_connection(
        link,
        Peer { pid, uid: ANN_UID, gid: ANN_UID },
        ProcessKey::from_pid(pid),
        false,
        service.now(),
    );
    send(&mut service, link, hello(Role::Provider, link));
    let register =
        Message::Register { registration: 1, provider: PROVIDER, traits: Vec::new(), classic: false };
    send(&mut service, link, register);
    service.take_effects();
    let data = traceweir_format::filter::encode::pids(&[pid]);
    let filters = vec![traceweir_transport::message::Filter { kind: EVENT_FILTER_TYPE_PID, data }];
    let Message::Start(config) = start_private("r") else { panic!("another message") };
    send(&mut service, ROOT_CONTROLLER, Message::Start(Box::new(SessionConfig { filters, ..*config })));
    let orders = take_orders(&mut service);
    let [(12, order, session)] = orders[..] else { panic!("{orders:?}") };
    report_state(&mut service, link, (order, session), 0);
    assert_eq!(take_reported_counts(&mut service), [(5, 0)]);
    send(&mut service, ROOT_CONTROLLER, control_session("r", Control::Stop));
    assert_eq!(service.deadline().unwrap() - service.now(), Duration::from_secs(5));
}

#[test]
fn requests_of_one_guest_are_bounded_and_a_refused_stop_stops_nothing() {
    let mut service = service_with_guests(RUN_AND_ENABLE);
    send(&mut service, ANN_CONTROLLER, start_private("a"));
    send(&mut service, BOB_CONTROLLER, start_private("b"));
    answer_orders(&mut service);
    take_sent(&mut service);
    let timer =
        |name| control_session(name, Control::Update(Update { flush_timer: Some(1), ..Update::default() }));
    for _ in 0..300 {
        send(&mut service, ANN_CONTROLLER, timer("a"));
    }
    let refused = take_sent(&mut service).iter().filter(|line| *line == "2 refused ERROR_BUSY").count();
    assert_eq!(
        refused,
        300 - crate::limits::MAX_PENDING_REQUESTS_PER_GUEST,
        "the process of Ann answered nothing"
    );
    // Reconnecting does not raise the limit.
    service.remove_connection(ANN_CONTROLLER, service.now());
    connect(&mut service, ANN_CONTROLLER, ANN_UID);
    send(&mut service, ANN_CONTROLLER, hello(Role::Controller, 99));
    take_sent(&mut service);
    let session_count = service.private_sessions.session_ids().len();
    send(&mut service, ANN_CONTROLLER, control_session("a", Control::Stop));
    send(&mut service, ANN_CONTROLLER, start_private("c"));
    assert_eq!(take_sent(&mut service), ["2 refused ERROR_BUSY"; 2]);
    assert_eq!(service.private_sessions.session_ids().len(), session_count, "the session still runs");
    for link in [BOB_CONTROLLER, ROOT_CONTROLLER] {
        send(&mut service, link, timer("b"));
        assert_eq!(answer_orders(&mut service).len(), 1, "the request of link {link} is passed on");
        take_sent(&mut service);
    }
    send(&mut service, ROOT_CONTROLLER, control_session("a", Control::Stop));
    assert_eq!(answer_orders(&mut service), [(ANN_PROCESS, Some(0))]);
}

/// The name of providers that chose their own GUIDs.
const APP: &str = "Some.App";

/// Registers a provider of [`APP`] in a process of Ann's; without traits it has no name yet.
fn register_app(service: &mut Service, link: LinkId, guid: u128, has_traits: bool) {
    connect(service, link, ANN_UID);
    send(service, link, hello(Role::Provider, link));
    let traits = if has_traits { app_traits() } else { Vec::new() };
    let provider = Guid::from_u128(guid);
    send(service, link, Message::Register { registration: 1, provider, traits, classic: false });
}

fn app_traits() -> Vec<u8> {
    TraitsBuilder::new(APP).finish().unwrap().to_vec()
}

/// Returns the start of a private session whose GUID is the hash of [`APP`].
fn start_private_of_app(name: &str) -> Message {
    let Message::Start(config) = start_private(name) else { unreachable!() };
    Message::Start(Box::new(SessionConfig { guid: Guid::from_provider_name(APP), ..*config }))
}

fn enable_app_by_name(session: &str, code: EnableCode, name: &str) -> Message {
    let Message::EnableProvider { session, params, timeout_ms, .. } = enable_provider(session, code) else {
        unreachable!()
    };
    let (provider, name) = (Guid::from_provider_name(APP), name.to_owned());
    Message::EnableProvider { session, provider, code, params, name, timeout_ms }
}

fn last_digits(guid: Guid) -> String {
    guid.to_string().rsplit('-').next().unwrap().trim_start_matches('0').to_owned()
}

/// Returns the orders that processes received about private sessions: connection, order, and GUID
/// or, for the hash of [`APP`], "name".
fn take_orders_about_app(service: &mut Service) -> Vec<String> {
    let order = |effect| match effect {
        LinkEffect::Send { link, message: Message::PrivateStart { .. }, .. } => Some(format!("{link} start")),
        LinkEffect::Send { link, message: Message::PrivateEnable { provider, code, .. }, .. } => {
            let is_hash = provider.is_hash_of(APP);
            let target = if is_hash { "name".to_owned() } else { last_digits(provider) };
            Some(format!("{link} {code:?} {target}"))
        }
        _ => None,
    };
    service.take_effects().into_iter().filter_map(order).collect()
}

#[test]
fn enable_by_name_reaches_processes_that_chose_another_guid() {
    let mut service = service_with_guests(RUN_AND_ENABLE);
    register_app(&mut service, 20, 7, true);
    send(&mut service, ROOT_CONTROLLER, start_private_of_app("a"));
    send(&mut service, ROOT_CONTROLLER, enable_app_by_name("a", EnableCode::Enable, ""));
    assert!(take_orders_about_app(&mut service).is_empty(), "an enable by GUID does not match names");
    send(&mut service, ROOT_CONTROLLER, enable_app_by_name("a", EnableCode::Enable, APP));
    assert_eq!(
        take_orders_about_app(&mut service),
        ["20 start", "20 Enable name", "20 Enable 7", "20 Enable name"]
    );
    // The name is enabled twice above: when the process joins, and by the order of the call.
    // Processes that register later are reached, too, whether they have the name at once (21) or
    // set it afterwards (22).
    register_app(&mut service, 21, 8, true);
    assert_eq!(take_orders_about_app(&mut service), ["21 start", "21 Enable name", "21 Enable 8"]);
    register_app(&mut service, 22, 9, false);
    assert!(take_orders_about_app(&mut service).is_empty());
    send(&mut service, 22, Message::SetTraits { registration: 1, traits: app_traits() });
    assert_eq!(take_orders_about_app(&mut service), ["22 start", "22 Enable name", "22 Enable 9"]);
    // The process, which takes part already, registers a second provider of that name.
    let (registration, provider, traits) = (2, Guid::from_u128(0x10), app_traits());
    send(&mut service, 22, Message::Register { registration, provider, traits, classic: false });
    assert_eq!(take_orders_about_app(&mut service), ["22 Enable 10"]);
    send(&mut service, ROOT_CONTROLLER, enable_app_by_name("a", EnableCode::CaptureState, ""));
    let orders_for_all = |code: &str| {
        let guid_order = |link: u32, guid: u32| format!("{link} {code} {guid}");
        let name = |link: u32| format!("{link} {code} name");
        [
            guid_order(20, 7),
            name(20),
            guid_order(21, 8),
            name(21),
            guid_order(22, 9),
            guid_order(22, 10),
            name(22),
        ]
    };
    assert_eq!(take_orders_about_app(&mut service), orders_for_all("CaptureState"));
    send(&mut service, ROOT_CONTROLLER, enable_app_by_name("a", EnableCode::Disable, ""));
    assert_eq!(take_orders_about_app(&mut service), orders_for_all("Disable"));
}

#[test]
fn enable_by_guid_takes_precedence_over_enable_by_name() {
    let mut service = service_with_guests(RUN_AND_ENABLE);
    register_app(&mut service, 20, 7, true);
    send(&mut service, ROOT_CONTROLLER, start_private_of_app("a"));
    send(&mut service, ROOT_CONTROLLER, enable_app_by_name("a", EnableCode::Enable, APP));
    take_orders_about_app(&mut service);
    let enable_guid = |code| {
        let Message::EnableProvider { session, params, name, timeout_ms, .. } = enable_provider("a", code)
        else {
            unreachable!()
        };
        let provider = Guid::from_u128(7);
        Message::EnableProvider { session, provider, code, params, name, timeout_ms }
    };
    send(&mut service, ROOT_CONTROLLER, enable_guid(EnableCode::Enable));
    assert_eq!(take_orders_about_app(&mut service), ["20 Enable 7"]);
    send(&mut service, ROOT_CONTROLLER, enable_app_by_name("a", EnableCode::Enable, APP));
    assert_eq!(take_orders_about_app(&mut service), ["20 Enable name"]);
    for _ in 0..2 {
        send(&mut service, ROOT_CONTROLLER, enable_guid(EnableCode::Disable));
        let orders = take_orders_about_app(&mut service);
        assert_eq!(orders, ["20 Disable 7", "20 Enable 7"], "the name still enables it");
    }
}

#[test]
fn enable_by_name_reaches_only_guids_that_the_starter_may_enable() {
    let allow = |service: &mut Service, object| {
        let (sid, rights) = (Sid::user(ANN_UID).to_bytes(), (RUN_AND_ENABLE | Rights::WMIGUID_QUERY).0);
        send(
            service,
            OWN_CONTROLLER,
            Message::SetAccess { object, operation: SecurityOperation::ADD_DACL.0, sid, rights, allow: true },
        );
    };
    let mut service = service_with_guests(RUN_AND_ENABLE);
    allow(&mut service, Guid::from_provider_name(APP));
    register_app(&mut service, 20, 7, true);
    send(&mut service, ANN_CONTROLLER, start_private_of_app("a"));
    send(&mut service, ANN_CONTROLLER, enable_app_by_name("a", EnableCode::Enable, APP));
    register_app(&mut service, 21, 8, true);
    assert!(take_orders_about_app(&mut service).is_empty());
    allow(&mut service, Guid::from_u128(7));
    send(&mut service, ANN_CONTROLLER, enable_app_by_name("a", EnableCode::Enable, APP));
    assert_eq!(
        take_orders_about_app(&mut service),
        ["20 start", "20 Enable name", "20 Enable 7", "20 Enable name"]
    );
}

#[test]
fn disable_of_a_name_reaches_a_guid_whose_registration_is_gone() {
    let mut service = service_with_guests(RUN_AND_ENABLE);
    register_app(&mut service, 20, 7, true);
    send(&mut service, ROOT_CONTROLLER, start_private_of_app("a"));
    send(&mut service, ROOT_CONTROLLER, enable_app_by_name("a", EnableCode::Enable, APP));
    take_orders_about_app(&mut service);
    send(&mut service, 20, Message::Unregister { registration: 1 });
    send(&mut service, ROOT_CONTROLLER, enable_app_by_name("a", EnableCode::Disable, ""));
    assert_eq!(take_orders_about_app(&mut service), ["20 Disable 7", "20 Disable name"]);
    register_app_again(&mut service, 20, 2, 7);
    assert!(take_orders_about_app(&mut service).is_empty(), "the name is no longer enabled");
}

/// Registers a further provider of [`APP`] in a connected process.
fn register_app_again(service: &mut Service, link: LinkId, registration: u32, guid: u128) {
    let (provider, traits) = (Guid::from_u128(guid), app_traits());
    send(service, link, Message::Register { registration, provider, traits, classic: false });
}

#[test]
fn caller_waits_until_a_disabled_guid_is_enabled_by_its_name() {
    let mut service = service_with_guests(RUN_AND_ENABLE);
    register_app(&mut service, 20, 7, true);
    send(&mut service, ROOT_CONTROLLER, start_private_of_app("a"));
    send(&mut service, ROOT_CONTROLLER, enable_app_by_name("a", EnableCode::Enable, APP));
    let enable_guid = |code, timeout_ms| {
        let Message::EnableProvider { session, params, name, .. } = enable_provider("a", code) else {
            unreachable!()
        };
        Message::EnableProvider { session, provider: Guid::from_u128(7), code, params, name, timeout_ms }
    };
    send(&mut service, ROOT_CONTROLLER, enable_guid(EnableCode::Enable, 0));
    answer_orders(&mut service);
    take_sent(&mut service);
    send(&mut service, ROOT_CONTROLLER, enable_guid(EnableCode::Disable, 60_000));
    let ordered: Vec<_> = service
        .take_effects()
        .into_iter()
        .filter_map(|effect| match effect {
            LinkEffect::Send { message: Message::PrivateEnable { order, session, code, .. }, .. } => {
                Some((order, session, code))
            }
            _ => None,
        })
        .collect();
    let codes: Vec<EnableCode> = ordered.iter().map(|(_, _, code)| *code).collect();
    assert_eq!(codes, [EnableCode::Disable, EnableCode::Enable]);
    let mut replies = Vec::new();
    for (order, session, _) in ordered {
        let (status, reason, properties) = (0, String::new(), Box::default());
        send(&mut service, 20, Message::PrivateState { order, session, status, reason, properties });
        replies.push(take_sent(&mut service));
    }
    assert_eq!(
        replies,
        [vec![], vec![format!("{ROOT_CONTROLLER} Done")]],
        "only the last answer completes the call"
    );
}

#[test]
fn guids_enabled_by_name_in_one_process_are_limited() {
    let mut service = service_with_guests(RUN_AND_ENABLE);
    register_app(&mut service, 20, 0x100, true);
    send(&mut service, ROOT_CONTROLLER, start_private_of_app("a"));
    for number in 2..=70 {
        register_app_again(&mut service, 20, number, 0x100 + u128::from(number));
    }
    take_orders_about_app(&mut service);
    send(&mut service, ROOT_CONTROLLER, enable_app_by_name("a", EnableCode::Enable, APP));
    // The start, the name twice, and 64 GUIDs.
    assert_eq!(take_orders_about_app(&mut service).len(), 3 + 64);
    register_app_again(&mut service, 20, 71, 0x200);
    assert!(take_orders_about_app(&mut service).is_empty());
    send(&mut service, ROOT_CONTROLLER, enable_app_by_name("a", EnableCode::Enable, APP));
    assert_eq!(take_orders_about_app(&mut service).len(), 1 + 64, "the limit holds for later calls");
    // A GUID without a registration is disabled when another GUID needs its place.
    send(&mut service, 20, Message::Unregister { registration: 1 });
    register_app_again(&mut service, 20, 72, 0x201);
    assert_eq!(take_orders_about_app(&mut service), ["20 Disable 100", "20 Enable 201"]);
    send(&mut service, ROOT_CONTROLLER, enable_app_by_name("a", EnableCode::Disable, ""));
    assert_eq!(take_orders_about_app(&mut service).len(), 64 + 1);
}

#[test]
fn process_that_sets_a_name_later_is_asked_for_its_modules() {
    let mut service = service_with_guests(RUN_AND_ENABLE);
    register_app(&mut service, 20, 7, true);
    send(&mut service, ROOT_CONTROLLER, start_private_of_app("a"));
    send(&mut service, ROOT_CONTROLLER, enable_app_by_name("a", EnableCode::Enable, APP));
    let session = service.private_sessions.session_ids()[0];
    let (core, registry) = (&mut service.core, &service.providers.registry);
    service
        .private_sessions
        .set_module_tracking(core, registry, ReplyTo { link: ROOT_CONTROLLER, request: 1 }, session, true)
        .unwrap();
    let (provider, traits) = (Guid::from_u128(8), Vec::new());
    send(&mut service, 20, Message::Register { registration: 2, provider, traits, classic: false });
    service.take_effects();
    send(&mut service, 20, Message::SetTraits { registration: 2, traits: app_traits() });
    let reported: Vec<_> = service
        .take_effects()
        .into_iter()
        .filter_map(|effect| match effect {
            LinkEffect::Send { link, message: Message::ReportModules { registrations, session }, .. } => {
                Some((link, registrations, session))
            }
            _ => None,
        })
        .collect();
    assert_eq!(reported, [(20, vec![2], session)]);
}

#[test]
fn guid_with_two_names_stays_enabled_until_both_are_disabled() {
    const OTHER: &str = "Other.App";
    let mut service = service_with_guests(RUN_AND_ENABLE);
    register_app(&mut service, 20, 7, true);
    let traits = TraitsBuilder::new(OTHER).finish().unwrap().to_vec();
    let provider = Guid::from_u128(7);
    send(&mut service, 20, Message::Register { registration: 2, provider, traits, classic: false });
    send(&mut service, ROOT_CONTROLLER, start_private_of_app("a"));
    send(&mut service, ROOT_CONTROLLER, enable_app_by_name("a", EnableCode::Enable, APP));
    let enable_other_name = |code, level| {
        let Message::EnableProvider { session, timeout_ms, .. } = enable_provider("a", code) else {
            unreachable!()
        };
        let (provider, name) = (Guid::from_provider_name(OTHER), OTHER.to_owned());
        let params = Box::new(EnableParams { level, ..EnableParams::default() });
        Message::EnableProvider { session, provider, code, params, name, timeout_ms }
    };
    send(&mut service, ROOT_CONTROLLER, enable_other_name(EnableCode::Enable, 3));
    service.take_effects();
    let mut orders_about_guid = |message| {
        send(&mut service, ROOT_CONTROLLER, message);
        let about_guid = |effect| match effect {
            LinkEffect::Send { message: Message::PrivateEnable { provider, code, params, .. }, .. } => {
                (provider == Guid::from_u128(7)).then_some((code, params.level))
            }
            _ => None,
        };
        service.take_effects().into_iter().filter_map(about_guid).collect::<Vec<_>>()
    };
    let name_disabled = orders_about_guid(enable_app_by_name("a", EnableCode::Disable, ""));
    assert_eq!(name_disabled, [(EnableCode::Enable, 3)], "with the parameters of the other name");
    assert_eq!(orders_about_guid(enable_other_name(EnableCode::Disable, 0)), [(EnableCode::Disable, 0)]);
}
