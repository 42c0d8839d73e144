//! Events of `fixtures/manifests/everything.man`.

use traceweir_format::Guid;
use traceweir_format::header::event::EventHeader;
use traceweir_format::spec::event::EventDescriptor;
use traceweir_format::wire::Put;

use super::{ADDRESS_6, SID, SOCKET_4, SYSTEM_TIME, TraceMaker, session_options, start_time, utf16_bytes};

pub(super) const EVERYTHING: Guid = Guid::from_u128(0x6f0a4d5e_3c41_4a53_9c0b_1f2e3d4c5b6a);
const SECOND: Guid = Guid::from_u128(0x6f0a4d5e_3c41_4a53_9c0b_1f2e3d4c5b6b);

pub(super) const TYPES_EVENT: EventDescriptor = EventDescriptor {
    id: 1,
    version: 2,
    channel: 17,
    level: 2,
    opcode: 1,
    task: 10,
    keyword: 0x4010_0000_0000_0001,
};

pub(super) fn make() -> Vec<u8> {
    let mut maker = TraceMaker::new(session_options("manifest"));
    let mut write = |provider, descriptor, payload: &[u8]| {
        maker.write_event(1, EventHeader { provider, descriptor, ..EventHeader::default() }, payload);
    };
    write(EVERYTHING, TYPES_EVENT, &types_payload(8));
    let retry =
        EventDescriptor { id: 2, level: 16, opcode: 30, task: 10, keyword: 9, ..EventDescriptor::default() };
    write(EVERYTHING, retry, &arrays_payload());
    let refresh = EventDescriptor { id: 3, opcode: 41, channel: 8, ..EventDescriptor::default() };
    for (state, access) in [(1_u32, 5_u32), (2, 1), (3, 0), (7, 0x15)] {
        let mut payload = Vec::new();
        payload.put_u32(state).put_u32(access).put_wide_z("Ver1.2");
        write(EVERYTHING, refresh, &payload);
    }
    let bare = EventDescriptor { id: 4, opcode: 40, task: 11, channel: 18, ..EventDescriptor::default() };
    write(EVERYTHING, bare, &[]);
    let numbers = EventDescriptor { id: 5, level: 20, opcode: 77, channel: 16, ..EventDescriptor::default() };
    write(EVERYTHING, numbers, &[]);
    // The manifest does not have version 3, whose payload is that of version 2 and four more bytes.
    let mut payload = types_payload(8);
    payload.put_u32(0xAABB_CCDD);
    write(EVERYTHING, EventDescriptor { version: 3, ..TYPES_EVENT }, &payload);
    write(SECOND, EventDescriptor { id: 1, ..EventDescriptor::default() }, &[]);
    maker.finish()
}

/// Builds the payload of [`TYPES_EVENT`].
pub(super) fn types_payload(pointer_bytes: usize) -> Vec<u8> {
    let mut payload = Vec::new();
    payload.put_wide_z("Ünïcode").put_ansi_z("Grüße").put_u8(0xFF).put_u8(0xFF).put_u16(0xFFFE);
    payload
        .put_u16(8080_u16.swap_bytes())
        .put_u32(0x8000_4005)
        .put(&[127, 0, 0, 1])
        .put_i64(-5)
        .put_i64(start_time().0);
    payload.put(&1.5_f32.to_le_bytes()).put(&(-0.25_f64).to_le_bytes()).put_u32(1);
    payload.put_guid(&Guid::from_u128(0x12345678_9abc_def0_1234_56789abcdef0));
    payload.put(&0x7FF6_1234_5678_u64.to_le_bytes()[..pointer_bytes]).put_i64(start_time().0);
    for word in SYSTEM_TIME {
        payload.put_u16(word);
    }
    payload.put(&SID).put_u32(0xC000_0022).put_u64(0xFEED_FACE_CAFE_BEEF);
    for counted in [utf16_bytes("[true]"), b"<b/>".to_vec(), vec![1, 2, 3]] {
        payload.put_u16(u16::try_from(counted.len()).unwrap()).put(&counted);
    }
    payload.put(&ADDRESS_6);
    payload
}

fn arrays_payload() -> Vec<u8> {
    let mut payload = Vec::new();
    payload
        .put_u16(2)
        .put_u32(1)
        .put_u32(2)
        .put_u32(3)
        .put_u32(4)
        .put(&[0xA, 0xB])
        .put(&utf16_bytes("eight\0\0\0"));
    for bytes in [&[0xDE, 0xAD][..], &[0xBE]] {
        payload.put_u32(u32::try_from(bytes.len()).unwrap()).put(bytes).put(&[5, 6]);
    }
    payload.put_i32(-1).put_i32(1).put(&SOCKET_4[..2]);
    payload
}
