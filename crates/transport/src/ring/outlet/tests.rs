//! Tests of late writers, visitors that never leave, closed regions and checks for room. States
//! that occur only by chance are created by writing the memory words directly.

use rustix::event::EventfdFlags;

use super::*;
use crate::abi::Layout;
use crate::ring::gather::Gather;

fn create_eventfd() -> OwnedFd {
    rustix::event::eventfd(0, EventfdFlags::CLOEXEC).unwrap()
}

fn leak_outlet() -> &'static Outlet {
    Box::leak(Box::new(Outlet::new()))
}

fn region_params(clock: Counter) -> RegionParams {
    RegionParams { layout: Layout::new(2, 4096).unwrap(), clock, wake_at: 0, max_record: 1000 }
}

fn open_region(outlet: &Outlet, params: &RegionParams) -> (RegionReader, Ticket) {
    let (reader, memory) = RegionReader::create(params).unwrap();
    let ticket = outlet.open(RegionSource::File { memory, wake: create_eventfd() }, params).unwrap();
    (reader, ticket)
}

fn write_record(outlet: &Outlet, ticket: Ticket) -> Result<(), WriteFailure> {
    let mut staged = [0, 0, 7];
    let mut record = Gather { staged: &mut staged, staged_bytes: 8, further_parts: &[], flags: 0 };
    outlet.write(ticket, 1, &mut record)
}

#[test]
fn lock_taken_in_covering_zeros_is_not_released_in_the_next_region() {
    let (outlet, params) = (leak_outlet(), region_params(Counter::Monotonic));
    let (_first, _) = open_region(outlet, &params);
    let late_view = outlet.hot.view();
    assert!(outlet.close());
    // The close covers the addresses of the region with private zeros, which a late writer may
    // still use. The regions of this file have two CPUs: ring 2 is the first ring with a lock.
    // SAFETY: the view was read while the outlet was open.
    let words = unsafe { late_view.words(2) };
    assert!(words.try_lock(5), "a lock word of the covering zeros is taken");
    let (_second, ticket) = open_region(outlet, &params);
    assert_eq!(outlet.hot.view().base, late_view.base, "the region is at other addresses");
    assert!(words.try_lock(9), "a lock of the next region is taken");
    words.unlock_if_held_by(5);
    assert!(!words.try_lock(6), "the late writer released the lock of another thread");
    words.unlock_if_held_by(9);
    assert_eq!(write_record(outlet, ticket), Ok(()));
    assert!(outlet.close());
}

#[test]
fn forget_works_with_a_visitor_that_never_leaves() {
    for clock in [Counter::Cycles, Counter::Monotonic] {
        let (outlet, params) = (leak_outlet(), region_params(clock));
        let (mut reader, ticket) = open_region(outlet, &params);
        // This visitor stands for a thread that was counting a loss at a fork and exists only in
        // the parent.
        outlet.cold.visitors.fetch_add(1, Ordering::Relaxed);
        let late_view = outlet.hot.view();
        outlet.forget();
        outlet.count_lost(ticket);
        assert_eq!((write_record(outlet, ticket), reader.lost()), (Err(WriteFailure::Closed), 0));
        // SAFETY: the view was read while the outlet was open.
        let words = unsafe { late_view.words(2) };
        words.count_lost();
        assert_eq!(reader.lost(), 1, "the late loss is not counted");
        assert!(words.try_lock(5), "a lock of the parent is taken");
        words.unlock();
        let (mut child_reader, ticket) = open_region(outlet, &params);
        assert_ne!(outlet.hot.view().base, late_view.base, "addresses were reused in spite of a visitor");
        assert_eq!(write_record(outlet, ticket), Ok(()));
        outlet.count_lost(ticket);
        assert!(outlet.close(), "the visitor blocks the close");
        assert_eq!((reader.lost(), child_reader.lost()), (1, 1));
    }
}

#[test]
fn closed_region_refuses_records_until_it_is_opened() {
    for clock in [Counter::Cycles, Counter::Monotonic] {
        let (outlet, params) = (leak_outlet(), region_params(clock));
        let (mut reader, ticket) = open_region(outlet, &params);
        let drain = |reader: &mut RegionReader| {
            let mut taken = 0;
            for ring in reader.rings() {
                ring.poll().unwrap();
                while ring.peek().unwrap().is_some() {
                    ring.take(&mut [0; 8]);
                    taken += 1;
                }
                ring.release();
            }
            taken
        };
        // Enough rounds to close the ring at every position.
        for round in 0..400 {
            reader.set_closed(true);
            assert_eq!(write_record(outlet, ticket), Err(WriteFailure::OwnerFull));
            assert_eq!(outlet.check_room(ticket, 8), Err(WriteFailure::OwnerFull));
            assert_eq!(drain(&mut reader), if round == 0 { 0 } else { 1 }, "a closed ring was not read");
            assert_eq!(
                write_record(outlet, ticket),
                Err(WriteFailure::OwnerFull),
                "reading opened the closed ring"
            );
            reader.set_closed(false);
            assert_eq!(write_record(outlet, ticket), Ok(()));
        }
        // Two writes were refused in each round.
        assert_eq!(reader.lost(), 800);
        drain(&mut reader);
        while write_record(outlet, ticket) != Err(WriteFailure::Full) {}
        assert!(outlet.close());
        assert!(!reader.is_damaged());
    }
}

#[test]
fn check_for_room_predicts_a_write_and_changes_nothing() {
    for clock in [Counter::Cycles, Counter::Monotonic] {
        let (outlet, params) = (leak_outlet(), region_params(clock));
        assert_eq!(outlet.check_room(Ticket(1), 8), Err(WriteFailure::Closed));
        let (mut reader, ticket) = open_region(outlet, &params);
        // The thread stays on one CPU, so that it fills one ring.
        let previous_cpu_set = rustix::thread::sched_getaffinity(None).unwrap();
        let mut cpu_set = rustix::thread::CpuSet::new();
        cpu_set.set(rustix::thread::sched_getcpu());
        rustix::thread::sched_setaffinity(None, &cpu_set).unwrap();
        for (length, expected) in [
            (0, Err(WriteFailure::TooLarge)),
            (1, Ok(())),
            (1000, Ok(())),
            (1001, Err(WriteFailure::TooLarge)),
        ] {
            assert_eq!(outlet.check_room(ticket, length), expected, "record of {length} bytes");
        }
        let mut written = 0;
        while outlet.check_room(ticket, 8).is_ok() {
            assert_eq!(write_record(outlet, ticket), Ok(()));
            written += 1;
        }
        // A record of 8 bytes takes 24 bytes in a ring of 4096 bytes.
        assert_eq!(written, 4096 / 24);
        assert_eq!(reader.lost(), 0);
        assert_eq!(write_record(outlet, ticket), Err(WriteFailure::Full));
        assert!(outlet.close());
        assert_eq!(outlet.check_room(ticket, 8), Err(WriteFailure::Closed));
        rustix::thread::sched_setaffinity(None, &previous_cpu_set).unwrap();
    }
}
