//! Tests of opening and closing outlets, also while other threads write, and of invalid tickets and
//! regions.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use traceweir_transport::abi::{Layout, control};
use traceweir_transport::clock::Counter;
use traceweir_transport::map::Mapping;
use traceweir_transport::ring::{Block, Gather, RegionReader, RegionSource, Ticket, WriteFailure};

use crate::support::{self, Random, RecordMark};

#[test]
fn no_thread_publishes_after_a_close_and_counts_are_exact() {
    let outlet = support::leak_outlet();
    let mut random = Random(7);
    let mut exact_rounds = 0;
    for round in 0..120u64 {
        let clock = support::WRITER_CLOCKS[(round % 2) as usize];
        let ring_bytes = if round % 3 == 0 { 8192 } else { 1 << 20 };
        let (mut reader, ticket) = support::open_region(outlet, &support::region_params(clock, ring_bytes));
        let (mut seen, mut stamps) = (0u64, Vec::new());
        let (is_quiet, written, full) = thread::scope(|scope| {
            let threads: Vec<_> = (0..3)
                .map(|writer| {
                    scope.spawn(move || {
                        // Written records, and records refused because the ring was full.
                        let mut results = [0u64; 2];
                        for number in 0.. {
                            match RecordMark::new(writer, number, 250).write(outlet, ticket) {
                                Ok(()) => results[0] += 1,
                                Err(WriteFailure::Full) => results[1] += 1,
                                Err(_) => break,
                            }
                        }
                        results
                    })
                })
                .collect();
            thread::sleep(Duration::from_micros(random.below(1500)));
            let is_quiet = outlet.close();
            support::drain_region(&mut reader, &mut stamps, |_| seen += 1);
            let results = threads.into_iter().map(|thread| thread.join().unwrap());
            let (written, full) = results.fold((0, 0), |sum, [ok, full]| (sum.0 + ok, sum.1 + full));
            (is_quiet, written, full)
        });
        if is_quiet {
            exact_rounds += 1;
            assert_eq!(seen, written);
            assert_eq!(reader.lost(), full);
            support::drain_region(&mut reader, &mut stamps, |mark| panic!("{mark:?} came after the close"));
        }
    }
    assert!(exact_rounds > 60, "closing found a writer stopped in a lock {} times", 120 - exact_rounds);
}

#[test]
fn outlet_can_be_reopened_with_regions_of_all_sizes() {
    let outlet = support::leak_outlet();
    let mut random = Random(11);
    let mut stale = Ticket(0);
    for round in 0..200u64 {
        let clock = support::WRITER_CLOCKS[(round % 2) as usize];
        let ring_bytes = 4096 << random.below(8);
        let mut params = support::region_params(clock, ring_bytes);
        params.layout = Layout::new(1 + random.below(4) as u16, ring_bytes).unwrap();
        let (mut reader, ticket) = support::open_region(outlet, &params);
        for number in 0..10 {
            RecordMark::new(round as u32, number, 100).write(outlet, ticket).unwrap();
        }
        assert_eq!(RecordMark::new(0, 0, 100).write(outlet, stale), Err(WriteFailure::Closed));
        outlet.count_lost(stale);
        let mut seen = 0;
        support::drain_region(&mut reader, &mut Vec::new(), |mark| {
            assert_eq!(mark.writer, round as u32);
            seen += 1;
        });
        assert_eq!((seen, reader.lost()), (10, 0));
        assert!(outlet.close());
        stale = ticket;
    }
}

#[test]
fn invalid_ticket_is_refused() {
    let outlet = support::leak_outlet();
    for ticket in [Ticket(0), Ticket(1), Ticket(2), Ticket(u64::MAX)] {
        assert_eq!(RecordMark::new(0, 0, 100).write(outlet, ticket), Err(WriteFailure::Closed));
        outlet.count_lost(ticket);
    }
    let params = support::region_params(Counter::Cycles, 4096);
    let (mut reader, ticket) = support::open_region(outlet, &params);
    let (_, memory) = RegionReader::create(&params).unwrap();
    assert!(
        outlet.open(RegionSource::File { memory, wake: support::create_eventfd() }, &params).is_err(),
        "an open outlet was opened again"
    );
    assert!(outlet.close() && outlet.close());
    assert_eq!(RecordMark::new(0, 0, 100).write(outlet, Ticket(ticket.0 + 1)), Err(WriteFailure::Closed));
    assert_eq!(reader.lost(), 0);
}

#[test]
fn ticket_does_not_fit_another_outlet() {
    let (first_outlet, second_outlet) = (support::leak_outlet(), support::leak_outlet());
    let params = support::region_params(Counter::Cycles, 4096);
    let (mut first_reader, first_ticket) = support::open_region(first_outlet, &params);
    let (mut second_reader, second_ticket) = support::open_region(second_outlet, &params);
    assert_ne!(first_ticket, second_ticket);
    for (outlet, wrong_ticket) in [(first_outlet, second_ticket), (second_outlet, first_ticket)] {
        assert_eq!(RecordMark::new(0, 0, 100).write(outlet, wrong_ticket), Err(WriteFailure::Closed));
        outlet.count_lost(wrong_ticket);
    }
    for reader in [&mut first_reader, &mut second_reader] {
        support::drain_region(reader, &mut Vec::new(), |mark| panic!("{mark:?} was written"));
        assert_eq!(reader.lost(), 0);
    }
    assert!(first_outlet.close() && second_outlet.close());
}

#[test]
fn region_of_another_version_is_rejected_with_a_reason() {
    let outlet = support::leak_outlet();
    let mut params = support::region_params(Counter::Cycles, 4096);
    let (_, memory) = RegionReader::create(&params).unwrap();
    params.layout = Layout::with_version(3, params.layout.cpus(), 4096).unwrap();
    let refused =
        outlet.open(RegionSource::File { memory, wake: support::create_eventfd() }, &params).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "the region follows version 3 of the rules of shared memory, this side knows version 2"
    );
    assert_eq!(refused.status(), traceweir_format::spec::status::Status::ERROR_NOT_SUPPORTED);
    assert!(outlet.open_private(&params, support::create_eventfd()).is_err());
    assert!(RegionReader::create(&params).is_err());
    assert!(outlet.close(), "a rejected region left the outlet open");
}

#[test]
fn region_smaller_than_announced_is_rejected() {
    let outlet = support::leak_outlet();
    let (_, memory) = RegionReader::create(&support::region_params(Counter::Cycles, 4096)).unwrap();
    let larger = support::region_params(Counter::Cycles, 8192);
    assert!(outlet.open(RegionSource::File { memory, wake: support::create_eventfd() }, &larger).is_err());
    let (_reader, ticket) = support::open_region(outlet, &larger);
    assert_eq!(RecordMark::new(0, 0, 100).write(outlet, ticket), Ok(()));
    assert!(outlet.close());
}

#[test]
fn close_reports_a_stopped_writer_and_abandons_its_addresses() {
    let outlet = support::leak_outlet();
    let params = support::region_params(Counter::Monotonic, 4096);
    let (mut reader, memory) = RegionReader::create(&params).unwrap();
    let layout = params.layout;
    let map = Mapping::from_file(memory.as_fd(), layout.region_bytes(), true).unwrap();
    let ticket =
        outlet.open(RegionSource::File { memory, wake: support::create_eventfd() }, &params).unwrap();
    // Any value except 0 means that the lock is taken.
    let last = layout.control_offset(layout.rings() - 1) + control::LOCK;
    map.half(last).unwrap().store(99, Ordering::Relaxed);
    // With several CPUs, the write takes another lock. With one, the lock taken above is the only
    // one, and the write fails.
    assert_eq!(RecordMark::new(0, 0, 100).write(outlet, ticket).is_ok(), layout.cpus() > 1);
    let before = reader.lost();
    assert!(!outlet.close());
    assert_eq!(reader.lost(), before + 1, "the record of the stopped writer is not counted as lost");
    let (mut reader, ticket) = support::open_region(outlet, &params);
    assert_eq!(RecordMark::new(0, 1, 100).write(outlet, ticket), Ok(()));
    let mut seen = 0;
    support::drain_region(&mut reader, &mut Vec::new(), |_| seen += 1);
    assert_eq!(seen, 1);
    assert!(outlet.close());
}

#[test]
fn record_is_counted_if_every_lock_is_taken() {
    let outlet = support::leak_outlet();
    let params = support::region_params(Counter::Monotonic, 4096);
    let (mut reader, memory) = RegionReader::create(&params).unwrap();
    let layout = params.layout;
    let map = Mapping::from_file(memory.as_fd(), layout.region_bytes(), true).unwrap();
    let ticket =
        outlet.open(RegionSource::File { memory, wake: support::create_eventfd() }, &params).unwrap();
    let locks =
        || (0..layout.rings()).map(|ring| map.half(layout.control_offset(ring) + control::LOCK).unwrap());
    locks().for_each(|lock| lock.store(99, Ordering::Relaxed));
    assert_eq!(RecordMark::new(0, 0, 100).write(outlet, ticket), Err(WriteFailure::Full));
    assert_eq!(reader.lost(), 1);
    locks().for_each(|lock| lock.store(0, Ordering::Relaxed));
    assert_eq!(RecordMark::new(0, 1, 100).write(outlet, ticket), Ok(()));
    assert!(outlet.close());
}

/// Copying 60 KB takes so long that a close can happen during the copy.
#[test]
fn long_copy_is_published_before_the_close_returns_or_never() {
    let outlet = support::leak_outlet();
    let long = vec![7u8; 60_000];
    let mut exact_rounds = 0;
    for round in 0..200 {
        let mut params = support::region_params(support::WRITER_CLOCKS[round % 2], 1 << 22);
        params.max_record = 65_000;
        let (mut reader, ticket) = support::open_region(outlet, &params);
        let has_begun = AtomicBool::new(false);
        let (is_quiet, written, seen) = thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let mut written = 0;
                loop {
                    let mut staged = [0, 0, written];
                    let rest = [Block::new(&long)];
                    let mut record =
                        Gather { staged: &mut staged, staged_bytes: 8, further_parts: &rest, flags: 0 };
                    match outlet.write(ticket, 1, &mut record) {
                        Ok(()) => written += 1,
                        Err(WriteFailure::Closed) => return written,
                        Err(_) => {}
                    }
                    has_begun.store(true, Ordering::Relaxed);
                }
            });
            while !has_begun.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
            let is_quiet = outlet.close();
            let seen = reader.rings().iter_mut().map(support::discard_records).sum::<u64>();
            (is_quiet, writer.join().unwrap(), seen)
        });
        if is_quiet {
            exact_rounds += 1;
            assert_eq!(seen, written);
        }
    }
    assert!(exact_rounds > 100, "closing found a writer stopped in a lock {} times", 200 - exact_rounds);
}
