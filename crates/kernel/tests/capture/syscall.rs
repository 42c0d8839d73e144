//! System calls of a thread that makes a known number of them. These tests need access to
//! tracepoints.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use traceweir_format::kernel::hook::{SYSCALL_ENTER, SYSCALL_EXIT};
use traceweir_format::wire::u64_at;
use traceweir_kernel::{CaptureControl, CaptureSettings, Group};

use crate::retry::retry_alternately_with_busy_processors;
use crate::support;
use crate::support::{
    CapturedEvent, capture_without_loss, events_with_stack_of_thread, select_hooks, settings_for,
    this_thread_id,
};

const CALL_COUNT: usize = 1000;

/// Returns the address of a kernel function, or 0 if it is hidden or missing.
fn find_kernel_address(name: &str) -> u64 {
    let text = fs::read_to_string("/proc/kallsyms").unwrap_or_default();
    let mut lines = text.lines().filter(|line| line.split_ascii_whitespace().nth(2) == Some(name));
    lines.next().map_or(0, |line| u64::from_str_radix(&line[..16], 16).unwrap_or(0))
}

#[test]
fn system_calls_of_a_thread_are_counted_and_named() {
    retry_alternately_with_busy_processors(5, || {
        let settings = CaptureSettings {
            stacks: vec![SYSCALL_ENTER, SYSCALL_EXIT],
            ..settings_for(&[Group::SYSTEMCALL])
        };
        let work = |_: &CaptureControl, _: &mut dyn FnMut()| {
            for _ in 0..CALL_COUNT {
                // SAFETY: both return numbers; there is no process with the id −1.
                let (parent, group) =
                    unsafe { (libc::syscall(libc::SYS_getppid), libc::syscall(libc::SYS_getpgid, -1)) };
                assert!(parent > 0 && group == -1);
            }
        };
        let Some(events) = capture_without_loss(&settings, work) else { return };
        let thread = this_thread_id();
        let enters = events_with_stack_of_thread(&events, SYSCALL_ENTER, thread);
        for name in ["__x64_sys_getppid", "__x64_sys_getpgid"] {
            let address = find_kernel_address(name);
            if address == 0 {
                support::skip::skip("kernel events", "kernel addresses are hidden");
                continue;
            }
            let count =
                enters.iter().filter(|event| event.fields().number("SysCallAddress") == address).count();
            assert_eq!(count, CALL_COUNT, "{name}");
        }
        let exits = events_with_stack_of_thread(&events, SYSCALL_EXIT, thread);
        let count_exits = |value: i32| {
            let value = u64::from(value.cast_unsigned());
            exits.iter().filter(|event| event.fields().number("SysCallNtStatus") == value).count()
        };
        let parent = i32::try_from(std::os::unix::process::parent_id()).expect("the process id does not fit");
        assert_eq!((count_exits(parent), count_exits(-libc::ESRCH)), (CALL_COUNT, CALL_COUNT));
        assert!(
            // At either end, the capture may miss a few enters or exits of calls that last longer.
            enters.len().abs_diff(exits.len()) <= 2 * 8,
            "calls at the start and end of the capture: {} and {}",
            enters.len(),
            exits.len()
        );
        for event in select_hooks(&events, &[SYSCALL_ENTER, SYSCALL_EXIT]) {
            let _ = event.fields();
        }
    });
}

#[test]
fn change_of_settings_neither_duplicates_nor_drops_events() {
    retry_alternately_with_busy_processors(5, || {
        // A rare call: without stacks there is no thread id to select events by.
        let address = find_kernel_address("__x64_sys_sched_get_priority_min");
        if !support::skip::holds_or_skip(address != 0, "kernel events", "kernel addresses are hidden") {
            return;
        }
        let without_stacks = settings_for(&[Group::SYSTEMCALL]);
        let with_stacks = CaptureSettings { stacks: vec![SYSCALL_ENTER], ..without_stacks.clone() };
        let mut calls = 0;
        let (is_over, is_changing) = (AtomicBool::new(false), AtomicBool::new(false));
        let work = |control: &CaptureControl, poll: &mut dyn FnMut()| {
            is_over.store(false, Relaxed);
            std::thread::scope(|scope| {
                let caller = scope.spawn(|| {
                    let mut calls = 0_usize;
                    while !is_over.load(Relaxed) {
                        // SAFETY: returns a number.
                        unsafe { libc::syscall(libc::SYS_sched_get_priority_min, libc::SCHED_FIFO) };
                        calls += 1;
                        // As fast as possible during a change, otherwise slower than the reader.
                        if !is_changing.load(Relaxed) {
                            std::thread::sleep(std::time::Duration::from_micros(500));
                        }
                    }
                    calls
                });
                for round in 0..20 {
                    is_changing.store(true, Relaxed);
                    control
                        .set(if round % 2 == 0 { &with_stacks } else { &without_stacks })
                        .expect("the settings do not apply");
                    is_changing.store(false, Relaxed);
                    poll();
                    std::thread::sleep(std::time::Duration::from_millis(2));
                }
                is_over.store(true, Relaxed);
                calls = caller.join().expect("the calling thread panicked");
            });
        };
        let Some(events) = capture_without_loss(&without_stacks, work) else { return };
        let is_call =
            |event: &&CapturedEvent| event.hook == SYSCALL_ENTER && u64_at(&event.payload, 0) == address;
        assert_eq!(events.iter().filter(is_call).count(), calls);
    });
}
