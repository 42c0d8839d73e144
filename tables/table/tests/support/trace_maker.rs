//! Makes traces of self-describing events, ordinary ones and hostile ones.

use std::error::Error;

use traceweir_format::Guid;
use traceweir_format::etl::{Options, Summary, WriteAt, Writer};
use traceweir_format::header::event::EventHeader;
use traceweir_format::header::extended::Item;
use traceweir_format::spec::event::{CHANNEL_TRACELOGGING, EventDescriptor, ExtType};
use traceweir_format::time::FileTime;
use traceweir_format::tracelogging::{MetadataBuilder, TraitsBuilder};
use traceweir_format::wire::Put;

/// 2026-03-01, 08:00 UTC.
const START: i64 = 134_168_256_000_000_000;
const TICKS_PER_SECOND: i64 = 10_000_000;

/// One event: names, fields of in type ANSISTRING (2), UINT32 (8) and UINT64 (10), and its payload.
pub struct MadeEvent<'a> {
    pub provider: &'a str,
    pub event: &'a str,
    pub fields: &'a [(&'a str, u8)],
    pub payload: &'a [u8],
    /// Units of 100 ns since the start.
    pub offset: i64,
}

/// Writes events as a trace.
pub fn write_trace<W: WriteAt>(
    sink: W,
    count: u64,
    mut next: impl FnMut(u64, &mut dyn FnMut(&MadeEvent<'_>)),
) -> Result<W, Box<dyn Error>> {
    let options = Options {
        session_name: "made".into(),
        file_name: "made.etl".into(),
        processors: 4,
        perf_freq: TICKS_PER_SECOND,
        anchor: 1,
        start_time: FileTime(START),
        boot_time: FileTime(START - 1),
        ..Options::default()
    };
    let mut writer = Writer::create(sink, options)?;
    let mut record = Vec::new();
    let mut failure: Option<Box<dyn Error>> = None;
    for index in 0..count {
        next(index, &mut |event| {
            if let Err(error) = write_event(&mut writer, event, index, &mut record) {
                failure.get_or_insert(error);
            }
        });
    }
    if let Some(error) = failure {
        return Err(error);
    }
    let end_time = FileTime(START + i64::try_from(count)? * 1000);
    Ok(writer.finish(Summary { end_time, ..Summary::default() })?)
}

fn write_event<W: WriteAt>(
    writer: &mut Writer<W>,
    event: &MadeEvent<'_>,
    index: u64,
    record: &mut Vec<u8>,
) -> Result<(), Box<dyn Error>> {
    let mut traits = TraitsBuilder::new(event.provider);
    let mut metadata = MetadataBuilder::new(event.event, 0);
    for (name, in_type) in event.fields {
        metadata.add_field(name, *in_type, 0, 0);
    }
    let items = [
        Item { kind: ExtType::PROV_TRAITS, data: traits.finish()? },
        Item { kind: ExtType::EVENT_SCHEMA_TL, data: metadata.finish()? },
    ];
    let name =
        event.provider.bytes().fold(7_u128, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into()));
    let header = EventHeader {
        pointer_size: 8,
        thread_id: u32::try_from(index % 16)? + 100,
        process_id: u32::try_from(index % 4)? + 10,
        time: 1 + event.offset,
        provider: Guid::from_u128(name),
        descriptor: EventDescriptor {
            channel: CHANNEL_TRACELOGGING,
            level: 4,
            keyword: 1,
            ..EventDescriptor::default()
        },
        items: &items,
        ..EventHeader::default()
    };
    record.clear();
    header.encode(event.payload, record)?;
    writer.write(u16::try_from(index / 7 % 4)?, 1 + event.offset, record)?;
    Ok(())
}

/// Writes requests of some shops, each a provider with three types of events with four fields.
pub fn write_requests<W: WriteAt>(sink: W, count: u64, shops: u64) -> Result<W, Box<dyn Error>> {
    let fields = [("Url", 2), ("Status", 8), ("Bytes", 10), ("DurationUs", 8)];
    let mut payload = Vec::new();
    write_trace(sink, count, |index, write| {
        let random = index.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        payload.clear();
        payload
            .put_ansi_z(&format!("/shop/item/{}?page={}", random >> 50, index % 9))
            .put_u32(if index % 50 == 0 { 500 } else { 200 })
            .put_u64(random >> 44)
            .put_u32(u32::try_from(random >> 48).unwrap_or(0));
        let event = ["RequestStart", "RequestStop", "CacheLookup"][usize::try_from(index % 3).unwrap_or(0)];
        let offset = i64::try_from(index).unwrap_or(0) * 1000;
        let provider = match random.rotate_left(17) % shops.max(1) {
            0 => "Example-Shop".to_owned(),
            shop => format!("Example-Shop-{shop}"),
        };
        write(&MadeEvent { provider: &provider, event, fields: &fields, payload: &payload, offset });
    })
}
