//! Many threads that move between processors, one reader: every record once, or counted.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use traceweir_transport::clock::Counter;
use traceweir_transport::ring::{Outlet, RegionReader, Ticket};

use crate::support::{self, Mark, Random};

const EACH: u64 = 20_000;

/// Writes from `writers` threads that change processors, drains meanwhile, and checks the account.
fn exchange(outlet: &'static Outlet, reader: &mut RegionReader, ticket: Ticket, writers: u32) {
    let done = AtomicBool::new(false);
    let (mut seen, mut stamps) = (HashSet::new(), Vec::new());
    let refused: u64 = thread::scope(|scope| {
        let threads: Vec<_> = (0..writers)
            .map(|writer| {
                scope.spawn(move || {
                    let mut random = Random(u64::from(writer) + 1);
                    (0..EACH)
                        .filter(|number| {
                            if number.is_multiple_of(64) {
                                support::pin(random.below(64) as usize);
                            }
                            Mark::of(writer, *number, 300).write(outlet, ticket).is_err()
                        })
                        .count() as u64
                })
            })
            .collect();
        let drainer = scope.spawn(|| {
            let mut last = false;
            while !last {
                last = done.load(Ordering::Acquire);
                support::drain(reader, &mut stamps, |mark| {
                    assert!(seen.insert((mark.writer, mark.number)), "{mark:?} came twice");
                });
                reader.give_back();
                thread::yield_now();
            }
        });
        let refused = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
        done.store(true, Ordering::Release);
        drainer.join().unwrap();
        refused
    });
    let offered = u64::from(writers) * EACH;
    assert_eq!(reader.lost(), refused);
    assert_eq!(seen.len() as u64 + refused, offered);
}

#[test]
fn threads_that_move_between_processors_lose_nothing_uncounted() {
    for clock in support::KINDS {
        for ring_bytes in [8192, 1 << 16] {
            let outlet = support::outlet();
            let (mut reader, ticket) = support::open(outlet, &support::params(clock, ring_bytes));
            exchange(outlet, &mut reader, ticket, 6);
            assert!(outlet.close());
        }
    }
}

#[test]
fn a_private_region_works_as_one_in_a_file() {
    for clock in support::KINDS {
        let outlet = support::outlet();
        let params = support::params(clock, 1 << 16);
        let (ticket, mut reader) = outlet.open_private(&params, support::eventfd()).unwrap();
        exchange(outlet, &mut reader, ticket, 3);
        assert!(outlet.close());
    }
}

#[test]
fn a_thread_finds_room_again_when_the_reader_was_there() {
    let outlet = support::outlet();
    let (mut reader, ticket) = support::open(outlet, &support::params(Counter::Cycles, 4096));
    support::pin(0);
    let mut number = 0;
    for _ in 0..50 {
        while Mark::of(0, number, 500).write(outlet, ticket).is_ok() {
            number += 1;
        }
        number += 1;
        assert!(reader.unread() > 0);
        support::drain(&mut reader, &mut Vec::new(), |_| ());
        assert_eq!(reader.unread(), 0);
    }
    assert_eq!(reader.lost(), 50);
    assert!(outlet.close());
}
