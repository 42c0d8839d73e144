use std::path::PathBuf;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::Index;

use super::wire::HEAD_BYTES;
use super::*;
use crate::abi::Layout;
use crate::clock::Counter;
use traceweir_format::spec::enable::MAX_EVENT_FILTER_PAYLOAD_SIZE;

fn text() -> impl Strategy<Value = String> {
    vec(any::<char>().prop_filter("no NUL", |c| *c != '\0'), 0..40).prop_map(String::from_iter)
}

fn path() -> impl Strategy<Value = PathBuf> {
    use std::os::unix::ffi::OsStringExt;
    vec(1_u8..=255, 0..60).prop_map(|bytes| PathBuf::from(std::ffi::OsString::from_vec(bytes)))
}

fn guid() -> impl Strategy<Value = Guid> {
    any::<[u8; 16]>().prop_map(|bytes| Guid::from_bytes(&bytes))
}

fn session() -> impl Strategy<Value = SessionRef> {
    prop_oneof![any::<u64>().prop_map(SessionRef::Id), text().prop_map(SessionRef::Name)]
}

fn filters() -> impl Strategy<Value = Vec<Filter>> {
    let filter = (any::<u32>(), vec(any::<u8>(), 0..100)).prop_map(|(kind, data)| Filter { kind, data });
    vec(filter, 0..=MAX_FILTERS)
}

prop_compose! {
    fn config()(
        name in text(), guid in guid(), log_file in option::of(path()), low_latency: bool, tied: bool, numbers: [u32; 10],
        options: u64, filters in filters(),
    ) -> SessionConfig {
        let [log_file_mode, clock, buffer_size, minimum_buffers, maximum_buffers, maximum_file_size, flush_timer, ring_bytes,
            enable_flags, flush_threshold] = numbers;
        SessionConfig {
            name, guid, log_file_mode, clock, buffer_size, minimum_buffers, maximum_buffers, maximum_file_size, flush_timer,
            log_file, low_latency, ring_bytes, tied, enable_flags, flush_threshold, options, filters,
        }
    }
}

prop_compose! {
    fn properties()(config in config(), small: [u32; 10], large: [u64; 9]) -> Properties {
        Properties {
            id: large[0],
            config,
            number_of_buffers: small[0],
            free_buffers: small[1],
            buffers_written: small[2],
            events_lost: large[1],
            log_buffers_lost: small[3],
            real_time_buffers_lost: small[4],
            real_time_events_lost: large[2],
            logger_thread_id: small[5],
            events: large[3],
            lost_by_cause: LostByCause { no_room: large[4], not_written: large[5], damaged: large[6], no_region: large[8] },
            processes: small[6],
            consumers: small[7],
            damaged_regions: small[8],
            collector_ns: large[7],
            end_status: small[9],
        }
    }
}

fn control() -> impl Strategy<Value = Control> {
    let update = (any::<(Option<u32>, Option<u32>, Option<bool>, Option<u32>)>(), option::of(path()))
        .prop_map(|((flush_timer, maximum_buffers, real_time, enable_flags), log_file)| {
            Control::Update(Update { flush_timer, maximum_buffers, real_time, log_file, enable_flags })
        });
    let flush = option::of(path()).prop_map(|log_file| Control::Flush { log_file });
    prop_oneof![
        Just(Control::Query),
        Just(Control::Stop),
        Just(Control::Outcome),
        Just(Control::Increment),
        Just(Control::ConvertToRealTime),
        update,
        flush
    ]
}

fn code() -> impl Strategy<Value = EnableCode> {
    prop_oneof![Just(EnableCode::Disable), Just(EnableCode::Enable), Just(EnableCode::CaptureState)]
}

prop_compose! {
    fn params()(
        level: u8, match_any: u64, match_all: u64, property: u32, source in guid(),
        filters in filters(),
    ) -> Box<EnableParams> {
        Box::new(EnableParams { level, match_any, match_all, property, source, filters })
    }
}

prop_compose! {
    fn region()(
        other in option::of(any::<(u32, u16, u32)>()), cpus in 1_u16..=1024, shift in 12_u32..=28, empty: bool,
        cycles: bool, wake_at: u32, max_record: u32,
    ) -> RegionParams {
        let ours = Layout::new(cpus, if empty { 0 } else { 1 << shift }).unwrap();
        let layout = other.and_then(|(version, cpus, ring)| Layout::of_version(version, cpus, ring).ok()).unwrap_or(ours);
        let clock = if cycles { Counter::Cycles } else { Counter::Monotonic };
        RegionParams { layout, clock, wake_at, max_record }
    }
}

prop_compose! {
    fn enable_entry()(
        session: u64, level: u8, any: u64, all: u64, property: u32, filters in filters(), name in text(),
        traced: u32,
    ) -> EnableEntry {
        EnableEntry { session, level, any, all, property, filters, name, traced }
    }
}

prop_compose! {
    fn provider()(
        provider in guid(), name in text(), pids in vec(any::<u32>(), 0..20),
        sessions in vec(enable_entry(), 0..4), privates in vec(enable_entry(), 0..2), groups in vec(guid(), 0..4), kinds: (bool, bool),
    ) -> ProviderEntry {
        let (is_group, is_classic) = kinds;
        ProviderEntry { provider, name, pids, sessions, privates, groups, is_group, is_classic }
    }
}

fn greeting() -> impl Strategy<Value = Message> {
    let role = prop_oneof![Just(Role::Provider), Just(Role::Controller), Just(Role::Consumer)];
    prop_oneof![
        (any::<(u16, u16)>(), role, any::<u64>(), text()).prop_map(|(versions, role, instance, program)| {
            Message::Hello { versions, role, instance, program }
        }),
        any::<(u16, u16)>().prop_map(|versions| Message::Knock { versions }),
        any::<(u16, u64)>().prop_map(|(version, daemon)| Message::Welcome { version, daemon }),
        (any::<u32>(), text()).prop_map(|(status, reason)| Message::Refused { status, reason }),
        Just(Message::Done),
    ]
}

fn of_providers() -> impl Strategy<Value = Message> {
    prop_oneof![
        (any::<(u32, bool)>(), guid(), vec(any::<u8>(), 0..300)).prop_map(
            |((registration, classic), provider, traits)| Message::Register {
                registration,
                provider,
                traits,
                classic,
            }
        ),
        any::<u32>().prop_map(|registration| Message::Unregister { registration }),
        (any::<u32>(), vec(any::<u8>(), 0..300))
            .prop_map(|(registration, traits)| Message::SetTraits { registration, traits }),
        any::<u32>().prop_map(|order| Message::Ack { order }),
        any::<u32>().prop_map(|registration| Message::Registered { registration }),
        (any::<u64>(), region()).prop_map(|(session, params)| Message::Region { session, params }),
        (any::<(u32, u64)>(), vec(any::<u32>(), 0..9), code(), params()).prop_map(
            |((order, session), registrations, code, params)| {
                Message::Enable { order, registrations, session, code, params }
            }
        ),
        any::<(u32, u64)>().prop_map(|(order, session)| Message::CloseSession { order, session }),
        (any::<(u32, Option<u32>, u64, u32)>(), text()).prop_map(
            |((order, registration, session, status), reason)| {
                Message::Failed { order, registration, session, status, reason }
            }
        ),
    ]
}

fn of_private_sessions() -> impl Strategy<Value = Message> {
    prop_oneof![
        (any::<(u32, u64, u32)>(), config()).prop_map(|((order, session, starter), config)| {
            Message::PrivateStart { order, session, starter, config: Box::new(config) }
        }),
        (any::<(u32, u64, u32)>(), control()).prop_map(|((order, session, asker), control)| {
            Message::PrivateControl { order, session, asker, control }
        }),
        (any::<(u32, u64)>(), guid(), code(), params()).prop_map(
            |((order, session), provider, code, params)| {
                Message::PrivateEnable { order, session, provider, code, params }
            }
        ),
        (any::<(u32, u64, u32)>(), text(), properties()).prop_map(
            |((order, session, status), reason, properties)| {
                Message::PrivateState { order, session, status, reason, properties: Box::new(properties) }
            }
        ),
    ]
}

fn of_controllers() -> impl Strategy<Value = Message> {
    prop_oneof![
        config().prop_map(|config| Message::Start(Box::new(config))),
        (session(), control()).prop_map(|(session, control)| Message::Control { session, control }),
        properties().prop_map(|properties| Message::Properties(Box::new(properties))),
        any::<u32>().prop_map(|from| Message::QueryAll { from }),
        any::<u32>().prop_map(|from| Message::QueryEnded { from }),
        (any::<u32>(), vec(properties(), 0..5))
            .prop_map(|(total, sessions)| Message::Sessions { total, sessions }),
        (session(), guid(), code(), params(), text(), any::<u32>()).prop_map(
            |(session, provider, code, params, name, timeout_ms)| {
                Message::EnableProvider { session, provider, code, params, name, timeout_ms }
            }
        ),
        vec(guid(), 0..5).prop_map(|providers| Message::CheckEnables { providers }),
        any::<Option<(u128, bool)>>().prop_map(|after| Message::QueryProviders {
            after: after.map(|(guid, is_group)| (Guid::from_u128(guid), is_group))
        }),
        (any::<bool>(), vec(provider(), 0..5))
            .prop_map(|(more, providers)| Message::Providers { more, providers }),
        (guid(), any::<(u32, u32, bool)>(), vec(any::<u8>(), 0..70)).prop_map(
            |(object, (operation, rights, allow), sid)| Message::SetAccess {
                object,
                operation,
                sid,
                rights,
                allow,
            }
        ),
        guid().prop_map(|object| Message::QueryAccess { object }),
        vec(any::<u8>(), 0..300).prop_map(|descriptor| Message::Access { descriptor }),
        guid().prop_map(|object| Message::RemoveAccess { object }),
        any::<u32>().prop_map(|from| Message::QueryAccessLists { from }),
        (any::<u32>(), vec(guid(), 0..5))
            .prop_map(|(total, objects)| Message::AccessLists { total, objects }),
    ]
}

fn of_consumers() -> impl Strategy<Value = Message> {
    prop_oneof![
        session().prop_map(|session| Message::OpenConsumer { session }),
        (properties(), any::<(u32, u32)>(), vec(any::<u8>(), 0..500)).prop_map(
            |(properties, (slots, buffer_bytes), header)| Message::Consumer {
                properties: Box::new(properties),
                slots,
                buffer_bytes,
                header,
            }
        ),
    ]
}

fn message() -> impl Strategy<Value = Message> {
    prop_oneof![greeting(), of_providers(), of_private_sessions(), of_controllers(), of_consumers()]
}

fn bytes_of(message: &Message) -> Vec<u8> {
    let mut out = Vec::new();
    message.encode(7, &mut out).unwrap();
    out
}

proptest! {
    #[test]
    fn what_was_encoded_decodes_to_the_same(message in message(), request: u32) {
        let mut bytes = b"before".to_vec();
        message.encode(request, &mut bytes).unwrap();
        prop_assert_eq!(Message::decode(&bytes[6..]).unwrap(), (request, message));
    }

    #[test]
    fn a_message_cut_anywhere_or_longer_by_a_byte_is_refused(message in message(), at: Index) {
        let mut bytes = bytes_of(&message);
        prop_assert!(Message::decode(&bytes[..at.index(bytes.len())]).is_err());
        bytes.push(0);
        prop_assert!(Message::decode(&bytes).is_err());
        // The same with a head that fits.
        let body = (bytes.len() - HEAD_BYTES) as u32;
        bytes[12..16].copy_from_slice(&body.to_le_bytes());
        prop_assert!(Message::decode(&bytes).is_err());
    }

    #[test]
    fn changed_bytes_never_panic_and_what_decodes_is_canonical(
        message in message(), changes in vec((any::<Index>(), any::<u8>()), 1..6),
    ) {
        let mut bytes = bytes_of(&message);
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Ok((request, message)) = Message::decode(&bytes) {
            let mut again = Vec::new();
            message.encode(request, &mut again).unwrap();
            prop_assert_eq!(again, bytes);
        }
    }
}

#[test]
fn the_bytes_of_a_message_are_those_of_the_specification() {
    let hello =
        Message::Hello { versions: (1, 2), role: Role::Controller, instance: 3, program: "ab".into() };
    let expected =
        [b"TWM1\x01\0\0\0\x07\0\0\0\x11\0\0\0".as_slice(), b"\x01\0\x02\0\x02\x03\0\0\0\0\0\0\0\x02\0ab"]
            .concat();
    assert_eq!(bytes_of(&hello), expected);
}

#[test]
fn a_region_says_which_version_it_has_and_only_our_own_is_judged() {
    let layout = Layout::new(2, 4096).unwrap();
    let params = RegionParams { layout, clock: Counter::Monotonic, wake_at: 5, max_record: 6 };
    let bytes = bytes_of(&Message::Region { session: 3, params });
    let body =
        [b"\x03\0\0\0\0\0\0\0\x01\0\0\0\x02\0\0\x10\0\0".as_slice(), b"\x01\0\0\0\x05\0\0\0\x06\0\0\0"];
    assert_eq!(bytes[HEAD_BYTES..], body.concat());
    // No ring of ours has 4097 bytes; those of the next version may.
    let mut odd = bytes;
    odd[HEAD_BYTES + 14] = 1;
    assert!(Message::decode(&odd).is_err());
    odd[HEAD_BYTES + 8] = 2;
    let Ok((_, Message::Region { params, .. })) = Message::decode(&odd) else { panic!("no region") };
    assert!(matches!(params.check(), Err(Error::RegionVersion { theirs: 2, ours: 1 })));
}

#[test]
fn an_unknown_kind_is_unexpected() {
    let mut bytes = bytes_of(&Message::Done);
    bytes[4] = 0x77;
    assert!(matches!(Message::decode(&bytes), Err(Error::Unexpected(0x77))));
}

#[test]
fn a_claimed_count_allocates_nothing() {
    let mut bytes = bytes_of(&Message::Sessions { total: 0, sessions: Vec::new() });
    let end = bytes.len();
    bytes[end - 2..].copy_from_slice(&[0xFF; 2]);
    assert!(Message::decode(&bytes).is_err());
    let mut bytes = bytes_of(&Message::Register {
        registration: 1,
        provider: Guid::NULL,
        traits: Vec::new(),
        classic: false,
    });
    let end = bytes.len();
    bytes[end - 4..].copy_from_slice(&[0xFF; 4]);
    assert!(Message::decode(&bytes).is_err());
}

#[test]
fn names_past_the_limit_are_refused_and_leave_the_buffer_alone() {
    let of = |units: usize| Message::OpenConsumer { session: SessionRef::Name("ä".repeat(units)) };
    let mut out = vec![1, 2, 3];
    assert!(of(MAX_NAME + 1).encode(1, &mut out).is_err());
    assert_eq!(out, [1, 2, 3]);
    let longest = of(MAX_NAME);
    assert_eq!(Message::decode(&bytes_of(&longest)).unwrap().1, longest);
    let with_nul = Message::OpenConsumer { session: SessionRef::Name("a\0b".into()) };
    assert!(with_nul.encode(1, &mut out).is_err());
}

#[test]
fn a_name_past_the_limit_is_refused_from_the_wire_too() {
    let mut bytes = bytes_of(&Message::OpenConsumer { session: SessionRef::Name(String::new()) });
    bytes.truncate(HEAD_BYTES + 1);
    bytes.extend((MAX_NAME as u16 + 1).to_le_bytes());
    bytes.resize(bytes.len() + MAX_NAME + 1, b'x');
    let body = (bytes.len() - HEAD_BYTES) as u32;
    bytes[12..16].copy_from_slice(&body.to_le_bytes());
    assert!(Message::decode(&bytes).is_err());
}

#[test]
fn texts_for_people_are_cut_instead_of_refused() {
    let long = Message::Refused { status: 5, reason: "😀".repeat(2000) };
    let Message::Refused { reason, .. } = Message::decode(&bytes_of(&long)).unwrap().1 else {
        panic!("another message")
    };
    assert_eq!(reason.encode_utf16().count(), MAX_NAME - 1);
    let failed =
        Message::Failed { order: 1, registration: Some(2), session: 3, status: 4, reason: "no\0".into() };
    let cut = Message::Failed { order: 1, registration: Some(2), session: 3, status: 4, reason: "no".into() };
    assert_eq!(Message::decode(&bytes_of(&failed)).unwrap().1, cut);
    let hello =
        Message::Hello { versions: VERSIONS, role: Role::Provider, instance: 0, program: "a\0b".into() };
    let Message::Hello { program, .. } = Message::decode(&bytes_of(&hello)).unwrap().1 else {
        panic!("another message")
    };
    assert_eq!(program, "a");
}

#[test]
fn the_largest_filters_for_all_registrations_of_a_process_are_one_message() {
    let data = vec![1; MAX_EVENT_FILTER_PAYLOAD_SIZE];
    let filters = (0..MAX_FILTERS).map(|kind| Filter { kind: kind as u32, data: data.clone() }).collect();
    let params = Box::new(EnableParams { filters, ..EnableParams::default() });
    let registrations = (0..MAX_REGISTRATIONS as u32).collect();
    let enable = Message::Enable { order: 1, registrations, session: 1, code: EnableCode::Enable, params };
    assert_eq!(Message::decode(&bytes_of(&enable)).unwrap().1, enable);
}

#[test]
fn more_filters_than_allowed_are_refused() {
    let filters = vec![Filter { kind: 0, data: Vec::new() }; MAX_FILTERS + 1];
    let params = Box::new(EnableParams { filters, ..EnableParams::default() });
    let enable =
        Message::Enable { order: 0, registrations: vec![0], session: 0, code: EnableCode::Enable, params };
    assert!(enable.encode(0, &mut Vec::new()).is_err());
}

#[test]
fn a_message_larger_than_any_is_refused() {
    let large = |size| Message::Register {
        registration: 0,
        provider: Guid::NULL,
        traits: vec![0; size],
        classic: false,
    };
    let fits = MAX_MESSAGE - HEAD_BYTES - 4 - 16 - 4 - 1;
    assert_eq!(bytes_of(&large(fits)).len(), MAX_MESSAGE);
    assert!(large(fits + 1).encode(0, &mut Vec::new()).is_err());
}

#[test]
fn pages_of_long_lists_hold_every_entry_once() {
    let name = |n: usize| format!("{n:04}{}", "x".repeat(MAX_NAME - 4));
    let all: Vec<_> = (0..64)
        .map(|n| Properties {
            config: SessionConfig {
                name: name(n),
                log_file: Some(name(n).into()),
                ..SessionConfig::default()
            },
            ..Properties::default()
        })
        .collect();
    let mut seen = Vec::new();
    while seen.len() < all.len() {
        let page = Message::sessions_page(&all, seen.len() as u32);
        let Message::Sessions { total: 64, sessions } = Message::decode(&bytes_of(&page)).unwrap().1 else {
            panic!("another message")
        };
        assert!(!sessions.is_empty());
        seen.extend(sessions);
    }
    assert_eq!(seen, all);
    assert!(
        matches!(Message::sessions_page(&all, 64), Message::Sessions { total: 64, sessions } if sessions.is_empty())
    );
}

#[test]
fn an_entry_larger_than_a_message_is_cut_to_one() {
    let filters = vec![Filter { kind: 7, data: vec![0; 4000] }; 50];
    let enable = EnableEntry { filters, name: "é".repeat(3000), ..EnableEntry::default() };
    let entry = ProviderEntry {
        provider: Guid::NULL,
        name: "n\0".repeat(5000),
        pids: (0..100_000).collect(),
        sessions: vec![enable.clone(); 50],
        privates: vec![enable; 10_000],
        groups: vec![Guid::NULL; 10_000],
        ..ProviderEntry::default()
    };
    let page = Message::providers_page([entry]);
    let Message::Providers { more: false, providers } = Message::decode(&bytes_of(&page)).unwrap().1 else {
        panic!("another message")
    };
    assert_eq!((providers[0].name.as_str(), providers[0].pids.len()), ("n", MAX_PIDS));
    let filters = |enable: &EnableEntry| enable.filters.iter().map(|it| it.data.len()).collect::<Vec<_>>();
    let (first, last) = (&providers[0].sessions[0], providers[0].privates.last().unwrap());
    assert_eq!(filters(first)[..2], [4000, 0], "as many as there is room for");
    assert_eq!((filters(last), last.filters[12].kind), (vec![0; 13], 7), "the types are told in any case");
}

#[test]
fn the_highest_common_version_is_chosen_or_both_ranges_are_named() {
    assert_eq!(common_version(VERSIONS).unwrap(), VERSIONS.1);
    assert_eq!(common_version((0, u16::MAX)).unwrap(), VERSIONS.1);
    let beyond = (VERSIONS.1 + 1, VERSIONS.1 + 2);
    assert!(
        matches!(common_version(beyond), Err(Error::Version { theirs, ours: VERSIONS }) if theirs == beyond)
    );
    assert!(common_version((2, 1)).is_err(), "an empty range has no version");
}
