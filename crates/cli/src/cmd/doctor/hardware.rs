//! Checks of the processor and its clocks.

use traceweir_daemon::machine::Counter;

use super::check::{Advice, CheckSubject, DoctorCheck};
use super::machine::MachineState;
use crate::text::format_count;

pub(super) fn checks(machine: &MachineState) -> Vec<DoctorCheck> {
    vec![
        check_counters(machine),
        check_branch_records(machine),
        check_restartable_sequences(machine),
        check_timestamp_counter(machine),
        check_clock(machine),
    ]
}

const COUNTERS: CheckSubject = CheckSubject {
    name: "hardware_counters",
    purpose: "profiles by cycles, cache misses and branches, and counters on kernel events",
    works_without: "profiles by the timer still work",
};

fn check_counters(machine: &MachineState) -> DoctorCheck {
    let (number, sources) = (machine.perf.counters(), machine.perf.sources().len());
    let sources = format_count(u64::try_from(sources).unwrap_or(0), "profile source");
    if number == 0 {
        let found =
            format!("none: the processor has none, or the virtual machine does not pass them on; {sources}");
        COUNTERS.limited(found)
    } else {
        COUNTERS
            .passed(format!("{} at a time; {sources} (weir ask 7)", format_count(number.into(), "counter")))
    }
}

const BRANCHES: CheckSubject = CheckSubject {
    name: "branch_records",
    purpose: "the last branches before an event (LBR)",
    works_without: "everything else still works",
};

fn check_branch_records(machine: &MachineState) -> DoctorCheck {
    if machine.perf.has_branches() {
        BRANCHES.passed("available")
    } else {
        BRANCHES.limited("the processor, or the virtual machine, records no branches")
    }
}

const RESTARTABLE_SEQUENCES: CheckSubject = CheckSubject {
    name: "rseq",
    purpose: "programs write events in restartable sequences, without a locked instruction",
    works_without: "programs still write events, but lock the ring for each, which costs a few nanoseconds more",
};

fn check_restartable_sequences(machine: &MachineState) -> DoctorCheck {
    if machine.facts.has_rseq {
        RESTARTABLE_SEQUENCES.passed("registered by the C library")
    } else {
        let found = "not registered: glibc before 2.35 or another C library, a processor other than x86-64, or TRACEWEIR_NO_RSEQ or GLIBC_TUNABLES=glibc.pthread.rseq=0 is set";
        RESTARTABLE_SEQUENCES
            .limited(found)
            .with_advice(Advice::with_step("unset TRACEWEIR_NO_RSEQ GLIBC_TUNABLES"))
    }
}

const TIMESTAMP_COUNTER: CheckSubject = CheckSubject {
    name: "invariant_counter",
    purpose: "the processor's timestamp counter provides timestamps, if it runs at one rate on every processor and in every power state",
    works_without: "timestamps still work, from CLOCK_MONOTONIC, which takes longer; programs write under locks",
};

fn check_timestamp_counter(machine: &MachineState) -> DoctorCheck {
    match machine.facts.counter {
        Counter::Cycles => TIMESTAMP_COUNTER.passed("used for timestamps"),
        Counter::Monotonic => TIMESTAMP_COUNTER
            .limited("not used: the processor does not guarantee one rate, the virtual machine hides the guarantee, or TRACEWEIR_NO_TSC is set")
            .with_advice(Advice::with_step("unset TRACEWEIR_NO_TSC")),
    }
}

const CLOCK: CheckSubject = CheckSubject {
    name: "clock_source",
    purpose: "the kernel's clock, which also timestamps kernel events",
    works_without: "kernel events still work; a slow source (hpet, acpi_pm) makes each more expensive",
};

fn check_clock(machine: &MachineState) -> DoctorCheck {
    match machine.clock_source.as_deref() {
        Some(name @ ("hpet" | "acpi_pm" | "jiffies" | "pit")) => {
            let found = format!(
                "{name}: slow; the kernel did not trust the processor's counter (dmesg | grep -i clocksource)"
            );
            CLOCK.limited(found).with_advice(Advice::with_steps(
                "echo tsc | sudo tee /sys/devices/system/clocksource/clocksource0/current_clocksource",
                "tsc=reliable on the kernel's command line, if the machine's counter is known to be reliable",
            ))
        }
        Some(name) => CLOCK.passed(name),
        None => CLOCK.passed("not readable"),
    }
}
