//! Writes a trace whose names, texts and payloads try to break the formats that it is converted to.
//!
//! ```sh
//! cargo run --package traceweir-convert --example hostile_trace -- FILE [EVENTS]
//! ```
//!
//! Every event has a type of its own, with fields of pseudo-random types and payloads of pseudo-random
//! length. Some processors and times are out of order, and the header counts lost events.

use std::error::Error;

use traceweir_format::Guid;
use traceweir_format::etl::{Options, Summary, Writer};
use traceweir_format::header::event::EventHeader;
use traceweir_format::header::extended::Item;
use traceweir_format::spec::event::{CHANNEL_TRACELOGGING, EventDescriptor, ExtType};
use traceweir_format::time::FileTime;
use traceweir_format::tracelogging::{MetadataBuilder, TraitsBuilder};

/// Names that end strings, comments, lines and tags, or are words of a format.
const NAMES: [&str; 16] = [
    "\"",
    "\\",
    "\\\"",
    "*/",
    "};",
    "\n\r",
    "\u{1b}]0;x\u{7}",
    "</script>",
    "struct",
    "",
    "__x_length",
    "\u{202e}gnp",
    "ä\u{85}\u{2028}",
    "'; --",
    "%s%n",
    "same",
];

const START: i64 = 133_485_408_001_234_567;

/// A generator of pseudo-random numbers (xorshift).
struct Random(u64);

impl Random {
    fn next(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }

    fn byte(&mut self, limit: u64) -> u8 {
        u8::try_from(self.next(limit)).unwrap_or(u8::MAX)
    }

    fn name(&mut self) -> &'static str {
        NAMES[usize::try_from(self.next(NAMES.len() as u64)).unwrap_or(0)]
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let file = arguments.next().ok_or("usage: hostile_trace FILE [EVENTS]")?;
    let count = arguments.next().map_or(Ok(2000), |text| text.parse::<u32>())?;
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    let options = Options {
        session_name: "a\"};\n*/ b".into(),
        file_name: "hostile.etl".into(),
        processors: 4,
        start_time: FileTime(START),
        boot_time: FileTime(START - 1),
        ..Options::default()
    };
    let mut writer = Writer::create(Vec::new(), options)?;
    for index in 0..count {
        // Some events are earlier than those before them.
        let time = i64::from(index) * 1000 - i64::try_from(random.next(5))? * 900;
        let mut record = Vec::new();
        if encode_event(&mut random, time.max(0), &mut record)? {
            writer.write(u16::try_from(random.next(4))?, time.max(0), &record)?;
        }
    }
    let summary =
        Summary { end_time: FileTime(START + 1_000_000_000), events_lost: 17, ..Summary::default() };
    std::fs::write(file, writer.finish(summary)?)?;
    Ok(())
}

/// Encodes an event with up to eight fields. Returns false if its types are no valid metadata.
fn encode_event(random: &mut Random, time: i64, out: &mut Vec<u8>) -> Result<bool, Box<dyn Error>> {
    let mut traits = TraitsBuilder::new(&format!("Hostile{}", random.name()));
    let mut metadata = MetadataBuilder::new(&format!("{}{}", random.name(), random.next(50)), 0);
    for _ in 0..random.next(9) {
        // The in types of TraceLogging are 1 to 25, except 24; 24 is a structure.
        let (name, input, output) = (random.name(), random.byte(23) + 1, random.byte(40));
        match random.next(6) {
            0 => metadata.add_array(name, input, output, 0),
            1 => metadata.add_fixed_array(name, input, output, 0, u16::try_from(random.next(4))?),
            2 => metadata.add_struct(name, 2, 0).add_field(name, input, output, 0).add_field(name, 8, 0, 0),
            3 => metadata.add_struct_array(name, 1, 0).add_field(random.name(), input, output, 0),
            _ => metadata.add_field(name, input, output, 0),
        };
    }
    let Ok(metadata) = metadata.finish() else { return Ok(false) };
    let items = [
        Item { kind: ExtType::PROV_TRAITS, data: traits.finish()? },
        Item { kind: ExtType::EVENT_SCHEMA_TL, data: metadata },
    ];
    let mut payload = Vec::new();
    for _ in 0..random.next(120) {
        // Small numbers are counts, lengths and the ends of texts.
        let limit = if random.next(3) == 0 { 256 } else { 3 };
        payload.push(random.byte(limit));
    }
    let descriptor = EventDescriptor {
        channel: CHANNEL_TRACELOGGING,
        level: random.byte(8),
        keyword: random.next(u64::MAX),
        ..EventDescriptor::default()
    };
    let header = EventHeader {
        pointer_size: 8,
        thread_id: u32::MAX - u32::try_from(random.next(9))?,
        process_id: u32::MAX - u32::try_from(random.next(9))?,
        time,
        provider: Guid::from_u128(u128::from(random.next(30))),
        descriptor,
        items: &items,
        ..EventHeader::default()
    };
    header.encode(&payload, out)?;
    Ok(true)
}
