//! Files that differ in their form, not in their events: one compressed, one left by a crash.

use traceweir_format::tracelogging::MetadataBuilder;
use traceweir_format::wire::Put;

use super::{SelfDescribing, TraceMaker, session_options};

const PROVIDER: &str = "Traceweir.Fixture.Counter";

/// Generates a file of repetitive events. All buffers except the header buffer are compressed.
pub(super) fn make_compressed() -> Vec<u8> {
    let mut options = session_options("compressed");
    options.compressed = true;
    let mut maker = TraceMaker::new(options);
    write_counter_events(&mut maker, 60);
    maker.finish()
}

/// Generates complete buffers and a part of a buffer, in a file that is not finalised.
pub(super) fn make_crashed() -> Vec<u8> {
    let mut maker = TraceMaker::new(session_options("crashed"));
    write_counter_events(&mut maker, 60);
    let mut file = maker.finish_as_after_crash();
    file.truncate(file.len() - 0x1000 + 0x345);
    file
}

fn write_counter_events(maker: &mut TraceMaker, events: u32) {
    let counter = SelfDescribing::new(PROVIDER);
    let mut metadata = MetadataBuilder::new("Count", 0);
    metadata.add_field("n", 8, 0, 0).add_field("text", 2, 35, 0);
    for n in 0..events {
        let mut payload = Vec::new();
        payload.put_u32(n).put_ansi_z(&format!("event number {n}"));
        counter.write(maker, u16::try_from(n % 2).unwrap(), &mut metadata, &payload, &[]);
    }
}
