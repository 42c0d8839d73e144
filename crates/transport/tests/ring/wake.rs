//! Tests that the owner is woken when a ring holds `wake_at` bytes, and only once before it drains
//! the ring.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use traceweir_transport::clock::Counter;
use traceweir_transport::ring::{Outlet, RegionReader, RegionSource, Ticket};

use crate::support::{self, RecordMark};

/// Pins the thread to one CPU and opens a region. Also returns a second descriptor of its eventfd.
fn open_on_one_cpu(outlet: &Outlet, clock: Counter, wake_at: u32) -> (RegionReader, Ticket, OwnedFd) {
    support::pin_to_cpu(0);
    let mut params = support::region_params(clock, 1 << 16);
    params.wake_at = wake_at;
    let (reader, memory) = RegionReader::create(&params).unwrap();
    let wake = support::create_eventfd();
    let second_fd = wake.try_clone().unwrap();
    let ticket = outlet.open(RegionSource::File { memory, wake }, &params).unwrap();
    (reader, ticket, second_fd)
}

/// Returns how often the owner has been woken since the last call.
fn take_wake_count(wake: BorrowedFd<'_>) -> u64 {
    let mut count = [0; 8];
    rustix::io::read(wake, &mut count).map_or(0, |_| u64::from_ne_bytes(count))
}

/// Writes records that take 64 bytes each in the ring: a prefix of 16 bytes, and 48 bytes.
fn write_records(outlet: &Outlet, ticket: Ticket, numbers: std::ops::Range<u64>) {
    numbers.for_each(|number| RecordMark { writer: 0, number, length: 48 }.write(outlet, ticket).unwrap());
}

#[test]
fn first_record_wakes_a_low_latency_owner_once_per_drain() {
    for clock in support::WRITER_CLOCKS {
        let outlet = support::leak_outlet();
        let (mut reader, ticket, wake) = open_on_one_cpu(outlet, clock, 1);
        for _ in 0..200 {
            assert_eq!(take_wake_count(wake.as_fd()), 0);
            write_records(outlet, ticket, 0..5);
            assert_eq!(take_wake_count(wake.as_fd()), 1);
            support::drain_region(&mut reader, &mut Vec::new(), |_| ());
        }
        assert!(outlet.close());
    }
}

#[test]
fn ring_wakes_the_owner_at_its_threshold() {
    for clock in support::WRITER_CLOCKS {
        let outlet = support::leak_outlet();
        let (mut reader, ticket, wake) = open_on_one_cpu(outlet, clock, 1024);
        for _ in 0..50 {
            write_records(outlet, ticket, 0..15);
            assert_eq!(take_wake_count(wake.as_fd()), 0, "960 bytes, below the threshold, woke the owner");
            write_records(outlet, ticket, 15..16);
            assert_eq!(take_wake_count(wake.as_fd()), 1, "1024 bytes, the threshold, did not wake the owner");
            write_records(outlet, ticket, 16..100);
            assert_eq!(take_wake_count(wake.as_fd()), 0, "the owner was woken a second time");
            support::drain_region(&mut reader, &mut Vec::new(), |_| ());
        }
        assert!(outlet.close());
    }
}
