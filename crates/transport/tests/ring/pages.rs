//! Tests that idle rings give memory back to the system without losing records.

use std::os::fd::OwnedFd;

use traceweir_transport::clock::Counter;
use traceweir_transport::ring::{Outlet, RegionReader, RegionSource, Ticket};

use crate::support::{self, Mark};

const RING: u32 = 1 << 20;

fn open(outlet: &Outlet, clock: Counter) -> (RegionReader, Ticket, OwnedFd) {
    support::pin(0);
    let params = support::params(clock, RING);
    let (reader, memory) = RegionReader::create(&params).unwrap();
    let ours = memory.try_clone().unwrap();
    let ticket = outlet.open(RegionSource::File { memory, wake: support::eventfd() }, &params).unwrap();
    (reader, ticket, ours)
}

/// Returns the memory that the memory file takes now.
fn held(memory: &OwnedFd) -> u64 {
    rustix::fs::fstat(memory).unwrap().st_blocks as u64 * 512
}

#[test]
fn idle_ring_holds_few_pages_however_long_it_is_used() {
    for clock in support::KINDS {
        let outlet = support::outlet();
        let (mut reader, ticket, memory) = open(outlet, clock);
        let (mut number, mut most) = (0, 0);
        for _ in 0..600 {
            for _ in 0..40 {
                Mark::new(0, number, 200).write(outlet, ticket).unwrap();
                number += 1;
            }
            support::drain(&mut reader, &mut Vec::new(), |_| ());
            reader.give_back();
            most = most.max(held(&memory));
        }
        assert!(number * 100 > 2 * u64::from(RING), "the ring came around");
        assert!(most < 128 * 1024, "{most} bytes are held");
        assert_eq!(reader.lost(), 0);
        assert!(outlet.close());
    }
}

#[test]
fn busy_ring_keeps_its_pages_until_idle_again() {
    let outlet = support::outlet();
    let (mut reader, ticket, memory) = open(outlet, Counter::Cycles);
    let mut number = 0;
    let mut burst = |reader: &mut RegionReader, records: u64| {
        for _ in 0..records {
            Mark::new(0, number, 400).write(outlet, ticket).unwrap();
            number += 1;
        }
        support::drain(reader, &mut Vec::new(), |_| ());
    };
    for _ in 0..10 {
        burst(&mut reader, 3000);
    }
    assert!(held(&memory) >= u64::from(RING), "a busy ring is wholly there");
    for _ in 0..600 {
        reader.give_back();
        burst(&mut reader, 30);
    }
    assert!(held(&memory) < 128 * 1024, "{} bytes are held", held(&memory));
    assert_eq!(reader.lost(), 0);
    assert!(outlet.close());
}
