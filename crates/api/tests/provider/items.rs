//! Extended data items that sessions ask for, from the session's owner and from the library, as
//! they are in the file.

use std::hint::black_box;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use traceweir::controller::{EnableCode, EnableParams, SessionConfig, SessionRef};
use traceweir::provider::{ProviderRef, activity};
use traceweir::{Guid, PrivateSession, Provider, WriteError};
use traceweir_format::etl;
use traceweir_format::header::Record;

use crate::daemon::RealDaemon;
use crate::{PROVIDER, Scenario, Stage, event, sequential, until};

pub(crate) const SCENARIOS: &[Scenario] = &[
    ("all items", all_items),
    ("keys", keys),
    ("stacks", stacks),
    ("stacks that are too large", stacks_that_are_too_large),
    ("items that are too large", items_that_are_too_large),
    ("write one", write_one),
];

const SID: u32 = 0x1;
const TS_ID: u32 = 0x2;
const STACK: u32 = 0x4;
const PSM_KEY: u32 = 0x8;
const START_KEY: u32 = 0x80;
const EVENT_KEY: u32 = 0x100;
const CONTAINER: u32 = 0x800;
/// Bits without a meaning.
const UNKNOWN: u32 = 0x0FFF_F000;

fn with(property: u32) -> EnableParams {
    EnableParams { property, ..EnableParams::default() }
}

fn start(folder: &Path, name: &str, property: u32) -> (PrivateSession, PathBuf) {
    let path = folder.join(format!("{name}.etl"));
    let session = PrivateSession::start(&sequential(name, path.clone())).unwrap();
    session.enable(PROVIDER, &with(property)).unwrap();
    (session, path)
}

/// Returns the records of [`PROVIDER`] in a file without defects.
pub(crate) fn records(path: &Path) -> Vec<Vec<u8>> {
    let trace = etl::Trace::open(std::fs::File::open(path).unwrap()).unwrap();
    assert!(trace.defects().is_empty(), "{:?}", trace.defects());
    let mut found = Vec::new();
    let mut events = trace.events();
    while let Some(record) = events.next().unwrap() {
        assert!(!record.items_damaged());
        if record.provider() == PROVIDER {
            found.push(record.bytes().to_vec());
        }
    }
    found
}

/// Returns the types and data of the extended data items of a record.
fn items(record: &[u8]) -> Vec<(u16, Vec<u8>)> {
    Record::parse(record, 0).unwrap().items().map(|item| (item.kind.0, item.data.to_vec())).collect()
}

fn kinds(record: &[u8]) -> Vec<u16> {
    items(record).into_iter().map(|(kind, _)| kind).collect()
}

fn data_of(record: &[u8], wanted: u16) -> Vec<u8> {
    items(record).into_iter().find(|(kind, _)| *kind == wanted).unwrap().1
}

/// Compares the parts of a start key that the test knows.
fn is_start_key_of(key: u64, pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let ticks = stat.rsplit(')').next().unwrap().split_whitespace().nth(19).unwrap().parse::<u64>().unwrap();
    key & 0xFFFF_FFFF_FFFF == (ticks & 0xFFFF_FFFF) << 16 | u64::from(pid & 0xFFFF)
}

#[test]
fn requested_items_precede_items_of_the_event() {
    Stage::new().run("all items");
}

fn all_items(folder: &Path) {
    let all = SID | TS_ID | STACK | PSM_KEY | START_KEY | EVENT_KEY | CONTAINER | UNKNOWN;
    let (session, path) = start(folder, "all", all);
    let provider = Provider::register_with_traits(PROVIDER, b"\x06\0abc\0", None).unwrap();
    let related = Guid::from_u128(5);
    provider.write(&event(1), &[b"payload"]).unwrap();
    provider.event(&event(2)).metadata(b"\x05\0\0a\0").related(&related).write(&[b"payload"]).unwrap();
    provider.write_string(4, 0, "text").unwrap();
    assert_eq!(session.stop().unwrap().events, 3);
    let found = records(&path);
    assert_eq!(found.len(), 3);
    for (record, own) in found.iter().zip([&[12][..], &[12, 11, 1], &[12]]) {
        let optional = |kind: &u16| !matches!(kind, 9 | 16);
        let kinds: Vec<u16> = kinds(record).into_iter().filter(optional).collect();
        assert_eq!(kinds, [&[2, 3, 13], own, &[10, 6]].concat());
        let uid = std::fs::metadata("/proc/self").unwrap().uid();
        let sid = [&[1, 2, 0, 0, 0, 0, 0, 22, 1, 0, 0, 0][..], &uid.to_le_bytes()].concat();
        assert_eq!(data_of(record, 2), sid);
        let audit: u32 = std::fs::read_to_string("/proc/self/sessionid").unwrap().trim().parse().unwrap();
        assert_eq!(data_of(record, 3), if audit == u32::MAX { 0 } else { audit }.to_le_bytes());
        let start_key = u64::from_le_bytes(data_of(record, 13).try_into().unwrap());
        assert!(is_start_key_of(start_key, std::process::id()), "{start_key:x}");
        let key = u64::from_le_bytes(data_of(record, 10).try_into().unwrap());
        assert_eq!(key >> 32, start_key & 0xFFFF_FFFF);
    }
    assert_eq!(Record::parse(&found[1], 0).unwrap().payload(), b"payload");
    assert_eq!(data_of(&found[1], 1), related.to_bytes());
    assert_eq!(data_of(&found[1], 11), b"\x05\0\0a\0");
    assert_eq!(Record::parse(&found[2], 0).unwrap().payload(), b"t\0e\0x\0t\0\0\0");
    assert_eq!(Record::parse(&found[2], 0).unwrap().flags() & 4, 4, "string only");
    // Without the properties the file has the plain bytes, and unknown property bits change
    // nothing.
    let (session, path) = start(folder, "none", UNKNOWN);
    provider.write(&event(1), &[b"payload"]).unwrap();
    session.stop().unwrap();
    assert_eq!(kinds(&records(&path)[0]), [12]);
}

#[test]
fn event_key_is_unique_and_equal_in_all_sessions() {
    Stage::new().run("keys");
}

fn keys(folder: &Path) {
    let (first, one) = start(folder, "one", EVENT_KEY);
    let (second, two) = start(folder, "two", EVENT_KEY | START_KEY);
    let (third, three) = start(folder, "three", 0);
    let provider = Provider::register(PROVIDER, None).unwrap();
    for id in 0..100 {
        provider.write(&event(id), &[&[7; 33]]).unwrap();
    }
    for session in [first, second, third] {
        assert_eq!(session.stop().unwrap().events, 100);
    }
    let keys = |path: &Path| -> Vec<_> { records(path).iter().map(|r| data_of(r, 10)).collect() };
    let mut of_one = keys(&one);
    assert_eq!(of_one, keys(&two));
    of_one.sort();
    of_one.dedup();
    assert_eq!(of_one.len(), 100);
    assert!(records(&two).iter().all(|record| kinds(record) == [13, 10]));
    assert!(records(&three).iter().all(|record| kinds(record).is_empty()));
}

/// Returns whether an address lies in a function, assuming functions of at most 16,000 bytes: a
/// debug build inlines the start of every write.
fn is_in(address: u64, function: usize) -> bool {
    (function as u64..function as u64 + 16_000).contains(&address)
}

fn stack_of(record: &[u8]) -> Vec<u64> {
    let stack = Record::parse(record, 0).unwrap().items().stack().unwrap();
    assert_eq!(stack.match_id, 0);
    stack.frames().collect()
}

/// Writes an event with each of the write functions.
#[inline(never)]
fn write_with_each_function(provider: &Provider) {
    let found: ProviderRef = provider.handle().provider().unwrap();
    provider.write(&event(1), &[b"one"]).unwrap();
    provider.write_transfer(&event(2), None, None, &[]).unwrap();
    provider.event(&event(3)).metadata(b"\x05\0\0a\0").write(&[]).unwrap();
    provider.event(&event(4)).exclude(1 << 63).flags(1).write(&[]).unwrap();
    provider.write_string(4, 0, "five").unwrap();
    provider.write_string(4, 0, &"six".repeat(1000)).unwrap();
    found.write(&event(7), &[]).unwrap();
    found.event(&event(8)).flags(3).write(&[]).unwrap();
    found.write_string(4, 0, "nine").unwrap();
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
    Stage::new().run("stacks");
}

fn stacks(folder: &Path) {
    let (session, path) = start(folder, "stacks", STACK);
    let provider = Provider::register(PROVIDER, None).unwrap();
    for depth in [3, 300] {
        std::thread::scope(|scope| {
            scope.spawn(|| call_nested(&provider, depth));
        });
    }
    session.stop().unwrap();
    let found = records(&path);
    assert_eq!(found.len(), 18);
    for (index, record) in found.iter().enumerate() {
        let frames = stack_of(record);
        assert!(is_in(frames[0], write_with_each_function as fn(&Provider) as usize), "{index}: {frames:x?}");
        for frame in &frames[1..5] {
            assert!(is_in(*frame, call_nested as fn(&Provider, u32) as usize), "{index}: {frames:x?}");
        }
        if index < 9 {
            assert!((6..100).contains(&frames.len()), "{}", frames.len());
        } else {
            assert_eq!(frames.len(), 192);
        }
    }
}

#[test]
fn event_too_large_with_its_stack_is_counted_in_that_session() {
    Stage::new().run("stacks that are too large");
}

fn stacks_that_are_too_large(folder: &Path) {
    let config = SessionConfig { buffer_size: 128, ..sequential("large", folder.join("large.etl")) };
    let session = PrivateSession::start(&config).unwrap();
    session.enable(PROVIDER, &with(STACK)).unwrap();
    let provider = Provider::register(PROVIDER, None).unwrap();
    let largest = vec![1; 65535 - 80];
    let fits = vec![2; 60_000];
    assert_eq!(provider.write(&event(1), &[&largest]), Err(WriteError::MoreData));
    assert_eq!(provider.write(&event(2), &[&fits]), Ok(()));
    let end = session.stop().unwrap();
    assert_eq!((end.events, end.events_lost), (1, 1));
}

#[test]
fn event_too_large_with_owner_items_is_counted_as_lost() {
    Stage::new().run("items that are too large");
}

/// The item of a SID takes 24 bytes: 16 of SID after a header of 8.
fn items_that_are_too_large(folder: &Path) {
    for (buffer_size, most) in [(128, 65535), (4, 4096 - 72)] {
        let path = folder.join(format!("{buffer_size}.etl"));
        let session =
            PrivateSession::start(&SessionConfig { buffer_size, ..sequential("sid", path.clone()) });
        let session = session.unwrap();
        session.enable(PROVIDER, &with(SID)).unwrap();
        let provider = Provider::register(PROVIDER, None).unwrap();
        let payload = vec![3; most];
        for length in [most - 80 - 24, most - 80 - 24 + 1, most - 80, most - 80 - 24] {
            assert_eq!(provider.write(&event(1), &[&payload[..length]]), Ok(()), "{length}");
        }
        let end = session.stop().unwrap();
        assert_eq!((end.events, end.events_lost, end.lost_by_cause.no_room), (2, 2, 2), "{buffer_size}");
        for record in records(&path) {
            assert_eq!((record.len(), kinds(&record)), (most, vec![2]));
        }
    }
}

fn write_one(_: &Path) {
    let provider = Provider::register(PROVIDER, None).unwrap();
    until("the session", || provider.enabled(4, 0));
    activity::set(Guid::from_u128(9));
    provider.write(&event(1), &[&std::process::id().to_le_bytes()]).unwrap();
}

#[test]
fn daemon_records_user_and_start_key_of_the_writer() {
    let stage = Stage::new();
    let mut daemon = RealDaemon::start(&stage.runtime());
    let controller = &mut daemon.controller;
    let (path, session) = (stage.path("who.etl"), SessionRef::Name("who".into()));
    controller.start(&sequential("who", path.clone())).unwrap();
    let all = SID | TS_ID | PSM_KEY | START_KEY | EVENT_KEY | CONTAINER;
    controller.enable(&session, PROVIDER, EnableCode::Enable, &with(all), 0).unwrap();
    let child = stage.spawn("write one");
    let pid = child.id();
    let stat = format!("/proc/{pid}/stat");
    let ticks = std::fs::read_to_string(stat).unwrap();
    child.succeeded();
    assert_eq!(controller.stop(&session).unwrap().events, 1);
    let found = records(&path);
    let [record] = &found[..] else { panic!("{} records", found.len()) };
    let uid = std::fs::metadata("/proc/self").unwrap().uid();
    assert_eq!(data_of(record, 2)[12..], uid.to_le_bytes());
    let ticks: u64 = ticks.rsplit(')').next().unwrap().split_whitespace().nth(19).unwrap().parse().unwrap();
    let start_key = u64::from_le_bytes(data_of(record, 13).try_into().unwrap());
    assert_eq!(start_key & 0xFFFF_FFFF_FFFF, (ticks & 0xFFFF_FFFF) << 16 | u64::from(pid & 0xFFFF));
    let key = u64::from_le_bytes(data_of(record, 10).try_into().unwrap());
    assert_eq!(key >> 32, start_key & 0xFFFF_FFFF);
    let view = Record::parse(record, 0).unwrap();
    assert_eq!((view.process_id(), view.activity()), (pid, Some(Guid::from_u128(9))));
    assert_eq!(view.payload(), pid.to_le_bytes());
}
