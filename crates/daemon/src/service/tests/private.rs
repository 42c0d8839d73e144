//! Private sessions from outside: whose they are, what they are called, and how they are numbered.

use traceweir_format::security::Sid;
use traceweir_format::spec::access::Rights;

use super::*;

use std::time::Duration;

use traceweir_format::tracelogging::TraitsBuilder;
use traceweir_transport::message::Properties;

const PROVIDER: Guid = Guid::from_u128(1);
const ANN: u32 = STRANGER;
const BOB: u32 = 1002;
/// Controllers of the daemon's own user, of two guests, and of root.
const OWNS: LinkId = 1;
const ANNS: LinkId = 2;
const BOBS: LinkId = 3;
const ROOTS: LinkId = 4;
/// A process of each guest.
const ANNS_PROCESS: LinkId = 10;
const BOBS_PROCESS: LinkId = 11;

fn grant(service: &mut Service, uid: u32, rights: Rights) {
    let (sid, rights) = (Sid::user(uid).to_bytes(), rights.0);
    say(service, OWNS, Message::SetAccess { object: PROVIDER, operation: 2, sid, rights, allow: true });
    assert_eq!(heard(service), [format!("{OWNS} Done")]);
}

/// A system's daemon with all of them; the guests may do to the provider what `rights` say.
fn stage(rights: Rights) -> Service {
    let mut service = service(Scope::System);
    connect(&mut service, OWNS, OWN);
    say(&mut service, OWNS, hello(Role::Controller, 1));
    heard(&mut service);
    for uid in [ANN, BOB] {
        grant(&mut service, uid, rights | Rights::WMIGUID_QUERY);
    }
    for (link, uid) in [(ANNS, ANN), (BOBS, BOB), (ROOTS, 0)] {
        connect(&mut service, link, uid);
        say(&mut service, link, hello(Role::Controller, link));
    }
    for (link, uid) in [(ANNS_PROCESS, ANN), (BOBS_PROCESS, BOB)] {
        connect(&mut service, link, uid);
        say(&mut service, link, hello(Role::Provider, link));
        let (registration, traits) = (1, Vec::new());
        say(
            &mut service,
            link,
            Message::Register { registration, provider: PROVIDER, traits, classic: false },
        );
    }
    heard(&mut service);
    service
}

fn private(name: &str) -> Message {
    Message::Start(Box::new(SessionConfig {
        name: name.into(),
        guid: PROVIDER,
        log_file_mode: 0x801,
        log_file: Some("/x/app.etl".into()),
        ..SessionConfig::default()
    }))
}

fn control(name: &str, control: Control) -> Message {
    Message::Control { session: SessionRef::Name(name.into()), control }
}

fn enable(name: &str, code: EnableCode) -> Message {
    let (session, params) = (SessionRef::Name(name.into()), Box::default());
    Message::EnableProvider { session, provider: PROVIDER, code, params, name: String::new(), timeout_ms: 0 }
}

/// Answers all orders that processes got; which processes they were, and for whom they were asked. Other messages are still to be heard.
fn answer(service: &mut Service) -> Vec<(LinkId, Option<u32>)> {
    let mut asked = Vec::new();
    let effects = service.effects();
    for effect in effects {
        let (link, order, session, user) = match &effect {
            Effect::Send { link, message: Message::PrivateStart { order, session, starter, .. }, .. } => {
                (*link, *order, *session, Some(*starter))
            }
            Effect::Send { link, message: Message::PrivateControl { order, session, reply_to, .. }, .. } => {
                (*link, *order, *session, Some(*reply_to))
            }
            Effect::Send { link, message: Message::PrivateEnable { order, session, .. }, .. } => {
                (*link, *order, *session, None)
            }
            _ => {
                service.effects.push(effect);
                continue;
            }
        };
        asked.push((link, user));
        let (status, reason, properties) = (0, String::new(), Box::default());
        let state = Message::PrivateState { order, session, status, reason, properties };
        service.handle(link, Envelope { request: 0, message: state, descriptors: Vec::new() });
    }
    asked
}

fn to_file(name: &str) -> [Message; 2] {
    let log_file = Some("/y/other.etl".into());
    let update = Update { log_file: log_file.clone(), ..Update::default() };
    [control(name, Control::Update(update)), control(name, Control::Flush { log_file })]
}

const ALL: Rights = Rights(Rights::TRACELOG_CREATE_ONDISK.0 | Rights::TRACELOG_GUID_ENABLE.0);

#[test]
fn starting_takes_the_right_to_run_a_session_of_the_provider() {
    let mut service = stage(Rights::TRACELOG_GUID_ENABLE);
    say(&mut service, ANNS, private("a"));
    assert_eq!(heard(&mut service), ["2 refused 5"]);
    grant(&mut service, ANN, Rights::TRACELOG_CREATE_ONDISK);
    say(&mut service, ANNS, private("a"));
    assert_eq!(answer(&mut service), [(ANNS_PROCESS, Some(ANN))], "in her own processes");
    say(&mut service, BOBS, private("b"));
    assert!(heard(&mut service).contains(&"3 refused 5".into()), "the grant was not his");
}

#[test]
fn a_session_is_its_starters_and_nothing_of_what_another_guest_asks_for_reaches_a_process() {
    let mut service = stage(ALL);
    say(&mut service, ANNS, private("a"));
    answer(&mut service);
    heard(&mut service);
    let timer = || Control::Update(Update { flush_timer: Some(1), ..Update::default() });
    let all = || {
        let mut all: Vec<Message> =
            [Control::Query, timer(), Control::Flush { log_file: None }, Control::Outcome, Control::Stop]
                .map(|it| control("a", it))
                .into();
        all.splice(1..1, to_file("a"));
        let codes = [EnableCode::Enable, EnableCode::CaptureState, EnableCode::Disable];
        all.splice(1..1, codes.map(|code| enable("a", code)));
        all
    };
    for message in all() {
        let what = format!("{message:?}");
        say(&mut service, BOBS, message);
        assert_eq!(heard(&mut service), ["3 refused 5"], "{what}");
    }
    for message in all().into_iter().filter(|it| !format!("{it:?}").contains("Outcome")) {
        let what = format!("{message:?}");
        say(&mut service, ANNS, message);
        let asked = answer(&mut service);
        assert!(matches!(asked[..], [(ANNS_PROCESS, None | Some(ANN))]), "{what}: {asked:?}");
        assert!(heard(&mut service).iter().all(|it| !it.contains("refused")), "{what}");
    }
}

#[test]
fn what_a_private_session_enables_is_told_to_those_who_may_control_it() {
    let mut service = stage(ALL);
    say(&mut service, ANNS, private("a"));
    answer(&mut service);
    say(&mut service, ANNS, enable("a", EnableCode::Enable));
    answer(&mut service);
    service.effects();
    for (link, sees_it) in [(OWNS, true), (ANNS, true), (BOBS, false), (ROOTS, true)] {
        say(&mut service, link, Message::QueryProviders { after: None });
        let effects = service.effects();
        let [Effect::Send { message: Message::Providers { providers, .. }, .. }] = &effects[..] else {
            panic!("{effects:?}")
        };
        assert_eq!((providers.len(), providers[0].sessions.len()), (1, 0));
        let traced: Vec<u32> = providers[0].privates.iter().map(|it| it.traced).collect();
        assert_eq!(traced, if sees_it { vec![1] } else { vec![] }, "{link}");
    }
}

#[test]
fn the_daemons_user_may_control_what_is_anothers_but_names_no_file_and_root_may_all() {
    let mut service = stage(ALL);
    say(&mut service, ANNS, private("a"));
    answer(&mut service);
    heard(&mut service);
    for message in to_file("a") {
        say(&mut service, OWNS, message.clone());
        assert_eq!(heard(&mut service), ["1 refused 5"]);
        say(&mut service, ROOTS, message);
        assert_eq!(answer(&mut service), [(ANNS_PROCESS, Some(0))]);
        heard(&mut service);
    }
    say(&mut service, OWNS, enable("a", EnableCode::Enable));
    assert_eq!(answer(&mut service), [(ANNS_PROCESS, None)]);
    say(&mut service, OWNS, control("a", Control::Stop));
    assert_eq!(answer(&mut service), [(ANNS_PROCESS, Some(OWN))]);
}

#[test]
fn enabling_takes_the_right_to_the_provider_too() {
    let mut service = stage(Rights::TRACELOG_CREATE_ONDISK);
    say(&mut service, ANNS, private("a"));
    answer(&mut service);
    heard(&mut service);
    say(&mut service, ANNS, enable("a", EnableCode::Enable));
    assert_eq!(heard(&mut service), ["2 refused 5"]);
}

#[test]
fn a_leaving_daemon_passes_nothing_on() {
    let mut service = stage(ALL);
    say(&mut service, ANNS, private("a"));
    answer(&mut service);
    service.shut_down();
    heard(&mut service);
    for message in [private("b"), control("a", Control::Query), enable("a", EnableCode::Enable)] {
        say(&mut service, ANNS, message);
        assert_eq!(heard(&mut service), ["2 refused 1450"]);
    }
}

fn live(name: &str, guid: u128) -> Message {
    let (name, guid) = (name.to_owned(), Guid::from_u128(guid));
    Message::Start(Box::new(SessionConfig { name, guid, log_file_mode: 0x100, ..SessionConfig::default() }))
}

#[test]
fn no_two_sessions_have_one_name_also_while_one_starts() {
    let mut service = stage(ALL);
    // Without its notice it starts for ever.
    say(&mut service, OWNS, live("Starting", 7));
    for name in ["STARTING", "00000000-0000-0000-0000-000000000007"] {
        say(&mut service, OWNS, private(name));
        assert_eq!(heard(&mut service), ["1 refused 183"], "{name}");
    }
    say(&mut service, OWNS, private("Private"));
    heard(&mut service);
    for message in [live("PRIVATE", 8), private("private")] {
        say(&mut service, OWNS, message);
        assert_eq!(heard(&mut service), ["1 refused 183"]);
    }
}

#[test]
fn a_guid_names_the_only_private_session_of_a_provider_that_no_other_session_has() {
    let mut service = stage(ALL);
    let by_guid = |service: &mut Service| {
        say(service, ROOTS, control(&PROVIDER.to_string(), Control::Query));
        let found = !answer(service).is_empty();
        (found, heard(service).iter().any(|it| it == "4 refused 4201"))
    };
    assert_eq!(by_guid(&mut service), (false, true));
    say(&mut service, ROOTS, private("a"));
    answer(&mut service);
    assert_eq!(by_guid(&mut service), (true, false));
    say(&mut service, ROOTS, private("b"));
    answer(&mut service);
    assert_eq!(by_guid(&mut service), (false, true), "which?");
    say(&mut service, ROOTS, control("b", Control::Stop));
    answer(&mut service);
    assert_eq!(by_guid(&mut service), (true, false));
    say(&mut service, OWNS, live("s", 1));
    assert_eq!(by_guid(&mut service), (false, true), "another session has it, and starts");
}

#[test]
fn logger_ids_of_private_sessions_are_nobody_elses() {
    let mut service = stage(ALL);
    for n in 0..4 {
        say(&mut service, OWNS, live(&format!("s{n}"), 100 + n));
    }
    for n in 0..256 {
        // Half of them are being stopped when the others start.
        say(&mut service, ROOTS, private(&format!("p{n}")));
        answer(&mut service);
        if n % 2 == 0 {
            say(&mut service, ROOTS, control(&format!("p{n}"), Control::Stop));
        }
        heard(&mut service);
    }
    service.privates.forget_last_logger();
    say(&mut service, ROOTS, private("last"));
    let mut ids = service.privates.ids();
    ids.extend((0..4).filter_map(|n| service.sessions.find_any(&SessionRef::Name(format!("s{n}")))));
    let loggers: BTreeSet<u64> = ids.iter().map(|id| id & 0xFFFF).collect();
    assert_eq!((loggers.len(), ids.len()), (128 + 128 + 1 + 4, 128 + 128 + 1 + 4));
}

/// The order of a message to a process, and what that is for.
fn orders(service: &mut Service) -> Vec<(LinkId, u32, u64)> {
    let order = |effect| match effect {
        Effect::Send { link, message: Message::PrivateStart { order, session, .. }, .. }
        | Effect::Send { link, message: Message::PrivateControl { order, session, .. }, .. } => {
            Some((link, order, session))
        }
        _ => None,
    };
    service.effects().into_iter().filter_map(order).collect()
}

fn state(service: &mut Service, link: LinkId, (order, session): (u32, u64), status: u32) {
    let (reason, properties) = (String::new(), Box::new(Properties { events: 5, ..Properties::default() }));
    let state = Message::PrivateState { order, session, status, reason, properties };
    service.handle(link, Envelope { request: 0, message: state, descriptors: Vec::new() });
}

/// Events and events lost that a controller was told.
fn told(service: &mut Service) -> Vec<(u64, u32)> {
    let told = |effect| match effect {
        Effect::Send { message: Message::Properties(it), .. } => Some((it.events, it.uncounted_processes)),
        Effect::Send { message: refused @ Message::Refused { .. }, .. } => panic!("{refused:?}"),
        _ => None,
    };
    service.effects().into_iter().filter_map(told).collect()
}

#[test]
fn roots_session_does_not_wait_for_silent_processes_of_others_and_counts_them() {
    let mut service = stage(ALL);
    say(&mut service, ROOTS, private("r"));
    let asked = orders(&mut service);
    let session = asked[0].2;
    assert_eq!(asked.len(), 2, "they take part");
    state(&mut service, ANNS_PROCESS, (asked[0].1, session), 0);
    assert_eq!(told(&mut service), [], "a moment for the other");
    let soon = Instant::now() + Duration::from_millis(1100);
    assert!(service.deadline().is_some_and(|at| at < soon));
    service.tick(soon);
    assert_eq!(told(&mut service), [(5, 0)], "started without his word");

    say(&mut service, ROOTS, control("r", Control::Stop));
    assert_eq!(orders(&mut service).len(), 2);
    service.tick(Instant::now() + Duration::from_millis(1100));
    assert_eq!(told(&mut service), [(5, 2)], "neither says how it ended");
}

#[test]
fn a_process_that_refuses_to_run_a_session_shows_in_its_counts() {
    let mut service = stage(ALL);
    say(&mut service, ROOTS, private("r"));
    let asked = orders(&mut service);
    for ((link, order, session), status) in asked.into_iter().zip([0, 1450]) {
        state(&mut service, link, (order, session), status);
    }
    assert_eq!(told(&mut service), [(5, 1)]);
}

#[test]
fn processes_of_others_that_filters_name_are_waited_for_five_seconds_in_all() {
    let mut service = stage(ALL);
    // A process of Ann's that the system really has.
    let (pid, link) = (std::process::id(), 12);
    service.connected(link, Peer { pid, uid: ANN, gid: ANN }, ProcessKey::from_pid(pid), false);
    say(&mut service, link, hello(Role::Provider, link));
    let register =
        Message::Register { registration: 1, provider: PROVIDER, traits: Vec::new(), classic: false };
    say(&mut service, link, register);
    service.effects();
    let data = traceweir_format::filter::encode::pids(&[pid]);
    let filters = vec![traceweir_transport::message::Filter { kind: 0x8000_0004, data }];
    let Message::Start(config) = private("r") else { panic!() };
    say(&mut service, ROOTS, Message::Start(Box::new(SessionConfig { filters, ..*config })));
    let asked = orders(&mut service);
    let [(12, order, session)] = asked[..] else { panic!("{asked:?}") };
    state(&mut service, link, (order, session), 0);
    assert_eq!(told(&mut service), [(5, 0)]);
    say(&mut service, ROOTS, control("r", Control::Stop));
    let within = service.deadline().unwrap() - Instant::now();
    assert!(within <= Duration::from_secs(5) && within > Duration::from_secs(4), "{within:?}");
}

#[test]
fn one_guests_requests_take_nobodys_place_and_a_stop_that_is_refused_has_stopped_nothing() {
    let mut service = stage(ALL);
    say(&mut service, ANNS, private("a"));
    say(&mut service, BOBS, private("b"));
    answer(&mut service);
    heard(&mut service);
    let timer = |name| control(name, Control::Update(Update { flush_timer: Some(1), ..Update::default() }));
    for _ in 0..300 {
        say(&mut service, ANNS, timer("a"));
    }
    let refused = heard(&mut service).iter().filter(|it| *it == "2 refused 170").count();
    assert_eq!(refused, 300 - crate::limits::MAX_PENDING_OF_GUEST, "nothing was answered by her process");
    // Nor does she get more by coming anew.
    service.disconnected(ANNS);
    connect(&mut service, ANNS, ANN);
    say(&mut service, ANNS, hello(Role::Controller, 99));
    heard(&mut service);
    let before = service.privates.ids().len();
    say(&mut service, ANNS, control("a", Control::Stop));
    say(&mut service, ANNS, private("c"));
    assert_eq!(heard(&mut service), ["2 refused 170"; 2]);
    assert_eq!(service.privates.ids().len(), before, "the session is still there");
    for link in [BOBS, ROOTS] {
        say(&mut service, link, timer("b"));
        assert_eq!(answer(&mut service).len(), 1, "{link} is passed on");
        heard(&mut service);
    }
    say(&mut service, ROOTS, control("a", Control::Stop));
    assert_eq!(answer(&mut service), [(ANNS_PROCESS, Some(0))]);
}

/// The name of providers that chose their GUIDs themselves.
const APP: &str = "Some.App";

/// A provider of [`APP`] in a process of Ann's; without traits it has no name yet.
fn register_app(service: &mut Service, link: LinkId, guid: u128, has_traits: bool) {
    connect(service, link, ANN);
    say(service, link, hello(Role::Provider, link));
    let traits = if has_traits { app_traits() } else { Vec::new() };
    let provider = Guid::from_u128(guid);
    say(service, link, Message::Register { registration: 1, provider, traits, classic: false });
}

fn app_traits() -> Vec<u8> {
    TraitsBuilder::new(APP).finish().unwrap().to_vec()
}

/// A private session of the hash of the name.
fn private_of_app(name: &str) -> Message {
    let Message::Start(config) = private(name) else { unreachable!() };
    Message::Start(Box::new(SessionConfig { guid: Guid::from_provider_name(APP), ..*config }))
}

fn enable_app(session: &str, code: EnableCode, name: &str) -> Message {
    let Message::EnableProvider { session, params, timeout_ms, .. } = enable(session, code) else {
        unreachable!()
    };
    let (provider, name) = (Guid::from_provider_name(APP), name.to_owned());
    Message::EnableProvider { session, provider, code, params, name, timeout_ms }
}

/// The last digits of a GUID.
fn short(guid: Guid) -> String {
    guid.to_string().rsplit('-').next().unwrap().trim_start_matches('0').to_owned()
}

/// What processes are ordered to do about private sessions: the connection, and what, with the GUID
/// or "name" for its hash.
fn orders_about_app(service: &mut Service) -> Vec<String> {
    let told = |effect| match effect {
        Effect::Send { link, message: Message::PrivateStart { .. }, .. } => Some(format!("{link} start")),
        Effect::Send { link, message: Message::PrivateEnable { provider, code, .. }, .. } => {
            let is_hash = provider.is_hash_of(APP);
            let what = if is_hash { "name".to_owned() } else { short(provider) };
            Some(format!("{link} {code:?} {what}"))
        }
        _ => None,
    };
    service.effects().into_iter().filter_map(told).collect()
}

#[test]
fn enable_by_name_reaches_processes_that_chose_another_guid() {
    let mut service = stage(ALL);
    register_app(&mut service, 20, 7, true);
    say(&mut service, ROOTS, private_of_app("a"));
    say(&mut service, ROOTS, enable_app("a", EnableCode::Enable, ""));
    assert!(orders_about_app(&mut service).is_empty(), "a GUID is a GUID");
    say(&mut service, ROOTS, enable_app("a", EnableCode::Enable, APP));
    assert_eq!(
        orders_about_app(&mut service),
        ["20 start", "20 Enable name", "20 Enable 7", "20 Enable name"]
    );
    // Processes that come later, with the name or before it.
    register_app(&mut service, 21, 8, true);
    assert_eq!(orders_about_app(&mut service), ["21 start", "21 Enable name", "21 Enable 8"]);
    register_app(&mut service, 22, 9, false);
    assert!(orders_about_app(&mut service).is_empty());
    say(&mut service, 22, Message::SetTraits { registration: 1, traits: app_traits() });
    assert_eq!(orders_about_app(&mut service), ["22 start", "22 Enable name", "22 Enable 9"]);
    // A second provider of that name in a process that takes part.
    let (registration, provider, traits) = (2, Guid::from_u128(0x10), app_traits());
    say(&mut service, 22, Message::Register { registration, provider, traits, classic: false });
    assert_eq!(orders_about_app(&mut service), ["22 Enable 10"]);
    say(&mut service, ROOTS, enable_app("a", EnableCode::CaptureState, ""));
    let each = |code: &str| {
        let of = |link: u32, guid: u32| format!("{link} {code} {guid}");
        let name = |link: u32| format!("{link} {code} name");
        [of(20, 7), name(20), of(21, 8), name(21), of(22, 9), of(22, 10), name(22)]
    };
    assert_eq!(orders_about_app(&mut service), each("CaptureState"));
    say(&mut service, ROOTS, enable_app("a", EnableCode::Disable, ""));
    assert_eq!(orders_about_app(&mut service), each("Disable"));
}

#[test]
fn enable_of_a_guid_counts_more_than_that_of_its_name() {
    let mut service = stage(ALL);
    register_app(&mut service, 20, 7, true);
    say(&mut service, ROOTS, private_of_app("a"));
    say(&mut service, ROOTS, enable_app("a", EnableCode::Enable, APP));
    orders_about_app(&mut service);
    let own = |code| {
        let Message::EnableProvider { session, params, name, timeout_ms, .. } = enable("a", code) else {
            unreachable!()
        };
        let provider = Guid::from_u128(7);
        Message::EnableProvider { session, provider, code, params, name, timeout_ms }
    };
    say(&mut service, ROOTS, own(EnableCode::Enable));
    assert_eq!(orders_about_app(&mut service), ["20 Enable 7"]);
    say(&mut service, ROOTS, enable_app("a", EnableCode::Enable, APP));
    assert_eq!(orders_about_app(&mut service), ["20 Enable name"]);
    for _ in 0..2 {
        say(&mut service, ROOTS, own(EnableCode::Disable));
        let orders = orders_about_app(&mut service);
        assert_eq!(orders, ["20 Disable 7", "20 Enable 7"], "the name still enables it");
    }
}

#[test]
fn enable_by_name_reaches_only_guids_that_the_starter_may_enable() {
    let allow = |service: &mut Service, object| {
        let (sid, rights) = (Sid::user(ANN).to_bytes(), (ALL | Rights::WMIGUID_QUERY).0);
        say(service, OWNS, Message::SetAccess { object, operation: 2, sid, rights, allow: true });
    };
    let mut service = stage(ALL);
    allow(&mut service, Guid::from_provider_name(APP));
    register_app(&mut service, 20, 7, true);
    say(&mut service, ANNS, private_of_app("a"));
    say(&mut service, ANNS, enable_app("a", EnableCode::Enable, APP));
    register_app(&mut service, 21, 8, true);
    assert!(orders_about_app(&mut service).is_empty());
    allow(&mut service, Guid::from_u128(7));
    say(&mut service, ANNS, enable_app("a", EnableCode::Enable, APP));
    assert_eq!(
        orders_about_app(&mut service),
        ["20 start", "20 Enable name", "20 Enable 7", "20 Enable name"]
    );
}

#[test]
fn disable_of_a_name_reaches_a_guid_whose_registration_is_gone() {
    let mut service = stage(ALL);
    register_app(&mut service, 20, 7, true);
    say(&mut service, ROOTS, private_of_app("a"));
    say(&mut service, ROOTS, enable_app("a", EnableCode::Enable, APP));
    orders_about_app(&mut service);
    say(&mut service, 20, Message::Unregister { registration: 1 });
    say(&mut service, ROOTS, enable_app("a", EnableCode::Disable, ""));
    assert_eq!(orders_about_app(&mut service), ["20 Disable 7", "20 Disable name"]);
    register_app_again(&mut service, 20, 2, 7);
    assert!(orders_about_app(&mut service).is_empty(), "the name is not enabled any more");
}

/// A further provider of [`APP`] in a process that is connected.
fn register_app_again(service: &mut Service, link: LinkId, registration: u32, guid: u128) {
    let (provider, traits) = (Guid::from_u128(guid), app_traits());
    say(service, link, Message::Register { registration, provider, traits, classic: false });
}

#[test]
fn caller_waits_until_a_disabled_guid_is_enabled_by_its_name() {
    let mut service = stage(ALL);
    register_app(&mut service, 20, 7, true);
    say(&mut service, ROOTS, private_of_app("a"));
    say(&mut service, ROOTS, enable_app("a", EnableCode::Enable, APP));
    let own = |code, timeout_ms| {
        let Message::EnableProvider { session, params, name, .. } = enable("a", code) else { unreachable!() };
        Message::EnableProvider { session, provider: Guid::from_u128(7), code, params, name, timeout_ms }
    };
    say(&mut service, ROOTS, own(EnableCode::Enable, 0));
    answer(&mut service);
    heard(&mut service);
    say(&mut service, ROOTS, own(EnableCode::Disable, 60_000));
    let ordered: Vec<_> = service
        .effects()
        .into_iter()
        .filter_map(|effect| match effect {
            Effect::Send { message: Message::PrivateEnable { order, session, code, .. }, .. } => {
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
        say(&mut service, 20, Message::PrivateState { order, session, status, reason, properties });
        replies.push(heard(&mut service));
    }
    assert_eq!(replies, [vec![], vec![format!("{ROOTS} Done")]], "only the last answer completes the call");
}

#[test]
fn guids_enabled_by_name_in_one_process_are_limited() {
    let mut service = stage(ALL);
    register_app(&mut service, 20, 0x100, true);
    say(&mut service, ROOTS, private_of_app("a"));
    for number in 2..=70 {
        register_app_again(&mut service, 20, number, 0x100 + u128::from(number));
    }
    orders_about_app(&mut service);
    say(&mut service, ROOTS, enable_app("a", EnableCode::Enable, APP));
    // The start, the name twice, and 64 GUIDs.
    assert_eq!(orders_about_app(&mut service).len(), 3 + 64);
    register_app_again(&mut service, 20, 71, 0x200);
    assert!(orders_about_app(&mut service).is_empty());
    say(&mut service, ROOTS, enable_app("a", EnableCode::Enable, APP));
    assert_eq!(orders_about_app(&mut service).len(), 1 + 64, "the limit holds for later calls");
    // A GUID that is not registered any more makes room.
    say(&mut service, 20, Message::Unregister { registration: 1 });
    register_app_again(&mut service, 20, 72, 0x201);
    assert_eq!(orders_about_app(&mut service), ["20 Disable 100", "20 Enable 201"]);
    say(&mut service, ROOTS, enable_app("a", EnableCode::Disable, ""));
    assert_eq!(orders_about_app(&mut service).len(), 64 + 1);
}

#[test]
fn name_that_is_set_later_reports_modules_to_private_sessions() {
    let mut service = stage(ALL);
    register_app(&mut service, 20, 7, true);
    say(&mut service, ROOTS, private_of_app("a"));
    say(&mut service, ROOTS, enable_app("a", EnableCode::Enable, APP));
    let session = service.privates.ids()[0];
    service.track_private(ReplyTo { link: ROOTS, request: 1 }, session, true).unwrap();
    let (provider, traits) = (Guid::from_u128(8), Vec::new());
    say(&mut service, 20, Message::Register { registration: 2, provider, traits, classic: false });
    service.effects();
    say(&mut service, 20, Message::SetTraits { registration: 2, traits: app_traits() });
    let reported: Vec<_> = service
        .effects()
        .into_iter()
        .filter_map(|effect| match effect {
            Effect::Send { link, message: Message::TellModules { registrations, session }, .. } => {
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
    let mut service = stage(ALL);
    register_app(&mut service, 20, 7, true);
    let traits = TraitsBuilder::new(OTHER).finish().unwrap().to_vec();
    let provider = Guid::from_u128(7);
    say(&mut service, 20, Message::Register { registration: 2, provider, traits, classic: false });
    say(&mut service, ROOTS, private_of_app("a"));
    say(&mut service, ROOTS, enable_app("a", EnableCode::Enable, APP));
    let other = |code, level| {
        let Message::EnableProvider { session, timeout_ms, .. } = enable("a", code) else { unreachable!() };
        let (provider, name) = (Guid::from_provider_name(OTHER), OTHER.to_owned());
        let params = Box::new(EnableParams { level, ..EnableParams::default() });
        Message::EnableProvider { session, provider, code, params, name, timeout_ms }
    };
    say(&mut service, ROOTS, other(EnableCode::Enable, 3));
    service.effects();
    let mut orders_about_guid = |message| {
        say(&mut service, ROOTS, message);
        let about_guid = |effect| match effect {
            Effect::Send { message: Message::PrivateEnable { provider, code, params, .. }, .. } => {
                (provider == Guid::from_u128(7)).then_some((code, params.level))
            }
            _ => None,
        };
        service.effects().into_iter().filter_map(about_guid).collect::<Vec<_>>()
    };
    let name_disabled = orders_about_guid(enable_app("a", EnableCode::Disable, ""));
    assert_eq!(name_disabled, [(EnableCode::Enable, 3)], "with the parameters of the other name");
    assert_eq!(orders_about_guid(other(EnableCode::Disable, 0)), [(EnableCode::Disable, 0)]);
}
