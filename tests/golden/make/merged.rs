//! Events that merging adds: image identities, paths, and the schema of an event. The trace also
//! has events that this schema describes, and classic events without a schema.

use traceweir_format::Guid;
use traceweir_format::header::classic::{ClassicHeader, Instance};
use traceweir_format::header::event::EventHeader;
use traceweir_format::spec::event::{EventDescriptor, class};
use traceweir_format::wire::Put;

use super::{TraceMaker, WRITER_PROCESS, WRITER_THREAD, session_options, start_time};

const PROVIDER: Guid = Guid::from_u128(0x3a1f_0c5d_7e42_4b19_8d60_2c9b_7f5e_1a34);
const SHIPPED_EVENT: EventDescriptor =
    EventDescriptor { id: 7, version: 0, channel: 0, level: 4, opcode: 10, task: 2, keyword: 4 };
const CLASSIC_CLASS: Guid = Guid::from_u128(0x9d4e_2b7a_6c13_4f58_a0e9_5b1d_3c7f_8264);

pub(super) fn make() -> Vec<u8> {
    let mut maker = TraceMaker::new(session_options("merged"));
    for (state, name) in [(1_u32, "first"), (2, "second"), (5, "no such state")] {
        let mut payload = Vec::new();
        payload.put_u32(state).put_u32(3).put_wide_z(name).put_u64(0x7FF6_0000_1000);
        maker.write_event(
            0,
            EventHeader { provider: PROVIDER, descriptor: SHIPPED_EVENT, ..EventHeader::default() },
            &payload,
        );
    }
    write_classic_events(&mut maker);
    write_image_events(&mut maker);
    write_configuration_events(&mut maker);
    maker.write_classic(0, class::EVENT_METADATA, 32, 0, &event_info());
    maker.write_classic(
        0,
        class::EVENT_METADATA,
        33,
        0,
        &map_info("State ", 1, &[(1, "Packed "), (2, "Shipped ")]),
    );
    maker.write_classic(
        0,
        class::EVENT_METADATA,
        33,
        0,
        &map_info("Flags ", 2, &[(1, "Fragile "), (2, "Heavy ")]),
    );
    maker.finish()
}

fn write_classic_events(maker: &mut TraceMaker) {
    maker.write_classic(1, CLASSIC_CLASS, 1, 2, b"no schema");
    let header = ClassicHeader {
        pointer_size: 8,
        opcode: 2,
        level: 3,
        version: 2,
        thread_id: WRITER_THREAD,
        process_id: WRITER_PROCESS,
        time: maker.next_time(),
        class: CLASSIC_CLASS,
        cpu_times: (1, 2),
        instance: Some(Instance { id: 5, parent_id: 4, parent_class: CLASSIC_CLASS }),
    };
    maker.write_classic_with(1, header, b"an instance");
}

fn write_image_events(maker: &mut TraceMaker) {
    let (base, pid) = (0x7FF6_0000_0000_u64, WRITER_PROCESS);
    let mut payload = Vec::new();
    payload.put_u64(base).put_u64(0x4_0000).put_u32(pid).put_u32(1_714_000_000).put_wide_z("shell.exe");
    maker.write_classic(0, class::IMAGE_ID, 0, 2, &payload);
    let mut payload = Vec::new();
    payload
        .put_u64(base)
        .put_u32(pid)
        .put_guid(&Guid::from_u128(0xabcd))
        .put_u32(3)
        .put_ansi_z("c:\\build\\shell.pdb");
    maker.write_classic(0, class::IMAGE_ID, 36, 2, &payload);
    let mut payload = Vec::new();
    payload.put_u32(0x4_0000).put_u32(1_714_000_000);
    for text in
        ["shell.exe", "The shell", "1.2.3", "1.2.3.0", "0x0409", "Fixtures", "Traceweir", "1.2", "", ""]
    {
        payload.put_wide_z(text);
    }
    maker.write_classic(0, class::IMAGE_ID, 64, 0, &payload);
}

fn write_configuration_events(maker: &mut TraceMaker) {
    let mut payload = Vec::new();
    payload.put_i64(start_time().0).put_wide_z("19045.fixture").put_wide_z("Fixture OS");
    maker.write_classic(0, class::SYS_CONFIG_EX, 32, 0, &payload);
    let mut payload = Vec::new();
    payload.put_wide_z("C:\\system\\").put_wide_z("C:\\");
    maker.write_classic(0, class::SYS_CONFIG_EX, 33, 0, &payload);
    let mut payload = Vec::new();
    payload.put_wide_z("\\Device\\HarddiskVolume1\\").put_wide_z("C:\\");
    maker.write_classic(0, class::SYS_CONFIG_EX, 35, 0, &payload);
}

/// Builds a TRACE_EVENT_INFO with four properties.
fn event_info() -> Vec<u8> {
    // Name, in type, out type, length, map.
    let properties = [
        ("State", 8_u16, 0_u16, 4_u16, "State "),
        ("Flags", 8, 0, 4, "Flags "),
        ("Name", 1, 0, 0, ""),
        ("Address", 16, 0, 4, ""),
    ];
    let fixed_bytes = 0x70 + properties.len() * 24;
    let mut texts: Vec<u8> = Vec::new();
    let mut add_text = |text: &str| {
        let offset = u32::try_from(fixed_bytes + texts.len()).unwrap();
        texts.put_wide_z(text);
        offset
    };
    let provider = add_text("Traceweir-Fixture-Merged");
    let level = add_text("Information ");
    let keywords = add_text("Parcels ");
    // The list of keywords ends with a second NUL.
    let _ = add_text("");
    let (task, opcode, message) =
        (add_text("Delivery "), add_text("Shipped "), add_text("Parcel %3 is %1 and %2 "));
    let name_offsets: Vec<_> = properties
        .iter()
        .map(|(name, .., map)| (add_text(name), if map.is_empty() { 0 } else { add_text(map) }))
        .collect();
    let mut info = Vec::new();
    info.put_guid(&PROVIDER).put_guid(&Guid::NULL).put(&SHIPPED_EVENT.to_bytes()).put_u32(0);
    // The offsets of texts in the order of TRACE_EVENT_INFO, the number of properties and of
    // top-level properties, and the flags.
    for word in [provider, level, 0, keywords, task, opcode, message, 0, 0, 0, 0, 0, 4, 4, 1] {
        info.put_u32(word);
    }
    for ((_, in_type, out_type, length, _), (name_offset, map_offset)) in properties.iter().zip(name_offsets)
    {
        info.put_u32(0).put_u32(name_offset).put_u16(*in_type).put_u16(*out_type).put_u32(map_offset);
        info.put_u16(1).put_u16(*length).put_u32(0);
    }
    assert_eq!(info.len(), fixed_bytes);
    info.put(&texts);
    info
}

/// Builds the provider's GUID, followed by an EVENT_MAP_INFO. Offsets count from the end of the
/// GUID.
fn map_info(name: &str, flags: u32, entries: &[(u32, &str)]) -> Vec<u8> {
    let fixed_bytes = 16 + entries.len() * 8;
    let mut texts: Vec<u8> = Vec::new();
    let mut add_text = |text: &str| {
        let offset = u32::try_from(fixed_bytes + texts.len()).unwrap();
        texts.put_wide_z(text);
        offset
    };
    let mut info = Vec::new();
    info.put_guid(&PROVIDER)
        .put_u32(add_text(name))
        .put_u32(flags)
        .put_u32(u32::try_from(entries.len()).unwrap())
        .put_u32(0);
    for (value, text) in entries {
        info.put_u32(add_text(text)).put_u32(*value);
    }
    info.put(&texts);
    info
}
