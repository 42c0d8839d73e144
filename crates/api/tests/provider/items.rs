//! Extended data items that sessions request, as the file contains them. The session's owner adds
//! some, the library the others.

use std::hint::black_box;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use traceweir::controller::{EnableCode, EnableParams, SessionConfig, SessionRef};
use traceweir::provider::{ProviderRef, activity};
use traceweir::{Guid, PrivateSession, Provider, WriteError};
use traceweir_format::etl;
use traceweir_format::header::Record;
use traceweir_format::spec::enable::*;
use traceweir_format::spec::event::{
    EVENT_HEADER_FLAG_STRING_ONLY, EVENT_WRITE_FLAG_INPRIVATE, EVENT_WRITE_FLAG_NO_FAULTING, ExtType,
};

use crate::daemon::RealDaemon;
use crate::{INFORMATION, PROVIDER, Scenario, ScenarioRunner, event, file_config, until};

pub(crate) const SCENARIOS: &[Scenario] = &[
    ("all items", write_with_all_items),
    ("keys", write_with_event_keys),
    ("stacks", write_with_stacks),
    ("stacks that are too large", write_too_large_with_stack),
    ("items that are too large", write_too_large_with_sid),
    ("write one event", write_one_event),
];

const SID: u32 = EVENT_ENABLE_PROPERTY_SID;
const TS_ID: u32 = EVENT_ENABLE_PROPERTY_TS_ID;
const STACK: u32 = EVENT_ENABLE_PROPERTY_STACK_TRACE;
const PSM_KEY: u32 = EVENT_ENABLE_PROPERTY_PSM_KEY;
const START_KEY: u32 = EVENT_ENABLE_PROPERTY_PROCESS_START_KEY;
const EVENT_KEY: u32 = EVENT_ENABLE_PROPERTY_EVENT_KEY;
const CONTAINER: u32 = EVENT_ENABLE_PROPERTY_SOURCE_CONTAINER_TRACKING;
/// Property bits without a meaning.
const UNKNOWN: u32 = 0x0FFF_F000;

fn params_with(property: u32) -> EnableParams {
    EnableParams { property, ..EnableParams::default() }
}

fn start_session(folder: &Path, name: &str, property: u32) -> (PrivateSession, PathBuf) {
    let path = folder.join(format!("{name}.etl"));
    let session = PrivateSession::start(&file_config(name, path.clone())).unwrap();
    session.enable(PROVIDER, &params_with(property)).unwrap();
    (session, path)
}

/// Returns the records of [`PROVIDER`] in a file without defects.
pub(crate) fn read_records(path: &Path) -> Vec<Vec<u8>> {
    let trace = etl::Trace::open(std::fs::File::open(path).unwrap()).unwrap();
    assert!(trace.defects().is_empty(), "{:?}", trace.defects());
    let mut records = Vec::new();
    let mut events = trace.events();
    while let Some(record) = events.next().unwrap() {
        assert!(!record.has_damaged_items());
        if record.provider() == PROVIDER {
            records.push(record.bytes().to_vec());
        }
    }
    records
}

/// Returns the types and data of the extended data items of a record.
fn extended_items(record: &[u8]) -> Vec<(ExtType, Vec<u8>)> {
    Record::parse(record, 0).unwrap().items().map(|item| (item.kind, item.data.to_vec())).collect()
}

fn item_types(record: &[u8]) -> Vec<ExtType> {
    extended_items(record).into_iter().map(|(kind, _)| kind).collect()
}

fn item_data(record: &[u8], item_type: ExtType) -> Vec<u8> {
    extended_items(record).into_iter().find(|(kind, _)| *kind == item_type).unwrap().1
}

/// Returns whether a start key contains the start time and the id of a process. The test does not
/// know the upper 16 bits of the key.
fn is_start_key_of(key: u64, pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    // The start time, field 22 of `stat`: the 20th field after the name of the program.
    let ticks = stat.rsplit(')').next().unwrap().split_whitespace().nth(19).unwrap().parse::<u64>().unwrap();
    key & 0xFFFF_FFFF_FFFF == (ticks & 0xFFFF_FFFF) << 16 | u64::from(pid & 0xFFFF)
}

#[test]
fn requested_items_precede_items_of_the_event() {
    ScenarioRunner::new().run("all items");
}

fn write_with_all_items(folder: &Path) {
    let all_properties = SID | TS_ID | STACK | PSM_KEY | START_KEY | EVENT_KEY | CONTAINER | UNKNOWN;
    let (session, path) = start_session(folder, "all", all_properties);
    let provider = Provider::register_with_traits(PROVIDER, b"\x06\0abc\0", None).unwrap();
    let related = Guid::from_u128(5);
    provider.write(&event(1), &[b"payload"]).unwrap();
    // The metadata has its size (5), no tags, and the event name "a".
    provider.event(&event(2)).metadata(b"\x05\0\0a\0").related(&related).write(&[b"payload"]).unwrap();
    provider.write_string(INFORMATION, 0, "text").unwrap();
    assert_eq!(session.stop().unwrap().events, 3);
    let records = read_records(&path);
    assert_eq!(records.len(), 3);
    let traits = ExtType::PROV_TRAITS;
    let with_related = [traits, ExtType::EVENT_SCHEMA_TL, ExtType::RELATED_ACTIVITYID];
    for (record, event_items) in records.iter().zip([&[traits][..], &with_related, &[traits]]) {
        let is_always_available = |kind: &ExtType| !matches!(*kind, ExtType::PSM_KEY | ExtType::CONTAINER_ID);
        let types: Vec<ExtType> = item_types(record).into_iter().filter(is_always_available).collect();
        let leading = [ExtType::SID, ExtType::TS_ID, ExtType::PROCESS_START_KEY];
        assert_eq!(types, [&leading, event_items, &[ExtType::EVENT_KEY, ExtType::STACK_TRACE64]].concat());
        let uid = std::fs::metadata("/proc/self").unwrap().uid();
        // S-1-22-1-UID.
        let sid = [&[1, 2, 0, 0, 0, 0, 0, 22, 1, 0, 0, 0][..], &uid.to_le_bytes()].concat();
        assert_eq!(item_data(record, ExtType::SID), sid);
        let audit_session: u32 =
            std::fs::read_to_string("/proc/self/sessionid").unwrap().trim().parse().unwrap();
        assert_eq!(
            item_data(record, ExtType::TS_ID),
            if audit_session == u32::MAX { 0 } else { audit_session }.to_le_bytes()
        );
        let start_key = u64::from_le_bytes(item_data(record, ExtType::PROCESS_START_KEY).try_into().unwrap());
        assert!(is_start_key_of(start_key, std::process::id()), "{start_key:x}");
        let key = u64::from_le_bytes(item_data(record, ExtType::EVENT_KEY).try_into().unwrap());
        // The upper half of an event key is the lower half of the start key.
        assert_eq!(key >> 32, start_key & 0xFFFF_FFFF);
    }
    assert_eq!(Record::parse(&records[1], 0).unwrap().payload(), b"payload");
    assert_eq!(item_data(&records[1], ExtType::RELATED_ACTIVITYID), related.to_bytes());
    assert_eq!(item_data(&records[1], ExtType::EVENT_SCHEMA_TL), b"\x05\0\0a\0");
    assert_eq!(Record::parse(&records[2], 0).unwrap().payload(), b"t\0e\0x\0t\0\0\0");
    assert_eq!(
        Record::parse(&records[2], 0).unwrap().flags() & EVENT_HEADER_FLAG_STRING_ONLY,
        EVENT_HEADER_FLAG_STRING_ONLY
    );
    // Without the properties, the record has only the items of the event; unknown property bits
    // change nothing.
    let (session, path) = start_session(folder, "none", UNKNOWN);
    provider.write(&event(1), &[b"payload"]).unwrap();
    session.stop().unwrap();
    assert_eq!(item_types(&read_records(&path)[0]), [ExtType::PROV_TRAITS]);
}

#[test]
fn event_key_is_unique_and_equal_in_all_sessions() {
    ScenarioRunner::new().run("keys");
}

fn write_with_event_keys(folder: &Path) {
    let (first, first_path) = start_session(folder, "one", EVENT_KEY);
    let (second, second_path) = start_session(folder, "two", EVENT_KEY | START_KEY);
    let (third, third_path) = start_session(folder, "three", 0);
    let provider = Provider::register(PROVIDER, None).unwrap();
    for id in 0..100 {
        provider.write(&event(id), &[&[7; 33]]).unwrap();
    }
    for session in [first, second, third] {
        assert_eq!(session.stop().unwrap().events, 100);
    }
    let read_keys = |path: &Path| -> Vec<_> {
        read_records(path).iter().map(|record| item_data(record, ExtType::EVENT_KEY)).collect()
    };
    let mut first_keys = read_keys(&first_path);
    assert_eq!(first_keys, read_keys(&second_path));
    first_keys.sort();
    first_keys.dedup();
    assert_eq!(first_keys.len(), 100);
    assert!(
        read_records(&second_path)
            .iter()
            .all(|record| item_types(record) == [ExtType::PROCESS_START_KEY, ExtType::EVENT_KEY])
    );
    assert!(read_records(&third_path).iter().all(|record| item_types(record).is_empty()));
}

/// Returns whether an address lies in a function of at most 16,000 bytes. The limit is this high
/// because even a debug build inlines the start of every write.
fn is_in_function(address: u64, function: usize) -> bool {
    (function as u64..function as u64 + 16_000).contains(&address)
}

fn stack_frames(record: &[u8]) -> Vec<u64> {
    let stack = Record::parse(record, 0).unwrap().items().stack().unwrap();
    assert_eq!(stack.match_id, 0);
    stack.frames().collect()
}

/// Writes an event with each of the write functions.
#[inline(never)]
fn write_with_each_function(provider: &Provider) {
    let provider_ref: ProviderRef = provider.handle().provider().unwrap();
    provider.write(&event(1), &[b"one"]).unwrap();
    provider.write_transfer(&event(2), None, None, &[]).unwrap();
    provider.event(&event(3)).metadata(b"\x05\0\0a\0").write(&[]).unwrap();
    provider.event(&event(4)).exclude(1 << 63).flags(EVENT_WRITE_FLAG_NO_FAULTING).write(&[]).unwrap();
    provider.write_string(INFORMATION, 0, "five").unwrap();
    provider.write_string(INFORMATION, 0, &"six".repeat(1000)).unwrap();
    provider_ref.write(&event(7), &[]).unwrap();
    provider_ref
        .event(&event(8))
        .flags(EVENT_WRITE_FLAG_NO_FAULTING | EVENT_WRITE_FLAG_INPRIVATE)
        .write(&[])
        .unwrap();
    provider_ref.write_string(INFORMATION, 0, "nine").unwrap();
    black_box(());
}

#[inline(never)]
fn call_nested(provider: &Provider, depth: u32) {
    if depth == 0 {
        write_with_each_function(provider)
    } else {
        call_nested(provider, depth - 1)
    }
    black_box(());
}

#[test]
fn stack_begins_at_the_callers_frame() {
    ScenarioRunner::new().run("stacks");
}

fn write_with_stacks(folder: &Path) {
    let (session, path) = start_session(folder, "stacks", STACK);
    let provider = Provider::register(PROVIDER, None).unwrap();
    for depth in [3, 300] {
        std::thread::scope(|scope| {
            scope.spawn(|| call_nested(&provider, depth));
        });
    }
    session.stop().unwrap();
    let records = read_records(&path);
    assert_eq!(records.len(), 18);
    for (index, record) in records.iter().enumerate() {
        let frames = stack_frames(record);
        assert!(
            is_in_function(frames[0], write_with_each_function as fn(&Provider) as usize),
            "{index}: {frames:x?}"
        );
        for frame in &frames[1..5] {
            assert!(
                is_in_function(*frame, call_nested as fn(&Provider, u32) as usize),
                "{index}: {frames:x?}"
            );
        }
        // Nine events at depth 3, then nine at depth 300, where the maximum of 192 frames applies.
        if index < 9 {
            assert!((6..100).contains(&frames.len()), "{}", frames.len());
        } else {
            assert_eq!(frames.len(), 192);
        }
    }
}

#[test]
fn event_too_large_with_its_stack_is_counted_in_that_session() {
    ScenarioRunner::new().run("stacks that are too large");
}

fn write_too_large_with_stack(folder: &Path) {
    let config = SessionConfig { buffer_size: 128, ..file_config("large", folder.join("large.etl")) };
    let session = PrivateSession::start(&config).unwrap();
    session.enable(PROVIDER, &params_with(STACK)).unwrap();
    let provider = Provider::register(PROVIDER, None).unwrap();
    // The largest payload of an event without a stack.
    let largest = vec![1; 65535 - 80];
    let fits = vec![2; 60_000];
    assert_eq!(provider.write(&event(1), &[&largest]), Err(WriteError::MoreData));
    assert_eq!(provider.write(&event(2), &[&fits]), Ok(()));
    let end = session.stop().unwrap();
    assert_eq!((end.events, end.events_lost), (1, 1));
}

#[test]
fn event_too_large_with_owner_items_is_counted_as_lost() {
    ScenarioRunner::new().run("items that are too large");
}

/// The item of a SID takes 24 bytes: 16 of SID after a header of 8. The event header takes 80
/// bytes, the header of a buffer 72.
fn write_too_large_with_sid(folder: &Path) {
    for (buffer_size, max_record_bytes) in [(128, 65535), (4, 4096 - 72)] {
        let path = folder.join(format!("{buffer_size}.etl"));
        let session =
            PrivateSession::start(&SessionConfig { buffer_size, ..file_config("sid", path.clone()) });
        let session = session.unwrap();
        session.enable(PROVIDER, &params_with(SID)).unwrap();
        let provider = Provider::register(PROVIDER, None).unwrap();
        let payload = vec![3; max_record_bytes];
        for length in [
            max_record_bytes - 80 - 24,
            max_record_bytes - 80 - 24 + 1,
            max_record_bytes - 80,
            max_record_bytes - 80 - 24,
        ] {
            assert_eq!(provider.write(&event(1), &[&payload[..length]]), Ok(()), "{length}");
        }
        let end = session.stop().unwrap();
        assert_eq!((end.events, end.events_lost, end.lost_by_cause.no_room), (2, 2, 2), "{buffer_size}");
        for record in read_records(&path) {
            assert_eq!((record.len(), item_types(&record)), (max_record_bytes, vec![ExtType::SID]));
        }
    }
}

fn write_one_event(_: &Path) {
    let provider = Provider::register(PROVIDER, None).unwrap();
    until("the provider is enabled", || provider.enabled(INFORMATION, 0));
    activity::set(Guid::from_u128(9));
    provider.write(&event(1), &[&std::process::id().to_le_bytes()]).unwrap();
}

#[test]
fn daemon_records_user_and_start_key_of_the_writer() {
    let runner = ScenarioRunner::new();
    let mut daemon = RealDaemon::start(&runner.runtime());
    let controller = &mut daemon.controller;
    let (path, session) = (runner.path("writer.etl"), SessionRef::Name("writer".into()));
    controller.start(&file_config("writer", path.clone())).unwrap();
    let properties = SID | TS_ID | PSM_KEY | START_KEY | EVENT_KEY | CONTAINER;
    controller.enable(&session, PROVIDER, EnableCode::Enable, &params_with(properties), 0).unwrap();
    let child = runner.spawn("write one event");
    let pid = child.id();
    let stat = format!("/proc/{pid}/stat");
    let stat = std::fs::read_to_string(stat).unwrap();
    child.assert_success();
    assert_eq!(controller.stop(&session).unwrap().events, 1);
    let records = read_records(&path);
    let [record] = &records[..] else { panic!("{} records", records.len()) };
    let uid = std::fs::metadata("/proc/self").unwrap().uid();
    assert_eq!(item_data(record, ExtType::SID)[12..], uid.to_le_bytes());
    let ticks: u64 = stat.rsplit(')').next().unwrap().split_whitespace().nth(19).unwrap().parse().unwrap();
    let start_key = u64::from_le_bytes(item_data(record, ExtType::PROCESS_START_KEY).try_into().unwrap());
    assert_eq!(start_key & 0xFFFF_FFFF_FFFF, (ticks & 0xFFFF_FFFF) << 16 | u64::from(pid & 0xFFFF));
    let key = u64::from_le_bytes(item_data(record, ExtType::EVENT_KEY).try_into().unwrap());
    assert_eq!(key >> 32, start_key & 0xFFFF_FFFF);
    let parsed = Record::parse(record, 0).unwrap();
    assert_eq!((parsed.process_id(), parsed.activity()), (pid, Some(Guid::from_u128(9))));
    assert_eq!(parsed.payload(), pid.to_le_bytes());
}
