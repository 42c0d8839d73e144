//! Tests of encoding and decoding: random messages, messages of the specification, and messages
//! that are rejected or shortened.

mod random;

use std::path::PathBuf;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::Index;

use super::wire::HEADER_BYTES;
use super::*;
use crate::abi::Layout;
use crate::clock::Counter;
use crate::error::Error;
use traceweir_format::spec::enable::MAX_EVENT_FILTER_PAYLOAD_SIZE;

fn encode_message(message: &Message) -> Vec<u8> {
    let mut out = Vec::new();
    message.encode(7, &mut out).unwrap();
    out
}

proptest! {
    #[test]
    fn encoded_message_decodes_to_itself(message in random::message(), request: u32) {
        let mut bytes = b"before".to_vec();
        message.encode(request, &mut bytes).unwrap();
        prop_assert_eq!(Message::decode(&bytes[6..]).unwrap(), (request, message));
    }

    #[test]
    fn truncated_or_extended_message_is_rejected(message in random::message(), at: Index) {
        let mut bytes = encode_message(&message);
        prop_assert!(Message::decode(&bytes[..at.index(bytes.len())]).is_err());
        bytes.push(0);
        prop_assert!(Message::decode(&bytes).is_err());
        // The extended message is rejected even if the length in the header matches.
        let body = (bytes.len() - HEADER_BYTES) as u32;
        bytes[12..16].copy_from_slice(&body.to_le_bytes());
        prop_assert!(Message::decode(&bytes).is_err());
    }

    #[test]
    fn changed_bytes_never_panic_and_decode_canonically(
        message in random::message(), changes in vec((any::<Index>(), any::<u8>()), 1..6),
    ) {
        let mut bytes = encode_message(&message);
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
fn encoded_bytes_match_the_specification() {
    let state = |reason: &str| Message::PrivateState {
        order: 1,
        session: 2,
        status: 3,
        reason: reason.to_owned(),
        properties: Box::default(),
    };
    assert_eq!(Message::decode(&encode_message(&state("no\0"))).unwrap().1, state("no"));
    let hello =
        Message::Hello { versions: (1, 2), role: Role::Controller, instance: 3, program: "ab".into() };
    // Header: magic, kind, zero, request 7, bytes of the body. Body: versions, role, instance,
    // program.
    let expected =
        [b"TWM1\x01\0\0\0\x07\0\0\0\x11\0\0\0".as_slice(), b"\x01\0\x02\0\x02\x03\0\0\0\0\0\0\0\x02\0ab"]
            .concat();
    assert_eq!(encode_message(&hello), expected);
}

#[test]
fn only_regions_of_this_version_are_checked() {
    let layout = Layout::new(2, 4096).unwrap();
    let params = RegionParams { layout, clock: Counter::Monotonic, wake_at: 5, max_record: 6 };
    let bytes = encode_message(&Message::Region { session: 3, params });
    // Session, version, CPUs, ring bytes; clock, wake_at, max_record.
    let body =
        [b"\x03\0\0\0\0\0\0\0\x02\0\0\0\x02\0\0\x10\0\0".as_slice(), b"\x01\0\0\0\x05\0\0\0\x06\0\0\0"];
    assert_eq!(bytes[HEADER_BYTES..], body.concat());
    // No ring of this version has 4097 bytes; a ring of another version may. Byte 14 of the body
    // is the lowest byte of the ring size, byte 8 that of the version.
    let mut odd = bytes;
    odd[HEADER_BYTES + 14] = 1;
    assert!(Message::decode(&odd).is_err());
    odd[HEADER_BYTES + 8] = 3;
    let Ok((_, Message::Region { params, .. })) = Message::decode(&odd) else {
        panic!("the decoded message is not a region")
    };
    assert!(matches!(params.check(), Err(Error::RegionVersion { theirs: 3, ours: 2 })));
}

#[test]
fn unknown_kind_is_unexpected() {
    let mut bytes = encode_message(&Message::Done);
    bytes[4] = 0x77;
    assert!(matches!(Message::decode(&bytes), Err(Error::Unexpected(0x77))));
}

#[test]
fn count_beyond_the_end_is_rejected() {
    let mut bytes = encode_message(&Message::Sessions { total: 0, sessions: Vec::new() });
    let end = bytes.len();
    bytes[end - 2..].copy_from_slice(&[0xFF; 2]);
    assert!(Message::decode(&bytes).is_err());
    let mut bytes = encode_message(&Message::Register {
        registration: 1,
        provider: Guid::NULL,
        traits: Vec::new(),
        classic: false,
    });
    let end = bytes.len();
    // The upper three bytes of the length of the traits, and `classic`.
    bytes[end - 4..].copy_from_slice(&[0xFF; 4]);
    assert!(Message::decode(&bytes).is_err());
}

#[test]
fn too_long_names_are_rejected_and_leave_the_buffer_unchanged() {
    let open_consumer_named =
        |units: usize| Message::OpenConsumer { session: SessionRef::Name("ä".repeat(units)) };
    let mut out = vec![1, 2, 3];
    assert!(open_consumer_named(MAX_NAME_UNITS + 1).encode(1, &mut out).is_err());
    assert_eq!(out, [1, 2, 3]);
    let longest = open_consumer_named(MAX_NAME_UNITS);
    assert_eq!(Message::decode(&encode_message(&longest)).unwrap().1, longest);
    let with_nul = Message::OpenConsumer { session: SessionRef::Name("a\0b".into()) };
    assert!(with_nul.encode(1, &mut out).is_err());
}

#[test]
fn too_long_received_name_is_rejected() {
    let mut bytes = encode_message(&Message::OpenConsumer { session: SessionRef::Name(String::new()) });
    // Keeps the kind of the reference; the length and the bytes of the name follow.
    bytes.truncate(HEADER_BYTES + 1);
    bytes.extend((MAX_NAME_UNITS as u16 + 1).to_le_bytes());
    bytes.resize(bytes.len() + MAX_NAME_UNITS + 1, b'x');
    let body = (bytes.len() - HEADER_BYTES) as u32;
    bytes[12..16].copy_from_slice(&body.to_le_bytes());
    assert!(Message::decode(&bytes).is_err());
}

#[test]
fn texts_for_people_are_shortened_instead_of_rejected() {
    let long = Message::Refused { status: 5, reason: "😀".repeat(2000) };
    let Message::Refused { reason, .. } = Message::decode(&encode_message(&long)).unwrap().1 else {
        panic!("the decoded message has another kind")
    };
    // Each emoji has two units, and the limit is odd.
    assert_eq!(reason.encode_utf16().count(), MAX_NAME_UNITS - 1);
    let failed =
        Message::Failed { order: 1, registration: Some(2), session: 3, status: 4, reason: "no\0".into() };
    let cut = Message::Failed { order: 1, registration: Some(2), session: 3, status: 4, reason: "no".into() };
    assert_eq!(Message::decode(&encode_message(&failed)).unwrap().1, cut);
    let hello =
        Message::Hello { versions: VERSIONS, role: Role::Provider, instance: 0, program: "a\0b".into() };
    let Message::Hello { program, .. } = Message::decode(&encode_message(&hello)).unwrap().1 else {
        panic!("the decoded message has another kind")
    };
    assert_eq!(program, "a");
}

#[test]
fn largest_filters_for_all_registrations_fit_one_message() {
    let data = vec![1; MAX_EVENT_FILTER_PAYLOAD_SIZE];
    let filters = (0..MAX_FILTERS).map(|kind| Filter { kind: kind as u32, data: data.clone() }).collect();
    let params = Box::new(EnableParams { filters, ..EnableParams::default() });
    let registrations = (0..MAX_REGISTRATIONS as u32).collect();
    let enable = Message::Enable { order: 1, registrations, session: 1, code: EnableCode::Enable, params };
    assert_eq!(Message::decode(&encode_message(&enable)).unwrap().1, enable);
}

#[test]
fn too_many_filters_are_rejected() {
    let filters = vec![Filter { kind: 0, data: Vec::new() }; MAX_FILTERS + 1];
    let params = Box::new(EnableParams { filters, ..EnableParams::default() });
    let enable =
        Message::Enable { order: 0, registrations: vec![0], session: 0, code: EnableCode::Enable, params };
    assert!(enable.encode(0, &mut Vec::new()).is_err());
}

#[test]
fn too_large_message_is_rejected() {
    let large = |size| Message::Register {
        registration: 0,
        provider: Guid::NULL,
        traits: vec![0; size],
        classic: false,
    };
    // Registration, provider, length of the traits, classic.
    let largest = MAX_MESSAGE_BYTES - HEADER_BYTES - 4 - 16 - 4 - 1;
    assert_eq!(encode_message(&large(largest)).len(), MAX_MESSAGE_BYTES);
    assert!(large(largest + 1).encode(0, &mut Vec::new()).is_err());
}

#[test]
fn pages_of_long_lists_hold_every_entry_once() {
    let name = |n: usize| format!("{n:04}{}", "x".repeat(MAX_NAME_UNITS - 4));
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
        let Message::Sessions { total: 64, sessions } = Message::decode(&encode_message(&page)).unwrap().1
        else {
            panic!("the decoded message has another kind")
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
fn too_large_entry_is_shortened_to_a_message() {
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
    let Message::Providers { more: false, providers } = Message::decode(&encode_message(&page)).unwrap().1
    else {
        panic!("the decoded message has another kind")
    };
    assert_eq!((providers[0].name.as_str(), providers[0].pids.len()), ("n", MAX_PIDS));
    let filter_sizes =
        |enable: &EnableEntry| enable.filters.iter().map(|filter| filter.data.len()).collect::<Vec<_>>();
    // Of the 8 KiB for details, the name of the first session takes 2046 bytes and the data of its
    // first filter 4000.
    let (first, last) = (&providers[0].sessions[0], providers[0].privates.last().unwrap());
    assert_eq!(filter_sizes(first)[..2], [4000, 0], "the entry does not keep the data that fits");
    assert_eq!(
        (filter_sizes(last), last.filters[12].kind),
        (vec![0; 13], 7),
        "the types of filters were left out"
    );
}

#[test]
fn highest_common_version_is_chosen_or_error_names_both_ranges() {
    assert_eq!(common_version(VERSIONS).unwrap(), VERSIONS.1);
    assert_eq!(common_version((0, u16::MAX)).unwrap(), VERSIONS.1);
    let beyond = (VERSIONS.1 + 1, VERSIONS.1 + 2);
    assert!(
        matches!(common_version(beyond), Err(Error::Version { theirs, ours: VERSIONS }) if theirs == beyond)
    );
    assert!(common_version((2, 1)).is_err(), "an empty range of versions was accepted");
}
