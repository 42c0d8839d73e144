//! Checks of perf events: who may use them, and their limits.
//!
//! ```text
//!   kernel.perf_event_paranoid, for a process without CAP_PERFMON: the kernel │ Traceweir
//!     -1     nothing is refused                           │ own processes, with kernel frames
//!      0     no raw data of tracepoints                   │ the same
//!      1     no events of whole processors                │ the same
//!      2     nothing of the kernel (most distributions)   │ own processes, user frames only
//!      3, 4  nothing at all (Debian, Android; Ubuntu)     │ every kernel group is refused (1314)
//! ```
//!
//! At every level, groups made of tracepoints need CAP_PERFMON; without it they are refused (1314).

use super::check::{Advice, Check, Subject};
use super::machine::{Machine, descriptors};
use super::process::{CAP_IPC_LOCK, CAP_PERFMON, CAP_SYS_ADMIN, CAP_SYS_PTRACE};
use crate::cli::Need::{Kernel, Samples, Stacks};

/// Maximum number of frames in a stack that Traceweir records.
const DEEPEST: i64 = 192;
/// Defaults of the kernel.
const USUAL_STACK: i64 = 127;
const USUAL_CONTEXTS: i64 = 8;
const USUAL_RATE: i64 = 100_000;
/// Samples per second of a session by default.
const RATE: i64 = 1000;
/// Size of the ring of a processor: 128 pages and a header page, which is also what the kernel
/// grants every user by default.
const RING_KIB: u64 = 516;
const KIB: u64 = 1024;

/// Runs the checks of this module.
pub(super) fn checks(machine: &Machine) -> Vec<Check> {
    vec![
        paranoid(machine),
        capabilities(machine),
        max_stack(machine),
        contexts(machine),
        rings(machine),
        files(machine),
        rate(machine),
        share(machine),
    ]
}

const PARANOID: Subject = Subject {
    name: "perf_event_paranoid",
    purpose: "what users without CAP_PERFMON may do with perf events, the source of kernel events",
    without: "events of programs, and reading existing traces",
};

fn paranoid(machine: &Machine) -> Check {
    let Some(level) = machine.knobs.paranoid else {
        let reason = "this kernel has no perf events (CONFIG_PERF_EVENTS), or /proc/sys cannot be read";
        return PARANOID.missing(reason).blocking(&[Samples, Kernel, Stacks]);
    };
    if machine.server_has(&[CAP_PERFMON, CAP_SYS_ADMIN]) {
        return PARANOID.fine(format!("{level}, which does not bind a process with CAP_PERFMON"));
    }
    let advice = Advice::sysctl("kernel.perf_event_paranoid", 1);
    match level {
        ..=1 => PARANOID.fine(format!("{level}: your own processes, with kernel frames")),
        2 => {
            let found =
                "2: your own processes, frames of programs only; 1 adds those of the kernel, for every user";
            PARANOID.limited(found).advise(advice).blocking(&[Stacks])
        }
        _ => {
            let found = format!(
                "{level}: no perf events for users at all, as Debian (3), Ubuntu (4) and Android (security.perf_harden) set it; \
                 2 allows every user their own processes, 1 adds kernel frames"
            );
            PARANOID.missing(found).advise(advice).blocking(&[Samples, Stacks])
        }
    }
}

const CAPABILITIES: Subject = Subject {
    name: "capabilities",
    purpose: "CAP_PERFMON (or CAP_SYS_ADMIN) opens kernel events of the whole machine; CAP_SYS_PTRACE reads namespaces and programs of other users' \
              processes; CAP_BPF is not needed",
    without: "events of programs; kernel events of your own processes that need no tracepoint: samples, page faults, context switches, \
              processes, threads and images",
};

/// Returns how to get the capabilities. A program with file capabilities ignores its environment,
/// and would search programs elsewhere.
fn capability_advice(machine: &Machine) -> Option<Advice> {
    let runs_system = machine.facts.folders.iter().any(super::service::Folder::is_of_system);
    let now = "sudo weir record …, or with your own user: sudo setpriv --reuid \"$(id -u)\" --regid \"$(id -g)\" --init-groups \
               --inh-caps +perfmon,+sys_ptrace,+syslog --ambient-caps +perfmon,+sys_ptrace,+syslog weir …";
    let lasting = if runs_system {
        "sudo systemctl edit traceweir.service, with the lines [Service] and CapabilityBoundingSet=CAP_PERFMON CAP_SYSLOG, then \
         sudo systemctl restart traceweir.service"
    } else {
        "sudo systemctl enable --now traceweir.socket and sudo usermod -aG traceweir \"$USER\": if the system's daemon has CAP_PERFMON, members of its group can use it. \
         (sudo setcap cap_perfmon,cap_sys_ptrace,cap_syslog=ep \"$(command -v weir)\" gives them to every user who may run weir, and that weir ignores \
         TRACEWEIR_RUNTIME_DIR and XDG_RUNTIME_DIR)"
    };
    Advice::both(now, lasting)
}

fn capabilities(machine: &Machine) -> Check {
    let (own, server) = (&machine.own, machine.server());
    let list = |names: Vec<&str>| if names.is_empty() { "none".to_owned() } else { names.join(" ") };
    let mut found = format!("this process: {}", list(own.named()));
    if let Some(folder) = machine.facts.folders.iter().find(|folder| folder.process().is_some()) {
        found = format!("{found}; {}: {}", folder.daemon_name(), list(server.named()));
    }
    if own.is_of_first_users == Some(false) {
        found.push_str("; those of a user namespace do not count for perf events");
    }
    if !server.has(&[CAP_PERFMON, CAP_SYS_ADMIN]) {
        return CAPABILITIES.missing(found).advise(capability_advice(machine)).blocking(&[Kernel]);
    }
    if !server.has(&[CAP_SYS_PTRACE]) {
        return CAPABILITIES.limited(found).advise(capability_advice(machine));
    }
    CAPABILITIES.fine(found)
}

const MAX_STACK: Subject = Subject {
    name: "perf_event_max_stack",
    purpose: "maximum number of frames that the kernel walks; a stack has at most 192, or this if it is less",
    without: "stacks are cut at that depth, their innermost frames kept",
};

fn max_stack(machine: &Machine) -> Check {
    match machine.knobs.max_stack {
        None => MAX_STACK.limited(format!("not readable: the kernel's default of {USUAL_STACK} is assumed")),
        Some(frames) if frames >= DEEPEST => {
            MAX_STACK.fine(format!("{frames}: stacks of up to {DEEPEST} frames"))
        }
        Some(frames @ ..=0) => MAX_STACK
            .missing(format!("{frames}: the kernel walks no stacks"))
            .advise(Advice::sysctl("kernel.perf_event_max_stack", DEEPEST))
            .blocking(&[Stacks]),
        Some(frames) => MAX_STACK
            .limited(format!(
                "stacks of up to {frames} frames; the kernel accepts a change only while no perf event records stacks"
            ))
            .advise(Advice::sysctl("kernel.perf_event_max_stack", DEEPEST)),
    }
}

const CONTEXTS: Subject = Subject {
    name: "perf_event_max_contexts_per_stack",
    purpose: "how many changes between kernel and program one stack may show; two are usual",
    without: "stacks of one context",
};

fn contexts(machine: &Machine) -> Check {
    match machine.knobs.max_contexts {
        Some(number) if number < 2 => CONTEXTS
            .limited(format!("{number}: kernel and program do not fit into one stack"))
            .advise(Advice::sysctl("kernel.perf_event_max_contexts_per_stack", USUAL_CONTEXTS))
            .blocking(&[Stacks]),
        Some(number) => CONTEXTS.fine(number.to_string()),
        None => CONTEXTS.fine(format!("not readable: the default is {USUAL_CONTEXTS}")),
    }
}

const RINGS: Subject = Subject {
    name: "perf_event_mlock_kb",
    purpose: "memory for events that have not been read yet: a ring of 516 KiB for each processor; what exceeds perf_event_mlock_kb counts as locked \
              memory of the user (ulimit -l)",
    without: "smaller rings, which overflow sooner; lost events are counted",
};

fn rings(machine: &Machine) -> Check {
    let server = machine.server();
    if server.has(&[CAP_IPC_LOCK]) || machine.knobs.paranoid.is_some_and(|level| level < 0) {
        return RINGS.fine("not limited: CAP_IPC_LOCK, or perf_event_paranoid -1");
    }
    let granted = machine.knobs.mlock_kib.and_then(|kib| u64::try_from(kib).ok()).unwrap_or(RING_KIB);
    let processors = u64::from(machine.processors.max(1));
    let Some(locked) = server.locked_bytes else {
        return RINGS.fine(format!("{granted} KiB for each processor, and locked memory is not limited"));
    };
    let each = granted.saturating_add((locked / KIB).checked_div(processors).unwrap_or(0));
    let found = format!(
        "{granted} KiB for each of {processors} processors, and {} KiB of locked memory",
        locked / KIB
    );
    if each >= RING_KIB {
        RINGS.fine(found)
    } else {
        RINGS.limited(found).advise(Advice::sysctl("kernel.perf_event_mlock_kb", RING_KIB))
    }
}

const FILES: Subject = Subject {
    name: "open_files",
    purpose: "a descriptor for each kernel event on each processor, and one for each program that is traced",
    without: "fewer kinds of kernel events at a time",
};

fn files(machine: &Machine) -> Check {
    let needed = descriptors(machine.processors);
    // A daemon raises its soft limit to the hard limit.
    let (soft, hard) = machine.server().files;
    let Some(most) = hard else { return FILES.fine("not limited") };
    let found = format!("{most} at most ({} to begin with)", soft.unwrap_or(most));
    if most >= needed.saturating_mul(2) {
        return FILES.fine(format!("{found}; every kernel event takes {needed}"));
    }
    let lasting = format!(
        "echo \"$USER hard nofile {}\" | sudo tee -a /etc/security/limits.conf (of a service: LimitNOFILE=)",
        needed.saturating_mul(2).max(u64::from(u16::MAX))
    );
    let now = format!("sudo prlimit --pid $$ --nofile={}", needed.saturating_mul(2).max(u64::from(u16::MAX)));
    let check = FILES
        .limited(format!("{found}; every kernel event on {} processors takes {needed}", machine.processors));
    let check = check.advise(Advice::both(now, lasting));
    if most < needed { check.blocking(&[Kernel]) } else { check }
}

const SAMPLE_RATE: Subject = Subject {
    name: "perf_event_max_sample_rate",
    purpose: "maximum samples per second, which limits the interval of a profile; the kernel lowers it when samples take too long",
    without: "coarser profiles",
};

fn rate(machine: &Machine) -> Check {
    match machine.knobs.sample_rate {
        Some(rate) if rate < RATE => SAMPLE_RATE
            .limited(format!("{rate}: less than the usual {RATE} samples a second"))
            .advise(Advice::sysctl("kernel.perf_event_max_sample_rate", USUAL_RATE)),
        Some(rate) => SAMPLE_RATE.fine(rate.to_string()),
        None => SAMPLE_RATE.limited("not readable"),
    }
}

const SHARE: Subject = Subject {
    name: "perf_cpu_time_max_percent",
    purpose: "share of processor time that sampling may take before the kernel lowers the rate",
    without: "the rate stays as it is set",
};

fn share(machine: &Machine) -> Check {
    match machine.knobs.cpu_percent {
        Some(percent @ (0 | 100)) => SHARE.fine(format!("{percent}: the kernel never lowers the rate")),
        Some(percent @ 1..5) => SHARE
            .limited(format!("{percent} %: the kernel lowers the rate early"))
            .advise(Advice::sysctl("kernel.perf_cpu_time_max_percent", 25)),
        Some(percent) => SHARE.fine(format!("{percent} %")),
        None => SHARE.limited("not readable"),
    }
}
