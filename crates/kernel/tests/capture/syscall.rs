//! System calls of a thread that makes a known number of them: an extra, which needs the right to open tracepoints.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use traceweir_format::wire::u64_at;
use traceweir_kernel::{Control, Group, Wanted};

use crate::again::again;
use crate::support;
use crate::support::{capture_whole, of, of_thread, this_thread, wanting};

const ENTER: u16 = 0x0F33;
const EXIT: u16 = 0x0F34;
const CALLS: usize = 1000;

/// The address of a function of the kernel; 0 where it is hidden.
fn address(name: &str) -> u64 {
    let text = fs::read_to_string("/proc/kallsyms").unwrap_or_default();
    let mut lines = text.lines().filter(|line| line.split_ascii_whitespace().nth(2) == Some(name));
    lines.next().map_or(0, |line| u64::from_str_radix(&line[..16], 16).unwrap_or(0))
}

#[test]
fn calls_of_a_thread_are_counted_exactly_and_name_their_function() {
    again(5, || {
        let wanted = Wanted { stacks: vec![ENTER, EXIT], ..wanting(&[Group::SYSTEMCALL]) };
        let work = |_: &Control, _: &mut dyn FnMut()| {
            for _ in 0..CALLS {
                // SAFETY: both ask for a number; there is no process of the number −1.
                let (parent, group) =
                    unsafe { (libc::syscall(libc::SYS_getppid), libc::syscall(libc::SYS_getpgid, -1)) };
                assert!(parent > 0 && group == -1);
            }
        };
        let Some(seen) = capture_whole(&wanted, work) else { return };
        let thread = this_thread();
        let enters = of_thread(&seen, ENTER, thread);
        for name in ["__x64_sys_getppid", "__x64_sys_getpgid"] {
            let address = address(name);
            if address == 0 {
                support::skip::skip("kernel events", "addresses of the kernel are hidden");
                continue;
            }
            let count = enters.iter().filter(|it| it.fields().number("SysCallAddress") == address).count();
            assert_eq!(count, CALLS, "{name}");
        }
        let exits = of_thread(&seen, EXIT, thread);
        let returned = |value: i32| {
            let value = u64::from(value.cast_unsigned());
            exits.iter().filter(|it| it.fields().number("SysCallNtStatus") == value).count()
        };
        let parent = i32::try_from(std::os::unix::process::parent_id()).expect("a process");
        assert_eq!((returned(parent), returned(-libc::ESRCH)), (CALLS, CALLS));
        assert!(
            enters.len().abs_diff(exits.len()) <= 2 * 8,
            "what begins and ends the capture itself: {} and {}",
            enters.len(),
            exits.len()
        );
        for event in of(&seen, &[ENTER, EXIT]) {
            let _ = event.fields();
        }
    });
}

#[test]
fn a_change_in_a_running_capture_tells_nothing_twice_and_leaves_nothing_out() {
    again(5, || {
        // One that hardly anybody makes: without stacks there is no thread to tell them apart by.
        let address = address("__x64_sys_sched_get_priority_min");
        if !support::skip::can(address != 0, "kernel events", "addresses of the kernel are hidden") {
            return;
        }
        let without = wanting(&[Group::SYSTEMCALL]);
        let with = Wanted { stacks: vec![ENTER], ..without.clone() };
        let mut calls = 0;
        let (is_over, is_changing) = (AtomicBool::new(false), AtomicBool::new(false));
        let work = |control: &Control, look: &mut dyn FnMut()| {
            is_over.store(false, Relaxed);
            std::thread::scope(|scope| {
                let caller = scope.spawn(|| {
                    let mut calls = 0_usize;
                    while !is_over.load(Relaxed) {
                        // SAFETY: asks for a number.
                        unsafe { libc::syscall(libc::SYS_sched_get_priority_min, libc::SCHED_FIFO) };
                        calls += 1;
                        // As fast as it can while that matters, and no faster than the reader otherwise.
                        if !is_changing.load(Relaxed) {
                            std::thread::sleep(std::time::Duration::from_micros(500));
                        }
                    }
                    calls
                });
                for round in 0..20 {
                    is_changing.store(true, Relaxed);
                    control.set(if round % 2 == 0 { &with } else { &without }).expect("a change");
                    is_changing.store(false, Relaxed);
                    look();
                    std::thread::sleep(std::time::Duration::from_millis(2));
                }
                is_over.store(true, Relaxed);
                calls = caller.join().expect("a caller");
            });
        };
        let Some(seen) = capture_whole(&without, work) else { return };
        let told = seen.iter().filter(|it| it.hook == ENTER && u64_at(&it.payload, 0) == address).count();
        assert_eq!(told, calls);
    });
}
