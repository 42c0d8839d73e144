//! Checks of the kernel: symbols, tracepoints, stack unwinding, lockdown and SELinux.

use super::check::{Advice, CheckSubject, DoctorCheck};
use super::machine::{AddressVisibility, KernelUnwinder, MachineState};
use super::process::{CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_SYS_ADMIN, CAP_SYSLOG};
use crate::cli::Need::{Kernel, Stacks, Symbols};

pub(super) fn checks(machine: &MachineState) -> Vec<DoctorCheck> {
    vec![
        check_symbols(machine),
        check_tracefs(machine),
        check_tracepoints(machine),
        check_kprobes(machine),
        check_kernel_stacks(machine),
        check_user_stacks(machine),
        check_lockdown(machine),
        check_selinux(machine),
    ]
}

const SYMBOLS: CheckSubject = CheckSubject {
    name: "kernel_symbols",
    purpose: "names of kernel functions in stacks: /proc/kallsyms, whose addresses kernel.kptr_restrict and perf_event_paranoid hide",
    works_without: "addresses of kernel functions, and names of programs' functions, are still shown",
};

/// The kernel shows addresses to every user if `kptr_restrict` is 0 and `perf_event_paranoid` at
/// most 1, and to processes with CAP_SYSLOG if `kptr_restrict` is 0 or 1.
fn check_symbols(machine: &MachineState) -> DoctorCheck {
    let level = machine.settings.kptr_restrict;
    let setting = level.map_or_else(
        || "kptr_restrict is not readable".to_owned(),
        |level| format!("kptr_restrict is {level}"),
    );
    match machine.addresses {
        AddressVisibility::Shown => SYMBOLS.passed(format!("/proc/kallsyms shows addresses; {setting}")),
        AddressVisibility::Absent => {
            let found =
                "there is no /proc/kallsyms: the kernel was built without CONFIG_KALLSYMS, or hides it";
            SYMBOLS.missing(found).with_blocked_needs(&[Symbols])
        }
        // The daemon may see addresses that this process does not.
        AddressVisibility::Hidden if machine.capturing_process_has_any(&[CAP_SYSLOG]) && level != Some(2) => {
            SYMBOLS.passed(format!("hidden from this process, but not from the daemon; {setting}"))
        }
        AddressVisibility::Hidden => {
            let is_hidden_by_paranoid = machine.settings.paranoid.is_none_or(|level| level > 1);
            let step = match (level, is_hidden_by_paranoid) {
                (Some(0), true) => "sudo sysctl kernel.perf_event_paranoid=1",
                (_, true) => "sudo sysctl kernel.kptr_restrict=0 kernel.perf_event_paranoid=1",
                (_, false) => "sudo sysctl kernel.kptr_restrict=0",
            };
            let lasting_step = "the same names and values in /etc/sysctl.d/60-traceweir.conf; or run with CAP_SYSLOG, which sees addresses while kptr_restrict is 0 or 1";
            let found = format!("/proc/kallsyms shows no addresses; {setting}");
            SYMBOLS
                .missing(found)
                .with_advice(Advice::with_steps(step, lasting_step))
                .with_blocked_needs(&[Symbols])
        }
    }
}

const TRACEFS: CheckSubject = CheckSubject {
    name: "tracefs",
    purpose: "ids and layouts of tracepoints, the source of most kinds of kernel events",
    works_without: "samples, page faults, context switches, processes, threads and images still work: they are perf records",
};

fn check_tracefs(machine: &MachineState) -> DoctorCheck {
    let tracing = &machine.tracing;
    if machine.is_confidential() {
        return TRACEFS.missing("closed by lockdown=confidentiality").with_blocked_needs(&[Kernel]);
    }
    let Some(mount) = &tracing.mount else {
        if !tracing.is_supported {
            let reason = "this kernel has none (CONFIG_TRACING), or /proc/filesystems cannot be read";
            return TRACEFS.missing(reason).with_blocked_needs(&[Kernel]);
        }
        if machine.capturing_process_has_any(&[CAP_SYS_ADMIN]) {
            return TRACEFS
                .passed("not mounted; the daemon uses a mount of its own, which no other process sees");
        }
        let advice = Advice::with_steps(
            "sudo mount -t tracefs tracefs /sys/kernel/tracing",
            "echo 'tracefs /sys/kernel/tracing tracefs nosuid,noexec 0 0' | sudo tee -a /etc/fstab",
        );
        return TRACEFS.missing("not mounted").with_advice(advice).with_blocked_needs(&[Kernel]);
    };
    let mount = mount.display();
    if tracing.is_readable {
        return TRACEFS.passed(format!("mounted at {mount}, and readable"));
    }
    if machine.capturing_process_has_any(&[CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH]) {
        return TRACEFS.passed(format!("mounted at {mount}; the daemon may read it, this process may not"));
    }
    let advice = Advice::with_steps(
        format!("sudo mount -o remount,gid=$(id -g),mode=750 {mount}"),
        format!(
            "tracefs {mount} tracefs gid=GROUP,mode=750 0 0 in /etc/fstab; or the system's daemon, which may read it"
        ),
    );
    TRACEFS
        .missing(format!("mounted at {mount}, and not readable for you"))
        .with_advice(advice)
        .with_blocked_needs(&[Kernel])
}

const TRACEPOINTS: CheckSubject = CheckSubject {
    name: "tracepoints",
    purpose: "each kind of kernel event needs its own tracepoints",
    works_without: "the other kinds still work",
};

fn check_tracepoints(machine: &MachineState) -> DoctorCheck {
    let tracing = &machine.tracing;
    if !tracing.is_readable {
        return TRACEPOINTS.limited("not known: tracefs cannot be read");
    }
    if tracing.missing_tracepoints.is_empty() {
        return TRACEPOINTS.passed("available for all kinds of kernel events");
    }
    let kinds =
        tracing.missing_tracepoints.iter().map(|(kind, points)| format!("{kind} ({})", points.join(" ")));
    let kinds: Vec<String> = kinds.collect();
    TRACEPOINTS.limited(format!("this kernel lacks tracepoints of: {}", kinds.join("; ")))
}

const KPROBES: CheckSubject = CheckSubject {
    name: "kprobes",
    purpose: "paths as system calls received them, read inside the kernel",
    works_without: "paths still come from /proc a moment later, best effort",
};

fn check_kprobes(machine: &MachineState) -> DoctorCheck {
    match machine.tracing.has_kprobes {
        _ if machine.is_confidential() => KPROBES.limited("closed by lockdown=confidentiality"),
        Some(true) => KPROBES.passed("available"),
        Some(false) => KPROBES.limited(
            "this kernel was built without them (CONFIG_KPROBE_EVENTS): paths of opens are best effort",
        ),
        None => KPROBES.limited("not known: neither tracefs nor the configuration of the kernel can be read"),
    }
}

const KERNEL_STACKS: CheckSubject = CheckSubject {
    name: "kernel_stacks",
    purpose: "how the kernel unwinds its own stacks. On Windows, kernel stacks on x64 need the registry value DisablePagingExecutive = 1, because code and stacks that are paged out \
              cannot be walked; Linux never pages its kernel out, so no setting is needed: the build of the kernel decides",
    works_without: "frames of programs are still recorded",
};

fn check_kernel_stacks(machine: &MachineState) -> DoctorCheck {
    match machine.unwinder {
        Some(KernelUnwinder::Orc) => KERNEL_STACKS.passed("by unwind tables (CONFIG_UNWINDER_ORC): reliable, and without cost while no stack is taken"),
        Some(KernelUnwinder::FramePointers) => KERNEL_STACKS.passed("by frame pointers: reliable"),
        Some(KernelUnwinder::Guess) => KERNEL_STACKS
            .limited("by guessing (CONFIG_UNWINDER_GUESS): stacks contain wrong frames; another kernel is needed")
            .with_blocked_needs(&[Stacks]),
        None => KERNEL_STACKS.limited(
            "not known: neither /proc/config.gz nor /boot/config-RELEASE names a known unwinder; kernels of distributions have unwind tables",
        ),
    }
}

const USER_STACKS: CheckSubject = CheckSubject {
    name: "user_stacks",
    purpose: "user stacks: by frame pointers, or by unwind tables from a copy of the stack for programs without them",
    works_without: "programs that keep frame pointers (-fno-omit-frame-pointer, -C force-frame-pointers=yes) still have stacks",
};

fn check_user_stacks(machine: &MachineState) -> DoctorCheck {
    match machine.can_copy_user_stacks {
        Some(false) => USER_STACKS.limited("by frame pointers only: this kernel cannot copy user stacks"),
        Some(true) => USER_STACKS.passed("by frame pointers and by unwind tables"),
        None => USER_STACKS.passed(
            "by frame pointers, and by unwind tables if the kernel can copy user stacks, as most can",
        ),
    }
}

const LOCKDOWN: CheckSubject = CheckSubject {
    name: "lockdown",
    purpose: "a locked-down kernel (Secure Boot) does not expose its memory, not even to root",
    works_without: "events of programs, samples and stacks still work; mode confidentiality closes tracefs, kprobes and kernel registers to every process",
};

fn check_lockdown(machine: &MachineState) -> DoctorCheck {
    match machine.lockdown.as_deref() {
        Some("confidentiality") => LOCKDOWN
            .limited("confidentiality: only another boot can change it")
            .with_advice(Advice::with_step(
                "boot with lockdown=integrity, or without lockdown= on the kernel's command line",
            )),
        Some(mode) => LOCKDOWN.passed(format!("{mode}: does not affect tracing")),
        None => LOCKDOWN.passed("not supported by the kernel, or not readable (securityfs)"),
    }
}

const SELINUX: CheckSubject = CheckSubject {
    name: "selinux",
    purpose: "a policy may deny perf events (class perf_event) and kernel addresses to a domain, whatever its capabilities",
    works_without: "events of programs still work, unless the policy denies sockets too",
};

fn check_selinux(machine: &MachineState) -> DoctorCheck {
    if machine.is_selinux_enforcing {
        SELINUX
            .limited("enforcing: only a trial shows whether the policy permits tracing")
            .with_advice(Advice::with_step("sudo ausearch -m avc -ts recent | grep perf_event"))
    } else {
        SELINUX.passed("not enforcing")
    }
}
