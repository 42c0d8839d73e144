//! Writes to several sessions at once, excluded sessions, and size limits of events.

use std::path::Path;

use traceweir::controller::{EnableCode, EnableParams, SessionConfig};
use traceweir::provider::MAX_BLOCKS;
use traceweir::{PrivateSession, Provider, WriteError};
use traceweir_format::spec::enable::EVENT_ENABLE_PROPERTY_EXCLUDE_INPRIVATE;
use traceweir_format::spec::event::{
    EVENT_HEADER_FLAG_STRING_ONLY, EVENT_WRITE_FLAG_INPRIVATE, EVENT_WRITE_FLAG_NO_FAULTING,
};
use traceweir_transport::abi::{Layout, RegionParams};
use traceweir_transport::message::{Message, PROPERTY_INDEPENDENT};

use crate::daemon::{ProcessConnection, listen, region_params};
use crate::items::read_records;
use crate::{
    INFORMATION, PROVIDER, Scenario, ScenarioRunner, all_events, event, file_config, set_mark, wait_for_mark,
};

/// Bytes of an event header.
const HEADER_BYTES: usize = 80;

pub(crate) const SCENARIOS: &[Scenario] = &[
    ("exclude sessions", exclude_sessions),
    ("write largest events", write_largest_events),
    ("write longest strings", write_longest_strings),
    ("three regions", write_to_three_regions),
];

#[test]
fn write_ex_excludes_sessions_by_mask_and_by_inprivate_flag() {
    ScenarioRunner::new().run("exclude sessions");
}

fn exclude_sessions(folder: &Path) {
    let provider = Provider::register(PROVIDER, None).unwrap();
    let write_ex = |exclude, flags| provider.event(&event(1)).exclude(exclude).flags(flags).write(&[b"x"]);
    assert_eq!(write_ex(u64::MAX, u32::MAX), Ok(()), "arguments of a disabled event were checked");
    let start = |name: &str, property| {
        let session = PrivateSession::start(&file_config(name, folder.join(name))).unwrap();
        session.enable(PROVIDER, &EnableParams { property, ..all_events() }).unwrap();
        session
    };
    let (first, second) = (start("first", 0), start("second", EVENT_ENABLE_PROPERTY_EXCLUDE_INPRIVATE));
    let event_counts = |first: &PrivateSession, second: &PrivateSession| {
        (first.flush(None).unwrap().events, second.flush(None).unwrap().events)
    };
    // Each session gets the lowest free bit: the first 0b01, the second 0b10. The columns are the
    // excluded sessions, the flags, and the events that each session has recorded so far.
    for (exclude, flags, expected) in [
        (0, 0, (1, 1)),
        (0b01, 0, (1, 2)),
        (0b10, 0, (2, 2)),
        (0b11, 0, (2, 2)),
        (!0b11, 0, (3, 3)),
        (0, EVENT_WRITE_FLAG_NO_FAULTING, (4, 4)),
        (0, EVENT_WRITE_FLAG_INPRIVATE, (5, 4)),
        (0, EVENT_WRITE_FLAG_NO_FAULTING | EVENT_WRITE_FLAG_INPRIVATE, (6, 4)),
        (0b01, EVENT_WRITE_FLAG_INPRIVATE, (6, 4)),
        (u64::MAX, 0, (6, 4)),
    ] {
        assert_eq!(write_ex(exclude, flags), Ok(()));
        assert_eq!(event_counts(&first, &second), expected, "{exclude:#x} {flags}");
    }
    for flags in [4, 8, 0x8000_0000, u32::MAX] {
        assert_eq!(write_ex(0, flags), Err(WriteError::InvalidParameter));
    }
    let handle = provider.handle();
    handle.provider().unwrap().event(&event(1)).exclude(2).write(&[]).unwrap();
    assert_eq!(event_counts(&first, &second), (7, 4));
    for session in [first, second] {
        assert_eq!(session.stop().unwrap().events_lost, 0, "excluded events are counted as lost");
    }
    drop(provider);
    let written_after_end =
        handle.provider().and_then(|provider| provider.event(&event(1)).flags(u32::MAX).write(&[]));
    assert_eq!(written_after_end, Err(WriteError::InvalidHandle), "the handle is not checked first");
}

#[test]
fn largest_event_is_written_and_one_byte_more_is_refused() {
    ScenarioRunner::new().run("write largest events");
}

fn write_largest_events(folder: &Path) {
    let provider = Provider::register(PROVIDER, None).unwrap();
    let blocks = vec![&b"b"[..]; MAX_BLOCKS + 1];
    assert_eq!(provider.write(&event(1), &blocks), Ok(()), "a disabled event was checked");
    // A record over 65,535 bytes is refused. A smaller record that does not fit a buffer of the
    // session (its size minus a header of 72 bytes) is refused and counted as lost.
    for (buffer_kib, max_record_bytes, failure) in [
        (128, 65535, WriteError::TooLarge),
        (32, 32_696, WriteError::MoreData),
        (4, 4024, WriteError::MoreData),
    ] {
        let lost = if failure == WriteError::MoreData { 3 } else { 0 };
        let path = folder.join(format!("{buffer_kib}.etl"));
        let config =
            SessionConfig { buffer_size: buffer_kib, ..file_config("write largest events", path.clone()) };
        let session = PrivateSession::start(&config).unwrap();
        session.enable(PROVIDER, &all_events()).unwrap();
        let payload = vec![5; max_record_bytes];
        let (largest, related) = (max_record_bytes - HEADER_BYTES, Some(&PROVIDER));
        assert_eq!(provider.write(&event(1), &[&payload[..largest]]), Ok(()));
        assert_eq!(provider.write(&event(2), &[&payload[..=largest]]), Err(failure));
        // A related activity takes 24 bytes.
        let write_related =
            |length: usize| provider.write_transfer(&event(3), None, related, &[&payload[..length]]);
        assert_eq!((write_related(largest - 24), write_related(largest - 23)), (Ok(()), Err(failure)));
        let write_ex = |length: usize| {
            provider.event(&event(4)).flags(EVENT_WRITE_FLAG_NO_FAULTING).write(&[&payload[..length]])
        };
        assert_eq!((write_ex(largest), write_ex(largest + 1)), (Ok(()), Err(failure)));
        assert_eq!(provider.write(&event(5), &blocks[..MAX_BLOCKS]), Ok(()));
        assert_eq!(provider.write(&event(6), &blocks), Err(WriteError::InvalidParameter));
        let end = session.stop().unwrap();
        assert_eq!(
            (end.events, end.events_lost),
            (4, lost),
            "recorded and lost events, with buffers of {buffer_kib} KiB"
        );
        let sizes: Vec<_> = read_records(&path).iter().map(Vec::len).collect();
        assert_eq!(sizes, [max_record_bytes, max_record_bytes, max_record_bytes, HEADER_BYTES + MAX_BLOCKS]);
    }
}

#[test]
fn longest_string_is_written_and_one_unit_more_is_refused() {
    ScenarioRunner::new().run("write longest strings");
}

fn write_longest_strings(folder: &Path) {
    let provider = Provider::register(PROVIDER, None).unwrap();
    let written = provider.write_string(INFORMATION, 0, &"x".repeat(1 << 20));
    assert_eq!(written, Ok(()), "the length of a disabled string was checked");
    let path = folder.join("strings.etl");
    let config = SessionConfig { buffer_size: 128, ..file_config("strings", path.clone()) };
    let session = PrivateSession::start(&config).unwrap();
    session.enable(PROVIDER, &all_events()).unwrap();
    // Length in UTF-16 units, without the terminator.
    let longest = (65535 - HEADER_BYTES) / 2 - 1;
    let lengths = [0, 1, 498, 499, 500, 501, 502, longest];
    for length in lengths {
        assert_eq!(provider.write_string(INFORMATION, 0, &"ü".repeat(length)), Ok(()), "{length}");
    }
    assert_eq!(provider.write_string(INFORMATION, 0, "a\0b😀"), Ok(()));
    for length in [longest + 1, 1 << 20] {
        assert_eq!(provider.write_string(INFORMATION, 0, &"ü".repeat(length)), Err(WriteError::TooLarge));
    }
    let end = session.stop().unwrap();
    assert_eq!((end.events, end.events_lost), (9, 0));
    let records = read_records(&path);
    for (record, length) in records.iter().zip(lengths) {
        let text: Vec<u8> = [&[0xFC, 0][..]].repeat(length).concat();
        assert_eq!(record[HEADER_BYTES..], [&text[..], &[0, 0]].concat());
        assert_eq!(record[4..6], EVENT_HEADER_FLAG_STRING_ONLY.to_le_bytes());
        // The descriptor has only a level.
        assert_eq!(record[0x28..0x38], [0, 0, 0, 0, INFORMATION, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    }
    assert_eq!(records[8][HEADER_BYTES..], *b"a\0\0\0b\0\x3D\xD8\0\xDE\0\0");
}

/// The test plays a daemon with three sessions: one with a large region, one with a small region,
/// and one that is enabled as independent.
#[test]
fn full_session_withholds_event_from_all_but_independent_sessions() {
    let runner = ScenarioRunner::new();
    let listener = listen(&runner.runtime());
    let scenario = runner.spawn("three regions");
    let mut process = ProcessConnection::accept(&listener);
    let registration = process.await_register();
    let small = RegionParams {
        max_record: 1000,
        layout: Layout::new(region_params().layout.cpus(), 1 << 12).unwrap(),
        ..region_params()
    };
    let mut regions = Vec::new();
    for (session, params, property) in
        [(0x10001, region_params(), 0), (0x10002, small, 0), (0x10003, region_params(), PROPERTY_INDEPENDENT)]
    {
        regions.push(process.create_region(session, &params));
        let params = EnableParams { property, ..all_events() };
        process.enable(0, registration, session, EnableCode::Enable, params);
    }
    process.answer(&Message::Registered { registration });
    runner.wait_for_mark("written");
    let mut counts = Vec::new();
    for region in &mut regions {
        let mut records = 0;
        for ring in region.rings() {
            ring.poll().unwrap();
            while let Some(record) = ring.peek().unwrap() {
                ring.take(&mut vec![0; record.length]);
                records += 1;
            }
            ring.release();
        }
        counts.push((records, region.lost()));
    }
    let written: u64 = std::fs::read_to_string(runner.path("number"))
        .unwrap()
        .parse()
        .expect("the scenario did not write the number of events that reached all sessions");
    // Two events were withheld: the one that is too large for the small region, and the first one
    // for which a ring of that region had no room.
    assert_eq!(counts, [(written, 2), (written, 2), (written + 2, 0)]);
    runner.set_mark("done");
    scenario.assert_success();
}

fn write_to_three_regions(folder: &Path) {
    let provider = Provider::register(PROVIDER, None).unwrap();
    assert_eq!(provider.write(&event(1), &[b"for all"]), Ok(()));
    assert_eq!(provider.write(&event(2), &[&[0; 2000]]), Err(WriteError::MoreData));
    // The thread stays on one processor, so that it fills a single ring.
    let mut current_cpu = rustix::thread::CpuSet::new();
    current_cpu.set(rustix::thread::sched_getcpu());
    rustix::thread::sched_setaffinity(None, &current_cpu).unwrap();
    let mut number = 1;
    while provider.write(&event(3), &[&[0; 500]]).is_ok() {
        number += 1;
        assert!(number < 100, "a ring of 4096 bytes is not full");
    }
    std::fs::write(folder.join("number"), number.to_string()).unwrap();
    set_mark(folder, "written");
    wait_for_mark(folder, "done");
}
