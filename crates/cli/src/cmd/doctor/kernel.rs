//! Checks of the kernel: symbols, tracepoints, stack unwinding, lockdown and SELinux.

use super::check::{Advice, Check, Subject};
use super::machine::{Addresses, Machine, Unwinder};
use super::process::{CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_SYS_ADMIN, CAP_SYSLOG};
use crate::cli::Need::{Kernel, Stacks, Symbols};

/// Runs the checks of this module.
pub(super) fn checks(machine: &Machine) -> Vec<Check> {
    vec![
        symbols(machine),
        tracefs(machine),
        tracepoints(machine),
        kprobes(machine),
        kernel_stacks(machine),
        user_stacks(machine),
        lockdown(machine),
        selinux(machine),
    ]
}

const SYMBOLS: Subject = Subject {
    name: "kernel_symbols",
    purpose: "names of kernel functions in stacks: /proc/kallsyms, whose addresses kernel.kptr_restrict and perf_event_paranoid hide",
    without: "addresses of kernel functions as numbers; names of programs' functions",
};

/// With `kptr_restrict` 0, addresses are shown to every user if `perf_event_paranoid` is at most 1;
/// with 0 and 1 to CAP_SYSLOG; with 2 to none.
fn symbols(machine: &Machine) -> Check {
    let level = machine.knobs.kptr_restrict;
    let setting = level.map_or_else(
        || "kptr_restrict is not readable".to_owned(),
        |level| format!("kptr_restrict is {level}"),
    );
    match machine.addresses {
        Addresses::Shown => SYMBOLS.fine(format!("/proc/kallsyms shows addresses; {setting}")),
        Addresses::Absent => {
            let found =
                "there is no /proc/kallsyms: the kernel was built without CONFIG_KALLSYMS, or hides it";
            SYMBOLS.missing(found).blocking(&[Symbols])
        }
        // The daemon may see addresses that this process does not.
        Addresses::Hidden if machine.server_has(&[CAP_SYSLOG]) && level != Some(2) => {
            SYMBOLS.fine(format!("hidden from this process, but not from the daemon; {setting}"))
        }
        Addresses::Hidden => {
            let paranoid_hides = machine.knobs.paranoid.is_none_or(|level| level > 1);
            let now = match (level, paranoid_hides) {
                (Some(0), true) => "sudo sysctl kernel.perf_event_paranoid=1",
                (_, true) => "sudo sysctl kernel.kptr_restrict=0 kernel.perf_event_paranoid=1",
                (_, false) => "sudo sysctl kernel.kptr_restrict=0",
            };
            let lasting = "the same names and values in /etc/sysctl.d/60-traceweir.conf; or run with CAP_SYSLOG, which sees addresses while kptr_restrict is 0 or 1";
            let found = format!("/proc/kallsyms shows no addresses; {setting}");
            SYMBOLS.missing(found).advise(Advice::both(now, lasting)).blocking(&[Symbols])
        }
    }
}

const TRACEFS: Subject = Subject {
    name: "tracefs",
    purpose: "ids and layouts of tracepoints, the source of most kinds of kernel events",
    without: "samples, page faults, context switches, processes, threads and images, which are perf records",
};

fn tracefs(machine: &Machine) -> Check {
    let tracing = &machine.tracing;
    if machine.is_confidential() {
        return TRACEFS.missing("closed by lockdown=confidentiality").blocking(&[Kernel]);
    }
    let Some(mount) = &tracing.mounted else {
        if !tracing.is_known {
            let reason = "this kernel has none (CONFIG_TRACING), or /proc/filesystems cannot be read";
            return TRACEFS.missing(reason).blocking(&[Kernel]);
        }
        if machine.server_has(&[CAP_SYS_ADMIN]) {
            return TRACEFS
                .fine("not mounted; the daemon uses a mount of its own, which no other process sees");
        }
        let advice = Advice::both(
            "sudo mount -t tracefs tracefs /sys/kernel/tracing",
            "echo 'tracefs /sys/kernel/tracing tracefs nosuid,nodev,noexec 0 0' | sudo tee -a /etc/fstab",
        );
        return TRACEFS.missing("not mounted").advise(advice).blocking(&[Kernel]);
    };
    let mount = mount.display();
    if tracing.is_readable {
        return TRACEFS.fine(format!("mounted at {mount}, and readable"));
    }
    if machine.server_has(&[CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH]) {
        return TRACEFS.fine(format!("mounted at {mount}; the daemon may read it, this process may not"));
    }
    let advice = Advice::both(
        format!("sudo mount -o remount,gid=$(id -g),mode=750 {mount}"),
        format!(
            "tracefs {mount} tracefs gid=GROUP,mode=750 0 0 in /etc/fstab; or the system's daemon, which may read it"
        ),
    );
    TRACEFS
        .missing(format!("mounted at {mount}, and not readable for you"))
        .advise(advice)
        .blocking(&[Kernel])
}

const TRACEPOINTS: Subject = Subject {
    name: "tracepoints",
    purpose: "each kind of kernel event needs its own tracepoints",
    without: "the other kinds",
};

fn tracepoints(machine: &Machine) -> Check {
    let tracing = &machine.tracing;
    if !tracing.is_readable {
        return TRACEPOINTS.limited("not known: tracefs cannot be read");
    }
    if tracing.missing.is_empty() {
        return TRACEPOINTS.fine("available for all kinds of kernel events");
    }
    let kinds = tracing.missing.iter().map(|(kind, points)| format!("{kind} ({})", points.join(" ")));
    let kinds: Vec<String> = kinds.collect();
    TRACEPOINTS.limited(format!("this kernel lacks tracepoints of: {}", kinds.join("; ")))
}

const KPROBES: Subject = Subject {
    name: "kprobes",
    purpose: "paths as system calls received them, read inside the kernel",
    without: "paths that /proc shows a moment later, best effort",
};

fn kprobes(machine: &Machine) -> Check {
    match machine.tracing.has_kprobes {
        _ if machine.is_confidential() => KPROBES.limited("closed by lockdown=confidentiality"),
        Some(true) => KPROBES.fine("available"),
        Some(false) => KPROBES.limited(
            "this kernel was built without them (CONFIG_KPROBE_EVENTS): paths of opens are best effort",
        ),
        None => KPROBES.limited("not known: neither tracefs nor the configuration of the kernel can be read"),
    }
}

const KERNEL_STACKS: Subject = Subject {
    name: "kernel_stacks",
    purpose: "how the kernel unwinds its own stacks. On Windows, kernel stacks on x64 need the registry value DisablePagingExecutive = 1, because code and stacks that are paged out \
              cannot be walked; Linux never pages its kernel out, so no setting is needed: the build of the kernel decides",
    without: "frames of programs",
};

fn kernel_stacks(machine: &Machine) -> Check {
    match machine.unwinder {
        Some(Unwinder::Orc) => KERNEL_STACKS.fine("by unwind tables (CONFIG_UNWINDER_ORC): reliable, and without cost while no stack is taken"),
        Some(Unwinder::FramePointers) => KERNEL_STACKS.fine("by frame pointers: reliable"),
        Some(Unwinder::Guess) => KERNEL_STACKS
            .limited("by guessing (CONFIG_UNWINDER_GUESS): stacks contain wrong frames; another kernel is needed")
            .blocking(&[Stacks]),
        None => KERNEL_STACKS.limited(
            "not known: neither /proc/config.gz nor /boot/config-RELEASE names a known unwinder; kernels of distributions have unwind tables",
        ),
    }
}

const USER_STACKS: Subject = Subject {
    name: "user_stacks",
    purpose: "user stacks: by frame pointers, or by unwind tables from a copy of the stack for programs without them",
    without: "programs that keep frame pointers (-fno-omit-frame-pointer, -C force-frame-pointers=yes)",
};

fn user_stacks(machine: &Machine) -> Check {
    match machine.dumps_stacks {
        Some(false) => USER_STACKS.limited("by frame pointers only: this kernel cannot copy user stacks"),
        Some(true) => USER_STACKS.fine("by frame pointers and by unwind tables"),
        None => USER_STACKS
            .fine("by frame pointers, and by unwind tables if the kernel can copy user stacks, as most can"),
    }
}

const LOCKDOWN: Subject = Subject {
    name: "lockdown",
    purpose: "a locked-down kernel (Secure Boot) does not expose its memory, not even to root",
    without: "mode confidentiality closes tracefs, kprobes and kernel registers to every process; events of programs, samples and stacks work",
};

fn lockdown(machine: &Machine) -> Check {
    match machine.lockdown.as_deref() {
        Some("confidentiality") => {
            LOCKDOWN.limited("confidentiality: only another boot can change it").advise(Advice::once(
                "boot with lockdown=integrity, or without lockdown= on the kernel's command line",
            ))
        }
        Some(mode) => LOCKDOWN.fine(format!("{mode}: does not affect tracing")),
        None => LOCKDOWN.fine("not supported by the kernel, or not readable (securityfs)"),
    }
}

const SELINUX: Subject = Subject {
    name: "selinux",
    purpose: "a policy may deny perf events (class perf_event) and kernel addresses to a domain, whatever its capabilities",
    without: "events of programs, unless the policy denies sockets too",
};

fn selinux(machine: &Machine) -> Check {
    if machine.selinux_enforces {
        SELINUX
            .limited("enforcing: only a trial shows whether the policy permits tracing")
            .advise(Advice::once("sudo ausearch -m avc -ts recent | grep perf_event"))
    } else {
        SELINUX.fine("not enforcing")
    }
}
