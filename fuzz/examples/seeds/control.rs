//! Control messages of most kinds.

use traceweir_format::Guid;
use traceweir_transport::abi::{Layout, RegionParams};
use traceweir_transport::clock::Counter;
use traceweir_transport::message::{
    Control, EnableCode, EnableEntry, EnableParams, Filter, Message, Properties, ProviderEntry, Role,
    SessionConfig, SessionRef, Update, VERSIONS,
};

pub fn control_seeds() -> Vec<(&'static str, Vec<u8>)> {
    greeting_messages()
        .into_iter()
        .chain(provider_messages())
        .chain(private_session_messages())
        .chain(controller_messages())
        .chain(access_messages())
        .map(|(name, message)| (name, encode_message(&message)))
        .collect()
}

fn encode_message(message: &Message) -> Vec<u8> {
    let mut out = Vec::new();
    message.encode(7, &mut out).expect("the message can be encoded");
    out
}

fn provider() -> Guid {
    Guid::from_provider_name("Traceweir.Seed")
}

fn enable_params() -> Box<EnableParams> {
    let filters = vec![Filter { kind: 0x8000_0004, data: vec![1, 0, 0, 0] }];
    Box::new(EnableParams { level: 4, match_any: 1, match_all: 1, property: 1, source: Guid::NULL, filters })
}

fn session_config() -> SessionConfig {
    SessionConfig { name: "seed".into(), log_file: Some("/tmp/seed.etl".into()), ..SessionConfig::default() }
}

fn properties() -> Properties {
    Properties { id: 0x1_0001, config: session_config(), ..Properties::default() }
}

fn session() -> SessionRef {
    SessionRef::Name("seed".into())
}

fn greeting_messages() -> Vec<(&'static str, Message)> {
    vec![
        (
            "hello",
            Message::Hello { versions: VERSIONS, role: Role::Provider, instance: 1, program: "seed".into() },
        ),
        ("knock", Message::Knock { versions: VERSIONS }),
        ("welcome", Message::Welcome { version: 1, daemon: 2 }),
        ("refused", Message::Refused { status: 5, reason: "no".into() }),
        ("done", Message::Done),
    ]
}

fn provider_messages() -> Vec<(&'static str, Message)> {
    let layout = Layout::new(2, 1 << 16).expect("the layout is valid");
    let region = RegionParams { layout, clock: Counter::Cycles, wake_at: 1 << 15, max_record: 65_464 };
    vec![
        (
            "register",
            Message::Register {
                registration: 1,
                provider: provider(),
                traits: vec![3, 0, 0],
                classic: false,
            },
        ),
        ("set-traits", Message::SetTraits { registration: 1, traits: vec![3, 0, 0] }),
        ("unregister", Message::Unregister { registration: 1 }),
        ("ack", Message::Ack { order: 1 }),
        (
            "failed",
            Message::Failed {
                order: 1,
                registration: Some(1),
                session: 0x1_0001,
                status: 1450,
                reason: "no room".into(),
            },
        ),
        ("registered", Message::Registered { registration: 1 }),
        ("region", Message::Region { session: 0x1_0001, params: region }),
        (
            "enable",
            Message::Enable {
                order: 1,
                registrations: vec![1, 2],
                session: 0x1_0001,
                code: EnableCode::Enable,
                params: enable_params(),
            },
        ),
        ("close", Message::CloseSession { order: 2, session: 0x1_0001 }),
    ]
}

fn private_session_messages() -> Vec<(&'static str, Message)> {
    let session = 0x2_0001;
    vec![
        (
            "private-start",
            Message::PrivateStart { order: 1, session, starter: 1000, config: Box::new(session_config()) },
        ),
        (
            "private-control",
            Message::PrivateControl { order: 2, session, user: 1000, control: Control::Stop },
        ),
        (
            "private-enable",
            Message::PrivateEnable {
                order: 3,
                session,
                provider: provider(),
                code: EnableCode::Enable,
                params: enable_params(),
            },
        ),
        (
            "private-state",
            Message::PrivateState {
                order: 1,
                session,
                status: 5,
                reason: "no".into(),
                properties: Box::new(properties()),
            },
        ),
    ]
}

fn access_messages() -> Vec<(&'static str, Message)> {
    let object = provider();
    let everyone = vec![1, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0];
    vec![
        ("set-access", Message::SetAccess { object, operation: 2, sid: everyone, rights: 0x80, allow: true }),
        ("query-access", Message::QueryAccess { object }),
        ("access", Message::Access { descriptor: vec![1, 0, 4, 128] }),
        ("remove-access", Message::RemoveAccess { object }),
        ("query-access-lists", Message::QueryAccessLists { from: 0 }),
        ("access-lists", Message::AccessLists { total: 1, objects: vec![object] }),
    ]
}

fn controller_messages() -> Vec<(&'static str, Message)> {
    let control = |control| Message::Control { session: session(), control };
    let update = Update {
        flush_timer: Some(1),
        real_time: Some(true),
        log_file: Some("/x".into()),
        ..Update::default()
    };
    let entry = ProviderEntry {
        provider: provider(),
        name: "Traceweir.Seed".into(),
        pids: vec![1, 2],
        sessions: vec![EnableEntry {
            session: 0x1_0001,
            level: 4,
            any: 1,
            all: 1,
            property: 5,
            filters: vec![Filter { kind: 0x8000_0200, data: vec![1, 0, 1, 0, 7, 0] }],
            name: "Seed".into(),
            traced: 1,
            left_out: 1,
        }],
        groups: vec![provider()],
        contained: vec![2],
        ..ProviderEntry::default()
    };
    vec![
        ("start", Message::Start(Box::new(session_config()))),
        ("query", Message::Control { session: SessionRef::Id(1), control: Control::Query }),
        ("stop", control(Control::Stop)),
        ("update", control(Control::Update(update))),
        ("flush", control(Control::Flush { log_file: None })),
        ("properties", Message::Properties(Box::new(properties()))),
        ("query-all", Message::QueryAll { from: 0 }),
        ("query-ended", Message::QueryEnded { from: 0 }),
        ("sessions", Message::sessions_page(&[properties(), properties()], 0)),
        (
            "enable-provider",
            Message::EnableProvider {
                session: session(),
                provider: provider(),
                code: EnableCode::CaptureState,
                params: enable_params(),
                name: "Traceweir.Seed".into(),
                timeout_ms: 100,
            },
        ),
        ("check-enables", Message::CheckEnables { providers: vec![Guid::from_u128(1)] }),
        ("query-providers", Message::QueryProviders { after: None }),
        ("providers", Message::providers_page([entry])),
        ("open-consumer", Message::OpenConsumer { session: session() }),
        (
            "consumer",
            Message::Consumer {
                properties: Box::new(properties()),
                slots: 8,
                buffer_bytes: 65_536,
                header: vec![0; 16],
            },
        ),
    ]
}
