//! TraceLogging events with every in type, every out type, structures, arrays, tags, groups and
//! extended data items. The numbers in calls of `add_field` and `add_array` are the in type, the
//! out type and the tags; `add_fixed_array` adds the number of elements. Those of `add_struct` are
//! the number of members and the tags.

use traceweir_format::Guid;
use traceweir_format::header::event::EventHeader;
use traceweir_format::header::extended::Item;
use traceweir_format::spec::event::{
    CHANNEL_TRACELOGGING, EVENT_HEADER_FLAG_STRING_ONLY, EventDescriptor, ExtType,
};
use traceweir_format::tracelogging::MetadataBuilder;
use traceweir_format::wire::Put;

use super::{
    ADDRESS_6, SID, SOCKET_4, SYSTEM_TIME, SelfDescribing, TraceMaker, session_options, start_time,
    utf16_bytes,
};

const PROVIDER: &str = "Traceweir.Fixture.Types";

pub(super) fn make() -> Vec<u8> {
    let mut maker = TraceMaker::new(session_options("tracelogging"));
    let mut types = SelfDescribing::new(PROVIDER);
    types.group = Some(Guid::from_u128(0x2c8f_64d1_b93e_47a5_8e07_19d6_3fa2_c05b));
    write_integers(&mut maker, &types);
    write_out_types(&mut maker, &types);
    write_texts(&mut maker, &types);
    write_texts_that_need_quoting(&mut maker, &types);
    write_other_types(&mut maker, &types);
    write_floats(&mut maker, &types);
    write_arrays(&mut maker, &types);
    write_structures(&mut maker, &types);
    write_tags_and_names(&mut maker, &types);
    write_activity(&mut maker, types);
    write_events_of_unusual_form(&mut maker);
    maker.finish()
}

fn write_integers(maker: &mut TraceMaker, types: &SelfDescribing) {
    let mut metadata = MetadataBuilder::new("Integers", 0);
    for (name, kind) in
        [("i8", 3), ("u8", 4), ("i16", 5), ("u16", 6), ("i32", 7), ("u32", 8), ("i64", 9), ("u64", 10)]
    {
        metadata.add_field(name, kind, 0, 0);
    }
    metadata.add_field("bool32", 13, 0, 0).add_field("hex32", 20, 0, 0).add_field("hex64", 21, 0, 0);
    let mut payload = Vec::new();
    payload.put_u8(0x80).put_u8(0xFF).put_u16(0x8000).put_u16(0xFFFF).put_i32(i32::MIN).put_u32(u32::MAX);
    payload
        .put_i64(i64::MIN)
        .put_u64(u64::MAX)
        .put_u32(1)
        .put_u32(0xDEAD_BEEF)
        .put_u64(0xFFFF_8000_1234_5678);
    types.write(maker, 0, &mut metadata, &payload, &[]);
    // 2^53, which a JSON number holds exactly, and integers beyond ±2^53, which it does not.
    metadata
        .reset("Integers", 0)
        .add_field("exact", 10, 0, 0)
        .add_field("beyond", 10, 0, 0)
        .add_field("below", 9, 0, 0);
    payload.clear();
    payload.put_u64(1 << 53).put_u64((1 << 53) + 1).put_i64(-(1 << 53) - 1);
    types.write(maker, 1, &mut metadata, &payload, &[]);
}

/// Writes each out type with a number that suits it.
fn write_out_types(maker: &mut TraceMaker, types: &SelfDescribing) {
    let mut metadata = MetadataBuilder::new("OutTypes", 0);
    let mut payload = Vec::new();
    let byte_fields = [
        ("hidden", 1, 7),
        ("char8", 2, b'A'),
        ("bool8", 3, 1),
        ("hex8", 4, 0x0F),
        ("signed8", 17, 0xFE),
        ("unsigned8", 18, 0xFE),
    ];
    for (name, out, value) in byte_fields {
        metadata.add_field(name, 4, out, 0);
        payload.put_u8(value);
    }
    for (name, out, value) in [
        ("char16", 2, 0x20AC),
        ("hex16", 4, 0xBEEF),
        ("port", 7, 443_u16.swap_bytes()),
        ("signed16", 17, 0xFFFE),
    ] {
        metadata.add_field(name, 6, out, 0);
        payload.put_u16(value);
    }
    for (name, out, value) in [
        ("hex32", 4, 0xCAFE),
        ("pid", 5, 1200),
        ("tid", 6, 1204),
        ("ipv4", 8, u32::from_le_bytes([192, 0, 2, 7])),
        ("win32error", 13, 5),
        ("win32unknown", 13, 0x00FF_FFFF),
        ("ntstatus", 14, 0xC000_0005),
        ("hresult", 15, 0x8007_0005),
        ("signed32", 17, u32::MAX),
        ("bool32", 3, 0),
    ] {
        metadata.add_field(name, 8, out, 0);
        payload.put_u32(value);
    }
    metadata.add_field("unsigned32", 7, 18, 0).add_field("hex64", 10, 4, 0).add_field(
        "code_pointer",
        21,
        37,
        0,
    );
    payload.put_i32(-1).put_u64(0x1_0000_0000).put_u64(0x7FF6_1234_5678);
    types.write(maker, 0, &mut metadata, &payload, &[]);
}

fn write_texts(maker: &mut TraceMaker, types: &SelfDescribing) {
    let mut metadata = MetadataBuilder::new("Texts", 0);
    metadata.add_field("unicode", 1, 0, 0).add_field("ansi", 2, 0, 0).add_field("utf8", 2, 35, 0);
    metadata.add_field("counted", 22, 0, 0).add_field("counted_ansi", 23, 0, 0).add_field(
        "counted_utf8",
        23,
        35,
        0,
    );
    metadata.add_field("json", 22, 12, 0).add_field("xml", 22, 11, 0).add_field("empty", 1, 0, 0);
    let mut payload = Vec::new();
    payload.put_wide_z("Grüße 🌍").put_ansi_z("plain").put_ansi_z("naïve €");
    let put_counted = |text: Vec<u8>, payload: &mut Vec<u8>| {
        payload.put_u16(u16::try_from(text.len()).unwrap()).put(&text);
    };
    put_counted(utf16_bytes("counted text"), &mut payload);
    // 0x80 is the euro sign in code page 1252, and invalid in UTF-8.
    put_counted(b"\x80 12".to_vec(), &mut payload);
    put_counted("snow ☃".into(), &mut payload);
    put_counted(utf16_bytes("{\"a\": [1, 2]}"), &mut payload);
    put_counted(utf16_bytes("<a b=\"c\">d &amp; e</a>"), &mut payload);
    payload.put_wide_z("");
    types.write(maker, 1, &mut metadata, &payload, &[]);
}

/// Writes texts with characters that some output formats must quote or escape.
fn write_texts_that_need_quoting(maker: &mut TraceMaker, types: &SelfDescribing) {
    let mut metadata = MetadataBuilder::new("HardTexts, \"quoted\" <&>", 0);
    metadata
        .add_field("field, \"quoted\" <&>", 1, 0, 0)
        .add_field("lines", 2, 0, 0)
        .add_field("control", 2, 0, 0);
    metadata.add_field("surrogate", 22, 0, 0).add_field("not_utf8", 2, 35, 0).add_field("cdata", 1, 0, 0);
    let mut payload = Vec::new();
    payload
        .put_wide_z("a,b \"c\" <d> & 'e'")
        .put_ansi_z("one\r\ntwo\n\tthree")
        .put_ansi_z("bell\x07 escape\x1b[31m del\x7f");
    payload.put_u16(6).put_u16(u16::from(b'x')).put_u16(0xD800).put_u16(u16::from(b'y'));
    payload.put(b"\xC3(\xFF\0").put_wide_z("]]> \u{FFFE} \u{2028}");
    types.write(maker, 0, &mut metadata, &payload, &[]);
}

fn write_other_types(maker: &mut TraceMaker, types: &SelfDescribing) {
    let mut metadata = MetadataBuilder::new("Others", 0);
    metadata.add_field("guid", 15, 0, 0).add_field("filetime", 17, 0, 0).add_field("filetime_utc", 17, 38, 0);
    metadata.add_field("systemtime", 18, 0, 0).add_field("sid", 19, 0, 0).add_field("binary", 14, 0, 0);
    metadata.add_field("ipv6", 14, 9, 0).add_field("socket", 14, 10, 0).add_field("counted_binary", 25, 0, 0);
    metadata.add_field("pkcs7", 25, 36, 0).add_field("empty_binary", 14, 0, 0).add_field("nothing", 0, 0, 0);
    let mut payload = Vec::new();
    payload
        .put_guid(&Guid::from_provider_name(PROVIDER))
        .put_i64(start_time().0)
        .put_i64(start_time().0 + 2_500_000);
    for word in SYSTEM_TIME {
        payload.put_u16(word);
    }
    payload
        .put(&SID)
        .put_u16(4)
        .put(&[0xDE, 0xAD, 0xBE, 0xEF])
        .put_u16(16)
        .put(&ADDRESS_6)
        .put_u16(16)
        .put(&SOCKET_4);
    payload.put_u16(3).put(&[1, 2, 3]).put_u16(2).put(&[4, 5]).put_u16(0);
    types.write(maker, 1, &mut metadata, &payload, &[]);
}

fn write_floats(maker: &mut TraceMaker, types: &SelfDescribing) {
    let mut metadata = MetadataBuilder::new("Floats", 0);
    let mut payload = Vec::new();
    for (name, value) in
        [("third", 1.0_f32 / 3.0), ("whole", 2.0), ("tiny", 1e-45), ("nan", f32::NAN), ("minus_zero", -0.0)]
    {
        metadata.add_field(name, 11, 0, 0);
        payload.put(&value.to_le_bytes());
    }
    for (name, value) in [
        ("tenth", 0.1_f64),
        ("huge", 1e300),
        ("infinite", f64::INFINITY),
        ("minus_infinite", f64::NEG_INFINITY),
    ] {
        metadata.add_field(name, 12, 0, 0);
        payload.put(&value.to_le_bytes());
    }
    types.write(maker, 0, &mut metadata, &payload, &[]);
}

fn write_arrays(maker: &mut TraceMaker, types: &SelfDescribing) {
    let mut metadata = MetadataBuilder::new("Arrays", 0);
    metadata.add_array("variable", 6, 0, 0).add_array("none", 8, 0, 0).add_fixed_array("fixed", 4, 4, 0, 3);
    metadata
        .add_array("texts", 1, 0, 0)
        .add_array("characters", 6, 2, 0)
        .add_array("bools", 4, 3, 0)
        .add_field("after", 8, 0, 0);
    let mut payload = Vec::new();
    payload.put_u16(3).put_u16(1).put_u16(2).put_u16(3).put_u16(0).put(&[0xA, 0xB, 0xC]);
    payload.put_u16(2).put_wide_z("first").put_wide_z("and, second");
    payload.put_u16(5).put(&utf16_bytes("Hello")).put_u16(2).put(&[0, 1]).put_u32(99);
    types.write(maker, 1, &mut metadata, &payload, &[]);
}

fn write_structures(maker: &mut TraceMaker, types: &SelfDescribing) {
    let mut metadata = MetadataBuilder::new("Structures", 0);
    metadata.add_struct("outer", 3, 0).add_field("x", 8, 0, 0);
    metadata
        .add_struct("inner", 2, 0)
        .add_field("text", 1, 0, 0)
        .add_array("list", 4, 0, 0)
        .add_field("y", 8, 0, 0);
    metadata.add_struct_array("points", 2, 0).add_field("x", 5, 0, 0).add_field("y", 5, 0, 0);
    metadata.add_struct_array("nobody", 1, 0).add_field("name", 1, 0, 0).add_field("after", 8, 0, 0);
    let mut payload = Vec::new();
    payload.put_u32(1).put_wide_z("deep").put_u16(2).put(&[7, 8]).put_u32(2);
    payload.put_u16(2).put_u16(10).put_u16(20).put_u16(0xFFFF).put_u16(30).put_u16(0).put_u32(3);
    types.write(maker, 0, &mut metadata, &payload, &[]);
}

fn write_tags_and_names(maker: &mut TraceMaker, types: &SelfDescribing) {
    let mut metadata = MetadataBuilder::new("Tagged", 0x0ABC_DEF0 & 0x0FFF_FFFF);
    metadata.add_field("same", 8, 0, 0x0010_0000).add_field("same", 8, 0, 0).add_field("same", 8, 4, 1);
    metadata.add_custom("bond", 5, 0, b"schema").add_field("", 8, 0, 0);
    let mut payload = Vec::new();
    payload.put_u32(1).put_u32(2).put_u32(3).put_u16(2).put(&[0xAB, 0xCD]).put_u32(4);
    types.write(maker, 1, &mut metadata, &payload, &[]);
}

/// Writes the start of an activity, with several extended data items, and its stop.
fn write_activity(maker: &mut TraceMaker, mut types: SelfDescribing) {
    types.header.activity = Guid::from_u128(0x1111_1111_2222_3333_4444_5555_5555_5555);
    types.header.descriptor.opcode = 1;
    types.header.descriptor.level = 2;
    types.header.cpu_times = (7, 9);
    let mut metadata = MetadataBuilder::new("Request", 0);
    metadata.add_field("url", 2, 35, 0);
    let related = Guid::from_u128(0x6666_6666_7777_8888_9999_aaaa_aaaa_aaaa).to_bytes();
    let mut stack = Vec::new();
    stack.put_u64(0).put_u64(0x7FF6_0000_1000).put_u64(0x7FF6_0000_2000).put_u64(0x7FFB_0000_3000);
    let items = [
        Item { kind: ExtType::RELATED_ACTIVITYID, data: &related },
        Item { kind: ExtType::SID, data: &SID },
        Item { kind: ExtType::STACK_TRACE64, data: &stack },
        Item { kind: ExtType::PROCESS_START_KEY, data: &[9, 0, 0, 0, 0, 0, 0, 0] },
    ];
    types.write(maker, 0, &mut metadata, b"/index.html\0", &items);
    types.header.descriptor.opcode = 2;
    types.header.descriptor.keyword = u64::MAX;
    let mut metadata = MetadataBuilder::new("Request", 0);
    metadata.add_field("status", 6, 0, 0);
    types.write(maker, 0, &mut metadata, &[200, 0], &[]);
}

/// Writes an event with its metadata in the payload, events that consist of one string, and an
/// event without fields.
fn write_events_of_unusual_form(maker: &mut TraceMaker) {
    let older = SelfDescribing::new("Traceweir.Fixture.Older");
    let mut metadata = MetadataBuilder::new("InPayload", 0);
    metadata.add_field("number", 8, 0, 0);
    let mut payload = older.traits();
    payload.put(metadata.finish().unwrap()).put_u32(42);
    maker.write_event(1, older.header, &payload);

    let provider = Guid::from_u128(0x7b3e_91c4_0d5a_4e2f_b186_c47f_52a9_3d08);
    let descriptor = EventDescriptor { level: 4, keyword: 1, ..EventDescriptor::default() };
    let header =
        EventHeader { provider, descriptor, flags: EVENT_HEADER_FLAG_STRING_ONLY, ..EventHeader::default() };
    let mut payload = Vec::new();
    payload.put_wide_z("one string, nothing else");
    maker.write_event(0, header, &payload);
    let descriptor = EventDescriptor { level: 3, ..descriptor };
    maker.write_event(0, EventHeader { provider, descriptor, ..EventHeader::default() }, &payload);

    let descriptor =
        EventDescriptor { channel: CHANNEL_TRACELOGGING, id: 3, level: 5, ..EventDescriptor::default() };
    let mut numbered = SelfDescribing::new("Traceweir-Fixture-Numbered");
    numbered.header.descriptor = descriptor;
    let mut metadata = MetadataBuilder::new("NoFields", 0);
    numbered.write(maker, 1, &mut metadata, &[], &[]);
}
