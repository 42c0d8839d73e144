use super::classic::{ClassicHeader, Instance};
use super::event::EventHeader;
use super::extended::Item;
use super::message::MessageHeader;
use super::perfinfo::PerfInfoHeader;
use super::system::SystemHeader;
use super::*;
use crate::kernel::hook;
use crate::spec::event::{ExtType, class};
use alloc::vec::Vec;
use proptest::prelude::*;

const PROVIDER: Guid = Guid::from_u128(0x01020304_0506_0708_090a_0b0c0d0e0f10);

fn encode_record(write: impl FnOnce(&mut Vec<u8>) -> Result<()>) -> Vec<u8> {
    let mut out = Vec::new();
    write(&mut out).unwrap();
    assert_eq!(out.len() % 8, 0, "the record is not padded to eight bytes");
    out
}

#[test]
fn event_with_items_reads_back() {
    let descriptor =
        EventDescriptor { id: 3, version: 1, channel: 11, level: 4, opcode: 2, task: 9, keyword: 1 << 63 };
    let items = [
        Item { kind: ExtType::PROV_TRAITS, data: b"abc" },
        Item { kind: ExtType::STACK_TRACE64, data: &[7, 0, 0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0] },
        Item { kind: ExtType(0x7F), data: b"" },
    ];
    for pointer_size in [4, 8] {
        let header = EventHeader {
            pointer_size,
            thread_id: 5,
            process_id: 6,
            time: -7,
            provider: PROVIDER,
            descriptor,
            activity: PROVIDER,
            items: &items,
            ..Default::default()
        };
        let bytes = encode_record(|out| header.encode(b"payload", out));
        let record = Record::parse(&bytes, 3).unwrap();
        assert_eq!((record.thread_id(), record.process_id(), record.time(), record.cpu()), (5, 6, -7, 3));
        assert_eq!(
            (record.provider(), record.descriptor(), record.activity()),
            (PROVIDER, descriptor, Some(PROVIDER))
        );
        assert_eq!((record.payload(), record.pointer_size()), (&b"payload"[..], usize::from(pointer_size)));
        assert!(record.items().eq(items));
        let stack = record.items().stack().unwrap();
        assert_eq!((stack.match_id, stack.frames().collect::<Vec<_>>()), (7, alloc::vec![0x201]));
    }
}

#[test]
fn kernel_events_read_back() {
    let system = SystemHeader {
        pointer_size: 4,
        version: 4,
        hook: hook::IMAGE_LOAD,
        thread_id: 1,
        process_id: 2,
        time: 3,
        cpu_times: Some((8, 9)),
    };
    let bytes = encode_record(|out| system.encode(b"xy", out));
    let record = Record::parse(&bytes, 0).unwrap();
    assert_eq!(
        (record.family(), record.hook(), record.provider()),
        (Family::System, Some(hook::IMAGE_LOAD), class::IMAGE)
    );
    assert_eq!(
        (record.descriptor().opcode, record.descriptor().version, record.payload()),
        (10, 4, &b"xy"[..])
    );
    assert_eq!(record.cpu_times(), Some((8, 9)));

    let bytes =
        encode_record(|out| SystemHeader { cpu_times: None, pointer_size: 8, ..system }.encode(b"xy", out));
    let record = Record::parse(&bytes, 0).unwrap();
    assert_eq!((record.family(), record.payload(), record.process_id()), (Family::Compact, &b"xy"[..], 2));

    let perf = PerfInfoHeader {
        pointer_size: 8,
        version: 2,
        hook: hook::SAMPLED_PROFILE,
        time: 4,
        counters: &[1, 2],
    };
    let bytes = encode_record(|out| perf.encode(b"z", out));
    let record = Record::parse(&bytes, 0).unwrap();
    assert_eq!((record.thread_id(), record.time(), record.payload()), (NO_ID, 4, &b"z"[..]));
    assert_eq!(record.pmc_counters().len(), 16);
}

#[test]
fn classic_events_and_instances_read_back() {
    let instance = Instance { id: 1, parent_id: 2, parent_class: PROVIDER };
    let mut header = ClassicHeader {
        pointer_size: 8,
        opcode: 32,
        level: 5,
        version: 2,
        thread_id: NO_ID,
        process_id: 4,
        time: 10,
        class: PROVIDER,
        cpu_times: (0, 0),
        instance: None,
    };
    let bytes = encode_record(|out| header.encode(b"data", out));
    let record = Record::parse(&bytes, 0).unwrap();
    assert_eq!((record.family(), record.provider(), record.instance()), (Family::Full, PROVIDER, None));
    header.instance = Some(instance);
    let bytes = encode_record(|out| header.encode(b"data", out));
    let record = Record::parse(&bytes, 0).unwrap();
    assert_eq!((record.instance(), record.payload()), (Some(instance), &b"data"[..]));
}

#[test]
fn messages_read_back_with_any_optional_fields() {
    for bits in 0_u8..16 {
        let header = MessageHeader {
            number: 77,
            pointer_size: 4,
            sequence: (bits & 1 != 0).then_some(1),
            guid: (bits & 2 != 0).then_some(PROVIDER),
            time: (bits & 4 != 0).then_some(2),
            ids: (bits & 8 != 0).then_some((3, 4)),
        };
        let bytes = encode_record(|out| header.encode(b"args", out));
        let measured = measure(&bytes, 0, false).unwrap().unwrap();
        let record = Record::new(&bytes, measured, 0, 99);
        assert_eq!(record.payload(), b"args");
        assert_eq!(record.descriptor().id, 77);
        assert_eq!(record.time(), header.time.unwrap_or(99), "the time is not inherited");
        assert_eq!(record.provider(), header.guid.unwrap_or(Guid::NULL));
        assert_eq!((record.thread_id(), record.process_id()), header.ids.unwrap_or((NO_ID, NO_ID)));
        assert_eq!(message::sequence(&bytes), header.sequence);
    }
}

#[test]
fn items_outside_the_record_are_reported_and_count_as_payload() {
    let items = [Item { kind: ExtType::SID, data: &[0; 12] }];
    let bytes = encode_record(|out| EventHeader { items: &items, ..Default::default() }.encode(b"p", out));
    // At 0x50 is the size of the item, at 0x54 its linkage, at 0x56 the size of its data.
    for (at, value) in [(0x50, 0_u8), (0x50, 7), (0x50, 200), (0x54, 1), (0x56, 0xFF)] {
        let mut bad = bytes.clone();
        bad[at] = value;
        let record = Record::parse(&bad, 0).unwrap();
        assert!(record.has_damaged_items(), "byte {at:#x} = {value}");
        assert_eq!(record.items().count(), 0);
        assert_eq!(record.payload().len(), 24 + 1);
    }
}

#[test]
fn unknown_markers_and_wrong_sizes_are_rejected() {
    // Records end at filler, or where too few bytes are left.
    assert_eq!(measure(&[0xFF; 16], 0, false), Ok(None));
    assert_eq!(measure(&[0; 4], 0, false), Ok(None));
    assert!(measure(&[0; 16], 0, false).is_err());
    // The size in two bytes, the header type, and the marker 0xC0.
    assert!(measure(&[0, 0, 19, 0xC0, 0, 0, 0, 0], 0, false).is_err(), "accepted size 0");
    assert!(measure(&[0x50, 0, 19, 0xC0, 0, 0, 0, 0], 0, false).is_err(), "accepted a size past the end");
    let error_record = measure(&[8, 0, 13, 0xC0, 0, 0, 0, 0], 0, false).unwrap().unwrap();
    assert_eq!((error_record.family, error_record.size), (Family::Other(13), 8));
}

#[test]
fn record_over_64_kib_is_rejected_and_leaves_no_bytes() {
    let mut out = alloc::vec![1, 2, 3, 4, 5, 6, 7, 8];
    assert!(EventHeader::default().encode(&alloc::vec![0; MAX_RECORD_BYTES], &mut out).is_err());
    assert_eq!(out.len(), 8);
}

proptest! {
    #[test]
    fn arbitrary_bytes_do_not_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..400), kind in 0_u8..24, old: bool) {
        if let Some(b) = bytes.get_mut(2) { *b = kind; }
        if let Some(b) = bytes.get_mut(3) { *b |= 0x90; }
        if let Ok(Some(m)) = measure(&bytes, 0, old) {
            let r = Record::new(&bytes, m, 0, 0);
            let _ = (r.payload(), r.descriptor(), r.provider(), r.items().count(), r.instance(), r.cpu_times());
            let _ = (r.thread_id(), r.process_id(), r.pmc_counters(), r.items().stack().map(|s| s.frames().count()));
        }
    }

    #[test]
    fn common_families_are_measured_like_all_others(
        mut bytes in proptest::collection::vec(any::<u8>(), 8..200),
        kind in proptest::sample::select(alloc::vec![
            HeaderType::EVENT_HEADER64,
            HeaderType::EVENT_HEADER32,
            HeaderType::PERFINFO64,
            HeaderType::PERFINFO32,
        ]),
        marker in 0xBF_u8..=0xC1,
        size in 0_u8..220,
    ) {
        let size_at = if matches!(kind, HeaderType::PERFINFO64 | HeaderType::PERFINFO32) { 4 } else { 0 };
        bytes[2..4].copy_from_slice(&[kind.0, marker]);
        bytes[size_at..size_at + 2].copy_from_slice(&[size, 0]);
        if let Some(common) = measure_common(&bytes) {
            prop_assert_eq!(measure_any(&bytes, 0, false), Ok(Some(common)));
            prop_assert_eq!(time_of(&bytes, common.family), Some(time_of_common(&bytes, common.family)));
        }
    }
}
