//! Families of kernel events: which perf events they are made of, and how.
//!
//! | module | kernel events | of |
//! |---|---|---|
//! | [`process`] | processes and threads: start, end, rundown | fork, exit and comm records, /proc |
//! | [`image`] | images: load, unload, rundown, their ids | mmap records, /proc |
//! | [`schedule`] | context switch, ready thread, priority | `sched:*` |
//! | [`profile`] | samples, and the interval they are taken at | cpu-clock |
//! | [`interrupt`] | interrupts and deferred calls | `irq:*` |
//! | [`syscall`] | system calls | `raw_syscalls:*` |
//! | [`memory`] | page faults, virtual memory | `exceptions:*`, faults |
//! | [`disk`] | disk requests | `block:*` |
//! | [`file`] | file names and operations | `syscalls:*` |
//! | [`network`] | TCP and UDP | `tcp:*`, `sock:*`, `udp:*` |
//! | [`config`] | what the machine is | /proc, /sys |

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
    file::OPENING_SPECS,
    network::SPECS,
];

/// All rows; their number in this order is what they are known by.
pub(crate) fn specs() -> impl Iterator<Item = &'static Spec> {
    SPECS.iter().flat_map(|family| family.iter())
}

/// Handles a record that is no sample.
pub(crate) fn on_other(state: &mut State, context: &Context, other: &Other<'_>, out: &mut Out<'_>) {
    // Images leave before their process does, and come after it.
    image::on_end(state, context, other, out);
    process::on_other(state, context, other, out);
    image::on_other(state, context, other, out);
    schedule::on_other(state, context, other, out);
    memory::on_other(state, context, other, out);
    file::on_other(state, context, other, out);
}

/// Records were lost: what is remembered of things that end may be over.
pub(crate) fn forget(state: &mut State) {
    schedule::forget(state);
    interrupt::forget(state);
    memory::forget(state);
    disk::forget(state);
    file::forget(state);
    network::forget(state);
}

/// Whether the state of what is there already is told at the start, at the end or in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rundown {
    Start,
    End,
}

/// Tells of everything that is there: processes, threads, images, files, intervals, the machine.
pub(crate) fn run_down(state: &mut State, when: Rundown, out: &mut Out<'_>) {
    config::run_down(state, when, out);
    process::run_down(state, when, out);
    image::run_down(state, when, out);
    file::run_down(state, when, out);
    profile::run_down(state, when, out);
}

/// Groups that begin with a rundown of what is there. Whatever it has told of may end before they were switched on, and that is told too.
const RUN_DOWN: [&[Group]; 3] = [process::TOLD, &[Group::IMAGE_LOAD], file::NAMES];

/// What is told of records from before a change: what was wanted then, and what the rundown of the new groups has begun.
pub(crate) fn until_change(before: Groups, wanted: &Groups) -> Groups {
    RUN_DOWN.iter().fold(before, |all, groups| all.with_those_of(wanted, groups))
}

/// Tells of what is there and was of no interest before: its groups have been switched on since.
pub(crate) fn run_down_new(state: &mut State, before: &Groups, out: &mut Out<'_>) {
    let wanted = state.groups;
    let new = wanted.without(before);
    // What is wanted already has been told.
    state.groups = new;
    if new.has_any(process::TOLD) {
        process::run_down(state, Rundown::Start, out);
    }
    image::run_down(state, Rundown::Start, out);
    if !before.has_any(file::NAMES) {
        file::run_down(state, Rundown::Start, out);
    }
    state.groups = wanted;
}

/// Does what is slow before the first event of these groups is opened, so that no ring fills up meanwhile.
pub(crate) fn prepare(groups: Groups) {
    if groups.has_any(interrupt::ROUTINES) || groups.has(Group::SYSTEMCALL) {
        kallsyms::read_once();
    }
}

/// Something else is wanted than at the look before.
pub(crate) fn on_change(state: &mut State, out: &mut Out<'_>) {
    interrupt::on_change(state);
    syscall::on_change(state);
    profile::on_change(state, out);
}

/// At the end of a look: what had to wait until the rings were read.
pub(crate) fn settle(state: &mut State, out: &mut Out<'_>) {
    process::settle(state, out);
}

/// Before anything is captured: what would keep the rings waiting later.
pub(crate) fn prepare_state(state: &mut State) {
    image::prepare(state);
}

/// Between looks: what is not in the rings, and what has to be looked at before it is gone.
pub(crate) fn beside(state: &mut State) {
    process::beside(state);
    file::beside(state);
    network::beside(state);
    image::beside(state);
}
