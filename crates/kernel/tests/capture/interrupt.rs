//! Interrupts and deferred calls, compared with the kernel's own counts. These tests need access to
//! tracepoints.

use std::fs;
use std::time::Duration;

use traceweir_kernel::Group;

use crate::again::again;
use crate::support;
use crate::support::{CapturedEvent, capture_changing, cpus, settings_for, with_hooks};

const INTERRUPT: u16 = 0x0F43;
const DPC: u16 = 0x0F44;
const TIMER_DPC: u16 = 0x0F45;

/// Returns the sum over all processors of the counts in a table, for lines whose heads
/// `is_selected` accepts.
fn counted(table: &str, is_selected: impl Fn(&str) -> bool) -> u64 {
    let text = fs::read_to_string(table).expect("a table");
    let lines = text.lines().filter_map(|line| line.trim().split_once(':'));
    let counts = |line: &str| -> u64 {
        line.split_ascii_whitespace()
            .map_while(|word| word.parse::<u64>().ok())
            .take(usize::from(cpus()))
            .sum()
    };
    lines.filter(|(head, _)| is_selected(head)).map(|(_, line)| counts(line)).sum()
}

fn is_timer(head: &str) -> bool {
    ["TIMER", "HRTIMER"].contains(&head)
}

/// Captures a group for some time. Returns the events, and the least and the largest number of them
/// according to the kernel's own counts.
fn capture(group: Group, count: impl Fn() -> u64) -> Option<(Vec<CapturedEvent>, u64, u64)> {
    let settings = settings_for(&[group]);
    let (before, mut within) = (count(), 0);
    let work = |_: &traceweir_kernel::Control, _: &mut dyn FnMut()| {
        let first = count();
        for _ in 0..100 {
            std::thread::sleep(Duration::from_millis(2));
        }
        within = count() - first;
    };
    let (events, capture) = capture_changing(&settings, work)?;
    let most = count() - before;
    assert_eq!(capture.lost(), 0);
    // Each processor may be within an interrupt at both ends. Some kernels also skip everything
    // that happens while certain tasks run, including idle tasks, in all rings alike.
    Some((events, within.saturating_sub(2 * u64::from(cpus())) / 4, most))
}

/// Asserts that the times of all events are plausible.
fn check(events: &[&CapturedEvent]) {
    for event in events {
        let begun = event.fields().number("InitialTime");
        assert!(begun <= event.raw && event.raw - begun < 1_000_000_000, "{begun} to {}", event.raw);
    }
}

#[test]
fn deferred_calls_match_the_kernel_counts() {
    again(5, || {
        let count = || counted("/proc/softirqs", |_| true);
        let Some((events, least, most)) = capture(Group::DPC, count) else { return };
        let all = with_hooks(&events, &[DPC, TIMER_DPC]);
        check(&all);
        let many = all.len() as u64;
        assert!(least <= many && many <= most, "{least} ≤ {many} ≤ {most}");
        let is_visible =
            fs::read_to_string("/proc/kallsyms").is_ok_and(|text| !text.starts_with("0000000000000000"));
        if is_visible {
            let routines = all.iter().map(|event| event.fields().number("Routine"));
            assert!(routines.clone().all(|address| address > 0xFFFF_0000_0000_0000), "kernel functions");
            assert!(routines.collect::<std::collections::BTreeSet<_>>().len() > 1);
        }
    });
}

#[test]
fn timers_are_distinguished_from_other_deferred_calls() {
    again(5, || {
        let count = || counted("/proc/softirqs", is_timer);
        let Some((events, least, most)) = capture(Group::DPC, count) else { return };
        let many = with_hooks(&events, &[TIMER_DPC]).len() as u64;
        assert!(least <= many && many <= most, "{least} ≤ {many} ≤ {most}");
    });
}

#[test]
fn device_interrupts_match_the_kernel_counts() {
    again(5, || {
        let is_device = |head: &str| head.parse::<u32>().is_ok();
        let Some((events, least, most)) =
            capture(Group::INTERRUPT, || counted("/proc/interrupts", is_device))
        else {
            return;
        };
        let all = with_hooks(&events, &[INTERRUPT]);
        check(&all);
        // Several handlers may share an interrupt.
        assert!(least <= all.len() as u64, "{least} ≤ {}", all.len());
        let shared = fs::read_to_string("/proc/interrupts").unwrap().contains(", ");
        assert!(shared || all.len() as u64 <= most, "{} ≤ {most}", all.len());
        for event in all {
            let fields = event.fields();
            let text = fs::read_to_string("/proc/interrupts").unwrap();
            let head = format!("{}:", fields.number("Vector"));
            assert!(text.lines().any(|line| line.trim().starts_with(&head)), "interrupt {head}");
            assert!(fields.number("ReturnValue") <= 2);
        }
    });
}

#[test]
fn clock_interrupts_are_recorded_if_selected() {
    again(5, || {
        let count = || counted("/proc/interrupts", |head| head == "LOC");
        let Some((events, least, most)) = capture(Group::CLOCK_INTERRUPT, count) else { return };
        let all = with_hooks(&events, &[INTERRUPT]);
        if !support::skip::can(
            !all.is_empty() || least == 0,
            "kernel events",
            "no irq_vectors in this kernel",
        ) {
            return;
        }
        check(&all);
        assert!(least <= all.len() as u64 && all.len() as u64 <= most, "{least} ≤ {} ≤ {most}", all.len());
    });
}
