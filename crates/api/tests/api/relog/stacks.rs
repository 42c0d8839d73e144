//! Stack keys of several inputs, and an extended data item whose size exceeds its record.

use super::*;
use traceweir_format::header::extended::Item;
use traceweir_format::spec::event::ExtType;
use traceweir_format::stack_key::{Definitions, put_definition};

fn encode_definition(time: i64, key: u64, frames: [u64; 4]) -> Vec<u8> {
    let mut out = Vec::new();
    put_definition(key, &frames.map(u64::to_le_bytes).concat(), time, &mut out).unwrap();
    out
}

fn encode_event_with_item(time: i64, process_id: u32, kind: ExtType, data: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    EventHeader { time, process_id, items: &[Item { kind, data }], ..EventHeader::default() }
        .encode(b"payload!", &mut out)
        .unwrap();
    out
}

/// Encodes an event with a STACK_KEY64 item: match id (0) and key.
fn encode_event_with_stack_key(time: i64, process_id: u32, key: u64) -> Vec<u8> {
    encode_event_with_item(time, process_id, ExtType::STACK_KEY64, &[0, key].map(u64::to_le_bytes).concat())
}

#[test]
fn stack_keys_of_one_input_do_not_match_stacks_of_another() {
    let folder = tempfile::tempdir().unwrap();
    let inputs: Vec<_> = (0..3)
        .map(|index: u64| {
            let time = 6_000 + index.cast_signed();
            let records = [
                (0, encode_definition(time, 1, [index; 4])),
                (0, encode_event_with_stack_key(time + 100, index as u32, 1)),
            ];
            let options = Options { anchor: 5_000 + index.cast_signed(), ..options() };
            write_file(&folder.path().join(format!("{index}.etl")), options, &records, ended_after(9))
        })
        .collect();
    let out = folder.path().join("out.etl");
    relog_all(&inputs, &out, Settings::default());
    assert_eq!(broken_rules(&out), [""; 0]);
    let (trace, mut definitions, mut stacks) = (open_trace(&out), Definitions::default(), Vec::new());
    let mut events = trace.events();
    while let Some(record) = events.next().unwrap() {
        definitions.observe(&record);
    }
    let mut events = trace.events();
    while let Some(record) = events.next().unwrap() {
        stacks.extend(
            definitions.frames(&record).map(|frames| (record.process_id(), frames.collect::<Vec<_>>())),
        );
    }
    stacks.sort();
    assert_eq!(stacks, [(0, vec![0; 4]), (1, vec![1; 4]), (2, vec![2; 4])]);
}

#[test]
fn item_larger_than_its_record_becomes_payload() {
    let folder = tempfile::tempdir().unwrap();
    let mut damaged = encode_event_with_item(6_000, 1, ExtType::RELATED_ACTIVITYID, &[7; 16]);
    // The size of the item exceeds the record.
    damaged[0x50 + 6..0x50 + 8].copy_from_slice(&0x7000_u16.to_le_bytes());
    let after_header = damaged[0x50..].to_vec();
    let input = write_file(&folder.path().join("in.etl"), options(), &[(0, damaged)], ended_after(9));
    assert_ne!(broken_rules(&input), [""; 0]);
    let out = folder.path().join("out.etl");
    let summary = relog_all(&[input], &out, Settings::default());
    // The events are the log-file header and the damaged event. Its item counts as dropped, because
    // the bytes become payload.
    assert_eq!((summary.events, summary.items_dropped), (2, 1));
    assert_eq!(broken_rules(&out), [""; 0]);
    let [(_, _, bytes)] = &read_events(&out)[..] else { panic!() };
    let record = traceweir_format::header::Record::parse(bytes, 0).unwrap();
    assert!(
        !record.has_damaged_items()
            && after_header.starts_with(record.payload())
            && !record.payload().is_empty()
    );
}
