use alloc::vec;
use alloc::vec::Vec;

use super::*;
use crate::spec::enable::*;
use crate::wire::Put;

const PROVIDER: Guid = Guid::from_u128(7);

pub(super) fn id_filter(filter_in: u8, ids: &[u16]) -> Vec<u8> {
    let mut out = vec![filter_in, 0];
    out.put_u16(ids.len() as u16);
    ids.iter().for_each(|id| {
        out.put_u16(*id);
    });
    out
}

fn name_filter(gate: Gate, filter_in: u8, count: u16, names: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    out.put_u64(gate.any).put_u64(gate.all).put_u8(gate.level).put_u8(filter_in).put_u16(count).put(names);
    out
}

fn utf16_bytes(text: &str) -> Vec<u8> {
    text.encode_utf16().flat_map(u16::to_le_bytes).collect()
}

fn schematized_filter(id: u16, data: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    // EVENT_FILTER_HEADER: id, version, reserved, instance, size, next offset; then the data.
    out.put_u16(id).put_u8(1).put(&[0; 5]).put_u64(0).put_u32(24 + data.len() as u32).put_u32(0).put(data);
    out
}

fn check_filters(filters: &[(u32, Vec<u8>)]) -> Result<()> {
    check_all(filters.iter().map(|(kind, data)| (*kind, data.as_slice())), &PROVIDER, false)
}

#[test]
fn every_filter_type_is_accepted_up_to_its_limit() {
    let too_many_ids: Vec<u16> = (0..65).collect();
    // 20 bytes before the name, and a NUL after it.
    let sized_name_filter =
        |bytes: usize| name_filter(Gate::default(), 1, 1, &[vec![b'n'; bytes - 21], vec![0]].concat());
    let payload = payload::tests::sample_filter();
    for (kind, good, bad) in [
        (EVENT_FILTER_TYPE_SCHEMATIZED, schematized_filter(1, &[7; 1000]), schematized_filter(1, &[7; 1001])),
        (EVENT_FILTER_TYPE_SCHEMATIZED, schematized_filter(1, &[]), vec![0; 23]),
        (
            EVENT_FILTER_TYPE_SCHEMATIZED,
            schematized_filter(1, &[]),
            schematized_filter(1, &[1])[..24].to_vec(),
        ),
        (EVENT_FILTER_TYPE_PID, vec![1; 32], vec![1; 36]),
        (EVENT_FILTER_TYPE_PID, vec![1; 4], vec![]),
        (EVENT_FILTER_TYPE_PID, vec![1; 8], vec![1; 7]),
        (EVENT_FILTER_TYPE_EXECUTABLE_NAME, utf16_bytes(&"n".repeat(512)), utf16_bytes(&"n".repeat(513))),
        (EVENT_FILTER_TYPE_PACKAGE_ID, utf16_bytes("a;b\0"), utf16_bytes("a\0b")),
        (EVENT_FILTER_TYPE_PACKAGE_APP_ID, utf16_bytes("a"), utf16_bytes(" ;;\0")),
        (EVENT_FILTER_TYPE_CONTAINER, utf16_bytes("a"), vec![]),
        (EVENT_FILTER_TYPE_CONTAINER, utf16_bytes("a"), vec![65, 0, 66]),
        (EVENT_FILTER_TYPE_CONTAINER, utf16_bytes("a"), vec![0, 0xD8]),
        (EVENT_FILTER_TYPE_EVENT_ID, id_filter(1, &too_many_ids[..64]), id_filter(1, &too_many_ids)),
        (EVENT_FILTER_TYPE_EVENT_ID, id_filter(0, &[0]), id_filter(0, &[])),
        (EVENT_FILTER_TYPE_EVENT_ID, id_filter(0, &[3]), id_filter(0, &[3, 4])[..6].to_vec()),
        (EVENT_FILTER_TYPE_STACKWALK, id_filter(0, &[3]), [id_filter(0, &[3]), vec![0]].concat()),
        (EVENT_FILTER_TYPE_STACKWALK, id_filter(0, &[3]), vec![1, 0, 1]),
        (EVENT_FILTER_TYPE_EVENT_NAME, sized_name_filter(4096), sized_name_filter(4097)),
        (
            EVENT_FILTER_TYPE_EVENT_NAME,
            name_filter(Gate::default(), 1, 2, b"a\0\0\0\0"),
            name_filter(Gate::default(), 1, 0, b""),
        ),
        (
            EVENT_FILTER_TYPE_STACKWALK_NAME,
            sized_name_filter(30),
            name_filter(Gate::default(), 1, 2, b"a\0b"),
        ),
        (
            EVENT_FILTER_TYPE_STACKWALK_NAME,
            sized_name_filter(30),
            name_filter(Gate::default(), 1, 1, b"a\0b\0"),
        ),
        (EVENT_FILTER_TYPE_STACKWALK_NAME, sized_name_filter(30), vec![0; 19]),
        (EVENT_FILTER_TYPE_STACKWALK_LEVEL_KW, vec![0; 24], vec![0; 25]),
        (EVENT_FILTER_TYPE_STACKWALK_LEVEL_KW, vec![0; 24], vec![0; 18]),
        (EVENT_FILTER_TYPE_PAYLOAD, payload.clone(), [payload, vec![0]].concat()),
        (EVENT_FILTER_TYPE_PAYLOAD, payload::tests::sample_filter(), vec![]),
        (EVENT_FILTER_TYPE_PROCESS_TREE, vec![1; 32], vec![1; 36]),
        // Types below 0x8000_0000 are those of providers.
        (1, vec![0; 1024], vec![0; 1025]),
        (0x7FFF_FFFF, vec![], vec![0; 1025]),
    ] {
        assert_eq!(check_filters(&[(kind, good)]), Ok(()), "{kind:#x}");
        assert!(check_filters(&[(kind, bad.clone())]).is_err(), "{kind:#x} {} bytes", bad.len());
    }
    for unknown in [0x8000_0040, 0x8000_0080, 0x8000_0800, 0x8001_0000, 0xC000_0002, 0x8000_0003, u32::MAX] {
        assert!(check_filters(&[(unknown, vec![0; 8])]).is_err(), "{unknown:#x}");
    }
}

#[test]
fn call_rejects_excess_repeated_and_misplaced_filters() {
    let provider_filters = |count: u32| (1..=count).map(|kind| (kind, vec![])).collect::<Vec<_>>();
    assert_eq!(check_filters(&provider_filters(13)), Ok(()));
    assert!(check_filters(&provider_filters(14)).is_err());
    assert!(check_filters(&[(7, vec![]), (8, vec![]), (7, vec![])]).is_err());
    assert_eq!(
        check_filters(&[(EVENT_FILTER_TYPE_NONE, vec![1; 9999]), (EVENT_FILTER_TYPE_NONE, vec![])]),
        Ok(()),
        "filters of type NONE are counted"
    );
    for (kind, valid_size) in [(EVENT_FILTER_TYPE_SYSTEM_FLAGS, 4), (EVENT_FILTER_TYPE_TRACEHANDLE, 8)] {
        assert!(check_filters(&[(kind, vec![0; valid_size])]).is_err());
        for size in 0..12 {
            let data = vec![0; size];
            let result = check_all([(kind, &data[..])].into_iter(), &SYSTEM_TRACE_CONTROL, false);
            assert_eq!(result.is_ok(), size == valid_size, "{kind:#x} of {size} bytes");
        }
    }
    let payload = payload::tests::sample_filter();
    for (kind, data, allowed) in [
        (EVENT_FILTER_TYPE_EVENT_ID, id_filter(1, &[1]), false),
        (EVENT_FILTER_TYPE_EVENT_NAME, name_filter(Gate::default(), 1, 1, b"n\0"), false),
        (EVENT_FILTER_TYPE_PAYLOAD, payload, false),
        (EVENT_FILTER_TYPE_STACKWALK, id_filter(1, &[1]), true),
        (EVENT_FILTER_TYPE_PID, vec![0; 4], true),
    ] {
        let result = check_all([(kind, &data[..])].into_iter(), &PROVIDER, true);
        assert_eq!(result.is_ok(), allowed, "{kind:#x} of a group");
    }
}

#[test]
fn views_return_the_encoded_values() {
    let data = id_filter(2, &[5, 0, 5]);
    let view = EventIds::parse(&data).unwrap();
    assert!(view.filter_in);
    assert_eq!(view.ids().collect::<Vec<_>>(), [5, 0, 5]);
    let gate = Gate { any: 6, all: 2, level: 4 };
    let data = name_filter(gate, 0, 3, "one\0\0drüben\0\0\0".as_bytes());
    let view = EventNames::parse(&data).unwrap();
    assert_eq!((view.gate, view.filter_in), (gate, false));
    assert_eq!(view.names().collect::<Vec<_>>(), ["one".as_bytes(), b"", "drüben".as_bytes()]);
    assert_eq!(parse_pids(&[1, 0, 0, 0, 0, 1, 0, 0]).unwrap(), [1, 256]);
    assert_eq!(
        parse_name_list(&utf16_bytes(" Grün.Service; b ;;C\0\0")).unwrap(),
        ["grün.service", "b", "c"]
    );
    let data = [&data[..18], &[0; 6]].concat();
    assert_eq!(LevelKeyword::parse(&data).unwrap(), LevelKeyword { gate, filter_in: false });
}

#[test]
fn gate_ignores_all_mask_if_any_mask_is_zero() {
    let gate = |any, all, level| Gate { any, all, level };
    assert!(gate(0, 8, 0).admits(255, 1), "the all mask is not ignored");
    assert!(gate(1, 8, 0).admits(3, 9) && !gate(1, 8, 0).admits(3, 1) && !gate(1, 8, 0).admits(3, 8));
    // An event without keywords passes every mask.
    assert!(gate(1, 8, 3).admits(3, 0) && !gate(1, 8, 3).admits(4, 0) && gate(1, 8, 3).admits(0, 0));
}

#[test]
fn chain_returns_each_filter_with_its_session() {
    let (mut chain, mut last) = (Vec::new(), 0);
    for (index, length) in [3_usize, 0, 1000, 8].into_iter().enumerate() {
        let mut filter = schematized_filter(index as u16, &vec![index as u8; length]);
        // The instance and next offset of the caller are ignored.
        filter[8] = 99;
        filter[20] = 200;
        append_to_chain(&mut chain, &mut last, &filter, 1 << index);
    }
    let filters: Vec<_> =
        Header::chain(&chain).map(|header| (header.id, header.instance, header.data.len())).collect();
    assert_eq!(filters, [(0, 1, 3), (1, 2, 0), (2, 4, 1000), (3, 8, 8)]);
    let next_offsets: Vec<u32> = Header::chain(&chain).map(|header| header.next).collect();
    assert_eq!(next_offsets, [32, 24, 1024, 0]);
    assert_eq!(Header::chain(&chain[..50]).count(), 1, "a truncated chain does not end early");
    assert_eq!(Header::chain(&[]).count(), 0);
}

#[test]
fn encoded_filter_reads_back_or_is_rejected() {
    let gate = Gate { any: 1 << 63, all: 2, level: 3 };
    let bytes = encode::event_ids(true, &[1, 0x1234]);
    assert_eq!(bytes, id_filter(1, &[1, 0x1234]));
    let bytes = encode::event_names(gate, false, &["A", "Bc"]);
    assert_eq!(bytes, name_filter(gate, 0, 2, b"A\0Bc\0"));
    let bytes = encode::level_keyword(gate, true);
    assert_eq!(LevelKeyword::parse(&bytes), Ok(LevelKeyword { gate, filter_in: true }));
    assert_eq!(parse_pids(&encode::pids(&[1, u32::MAX])), Ok(vec![1, u32::MAX]));
    let bytes = encode::name_list(&["Ä.service", "b"]);
    assert_eq!(bytes, utf16_bytes("Ä.service;b"));
    assert_eq!(parse_names_as_given(&bytes).unwrap(), ["Ä.service", "b"]);
    assert_eq!(parse_name_list(&bytes).unwrap(), ["ä.service", "b"]);
    for (kind, data) in [
        (EVENT_FILTER_TYPE_EVENT_ID, encode::event_ids(true, &[0; 0x1_0040])),
        (EVENT_FILTER_TYPE_EVENT_NAME, encode::event_names(gate, true, &["n"; 0x1_0001])),
        (EVENT_FILTER_TYPE_EVENT_NAME, encode::event_names(gate, true, &["a\0b"])),
        (EVENT_FILTER_TYPE_PID, encode::pids(&[1; 9])),
        (EVENT_FILTER_TYPE_CONTAINER, encode::name_list(&[""; 0])),
    ] {
        assert!(check(kind, &data).is_err(), "{kind:#x}");
    }
}
