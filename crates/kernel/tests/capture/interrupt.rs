//! Interrupts and deferred calls against what the kernel itself counts: an extra, which needs the right to open tracepoints.

use std::fs;
use std::time::Duration;

use traceweir_kernel::Group;

use crate::again::again;
use crate::support;
use crate::support::{Seen, capture_changing, cpus, of, wanting};

const INTERRUPT: u16 = 0x0F43;
const DPC: u16 = 0x0F44;
const TIMER_DPC: u16 = 0x0F45;

/// The sum of the counts of all processors in the lines of a table that `is_it` picks by their heads.
fn counted(table: &str, is_it: impl Fn(&str) -> bool) -> u64 {
    let text = fs::read_to_string(table).expect("a table");
    let lines = text.lines().filter_map(|line| line.trim().split_once(':'));
    let counts = |line: &str| -> u64 {
        line.split_ascii_whitespace()
            .map_while(|word| word.parse::<u64>().ok())
            .take(usize::from(cpus()))
            .sum()
    };
    lines.filter(|(head, _)| is_it(head)).map(|(_, line)| counts(line)).sum()
}

fn is_timer(head: &str) -> bool {
    ["TIMER", "HRTIMER"].contains(&head)
}

/// Captures while something happens: events, and how many there were by the kernel's own counts, at least and at most.
fn capture(group: Group, count: impl Fn() -> u64) -> Option<(Vec<Seen>, u64, u64)> {
    let wanted = wanting(&[group]);
    let (before, mut within) = (count(), 0);
    let work = |_: &traceweir_kernel::Control, _: &mut dyn FnMut()| {
        let first = count();
        for _ in 0..100 {
            std::thread::sleep(Duration::from_millis(2));
        }
        within = count() - first;
    };
    let (seen, capture) = capture_changing(&wanted, work)?;
    let most = count() - before;
    assert_eq!(capture.lost(), 0);
    // One may be open on each processor at both ends; and some kernels pass over all that happens while certain tasks run, idle ones among them, in all rings alike.
    Some((seen, within.saturating_sub(2 * u64::from(cpus())) / 4, most))
}

/// All of them are of a time that makes sense.
fn check(events: &[&Seen]) {
    for event in events {
        let begun = event.fields().number("InitialTime");
        assert!(begun <= event.raw && event.raw - begun < 1_000_000_000, "{begun} to {}", event.raw);
    }
}

#[test]
fn deferred_calls_are_as_many_as_the_kernel_counts() {
    again(5, || {
        let count = || counted("/proc/softirqs", |_| true);
        let Some((seen, least, most)) = capture(Group::DPC, count) else { return };
        let all = of(&seen, &[DPC, TIMER_DPC]);
        check(&all);
        let many = all.len() as u64;
        assert!(least <= many && many <= most, "{least} ≤ {many} ≤ {most}");
        let is_visible =
            fs::read_to_string("/proc/kallsyms").is_ok_and(|text| !text.starts_with("0000000000000000"));
        if is_visible {
            let routines = all.iter().map(|it| it.fields().number("Routine"));
            assert!(routines.clone().all(|it| it > 0xFFFF_0000_0000_0000), "functions of the kernel");
            assert!(routines.collect::<std::collections::BTreeSet<_>>().len() > 1);
        }
    });
}

#[test]
fn timers_are_told_from_other_deferred_calls() {
    again(5, || {
        let count = || counted("/proc/softirqs", is_timer);
        let Some((seen, least, most)) = capture(Group::DPC, count) else { return };
        let many = of(&seen, &[TIMER_DPC]).len() as u64;
        assert!(least <= many && many <= most, "{least} ≤ {many} ≤ {most}");
    });
}

#[test]
fn interrupts_of_devices_are_as_many_as_the_kernel_counts() {
    again(5, || {
        let is_device = |head: &str| head.parse::<u32>().is_ok();
        let Some((seen, least, most)) = capture(Group::INTERRUPT, || counted("/proc/interrupts", is_device))
        else {
            return;
        };
        let all = of(&seen, &[INTERRUPT]);
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
fn interrupts_of_the_clock_are_told_where_they_are_asked_for() {
    again(5, || {
        let count = || counted("/proc/interrupts", |head| head == "LOC");
        let Some((seen, least, most)) = capture(Group::CLOCK_INTERRUPT, count) else { return };
        let all = of(&seen, &[INTERRUPT]);
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
