//! WPP messages of `fixtures/tmf/sample.tmf`.

use traceweir_format::Guid;
use traceweir_format::header::message::MessageHeader;
use traceweir_format::wire::Put;

use super::{TraceMaker, WRITER_IDS, session_options, utf16_bytes};

const QUEUE: Guid = Guid::from_u128(0x6f1c2b5a_0d3e_4a77_9c58_1b2f3a4d5e6f);
const NET: Guid = Guid::from_u128(0x0a1b2c3d_1111_4222_8333_944455566677);

pub(super) fn make() -> Vec<u8> {
    let mut maker = TraceMaker::new(session_options("wpp"));
    let mut payload = Vec::new();
    payload.put_i32(-3).put_u32(64);
    write_wpp_message(&mut maker, QUEUE, 10, Some(1), &payload);
    let path = utf16_bytes("\\Device\\Disk0");
    payload.clear();
    payload.put_ansi_z("disk zero").put_u16(u16::try_from(path.len()).unwrap()).put(&path).put_u8(2);
    write_wpp_message(&mut maker, QUEUE, 11, Some(2), &payload);
    write_wpp_message(&mut maker, QUEUE, 12, None, &[]);
    payload.clear();
    payload.put_u32(0xC000_0005).put(&[192, 0, 2, 7]).put_u16(443_u16.swap_bytes()).put_u32(5).put(b"TC");
    payload.put_u16(4).put(&[0xDE, 0xAD, 0xBE, 0xEF]).put_u64(0xFFFF_B000_0000_1000);
    write_wpp_message(&mut maker, NET, 10, Some(3), &payload);
    // An argument has an unknown type, so the arguments after it cannot be shown.
    payload.clear();
    payload.put_u16(7).put_u64(1).put_u32(2);
    write_wpp_message(&mut maker, NET, 11, Some(4), &payload);
    // The TMF file has no message 99.
    write_wpp_message(&mut maker, NET, 99, Some(5), &[1, 2, 3, 4]);
    // A message without a time gets the time of the record before it.
    let header = MessageHeader {
        number: 12,
        pointer_size: 8,
        sequence: None,
        guid: Some(QUEUE),
        time: None,
        ids: None,
    };
    maker.write_message(0, header, &[]);
    maker.finish()
}

fn write_wpp_message(
    maker: &mut TraceMaker,
    guid: Guid,
    number: u16,
    sequence: Option<u32>,
    arguments: &[u8],
) {
    let ids = Some((WRITER_IDS.1, WRITER_IDS.0));
    let time = Some(maker.next_time());
    maker.write_message(
        0,
        MessageHeader { number, pointer_size: 8, sequence, guid: Some(guid), time, ids },
        arguments,
    );
}
