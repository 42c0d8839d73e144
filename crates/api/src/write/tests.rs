//! The bytes of events on both write paths.
#![allow(unsafe_code)]

use traceweir_format::Guid;
use traceweir_format::header::event::EventHeader;
use traceweir_format::header::extended::Item;
use traceweir_format::spec::enable::EVENT_ENABLE_PROPERTY_SID;
use traceweir_format::spec::event::ExtType;
use traceweir_format::tracelogging::TraitsBuilder;
use traceweir_transport::message::EnableParams;
use traceweir_transport::ring::MIN_SCHEMA_BYTES;

use super::compose::{RecordItems, RecordSource, SessionItems};
use super::scratch::{self, ScratchClaim};
use super::stage::Stage;
use super::*;
use crate::client::Client;
use crate::process::test_region::TestRegion;
use crate::process::thread;
use crate::provider::{ProviderRef, activity};
use crate::registration::{DecodeGuidWords, Handle, ProviderTraits};

const THREAD_ID: u32 = 4711;
const PROVIDER: Guid = Guid::from_u128(0x11223344_5566_7788_99aa_bbccddeeff00);

fn leak_traits(bytes: &[u8]) -> &'static ProviderTraits {
    Box::leak(Box::new(ProviderTraits::new(bytes)))
}

/// Composes a record with the tested code.
fn compose_record(slot: &RegistrationSlot, event: &CallerEvent<'_>) -> Vec<u8> {
    let bytes = compose_with(slot, event, &SessionItems::new(None, None));
    let source = RecordSource { slot, event, options: &Options::NONE, thread: THREAD_ID };
    if source.is_small() {
        let mut words = Stage::EMPTY;
        let mut stage = Stage::new(&mut words);
        source.compose_small(&mut stage);
        assert!(record_bytes(&mut stage) == bytes, "composing on the stack must give the same bytes");
    }
    bytes
}

fn compose_with(
    slot: &RegistrationSlot,
    event: &CallerEvent<'_>,
    session_items: &SessionItems<'_>,
) -> Vec<u8> {
    let source = RecordSource { slot, event, options: &Options::NONE, thread: THREAD_ID };
    let items = RecordItems::new(&source, session_items);
    let mut claim = ScratchClaim::new().unwrap();
    let mut stage = claim.composer.stage();
    source.compose(&mut stage, &items);
    record_bytes(&mut stage)
}

fn record_bytes(stage: &mut Stage<'_>) -> Vec<u8> {
    let gather = stage.gather();
    let mut bytes: Vec<u8> = gather.staged.iter().flat_map(|w| w.to_ne_bytes()).collect();
    // The words begin with a prefix of 16 bytes that is not part of the record.
    bytes.truncate(16 + gather.staged_bytes);
    bytes.drain(..16);
    gather.further_parts.iter().for_each(|p| bytes.extend_from_slice(p.bytes()));
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes
}

/// Encodes the expected record with the format crate.
fn encode_record(event: &CallerEvent<'_>, traits: &[u8], activity: Guid) -> Vec<u8> {
    encode_with_items(event, traits, activity, &[])
}

fn encode_with_items(
    event: &CallerEvent<'_>,
    traits: &[u8],
    activity: Guid,
    session_items: &[Item<'_>],
) -> Vec<u8> {
    let related = event.related.map(|g| g.to_bytes());
    let mut items = Vec::new();
    if !traits.is_empty() {
        items.push(Item { kind: ExtType::PROV_TRAITS, data: traits });
    }
    items.extend(event.metadata.map(|data| Item { kind: ExtType::EVENT_SCHEMA_TL, data }));
    items.extend(related.as_ref().map(|data| Item { kind: ExtType::RELATED_ACTIVITYID, data }));
    items.extend_from_slice(session_items);
    let header = EventHeader {
        flags: event.flags,
        thread_id: THREAD_ID,
        provider: PROVIDER,
        descriptor: *event.descriptor,
        activity,
        items: &items,
        ..EventHeader::default()
    };
    let mut out = Vec::new();
    header.encode(&event.payload().collect::<Vec<_>>().concat(), &mut out).unwrap();
    out
}

#[test]
fn every_event_has_the_bytes_of_the_format() {
    let descriptor = EventDescriptor {
        id: 0x1234,
        version: 5,
        channel: 11,
        level: 4,
        opcode: 9,
        task: 0xBEEF,
        keyword: 0x8000_0000_0000_0012,
    };
    let (thread_activity, other) = (activity::create(), activity::create());
    activity::set(thread_activity);
    let long: Vec<u8> = (0..3000u32).map(|i| i as u8).collect();
    for traits_len in [0, 5, 8, 70, 900] {
        let traits = leak_traits(&long[..traits_len]);
        let handle = Handle::claim_plain(PROVIDER, (traits_len != 0).then_some(traits), None).unwrap();
        for metadata in [None, Some(&long[..0]), Some(&long[..13]), Some(&long[7..1200])] {
            for (activity, related) in [(None, None), (Some(&other), Some(&thread_activity))] {
                for lengths in [&[][..], &[3], &[8, 4, 2], &[200], &[5, 64, 65, 1], &[16; 100]] {
                    let data: Vec<&[u8]> = lengths.iter().map(|n| &long[*n..2 * n]).collect();
                    let event = CallerEvent {
                        // EVENT_HEADER_FLAG_STRING_ONLY: any flag will do.
                        flags: 4,
                        metadata,
                        activity,
                        related,
                        ..CallerEvent::new(&descriptor, &data)
                    };
                    let expected =
                        encode_record(&event, &long[..traits_len], *activity.unwrap_or(&thread_activity));
                    assert_eq!(compose_record(handle.slot(), &event), expected, "{traits_len} {lengths:?}");
                }
            }
        }
        assert!(handle.retire());
        handle.release();
    }
}

#[test]
fn decode_guid_is_in_the_header_and_provider_in_an_item() {
    let decode = Guid::from_u128(0x5EED);
    let traits = TraitsBuilder::new("Provider").decode_guid(&decode).finish().unwrap().to_vec();
    let decoding: &'static DecodeGuidWords =
        Box::leak(Box::new(DecodeGuidWords::from_traits(&traits, PROVIDER).unwrap()));
    let leaked_traits = leak_traits(&traits);
    let handle = Handle::claim_plain(PROVIDER, None, None).unwrap();
    handle.slot().set_traits(Some(leaked_traits), Some(decoding));
    let descriptor = EventDescriptor { id: 7, ..EventDescriptor::default() };
    let record = compose_record(
        handle.slot(),
        &CallerEvent { metadata: Some(b"meta"), ..CallerEvent::new(&descriptor, &[b"data"]) },
    );
    let (control, traits) = (PROVIDER.to_bytes(), traits);
    let items = [
        Item { kind: ExtType::CONTROL_GUID, data: &control },
        Item { kind: ExtType::PROV_TRAITS, data: &traits },
        Item { kind: ExtType::EVENT_SCHEMA_TL, data: b"meta" },
    ];
    let activity = activity::current();
    let header = EventHeader {
        thread_id: THREAD_ID,
        provider: decode,
        descriptor,
        activity,
        items: &items,
        ..EventHeader::default()
    };
    let mut expected = Vec::new();
    header.encode(b"data", &mut expected).unwrap();
    assert_eq!(record, expected);
    assert!(DecodeGuidWords::from_traits(TraitsBuilder::new("other").finish().unwrap(), PROVIDER).is_none());
    assert!(handle.retire());
    handle.release();
}

#[test]
fn key_and_stack_follow_all_other_items() {
    let descriptor = EventDescriptor { id: 3, level: 4, ..EventDescriptor::default() };
    let (activity, related) = (activity::create(), activity::create());
    let stack: Vec<u8> = (0..8 * 193_u32).map(|i| i as u8).collect();
    let key = 0x0102_0304_0506_0708_u64;
    let bytes = key.to_le_bytes();
    let blocks = [&stack[..100]; MAX_BLOCKS];
    for traits_len in [0, 70] {
        let traits = leak_traits(&stack[..traits_len]);
        let handle = Handle::claim_plain(PROVIDER, (traits_len != 0).then_some(traits), None).unwrap();
        for (metadata, related) in [(None, None), (Some(&stack[..333]), Some(&related))] {
            for data in [&[][..], &[&stack[..5]], &blocks] {
                for (key, frames) in
                    [(None, Some(193)), (Some(key), None), (Some(key), Some(1)), (Some(key), Some(193))]
                {
                    let frames = frames.map(|count| &stack[..8 * count]);
                    let session_items = SessionItems::new(key, frames);
                    let event = CallerEvent {
                        metadata,
                        activity: Some(&activity),
                        related,
                        ..CallerEvent::new(&descriptor, data)
                    };
                    let mut items = Vec::new();
                    items.extend(key.map(|_| Item { kind: ExtType::EVENT_KEY, data: &bytes }));
                    items.extend(frames.map(|data| Item { kind: ExtType::STACK_TRACE64, data }));
                    let expected = encode_with_items(&event, &stack[..traits_len], activity, &items);
                    assert_eq!(compose_with(handle.slot(), &event, &session_items), expected);
                    let plain = compose_record(handle.slot(), &event);
                    assert_eq!(plain.len() + session_items.size(), expected.len());
                    assert_eq!(
                        plain,
                        encode_record(&event, &stack[..traits_len], activity),
                        "the last item of the plain record must not announce another one"
                    );
                }
            }
        }
        assert!(handle.retire());
        handle.release();
    }
}

/// A session in this process that has a registration enabled.
struct TestSession {
    handle: Handle,
    memory: TestRegion,
}

impl TestSession {
    /// `outlet` must not be used by another test of this crate.
    fn start(outlet: u8, traits: Option<&'static ProviderTraits>) -> Self {
        Client::get();
        let memory = TestRegion::open(outlet);
        let handle = Handle::claim_plain(PROVIDER, traits, None).unwrap();
        let change = handle.slot().enable_session(outlet, memory.ticket, &EnableParams::default());
        assert_eq!(change.refusal(), None);
        Self { handle, memory }
    }

    /// Returns the new records, each padded to a multiple of eight bytes.
    fn take_records(&mut self) -> Vec<Vec<u8>> {
        let mut records: Vec<Vec<u8>> =
            self.memory.take_records().into_iter().map(|(_, bytes)| bytes).collect();
        records.iter_mut().for_each(|bytes| bytes.resize(bytes.len().next_multiple_of(8), 0));
        records
    }

    fn provider(&self) -> ProviderRef {
        self.handle.provider().unwrap()
    }

    fn end(self) {
        self.handle.slot().disable_sessions(u64::MAX);
        drop(self.memory);
        assert!(self.handle.retire());
        self.handle.release();
    }
}

/// Writes an event as the TraceLogging macros do.
fn write_as_macro(
    slot: &RegistrationSlot,
    event: &CallerEvent<'_>,
    blocks: &[Block<'_>],
) -> Result<(), WriteError> {
    match event.metadata {
        Some(metadata) if event.activity.is_none() => {
            write_described(slot, event.descriptor, metadata, Blocks::new(blocks))
        }
        _ => write(slot, &CallerEvent { blocks, ..*event }),
    }
}

/// Returns the event as a C program describes it. A TraceLogging event begins with the metadata of
/// its provider (type 2) and its own (type 1).
fn to_descriptors(traits: &[u8], event: &CallerEvent<'_>) -> Vec<DataDescriptor> {
    let typed = event
        .metadata
        .map(|metadata| [DataDescriptor::of_kind(2, traits), DataDescriptor::of_kind(1, metadata)]);
    let payload = event.payload().map(DataDescriptor::new);
    typed.into_iter().flatten().chain(payload).collect()
}

#[test]
fn straight_and_composed_events_have_the_same_bytes() {
    let descriptor = EventDescriptor {
        id: 0x1234,
        version: 5,
        channel: 11,
        level: 4,
        opcode: 9,
        task: 0xBEEF,
        keyword: 0x8000_0000_0000_0012,
    };
    let (thread_activity, other) = (activity::create(), activity::create());
    let before = activity::set(thread_activity);
    let long: Vec<u8> = (0..3000u32).map(|i| i as u8).collect();
    let thread = thread::thread_id();
    for traits_len in [0, 5, 8, 70, 900] {
        let traits = leak_traits(&long[..traits_len]);
        let mut session = TestSession::start(60, (traits_len != 0).then_some(traits));
        let slot = session.handle.slot();
        for metadata in [None, Some(&long[..15]), Some(&long[..16]), Some(&long[..29]), Some(&long[7..1200])]
        {
            for activity in [None, Some(&other)] {
                for lengths in [&[][..], &[3], &[8, 4, 2], &[200], &[5, 64, 65, 1], &[16; 100], &[9; 128]] {
                    let data: Vec<&[u8]> = lengths.iter().map(|n| &long[*n..2 * n]).collect();
                    let blocks: Vec<Block<'_>> = data.iter().map(|bytes| Block::new(bytes)).collect();
                    let event = CallerEvent { metadata, activity, ..CallerEvent::new(&descriptor, &data) };
                    let mut expected = compose_record(slot, &event);
                    // The record has the real thread id instead of `THREAD_ID`.
                    expected[8..12].copy_from_slice(&thread.to_le_bytes());
                    write(slot, &event).unwrap();
                    write_as_macro(slot, &event, &blocks).unwrap();
                    let descriptors = to_descriptors(&long[..traits_len], &event);
                    // Without traits, the types of data descriptors are ignored: the metadata would
                    // be payload.
                    if (traits_len != 0 || metadata.is_none()) && descriptors.len() <= MAX_BLOCKS {
                        // SAFETY: the blocks are made from slices that live on.
                        unsafe {
                            session.provider().write_descriptors(
                                &descriptor,
                                0,
                                0,
                                activity,
                                None,
                                &descriptors,
                            )
                        }
                        .unwrap();
                        let (d, a) =
                            (&raw const descriptor, activity.map_or(std::ptr::null(), std::ptr::from_ref));
                        let (count, first) = (descriptors.len() as u32, descriptors.as_ptr());
                        let raw = session.handle.to_raw();
                        // SAFETY: the pointers are null, or to values and blocks that outlive the
                        // call.
                        let was_straight = unsafe { try_straight(raw, d, a, std::ptr::null(), count, first) };
                        let can_be_straight = metadata.is_none_or(|m| m.len() >= MIN_SCHEMA_BYTES);
                        assert!(can_be_straight || !was_straight, "{traits_len} {lengths:?}");
                    }
                    let records = session.take_records();
                    assert!(records.len() >= 2);
                    assert!(records.iter().all(|record| *record == expected), "{traits_len} {lengths:?}");
                }
            }
        }
        session.end();
    }
    activity::set(before);
}

#[test]
fn only_the_usual_event_of_one_session_takes_the_straight_path() {
    let mut session = TestSession::start(61, None);
    let (slot, raw) = (session.handle.slot(), session.handle.to_raw());
    let descriptor = EventDescriptor { id: 1, level: 3, ..EventDescriptor::default() };
    let payload = [DataDescriptor::new(b"payload")];
    let related = activity::create();
    let none = std::ptr::null();
    let is_straight = |raw, d: *const EventDescriptor, related, count, data| {
        // SAFETY: pointers are null, or to values that live on.
        unsafe { try_straight(raw, d, none, related, count, data) }
    };
    let (d, p) = (&raw const descriptor, payload.as_ptr());
    if !is_straight(raw, d, none, 1, p) {
        // The machine has no restartable sequences.
        session.end();
        return;
    }
    assert_eq!(session.take_records().len(), 1);
    assert!(!is_straight(raw ^ 1 << 33, d, none, 1, p), "a stale handle was accepted");
    assert!(
        !is_straight(0, d, none, 1, p) && !is_straight(u64::MAX, d, none, 1, p),
        "an invalid handle was accepted"
    );
    assert!(!is_straight(raw, std::ptr::null(), none, 1, p), "a null descriptor was accepted");
    assert!(!is_straight(raw, d, &raw const related, 1, p), "an event with a related activity was written");
    assert!(!is_straight(raw, d, none, 129, p), "more than 128 blocks were accepted");
    assert!(!is_straight(raw, d, none, 1, std::ptr::null()), "a null block list was accepted");
    assert!(
        is_straight(raw, d, none, 0, std::ptr::null()) && session.take_records().len() == 1,
        "an event without blocks must be written"
    );
    let missing = [DataDescriptor { size: 1, ..DataDescriptor::default() }];
    assert!(!is_straight(raw, d, none, 1, missing.as_ptr()), "a block without an address was accepted");
    let ticket = slot.find_enable(61).unwrap().ticket;
    let set_enable =
        |params: &EnableParams| assert_eq!(slot.enable_session(61, ticket, params).refusal(), None);
    set_enable(&EnableParams { level: 2, ..EnableParams::default() });
    assert!(!is_straight(raw, d, none, 1, p), "an event of an unwanted level was written");
    // Both functions skip the check of level and keyword, like a thread that passed it just before
    // the session changed its level. They must still write nothing.
    let block = [Block::new(b"payload")];
    write_as_macro(slot, &CallerEvent::new(&descriptor, &[]), &block).unwrap();
    write(slot, &CallerEvent::new(&descriptor, &[b"payload"])).unwrap();
    assert!(session.take_records().is_empty(), "an event of an unwanted level was written");
    set_enable(&EnableParams { property: EVENT_ENABLE_PROPERTY_SID, ..EnableParams::default() });
    assert!(!is_straight(raw, d, none, 1, p), "an event without the requested item was written");
    set_enable(&EnableParams::default());
    assert!(is_straight(raw, d, none, 1, p));
    assert_eq!(session.take_records().len(), 1);
    slot.disable_sessions(u64::MAX);
    assert!(!is_straight(raw, d, none, 1, p), "an event of a disabled provider was written");
    assert!(session.take_records().is_empty());
    session.end();
}

#[test]
fn metadata_blocks_may_be_at_any_position() {
    let traits = leak_traits(b"\x06\0Name\0");
    let mut session = TestSession::start(59, Some(traits));
    let descriptor = EventDescriptor { id: 8, ..EventDescriptor::default() };
    let long = [7; 100];
    let shortest: &[u8] = b"sixteen bytes 16";
    assert_eq!(shortest.len(), MIN_SCHEMA_BYTES);
    let metadata = DataDescriptor::of_kind(1, shortest);
    let [one, two, three] = [&b"one"[..], &long, b"three"].map(DataDescriptor::new);
    let data = [&b"one"[..], &long, b"three"];
    let mut expected = compose_record(
        session.handle.slot(),
        &CallerEvent { metadata: Some(shortest), ..CallerEvent::new(&descriptor, &data) },
    );
    expected[8..12].copy_from_slice(&thread::thread_id().to_le_bytes());
    for blocks in [
        [metadata, one, two, three],
        [one, metadata, two, three],
        [one, two, metadata, three],
        [one, two, three, metadata],
    ] {
        // SAFETY: the blocks are made from slices that live on.
        unsafe { session.provider().write_descriptors(&descriptor, 0, 0, None, None, &blocks) }.unwrap();
        assert_eq!(session.take_records(), [&expected[..]]);
    }
    session.end();
}

#[test]
fn events_without_pool_memory_are_counted_as_lost() {
    // The other test runs in a separate process, because the tests of this process need the pool.
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "write::tests::events_are_lost_while_the_pool_is_empty", "--ignored"]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
#[ignore = "takes the pool from other tests: another test runs it"]
fn events_are_lost_while_the_pool_is_empty() {
    const KEY: u32 = traceweir_format::spec::enable::EVENT_ENABLE_PROPERTY_EVENT_KEY;
    let mut session = TestSession::start(58, None);
    let slot = session.handle.slot();
    let (descriptor, metadata) = (EventDescriptor::default(), [3; 900]);
    let related = activity::create();
    let small = CallerEvent::new(&descriptor, &[b"payload"]);
    let large = CallerEvent { metadata: Some(&metadata), related: Some(&related), ..small };
    let ticket = slot.find_enable(58).unwrap().ticket;
    let enable =
        |property| slot.enable_session(58, ticket, &EnableParams { property, ..EnableParams::default() });
    let claims = scratch::claim_all();
    assert!(claims.len() > 100);
    assert_eq!((write(slot, &small), write(slot, &large)), (Ok(()), Err(WriteError::NoRoom)));
    assert_eq!(session.memory.lost_events(), 1);
    // A record with a key is always composed in the pool.
    enable(KEY);
    assert_eq!(write(slot, &small), Err(WriteError::NoRoom));
    assert_eq!(write_string(slot, 4, 0, &"x".repeat(300)), Err(WriteError::NoRoom));
    assert_eq!(session.memory.lost_events(), 3);
    drop(claims);
    assert_eq!((write(slot, &small), write(slot, &large)), (Ok(()), Ok(())));
    assert_eq!(session.memory.lost_events(), 3);
    session.end();
}
