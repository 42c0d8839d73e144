//! What handlers remember between records: one part for each family.

use crate::control::{Scope, Wanted};
use crate::counter::Counter;
use crate::family::{
    config, disk, file, image, interrupt, memory, network, process, profile, schedule, syscall,
};
use crate::groups::Groups;

/// All that is remembered.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// What is wanted now.
    pub(crate) groups: Groups,
    /// Whose events.
    pub(crate) scope: Scope,
    /// How often the timer samples, in 100 ns.
    pub(crate) interval: u32,
    /// Sources that sample beside the timer.
    pub(crate) profile_sources: Vec<Counter>,
    /// Counters that are read with events.
    pub(crate) counters: Vec<Counter>,
    /// The last change that was seen.
    pub(crate) changes: u64,
    /// Processes and threads that are alive: everybody may look things up here.
    pub(crate) tasks: process::Tasks,
    pub(crate) images: image::State,
    pub(crate) schedule: schedule::State,
    pub(crate) profile: profile::State,
    pub(crate) interrupts: interrupt::State,
    pub(crate) syscalls: syscall::State,
    pub(crate) memory: memory::State,
    pub(crate) disks: disk::State,
    pub(crate) files: file::State,
    pub(crate) network: network::State,
    pub(crate) config: config::State,
}

impl State {
    /// Sees what is wanted after so many changes. Whether there is anything new.
    pub(crate) fn see(&mut self, wanted: &Wanted, changes: u64) -> bool {
        if self.changes == changes {
            return false;
        }
        self.changes = changes;
        (self.groups, self.interval, self.scope) = (wanted.groups, wanted.interval, wanted.scope);
        self.profile_sources.clone_from(&wanted.profile_sources);
        self.counters.clone_from(&wanted.counters);
        true
    }
}
