//! Tests that idle rings give memory back to the system without losing records.

use std::os::fd::OwnedFd;

use traceweir_transport::clock::Counter;
use traceweir_transport::ring::{Outlet, RegionReader, RegionSource, Ticket};

use crate::support::{self, RecordMark};

const RING_BYTES: u32 = 1 << 20;

/// Pins the thread to one CPU and opens a region. Also returns a second descriptor of its memory.
fn open_on_one_cpu(outlet: &Outlet, clock: Counter) -> (RegionReader, Ticket, OwnedFd) {
    support::pin_to_cpu(0);
    let params = support::region_params(clock, RING_BYTES);
    let (reader, memory) = RegionReader::create(&params).unwrap();
    let second_fd = memory.try_clone().unwrap();
    let ticket =
        outlet.open(RegionSource::File { memory, wake: support::create_eventfd() }, &params).unwrap();
    (reader, ticket, second_fd)
}

/// Returns the bytes of memory that a memory file takes now.
fn allocated_bytes(memory: &OwnedFd) -> u64 {
    rustix::fs::fstat(memory).unwrap().st_blocks as u64 * 512
}

#[test]
fn idle_ring_holds_few_pages_however_long_it_is_used() {
    for clock in support::WRITER_CLOCKS {
        let outlet = support::leak_outlet();
        let (mut reader, ticket, memory) = open_on_one_cpu(outlet, clock);
        let (mut number, mut max_allocated) = (0, 0);
        for _ in 0..600 {
            for _ in 0..40 {
                RecordMark::new(0, number, 200).write(outlet, ticket).unwrap();
                number += 1;
            }
            support::drain_region(&mut reader, &mut Vec::new(), |_| ());
            reader.measure_rates();
            max_allocated = max_allocated.max(allocated_bytes(&memory));
        }
        // A record takes more than 100 bytes on average, so the writer passed the end of the ring
        // at least twice.
        assert!(number * 100 > 2 * u64::from(RING_BYTES), "the writer did not come around");
        assert!(max_allocated < 128 * 1024, "{max_allocated} bytes are held");
        assert_eq!(reader.lost(), 0);
        assert!(outlet.close());
    }
}

#[test]
fn busy_ring_keeps_its_pages_until_idle_again() {
    let outlet = support::leak_outlet();
    let (mut reader, ticket, memory) = open_on_one_cpu(outlet, Counter::Cycles);
    let mut number = 0;
    let mut burst = |reader: &mut RegionReader, records: u64| {
        for _ in 0..records {
            RecordMark::new(0, number, 400).write(outlet, ticket).unwrap();
            number += 1;
        }
        support::drain_region(reader, &mut Vec::new(), |_| ());
    };
    for _ in 0..10 {
        burst(&mut reader, 3000);
    }
    assert!(allocated_bytes(&memory) >= u64::from(RING_BYTES), "a busy ring gave pages back");
    for _ in 0..600 {
        reader.measure_rates();
        burst(&mut reader, 30);
    }
    assert!(allocated_bytes(&memory) < 128 * 1024, "{} bytes are held", allocated_bytes(&memory));
    assert_eq!(reader.lost(), 0);
    assert!(outlet.close());
}
