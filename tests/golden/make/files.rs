//! Two files with the same events and different forms: a compressed file, and the file that a crash
//! leaves.

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

/// Generates a file that is not finalised and whose last buffer is truncated.
pub(super) fn make_crashed() -> Vec<u8> {
    let mut maker = TraceMaker::new(session_options("crashed"));
    write_counter_events(&mut maker, 60);
    let mut file = maker.finish_as_after_crash();
    // Keeps 0x345 bytes of the last buffer.
    file.truncate(file.len() - 0x1000 + 0x345);
    file
}

fn write_counter_events(maker: &mut TraceMaker, events: u32) {
    let counter = SelfDescribing::new(PROVIDER);
    let mut metadata = MetadataBuilder::new("Count", 0);
    metadata.add_field("n", 8, 0, 0).add_field("text", 2, 35, 0);
    for number in 0..events {
        let mut payload = Vec::new();
        payload.put_u32(number).put_ansi_z(&format!("event number {number}"));
        counter.write(maker, u16::try_from(number % 2).unwrap(), &mut metadata, &payload, &[]);
    }
}
