//! Rules for EnableProperty: the extended data items that events get, and the events that are
//! excluded. `rule.rs` explains the rows.

use std::os::unix::fs::MetadataExt;

use traceweir::controller::{EnableParams, SessionConfig};
use traceweir::{Provider, WriteError};
use traceweir_format::spec::event::{EVENT_WRITE_FLAG_INPRIVATE, ExtType};

use crate::helpers::{Fixture, RecordedEvent, event};
use crate::processes::OtherProcess;
use crate::rule::{Rule, rule};

#[rustfmt::skip]
pub(crate) const RULES: &[Rule] = &[
    rule!("controller 6.1 #0x001", P, "SID: item 2 is S-1-22-1-uid", sid_item_has_the_user_id),
    rule!("controller 6.1 #0x002", P, "TS_ID: item 3 is the id of the audit session, or 0",
        ts_id_item_has_the_audit_session),
    rule!("controller 6.1 #0x004", D, "STACK_TRACE: item 6 has the frames of the writer",
        stack_item_has_the_frames_of_the_writer),
    rule!("api 4", D, "a stack has at most 192 frames; the outermost are dropped", stack_item_has_at_most_192_frames),
    rule!("controller 6.1 #0x004", D, "an event that its stack makes larger than 64 KiB → 234, and it is counted as lost",
        event_too_large_with_its_stack_is_lost),
    rule!("controller 6.1 #0x008", P, "PSM_KEY: item 9 names the unit or application",
        psm_key_item_names_the_unit),
    rule!("controller 6.1 #0x080", D, "PROCESS_START_KEY: item 13 is the same in all events of a process and differs between processes",
        process_start_key_identifies_the_process),
    rule!("controller 6.1 #0x100", D, "EVENT_KEY: item 10 is the same in all sessions that get the event, and differs between events",
        event_key_identifies_the_event),
    rule!("project", P, "the high half of an event key is the low half of the process start key",
        event_key_contains_the_process_start_key),
    rule!("controller 6.1 #0x200", D, "EXCLUDE_INPRIVATE drops INPRIVATE events",
        exclude_inprivate_drops_in_private_events),
    rule!("controller 6.1 #0x800", P, "SOURCE_CONTAINER_TRACKING: item 16 names the container",
        container_item_names_the_container),
    rule!("controller 6.1", D, "without properties an event has none of these items",
        events_have_no_unrequested_items),
];

const SID: u32 = 0x1;
const TS_ID: u32 = 0x2;
const STACK: u32 = 0x4;
const PSM_KEY: u32 = 0x8;
const START_KEY: u32 = 0x80;
const EVENT_KEY: u32 = 0x100;
const EXCLUDE_INPRIVATE: u32 = 0x200;
const CONTAINER: u32 = 0x800;

fn params_with(property: u32) -> EnableParams {
    EnableParams { property, ..EnableParams::default() }
}

fn find_item(seen: &RecordedEvent, kind: ExtType) -> Option<Vec<u8>> {
    seen.items.iter().find(|(item_kind, _)| *item_kind == kind).map(|(_, data)| data.clone())
}

/// Writes an event to a session that enables this property. Returns its item of this kind, and
/// fails if the event has other items.
fn item_of_one_event(fixture: &Fixture, property: u32, kind: ExtType) -> Option<Vec<u8>> {
    let (session, provider, _guid) = fixture.start_with_provider(&params_with(property));
    provider.write(&event(1), &[b"data"]).unwrap();
    let seen = fixture.stop_and_read(session);
    assert_eq!((seen.len(), &seen[0].payload[..]), (1, &b"data"[..]));
    assert!(
        seen[0].items.iter().all(|(item_kind, _)| *item_kind == kind),
        "the event has other items: {:?}",
        seen[0].items
    );
    find_item(&seen[0], kind)
}

fn sid_item_has_the_user_id(fixture: &Fixture) {
    let user = std::fs::metadata("/proc/self").unwrap().uid().to_le_bytes();
    // Revision 1, two subauthorities, authority 22 in six bytes, and the subauthorities: 1 and uid.
    let sid = [&[1, 2, 0, 0, 0, 0, 0, 22, 1, 0, 0, 0][..], &user].concat();
    assert_eq!(item_of_one_event(fixture, SID, ExtType::SID), Some(sid));
}

fn ts_id_item_has_the_audit_session(fixture: &Fixture) {
    let audit_session =
        std::fs::read_to_string("/proc/self/sessionid").ok().and_then(|text| text.trim().parse().ok());
    let audit_session: u32 = audit_session.filter(|id| *id != u32::MAX).unwrap_or(0);
    assert_eq!(item_of_one_event(fixture, TS_ID, ExtType::TS_ID), Some(audit_session.to_le_bytes().to_vec()));
}

#[inline(never)]
fn write_deep(provider: &Provider, depth: u32) {
    match depth {
        0 => provider.write(&event(1), &[]).unwrap(),
        _ => write_deep(provider, depth - 1),
    }
    // Work after the call keeps the compiler from replacing the calls with a loop.
    std::hint::black_box(());
}

/// Returns the frames of an event written from `depth` nested calls.
fn recorded_frames(fixture: &Fixture, depth: u32) -> Vec<u64> {
    let (session, provider, _guid) = fixture.start_with_provider(&params_with(STACK));
    write_deep(&provider, depth);
    let seen = fixture.stop_and_read(session);
    let stack = find_item(&seen[0], ExtType::STACK_TRACE64).expect("the event has no stack");
    let words: Vec<u64> = stack.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
    assert_eq!(words[0], 0, "the stack continues in another event");
    words[1..].to_vec()
}

fn stack_item_has_the_frames_of_the_writer(fixture: &Fixture) {
    let frames = recorded_frames(fixture, 5);
    // The first frame is in the innermost call. Each of the other five calls has a frame at its
    // nested call.
    let nested_call = frames[1];
    // Addresses in `write_deep` are less than 8,000 bytes apart.
    let is_innermost = |frame: u64| frame != nested_call && frame.abs_diff(nested_call) < 8_000;
    assert!(is_innermost(frames[0]), "{frames:x?}");
    assert_eq!(frames[1..].iter().take_while(|frame| **frame == nested_call).count(), 5, "{frames:x?}");
    assert!(frames.len() > 6, "the callers of the writer are missing");
}

fn stack_item_has_at_most_192_frames(fixture: &Fixture) {
    let frames = recorded_frames(fixture, 400);
    assert_eq!(frames.len(), 192);
    assert!(
        frames.iter().all(|frame| frame.abs_diff(frames[0]) < 8_000),
        "the frames are not those nearest to the writer"
    );
}

fn event_too_large_with_its_stack_is_lost(fixture: &Fixture) {
    let (session, provider, _guid) = fixture.start_config_with_provider(
        &SessionConfig { buffer_size: 128, ..fixture.config() },
        &params_with(STACK),
    );
    // The header of an event has 80 bytes.
    let largest = vec![1; 65_535 - 80];
    assert_eq!(provider.write(&event(1), &[&largest]), Err(WriteError::MoreData));
    assert_eq!(provider.write(&event(2), &[&largest[..60_000]]), Ok(()));
    let end = fixture.stop(session);
    assert_eq!((end.events, end.events_lost), (1, 1));
}

/// Returns the names in the control groups of this process.
fn control_group_names() -> Vec<String> {
    let text = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let names = text.lines().filter_map(|line| line.splitn(3, ':').nth(2)).flat_map(|path| path.split('/'));
    names.map(str::to_owned).collect()
}

fn psm_key_item_names_the_unit(fixture: &Fixture) {
    let endings = [".service", ".scope", ".socket", ".mount", ".swap"];
    let has_unit =
        control_group_names().iter().any(|name| endings.iter().any(|ending| name.ends_with(ending)));
    let key = item_of_one_event(fixture, PSM_KEY, ExtType::PSM_KEY);
    assert_eq!(key.is_some(), has_unit, "{:?}", control_group_names());
    assert!(
        key.is_none_or(|text| text.len() > 2 && text.ends_with(&[0, 0])),
        "the key is not NUL-terminated text"
    );
}

fn container_item_names_the_container(fixture: &Fixture) {
    let id = item_of_one_event(fixture, CONTAINER, ExtType::CONTAINER_ID);
    let is_in_group_name =
        |id: &[u8]| control_group_names().iter().any(|name| name.contains(&*String::from_utf8_lossy(id)));
    assert!(id.as_deref().is_none_or(is_in_group_name), "{id:?} is not in {:?}", control_group_names());
    assert!(id.is_some() || !control_group_names().iter().any(|name| name.starts_with("docker-")));
}

fn process_start_key_identifies_the_process(fixture: &Fixture) {
    let (session, provider, guid) = fixture.start_with_provider(&params_with(START_KEY));
    let mut other_process = OtherProcess::start(guid, None);
    for id in [1, 2] {
        provider.write(&event(id), &[]).unwrap();
        other_process.write(u8::try_from(id).unwrap());
    }
    let seen = fixture.stop_and_read(session);
    assert_eq!(seen.len(), 4);
    let keys = |pid: u32| -> Vec<_> {
        seen.iter()
            .filter(|event| event.process == pid)
            .map(|event| find_item(event, ExtType::PROCESS_START_KEY))
            .collect()
    };
    let (own_keys, other_keys) = (keys(std::process::id()), keys(other_process.id()));
    assert!(own_keys[0].as_ref().is_some_and(|key| key.len() == 8), "the key is invalid: {own_keys:?}");
    assert_eq!(own_keys[0], own_keys[1]);
    assert!(other_keys[0].is_some() && other_keys[0] == other_keys[1], "keys differ: {other_keys:?}");
    assert_ne!(other_keys[0], own_keys[0]);
}

fn event_key_identifies_the_event(fixture: &Fixture) {
    let (first, provider, guid) = fixture.start_with_provider(&params_with(EVENT_KEY));
    let second = fixture.start(&fixture.config());
    fixture.enable(&second, guid, &params_with(EVENT_KEY | SID));
    for id in 0..50 {
        provider.write(&event(id), &[]).unwrap();
    }
    let keys = |seen: Vec<RecordedEvent>| -> Vec<Vec<u8>> {
        seen.iter().map(|event| find_item(event, ExtType::EVENT_KEY).expect("the event has no key")).collect()
    };
    let (mut first_keys, second_keys) =
        (keys(fixture.stop_and_read(first)), keys(fixture.stop_and_read(second)));
    assert_eq!(first_keys, second_keys);
    first_keys.sort();
    first_keys.dedup();
    assert_eq!(first_keys.len(), 50);
}

fn event_key_contains_the_process_start_key(fixture: &Fixture) {
    let (session, provider, _guid) = fixture.start_with_provider(&params_with(EVENT_KEY | START_KEY));
    provider.write(&event(1), &[]).unwrap();
    let seen = fixture.stop_and_read(session);
    let number = |kind| u64::from_le_bytes(find_item(&seen[0], kind).unwrap().try_into().unwrap());
    assert_eq!(number(ExtType::EVENT_KEY) >> 32, number(ExtType::PROCESS_START_KEY) & 0xFFFF_FFFF);
}

fn exclude_inprivate_drops_in_private_events(fixture: &Fixture) {
    let (strict, provider, guid) = fixture.start_with_provider(&params_with(EXCLUDE_INPRIVATE));
    let default = fixture.start(&fixture.config());
    fixture.enable(&default, guid, &EnableParams::default());
    provider.event(&event(1)).flags(EVENT_WRITE_FLAG_INPRIVATE).write(&[]).unwrap();
    provider.write(&event(2), &[]).unwrap();
    let ids = |seen: Vec<RecordedEvent>| seen.iter().map(|event| event.descriptor.id).collect::<Vec<_>>();
    assert_eq!(
        (ids(fixture.stop_and_read(strict)), ids(fixture.stop_and_read(default))),
        (vec![2], vec![1, 2])
    );
}

fn events_have_no_unrequested_items(fixture: &Fixture) {
    let (session, provider, _guid) = fixture.start_with_provider(&params_with(0));
    provider.write(&event(1), &[]).unwrap();
    assert_eq!(fixture.stop_and_read(session)[0].items, []);
}
