//! Fuzzes the conversion of events with packets to pcapng. It must return an error, or blocks whose
//! lengths add up to the output.
//!
//! ```text
//!   input   u8 kind │ u64 keyword │ u16 size │ payload    for each event
//! ```
#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use traceweir_convert::{ConvertInput, pcapng};
use traceweir_format::Guid;
use traceweir_format::etl::{Options, Summary, Writer};
use traceweir_format::header::event::EventHeader;
use traceweir_format::spec::event::EventDescriptor;
use traceweir_format::wire::{u16_at, u32_at, u64_at};
use traceweir_fuzz::arguments::work_folder;

const NDIS_CAPTURE: Guid = Guid::from_u128(0x2ED6006E_4729_4609_B423_3EE7BCD678EF);
const PACKET_MONITOR: Guid = Guid::from_u128(0x4D4F80D9_C8BD_4D73_BB5B_19C90402C5AC);
const KINDS: [(Guid, u16); 6] = [
    (NDIS_CAPTURE, 1001),
    (NDIS_CAPTURE, 1002),
    (NDIS_CAPTURE, 1003),
    (PACKET_MONITOR, 20),
    (PACKET_MONITOR, 160),
    (PACKET_MONITOR, 170),
];
const HEAD_BYTES: usize = 11;

/// Builds a trace of the events that the input describes.
fn build_trace(mut input: &[u8]) -> Vec<u8> {
    let mut writer = Writer::create(Vec::new(), Options::default()).expect("the options are valid");
    let mut time = 0;
    while input.len() >= HEAD_BYTES {
        let (provider, id) = KINDS[usize::from(input[0]) % KINDS.len()];
        let (keyword, size) = (u64_at(input, 1), usize::from(u16_at(input, 9)));
        let (payload, rest) = input[HEAD_BYTES..].split_at(size.min(input.len() - HEAD_BYTES));
        input = rest;
        time += 10;
        let descriptor = EventDescriptor { id, keyword, ..EventDescriptor::default() };
        let header = EventHeader { time, provider, descriptor, ..EventHeader::default() };
        let mut record = Vec::new();
        // A payload may be too large for a record, and a record too large for a buffer.
        if header.encode(payload, &mut record).is_ok() {
            let _ = writer.write(0, time, &record);
        }
    }
    writer.finish(Summary::default()).expect("the file is in memory")
}

fuzz_target!(|input: &[u8]| {
    let path = work_folder().join("packets.etl");
    std::fs::write(&path, build_trace(input)).expect("the work folder is writable");
    let input = ConvertInput {
        files: vec![path],
        schemas: Default::default(),
        symbols: Default::default(),
        criteria: Default::default(),
        observer: Arc::new(()),
    };
    let mut capture = Vec::new();
    if pcapng::convert(&input, &mut capture).is_err() {
        return;
    }
    let mut remaining = &capture[..];
    while !remaining.is_empty() {
        let length = u32_at(remaining, 4) as usize;
        assert!(length >= 12 && length.is_multiple_of(4), "a block has an invalid length");
        assert_eq!(u32_at(remaining, length - 4) as usize, length, "the lengths of a block differ");
        remaining = &remaining[length..];
    }
});
