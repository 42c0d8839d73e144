//! Checks of the processor and its clocks.

use traceweir_daemon::machine::Counter;

use super::check::{Advice, Check, Subject};
use super::machine::Machine;
use crate::text::format_count;

/// Runs the checks of this module.
pub(super) fn checks(machine: &Machine) -> Vec<Check> {
    vec![counters(machine), branches(machine), sequences(machine), stamps(machine), clock(machine)]
}

const COUNTERS: Subject = Subject {
    name: "hardware_counters",
    purpose: "profiles by cycles, cache misses and branches, and counters on kernel events",
    without: "profiles by the timer",
};

fn counters(machine: &Machine) -> Check {
    let (number, sources) = (machine.perf.counters(), machine.perf.sources().len());
    let sources = format_count(u64::try_from(sources).unwrap_or(0), "profile source");
    if number == 0 {
        let found =
            format!("none: the processor has none, or the virtual machine does not pass them on; {sources}");
        COUNTERS.limited(found)
    } else {
        COUNTERS.fine(format!("{} at a time; {sources} (weir ask 7)", format_count(number.into(), "counter")))
    }
}

const BRANCHES: Subject = Subject {
    name: "branch_records",
    purpose: "the last branches before an event (LBR)",
    without: "everything else",
};

fn branches(machine: &Machine) -> Check {
    if machine.perf.has_branches() {
        BRANCHES.fine("available")
    } else {
        BRANCHES.limited("the processor, or the virtual machine, records no branches")
    }
}

const SEQUENCES: Subject = Subject {
    name: "rseq",
    purpose: "programs write events in restartable sequences, without a locked instruction",
    without: "programs lock the ring for each event, which costs a few nanoseconds more",
};

fn sequences(machine: &Machine) -> Check {
    if machine.facts.is_restartable {
        SEQUENCES.fine("registered by the C library")
    } else {
        let found = "not registered: glibc before 2.35 or another C library, another processor than x86-64, or TRACEWEIR_NO_RSEQ or GLIBC_TUNABLES=glibc.pthread.rseq=0 is set";
        SEQUENCES.limited(found).advise(Advice::once("unset TRACEWEIR_NO_RSEQ GLIBC_TUNABLES"))
    }
}

const STAMPS: Subject = Subject {
    name: "invariant_counter",
    purpose: "the processor's counter provides timestamps, if it runs at one rate on every processor and in every power state",
    without: "CLOCK_MONOTONIC_RAW provides timestamps, which takes longer, and programs write under locks",
};

fn stamps(machine: &Machine) -> Check {
    match machine.facts.counter {
        Counter::Cycles => STAMPS.fine("used for timestamps"),
        Counter::Monotonic => STAMPS
            .limited("not used: the processor does not guarantee it, the virtual machine hides it, or TRACEWEIR_NO_TSC is set")
            .advise(Advice::once("unset TRACEWEIR_NO_TSC")),
    }
}

const CLOCK: Subject = Subject {
    name: "clock_source",
    purpose: "clock of the kernel, also for timestamps of its own events",
    without: "a slow source (hpet, acpi_pm) makes every kernel event more expensive",
};

fn clock(machine: &Machine) -> Check {
    match machine.clock_source.as_deref() {
        Some(name @ ("hpet" | "acpi_pm" | "jiffies" | "pit")) => {
            let found = format!(
                "{name}: slow; the kernel did not trust the processor's counter (dmesg | grep -i clocksource)"
            );
            CLOCK.limited(found).advise(Advice::both(
                "echo tsc | sudo tee /sys/devices/system/clocksource/clocksource0/current_clocksource",
                "tsc=reliable on the kernel's command line, if the machine's counter is known to be reliable",
            ))
        }
        Some(name) => CLOCK.fine(name),
        None => CLOCK.fine("not readable"),
    }
}
