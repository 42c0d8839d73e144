//! A trace from writer to JSON: records of several families, schemas before and after the events
//! they describe.

use traceweir_decode::format::{Style, push_json, push_text};
use traceweir_decode::schema::Field;
use traceweir_decode::source::PreparedSchema;
use traceweir_decode::value::Value;
use traceweir_decode::walk::{Visitor, Walker};
use traceweir_decode::{Decoder, Undecoded};
use traceweir_format::etl::{Options, Summary, Trace, Writer};
use traceweir_format::header::event::EventHeader;
use traceweir_format::header::extended::Item;
use traceweir_format::header::message::MessageHeader;
use traceweir_format::header::system::SystemHeader;
use traceweir_format::kernel::hook;
use traceweir_format::spec::event::{
    CHANNEL_TRACELOGGING, EVENT_HEADER_FLAG_STRING_ONLY, EventDescriptor, ExtType,
};
use traceweir_format::time::FileTime;
use traceweir_format::tracelogging::{MetadataBuilder, TraitsBuilder};
use traceweir_format::wire::Put;
use traceweir_format::{Guid, Record, Result};

const PROVIDER: Guid = Guid::from_u128(0x00c0ffee_0000_4000_8000_000000000001);

/// Collects the payload of an event as one JSON object.
struct JsonObject<'k> {
    prepared: &'k PreparedSchema,
    out: Vec<u8>,
    /// Whether each open bracket, from the outermost on, is that of an array.
    in_array: Vec<bool>,
}

impl JsonObject<'_> {
    fn push_key(&mut self, index: usize) {
        if !matches!(self.out.last(), Some(b'{' | b'[')) {
            self.out.push(b',');
        }
        if self.in_array.last() != Some(&true) {
            self.out.extend_from_slice(self.prepared.json_key(index));
        }
    }

    fn open_bracket(&mut self, index: usize, bracket: u8) {
        self.push_key(index);
        self.out.push(bracket);
        self.in_array.push(bracket == b'[');
    }

    fn close_bracket(&mut self, bracket: u8) {
        self.in_array.pop();
        self.out.push(bracket);
    }
}

impl<'p> Visitor<'p> for JsonObject<'_> {
    fn value(&mut self, index: usize, field: &Field, value: Value<'p>) {
        self.push_key(index);
        push_json(field, &value, Style::default(), &mut self.out);
        push_text(field, &value, Style::default(), &mut Vec::new());
    }
    fn begin_array(&mut self, index: usize, _: &Field, _: usize) {
        self.open_bracket(index, b'[');
    }
    fn end_array(&mut self, _: usize, _: &Field) {
        self.close_bracket(b']');
    }
    fn begin_struct(&mut self, index: usize, _: &Field) {
        self.open_bracket(index, b'{');
    }
    fn end_struct(&mut self, _: usize, _: &Field) {
        self.close_bracket(b'}');
    }
}

/// Returns the name of an event and its payload as JSON.
fn decode_to_line(decoder: &mut Decoder, record: &Record<'_>) -> Result<String, Undecoded> {
    let matched = decoder.find(record)?;
    let mut object = JsonObject { prepared: matched.prepared, out: vec![b'{'], in_array: Vec::new() };
    Walker::default().walk(&matched.prepared.schema, matched.payload, record.pointer_size(), &mut object)?;
    object.out.push(b'}');
    let value: serde_json::Value =
        serde_json::from_slice(&object.out).expect("the visitor must produce valid JSON");
    Ok(format!("{} {value}", matched.prepared.event_name.as_deref().unwrap_or("?")))
}

fn encode_record(encode: impl FnOnce(&mut Vec<u8>) -> Result<()>) -> Vec<u8> {
    let mut out = Vec::new();
    encode(&mut out).expect("a small record can be encoded");
    out
}

fn encode_tracelogging_event() -> Vec<u8> {
    let mut traits = TraitsBuilder::new("Provider");
    let mut metadata = MetadataBuilder::new("Hello", 0);
    metadata
        // In types: 1 UNICODESTRING, 8 UINT32, 21 HEXINT64.
        .add_field("who", 1, 0, 0)
        .add_struct_array("at", 2, 0)
        .add_field("x", 8, 0, 0)
        .add_field("x", 21, 0, 0);
    let items = [
        Item { kind: ExtType::PROV_TRAITS, data: traits.finish().expect("the traits are short enough") },
        Item {
            kind: ExtType::EVENT_SCHEMA_TL,
            data: metadata.finish().expect("the metadata is short enough"),
        },
    ];
    let mut payload = Vec::new();
    payload.put_wide_z("wörld").put_u16(2).put_u32(1).put_u64(0xAB).put_u32(2).put_u64(0xCD);
    let descriptor = EventDescriptor { channel: CHANNEL_TRACELOGGING, ..Default::default() };
    let header = EventHeader { time: 1, provider: PROVIDER, descriptor, items: &items, ..Default::default() };
    encode_record(|out| header.encode(&payload, out))
}

fn encode_manifest_event() -> Vec<u8> {
    let descriptor = EventDescriptor { id: 1, ..Default::default() };
    let header = EventHeader { time: 2, provider: PROVIDER, descriptor, ..Default::default() };
    encode_record(|out| header.encode(&[2, 0, 7, 9], out))
}

fn encode_manifest_chunk() -> Vec<u8> {
    let xml = r#"<instrumentationManifest xmlns="http://schemas.microsoft.com/win/2004/08/events"><instrumentation><events>
<provider name="P" guid="{00c0ffee-0000-4000-8000-000000000001}"><templates><template tid="t">
<data name="n" inType="win:UInt16"/><data name="v" inType="win:UInt8" count="n"/></template></templates>
<events><event value="1" symbol="Later" template="t"/></events></provider></events></instrumentation></instrumentationManifest>"#;
    // Format, major and minor version, magic byte; then the number of chunks and this chunk's
    // number.
    let mut payload = vec![1, 1, 0, 0x5B];
    payload.put_u16(1).put_u16(0).put(xml.as_bytes());
    let descriptor = EventDescriptor { id: 0xFFFE, task: 0xFFFE, opcode: 0xFE, ..Default::default() };
    encode_record(|out| {
        EventHeader { time: 3, provider: PROVIDER, descriptor, ..Default::default() }.encode(&payload, out)
    })
}

fn encode_string_event() -> Vec<u8> {
    let mut payload = Vec::new();
    payload.put_wide_z("plain");
    encode_record(|out| {
        EventHeader { time: 4, flags: EVENT_HEADER_FLAG_STRING_ONLY, ..Default::default() }
            .encode(&payload, out)
    })
}

fn encode_kernel_event() -> Vec<u8> {
    let cpu_times = Some((0, 0));
    let header = SystemHeader {
        pointer_size: 8,
        version: 2,
        hook: hook::PROCESS_TERMINATE,
        thread_id: 1,
        process_id: 2,
        time: 5,
        cpu_times,
    };
    encode_record(|out| header.encode(&[4, 0, 0, 0], out))
}

fn encode_wpp_message() -> Vec<u8> {
    let (guid, time) = (Some(PROVIDER), Some(6));
    let header = MessageHeader { number: 10, pointer_size: 8, sequence: None, guid, time, ids: None };
    encode_record(|out| header.encode(b"?", out))
}

fn build_trace(compressed: bool) -> Vec<u8> {
    let mut file = Vec::new();
    let options = Options { compressed, buffer_size: 4096, ..Options::default() };
    let mut writer = Writer::create(&mut file, options).expect("the writer accepts these options");
    for record in [
        encode_tracelogging_event(),
        encode_manifest_event(),
        encode_manifest_chunk(),
        encode_string_event(),
        encode_kernel_event(),
        encode_wpp_message(),
    ] {
        writer.write_record(0, &record).expect("the record fits into a buffer");
    }
    writer.flush().expect("writing to memory cannot fail");
    writer
        .finish(Summary { end_time: FileTime(1), ..Summary::default() })
        .expect("finishing a file in memory cannot fail");
    file
}

#[test]
fn every_described_event_of_a_trace_becomes_json() {
    for compressed in [false, true] {
        let file = build_trace(compressed);
        let trace = Trace::open(&file[..]).expect("the written file can be opened");
        let mut decoder = Decoder::new();
        let mut events = trace.events();
        while let Some(record) = events.next().expect("the written events can be read") {
            decoder.observe(&record);
        }
        let (mut lines, mut failed) = (Vec::new(), Vec::new());
        let mut events = trace.events();
        while let Some(record) = events.next().expect("the written events can be read") {
            match decode_to_line(&mut decoder, &record) {
                Ok(line) => lines.push(line),
                Err(reason) => failed.push(reason),
            }
        }
        // No TMF file describes the WPP message.
        assert_eq!(failed, [Undecoded::NoMessageFormat]);
        assert!(lines[0].starts_with("EventTrace/Header {"), "{}", lines[0]);
        assert_eq!(lines[1], r#"Hello {"at":[{"x":1,"x_2":"0xab"},{"x":2,"x_2":"0xcd"}],"who":"wörld"}"#);
        assert_eq!(lines[2], r#"Later {"n":2,"v":[7,9]}"#, "a later manifest must describe the event");
        assert!(lines[3].starts_with("ManifestData {"));
        assert_eq!(lines[4], r#"StringOnly {"Message":"plain"}"#);
        assert_eq!(lines[5], r#"Process/Terminate {"ProcessId":4}"#);
    }
}
