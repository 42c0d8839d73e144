//! Interrupts and deferred calls, compared with the kernel's own counts. These tests need access to
//! tracepoints.

use std::fs;
use std::time::Duration;

use traceweir_format::kernel::hook::{DPC, ISR, TIMER_DPC};
use traceweir_kernel::Group;

use crate::retry::retry_alternately_with_busy_processors;
use crate::support;
use crate::support::{CapturedEvent, capture_with_changes, cpu_count, select_hooks, settings_for};

/// Returns the sum over all processors of the counts in a file of `/proc`, for lines whose labels
/// `is_selected` accepts.
fn sum_kernel_counts(table: &str, is_selected: impl Fn(&str) -> bool) -> u64 {
    let text = fs::read_to_string(table).expect("the table is not readable");
    let lines = text.lines().filter_map(|line| line.trim().split_once(':'));
    let counts = |line: &str| -> u64 {
        line.split_ascii_whitespace()
            .map_while(|word| word.parse::<u64>().ok())
            .take(usize::from(cpu_count()))
            .sum()
    };
    lines.filter(|(label, _)| is_selected(label)).map(|(_, line)| counts(line)).sum()
}

fn is_timer(label: &str) -> bool {
    ["TIMER", "HRTIMER"].contains(&label)
}

/// The events of a group, and the least and the largest number of them according to the kernel's
/// counts.
struct GroupCapture {
    events: Vec<CapturedEvent>,
    min_events: u64,
    max_events: u64,
}

/// Captures a group for some time. `count` returns the kernel's own count.
fn capture_group(group: Group, count: impl Fn() -> u64) -> Option<GroupCapture> {
    let settings = settings_for(&[group]);
    let (before, mut counted_during) = (count(), 0);
    let work = |_: &traceweir_kernel::CaptureControl, _: &mut dyn FnMut()| {
        let first = count();
        for _ in 0..100 {
            std::thread::sleep(Duration::from_millis(2));
        }
        counted_during = count() - first;
    };
    let (events, capture) = capture_with_changes(&settings, work)?;
    let max_events = count() - before;
    assert_eq!(capture.lost(), 0);
    // Each processor may be within an interrupt at both ends of the capture. Some kernels also skip
    // everything that happens while certain tasks run, including idle tasks: a quarter is enough.
    let min_events = counted_during.saturating_sub(2 * u64::from(cpu_count())) / 4;
    Some(GroupCapture { events, min_events, max_events })
}

/// Asserts that the times of all events are plausible.
fn assert_plausible_times(events: &[&CapturedEvent]) {
    for event in events {
        let entry = event.fields().number("InitialTime");
        assert!(entry <= event.stamp && event.stamp - entry < 1_000_000_000, "{entry} to {}", event.stamp);
    }
}

#[test]
fn deferred_calls_match_the_kernel_counts() {
    retry_alternately_with_busy_processors(5, || {
        let count = || sum_kernel_counts("/proc/softirqs", |_| true);
        let Some(GroupCapture { events, min_events, max_events }) = capture_group(Group::DPC, count) else {
            return;
        };
        let selected = select_hooks(&events, &[DPC, TIMER_DPC]);
        assert_plausible_times(&selected);
        let event_count = selected.len() as u64;
        assert!(
            min_events <= event_count && event_count <= max_events,
            "{event_count} events, expected {min_events} to {max_events}"
        );
        let is_visible =
            fs::read_to_string("/proc/kallsyms").is_ok_and(|text| !text.starts_with("0000000000000000"));
        if is_visible {
            let routines = selected.iter().map(|event| event.fields().number("Routine"));
            assert!(routines.clone().all(|address| address > 0xFFFF_0000_0000_0000), "not a kernel function");
            assert!(routines.collect::<std::collections::BTreeSet<_>>().len() > 1);
        }
    });
}

#[test]
fn timers_are_distinguished_from_other_deferred_calls() {
    retry_alternately_with_busy_processors(5, || {
        let count = || sum_kernel_counts("/proc/softirqs", is_timer);
        let Some(GroupCapture { events, min_events, max_events }) = capture_group(Group::DPC, count) else {
            return;
        };
        let event_count = select_hooks(&events, &[TIMER_DPC]).len() as u64;
        assert!(
            min_events <= event_count && event_count <= max_events,
            "{event_count} events, expected {min_events} to {max_events}"
        );
    });
}

#[test]
fn device_interrupts_match_the_kernel_counts() {
    retry_alternately_with_busy_processors(5, || {
        let is_device = |label: &str| label.parse::<u32>().is_ok();
        let Some(GroupCapture { events, min_events, max_events }) =
            capture_group(Group::INTERRUPT, || sum_kernel_counts("/proc/interrupts", is_device))
        else {
            return;
        };
        let selected = select_hooks(&events, &[ISR]);
        assert_plausible_times(&selected);
        assert!(min_events <= selected.len() as u64, "{min_events} ≤ {}", selected.len());
        // Several handlers may share an interrupt: each causes an event, but the count is one.
        let is_shared = fs::read_to_string("/proc/interrupts").unwrap().contains(", ");
        assert!(is_shared || selected.len() as u64 <= max_events, "{} ≤ {max_events}", selected.len());
        for event in selected {
            let fields = event.fields();
            let text = fs::read_to_string("/proc/interrupts").unwrap();
            let label = format!("{}:", fields.number("Vector"));
            assert!(text.lines().any(|line| line.trim().starts_with(&label)), "no interrupt {label}");
            // 0 not handled, 1 handled, 2 handled by a thread.
            assert!(fields.number("ReturnValue") <= 2);
        }
    });
}

#[test]
fn clock_interrupts_are_recorded_if_selected() {
    retry_alternately_with_busy_processors(5, || {
        let count = || sum_kernel_counts("/proc/interrupts", |label| label == "LOC");
        let Some(GroupCapture { events, min_events, max_events }) =
            capture_group(Group::CLOCK_INTERRUPT, count)
        else {
            return;
        };
        let selected = select_hooks(&events, &[ISR]);
        if !support::skip::holds_or_skip(
            !selected.is_empty() || min_events == 0,
            "kernel events",
            "no irq_vectors in this kernel",
        ) {
            return;
        }
        assert_plausible_times(&selected);
        assert!(
            min_events <= selected.len() as u64 && selected.len() as u64 <= max_events,
            "{min_events} ≤ {} ≤ {max_events}",
            selected.len()
        );
    });
}
