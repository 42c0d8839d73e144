//! Tests of many threads that move between CPUs, and one reader: every record arrives once or is
//! counted as lost.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use traceweir_transport::clock::Counter;
use traceweir_transport::ring::{Outlet, RegionReader, Ticket};

use crate::support::{self, Random, RecordMark};

const RECORDS_PER_WRITER: u64 = 20_000;

/// Writes from `writers` threads that change CPUs, drains meanwhile, and checks the counts.
fn write_and_drain(outlet: &'static Outlet, reader: &mut RegionReader, ticket: Ticket, writers: u32) {
    let is_done = AtomicBool::new(false);
    let (mut seen, mut stamps) = (HashSet::new(), Vec::new());
    let refused: u64 = thread::scope(|scope| {
        let threads: Vec<_> = (0..writers)
            .map(|writer| {
                scope.spawn(move || {
                    let mut random = Random(u64::from(writer) + 1);
                    (0..RECORDS_PER_WRITER)
                        .filter(|number| {
                            if number.is_multiple_of(64) {
                                support::pin_to_cpu(random.below(64) as usize);
                            }
                            RecordMark::new(writer, *number, 300).write(outlet, ticket).is_err()
                        })
                        .count() as u64
                })
            })
            .collect();
        let drainer = scope.spawn(|| {
            let mut is_last = false;
            while !is_last {
                is_last = is_done.load(Ordering::Acquire);
                support::drain_region(reader, &mut stamps, |mark| {
                    assert!(seen.insert((mark.writer, mark.number)), "{mark:?} came twice");
                });
                reader.measure_rates();
                thread::yield_now();
            }
        });
        let refused = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
        is_done.store(true, Ordering::Release);
        drainer.join().unwrap();
        refused
    });
    let offered = u64::from(writers) * RECORDS_PER_WRITER;
    assert_eq!(reader.lost(), refused);
    assert_eq!(seen.len() as u64 + refused, offered);
}

#[test]
fn migrating_threads_lose_nothing_uncounted() {
    for clock in support::WRITER_CLOCKS {
        for ring_bytes in [8192, 1 << 16] {
            let outlet = support::leak_outlet();
            let (mut reader, ticket) =
                support::open_region(outlet, &support::region_params(clock, ring_bytes));
            write_and_drain(outlet, &mut reader, ticket, 6);
            assert!(outlet.close());
        }
    }
}

#[test]
fn private_region_works_like_a_region_in_a_file() {
    for clock in support::WRITER_CLOCKS {
        let outlet = support::leak_outlet();
        let params = support::region_params(clock, 1 << 16);
        let (ticket, mut reader) = outlet.open_private(&params, support::create_eventfd()).unwrap();
        write_and_drain(outlet, &mut reader, ticket, 3);
        assert!(outlet.close());
    }
}

#[test]
fn writer_finds_free_space_again_after_a_drain() {
    let outlet = support::leak_outlet();
    let (mut reader, ticket) = support::open_region(outlet, &support::region_params(Counter::Cycles, 4096));
    support::pin_to_cpu(0);
    let mut number = 0;
    for _ in 0..50 {
        while RecordMark::new(0, number, 500).write(outlet, ticket).is_ok() {
            number += 1;
        }
        number += 1;
        let mut seen = 0;
        support::drain_region(&mut reader, &mut Vec::new(), |_| seen += 1);
        assert!(seen > 0);
    }
    assert_eq!(reader.lost(), 50);
    assert!(outlet.close());
}

/// This test is needed because the others also pass if every write takes the lock. The C library
/// registers the areas for restartable sequences since glibc 2.35.
#[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
#[test]
fn sequences_are_used_if_the_c_library_registers_them() {
    // SAFETY: returns a static string.
    let version = unsafe { std::ffi::CStr::from_ptr(libc::gnu_get_libc_version()) }.to_str().unwrap();
    let (major, minor) = version.split_once('.').unwrap();
    let (major, minor): (u32, u32) = (major.parse().unwrap(), minor.parse().unwrap());
    let is_forbidden =
        ["TRACEWEIR_NO_RSEQ", "GLIBC_TUNABLES"].iter().any(|name| std::env::var_os(name).is_some());
    if (major, minor) < (2, 35) || is_forbidden {
        return;
    }
    let outlet = support::leak_outlet();
    let (mut reader, ticket) =
        support::open_region(outlet, &support::region_params(Counter::Cycles, 1 << 16));
    for number in 0..100 {
        RecordMark::new(0, number, 100).write(outlet, ticket).unwrap();
    }
    let rings = reader.rings();
    let (sequences, locks) = rings.split_at_mut(rings.len() / 2);
    assert!(sequences.iter_mut().any(|ring| ring.poll().unwrap()));
    assert!(!locks.iter_mut().any(|ring| ring.poll().unwrap()));
    assert!(outlet.close());
}

/// Simulates a thread without an rseq area: one that the C library did not create, or whose
/// registration the kernel refused.
#[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
#[test]
fn thread_without_registered_area_uses_the_lock() {
    // `RSEQ_FLAG_UNREGISTER`, and the signature with which glibc registers the areas.
    const UNREGISTER: i32 = 1;
    const SIGNATURE: u32 = 0x5305_3053;

    // SAFETY: looks up a symbol; the result is null or the address of a variable of the C library.
    let offset = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_offset".as_ptr()) }.cast::<isize>();
    if offset.is_null() {
        return;
    }
    // SAFETY: the address is not null; the C library writes the variable before the program's own
    // code runs.
    let offset = unsafe { offset.read() };
    let outlet = support::leak_outlet();
    let (mut reader, ticket) =
        support::open_region(outlet, &support::region_params(Counter::Cycles, 1 << 16));
    let unregistered = thread::spawn(move || {
        let thread: usize;
        // SAFETY: the first word of a thread's block is its own address. Unregistering makes the
        // kernel forget the area of this thread; the memory stays valid.
        let result = unsafe {
            std::arch::asm!("mov {}, qword ptr fs:[0]", out(reg) thread, options(nostack, readonly));
            let area = thread.wrapping_add_signed(offset);
            libc::syscall(libc::SYS_rseq, area, 32, UNREGISTER, SIGNATURE)
        };
        for number in 0..100 {
            RecordMark::new(0, number, 100).write(outlet, ticket).unwrap();
        }
        result == 0
    });
    let unregistered = unregistered.join().unwrap();
    let rings = reader.rings();
    let (sequences, locks) = rings.split_at_mut(rings.len() / 2);
    if unregistered {
        assert!(locks.iter_mut().any(|ring| ring.poll().unwrap()));
        assert!(!sequences.iter_mut().any(|ring| ring.poll().unwrap()));
    }
    assert!(outlet.close());
}
