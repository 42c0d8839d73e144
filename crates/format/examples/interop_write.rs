//! Writes `plain.etl`, `compressed.etl` and `expected.jsonl` into a folder, for other programs to
//! read and compare.
//!
//! Both files hold the same events. Stamps are unique and rise, so a stamp identifies an event in
//! any reading order. A line of `expected.jsonl` is one event, made from the input values, not from
//! the written bytes. Kernel payloads follow the tables of the module `kernel`, so another program
//! that reads them confirms the tables.
//!
//! ```sh
//! cargo run --example interop_write -- FOLDER [EVENTS [LOST]]
//! ```

use std::error::Error;
use std::fmt::Write as _;
use std::path::Path;

use traceweir_format::Guid;
use traceweir_format::etl::{Options, Summary, Writer};
use traceweir_format::header::classic::ClassicHeader;
use traceweir_format::header::event::EventHeader;
use traceweir_format::header::extended::Item;
use traceweir_format::header::perfinfo::PerfInfoHeader;
use traceweir_format::header::system::SystemHeader;
use traceweir_format::kernel::hook;
use traceweir_format::kernel::{Ty, shape_of};
use traceweir_format::spec::event::{CHANNEL_TRACELOGGING, EventDescriptor, ExtType, class};
use traceweir_format::time::FileTime;
use traceweir_format::tracelogging::{MetadataBuilder, TraitsBuilder};
use traceweir_format::wire::Put;

const PROVIDER: Guid = Guid::from_u128(0x0ddc_0ffe_1234_4abc_9def_0123_4567_89ab);
const ANCHOR_TICKS: i64 = 987_654_321_000;
const START_FILETIME: i64 = 133_485_408_001_234_567;
/// A rate that does not divide 10 MHz, so that wall times need rounding.
const TICKS_PER_SECOND: i64 = 3_579_545;
const PROCESSOR_COUNT: u16 = 4;
const SID: [u8; 16] = [1, 2, 0, 0, 0, 0, 0, 5, 32, 0, 0, 0, 32, 2, 0, 0];

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().ok_or("usage: interop_write FOLDER [EVENTS [LOST]]")?;
    let count = arguments.next().map_or(Ok(50_000), |text| text.parse::<u32>())?;
    let events_lost = arguments.next().map_or(Ok(0), |text| text.parse::<u32>())?;
    let folder = Path::new(&folder);
    let mut expected = String::new();
    for (name, is_compressed) in [("plain.etl", false), ("compressed.etl", true)] {
        expected.clear();
        std::fs::write(folder.join(name), write_trace(is_compressed, count, events_lost, &mut expected)?)?;
    }
    std::fs::write(folder.join("expected.jsonl"), expected)?;
    Ok(())
}

fn write_trace(is_compressed: bool, count: u32, events_lost: u32, expected: &mut String) -> Result<Vec<u8>> {
    let options = Options {
        compressed: is_compressed,
        session_name: "interop".into(),
        file_name: "interop.etl".into(),
        processors: u32::from(PROCESSOR_COUNT),
        perf_freq: TICKS_PER_SECOND,
        anchor: ANCHOR_TICKS,
        start_time: FileTime(START_FILETIME),
        boot_time: FileTime(START_FILETIME - 1),
        ..Options::default()
    };
    let mut writer = Writer::create(Vec::new(), options)?;
    let mut record = Vec::new();
    let mut filetime = START_FILETIME;
    for index in 0..count {
        // Steps of about 1,000 to 3,000 ticks.
        let time =
            ANCHOR_TICKS + i64::from(index) * 2_000 + i64::from(index.wrapping_mul(2_654_435_761) >> 22);
        filetime = START_FILETIME
            + i64::try_from(i128::from(time - ANCHOR_TICKS) * 10_000_000 / i128::from(TICKS_PER_SECOND))?;
        record.clear();
        write!(expected, "{{\"time\": {time}, \"filetime\": {filetime}, ")?;
        match index % 6 {
            0 => encode_trace_logging(index, time, &mut record, expected)?,
            1 => encode_manifest(index, time, &mut record, expected)?,
            2 => encode_process(index, time, &mut record, expected)?,
            3 => encode_thread(index, time, &mut record, expected)?,
            4 => encode_image(index, time, &mut record, expected)?,
            // Of the events that are left, every other one is classic.
            _ if index % 4 == 1 => encode_classic(index, time, &mut record, expected)?,
            _ => encode_disk(index, time, &mut record, expected)?,
        }
        expected.push_str("}\n");
        // Processors take turns of seven events, so that all their buffers fill at the same time.
        let cpu = u16::try_from(index / 7 % u32::from(PROCESSOR_COUNT))?;
        writer.write(cpu, time, &record)?;
    }
    let end_time = FileTime(filetime + 1);
    Ok(writer.finish(Summary { end_time, events_lost, ..Summary::default() })?)
}

/// Encodes a TraceLogging event with a string, a number and a double.
fn encode_trace_logging(index: u32, time: i64, out: &mut Vec<u8>, expected: &mut String) -> Result<()> {
    let mut traits = TraitsBuilder::new("Interop.Provider");
    let mut metadata = MetadataBuilder::new("Reading", 0);
    // The in types ANSISTRING, UINT64 and DOUBLE.
    metadata.add_field("text", 2, 0, 0).add_field("number", 10, 0, 0).add_field("half", 12, 0, 0);
    let items = [
        Item { kind: ExtType::PROV_TRAITS, data: traits.finish()? },
        Item { kind: ExtType::EVENT_SCHEMA_TL, data: metadata.finish()? },
    ];
    let text = format!("reading {index}");
    let mut payload = Vec::new();
    payload.put_ansi_z(&text).put_u64(u64::from(index) << 20).put(&(f64::from(index) / 2.0).to_le_bytes());
    let descriptor = EventDescriptor {
        channel: CHANNEL_TRACELOGGING,
        level: 4,
        opcode: u8::try_from(index % 3)?,
        keyword: 1 << (index % 64),
        ..EventDescriptor::default()
    };
    encode_event(8, time, index, descriptor, &items, &payload, out, expected)?;
    let half = f64::from(index) / 2.0;
    write!(
        expected,
        ", \"fields\": {{\"text\": \"{text}\", \"number\": {}, \"half\": {half:?}}}",
        u64::from(index) << 20
    )?;
    Ok(())
}

/// Encodes an event of a manifest provider: 32-bit or 64-bit, with a payload of up to 300 bytes,
/// sometimes with a related activity id.
fn encode_manifest(index: u32, time: i64, out: &mut Vec<u8>, expected: &mut String) -> Result<()> {
    let related = PROVIDER.to_bytes();
    let items = [Item { kind: ExtType::RELATED_ACTIVITYID, data: &related }];
    let items = if index.is_multiple_of(5) { &items[..] } else { &[] };
    let descriptor = EventDescriptor {
        id: u16::try_from(index % 60_000)?,
        version: u8::try_from(index % 7)?,
        channel: 16,
        level: u8::try_from(index % 6)?,
        opcode: u8::try_from(index % 240)?,
        task: u16::try_from(index % 1_000)?,
        keyword: u64::from(index),
    };
    let payload: Vec<u8> = (0..index % 301).map(|i| (i.wrapping_mul(index) >> 3) as u8).collect();
    encode_event(if index % 4 == 1 { 4 } else { 8 }, time, index, descriptor, items, &payload, out, expected)
}

#[allow(clippy::too_many_arguments)] // Each parameter is an independent part of an event.
fn encode_event(
    pointer_size: u8,
    time: i64,
    index: u32,
    descriptor: EventDescriptor,
    items: &[Item<'_>],
    payload: &[u8],
    out: &mut Vec<u8>,
    expected: &mut String,
) -> Result<()> {
    let header = EventHeader {
        pointer_size,
        thread_id: index + 1,
        process_id: index + 2,
        time,
        provider: PROVIDER,
        descriptor,
        activity: Guid::from_u128(u128::from(index)),
        items,
        ..EventHeader::default()
    };
    header.encode(payload, out)?;
    let EventDescriptor { id, version, channel, level, opcode, task, keyword } = descriptor;
    write!(
        expected,
        "\"kind\": \"event\", \"pointer\": {pointer_size}, \"provider\": \"{PROVIDER}\", \"id\": {id}, "
    )?;
    write!(
        expected,
        "\"version\": {version}, \"channel\": {channel}, \"level\": {level}, \"opcode\": {opcode}, "
    )?;
    write!(
        expected,
        "\"task\": {task}, \"keyword\": {keyword}, \"thread\": {}, \"process\": {}, ",
        index + 1,
        index + 2
    )?;
    let items: Vec<_> =
        items.iter().map(|item| format!("[{}, \"{}\"]", item.kind.0, format_hex(item.data))).collect();
    write!(expected, "\"items\": [{}], \"payload\": \"{}\"", items.join(", "), format_hex(payload))?;
    Ok(())
}

/// Encodes a classic event of a class that no reader has a layout for.
fn encode_classic(index: u32, time: i64, out: &mut Vec<u8>, expected: &mut String) -> Result<()> {
    let header = ClassicHeader {
        pointer_size: 8,
        opcode: 33,
        level: 2,
        version: 3,
        thread_id: index + 1,
        process_id: index + 2,
        time,
        class: PROVIDER,
        cpu_times: (0, 0),
        instance: None,
    };
    let payload = index.to_le_bytes();
    header.encode(&payload, out)?;
    write!(
        expected,
        "\"kind\": \"classic\", \"provider\": \"{PROVIDER}\", \"opcode\": 33, \"level\": 2, \"version\": 3, "
    )?;
    write!(
        expected,
        "\"thread\": {}, \"process\": {}, \"payload\": \"{}\"",
        index + 1,
        index + 2,
        format_hex(&payload)
    )?;
    Ok(())
}

/// A value of a kernel field.
enum KernelValue {
    Number(u64),
    Text(String),
    Sid,
}

use KernelValue::{Number, Text};

fn encode_process(index: u32, time: i64, out: &mut Vec<u8>, expected: &mut String) -> Result<()> {
    let opcode = 1 + u8::try_from(index / 6 % 4)?;
    let values = [
        ("UniqueProcessKey", Number(0xFFFF_8000_0000_0000 + u64::from(index))),
        ("ProcessId", Number(u64::from(index) * 4)),
        ("ParentId", Number(4)),
        ("SessionId", Number(u64::from(index % 3))),
        ("ExitStatus", Number(if opcode == 2 { 0 } else { 259 })),
        ("DirectoryTableBase", Number(u64::from(index) << 12)),
        ("Flags", Number(0)),
        ("UserSID", KernelValue::Sid),
        ("ImageFileName", Text(format!("program{index}.exe"))),
        ("CommandLine", Text(format!("program{index}.exe --number {index}"))),
        ("PackageFullName", Text(String::new())),
        ("ApplicationId", Text(format!("app{index}"))),
    ];
    let hook = hook::hook_of(&class::PROCESS, opcode).ok_or("not a kernel event")?;
    encode_kernel(hook, 4, &class::PROCESS, &values, true, time, index, out, expected)
}

fn encode_thread(index: u32, time: i64, out: &mut Vec<u8>, expected: &mut String) -> Result<()> {
    let opcode = 1 + u8::try_from(index / 6 % 4)?;
    let address = |part: u64| Number(0x7FF0_0000_0000 + (u64::from(index) << 16) + part);
    let values = [
        ("ProcessId", Number(u64::from(index))),
        ("TThreadId", Number(u64::from(index) + 1)),
        ("StackBase", address(1)),
        ("StackLimit", address(2)),
        ("UserStackBase", address(3)),
        ("UserStackLimit", address(4)),
        ("Affinity", Number(15)),
        ("Win32StartAddr", address(5)),
        ("TebBase", address(6)),
        ("SubProcessTag", Number(u64::from(index % 9))),
        ("BasePriority", Number(8)),
        ("PagePriority", Number(5)),
        ("IoPriority", Number(2)),
        ("ThreadFlags", Number(1)),
        ("ThreadName", Text(format!("worker {index}"))),
    ];
    let hook = hook::hook_of(&class::THREAD, opcode).ok_or("not a kernel event")?;
    encode_kernel(hook, 3, &class::THREAD, &values, true, time, index, out, expected)
}

/// Encodes an image event. A load has a hook id of the process group; unload and rundown events
/// have hook ids of the image group.
fn encode_image(index: u32, time: i64, out: &mut Vec<u8>, expected: &mut String) -> Result<()> {
    let hook = [hook::IMAGE_LOAD, hook::IMAGE_UNLOAD, hook::IMAGE_DC_START, hook::IMAGE_DC_END]
        [index as usize / 6 % 4];
    let values = [
        ("ImageBase", Number(0x7FFE_0000_0000 + (u64::from(index) << 16))),
        ("ImageSize", Number(0x10000)),
        ("ProcessId", Number(u64::from(index))),
        ("ImageChecksum", Number(u64::from(index) * 3)),
        ("TimeDateStamp", Number(1_600_000_000 + u64::from(index))),
        ("SignatureLevel", Number(0x20)),
        ("SignatureType", Number(1)),
        ("DefaultBase", Number(0x1_8000_0000)),
        ("Reserved1", Number(0)),
        ("Reserved2", Number(0)),
        ("Reserved3", Number(0)),
        ("Reserved4", Number(0)),
        ("FileName", Text(format!("/usr/lib/lib{index}.so"))),
    ];
    encode_kernel(hook, 3, &class::IMAGE, &values, true, time, index, out, expected)
}

fn encode_disk(index: u32, time: i64, out: &mut Vec<u8>, expected: &mut String) -> Result<()> {
    let values = [
        ("DiskNumber", Number(u64::from(index % 2))),
        ("IrpFlags", Number(0x0006_0043)),
        ("TransferSize", Number(u64::from(index % 128) * 512)),
        ("Reserved", Number(0)),
        ("ByteOffset", Number(u64::from(index) << 12)),
        ("FileObject", Number(0xFFFF_9000_0000_0000 + u64::from(index))),
        ("Irp", Number(0xFFFF_A000_0000_0000 + u64::from(index))),
        ("HighResResponseTime", Number(u64::from(index) * 7)),
        ("IssuingThreadId", Number(u64::from(index) + 5)),
    ];
    let hook = hook::DISK_READ + u16::try_from(index / 6 % 2)?;
    encode_kernel(hook, 3, &class::DISK_IO, &values, false, time, index, out, expected)
}

/// Encodes a kernel event with the payload that the table of its class defines. With `has_ids` the
/// event has a system header, which holds process and thread ids, else a perfinfo header.
#[allow(clippy::too_many_arguments)] // Each parameter is an independent part of an event.
fn encode_kernel(
    hook: u16,
    version: u8,
    class: &Guid,
    values: &[(&str, KernelValue)],
    has_ids: bool,
    time: i64,
    index: u32,
    out: &mut Vec<u8>,
    expected: &mut String,
) -> Result<()> {
    let [opcode, group] = hook.to_le_bytes();
    let (shape, name) = shape_of(class, opcode, version).ok_or("the table lacks the event")?;
    let mut payload = Vec::new();
    for field in shape.fields {
        let value = values.iter().find(|(name, _)| *name == field.name).map(|(_, value)| value);
        put_value(field.ty, value, &mut payload)
            .ok_or_else(|| format!("{name}: no value for {}", field.name))?;
    }
    if has_ids {
        let (thread_id, process_id) = (index + 1, index + 2);
        let cpu_times = Some((0, 0));
        SystemHeader { pointer_size: 8, version, hook, thread_id, process_id, time, cpu_times }
            .encode(&payload, out)?;
        write!(expected, "\"kind\": \"system\", \"thread\": {thread_id}, \"process\": {process_id}, ")?;
    } else {
        PerfInfoHeader { pointer_size: 8, version, hook, time, counters: &[] }.encode(&payload, out)?;
        expected.push_str("\"kind\": \"perfinfo\", ");
    }
    write!(
        expected,
        "\"provider\": \"{class}\", \"group\": {group}, \"opcode\": {opcode}, \"version\": {version}, "
    )?;
    let fields: Vec<_> = values
        .iter()
        .filter_map(|(name, value)| match value {
            Number(v) => Some(format!("\"{name}\": {v}")),
            Text(v) => Some(format!("\"{name}\": \"{v}\"")),
            KernelValue::Sid => None,
        })
        .collect();
    write!(expected, "\"fields\": {{{}}}, \"payload\": \"{}\"", fields.join(", "), format_hex(&payload))?;
    Ok(())
}

/// Appends a value in the form of its table type. Returns `None` if the value is missing or of
/// another type.
fn put_value(ty: Ty, value: Option<&KernelValue>, out: &mut Vec<u8>) -> Option<()> {
    match (ty, value) {
        (Ty::Pad(n), _) => out.resize(out.len() + usize::from(n), 0),
        (Ty::Az, Some(Text(text))) => drop(out.put_ansi_z(text)),
        (Ty::Wz, Some(Text(text))) => drop(out.put_wide_z(text)),
        (Ty::SidBlock, Some(KernelValue::Sid)) => drop(out.put_u64(1).put_u64(0).put(&SID)),
        (_, Some(Number(number))) => drop(out.put(number.to_le_bytes().get(..ty.size(8)?)?)),
        _ => return None,
    }
    Some(())
}

fn format_hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
