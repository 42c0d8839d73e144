//! Fuzzes the functions of tdh.h with any record: with buffers that are one byte too small and just
//! large enough, for every property, and with every value as text.
#![no_main]

use std::ptr::{null, null_mut};

use libfuzzer_sys::fuzz_target;
use traceweir_c::tdh::format::TdhFormatProperty;
use traceweir_c::tdh::{
    TdhGetEventInformation, TdhGetEventMapInformation, TdhGetProperty, TdhGetPropertySize,
};
use traceweir_c::types::record::{BufferContext, EventHeader, EventRecord, ExtendedDataItem};
use traceweir_c::types::tdh::PropertyDataDescriptor;
use traceweir_decode::schema::FieldKind;
use traceweir_decode::source::embedded::parse_event_info;
use traceweir_format::Guid;
use traceweir_format::spec::event::*;
use traceweir_fuzz::arguments::split_event_input;

const ERROR_SUCCESS: u32 = 0;
const ERROR_INSUFFICIENT_BUFFER: u32 = 122;
/// Largest number of properties of an event that are queried.
const MAX_PROPERTIES: usize = 32;

fn extended_item(kind: ExtType, data: &[u8]) -> ExtendedDataItem {
    ExtendedDataItem {
        reserved1: 0,
        ext_type: kind.0,
        linkage: 0,
        data_size: data.len() as u16,
        data_ptr: data.as_ptr().expose_provenance() as u64,
    }
}

fn event_record(items: &mut [ExtendedDataItem], payload: &mut [u8], flags: u16) -> EventRecord {
    let descriptor =
        EventDescriptor { opcode: payload.first().copied().unwrap_or(0), ..EventDescriptor::default() };
    EventRecord {
        event_header: EventHeader {
            size: 0,
            header_type: 0,
            flags,
            event_property: 0,
            thread_id: 0,
            process_id: 0,
            time_stamp: 0,
            provider_id: Guid::NULL,
            event_descriptor: descriptor,
            kernel_time: 0,
            user_time: 0,
            activity_id: Guid::NULL,
        },
        buffer_context: BufferContext { processor_index: 0, logger_id: 0 },
        extended_data_count: items.len() as u16,
        user_data_length: payload.len() as u16,
        extended_data: items.as_mut_ptr(),
        user_data: payload.as_mut_ptr().cast(),
        user_context: null_mut(),
    }
}

/// Queries the schema without a buffer, with a buffer that is one byte too small, and with a buffer
/// of the needed size.
fn query_schema(event: &EventRecord) -> Option<Vec<u64>> {
    let mut size = 0;
    // SAFETY: the record's addresses are valid, and there is no buffer.
    let status = unsafe { TdhGetEventInformation(event, 0, null(), null_mut(), &mut size) };
    if status != ERROR_INSUFFICIENT_BUFFER {
        return None;
    }
    let needed = size;
    let mut info = vec![0_u64; (needed as usize).div_ceil(8)];
    for (buffer_bytes, expected) in [(needed - 1, ERROR_INSUFFICIENT_BUFFER), (needed, ERROR_SUCCESS)] {
        size = buffer_bytes;
        // SAFETY: the buffer has at least `size` bytes.
        let status = unsafe { TdhGetEventInformation(event, 0, null(), info.as_mut_ptr().cast(), &mut size) };
        assert_eq!((status, size), (expected, needed));
    }
    Some(info)
}

/// Queries one property: its size, its bytes, and its map.
fn query_property(event: &EventRecord, name: &str, index: u32) {
    let name: Vec<u16> = name.encode_utf16().chain([0]).collect();
    let step = PropertyDataDescriptor {
        property_name: name.as_ptr().expose_provenance() as u64,
        array_index: index,
        reserved: 0,
    };
    let mut size = 0;
    // SAFETY: the record, the step and its name are valid.
    if unsafe { TdhGetPropertySize(event, 0, null(), 1, &step, &mut size) } == 0 {
        let mut bytes = vec![0_u8; size as usize + 1];
        // SAFETY: the buffer has one byte more than stated.
        let status = unsafe { TdhGetProperty(event, 0, null(), 1, &step, size, bytes.as_mut_ptr()) };
        assert_eq!(status, 0);
        assert!(size <= u32::from(event.user_data_length));
    }
    // SAFETY: the record and the name are valid, and there is no buffer.
    let _ = unsafe { TdhGetEventMapInformation(event, name.as_ptr(), null_mut(), &mut 0) };
}

/// Formats one value as text.
fn format_value(info: &[u64], (input, output, length): (u16, u16, u16), payload: &[u8]) {
    let mut text = vec![0_u16; 4096];
    let (mut size, mut used) = (8192, 0);
    // SAFETY: the buffer has the stated size, and there is no map.
    let status = unsafe {
        TdhFormatProperty(
            info.as_ptr().cast(),
            null(),
            8,
            input,
            output,
            length,
            payload.len() as u16,
            payload.as_ptr(),
            &mut size,
            text.as_mut_ptr(),
            &mut used,
        )
    };
    if status == 0 {
        assert!(usize::from(used) <= payload.len());
        assert_eq!(text.iter().position(|unit| *unit == 0).map(|end| end < size as usize / 2), Some(true));
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((traits, metadata, payload)) = split_event_input(data) else { return };
    // The parts are separate allocations, so that a sanitizer detects an access one byte too far.
    let (traits, metadata, mut payload) = (traits.to_vec(), metadata.to_vec(), payload.to_vec());
    payload.truncate(usize::from(u16::MAX));
    let mut items =
        [extended_item(ExtType::PROV_TRAITS, &traits), extended_item(ExtType::EVENT_SCHEMA_TL, &metadata)];
    for flags in [
        EVENT_HEADER_FLAG_64_BIT_HEADER,
        EVENT_HEADER_FLAG_32_BIT_HEADER,
        EVENT_HEADER_FLAG_CLASSIC_HEADER,
        EVENT_HEADER_FLAG_TRACE_MESSAGE,
        EVENT_HEADER_FLAG_STRING_ONLY,
    ] {
        let event = event_record(&mut items, &mut payload, flags);
        let Some(info) = query_schema(&event) else { continue };
        let bytes: Vec<u8> = info.iter().flat_map(|word| word.to_le_bytes()).collect();
        let read = parse_event_info(&bytes).expect("the returned structure can be parsed");
        for field in read.schema.fields().iter().take(MAX_PROPERTIES) {
            // `u32::MAX` means all elements of an array.
            query_property(&event, &field.name, u32::MAX);
            query_property(&event, &field.name, 1);
            if let FieldKind::Value { input, output, .. } = &field.kind {
                format_value(&info, (input.0, output.0, payload.len() as u16 / 3), &payload);
                format_value(&info, (input.0, output.0, 0), &payload);
            }
        }
    }
});
