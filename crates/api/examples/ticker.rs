//! A provider for experiments: threads that write numbered events.
//!
//!     weir record -p Example-Ticker -o ticks.etl -- target/debug/examples/ticker 1000 2
//!
//! writes 1,000 events from each of 2 threads and prints how many were offered and refused. With
//! `forever` instead of a number it runs until it is stopped, with ten events per second and
//! thread.

use std::error::Error;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use traceweir::{EventDescriptor, Guid, Provider};
use traceweir_format::spec::event::CHANNEL_TRACELOGGING;
use traceweir_format::spec::types::InType;
use traceweir_format::tracelogging::{MetadataBuilder, TraitsBuilder};

const NAME: &str = "Example-Ticker";

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let events = arguments.next().unwrap_or_else(|| "10".to_owned());
    let count: u64 = if events == "forever" { u64::MAX } else { events.parse()? };
    let threads: u32 = arguments.next().map_or(Ok(1), |n| n.parse())?;

    let provider = Provider::register_with_traits(
        Guid::from_provider_name(NAME),
        TraitsBuilder::new(NAME).finish()?,
        None,
    )?;
    let mut metadata = MetadataBuilder::new("Tick", 0);
    metadata.add_field("thread", InType::UINT32.0 as u8, 0, 0);
    metadata.add_field("number", InType::UINT64.0 as u8, 0, 0);
    let metadata = metadata.finish()?.to_vec();
    let refused = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (provider, metadata, refused) = (&provider, &metadata, &refused);
            scope.spawn(move || tick(provider, metadata, thread, count, refused));
        }
    });
    println!("offered {} refused {}", count * u64::from(threads), refused.into_inner());
    Ok(())
}

fn tick(provider: &Provider, metadata: &[u8], thread: u32, count: u64, refused: &AtomicU64) {
    let event =
        EventDescriptor { channel: CHANNEL_TRACELOGGING, level: 4, keyword: 1, ..EventDescriptor::default() };
    for number in 0..count {
        let data: [&[u8]; 2] = [&thread.to_le_bytes(), &number.to_le_bytes()];
        if provider.event(&event).metadata(metadata).write(&data).is_err() {
            refused.fetch_add(1, Ordering::Relaxed);
        }
        if count == u64::MAX {
            std::thread::sleep(Duration::from_millis(100));
        } else if number % 500 == 499 {
            // Gives the collector time: events that come faster than it drains the rings are lost.
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
