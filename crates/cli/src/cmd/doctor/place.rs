//! Where this process runs, and which daemon serves it.

use traceweir::controller::Scope;

use super::check::{Advice, Check, Subject};
use super::machine::Machine;
use super::service::{Daemon, Folder, Life};
use crate::cli::Need::{Events, Kernel};

/// All of them.
pub(super) fn checks(machine: &Machine) -> Vec<Check> {
    let mut all = vec![namespace(machine), sandbox(machine)];
    let is_last = |index: usize| index.saturating_add(1) == machine.around.folders.len();
    all.extend(machine.around.folders.iter().enumerate().map(|(index, it)| daemon(it, is_last(index))));
    all
}

const NAMESPACE: Subject = Subject {
    name: "pid_namespace",
    purpose: "kernel events name processes by the ids of the machine; who sees only those of a container cannot tell whose they are",
    without: "events of programs in the same container, and those of a daemon outside that is reached by a shared folder",
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
            let found = format!("one of its own{inside}: processes outside are not seen");
            NAMESPACE.missing(found).advise(advice).blocking(&[Kernel])
        }
        None => NAMESPACE.limited(format!("not told{inside}")),
    }
}

const SANDBOX: Subject = Subject {
    name: "system_call_filter",
    purpose: "a filter (seccomp), as containers and sandboxes set it, may refuse perf_event_open, memfd_create and others",
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
    purpose: "sessions for all users' programs and for the whole machine, from the boot on",
    without: "your own daemon, which is started on demand and serves your own programs",
};
const OWN: Subject = Subject {
    name: "own_daemon",
    purpose: "your own sessions; it is started on demand",
    without: "the system's daemon, where it runs and lets you in",
};
const NAMED: Subject = Subject {
    name: "named_daemon",
    purpose: "TRACEWEIR_RUNTIME_DIR is set: nothing but the daemon of that folder is used, and only by programs that have it set too",
    without: "unset TRACEWEIR_RUNTIME_DIR leads back to the usual daemons",
};

/// One folder. Events work where the last of those that are tried can be used.
fn daemon(folder: &Folder, is_last: bool) -> Check {
    let subject = match folder.scope {
        Scope::System => SYSTEM,
        Scope::User => OWN,
        Scope::Named => NAMED,
    };
    let place = folder.path.display();
    match &folder.life {
        Life::Running(daemon) => running(subject, folder, daemon),
        Life::Startable => subject.fine(format!(
            "none runs in {place}; it is started when it is needed, for you are root, and finds the programs of all users"
        )),
        // Only root starts the system's on demand: where it alone is tried, there is none.
        Life::Absent if folder.scope == Scope::System && is_last => {
            subject.missing(format!("none runs in {place}")).advise(start_system()).blocking(&[Events])
        }
        Life::Absent if folder.scope == Scope::System => {
            let found = format!("none runs in {place}: your own serves your own programs");
            subject.fine(found).advise(start_system())
        }
        Life::Absent => subject.fine(format!("none runs in {place}; it is started when it is needed")),
        Life::Refused(why) => {
            let check = subject.limited(format!("runs in {place}, and does not let you in: {why}"));
            let check = check.advise(Advice::once("sudo usermod -aG traceweir \"$USER\", then log in again"));
            if is_last { check.blocking(&[Events]) } else { check }
        }
        // One that is there and does not answer is not passed over.
        Life::Unusable(why) => {
            let now = format!(
                "ls -ld {place}: the folder must be yours alone (chmod 700), or root's; a daemon that hangs is ended by its id in daemon.lock"
            );
            subject
                .missing(format!("{place} cannot be used: {why}"))
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
    let who = daemon
        .pid
        .map_or_else(|| "a process that it does not tell".to_owned(), |pid| format!("process {pid}"));
    let program = daemon.program.as_deref().unwrap_or("a program that it does not show");
    let found = format!("runs in {} as {who}, {program}", folder.path.display());
    match (daemon.is_same_program, daemon.pid) {
        (Some(false), Some(pid)) => {
            let now = format!(
                "kill {pid} (its sessions end, their files are finished), and the next command starts another"
            );
            subject
                .limited(format!("{found}: another file than this weir, maybe of another release"))
                .advise(Advice::once(now))
        }
        (Some(true), _) => subject.fine(format!("{found}: this very weir, {}", env!("CARGO_PKG_VERSION"))),
        _ => subject
            .fine(format!("{found}; it speaks the protocol of this weir, {}", env!("CARGO_PKG_VERSION"))),
    }
}
