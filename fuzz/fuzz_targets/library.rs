//! Fuzzes the functions of tdh.h for providers, payload filters and decoding handles, after loading
//! any manifest or message format.
#![no_main]

use std::ffi::c_void;
use std::ptr::{null, null_mut};

use libfuzzer_sys::fuzz_target;
use traceweir::{EventDescriptor, Guid};
use traceweir_c::tdh::filter::*;
use traceweir_c::tdh::format::TdhFormatProperty;
use traceweir_c::tdh::handle::*;
use traceweir_c::tdh::providers::*;
use traceweir_c::tdh::{TdhGetEventInformation, TdhGetEventMapInformation};
use traceweir_c::types::FilterDescriptor;
use traceweir_c::types::record::EventRecord;
use traceweir_c::types::tdh::{PayloadFilterPredicate, TdhContext};
use traceweir_format::spec::event::{EVENT_HEADER_FLAG_64_BIT_HEADER, EVENT_HEADER_FLAG_TRACE_MESSAGE};
use traceweir_fuzz::arguments::{Arguments, GuardedMemory, call_with_sizes, work_folder};

/// Largest number of providers, of events of a provider, and of fields of an event that are
/// queried.
const MAX_QUERIES: usize = 8;
const ERROR_SUCCESS: u32 = 0;
const ERROR_INVALID_PARAMETER: u32 = 87;
const ERROR_INVALID_HANDLE: u32 = 6;

fn read_guid(words: &[u64], at: usize) -> Guid {
    let bytes: Vec<u8> = words[at..at + 2].iter().flat_map(|word| word.to_le_bytes()).collect();
    Guid::from_bytes(bytes.first_chunk().expect("two words have 16 bytes"))
}

/// Queries everything about a loaded manifest.
fn query_manifest(arguments: &mut Arguments<'_>) {
    let predicates = take_predicates(arguments);
    let (kind, value, payload) = (arguments.take_u32() % 8, arguments.take_u64(), arguments.take_bytes());
    let mut memory = GuardedMemory::new(arguments.0.len(), arguments.0);
    // SAFETY: the memory has as many bytes as stated.
    let loaded = unsafe { TdhLoadManifestFromMemory(memory.address(), memory.size()) };
    // SAFETY: `call_with_sizes` passes buffers of the stated size.
    let list = call_with_sizes(|buffer, size| unsafe { TdhEnumerateProviders(buffer.cast(), size) });
    let list = list.unwrap_or_default();
    // One word of header, then three for each provider: GUID, source, name.
    let count = list.first().map_or(0, |word| *word as u32 as usize);
    for index in 0..count.min(MAX_QUERIES) {
        let provider = read_guid(&list, 1 + index * 3);
        for kind in 0..6 {
            // SAFETY: `call_with_sizes` passes buffers of the stated size.
            let _ = call_with_sizes(|buffer, size| unsafe {
                TdhEnumerateProviderFieldInformation(&provider, kind, buffer.cast(), size)
            });
        }
        // SAFETY: `call_with_sizes` passes buffers of the stated size.
        let _ = call_with_sizes(|buffer, size| unsafe {
            TdhQueryProviderFieldInformation(&provider, value, kind, buffer.cast(), size)
        });
        // SAFETY: `call_with_sizes` passes buffers of the stated size.
        let events = call_with_sizes(|buffer, size| unsafe {
            TdhEnumerateManifestProviderEvents(&provider, buffer.cast(), size)
        });
        let events = events.unwrap_or_default();
        // One word of header, then two for each event: its descriptor.
        let count = events.first().map_or(0, |word| *word as u32 as usize);
        for index in 0..count.min(MAX_QUERIES) {
            query_event(&provider, [events[1 + index * 2], events[2 + index * 2]], &payload, &predicates);
        }
    }
    // SAFETY: the memory has as many bytes as stated.
    let unloaded = unsafe { TdhUnloadManifestFromMemory(memory.address(), memory.size()) };
    assert!(loaded != ERROR_SUCCESS || unloaded == ERROR_SUCCESS, "unloading returned {unloaded}");
    memory.check_canaries();
}

/// Queries the schema of one event of a manifest, decodes a record of the event, and creates
/// payload filters for it.
fn query_event(provider: &Guid, words: [u64; 2], payload: &[u8], predicates: &Predicates) {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&words[0].to_le_bytes());
    bytes[8..].copy_from_slice(&words[1].to_le_bytes());
    let descriptor = EventDescriptor::from_bytes(&bytes);
    // SAFETY: `call_with_sizes` passes buffers of the stated size.
    let info = call_with_sizes(|buffer, size| unsafe {
        TdhGetManifestEventInformation(provider, &descriptor, buffer.cast(), size)
    });
    let Some(info) = info else { return };
    let mut data = payload.to_vec();
    // SAFETY: zeros are a valid, empty record.
    let mut record: EventRecord = unsafe { std::mem::zeroed() };
    (record.event_header.provider_id, record.event_header.event_descriptor) = (*provider, descriptor);
    record.event_header.flags = EVENT_HEADER_FLAG_64_BIT_HEADER;
    (record.user_data, record.user_data_length) = (data.as_mut_ptr().cast(), data.len() as u16);
    // SAFETY: `call_with_sizes` passes buffers of the stated size.
    let _ = call_with_sizes(|buffer, size| unsafe {
        TdhGetEventInformation(&record, 0, null(), buffer.cast(), size)
    });
    query_maps(&record, &info, &data);
    create_filters(provider, &descriptor, predicates);
}

/// Queries the maps that a schema names, and formats values with them.
fn query_maps(record: &EventRecord, info: &[u64], data: &[u8]) {
    // Offsets in TRACE_EVENT_INFO. In each EVENT_PROPERTY_INFO, the in type and the out type are at
    // 8, and the offset of the map's name is at 12.
    const PROPERTY_COUNT_OFFSET: usize = 100;
    const PROPERTIES_OFFSET: usize = 112;
    const PROPERTY_BYTES: usize = 24;
    let bytes: Vec<u8> = info.iter().flat_map(|word| word.to_le_bytes()).collect();
    let number = |at: usize| {
        bytes.get(at..).and_then(|remaining| remaining.first_chunk()).map_or(0, |n| u32::from_le_bytes(*n))
    };
    let (count, mut text) = (number(PROPERTY_COUNT_OFFSET) as usize, vec![0_u16; 2048]);
    for index in 0..count.min(MAX_QUERIES) {
        let at = PROPERTIES_OFFSET + index * PROPERTY_BYTES;
        let (types, name) = (number(at + 8), number(at + 12) as usize);
        let name: Vec<u16> = bytes
            .get(name..)
            .unwrap_or_default()
            .chunks_exact(2)
            .map(|unit| u16::from_le_bytes([unit[0], unit[1]]))
            .take_while(|unit| *unit != 0)
            .chain([0])
            .collect();
        // SAFETY: `call_with_sizes` passes buffers of the stated size; the name is terminated.
        let map = call_with_sizes(|buffer, size| unsafe {
            TdhGetEventMapInformation(record, name.as_ptr(), buffer.cast(), size)
        });
        let (mut size, mut used) = (4096, 0);
        // SAFETY: the structures are the library's own, buffers have as many bytes as stated.
        unsafe {
            TdhFormatProperty(
                info.as_ptr().cast(),
                map.as_ref().map_or(null(), |map| map.as_ptr().cast()),
                8,
                types as u16,
                (types >> 16) as u16,
                0,
                data.len() as u16,
                data.as_ptr(),
                &mut size,
                text.as_mut_ptr(),
                &mut used,
            )
        };
        assert!(usize::from(used) <= data.len());
    }
}

/// Fields, operators and values of predicates.
type Predicates = Vec<(Vec<u16>, u16, Vec<u16>)>;

fn take_predicates(arguments: &mut Arguments<'_>) -> Predicates {
    (0..arguments.take_u8() % 10)
        .map(|_| (arguments.take_utf16_name(), arguments.take_u16() % 40, arguments.take_utf16_name()))
        .collect()
}

fn create_filters(provider: &Guid, descriptor: &EventDescriptor, predicates: &Predicates) {
    let structures: Vec<PayloadFilterPredicate> = predicates
        .iter()
        .map(|(field, operator, value)| PayloadFilterPredicate {
            field_name: field.as_ptr(),
            compare_op: *operator,
            value: value.as_ptr(),
        })
        .collect();
    let (mut filter, mut blob): (*mut c_void, _) =
        (null_mut(), FilterDescriptor { ptr: 0, size: 0, kind: 0 });
    // SAFETY: there are as many predicates as stated, and their texts are terminated; the results
    // have valid addresses.
    unsafe {
        let count = structures.len() as u32;
        let status = TdhCreatePayloadFilter(
            provider,
            descriptor,
            count as u8 & 1,
            count,
            structures.as_ptr(),
            &mut filter,
        );
        if status != ERROR_SUCCESS {
            return;
        }
        assert_eq!(
            TdhCloseDecodingHandle(filter),
            ERROR_INVALID_HANDLE,
            "a filter must not be accepted as a decoding handle"
        );
        if TdhAggregatePayloadFilters(1, &filter, null(), &mut blob) == ERROR_SUCCESS {
            let mut again = blob;
            assert_eq!(TdhCleanupPayloadEventFilterDescriptor(&mut blob), ERROR_SUCCESS);
            assert_eq!(TdhCleanupPayloadEventFilterDescriptor(&mut again), ERROR_INVALID_PARAMETER);
        }
        let mut again = filter;
        assert_eq!(TdhDeletePayloadFilter(&mut filter), ERROR_SUCCESS);
        assert_eq!(TdhDeletePayloadFilter(&mut again), ERROR_INVALID_PARAMETER);
    }
}

/// Loads message formats from a file, and formats messages with them.
fn query_messages(arguments: &mut Arguments<'_>) {
    /// TDH_CONTEXT_WPP_TMFFILE, TMFSEARCHPATH and PDB_PATH; the other contexts are numbers.
    const PATH_CONTEXTS: [u32; 3] = [0, 1, 4];
    let (provider, id, mut payload, name) =
        (arguments.take_guid(), arguments.take_u16(), arguments.take_bytes(), arguments.take_utf16_name());
    let file = work_folder().join("messages.tmf");
    std::fs::write(&file, arguments.0).expect("the message file can be written");
    let path: Vec<u16> = file.to_str().expect("the path is UTF-8").encode_utf16().chain([0]).collect();
    let mut handle = null_mut();
    // SAFETY: zeros are a valid, empty record.
    let mut record: EventRecord = unsafe { std::mem::zeroed() };
    record.event_header.flags = EVENT_HEADER_FLAG_64_BIT_HEADER | EVENT_HEADER_FLAG_TRACE_MESSAGE;
    record.event_header.provider_id = provider;
    record.event_header.event_descriptor.id = id;
    (record.user_data, record.user_data_length) = (payload.as_mut_ptr().cast(), payload.len() as u16);
    // SAFETY: contexts point to a terminated text, or to a buffer of the stated size.
    unsafe {
        assert_eq!(TdhOpenDecodingHandle(&mut handle), ERROR_SUCCESS);
        for kind in 0..5 {
            let value = if PATH_CONTEXTS.contains(&kind) {
                path.as_ptr().expose_provenance() as u64
            } else {
                id.into()
            };
            let context = TdhContext { parameter_value: value, parameter_type: kind, parameter_size: 0 };
            TdhSetDecodingParameter(handle, &context);
            let mut buffer = GuardedMemory::new(usize::from(id) % 300, &[]);
            let mut returned =
                TdhContext { parameter_value: 0, parameter_type: kind, parameter_size: buffer.size() };
            returned.parameter_value = buffer.address::<u8>().expose_provenance() as u64;
            TdhGetDecodingParameter(handle, &mut returned);
            buffer.check_canaries();
        }
        let _ = call_with_sizes(|buffer, size| TdhGetWppMessage(handle, &record, size, buffer));
        let _ =
            call_with_sizes(|buffer, size| TdhGetWppProperty(handle, &record, name.as_ptr(), size, buffer));
        assert_eq!(TdhCloseDecodingHandle(handle), ERROR_SUCCESS);
        assert_eq!(TdhCloseDecodingHandle(handle), ERROR_INVALID_HANDLE);
        assert_eq!(TdhGetWppMessage(handle, &record, &mut 0, null_mut()), ERROR_INVALID_HANDLE);
    }
}

fuzz_target!(|data: &[u8]| {
    work_folder();
    let mut arguments = Arguments(data);
    if arguments.take_u8() & 1 == 0 { query_manifest(&mut arguments) } else { query_messages(&mut arguments) }
});
