//! `weir doctor`: what this machine allows, and how to allow the rest.
//!
//! ```text
//!   files below / ─┐
//!                  ├─▶ Machine ──▶ checks: perf, kernel, hardware, place ─┐
//!   daemons ───────┘                                                      ├─▶ page │ objects,  exit status by needs
//!   process (--pid) ─▶ Target ──▶ checks ─────────────────────────────────┘
//! ```
//!
//! 1. Nothing is changed and no daemon is started: what could be done is said, to be typed by whoever may.
//! 2. Checks are functions of what was read; tests read machines that are not here.
//! 3. What counts are the rights of the process that would open kernel events: the daemon that would be used, where one runs.
//! 4. A check that keeps from something says from what; a need is met where none does.
//!
//! Not here: trying. A perf event that is opened for a try tells more than files do, and takes code that is not safe.

mod check;
mod families;
mod hardware;
mod kernel;
mod machine;
mod page;
mod patience;
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

use crate::cli::{Doctor, Need};
use crate::exit::Outcome;
use crate::output::Output;
use crate::sessions;
pub(crate) use machine::has_kprobes;

use check::{Check, in_the_way};
use machine::{Machine, Surroundings};
use service::{Folder, Life};
use target::{Meeting, Target};

/// Sockets of each user that are looked at.
const MAX_SOCKETS: usize = 4096;
/// The status of what is not permitted.
const NOT_PERMITTED: u8 = 77;

/// Runs the command.
pub(super) fn run(options: &Doctor) -> Result<Outcome> {
    let around = Surroundings {
        is_restartable: is_restartable(),
        counter: Counter::best(),
        counters: counters(),
        folders: service::folders(options.daemon_choice.scope()),
    };
    let machine = Machine::at(Path::new("/"), around);
    let mut checks = checks(&machine);
    if let Some(pid) = options.pid {
        let meeting = meeting(options, &machine.around.folders, pid);
        checks.extend(Target::at(Path::new("/"), pid).checks(&meeting));
    }
    let text = if options.json {
        page::objects(&checks, &options.need)
    } else {
        page::page(&checks, &options.need, options.all)
    };
    let mut output = Output::open(None)?;
    output.buffer().extend_from_slice(text.as_bytes());
    output.flush()?;
    Ok(outcome(&checks, &options.need))
}

/// Everything about the machine.
fn checks(machine: &Machine) -> Vec<Check> {
    let parts =
        [place::checks(machine), perf::checks(machine), kernel::checks(machine), hardware::checks(machine)];
    parts.into_iter().flatten().collect()
}

/// Events of programs are always asked for.
fn outcome(checks: &[Check], asked: &[Need]) -> Outcome {
    let is_met = |need: Need| in_the_way(checks, need).next().is_none();
    let mut needed = asked.iter().copied().chain([Need::Events]);
    if needed.all(is_met) { Outcome::Fine } else { Outcome::Status(NOT_PERMITTED) }
}

/// Where a process and the daemon that would be used meet.
fn meeting(options: &Doctor, folders: &[Folder], pid: u32) -> Meeting {
    let runs = |it: &&Folder| matches!(it.life, Life::Running(_));
    let startable = || folders.iter().find(|it| matches!(it.life, Life::Startable));
    let folder = folders.iter().find(runs).or_else(startable).or_else(|| folders.last());
    // The first that runs is the one that is found; where another is in its way, that has been told.
    let daemon = folder.filter(runs).and_then(|_| sessions::find(options.daemon_choice).ok()?);
    let registered = daemon.and_then(|mut it| it.providers().ok());
    let of_it: Option<Vec<_>> =
        registered.map(|all| all.into_iter().filter(|it| it.pids.contains(&pid)).collect());
    let is_contained = of_it
        .as_ref()
        .filter(|all| !all.is_empty())
        .map(|all| all.iter().any(|it| it.contained.contains(&pid)));
    let names = of_it.map(|all| {
        all.into_iter()
            .map(|it| sessions::named(&it).map_or_else(|| format!("{{{}}}", it.provider), str::to_owned))
            .collect()
    });
    let dir = folder.and_then(|it| RuntimeDir::of(it.scope).ok());
    let sockets = dir.and_then(|it| it.provider_sockets(MAX_SOCKETS).ok());
    Meeting {
        own_user: rustix::process::geteuid().as_raw(),
        named: service::named(),
        folder: folder.map(|it| it.path.clone()).unwrap_or_default(),
        is_system: folder.is_some_and(Folder::is_of_system),
        sockets: sockets.map(|all| all.iter().map(|it| (it.pid, it.uid)).collect()),
        registered: names,
        is_contained,
    }
}
