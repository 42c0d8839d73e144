//! A program that records itself: no daemon, no root, no configuration.
//!
//!     cargo run --example private_session -- /tmp/self.etl 1000
//!
//! writes 1,000 events to the file and prints how many were offered, written, lost and refused.

use std::error::Error;
use std::path::PathBuf;

use traceweir::{EventDescriptor, Guid, Provider, Session};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let file = arguments.next().map_or_else(|| PathBuf::from("self.etl"), PathBuf::from);
    let count: u64 = arguments.next().map_or(Ok(10), |n| n.to_string_lossy().parse())?;

    let id = Guid::from_provider_name("Example-PrivateSession");
    let provider = Provider::register(id, None)?;
    let session = Session::builder("example").log_file(file).in_process().start()?;
    session.enable(id).apply()?;
    let event = EventDescriptor { id: 1, level: 4, ..EventDescriptor::default() };
    let mut refused = 0;
    for number in 0..count {
        // If the ring is full, the session counts the event as lost and the loop continues.
        refused += u64::from(provider.write(&event, &[&number.to_le_bytes(), b"hello\0"]).is_err());
    }
    let summary = session.stop()?;
    println!("offered {count} written {} lost {} refused {refused}", summary.events, summary.events_lost);
    Ok(())
}
