//! Tests of signed records of every record family, with and without added items, and of forged
//! records.

use super::*;
use traceweir_format::Guid;
use traceweir_format::header::classic::ClassicHeader;
use traceweir_format::header::event::EventHeader;
use traceweir_format::header::extended::Item;
use traceweir_format::header::message::MessageHeader;
use traceweir_format::header::system::SystemHeader;
use traceweir_format::kernel::hook;
use traceweir_format::spec::event::ExtType;

fn encode_event(items: &[Item<'_>]) -> Vec<u8> {
    let mut out = Vec::new();
    EventHeader { thread_id: 7, process_id: 8, time: 9, items, ..EventHeader::default() }
        .encode(b"payload!", &mut out)
        .unwrap();
    out
}

fn encode_classic() -> Vec<u8> {
    let mut out = Vec::new();
    let header = ClassicHeader {
        pointer_size: 8,
        opcode: 1,
        level: 0,
        version: 0,
        thread_id: 7,
        process_id: 8,
        time: 9,
        class: Guid::NULL,
        cpu_times: (0, 0),
        instance: None,
    };
    header.encode(&[], &mut out).unwrap();
    out
}

fn encode_message(ids: Option<(u32, u32)>) -> Vec<u8> {
    let mut out = Vec::new();
    let header = MessageHeader { number: 3, pointer_size: 8, sequence: None, guid: None, time: Some(9), ids };
    header.encode(&[], &mut out).unwrap();
    out
}

fn read_ids_and_time(record: &[u8]) -> (u32, u32, i64) {
    let view = Record::parse(record, 0).unwrap();
    (view.thread_id(), view.process_id(), view.time())
}

#[test]
fn every_family_gets_true_process_id_and_stamp() {
    let item = Item { kind: ExtType(1), data: &[0; 16] };
    for mut record in
        [encode_event(&[]), encode_event(&[item]), encode_classic(), encode_message(Some((7, 8)))]
    {
        let mut writer = RegionWriter::new(42, ThreadIdMapping::AsGiven);
        assert!(writer.sign(&mut record, StampPolicy::Replaced(1234)));
        assert_eq!(read_ids_and_time(&record), (7, 42, 1234));
        let mut writer = RegionWriter::new(43, ThreadIdMapping::AsGiven);
        assert!(
            writer.sign(&mut record, StampPolicy::Kept { latest: i64::MAX }),
            "rejected a record that keeps its stamp"
        );
        assert_eq!(read_ids_and_time(&record), (7, 43, 1234));
    }
    let mut bare = encode_message(None);
    assert!(RegionWriter::new(42, ThreadIdMapping::AsGiven).sign(&mut bare, StampPolicy::Replaced(1234)));
    assert_eq!(Record::parse(&bare, 0).unwrap().time(), 1234);
}

const PROCESS_ITEM: Item<'static> = Item { kind: ExtType::RELATED_ACTIVITYID, data: &[5; 16] };

/// Returns a record with the items that its flags ask for.
fn sign_with_items(writer: &mut RegionWriter, record: &[u8], flags: u16) -> Option<Vec<u8>> {
    let gap = writer.item_bytes(flags);
    let mut space = vec![0xEE; gap];
    space.extend_from_slice(record);
    assert!(writer.sign(&mut space[gap..], StampPolicy::Replaced(1234)));
    let length = writer.add_items(&mut space, flags)?;
    assert!(space[length..].iter().all(|byte| *byte == 0), "the padding is not zero");
    space.truncate(length);
    Some(space)
}

#[test]
fn items_are_inserted_after_the_header() {
    let identity = Identity { start_key: Some(77), user: Some(5), ..Identity::from(42) };
    let mut writer = RegionWriter::new(identity.clone(), ThreadIdMapping::AsGiven);
    // S-1-22-1-5
    let (sid, key) = ([1, 2, 0, 0, 0, 0, 0, 22, 1, 0, 0, 0, 5, 0, 0, 0], 77_u64.to_le_bytes());
    let session_items = [
        Item { kind: ExtType::SID, data: &sid },
        Item { kind: ExtType::TS_ID, data: &[0; 4] },
        Item { kind: ExtType::PROCESS_START_KEY, data: &key },
    ];
    for process_items in [&[][..], &[PROCESS_ITEM]] {
        let expected_items = [&session_items[..], process_items].concat();
        let mut expected = encode_event(&expected_items);
        let mut expected_writer = RegionWriter::new(42, ThreadIdMapping::AsGiven);
        expected_writer.sign_header(&mut expected, StampPolicy::Replaced(1234));
        let signed = sign_with_items(&mut writer, &encode_event(process_items), abi::FLAGS).unwrap();
        assert_eq!(signed, expected, "the record differs from the encoding by the format crate");
        assert_eq!(Record::parse(&signed, 0).unwrap().payload(), b"payload!");
    }
    let with_key = sign_with_items(&mut writer, &encode_event(&[PROCESS_ITEM]), abi::WITH_START_KEY).unwrap();
    let kinds: Vec<_> = Record::parse(&with_key, 0).unwrap().items().map(|item| item.kind.0).collect();
    // The start key of the session, then the related activity id of the process.
    assert_eq!(kinds, [13, 1]);
    // The process has no container, so no item is added: header 80, item 24, payload 8 bytes.
    assert_eq!(
        sign_with_items(&mut writer, &encode_event(&[PROCESS_ITEM]), abi::WITH_CONTAINER).unwrap().len(),
        112
    );
}

#[test]
fn families_without_items_get_none() {
    let identity = Identity { user: Some(5), ..Identity::from(42) };
    let mut writer = RegionWriter::new(identity, ThreadIdMapping::AsGiven);
    for record in [encode_classic(), encode_message(Some((7, 8)))] {
        let signed = sign_with_items(&mut writer, &record, abi::WITH_SID).unwrap();
        let mut expected = record;
        assert!(writer.sign(&mut expected, StampPolicy::Replaced(1234)));
        assert_eq!(signed, expected);
    }
}

#[test]
fn too_many_items_are_rejected() {
    let identity = Identity { user: Some(5), ..Identity::from(42) };
    let mut writer = RegionWriter::new(identity, ThreadIdMapping::AsGiven);
    assert!(sign_with_items(&mut writer, &encode_event(&[PROCESS_ITEM; 31]), abi::WITH_SID).is_some());
    assert!(sign_with_items(&mut writer, &encode_event(&[PROCESS_ITEM; 32]), abi::WITH_SID).is_none());
}

#[test]
fn forged_identity_items_are_rejected() {
    // The items of the identity (identity.rs): SID, terminal session, PSM key, process start key,
    // container; and the stack keys (17 and 18).
    for kind in [2, 3, 9, 13, 16, 17, 18] {
        let mut forged = encode_event(&[PROCESS_ITEM, Item { kind: ExtType(kind), data: &[0; 16] }]);
        assert!(
            !RegionWriter::new(1, ThreadIdMapping::AsGiven).sign(&mut forged, StampPolicy::Replaced(1)),
            "accepted a forged item of type {kind}"
        );
    }
    // Related activity, stack, event key, event schema, provider traits, control GUID.
    for kind in [1, 6, 10, 11, 12, 14] {
        let mut sound = encode_event(&[PROCESS_ITEM, Item { kind: ExtType(kind), data: &[0; 16] }]);
        assert!(
            RegionWriter::new(1, ThreadIdMapping::AsGiven).sign(&mut sound, StampPolicy::Replaced(1)),
            "rejected an item of type {kind}"
        );
    }
}

#[test]
fn thread_ids_are_translated_once() {
    let mut calls = 0;
    let mut writer = RegionWriter::new(
        1,
        ThreadIdMapping::Translated(Arc::new(Mutex::new(move |id| {
            calls += 1;
            id * 100 + calls
        }))),
    );
    for _ in 0..3 {
        let mut record = encode_event(&[]);
        assert!(writer.sign(&mut record, StampPolicy::Kept { latest: i64::MAX }));
        // Thread 7, translated by the first call.
        assert_eq!(read_ids_and_time(&record).0, 701);
    }
}

#[test]
fn invalid_record_is_rejected() {
    let mut writer = RegionWriter::new(1, ThreadIdMapping::AsGiven);
    let mut short = encode_event(&[]);
    short[0] -= 1;
    assert!(!writer.sign(&mut short, StampPolicy::Kept { latest: i64::MAX }), "accepted a wrong size");
    let mut marker = encode_event(&[]);
    marker[3] = 0x10;
    assert!(!writer.sign(&mut marker, StampPolicy::Kept { latest: i64::MAX }), "accepted an unknown marker");
    let mut items = encode_event(&[]);
    items[4] |= 1;
    assert!(
        !writer.sign(&mut items, StampPolicy::Kept { latest: i64::MAX }),
        "accepted items outside the record"
    );
    assert!(!writer.sign(&mut [0xFF; 64], StampPolicy::Kept { latest: i64::MAX }), "accepted filler");
    assert!(!writer.sign(&mut [0; 3], StampPolicy::Kept { latest: i64::MAX }), "accepted three bytes");
    let mut kernel = Vec::new();
    SystemHeader {
        pointer_size: 8,
        version: 2,
        hook: hook::PROCESS_START,
        thread_id: 1,
        process_id: 1,
        time: 1,
        cpu_times: None,
    }
    .encode(&[], &mut kernel)
    .unwrap();
    assert!(!writer.sign(&mut kernel, StampPolicy::Kept { latest: i64::MAX }), "accepted a kernel event");
}

#[test]
fn kept_stamp_from_the_future_becomes_collection_time() {
    let mut writer = RegionWriter::new(1, ThreadIdMapping::AsGiven);
    for (latest, written) in [(100, 9), (9, 9), (5, 5)] {
        let mut record = encode_event(&[]);
        assert!(writer.sign(&mut record, StampPolicy::Kept { latest }));
        assert_eq!(Record::parse(&record, 0).unwrap().time(), written);
    }
}
