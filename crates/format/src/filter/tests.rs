use alloc::vec;
use alloc::vec::Vec;

use super::*;
use crate::spec::enable::*;
use crate::wire::Put;

const PROVIDER: Guid = Guid::from_u128(7);

pub(super) fn ids(filter_in: u8, ids: &[u16]) -> Vec<u8> {
    let mut out = vec![filter_in, 0];
    out.put_u16(ids.len() as u16);
    ids.iter().for_each(|id| {
        out.put_u16(*id);
    });
    out
}

fn names(gate: Gate, filter_in: u8, count: u16, names: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    out.put_u64(gate.any).put_u64(gate.all).put_u8(gate.level).put_u8(filter_in).put_u16(count).put(names);
    out
}

fn wide(text: &str) -> Vec<u8> {
    text.encode_utf16().flat_map(u16::to_le_bytes).collect()
}

fn schematized(id: u16, data: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    out.put_u16(id).put_u8(1).put(&[0; 5]).put_u64(0).put_u32(24 + data.len() as u32).put_u32(0).put(data);
    out
}

fn all(filters: &[(u32, Vec<u8>)]) -> Result<()> {
    check_all(filters.iter().map(|(kind, data)| (*kind, data.as_slice())), &PROVIDER, false)
}

#[test]
fn every_filter_type_is_accepted_up_to_its_limit() {
    let many: Vec<u16> = (0..65).collect();
    let name = |bytes: usize| names(Gate::default(), 1, 1, &[vec![b'n'; bytes - 21], vec![0]].concat());
    let payload = payload::tests::sample();
    for (kind, good, bad) in [
        (EVENT_FILTER_TYPE_SCHEMATIZED, schematized(1, &[7; 1000]), schematized(1, &[7; 1001])),
        (EVENT_FILTER_TYPE_SCHEMATIZED, schematized(1, &[]), vec![0; 23]),
        (EVENT_FILTER_TYPE_SCHEMATIZED, schematized(1, &[]), schematized(1, &[1])[..24].to_vec()),
        (EVENT_FILTER_TYPE_PID, vec![1; 32], vec![1; 36]),
        (EVENT_FILTER_TYPE_PID, vec![1; 4], vec![]),
        (EVENT_FILTER_TYPE_PID, vec![1; 8], vec![1; 7]),
        (EVENT_FILTER_TYPE_EXECUTABLE_NAME, wide(&"n".repeat(512)), wide(&"n".repeat(513))),
        (EVENT_FILTER_TYPE_PACKAGE_ID, wide("a;b\0"), wide("a\0b")),
        (EVENT_FILTER_TYPE_PACKAGE_APP_ID, wide("a"), wide(" ;;\0")),
        (EVENT_FILTER_TYPE_CONTAINER, wide("a"), vec![]),
        (EVENT_FILTER_TYPE_CONTAINER, wide("a"), vec![65, 0, 66]),
        (EVENT_FILTER_TYPE_CONTAINER, wide("a"), vec![0, 0xD8]),
        (EVENT_FILTER_TYPE_EVENT_ID, ids(1, &many[..64]), ids(1, &many)),
        (EVENT_FILTER_TYPE_EVENT_ID, ids(0, &[0]), ids(0, &[])),
        (EVENT_FILTER_TYPE_EVENT_ID, ids(0, &[3]), ids(0, &[3, 4])[..6].to_vec()),
        (EVENT_FILTER_TYPE_STACKWALK, ids(0, &[3]), [ids(0, &[3]), vec![0]].concat()),
        (EVENT_FILTER_TYPE_STACKWALK, ids(0, &[3]), vec![1, 0, 1]),
        (EVENT_FILTER_TYPE_EVENT_NAME, name(4096), name(4097)),
        (
            EVENT_FILTER_TYPE_EVENT_NAME,
            names(Gate::default(), 1, 2, b"a\0\0\0\0"),
            names(Gate::default(), 1, 0, b""),
        ),
        (EVENT_FILTER_TYPE_STACKWALK_NAME, name(30), names(Gate::default(), 1, 2, b"a\0b")),
        (EVENT_FILTER_TYPE_STACKWALK_NAME, name(30), names(Gate::default(), 1, 1, b"a\0b\0")),
        (EVENT_FILTER_TYPE_STACKWALK_NAME, name(30), vec![0; 19]),
        (EVENT_FILTER_TYPE_STACKWALK_LEVEL_KW, vec![0; 24], vec![0; 25]),
        (EVENT_FILTER_TYPE_STACKWALK_LEVEL_KW, vec![0; 24], vec![0; 18]),
        (EVENT_FILTER_TYPE_PAYLOAD, payload.clone(), [payload, vec![0]].concat()),
        (EVENT_FILTER_TYPE_PAYLOAD, payload::tests::sample(), vec![]),
        (1, vec![0; 1024], vec![0; 1025]),
        (0x7FFF_FFFF, vec![], vec![0; 1025]),
    ] {
        assert_eq!(all(&[(kind, good)]), Ok(()), "{kind:#x}");
        assert!(all(&[(kind, bad.clone())]).is_err(), "{kind:#x} {} bytes", bad.len());
    }
    for unknown in [0x8000_0040, 0x8000_0080, 0x8000_0800, 0x8001_0000, 0x8000_0003, u32::MAX] {
        assert!(all(&[(unknown, vec![0; 8])]).is_err(), "{unknown:#x}");
    }
}

#[test]
fn a_call_has_thirteen_filters_each_type_once_and_some_for_the_kernel_only() {
    let several = |n: u32| (1..=n).map(|kind| (kind, vec![])).collect::<Vec<_>>();
    assert_eq!(all(&several(13)), Ok(()));
    assert!(all(&several(14)).is_err());
    assert!(all(&[(7, vec![]), (8, vec![]), (7, vec![])]).is_err());
    assert_eq!(all(&[(0, vec![1; 9999]), (0, vec![])]), Ok(()), "none is no filter");
    for (kind, right) in [(EVENT_FILTER_TYPE_SYSTEM_FLAGS, 4), (EVENT_FILTER_TYPE_TRACEHANDLE, 8)] {
        assert!(all(&[(kind, vec![0; right])]).is_err());
        for size in 0..12 {
            let data = vec![0; size];
            let checked = check_all([(kind, &data[..])].into_iter(), &SYSTEM_TRACE_CONTROL, false);
            assert_eq!(checked.is_ok(), size == right, "{kind:#x} {size}");
        }
    }
    let payload = payload::tests::sample();
    for (kind, data, allowed) in [
        (EVENT_FILTER_TYPE_EVENT_ID, ids(1, &[1]), false),
        (EVENT_FILTER_TYPE_EVENT_NAME, names(Gate::default(), 1, 1, b"n\0"), false),
        (EVENT_FILTER_TYPE_PAYLOAD, payload, false),
        (EVENT_FILTER_TYPE_STACKWALK, ids(1, &[1]), true),
        (EVENT_FILTER_TYPE_PID, vec![0; 4], true),
    ] {
        let checked = check_all([(kind, &data[..])].into_iter(), &PROVIDER, true);
        assert_eq!(checked.is_ok(), allowed, "{kind:#x} of a group");
    }
}

#[test]
fn views_return_the_encoded_values() {
    let data = ids(2, &[5, 0, 5]);
    let view = EventIds::parse(&data).unwrap();
    assert!(view.filter_in);
    assert_eq!(view.ids().collect::<Vec<_>>(), [5, 0, 5]);
    let gate = Gate { any: 6, all: 2, level: 4 };
    let data = names(gate, 0, 3, "one\0\0drüben\0\0\0".as_bytes());
    let view = EventNames::parse(&data).unwrap();
    assert_eq!((view.gate, view.filter_in), (gate, false));
    assert_eq!(view.names().collect::<Vec<_>>(), ["one".as_bytes(), b"", "drüben".as_bytes()]);
    assert_eq!(pids(&[1, 0, 0, 0, 0, 1, 0, 0]).unwrap(), [1, 256]);
    assert_eq!(name_list(&wide(" Grün.Service; b ;;C\0\0")).unwrap(), ["grün.service", "b", "c"]);
    let data = [&data[..18], &[0; 6]].concat();
    assert_eq!(LevelKeyword::parse(&data).unwrap(), LevelKeyword { gate, filter_in: false });
}

#[test]
fn gate_ignores_all_mask_if_any_mask_is_zero() {
    let gate = |any, all, level| Gate { any, all, level };
    assert!(gate(0, 8, 0).admits(255, 1), "all is not used");
    assert!(gate(1, 8, 0).admits(3, 9) && !gate(1, 8, 0).admits(3, 1) && !gate(1, 8, 0).admits(3, 8));
    assert!(gate(1, 8, 3).admits(3, 0) && !gate(1, 8, 3).admits(4, 0) && gate(1, 8, 3).admits(0, 0));
}

#[test]
fn a_chain_gives_each_filter_with_its_session() {
    let (mut chain, mut last) = (Vec::new(), 0);
    for (index, length) in [3_usize, 0, 1000, 8].into_iter().enumerate() {
        let mut filter = schematized(index as u16, &vec![index as u8; length]);
        // The value that the caller put there is ignored.
        filter[8] = 99;
        filter[20] = 200;
        append_to_chain(&mut chain, &mut last, &filter, 1 << index);
    }
    let seen: Vec<_> = Header::chain(&chain).map(|h| (h.id, h.instance, h.data.len())).collect();
    assert_eq!(seen, [(0, 1, 3), (1, 2, 0), (2, 4, 1000), (3, 8, 8)]);
    let ends: Vec<u32> = Header::chain(&chain).map(|h| h.next).collect();
    assert_eq!(ends, [32, 24, 1024, 0]);
    assert_eq!(Header::chain(&chain[..50]).count(), 1, "cut short");
    assert_eq!(Header::chain(&[]).count(), 0);
}

#[test]
fn encoded_filter_reads_back_or_is_rejected() {
    let gate = Gate { any: 1 << 63, all: 2, level: 3 };
    let bytes = encode::event_ids(true, &[1, 0x1234]);
    assert_eq!(bytes, ids(1, &[1, 0x1234]));
    let bytes = encode::event_names(gate, false, &["A", "Bc"]);
    assert_eq!(bytes, names(gate, 0, 2, b"A\0Bc\0"));
    let bytes = encode::level_keyword(gate, true);
    assert_eq!(LevelKeyword::parse(&bytes), Ok(LevelKeyword { gate, filter_in: true }));
    assert_eq!(pids(&encode::pids(&[1, u32::MAX])), Ok(vec![1, u32::MAX]));
    let bytes = encode::name_list(&["Ä.service", "b"]);
    assert_eq!(bytes, wide("Ä.service;b"));
    assert_eq!(names_as_given(&bytes).unwrap(), ["Ä.service", "b"]);
    assert_eq!(name_list(&bytes).unwrap(), ["ä.service", "b"]);
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
