//! The kernel: where its functions are, its tracepoints, how it walks its stacks, and what closes it against everybody.

use super::check::{Advice, Check, Subject};
use super::machine::{Addresses, Machine, Unwinder};
use super::process::{CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_SYS_ADMIN, CAP_SYSLOG};
use crate::cli::Need::{Kernel, Stacks, Symbols};

/// All of them.
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

/// Shown are they at 0 to all while perf_event_paranoid is 1 or less, at 0 and 1 to CAP_SYSLOG, at 2 to nobody.
fn symbols(machine: &Machine) -> Check {
    let level = machine.knobs.kptr_restrict;
    let told =
        level.map_or_else(|| "kptr_restrict is not told".to_owned(), |it| format!("kptr_restrict is {it}"));
    match machine.addresses {
        Addresses::Shown => SYMBOLS.fine(format!("/proc/kallsyms shows addresses; {told}")),
        Addresses::Absent => {
            let found =
                "there is no /proc/kallsyms: the kernel was built without CONFIG_KALLSYMS, or hides it";
            SYMBOLS.missing(found).blocking(&[Symbols])
        }
        // Whoever serves us may see what we do not.
        Addresses::Hidden if machine.server_has(&[CAP_SYSLOG]) && level != Some(2) => {
            SYMBOLS.fine(format!("hidden from this process, and not from the daemon; {told}"))
        }
        Addresses::Hidden => {
            let hides = machine.knobs.paranoid.is_none_or(|level| level > 1);
            let now = match (level, hides) {
                (Some(0), true) => "sudo sysctl kernel.perf_event_paranoid=1",
                (_, true) => "sudo sysctl kernel.kptr_restrict=0 kernel.perf_event_paranoid=1",
                (_, false) => "sudo sysctl kernel.kptr_restrict=0",
            };
            let lasting = "the same names and values in /etc/sysctl.d/60-traceweir.conf; or run with CAP_SYSLOG, to which kptr_restrict 0 and 1 show them";
            let found = format!("/proc/kallsyms shows no addresses; {told}");
            SYMBOLS.missing(found).advise(Advice::both(now, lasting)).blocking(&[Symbols])
        }
    }
}

const TRACEFS: Subject = Subject {
    name: "tracefs",
    purpose: "numbers and layouts of tracepoints, of which most kinds of kernel events are made",
    without: "samples, page faults, context switches, processes, threads and images, which are records of perf events",
};

fn tracefs(machine: &Machine) -> Check {
    let tracing = &machine.tracing;
    if machine.is_confidential() {
        return TRACEFS.missing("closed by lockdown=confidentiality").blocking(&[Kernel]);
    }
    let Some(place) = &tracing.mounted else {
        if !tracing.is_known {
            let why = "this kernel has none (CONFIG_TRACING), or /proc/filesystems cannot be read";
            return TRACEFS.missing(why).blocking(&[Kernel]);
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
    let place = place.display();
    if tracing.is_readable {
        return TRACEFS.fine(format!("mounted at {place}, and readable"));
    }
    if machine.server_has(&[CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH]) {
        return TRACEFS.fine(format!("mounted at {place}; the daemon may read it, this process may not"));
    }
    let advice = Advice::both(
        format!("sudo mount -o remount,gid=$(id -g),mode=750 {place}"),
        format!(
            "tracefs {place} tracefs gid=GROUP,mode=750 0 0 in /etc/fstab; or the system's daemon, which may read it"
        ),
    );
    TRACEFS
        .missing(format!("mounted at {place}, and not readable for you"))
        .advise(advice)
        .blocking(&[Kernel])
}

const TRACEPOINTS: Subject = Subject {
    name: "tracepoints",
    purpose: "each kind of kernel events is made of its own",
    without: "the other kinds",
};

fn tracepoints(machine: &Machine) -> Check {
    let tracing = &machine.tracing;
    if !tracing.is_readable {
        return TRACEPOINTS.limited("not known: tracefs cannot be read");
    }
    if tracing.missing.is_empty() {
        return TRACEPOINTS.fine("all kinds are there");
    }
    let kinds = tracing.missing.iter().map(|(kind, points)| format!("{kind} ({})", points.join(" ")));
    let kinds: Vec<String> = kinds.collect();
    TRACEPOINTS.limited(format!("this kernel has not all of: {}", kinds.join("; ")))
}

const KPROBES: Subject = Subject {
    name: "kprobes",
    purpose: "names of files as system calls got them, read inside the kernel",
    without: "names of files as /proc tells them a moment later, as well as that goes",
};

fn kprobes(machine: &Machine) -> Check {
    match machine.tracing.has_kprobes {
        _ if machine.is_confidential() => KPROBES.limited("closed by lockdown=confidentiality"),
        Some(true) => KPROBES.fine("there"),
        Some(false) => KPROBES.limited(
            "this kernel was built without them (CONFIG_KPROBE_EVENTS): paths of opens are best effort",
        ),
        None => KPROBES.limited("not known: neither tracefs nor the configuration of the kernel can be read"),
    }
}

const KERNEL_STACKS: Subject = Subject {
    name: "kernel_stacks",
    purpose: "how the kernel walks its own stacks. On Windows kernel stacks on x64 take the registry value DisablePagingExecutive = 1, because code and stacks that are paged out \
              cannot be walked; Linux never pages its kernel out, so nothing is to be set: how the kernel was built decides",
    without: "frames of programs",
};

fn kernel_stacks(machine: &Machine) -> Check {
    match machine.unwinder {
        Some(Unwinder::Orc) => KERNEL_STACKS.fine("by unwind tables (CONFIG_UNWINDER_ORC): reliable, and free while nobody asks"),
        Some(Unwinder::FramePointers) => KERNEL_STACKS.fine("by frame pointers: reliable"),
        Some(Unwinder::Guess) => KERNEL_STACKS
            .limited("by guessing (CONFIG_UNWINDER_GUESS): frames that are none appear among the others; another kernel is needed")
            .blocking(&[Stacks]),
        None => KERNEL_STACKS.limited(
            "not known: neither /proc/config.gz nor /boot/config-RELEASE tells, or none of the kinds that are known here; kernels of distributions have unwind tables",
        ),
    }
}

const USER_STACKS: Subject = Subject {
    name: "user_stacks",
    purpose: "stacks of programs: by frame pointers, and where a program keeps none by its unwind tables from a sampled piece of its stack",
    without: "programs that keep frame pointers (-fno-omit-frame-pointer, -C force-frame-pointers=yes)",
};

fn user_stacks(machine: &Machine) -> Check {
    match machine.dumps_stacks {
        Some(false) => USER_STACKS.limited("by frame pointers only: this kernel samples no pieces of stacks"),
        Some(true) => USER_STACKS.fine("by frame pointers and by unwind tables"),
        None => USER_STACKS.fine("by frame pointers, and by unwind tables where the kernel samples pieces of stacks, which is usual"),
    }
}

const LOCKDOWN: Subject = Subject {
    name: "lockdown",
    purpose: "a kernel that is closed against its own administrators (Secure Boot) gives away nothing of its memory",
    without: "confidentiality closes tracefs, kprobes and registers of the kernel to everybody; events of programs, samples and stacks work",
};

fn lockdown(machine: &Machine) -> Check {
    match machine.lockdown.as_deref() {
        Some("confidentiality") => {
            LOCKDOWN.limited("confidentiality: it can be lifted by another boot only").advise(Advice::once(
                "boot with lockdown=integrity, or without lockdown= on the kernel's command line",
            ))
        }
        Some(mode) => LOCKDOWN.fine(format!("{mode}: nothing of this is closed")),
        None => LOCKDOWN.fine("the kernel has none, or does not tell (securityfs)"),
    }
}

const SELINUX: Subject = Subject {
    name: "selinux",
    purpose: "a policy may forbid perf events (class perf_event) and addresses of the kernel to a domain, whatever its capabilities",
    without: "events of programs, unless the policy forbids sockets too",
};

fn selinux(machine: &Machine) -> Check {
    if machine.selinux_enforces {
        SELINUX
            .limited("enforcing: whether the policy lets you, only a try tells")
            .advise(Advice::once("sudo ausearch -m avc -ts recent | grep perf_event"))
    } else {
        SELINUX.fine("not enforcing")
    }
}
