//! `weir demo`: a small trace, written and read back.
//!
//! A coffee shop on two CPUs: each order is an activity that starts, brews and ends. The events are TraceLogging ones, which carry
//! their own schema.

use std::fs::File;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use anstream::eprintln;
use anyhow::{Context, Result};
use traceweir_decode::format::Style;
use traceweir_format::Guid;
use traceweir_format::etl::{Options, Summary, Writer};
use traceweir_format::header::event::EventHeader;
use traceweir_format::header::extended::Item;
use traceweir_format::spec::event::{CHANNEL_TRACELOGGING, EventDescriptor, ExtType};
use traceweir_format::spec::types::InType;
use traceweir_format::time::FileTime;
use traceweir_format::tracelogging::{MetadataBuilder, TraitsBuilder};
use traceweir_format::wire::Put;

use crate::cli::{Demo, Format, Schemas};
use crate::exit::Outcome;
use crate::export;
use crate::output::Output;
use crate::traces::{Flow, Traces};

const PROVIDER: &str = "Traceweir.Demo.CoffeeShop";
const TICKS_PER_MS: i64 = 10_000;

const INFO: u8 = 4;
const WARNING: u8 = 3;
const OPCODE_START: u8 = 1;
const OPCODE_STOP: u8 = 2;

/// Runs the command.
pub(super) fn run(options: &Demo) -> Result<Outcome> {
    let folder = std::env::temp_dir();
    let usual = options.output.clone().unwrap_or_else(|| folder.join("weir-demo.etl"));
    // In a folder that many share, the usual name may be another person's.
    let own = || folder.join(format!("weir-demo-{}.etl", std::process::id()));
    let taken = options.output.is_none() && fresh(&usual).is_err();
    let path = if taken { own() } else { usual };
    let events = write(&path).with_context(|| format!("cannot write {}", path.display()))?;
    eprintln!("wrote {events} events to {}; reading them back:\n", path.display());
    let outcome = print(&path)?;
    eprintln!("\nNow try it on the file, or on a trace of your own:");
    for verb in ["info", "dump --format jsonl", "stats", "check"] {
        eprintln!("  weir {verb} {}", path.display());
    }
    Ok(outcome)
}

fn print(path: &PathBuf) -> Result<Outcome> {
    let mut traces = Traces::open(std::slice::from_ref(path), &Schemas::default(), true)?;
    let mut output = Output::open(None)?;
    let mut sink = export::sink(Format::Text, Style::default(), output.is_colourful());
    let reading = traces.read(
        |record, _| record.hook().is_none(),
        |event| {
            sink.event(event, output.buffer());
            output.settle()?;
            Ok(Flow::Continue)
        },
    )?;
    output.flush()?;
    Ok(reading.outcome)
}

/// Writes the trace and returns the number of events.
fn write(path: &PathBuf) -> Result<u64> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let start = FileTime::from_unix(i64::try_from(now.as_secs()).unwrap_or(0), now.subsec_nanos());
    let session = Options {
        buffer_size: 0x1000,
        session_name: "weir-demo".to_owned(),
        file_name: path.display().to_string(),
        start_time: start,
        boot_time: start,
        starter: (std::process::id(), std::process::id()),
        processors: 2,
        ..Options::default()
    };
    let mut traits = TraitsBuilder::new(PROVIDER);
    let traits = traits.finish()?.to_vec();
    let mut shop =
        Shop { writer: Writer::create(fresh(path)?, session)?, traits, events: 0, record: Vec::new() };
    for order in 0..4_u32 {
        shop.serve(order)?;
    }
    let end_time = FileTime(start.0 + 200 * TICKS_PER_MS);
    let events = shop.events;
    shop.writer.finish(Summary { end_time, ..Summary::default() })?;
    Ok(events)
}

/// A new file. What stands there is removed first and never written through: others may write to the temporary folder.
fn fresh(path: &PathBuf) -> std::io::Result<File> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(e),
        _ => File::options().write(true).create_new(true).open(path),
    }
}

struct Shop {
    writer: Writer<File>,
    traits: Vec<u8>,
    events: u64,
    record: Vec<u8>,
}

impl Shop {
    fn serve(&mut self, order: u32) -> Result<()> {
        let (drink, shots, grams, celsius) = match order % 4 {
            0 => ("espresso", 1_u8, 18.2_f64, 93.0_f32),
            1 => ("flat white", 2, 18.5, 92.5),
            2 => ("filter, black", 0, 60.0, 94.1),
            _ => ("ristretto", 1, 18.0, 88.3),
        };
        let cpu = u16::try_from(order % 2).unwrap_or(0);
        let at = i64::from(order) * 37 * TICKS_PER_MS;
        let activity = Guid::from_u128(0x0c0f_fee0_0000_4000_8000_0000_0000_0000 | u128::from(order));

        let mut metadata = MetadataBuilder::new("Order", 0);
        metadata.add_field("number", InType::UINT32.0 as u8, 0, 0);
        metadata.add_field("drink", InType::ANSISTRING.0 as u8, 35, 0);
        let mut payload = Vec::new();
        payload.put_u32(order + 1).put_ansi_z(drink);
        self.event(cpu, at, INFO, OPCODE_START, activity, &mut metadata, &payload)?;

        let mut metadata = MetadataBuilder::new("Brew", 0);
        metadata.add_struct("dose", 2, 0);
        metadata.add_field("grams", InType::DOUBLE.0 as u8, 0, 0);
        metadata.add_field("shots", InType::UINT8.0 as u8, 0, 0);
        metadata.add_field("celsius", InType::FLOAT.0 as u8, 0, 0);
        metadata.add_array("bar", InType::UINT16.0 as u8, 0, 0);
        let mut payload = Vec::new();
        payload.put(&grams.to_le_bytes()).put_u8(shots).put(&celsius.to_le_bytes());
        payload.put_u16(3).put_u16(2).put_u16(9).put_u16(6);
        let level = if celsius < 90.0 { WARNING } else { INFO };
        self.event(cpu, at + 12 * TICKS_PER_MS, level, 0, activity, &mut metadata, &payload)?;

        let mut metadata = MetadataBuilder::new("Order", 0);
        metadata.add_field("number", InType::UINT32.0 as u8, 0, 0);
        metadata.add_field("paid", InType::UINT8.0 as u8, 3, 0);
        let mut payload = Vec::new();
        payload.put_u32(order + 1).put_u8(u8::from(order != 2));
        self.event(cpu, at + 31 * TICKS_PER_MS, INFO, OPCODE_STOP, activity, &mut metadata, &payload)
    }

    #[allow(clippy::too_many_arguments)] // Each is one part of an event.
    fn event(
        &mut self,
        cpu: u16,
        time: i64,
        level: u8,
        opcode: u8,
        activity: Guid,
        metadata: &mut MetadataBuilder,
        payload: &[u8],
    ) -> Result<()> {
        let items = [
            Item { kind: ExtType::PROV_TRAITS, data: &self.traits },
            Item { kind: ExtType::EVENT_SCHEMA_TL, data: metadata.finish()? },
        ];
        let header = EventHeader {
            thread_id: std::process::id() + u32::from(cpu),
            process_id: std::process::id(),
            time,
            provider: Guid::from_provider_name(PROVIDER),
            descriptor: EventDescriptor {
                channel: CHANNEL_TRACELOGGING,
                level,
                opcode,
                keyword: 1,
                ..Default::default()
            },
            activity,
            items: &items,
            ..EventHeader::default()
        };
        self.record.clear();
        header.encode(payload, &mut self.record)?;
        self.writer.write(cpu, time, &self.record)?;
        self.events += 1;
        Ok(())
    }
}
