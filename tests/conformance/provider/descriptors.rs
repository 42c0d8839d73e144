//! Rules for data descriptors and their types, as a C program passes them. `rule.rs` explains the
//! rows.

use traceweir::controller::EnableParams;
use traceweir::provider::DataDescriptor;
use traceweir::{EventDescriptor, Guid, Provider, Status};
use traceweir_format::spec::event::{CHANNEL_TRACELOGGING, ExtType};
use traceweir_format::tracelogging::TraitsBuilder;

use super::classic::stop_and_map;
use crate::helpers::{
    ARITHMETIC_OVERFLOW, Fixture, INVALID_HANDLE, INVALID_PARAMETER, RecordedEvent, SUCCESS, Session, event,
};
use crate::rule::{Rule, rule};

#[rustfmt::skip]
pub(crate) const RULES: &[Rule] = &[
    rule!("provider 4.1", P, "a descriptor with NULL Ptr and a size → 87; without a size it is empty",
        null_block_with_a_size_is_refused),
    rule!("provider 4.1", D, "more than 128 data descriptors → 87", more_than_128_descriptors_are_refused),
    rule!("provider 4.1", D, "data of more than 64 KiB in all → 534", data_beyond_64_kib_is_refused),
    rule!("provider 4.3", D, "before the provider turns descriptor types on, data of every type is payload", types_are_ignored_by_default),
    rule!("project", P, "metadata without traits is payload, and the event has no schema item",
        metadata_without_traits_is_payload),
    rule!("provider 4.3 #NONE", D, "is payload, in order", typed_payload_blocks_are_joined),
    rule!("provider 4.3 #EVENT_METADATA", D, "becomes item 11, not payload", event_metadata_becomes_an_item),
    rule!("provider 4.3 #PROVIDER_METADATA", D, "becomes item 12", provider_metadata_becomes_an_item),
    rule!("provider 4.3 #PROVIDER_METADATA", D, "is dropped where traits were set",
        traits_replace_provider_metadata),
    rule!("provider 4.3 #TIMESTAMP_OVERRIDE", D, "is the event's time stamp, in the session's clock",
        time_stamp_override_is_used),
    rule!("provider 4.3 #TIMESTAMP_OVERRIDE", P, "a time stamp of other than 8 bytes → 87",
        wrong_time_stamp_sizes_are_refused),
    rule!("provider 4.3", P, "a type above 3 → 87", unknown_descriptor_types_are_refused),
    rule!("provider 4.3", P, "a type other than NONE twice → 87", repeated_descriptor_types_are_refused),
    rule!("project", P, "descriptors are checked only if a session has enabled the event",
        descriptors_of_disabled_events_are_not_checked),
    rule!("provider 4", D, "Transfer and Ex by descriptors: activities, excluded sessions, flags",
        descriptors_accept_all_parameters),
];

// Types of data descriptors.

const PAYLOAD: u8 = 0;
const EVENT_METADATA: u8 = 1;
const PROVIDER_METADATA: u8 = 2;
const TIME_STAMP: u8 = 3;

/// The information class by which a provider opts in to descriptor types.
const USE_DESCRIPTOR_TYPE: u32 = 3;

fn block(kind: u8, data: &[u8]) -> DataDescriptor {
    DataDescriptor::of_kind(kind, data)
}

/// Writes an event of these blocks and returns the status.
fn write(provider: &Provider, descriptor: &EventDescriptor, blocks: &[DataDescriptor]) -> Status {
    // SAFETY: each block describes bytes that outlive this call, or is NULL.
    let written = unsafe { provider.write_descriptors(descriptor, 0, 0, None, None, blocks) };
    written.map_or_else(|error| error.status(), |()| SUCCESS)
}

/// Starts a session and enables a new provider in it that has opted in to descriptor types.
fn start_typed(fixture: &Fixture) -> (Session, Provider) {
    let (session, provider, _guid) = fixture.start_with_provider(&EnableParams::default());
    provider.set_information(USE_DESCRIPTOR_TYPE, Some(&[1])).unwrap();
    (session, provider)
}

/// Stops the session and returns its only event.
fn read_single_event(fixture: &Fixture, session: Session) -> RecordedEvent {
    let mut seen = fixture.stop_and_read(session);
    assert_eq!(seen.len(), 1, "not one event: {seen:?}");
    seen.remove(0)
}

fn null_block_with_a_size_is_refused(fixture: &Fixture) {
    let (session, provider, _guid) = fixture.start_with_provider(&EnableParams::default());
    let null_block = |size| DataDescriptor { size, ..DataDescriptor::default() };
    assert_eq!(write(&provider, &event(1), &[block(PAYLOAD, b"x"), null_block(1)]), INVALID_PARAMETER);
    assert_eq!(write(&provider, &event(2), &[block(PAYLOAD, b"x"), null_block(0)]), SUCCESS);
    let seen = read_single_event(fixture, session);
    assert_eq!((seen.descriptor.id, &seen.payload[..]), (2, &b"x"[..]));
}

fn more_than_128_descriptors_are_refused(fixture: &Fixture) {
    let (session, provider, _guid) = fixture.start_with_provider(&EnableParams::default());
    let blocks = vec![block(PAYLOAD, b"b"); 129];
    assert_eq!(write(&provider, &event(1), &blocks), INVALID_PARAMETER);
    assert_eq!(write(&provider, &event(1), &blocks[1..]), SUCCESS);
    assert_eq!(read_single_event(fixture, session).payload, [b'b'; 128]);
}

fn data_beyond_64_kib_is_refused(fixture: &Fixture) {
    let (session, provider) = start_typed(fixture);
    let large = vec![7; 40_000];
    assert_eq!(
        write(&provider, &event(1), &[block(PAYLOAD, &large), block(PAYLOAD, &large)]),
        ARITHMETIC_OVERFLOW
    );
    assert_eq!(
        write(&provider, &event(1), &[block(EVENT_METADATA, &large), block(PAYLOAD, &large)]),
        ARITHMETIC_OVERFLOW
    );
    assert!(fixture.stop_and_read(session).is_empty());
}

fn types_are_ignored_by_default(fixture: &Fixture) {
    let (session, provider, _guid) = fixture.start_with_provider(&EnableParams::default());
    let blocks = [
        block(EVENT_METADATA, b"a"),
        block(PROVIDER_METADATA, b"b"),
        block(TIME_STAMP, b"c"),
        block(77, b"d"),
        block(EVENT_METADATA, b"e"),
    ];
    assert_eq!(write(&provider, &event(1), &blocks), SUCCESS);
    let seen = read_single_event(fixture, session);
    assert_eq!((&seen.payload[..], seen.items.len()), (&b"abcde"[..], 0));
}

fn metadata_without_traits_is_payload(fixture: &Fixture) {
    let (session, provider, _guid) = fixture.start_with_provider(&EnableParams::default());
    let traits = TraitsBuilder::new("Name").finish().unwrap().to_vec();
    // Size 6, no tags, the event name `ab`, no fields.
    let metadata = b"\x06\0\0ab\0";
    let descriptor = EventDescriptor { channel: CHANNEL_TRACELOGGING, ..event(0) };
    let blocks =
        [block(PROVIDER_METADATA, &traits), block(EVENT_METADATA, metadata), block(PAYLOAD, b"data")];
    assert_eq!(write(&provider, &descriptor, &blocks), SUCCESS);
    let seen = read_single_event(fixture, session);
    assert_eq!(seen.payload, [&traits[..], metadata, b"data"].concat());
    assert_eq!((seen.items.len(), seen.descriptor.channel), (0, CHANNEL_TRACELOGGING));
}

fn typed_payload_blocks_are_joined(fixture: &Fixture) {
    let (session, provider) = start_typed(fixture);
    let blocks =
        [block(PAYLOAD, b"one"), block(EVENT_METADATA, b"m"), block(PAYLOAD, b""), block(PAYLOAD, b"two")];
    assert_eq!(write(&provider, &event(1), &blocks), SUCCESS);
    assert_eq!(read_single_event(fixture, session).payload, b"onetwo");
}

fn event_metadata_becomes_an_item(fixture: &Fixture) {
    let (session, provider) = start_typed(fixture);
    // Size 6, no tags, the event name `ab`, no fields.
    let metadata = b"\x06\0\0ab\0";
    assert_eq!(
        write(&provider, &event(1), &[block(EVENT_METADATA, metadata), block(PAYLOAD, b"data")]),
        SUCCESS
    );
    let seen = read_single_event(fixture, session);
    assert_eq!(seen.items, [(ExtType::EVENT_SCHEMA_TL, metadata.to_vec())]);
    assert_eq!(seen.payload, b"data");
}

fn provider_metadata_becomes_an_item(fixture: &Fixture) {
    let (session, provider) = start_typed(fixture);
    let traits = TraitsBuilder::new("OfTheEvent").finish().unwrap().to_vec();
    let blocks =
        [block(PROVIDER_METADATA, &traits), block(EVENT_METADATA, b"\x06\0\0ab\0"), block(PAYLOAD, b"data")];
    assert_eq!(write(&provider, &event(1), &blocks), SUCCESS);
    assert_eq!(write(&provider, &event(2), &blocks[2..]), SUCCESS);
    let seen = fixture.stop_and_read(session);
    let items = [(ExtType::PROV_TRAITS, traits), (ExtType::EVENT_SCHEMA_TL, b"\x06\0\0ab\0".to_vec())];
    assert_eq!(seen[0].items, items);
    assert_eq!(seen[1].items, [], "the metadata of another event was attached");
}

fn traits_replace_provider_metadata(fixture: &Fixture) {
    let (session, provider, _guid) = fixture.start_with_provider(&EnableParams::default());
    let traits = TraitsBuilder::new("OfTheProvider").finish().unwrap().to_vec();
    provider.set_traits(&traits).unwrap();
    assert_eq!(
        write(&provider, &event(1), &[block(PROVIDER_METADATA, b"other"), block(PAYLOAD, b"data")]),
        SUCCESS
    );
    let seen = read_single_event(fixture, session);
    assert_eq!((seen.items, &seen.payload[..]), (vec![(ExtType::PROV_TRAITS, traits)], &b"data"[..]));
}

fn time_stamp_override_is_used(fixture: &Fixture) {
    let (session, provider) = start_typed(fixture);
    assert_eq!(write(&provider, &event(1), &[]), SUCCESS);
    let early = 1_000_i64.to_ne_bytes();
    assert_eq!(write(&provider, &event(2), &[block(PAYLOAD, b"x"), block(TIME_STAMP, &early)]), SUCCESS);
    assert_eq!(write(&provider, &event(3), &[block(TIME_STAMP, &i64::MAX.to_ne_bytes())]), SUCCESS);
    let seen = stop_and_map(fixture, session, |record| {
        (record.descriptor().id, record.time(), record.payload().to_vec())
    });
    let time_of = |event_id| seen.iter().find(|(id, ..)| *id == event_id).unwrap().1;
    assert!(seen.contains(&(2, 1_000, b"x".to_vec())), "{seen:?}");
    assert!((time_of(1)..i64::MAX).contains(&time_of(3)), "an event is from the future");
}

fn wrong_time_stamp_sizes_are_refused(fixture: &Fixture) {
    let (session, provider) = start_typed(fixture);
    for size in [0, 1, 4, 7, 9, 16] {
        assert_eq!(
            write(&provider, &event(1), &[block(TIME_STAMP, &[0; 16][..size])]),
            INVALID_PARAMETER,
            "{size} bytes"
        );
    }
    assert!(fixture.stop_and_read(session).is_empty());
}

fn unknown_descriptor_types_are_refused(fixture: &Fixture) {
    let (session, provider) = start_typed(fixture);
    for kind in 4..=u8::MAX {
        assert_eq!(write(&provider, &event(1), &[block(kind, b"x")]), INVALID_PARAMETER, "type {kind}");
    }
    assert!(fixture.stop_and_read(session).is_empty());
}

fn repeated_descriptor_types_are_refused(fixture: &Fixture) {
    let (session, provider) = start_typed(fixture);
    for kind in [EVENT_METADATA, PROVIDER_METADATA, TIME_STAMP] {
        let twice = [block(kind, b"12345678"), block(PAYLOAD, b"x"), block(kind, b"12345678")];
        assert_eq!(write(&provider, &event(1), &twice), INVALID_PARAMETER, "type {kind}");
    }
    assert!(fixture.stop_and_read(session).is_empty());
}

fn descriptors_of_disabled_events_are_not_checked(_fixture: &Fixture) {
    let provider = Provider::register(crate::helpers::new_guid(), None).unwrap();
    provider.set_information(USE_DESCRIPTOR_TYPE, Some(&[1])).unwrap();
    let invalid_block = DataDescriptor { size: 1, kind: 99, ..DataDescriptor::default() };
    assert_eq!(write(&provider, &event(1), &[invalid_block]), SUCCESS);
    let handle = provider.handle();
    drop(provider);
    let written = handle.provider().and_then(|provider| {
        // SAFETY: a stale registration reads nothing; the block is NULL.
        unsafe { provider.write_descriptors(&event(1), 0, 0, None, None, &[invalid_block]) }
    });
    assert_eq!(written.unwrap_err().status(), INVALID_HANDLE);
}

fn descriptors_accept_all_parameters(fixture: &Fixture) {
    let (session, provider, _guid) = fixture.start_with_provider(&EnableParams::default());
    let (activity, related) = (Guid::from_u128(1), Guid::from_u128(2));
    let blocks = [block(PAYLOAD, b"x")];
    // Flag 1 is NO_FAULTING, and flag 4 does not exist. `exclude` has a bit for each session.
    let write = |id, exclude, flags| {
        let descriptor = event(id);
        // SAFETY: the block describes bytes of a constant.
        let written = unsafe {
            provider.write_descriptors(&descriptor, exclude, flags, Some(&activity), Some(&related), &blocks)
        };
        written.map_or_else(|error| error.status(), |()| SUCCESS)
    };
    assert_eq!(
        [write(1, 0, 0), write(2, u64::MAX, 0), write(3, 0, 1), write(4, 0, 4)],
        [SUCCESS, SUCCESS, SUCCESS, INVALID_PARAMETER]
    );
    let seen = fixture.stop_and_read(session);
    assert_eq!(seen.iter().map(|event| event.descriptor.id).collect::<Vec<_>>(), [1, 3]);
    for event in seen {
        assert_eq!(event.activity, Some(activity));
        assert_eq!(event.items, [(ExtType::RELATED_ACTIVITYID, related.to_bytes().to_vec())]);
    }
}
