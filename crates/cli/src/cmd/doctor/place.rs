//! Checks of where this process runs, and which daemon serves it.

use traceweir::controller::Scope;

use super::check::{Advice, Check, Subject};
use super::machine::Machine;
use super::service::{Daemon, Folder, FolderState};
use crate::cli::Need::{Events, Kernel};

/// Runs the checks of this module.
pub(super) fn checks(machine: &Machine) -> Vec<Check> {
    let mut all = vec![namespace(machine), sandbox(machine)];
    let is_last = |index: usize| index.saturating_add(1) == machine.facts.folders.len();
    all.extend(
        machine.facts.folders.iter().enumerate().map(|(index, folder)| daemon(folder, is_last(index))),
    );
    all
}

const NAMESPACE: Subject = Subject {
    name: "pid_namespace",
    purpose: "kernel events identify processes by the pids of the machine, which cannot be matched with the pids that a container sees",
    without: "events of programs in the same container, and those of a daemon outside that is reached through a shared folder",
};

fn namespace(machine: &Machine) -> Check {
    let server = machine.server();
    let container = machine.own.container.as_deref();
    let inside = container.map_or_else(String::new, |name| format!(" (container {name})"));
    match server.sees_all.or(machine.own.sees_all) {
        Some(true) => NAMESPACE.fine(format!("the machine's own{inside}")),
        Some(false) => {
            let advice = Advice::once(
                "start the container with --pid=host --cap-add PERFMON --cap-add SYS_PTRACE -v /sys/kernel/tracing:/sys/kernel/tracing:ro, or record on the host",
            );
            let found = format!("its own{inside}: processes outside are invisible");
            NAMESPACE.missing(found).advise(advice).blocking(&[Kernel])
        }
        None => NAMESPACE.limited(format!("not readable{inside}")),
    }
}

const SANDBOX: Subject = Subject {
    name: "system_call_filter",
    purpose: "a seccomp filter, as containers and sandboxes install it, may refuse perf_event_open, memfd_create and other calls",
    without: "what the filter lets through",
};

fn sandbox(machine: &Machine) -> Check {
    if machine.own.is_filtered {
        let found = "this process has one; that of Docker and Podman refuses perf_event_open unless CAP_PERFMON is added";
        SANDBOX.limited(found).advise(Advice::once(
            "start the container with --cap-add PERFMON, or --security-opt seccomp=unconfined",
        ))
    } else {
        SANDBOX.fine("none")
    }
}

const SYSTEM: Subject = Subject {
    name: "system_daemon",
    purpose: "sessions for programs of all users and for the whole machine, from boot on",
    without: "your own daemon, which is started on demand and serves your own programs",
};
const OWN: Subject = Subject {
    name: "own_daemon",
    purpose: "your own sessions; it is started on demand",
    without: "the system's daemon, if it runs and accepts you",
};
const NAMED: Subject = Subject {
    name: "named_daemon",
    purpose: "TRACEWEIR_RUNTIME_DIR is set: only the daemon of that folder is used, and only by programs that have the same setting",
    without: "unset TRACEWEIR_RUNTIME_DIR to use the usual daemons",
};

/// Checks one folder. Events work if the last folder that is tried is usable.
fn daemon(folder: &Folder, is_last: bool) -> Check {
    let subject = match folder.scope {
        Scope::System => SYSTEM,
        Scope::User => OWN,
        Scope::Named => NAMED,
    };
    let place = folder.path.display();
    match &folder.state {
        FolderState::Running(daemon) => running(subject, folder, daemon),
        FolderState::Startable => subject.fine(format!(
            "none runs in {place}; it is started when it is needed, because you are root, and serves programs of all users"
        )),
        // Only root starts the system's daemon on demand. Another user who asked for it alone gets
        // none.
        FolderState::Absent if folder.scope == Scope::System && is_last => {
            subject.missing(format!("none runs in {place}")).advise(start_system()).blocking(&[Events])
        }
        FolderState::Absent if folder.scope == Scope::System => {
            let found = format!("none runs in {place}: your own serves your own programs");
            subject.fine(found).advise(start_system())
        }
        FolderState::Absent => subject.fine(format!("none runs in {place}; it is started when it is needed")),
        FolderState::Refused(reason) => {
            let check = subject.limited(format!("runs in {place}, and refuses you: {reason}"));
            let check = check.advise(Advice::once("sudo usermod -aG traceweir \"$USER\", then log in again"));
            if is_last { check.blocking(&[Events]) } else { check }
        }
        // A daemon that does not answer is not skipped in favour of the next folder.
        FolderState::Unusable(reason) => {
            let now = format!(
                "ls -ld {place}: the folder must belong to you alone (chmod 700) or to root; to end a daemon that hangs, kill the pid in daemon.lock"
            );
            subject
                .missing(format!("{place} cannot be used: {reason}"))
                .advise(Advice::once(now))
                .blocking(&[Events])
        }
    }
}

fn start_system() -> Option<Advice> {
    Advice::both(
        "sudo systemctl start traceweir.socket (or sudo weir daemon --system)",
        "sudo systemctl enable traceweir.socket",
    )
}

fn running(subject: Subject, folder: &Folder, daemon: &Daemon) -> Check {
    let process =
        daemon.pid.map_or_else(|| "a process with unknown pid".to_owned(), |pid| format!("process {pid}"));
    let program = daemon.program.as_deref().unwrap_or("a program that cannot be read");
    let found = format!("runs in {} as {process}, {program}", folder.path.display());
    match (daemon.is_same_program, daemon.pid) {
        (Some(false), Some(pid)) => {
            let now = format!(
                "kill {pid} (its sessions end and their files are finalised), and the next command starts a new daemon"
            );
            subject
                .limited(format!("{found}: not the file of this weir, maybe another release"))
                .advise(Advice::once(now))
        }
        (Some(true), _) => subject.fine(format!("{found}: this very weir, {}", env!("CARGO_PKG_VERSION"))),
        _ => subject
            .fine(format!("{found}; it speaks the protocol of this weir, {}", env!("CARGO_PKG_VERSION"))),
    }
}
