//! Tests of records of every family, signed and with added items, and of forged ones.

use super::*;
use traceweir_format::Guid;
use traceweir_format::header::classic::ClassicHeader;
use traceweir_format::header::event::EventHeader;
use traceweir_format::header::extended::Item;
use traceweir_format::header::message::MessageHeader;
use traceweir_format::header::system::SystemHeader;
use traceweir_format::kernel::hook;
use traceweir_format::spec::event::ExtType;

fn event(items: &[Item<'_>]) -> Vec<u8> {
    let mut out = Vec::new();
    EventHeader { thread_id: 7, process_id: 8, time: 9, items, ..EventHeader::default() }
        .encode(b"payload!", &mut out)
        .unwrap();
    out
}

fn classic() -> Vec<u8> {
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

fn message(ids: Option<(u32, u32)>) -> Vec<u8> {
    let mut out = Vec::new();
    let header = MessageHeader { number: 3, pointer_size: 8, sequence: None, guid: None, time: Some(9), ids };
    header.encode(&[], &mut out).unwrap();
    out
}

fn facts(record: &[u8]) -> (u32, u32, i64) {
    let view = Record::parse(record, 0).unwrap();
    (view.thread_id(), view.process_id(), view.time())
}

#[test]
fn every_family_gets_true_process_id_and_stamp() {
    let item = Item { kind: ExtType(1), data: &[0; 16] };
    for mut record in [event(&[]), event(&[item]), classic(), message(Some((7, 8)))] {
        assert!(Writer::new(42, Threads::AsGiven).sign(&mut record, Stamp::Ours(1234)));
        assert_eq!(facts(&record), (7, 42, 1234));
        assert!(
            Writer::new(43, Threads::AsGiven).sign(&mut record, Stamp::Kept { latest: i64::MAX }),
            "the record's own stamp stays"
        );
        assert_eq!(facts(&record), (7, 43, 1234));
    }
    let mut bare = message(None);
    assert!(Writer::new(42, Threads::AsGiven).sign(&mut bare, Stamp::Ours(1234)));
    assert_eq!(Record::parse(&bare, 0).unwrap().time(), 1234);
}

const OWN: Item<'static> = Item { kind: ExtType::RELATED_ACTIVITYID, data: &[5; 16] };

/// Returns a record with the items that its flags ask for.
fn with_items(writer: &mut Writer, record: &[u8], flags: u16) -> Option<Vec<u8>> {
    let gap = writer.item_bytes(flags);
    let mut room = vec![0xEE; gap];
    room.extend_from_slice(record);
    assert!(writer.sign(&mut room[gap..], Stamp::Ours(1234)));
    let length = writer.add_items(&mut room, flags)?;
    assert!(room[length..].iter().all(|byte| *byte == 0), "padding");
    room.truncate(length);
    Some(room)
}

#[test]
fn items_are_inserted_after_the_header() {
    let identity = Identity { start_key: Some(77), user: Some(5), ..Identity::from(42) };
    let mut writer = Writer::new(identity.clone(), Threads::AsGiven);
    let (sid, key) = ([1, 2, 0, 0, 0, 0, 0, 22, 1, 0, 0, 0, 5, 0, 0, 0], 77_u64.to_le_bytes());
    let ours = [
        Item { kind: ExtType::SID, data: &sid },
        Item { kind: ExtType::TS_ID, data: &[0; 4] },
        Item { kind: ExtType::PROCESS_START_KEY, data: &key },
    ];
    for own in [&[][..], &[OWN]] {
        let all = [&ours[..], own].concat();
        let mut want = event(&all);
        Writer::new(42, Threads::AsGiven).sign_header(&mut want, Stamp::Ours(1234));
        let got = with_items(&mut writer, &event(own), abi::FLAGS).unwrap();
        assert_eq!(got, want, "as the format encodes it");
        assert_eq!(Record::parse(&got, 0).unwrap().payload(), b"payload!");
    }
    let one = with_items(&mut writer, &event(&[OWN]), abi::WITH_START_KEY).unwrap();
    let kinds: Vec<_> = Record::parse(&one, 0).unwrap().items().map(|item| item.kind.0).collect();
    assert_eq!(kinds, [13, 1]);
    assert_eq!(with_items(&mut writer, &event(&[OWN]), abi::WITH_CONTAINER).unwrap().len(), 112);
}

#[test]
fn families_without_items_stay_unchanged() {
    let mut writer = Writer::new(Identity { user: Some(5), ..Identity::from(42) }, Threads::AsGiven);
    for record in [classic(), message(Some((7, 8)))] {
        let got = with_items(&mut writer, &record, abi::WITH_SID).unwrap();
        let mut want = record;
        assert!(writer.sign(&mut want, Stamp::Ours(1234)));
        assert_eq!(got, want);
    }
}

#[test]
fn too_many_items_are_rejected() {
    let mut writer = Writer::new(Identity { user: Some(5), ..Identity::from(42) }, Threads::AsGiven);
    assert!(with_items(&mut writer, &event(&[OWN; 31]), abi::WITH_SID).is_some());
    assert!(with_items(&mut writer, &event(&[OWN; 32]), abi::WITH_SID).is_none());
}

#[test]
fn forged_identity_items_are_rejected() {
    for kind in [2, 3, 9, 13, 16, 17, 18] {
        let mut forged = event(&[OWN, Item { kind: ExtType(kind), data: &[0; 16] }]);
        assert!(!Writer::new(1, Threads::AsGiven).sign(&mut forged, Stamp::Ours(1)), "item {kind}");
    }
    for kind in [1, 6, 10, 11, 12, 14] {
        let mut sound = event(&[OWN, Item { kind: ExtType(kind), data: &[0; 16] }]);
        assert!(Writer::new(1, Threads::AsGiven).sign(&mut sound, Stamp::Ours(1)), "item {kind}");
    }
}

#[test]
fn thread_ids_are_translated_once() {
    let mut asked = 0;
    let mut writer = Writer::new(
        1,
        Threads::Translated(Box::new(move |id| {
            asked += 1;
            id * 100 + asked
        })),
    );
    for _ in 0..3 {
        let mut record = event(&[]);
        assert!(writer.sign(&mut record, Stamp::Kept { latest: i64::MAX }));
        assert_eq!(facts(&record).0, 701);
    }
}

#[test]
fn invalid_record_is_rejected() {
    let mut writer = Writer::new(1, Threads::AsGiven);
    let mut short = event(&[]);
    short[0] -= 1;
    assert!(!writer.sign(&mut short, Stamp::Kept { latest: i64::MAX }), "size field");
    let mut marker = event(&[]);
    marker[3] = 0x10;
    assert!(!writer.sign(&mut marker, Stamp::Kept { latest: i64::MAX }), "marker");
    let mut items = event(&[]);
    items[4] |= 1;
    assert!(!writer.sign(&mut items, Stamp::Kept { latest: i64::MAX }), "items that leave the record");
    assert!(!writer.sign(&mut [0xFF; 64], Stamp::Kept { latest: i64::MAX }), "filler");
    assert!(!writer.sign(&mut [0; 3], Stamp::Kept { latest: i64::MAX }), "too small for anything");
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
    assert!(!writer.sign(&mut kernel, Stamp::Kept { latest: i64::MAX }), "kernel events");
}

#[test]
fn kept_stamp_from_the_future_becomes_collection_time() {
    let mut writer = Writer::new(1, Threads::AsGiven);
    for (latest, written) in [(100, 9), (9, 9), (5, 5)] {
        let mut record = event(&[]);
        assert!(writer.sign(&mut record, Stamp::Kept { latest }));
        assert_eq!(Record::parse(&record, 0).unwrap().time(), written);
    }
}
