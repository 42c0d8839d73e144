//! Families of kernel events: the perf events that each needs, and the handlers that convert them.
//!
//! | module | kernel events | source |
//! |---|---|---|
//! | [`process`] | processes and threads: start, end, rundown | fork, exit, comm records, /proc |
//! | [`image`] | images: load, unload, rundown, their ids | mmap records, /proc |
//! | [`schedule`] | context switch, ready thread, priority | `sched:*` |
//! | [`profile`] | samples and the sampling interval | cpu-clock |
//! | [`interrupt`] | interrupts and deferred calls | `irq:*` |
//! | [`syscall`] | system calls | `raw_syscalls:*` |
//! | [`memory`] | page faults, virtual memory | `exceptions:*`, faults |
//! | [`disk`] | disk requests | `block:*` |
//! | [`file`] | file names and operations | `syscalls:*` |
//! | [`network`] | TCP and UDP | `tcp:*`, `sock:*`, `udp:*` |
//! | [`config`] | description of the machine | /proc, /sys |

pub(crate) mod config;
pub(crate) mod disk;
pub(crate) mod file;
pub(crate) mod image;
pub(crate) mod interrupt;
pub(crate) mod memory;
pub(crate) mod network;
pub(crate) mod process;
pub(crate) mod profile;
pub(crate) mod schedule;
pub(crate) mod syscall;

use crate::groups::{Group, Groups};
use crate::kallsyms;
use crate::out::Out;
use crate::record::{Context, Other};
use crate::spec::Spec;
use crate::state::State;

/// The rows of all families.
pub(crate) static SPECS: [&[Spec]; 10] = [
    process::SPECS,
    schedule::SPECS,
    profile::SPECS,
    interrupt::SPECS,
    syscall::SPECS,
    memory::SPECS,
    disk::SPECS,
    file::SPECS,
    file::OPEN_SPECS,
    network::SPECS,
];

/// Returns all rows. A row is identified by its index in this order.
pub(crate) fn specs() -> impl Iterator<Item = &'static Spec> {
    SPECS.iter().flat_map(|family| family.iter())
}

/// Passes a record that is not a sample to the families that handle it.
pub(crate) fn on_other(state: &mut State, context: &Context, other: &Other<'_>, out: &mut Out<'_>) {
    // Images are unloaded before the end of their process is written, and loaded after its start.
    image::on_end(state, context, other, out);
    process::on_other(state, context, other, out);
    image::on_other(state, context, other, out);
    schedule::on_other(state, context, other, out);
    memory::on_other(state, context, other, out);
    file::on_other(state, context, other, out);
}

/// Drops state that lost records may have made wrong: the end of an operation may be among them.
pub(crate) fn forget(state: &mut State) {
    schedule::forget(state);
    interrupt::forget(state);
    memory::forget(state);
    disk::forget(state);
    file::forget(state);
    network::forget(state);
}

/// Whether a rundown belongs to the start or to the end of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rundown {
    Start,
    End,
}

/// Writes the rundown of the machine, processes, threads, images, open files and intervals.
pub(crate) fn run_down(state: &mut State, when: Rundown, out: &mut Out<'_>) {
    config::run_down(state, when, out);
    process::run_down(state, when, out);
    image::run_down(state, when, out);
    file::run_down(state, when, out);
    profile::run_down(state, when, out);
}

/// Groups that begin with a rundown. What the rundown has written may have ended before the groups
/// were enabled, and those ends are written too.
const RUN_DOWN: [&[Group]; 3] = [process::GROUPS, &[Group::IMAGE_LOAD], file::NAME_GROUPS];

/// Returns the groups for which records from before a change are handled: those enabled until then,
/// and the new groups that begin with a rundown.
pub(crate) fn until_change(before: Groups, wanted: &Groups) -> Groups {
    RUN_DOWN.iter().fold(before, |all, groups| all.with_those_of(wanted, groups))
}

/// Writes the rundown of the groups that have been enabled since `before`.
pub(crate) fn run_down_new(state: &mut State, before: &Groups, out: &mut Out<'_>) {
    let wanted = state.groups;
    let new = wanted.without(before);
    // The groups that were enabled before have had their rundown.
    state.groups = new;
    if new.has_any(process::GROUPS) {
        process::run_down(state, Rundown::Start, out);
    }
    image::run_down(state, Rundown::Start, out);
    if !before.has_any(file::NAME_GROUPS) {
        file::run_down(state, Rundown::Start, out);
    }
    state.groups = wanted;
}

/// Reads the kernel's symbols, if these groups need them, before their first event is opened. The
/// reading is slow, and no ring may fill up meanwhile.
pub(crate) fn prepare(groups: Groups) {
    if groups.has_any(interrupt::ROUTINE_GROUPS) || groups.has(Group::SYSTEMCALL) {
        kallsyms::read_once();
    }
}

/// Handles a change of groups, intervals or sources since the last poll.
pub(crate) fn on_change(state: &mut State, out: &mut Out<'_>) {
    interrupt::on_change(state);
    syscall::on_change(state);
    profile::on_change(state, out);
}

/// Finishes a poll: writes the events that had to wait until all rings were read.
pub(crate) fn settle(state: &mut State, out: &mut Out<'_>) {
    process::finish_poll(state, out);
}

/// Prepares the state before the capture begins, so that the rings need not wait later.
pub(crate) fn prepare_state(state: &mut State) {
    image::prepare(state);
}

/// Begins a poll: reads sources other than the rings, and what would be gone later.
pub(crate) fn beside(state: &mut State) {
    process::poll(state);
    file::poll(state);
    network::poll(state);
    image::poll(state);
}
