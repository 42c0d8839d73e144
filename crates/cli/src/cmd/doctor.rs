//! `weir doctor`: checks what this machine allows, and prints how to allow the rest.
//!
//! ```text
//!   files below / ─┐
//!                  ├─▶ MachineState ──▶ checks: container, perf, kernel, hardware ─┐
//!   daemons ───────┘                                                               ├─▶ page │ JSON
//!   process (--pid) ─▶ TargetProcess ──▶ checks ───────────────────────────────────┘
//! ```
//!
//! 1. The command changes nothing and starts no daemon. It prints commands for a privileged user.
//! 2. Checks are functions of the data that was read, so that tests can describe other machines.
//! 3. The privileges that count are those of the process that would open kernel events: the running
//!    daemon, or else a daemon that this process would start.
//! 4. A check lists the needs that it blocks; a need is met if no check blocks it.
//!
//! The command does not open a perf event as a trial. That would show more than the files, but
//! needs `unsafe` code.

mod check;
mod container;
mod families;
mod files;
mod hardware;
mod kernel;
mod machine;
mod page;
mod pending_query;
mod perf;
mod process;
mod service;
mod target;
#[cfg(test)]
mod tests;

use std::path::Path;

use anyhow::{Result, bail};
use traceweir_analysis::processes;
use traceweir_daemon::RuntimeDir;
use traceweir_daemon::machine::{Counter, counters, supports_rseq};

use crate::cli::{DoctorArgs, Need};
use crate::exit::{CommandOutcome, NOT_PERMITTED};
use crate::output::print_text;
use crate::sessions;
use crate::text::TerminalStyle;

use check::{CheckState, DoctorCheck, blocking_checks};
use machine::{MachineState, SystemFacts};
use service::{FolderState, RuntimeFolder};
use target::{DaemonView, TargetProcess};

/// Maximum number of provider sockets of each user to read.
const MAX_SOCKETS_PER_USER: usize = 4096;

pub(super) fn run(options: &DoctorArgs) -> Result<CommandOutcome> {
    if let Some(pid) = options.pid.filter(|pid| !processes::exists(*pid)) {
        bail!(
            "cannot check process {pid}: there is no process {pid}, or /proc hides it; ps -e lists the processes"
        );
    }
    let facts = SystemFacts {
        has_rseq: supports_rseq(),
        counter: Counter::best(),
        hardware_counters: counters(),
        folders: service::list_folders(options.daemon_choice.scope()),
    };
    let machine = MachineState::read(Path::new("/"), facts);
    let mut checks = Vec::new();
    if let Some(pid) = options.pid {
        let daemon_view = query_daemon_view(options, &machine.facts.folders, pid);
        checks.extend(TargetProcess::read(Path::new("/"), pid).checks(&daemon_view));
    }
    // Passed checks of the machine would hide the answer about the process.
    let shows_passed = options.pid.is_none() || options.all || options.json;
    let machine_checks = check_machine(&machine).into_iter();
    checks.extend(machine_checks.filter(|check| shows_passed || check.state != CheckState::Fine));
    let text = if options.json {
        page::format_objects(&checks, &options.need)
    } else {
        page::format_page(&checks, &options.need, options.all, TerminalStyle::for_stdout())
    };
    print_text(&text)?;
    Ok(exit_outcome(&checks, &options.need))
}

fn check_machine(machine: &MachineState) -> Vec<DoctorCheck> {
    let parts = [
        container::run_checks(machine),
        perf::checks(machine),
        kernel::checks(machine),
        hardware::checks(machine),
    ];
    parts.into_iter().flatten().collect()
}

/// Returns the exit status: success if every requested need and `events` are met.
fn exit_outcome(checks: &[DoctorCheck], requested: &[Need]) -> CommandOutcome {
    let is_met = |need: Need| blocking_checks(checks, need).next().is_none();
    let mut needed = requested.iter().copied().chain([Need::Events]);
    if needed.all(is_met) { CommandOutcome::Fine } else { CommandOutcome::Status(NOT_PERMITTED) }
}

/// Collects facts about the caller and the selected daemon, and what the daemon knows of a process.
fn query_daemon_view(options: &DoctorArgs, folders: &[RuntimeFolder], pid: u32) -> DaemonView {
    let is_running = |folder: &&RuntimeFolder| matches!(folder.state, FolderState::Running(_));
    let find_startable = || folders.iter().find(|folder| matches!(folder.state, FolderState::Startable));
    let folder = folders.iter().find(is_running).or_else(find_startable).or_else(|| folders.last());
    // A lookup finds the first running daemon. If it fails, another check reports the reason.
    let daemon = folder.filter(is_running).and_then(|_| sessions::find_daemon(options.daemon_choice).ok()?);
    let registered = daemon.and_then(|mut daemon| daemon.providers().ok());
    let providers: Option<Vec<_>> =
        registered.map(|all| all.into_iter().filter(|provider| provider.pids.contains(&pid)).collect());
    let is_contained = providers
        .as_ref()
        .filter(|all| !all.is_empty())
        .map(|all| all.iter().any(|provider| provider.contained_pids.contains(&pid)));
    let names = providers.map(|all| {
        all.into_iter()
            .map(|provider| {
                sessions::provider_name(&provider)
                    .map_or_else(|| format!("{{{}}}", provider.guid), str::to_owned)
            })
            .collect()
    });
    let dir = folder.and_then(|folder| RuntimeDir::for_scope(folder.scope).ok());
    let sockets = dir.and_then(|dir| dir.provider_sockets(MAX_SOCKETS_PER_USER).ok());
    DaemonView {
        caller_uid: rustix::process::geteuid().as_raw(),
        caller_runtime_dir: service::folder_from_env(),
        folder: folder.map(|folder| folder.path.clone()).unwrap_or_default(),
        is_system: folder.is_some_and(RuntimeFolder::serves_system),
        sockets: sockets.map(|all| all.iter().map(|socket| (socket.pid, socket.uid)).collect()),
        provider_names: names,
        is_contained,
    }
}
