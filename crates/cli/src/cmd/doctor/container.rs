//! Checks of the container and sandbox of this process, and of the daemons that may serve it.

use traceweir::controller::Scope;

use super::check::{Advice, CheckSubject, DoctorCheck};
use super::machine::MachineState;
use super::service::{FolderState, RunningDaemon, RuntimeFolder};
use crate::cli::Need::{Events, Kernel};

pub(super) fn run_checks(machine: &MachineState) -> Vec<DoctorCheck> {
    let mut checks = vec![check_namespace(machine), check_sandbox(machine)];
    let is_last = |index: usize| index.saturating_add(1) == machine.facts.folders.len();
    checks.extend(
        machine.facts.folders.iter().enumerate().map(|(index, folder)| check_daemon(folder, is_last(index))),
    );
    checks
}

const NAMESPACE: CheckSubject = CheckSubject {
    name: "pid_namespace",
    purpose: "kernel events identify processes by the pids of the machine, which cannot be matched with the pids that a container sees",
    works_without: "events of programs in the same container, and those of a daemon outside that is reached through a shared folder, still work",
};

fn check_namespace(machine: &MachineState) -> DoctorCheck {
    let capturer = machine.capturing_process();
    let container = machine.own_process.container.as_deref();
    let container_text = container.map_or_else(String::new, |name| format!(" (container {name})"));
    match capturer.is_in_initial_pid_namespace.or(machine.own_process.is_in_initial_pid_namespace) {
        Some(true) => NAMESPACE.passed(format!("the machine's own{container_text}")),
        Some(false) => {
            let advice = Advice::with_step(
                "start the container with --pid=host --cap-add PERFMON --cap-add SYS_PTRACE -v /sys/kernel/tracing:/sys/kernel/tracing:ro, or record on the host",
            );
            let found = format!("not the machine's{container_text}: processes outside are invisible");
            NAMESPACE.missing(found).with_advice(advice).with_blocked_needs(&[Kernel])
        }
        None => NAMESPACE.limited(format!("not readable{container_text}")),
    }
}

const SANDBOX: CheckSubject = CheckSubject {
    name: "system_call_filter",
    purpose: "a seccomp filter, as containers and sandboxes install it, may refuse perf_event_open, memfd_create and other calls",
    works_without: "system calls that the filter permits still work",
};

fn check_sandbox(machine: &MachineState) -> DoctorCheck {
    if machine.own_process.has_seccomp_filter {
        let found = "this process has one; the filter of Docker and Podman refuses perf_event_open unless CAP_PERFMON is added";
        SANDBOX.limited(found).with_advice(Advice::with_step(
            "start the container with --cap-add PERFMON, or --security-opt seccomp=unconfined",
        ))
    } else {
        SANDBOX.passed("none")
    }
}

const SYSTEM_DAEMON: CheckSubject = CheckSubject {
    name: "system_daemon",
    purpose: "sessions for programs of all users and for the whole machine, from boot on",
    works_without: "your own daemon, which is started on demand and serves your own programs, still works",
};
const OWN_DAEMON: CheckSubject = CheckSubject {
    name: "own_daemon",
    purpose: "your own sessions; it is started on demand",
    works_without: "the system's daemon, if it runs and accepts you, still works",
};
const NAMED_DAEMON: CheckSubject = CheckSubject {
    name: "named_daemon",
    purpose: "TRACEWEIR_RUNTIME_DIR is set: only the daemon of that folder is used, and only by programs that have the same setting",
    works_without: "the usual daemons still work, once TRACEWEIR_RUNTIME_DIR is unset",
};

/// Checks the daemon of one runtime folder. The result blocks events if the folder cannot be used,
/// or if it is the last one that clients try and its daemon neither serves this user nor is started
/// on demand.
fn check_daemon(folder: &RuntimeFolder, is_last: bool) -> DoctorCheck {
    let subject = match folder.scope {
        Scope::System => SYSTEM_DAEMON,
        Scope::User => OWN_DAEMON,
        Scope::Named => NAMED_DAEMON,
    };
    let path = folder.path.display();
    match &folder.state {
        FolderState::Running(daemon) => check_running_daemon(subject, folder, daemon),
        FolderState::Startable => subject.passed(format!(
            "none runs in {path}; it is started when it is needed, because you are root, and serves programs of all users"
        )),
        // Only root starts the system's daemon on demand. Another user who requested only the
        // system's daemon gets no daemon.
        FolderState::Absent if folder.scope == Scope::System && is_last => {
            subject.missing(format!("none runs in {path}")).with_advice(advise_system_start()).with_blocked_needs(&[Events])
        }
        FolderState::Absent if folder.scope == Scope::System => {
            let found = format!("none runs in {path}: your own daemon serves your own programs");
            subject.passed(found).with_advice(advise_system_start())
        }
        FolderState::Absent => subject.passed(format!("none runs in {path}; it is started when it is needed")),
        FolderState::Refused(reason) => {
            let check = subject.limited(format!("runs in {path}, and refuses you: {reason}"));
            let check = check.with_advice(Advice::with_step("sudo usermod -aG traceweir \"$USER\", then log in again"));
            if is_last { check.with_blocked_needs(&[Events]) } else { check }
        }
        // If the daemon of a folder does not answer, clients do not try the next folder.
        FolderState::Unusable(reason) => {
            let step = format!(
                "ls -ld {path}: the folder must belong to you alone (chmod 700) or to root; to end a daemon that hangs, kill the pid in daemon.lock"
            );
            subject
                .missing(format!("{path} cannot be used: {reason}"))
                .with_advice(Advice::with_step(step))
                .with_blocked_needs(&[Events])
        }
    }
}

fn advise_system_start() -> Option<Advice> {
    Advice::with_steps(
        "sudo systemctl start traceweir.socket (or sudo weir daemon --system)",
        "sudo systemctl enable traceweir.socket",
    )
}

fn check_running_daemon(
    subject: CheckSubject,
    folder: &RuntimeFolder,
    daemon: &RunningDaemon,
) -> DoctorCheck {
    let process =
        daemon.pid.map_or_else(|| "a process with unknown pid".to_owned(), |pid| format!("process {pid}"));
    let program = daemon.program.as_deref().unwrap_or("a program that cannot be read");
    let found = format!("runs in {} as {process}, {program}", folder.path.display());
    match (daemon.is_same_program, daemon.pid) {
        (Some(false), Some(pid)) => {
            let step = format!(
                "kill {pid} (its sessions end and their files are finalised), and the next command starts a new daemon"
            );
            subject
                .limited(format!("{found}: not the file of this weir, maybe another release"))
                .with_advice(Advice::with_step(step))
        }
        (Some(true), _) => subject.passed(format!("{found}: this very weir, {}", env!("CARGO_PKG_VERSION"))),
        _ => subject
            .passed(format!("{found}; it speaks the protocol of this weir, {}", env!("CARGO_PKG_VERSION"))),
    }
}
