//! Writes a trace with packets, and what a reader of its pcapng form must find.
//!
//!     packet_trace FOLDER [PACKETS]
//!
//! `packets.etl` is the trace. Each line of `packets.tsv` is a packet: time in units of 100 ns since
//! 1970, captured length, length on the link, direction (1 in, 2 out), comment.

use std::error::Error;
use std::fmt::Write as _;
use std::path::Path;

use traceweir_format::Guid;
use traceweir_format::etl::{Options, Summary, Writer};
use traceweir_format::header::event::EventHeader;
use traceweir_format::spec::event::EventDescriptor;
use traceweir_format::time::FileTime;
use traceweir_format::wire::Put;

const NDIS_CAPTURE: Guid = Guid::from_u128(0x2ED6006E_4729_4609_B423_3EE7BCD678EF);
const PACKET_MONITOR: Guid = Guid::from_u128(0x4D4F80D9_C8BD_4D73_BB5B_19C90402C5AC);
const START_SECONDS: i64 = 1_714_557_600;
const START_OF_PACKET: u64 = 0x4000_0000;
const END_OF_PACKET: u64 = 0x8000_0000;
const SEND: u64 = 0x1_0000_0000;
const RECEIVE: u64 = 0x2_0000_0000;
const WIRELESS: u64 = 0x1_0000;

/// Writes events and the expected packets.
struct PacketTrace {
    writer: Writer<Vec<u8>>,
    time: i64,
    expected: String,
}

impl PacketTrace {
    fn add(&mut self, provider: Guid, id: u16, keyword: u64, payload: &[u8]) -> Result<(), Box<dyn Error>> {
        self.time += 1234;
        let header = EventHeader {
            time: self.time,
            process_id: 4,
            thread_id: 88,
            provider,
            descriptor: EventDescriptor { id, keyword, level: 4, ..EventDescriptor::default() },
            ..EventHeader::default()
        };
        let mut record = Vec::new();
        header.encode(payload, &mut record)?;
        self.writer.write(0, self.time, &record)?;
        Ok(())
    }

    fn expect(&mut self, captured: usize, length: usize, direction: u8, comment: &str) {
        let units = START_SECONDS * 10_000_000 + self.time;
        let _ = writeln!(self.expected, "{units}\t{captured}\t{length}\t{direction}\t{comment}");
    }
}

/// Returns an Ethernet frame with an IPv4 packet of UDP, with a VLAN tag if `vlan` is not 0.
fn udp_frame(number: u16, vlan: u16, data_bytes: u16) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    if vlan != 0 {
        frame.extend([0x81, 0]);
        frame.extend(vlan.to_be_bytes());
    }
    frame.extend([8, 0, 0x45, 0]);
    frame.extend((28 + data_bytes).to_be_bytes());
    frame.extend(number.to_be_bytes());
    frame.extend([0, 0, 64, 17, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2]);
    // The ports of the discard protocol, whose data mean nothing.
    frame.extend([0, 9, 0, 9]);
    frame.extend((8 + data_bytes).to_be_bytes());
    frame.extend([0, 0]);
    frame.resize(frame.len() + usize::from(data_bytes), number.to_le_bytes()[0]);
    frame
}

fn fragment(lower: u32, bytes: &[u8]) -> Result<Vec<u8>, Box<dyn Error>> {
    let mut payload = Vec::new();
    payload.put_u32(7).put_u32(lower).put_u32(u32::try_from(bytes.len())?).put(bytes);
    Ok(payload)
}

fn monitored(group: u64, appearance: u16, reason: u32, bytes: &[u8]) -> Result<Vec<u8>, Box<dyn Error>> {
    let mut payload = Vec::new();
    payload.put_u64(group).put_u16(1).put_u16(appearance).put_u16(4).put_u16(1);
    payload.put_u16(10 + appearance).put_u16(1).put_u16(0).put_u32(reason).put_u32(0xE000_0001);
    let length = u16::try_from(bytes.len())?;
    payload.put_u16(length + 100).put_u16(length).put(bytes);
    Ok(payload)
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().ok_or("usage: packet_trace FOLDER [PACKETS]")?;
    let packets: u16 = arguments.next().map_or(Ok(1000), |count| count.parse())?;
    let start_time = FileTime::from_unix(START_SECONDS, 0);
    let options = Options { start_time, boot_time: start_time, ..Options::default() };
    let writer = Writer::create(Vec::new(), options)?;
    let mut trace = PacketTrace { writer, time: 0, expected: String::new() };
    let whole = START_OF_PACKET | END_OF_PACKET;
    for number in 0..packets {
        let frame = udp_frame(number, if number % 3 == 0 { 100 } else { 0 }, number % 1000);
        let comment = "process 4; thread 88";
        match number % 5 {
            0 => {
                let (first, second) = frame.split_at(frame.len() / 2);
                trace.add(NDIS_CAPTURE, 1001, START_OF_PACKET | SEND, &fragment(7, first)?)?;
                trace.add(NDIS_CAPTURE, 1001, END_OF_PACKET | SEND, &fragment(7, second)?)?;
                trace.expect(frame.len(), frame.len(), 2, comment);
            }
            // Truncated: the IP header has the length.
            1 => {
                trace.add(NDIS_CAPTURE, 1001, whole | RECEIVE, &fragment(9, &frame[..42])?)?;
                trace.expect(42, frame.len(), 1, comment);
            }
            2 => {
                // A data frame without data, marked as encrypted.
                let frame = [&[0x48, 0x40, 0, 0][..], &[2; 18], &[0; 2]].concat();
                trace.add(NDIS_CAPTURE, 1001, whole | RECEIVE | WIRELESS, &fragment(11, &frame)?)?;
                trace.expect(frame.len(), frame.len(), 1, comment);
            }
            3 => {
                let group = u64::from(number) << 32 | 1;
                trace.add(PACKET_MONITOR, 160, 0x10, &monitored(group, 1, 0, &frame)?)?;
                trace.expect(
                    frame.len(),
                    frame.len() + 100,
                    2,
                    &format!("{comment}; component 11; appearance 1"),
                );
                trace.add(PACKET_MONITOR, 160, 0x10, &monitored(group, 2, 0, &frame)?)?;
            }
            _ => {
                let group = u64::from(number) << 32 | 2;
                trace.add(PACKET_MONITOR, 160, 0x10, &monitored(group, 1, 0, &frame)?)?;
                let drop = "dropped at component 12: filtered (location 0xe0000001)";
                let comment = format!("{comment}; component 11; appearance 1; {drop}");
                trace.expect(frame.len(), frame.len() + 100, 2, &comment);
                trace.add(PACKET_MONITOR, 170, 0x10, &monitored(group, 2, 8, &frame)?)?;
            }
        }
    }
    let end_time = FileTime(start_time.0 + trace.time);
    let bytes = trace.writer.finish(Summary { end_time, events_lost: 17, buffers_lost: 0 })?;
    std::fs::write(Path::new(&folder).join("packets.etl"), bytes)?;
    std::fs::write(Path::new(&folder).join("packets.tsv"), trace.expected)?;
    Ok(())
}
