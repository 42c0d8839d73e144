//! Checks of perf events: the users that may use them, and their limits.
//!
//! ```text
//!   kernel.perf_event_paranoid, for a process without CAP_PERFMON
//!     level  what the kernel refuses                      │ what Traceweir records
//!     -1     nothing                                      │ own processes, with kernel frames
//!      0     raw data of tracepoints                      │ the same
//!      1     also events of whole processors              │ the same
//!      2     also data of the kernel (most distributions) │ own processes, user frames only
//!      3, 4  everything (3: Debian, Android; 4: Ubuntu)   │ nothing: every kernel group is refused
//! ```
//!
//! At every level, groups made of tracepoints need CAP_PERFMON; without it they are refused with
//! ERROR_PRIVILEGE_NOT_HELD (1314).

use super::check::{Advice, CheckSubject, DoctorCheck};
use super::machine::{MachineState, needed_descriptors};
use super::process::{CAP_IPC_LOCK, CAP_PERFMON, CAP_SYS_ADMIN, CAP_SYS_PTRACE};
use crate::cli::Need::{Kernel, Samples, Stacks};

/// Maximum number of frames in a stack that Traceweir records.
const MAX_RECORDED_FRAMES: i64 = 192;
/// The kernel's default of `perf_event_max_stack`.
const DEFAULT_MAX_STACK: i64 = 127;
/// The kernel's default of `perf_event_max_contexts_per_stack`.
const DEFAULT_MAX_CONTEXTS: i64 = 8;
/// The kernel's default of `perf_event_max_sample_rate`.
const DEFAULT_MAX_SAMPLE_RATE: i64 = 100_000;
/// The default sample rate of a session.
const SESSION_SAMPLES_PER_SECOND: i64 = 1000;
/// Size of the ring of a processor: 128 pages and a header page. The kernel grants every user this
/// size by default.
const RING_KIB: u64 = 516;
const BYTES_PER_KIB: u64 = 1024;
/// The kernel's default of `perf_cpu_time_max_percent`.
const DEFAULT_CPU_PERCENT: i64 = 25;
/// Below this `perf_cpu_time_max_percent`, the check reports a limit.
const MIN_CPU_PERCENT: i64 = 5;

pub(super) fn checks(machine: &MachineState) -> Vec<DoctorCheck> {
    vec![
        check_paranoid(machine),
        check_capabilities(machine),
        check_max_stack(machine),
        check_contexts(machine),
        check_rings(machine),
        check_open_files(machine),
        check_sample_rate(machine),
        check_cpu_share(machine),
    ]
}

const PARANOID: CheckSubject = CheckSubject {
    name: "perf_event_paranoid",
    purpose: "what users without CAP_PERFMON may do with perf events, the source of kernel events",
    works_without: "events of programs, and reading existing traces, still work",
};

fn check_paranoid(machine: &MachineState) -> DoctorCheck {
    let Some(level) = machine.settings.paranoid else {
        let reason = "this kernel has no perf events (CONFIG_PERF_EVENTS), or /proc/sys cannot be read";
        return PARANOID.missing(reason).with_blocked_needs(&[Samples, Kernel, Stacks]);
    };
    if machine.capturing_process_has_any(&[CAP_PERFMON, CAP_SYS_ADMIN]) {
        return PARANOID.passed(format!("{level}, which does not bind a process with CAP_PERFMON"));
    }
    let advice = Advice::to_set_sysctl("kernel.perf_event_paranoid", 1);
    match level {
        ..=1 => PARANOID.passed(format!("{level}: your own processes, with kernel frames")),
        2 => {
            let found =
                "2: your own processes, frames of programs only; 1 adds those of the kernel, for every user";
            PARANOID.limited(found).with_advice(advice).with_blocked_needs(&[Stacks])
        }
        _ => {
            let found = format!(
                "{level}: no perf events for users at all, as Debian (3), Ubuntu (4) and Android (security.perf_harden) set it; \
                 2 allows every user their own processes, 1 adds kernel frames"
            );
            PARANOID.missing(found).with_advice(advice).with_blocked_needs(&[Samples, Stacks])
        }
    }
}

const CAPABILITIES: CheckSubject = CheckSubject {
    name: "capabilities",
    purpose: "CAP_PERFMON (or CAP_SYS_ADMIN) opens kernel events of the whole machine; CAP_SYS_PTRACE reads namespaces and programs of other users' \
              processes; CAP_BPF is not needed",
    works_without: "events of programs; kernel events of your own processes that need no tracepoint: samples, page faults, context switches, \
              processes, threads and images still work",
};

/// Returns how to get the capabilities. A program with file capabilities ignores the environment
/// variables that select the folders of daemons.
fn capability_advice(machine: &MachineState) -> Option<Advice> {
    let has_system_daemon = machine.facts.folders.iter().any(super::service::RuntimeFolder::serves_system);
    let step = "sudo weir record …, or with your own user: sudo setpriv --reuid \"$(id -u)\" --regid \"$(id -g)\" --init-groups \
               --inh-caps +perfmon,+sys_ptrace,+syslog --ambient-caps +perfmon,+sys_ptrace,+syslog weir …";
    let lasting_step = if has_system_daemon {
        "sudo systemctl edit traceweir.service, with the lines [Service] and CapabilityBoundingSet=CAP_PERFMON CAP_SYSLOG, then \
         sudo systemctl restart traceweir.service"
    } else {
        "sudo systemctl enable --now traceweir.socket and sudo usermod -aG traceweir \"$USER\", for the system's daemon, then \
         sudo weir access grant 9e814aad-3204-11d2-9a82-006008a86939 --user \"$USER\" kernel-logger, for its kernel events. \
         (sudo setcap cap_perfmon,cap_sys_ptrace,cap_syslog=ep \"$(command -v weir)\" gives them to every user who may run weir, and that weir ignores \
         TRACEWEIR_RUNTIME_DIR and XDG_RUNTIME_DIR)"
    };
    Advice::with_steps(step, lasting_step)
}

fn check_capabilities(machine: &MachineState) -> DoctorCheck {
    let (own, capturer) = (&machine.own_process, machine.capturing_process());
    let join_or_none = |names: Vec<&str>| if names.is_empty() { "none".to_owned() } else { names.join(" ") };
    let mut found = format!("this process: {}", join_or_none(own.capability_names()));
    if let Some(folder) = machine.facts.folders.iter().find(|folder| folder.privileges().is_some()) {
        found = format!("{found}; {}: {}", folder.daemon_name(), join_or_none(capturer.capability_names()));
    }
    if own.is_in_initial_user_namespace == Some(false) {
        found.push_str("; those of a user namespace do not count for perf events");
    }
    if !capturer.has_any(&[CAP_PERFMON, CAP_SYS_ADMIN]) {
        return CAPABILITIES
            .missing(found)
            .with_advice(capability_advice(machine))
            .with_blocked_needs(&[Kernel]);
    }
    if !capturer.has_any(&[CAP_SYS_PTRACE]) {
        return CAPABILITIES.limited(found).with_advice(capability_advice(machine));
    }
    CAPABILITIES.passed(found)
}

const MAX_STACK: CheckSubject = CheckSubject {
    name: "perf_event_max_stack",
    purpose: "maximum number of frames that the kernel walks; a stack has at most 192, or this if it is less",
    works_without: "stacks still work, cut at that depth; the innermost frames are kept",
};

fn check_max_stack(machine: &MachineState) -> DoctorCheck {
    match machine.settings.max_stack {
        None => MAX_STACK.limited(format!("not readable: the kernel's default of {DEFAULT_MAX_STACK} is assumed")),
        Some(frames) if frames >= MAX_RECORDED_FRAMES => {
            MAX_STACK.passed(format!("{frames}: stacks of up to {MAX_RECORDED_FRAMES} frames"))
        }
        Some(frames @ ..=0) => MAX_STACK
            .missing(format!("{frames}: the kernel walks no stacks"))
            .with_advice(Advice::to_set_sysctl("kernel.perf_event_max_stack", MAX_RECORDED_FRAMES))
            .with_blocked_needs(&[Stacks]),
        Some(frames) => MAX_STACK
            .limited(format!(
                "stacks of up to {frames} frames; the kernel accepts a change only while no perf event records stacks"
            ))
            .with_advice(Advice::to_set_sysctl("kernel.perf_event_max_stack", MAX_RECORDED_FRAMES)),
    }
}

const MAX_CONTEXTS: CheckSubject = CheckSubject {
    name: "perf_event_max_contexts_per_stack",
    purpose: "how many contexts (kernel, program) one stack may contain; two are usual",
    works_without: "stacks of one context still work",
};

fn check_contexts(machine: &MachineState) -> DoctorCheck {
    match machine.settings.max_contexts {
        Some(number) if number < 2 => MAX_CONTEXTS
            .limited(format!("{number}: kernel and program do not fit into one stack"))
            .with_advice(Advice::to_set_sysctl(
                "kernel.perf_event_max_contexts_per_stack",
                DEFAULT_MAX_CONTEXTS,
            ))
            .with_blocked_needs(&[Stacks]),
        Some(number) => MAX_CONTEXTS.passed(number.to_string()),
        None => MAX_CONTEXTS.passed(format!("not readable: the default is {DEFAULT_MAX_CONTEXTS}")),
    }
}

const RINGS: CheckSubject = CheckSubject {
    name: "perf_event_mlock_kb",
    purpose: "memory for events that have not been read yet: a ring of 516 KiB for each processor; what exceeds perf_event_mlock_kb counts as locked \
              memory of the user (ulimit -l)",
    works_without: "smaller rings still work, but overflow sooner; lost events are counted",
};

fn check_rings(machine: &MachineState) -> DoctorCheck {
    let capturer = machine.capturing_process();
    if capturer.has_any(&[CAP_IPC_LOCK]) || machine.settings.paranoid.is_some_and(|level| level < 0) {
        return RINGS.passed("not limited: CAP_IPC_LOCK, or perf_event_paranoid -1");
    }
    let granted_kib = machine.settings.mlock_kib.and_then(|kib| u64::try_from(kib).ok()).unwrap_or(RING_KIB);
    let processors = u64::from(machine.processors.max(1));
    let Some(max_locked_bytes) = capturer.max_locked_bytes else {
        return RINGS
            .passed(format!("{granted_kib} KiB for each processor, and locked memory is not limited"));
    };
    let kib_per_processor =
        granted_kib.saturating_add((max_locked_bytes / BYTES_PER_KIB).checked_div(processors).unwrap_or(0));
    let found = format!(
        "{granted_kib} KiB for each of {processors} processors, and {} KiB of locked memory",
        max_locked_bytes / BYTES_PER_KIB
    );
    if kib_per_processor >= RING_KIB {
        RINGS.passed(found)
    } else {
        RINGS.limited(found).with_advice(Advice::to_set_sysctl("kernel.perf_event_mlock_kb", RING_KIB))
    }
}

const FILES: CheckSubject = CheckSubject {
    name: "open_files",
    purpose: "a descriptor for each kernel event on each processor, and one for each program that is traced",
    works_without: "fewer kinds of kernel events at a time still work",
};

fn check_open_files(machine: &MachineState) -> DoctorCheck {
    let needed = needed_descriptors(machine.processors);
    // A daemon raises its soft limit to the hard limit.
    let (soft, hard) = machine.capturing_process().open_files;
    let Some(limit) = hard else { return FILES.passed("not limited") };
    let found = format!("{limit} at most ({} to begin with)", soft.unwrap_or(limit));
    if limit >= needed.saturating_mul(2) {
        return FILES.passed(format!("{found}; all kernel events together take {needed}"));
    }
    let recommended = needed.saturating_mul(2).max(u64::from(u16::MAX));
    let lasting_step = format!(
        "echo \"$USER hard nofile {recommended}\" | sudo tee -a /etc/security/limits.conf (of a service: LimitNOFILE=)"
    );
    let step = format!("sudo prlimit --pid $$ --nofile={recommended}");
    let check = FILES
        .limited(format!("{found}; all kernel events on {} processors take {needed}", machine.processors));
    let check = check.with_advice(Advice::with_steps(step, lasting_step));
    if limit < needed { check.with_blocked_needs(&[Kernel]) } else { check }
}

const SAMPLE_RATE: CheckSubject = CheckSubject {
    name: "perf_event_max_sample_rate",
    purpose: "maximum samples per second, which limits the interval of a profile; the kernel lowers it when samples take too long",
    works_without: "coarser profiles still work",
};

fn check_sample_rate(machine: &MachineState) -> DoctorCheck {
    match machine.settings.sample_rate {
        Some(rate) if rate < SESSION_SAMPLES_PER_SECOND => SAMPLE_RATE
            .limited(format!("{rate}: less than the usual {SESSION_SAMPLES_PER_SECOND} samples a second"))
            .with_advice(Advice::to_set_sysctl("kernel.perf_event_max_sample_rate", DEFAULT_MAX_SAMPLE_RATE)),
        Some(rate) => SAMPLE_RATE.passed(rate.to_string()),
        None => SAMPLE_RATE.limited("not readable"),
    }
}

const CPU_SHARE: CheckSubject = CheckSubject {
    name: "perf_cpu_time_max_percent",
    purpose: "share of processor time that sampling may take before the kernel lowers the rate",
    works_without: "sampling still works, at a rate that the kernel may lower",
};

fn check_cpu_share(machine: &MachineState) -> DoctorCheck {
    match machine.settings.cpu_percent {
        Some(percent @ (0 | 100)) => CPU_SHARE.passed(format!("{percent}: the kernel never lowers the rate")),
        Some(percent @ 1..MIN_CPU_PERCENT) => CPU_SHARE
            .limited(format!("{percent} %: the kernel lowers the rate early"))
            .with_advice(Advice::to_set_sysctl("kernel.perf_cpu_time_max_percent", DEFAULT_CPU_PERCENT)),
        Some(percent) => CPU_SHARE.passed(format!("{percent} %")),
        None => CPU_SHARE.limited("not readable"),
    }
}
