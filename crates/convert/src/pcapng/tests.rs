use std::path::PathBuf;
use std::sync::Arc;

use proptest::prelude::*;
use traceweir_analysis::filter::FilterCriteria;
use traceweir_analysis::schema_files::SchemaFiles;
use traceweir_analysis::symbols::SymbolOptions;
use traceweir_format::Guid;
use traceweir_format::etl::{Options, Summary, Writer};
use traceweir_format::header::event::EventHeader;
use traceweir_format::header::system::SystemHeader;
use traceweir_format::kernel::hook;
use traceweir_format::spec::event::EventDescriptor;
use traceweir_format::time::FileTime;
use traceweir_format::wire::Put;

use super::packet::{KERNEL_NETWORK, NDIS_CAPTURE, PACKET_MONITOR};
use super::*;

const START: u64 = 0x4000_0000;
const END: u64 = 0x8000_0000;
const SEND: u64 = 0x1_0000_0000;
const RECEIVE: u64 = 0x2_0000_0000;
const WIRELESS: u64 = 0x1_0000;
/// Seconds since 1970 at which the traces start.
const START_SECONDS: i64 = 1_714_557_600;

/// Builds a trace with one record each 100 ns.
struct TraceBuilder {
    writer: Writer<Vec<u8>>,
    time: i64,
}

impl TraceBuilder {
    fn new() -> Self {
        let start_time = FileTime::from_unix(START_SECONDS, 0);
        let options = Options { start_time, boot_time: start_time, ..Options::default() };
        Self { writer: Writer::create(Vec::new(), options).unwrap(), time: 0 }
    }

    fn add(mut self, provider: Guid, id: u16, keyword: u64, payload: &[u8]) -> Self {
        self.time += 1;
        let header = EventHeader {
            time: self.time,
            process_id: 44,
            thread_id: 45,
            provider,
            descriptor: EventDescriptor { id, keyword, level: 4, ..EventDescriptor::default() },
            ..EventHeader::default()
        };
        let mut record = Vec::new();
        header.encode(payload, &mut record).unwrap();
        self.writer.write(0, self.time, &record).unwrap();
        self
    }

    fn add_transfer(mut self) -> Self {
        self.time += 1;
        let (hook, time, cpu_times) = (hook::TCP_SEND, self.time, Some((0, 0)));
        let header =
            SystemHeader { pointer_size: 8, version: 2, hook, thread_id: 1, process_id: 1, time, cpu_times };
        let mut record = Vec::new();
        header.encode(&[0; 60], &mut record).unwrap();
        self.writer.write(0, self.time, &record).unwrap();
        self
    }

    fn finish(self, events_lost: u32) -> Vec<u8> {
        let end_time = FileTime::from_unix(START_SECONDS + 1, 0);
        self.writer.finish(Summary { end_time, events_lost, buffers_lost: 0 }).unwrap()
    }
}

fn convert_traces(traces: &[Vec<u8>], criteria: FilterCriteria) -> Result<(Vec<u8>, Conversion)> {
    let folder = tempfile::tempdir().unwrap();
    let to_file = |(index, trace): (usize, &Vec<u8>)| {
        let path = folder.path().join(format!("{index}.etl"));
        std::fs::write(&path, trace).unwrap();
        path
    };
    let files: Vec<PathBuf> = traces.iter().enumerate().map(to_file).collect();
    let input = ConvertInput {
        files,
        schemas: SchemaFiles::default(),
        symbols: SymbolOptions::default(),
        criteria,
        observer: Arc::new(()),
    };
    let mut out = Vec::new();
    let conversion = convert(&input, &mut out)?;
    Ok((out, conversion))
}

fn convert_trace(trace: Vec<u8>) -> (Vec<u8>, Conversion) {
    convert_traces(&[trace], FilterCriteria::default()).unwrap()
}

/// A packet as the naive reader below sees it.
#[derive(Debug, PartialEq)]
struct ReadPacket {
    interface: u32,
    units: u64,
    bytes: Vec<u8>,
    length: u32,
    direction: u32,
    comment: String,
}

#[derive(Debug, Default)]
struct ReadCapture {
    /// Link type, name and description.
    interfaces: Vec<(u16, String, String)>,
    packets: Vec<ReadPacket>,
    /// Packets, lost events, comment.
    statistics: Vec<(u64, Option<u64>, String)>,
}

fn u32_le(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn read_options(mut bytes: &[u8]) -> Vec<(u16, Vec<u8>)> {
    let mut options = Vec::new();
    loop {
        let code = u16::from_le_bytes([bytes[0], bytes[1]]);
        let length = usize::from(u16::from_le_bytes([bytes[2], bytes[3]]));
        if code == 0 {
            assert_eq!((length, bytes.len()), (0, 4), "bytes after the last option");
            return options;
        }
        options.push((code, bytes[4..4 + length].to_vec()));
        bytes = &bytes[4 + length.next_multiple_of(4)..];
    }
}

fn text_of(options: &[(u16, Vec<u8>)], code: u16) -> String {
    let found = options.iter().find(|option| option.0 == code);
    found.map(|option| String::from_utf8(option.1.clone()).unwrap()).unwrap_or_default()
}

/// Reads a capture without the code that wrote it.
fn read_capture(mut bytes: &[u8]) -> ReadCapture {
    let mut capture = ReadCapture::default();
    while !bytes.is_empty() {
        let length = usize::try_from(u32_le(bytes, 4)).unwrap();
        assert_eq!((u32_le(bytes, length - 4) as usize, length % 4), (length, 0));
        let body = &bytes[8..length - 4];
        match u32_le(bytes, 0) {
            0x0A0D0D0A => assert!(text_of(&read_options(&body[16..]), 4).starts_with("weir ")),
            1 => {
                let options = read_options(&body[8..]);
                assert!(options.contains(&(9, vec![7])), "times are not in units of 100 ns");
                let link = u16::from_le_bytes([body[0], body[1]]);
                capture.interfaces.push((link, text_of(&options, 2), text_of(&options, 3)));
            }
            5 => {
                let options = read_options(&body[12..]);
                let number = |code| {
                    let option = options.iter().find(|option| option.0 == code)?;
                    Some(u64::from_le_bytes(option.1.clone().try_into().unwrap()))
                };
                capture.statistics.push((number(4).unwrap(), number(7), text_of(&options, 1)));
            }
            6 => {
                let captured = u32_le(body, 12) as usize;
                let options = read_options(&body[20 + captured.next_multiple_of(4)..]);
                let flags =
                    options.iter().find(|option| option.0 == 2).map_or(0, |option| u32_le(&option.1, 0));
                assert!((u32_le(body, 0) as usize) < capture.interfaces.len(), "an unknown interface");
                capture.packets.push(ReadPacket {
                    interface: u32_le(body, 0),
                    units: u64::from(u32_le(body, 4)) << 32 | u64::from(u32_le(body, 8)),
                    bytes: body[20..20 + captured].to_vec(),
                    length: u32_le(body, 16),
                    direction: flags,
                    comment: text_of(&options, 1),
                });
            }
            kind => panic!("block {kind:#x}"),
        }
        bytes = &bytes[length..];
    }
    capture
}

fn fragment(miniport: u32, lower: u32, bytes: &[u8]) -> Vec<u8> {
    let mut payload = Vec::new();
    payload.put_u32(miniport).put_u32(lower).put_u32(bytes.len() as u32).put(bytes);
    payload
}

struct Frame<'b> {
    group: u64,
    appearance: u16,
    direction: u16,
    kind: u16,
    component: u16,
    reason: u32,
    original: u16,
    bytes: &'b [u8],
}

fn frame(frame: &Frame<'_>) -> Vec<u8> {
    let mut payload = Vec::new();
    payload.put_u64(frame.group).put_u16(1).put_u16(frame.appearance).put_u16(frame.direction);
    payload.put_u16(frame.kind).put_u16(frame.component).put_u16(1).put_u16(0);
    payload.put_u32(frame.reason).put_u32(0xE000_0001);
    payload.put_u16(frame.original).put_u16(frame.bytes.len() as u16).put(frame.bytes);
    payload
}

/// An Ethernet frame that begins an IPv4 packet of this length.
fn ipv4_frame(total: u16, captured: usize) -> Vec<u8> {
    let mut bytes = vec![0; captured];
    bytes[12..15].copy_from_slice(&[8, 0, 0x45]);
    bytes[16..18].copy_from_slice(&total.to_be_bytes());
    bytes
}

#[test]
fn fragments_become_packets_with_time_direction_and_thread() {
    let trace = TraceBuilder::new()
        .add(NDIS_CAPTURE, 1001, START | SEND, &fragment(7, 7, b"first "))
        .add(NDIS_CAPTURE, 1001, END | SEND, &fragment(7, 7, b"second"))
        .add(NDIS_CAPTURE, 1001, START | END | RECEIVE, &fragment(7, 9, &ipv4_frame(1000, 60)))
        .add(NDIS_CAPTURE, 1001, START | END, &fragment(7, 7, b"third"))
        .add(NDIS_CAPTURE, 1012, 0, b"other event")
        .finish(3);
    let (bytes, conversion) = convert_trace(trace);
    let capture = read_capture(&bytes);
    assert_eq!((conversion.events, conversion.written), (4, 3));
    let names: Vec<_> = capture.interfaces.iter().map(|(link, name, _)| (*link, name.as_str())).collect();
    assert_eq!(names, [(1, "ethernet 7"), (1, "ethernet 7.9")]);
    let start = START_SECONDS as u64 * 10_000_000;
    let expected = |interface, units, bytes: &[u8], length, direction| ReadPacket {
        interface,
        units: start + units,
        bytes: bytes.to_vec(),
        length,
        direction,
        comment: "process 44; thread 45".to_owned(),
    };
    assert_eq!(
        capture.packets,
        [
            expected(0, 2, b"first second", 12, 2),
            expected(1, 3, &ipv4_frame(1000, 60), 1014, 1),
            expected(0, 4, b"third", 5, 0)
        ]
    );
    assert_eq!(capture.statistics[0].0, 2);
    assert_eq!(capture.statistics[0].1, Some(3));
    assert!(capture.statistics[0].2.contains("the session lost 3 events"), "{:?}", capture.statistics);
    assert_eq!(capture.statistics[1], (1, None, String::new()));
}

#[test]
fn wireless_frames_lose_their_mark_of_encryption_and_keep_the_signal() {
    let mut context = vec![0; 48];
    context[8] = 7;
    context[12..16].copy_from_slice(&2437_u32.to_le_bytes());
    context[20..24].copy_from_slice(&(-55_i32).to_le_bytes());
    context[24] = 11;
    let trace = TraceBuilder::new()
        .add(NDIS_CAPTURE, 1002, 0, &fragment(3, 3, &context))
        .add(NDIS_CAPTURE, 1001, START | END | WIRELESS, &fragment(3, 3, &[0x88, 0x41, 1, 2]))
        .add(NDIS_CAPTURE, 1001, START | END | WIRELESS, &fragment(3, 3, &[0x88, 0x41, 1, 2]))
        .finish(0);
    let capture = read_capture(&convert_trace(trace).0);
    assert_eq!(capture.interfaces[0].0, 105);
    assert_eq!(capture.packets[0].bytes, [0x88, 0x01, 1, 2]);
    assert_eq!(capture.packets[0].comment, "process 44; thread 45; 2437 MHz, -55 dBm, 5.5 Mbit/s, 802.11n");
    assert_eq!(capture.packets[1].comment, "process 44; thread 45");
}

#[test]
fn packet_of_a_switch_names_port_and_vlan() {
    let mut payload = Vec::new();
    payload.put_u32(1).put_u32(5).put_u32(8);
    payload.put_wide_z("port\n").put_wide_z("adapter").put_wide_z("External");
    payload.put_u32(1).put_u64(0).put_u32(3).put(b"abc");
    let mut list = vec![0; 5 * 8];
    list[32..36].copy_from_slice(&(5_u32 | 100 << 4).to_le_bytes());
    payload.put_u32(list.len() as u32).put(&list);
    let trace = TraceBuilder::new().add(NDIS_CAPTURE, 1003, START | END, &payload).finish(0);
    let capture = read_capture(&convert_trace(trace).0);
    assert_eq!(capture.interfaces[0].1, "switch 5.8");
    assert_eq!(capture.packets[0].bytes, b"abc");
    assert_eq!(
        capture.packets[0].comment,
        "process 44; thread 45; switch port 8 of External adapter, VLAN 100 priority 5"
    );
}

#[test]
fn monitored_packet_is_written_once_with_its_drop() {
    let packet = |group, appearance, component| Frame {
        group,
        appearance,
        direction: 4,
        kind: 1,
        component,
        reason: 9,
        original: 90,
        bytes: b"frame",
    };
    let mut component = Vec::new();
    component.put_u16(12).put_u16(2).put_wide_z("nic.sys").put_wide_z("Adapter");
    let trace = TraceBuilder::new()
        .add(PACKET_MONITOR, 160, 0x10, &frame(&packet(70, 1, 11)))
        .add(PACKET_MONITOR, 160, 0x10, &frame(&packet(70, 2, 12)))
        .add(PACKET_MONITOR, 160, 0x10, &frame(&packet(71, 1, 12)))
        .add(PACKET_MONITOR, 170, 0x10, &frame(&packet(70, 3, 12)))
        .add(PACKET_MONITOR, 160, 0x10, &frame(&Frame { kind: 0, ..packet(0, 1, 13) }))
        .add(PACKET_MONITOR, 160, 0x10, &frame(&Frame { kind: 0, ..packet(0, 1, 13) }))
        .add(PACKET_MONITOR, 20, 2, &component)
        .finish(0);
    let (bytes, conversion) = convert_trace(trace);
    let capture = read_capture(&bytes);
    assert_eq!((conversion.events, conversion.written), (6, 4));
    assert!(
        conversion.notes.iter().any(|note| note.starts_with("2 events left out")),
        "{:?}",
        conversion.notes
    );
    assert_eq!(capture.interfaces[1], (1, "component 12 ethernet".to_owned(), "nic.sys: Adapter".to_owned()));
    assert_eq!(capture.interfaces[2].0, 147, "a packet of unknown type");
    let packet = &capture.packets[0];
    assert_eq!((packet.bytes.as_slice(), packet.length, packet.direction), (&b"frame"[..], 90, 2));
    assert_eq!(
        packet.comment,
        "process 44; thread 45; component 11; appearance 1; \
         dropped at component 12 (nic.sys): filtered VLAN (location 0xe0000001)"
    );
    assert!(!capture.packets[1].comment.contains("dropped"));
}

#[test]
fn trace_without_packets_is_refused() {
    let message = |trace| convert_traces(&[trace], FilterCriteria::default()).unwrap_err().to_string();
    let kernel = TraceBuilder::new().add_transfer().add_transfer().finish(0);
    assert!(message(kernel).starts_with("no packets: 2 events of TCP and UDP only count"));
    let provider = TraceBuilder::new().add(KERNEL_NETWORK, 10, 0, &[0; 28]).finish(0);
    assert!(message(provider).starts_with("no packets: 1 event of TCP and UDP only count"));
    assert!(message(TraceBuilder::new().finish(0)).starts_with("no packets; record packets"));
}

#[test]
fn criteria_and_several_traces_apply() {
    let trace = || {
        TraceBuilder::new()
            .add(NDIS_CAPTURE, 1001, START | END, &fragment(7, 7, b"a"))
            .add(NDIS_CAPTURE, 1001, START | END, &fragment(7, 7, b"b"))
            .finish(0)
    };
    let criteria = FilterCriteria { head: Some(3), ..FilterCriteria::default() };
    let capture = read_capture(&convert_traces(&[trace(), trace()], criteria).unwrap().0);
    assert_eq!(capture.packets.len(), 3);
    assert_eq!(capture.interfaces[1].1, "trace 2: ethernet 7");
    let criteria = FilterCriteria { pids: vec![1], ..FilterCriteria::default() };
    assert_eq!(convert_traces(&[trace()], criteria).unwrap().1.written, 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn hostile_payloads_give_a_sound_capture(
        events in proptest::collection::vec(
            (0_usize..5, any::<u64>(), proptest::collection::vec(any::<u8>(), 0..120)),
            1..20,
        ),
    ) {
        let ids = [(NDIS_CAPTURE, 1001), (NDIS_CAPTURE, 1002), (NDIS_CAPTURE, 1003), (PACKET_MONITOR, 160),
            (PACKET_MONITOR, 170)];
        let mut trace = TraceBuilder::new();
        for (kind, keyword, payload) in &events {
            let mut payload = payload.clone();
            // Mostly plausible sizes.
            if keyword & 1 != 0 && payload.len() > 40 {
                payload[8..12].copy_from_slice(&20_u32.to_le_bytes());
                payload[0x20..0x22].copy_from_slice(&4_u16.to_le_bytes());
            }
            trace = trace.add(ids[*kind].0, ids[*kind].1, *keyword, &payload);
        }
        let (bytes, conversion) = convert_trace(trace.finish(0));
        let capture = read_capture(&bytes);
        prop_assert_eq!(capture.packets.len() as u64, conversion.written);
        let counted: u64 = capture.statistics.iter().map(|statistics| statistics.0).sum();
        prop_assert_eq!(counted, conversion.written);
    }
}
