//! Files of a particular shape rather than events: compressed, and left by a crash.

use traceweir_format::tracelogging::MetadataBuilder;
use traceweir_format::wire::Put;

use super::{Maker, SelfDescribing, session};

const PROVIDER: &str = "Traceweir.Fixture.Counter";

/// Generates buffers of repetitive events, which compress; the last one is too short to.
pub(super) fn compressed() -> Vec<u8> {
    let mut options = session("compressed");
    options.compressed = true;
    let mut maker = Maker::new(options);
    count(&mut maker, 60);
    maker.finish()
}

/// Generates complete buffers and half a buffer, without the data of finalising.
pub(super) fn crashed() -> Vec<u8> {
    let mut maker = Maker::new(session("crashed"));
    count(&mut maker, 60);
    let mut file = maker.abandon();
    file.truncate(file.len() - 0x1000 + 0x345);
    file
}

fn count(maker: &mut Maker, events: u32) {
    let counter = SelfDescribing::new(PROVIDER);
    let mut m = MetadataBuilder::new("Count", 0);
    m.add_field("n", 8, 0, 0).add_field("text", 2, 35, 0);
    for n in 0..events {
        let mut p = Vec::new();
        p.put_u32(n).put_ansi_z(&format!("event number {n}"));
        counter.write(maker, u16::try_from(n % 2).unwrap(), &mut m, &p, &[]);
    }
}
