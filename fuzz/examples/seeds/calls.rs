//! Seeds for the targets that read arguments from their input (`traceweir_fuzz::arguments`), in the
//! order in which the targets read them. A call of the controller target begins with the number of
//! the call.

use traceweir_format::Guid;
use traceweir_format::spec::enable::EVENT_FILTER_TYPE_SCHEMATIZED;
use traceweir_format::spec::session::{EVENT_TRACE_FILE_MODE_SEQUENTIAL, EVENT_TRACE_REAL_TIME_MODE};
use traceweir_format::wire::Put;

use super::{EVERYTHING, Seeds, TMF, filter, security};

const WNODE_FLAG_TRACED_GUID: u32 = 0x0002_0000;
const WNODE_FLAG_VERSIONED_PROPERTIES: u32 = 0x0080_0000;
const FORMAT_MESSAGE_ALLOCATE_BUFFER: u32 = 0x100;

/// Appends a length and the bytes.
fn put_bytes(out: &mut Vec<u8>, data: &[u8]) {
    out.put_u16(u16::try_from(data.len()).expect("the length fits")).put(data);
}

fn put_utf16(out: &mut Vec<u8>, text: &str) {
    put_bytes(out, &text.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<u8>>());
}

/// Appends a size and the content of a block of memory.
fn put_memory(out: &mut Vec<u8>, size: u16, content: &[u8]) {
    out.put_u16(size);
    put_bytes(out, content);
}

/// Appends the count and each filter.
fn put_filters(out: &mut Vec<u8>, filters: &[Vec<u8>]) {
    out.put_u8(u8::try_from(filters.len()).expect("the number of filters fits"));
    for seed in filters {
        let (kind, data) = seed.split_at(4);
        out.put(kind);
        put_bytes(out, data);
    }
}

/// Returns EVENT_TRACE_PROPERTIES with a file name after it.
fn trace_properties(flags: u32, mode: u32) -> Vec<u8> {
    let mut block = vec![0; 120];
    let mut put = |at: usize, value: u32| block[at..at + 4].copy_from_slice(&value.to_le_bytes());
    // Flags, buffer size, minimum buffers, mode, offsets of the file name and the session name.
    for (at, value) in [(44, flags), (48, 64), (52, 4), (64, mode), (112, 160), (116, 400)] {
        put(at, value);
    }
    block.resize(160, 0);
    block.put_wide_z("seed.etl");
    block
}

pub(super) fn controller_seeds() -> Seeds {
    vec![
        ("start", start_call(WNODE_FLAG_TRACED_GUID, EVENT_TRACE_FILE_MODE_SEQUENTIAL)),
        (
            "start-2",
            start_call(WNODE_FLAG_TRACED_GUID | WNODE_FLAG_VERSIONED_PROPERTIES, EVENT_TRACE_REAL_TIME_MODE),
        ),
        ("query", control_call(0)),
        ("update", control_call(1)),
        ("lists", list_calls()),
        ("enable-and-write", enable_and_write()),
        ("schematized", enable_schematized_and_write()),
        ("set-stacks", information_call(3, 0, &[0x9C, 0xCA, 0x11, 0x3D, 0, 0, 0, 0])),
        ("set-capture", information_call(16, 0, &capture_state_info())),
        ("set-3-9", set_information_of_classes(3..10)),
        ("set-10-20", set_information_of_classes(10..21)),
        ("set-24-28", set_information_of_classes(24..29)),
        ("query-version", information_call(11, 1, &[])),
        ("query-sources", information_call(7, 1, &[])),
        ("list-guids", information_call(0, 2, &[])),
        ("access", access_calls()),
        ("texts", format_message_calls()),
        ("traits", traits_calls()),
        ("classic", classic_calls()),
    ]
}

fn start_call(flags: u32, mode: u32) -> Vec<u8> {
    let mut out = vec![0];
    put_filters(&mut out, &[]);
    put_utf16(&mut out, "seed");
    put_bytes(&mut out, b"seed");
    out.put_u8(0);
    put_memory(&mut out, 800, &trace_properties(flags, mode));
    out
}

/// Returns a call of ControlTrace: query (0), update (1) or flush (2).
fn control_call(code: u8) -> Vec<u8> {
    let mut out = vec![1];
    put_filters(&mut out, &[]);
    out.put_u8(0).put_u16(0).put_u16(0).put_u8(0);
    put_memory(&mut out, 800, &trace_properties(WNODE_FLAG_TRACED_GUID, 0));
    out.put_u8(code);
    out
}

fn list_calls() -> Vec<u8> {
    let mut out = vec![2, 2];
    put_memory(&mut out, 800, &trace_properties(WNODE_FLAG_TRACED_GUID, 0));
    put_memory(&mut out, 200, &trace_properties(WNODE_FLAG_TRACED_GUID, 0));
    out
}

fn put_enable(out: &mut Vec<u8>, filters: &[Vec<u8>], property: u32) {
    out.put_u8(3);
    put_filters(out, filters);
    // EnableTraceEx2 (0), version, property, control flags, source; level, any, all, control code.
    out.put_u8(0).put_u32(2).put_u32(property).put_u32(0).put_guid(&Guid::NULL);
    out.put_u8(5).put_u64(0).put_u64(0).put_u32(1);
}

fn put_write(out: &mut Vec<u8>) {
    out.put_u8(8).put_u8(2);
    for data in [&b"\x07\0\0\0text\0"[..], b"more"] {
        put_bytes(out, data);
        out.put_u32(0);
    }
    // Id; version, channel, level, opcode; task, keyword; activity ids, filter, flags.
    out.put_u16(7).put(&[1, 0, 4, 0]).put_u16(0).put_u64(0x30);
    out.put_guid(&Guid::from_u128(1)).put_guid(&Guid::from_u128(2)).put_u64(0).put_u32(0);
}

/// Returns calls that enable a provider with several filters, and write an event.
fn enable_and_write() -> Vec<u8> {
    let seed_named = |name: &str| {
        filter::filter_seeds().into_iter().find(|seed| seed.0 == name).expect("the seed exists").1
    };
    let mut out = Vec::new();
    put_enable(
        &mut out,
        &[seed_named("ids"), seed_named("payload"), seed_named("names"), seed_named("level")],
        0x44,
    );
    put_write(&mut out);
    out
}

/// Returns calls that enable a provider with all schematized filters, and write an event.
fn enable_schematized_and_write() -> Vec<u8> {
    let mut seeds: Vec<Vec<u8>> = filter::filter_seeds().into_iter().map(|seed| seed.1).collect();
    seeds.retain(|seed| seed[..4] == EVENT_FILTER_TYPE_SCHEMATIZED.to_le_bytes());
    let mut out = Vec::new();
    put_enable(&mut out, &seeds, 0);
    put_write(&mut out);
    out
}

/// Returns a call of TraceSetInformation (0), TraceQueryInformation (1) or EnumerateTraceGuidsEx
/// (2).
fn information_call(class: u32, function: u8, content: &[u8]) -> Vec<u8> {
    let mut out = vec![4];
    out.put_u32(class).put_u64(0).put_u8(function);
    let size = if content.is_empty() { 4000 } else { content.len() };
    put_memory(&mut out, u16::try_from(size).expect("the length fits"), content);
    put_memory(&mut out, 16, &[]);
    out
}

/// Returns a call with a small value for each class.
fn set_information_of_classes(classes: std::ops::Range<u32>) -> Vec<u8> {
    classes.flat_map(|class| information_call(class, 0, &[1, 0, 0, 0, 0, 16, 0, 0, 64, 0, 0, 0])).collect()
}

/// Returns TRACE_PERIODIC_CAPTURE_STATE_INFO of one provider.
fn capture_state_info() -> Vec<u8> {
    let mut out = Vec::new();
    out.put_u32(5).put_u16(1).put_u16(0).put_guid(&Guid::from_u128(1));
    out
}

fn access_calls() -> Vec<u8> {
    let sid = security::security_seeds().into_iter().find(|seed| seed.0 == "sid").expect("the seed exists").1;
    let mut out = vec![5];
    out.put_guid(&Guid::from_u128(1));
    put_bytes(&mut out, &sid);
    put_memory(&mut out, 300, &[]);
    // Operation (add to the DACL), rights, allow.
    out.put_u32(2).put_u32(0x80).put_u8(1);
    out
}

fn format_message_calls() -> Vec<u8> {
    let mut out = Vec::new();
    for (flags, code) in [(0x1000, 5), (0x1100, 4201), (0x3010, 0x8007_0005)] {
        out.put_u8(6).put_u32(flags).put_u32(code).put_u32(0);
        put_memory(&mut out, 80, &[]);
        if flags & FORMAT_MESSAGE_ALLOCATE_BUFFER != 0 {
            out.put_u32(9);
        }
    }
    out
}

fn traits_calls() -> Vec<u8> {
    let mut out = vec![7];
    out.put_u32(2);
    put_bytes(&mut out, b"\x17\0P\0\x13\0\x010123456789abcdef");
    put_utf16(&mut out, "text");
    out.put_u8(4).put_u64(0x10);
    out
}

fn classic_calls() -> Vec<u8> {
    let mut out = vec![9, 2];
    put_bytes(&mut out, b"one");
    put_bytes(&mut out, b"two");
    // EVENT_TRACE_HEADER: size, -, type and level, version, ids and time; class, -, flags (a GUID
    // is traced, and MOF fields follow); then two MOF fields.
    let mut header = Vec::new();
    header.put_u16(48 + 32).put_u16(0).put(&[1, 4]).put_u16(0).put(&[0; 16]);
    header.put_guid(&Guid::from_u128(9)).put_u32(0).put_u32(0x0012_0000).put(&[0; 32]);
    put_memory(&mut out, 80, &header);
    // Class handle, instance id, number of classes; GUID, flags and number of a message.
    out.put_u64(0).put_u32(1).put_u8(2).put_guid(&Guid::from_u128(3)).put_u32(0x2B).put_u16(7);
    out
}

/// Returns trace files, each preceded by the bytes that choose how it is opened, and one file as a
/// stream of buffers.
pub(super) fn consumer_seeds(files: Seeds) -> Seeds {
    // For a file: event at which the trace is closed, choices of the target, choices of the way to
    // open, mode (4 bytes). For a stream: the first two, then the mode (1 byte).
    let mut seeds = Vec::new();
    for (name, file) in files {
        match name {
            "plain" => {
                seeds.push(("record", [&[0, 0, 4, 0, 0, 0, 0x10], &file[..]].concat()));
                seeds.push(("narrow-raw", [&[0, 0, 2, 0, 0x10, 0, 0x10], &file[..]].concat()));
                seeds.push(("classic", [&[2, 0, 4, 0, 0, 0, 0], &file[..]].concat()));
                seeds.push(("options", [&[3, 2, 7, 0, 0, 0, 0], &file[..]].concat()));
                let mut stream = vec![0, 1, 0];
                file.chunks(2048).for_each(|buffer| put_bytes(&mut stream, buffer));
                seeds.push(("stream", stream));
            }
            "compressed" => seeds.push(("kept", [&[0, 2, 7, 0, 0, 0, 0], &file[..]].concat())),
            _ => {}
        }
    }
    seeds
}

/// Returns trace files, each preceded by four bytes: how often the file is added, changes, buffer
/// size in KiB, flags.
pub(super) fn relog_seeds(files: Seeds) -> Seeds {
    let options: [[u8; 4]; 4] = [[1, 0, 0, 0], [2, 1, 4, 3], [1, 2, 2, 2], [2, 3, 1, 15]];
    let names = ["plain", "compressed", "unfinished", "empty"];
    let seed_named =
        |name: &str| files.iter().find(|seed| seed.0 == name).expect("the seed exists").1.clone();
    names
        .into_iter()
        .zip(options)
        .map(|(name, option)| (name, [&option[..], &seed_named(name)].concat()))
        .collect()
}

pub(super) fn library_seeds(small: &[u8]) -> Seeds {
    let manifest = |field: &str, operator: u16, value: &str, xml: &[u8]| {
        let mut out = vec![0, 1];
        put_utf16(&mut out, field);
        out.put_u16(operator);
        put_utf16(&mut out, value);
        out.put_u32(0).put_u64(1);
        put_bytes(&mut out, b"\x02\0\x01\x02ab");
        [out, xml.to_vec()].concat()
    };
    let mut messages = vec![1];
    messages.put_guid(&Guid::from_u128(0x6f1c2b5a_0d3e_4a77_9c58_1b2f3a4d5e6f)).put_u16(10);
    put_bytes(&mut messages, b"\x07\0\0\0\x08\0\0\0");
    put_utf16(&mut messages, "FormattedString");
    vec![
        ("everything", manifest("state", 0, "7", EVERYTHING)),
        ("between", manifest("state", 4, "1,7", EVERYTHING)),
        ("small", manifest("n", 0, "2", small)),
        ("messages", [messages, TMF.to_vec()].concat()),
    ]
}
