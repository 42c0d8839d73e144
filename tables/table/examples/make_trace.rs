//! Makes a trace of requests, to measure conversions: `make_trace EVENTS OUT [PROVIDERS]`.

use std::error::Error;
use std::fs::File;

#[path = "../tests/support/trace_maker.rs"]
#[allow(dead_code, missing_docs, unreachable_pub)]
mod trace_maker;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let usage = "usage: make_trace EVENTS OUT [PROVIDERS]";
    let count = arguments.next().ok_or(usage)?.parse()?;
    let output = arguments.next().ok_or(usage)?;
    let shops = arguments.next().map_or(Ok(1), |text| text.parse())?;
    trace_maker::write_requests(File::create(output)?, count, shops)?;
    Ok(())
}
