//! The bytes of events on both write paths.
#![allow(unsafe_code)]

use traceweir_format::Guid;
use traceweir_format::header::event::EventHeader;
use traceweir_format::header::extended::Item;
use traceweir_format::spec::event::ExtType;
use traceweir_format::tracelogging::TraitsBuilder;
use traceweir_transport::message::EnableParams;
use traceweir_transport::ring::SHORTEST_SCHEMA;

use super::compose::{Extras, Items, RecordSource};
use super::scratch::{self, Claim};
use super::stage::Stage;
use super::*;
use crate::client::Client;
use crate::process::memory::Memory;
use crate::process::thread;
use crate::provider::{ProviderRef, activity};
use crate::registration::{Decoding, Handle, Traits};

const PROVIDER: Guid = Guid::from_u128(0x11223344_5566_7788_99aa_bbccddeeff00);

fn composed(slot: &Slot, event: &Event<'_>) -> Vec<u8> {
    let bytes = composed_with(slot, event, &Extras::new(None, None));
    let source = RecordSource { slot, event, options: &Options::NONE, thread: 4711 };
    if source.is_small() {
        let mut words = Stage::EMPTY;
        let mut stage = Stage::new(&mut words);
        source.compose_small(&mut stage);
        assert!(bytes_of(&mut stage) == bytes, "composing on the stack gives the same bytes");
    }
    bytes
}

fn composed_with(slot: &Slot, event: &Event<'_>, extras: &Extras<'_>) -> Vec<u8> {
    let source = RecordSource { slot, event, options: &Options::NONE, thread: 4711 };
    let items = Items::new(&source, extras);
    let mut claim = Claim::new().unwrap();
    let mut stage = claim.composer.stage();
    source.compose(&mut stage, &items);
    bytes_of(&mut stage)
}

fn bytes_of(stage: &mut Stage<'_>) -> Vec<u8> {
    let gather = stage.gather();
    let mut bytes: Vec<u8> = gather.staged.iter().flat_map(|w| w.to_ne_bytes()).collect();
    bytes.truncate(16 + gather.staged_bytes);
    bytes.drain(..16);
    gather.rest.iter().for_each(|p| bytes.extend_from_slice(p.bytes()));
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes
}

fn encoded(event: &Event<'_>, traits: &[u8], activity: Guid) -> Vec<u8> {
    encoded_with(event, traits, activity, &[])
}

fn encoded_with(event: &Event<'_>, traits: &[u8], activity: Guid, extras: &[Item<'_>]) -> Vec<u8> {
    let related = event.related.map(|g| g.to_bytes());
    let mut items = Vec::new();
    if !traits.is_empty() {
        items.push(Item { kind: ExtType::PROV_TRAITS, data: traits });
    }
    items.extend(event.metadata.map(|data| Item { kind: ExtType::EVENT_SCHEMA_TL, data }));
    items.extend(related.as_ref().map(|data| Item { kind: ExtType::RELATED_ACTIVITYID, data }));
    items.extend_from_slice(extras);
    let header = EventHeader {
        flags: event.flags,
        thread_id: 4711,
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
    let (mine, other) = (activity::create(), activity::create());
    activity::set(mine);
    let long: Vec<u8> = (0..3000u32).map(|i| i as u8).collect();
    for traits_len in [0, 5, 8, 70, 900] {
        let traits: &'static Traits = Box::leak(Box::new(Traits::new(&long[..traits_len])));
        let handle = Handle::claim(PROVIDER, (traits_len != 0).then_some(traits), None).unwrap();
        for metadata in [None, Some(&long[..0]), Some(&long[..13]), Some(&long[7..1200])] {
            for (activity, related) in [(None, None), (Some(&other), Some(&mine))] {
                for lengths in [&[][..], &[3], &[8, 4, 2], &[200], &[5, 64, 65, 1], &[16; 100]] {
                    let data: Vec<&[u8]> = lengths.iter().map(|n| &long[*n..2 * n]).collect();
                    let event =
                        Event { flags: 4, metadata, activity, related, ..Event::new(&descriptor, &data) };
                    let want = encoded(&event, &long[..traits_len], *activity.unwrap_or(&mine));
                    assert_eq!(composed(handle.slot(), &event), want, "{traits_len} {lengths:?}");
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
    let decoding: &'static Decoding = Box::leak(Box::new(Decoding::from_traits(&traits, PROVIDER).unwrap()));
    let kept: &'static Traits = Box::leak(Box::new(Traits::new(&traits)));
    let handle = Handle::claim(PROVIDER, None, None).unwrap();
    handle.slot().set_traits(Some(kept), Some(decoding));
    let descriptor = EventDescriptor { id: 7, ..EventDescriptor::default() };
    let record =
        composed(handle.slot(), &Event { metadata: Some(b"meta"), ..Event::new(&descriptor, &[b"data"]) });
    let (control, traits) = (PROVIDER.to_bytes(), traits);
    let items = [
        Item { kind: ExtType::CONTROL_GUID, data: &control },
        Item { kind: ExtType::PROV_TRAITS, data: &traits },
        Item { kind: ExtType::EVENT_SCHEMA_TL, data: b"meta" },
    ];
    let activity = activity::current();
    let header = EventHeader {
        thread_id: 4711,
        provider: decode,
        descriptor,
        activity,
        items: &items,
        ..EventHeader::default()
    };
    let mut want = Vec::new();
    header.encode(b"data", &mut want).unwrap();
    assert_eq!(record, want);
    assert!(Decoding::from_traits(TraitsBuilder::new("other").finish().unwrap(), PROVIDER).is_none());
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
        let traits: &'static Traits = Box::leak(Box::new(Traits::new(&stack[..traits_len])));
        let handle = Handle::claim(PROVIDER, (traits_len != 0).then_some(traits), None).unwrap();
        for (metadata, related) in [(None, None), (Some(&stack[..333]), Some(&related))] {
            for data in [&[][..], &[&stack[..5]], &blocks] {
                for (key, frames) in
                    [(None, Some(193)), (Some(key), None), (Some(key), Some(1)), (Some(key), Some(193))]
                {
                    let frames = frames.map(|count| &stack[..8 * count]);
                    let extras = Extras::new(key, frames);
                    let event = Event {
                        metadata,
                        activity: Some(&activity),
                        related,
                        ..Event::new(&descriptor, data)
                    };
                    let mut items = Vec::new();
                    items.extend(key.map(|_| Item { kind: ExtType::EVENT_KEY, data: &bytes }));
                    items.extend(frames.map(|data| Item { kind: ExtType::STACK_TRACE64, data }));
                    let want = encoded_with(&event, &stack[..traits_len], activity, &items);
                    assert_eq!(composed_with(handle.slot(), &event, &extras), want);
                    let plain = composed(handle.slot(), &event);
                    assert_eq!(plain.len() + extras.size(), want.len());
                    assert_eq!(plain, encoded(&event, &stack[..traits_len], activity), "linked to none");
                }
            }
        }
        assert!(handle.retire());
        handle.release();
    }
}

/// A session in this process that has a registration enabled.
struct Session {
    handle: Handle,
    memory: Memory,
}

impl Session {
    /// Uses an outlet that no other test of this crate uses.
    fn start(outlet: u8, traits: Option<&'static Traits>) -> Self {
        Client::get();
        let memory = Memory::open(outlet);
        let handle = Handle::claim(PROVIDER, traits, None).unwrap();
        let change = handle.slot().enable_session(outlet, memory.ticket, &EnableParams::default());
        assert_eq!(change.refusal(), None);
        Self { handle, memory }
    }

    /// Returns the arrived records, each padded to a multiple of eight bytes.
    fn arrived(&mut self) -> Vec<Vec<u8>> {
        let mut all: Vec<Vec<u8>> = self.memory.arrived().into_iter().map(|(_, bytes)| bytes).collect();
        all.iter_mut().for_each(|bytes| bytes.resize(bytes.len().next_multiple_of(8), 0));
        all
    }

    fn found(&self) -> ProviderRef {
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
fn write_as_macro(slot: &Slot, event: &Event<'_>, blocks: &[Block<'_>]) -> Result<(), WriteError> {
    match event.metadata {
        Some(metadata) if event.activity.is_none() => {
            write_described(slot, event.descriptor, metadata, Blocks::new(blocks))
        }
        _ => write(slot, &Event { blocks, ..*event }),
    }
}

/// Returns the event as a C program describes it, a TraceLogging event with the metadata in front.
fn described(traits: &[u8], event: &Event<'_>) -> Vec<DataDescriptor> {
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
    let (mine, other) = (activity::create(), activity::create());
    let before = activity::set(mine);
    let long: Vec<u8> = (0..3000u32).map(|i| i as u8).collect();
    let thread = thread::thread_id();
    for traits_len in [0, 5, 8, 70, 900] {
        let traits: &'static Traits = Box::leak(Box::new(Traits::new(&long[..traits_len])));
        let mut session = Session::start(60, (traits_len != 0).then_some(traits));
        let slot = session.handle.slot();
        for metadata in [None, Some(&long[..15]), Some(&long[..16]), Some(&long[..29]), Some(&long[7..1200])]
        {
            for activity in [None, Some(&other)] {
                for lengths in [&[][..], &[3], &[8, 4, 2], &[200], &[5, 64, 65, 1], &[16; 100], &[9; 128]] {
                    let data: Vec<&[u8]> = lengths.iter().map(|n| &long[*n..2 * n]).collect();
                    let blocks: Vec<Block<'_>> = data.iter().map(|bytes| Block::new(bytes)).collect();
                    let event = Event { metadata, activity, ..Event::new(&descriptor, &data) };
                    let mut want = composed(slot, &event);
                    want[8..12].copy_from_slice(&thread.to_le_bytes());
                    write(slot, &event).unwrap();
                    write_as_macro(slot, &event, &blocks).unwrap();
                    let described = described(&long[..traits_len], &event);
                    // A provider without traits has no types: there the metadata would be payload.
                    if (traits_len != 0 || metadata.is_none()) && described.len() <= MAX_BLOCKS {
                        // SAFETY: the blocks are made from slices that live on.
                        unsafe {
                            session.found().write_descriptors(&descriptor, 0, 0, activity, None, &described)
                        }
                        .unwrap();
                        let (d, a) =
                            (&raw const descriptor, activity.map_or(std::ptr::null(), std::ptr::from_ref));
                        let (count, first) = (described.len() as u32, described.as_ptr());
                        let raw = session.handle.to_raw();
                        // SAFETY: the same.
                        let went = unsafe { try_straight(raw, d, a, std::ptr::null(), count, first) };
                        let may_go = metadata.is_none_or(|m| m.len() >= SHORTEST_SCHEMA);
                        assert!(may_go || !went, "{traits_len} {lengths:?}");
                    }
                    let arrived = session.arrived();
                    assert!(arrived.len() >= 2);
                    assert!(arrived.iter().all(|record| *record == want), "{traits_len} {lengths:?}");
                }
            }
        }
        session.end();
    }
    activity::set(before);
}

#[test]
fn only_the_usual_event_of_one_session_takes_the_straight_path() {
    let mut session = Session::start(61, None);
    let (slot, raw) = (session.handle.slot(), session.handle.to_raw());
    let descriptor = EventDescriptor { id: 1, level: 3, ..EventDescriptor::default() };
    let payload = [DataDescriptor::new(b"payload")];
    let related = activity::create();
    let none = std::ptr::null();
    let goes = |raw, d: *const EventDescriptor, related, count, data| {
        // SAFETY: pointers are null, or to values that live on.
        unsafe { try_straight(raw, d, none, related, count, data) }
    };
    let (d, p) = (&raw const descriptor, payload.as_ptr());
    if !goes(raw, d, none, 1, p) {
        // A machine without restartable sequences.
        session.end();
        return;
    }
    assert_eq!(session.arrived().len(), 1);
    assert!(!goes(raw ^ 1 << 33, d, none, 1, p), "a stale handle");
    assert!(!goes(0, d, none, 1, p) && !goes(u64::MAX, d, none, 1, p), "no handle");
    assert!(!goes(raw, std::ptr::null(), none, 1, p), "no descriptor");
    assert!(!goes(raw, d, &raw const related, 1, p), "a related activity");
    assert!(!goes(raw, d, none, 129, p), "too many blocks");
    assert!(!goes(raw, d, none, 1, std::ptr::null()), "no blocks where there must be one");
    assert!(goes(raw, d, none, 0, std::ptr::null()) && session.arrived().len() == 1, "none are needed");
    let missing = [DataDescriptor { size: 1, ..DataDescriptor::default() }];
    assert!(!goes(raw, d, none, 1, missing.as_ptr()), "a size without an address");
    let ticket = slot.enable_of_outlet(61).unwrap().ticket;
    let asks = |params: &EnableParams| assert_eq!(slot.enable_session(61, ticket, params).refusal(), None);
    asks(&EnableParams { level: 2, ..EnableParams::default() });
    assert!(!goes(raw, d, none, 1, p), "a level that nobody wants");
    // As by a macro whose provider's words are not updated yet, and by a writer that checked before
    // the session changed.
    let block = [Block::new(b"payload")];
    write_as_macro(slot, &Event::new(&descriptor, &[]), &block).unwrap();
    write(slot, &Event::new(&descriptor, &[b"payload"])).unwrap();
    assert!(session.arrived().is_empty(), "the session is asked, whatever the caller saw");
    asks(&EnableParams { property: 1, ..EnableParams::default() });
    assert!(!goes(raw, d, none, 1, p), "a session that asks for more");
    asks(&EnableParams::default());
    assert!(goes(raw, d, none, 1, p));
    assert_eq!(session.arrived().len(), 1);
    slot.disable_sessions(u64::MAX);
    assert!(!goes(raw, d, none, 1, p), "nobody");
    assert!(session.arrived().is_empty());
    session.end();
}

#[test]
fn metadata_blocks_may_be_at_any_position() {
    let traits: &'static Traits = Box::leak(Box::new(Traits::new(b"\x06\0Name\0")));
    let mut session = Session::start(59, Some(traits));
    let descriptor = EventDescriptor { id: 8, ..EventDescriptor::default() };
    let long = [7; 100];
    let metadata = DataDescriptor::of_kind(1, b"sixteen bytes: 16");
    let [one, two, three] = [&b"one"[..], &long, b"three"].map(DataDescriptor::new);
    let data = [&b"one"[..], &long, b"three"];
    let mut want = composed(
        session.handle.slot(),
        &Event { metadata: Some(b"sixteen bytes: 16"), ..Event::new(&descriptor, &data) },
    );
    want[8..12].copy_from_slice(&thread::thread_id().to_le_bytes());
    for blocks in [
        [metadata, one, two, three],
        [one, metadata, two, three],
        [one, two, metadata, three],
        [one, two, three, metadata],
    ] {
        // SAFETY: the blocks are made from slices that live on.
        unsafe { session.found().write_descriptors(&descriptor, 0, 0, None, None, &blocks) }.unwrap();
        assert_eq!(session.arrived(), [&want[..]]);
    }
    session.end();
}

#[test]
fn exhausted_pool_is_a_counted_loss() {
    // In a separate process: other tests need the pool.
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "write::tests::with_an_empty_pool", "--ignored"]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
#[ignore = "takes the pool from other tests: another test runs it"]
fn with_an_empty_pool() {
    const KEY: u32 = traceweir_format::spec::enable::EVENT_ENABLE_PROPERTY_EVENT_KEY;
    let mut session = Session::start(58, None);
    let slot = session.handle.slot();
    let (descriptor, metadata) = (EventDescriptor::default(), [3; 900]);
    let related = activity::create();
    let small = Event::new(&descriptor, &[b"payload"]);
    let large = Event { metadata: Some(&metadata), related: Some(&related), ..small };
    let ticket = slot.enable_of_outlet(58).unwrap().ticket;
    let enable =
        |property| slot.enable_session(58, ticket, &EnableParams { property, ..EnableParams::default() });
    let claims = scratch::claim_all();
    assert!(claims.len() > 100);
    assert_eq!((write(slot, &small), write(slot, &large)), (Ok(()), Err(WriteError::NoRoom)));
    assert_eq!(session.memory.lost(), 1);
    enable(KEY);
    assert_eq!(write(slot, &small), Err(WriteError::NoRoom));
    assert_eq!(write_string(slot, 4, 0, &"x".repeat(300)), Err(WriteError::NoRoom));
    assert_eq!(session.memory.lost(), 3);
    drop(claims);
    assert_eq!((write(slot, &small), write(slot, &large)), (Ok(()), Ok(())));
    assert_eq!(session.memory.lost(), 3);
    session.end();
}
