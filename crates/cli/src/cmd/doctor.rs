//! `weir doctor`: checks what this machine allows, and prints how to allow the rest.
//!
//! ```text
//!   files below / ─┐
//!                  ├─▶ Machine ──▶ checks: perf, kernel, hardware, place ─┐
//!   daemons ───────┘                                                      ├─▶ page │ objects
//!   process (--pid) ─▶ Target ──▶ checks ─────────────────────────────────┘
//! ```
//!
//! 1. The command changes nothing and starts no daemon. It prints commands for a privileged user.
//! 2. Checks are functions of the data that was read, so that tests can describe other machines.
//! 3. The privileges that count are those of the process that would open kernel events: the daemon
//!    that would be used, if one runs.
//! 4. A check lists the needs that it blocks; a need is met if no check blocks it.
//!
//! The command does not open a perf event as a trial. That would show more than files do, but takes
//! `unsafe` code.

mod check;
mod families;
mod files;
mod hardware;
mod kernel;
mod machine;
mod page;
mod pending_query;
mod perf;
mod place;
mod process;
mod service;
mod target;
#[cfg(test)]
mod tests;

use std::path::Path;

use anyhow::Result;
use traceweir_daemon::RuntimeDir;
use traceweir_daemon::machine::{Counter, counters, is_restartable};

use crate::cli::{DoctorArgs, Need};
use crate::exit::CommandOutcome;
use crate::output::BufferedOutput;
use crate::sessions;

use check::{Check, blocking_checks};
use machine::{Machine, SystemFacts};
use service::{Folder, FolderState};
use target::{DaemonView, Target};

/// Maximum number of provider sockets of each user to read.
const MAX_SOCKETS: usize = 4096;
/// Exit status for "not permitted".
const NOT_PERMITTED: u8 = 77;

/// Runs `weir doctor`.
pub(super) fn run(options: &DoctorArgs) -> Result<CommandOutcome> {
    let facts = SystemFacts {
        is_restartable: is_restartable(),
        counter: Counter::best(),
        counters: counters(),
        folders: service::folders(options.daemon_choice.scope()),
    };
    let machine = Machine::read(Path::new("/"), facts);
    let mut checks = checks(&machine);
    if let Some(pid) = options.pid {
        let daemon_view = daemon_view(options, &machine.facts.folders, pid);
        checks.extend(Target::read(Path::new("/"), pid).checks(&daemon_view));
    }
    let text = if options.json {
        page::objects(&checks, &options.need)
    } else {
        page::page(&checks, &options.need, options.all)
    };
    let mut output = BufferedOutput::open(None)?;
    output.buffer().extend_from_slice(text.as_bytes());
    output.flush()?;
    Ok(outcome(&checks, &options.need))
}

/// Runs all checks about the machine.
fn checks(machine: &Machine) -> Vec<Check> {
    let parts =
        [place::checks(machine), perf::checks(machine), kernel::checks(machine), hardware::checks(machine)];
    parts.into_iter().flatten().collect()
}

/// Returns the exit status: success if every requested need and `events` are met.
fn outcome(checks: &[Check], asked: &[Need]) -> CommandOutcome {
    let is_met = |need: Need| blocking_checks(checks, need).next().is_none();
    let mut needed = asked.iter().copied().chain([Need::Events]);
    if needed.all(is_met) { CommandOutcome::Fine } else { CommandOutcome::Status(NOT_PERMITTED) }
}

/// Collects what the daemon that would be used knows about a process.
fn daemon_view(options: &DoctorArgs, folders: &[Folder], pid: u32) -> DaemonView {
    let runs = |folder: &&Folder| matches!(folder.state, FolderState::Running(_));
    let startable = || folders.iter().find(|folder| matches!(folder.state, FolderState::Startable));
    let folder = folders.iter().find(runs).or_else(startable).or_else(|| folders.last());
    // A lookup finds the first daemon that runs. If another one is in its way, a check has reported
    // that.
    let daemon = folder.filter(runs).and_then(|_| sessions::find_daemon(options.daemon_choice).ok()?);
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
    let sockets = dir.and_then(|dir| dir.provider_sockets(MAX_SOCKETS).ok());
    DaemonView {
        own_user: rustix::process::geteuid().as_raw(),
        named: service::named(),
        folder: folder.map(|folder| folder.path.clone()).unwrap_or_default(),
        is_system: folder.is_some_and(Folder::is_of_system),
        sockets: sockets.map(|all| all.iter().map(|socket| (socket.pid, socket.uid)).collect()),
        registered: names,
        is_contained,
    }
}
