//! The state that handlers keep between records: one part for each family.

use crate::control::{Scope, Wanted};
use crate::counter::Counter;
use crate::family::{
    config, disk, file, image, interrupt, memory, network, process, profile, schedule, syscall,
};
use crate::groups::Groups;

/// The settings in effect and the state of all families.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// Groups that are enabled now.
    pub(crate) groups: Groups,
    /// The processes whose events are captured.
    pub(crate) scope: Scope,
    /// Sampling interval of the timer, in 100 ns.
    pub(crate) interval: u32,
    /// Profile sources that sample in addition to the timer.
    pub(crate) profile_sources: Vec<Counter>,
    /// Counters that are read with events.
    pub(crate) counters: Vec<Counter>,
    /// The number of the last change that was applied.
    pub(crate) changes: u64,
    /// Processes and threads that are alive; all families look tasks up here.
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
    /// Applies the settings of change number `changes`. Returns whether they are new.
    pub(crate) fn apply_settings(&mut self, wanted: &Wanted, changes: u64) -> bool {
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
